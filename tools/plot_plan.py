#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws a sharding plan: memory and time of every rank, its slowest tables, and the parts of the critical path.

  plot_plan.py PLAN.json [-o PICTURE.png] [--order memory] [--top 12]

PLAN.json is a -plan_output. Bars are coloured by sharding type. The slowest tables (those that take most of a rank's time)
are numbered in the bars and named beside them. Lines show the capacity, the part that the reservation leaves, the mean and
the maximum. Beyond 64 ranks the bars become a heat map of hosts and local ranks, with all ranks from most to least beside it.
PICTURE may end in .png, .svg or .pdf.
"""
import argparse
import os
import sys

import trspython

trspython.require("matplotlib", "numpy")

import trsfigures
import trsfile
import trsread


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", metavar="PLAN.json")
    parser.add_argument("-o", "--output", metavar="PICTURE", help="(default: PLAN.png)")
    parser.add_argument("--order", choices=("rank", "memory", "time"), default="rank", help="of the bars, up to 64 ranks (default: %(default)s)")
    parser.add_argument("--top", type=trspython.positive, default=10, metavar="N", help="tables that are numbered and named (default: %(default)s)")
    args = parser.parse_args()
    trsfile.check(parser, {"--output": args.output}, [args.plan])
    output = args.output or os.path.splitext(args.plan)[0] + ".png"
    try:
        plan = trsread.read_plan(args.plan)
        trsfigures.save(trsfigures.figure_of_plan(plan, os.path.basename(args.plan), args.order, args.top), output)
    except trsread.Unreadable as error:
        sys.exit(f"plot_plan.py: {error}")
    print("wrote", output)


if __name__ == "__main__":
    trspython.run(main)
