#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws a sharding plan: memory and time of every rank, its slowest tables, and what the critical path is made of.

  plot_plan.py PLAN.json [-o PICTURE.png] [--order memory] [--top 12]

PLAN.json is a -plan_output. Bars are coloured by sharding type, and the slowest tables (those that take most of one rank's
time) are numbered in them and named beside them. Lines show the capacity, what the reservation leaves of it, mean and most.
Beyond 64 ranks they are a heat map of hosts and local ranks, and beside it all ranks from most to least.
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
