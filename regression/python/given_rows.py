#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The library's predictor for tables whose rows are given to ids (id_map zch and dynamic): it gives the bits
of -task predict for known and unknown ids, on one thread and on several.

    given_rows.py TRSHARD
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import h5py
import numpy as np

import trshard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import trsdata

BINARY = os.path.abspath(sys.argv[1])
N, DENSE, FEATURES, LEAST, MOST = 300, 3, ["user", "item", "tag"], np.iinfo(np.int64).min, np.iinfo(np.int64).max
RANDOM = np.random.default_rng(11)
POOL = np.concatenate([RANDOM.integers(LEAST, MOST, 40), np.arange(-5, 20), [LEAST, MOST, MOST - 1]])
LENGTHS = RANDOM.integers(0, 4, (N, 3), dtype=np.int32)
WEIGHTS = [[RANDOM.random(LENGTHS[i, f], dtype=np.float32) for f in range(3)] for i in range(N)]
TRAINED = [[RANDOM.choice(POOL, LENGTHS[i, f]) for f in range(3)] for i in range(N)]
# half of these ids are unknown
SERVED = [[np.where(RANDOM.random(LENGTHS[i, f]) < 0.5, TRAINED[i][f], RANDOM.integers(LEAST, MOST, LENGTHS[i, f])) for f in range(3)] for i in range(N)]
X = RANDOM.random((N, DENSE), dtype=np.float32)
SMALL = ("-data_train train.h5 -tables user,item,tag -tables_embedding_dim 16 -dense_arch 8,16 -over_arch 12,1 -steps 20 -batch_size 50 "
         "-dense_learning_rate 0.1 -embedding_learning_rate 0.5")
ZCH = "-tables_id_map zch -tables_num_embeddings 30 -tables_zch_interval 2 -tables_zch_policy distance_lfu"
DYNAMIC = "-tables_id_map dynamic -tables_dynamic_cap 40"
SEQUENCE = "-table_tag_pooling none -table_tag_sequence_pooling"
# name: (options of the training, options of the predictions)
MODELS = {
    "zch": (f"{ZCH} -table_item_zch_buckets 3 -table_user_unknown_row zero -table_tag_unknown_row initial", ("", "-tables_data_type int8", "-tables_data_type int4")),
    "dynamic": (f"{DYNAMIC} -table_item_dynamic_buckets 4 -table_user_unknown_row zero -table_user_dynamic_ttl 3 -table_tag_unknown_row initial",
                ("", "-tables_data_type int8", "-tables_data_type int4")),
    "both": (f"{ZCH} -table_item_id_map dynamic -table_item_dynamic_cap 4000 -table_tag_id_map hash -table_user_is_weighted -table_item_pooling mean", ("",)),
    "sequences": (f"{DYNAMIC} -tables_data_type fp16 -table_user_id_map zch -table_user_num_embeddings 60 {SEQUENCE} max", ("", "-tables_data_type int8")),
    "layers": (f"{ZCH} -table_item_id_map dynamic {SEQUENCE} din -table_tag_din_target item", ("",)),
    "positions": (f"{DYNAMIC} -table_item_position_weighted -table_item_max_feature_lengths 3 -table_tag_pooling none", ("",)),
    "admitted": (f"{DYNAMIC} -tables_dynamic_admit_after 3 -tables_dynamic_candidates 8 -tables_dynamic_policy lfu", ("",)),
}


def program(folder, words):
    done = subprocess.run([BINARY] + words.split(), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-500:]}{done.stderr}"


def batch_of(ids, samples):
    flat = lambda of, dtype: np.concatenate([np.zeros(0, dtype)] + [of[i][f] for f in range(3) for i in samples])
    return LENGTHS[samples].T, flat(ids, np.int64), flat(WEIGHTS, np.float32)


def write(path, ids):
    with trsdata.DatasetWriter(path, FEATURES, [0, 0, 0], DENSE, weighted=True, id_dtype=np.int64) as out:
        flat = [np.concatenate([part for sample in of for part in sample]) for of in (ids, WEIGHTS)]
        out.append(X, RANDOM.integers(0, 2, N).astype(np.float32), LENGTHS, *flat)


