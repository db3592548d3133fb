#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# How a step's time and a rank's memory grow with batch, dim, pooling, tables, rows and ranks: a picture and a table each, a CSV of all samples.
#
#   tools/bench_growth.sh BINARY [PEER_PYTHON] [--what batch,dim,pooling,tables,rows,ranks] [--output FOLDER] [--minutes M] [--resume] [--csv FILE]
#
# BINARY is trshard (build/trshard). About 10 minutes on a machine that does nothing else meanwhile, 40 with a peer; tools/bench_growth.py --help.
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$0")/bench_growth.py" "$@"
