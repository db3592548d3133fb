#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The program's tasks inside a process. run() gives the program's bits, repeatedly; errors are
exceptions; a run stops on request.

    mpirun -n RANKS run.py TRSHARD FOLDER
"""
import glob
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import h5py
import numpy as np

import trshard
import trshard.metrics

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import trsdata

BINARY, FOLDER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
RANK, SIZE = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)), int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
N, GLOBAL = 384, 96
MODEL = f"-device cpu -data_train {FOLDER}/data.h5 -data_eval {FOLDER}/data.h5 -tables_embedding_dim 8 -dense_arch 16,8 -over_arch 12,1 -reproducible"
TRAINING = f"{MODEL} -steps 12 -dense_learning_rate 0.1 -embedding_learning_rate 0.5"


def make_data():
    random = np.random.default_rng(5)
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    with trsdata.DatasetWriter(f"{FOLDER}/data.h5", ["user", "item"], [30, 30], 3) as data:
        lengths = random.integers(0, 4, (N, 2), dtype=np.int32)
        data.append(random.random((N, 3), dtype=np.float32), random.integers(0, 2, N).astype(np.float32), lengths,
                    random.integers(0, 30, lengths.sum()))


def tensors(path):
    """The bits of a file's tables and layers."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, of: found.update({name: of[()].tobytes()}) if isinstance(of, h5py.Dataset) and not name.startswith("run") else None)
    return found


def check_bits():
    share = GLOBAL // SIZE
    for name in ("first", "second"):
        trshard.run(f"{TRAINING} -batch_size {share} -checkpoint_final {FOLDER}/{name}.h5 -output {FOLDER}/{name}_run.h5")
    trshard.run(f"-task eval {MODEL} -batch_size {share} -init_from {FOLDER}/first.h5 -output {FOLDER}/eval.h5")
    check_results(share)
    check_metrics(share)
    if RANK:
        return
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "PMI_"))}
    subprocess.run([BINARY, *f"{TRAINING} -batch_size {GLOBAL} -checkpoint_final {FOLDER}/program.h5 -output {FOLDER}/program_run.h5".split()],
                   check=True, env=alone, stdout=subprocess.DEVNULL)
    wanted = tensors(f"{FOLDER}/program.h5")
    assert len(wanted) > 6, wanted.keys()
    for name in ("first", "second"):
        found = tensors(f"{FOLDER}/{name}.h5")
        assert found == wanted, (name, [key for key in wanted if found.get(key) != wanted[key]])
        with h5py.File(f"{FOLDER}/{name}_run.h5") as run, h5py.File(f"{FOLDER}/program_run.h5") as program:
            assert run["train/loss"][()].tobytes() == program["train/loss"][()].tobytes(), name
            assert len(run["train/loss"]) == 12
    with h5py.File(f"{FOLDER}/eval.h5") as run:
        assert 0 < run["eval/auc"][()][-1] < 1


def check_results(share):
    """A run's results on all ranks: from its file, and without a file the same ones."""
    named = trshard.run(TRAINING, batch_size=share, eval_every=4, output=f"{FOLDER}/named.h5")
    with open(f"{FOLDER}/run.opts" if RANK == 0 else os.devnull, "w", encoding="utf-8") as file:
        file.write(f"-output {FOLDER}/named.h5\n")
    trshard.run("-task plan " + MODEL, batch_size=share)  # all ranks wait for the file
    assert trshard.results.named_value(f"-steps 3 -options_file {FOLDER}/run.opts", "output") == f"{FOLDER}/named.h5"
    own = trshard.run(TRAINING, batch_size=share, eval_every=4)
    assert named.output == f"{FOLDER}/named.h5" and own.output is None and len(named.losses) == 12
    assert own.losses.tobytes() == named.losses.tobytes() and set(own) == set(named) and len(own) > 20
    assert list(own.evaluations["step"]) == [4, 8, 12] and own.evaluations["auc"].tobytes() == named.evaluations["auc"].tobytes()
    assert own.train["step"][-1] == 11 and own.plan["world_size"] == SIZE and "loss" in repr(own) and "named.h5" in repr(named), own
    assert own.attributes["seed"] == named.attributes["seed"] if "seed" in own.attributes else own.attributes
    if RANK == 0:
        with h5py.File(named.output) as file:
            assert file["eval/auc"][()].tobytes() == own["eval/auc"].tobytes() and file["train/loss"][()].tobytes() == own.losses.tobytes()