def predictions_of(folder, checkpoint, words):
    """-task predict in batches of a call's parts: [N, 1]."""
    program(folder, f"-task predict -init_from {checkpoint} -data_eval serve.h5 -batch_size 256 -output run.h5 -existing_outputs replace {words}")
    with h5py.File(os.path.join(folder, "run.h5")) as h:
        return h["predictions"][()].reshape(N, 1)


def check_threads(predictor, wanted):
    """Threads that share the directories find the same rows, in batches of any size."""
    wrong, starts = [], threading.Barrier(4)

    def work(t):
        starts.wait()
        for size in (37, 150, 8, N, 90) * 4:
            some = (np.arange(size) + 29 * t) % N
            found = predictor.predict(*batch_of(SERVED, some), dense=X[some])
            if np.abs(found - wanted[some]).max() > 2e-6:
                wrong.append((t, size))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, f"(thread, batch) {wrong} got other numbers"


def check_predictor(folder, checkpoint, words):
    wanted = predictions_of(folder, checkpoint, words)
    with trshard.Predictor(os.path.join(folder, checkpoint), words) as predictor, \
            trshard.Predictor(os.path.join(folder, checkpoint), f"{words} -check_weights false") as unchecked:
        assert predictor.feature_names == FEATURES
        for _ in range(2):  # predictions leave the directories as they are
            found = predictor.predict(*batch_of(SERVED, np.arange(N)), dense=X)
            assert found.tobytes() == wanted.tobytes(), f"{checkpoint} {words}: {np.abs(found - wanted).max()} beside -task predict"
        assert unchecked.predict(*batch_of(SERVED, np.arange(N)), dense=X).tobytes() == wanted.tobytes()
        check_threads(predictor, wanted)
        # ids matter: those of the training give other numbers than unknown ones
        other = predictor.predict(*batch_of(TRAINED, np.arange(N)), dense=X)
        assert np.abs(other - wanted).max() > 1e-3, f"{checkpoint} {words}: unknown ids have rows of their own"
    return wanted


def is_mapped(path):
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum(path in line for line in maps)


def check_mapped(folder):
    """Tables of zch are mapped from the file. Those of dynamic are read, because their rows have other places in it."""
    path = os.path.join(folder, "large.h5")
    program(folder, f"{SMALL} -tables_num_embeddings 6000 -tables_dynamic_cap 6000 -table_user_id_map zch -table_item_id_map dynamic -table_tag_id_map zch -checkpoint_final large.h5")
    check_predictor(folder, "large.h5", "")
    for words, tables in (("", 2), ("-check_weights false", 2), ("-tables_data_type int8", 0)):
        with trshard.Predictor(path, words):
            assert is_mapped(path) == tables, f"{words}: {is_mapped(path)} tables are mapped, expected {tables}"
        assert is_mapped(path) == 0


def check_refused(folder):
    """A predictor has the id_map of its file."""
    for name, words in (("zch.h5", "-tables_id_map dynamic"), ("dynamic.h5", "-table_item_id_map hash"), ("both.h5", "-table_item_id_map zch")):
        try:
            trshard.Predictor(os.path.join(folder, name), words)
        except trshard.Error as error:
            assert error.status == 64 and name in str(error) and words.split()[0] in str(error), error
        else:
            raise AssertionError(f"{name} {words} was opened")


def main():
    with tempfile.TemporaryDirectory(prefix="trshard_given_rows_") as folder:
        write(os.path.join(folder, "train.h5"), TRAINED)
        write(os.path.join(folder, "serve.h5"), SERVED)
        for name, (training, predictions) in MODELS.items():
            program(folder, f"{SMALL} {training} -checkpoint_final {name}.h5")
            for words in predictions:
                wanted = check_predictor(folder, f"{name}.h5", words)
                program(folder, f"-task predict -init_from {name}.h5 -data_eval serve.h5 -batch_size 256 -quant_checkpoint held.h5 -output run.h5 -existing_outputs replace {words}")
                assert check_predictor(folder, "held.h5", "").tobytes() == wanted.tobytes(), f"{name} {words}: other predictions from -quant_checkpoint"
                print(f"{name} {words}: the bits of -task predict", flush=True)
        check_mapped(folder)
        check_refused(folder)


main()
