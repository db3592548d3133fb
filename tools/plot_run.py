#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws one or several runs: loss, metrics of training and evaluation, calibration, speed.

  plot_run.py results/quickstart/train.h5 --output loss.png
  plot_run.py --label "2 ranks" --label "4 ranks" run2.h5 run4.h5 --output compare.png
"""
import argparse
import os

import trspython

trspython.require("h5py", "matplotlib", "numpy")

import h5py
import matplotlib
import numpy as np

import trsdata

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (after the choice of the backend)

METRICS = (("auc", "AUC"), ("ne", "NE"), ("calibration", "calibration"))  # a panel each
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by colour-blind eyes too


def series(handle, name):
    return handle[name][()] if name in handle else np.zeros(0)


def smooth(values, window):
    """Mean over the window around each step, shorter at the ends."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    low, high = np.maximum(0, index - window // 2), np.minimum(len(values), index + window // 2 + 1)
    return (total[high] - total[low]) / (high - low)


def load(path):
    try:
        with h5py.File(path, "r") as handle:
            if trsdata.text(handle.attrs.get("format", "")) != "trshard-run":
                trsdata.fail(f"{path} holds no results of a run")
            run = {name: series(handle, name) for name in ("train/step", "train/loss", "train/samples_per_s", "eval/step", "eval/loss")}
            run["metrics/step"] = series(handle, "metrics/step")
            for metric, _ in METRICS:
                run["eval/" + metric] = series(handle, "eval/" + metric)
                run["metrics/window_" + metric] = series(handle, "metrics/window_" + metric)
                run["metrics/lifetime_" + metric] = series(handle, "metrics/lifetime_" + metric)
            run["starts"] = series(handle, "starts/first_step")
            run["stopped_early"] = "stopped_early" in handle.attrs
            return run
    except OSError as error:
        trsdata.fail(str(error))


def draw_loss(axes, run, colour, label, window):
    step, loss = run["train/step"], run["train/loss"]
    axes.plot(step, loss, color=colour, alpha=0.2, linewidth=0.6)
    axes.plot(step, smooth(loss, window), color=colour, linewidth=1.6, label=f"{label}: train" + (f", mean over {window} steps" if window > 1 else ""))
    if len(run["eval/loss"]):
        axes.plot(run["eval/step"], run["eval/loss"], "o-", color=colour, markersize=5, markerfacecolor="white", linewidth=1, label=f"{label}: evaluation")


def draw_metric(axes, run, metric, colour, label):
    """Over the window (line), over the lifetime (dashed), of evaluations (circles)."""
    for name, steps, style, what in (("metrics/window_", "metrics/step", "-", "train"), ("metrics/lifetime_", "metrics/step", "--", "train, lifetime"),
                                     ("eval/", "eval/step", "o-", "evaluation")):
        values = run[name + metric]
        if len(values):
            axes.plot(run[steps], values, style, color=colour, markersize=5, markerfacecolor="white", linewidth=1.4 if style == "-" else 1,
                      alpha=0.6 if style == "--" else 1, label=f"{label}: {what} {values[-1]:.4f}")


def draw_starts(panels, run, colour, label):
    """A vertical line in each panel where the run was taken up again; how often, in the legend of the first."""
    again = run["starts"][1:]
    for i, axes in enumerate(panels):
        for k, step in enumerate(np.unique(again)):
            name = f"{label}: taken up again, {len(again)} time{'s' if len(again) > 1 else ''}" if i == 0 and k == 0 else None
            axes.axvline(step, color=colour, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.6, zorder=0, label=name)


def has(run, metric):
    return any(len(run[name + metric]) for name in ("eval/", "metrics/window_"))


def draw(runs, labels, window):
    shown = [(metric, name) for metric, name in METRICS if any(has(run, metric) for run in runs)]
    n = 2 + len(shown)
    columns = 3 if n > 3 else n
    figure, axes = plt.subplots((n - 1) // columns + 1, columns, figsize=(5 * columns, 4.2 * ((n - 1) // columns + 1)), layout="constrained", squeeze=False)
    axes = list(axes.flat)
    for rest in axes[n:]:
        rest.remove()
    axes = axes[:n]
    for run, label, colour in zip(runs, labels, COLOURS * len(runs)):
        draw_loss(axes[0], run, colour, label, window or max(1, len(run["train/loss"]) // 100))
        speed = run["train/samples_per_s"]
        if len(speed):
            axes[-1].plot(run["train/step"], speed, color=colour, linewidth=0.6, alpha=0.5)
            axes[-1].axhline(np.median(speed), color=colour, linewidth=1.4, label=f"{label}: median {np.median(speed):,.0f}")
        for (metric, _), panel in zip(shown, axes[1:]):
            draw_metric(panel, run, metric, colour, label)
        draw_starts(axes, run, colour, label)
        if run["stopped_early"]:
            axes[0].axvline(run["train/step"][-1], color=colour, linewidth=1, linestyle=":", label=f"{label}: stopped early")
    finish(axes[0], "loss", "binary cross entropy")
    losses = np.concatenate([run["train/loss"] for run in runs])
    if losses.size:  # the first steps and single batches may not squeeze the rest
        low, high = np.nanpercentile(losses, [0.5, 99.5])
        axes[0].set_ylim(low - 0.1 * (high - low), high + 0.1 * (high - low))
    for (_, name), panel in zip(shown, axes[1:]):
        finish(panel, name, "")
    finish(axes[-1], "speed", "samples/s, all ranks")
    axes[-1].set_ylim(bottom=0)
    axes[-1].yaxis.set_major_formatter(matplotlib.ticker.EngFormatter())
    return figure


def finish(axes, title, ylabel):
    axes.set_title(title)
    axes.set_xlabel("step")
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--output", default="run.png", metavar="PNG", help="(default: %(default)s)")
    parser.add_argument("--label", action="append", default=[], help="of each run, in order (default: the file's name)")
    parser.add_argument("--window", type=int, metavar="STEPS", help="of the smoothed loss (default: 1 %% of the steps)")
    args = parser.parse_args()
    labels = args.label + [os.path.splitext(os.path.basename(path))[0] for path in args.runs[len(args.label):]]
    figure = draw([load(path) for path in args.runs], labels, args.window)
    os.makedirs(os.path.dirname(os.path.abspath(args.output)), exist_ok=True)
    figure.savefig(args.output, dpi=130)
    print("wrote", args.output)


if __name__ == "__main__":
    main()
