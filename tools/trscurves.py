# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of runs, for plot_run.py and report.py: curves over the steps, measured against predicted times, memory, predictions."""
import matplotlib
import numpy as np

import trsfigures
import trsread
from trsfigures import plain, plt

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # colours of runs
STYLES = ("-", "--", "-.", ":")
SHOWN = (("auc", "AUC"), ("gauc", "AUC within groups"), ("ne", "normalised entropy"), ("calibration", "calibration"))  # a panel for each
AT = {"ndcg": "NDCG", "recall": "recall"}  # a panel for each, with all K of -metrics_at
OTHERS = (("accuracy", "accuracy"), ("mse", "mean squared error"))  # the first that the run has, for a task whose labels are no probabilities
LOSSES = {"bce": "binary cross entropy", "in_batch_softmax": "softmax among the batch's candidates", "sampled_softmax": "softmax among drawn candidates"}
SERIES = (("window", "metrics/{}window_", "metrics/step", "train, window"), ("lifetime", "metrics/{}lifetime_", "metrics/step", "train, lifetime"),
          ("evaluation", "eval/{}", "eval/step", "evaluation"), ("ahead", "ahead/{}", "ahead/step", "files, before training on them"))
OF_SERIES = {"window": "#0072b2", "lifetime": "#7f7f7f", "evaluation": "#d55e00", "ahead": "#009e73"}  # colours of a single run's series
HELD = {"tables": "#0072b2", "optimizer_states": "#56b4e9", "dense": "#009e73", "batches": "#e69f00", "exchanges": "#117733", "activations": "#cc79a7",
        "scratch": "#f0e442", "others_pages": "#bbbbbb", "libraries_and_rest": "#dddddd"}
HELD_WORDS = {"others_pages": "memory of other ranks", "libraries_and_rest": "libraries and MPI"}  # labels of kinds whose names in the file are not clear
WIDE = 36  # letters of a legend's entry; two such entries are as wide as a panel
MOST_ID_TABLES = 6  # tables of a panel about rows of ids
MOST_POINTS = 4000  # points of a curve: more than a picture has columns


