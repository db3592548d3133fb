# SPDX-License-Identifier: BSD-3-Clause
"""tools/sweep.py on results that are written by hand: the continued trials, the table and the
picture."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile

import h5py

import scratch
import sweep as tools_sweep

TOOL = tools_sweep.__file__
JOB = os.path.join(os.path.dirname(TOOL), "..", "jobs", "sweep.sbatch")


def sweep(folder, *words, status=0):
    with contextlib.chdir(folder):
        done = scratch.inside(tools_sweep, *words)
    code, said = (1, done.stderr + done.returncode) if isinstance(done.returncode, str) else (done.returncode or 0, done.stderr)
    assert code == status, f"{words}: {code}\n{done.stdout}{said}"
    return done.stdout + said


def write(folder, trial, name, steps, values, **more):
    """A trial's evaluations."""
    path = os.path.join(folder, "s", f"trial-{trial}")
    os.makedirs(path, exist_ok=True)
    with h5py.File(os.path.join(path, "run.h5"), "w") as h:
        for key, series in {"step": steps, name: values, **more}.items():
            h[f"eval/{key}"] = series


def places(folder, r, n):
    """The trials of a round, by their options."""
    lines = [sweep(folder, "options", "s", str(r), str(place)) for place in range(n)]
    sweep(folder, "options", "s", str(r), str(n), status=3)
    return [line.split(" -steps ")[0] for line in lines], lines[0]


def test_halving(folder):
    """Nine trials, then three, then one. In a tie, the first wins. No score is the worst score."""
    text = sweep(folder, "new", "s", "--try", "-a 1,2,3", "--try", "-b 8,4 8,2 'x y'", "--steps", "90")
    assert "9 trials to step 10" in text and "3 trials to step 30" in text and "1 trial to step 90" in text, text
    assert "there already" in sweep(folder, "new", "s", "--try", "-a 1", "--steps", "1", status=1)
    names, first = places(folder, 0, 9)
    assert names[0] == "-a 1 -b 8,4" and names[2] == "-a 1 -b 'x y'" and names[8] == "-a 3 -b 'x y'", names
    assert first.split(" -steps ")[1].split() == ["10", "-output", "s/trial-0/run.h5", "-checkpoint_dir", "s/trial-0/checkpoints", "-resume"], first
    for trial, auc in enumerate((0.5, 0.7, 0.6, 0.7, 0.4, float("nan"), 0.7, 0.7, None)):
        if auc is not None:
            write(folder, trial, "auc", [5, 10], [0.9, auc])
    names, first = places(folder, 1, 3)
    assert names == ["-a 1 -b 8,2", "-a 2 -b 8,4", "-a 3 -b 8,4"] and " -steps 30 " in first, names
    for trial, auc in ((1, 0.71), (3, 0.73), (6, 0.72)):
        write(folder, trial, "auc", [10, 30], [0.7, auc])
    names, _ = places(folder, 2, 1)
    assert names == ["-a 2 -b 8,4"], names
    write(folder, 3, "auc", [10, 30, 90], [0.7, 0.73, 0.8])
    with h5py.File(os.path.join(folder, "s", "trial-3", "run.h5"), "a") as h:
        h["train/samples_per_s"] = [2e6, 3e6, 4e6]
        # a run's speed is that of its last start with steps
        h["starts/samples_per_s"] = [1e6, 1234567.25, float("nan")]
    lines = sweep(folder, "table", "s", "--csv", "s.csv").splitlines()
    assert [line.split()[0] for line in lines[2:11]] == ["3", "6", "1", "7", "2", "0", "4", "5", "8"], lines
    assert lines[11:13] == ["trial 5 has no score of round 0: its auc is not finite", "trial 8 has no score of round 0: it has no results"] and lines[13].startswith("winner: trial 3, "), lines
    states = [" ".join(line.split("-a ")[0].split()) for line in lines[2:11]]
    assert "finished" in states[0] and "stopped after round 1" in states[1] and "stopped after round 0" in states[3] and "no score" in states[8], states
    with open(os.path.join(folder, "s.csv"), encoding="utf-8") as file:
        text = file.read()
    # numbers are unchanged
    assert len(text.splitlines()) == 10 and '\n3,0.7,0.73,0.8,1234567.25,finished,"-a 2 -b 8,4"\n' in text, text
    sweep(folder, "plot", "s", "--output", "s.png")
    with open(os.path.join(folder, "s.png"), "rb") as file:
        assert file.read(4) == b"\x89PNG"


