# SPDX-License-Identifier: BSD-3-Clause
"""A run's results over several starts, and other runs' files at the paths that a run writes."""
import glob
import os
import random
import re
import signal
import time

import h5py
import numpy as np

from law_faults import checkpoints, newest, wait_for
from law_signals import write_long_dataset
from law_plans import FEATURES, MIXED, MODEL, TABLES, make, train
from trsrun import Job, attribute, check, check_same_tensors, losses, run, same_bits, thin, thinned, write_dataset

STEPS = 24
RUN = f"-data_train train.h5 {MODEL} {TABLES} -output run.h5"


def read(path, *names):
    with h5py.File(path) as h:
        found = [h[name][()] if name in h else np.zeros(0) for name in names]
    return found if len(names) > 1 else found[0]


def names(folder):
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


def said(result, folder):
    """A run's output, with paths without the folder."""
    return result.text.replace(folder + "/", "")


def words(ranks, options, global_batch=24):
    return f"{RUN} -batch_size {global_batch // ranks} {options}"


def check_whole_curve(folder, wanted, steps, what):
    """Each step occurs once, and the losses are those of an uninterrupted run."""
    found, step = read(os.path.join(folder, "run.h5"), "train/loss", "train/step")
    check(step.tolist() == list(range(steps)), f"{what}: train/step is {step}")
    check(same_bits(found, wanted), f"{what}: losses {found} for {wanted}")
    check(not glob.glob(os.path.join(folder, "run.h5.~*")), f"{what}: a run's own file was kept as another's: {names(folder)}")


@thinned
def test_history(binary, folder):
    """A run that is stopped by -steps and resumed, on 1, 2 and 3 ranks, has one file with the whole
    curve, evaluations and metrics, and a row for each start."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 40, seed=8, features=FEATURES)
    for ranks in thin((1, 2, 3), (1, 3)):
        plan = MIXED if ranks > 1 else ""
        options = f"{plan} -data_eval eval.h5 -eval_every 5 -metrics_every 4 -metrics_window_samples 50"
        wanted, state = train(binary, folder, f"whole{ranks}", ranks, f"{options} -steps {STEPS}")
        more = f"{options} -checkpoint_dir ckpt{ranks} -resume -checkpoint_final final{ranks}.h5"
        for steps in (7, 7, 15, STEPS):  # the second start has no step to run
            result = run(binary, ranks, words(ranks, f"{more} -steps {steps} -checkpoint_every 7"), folder)
        check("history    run.h5: goes on after 15 updates" in said(result, folder), f"no word of the history:\n{result.text}")
        check_whole_curve(folder, wanted, STEPS, f"{ranks} ranks")
        check_same_tensors(os.path.join(folder, f"final{ranks}.h5"), state, f"{ranks} ranks")
        path = os.path.join(folder, "run.h5")
        # Evaluations at the end of a start are additional to those of the uninterrupted run. The
        # evaluation of a start without a step counts once.
        check(read(path, "eval/step").tolist() == [5, 7, 10, 15, 20, STEPS], f"eval/step is {read(path, 'eval/step')}")
        check(read(path, "metrics/step").tolist() == [4, 7, 8, 12, 15, 16, 20, STEPS], f"metrics/step is {read(path, 'metrics/step')}")
        shared = np.isin(read(path, "eval/step"), read(os.path.join(folder, f"whole{ranks}.h5"), "eval/step"))
        for name in ("eval/loss", "eval/auc"):
            check(same_bits(read(path, name)[shared], read(os.path.join(folder, f"whole{ranks}.h5"), name)), f"{ranks} ranks: other {name}")
        first, done, on, start = read(path, "starts/first_step", "starts/steps", "starts/ranks", "starts/start")
        check(first.tolist() == [0, 7, 7, 15] and done.tolist() == [7, 0, 8, 9] and set(on) == {ranks} and start.tolist() == [0, 1, 2, 3],
              f"starts at {first} of {done} steps on {on} ranks")
        began, elapsed, forward = read(path, "starts/time", "starts/elapsed_s", "starts/dense_forward_ms")
        check(np.all(np.diff(began) > 0) and abs(began[-1] - time.time()) < 3600 and np.all(elapsed > 0), f"starts at {began} for {elapsed}")
        check(np.all((forward > 0) == (done > 0)), f"starts' stages: {forward}")
        plans = [bytes(text) for text in read(path, "starts/plan")]
        check(plans[0].startswith(b"{") and plans[1:] == [b"", b"", b""], f"plans of the starts: {plans}")
        os.unlink(path)


def test_history_elsewhere(binary, folder):
    """A run is resumed on other ranks, with metrics that the first start lacked. All columns have
    the same length, and the plan of each start is kept."""
    make(folder)
    shared = "-checkpoint_dir ckpt -resume -checkpoint_every 5"
    run(binary, 2, words(2, f"{MIXED} {shared} -steps 5 -metrics_every 0"), folder)
    run(binary, 3, words(3, f"{MIXED} {shared} -steps 10 -metrics_every 2"), folder)
    run(binary, 1, words(1, f"{shared} -steps 12"), folder)
    path = os.path.join(folder, "run.h5")
    check(read(path, "train/step").tolist() == list(range(12)), f"train/step is {read(path, 'train/step')}")
    check(read(path, "metrics/step").tolist() == [6, 8, 10, 12], f"metrics/step is {read(path, 'metrics/step')}")
    check(read(path, "starts/ranks").tolist() == [2, 3, 1] and all(len(text) > 2 for text in read(path, "starts/plan")), "starts")
    with h5py.File(path) as h:
        for group in ("train", "metrics", "starts"):
            check(len({len(item) for item in h[group].values()}) == 1, f"/{group} has columns of several lengths")
        check(h.attrs["world_size"] == 1 and h.attrs["run_id"] == attribute(checkpoints(folder)[-1], "run_id").decode(), "attributes")


@thinned
def test_history_killed(binary, folder):
    """A run on 3 ranks is killed and requeued: every step occurs once, as in an uninterrupted run.
    A killed job's file is complete at any time."""
    make(folder)
    rng = random.Random(11)
    ever = words(3, f"{MIXED} -steps 1000000 -checkpoint_dir ckpt -checkpoint_every 2 -resume -output_every 0.01", 24)
    kills = thin(5, 3)
    for i in range(kills):
        before = checkpoints(folder)
        job = Job(binary, 3, ever, folder)
        wait_for(lambda: checkpoints(folder) != before, job)
        time.sleep(rng.random() * 0.3)
        os.kill(job.pid(rng.randrange(3)), signal.SIGKILL)
        check(job.wait(20).status != 0, f"kill {i}: exit 0")
        step = read(os.path.join(folder, "run.h5"), "train/step")
        check(step.tolist() == list(range(len(step))) and len(step) >= newest(folder), f"kill {i}: {len(step)} rows after {newest(folder)} steps")
    done = newest(folder) + 5
    run(binary, 3, words(3, f"{MIXED} -steps {done} -checkpoint_dir ckpt -resume"), folder)
    wanted, _ = train(binary, folder, "whole", 3, f"{MIXED} -steps {done}")
    check_whole_curve(folder, wanted, done, "after kills")
    first = read(os.path.join(folder, "run.h5"), "starts/first_step")
    check(len(first) == kills + 1 and first[0] == 0 and np.all(np.diff(first) >= 0), f"starts: {first}")