def smooth(values, window):
    """Mean over the window around each step; the window is shorter at the ends."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    low, high = np.maximum(0, index - window // 2), np.minimum(len(values), index + window // 2 + 1)
    return (total[high] - total[low]) / (high - low)


def thin(*series):
    """Every n-th point, if there are more than a picture can show."""
    n = max(1, -(-len(series[0]) // MOST_POINTS))
    return [values[::n] for values in series]


class Style:
    """The line style of run i of n: the first is widest, so that no later one hides it."""

    def __init__(self, i, n, label):
        self.colour, self.line = COLOURS[i % len(COLOURS)], STYLES[i % len(STYLES)] if n > 1 else "-"
        self.width = 1.6 + (1.4 * (n - 1 - i) / (n - 1) if n > 1 else 0)
        self.marker = 5 + (3 * (n - 1 - i) / (n - 1) if n > 1 else 0)
        self.prefix = plain(label, 24) + ": " if n > 1 else ""
        self.single = n == 1

    def of(self, series):
        return OF_SERIES[series] if self.single else self.colour


def finish(axes, title, ylabel, legend=True, xlabel="step"):
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel(xlabel)
    if xlabel == "step":  # also if the panel has only one step
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    if axes.get_xlim()[1] >= 1e4:
        axes.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))
    axes.set_ylabel(ylabel)
    trsfigures.clean(axes)
    labels = axes.get_legend_handles_labels()[1]
    if legend and labels:
        axes.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=2 if len(labels) > 1 and max(map(len, labels)) <= WIDE else 1)


def draw_starts(axes, run, style, words=False):
    """Draws a line where the run was resumed. With words, it has the number of ranks that continued. Among several starts from one step, the last counts."""
    first, ranks = run["starts/first_step"], run["starts/ranks"]
    for i in range(1, len(first)):
        if first[i] in first[i + 1:]:
            continue
        axes.axvline(first[i], color="0.35" if style.single else style.colour, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0.5)
        if words and style.single and len(first) <= 6:
            axes.annotate(f"start {i + 1}: {trsread.counted(int(ranks[i]), 'rank')}" if len(ranks) > i else f"start {i + 1}", (first[i], 1), (3, -2), xycoords=("data", "axes fraction"),
                          textcoords="offset points", fontsize=8, color="0.35", va="top", rotation=90)
    if words and len(first) > 1 and not (style.single and len(first) <= 6):
        axes.plot([], [], color="0.35" if style.single else style.colour, linewidth=0.9, linestyle=(0, (4, 3)), label=f"{style.prefix}taken up again, {len(first) - 1}x")


def last_value(values):
    """The last value of a metric, for a legend."""
    return "no number" if np.isnan(values[-1]) else f"{values[-1]:.4f}"


def draw_loss(axes, runs, styles, window):
    seen, points = [], []
    for run, style in zip(runs, styles):
        step, loss = run.updates(), run["train/loss"]
        n = window or max(1, len(loss) // 100)
        if len(loss):
            axes.plot(*thin(step, loss), color=style.of("window"), alpha=0.22, linewidth=0.6, gid=f"{style.prefix}each step")
            axes.plot(*thin(step, smooth(loss, n)), color=style.of("window"), linewidth=style.width, linestyle=style.line,
                      label=f"{style.prefix}train" + (f", mean over {n} steps" if n > 1 else ""), gid=f"{style.prefix}train, mean" if n > 1 else None)
        for series, prefix, steps, words in SERIES[2:]:
            values = run[prefix.format("") + "loss"]
            if len(values):
                axes.plot(run[steps], values, "o-", color=style.of(series), markersize=style.marker, markerfacecolor="white", linewidth=1,
                          label=f"{style.prefix}{words}, last {last_value(values)}", gid=style.prefix + words)
                points.append(values)
        if "stopped_early" in run.attrs and len(step):
            axes.axvline(step[-1], color=style.of("window"), linewidth=1.2, linestyle=":", label=f"{style.prefix}stopped early")
        draw_starts(axes, run, style, words=True)
        seen.append(loss[np.isfinite(loss)])
    seen, points = np.concatenate(seen), np.concatenate(points + [np.zeros(0)])
    points = points[np.isfinite(points)]
    if seen.size or points.size:  # single batches and the first steps must not squeeze the rest; evaluations are always inside
        edges = np.concatenate([np.percentile(seen, [0.5, 99.5]) if seen.size else [], points])
        low, high = edges.min(), edges.max()
        axes.set_ylim(low - 0.1 * (high - low) - 1e-9, high + 0.1 * (high - low) + 1e-9)
    kinds = {"weighted sum of the tasks' losses" if run.task_words() != [""] else LOSSES.get(run.option("-loss"), LOSSES["bce"]) for run in runs}
    finish(axes, "loss", ",\n".join(sorted(kinds)))


def recall_columns(run):
    """[(K, name of the column)] of a model with two towers."""
    return [(int(k), f"eval/retrieval_recall_at_{k:.0f}") for k in run["retrieval/at"]]


def draw_at(axes, runs, styles, curves, title, ylabel=""):
    """curves(run): [(K, steps, values)]."""
    for run, style in zip(runs, styles):
        for i, (k, steps, values) in enumerate(curves(run)):
            axes.plot(steps, values, linestyle=STYLES[i % len(STYLES)], marker="o" if len(values) < 40 else None, color=COLOURS[i % len(COLOURS)] if style.single else style.colour,
                      linewidth=1.1, markersize=style.marker, markerfacecolor="white", label=f"{style.prefix}first {k:,}: {last_value(values)}", gid=f"{style.prefix}first {k:,}")
        draw_starts(axes, run, style)
    finish(axes, title, ylabel)


def draw_recall(axes, runs, styles):
    draw_at(axes, runs, styles, lambda run: [(k, run["eval/step"], run[name]) for k, name in recall_columns(run)], "recall among all candidates", "share of the queries")
    axes.set_ylim(bottom=0)


def draw_groups(axes, runs, styles, task, kind, numbers):
    """Curves for several K: of the evaluations, or of the window if runs have fewer than two evaluations."""
    windows = all(len(run["eval/step"]) < 2 for run in runs)
    steps, prefix, what = ("metrics/step", "metrics/{}window_", "window") if windows else ("eval/step", "eval/{}", "evaluation")
    draw_at(axes, runs, styles, lambda run: [(k, run[steps], run[name]) for k in numbers for name in [f"{prefix.format(task)}{kind}_at_{k}"] if len(run[name])],
            (f"{plain(task[:-1], 24)}: " if task else "") + f"{AT[kind]} within groups, {what}")


def has_metric(run, task, metric):
    last, window, ahead = (values[np.isfinite(values)] for values in (run[f"eval/{task}{metric}"], run[f"metrics/{task}window_{metric}"], run[f"ahead/{task}{metric}"]))
    return len(last) > 1 or len(window) > 0 or len(ahead) > 0 or (len(last) > 0 and len(run["train/loss"]) > 0)


def draw_metric(axes, runs, styles, task, metric, title):
    for run, style in zip(runs, styles):
        for series, prefix, steps, words in SERIES:
            values = run[prefix.format(task) + metric]
            if not len(values):
                continue
            shape = {"window": style.line, "lifetime": (0, (1, 1)), "evaluation": "-", "ahead": "--"}[series]
            axes.plot(run[steps], values, linestyle=shape, marker="o" if series in ("evaluation", "ahead") or len(values) == 1 else None, color=style.of(series),
                      markersize=style.marker, markerfacecolor="white", linewidth=style.width if series == "window" else 1.1,
                      label=f"{style.prefix}{words} {last_value(values)}", gid=style.prefix + words)
        if has_metric(run, task, metric):
            draw_starts(axes, run, style)
    finish(axes, title, "")


def id_tables(runs):
    """The tables that keep ids, those first in whose last row most lookups had no row."""
    last = {}
    for run in runs:
        for table in run.id_tables():
            share = run.of_ids(table, "unknown_share")
            last[table] = max(last.get(table, 0.0), np.nan_to_num(share[-1]) if len(share) else 0.0)
    return sorted(last, key=lambda table: -last[table])


def per_step(run, values):
    """Numbers of the rows of /ids, divided by the steps of each row. Of a start's first row, the steps since the start count."""
    step = run["ids/step"]
    begin = np.concatenate([[0], step[:-1]])
    for first in run["starts/first_step"]:
        begin = np.where((first > begin) & (first < step), first, begin)
    return values / np.maximum(step - begin, 1)


