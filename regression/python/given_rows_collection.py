#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A collection whose tables give their rows to ids (id_map zch and dynamic), trained with the batches of a
run of the program: the same directories, weights and states. Files continue a training on another plan.

    mpirun -n RANKS given_rows_collection.py FOLDER
"""
import os
import pathlib
import shutil
import sys

import h5py
import numpy as np

import trshard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import trsdata

FOLDER = os.path.abspath(sys.argv[1])
RANK, SIZE = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)), int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
N, GLOBAL, DIM, STEPS, LEAST, MOST = 210, 42, 4, 13, np.iinfo(np.int64).min, np.iinfo(np.int64).max
DATA = f"{FOLDER}/data.h5"
# table: (features, rows)
TABLES = {"users": (["user"], 24), "things": (["item", "tag"], 30), "plain": (["plain"], 20)}
MAPS = {"users": "zch", "things": "dynamic", "plain": "hash"}
FEATURES = [feature for features, _ in TABLES.values() for feature in features]
IDS = ("-device cpu -reproducible -table_users_id_map zch -table_users_zch_interval 2 -table_users_zch_policy distance_lfu -table_users_zch_buckets 3 "
       "-table_things_id_map dynamic -table_things_dynamic_ttl 4 -table_things_dynamic_buckets 3 -table_things_dynamic_admit_after 2 "
       "-table_things_dynamic_candidates 6 -table_things_unknown_row zero -table_plain_id_map hash -embedding_learning_rate 0.3 ")
PLANS = ("-tables_sharding_types row_wise", "-tables_sharding_types column_wise -tables_min_partition 2", "-tables_sharding_types table_wise")


def make_data():
    """Ids of 64 bits that drift over time, so that rows change hands."""
    random = np.random.default_rng(9)
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    lengths = random.integers(0, 4, (N, len(FEATURES)), dtype=np.int32)
    sample = np.repeat(np.arange(N), lengths.sum(1))
    ids = (random.zipf(1.4, lengths.sum()) % 1000 + sample // 20) * 0x9E3779B97F4A7C15 % 2**64
    ids = np.where(random.random(len(ids)) < 0.05, random.choice([-1, LEAST, MOST, MOST - 1], len(ids)), ids.astype(np.uint64).astype(np.int64))
    with trsdata.DatasetWriter(DATA, FEATURES, [0] * len(FEATURES), 3, id_dtype=np.int64) as data:
        data.append(random.random((N, 3), dtype=np.float32), random.integers(0, 2, N).astype(np.float32), lengths, ids)


def tensors(path):
    """The file's tables: weights, states and directories."""
    found = {}
    with h5py.File(path) as file:
        file["embedding"].visititems(lambda name, of: found.update({name: of[()]}) if isinstance(of, h5py.Dataset) else None)
    return found


def program(optimizer):
    """Train with the program, whose dense layers stay as they are: ({name: dense layer}, {name: tensor of a table})."""
    tables = " ".join(f"-table_{name}_features {','.join(features)} -table_{name}_num_embeddings {rows}" for name, (features, rows) in TABLES.items())
    trshard.run(f"-data_train {DATA} -tables {','.join(TABLES)} {tables} -tables_embedding_dim {DIM} {IDS} -embedding_optimizer {optimizer} -batch_size {GLOBAL // SIZE} "
                f"-steps {STEPS} -dense_arch 5 -over_arch 6,1 -interaction cat -dense_optimizer sgd -dense_learning_rate 0 {PLANS[0]} "
                f"-checkpoint_final {FOLDER}/{optimizer}.h5 -existing_outputs replace")
    with h5py.File(f"{FOLDER}/{optimizer}.h5") as file:
        layers = {name: [file[f"dense/{name}/{part}"][()].astype(np.float64) for part in ("weight", "bias")] for name in ("dense_arch/0", "over_arch/0", "over_arch/1")}
    return layers, tensors(f"{FOLDER}/{optimizer}.h5")


def gradient_of(layers, samples, pooled):
    """The gradient of the program's loss, the mean binary cross entropy over all ranks' samples, for the pooled rows."""
    linear = lambda name, x: x @ layers[name][0].T + layers[name][1]
    first = linear("over_arch/0", np.concatenate([np.maximum(linear("dense_arch/0", samples.dense), 0), pooled], axis=1))
    logits = linear("over_arch/1", np.maximum(first, 0))
    slope = (1 / (1 + np.exp(-logits)) - samples.labels.reshape(-1, 1)) / samples.global_batch
    return np.ascontiguousarray((slope @ layers["over_arch/1"][0] * (first > 0) @ layers["over_arch/0"][0])[:, 5:], np.float32)


