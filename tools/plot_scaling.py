#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws speed-up and efficiency from the CSV rows of jobs/scaling.sbatch.

  plot_scaling.py results/scaling/strong.csv results/scaling/weak.csv --output scaling.png

It uses the columns study (strong or weak), ranks and samples_per_s. Several rows of one (study, ranks) count by their median.
Strong scaling divides one global batch over more ranks; weak scaling gives each rank the same batch. In both, samples/s
ideally grow with the ranks. Speed-up and efficiency are relative to the smallest number of ranks.
"""
import argparse
import csv
import os
import statistics

import trspython

trspython.require("h5py", "matplotlib", "numpy")

import matplotlib

import trsdata
import trsfile

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (after the choice of the backend)

COLOURS = {"strong": "#0072b2", "weak": "#d55e00"}


def load(paths):
    """study -> {ranks: median samples/s}"""
    rows = {}
    for path in paths:
        try:
            with open(path, newline="", encoding="utf-8") as lines:
                for row in csv.DictReader(lines):
                    speed = float(row["samples_per_s"])
                    if not speed > 0:
                        raise ValueError(f"samples_per_s is {speed:g}, expected more than 0")
                    rows.setdefault(row["study"], {}).setdefault(int(row["ranks"]), []).append(speed)
        except KeyError as error:
            trsdata.fail(f"{path} has no column {error}")
        except (ValueError, TypeError) as error:
            trsdata.fail(f"{path}: {error}")
    return {study: {ranks: statistics.median(speeds) for ranks, speeds in sorted(points.items())} for study, points in rows.items()}


def rows_of(studies):
    """[(study, ranks, samples/s, speed-up, efficiency)], both relative to the study's smallest number of ranks."""
    rows = []
    for study, points in sorted(studies.items()):
        least = min(points)
        rows += [(study, ranks, speed, speed / points[least], speed / points[least] * least / ranks) for ranks, speed in points.items()]
    return rows


def draw(studies):
    figure, (speed, efficiency) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    ranks_shown = sorted({ranks for points in studies.values() for ranks in points})
    speed.plot(ranks_shown, [ranks / ranks_shown[0] for ranks in ranks_shown], color="0.6", linestyle="--", label="ideal")
    for study, points in sorted(studies.items()):
        _, ranks, speeds, gain, share = zip(*rows_of({study: points}))
        style = {"color": COLOURS.get(study), "marker": "o", "label": f"{study} ({speeds[0]:,.0f} samples/s on {ranks[0]})", "gid": study}
        speed.plot(ranks, gain, **style)
        efficiency.plot(ranks, share, **style)
    efficiency.axhline(1, color="0.6", linestyle="--")
    for axes, name in ((speed, "speed-up"), (efficiency, "efficiency")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ranks_shown, [str(ranks) for ranks in ranks_shown])
        axes.minorticks_off()
        axes.set_xlabel("ranks")
        axes.set_title(name)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    speed.set_yscale("log", base=2)
    speed.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    efficiency.set_ylim(0, max(1.1, efficiency.get_ylim()[1]))
    efficiency.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="+")
    parser.add_argument("--output", default="scaling.png", metavar="PNG", help="(default: %(default)s)")
    args = parser.parse_args()
    trsfile.check(parser, {"--output": args.output}, args.csv)
    studies = load(args.csv)
    if not studies:
        trsdata.fail("no rows")
    print(f"{'study':8}{'ranks':>7}{'samples/s':>14}{'speed-up':>10}{'efficiency':>12}")
    for study, ranks, speed, gain, share in rows_of(studies):
        print(f"{study:8}{ranks:7}{speed:14,.0f}{gain:10.2f}{share:12.1%}")
    os.makedirs(os.path.dirname(os.path.abspath(args.output)), exist_ok=True)
    trsfile.picture(draw(studies), args.output, dpi=130)
    print("wrote", args.output)


if __name__ == "__main__":
    trspython.run(main)
