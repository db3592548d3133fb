#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Trains on hosts that a network of 1, 10 or 25 Gbit/s joins, which are network namespaces of this machine. Compares each step with a model's
# prediction and with TorchRec. Writes a table, a CSV of all samples and a picture.
#
#   tools/bench_hosts.sh BINARY [PEER_PYTHON] [--hosts 2,4,8] [--gbps 1,10,25] [--delay-us 50] [--types table_wise,...] [--case large1] [--minutes M] [--resume]
#
# BINARY is trshard (build/trshard). It needs root or user namespaces, Debian's iproute2 and Open MPI 4; elsewhere it ends with 77 and the reason.
# tools/bench_hosts.py --help describes the measurement.
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$0")/bench_hosts.py" "$@"
