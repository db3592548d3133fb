#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The library's predictor gives the numbers of -task predict for several models and table types,
for any batch and on several threads. Also mapped tables, and errors.

The predictor does not start MPI, and continues to serve if the program does so later.

    predictor.py TRSHARD
"""
import ctypes
import fcntl
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

import h5py
import numpy as np

import trshard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import trsdata

BINARY = os.path.abspath(sys.argv[1])
N, DENSE, FEATURES, ROWS = 300, 3, ["user", "item", "tag"], [40, 60, 25]
RANDOM = np.random.default_rng(5)
LENGTHS = RANDOM.integers(0, 4, (N, 3), dtype=np.int32)
IDS = [[RANDOM.integers(0, ROWS[f], LENGTHS[i, f]) for f in range(3)] for i in range(N)]
WEIGHTS = [[RANDOM.random(LENGTHS[i, f], dtype=np.float32) for f in range(3)] for i in range(N)]
X = RANDOM.random((N, DENSE), dtype=np.float32)
SMALL = "-tables user,item,tag -tables_embedding_dim 8 -dense_arch 16,8 -over_arch 12,1 -steps 20 -batch_size 50 -dense_learning_rate 0.1 -embedding_learning_rate 0.5"
SEQUENCE = "-table_tag_pooling none -table_tag_sequence_pooling"
# name: (options of the training, options of the prediction)
MODELS = {
    "dot": ("", ""),
    "int8": ("-interaction dcn -dcn_low_rank_dim 4 -table_item_pooling mean", "-tables_data_type int8"),
    "int4": ("-interaction cat -tables_embedding_dim 16", "-tables_data_type int4"),
    "fp16": ("-tables_data_type fp16 -interaction deepfm", ""),
    "weighted": ("-table_user_is_weighted -table_tag_pooling none", ""),
    "maps": ("-tables_num_embeddings 17 -table_user_id_map hash -table_item_id_map modulo -table_tag_id_map modulo", ""),
    "tasks": ("-tasks click,buy -tasks_arch 8,1 -task_heads mmoe -task_buy_label label", ""),
    "average": ("-ema_decay 0.5 -over_arch_layer_norm -over_arch_dropout 0.2", ""),
    "towers": ("-interaction two_tower -query_features user -candidate_features item,tag -query_arch 8,4 -candidate_arch 6,4 -over_arch 4,1", ""),
    "max": (f"{SEQUENCE} max -tables_output_dtype bf16", "-tables_data_type int8"),
    "concat": (f"{SEQUENCE} concat -table_tag_sequence_length 2 -table_item_is_weighted", ""),
    "gru": (f"{SEQUENCE} gru -table_user_output_dtype fp16", ""),
    "din": (f"{SEQUENCE} din -table_tag_din_target item", "-tables_data_type int8"),
    "history": ("-tables user,any -table_any_features item,tag -table_any_num_embeddings 60 -table_any_pooling none -table_any_sequence_pooling din "
                "-table_any_din_target item", ""),
    "transformer": (f"{SEQUENCE} transformer -table_user_is_weighted", ""),
    "positions": ("-table_item_position_weighted -table_item_max_feature_lengths 3 -table_tag_is_weighted", ""),
    # a row is no multiple of 16 bytes
    "unpadded": ("-tables_embedding_dim 10 -tables_num_embeddings 6000 -dense_arch 16,10 -table_item_data_type fp16 -table_tag_data_type bf16", ""),
    # on raw.h5
    "unsigned": ("-tables_num_embeddings 17 -table_user_id_map qr -table_item_id_map modulo -table_tag_id_map hash", ""),
    "quotient": ("-tables_qr_collisions 7 -table_user_id_map qr -table_tag_id_map qr -table_tag_qr_operation add", ""),
}


def program(folder, words):
    done = subprocess.run([BINARY] + words.split(), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-500:]}{done.stderr}"


def raw(ids):
    """Ids of 64 bits instead of rows."""
    return ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def ids_of(samples, keys, data="data.h5"):
    flat = lambda of, dtype: np.concatenate([np.zeros(0, dtype)] + [of[i][key] for key in keys for i in samples])
    ids = flat(IDS, np.int64)
    return LENGTHS[samples][:, keys].T, raw(ids) if data == "raw.h5" else ids, flat(WEIGHTS, np.float32)


def check_model(folder, name, training, prediction):
    data = "raw.h5" if name == "unsigned" else "data.h5"
    program(folder, f"-data_train {data} {SMALL} {training} -checkpoint_final {name}.h5")
    program(folder, f"-task predict -init_from {name}.h5 -data_eval {data} -batch_size 256 -output {name}_run.h5 {prediction}")
    with h5py.File(os.path.join(folder, f"{name}_run.h5")) as h:
        found = h["predictions"]
        wanted = found[()] if isinstance(found, h5py.Dataset) else np.stack([found[task][()] for task in ("click", "buy")], 1)
    wanted = wanted.reshape(N, -1)
    with trshard.Predictor(os.path.join(folder, f"{name}.h5"), prediction) as predictor:
        keys = [FEATURES.index(feature) for feature in predictor.feature_names]
        everyone = np.arange(N)
        found = predictor.predict(*ids_of(everyone, keys, data), dense=X)
        assert found.shape == wanted.shape and np.ptp(wanted) > 1e-3, (name, found.shape, wanted.shape)
        error = np.abs(found - wanted).max()
        assert error == 0, f"{name}: {error} beside -task predict in batches of a call's parts"
        # a sample's numbers do not depend on other samples, except for the last bits
        for size in (1, 7):
            for first in range(0, N - size, 41):
                some = np.arange(first, first + size)
                part = predictor.predict(*ids_of(some, keys, data), dense=X[some])
                assert np.abs(part - found[some]).max() <= 2e-6, f"{name}: batch of {size}"
        assert predictor.predict(*ids_of(everyone[:0], keys), dense=X[:0]).shape == (0, predictor.n_outputs)
        check_threads(predictor, keys)
    print(f"{name}: {found.shape[1]} outputs, the bits of -task predict", flush=True)


def check_threads(predictor, keys):
    """Four threads at the same time, each with its own samples, give the bits of one thread."""
    parts = [np.arange(t, N, 4) for t in range(4)]
    alone = [predictor.predict(*ids_of(part, keys), dense=X[part]) for part in parts]
    wrong = []

    def work(t):
        ids = ids_of(parts[t], keys)
        for _ in range(20):
            if predictor.predict(*ids, dense=X[parts[t]]).tobytes() != alone[t].tobytes():
                wrong.append(t)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, f"threads {wrong} got other bits"


def memory_of(name):
    """KiB of this process that are backed by files (RssFile) or private (RssAnon)."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))


