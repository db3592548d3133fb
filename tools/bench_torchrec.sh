#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The same workload in trshard and in the real TorchRec, in turn; the ratio is on the last line.
#
#   tools/bench_torchrec.sh BINARY PEER_PYTHON [--pooling 1,10] [--rounds 3] [--ranks 2] [--threads 1]
#
# BINARY is trshard (build/trshard); PEER_PYTHON a python with torch, torchrec and fbgemm-gpu-cpu. About 8 minutes on a
# machine that does nothing else meanwhile; tools/bench_torchrec.py --help says what is measured and how.
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$0")/bench_torchrec.py" "$@"