def test_downwards(folder):
    """A smaller loss is better. While a round is running, no trial is stopped."""
    sweep(folder, "new", "s", "--try", "-a 1,2,3,4", "--steps", "4", "--rounds", "2", "--keep", "1/2", "--metric", "ne")
    for trial, ne in ((0, 0.9), (1, 1.0), (2, 0.8)):
        write(folder, trial, "ne", [2], [ne])
    assert sweep(folder, "table", "s").count("under way") == 3
    write(folder, 3, "ne", [2], [0.7])
    names, _ = places(folder, 1, 2)
    assert names == ["-a 3", "-a 4"], names
    assert sweep(folder, "table", "s").count("stopped after round 0") == 2


def test_tasks(folder):
    """A model of several tasks has no auc. Any task's metric can be the score, and the default is
    the loss. If there is no score, the reason is given."""
    text = sweep(folder, "new", "s", "--try", "-a 1,2,3", "--steps", "4", "--rounds", "2")
    assert "metric: auc, or loss where evaluations have no auc" in text, text
    for trial, auc, loss in ((0, 0.9, 1.2), (1, 0.8, 1.1)):
        write(folder, trial, "click_auc", [1], [auc], loss=[loss])
    write(folder, 2, "click_auc", [2], [0.7], loss=[1.0])
    with open(os.path.join(folder, "s", "trial-0", "log"), "w", encoding="ascii"):
        pass
    names, _ = places(folder, 1, 1)
    assert names == ["-a 2"], names
    assert sweep(folder, "table", "s").startswith("loss, smaller is better (the evaluations have no auc)\n")
    text = sweep(folder, "check", "s", "0")
    assert text == "trial 2 has no score of round 0: its last evaluation was after step 2, expected after step 1\n", text
    os.rename(os.path.join(folder, "s", "sweep.json"), os.path.join(folder, "default.json"))
    sweep(folder, "new", "s", "--try", "-a 1,2,3", "--steps", "4", "--rounds", "2", "--metric", "click_auc")
    assert places(folder, 1, 1)[0] == ["-a 1"]
    assert sweep(folder, "table", "s").startswith("click_auc, larger is better\n")
    os.remove(os.path.join(folder, "s", "sweep.json"))
    assert "expected auc, auprc," in sweep(folder, "new", "s", "--try", "-a 1", "--steps", "4", "--metric", "click_speed", status=2)


def test_early_stopping(folder):
    """If early stopping ends a trial before its round, it keeps its last evaluation and the loss of
    its last steps, in this round and all later ones."""
    for metric, series in (("auc", "eval/auc"), ("train_loss", "train/loss")):
        sweep(folder, "new", "s", "--try", "-a 1,2,3", "--steps", "40", "--rounds", "3", "--keep", "1/2", "--metric", metric)
        for trial, end, value in ((0, 6, 0.7), (1, 10, 0.7), (2, 6, 0.7)):
            write(folder, trial, "auc", range(1, end + 1), [value] * end)
            with h5py.File(os.path.join(folder, "s", f"trial-{trial}", "run.h5"), "a") as h:
                h["train/step"], h["train/loss"] = range(end), [value] * end
                # the best trial
                h[series][...] += (0.1 if metric == "auc" else -0.1) * (trial == 0)
                if trial == 0:
                    h.attrs["stopped_early"] = "why"
        assert places(folder, 1, 2)[0] == ["-a 1", "-a 2"]
        write(folder, 1, "auc", [10, 20], [0.7, 0.7])
        with h5py.File(os.path.join(folder, "s", "trial-1", "run.h5"), "a") as h:
            h["train/step"], h["train/loss"] = range(20), [0.7] * 20
        assert places(folder, 2, 1)[0] == ["-a 1"]
        lines = sweep(folder, "table", "s").splitlines()
        assert "finished" in lines[2] and lines[2].split()[0] == "0" and lines[-3].startswith("trial 2 has no score of round 0"), lines
        os.remove(os.path.join(folder, "s", "sweep.json"))