def check_mapped(folder):
    """Tables whose file format fits are mapped, even if the file is replaced. Other tables, and
    files that are read in parts, are read. All give the same predictions."""
    path, mebibytes = os.path.join(folder, "large.h5"), 20
    program(folder, f"-data_train data.h5 {SMALL} -dense_arch 80 -tables_num_embeddings 60000 -tables_embedding_dim 80 -steps 2 -checkpoint_final large.h5")
    one, ids = np.ones((3, 1), np.int32), [59999, 5, 77]
    before = memory_of("RssAnon")
    with trshard.Predictor(path) as mapped, trshard.Predictor(path, "-check_weights false") as unchecked:
        wanted = mapped.predict(one, ids, dense=X[:1])
        assert memory_of("RssAnon") - before < 1024 * mebibytes, "the tables have memory of their own"
        program(folder, f"-data_train data.h5 {SMALL} -dense_arch 80 -tables_num_embeddings 60000 -tables_embedding_dim 80 -steps 1 -seed 3 -checkpoint_final large.h5")
        assert (mapped.predict(one, ids, dense=X[:1]) == wanted).all() and (unchecked.predict(one, ids, dense=X[:1]) == wanted).all()
        with trshard.Predictor(path) as other:
            assert (other.predict(one, ids, dense=X[:1]) != wanted).all()
    damaged = os.path.join(folder, "damaged.h5")
    with h5py.File(path) as h:
        place = h["embedding/item/weight"].id.get_offset()
    with open(path, "rb") as source, open(damaged, "wb") as to:
        content = bytearray(source.read())
        content[place + 400] ^= 1
        to.write(content)
    refused(65, ["damaged.h5", "embedding/item/weight", "checksum"], lambda: trshard.Predictor(damaged))
    trshard.Predictor(damaged, "-check_weights false").close()


