#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the cost of -reproducible: the same training with and without it, stage by stage, for each sharding type.

  bench_reproducible.py build/trshard                            4 ranks, a DLRM of 8 tables, all types of one host
  bench_reproducible.py build/trshard --ranks 2 --types row_wise --steps 100 --repeat 5
  bench_reproducible.py build/trshard --json cost.json            also to a file

With -reproducible the stage "dense forward" contains the layers' backward, and "optimizer" the sum of their gradients. Runs of the two modes
take turns. A number is the median over repetitions of the mean over ranks, in ms per step. The machine should be otherwise idle and have a core
for each rank: with fewer cores than ranks, waiting counts as work.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import trspython

trspython.require("h5py")

import h5py

TYPES = ["table_wise", "column_wise", "row_wise", "table_row_wise", "grid_shard", "data_parallel"]
HERE = os.path.dirname(os.path.abspath(__file__))


def make_data(args, folder):
    subprocess.run([sys.executable, os.path.join(HERE, "generate_data.py"), "--output", os.path.join(folder, "train.h5"), "--num-samples",
                    str(args.batch * args.steps), "--features", "8", "--num-embeddings", str(args.rows), "--num-dense", "13", "--pooling", str(args.pooling)],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run(args, folder, kind, reproducible):
    """ms per step of each stage, mean over ranks."""
    words = (f"-data_train train.h5 -batch_size {args.batch // args.ranks} -steps {args.steps} -tables_embedding_dim {args.dim} "
             f"-dense_arch 512,256,{args.dim} -over_arch 512,256,1 -embedding_optimizer {args.optimizer} -tables_sharding_types {kind} "
             f"-tables_min_partition {args.dim // 2} -output run.h5 -device {args.device} -reproducible {'true' if reproducible else 'false'}").split()
    subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(args.ranks), os.path.abspath(args.binary)] + words,
                   cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with h5py.File(os.path.join(folder, "run.h5")) as h:
        return dict(zip(h.attrs["stage_names"].split(","), h["stages/measured_ms"][()].mean(axis=0)))


def measure(args, folder, kind):
    """{stage: (normal, reproducible)} in ms per step, and their totals."""
    rounds = [[run(args, folder, kind, mode) for mode in (False, True)] for _ in range(args.repeat)]
    return {stage: [statistics.median(r[mode][stage] for r in rounds) for mode in (0, 1)] for stage in rounds[0][0]} | {
        "total": [statistics.median(sum(r[mode].values()) for r in rounds) for mode in (0, 1)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--types", default=",".join(TYPES), help="sharding types (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=4096, help="global batch (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--rows", type=int, default=100000, help="of each table")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--pooling", type=int, default=8, help="ids a bag")
    parser.add_argument("--optimizer", default="rowwise_adagrad")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda with a GPU for each rank")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(prefix="trshard-reproducible-") as folder:
        make_data(args, folder)
        for kind in args.types.split(","):
            found[kind] = measure(args, folder, kind)
            print(f"{kind}: {found[kind]['total'][1] / found[kind]['total'][0]:.2f} times the normal mode's step")
            for stage, (normal, reproducible) in found[kind].items():
                if max(normal, reproducible) >= 0.005 * found[kind]["total"][1]:
                    ratio = f"{reproducible / normal:8.2f}" if normal > 0 else "       -"
                    print(f"  {stage:20} {normal:9.3f} ms {reproducible:9.3f} ms {ratio}", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump({"options": vars(args), "ms_per_step": found}, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
