#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A sweep over options that stops the worst trials early (successive halving).

  sweep.py new FOLDER --try "-embedding_learning_rate 0.01,0.03,0.1" --try "-dense_arch 32,16 64,16" --steps 1000
  sweep.py submit FOLDER --nodes=1 --ntasks-per-node=4   one array job for each round, and a job that names the winner
  sweep.py table FOLDER                                  scores of all trials, the best first, and the winner
  sweep.py plot FOLDER --output sweep.png

Every trial gets one value of each --try. Values are words; if there is only one word, commas in it also separate values.
Round 0 trains all trials for a part of the steps. Each next round continues the best third of them (--keep) from their
checkpoints, for three times as many steps; the last round has --steps. The score is a metric of the evaluation at the
end of a round: by default auc, or loss if a model with -tasks has no auc. --metric click_ne uses the metric of the task
click, and --metric train_loss uses the training's own loss.

A training may end by itself before its round does (-epochs, early stopping). It then keeps its last score for this round
and all later rounds, and its log says which rounds it cannot reach. A trial without a score counts as the worst. A metric
without a number gives no score: NaN, or auc, auprc and ne if all labels are of one class. The sweep ends with an error if
no trial has a score of some round.

jobs/sweep.sbatch runs the trials. It calls "sweep.py options FOLDER ROUND PLACE" to get the options of the trial at this
place among the remaining trials. After the trial's run it calls "sweep.py ended FOLDER ROUND TRIAL CODE", and at last
"sweep.py end FOLDER", which prints the table and the winner, and writes both to FOLDER/winner.json.
"""
import argparse
import contextlib
import csv
import glob
import itertools
import json
import math
import os
import random
import re
import shlex
import subprocess
import sys

import trspython

trspython.require("h5py", "numpy")

import h5py
import numpy as np

import trsdata
import trsfile
import trsoptions
import trsread

UPWARDS = r"(.+_)?(auc|auprc|accuracy)|gauc|.+_at_\d+"  # metrics of which more is better; words before them are names of tasks and groups
DOWNWARDS = r"(.+_)?(loss|ne|mse|rmse|mae)"
HERE = os.path.dirname(os.path.abspath(__file__))


def values_of(text):
    """The option of a --try and its values."""
    words = shlex.split(text)
    if len(words) < 2 or not words[0].startswith("-"):
        trsdata.fail(f'--try "{text}": expected an option and its values, such as "-embedding_learning_rate 0.01,0.1"')
    return words[0], words[1].split(",") if len(words) == 2 else words[1:]


def make_rounds(n_trials, keep, steps, n_rounds):
    """Trials and steps of each round: each round keeps a share of the trials, and the last round has all steps."""
    trials = [max(1, math.ceil(n_trials * keep**r - 1e-9)) for r in range(n_rounds)]
    trials = trials[:trials.index(1) + 1] if 1 in trials else trials
    return [{"trials": n, "steps": max(1, round(steps * keep ** (len(trials) - 1 - r)))} for r, n in enumerate(trials)]


def new(args):
    tries = [values_of(text) for text in args.trials]
    trials = [dict(zip([name for name, _ in tries], values)) for values in itertools.product(*(values for _, values in tries))]
    if args.at_most and args.at_most < len(trials):
        trials = random.Random(args.seed).sample(trials, args.at_most)
    os.makedirs(args.folder, exist_ok=True)
    path = os.path.join(args.folder, "sweep.json")
    if os.path.exists(path):
        trsdata.fail(f"{path} is there already: choose another folder, or remove it to begin again")
    sweep = {"metric": args.metric, "rounds": make_rounds(len(trials), args.keep, args.steps, args.rounds), "trials": trials}
    with trsfile.whole(path) as out:
        json.dump(sweep, out, indent=1)
    print(f"{path}: {trsread.counted(len(trials), 'trial')}, metric: {args.metric or 'auc, or loss where evaluations have no auc'}")
    for r, entry in enumerate(sweep["rounds"]):
        print(f"  round {r}: {trsread.counted(entry['trials'], 'trial')} to step {entry['steps']}")


def load(folder):
    path = os.path.join(folder, "sweep.json")
    try:
        with open(path, encoding="utf-8") as file:
            sweep = json.load(file)
    except (OSError, ValueError) as error:
        trsdata.fail(f"{path}: {error} (sweep.py new makes it)")
    sweep["default"] = sweep["metric"] is None
    if sweep["default"]:
        names = [evaluations(folder, t) for t in range(len(sweep["trials"]))]
        sweep["metric"] = "loss" if any(names) and not any("auc" in found for found in names) else "auc"
    sweep["upwards"] = bool(re.fullmatch(UPWARDS, sweep["metric"]))
    return sweep


def run_file(folder, trial):
    return os.path.join(folder, f"trial-{trial}", "run.h5")


def evaluations(folder, trial):
    """The names of the metrics in a trial's evaluations; none before the first evaluation."""
    try:
        with h5py.File(run_file(folder, trial)) as h:
            return sorted(h.get("eval", ()))
    except OSError:
        return []