def check_opening(folder):
    """Predictors are opened and closed while other threads predict."""
    errors, done = [], threading.Event()
    with trshard.Predictor(os.path.join(folder, "gru.h5")) as predictor:
        keys = [FEATURES.index(feature) for feature in predictor.feature_names]
        wanted = predictor.predict(*ids_of(np.arange(N), keys), dense=X).tobytes()

        def work():
            while not done.is_set():
                if predictor.predict(*ids_of(np.arange(N), keys), dense=X).tobytes() != wanted:
                    errors.append("other bits")

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for name in list(MODELS)[:6]:
                trshard.Predictor(os.path.join(folder, f"{name}.h5"), MODELS[name][1]).close()
        finally:
            done.set()
            for thread in threads:
                thread.join()
    assert not errors, errors


FORKS = """
import os, resource, signal, sys
import numpy as np
import trshard
def children(words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    predictor = trshard.Predictor(sys.argv[1], words)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before, predictor
n, predictor = children("")
assert n > 0
n, other = children("-check_weights false")
assert n == 0, n
batch = [np.ones((3, 64), np.int32), np.zeros(192), None]
wanted = predictor.predict(*batch[:2], dense=np.ones((64, 3)))
child = os.fork()
if child == 0:
    signal.alarm(60)
    same = all((p.predict(*batch[:2], dense=np.ones((64, 3))) == wanted).all() for p in (predictor, other, trshard.Predictor(sys.argv[1])))
    os._exit(0 if same else 1)
assert os.waitpid(child, 0)[1] == 0, "the child hangs, or has other predictions"
"""


def check_hold(folder):
    """While a file is being opened, a run that continues in its folder keeps the file. Afterwards
    it may remove it."""
    path, seen = os.path.join(folder, "dot.h5"), []
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with open(path, "rb") as file:
        is_held = lambda: struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_OFD_GETLK, whole))[0] != fcntl.F_UNLCK
        for _ in range(20):
            opener = threading.Thread(target=lambda: trshard.Predictor(path).close())
            opener.start()
            while opener.is_alive():
                seen.append(is_held())
        assert any(seen) and not is_held(), f"held {sum(seen)} of {len(seen)} times"


def check_forks(folder):
    """A child process from fork() can predict, too, regardless of threads. With -check_weights
    false, opening creates no child process."""
    for threads in ("1", "4"):
        done = subprocess.run([sys.executable, "-c", FORKS, os.path.join(folder, "dot.h5")], env={**os.environ, "OMP_NUM_THREADS": threads}, capture_output=True, text=True)
        assert done.returncode == 0, f"{threads} threads: {done.stderr}"


def check_dropped(folder):
    """A predictor that was not closed is freed with its last reference. If another thread drops it,
    it is freed when the next predictor is opened."""
    path = os.path.join(folder, "large.h5")
    one, ids = np.ones((3, 1), np.int32), [1, 2, 3]

    def mapped():
        with open("/proc/self/maps", encoding="utf-8") as maps:
            return sum("large.h5" in line for line in maps)

    assert mapped() == 0
    for _ in range(3):
        wanted = trshard.Predictor(path).predict(one, ids, dense=X[:1])
        assert mapped() == 0, "a dropped predictor keeps its tables"
    held = [trshard.Predictor(path)]
    assert mapped() > 0
    thread = threading.Thread(target=held.clear)  # only one thread may use the library at a time
    thread.start()
    thread.join()
    assert mapped() > 0
    with trshard.Predictor(path) as predictor:
        once = mapped()
        assert (predictor.predict(one, ids, dense=X[:1]) == wanted).all()
        with trshard.Predictor(path):
            assert mapped() == 2 * once, "what the thread dropped is still there"
    assert mapped() == 0
    predictor.close()  # closing twice is allowed
    try:
        predictor.predict(one, ids, dense=X[:1])
        raise AssertionError("a closed predictor predicts")
    except ValueError as error:
        assert "closed" in str(error)


def refused(status, words, call):
    try:
        call()
    except trshard.Error as error:
        assert error.status == status and all(word in str(error) for word in words), (error.status, str(error))
        return
    raise AssertionError(f"nothing was refused, expected {words}")


