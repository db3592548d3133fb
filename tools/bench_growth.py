#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures how a step's time and a rank's memory grow with batch, dim, pooling, tables, rows and ranks, with one picture each. Called by
bench_growth.sh.

One of them varies. The others are the same in all runs, for a DLRM with small MLPs, in which the embeddings take most of the time: 26 tables of 100,000
rows, dim 64, 10 ids per bag, batch 2048 per rank, 2 ranks. If ranks varies, every rank keeps its batch (weak scaling); more ranks than
processors share them. The printed table has the exponent of growth between neighbours: 1 is proportional, 0 is constant. With PEER_PYTHON it
also has TorchRec's curve. Sizes whose tables would not fit into half of the free memory are left out, with a message.
"""
import argparse
import dataclasses
import math
import os
import sys
import tempfile

import bench_common as common
import bench_torchrec
from bench_torchrec import SPEED

VALUES = {"batch": [256, 512, 1024, 2048, 4096, 8192], "dim": [16, 32, 64, 128, 256], "pooling": [1, 2, 5, 10, 20, 50], "tables": [4, 8, 16, 26, 52, 104],
          "rows": [1000, 10000, 100000, 300000, 1000000], "ranks": [1, 2, 4, 8]}
UNITS = {"batch": "samples a rank", "dim": "floats a row", "pooling": "ids a bag", "tables": "tables", "rows": "rows a table", "ranks": "ranks"}


def free_bytes():
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))


def cases_of(bench, what, values):
    """value -> workload, for all values that fit into memory."""
    base = bench.workload(mlp="small", pooling=10)
    for value in values:
        work = dataclasses.replace(base, **{what: value})
        if 4 * work.tables * work.rows * (work.dim + 1) > free_bytes() / 2:
            print(f"# {what} {value}: its tables do not fit into half of the free memory; left out", file=sys.stderr)
        else:
            yield value, work


def contestants(bench, work):
    found = {"trshard": lambda: bench.ours(work)}
    if bench.args.peer_python:
        found["TorchRec"] = lambda: bench.peer(work, {})
    return found


def series(samples, what, works, who):
    """[(value, ms per step, MiB per rank, disturbed share)] of the measured values."""
    rows = []
    for value, work in works.items():
        case = f"{what} {value}"
        speed, memory = samples.median(case, who, SPEED), samples.median(case, who, "resident MiB")
        if speed:
            rows.append((value, 1e3 * work.batch * work.ranks / speed, memory, samples.foreign(case, who)))
    return rows


def print_series(what, who, rows, allowed):
    print(f"{what} ({UNITS[what]}), {who}\n{'value':>10} {'ms a step':>12} {'power':>7} {'MiB a rank':>12} {'power':>7}")
    for i, (value, milliseconds, memory, foreign) in enumerate(rows):
        powers = ["", ""]
        if i:
            step = math.log(value / rows[i - 1][0])
            powers = [f"{math.log(x / y) / step:.2f}" for x, y in ((milliseconds, rows[i - 1][1]), (memory, rows[i - 1][2]))]
        print(f"{value:>10} {milliseconds:>12.3f} {powers[0]:>7} {memory:>12.1f} {powers[1]:>7}" + (f"  disturbed, {foreign:.0%}" if foreign > allowed else ""))


def draw(what, curves, path):
    plt = common.pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for i, label in enumerate(("ms a step", "MiB a rank")):
        for who, rows in curves.items():
            axes[i].plot([row[0] for row in rows], [row[1 + i] for row in rows], marker="o", label=who)
        mine = curves["trshard"]
        if i == 0 and what != "ranks":  # through our last point
            axes[i].plot([row[0] for row in mine], [mine[-1][1] * row[0] / mine[-1][0] for row in mine], color="grey", linestyle=":", label="proportional")
        axes[i].set_xscale("log")
        axes[i].set_yscale("log" if i == 0 and what != "ranks" else "linear")
        if axes[i].get_yscale() == "linear":
            axes[i].set_ylim(bottom=0)
        axes[i].set_xticks([row[0] for row in mine], [f"{row[0]:g}" for row in mine])
        axes[i].minorticks_off()
        axes[i].set_xlabel(UNITS[what])
        axes[i].set_ylabel(label)
        axes[i].legend()
    figure.suptitle(f"growth with {what}: {common.machine()}", fontsize=9)
    figure.tight_layout()
    figure.savefig(common.with_folder(path), dpi=110)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BINARY", help="trshard")
    parser.add_argument("peer_python", metavar="PEER_PYTHON", nargs="?", default="none", help="a python with torch, torchrec and fbgemm_gpu (default: without a peer)")
    parser.add_argument("--what", default=",".join(VALUES), help="list (default: %(default)s)")
    parser.add_argument("--values", help="list of numbers, for one --what, instead of the usual ones")
    parser.add_argument("--output", default=common.FOLDER, metavar="FOLDER", help="of the pictures growth_<what>.png (default: %(default)s)")
    bench_torchrec.add_training_options(parser)
    common.add_options(parser, "bench_growth")
    args = parser.parse_args()
    args.binary, args.peer_python = os.path.abspath(args.binary), common.peer_python(args.peer_python) if args.peer_python != "none" else None
    kinds = args.what.split(",")
    if set(kinds) - set(VALUES) or args.values and len(kinds) > 1:
        parser.error(f"--what is a list of {', '.join(VALUES)}; --values wants one of them")
    suite = common.Suite(args)
    with tempfile.TemporaryDirectory(prefix="trshard-bench-") as folder:
        bench = bench_torchrec.Bench(args, folder)
        for what in kinds:
            works = dict(cases_of(bench, what, [int(x) for x in args.values.split(",")] if args.values else VALUES[what]))
            suite.rounds({f"{what} {value}": contestants(bench, work) for value, work in works.items()})
            curves = {who: series(suite.samples, what, works, who) for who in ("trshard", "TorchRec")}
            curves = {who: rows for who, rows in curves.items() if rows}
            for who, rows in curves.items():
                print_series(what, who, rows, args.foreign)
            if "trshard" in curves:
                draw(what, curves, os.path.join(args.output, f"growth_{what}.png"))
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
