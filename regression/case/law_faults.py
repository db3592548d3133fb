# SPDX-License-Identifier: BSD-3-Clause
"""Runs that are stopped on request, and runs that hang: what they save, how they end, and how
fast."""
import glob
import os
import re
import signal
import subprocess
import time

from law_plans import MIXED, MODEL, TABLES, make, train
from trsrun import PATIENT, Failed, Job, check, check_same_tensors, load, losses, patience, run, same_bits

ENDLESS = "-steps 1000000000 -checkpoint_dir ckpt -report_interval 60"
EVER = f"-data_train train.h5 -batch_size 8 {MODEL} {TABLES} {MIXED} {ENDLESS}"
WITHOUT_FOLDER = EVER.replace("-checkpoint_dir ckpt", "").replace("-report_interval 60", "-report_interval 0.05")


def checkpoints(folder):
    return sorted(glob.glob(os.path.join(folder, "ckpt", "step-*.h5")))


def wait_for(condition, job, limit_s=20):
    """Wait until condition(). Fails if the job ends first, or if it takes too long."""
    start_s = time.monotonic()
    while not condition():
        if job.process.poll() is not None:
            raise Failed(f"the job ended with {job.process.returncode}:\n{job.process.stdout.read()[-2000:]}")
        check(time.monotonic() - start_s < limit_s * patience(), f"not in {limit_s} s")
        time.sleep(0.02)


def newest(folder):
    return int(re.search(r"step-(\d+)", checkpoints(folder)[-1]).group(1))


def check_ends_as_unbroken(binary, folder, more_steps=5, options=MIXED):
    """If a run resumes the checkpoint in ckpt/ for some steps, the result is that of an
    uninterrupted run."""
    done = newest(folder)
    wanted, state = train(binary, folder, "whole", 3, f"{options} -steps {done + more_steps}")
    found, other = train(binary, folder, "resumed", 3, f"{options} -steps {done + more_steps} -checkpoint_dir ckpt -resume")
    check(same_bits(found, wanted[done:]), f"losses {found} for {wanted[done:]}")
    check_same_tensors(other, state, f"resumed after {done} steps")


def stop(binary, folder, send):
    make(folder)
    job = Job(binary, 3, f"{EVER} -checkpoint_every 10 -output run.h5", folder)
    wait_for(lambda: checkpoints(folder), job)
    send(job)
    result = job.wait(10)
    check(result.all_left_with(75, 3, patient=False), f"exit status {result.ranks}, mpirun {result.status}:\n{result.text[-2000:]}")
    messages = [line for line in result.text.splitlines() if line.startswith("trshard: ") and "-device auto" not in line]
    check(len(messages) == 1 and "info: stopped on request after step" in messages[0] and "-resume" in messages[0], f"messages: {messages}")
    check(all(f"\nkept       {what}: {folder}/{name}\n" in result.text for what, name in (("checkpoints", "ckpt"), ("results", "run.h5"))), f"what was kept:\n{result.text[-2000:]}")
    done = int(re.search(r"after step (\d+)", messages[0]).group(1))
    check(done == newest(folder), f"stopped after step {done}, the newest checkpoint is of step {newest(folder)}")
    check(len(losses(os.path.join(folder, "run.h5"))) == done, "the results do not hold the steps done")
    check_ends_as_unbroken(binary, folder)


def test_stop_usr1_to_mpirun(binary, folder):
    """SIGUSR1 to mpirun, as a batch system sends it before the time limit, reaches all ranks."""
    stop(binary, folder, lambda job: job.send_signal(signal.SIGUSR1))


def test_stop_term_to_one_rank(binary, folder):
    """SIGTERM to one rank stops all ranks at the same step."""
    stop(binary, folder, lambda job: os.kill(job.pid(1), signal.SIGTERM))


def test_stop_without_folder(binary, folder):
    """Without a folder for a checkpoint, the message says that nothing was saved."""
    make(folder)
    job = Job(binary, 2, WITHOUT_FOLDER, folder, launcher=PATIENT)
    job.read_to("step ")
    os.kill(job.pid(0), signal.SIGUSR1)
    result = job.wait(10)
    check(result.ranks == {0: 75, 1: 75}, f"exit status {result.ranks}:\n{result.text[-2000:]}")
    check("nothing was saved: there is no -checkpoint_dir" in result.text, f"no word of it:\n{result.text[-2000:]}")


