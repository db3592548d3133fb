#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The same DLRMs in trshard and in the real TorchRec, in turn: a table of goals, a CSV of all samples, a picture.
#
#   tools/bench_torchrec.sh BINARY PEER_PYTHON [--cases large1,small10-zipf,types,...|all] [--minutes 10] [--resume] [--rounds 3] [--csv FILE] [--plot FILE]
#
# BINARY is trshard (build/trshard); PEER_PYTHON a python with torch, torchrec and fbgemm-gpu-cpu, or none. About 10 minutes on a machine that
# does nothing else meanwhile; --cases all takes about 40. tools/bench_torchrec.py --help says what is measured and how.
# A peer: python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2 fbgemm-gpu-cpu==1.9.0
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$0")/bench_torchrec.py" "$@"
