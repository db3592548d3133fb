#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws one or several runs: loss, metrics, learning rate, speed, stages and memory, measured against predicted.

  plot_run.py results/quickstart/train.h5 --output loss.png
  plot_run.py --label "2 ranks" --label "4 ranks" run2.h5 run4.h5 --output compare.png

Dashed vertical lines show where a run was resumed. If there are several runs, the first is drawn widest, so that equal curves
are visible, too. Panels without data are left out. PICTURE may end in .png, .svg or .pdf.
"""
import argparse
import os
import sys

import trspython

trspython.require("h5py", "matplotlib", "numpy")

import trscurves
import trsfigures
import trsfile
import trsread


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("-o", "--output", default="run.png", metavar="PICTURE", help="(default: %(default)s)")
    parser.add_argument("--label", action="append", default=[], help="of each run, in order (default: the file's name)")
    parser.add_argument("--window", type=trspython.positive, metavar="STEPS", help="of the smoothed loss (default: 1 %% of the steps)")
    parser.add_argument("--panel", action="append", default=[], metavar="TITLE", help="draw only the panels with these titles, such as AUC (default: all)")
    args = parser.parse_args()
    if len(args.label) > len(args.runs):
        parser.error(f"{len(args.label)} times --label for {trsread.counted(len(args.runs), 'run')}")
    trsfile.check(parser, {"--output": args.output}, args.runs)
    labels = (args.label + [os.path.splitext(os.path.basename(path))[0] for path in args.runs[len(args.label):]])
    try:
        runs = [trsread.read_run(path) for path in args.runs]
        styles = trscurves.styles_of(labels)
        panels = trscurves.curve_panels(runs, styles, args.window) + trscurves.cost_panels(runs, styles)
        if not panels:
            raise trsread.Unreadable(f"{args.runs[0]} has no step, evaluation or prediction to draw")
        figure = trscurves.compose(panels)
        if args.panel:
            titles = [axes.get_title(loc="left") for axes in figure.axes]
            for title in set(args.panel) - set(titles):
                raise trsread.Unreadable(f"--panel {title}: the runs have {', '.join(titles)}")
            figure = trscurves.compose([panel for panel, title in zip(panels, titles) if title in args.panel])
        trsfigures.save(figure, args.output)
    except trsread.Unreadable as error:
        sys.exit(f"plot_run.py: {error}")
    print("wrote", args.output)


if __name__ == "__main__":
    trspython.run(main)