def epochs_end(folder, trial):
    """The step at which -epochs ends a trial's training; infinite without -epochs, or before the first results."""
    try:
        with h5py.File(run_file(folder, trial)) as h:
            epochs = [int(value) for name, value, given, _ in trsoptions.options(str(h.attrs.get("options", ""))) if name == "-epochs" and given != "default"]
            return epochs[-1] * int(h.attrs["steps_per_epoch"]) if epochs and "steps_per_epoch" in h.attrs else math.inf
    except OSError:
        return math.inf


def own_end(folder, trial, steps, last):
    """The step at which a trial of at most `steps` steps ends. A trial's own end counts for all later rounds. last: its last step with a value."""
    with h5py.File(run_file(folder, trial)) as h:
        well = ended_note(folder, trial)
        by_itself = "stopped_early" in h.attrs or (well["code"] == 0 and well["steps"] >= steps)
        return min(steps, last if by_itself else epochs_end(folder, trial))


def curve(folder, trial, metric):
    """The steps and values of the metric so far, and samples/s."""
    group, key = ("train", "loss") if metric == "train_loss" else ("eval", metric)
    try:
        with h5py.File(run_file(folder, trial)) as h:
            speed = trsread.speed_of(*(h[f"{name}/samples_per_s"][()] if f"{name}/samples_per_s" in h else np.zeros(0) for name in ("starts", "train")))
            if f"{group}/{key}" not in h:
                return np.zeros(0), np.zeros(0), speed
            return h[f"{group}/step"][()], trsread.measured(h[group], key), speed
    except OSError:
        return np.zeros(0), np.zeros(0), math.nan


def no_number(folder, trial, metric):
    """Why a metric has no number: the file has a value, but labels are of one class, or the value is not finite."""
    if metric == "train_loss":
        return "not finite"
    with h5py.File(run_file(folder, trial)) as h:
        return "no number (one class)" if np.isfinite(h[f"eval/{metric}"][-1]) else "not finite"


