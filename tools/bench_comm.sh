#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Our exchanges beside the raw MPI collectives of the same size, in the same ranks, in turn.
#
#   tools/bench_comm.sh BUILD_OR_BINARY [--ranks 2,4] [--sizes 4KiB,...] [--rounds 3] [--minutes M] [--resume] [--csv FILE] [--plot FILE]
#
# BUILD_OR_BINARY is the build folder, where bench_comm is built if it is not there yet, or bench_comm itself. About 5 minutes on a machine
# that does nothing else meanwhile; tools/bench_comm.py --help says what is measured and how.
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$0")/bench_comm.py" "$@"