# (panel, unit, values of a table's curve)
OF_IDS = (("lookups of ids without a row", "% of the lookups", lambda run, table: 100 * run.of_ids(table, "unknown_share")),
          ("rows in use", "% of the rows", lambda run, table: 100 * run.of_ids(table, "held") / np.maximum(run.of_ids(table, "rows"), 1)),
          ("rows taken from ids", "a step", lambda run, table: per_step(run, run.of_ids(table, "taken"))),
          ("age of the youngest row taken", "batches", lambda run, table: run.of_ids(table, "youngest")))


def draw_ids(axes, runs, styles, title, unit, curve):
    tables = id_tables(runs)
    for run, style in zip(runs, styles):
        for i, table in enumerate(tables[:MOST_ID_TABLES]):
            values = curve(run, table) if table in run.id_tables() else np.zeros(0)
            if len(values):
                finite = values[np.isfinite(values)]
                axes.plot(run["ids/step"], values, linestyle=STYLES[i % len(STYLES)], marker="o" if len(values) < 40 else None, color=COLOURS[i % len(COLOURS)] if style.single else style.colour,
                          linewidth=1.1, markersize=style.marker, markerfacecolor="white", label=f"{style.prefix}{plain(table, 24)}: {f'{finite[-1]:.4g}' if len(finite) else 'none'}", gid=style.prefix + plain(table, 24))
        draw_starts(axes, run, style)
    if len(tables) > MOST_ID_TABLES:
        axes.plot([], [], " ", label=f"and {trsread.counted(len(tables) - MOST_ID_TABLES, 'table')} more")
    axes.set_ylim(bottom=0)
    finish(axes, title, unit)