def test_output_every(binary, folder):
    """If a job without checkpoints is killed, it has its curve. With 0 it has none. Long before the
    first 300 s are over, the file is there to be watched, with the stages and the memory of rank 0."""
    make(folder)
    path = os.path.join(folder, "run.h5")
    endless = words(2, "-steps 1000000000 -report_interval 0.05", 16)
    for every, expected in (("0.05", True), ("300", True), ("0", False)):
        job = Job(binary, 2, f"{endless} -output_every {every}", folder)
        if expected:
            wait_for(lambda: os.path.exists(path) and len(losses(path)) > 20, job)
        else:
            for _ in range(5):
                job.read_to("step ")
        os.kill(job.pid(0), signal.SIGKILL)
        job.wait(20)
        check(os.path.exists(path) == expected, f"-output_every {every}: {names(folder)}")
        if expected:
            step, first, done = read(path, "train/step", "starts/first_step", "starts/steps")
            check(step.tolist() == list(range(len(step))) and first.tolist() == [0] and done.tolist() == [len(step)], f"{len(step)} rows, starts {first} {done}")
            forward, peak = read(path, "starts/dense_forward_ms", "starts/peak_memory_bytes")
            check(forward[0] > 0 and peak[0] > 1 << 20, f"dense forward {forward} ms, peak memory {peak}")
            os.unlink(path)