def check_errors(folder):
    path = os.path.join(folder, "dot.h5")
    refused(66, ["absent.h5"], lambda: trshard.Predictor("absent.h5"))
    refused(65, ["data.h5"], lambda: trshard.Predictor(os.path.join(folder, "data.h5")))
    refused(64, ["-no_such_option"], lambda: trshard.Predictor(path, "-no_such_option 1"))
    refused(64, ["-dense_precision"], lambda: trshard.Predictor(path, "-dense_precision bf16"))
    refused(64, ["-dense_arch"], lambda: trshard.Predictor(path, "-dense_arch 9,8"))
    bare = shutil.copy(path, os.path.join(folder, "bare.h5"))
    with h5py.File(bare, "r+", libver="latest") as h:
        del h.attrs["model"]
    refused(65, ["bare.h5", "does not hold its model", "-init_from", "-checkpoint_final"], lambda: trshard.Predictor(bare))
    with trshard.Predictor(os.path.join(folder, "positions.h5")) as predictor:
        lengths = np.array([[1], [4], [1]], np.int32)
        refused(65, ['"item"', "sample 0", "4 ids", "at most 3"], lambda: predictor.predict(lengths, np.ones(6), np.ones(6, np.float32), dense=X[:1]))
    with trshard.Predictor(path) as predictor, trshard.Predictor(path, "-tables_data_type int8 -bounds_check_mode warning") as other:
        one, bad = np.ones((3, 1), np.int32), np.array([1, 2, 25])
        refused(65, ['"tag"', "25", "0 to 24"], lambda: predictor.predict(one, bad, dense=X[:1]))
        refused(65, ["n_values is 4", "3"], lambda: predictor.predict(one, [1, 2, 3, 4], dense=X[:1]))
        refused(65, ['"tag"', "sample 0", "has 1 ids"], lambda: predictor.predict(one, [1, 2], dense=X[:1]))
        assert np.isfinite(predictor.predict(one, [1, -1, 3], dense=X[:1])).all()
        out = np.zeros((1, predictor.n_outputs), np.float32)
        out.flags.writeable = False
        for words, more in (("dense is missing", {}), ("dense has shape", {"dense": X[:1].T}), ("writeable", {"dense": X[:1], "out": out})):
            try:
                predictor.predict(one, [1, 2, 3], **more)
            except ValueError as error:
                assert words in str(error), error
            else:
                raise AssertionError(f"no error, expected {words}")
        assert (other.predict(one, bad, dense=X[:1]) == other.predict(one, [1, 2, 0], dense=X[:1])).all()
        with trshard.Predictor(path, "-bounds_check_mode ignore") as ignoring:
            assert (ignoring.predict(one, bad, dense=X[:1]) == predictor.predict(one, [1, 2, 0], dense=X[:1])).all()


def check_dead_handles(folder):
    """A copied handle of a closed predictor, and a file that is truncated below its mapped tables,
    give error codes."""
    library, shape = trshard._library, [None] * 4
    one, ids = np.ones((3, 1), np.int32), [1, 2, 3]
    for name, mapped in (("large.h5", True), ("dot.h5", False)):
        path = shutil.copy(os.path.join(folder, name), os.path.join(folder, "cut.h5"))
        predictor = trshard.Predictor(path, "" if mapped else "-tables_data_type int8")
        wanted = predictor.predict(one, ids, dense=X[:1])
        for number in (np.nan, np.inf, -np.inf):
            dense = X[:2].copy()
            dense[1, 2] = number
            refused(65, ["dense feature 2 of sample 1", "finite"], lambda: predictor.predict(np.ones((3, 2), np.int32), [1] * 6, dense=dense))
        size = os.path.getsize(path)
        os.truncate(path, 5000)
        if mapped:
            for _ in range(2):
                refused(74, ["shorter", "5000", str(size)], lambda: predictor.predict(one, ids, dense=X[:1]))
        else:  # tables in memory are not affected
            assert (predictor.predict(one, ids, dense=X[:1]) == wanted).all()
        copies = [ctypes.c_void_p(predictor._handle.value) for _ in range(3)]
        predictor.close()
        other = trshard.Predictor(os.path.join(folder, "dot.h5"))
        batch, keep = trshard._batch(3, one, ids, None)
        assert library.TrshardPredict(copies[0], ctypes.byref(batch), X.ctypes.data_as(ctypes.c_void_p), X.ctypes.data_as(ctypes.c_void_p)) == 64
        assert library.TrshardPredictorShape(copies[1], *shape) == 64
        for copy in copies:
            assert library.TrshardPredictorClose(ctypes.byref(copy)) == 64 and not copy.value
        assert b"not alive" in library.TrshardErrorMessage()
        other.close()
        del keep
    with trshard.Predictor(os.path.join(folder, "weighted.h5")) as predictor:
        weights = np.array([1, np.nan, 1], np.float32)
        refused(65, ["ids.weights[1]", "finite"], lambda: predictor.predict(one, ids, weights, dense=X[:1]))