def test_epochs(folder):
    """If a trial's epochs end before a round, it keeps its last evaluation. Its log says so at the
    first trial. The sweep has a winner with a model."""
    sweep(folder, "new", "s", "--try", "-a 1,2,3", "--steps", "900")
    for trial, auc in enumerate((0.6, 0.8, 0.7)):
        write(folder, trial, "auc", [157, 300], [0.5, auc])
        with h5py.File(os.path.join(folder, "s", f"trial-{trial}", "run.h5"), "a") as h:
            h.attrs.update(options="-data_train a.h5\n-epochs 4\n-steps 300\n# -seed 0\n", steps_per_epoch=157)
        text = sweep(folder, "ended", "s", "0", str(trial), "0")
        assert f"trial {trial}, round 0: auc {auc:.5f}\n" in text, text
        assert "-epochs ends its training after step 628, before the end of round 1 (step 900)" in text, text
    assert places(folder, 1, 1)[0] == ["-a 2"]
    write(folder, 1, "auc", [157, 300, 628], [0.5, 0.8, 0.82])
    with h5py.File(os.path.join(folder, "s", "trial-1", "run.h5"), "a") as h:
        h.attrs.update(options="-epochs 4\n-steps 900\n", steps_per_epoch=157)
    os.makedirs(os.path.join(folder, "s", "trial-1", "checkpoints"))
    for step in (300, 628):
        with open(os.path.join(folder, "s", "trial-1", "checkpoints", f"step-{step:09d}.h5"), "w", encoding="ascii"):
            pass
    for words in (("end", "s"), ("table", "s")):
        text = sweep(folder, *words)
        assert "winner: trial 1, auc 0.82000: -a 2\nits model is s/trial-1/checkpoints/step-000000628.h5, its results are s/trial-1/run.h5\n" in text, text
    with open(os.path.join(folder, "s", "winner.json"), encoding="utf-8") as file:
        assert json.load(file)["options"] == {"-a": "2"}


def test_lost_round(folder):
    """If a sweep's last round has no score, it ends with an error, and its table does not show it
    as running."""
    sweep(folder, "new", "s", "--try", "-a 1,2,3", "--steps", "9", "--rounds", "2")
    for trial in range(3):
        sweep(folder, "options", "s", "0", str(trial))
        write(folder, trial, "auc", [3], [0.5])
        sweep(folder, "ended", "s", "0", str(trial), "0")
    sweep(folder, "options", "s", "1", "0")
    assert sweep(folder, "table", "s").count("under way") == 1
    # it ended by itself, for any reason
    assert "trial 0, round 1: auc 0.50000" in sweep(folder, "ended", "s", "1", "0", "0")
    assert "winner: trial 0" in sweep(folder, "table", "s")
    assert "it ended with 71 and counts as the worst: its last evaluation was after step 3, expected after step 9" in sweep(folder, "ended", "s", "1", "0", "71")
    text = sweep(folder, "end", "s", status=1)
    assert "under way" not in text and "winner" not in text and "no trial has a score of round 1 (auc after step 9); trial 0" in text, text
    assert not os.path.exists(os.path.join(folder, "s", "winner.json"))


def test_no_score(folder):
    """A round without any score ends the sweep. The error names the first trial, the reason, and
    its log."""
    sweep(folder, "new", "s", "--try", "-a 1,2,3,4", "--steps", "4", "--rounds", "2", "--metric", "auc")
    for trial in range(4):
        sweep(folder, "options", "s", "0", str(trial))
    with open(os.path.join(folder, "s", "trial-0", "log"), "w", encoding="ascii") as out:
        out.write("trshard: error\n")
    write(folder, 1, "click_auc", [1], [0.7])
    write(folder, 2, "auc", [1], [float("nan")])
    with h5py.File(os.path.join(folder, "s", "trial-3", "run.h5"), "w") as h:
        h["train/step"] = [0]
    for words in (("options", "s", "1", "0"), ("check", "s", "0")):
        text = sweep(folder, *words, status=1)
        assert "sweep.py: no trial has a score of round 0 (auc after step 1); trial 0: it has no results; its log is s/trial-0/log" in text, text
    for reason in ("trial 1 has no score of round 0: its evaluations have no auc, but click_auc", "trial 2 has no score of round 0: its auc is not finite",
                   "trial 3 has no score of round 0: it has no evaluation (-data_eval)"):
        assert reason in text and reason in sweep(folder, "table", "s"), text


def test_one_class(folder):
    """Files have AUC 0.5 for labels of one class. This is no score, so a worse number wins.
    Calibration and the loss of one class are numbers."""
    sweep(folder, "new", "s", "--try", "-a 1,2,3", "--steps", "4", "--rounds", "1", "--metric", "auc")
    for trial, auc, ctr in ((0, 0.5, 0.0), (1, 0.4, 0.25), (2, 0.5, 1.0)):
        write(folder, trial, "auc", [4], [auc], ctr=[ctr])
    text = sweep(folder, "table", "s")
    for trial in (0, 2):
        assert f"trial {trial} has no score of round 0: its auc is no number (one class)" in text, text
    assert "winner: trial 1, auc 0.40000" in text, text


