# SPDX-License-Identifier: BSD-3-Clause
"""Requests to stop: the signals, their targets, a first and a second request, what they save, and
runs that lose their terminal."""
import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
import time

import h5py
import numpy as np

from law_faults import EVER, MODEL, TABLES, checkpoints, make, newest, stop, wait_for
from law_plans import FEATURES, MIXED, train
from trsrun import PATIENT, Failed, Job, check, check_same_tensors, load, patience, run, thin, thinned, write_dataset

ALONE = f"-data_train train.h5 -batch_size 24 {MODEL} {TABLES} -steps 1000000000 -checkpoint_dir ckpt -checkpoint_every 10 -report_interval 0"


def write_long_dataset(path):
    """Samples for an evaluation that takes a second or more."""
    write_dataset(path, 3000, seed=8, features=FEATURES)
    with h5py.File(path, "r+") as h:
        for name in ("dense", "labels", "sparse/lengths", "sparse/values"):
            data = np.concatenate([h[name][()]] * 200)
            del h[name]
            h[name] = data
        del h["sparse/offsets"]
        h["sparse/offsets"] = np.concatenate([[0], np.cumsum(h["sparse/lengths"][()].sum(axis=1))]).astype(np.int64)
        h.attrs["num_samples"] = np.int64(600000)


def check_goes_on(binary, folder, ranks, options=""):
    """A run that was stopped and resumed equals an uninterrupted run."""
    options += f" -steps {newest(folder) + 5}"
    _, wanted = train(binary, folder, "whole", ranks, options)
    _, found = train(binary, folder, "resumed", ranks, f"{options} -checkpoint_dir ckpt -resume")
    check_same_tensors(found, wanted, f"resumed on {ranks} ranks")


def test_stop_int_to_one_rank(binary, folder):
    """Ctrl-C stops a run as SIGTERM does: the ranks agree, write a checkpoint, and end with 75."""
    stop(binary, folder, lambda job: os.kill(job.pid(2), signal.SIGINT))


def test_stop_hup_to_one_rank(binary, folder):
    """A closed terminal (SIGHUP) also stops a run as SIGTERM does."""
    stop(binary, folder, lambda job: os.kill(job.pid(0), signal.SIGHUP))


def test_stop_by_several_ways(binary, folder):
    """One event that sends several signals is one request: a batch system's SIGTERM beside its
    script's SIGUSR1, or SIGHUPs from a closed terminal."""
    def send(job):
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1):
            os.kill(job.pid(1), number)
    stop(binary, folder, send)


