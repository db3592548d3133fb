#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the cost of deltas: runs the same training with and without -delta_every, in turn, and compares times and sizes of files.

  bench_delta.py build/trshard                            26 tables of 100,000 rows, zipf, a delta every 100 steps
  bench_delta.py build/trshard --every 10 --ranks 2 --repeat 5

The tool measures two times: the processor time of all ranks, which is meaningful also on a busy machine, and the wall time that the run prints
for its steps, evaluations and checkpoints. The first line has the median ratios over the repetitions. The second line compares the size of a
delta with the bytes of its rows.
"""
import argparse
import glob
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

import trspython

trspython.require("h5py", "numpy")

import h5py

HERE = os.path.dirname(os.path.abspath(__file__))


def make_data(args, folder):
    subprocess.run([sys.executable, os.path.join(HERE, "generate_data.py"), "--output", os.path.join(folder, "train.h5"), "--num-samples",
                    str(args.batch * args.steps), "--num-embeddings", str(args.rows), "--pooling", args.pooling, "--ids", args.ids],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run(args, folder, more):
    """(processor time, wall time) of a run in s. The processor time includes the start of the run."""
    words = (f"-data_train train.h5 -batch_size {args.batch // args.ranks} -steps {args.steps} -tables_embedding_dim {args.dim} "
             f"-dense_arch 512,256,{args.dim} {more}").split()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(args.ranks)] if args.ranks > 1 else []
    text = subprocess.run([*launcher, os.path.abspath(args.binary), *words], cwd=folder, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = float(re.search(r"\(([0-9.]+) s with evaluations and checkpoints\)", text)[1])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def sizes(folder):
    """(bytes of a delta, bytes of its rows, bytes of its dense layers), medians over the files."""
    found = []
    for path in glob.glob(os.path.join(folder, "deltas", "step-*.h5")):
        rows, dense = [], []
        with h5py.File(path) as h:
            h.visititems(lambda name, item: (rows if name.startswith("embedding/") and name.endswith("/weight") else dense if name.startswith("dense") else []).append(item.size * item.dtype.itemsize)
                         if isinstance(item, h5py.Dataset) else None)
        found.append((os.path.getsize(path), sum(rows), sum(dense)))
    return [statistics.median(column) for column in zip(*found)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--every", type=int, default=100, help="steps between two deltas (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=2048, help="global batch (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--rows", type=int, default=100000, help="rows of each table (default: %(default)s)")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--pooling", default="1", help="ids in a bag (default: %(default)s)")
    parser.add_argument("--ids", default="zipf", choices=["zipf", "uniform"])
    args = parser.parse_args()
    cpu, wall = [], []
    with tempfile.TemporaryDirectory(prefix="trshard-delta-") as folder:
        make_data(args, folder)
        for _ in range(args.repeat):
            plain = run(args, folder, "")
            shutil.rmtree(os.path.join(folder, "deltas"), ignore_errors=True)
            written = run(args, folder, f"-delta_every {args.every} -delta_dir deltas")
            cpu.append(written[0] / plain[0])
            wall.append(written[1] / plain[1])
        size, rows, dense = sizes(folder) if args.steps >= args.every else (0, 1, 0)
    print(f"time with deltas every {args.every} steps: {statistics.median(cpu):.4f} times the processor time without ({min(cpu):.4f} to {max(cpu):.4f}), "
          f"{statistics.median(wall):.3f} times the wall time")
    print(f"size of a delta: {size / 1e6:.2f} MB, {size / rows:.4f} times the {rows / 1e6:.2f} MB of its rows ({(size - dense - 65536) / rows:.4f} without the dense layers and 64 KiB)")
    return 0


if __name__ == "__main__":
    trspython.run(main)
