#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures latencies and samples per second of predictions on one core: in libtrshard, its compute by itself, and torchrec's quantised model.

    tools/bench_predict.py BUILD [PEER_PYTHON] [--rows 100000] [--rounds 3]

BUILD is a build folder with trshard and libtrshard. PEER_PYTHON is a python with torch, torchrec and fbgemm-gpu-cpu, or none. The models have
26 tables of dim 64, int8, one id per feature, 13 dense features, and small MLPs (64-64, 64-1) or large MLPs (512-256-64, 512-512-256-1).
Batches have 1 and 64 samples. The programs run in turn; a number is the median over rounds. The goals are: median and 99th percentile at most
2 times those of the compute by itself (regression/bench/bench_forward.c), and 5 times the samples per second of the peer. The milliseconds to
open a model have no goal.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

import bench_common as common

TOOLS = os.path.dirname(os.path.abspath(__file__))
MODELS = {"small": ("64", "64,1"), "large": ("512,256,64", "512,512,256,1")}
OURS = re.compile(r"opened in ([\d.]+) ms\n.*?median ([\d.]+) us, 99 of 100 below ([\d.]+) us\n.*?([\d.]+) samples a second", re.S)


def prepare(build, folder, rows):
    """Makes the checkpoints of both models, and the program that predicts."""
    common.output_of([sys.executable, os.path.join(TOOLS, "generate_data.py"), "--output", os.path.join(folder, "train.h5"), "--num-samples", "2048", "--num-embeddings", str(rows)])
    for name, (dense, over) in MODELS.items():
        common.output_of([os.path.join(build, "trshard"), "-data_train", os.path.join(folder, "train.h5"), "-batch_size", "1024", "-steps", "2", "-tables_embedding_dim", "64",
                          "-dense_arch", dense, "-over_arch", over, "-checkpoint_final", os.path.join(folder, f"{name}.h5")])
    program = os.path.join(folder, "predict")
    common.output_of(["mpicc", "-O2", os.path.join(TOOLS, "examples", "predict.c"), "-I", os.path.join(TOOLS, "..", "src", "api"), "-L", build, f"-Wl,-rpath,{build}", "-ltrshard", "-lpthread", "-o", program])
    return program


def ours(program, folder, name, batch):
    text = common.output_of([program, os.path.join(folder, f"{name}.h5"), str(batch), "1", "-tables_data_type int8 -bounds_check_mode ignore"], common.threads_environment(1))
    opening, *times = OURS.search(text).groups()
    return [float(x) for x in (*times, opening)]


def alone(build, name, batch):
    dense, over = MODELS[name]
    words = [os.path.join(build, "regression", "bench", "bench_forward"), "-batch_size", str(batch), "-dense_arch", dense, "-over_arch", over]
    return [float(x) for x in common.output_of(words, common.threads_environment(1)).split()]


def theirs(peer, rows, name, batch):
    text = common.output_of([peer, os.path.join(TOOLS, "bench_predict_peer.py"), str(rows), *MODELS[name], str(batch)], common.threads_environment(1), timeout=600)
    return [float(x) for x in text.split()[-3:]]


def parser_of(description):
    """The arguments of this program, which are those of bench_serve.py, too."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("peer", nargs="?", default="none")
    parser.add_argument("--rows", type=int, default=100000, help="of each table (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant, of which medians count (default: %(default)s)")
    return parser


def main():
    args = parser_of(__doc__).parse_args()
    peer, build = common.peer_python(args.peer), os.path.abspath(args.build)
    print(f"{'model':<7}{'batch':>6}  {'trshard: median us':>19}{'99 of 100':>11}{'samples/s':>12}{'open ms':>9}  {'compute: median us':>19}{'ratio':>7}{'99 of 100':>11}{'ratio':>7}"
          f"  {'TorchRec: median us':>20}{'99 of 100':>11}{'samples/s':>12}{'ratio':>8}")
    with tempfile.TemporaryDirectory(prefix="trshard_predict_") as folder:
        program = prepare(build, folder, args.rows)
        for name in MODELS:
            for batch in (1, 64):
                rounds = [(ours(program, folder, name, batch), alone(build, name, batch), theirs(peer, args.rows, name, batch) if peer else None) for _ in range(args.rounds)]
                a = [statistics.median(r[0][k] for r in rounds) for k in range(4)]
                c = [statistics.median(r[1][k] for r in rounds) for k in range(2)]
                line = f"{name:<7}{batch:>6}  {a[0]:>19.1f}{a[1]:>11.1f}{a[2]:>12,.0f}{a[3]:>9.1f}  {c[0]:>19.1f}{a[0] / c[0]:>7.2f}{c[1]:>11.1f}{a[1] / c[1]:>7.2f}"
                if peer:
                    b = [statistics.median(r[2][k] for r in rounds) for k in range(3)]
                    line += f"  {b[0]:>20.1f}{b[1]:>11.1f}{b[2]:>12,.0f}{a[2] / b[2]:>8.1f}"
                print(line, flush=True)


if __name__ == "__main__":
    try:
        main()
    except (common.Failed, subprocess.SubprocessError) as error:
        sys.exit(f"bench_predict: {error}")
