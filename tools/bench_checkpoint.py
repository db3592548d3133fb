#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures how long checkpoints pause a training: runs the same training with blocking checkpoints and with -checkpoint_async, in turn.

  bench_checkpoint.py build/trshard                                 26 tables of 20,000 rows on 2 ranks, as fast as the disk is
  bench_checkpoint.py build/trshard --slow 50                       as if each rank wrote 50 MiB/s
  bench_checkpoint.py build/trshard --slow 20 --slow-rank 1         as if only rank 1 wrote slowly: all ranks wait for it

A pause is the wall time between two steps that a checkpoint adds. The slow disk is a library of the tests, which delays writes (TRS_FAULT_SLOW in
regression/fault/fault_preload.c). It must be in the build folder.
"""
import argparse
import glob
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import trspython

trspython.require("h5py", "numpy")

import bench_delta


def run(args, folder, more):
    """(time of steps, pause of a checkpoint, the line about checkpoints beside the training) of a run, times in s."""
    shutil.rmtree(os.path.join(folder, "checkpoints"), ignore_errors=True)
    words = (f"-data_train train.h5 -batch_size {args.batch // args.ranks} -steps {args.steps} -tables_embedding_dim {args.dim} -embedding_optimizer {args.optimizer} "
             f"-dense_arch 512,256,{args.dim} -checkpoint_dir checkpoints -checkpoint_every {args.every} -checkpoint_keep 1 {more}").split()
    environment = dict(os.environ)
    if args.slow:
        library = os.path.join(os.path.dirname(os.path.abspath(args.binary)), "regression", "fault", "libfault_preload.so")
        environment.update(TRS_FAULT_SLOW=f"{1024 * args.slow} {args.slow_rank} checkpoints/", TRS_FAULT_PROGRAM=os.path.realpath(args.binary), LD_PRELOAD=library)
    launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(args.ranks)] if args.ranks > 1 else []
    text = subprocess.run([*launcher, os.path.abspath(args.binary), *words], cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout
    steps_s, all_s = (float(word) for word in re.search(r"in ([0-9.]+) s of steps \(([0-9.]+) s with evaluations and checkpoints\)", text).groups())
    line = re.search(r"^async .*$", text, re.MULTILINE)
    return steps_s, (all_s - steps_s) / (args.steps // args.every), line and line[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--slow", type=float, default=0, help="MiB/s that a rank writes (default: as fast as the disk is)")
    parser.add_argument("--slow-rank", type=int, default=-1, help="the only slow rank (default: all ranks are slow)")
    parser.add_argument("--every", type=int, default=100, help="steps between two checkpoints (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=2048, help="global batch (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=299, help="not a multiple of --every (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20000, help="rows of each table (default: %(default)s)")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--optimizer", default="rowwise_adagrad")
    parser.add_argument("--pooling", default="1", help="ids in a bag (default: %(default)s)")
    parser.add_argument("--ids", default="zipf", choices=["zipf", "uniform"])
    parser.add_argument("--more", default="", help="more options of both trainings")
    args = parser.parse_args()
    blocking, beside = [], []
    with tempfile.TemporaryDirectory(prefix="trshard-checkpoint-") as folder:
        bench_delta.make_data(args, folder)
        for _ in range(args.repeat):
            blocking.append(run(args, folder, args.more))
            beside.append(run(args, folder, f"-checkpoint_async {args.more}"))
        size = max(os.path.getsize(path) for path in glob.glob(os.path.join(folder, "checkpoints", "step-*.h5")))
    pauses = [statistics.median(pause for _, pause, _ in runs) for runs in (blocking, beside)]
    steps = [statistics.median(seconds for seconds, _, _ in runs) for runs in (blocking, beside)]
    print(f"a checkpoint of {size / 1e6:.1f} MB pauses the steps for {1e3 * pauses[0]:.1f} ms, or beside the training for {1e3 * pauses[1]:.1f} ms: {100 * pauses[1] / pauses[0]:.2f} %")
    print(f"{args.steps} steps take {steps[0]:.2f} s, or beside the writing {steps[1]:.2f} s: {steps[1] / steps[0]:.3f} times as long; {(args.steps // args.every)} checkpoints")
    print(beside[-1][2])
    return 0


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    trspython.run(main)
