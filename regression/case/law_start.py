# SPDX-License-Identifier: BSD-3-Clause
"""A training that starts from another model's weights: what is taken, bit for bit, what keeps its initial values, and what is said of it."""
import os

import h5py
import numpy as np

from law_plans import MODEL
from trsrun import attribute, check, run, same_bits, tensors, write_dataset

OLD = {"user": 50, "item": 30, "tag": 20, "word": 40}
NEW = {"user": 71, "item": 30, "tag": 20, "city": 17}  # more users, no words, cities
PLAN = ("-table_user_sharding_types row_wise -table_item_sharding_types column_wise -table_tag_sharding_types data_parallel "
        "-tables_min_partition 4 -embedding_optimizer adam -dense_optimizer adam")
HALVES = "-table_user_data_type fp16 -table_tag_data_type bf16"


def train(binary, folder, name, ranks, options, **more):
    """Final tensors of a run, and what it printed."""
    text = run(binary, ranks, f"-batch_size {24 // ranks} -output {name}.h5 -checkpoint_final {name}.final.h5 {MODEL} {PLAN} {options}", folder, **more).text
    return tensors(os.path.join(folder, f"{name}.final.h5")), text


def make(binary, folder):
    """The old model, trained, and the initial values of the new one."""
    for name, features in (("old", OLD), ("new", NEW)):
        write_dataset(os.path.join(folder, f"{name}_data.h5"), 96, features=features)
    old, _ = train(binary, folder, "old", 2, f"-data_train old_data.h5 -table_word_sharding_types table_wise -steps 4 {HALVES}")
    initial, _ = train(binary, folder, "initial", 1, f"-data_train new_data.h5 -steps 0 {HALVES}")
    return old, initial


def expected(old, initial, tables=("user", "item", "tag"), dense=True):
    """The start that the rules give: each tensor of the new model from the old one where that has it in its shape, a table's first rows."""
    found = {}
    for name, value in initial.items():
        parts = name.split("/")
        mine = parts[1] in tables if parts[0] == "embedding" else dense
        weights = name[:name.rindex("/")].replace("dense_optimizer/", "dense/") if parts[0] == "dense_optimizer" else name
        other = old.get(name) if mine and weights in old and old[weights].shape[1:] == initial[weights].shape[1:] else None
        if other is not None and parts[0] != "embedding" and old[weights].shape != initial[weights].shape:
            other = None
        found[name] = value.copy()
        if other is not None:
            found[name][:len(other)] = other
    return found


def check_start(found, wanted, what):
    check(sorted(found) == sorted(wanted), f"{what}: other tensors {sorted(set(found) ^ set(wanted))}")
    for name, value in wanted.items():
        check(same_bits(found[name], value), f"{what}: /{name} is not what it should start as")


def test_start_changed_model(binary, folder):
    """Rows, tables and layers that are in the file are taken; the rest is as without it, under any plan; each is named, and counted in the results."""
    old, initial = make(binary, folder)
    wanted = expected(old, initial)
    check(np.any(wanted["embedding/user/exp_avg"][:50]) and not np.any(wanted["embedding/user/exp_avg"][50:]), "no states to tell apart")
    check(not same_bits(wanted["dense/dense_arch/0/weight"], initial["dense/dense_arch/0/weight"]), "no layer taken")
    options = f"-data_train new_data.h5 -steps 0 -init_from old.final.h5 -init_from_missing initial -init_from_rows grow {HALVES}"
    for ranks, more in ((1, ""), (2, "-pipeline prefetch_sparse_dist"), (4, "-topology_local_world_size 2")):
        found, text = train(binary, folder, "run", ranks, f"{options} {more}")
        check_start(found, wanted, f"{ranks} ranks")
        for words in ("/embedding/city/weight: the file has none", "/embedding/user/weight from row 50 on", "ignored    /embedding/word of the file"):
            check(words in text, f"{ranks} ranks: no '{words}' in\n{text}")
        check("the checkpoint lacks" not in text, f"{ranks} ranks: states of initial weights are told of:\n{text}")
        counts = [int(attribute(os.path.join(folder, "run.h5"), f"init_from_{name}")) for name in ("tensors_initial", "tables_grown", "ignored")]
        check(counts == [1, 1, 1], f"{ranks} ranks: counts {counts}")
    # it trains on from there, and what it writes is a whole checkpoint of the new model
    again = f"{options} -checkpoint_dir ckpt -resume"  # as a job that is requeued
    train(binary, folder, "on", 2, f"{again.replace('-steps 0', '-steps 3')} -checkpoint_every 2")
    _, text = train(binary, folder, "resumed", 4, again.replace("-steps 0", "-steps 4"))
    check("/ckpt/step-000000007.h5, after 7 updates" in text, f"not resumed:\n{text}")


def test_start_from_tables(binary, folder):
    """-init_from_tables takes tables with their states alone; in another data type they are converted as ever; a layer of another shape is as good as missing."""
    old, initial = make(binary, folder)
    found, text = train(binary, folder, "run", 2, f"-data_train new_data.h5 -steps 0 -init_from old.final.h5 -init_from_tables item,tag {HALVES}")
    check_start(found, expected(old, initial, ("item", "tag"), dense=False), "two tables")
    check("2 tables alone taken" in text and "ignored" not in text, f"not told:\n{text}")
    shared = f"-data_train new_data.h5 -steps 0 {HALVES} -tables user,item,tag"  # a table less: another first layer of the over arch
    fewer, _ = train(binary, folder, "fewer", 1, shared)
    found, text = train(binary, folder, "run", 3, f"{shared} -init_from old.final.h5 -init_from_missing initial -init_from_rows grow")
    check_start(found, expected(old, fewer), "a table less")
    check("/dense/over_arch/0/weight: the file has float32 [16, " in text and ", another shape" in text, f"not told:\n{text}")
    found, text = train(binary, folder, "run", 2, "-data_train new_data.h5 -steps 0 -init_from old.final.h5 -init_from_tables user -init_from_rows grow")
    with h5py.File(os.path.join(folder, "old.final.h5")) as h:
        halves = h["embedding/user/weight"][()]
    check(same_bits(found["embedding/user/weight"][:50], halves.astype(np.float32)), "halves are not the numbers they were")
    check("1 table of another data type converted" in text, f"not told:\n{text}")
