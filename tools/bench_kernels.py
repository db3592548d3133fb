#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Embedding kernels, bucketize and codecs beside the machine's limits, FBGEMM and torch.

Contestants run in turn, round after round: ours with its limits, the peer as it is, the peer with FBGEMM_FORCE_AUTOVEC=1 (which helps some of its
kernels; the better of the two counts). Figures are medians over rounds. With one thread all take processor time; a round in which other programs
used more than the allowed share of the processors is done again, a few times, then marked. Prints a table of goals, writes all figures as CSV.
"""
import argparse
import csv
import os
import statistics
import subprocess
import sys
import time

# kernel, its goal in our own run (ratio to limit, ratio to forward fp32), times the peer's default, times its best
GOALS = [
    ("forward fp32", {"limit": {1: 0.75, 10: 0.80}, "best": 1.3}),
    ("backward rowwise_adagrad", {"limit": {1: 0.45, 10: 0.45}, "default": 8.0, "best": 5.0}),
    ("backward sgd", {"best": 1.8}),
    ("forward fp16", {"best": 8.0, "own": 0.7}),
    ("forward int8", {"best": 8.0, "own": 0.7}),
    ("forward int4", {"best": 8.0, "own": 0.7}),
    ("bucketize 8", {"best": 1.5}),
    ("bucketize 64", {"best": 5.0}),
    ("encode int8", {"best": 10.0}),
    ("encode fp8", {"best": 10.0}),
    ("encode fp16", {"limit": {1: 0.9, 10: 0.9}}),
    ("encode bf16", {"limit": {1: 0.9, 10: 0.9}}),
]


def processor_times():
    with open("/proc/stat") as stat:
        fields = [int(x) for x in stat.readline().split()[1:9]]
    return sum(fields), fields[3] + fields[4]


def run(command, environment, allowed, tries=3):
    """Output of a command in a quiet window, and the share of foreign processor time in it."""
    for attempt in range(tries):
        total, idle = processor_times()
        before = os.times()
        text = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True).stdout
        after = os.times()
        total_after, idle_after = processor_times()
        busy = (total_after - total) - (idle_after - idle)
        own = (after.children_user + after.children_system - before.children_user - before.children_system) * os.sysconf("SC_CLK_TCK")
        foreign = max(0.0, busy - own) / max(1, total_after - total)
        if foreign <= allowed:
            break
        time.sleep(5 * (attempt + 1))
    return text, foreign


def parse(text):
    """name -> [M/s, of limit] of lines name,M/s[,GB/s,of limit]"""
    figures = {}
    for row in csv.reader(line for line in text.splitlines() if line and not line.startswith(("#", "kernel,"))):
        figures[row[0]] = (float(row[1]), float(row[3]) if len(row) > 3 else None)
    return figures


def measure(options, dim, pooling):
    threads = str(options.threads)
    here = os.path.dirname(os.path.abspath(__file__))
    ours = [options.binary, "-dim", str(dim), "-pooling", str(pooling), "-rounds", "5"]
    peer = [options.peer_python, os.path.join(here, "bench_kernels_peer.py"), "--threads", threads, "--dim", str(dim), "--pooling", str(pooling)]
    contestants = [("ours", ours, {}), ("default", peer, {}), ("autovec", peer, {"FBGEMM_FORCE_AUTOVEC": "1"})]
    samples, worst = {}, 0.0
    for _ in range(options.rounds):
        for who, command, environment in contestants:
            text, foreign = run(command, {"OMP_NUM_THREADS": threads, **environment}, options.foreign)
            worst = max(worst, foreign)
            for kernel, (rate, ratio) in parse(text).items():
                samples.setdefault((who, kernel), []).append((rate, ratio))
    figures = {}
    for key, values in samples.items():
        ratios = [r for _, r in values if r is not None]
        figures[key] = (statistics.median(v for v, _ in values), statistics.median(ratios) if ratios else None)
    return figures, worst


def rows_of(figures, dim, pooling):
    def rate(who, kernel):
        return figures.get((who, kernel), (0.0, None))[0]

    for kernel, goals in GOALS:
        if ("ours", kernel) not in figures:
            continue
        mine, of_limit = figures[("ours", kernel)]
        default = rate("default", kernel)
        best = max(default, rate("autovec", kernel), rate("default", kernel + " torch"))
        ratios = {"limit": of_limit, "default": mine / default if default else None, "best": mine / best if best else None,
                  "own": mine / rate("ours", "forward fp32")}
        for what, goal in goals.items():
            goal = goal.get(pooling) if isinstance(goal, dict) else goal
            if goal is not None and ratios[what] is not None:
                yield [kernel, dim, pooling, f"{mine:.1f}", f"{best:.2f}", what, goal, f"{ratios[what]:.2f}", "met" if ratios[what] >= goal else "NOT MET"]


def plot(rows, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    names = [f"{r[0]} D{r[1]} P{r[2]} / {r[5]}" for r in rows]
    shares = [float(r[7]) / float(r[6]) for r in rows]
    pyplot.figure(figsize=(9, 0.3 * len(rows) + 1))
    pyplot.barh(names, shares, color=["tab:green" if s >= 1 else "tab:red" for s in shares])
    pyplot.axvline(1.0, color="black")
    pyplot.gca().invert_yaxis()
    pyplot.xlabel("ratio / goal")
    pyplot.tight_layout()
    pyplot.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="bench_kernels")
    parser.add_argument("peer_python", help="python with torch and fbgemm-gpu-cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dims", default="64,128")
    parser.add_argument("--pooling", default="1,10")
    parser.add_argument("--foreign", type=float, default=0.03, help="share of foreign processor time that a round may have")
    parser.add_argument("--csv", default="bench_kernels.csv")
    parser.add_argument("--plot", help="draw ratios over goals into this file")
    options = parser.parse_args()
    rows = []
    for dim in map(int, options.dims.split(",")):
        for pooling in map(int, options.pooling.split(",")):
            figures, foreign = measure(options, dim, pooling)
            if foreign > options.foreign:
                print(f"# D {dim}, pooling {pooling}: other programs took up to {foreign:.0%} of the processors", file=sys.stderr)
            rows += list(rows_of(figures, dim, pooling))
    header = ["kernel", "dim", "pooling", "M/s", "best peer M/s", "ratio to", "goal", "ratio", "verdict"]
    with open(options.csv, "w", newline="") as file:
        csv.writer(file).writerows([header] + rows)
    widths = [max(len(str(r[i])) for r in [header] + rows) for i in range(len(header))]
    for row in [header] + rows:
        print("  ".join(str(x).ljust(w) for x, w in zip(row, widths)))
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
