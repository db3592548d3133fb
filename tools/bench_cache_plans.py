#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the value of a dataset's statistics: plans with and without them, trained in turn, and the rows that their caches miss.

  bench_cache_plans.py build/trshard                   all cases, 3 rounds
  bench_cache_plans.py build/trshard --case four-30MB --rounds 5 --json plans.json

A case has a dataset, and GPUs that are too small for all its tables. The dataset has tables of 50,000 x 64 floats and 4
ids per sample. Ids follow zipf with the given exponents (0: uniform). The planner plans for these GPUs with and without
tools/dataset_statistics.py. Both plans are then trained on this machine. A CPU's caches follow the same rule as a GPU's,
so the missed rows are the rows that a GPU would fetch from the host. On a CPU, cache lines and tables are in the same
memory, so times do not show the effect of misses. The printed time of a step shows the cost of the caches' bookkeeping.
The two runs take turns, and a time is the best of all rounds. The predicted hit rate is the planner's (-plan_report).

Exit status: 1 if a plan with statistics misses more rows than the plan without (by 1 % or more), or if it does not miss
at least a fifth fewer on zipf data.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import trspython

trspython.require("h5py", "numpy")

import h5py
import numpy as np

import trsdata

HERE = os.path.dirname(os.path.abspath(__file__))
DIM, ROWS, BAG, BATCH = 64, 50000, 4, 256
DEFAULT = "grid_search,greedy,greedy_no_depth,uniform"
# name: exponents, memory of a GPU, GPUs, proposers. Cases with scaleup may give caches other load factors.
CASES = {
    "two-20MB": ((1.2, 0), "20MB", 1, DEFAULT),
    "four-30MB": ((0.8, 1.3, 1.0, 0), "30MB", 1, DEFAULT),
    "four-30MB-scaleup": ((0.8, 1.3, 1.0, 0), "30MB", 1, DEFAULT + ",embedding_offload_scaleup"),
    "six-40MB": ((0.8, 1.3, 1.0, 0, 1.1, 0.9), "40MB", 1, DEFAULT),
    "six-40MB-scaleup": ((0.8, 1.3, 1.0, 0, 1.1, 0.9), "40MB", 1, DEFAULT + ",embedding_offload_scaleup"),
    "equal-16MB-scaleup": ((1.05, 1.05, 1.05), "16MB", 1, DEFAULT + ",embedding_offload_scaleup"),
    "four-2x14MB-scaleup": ((0.8, 1.3, 1.0, 0), "14MB,14MB", 2, DEFAULT + ",embedding_offload_scaleup"),
    "uniform-20MB-scaleup": ((0, 0), "20MB", 1, DEFAULT + ",embedding_offload_scaleup"),
}


def make_data(path, exponents, samples):
    rng, values = np.random.default_rng(1), []
    for exponent in exponents:
        share = np.cumsum(np.arange(1, ROWS + 1)**-float(exponent))
        values.append(rng.permutation(ROWS)[np.searchsorted(share / share[-1], rng.random(samples * BAG)).clip(0, ROWS - 1)])
    lengths = np.full((samples, len(exponents)), BAG, np.int32)
    with trsdata.DatasetWriter(path, [f"t{i}" for i in range(len(exponents))], [ROWS] * len(exponents), 2) as out:
        out.append(rng.random((samples, 2)), rng.integers(0, 2, samples), lengths, trsdata.interleave(lengths, values))