def draw_rates(axes, runs, styles):
    for run, style in zip(runs, styles):
        dense, embedding = run["train/dense_learning_rate"], run["train/embedding_learning_rate"]
        both = np.array_equal(dense, embedding)
        for name, values, colour, line in (("dense and embedding" if both else "dense", dense, "#0072b2", style.line), ("embedding", embedding, "#d55e00", ":")):
            if len(values) and not (both and name == "embedding"):
                axes.plot(*thin(run.updates(), values), color=colour if style.single else style.colour, linestyle=line, linewidth=style.width,
                          label=f"{style.prefix}{name}, last {values[-1]:.3g}", gid=style.prefix + name)
        draw_starts(axes, run, style)
    axes.set_ylim(bottom=0)
    finish(axes, "learning rate", "")


def draw_speed(axes, runs, styles):
    most = 0.0
    for run, style in zip(runs, styles):
        speed = run["train/samples_per_s"]
        speed, step = speed[np.isfinite(speed)], run.updates()[np.isfinite(speed)]
        if not len(speed):
            continue
        most = max(most, np.percentile(speed, 99.5))
        axes.plot(*thin(step, speed), color=style.of("window"), linewidth=0.6, alpha=0.35, gid=f"{style.prefix}each step")
        axes.plot(*thin(step, smooth(speed, max(1, len(speed) // 50))), color=style.of("window"), linewidth=style.width, linestyle=style.line,
                  label=f"{style.prefix}{trsread.count_text(run.speed())}/s", gid=f"{style.prefix}mean")
        draw_starts(axes, run, style)
    axes.set_ylim(0, 1.1 * most or 1)
    axes.yaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))
    finish(axes, "speed", "samples/s, all ranks")


# --- predictions and measurements ---


def draw_stages(axes, runs, styles):
    """A bar for each: the mean over ranks, with a line to the slowest. Diamonds are the plan's prediction for its slowest rank."""
    rows = [{name: (measured, predicted) for name, measured, predicted in run.stage_rows()} for run in runs]
    names = [name for name in [p[0] for p in trsread.PREDICTED] + list(trsread.UNPREDICTED) if any(name in row for row in rows)]
    size, unit = trsread.unit(max(max(measured.max(), 0 if predicted is None else predicted.max()) for row in rows for measured, predicted in row.values()), trsread.TIMES)
    height = 0.8 / len(runs)
    told = False
    for i, (row, style) in enumerate(zip(rows, styles)):
        for y, name in enumerate(names):
            if name not in row:
                continue
            measured, predicted = row[name]
            at = y - 0.4 + height * (i + 0.5)
            axes.barh(at, measured.mean() / size, height=0.9 * height, color=style.of("window"), label=f"{style.prefix}measured, mean of ranks" if y == 0 else None)
            axes.plot([measured.mean() / size, measured.max() / size], [at, at], color="0.35", linewidth=1.2)
            axes.plot(measured.max() / size, at, "|", color="0.35", markersize=9 / len(runs) + 3, label="slowest rank" if y == 0 and i == 0 else None)
            words = f"{measured.mean() / size:.3g}"
            if predicted is not None:
                axes.plot(predicted.max() / size, at, "D", markersize=5.5, markerfacecolor="white", markeredgecolor="#a00000", markeredgewidth=1.3, clip_on=False, zorder=4,
                          label=None if told else "predicted, slowest rank")
                words, told = words + f" ({predicted.max() / size:.3g} predicted)", True
            if len(runs) <= 2:
                end = max(measured.max(), 0 if predicted is None else predicted.max()) / size
                axes.annotate(words, (end, at), (7, 0), textcoords="offset points", va="center", fontsize=8, color="0.25")
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.35 * axes.get_xlim()[1])
    finish(axes, "a step's stages, without a run's first steps", "", xlabel=unit)
    axes.grid(False, axis="y")
    trsfigures.clean(axes, "x")


def memory_rows(run):
    """[(kind, bytes [ranks])] of the ranks' memory, by kind if the run has it, and the predicted bytes [ranks] of tables or None."""
    held, names = run["memory/held_bytes"], run.names("held_names")
    if held.ndim != 2 or held.shape[1] != len(names):
        held, names = run["memory/measured_bytes"], run.names("memory_names")
        names = names[:-1] + ["libraries_and_rest"] if names else names
        if held.ndim == 2 and held.shape[1] == len(names):
            held = np.column_stack([held[:, :-1], np.maximum(0, held[:, -1] - held[:, :-1].sum(axis=1))])
    predicted = run["memory/predicted_bytes"]
    rows = [(name, held[:, i]) for i, name in enumerate(names)] if held.ndim == 2 and held.shape[1] == len(names) else []
    return rows, predicted.sum(axis=1) if predicted.ndim == 2 else None


