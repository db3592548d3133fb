#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The library in special processes: with a decimal comma, with few free file descriptors, without
/proc, in child processes that return errors, and after MPI's end.

    surroundings.py TRSHARD
"""
import ctypes
import locale
import multiprocessing
import os
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np

import trshard

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import trsdata

BINARY = os.path.abspath(sys.argv[1])
TRAINING = "-data_train data.h5 -device cpu -batch_size 8 -steps 3 -tables_embedding_dim 4 -dense_arch 4 -over_arch 4,1 -dense_learning_rate 0.125"
COMMA = "de_DE.UTF-8"


def make_files():
    with trsdata.DatasetWriter("data.h5", ["user", "item"], [20, 10], 2) as out:
        out.append(np.full((32, 2), 0.5, np.float32), np.ones(32, np.float32), np.ones((32, 2), np.int32), np.arange(64) % 10)
    with trsdata.DatasetWriter("bad.h5", ["user", "item"], [20, 10], 2) as out:
        out.append(np.full((32, 2), 0.5, np.float32), np.full(32, 1.5, np.float32), np.ones((32, 2), np.int32), np.arange(64) % 10)
    subprocess.run([BINARY, *TRAINING.split(), "-checkpoint_final", "model.h5"], check=True, stdout=subprocess.DEVNULL)


def fails(call):
    try:
        call()
    except trshard.Error as error:
        return error
    raise AssertionError("no error")


def use(turn):
    """Create and use every object. Returns the numbers in files and messages."""
    one = np.ones((1, 4), np.int32)
    with trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig("user", 20, 4)], 8, "-device cpu -embedding_learning_rate 0.5") as ebc:
        ebc.backward(ebc.forward(one, [1, 2, 3, 4]))
        ebc.save(f"own_{turn}.h5")
        plan = ebc.plan
        with trshard.Reader(ebc, "bad.h5", "-steps 1") as reader:
            message = str(fails(lambda: next(reader)))
        assert " is 1.5, expected" in message, message
    trshard.run(f"{TRAINING} -checkpoint_final run_{turn}.h5 -plan_output plan_{turn}.json -output out_{turn}.h5")
    with trshard.Predictor("model.h5") as predictor:
        predicted = predictor.predict(np.ones((2, 1), np.int32), [1, 2], dense=[[0.5, 0.25]])
    texts = []
    for name in (f"own_{turn}.h5", f"run_{turn}.h5"):
        with h5py.File(name) as file:
            texts += [str(file.attrs[key]) for key in ("plan", "options")]
    with open(f"plan_{turn}.json", encoding="utf-8") as file:
        texts.append(file.read())
    return plan, predicted.tobytes(), [text.replace(f"_{turn}.", "_.") for text in texts]


def check_comma():
    """Numbers are read and written with a point, even if the process uses a comma. The process'
    locale is not changed."""
    os.makedirs(COMMA)
    if shutil.which("localedef"):
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", os.path.abspath(COMMA)], stderr=subprocess.DEVNULL, check=False)
    if not os.listdir(COMMA):
        print("no localedef, or no German locale: not tested", flush=True)
        return
    os.environ["LOCPATH"] = os.getcwd()
    wanted = use("point")
    with trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig("t", 50, 8)], 4, "-device cpu") as before:
        locale.setlocale(locale.LC_ALL, COMMA)
        assert "perf" in str(before.plan)
        assert use("comma") == wanted
        assert locale.format_string("%.1f", 0.5) == "0,5"
        ctypes.CDLL(None).strtod.restype = ctypes.c_double
        text = ctypes.create_string_buffer(8)
        ctypes.CDLL(None).snprintf(text, ctypes.c_size_t(8), b"%.1f", ctypes.c_double(0.5))
        assert text.value == b"0,5", text.value
    locale.setlocale(locale.LC_ALL, "C")


def check_descriptors():
    """A good checkpoint is not called damaged, for any number of free descriptors."""
    before, refusals = resource.getrlimit(resource.RLIMIT_NOFILE), 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    for words in ("", "-check_weights false"):
        for left in range(12):
            held = []
            try:
                while True:
                    held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                for _ in range(left):
                    os.close(held.pop())
            try:
                trshard.Predictor("model.h5", words).close()
            except trshard.Error as error:
                assert error.status == 66 and "model.h5: cannot be opened: Too many open files" in str(error), (left, words, error.status, str(error))
                refusals += 1
            for one in held:
                os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert refusals > 2, refusals


def open_absent(_):
    trshard.Predictor("absent.h5")


def check_pickle():
    error = pickle.loads(pickle.dumps(trshard.Error(66, "words")))
    assert (type(error), error.status, str(error), error.args) == (trshard.Error, 66, "words", ("words",))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        try:
            pool.map_async(open_absent, [0]).get(timeout=120)
        except trshard.Error as arrived:
            assert arrived.status == 66 and "absent.h5" in str(arrived), arrived
        else:
            raise AssertionError("no error")


def check_no_proc():
    """The import does not need /proc."""
    code = "import builtins, os; there = os.path.exists; os.path.exists = lambda path: not str(path).startswith('/proc') and there(path); " \
           "opened = builtins.open; builtins.open = lambda path, *a, **k: opened('/nowhere' if str(path).startswith('/proc') else path, *a, **k); import trshard; trshard.version()"
    subprocess.run([sys.executable, "-c", code], check=True)


def check_empty():
    """A batch without samples needs no arrays."""
    with trshard.Predictor("model.h5") as predictor:
        trshard._check(trshard._library.TrshardPredict(predictor._handle, ctypes.byref(trshard._Batch()), None, None))


def check_end():
    make = lambda: trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig("user", 20, 4)], 8, "-device cpu")
    ebc, other = make(), make()
    reader, other_reader = trshard.Reader(ebc, "data.h5"), trshard.Reader(ebc, "data.h5")
    ctypes.CDLL(None).MPI_Finalize()
    for call in (make, lambda: ebc.evaluate(np.ones((1, 1), np.int32), [1]), other_reader.close, lambda: next(reader), other.close, lambda: trshard.run("-help")):
        error = fails(call)
        assert error.status == 64 and "MPI is finalised already" in str(error), error


def main():
    with tempfile.TemporaryDirectory(prefix="trshard_surroundings_") as folder:
        os.chdir(folder)
        make_files()
        check_empty()
        check_descriptors()
        check_pickle()
        check_no_proc()
        check_comma()
        check_end()
        os.chdir("/")


if __name__ == "__main__":
    main()
