#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for PEER_PYTHON in tests of the benchmarks. It gets a peer's script and options, and
prints what the peer would print, with made-up numbers. Only rank 0 of mpirun prints, as the peers do."""
import json
import os
import sys

script, words = os.path.basename(sys.argv[1]), sys.argv[2:]
if os.environ.get("OMPI_COMM_WORLD_RANK", "0") != "0":
    sys.exit()
if script == "bench_torchrec_peer.py":
    print(json.dumps({"samples_per_s": 2.0, "of_pipeline": {"none": 1.0, "sparse_dist": 2.0}, "launch_s": 1000.0, "resident_bytes": 1 << 30}))
elif script == "bench_kernels_peer.py" and "--dense" in words:
    print("step ms,1e6")
elif script == "bench_kernels_peer.py":
    print("\n".join(f"{kernel},0.001" for kernel in ("forward fp32", "forward fp32 torch", "backward rowwise_adagrad", "bucketize 64", "encode int8")))
elif script == "bench_planner_peer.py":
    print(json.dumps({"cpu_s": 1000.0}))
else:
    sys.exit(f"{script} is no peer's script")