def draw_memory(axes, runs, styles):
    """For one run, each rank's memory by kind (beyond 64 ranks from most to least). For several runs, the memory of each run's fullest rank."""
    shown = [(memory_rows(run), style) for run, style in zip(runs, styles) if memory_rows(run)[0]]
    largest = max(sum(held for _, held in rows).max() for (rows, _), _ in shown)
    size, unit = trsread.unit(largest, trsread.BYTES)
    bars = []  # (rows of one column each, predicted)
    for (rows, predicted), _ in shown:
        total = sum(held for _, held in rows)
        order = [int(total.argmax())] if len(runs) > 1 else np.argsort(-total, kind="stable") if len(total) > trsfigures.MOST_BARS else np.arange(len(total))
        bars += [([(name, held[r]) for name, held in rows], None if predicted is None else predicted[r]) for r in order]
    x, bottom = np.arange(len(bars)), np.zeros(len(bars))
    kinds = list(dict.fromkeys(name for rows, _ in bars for name, _ in rows))
    for kind in kinds:
        height = np.array([dict(rows).get(kind, 0.0) for rows, _ in bars]) / size
        if height.any():
            axes.bar(x, height, bottom=bottom, width=0.86 if len(bars) <= trsfigures.MOST_BARS else 1.0, color=HELD.get(kind, "#444444"), label=HELD_WORDS.get(kind, kind.replace("_", " ")))
        bottom = bottom + height
    if any(predicted for _, predicted in bars):
        axes.plot(x, [np.nan if predicted is None else predicted / size for _, predicted in bars], linestyle="", marker="D", markersize=5 if len(bars) <= 64 else 2,
                  markerfacecolor="white", markeredgecolor="#a00000", label="predicted, of tables")
    several = len(runs) > 1
    names = [style.prefix.rstrip(": ") for _, style in shown]
    turned = len(names) * max(map(len, names)) > 2 * WIDE
    if several:
        axes.set_xticks(x, names, fontsize=8, **({"rotation": 30, "ha": "right"} if turned else {}))
    else:
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.set_ylim(0, 1.06 * bottom.max())
    finish(axes, "memory, fullest rank" if several else "memory of each rank", unit,
           xlabel="" if several else "ranks, most first" if len(bars) > trsfigures.MOST_BARS else "rank")
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.34 if turned else -0.14), ncol=3)


def draw_predictions(axes, runs, styles, name, title):
    """Probabilities from 0 to 1, or a task's numbers from the least to the greatest; for a task with classes the
    probability of the likeliest class.
    """
    found = [run[name].max(axis=1) if run[name].ndim == 2 else run[name] for run in runs]
    found = [p[np.isfinite(p)] for p in found]
    everything = np.concatenate(found)
    shares = np.all((everything >= 0) & (everything <= 1))
    edges = np.linspace(0, 1, 51) if shares else np.histogram_bin_edges(everything, 50)
    for p, style in zip(found, styles):
        if len(p):
            axes.hist(p, edges, histtype="stepfilled" if style.single else "step", color=style.colour, linewidth=style.width, label=f"{style.prefix}{trsread.counted(len(p), 'sample')}, mean {p.mean():.4f}")
    finish(axes, title, "samples", xlabel="probability of the likeliest class" if any(run[name].ndim == 2 for run in runs) else "probability" if shares else "number")


def draw_latency(axes, runs, styles):
    """The values without a run's first batch if there are others, as for its percentiles."""
    latencies = [run["predict/latency_ms"][len(run["predict/latency_ms"]) > 1:] for run in runs]
    for ms, style in zip(map(np.sort, latencies), styles):
        if len(ms):
            axes.plot(np.append(ms[:1], ms), 100 * np.arange(len(ms) + 1) / len(ms), color=style.colour, linewidth=style.width, linestyle=style.line,
                      label=style.prefix + ", ".join(f"{p} %: {ms[-(-p * len(ms) // 100) - 1]:.3g} ms" for p in (50, 90, 99)), gid=f"{style.prefix}% of batches")
    seen = np.concatenate(latencies)
    if seen.min() > 0 and seen.max() > 20 * np.median(seen):
        axes.set_xscale("log")
    finish(axes, "latency of a batch" + ", without the first" * any(len(run["predict/latency_ms"]) > 1 for run in runs), "% of batches within", xlabel="ms")