def collection(words):
    tables = [trshard.EmbeddingBagConfig(name, rows, DIM, features) for name, (features, rows) in TABLES.items()]
    return trshard.EmbeddingBagCollection(tables, GLOBAL // SIZE, IDS + words)


def train(ebc, layers, first, last, ahead):
    """Steps first .. last - 1 of the data. ahead: a step's ids are sent during the step before it."""
    with trshard.Reader(ebc, DATA, f"-epochs {STEPS}", step=first) as reader:
        copy = lambda samples: samples._replace(ids=tuple(None if x is None else x.copy() for x in samples.ids), dense=samples.dense.copy(), labels=samples.labels.copy())
        now = copy(next(reader)) if ahead else None
        if ahead:
            ebc.input_dist(*now.ids)
        for step in range(first, last):
            if ahead:
                after = copy(next(reader)) if step + 1 < last else None
                if after:
                    ebc.input_dist(*after.ids)
                pooled = ebc.forward()
            else:
                now = next(reader)
                pooled = ebc.forward(*now.ids)
            assert now.step == step
            if step % 3 == 0:  # evaluations change nothing
                given = ebc.evaluate(*now.ids)
                assert ahead or (given == pooled).all(), "an evaluation has other rows than the forward of the same ids"
            ebc.backward(gradient_of(layers, now, pooled))
            now = after if ahead else None


def check_same(found, wanted, what):
    """Directories and rows of unknown ids are equal. Numbers that were trained may differ by rounding."""
    assert set(found) == set(wanted), (what, sorted(set(found) ^ set(wanted)))
    for name, values in wanted.items():
        if "zch/" in name or "dynamic/" in name:
            np.testing.assert_array_equal(found[name], values, f"{what}: {name}")
        else:
            np.testing.assert_allclose(found[name], values, 2e-4, 1e-6, err_msg=f"{what}: {name}")


def check(optimizer):
    layers, wanted = program(optimizer)
    assert any("dynamic/candidates" in name and len(wanted[name]) > 1 for name in wanted) and wanted["users/zch/times"].max() > 1
    whole = {}
    for plan in PLANS:
        words, path, half = f"-embedding_optimizer {optimizer} {plan}", f"{FOLDER}/{optimizer}_whole.h5", f"{FOLDER}/{optimizer}_half.h5"
        with collection(words) as ebc:
            train(ebc, layers, 0, 6, ahead=plan == PLANS[0])
            ebc.save(half)
            train(ebc, layers, 6, STEPS, ahead=plan != PLANS[0])
            ebc.save(path)
        found = tensors(path)
        if RANK == 0:
            check_same(found, wanted, f"{optimizer}, {plan}")
        with collection(f"-embedding_optimizer {optimizer} {PLANS[PLANS.index(plan) - 1]} -seed 3") as ebc:
            ebc.load(half)
            before = ebc.evaluate(np.ones((len(FEATURES), 3), np.int32), np.repeat([-1, LEAST, 12345], len(FEATURES)))
            ebc.load(half)  # once more: nothing of the first time is left
            assert (ebc.evaluate(np.ones((len(FEATURES), 3), np.int32), np.repeat([-1, LEAST, 12345], len(FEATURES))) == before).all()
        with collection(f"-embedding_optimizer {optimizer} {PLANS[PLANS.index(plan) - 1]}") as ebc:
            ebc.load(half)
            train(ebc, layers, 6, STEPS, ahead=True)
            ebc.save(path)
        again = tensors(path)
        for name, values in found.items():
            if "momentum1_columns" not in name:  # of column_wise alone
                assert again[name].tobytes() == values.tobytes(), f"{optimizer}, {plan}: other {name} after a load"
            assert whole.setdefault(name, values.tobytes()) == values.tobytes(), f"{optimizer}, {plan}: {name} depends on the plan"


if RANK == 0:
    make_data()


def check_refused():
    """A collection refuses rows of another id_map on all ranks, and the message says what to give."""
    path = f"{FOLDER}/sgd_half.h5"
    for name, there in MAPS.items():
        for here in ("none", "modulo", "zch", "dynamic"):
            if here == there or (there == "hash" and here in ("none", "modulo")):
                continue
            tensor = {"zch": "zch/raw", "dynamic": "dynamic/ids"}[here if there == "hash" else there]
            names = [path, f"/embedding/{name}/{tensor}", f"id_map {here} here", f"-table_{name}_id_map"] + ([] if there == "hash" else [f"give -table_{name}_id_map {there}"])
            tables = [trshard.EmbeddingBagConfig(table, rows, DIM, features) for table, (features, rows) in TABLES.items()]
            maps = " ".join(f"-table_{table}_id_map {here if table == name else word}" for table, word in MAPS.items())
            with trshard.EmbeddingBagCollection(tables, GLOBAL // SIZE, f"-device cpu -embedding_optimizer sgd {maps} -tables_sharding_types table_wise") as ebc:
                try:
                    ebc.load(path)
                except trshard.Error as error:
                    assert error.status == 65 and all(word in str(error) for word in names), (names, error)
                else:
                    raise AssertionError(f"{name}: {there} was loaded as {here}")


barrier = trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig("t", 5, 4)], 1, "-device cpu")  # ranks wait for the data
barrier.close()
for optimizer in ("sgd", "adagrad", "adam"):
    check(optimizer)
check_refused()
print(f"rank {RANK}: collections have the directories of the program")