def run(args, folder, ranks, words):
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), os.path.abspath(args.binary)]
    result = subprocess.run(command + words.split(), cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{words}\n{result.stdout[-1500:]}{result.stderr[-1500:]}")


def make_plan(args, folder, case, name, more):
    """Returns the options of a training with the plan, its tables, and the predicted hit rate."""
    _, memory, ranks, proposers = CASES[case]
    model = f"-data_train train.h5 -tables_embedding_dim {DIM} -batch_size {BATCH} -dense_arch 8,{DIM} -over_arch 8,1 -tables_sharding_types table_wise {more}"
    choice = "-tables_compute_kernels fused,fused_uvm_caching -tables_cache_load_factor 0.1"
    run(args, folder, 1, f"-task plan {model} {choice} -topology_compute_device cuda -topology_world_size {ranks} -topology_hbm_cap_per_rank {memory} "
        f"-plan_storage_reservation fixed_percentage -plan_storage_reservation_percentage 0 -plan_proposers {proposers} -plan_output {name}.json -plan_report {name}.txt")
    with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
        tables = json.load(file)["tables"]
    cached = {table["name"]: table["cache_load_factor"] for table in tables if table["compute_kernel"] == "fused_uvm_caching"}
    with open(os.path.join(folder, name + ".txt"), encoding="utf-8") as file:
        predicted = next((float(line.split()[2].rstrip("%")) / 100 for line in file if line.startswith("All caches: ")), None)
    return f"{model}{' ' + choice if cached else ''} -metrics_every 0 -plan_input {name}.json -output run.h5", cached, predicted


def train(args, folder, ranks, words):
    """Counts of distinct rows that hit and that miss, over all steps, and ms per step."""
    run(args, folder, ranks, words)
    with h5py.File(os.path.join(folder, "run.h5")) as h:
        asked, missed = (int(h[f"cache/{name}"][()].sum()) if "cache" in h else 0 for name in ("unique_ids", "unique_misses"))
        speed = h["train/samples_per_s"][()]
        return asked, missed, 1e3 * BATCH * ranks / float(np.median(speed[len(speed) // 10:])), len(speed)


def measure(args, case):
    exponents, memory, ranks, _ = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        make_data(os.path.join(folder, "train.h5"), exponents, args.samples)
        subprocess.run([sys.executable, os.path.join(HERE, "dataset_statistics.py"), "train.h5", "--batch-size", str(BATCH), "--ranks", str(ranks), "-o", "s.opts"],
                       cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        plans = {name: make_plan(args, folder, case, name, more) for name, more in (("without", ""), ("with", "-options_file s.opts"))}
        found = {name: [] for name in plans}
        for turn in range(args.rounds):
            for name in list(plans)[::-1 if turn % 2 else 1]:
                found[name].append(train(args, folder, ranks, plans[name][0]))
    row = {"case": case, "exponents": exponents, "memory": memory, "ranks": ranks}
    for name, runs in found.items():
        asked, missed, _, steps = runs[0]
        row[name] = {"missed": missed, "hits": 1 - missed / asked if asked else None, "predicted_hits": plans[name][2], "cached": plans[name][1],
                     "kib_a_step": missed * DIM * 4 / 1024 / steps, "ms_a_step": min(r[2] for r in runs)}
    return row


def show(row):
    for name in ("without", "with"):
        plan = row[name]
        hits = "-" if plan["hits"] is None else f"{plan['hits']:.3f}"
        predicted = "-" if plan["predicted_hits"] is None else f"{plan['predicted_hits']:.3f}"
        cached = ", ".join(f"{table} {factor:.2f}" for table, factor in plan["cached"].items()) or "none"
        print(f"{row['case']:<22} {name:<8} {plan['missed']:>9,} {plan['kib_a_step']:>8.1f} {hits:>6} {predicted:>9} {plan['ms_a_step']:>8.2f}  {cached}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--case", action="append", choices=CASES, help="one of the cases; may be given again (default: all)")
    parser.add_argument("--samples", type=int, default=40000, help="of a dataset (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each plan (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to a file")
    args = parser.parse_args()
    print(f"{'case':<22} {'plan':<8} {'misses':>9} {'KiB/step':>8} {'hits':>6} {'predicted':>9} {'ms/step':>8}  cached tables and load factors")
    rows, bad = [], []
    for case in args.case or CASES:
        rows.append(measure(args, case))
        show(rows[-1])
        least = 0.8 if any(rows[-1]["exponents"]) else 1.01
        if rows[-1]["with"]["missed"] > least * rows[-1]["without"]["missed"]:
            bad.append(case)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump(rows, out, indent=1)
    if bad:
        print(f"not as many fewer misses as expected: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
