#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Our exchanges beside the raw MPI collectives of the same size. Called by bench_comm.sh.

The same ranks run all contestants in turn (regression/bench/bench_comm.c): ours through shared memory, ours by messages, and MPI's collectives
blocking, nonblocking, and pairwise messages. Launches alternate between Open MPI's two ways inside a host, cma (its default) and none (copies in
and out); MPI's best over all of them is the peer. Times are those of the slowest rank, medians inside a launch and over launches. A launch in which
other programs used more than the allowed share of the processors is done again, a few times, then its rows are marked as disturbed. Prints a table of
goals, writes all figures as CSV, draws one picture.
"""
import argparse
import csv
import os
import statistics
import subprocess
import sys

from bench_kernels import run

GOAL = 0.8  # of the best MPI all-to-all of the size; the other exchanges are held to it, too
ALLREDUCE_GOAL, ALLREDUCE_FROM = 1 / 1.1, 1 << 20  # at most 1.1 times MPI's time for gradient buckets
MECHANISMS = ("cma", "none")
OURS = ("ours", "messages")
LIMIT = "memcpy"


def find_binary(path):
    """bench_comm in a build folder, built when it is not there; or the file itself."""
    if not os.path.isdir(path):
        return path
    binary = os.path.join(path, "regression", "bench", "bench_comm")
    if not os.path.exists(binary):
        subprocess.run(["cmake", "--build", path, "--target", "bench_comm"], check=True, stdout=subprocess.DEVNULL)
    return binary


def launch(options, ranks, mechanism):
    """(exchange, contestant, bytes) -> microseconds, and the foreign share of the processors"""
    cores = os.cpu_count() or 1
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "core" if ranks <= cores else "none",
               "--mca", "btl_vader_single_copy_mechanism", mechanism, "--mca", "mpi_yield_when_idle", str(int(ranks > cores)),
               "-n", str(ranks), options.binary, "-sizes", options.sizes, "-rounds", str(options.repeats)]
    text, foreign = run(command, {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}, options.foreign)
    rows = [row for row in csv.reader(text.splitlines()) if len(row) == 5]
    return {(row[0], row[1], int(row[3])): float(row[4]) for row in rows}, foreign


def measure(options):
    """Rows [ranks, exchange, contestant, mechanism, bytes, microseconds, foreign]"""
    rows = []
    for ranks in map(int, options.ranks.split(",")):
        samples, foreign = {}, {}
        for _ in range(options.rounds):
            for mechanism in MECHANISMS:
                figures, share = launch(options, ranks, mechanism)
                for (exchange, contestant, size), us in figures.items():
                    key = (exchange, contestant, "" if contestant in OURS[:1] + (LIMIT,) else mechanism, size)
                    samples.setdefault(key, []).append(us)
                    foreign[key] = max(foreign.get(key, 0.0), share)
        rows += [[ranks, *key, statistics.median(values), foreign[key]] for key, values in samples.items()]
    return rows


def best(rows, ranks, exchange, size, of):
    """The fastest row of contestants of which of() is true."""
    return min((r for r in rows if r[0] == ranks and r[1] == exchange and r[4] == size and of(r[2])), key=lambda r: r[5], default=None)


def judge(rows, options):
    for ranks, exchange, contestant, _, size, us, foreign in rows:
        if contestant != "ours":
            continue
        peer = best(rows, ranks, exchange, size, lambda name: name not in OURS)
        messages = best(rows, ranks, exchange, size, lambda name: name == "messages")
        goal = ALLREDUCE_GOAL if exchange == "allreduce" and size >= ALLREDUCE_FROM else GOAL
        ratio = peer[5] / us
        verdict = "met" if ratio >= goal else "NOT MET"
        yield [exchange, ranks, size, f"{goal:.2f}", f"{us:.1f}", f"{messages[5]:.1f}" if messages else "", f"{peer[5]:.1f}", f"{peer[2]} {peer[3]}",
               f"{ratio:.2f}", verdict + (f" (disturbed, {foreign:.0%})" if foreign > options.foreign else "")]


def plot(rows, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    exchanges = [e for e in dict.fromkeys(r[1] for r in rows) if e not in (LIMIT, "counts")]
    worlds = list(dict.fromkeys(r[0] for r in rows))
    lines = {"ours": lambda n: n == "ours", "ours by messages": lambda n: n == "messages", "best MPI": lambda n: n not in OURS}
    figure, axes = pyplot.subplots(len(worlds), len(exchanges), figsize=(4 * len(exchanges), 3.2 * len(worlds)), squeeze=False, sharex=True)
    for i, ranks in enumerate(worlds):
        for j, exchange in enumerate(exchanges):
            sizes = sorted({r[4] for r in rows if r[0] == ranks and r[1] == exchange})
            for label, of in lines.items():
                axes[i][j].plot(sizes, [size / best(rows, ranks, exchange, size, of)[5] / 1e3 for size in sizes], marker="o", label=label)
            axes[i][j].set_xscale("log", base=2)
            axes[i][j].set_ylim(bottom=0)
            axes[i][j].set_title(f"{exchange}, {ranks} ranks")
            if j == 0:
                axes[i][j].set_ylabel("GB/s a rank (bytes it sends / time)")
    axes[0][0].legend()
    figure.supxlabel("bytes that a rank sends")
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BUILD_OR_BINARY", help="build folder, or bench_comm")
    parser.add_argument("--ranks", default="2,4", help="list (default: %(default)s)")
    parser.add_argument("--sizes", default="4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,25MiB", help="bytes that a rank sends (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="launches of each mechanism, in turn (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=25, help="of each exchange in a launch (default: %(default)s)")
    parser.add_argument("--foreign", type=float, default=0.03, help="share of foreign processor time that a launch may have (default: %(default)s)")
    parser.add_argument("--csv", default="bench_comm.csv", help="(default: %(default)s)")
    parser.add_argument("--plot", default="bench_comm.png", help="(default: %(default)s)")
    options = parser.parse_args()
    options.binary = os.path.abspath(find_binary(options.binary))
    if os.getloadavg()[0] > 0.5:
        print(f"WARNING: this machine is busy (load {os.getloadavg()[0]:.1f}): the numbers below say little", file=sys.stderr)
    rows = measure(options)
    with open(options.csv, "w", newline="") as file:
        csv.writer(file).writerows([["ranks", "exchange", "contestant", "mechanism", "bytes", "microseconds", "foreign share"]] + rows)
    table = [["exchange", "ranks", "bytes", "goal", "us", "by messages us", "best MPI us", "which", "ratio", "verdict"], *judge(rows, options)]
    widths = [max(len(str(row[i])) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(str(x).ljust(w) for x, w in zip(row, widths)))
    plot(rows, options.plot)


if __name__ == "__main__":
    main()