def test_stop_alone(binary, folder):
    """Without mpirun."""
    make(folder)
    with subprocess.Popen([binary] + ALONE.split(), cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for line in process.stdout:
            if line.startswith("checkpoint after"):
                break
        process.send_signal(signal.SIGINT)
        text = process.stdout.read()
        check(process.wait() == 75, f"exit {process.returncode}:\n{text[-2000:]}")
    done = re.search(r"stopped on request after step (\d+)", text)
    check(done and int(done[1]) == newest(folder), f"the newest checkpoint is of step {newest(folder)}:\n{text[-2000:]}")


def test_stop_by_timeout(binary, folder):
    """If a supervisor signals the process and then its group, this is one request: coreutils'
    timeout, with each signal that it can send."""
    make(folder)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        before = checkpoints(folder)
        words = ["timeout", "-s", number.name[3:], "100000", binary] + ALONE.split() + ["-resume"]
        with subprocess.Popen(words, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            for line in process.stdout:
                if line.startswith("checkpoint after"):
                    break
            process.send_signal(number)
            text = process.stdout.read()
            check(process.wait() == 75, f"{number.name}: exit {process.returncode}:\n{text[-2000:]}")
        check("stopped on request after step" in text and checkpoints(folder) != before, f"{number.name}:\n{text[-2000:]}")
    check_goes_on(binary, folder, 1)


def test_stop_at_once(binary, folder):
    """A second request, two seconds after the first, prints a message and ends a rank with 130.
    This also works if the step cannot end, because the other rank hangs."""
    make(folder)
    for number in (signal.SIGINT, signal.SIGTERM):
        job = Job(binary, 2, EVER, folder, launcher=PATIENT)
        wait_for(lambda: catches(job.pid(0), number) and catches(job.pid(1), number), job)
        os.kill(job.pid(1), signal.SIGSTOP)
        try:
            try:
                while not is_gone(job.pid(0)):
                    os.kill(job.pid(0), number)
            except ProcessLookupError:
                pass
            noted = os.path.join(job.notes, "status.0")
            wait_for(lambda: os.path.exists(noted) and open(noted).read().strip(), job)
            check(open(noted).read().strip() == "130", f"{number.name} twice: exit {open(noted).read()}")
        finally:
            text = job.kill()
        check(text.count("a second request to stop: ends at once with exit status 130") == 1, f"{number.name} twice:\n{text[-2000:]}")


def is_gone(pid):
    """Whether the process has ended, including a process that was not waited for yet."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_stop_ignored(binary, folder):
    """nohup: SIGHUP was ignored at the start and stays ignored. SIGTERM stops the run as usual."""
    make(folder)
    job = Job(binary, 3, f"{EVER} -checkpoint_every 10", folder, prelude="trap '' HUP; ")
    wait_for(lambda: checkpoints(folder), job)
    for rank in range(3):
        os.kill(job.pid(rank), signal.SIGHUP)
    before = newest(folder)
    wait_for(lambda: checkpoints(folder) and newest(folder) > before + 50, job)
    os.kill(job.pid(1), signal.SIGTERM)
    result = job.wait(10)
    check(result.all_left_with(75, 3, patient=False), f"exit status {result.ranks}, mpirun {result.status}:\n{result.text[-2000:]}")


@thinned
def test_stop_evaluation(binary, folder):
    """On request, an evaluation between steps ends early. Its metrics are not printed, and the
    training continues from its checkpoint as if uninterrupted."""
    every = ((3, "prefetch_sparse_dist"), (1, "sparse_dist"), (2, "base"))
    for ranks, pipeline in thin(every, every[:2]):
        inner = os.path.join(folder, pipeline)
        os.makedirs(inner)
        make(inner)
        write_long_dataset(os.path.join(inner, "eval.h5"))
        options = EVER.replace("-report_interval 60", "-report_interval 0").replace("-batch_size 8", f"-batch_size {24 // ranks}")
        job = Job(binary, ranks, f"{options} -data_eval eval.h5 -eval_every 3 -pipeline {pipeline}", inner, launcher=PATIENT)
        job.read_to("step 3/")
        os.kill(job.pid(ranks - 1), signal.SIGTERM)
        result = job.wait(10)
        check(result.all_left_with(75, ranks, patient=True), f"exit status {result.ranks}:\n{result.text[-2000:]}")
        check("eval after step" not in result.text, f"the evaluation went on:\n{result.text[-2000:]}")
        check(newest(inner) == 3, f"the newest checkpoint is of step {newest(inner)}")
        # the long evaluation is no longer needed
        write_dataset(os.path.join(inner, "eval.h5"), 100, seed=8, features=FEATURES)
        # the evaluation that the stop prevented runs first, once
        for wanted in (["3", "4"], ["4"]):
            text = run(binary, ranks, f"{options} -steps 4 -data_eval eval.h5 -eval_every 3 -resume", inner).text
            check(re.findall(r"^eval after step (\d+)", text, re.M) == wanted, f"evaluations, expected after {wanted}:\n{text[-2000:]}")
        check_goes_on(binary, inner, ranks, MIXED)


def test_stop_last_evaluation(binary, folder):
    """In the last evaluation of a complete training, a stop keeps the weights, and a resume only
    has to evaluate."""
    make(folder)
    write_long_dataset(os.path.join(folder, "eval.h5"))
    options = (f"-data_train train.h5 -data_eval eval.h5 -batch_size 8 -steps 3 {MODEL} {TABLES} -checkpoint_dir ckpt -checkpoint_final final.h5 "
               "-report_interval 0")
    job = Job(binary, 3, options, folder)
    job.read_to("step 3/3")
    os.kill(job.pid(1), signal.SIGTERM)
    result = job.wait(10)
    check(result.all_left_with(75, 3, patient=False), f"exit status {result.ranks}, mpirun {result.status}:\n{result.text[-2000:]}")
    check(newest(folder) == 3 and os.path.exists(os.path.join(folder, "final.h5")), "the weights were not kept")
    # the long evaluation is no longer needed
    write_dataset(os.path.join(folder, "eval.h5"), 100, seed=8, features=FEATURES)
    check("eval after step 3" in run(binary, 3, f"{options} -resume", folder).text, "the resumed run did not evaluate")


def test_watchdog_of_an_evaluation(binary, folder):
    """-task eval also ends if a rank hangs."""
    write_long_dataset(os.path.join(folder, "eval.h5"))
    make(folder)
    run(binary, 1, f"-data_train train.h5 -batch_size 8 -steps 2 {MODEL} {TABLES} -checkpoint_final final.h5", folder)
    job = Job(binary, 3, f"-task eval -data_eval eval.h5 -init_from final.h5 -batch_size 2 -watchdog_seconds {round(3 * min(load(), 4))}", folder)
    job.read_to("plan")
    time.sleep(0.5)
    pid = job.pid(1)
    os.kill(pid, signal.SIGSTOP)
    try:
        result = job.wait(60)
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    check(result.status == 76 and "(-watchdog_seconds)" in result.text, f"exit status {result.ranks}, mpirun {result.status}:\n{result.text[-2000:]}")


def test_stop_eval_task(binary, folder):
    """-task eval ends with 75, and without results."""
    make(folder)
    write_long_dataset(os.path.join(folder, "eval.h5"))
    run(binary, 2, f"-data_train train.h5 -batch_size 12 -steps 2 {MODEL} {TABLES} -checkpoint_final final.h5", folder)
    for ranks in (1, 3):
        job = Job(binary, ranks, f"-task eval -data_eval eval.h5 -init_from final.h5 -batch_size 2 {MODEL} {TABLES} -output out.h5", folder, launcher=PATIENT)
        job.read_to("plan")
        os.kill(job.pid(0), signal.SIGINT)
        result = job.wait(10)
        check(result.all_left_with(75, ranks, patient=True), f"exit status {result.ranks}:\n{result.text[-2000:]}")
        check(re.search("stopped on request (during the evaluation|while .*final.h5 was being checked)", result.text), f"no word of it:\n{result.text[-2000:]}")
        check(not os.path.exists(os.path.join(folder, "out.h5")), "half of the results were written")


def test_stop_plan_task(binary, folder):
    """A run that has nothing to save ends at the first signal, with 130."""
    words = ("-task plan -topology_world_size 64 -tables a,b,c,d,e,f,g,h -tables_num_embeddings 100000 -tables_embedding_dim 64 "
             "-plan_proposers optimal -plan_optimal_seconds 600")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        with subprocess.Popen([binary] + words.split(), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            # until it catches the signal, as /proc shows
            job = type("Alone", (), {"process": process})
            wait_for(lambda: catches(process.pid, number), job)
            process.send_signal(number)
            check(process.wait(30 * patience()) == 130, f"{number.name}: exit {process.returncode}")


def catches(pid, number):
    with open(f"/proc/{pid}/status") as file:
        mask = re.search(r"SigCgt:\s*([0-9a-f]+)", file.read())
    # SIGUSR1 is included, because UCX catches SIGHUP for its debugger before the program starts.
    return all(int(mask[1], 16) >> (each - 1) & 1 for each in (number, signal.SIGUSR1))


def test_closed_terminal(binary, folder):
    """The terminal disappears with both streams on it: SIGHUP arrives, every write fails, and the
    checkpoint is still written."""
    make(folder)
    master, slave = pty.openpty()

    def enter():
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    with subprocess.Popen([binary] + ALONE.split(), cwd=folder, stdin=slave, stdout=slave, stderr=slave, preexec_fn=enter) as process:
        os.close(slave)
        text = b""
        while b"checkpoint after" not in text:
            try:
                text += os.read(master, 4096)
            except OSError:
                raise Failed(f"ended early:\n{text[-2000:]}") from None
        os.close(master)
        check(process.wait(30 * patience()) == 75, f"exit {process.returncode}")
    check_goes_on(binary, folder, 1)


def test_closed_terminal_ignored(binary, folder):
    """If SIGHUP is ignored when the terminal disappears, the run continues to its end, although its
    output has no reader."""
    make(folder)
    master, slave = pty.openpty()
    words = ALONE.replace("1000000000", "300")

    def enter():
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with subprocess.Popen([binary] + words.split() + ["-checkpoint_final", "final.h5"], cwd=folder, stdin=slave, stdout=slave, stderr=slave,
                          preexec_fn=enter) as process:
        os.close(slave)
        os.read(master, 1)
        os.close(master)
        check(process.wait(30 * patience()) == 0, f"exit {process.returncode}")
    check(os.path.exists(os.path.join(folder, "final.h5")), "no checkpoint")
