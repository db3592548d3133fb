#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares our exchanges with the raw MPI collectives of the same size. Called by bench_comm.sh.

The same ranks run all contestants in turn (regression/bench/bench_comm.c). The contestants are our exchanges through shared memory, our
exchanges by messages, and MPI's: blocking collectives, nonblocking collectives, and pairwise messages. Launches alternate between Open MPI's
two mechanisms inside a host, cma (its default) and none (copies in and out). The peer is MPI's best over all of them. A time is the slowest
rank's, as a median inside a launch and over launches. Prints a table of goals, writes all figures as CSV, and draws a picture of goals
and a picture of the curves.
"""
import argparse
import csv
import sys

import bench_common as common

GOAL = 0.8  # share of the rate of the best MPI all-to-all of this size; it is the goal of the other exchanges, too
ALLREDUCE_GOAL, ALLREDUCE_FROM = 1 / 1.1, 1 << 20  # at most 1.1 times MPI's time for gradient buckets
MECHANISMS = ("cma", "none")
OURS = ("ours", "messages", "bf16", "bf16_messages")  # bf16, bf16_messages: sums whose values are sent encoded; their GB/s count floats
LIMIT = "memcpy"


def launch(args, ranks, mechanism):
    """Figures "exchange contestant bytes": GB/s of a rank (sent bytes / time). For counts, whose size is fixed: exchanges per millisecond."""
    command = common.mpirun(ranks)
    command[1:1] = ["--mca", "btl_vader_single_copy_mechanism", mechanism]
    text = common.output_of(command + [args.binary, "-sizes", args.sizes, "-rounds", str(args.repeats)], common.threads_environment(1))
    rows = [row for row in csv.reader(text.splitlines()) if len(row) == 5]
    return {f"{row[0]} {row[1]} {row[3]}": (1e6 if row[0] == "counts" else int(row[3])) / float(row[4]) / 1e3 for row in rows}


def figures(samples, ranks):
    """[(exchange, contestant, bytes)] of the measured figures."""
    return [(exchange, contestant, int(size)) for exchange, contestant, size in
            (name.rsplit(" ", 2) for name in samples.figures(f"{ranks} ranks", MECHANISMS[0]))]


def side(ranks, exchange, contestant, size):
    """The case that holds a contestant's figures. MPI's own contestants may depend on the mechanism."""
    return [(f"{ranks} ranks", mechanism, f"{exchange} {contestant} {size}") for mechanism in MECHANISMS]


def goals_of(samples, worlds):
    goals = []
    for ranks in worlds:
        found = figures(samples, ranks)
        for exchange, contestant, size in found:
            if contestant != "ours" or exchange == "counts" and size != found[0][2]:
                continue
            peers = [place for e, c, s in found if (e, s) == (exchange, size) and c not in OURS for place in side(ranks, exchange, c, size)]
            goal = ALLREDUCE_GOAL if exchange == "allreduce" and size >= ALLREDUCE_FROM else GOAL
            what = f"counts, {ranks} ranks, exchanges a ms" if exchange == "counts" else f"{exchange}, {ranks} ranks, {size} bytes, GB/s"
            goals.append(common.Goal(what, side(ranks, exchange, "ours", size)[:1], peers, round(goal, 2), of="best MPI,"))
    return goals


def best(samples, ranks, exchange, size, of):
    """GB/s of the fastest contestant for which of() is true."""
    medians = [samples.median(*place) for e, c, s in figures(samples, ranks) if (e, s) == (exchange, size) and of(c) for place in side(ranks, e, c, s)]
    return max((m for m in medians if m is not None), default=float("nan"))


def plot(samples, worlds, path):
    plt = common.pyplot()
    exchanges = [e for e in dict.fromkeys(e for e, _, _ in figures(samples, worlds[0])) if e not in (LIMIT, "counts")]
    lines = {"ours": lambda n: n == "ours", "ours by messages": lambda n: n == "messages", "best MPI": lambda n: n not in OURS}
    figure, axes = plt.subplots(len(worlds), len(exchanges), figsize=(4 * len(exchanges), 3.2 * len(worlds)), squeeze=False, sharex=True)
    for i, ranks in enumerate(worlds):
        for j, exchange in enumerate(exchanges):
            sizes = sorted({s for e, _, s in figures(samples, ranks) if e == exchange})
            for label, of in lines.items():
                axes[i][j].plot(sizes, [best(samples, ranks, exchange, size, of) for size in sizes], marker="o", label=label)
            axes[i][j].set_xscale("log", base=2)
            axes[i][j].set_ylim(bottom=0)
            axes[i][j].set_title(f"{exchange}, {ranks} ranks")
            if j == 0:
                axes[i][j].set_ylabel("GB/s a rank (bytes it sends / time)")
    axes[0][0].legend()
    figure.supxlabel("bytes that a rank sends")
    figure.tight_layout()
    figure.savefig(common.with_folder(path))
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BUILD_OR_BINARY", help="build folder, or bench_comm")
    parser.add_argument("--ranks", default="2,4", help="list (default: %(default)s)")
    parser.add_argument("--sizes", default="4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,25MiB", help="bytes that a rank sends (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=25, help="of each exchange in a launch (default: %(default)s)")
    parser.add_argument("--curves", default=f"{common.FOLDER}/bench_comm_curves.png", help="picture of GB/s over sizes (default: %(default)s)")
    common.add_options(parser, "bench_comm")
    args = parser.parse_args()
    args.binary = common.find_binary(args.binary, "bench_comm")
    worlds = list(map(int, args.ranks.split(",")))
    suite = common.Suite(args)
    suite.rounds({f"{ranks} ranks": {mechanism: lambda ranks=ranks, mechanism=mechanism: launch(args, ranks, mechanism) for mechanism in MECHANISMS} for ranks in worlds})
    worlds = [ranks for ranks in worlds if figures(suite.samples, ranks)]
    if worlds and args.curves:
        plot(suite.samples, worlds, args.curves)
    return suite.finish(goals_of(suite.samples, worlds), f"exchanges: {common.machine()}")


if __name__ == "__main__":
    sys.exit(main())