# --- pictures of several panels ---


def curve_panels(runs, styles, window=None):
    """The panels for which the runs have data."""
    panels = []
    if any(len(run["train/loss"]) for run in runs) or any(len(run["eval/loss"]) > 1 for run in runs):
        panels.append(lambda axes: draw_loss(axes, runs, styles, window))
    at = {}  # kind -> its K
    for name in dict.fromkeys(name for run in runs for name in run.metrics()):
        kind, _, k = name.partition("_at_")
        if kind in AT:
            at.setdefault(kind, []).append(int(k))
    for task in dict.fromkeys(task for run in runs for task in run.task_words()):
        has = lambda found, task=task: any(has_metric(run, task, found[0]) for run in runs)
        of_task = list(filter(has, OTHERS if task and not has(("ne",)) else ()))[:1] + list(filter(has, SHOWN))
        of_task += [(f"{kind}_at_{k}", f"{AT[kind]} of a group's first {k}") for kind, (k, *more) in at.items() if not more and has((f"{kind}_at_{k}",))]
        for metric, title in of_task:
            name = f"{plain(task[:-1], 24)}: {title}" if task else title
            panels.append(lambda axes, task=task, metric=metric, name=name: draw_metric(axes, runs, styles, task, metric, name))
        for kind, numbers in at.items():
            if len(numbers) > 1 and any(has((f"{kind}_at_{k}",)) for k in numbers):
                panels.append(lambda axes, task=task, kind=kind, numbers=numbers: draw_groups(axes, runs, styles, task, kind, numbers))
    if any(len(run[name]) > 1 for run in runs for _, name in recall_columns(run)):
        panels.append(lambda axes: draw_recall(axes, runs, styles))
    for title, unit, curve in OF_IDS:
        if any(np.isfinite(curve(run, table)).any() for run in runs for table in run.id_tables()):
            panels.append(lambda axes, title=title, unit=unit, curve=curve: draw_ids(axes, runs, styles, title, unit, curve))
    if any(np.ptp(run["train/dense_learning_rate"]) > 0 or np.ptp(run["train/embedding_learning_rate"]) > 0 for run in runs if len(run["train/dense_learning_rate"])):
        panels.append(lambda axes: draw_rates(axes, runs, styles))
    if any(np.isfinite(run["train/samples_per_s"]).any() for run in runs):
        panels.append(lambda axes: draw_speed(axes, runs, styles))
    for name in dict.fromkeys(name for run in runs for name in run.columns if name.split("/")[0] == "predictions" and len(run[name])):
        title = "predictions" if name == "predictions" else f"{plain(name.partition('/')[2], 24)}: predictions"
        panels.append(lambda axes, name=name, title=title: draw_predictions(axes, runs, styles, name, title))
    if any(len(run["predict/latency_ms"]) for run in runs):
        panels.append(lambda axes: draw_latency(axes, runs, styles))
    return panels


def cost_panels(runs, styles):
    panels = []
    if any(run.stage_rows() for run in runs):
        panels.append(lambda axes: draw_stages(axes, runs, styles))
    if any(memory_rows(run)[0] for run in runs):
        panels.append(lambda axes: draw_memory(axes, runs, styles))
    return panels


def compose(panels, columns=3):
    n = len(panels)
    columns = min(columns, n)
    rows = -(-n // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(5.6 * columns, 4.7 * rows), layout="constrained", squeeze=False)
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    for rest in axes.flat[n:]:
        rest.remove()
    for draw, panel in zip(panels, axes.flat):
        draw(panel)
    # Legends of many runs are high. The figure grows by the additional height, so that panels keep their size.
    heights = [panel.get_legend().get_window_extent().height / figure.dpi if panel.get_legend() else 0 for panel in axes.flat[:n]]
    figure.set_figheight(figure.get_figheight() + sum(max(0, max(heights[first:first + columns]) - 0.6) for first in range(0, n, columns)))
    return figure


def styles_of(labels):
    return [Style(i, len(labels), label) for i, label in enumerate(labels)]