def test_results_gone_or_damaged(binary, folder):
    """A removed results file leaves a gap. A file that is damaged, of another run, or not a results
    file is kept as a backup, and the run continues."""
    make(folder)
    path = os.path.join(folder, "run.h5")
    more = "-checkpoint_dir ckpt -resume -checkpoint_every 4"
    run(binary, 2, words(2, f"{more} -steps 4"), folder)
    os.rename(path, path + ".old")
    run(binary, 2, words(2, f"{more} -steps 8"), folder)
    check(read(path, "train/step").tolist() == [4, 5, 6, 7], f"train/step is {read(path, 'train/step')}")
    for i, damage in enumerate(("cut", "column", "text", "no id"), 1):
        if damage == "cut":
            with open(path, "r+b") as file:
                file.truncate(os.path.getsize(path) // 2)
        elif damage == "text":
            with open(path, "w", encoding="ascii") as file:
                file.write("my notes\n")
        else:
            with h5py.File(path, "r+") as h:
                if damage == "column":
                    del h["train/loss"]
                    h["train/loss"] = np.zeros((2, 2))
                else:
                    del h.attrs["run_id"]
        with open(path, "rb") as file:
            before = file.read()
        result = run(binary, 2, words(2, f"{more} -steps {8 + 4 * i}"), folder)
        with open(f"{path}.~{i}~", "rb") as file:
            check(file.read() == before, f"{damage}: the backup differs")
        check(f"kept       what was run.h5 before: run.h5.~{i}~" in said(result, folder), f"{damage}: no word of the backup:\n{result.text[-2000:]}")
        check("trshard: warning" in result.text if damage == "column" else "warning" not in result.text, f"{damage}:\n{result.text[-2000:]}")
        check(read(path, "train/step").tolist() == list(range(4 + 4 * i, 8 + 4 * i)), f"{damage}: train/step is {read(path, 'train/step')}")


def test_backups(binary, folder):
    """Another run's files are kept with numbers. A pattern such as *.h5 finds only the newest
    file."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 40, seed=8, features=FEATURES)
    files = "-checkpoint_final final.h5 -checkpoint_best best.h5 -data_eval eval.h5 -eval_every 1 -trace trace.json"
    contents = []
    for i in range(3):
        result = run(binary, 2, words(2, f"{files} -steps {3 + i} -trace_first_step 0"), folder)
        check("error" not in result.text and "weights not kept" not in result.text, result.text[-2000:])
        contents.append({name: open(os.path.join(folder, name), "rb").read() for name in ("run.h5", "final.h5", "best.h5", "trace.json")})
        check(len(losses(os.path.join(folder, "run.h5"))) == 3 + i, "another run's rows in this one's results")
    for name, last in contents[-1].items():
        check(names(folder).count(name) == 1 and f"{name}.~2~" in names(folder) and f"{name}.~3~" not in names(folder), f"{name}: {names(folder)}")
        for i in (0, 1):
            check(open(os.path.join(folder, f"{name}.~{i + 1}~"), "rb").read() == contents[i][name], f"{name}.~{i + 1}~ is not what run {i} wrote")
        check(f"kept       what was {name} before: {name}.~2~" in said(result, folder), f"{name}: no word of its backup:\n{result.text[-2000:]}")
    check(sorted(os.path.basename(path) for path in glob.glob(os.path.join(folder, "*.h5"))) == ["best.h5", "eval.h5", "final.h5", "run.h5", "train.h5"],
          f"a pattern finds {names(folder)}")
    # other tasks are separate runs
    run(binary, 2, f"-task eval -data_eval eval.h5 -init_from final.h5 -batch_size 10 -output run.h5 {MODEL} {TABLES}", folder)
    check("run.h5.~3~" in names(folder), f"-task eval: {names(folder)}")
    for i in (1, 2):
        run(binary, 2, f"-task predict -data_eval eval.h5 -init_from final.h5 -batch_size 10 -quant_checkpoint quant.h5 {MODEL} {TABLES}", folder)
    check("quant.h5.~1~" in names(folder), f"-task predict: {names(folder)}")


@thinned
def test_backups_kept(binary, folder):
    """For each output, the -existing_outputs_keep newest backups are kept. Files of other programs
    are kept under any name."""
    make(folder)
    others = {"run.h5.~2~": "precious\n", "final.h5.~1~": "precious\n", "run.h5.~01~": "mine\n", "run.h5.~x~": "mine\n", "run.h5.~3": "mine\n", "prun.h5.~1~": "trshard\n"}
    for name, text in others.items():
        with open(os.path.join(folder, name), "w", encoding="ascii") as out:
            out.write(text)
    with h5py.File(os.path.join(folder, "run.h5.~4~"), "w") as h:
        h["mine"] = 1
    os.mkdir(os.path.join(folder, "run.h5.~5~"))
    os.symlink("train.h5", os.path.join(folder, "run.h5.~6~"))
    others = {**others, "run.h5.~4~": None, "run.h5.~5~": None, "run.h5.~6~": None}
    shown = "-checkpoint_final final.h5 -trace trace.json -plan_report report.txt -existing_outputs_keep 2"
    contents = []
    for i in range(6):
        result = run(binary, 1, words(1, f"{shown} -steps {2 + i} -batch_size {10 + i}"), folder)
        contents.append({name: open(os.path.join(folder, name), "rb").read() for name in ("run.h5", "final.h5", "trace.json", "report.txt")})
    for name, first in (("run.h5", 7), ("final.h5", 2), ("trace.json", 1), ("report.txt", 1)):
        found = {other for other in names(folder) if other.startswith(name + ".~")} - set(others)
        check(found == {f"{name}.~{first + i}~" for i in (3, 4)}, f"{name}: {sorted(found)}")
        for i in (3, 4):
            check(open(os.path.join(folder, f"{name}.~{first + i}~"), "rb").read() == contents[i][name], f"{name}: backup {first + i} is not what run {i} wrote")
    for name, text in others.items():
        check(os.path.lexists(os.path.join(folder, name)), f"{name} is gone")
        check(text is None or open(os.path.join(folder, name), encoding="ascii").read() == text, f"{name} has another text")
    check(f"removed    the oldest backup: run.h5.~9~ (-existing_outputs_keep 2)" in said(result, folder), result.text[-2000:])
    run(binary, 1, words(1, f"-steps 1 -existing_outputs_keep 0"), folder)
    check({f"run.h5.~{i}~" for i in (10, 11, 12)} <= set(names(folder)), f"0, for all: {names(folder)}")


def test_backups_of_texts(binary, folder):
    """If a text output would replace a plan that was edited by hand, or any other file, this file
    is kept with a number. If the text is the same, no backup is made."""
    shared = "-task plan -tables a,b -tables_embedding_dim 64 -tables_num_embeddings 1000 -topology_world_size 2"
    texts = {"-plan_output": "plan.json", "-plan_report": "report.txt", "-plan_search_space": "space.json"}
    outputs = " ".join(f"{option} {name}" for option, name in texts.items())
    run(binary, 1, f"{shared} {outputs}", folder)
    run(binary, 1, f"{shared} {outputs}", folder)
    # a report contains the time of its search, which may be equal
    again = {"report.txt.~1~"} & set(names(folder))
    check(names(folder) == sorted({*texts.values(), *again}), f"the same plan again: {names(folder)}")
    for name in again:
        os.remove(os.path.join(folder, name))
    contents = {name: open(os.path.join(folder, name)).read() for name in texts.values()}
    result = run(binary, 1, f"{shared} {outputs} -tables_num_embeddings 2000", folder)
    for name, text in contents.items():
        check(f"kept       what was {name} before: {name}.~1~" in said(result, folder), f"{name}: no word of its backup:\n{result.text}")
        check(open(os.path.join(folder, f"{name}.~1~")).read() == text and open(os.path.join(folder, name)).read() != text, f"{name} or its backup is another")
    for option, name in {**texts, "-bench_topology": "report.txt"}.items():
        task = shared if option != "-bench_topology" else "-task bench"
        text = run(binary, 2, f"{task} {option} {name} -existing_outputs refuse", folder, status=73).text
        check(f"{name} is there already: name another file" in text and "-existing_outputs backup" in text, text)
    run(binary, 1, f"{shared} {outputs} -existing_outputs replace", folder)
    check(not [name for name in names(folder) if "~2~" in name] and open(os.path.join(folder, "plan.json")).read() == contents["plan.json"], f"replace: {names(folder)}")
    make(folder)
    run(binary, 2, words(2, "-checkpoint_dir ckpt -steps 2 -plan_output trained.json -existing_outputs refuse"), folder)
    run(binary, 2, words(2, "-checkpoint_dir ckpt -resume -steps 4 -plan_output trained.json -existing_outputs refuse"), folder)
    check("trained.json.~1~" not in names(folder), f"a run that goes on: {names(folder)}")


@thinned
def test_refuse_and_replace(binary, folder):
    """-existing_outputs refuse: status 73 before the first step, and all files stay unchanged. A
    resumed run's files are its own. replace: no backup."""
    make(folder)
    own = "-checkpoint_final final.h5 -checkpoint_dir ckpt -checkpoint_every 3 -resume -existing_outputs refuse"
    for steps in (3, 6):
        run(binary, 2, words(2, f"{own} -steps {steps}"), folder)
    before = {name: open(os.path.join(folder, name), "rb").read() for name in ("run.h5", "final.h5")}
    for ranks in (1, 2, 3):
        outputs = ("-output run.h5", "-checkpoint_final final.h5")
        for output in thin(outputs, outputs[ranks % 2:ranks % 2 + 1]):
            line = f"-data_train train.h5 -batch_size 8 {MODEL} {TABLES} -steps 3 {output} -existing_outputs refuse"
            result = run(binary, ranks, line, folder, status=None)
            check(result.all_left_with(73, ranks, patient=False), f"{output}: exit {result.ranks}:\n{result.text[-2000:]}")
            check(f"trshard: error: {output.split()[1]} is there already, and belongs to run " in said(result, folder) and "-existing_outputs backup" in result.text,
                  f"{output}:\n{result.text[-2000:]}")
    check(all(open(os.path.join(folder, name), "rb").read() == text for name, text in before.items()), "a refused run has changed a file")
    run(binary, 2, words(2, "-checkpoint_final final.h5 -steps 2 -existing_outputs replace"), folder)
    check(not [name for name in names(folder) if "~" in name], f"replace: {names(folder)}")
    check(len(losses(os.path.join(folder, "run.h5"))) == 2, "replace: the old file is there")


def test_killed_before_a_checkpoint(binary, folder):
    """A job that is killed before its first checkpoint and requeued continues with its own files,
    for any value of -existing_outputs."""
    make(folder)
    job = Job(binary, 2, words(2, "-checkpoint_dir ckpt -checkpoint_every 1000000 -resume -existing_outputs refuse -output_every 0.1 -report_interval 0.1 -steps 1000000000"), folder)
    wait_for(lambda: os.path.exists(os.path.join(folder, "run.h5")), job)
    os.kill(job.pid(0), signal.SIGKILL)
    job.wait(20)
    run(binary, 3, words(3, "-checkpoint_dir ckpt -resume -existing_outputs refuse -checkpoint_final final.h5 -steps 4"), folder)
    check(len(losses(os.path.join(folder, "run.h5"))) == 4 and not [name for name in names(folder) if "~" in name], f"{names(folder)}")
    result = run(binary, 2, words(2, "-checkpoint_dir other -resume -existing_outputs refuse -steps 4"), folder, status=None)
    check(result.all_left_with(73, 2, patient=False), f"another folder is another run: exit {result.ranks}:\n{result.text[-2000:]}")


def contents(path):
    """All content of a results file, by name."""
    found = {}
    with h5py.File(path) as h:
        h.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
        found.update({f"@{name}": value for name, value in h.attrs.items()})
    return found


def check_whole_file(path, whole, what):
    """The names of an uninterrupted run's file, and the same numbers except times."""
    found, wanted = contents(path), contents(whole)
    check(found.keys() == wanted.keys(), f"{what}: {sorted(found.keys() ^ wanted.keys())} is in one of both")
    for name in wanted:
        if name.split("/")[0] in ("train", "eval", "metrics", "retrieval") and not re.search("throughput|attempt|samples_per_s|window", name):
            check(np.array_equal(found[name], wanted[name], equal_nan=True), f"{what}: /{name} is {found[name]}, not {wanted[name]}")


def test_resumed_after_its_end(binary, folder):
    """A run that is killed in its last evaluation, after the last checkpoint, and is then resumed
    has all data of an uninterrupted run. Another resume keeps them."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 60, seed=8, features=FEATURES)
    write_long_dataset(os.path.join(folder, "long.h5"))
    steps = "-steps 20 -metrics_every 7 -checkpoint_every 5 -resume"
    for ranks in (1, 2):
        run(binary, ranks, words(ranks, f"{steps} -data_eval eval.h5 -checkpoint_dir whole{ranks}"), folder)
        os.rename(os.path.join(folder, "run.h5"), os.path.join(folder, "whole.h5"))
        job = Job(binary, ranks, words(ranks, f"{steps} -data_eval long.h5,long.h5,long.h5 -checkpoint_dir ckpt{ranks}"), folder)
        wait_for(lambda: os.path.exists(os.path.join(folder, f"ckpt{ranks}", "step-000000020.h5")), job)
        os.kill(job.pid(0), signal.SIGKILL)
        check(job.wait(20).status != 0, "the run ended before it was killed")
        again = words(ranks, f"{steps} -data_eval eval.h5 -checkpoint_dir ckpt{ranks}")
        run(binary, ranks, again, folder)
        path = os.path.join(folder, "run.h5")
        check_whole_file(path, os.path.join(folder, "whole.h5"), f"{ranks} ranks, killed")
        check(read(path, "metrics/step").tolist() == [7, 14, 20], f"metrics/step is {read(path, 'metrics/step')}")
        run(binary, ranks, words(ranks, f"{steps} -data_eval eval.h5 -checkpoint_dir whole{ranks}").replace("run.h5", "whole.h5"), folder)
        whole = contents(os.path.join(folder, "whole.h5"))
        check((whole["stages/measured_ms"].sum(axis=1) > 0).all() and whole["starts/steps"].tolist() == [20, 0],
              f"a start without steps: {whole['stages/measured_ms']}, {whole['starts/steps']}")
        os.unlink(path)


def test_one_speed(binary, folder):
    """Samples/s are samples over the time in steps. The last lines, the results and the tools show
    the same value, regardless of the time of evaluations."""
    make(folder)
    write_long_dataset(os.path.join(folder, "long.h5"))
    text = run(binary, 2, words(2, "-steps 8 -data_eval long.h5 -eval_every 4 -metrics_every 4 -report_interval 0"), folder).text
    steps_s, all_s, speed = map(float, re.search(r"samples in (\S+) s of steps \((\S+) s with evaluations and checkpoints\): (\d+) samples/s", text).groups())
    with h5py.File(os.path.join(folder, "run.h5")) as h:
        of_start, of_steps, ran_s = h["starts/samples_per_s"][-1], h["train/samples_per_s"][()], h["starts/elapsed_s"][-1]
        rows = h["metrics/window_throughput"][()]
    check(abs(of_start - speed) <= 0.5, f"/starts/samples_per_s is {of_start}, the line says {speed}")
    times = 24 / of_steps
    check(abs(of_start * times.sum() / (24 * 8) - 1) < 1e-9 and abs(times.sum() - steps_s) <= 0.006, f"{of_start} of steps of {times}, {steps_s} s")
    check(all_s > steps_s + 0.05 and ran_s >= all_s - 0.01, f"{steps_s} s of {all_s}, {ran_s}")
    check(np.isnan(rows[0]) and abs(rows[1] * times[4:8].sum() / 96 - 1) < 1e-6, f"/metrics/window_throughput is {rows} for steps of {times}")
    lines = [float(found) for found in re.findall(r"\nstep .* (\d+) samples/s", text)]
    check(len(lines) == 8 and np.allclose(lines, of_steps, rtol=0, atol=0.5 + 1e-6), f"lines {lines}, steps {of_steps}")


def test_kept(binary, folder):
    """The last lines name the saved files, and name weights that were not saved. If only a folder
    is given, it holds the weights."""
    make(folder)
    base = f"-data_train train.h5 -batch_size 8 {MODEL} {TABLES} -steps 3"
    text = said(run(binary, 2, base, folder), folder)
    check(text.endswith("weights not kept: no -checkpoint_final or -checkpoint_dir\nresults not kept: no -output\n"), text[-500:])
    text = said(run(binary, 2, f"{base} -checkpoint_dir ckpt -output run.h5", folder), folder)
    check(text.endswith("kept       results: run.h5\nkept       checkpoints: ckpt\n"), text[-500:])
    check(newest(folder) == 3, f"checkpoints: {checkpoints(folder)}")
    text = said(run(binary, 2, f"{base} -checkpoint_final final.h5", folder), folder)
    check(text.endswith("kept       weights: final.h5\nresults not kept: no -output\n"), text[-500:])


def test_fails_before(binary, folder):
    """If a run ends before its files are complete, another run's files stay unchanged and without a
    backup."""
    make(folder)
    run(binary, 2, words(2, "-checkpoint_final final.h5 -steps 3"), folder)
    before = {name: os.stat(os.path.join(folder, name)).st_ino for name in ("run.h5", "final.h5")}
    result = run(binary, 2, words(2, "-checkpoint_final final.h5 -steps 500 -embedding_learning_rate 1e38"), folder, status=None)
    check(result.status == 78, f"exit {result.status}:\n{result.text[-1000:]}")
    check({name: os.stat(os.path.join(folder, name)).st_ino for name in before} == before and len(names(folder)) == 3, f"{names(folder)}")