def test_stop_while_mpi_starts(binary, folder):
    """SIGUSR1 that arrives before MPI has started, as on a busy machine or in a large job, is an
    ordinary request."""
    make(folder)
    preload = os.path.join(os.path.dirname(binary), "regression", "fault", "libfault_preload.so")
    fault = {"TRS_FAULT": f"MPI_Init_thread 1 {int(signal.SIGUSR1)} 1", "TRS_FAULT_PROGRAM": os.path.realpath(binary), "LD_PRELOAD": preload}
    result = Job(binary, 2, EVER, folder, environment=fault, launcher=PATIENT).wait(20)
    check(result.ranks == {0: 75, 1: 75} and "info: stopped on request after step" in result.text, f"exit status {result.ranks}:\n{result.text[-2000:]}")


def test_last_message(binary, folder):
    """If rank 0's standard output is full, rank 0 prints its message before another rank's exit
    ends the job, even if the message takes long."""
    make(folder)
    preload = os.path.join(os.path.dirname(binary), "regression", "fault", "libfault_preload.so")
    fault = {"TRS_FAULT": "fwrite 1 3 0", "TRS_FAULT_PROGRAM": os.path.realpath(binary), "LD_PRELOAD": preload}
    result = Job(binary, 3, f"-data_train train.h5 -batch_size 8 {MODEL} {TABLES} -steps 1", folder, environment=fault, prelude="[ $OMPI_COMM_WORLD_RANK != 0 ] || exec >/dev/full; ").wait(30)
    check(result.status == 74 and result.text.count("standard output cannot be written") == 1, f"exit status {result.ranks}, mpirun {result.status}:\n{result.text[-2000:]}")


def test_watchdog(binary, folder):
    """If a rank hangs, the job ends, and the message names the step and the stage."""
    make(folder)
    limit_s = round(3 * min(load(), 4))
    # a disk may stall for longer
    job = Job(binary, 3, f"{WITHOUT_FOLDER} -watchdog_seconds {limit_s}", folder)
    job.read_to("step ")
    pid = job.pid(1)
    start_s = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    try:
        result = job.wait(5 * limit_s)
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    seconds = time.monotonic() - start_s
    check(seconds > 0.5 * limit_s, f"ended after {seconds:.1f} s of {limit_s}")
    # the rank that hung was killed
    noted = {rank: status for rank, status in result.ranks.items() if rank != 1}
    check(noted and set(noted.values()) == {76} and result.status == 76, f"exit status {result.ranks}, mpirun {result.status}:\n{result.text[-2000:]}")
    check(re.search(r"trshard: error: rank \d has been in stage '[^']+' of step \d+ for \d+ s \(-watchdog_seconds\)", result.text),
          f"no message:\n{result.text[-2000:]}")


def test_output_closed(binary, folder):
    """The reader of the progress exits (| head), and the run ends as usual. The run has no mpirun,
    which might end for the same reason."""
    make(folder)
    words = f"-data_train train.h5 -batch_size 8 -steps 300 -report_interval 0 -checkpoint_final final.h5 {MODEL} {TABLES}"
    with subprocess.Popen([binary] + words.split(), cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.readline()
        process.stdout.close()
        check(process.wait(30 * patience()) == 0, f"exit {process.returncode}")
    check(os.path.exists(os.path.join(folder, "final.h5")), "no checkpoint")


def test_no_memory_to_share(binary, folder):
    """If ranks may not create a file of the size of their shared memory, they exchange by messages.
    One line says this, and the numbers have the same bits."""
    make(folder)
    wanted, state = train(binary, folder, "shared", 2, f"{MIXED} -steps 5")
    words = f"-data_train train.h5 -batch_size 12 -output poor.h5 -checkpoint_final poor.final.h5 {MODEL} {TABLES} {MIXED} -steps 5"
    result = run(binary, 2, words, folder, prelude="ulimit -f 200000; ")
    # a build with CUDA prints the reason
    lines = [line for line in result.text.splitlines() if "trshard: info" in line and "-device auto" not in line]
    check(len(lines) == 1 and "exchange by messages" in lines[0], f"lines: {lines}")
    check(same_bits(losses(os.path.join(folder, "poor.h5")), wanted), "other losses by messages")
    check_same_tensors(os.path.join(folder, "poor.final.h5"), state, "by messages")
