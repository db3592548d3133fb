#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains the same DLRM in trshard and in the real TorchRec, in turn, and prints the ratio. Called by bench_torchrec.sh.

26 tables of 100,000 rows, dim 64, batch 2048 a rank, 2 ranks of one thread, row-wise AdaGrad, dense SGD, MLPs 512-256-64
and 1024-1024-512-256-1, at one id a bag and at ten. trshard reads its batches from an HDF5 file, TorchRec has them in
memory. TorchRec first runs once in each of four ways (plain loop or TrainPipelineSparseDist, FBGEMM's default kernels or
its auto-vectorised ones), then the best of them counts.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import h5py
import numpy as np

import trsdata

TOOLS = os.path.dirname(os.path.abspath(__file__))
WORKLOAD = {"tables": 26, "rows": 100000, "num-dense": 13, "batch": 2048, "dim": 64, "dense-arch": "512,256,64", "over-arch": "1024,1024,512,256,1"}
BATCHES = 8
AIM = {1: 2.0, 10: 3.0}
VARIANTS = [(pipeline, env) for pipeline in ("none", "sparse_dist") for env in ({}, {"FBGEMM_FORCE_AUTOVEC": "1"})]


def call(command, env=None, tries=1):
    """stdout of a command; what it printed if it fails. tries: gloo's threads abort a finished TorchRec run now and then."""
    for _ in range(tries):
        result = subprocess.run(command, env=dict(os.environ, **(env or {})), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if result.returncode == 0:
            break
    if result.returncode:
        sys.exit(f"{result.stdout[-3000:]}\nfailed with {result.returncode}: {' '.join(command)}")
    return result.stdout


def dataset(folder, pooling, ranks):
    path = os.path.join(folder, f"pooling{pooling}.h5")
    call([sys.executable, os.path.join(TOOLS, "generate_data.py"), "--output", path, "--num-samples", str(BATCHES * WORKLOAD["batch"] * ranks),
          "--features", str(WORKLOAD["tables"]), "--num-embeddings", str(WORKLOAD["rows"]), "--num-dense", str(WORKLOAD["num-dense"]), "--pooling", str(pooling)])
    return path


def ours(args, data, folder):
    """(samples/s over the steps after the warm-up, stage -> ms a step of each rank)"""
    output = os.path.join(folder, "run.h5")
    command = ["mpirun", "--allow-run-as-root", "--bind-to", "core" if args.ranks * args.threads <= (os.cpu_count() or 1) else "none"]
    command += ["--map-by", f"slot:PE={args.threads}"] if args.threads > 1 else []
    command += ["-n", str(args.ranks), args.binary, "-data_train", data, "-batch_size", str(WORKLOAD["batch"]), "-steps", str(args.warmup + args.steps),
                "-tables_embedding_dim", str(WORKLOAD["dim"]), "-dense_arch", WORKLOAD["dense-arch"], "-over_arch", WORKLOAD["over-arch"],
                "-embedding_optimizer", "rowwise_adagrad", "-dense_optimizer", "sgd", "-output", output]
    call(command, {"OMP_NUM_THREADS": str(args.threads), "OPENBLAS_NUM_THREADS": str(args.threads)})
    with h5py.File(output) as h:
        speeds = h["train/samples_per_s"][args.warmup:]
        stages = dict(zip(trsdata.text(h.attrs["stage_names"]).split(","), h["stages/measured_ms"][()].T))
    return float(len(speeds) / np.sum(1 / speeds)), stages


def peer(args, pooling, pipeline, env):
    command = [args.peer_python, os.path.join(TOOLS, "bench_torchrec_peer.py"), "--ranks", str(args.ranks), "--threads", str(args.threads),
               "--pooling", str(pooling), "--pipeline", pipeline, "--batches", str(BATCHES), "--warmup", str(args.warmup), "--steps", str(max(1, args.steps // 3))]
    for name, value in WORKLOAD.items():
        command += [f"--{name}", str(value)]
    return json.loads(call(command, env, tries=3).strip().splitlines()[-1])


def print_stages(stages):
    """Of a whole run, with its warm-up: the mean of the ranks, and the slowest one."""
    shown = {name: ms for name, ms in stages.items() if name != "plan" and ms.any()}
    for name, ms in shown.items():
        print(f"    {name:20}{ms.mean():10.2f} ms a step   slowest rank {ms.max():10.2f}")
    print(f"    {'sum':20}{sum(ms.mean() for ms in shown.values()):10.2f} ms a step")


def compare(args, pooling, folder):
    data = dataset(folder, pooling, args.ranks)
    print(f"\npooling {pooling}:", flush=True)
    tried = {}
    for pipeline, env in VARIANTS:
        tried[pipeline, tuple(env.items())] = peer(args, pooling, pipeline, env)
        print(f"  TorchRec, pipeline {pipeline}{' ' + ' '.join(f'{k}={v}' for k, v in env.items()) if env else ''}: "
              f"{tried[pipeline, tuple(env.items())]['samples_per_s']:,.0f} samples/s", flush=True)
    pipeline, env = max(tried, key=lambda variant: tried[variant]["samples_per_s"])
    mine, theirs = [], []
    for r in range(args.rounds):
        speed, stages = ours(args, data, folder)
        mine.append(speed)
        theirs.append(peer(args, pooling, pipeline, dict(env))["samples_per_s"])
        print(f"  round {r + 1}: trshard {mine[-1]:10,.0f}   TorchRec {theirs[-1]:10,.0f} samples/s   ratio {mine[-1] / theirs[-1]:.2f}", flush=True)
    print("  trshard's stages in the last round:")
    print_stages(stages)
    any_run = next(iter(tried.values()))
    print(f"  median: trshard {statistics.median(mine):,.0f}, TorchRec {statistics.median(theirs):,.0f} samples/s (plan {any_run['plan']}, {any_run['versions']})")
    return statistics.median(mine) / statistics.median(theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BINARY", help="trshard")
    parser.add_argument("peer_python", metavar="PEER_PYTHON", help="a python with torch, torchrec and fbgemm_gpu")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="per rank (default: %(default)s)")
    parser.add_argument("--pooling", default="1,10", help="list (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=5, help="steps (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=30, help="timed in a run (default: %(default)s)")
    args = parser.parse_args()
    args.binary = os.path.abspath(args.binary)
    print(f"{WORKLOAD['tables']} tables x {WORKLOAD['rows']:,} rows x {WORKLOAD['dim']}, batch {WORKLOAD['batch']} a rank, {args.ranks} ranks of {args.threads} thread(s)")
    if os.getloadavg()[0] > 0.5:
        print(f"WARNING: this machine is busy (load {os.getloadavg()[0]:.1f}): the numbers below say little")
    with tempfile.TemporaryDirectory() as folder:
        ratios = {pooling: compare(args, pooling, folder) for pooling in map(int, args.pooling.split(","))}
    print("\ntrshard / TorchRec: " + ", ".join(f"{ratio:.2f} at pooling {pooling}" + (f" (aim {AIM[pooling]:g})" if pooling in AIM else "") for pooling, ratio in ratios.items()))


if __name__ == "__main__":
    main()