def scored(folder, trial, metric, steps):
    """The metric at a round's end, or None and the reason why there is none. For the training's loss it is
    the mean of the round's last tenth."""
    at, values, _ = curve(folder, trial, metric)
    if len(at):
        steps = own_end(folder, trial, steps, at[-1] + (metric == "train_loss"))
    if metric == "train_loss":
        inside = (at >= steps - max(1, steps // 10)) & (at < steps)
        found = values[inside] if len(at) and at[-1] >= steps - 1 else []
    else:
        found = values[at == steps][-1:]
    if len(found):
        return (float(np.mean(found)), "") if np.isfinite(found).all() else (None, f"its {metric} is {no_number(folder, trial, metric)}")
    names = evaluations(folder, trial)
    if len(at):
        why = f"it ended after step {at[-1] + 1}" if metric == "train_loss" else f"its last evaluation was after step {at[-1]}"
        return None, f"{why}, expected after step {steps}"
    if not os.path.exists(run_file(folder, trial)):
        return None, "it has no results"
    if metric == "train_loss":
        return None, "it has no step"
    return None, f"its evaluations have no {metric}, but {', '.join(names)}" if names else "it has no evaluation (-data_eval)"


def score(folder, trial, metric, steps):
    """The metric at a round's end, or None."""
    return scored(folder, trial, metric, steps)[0]


def reason(folder, sweep, trial, r):
    """Why a trial has no score of round r, and the place of its log; empty if it has a score."""
    log = os.path.join(folder, f"trial-{trial}", "log")
    why = scored(folder, trial, sweep["metric"], sweep["rounds"][r]["steps"])[1]
    return why + (f"; its log is {os.readlink(log) if os.path.islink(log) else log}" if why and os.path.lexists(log) else "")


def ranking(folder, sweep, trials, r):
    """These trials by their score of round r, the best first. Trials without a score come last."""
    sign = -1 if sweep["upwards"] else 1
    scores = {t: score(folder, t, sweep["metric"], sweep["rounds"][r]["steps"]) for t in trials}
    return sorted(trials, key=lambda t: (scores[t] is None, sign * (scores[t] or 0), t)), scores


def alive(folder, sweep, r):
    """The trials of round r: the best of the round before, as far as it has scores."""
    trials = list(range(len(sweep["trials"])))
    for before in range(r):
        order, scores = ranking(folder, sweep, trials, before)
        trials = [t for t in order[:sweep["rounds"][before + 1]["trials"]] if scores[t] is not None]
    return trials


def without_score(folder, sweep, trials, r):
    """A line for each of these trials that has begun and has no score of round r."""
    begun = [t for t in trials if os.path.isdir(os.path.join(folder, f"trial-{t}"))]
    return [f"trial {t} has no score of round {r}: {why}" for t in begun for why in [reason(folder, sweep, t, r)] if why]


def check_round(folder, sweep, r):
    """Prints which trials of round r have no score, and ends the program if no trial has a score."""
    trials = alive(folder, sweep, r)
    for line in without_score(folder, sweep, trials, r):
        print(line, file=sys.stderr)
    fail_without_scores(folder, sweep, trials, r)


def fail_without_scores(folder, sweep, trials, r):
    """Ends the program if no trial of round r has a score."""
    steps = sweep["rounds"][r]["steps"]
    if all(score(folder, t, sweep["metric"], steps) is None for t in trials):
        trsdata.fail(f"no trial has a score of round {r} ({sweep['metric']} after step {steps}); trial {trials[0]}: {reason(folder, sweep, trials[0], r)}")


def option_text(trial):
    return " ".join(f"{name} {shlex.quote(value)}" for name, value in trial.items())


def options(args):
    """Prints a trial's folder, number and options. Ends with 3 if no trial has this place."""
    sweep = load(args.folder)
    if not 0 <= args.round < len(sweep["rounds"]):
        trsdata.fail(f"{args.folder} has rounds 0 to {len(sweep['rounds']) - 1}, not {args.round}")
    trials = alive(args.folder, sweep, args.round)
    if not trials:
        for before in range(args.round):
            check_round(args.folder, sweep, before)
    if args.place >= len(trials):
        return 3
    # Places follow the trials' numbers, so that a requeued task finds its own trial again.
    trial = sorted(trials)[args.place]
    folder = os.path.join(args.folder, f"trial-{trial}")
    os.makedirs(folder, exist_ok=True)
    for stale in (winner_file(args.folder), ended_file(args.folder, trial)):
        with contextlib.suppress(FileNotFoundError):
            os.remove(stale)
    print(f"{option_text(sweep['trials'][trial])} -steps {sweep['rounds'][args.round]['steps']}"
          f" -output {shlex.quote(run_file(args.folder, trial))} -checkpoint_dir {shlex.quote(os.path.join(folder, 'checkpoints'))} -resume")
    return 0


def check(args):
    """True if a finished round has a score."""
    check_round(args.folder, load(args.folder), args.round)


def winner_file(folder):
    return os.path.join(folder, "winner.json")


def ended_file(folder, trial):
    return os.path.join(folder, f"trial-{trial}", "ended.json")


def ended_note(folder, trial):
    """The last round for which a trial's run has ended, its steps, and the exit code; round -1 before the end of the first run."""
    try:
        with open(ended_file(folder, trial), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {"round": -1, "steps": 0, "code": None}


def note_end(folder, trial, **note):
    with trsfile.whole(ended_file(folder, trial)) as out:
        json.dump(note, out)


def ended(args):
    """Notes that a trial's run of a round has ended; prints its score, and the rounds that it cannot reach."""
    sweep, end = load(args.folder), epochs_end(args.folder, args.trial)
    note_end(args.folder, args.trial, round=args.round, steps=sweep["rounds"][args.round]["steps"], code=args.code)
    found = score(args.folder, args.trial, sweep["metric"], sweep["rounds"][args.round]["steps"])
    name = f"trial {args.trial}, round {args.round}"
    if found is None:
        print(f"== {name}: it ended with {args.code} and counts as the worst: {reason(args.folder, sweep, args.trial, args.round)}")
    else:
        print(f"== {name}: {sweep['metric']} {found:.5f}")
    beyond = [f"{r} (step {entry['steps']})" for r, entry in enumerate(sweep["rounds"]) if entry["steps"] > end]
    if beyond and args.round == 0:
        print(f"== {name}: -epochs ends its training after step {end}, before the end of round {', '.join(beyond)}; its last score counts there")


def checkpoint_of(folder, trial):
    """The newest checkpoint of a trial, "" if it has none."""
    found = glob.glob(os.path.join(glob.escape(folder), f"trial-{trial}", "checkpoints", "step-*.h5"))
    return max(found, key=lambda path: int(re.sub(r"\D", "", os.path.basename(path)[:-3]) or 0), default="")


def winner(folder, sweep):
    """The winning trial, its score and its model; None before the last round has a score."""
    found, order = states(folder, sweep)
    scores, last, state = found[order[0]]
    if state != "finished" or any("under way" in entry[2] for entry in found.values()):
        return None
    return {"trial": order[0], "metric": sweep["metric"], "score": scores[last], "model": checkpoint_of(folder, order[0]),
            "results": run_file(folder, order[0]), "options": sweep["trials"][order[0]]}


def end(args):
    """Marks a sweep as ended, and prints its table with its winner, or the reason why it has none."""
    sweep = load(args.folder)
    for t in range(len(sweep["trials"])):  # if a node failed, its trial could not note its end
        if os.path.isdir(os.path.join(args.folder, f"trial-{t}")):
            note_end(args.folder, t, **{**ended_note(args.folder, t), "round": len(sweep["rounds"]) - 1})
    table(args)
    for r in range(len(sweep["rounds"])):
        fail_without_scores(args.folder, sweep, alive(args.folder, sweep, r), r)
    with trsfile.whole(winner_file(args.folder)) as out:
        json.dump(winner(args.folder, sweep), out, indent=1)


def submit(args, sbatch_options):
    sweep, before = load(args.folder), None
    jobs = [(f"round {r}", str(r), [f"--array=0-{entry['trials'] - 1}{args.limit or ''}", f"--job-name=sweep-{r}"]) for r, entry in enumerate(sweep["rounds"])]
    for what, word, own in [*jobs, ("the winner", "end", ["--job-name=sweep-end", "--output=%x-%j.out"])]:
        command = ["sbatch", "--parsable", *own, *([f"--dependency=afterany:{before}"] if before else []), *sbatch_options, args.script, args.folder, word]
        print(shlex.join(command), flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            trsdata.fail(f"sbatch ended with {done.returncode}")
        before = re.split(r"[;\s]", done.stdout.strip())[0]
        print(f"  {what}: job {before}")


def states(folder, sweep):
    """For each trial its scores, its last round and how it ended; then the trials in order, the best first."""
    n_rounds, n_trials = len(sweep["rounds"]), len(sweep["trials"])
    left = [alive(folder, sweep, r) for r in range(n_rounds)]
    scores = [[score(folder, t, sweep["metric"], sweep["rounds"][r]["steps"]) if t in left[r] else None for r in range(n_rounds)] for t in range(n_trials)]
    ends = [ended_note(folder, t)["round"] for t in range(n_trials)]
    over = [all(scores[t][r] is not None or ends[t] >= r for t in left[r]) or (r + 1 < n_rounds and any(scores[t][r + 1] is not None for t in left[r])) for r in range(n_rounds)]
    found = {}
    for t in range(n_trials):
        last = max((r for r in range(n_rounds) if scores[t][r] is not None), default=-1)
        state = "no score" if last < 0 else "under way"
        if last == n_rounds - 1:
            state = "finished"
        elif last >= 0 and over[last] and t not in left[last + 1]:
            state = f"stopped after round {last}"
        elif last >= 0 and ends[t] > last and t in left[last + 1]:
            state = f"no score of round {last + 1}"
        found[t] = (scores[t], last, state)
    sign = -1 if sweep["upwards"] else 1
    return found, sorted(found, key=lambda t: (-found[t][1], sign * found[t][0][found[t][1]] if found[t][1] >= 0 else 0, t))


def table(args):
    sweep = load(args.folder)
    found, order = states(args.folder, sweep)
    rows = [[t, *found[t][0], curve(args.folder, t, sweep["metric"])[2], found[t][2], option_text(sweep["trials"][t])] for t in order]
    head = ["trial"] + [f"step {entry['steps']}" for entry in sweep["rounds"]] + ["samples/s", "state", "options"]
    if getattr(args, "csv", None):
        with trsfile.whole(args.csv) as out:
            csv.writer(out).writerows([head] + rows)
    why = " (the evaluations have no auc)" if sweep["default"] and sweep["metric"] != "auc" else ""
    print(f"{sweep['metric']}, {'larger' if sweep['upwards'] else 'smaller'} is better{why}")
    shown = [head] + [[str(row[0]), *("" if s is None else f"{s:.5f}" for s in row[1:-3]), "" if math.isnan(row[-3]) else f"{row[-3]:,.0f}", *row[-2:]] for row in rows]
    print("\n".join(trsdata.table(shown, left=range(len(head) - 2, len(head)))))
    for r in range(len(sweep["rounds"])):
        for line in without_score(args.folder, sweep, alive(args.folder, sweep, r), r):
            print(line)
    won = winner(args.folder, sweep)
    if won:
        print(f"winner: trial {won['trial']}, {won['metric']} {won['score']:.5f}: {option_text(won['options'])}\n"
              f"its model is {won['model'] or 'not there any more'}, its results are {won['results']}")


def draw(folder, sweep):
    """The trials' curves as a figure. Ends the program if no trial has results yet."""
    trspython.require("h5py", "matplotlib", "numpy")
    import matplotlib  # noqa: PLC0415 (the batch scripts need no pictures)
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    found, order = states(folder, sweep)
    figure, axes = plt.subplots(figsize=(8.5, 4.8), layout="constrained")
    colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"]
    curves = [(place, t, *curve(folder, t, sweep["metric"])[:2]) for place, t in enumerate(order)]
    # The axis covers the better half, because a trial that diverged would flatten the others. Trials outside of it get
    # no name.
    shown = [value for place, _, _, values in curves if place <= len(order) // 2 for value in values if math.isfinite(value)]
    if not shown:
        trsdata.fail(f"{folder}: no trial has results yet")
    margin = 0.08 * (max(shown) - min(shown)) or 0.01
    low, high = min(shown) - margin, max(shown) + margin
    for place, t, steps, values in reversed(curves):
        if not len(steps):
            continue
        named = place < len(colours) and any(low <= value <= high for value in values)
        axes.plot(steps, values, color=colours[place] if named else "0.75", linewidth=1.8 if named else 1, zorder=3 if named else 2,
                  marker="." if len(steps) < 40 else None, label=option_text(sweep["trials"][t]) if named else None, gid=f"trial {t}")
        if found[t][2].startswith("stopped"):
            axes.plot(steps[-1], values[-1], marker="x", markersize=8, color=colours[place] if named else "0.5", zorder=4)
    axes.set_ylim(low, high)
    for entry in sweep["rounds"]:
        axes.axvline(entry["steps"], color="0.85", linewidth=1, zorder=1)
    axes.set_xlabel("step (grey lines: ends of rounds, crosses: stopped)")
    axes.set_ylabel(sweep["metric"])
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper center", bbox_to_anchor=(0.5, -0.13), fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def plot(args):
    trsfile.picture(draw(args.folder, load(args.folder)), args.output, dpi=120)
    print(args.output)


def share(text):
    parts = [float(part) for part in text.split("/")]
    value = parts[0] / parts[1] if len(parts) == 2 and parts[1] else parts[0]
    if not 0 < value < 1 or len(parts) > 2:
        raise argparse.ArgumentTypeError(f"{text} is no share between 0 and 1, such as 1/3")
    return value


def metric(text):
    if not re.fullmatch(f"{UPWARDS}|{DOWNWARDS}", text):
        raise argparse.ArgumentTypeError(f"{text}: expected auc, auprc, accuracy, loss, ne, mse, rmse or mae, one of them behind the name of a task (click_auc), train_loss, or gauc, ndcg_at_10 ...")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    task = {name: tasks.add_parser(name) for name in ("new", "submit", "options", "ended", "check", "end", "table", "plot")}
    for one in task.values():
        one.add_argument("folder")
    task["new"].add_argument("--try", action="append", required=True, dest="trials", metavar='"-OPTION VALUES"')
    task["new"].add_argument("--steps", type=trspython.positive, required=True, help="of the last round")
    task["new"].add_argument("--rounds", type=trspython.positive, default=3, help="(default: %(default)s)")
    task["new"].add_argument("--keep", type=share, default=1 / 3, help="share that goes on after a round (default: 1/3)")
    task["new"].add_argument("--metric", type=metric, help="as results have it in /eval, or train_loss (default: auc, or loss where evaluations have no auc)")
    task["new"].add_argument("--at-most", type=trspython.positive, help="draw so many trials at random from all combinations")
    task["new"].add_argument("--seed", type=int, default=1)
    task["submit"].add_argument("--limit", type=lambda text: f"%{trspython.positive(text)}", metavar="N", help="at most N trials at once")
    task["submit"].add_argument("--script", default=os.path.join(HERE, "..", "jobs", "sweep.sbatch"))
    for name, words in (("options", ("round", "place")), ("ended", ("round", "trial", "code")), ("check", ("round",))):
        for word in words:
            task[name].add_argument(word, type=int)
    task["table"].add_argument("--csv", metavar="FILE")
    task["plot"].add_argument("--output", default="sweep.png", metavar="PNG")
    args, rest = parser.parse_known_args()
    if rest and args.task != "submit":
        parser.error(f"unknown: {' '.join(rest)}")
    if args.task == "submit":
        return submit(args, rest)
    return {"new": new, "options": options, "ended": ended, "check": check, "end": end, "table": table, "plot": plot}[args.task](args)


if __name__ == "__main__":
    trspython.run(main)
