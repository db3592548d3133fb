#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Trains the same DLRMs with trshard and with the real TorchRec, in turn. Writes a table of goals, a CSV of all samples and a picture.
#
#   tools/bench_torchrec.sh BINARY PEER_PYTHON [--cases large1,small10-zipf,types,...|all] [--minutes 10] [--resume] [--rounds 3] [--csv FILE] [--plot FILE]
#
# BINARY is trshard (build/trshard). PEER_PYTHON is a python with torch, torchrec and fbgemm-gpu-cpu, or none. It takes about 10 minutes on an
# otherwise idle machine, or 40 with --cases all. tools/bench_torchrec.py --help describes the measurement.
# To make a peer: python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2 fbgemm-gpu-cpu==1.9.0
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$0")/bench_torchrec.py" "$@"
