#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws a sharding plan: memory and time of every rank, stacked by table.

  plot_plan.py PLAN.json [-o PICTURE.png] [--top 12]

PLAN.json is a -plan_output. The --top tables that need most keep their own colour, the others are one. On the right: the
five parts of the time of every rank.
"""
import argparse
import json
import os

import trspython

trspython.require("matplotlib", "numpy")

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

PARTS = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "prefetch_compute")
GIB = 2.0**30


def per_table(plan, value):
    """value(shard) summed per table and rank: [(name, array over ranks)], largest first."""
    rows = []
    for table in plan["tables"]:
        row = np.zeros(plan["world_size"])
        for shard in table["shards"]:
            row[shard["rank"]] += value(shard)
        rows.append((table["name"], row))
    return sorted(rows, key=lambda r: -r[1].max())


def stack(axes, rows, top, colours, label):
    bottom = np.zeros(len(rows[0][1]) if rows else 1)
    ranks = np.arange(len(bottom))
    for name, row in rows[:top]:
        colour = colours.setdefault(name, plt.cm.tab20(len(colours) % 20))
        axes.bar(ranks, row, bottom=bottom, color=colour, width=0.9, label=name)
        bottom = bottom + row
    if rows[top:]:
        rest = sum(row for _, row in rows[top:])
        axes.bar(ranks, rest, bottom=bottom, color="lightgrey", width=0.9, label="%d others" % len(rows[top:]))
    axes.set_ylabel(label)
    axes.set_xlabel("rank")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if not any(np.any(row) for _, row in rows):
        axes.text(0.5, 0.5, "none used", transform=axes.transAxes, ha="center", color="grey")
        return
    axes.legend(fontsize=7, ncol=2, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("plan")
    p.add_argument("-o", "--output")
    p.add_argument("--top", type=int, default=12)
    a = p.parse_args()
    with open(a.plan) as f:
        plan = json.load(f)
    if plan.get("format") != "trshard-plan":
        raise SystemExit("%s is not a plan: %s" % (a.plan, plan.get("message", plan.get("format"))))
    figure, axes = plt.subplots(2, 2, figsize=(15, 8))
    colours = {}
    stack(axes[0][0], per_table(plan, lambda s: s["storage"]["hbm"] / GIB), a.top, colours, "device memory, GiB")
    stack(axes[1][0], per_table(plan, lambda s: s["storage"]["ddr"] / GIB), a.top, colours, "host memory, GiB")
    stack(axes[0][1], per_table(plan, lambda s: sum(s["perf"].values())), a.top, colours, "time, ms")
    parts = [(part, np.array([d["perf"][part] for d in plan["devices"]])) for part in PARTS]
    stack(axes[1][1], parts, len(parts), {}, "time by part, ms")
    figure.suptitle("%s: %d tables on %d ranks, critical path %.4g ms" % (os.path.basename(a.plan), len(plan["tables"]), plan["world_size"], plan["critical_path"]))
    figure.tight_layout()
    output = a.output or os.path.splitext(a.plan)[0] + ".png"
    figure.savefig(output, dpi=110)
    print(output)


main()
