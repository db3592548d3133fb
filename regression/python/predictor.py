#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The predictor of the library: the numbers of -task predict for several models and table types, for any batch and on several threads, and errors.

    predictor.py TRSHARD
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
N, DENSE, FEATURES, ROWS = 300, 3, ["user", "item", "tag"], [40, 60, 25]
RANDOM = np.random.default_rng(5)
LENGTHS = RANDOM.integers(0, 4, (N, 3), dtype=np.int32)
IDS = [[RANDOM.integers(0, ROWS[f], LENGTHS[i, f]) for f in range(3)] for i in range(N)]
WEIGHTS = [[RANDOM.random(LENGTHS[i, f], dtype=np.float32) for f in range(3)] for i in range(N)]
X = RANDOM.random((N, DENSE), dtype=np.float32)
SMALL = "-tables user,item,tag -tables_embedding_dim 8 -dense_arch 16,8 -over_arch 12,1 -steps 20 -batch_size 50 -dense_learning_rate 0.1 -embedding_learning_rate 0.5"
# name: (options of the training, of the prediction, tolerance)
MODELS = {
    "dot": ("", "", 2e-6),
    "int8": ("-interaction dcn -dcn_low_rank_dim 4 -table_item_pooling mean", "-tables_data_type int8", 2e-6),
    "int4": ("-interaction cat -tables_embedding_dim 16", "-tables_data_type int4", 2e-6),
    "fp16": ("-tables_data_type fp16 -interaction deepfm", "", 2e-6),
    "weighted": ("-table_user_is_weighted -table_tag_pooling none", "", 2e-6),
    "maps": ("-tables_num_embeddings 17 -table_user_id_map hash -table_item_id_map modulo -table_tag_id_map modulo", "", 2e-6),
    "tasks": ("-tasks click,buy -tasks_arch 8,1 -task_heads mmoe -task_buy_label label", "", 2e-6),
    "average": ("-ema_decay 0.5 -over_arch_layer_norm -over_arch_dropout 0.2", "", 2e-6),
    "towers": ("-interaction two_tower -query_features user -candidate_features item,tag -query_arch 8,4 -candidate_arch 6,4 -over_arch 4,1", "", 2e-6),
}


def program(folder, words):
    done = subprocess.run([BINARY] + words.split(), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-500:]}{done.stderr}"


def ids_of(samples, keys):
    flat = lambda of, dtype: np.concatenate([np.zeros(0, dtype)] + [of[i][key] for key in keys for i in samples])
    return LENGTHS[samples][:, keys].T, flat(IDS, np.int64), flat(WEIGHTS, np.float32)


def check_model(folder, name, training, prediction, tolerance):
    program(folder, f"-data_train data.h5 {SMALL} {training} -checkpoint_final {name}.h5")
    program(folder, f"-task predict -init_from {name}.h5 -data_eval data.h5 -batch_size 100 -output {name}_run.h5 {prediction}")
    with h5py.File(os.path.join(folder, f"{name}_run.h5")) as h:
        found = h["predictions"]
        wanted = found[()] if isinstance(found, h5py.Dataset) else np.stack([found[task][()] for task in ("click", "buy")], 1)
    wanted = wanted.reshape(N, -1)
    with trshard.Predictor(os.path.join(folder, f"{name}.h5"), prediction) as predictor:
        keys = [FEATURES.index(feature) for feature in predictor.feature_names]
        everyone = np.arange(N)
        found = predictor.predict(*ids_of(everyone, keys), dense=X)
        assert found.shape == wanted.shape and np.ptp(wanted) > 1e-3, (name, found.shape, wanted.shape)
        error = np.abs(found - wanted).max()
        assert error <= tolerance, f"{name}: {error} beside -task predict"
        for size in (1, 7):  # the numbers of a sample do not depend on the others but for the last bits
            for first in range(0, N - size, 41):
                some = np.arange(first, first + size)
                part = predictor.predict(*ids_of(some, keys), dense=X[some])
                assert np.abs(part - found[some]).max() <= tolerance, f"{name}: batch of {size}"
        assert predictor.predict(*ids_of(everyone[:0], keys), dense=X[:0]).shape == (0, predictor.n_outputs)
        check_threads(predictor, keys)
    print(f"{name}: {found.shape[1]} outputs, {error:.1e} beside -task predict", flush=True)


def check_threads(predictor, keys):
    """Four threads at once, each with samples of its own: the bits of one thread."""
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
    program(folder, f"-data_train data.h5 {SMALL} -table_tag_pooling none -table_tag_sequence_pooling max -checkpoint_final max.h5")
    refused(69, ['"tag"', "sequence_pooling"], lambda: trshard.Predictor(os.path.join(folder, "max.h5")))
    with trshard.Predictor(path) as predictor, trshard.Predictor(path, "-tables_data_type int8 -bounds_check_mode warning") as other:
        one, bad = np.ones((3, 1), np.int32), np.array([1, 2, 25])
        refused(65, ['"tag"', "25", "0 to 24"], lambda: predictor.predict(one, bad, dense=X[:1]))
        refused(65, ["n_values is 4", "3"], lambda: predictor.predict(one, [1, 2, 3, 4], dense=X[:1]))
        refused(65, ['"tag"', "sample 0", "has 1 ids"], lambda: predictor.predict(one, [1, 2], dense=X[:1]))
        assert np.isfinite(predictor.predict(one, [1, -1, 3], dense=X[:1])).all()
        assert (other.predict(one, bad, dense=X[:1]) == other.predict(one, [1, 2, 0], dense=X[:1])).all()


def main():
    with tempfile.TemporaryDirectory(prefix="trshard_predictor_") as folder:
        with trsdata.DatasetWriter(os.path.join(folder, "data.h5"), FEATURES, ROWS, DENSE, weighted=True, labels=["click", "label"]) as out:
            labels = np.stack([RANDOM.integers(0, 2, N), RANDOM.integers(0, 2, N)], 1).astype(np.float32)
            flat = [np.concatenate([part for sample in of for part in sample]) for of in (IDS, WEIGHTS)]
            out.append(X, labels, LENGTHS, *flat)
        for name, settings in MODELS.items():
            check_model(folder, name, *settings)
        check_errors(folder)


main()