def traces():
    """The remains of a started MPI in this process: its flags, threads, open files and shared memory,
    and files of its session."""
    flag, found = ctypes.c_int(), []
    for question in ("MPI_Initialized", "MPI_Finalized"):
        assert getattr(ctypes.CDLL(None), question)(ctypes.byref(flag)) == 0
        found.append(flag.value)
    # other processes have files in /dev/shm, too
    with open("/proc/self/maps", encoding="utf-8") as maps:
        shared = sorted({line.split()[5] for line in maps if "/dev/shm/" in line})
    # Open MPI 5 leaves empty folders of each program
    files = sorted(name for _, _, names in os.walk(os.environ["TMPDIR"]) for name in names)
    return found, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), files, shared


def wait_for_traces(wanted):
    """A thread that was joined may still be visible for a moment."""
    end = time.monotonic() + 60
    while (found := traces()) != wanted:
        assert time.monotonic() < end, (found, wanted)
        time.sleep(0.01)


def check_beside_mpi(folder):
    """While a predictor is open, the program starts MPI, trains tables and ends MPI."""
    path, ids = os.path.join(folder, "large.h5"), (np.ones((3, 1), np.int32), [7, 8, 9])
    predictor = trshard.Predictor(path)
    wanted = predictor.predict(*ids, dense=X[:1])
    same = lambda: (predictor.predict(*ids, dense=X[:1]) == wanted).all()
    with trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig("t", 50, 8)], 4, "-embedding_optimizer sgd -embedding_learning_rate 1") as ebc:
        assert traces()[0] == [1, 0] and same()
        for _ in range(3):
            pooled = ebc.forward(np.ones((1, 4), np.int32), [1, 2, 3, 4])
            assert same()
            ebc.backward(np.ones_like(pooled))
        ebc.save(os.path.join(folder, "own.h5"))
        ebc.load(os.path.join(folder, "own.h5"))
        refused(66, ["absent.h5"], lambda: trshard.Predictor("absent.h5"))
        with trshard.Predictor(path) as other:
            assert (other.predict(*ids, dense=X[:1]) == wanted).all()
    ctypes.CDLL(None).MPI_Finalize()
    assert traces()[0] == [1, 1] and same()
    with trshard.Predictor(path) as other:
        assert (other.predict(*ids, dense=X[:1]) == wanted).all() and same()
    refused(65, ["n_values is 4", "3"], lambda: predictor.predict(ids[0], [1, 2, 3, 4], dense=X[:1]))
    predictor.close()


def main():
    with tempfile.TemporaryDirectory(prefix="trshard_predictor_") as folder:
        with trsdata.DatasetWriter(os.path.join(folder, "data.h5"), FEATURES, ROWS, DENSE, weighted=True, labels=["click", "label"]) as out:
            labels = np.stack([RANDOM.integers(0, 2, N), RANDOM.integers(0, 2, N)], 1).astype(np.float32)
            flat = [np.concatenate([part for sample in of for part in sample]) for of in (IDS, WEIGHTS)]
            out.append(X, labels, LENGTHS, *flat)
        shutil.copy(os.path.join(folder, "data.h5"), os.path.join(folder, "raw.h5"))
        with h5py.File(os.path.join(folder, "raw.h5"), "r+") as h:
            del h["sparse/values"]
            h["sparse/values"] = raw(flat[0])
            h["sparse"].attrs["num_embeddings"] = np.zeros(len(ROWS), np.int64)
        os.environ["TMPDIR"] = os.path.join(folder, "tmp")
        os.mkdir(os.environ["TMPDIR"])
        before = traces()
        assert before[0] == [0, 0]
        for name, settings in MODELS.items():
            check_model(folder, name, *settings)
        check_errors(folder)
        check_opening(folder)
        check_mapped(folder)
        check_hold(folder)
        check_dead_handles(folder)
        check_forks(folder)
        check_dropped(folder)
        wait_for_traces(before)
        check_beside_mpi(folder)


main()
