#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares our exchanges with the raw MPI collectives of the same size, in the same ranks, in turn.
#
#   tools/bench_comm.sh BUILD_OR_BINARY [--ranks 2,4] [--sizes 4KiB,...] [--rounds 3] [--minutes M] [--resume] [--csv FILE] [--plot FILE]
#
# BUILD_OR_BINARY is bench_comm itself, or the build folder, where bench_comm is built if it is missing. It takes about 5 minutes on an
# otherwise idle machine. tools/bench_comm.py --help describes the measurement.
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$0")/bench_comm.py" "$@"