def check_metrics(share):
    """Metrics of one's own loop equal those of the program's evaluation, from parts of different sizes on
    each rank, with equal predictions, and with weights."""
    result = trshard.run(f"-task eval {MODEL} -batch_size {share} -init_from {FOLDER}/first.h5")
    with h5py.File(f"{FOLDER}/data.h5") as file:
        labels = file["labels"][()]
    predictions, metrics = result["predictions"], trshard.metrics.Metrics()
    cut = N if SIZE == 1 else N // 3
    mine = slice(0, cut) if RANK == 0 else slice(cut, N)
    for rows in np.array_split(np.arange(N)[mine], 3):
        metrics.update(predictions[rows], labels[rows])
    found = metrics.compute()
    compared = [name for name in found if name in result.evaluations]
    assert len(compared) == 10 and found["samples"] == N, (compared, found)
    for name in compared:
        np.testing.assert_allclose(found[name], result.evaluations[name][-1], rtol=1e-6, err_msg=name)
    metrics.reset()
    if RANK == 0:  # by hand: positives 0.8 (weight 2) and 0.5, negatives 0.5 and 0.2; the other ranks have no samples
        metrics.update([0.8, 0.5, 0.5, 0.2], [1, 1, 0, 0], [2, 1, 1, 1])
    found = metrics.compute()
    assert abs(found["auc"] - (2 * 2 + 1 * 1.5) / 6) < 1e-12 and abs(found["ctr"] - 0.6) < 1e-12 and abs(found["calibration"] - 2.8 / 3) < 1e-12, found
    assert abs(found["auprc"] - (2 * 1 + 1 * 3 / 4) / 3) < 1e-12 and abs(found["accuracy"] - 4 / 5) < 1e-12, found
    metrics.reset()
    assert np.isnan(metrics.compute()["auc"]) and metrics.compute()["samples"] == 0
    for given, text in (((1.5, 1), "between 0 and 1"), (([0.5, 0.5], 1), "2, 1, 2")):
        try:
            metrics.update(*given)
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError(given)


def check_errors():
    for words, status, message in ((f"{TRAINING} -batch_sise 4", 64, "-batch_size"), (f"{MODEL} -data_train {FOLDER}/none.h5", 66, "none.h5"),
                                   (f"{TRAINING} -batch_size 4 -log_view bad", 64, "-log_view"),
                                   (f"{TRAINING} -batch_size {GLOBAL // SIZE} -watchdog_seconds 3 -dense_learning_rate 1e38", 78, "loss"), ('-output "a', 64, "quote")):
        try:
            trshard.run(words)
        except trshard.Error as error:
            assert error.status == status and message in str(error), (error.status, error)
        else:
            raise AssertionError(f"no error: {words}")


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def count_threads(most=0):
    """The number of threads, after a moment in which joined threads vanish, or as soon as there are at most so many."""
    for _ in range(600 if most else 2):
        time.sleep(0.1)
        n = len(os.listdir("/proc/self/task"))
        if n <= most:
            break
    return n


def check_memory():
    """Runs that fail in a step free their tables and threads."""
    big = f"{TRAINING} -batch_size {GLOBAL // SIZE} -tables_num_embeddings 200000 -dense_learning_rate 1e38 -checkpoint_dir {FOLDER}/never"
    before, threads = 0, 0
    for turn in range(6):
        try:
            trshard.run(big)
        except trshard.Error as error:
            assert error.status == 78, error
        else:
            raise AssertionError("the loss stayed finite")
        if turn == 1:
            before, threads = resident(), count_threads()
    grown, now = resident() - before, count_threads(threads)
    assert grown < 2 * 200000 * 8 * 4 and now <= threads, (grown, threads, now)


def check_files():
    """Runs that fail during set-up close their files."""
    before = len(os.listdir("/proc/self/fd"))
    for words in (TRAINING, f"-task eval {MODEL} -init_from {FOLDER}/first.h5"):
        try:
            trshard.run(f"{words} -batch_size {GLOBAL // SIZE} -topology_ddr_cap 1KiB")
        except trshard.Error as error:
            assert error.status == 72, error
        else:
            raise AssertionError("there was a plan")
    now = len(os.listdir("/proc/self/fd"))
    assert now == before, (before, now)


def check_stop(how, expected):
    """If only rank 0 is asked, a long training stops on all ranks and leaves a checkpoint."""
    folder, asked = f"{FOLDER}/{how.__name__}", []

    def ask():
        while not asked:
            time.sleep(0.2)
            if glob.glob(f"{folder}/*.h5"):  # the training runs
                asked.append(how())

    thread = threading.Thread(target=ask)
    if RANK == 0:
        thread.start()
    try:
        trshard.run(f"{TRAINING} -batch_size 4 -steps 100000000 -epochs 100000000 -checkpoint_dir {folder} -checkpoint_every 50")
    except expected if RANK == 0 else trshard.Error as stop:
        assert getattr(stop, "status", 75) == 75, stop
    else:
        raise AssertionError("it has not stopped")
    if RANK == 0:
        thread.join()


def interrupt():
    os.kill(os.getpid(), signal.SIGUSR2)  # Python also handles this signal
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)


signal.signal(signal.SIGUSR2, lambda *_: None)
if RANK == 0:
    make_data()
check_bits()
check_errors()
check_memory()
check_files()
time.sleep(4)  # the watchdog of a run that has ended must not end this process
check_stop(trshard.request_stop, trshard.Error)
check_stop(interrupt, KeyboardInterrupt)
# a stop request is for one run
trshard.run(f"{TRAINING} -batch_size {GLOBAL // SIZE} -checkpoint_final {FOLDER}/last.h5")
if RANK == 0:
    assert tensors(f"{FOLDER}/last.h5") == tensors(f"{FOLDER}/first.h5")
    print(f"ok: runs inside a process on {SIZE} ranks")
