#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures how a step's time and a rank's memory grow with batch, dim, pooling, tables, rows and ranks. Writes a picture and a table for each,
# and a CSV of all samples.
#
#   tools/bench_growth.sh BINARY [PEER_PYTHON] [--what batch,dim,pooling,tables,rows,ranks] [--output FOLDER] [--minutes M] [--resume] [--csv FILE]
#
# BINARY is trshard (build/trshard). It takes about 10 minutes on an otherwise idle machine, 40 with a peer (tools/bench_growth.py --help).
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$0")/bench_growth.py" "$@"
