#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes one HTML page about a run, several runs, a plan, a sweep or a scaling study, or shows it while training goes on.

  report.py run.h5 -o report.html            a run's -output, which contains the plan
  report.py a/run.h5 b/run.h5 -o both.html   several runs side by side: results, options that differ, curves
  report.py plan.json                        a -plan_output
  report.py results/sweep                    the folder of a sweep (sweep.py)
  report.py results/scaling/scaling.csv      the rows of a scaling study (jobs/scaling.sbatch)
  report.py --watch run.h5                   serve the page on 127.0.0.1 until Ctrl-C, with the log and the time left
  report.py --watch run.h5 -o report.html    rewrite the file instead, for a browser that can read it

The page contains its pictures, and a browser needs no network to show it. A click on a column's head sorts a table. The
pointer on a curve shows its numbers. --watch works before the first results are there, and with several runs. It finds the
log beside the results, or as the .out of the Slurm job; --log names another. tensorboard_events.py makes event files for
TensorBoard.
"""
import argparse
import collections
import os
import statistics
import sys
import urllib.parse

import trspython

trspython.require("h5py", "matplotlib", "numpy")

import numpy as np

import plot_scaling
import sweep
import trscurves
import trsfigures
import trsfile
import trsread
import trswatch
from trspage import Number, Page, clock, duration, escape, facts, note, picture, table

# --- a plan ---


def plan_facts(plan):
    pairs = [("tables", len(plan.names)), ("ranks", f"{plan.world} on {trsread.counted(plan.hosts, 'host')}"), ("critical path", trsread.ms_text(plan.critical_path))]
    time = plan.time()
    if time.any():
        pairs.append(("slowest rank", f"{int(time.argmax())}: {trsread.ms_text(time.max())}, mean {trsread.ms_text(time.mean())}"))
    for kind, title in trsfigures.memory_kinds(plan):
        (most, share), column = plan.fullest(kind), trsread.KINDS.index(kind)
        pairs.append((f"{title}, fullest rank", f"{most}: {trsread.bytes_text(plan.memory(kind)[most])}" + (f", {trsread.percent_text(share)} of what is left for tables" if share else "")))
        if plan.capacity is not None:
            pairs.append((f"{title}, its capacity", f"{trsread.bytes_text(plan.capacity[most, column])}, {trsread.bytes_text(plan.available[most, column])} for tables"))
    return pairs


def plan_section(page, plan, name):
    image = picture(trsfigures.figure_of_plan(plan, name), f"plan of {trsread.counted(len(plan.names), 'table')} on {trsread.counted(plan.world, 'rank')}", wide=True) if plan.slowest(1) else ""
    page.section("Plan", image)
    path = plan.critical_parts()
    if path and plan.critical_path > 0:
        rows = [(p["name"], Number(p["ms"], trsread.ms_text(p["ms"])), Number(100 * p["ms"] / plan.critical_path, f"{100 * p['ms'] / plan.critical_path:.1f} %"),
                 Number(p["rank"], str(p["rank"])), ", ".join(f"{n} ({100 * s:.0f} %)" for n, s in p["tables"])) for p in path]
        page.section("Critical path", note(f"A step's sharded part takes {trsread.ms_text(plan.critical_path)}: of each direction the slowest rank's compute, and the slowest "
                                           "rank's exchange of each kind. What makes one of these ranks faster shortens the step."),
                     table("critical-parts", ("part", "time", "share", "slowest rank", "tables behind it"), rows))
    held, time, most = plan.of_table(plan.bytes.sum(axis=1)), plan.of_table(plan.parts.sum(axis=1)), plan.most_of_table(plan.parts.sum(axis=1))
    rows = [(plan.names[t], plan.types[t], plan.kernels[t], Number(plan.rows[t], f"{plan.rows[t]:,}"), Number(plan.dims[t], str(plan.dims[t])),
             Number(held[t], trsread.bytes_text(held[t])), Number(most[t], trsread.ms_text(most[t])), Number(time[t], trsread.ms_text(time[t])),
             trsread.ranks_text(plan.ranks_of(t), plan.world)) for t in range(len(plan.names))]
    page.section("Tables", table("tables", ("table", "sharding type", "kernel", "rows", "dim", "memory, all ranks", "time, rank with most", "time, all ranks", "ranks"), rows))
    time, memory = plan.time(), [(title, plan.memory(kind)) for kind, title in trsfigures.memory_kinds(plan)]
    shards = np.bincount(plan.rank, minlength=plan.world)
    rows = [(Number(r, str(r)), Number(r // plan.local, str(r // plan.local)), Number(shards[r], str(shards[r])), *(Number(held[r], trsread.bytes_text(held[r])) for _, held in memory),
             Number(time[r], trsread.ms_text(time[r]))) for r in range(plan.world)]
    page.section("Ranks", table("ranks", ("rank", "host", "shards", *(title for title, _ in memory), "time of a step"), rows))


# --- a run ---


def run_facts(run):
    step, loss, speed = run["train/step"], run["train/loss"], run["train/samples_per_s"]
    pairs = [("task", run.option("-task")), ("ranks", run.attrs.get("world_size")), ("hardware", run.attrs.get("hardware")), ("program", run.attrs.get("program")),
             ("run id", run.attrs.get("run_id"))]
    if len(loss):
        pairs += [("steps", f"{int(step[-1]) + 1:,}"), ("loss, last step", f"{loss[-1]:.5f}"), ("speed", f"{run.speed():,.0f} samples/s" if len(speed) else "")]
    named = dict([("loss", "loss")] + [(task + name, f"{what} of {task[:-1]}" if task else what) for task in run.task_words()
                                       for name, what in (("loss", "loss"), ("auc", "AUC"), ("ne", "NE"), ("calibration", "calibration"))])
    pairs += [(f"{what}, last evaluation", f"{run['eval/' + name][-1]:.5f}") for name, what in named.items()
              if len(run["eval/" + name]) and not np.isnan(run["eval/" + name][-1])]
    if len(run["starts/time"]):
        pairs += [("began", clock(run["starts/time"][0])), ("ran for", f"{duration(np.nansum(run['starts/elapsed_s']))}, in {trsread.counted(len(run['starts/time']), 'start')}")]
    if "peak_memory_bytes" in run.attrs:
        pairs.append(("peak memory of a rank", trsread.bytes_text(float(run.attrs["peak_memory_bytes"]))))
    elif len(run["starts/peak_memory_bytes"]):
        pairs.append(("memory of rank 0 so far", trsread.bytes_text(run["starts/peak_memory_bytes"][-1])))
    if len(run["predict/samples_per_s"]):
        pairs.append(("predictions", f"{run['predict/samples_per_s'][0]:,.0f} samples/s"))
    pairs += [(f"latency, {p:.0f} %", f"{ms:.4g} ms") for p, ms in zip(run["predict/percentiles"], run["predict/latency_percentiles_ms"])]
    return pairs + [("stopped early", run.attrs.get("stopped_early"))]


def starts_table(run):
    rows = [(Number(i + 1, str(i + 1)), clock(run["starts/time"][i]), *(Number(run["starts/" + name][i], f"{run['starts/' + name][i]:,.0f}")
             for name in ("first_step", "steps", "ranks", "hosts", "global_batch")), Number(run["starts/elapsed_s"][i], duration(run["starts/elapsed_s"][i])),
             run.texts.get("starts/commit", [""] * (i + 1))[i]) for i in range(len(run["starts/time"]))]
    return table("starts", ("start", "began", "from step", "steps", "ranks", "hosts", "global batch", "ran for", "commit"), rows)


def metric_names(run, group):
    """The columns of a group such as eval that have numbers."""
    return [name for name in dict.fromkeys(["loss"] + [task + name for task in run.task_words() for name in ("loss", *run.metrics())])
            if len(run[f"{group}/{name}"]) and not np.isnan(run[f"{group}/{name}"]).all()]


def ahead_table(run):
    """A row for each file of -data_follow that -eval_ahead evaluated before the training used its samples."""
    names = metric_names(run, "ahead")
    files = run.texts.get("ahead/file", [""] * len(run["ahead/step"]))
    rows = [(file, *(Number(run["ahead/" + name][i], f"{run['ahead/' + name][i]:,.0f}") for name in ("position", "samples", "step")),
             *(Number(run["ahead/" + name][i], f"{run['ahead/' + name][i]:.5f}") for name in names)) for i, file in enumerate(files)]
    return table("ahead", ("file", "samples before it", "samples", "updates", *names), rows)


def evaluation_table(run):
    names = metric_names(run, "eval")
    times = run.times_at(run["eval/step"])
    rows = [(Number(step, f"{step:,.0f}"), clock(times[i]), *(Number(run["eval/" + name][i], f"{run['eval/' + name][i]:.5f}") for name in names))
            for i, step in enumerate(run["eval/step"])]
    return table("evaluations", ("updates", "about", *names), rows)


def ids_table(run):
    """Tables whose rows are given to ids: sums over all starts, and the last numbers of what is in memory."""
    def counted(value):
        return Number(value, f"{value:,.0f}")

    def share(part, whole):
        return Number(100 * part / whole if whole else np.nan, f"{100 * part / whole:.1f} %" if whole else "")

    rows = []
    for name in run.id_tables():
        of = {column: run.of_ids(name, column) for column in ("held", "rows", "lookups", "unknown", "taken", "young", "youngest", "dropped", "bytes")}
        if not len(of["held"]):
            continue
        ages = of["youngest"][np.isfinite(of["youngest"])]
        rows.append((name, counted(of["held"][-1]), counted(of["rows"][-1]), share(of["unknown"].sum(), of["lookups"].sum()), share(of["unknown"][-1], of["lookups"][-1]), counted(of["taken"].sum()),
                     counted(of["young"].sum()), counted(ages.min()) if len(ages) else Number(np.nan), counted(of["dropped"].sum()), Number(of["bytes"][-1], trsread.bytes_text(of["bytes"][-1]))))
    return table("ids", ("table", "rows in use", "rows", "lookups unknown", "in the last interval", "rows taken", "of ids in use", "youngest, batches", "ids dropped at a start", "directory"), rows)


def stages_table(run):
    def words(values):
        return Number(values.mean(), trsread.ms_text(values.mean())), Number(values.max(), trsread.ms_text(values.max())), Number(values.argmax(), str(values.argmax()))

    nothing = Number(np.nan)
    rows = [(name, *words(measured), *(words(predicted)[:2] if predicted is not None else (nothing, nothing))) for name, measured, predicted in run.stage_rows()]
    return table("stages", ("stage of a step", "measured, mean of ranks", "slowest", "slowest rank", "predicted, mean", "predicted, slowest"), rows)


def stages_so_far(run):
    """The stages of a training that goes on: /stages has them only at its end."""
    names = [name.removeprefix("starts/").removesuffix("_ms") for name in run.columns if name.startswith("starts/") and name.endswith("_ms")]
    times = {name: run[f"starts/{name}_ms"][-1] for name in names}
    total = sum(ms for ms in times.values() if np.isfinite(ms))
    return table("stages-so-far", ("stage of a step, so far", "time", "share"), [(name.replace("_", " ").replace("i o", "I/O"), Number(ms, trsread.ms_text(ms)), Number(100 * ms / total, f"{100 * ms / total:.1f} %"))
                                                                                 for name, ms in sorted(times.items(), key=lambda one: -one[1]) if ms > 0])


def memory_table(run):
    kinds, predicted = trscurves.memory_rows(run)
    if not kinds:
        return ""
    total = sum(held for _, held in kinds)
    rows = [(Number(r, str(r)), Number(total[r], trsread.bytes_text(total[r])), *(Number(held[r], trsread.bytes_text(held[r])) for _, held in kinds),
             *([Number(predicted[r], trsread.bytes_text(predicted[r]))] if predicted is not None else [])) for r in range(len(total))]
    return table("memory", ("rank", "peak", *(name.replace("_", " ") for name, _ in kinds), *(["predicted, of tables"] if predicted is not None else [])), rows)


def trace_link(run, given, output):
    """A link, relative to the page, to the trace file, if it exists at the place that -trace names, or beside the run."""
    path = given or run.option("-trace")
    if not path:
        return ""
    places = [path, os.path.join(os.path.dirname(os.path.abspath(run.source)), os.path.basename(path))]
    found = next((place for place in places if os.path.isfile(place)), None)
    if not found:
        if given:
            raise trsread.Unreadable(f"--trace {given} is no file")
        return note(f"The run wrote a trace to {path}, which is not there now.")
    link = urllib.parse.quote(os.path.relpath(os.path.abspath(found), os.path.dirname(os.path.abspath(output))))
    return f'<p><a id="trace" href="{escape("./" + link)}">{escape(os.path.basename(found))}</a>: the trace of steps, for ui.perfetto.dev or chrome://tracing.</p>'


def drawn(panels, words, columns=3):
    return picture(trscurves.compose(panels, columns), words) if panels else ""


def run_page(page, run, args):
    styles = trscurves.styles_of([""])
    page.section("Summary", facts(run_facts(run)), trace_link(run, args.trace, args.output))
    page.section("Curves", drawn(trscurves.curve_panels([run], styles), "curves over the steps"))
    page.section("Evaluations", evaluation_table(run))
    page.section("Files, evaluated before they were trained on", ahead_table(run))
    page.section("Rows of ids", ids_table(run))
    page.section("Starts", starts_table(run))
    page.section("Stages and memory", drawn(trscurves.cost_panels([run], styles), "measured and predicted", 2), stages_table(run) or stages_so_far(run), memory_table(run))
    plan = run.plan()
    if plan:
        plan_section(page, plan, "the plan" if len(run["starts/time"]) < 2 else "the plan of the last start")
    page.section("Configuration", table("options", ("option", "value", "given by"), run.options()),
                 note(f"with {run.attrs['libraries']}") if "libraries" in run.attrs else "")


# --- several runs ---


def labels_of(paths, given):
    """A name for each run: --label, or the parts of its path in which it differs from the others."""
    words = [os.path.splitext(os.path.abspath(path))[0].split(os.sep) for path in paths[len(given):]]
    while words and all(len(one) > 1 for one in words) and len({one[0] for one in words}) == 1:
        words = [one[1:] for one in words]
    while words and all(len(one) > 1 for one in words) and len({one[-1] for one in words}) == 1:
        words = [one[:-1] for one in words]
    labels = given + ["/".join(one) for one in words]
    return [label if labels.count(label) == 1 else f"{label} ({i + 1})" for i, label in enumerate(labels)]


def number_of(value, text="{:.5f}"):
    return Number(value, text.format(value))


def runs_table(labels, runs):
    """A row for each run: its size, its results and what it cost."""
    def last(run, name):
        return run[name][-1] if len(run[name]) else np.nan

    names = list(dict.fromkeys(name for run in runs for name in metric_names(run, "eval")))
    rows = [(label, number_of(float(run.attrs.get("world_size", np.nan)), "{:.0f}"), number_of(last(run, "train/step") + 1, "{:,.0f}"), number_of(last(run, "train/loss")),
             *(number_of(last(run, "eval/" + name)) for name in names), number_of(run.speed(), "{:,.0f}"),
             Number(np.nansum(run["starts/elapsed_s"]), duration(np.nansum(run["starts/elapsed_s"]))),
             Number(float(run.attrs.get("peak_memory_bytes", np.nan)), trsread.bytes_text(float(run.attrs.get("peak_memory_bytes", 0)))), str(run.attrs.get("program", ""))) for label, run in zip(labels, runs)]
    return table("runs", ("run", "ranks", "steps", "loss, last step", *(f"{name}, last evaluation" for name in names), "samples/s", "ran for", "peak memory of a rank", "program"), rows)


def options_table(labels, runs):
    """The options whose values differ between the runs; those that a user has set come first."""
    values = [{name: (value, origin) for name, value, origin in run.options()} for run in runs]
    names = [name for name in dict.fromkeys(name for one in values for name in one) if len({one.get(name, ("",))[0] for one in values}) > 1]
    names.sort(key=lambda name: all(one.get(name, ("", "default"))[1] == "default" for one in values))
    return table("differences", ("option", *labels), [(name, *(one.get(name, ("",))[0] for one in values)) for name in names])


def stages_side_by_side(labels, runs):
    """The mean of the ranks in each stage, a column for each run."""
    found = [{name: measured.mean() for name, measured, _ in run.stage_rows()} for run in runs]
    names = list(dict.fromkeys(name for one in found for name in one))
    return table("stages", ("stage of a step, mean of ranks", *labels), [(name, *(Number(one.get(name, np.nan), trsread.ms_text(one.get(name, 0))) for one in found)) for name in names])


def comparison_page(page, labels, runs):
    styles = trscurves.styles_of(labels)
    page.section("Runs", runs_table(labels, runs))
    page.section("Options that differ", options_table(labels, runs) or note("All options have the same values."))
    page.section("Curves", drawn(trscurves.curve_panels(runs, styles), "curves of the runs over the steps"))
    page.section("Stages and memory", drawn(trscurves.cost_panels(runs, styles), "measured and predicted", 2), stages_side_by_side(labels, runs))


# --- a sweep, a scaling study ---


def effects_table(trials, scores, sign):
    """For each value that was tried, the scores of round 0 of the trials with this value: all trials have this round."""
    rows = []
    for option in dict.fromkeys(name for trial in trials for name in trial):
        for value in dict.fromkeys(trial.get(option, "") for trial in trials):
            found = [scores[t][0] for t, trial in enumerate(trials) if trial.get(option, "") == value and scores[t][0] is not None]
            best, middle = (max(found, key=lambda s: -sign * s), statistics.median(found)) if found else (np.nan, np.nan)
            rows.append((option, value, number_of(len(found), "{}"), number_of(best), number_of(middle)))
    return table("effects", ("option", "value", "trials with a score", "best of round 0", "median of round 0"), rows)


def sweep_page(page, folder):
    plan = sweep.load(folder)
    found, order = sweep.states(folder, plan)
    trials, metric = plan["trials"], plan["metric"]
    options = list(dict.fromkeys(name for trial in trials for name in trial))
    curves = {t: sweep.curve(folder, t, metric) for t in order}
    won = sweep.winner(folder, plan)
    states = collections.Counter(found[t][2] for t in order)
    pairs = [("metric", f"{metric}, {'larger' if plan['upwards'] else 'smaller'} is better"), ("trials", len(trials)), ("rounds", ", ".join(f"{one['trials']} to step {one['steps']:,}" for one in plan["rounds"]))]
    pairs += [(state, n) for state, n in states.items()]
    if won:
        pairs += [("winner", f"trial {won['trial']}, {metric} {won['score']:.5f}"), ("its options", sweep.option_text(won["options"])), ("its model", won["model"] or "not there any more")]
    rows = [(number_of(place + 1, "{}"), number_of(t, "{}"), *(trials[t].get(name, "") for name in options),
             *(number_of(np.nan if score is None else score) for score in found[t][0]), number_of(curves[t][0][-1] + (metric == "train_loss") if len(curves[t][0]) else 0, "{:,.0f}"),
             found[t][2], number_of(curves[t][2], "{:,.0f}")) for place, t in enumerate(order)]
    page.section("Summary", facts(pairs))
    page.section("Trials", table("trials", ("place", "trial", *options, *(f"{metric}, step {one['steps']:,}" for one in plan["rounds"]), "last value at step", "state", "samples/s"), rows),
                 "".join(note(line) for r in range(len(plan["rounds"])) for line in sweep.without_score(folder, plan, sweep.alive(folder, plan, r), r)))
    page.section("Curves", picture(sweep.draw(folder, plan), f"{metric} of the trials over the steps") if any(np.isfinite(curve[1]).any() for curve in curves.values()) else note("No trial has results yet."))
    page.section("Effect of each option", effects_table(trials, [found[t][0] for t in range(len(trials))], -1 if plan["upwards"] else 1))


def study_runs(paths):
    """[(label, path)] of the results beside the rows of a study: strong-4.h5, weak-1.h5 (jobs/scaling.sbatch)."""
    found = {}
    for folder in dict.fromkeys(os.path.dirname(os.path.abspath(path)) for path in paths):
        for name in os.listdir(folder):
            study, _, ranks = os.path.splitext(name)[0].rpartition("-")
            if name.endswith(".h5") and study in ("strong", "weak") and ranks.isdigit():
                found[study, int(ranks)] = os.path.join(folder, name)
    return [(f"{study}, {trsread.counted(ranks, 'rank')}", path) for (study, ranks), path in sorted(found.items())]


def scaling_page(page, paths):
    studies = plot_scaling.load(paths)
    if not studies:
        raise trsread.Unreadable(f"{paths[0]} has no rows")
    rows = [(study, Number(ranks, str(ranks)), number_of(speed, "{:,.0f}"), number_of(gain, "{:.2f}"), Number(share, f"{share:.1%}")) for study, ranks, speed, gain, share in plot_scaling.rows_of(studies)]
    widest = [max(of, key=lambda row: row[1]) for of in ([row for row in plot_scaling.rows_of(studies) if row[0] == study] for study in sorted(studies))]
    page.section("Summary", facts([(f"{study}, {ranks} ranks", f"{speed:,.0f} samples/s, {gain:.2f} times as fast, efficiency {share:.0%}") for study, ranks, speed, gain, share in widest]))
    page.section("Speed-up and efficiency", picture(plot_scaling.draw(studies), "speed-up and efficiency over the ranks"), table("scaling", ("study", "ranks", "samples/s", "speed-up", "efficiency"), rows))
    runs = [(label, trsread.read_run(path)) for label, path in study_runs(paths)]
    if runs:
        labels, runs = zip(*runs)
        page.section("Where the time of a step goes", stages_side_by_side(labels, runs))
        page.section("Runs", runs_table(labels, runs))


# --- the page ---


def kind_of(parser, paths):
    """What the paths are: "sweep", "scaling", "plan" or "run"; several runs are compared."""
    kinds = {"sweep" if os.path.isdir(path) else "scaling" if path.endswith(".csv") else "plan" if path.endswith(".json") else "run" for path in paths}
    if len(kinds) > 1 or (len(paths) > 1 and kinds & {"sweep", "plan"}):
        parser.error("several files must be the results of runs, or the rows of one scaling study")
    return kinds.pop()


def fill(page, kind, args):
    """The sections that do not depend on the time."""
    if kind == "sweep":
        sweep_page(page, args.files[0])
    elif kind == "scaling":
        scaling_page(page, args.files)
    elif len(args.files) > 1:
        there = [(label, path) for label, path in zip(labels_of(args.files, args.label), args.files) if not args.watch or os.path.exists(path)]
        if there:
            comparison_page(page, [label for label, _ in there], [trsread.read_run(path) for _, path in there])
    else:
        found = trsread.read_any(args.files[0])
        if isinstance(found, trsread.Run):
            run_page(page, found, args)
        else:
            page.section("Summary", facts(plan_facts(found)))
            plan_section(page, found, os.path.basename(args.files[0]))


def title_of(kind, paths):
    name = os.path.basename(os.path.abspath(paths[0]))
    return {"sweep": f"Sweep {name}", "scaling": "Scaling study", "plan": f"Plan {name}"}.get(kind, f"Run {name}" if len(paths) == 1 else f"{len(paths)} runs")


def page_of(kind, args):
    page = Page(title_of(kind, args.files), ", ".join(map(os.path.abspath, args.files)))
    fill(page, kind, args)
    if len(args.files) == 1:
        page.below += f", of {clock(os.path.getmtime(args.files[0]))}"
    return page


class Watch:
    """The page of --watch. It reads and draws again only what has changed since the last time."""

    def __init__(self, kind, args):
        self.kind, self.args, self.seen, self.sections = kind, args, None, []

    def inputs(self):
        """The files on which the page depends."""
        args = self.args
        if self.kind == "sweep":
            folder = args.files[0]
            trials = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.startswith("trial-")]
            return [os.path.join(folder, "sweep.json"), os.path.join(folder, "winner.json"), *(os.path.join(trial, name) for trial in trials for name in ("run.h5", "ended.json"))]
        return args.files + ([path for _, path in study_runs(args.files)] if self.kind == "scaling" else [])

    def now(self, page):
        """How far the runs are."""
        for path, label in zip(self.args.files, labels_of(self.args.files, self.args.label)):
            log = trswatch.read_log(self.args.log or trswatch.find_log(path))
            run = trsread.read_run(path) if os.path.exists(path) else None
            trswatch.section(page, "Now" if len(self.args.files) == 1 else label, path, run, log)

    def text(self, have):
        args = self.args
        page = Page(title_of(self.kind, args.files), ", ".join(map(os.path.abspath, args.files)), args.every)
        try:
            if self.kind == "run":
                self.now(page)
            seen = trswatch.signature(self.inputs())
            if seen != self.seen:
                rest = Page("", "")
                if seen:
                    fill(rest, self.kind, args)
                self.seen, self.sections = seen, rest.sections
        except (trsread.Unreadable, OSError, SystemExit) as error:  # the terminal has the reason of a SystemExit
            page.section("Not readable now", note(error if not isinstance(error, SystemExit) else f"{args.files[0]} cannot be shown"))
        page.sections += self.sections
        return page.text(have)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="run.h5, several of them, plan.json, the folder of a sweep, or the CSV of a scaling study")
    parser.add_argument("-o", "--output", metavar="HTML", help="(default: report.html; with --watch: no file)")
    parser.add_argument("--trace", metavar="JSON", help="the run's trace (default: where its -trace was written)")
    parser.add_argument("--label", action="append", default=[], help="of each run, in order (default: where the paths differ)")
    parser.add_argument("--watch", action="store_true", help="follow a training until Ctrl-C")
    parser.add_argument("--every", type=trspython.positive, default=5, metavar="SECONDS", help="with --watch: look for changes this often (default: %(default)s)")
    parser.add_argument("--port", type=int, help=f"with --watch: (default: {trswatch.PORT}, or any free port)")
    parser.add_argument("--log", metavar="FILE", help="with --watch: the log of the run (default: found beside the results)")
    args = parser.parse_args()
    kind = kind_of(parser, args.files)
    if len(args.label) > len(args.files):
        parser.error(f"{len(args.label)} times --label for {trsread.counted(len(args.files), 'run')}")
    if (args.log or args.port is not None) and not args.watch:
        parser.error("--log and --port need --watch")
    if args.log and len(args.files) > 1:
        parser.error("--log is for one run")
    if args.port is not None and args.output:
        parser.error("--watch with -o writes a file, and needs no --port")
    if args.port is not None and not 0 <= args.port < 65536:
        parser.error(f"--port {args.port} is no port")
    served = args.watch and not args.output
    args.output = args.output or "report.html"
    if not served:
        trsfile.check(parser, {"--output": args.output}, args.files)
    try:
        if served:
            return trswatch.serve(args.port, Watch(kind, args).text)
        if not args.watch:
            page = page_of(kind, args)
        os.makedirs(os.path.dirname(os.path.abspath(args.output)), exist_ok=True)
        if args.watch:
            return trswatch.rewrite(args.output, args.every, Watch(kind, args).text)
        with trsfile.whole(args.output) as out:
            out.write(page.text())
    except trsread.Unreadable as error:
        sys.exit(f"report.py: {error}")
    except OSError as error:
        sys.exit(f"report.py: {args.output} cannot be written: {error.strerror or error}")
    print("wrote", args.output)
    return 0


if __name__ == "__main__":
    trspython.run(main)