def test_submit(folder):
    """There is one array job for each round, which starts after the previous one. Other options are
    passed to sbatch."""
    sweep(folder, "new", "s", "--try", "-a 1,2,3", "--steps", "9", "--rounds", "2")
    with open(os.path.join(folder, "sbatch"), "w", encoding="ascii") as out:
        out.write('#!/bin/sh\necho "$@" >> calls\nwc -l < calls\n')
    os.chmod(os.path.join(folder, "sbatch"), 0o755)
    path = os.environ["PATH"]
    os.environ["PATH"] = folder + ":" + path
    sweep(folder, "submit", "s", "--limit", "2", "--nodes=2")
    os.environ["PATH"] = path
    with open(os.path.join(folder, "calls"), encoding="ascii") as file:
        calls = file.read().splitlines()
    assert len(calls) == 3 and "--dependency=afterany:2 --nodes=2" in calls[2] and "--array" not in calls[2] and calls[2].endswith("s end"), calls
    assert "--array=0-2%2" in calls[0] and "--dependency" not in calls[0] and calls[0].endswith("s 0"), calls
    assert "--array=0-0%2 --job-name=sweep-1 --dependency=afterany:1 --nodes=2" in calls[1] and calls[1].endswith("s 1"), calls


def test_another_interpreter(folder):
    """If the first interpreter has no h5py, the tool continues in another. A job must also search
    for one."""
    sweep(folder, "new", "s", "--try", "-a 1,2,3", "--steps", "9", "--rounds", "1")
    with open(os.path.join(folder, "sbatch"), "w", encoding="ascii") as out:
        out.write('#!/bin/sh\necho "tried ${TRSHARD_PYTHON_TRIED-nothing}" > tried\necho 1\n')
    os.chmod(os.path.join(folder, "sbatch"), 0o755)
    environment = dict(os.environ, PATH=folder + ":" + os.environ["PATH"], TRSHARD_PYTHON=sys.executable)
    environment.pop("PYTHONPATH", None)
    # -S: without the site's packages
    subprocess.run([sys.executable, "-S", TOOL, "submit", "s"], cwd=folder, env=environment, check=True)
    with open(os.path.join(folder, "tried"), encoding="ascii") as file:
        assert file.read() == "tried nothing\n"


def test_stopped(folder):
    """Without Slurm, a failed trial counts as the worst, and a sweep with only failed trials fails.
    A trial that is stopped ends the sweep and gets no score."""
    sweep(folder, "new", "s", "--try", "-a 1,2", "--steps", "9", "--rounds", "1")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    environment.update(PATH=folder + ":" + os.environ["PATH"], TRSHARD="/bin/true", TRSHARD_PYTHON=sys.executable, OPTIONS="none")
    for line, status, n_trials in (("echo why; exit 1", 1, 2), ("exit 75", 75, 1), ("kill -TERM $$", 75, 1), ("kill -INT $PPID; exit 1", 75, 1)):
        with open(os.path.join(folder, "mpirun"), "w", encoding="ascii") as out:
            out.write(f"#!/bin/sh\n{line}\n")
        os.chmod(os.path.join(folder, "mpirun"), 0o755)
        done = subprocess.run(["bash", JOB, "s"], cwd=folder, env=environment, capture_output=True, text=True, check=False)
        said = done.stdout.count("counts as the worst") if status == 1 else done.stdout.count("was stopped")
        assert (done.returncode, done.stdout.count("== round"), said) == (status, n_trials, n_trials), f"{line}: {done}"
        if status == 1:
            assert "trial 0: it has no results; its log is s/trial-0/log" in done.stderr, done
            with open(os.path.join(folder, "s", "trial-0", "log"), encoding="utf-8") as file:
                assert file.read() == "why\n" and "why\n" in done.stdout


def test_mistakes(folder):
    """Impossible requests give one line."""
    assert "expected an option and its values" in sweep(folder, "new", "s", "--try", "a 1", "--steps", "9", status=1)
    assert "sweep.py new makes it" in sweep(folder, "table", "nowhere", status=1)
    sweep(folder, "new", "s", "--try", "-a 1,2,3,4,5,6", "--steps", "9", "--at-most", "2")
    with open(os.path.join(folder, "s", "sweep.json"), encoding="utf-8") as file:
        assert len(json.load(file)["trials"]) == 2
    assert "has rounds 0 to 1, not 7" in sweep(folder, "options", "s", "7", "0", status=1)
    assert "no trial has results" in sweep(folder, "plot", "s", status=1)


for test in (test_halving, test_downwards, test_tasks, test_early_stopping, test_epochs, test_lost_round, test_no_score, test_submit, test_another_interpreter, test_stopped, test_mistakes):
    with tempfile.TemporaryDirectory() as made:
        test(made)
        print("ok", test.__name__)
