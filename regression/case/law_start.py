# SPDX-License-Identifier: BSD-3-Clause
"""A training that starts from another model's weights: tensors that are taken, bit for bit, tensors
that keep their initial values, and the messages."""
import os
import shutil

import h5py
import numpy as np

from law_plans import MODEL
from trsrun import attribute, check, run, same_bits, tensors, write_dataset

OLD = {"user": 50, "item": 30, "tag": 20, "word": 40}
NEW = {"user": 71, "item": 30, "tag": 20, "city": 17}  # more users; no words; cities are new
PLAN = ("-table_user_sharding_types row_wise -table_item_sharding_types column_wise -table_tag_sharding_types data_parallel "
        "-tables_min_partition 4 -embedding_optimizer adam -dense_optimizer adam")
HALVES = "-table_user_data_type fp16 -table_tag_data_type bf16"


def train(binary, folder, name, ranks, options, **more):
    """Final tensors of a run, and its output."""
    text = run(binary, ranks, f"-batch_size {24 // ranks} -output {name}.h5 -checkpoint_final {name}.final.h5 {MODEL} {PLAN} {options}", folder, **more).text
    return tensors(os.path.join(folder, f"{name}.final.h5")), text


def make(binary, folder):
    """The old model, trained, and the initial values of the new model."""
    for name, features in (("old", OLD), ("new", NEW)):
        write_dataset(os.path.join(folder, f"{name}_data.h5"), 96, features=features)
    old, _ = train(binary, folder, "old", 2, f"-data_train old_data.h5 -table_word_sharding_types table_wise -steps 4 {HALVES}")
    initial, _ = train(binary, folder, "initial", 1, f"-data_train new_data.h5 -steps 0 {HALVES}")
    return old, initial


def expected(old, initial, tables=("user", "item", "tag"), dense=True):
    """The start by the rules: each tensor of the new model is the old model's if it has the same
    shape. A table's first rows are the old rows."""
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
    """Rows, tables and layers in the file are taken, and the rest has its usual initial values,
    under any plan. Each is named, and counted in the results."""
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
    # the training continues, and its checkpoint is a complete one of the new model
    again = f"{options} -checkpoint_dir ckpt -resume"  # like a job that is requeued
    train(binary, folder, "on", 2, f"{again.replace('-steps 0', '-steps 3')} -checkpoint_every 2")
    _, text = train(binary, folder, "resumed", 4, again.replace("-steps 0", "-steps 4"))
    check("/ckpt/step-000000007.h5, after 7 updates" in text, f"not resumed:\n{text}")


def test_start_from_tables(binary, folder):
    """-init_from_tables takes only tables with their states. Another data type is converted as
    usual. A layer of another shape counts as missing."""
    old, initial = make(binary, folder)
    found, text = train(binary, folder, "run", 2, f"-data_train new_data.h5 -steps 0 -init_from old.final.h5 -init_from_tables item,tag {HALVES}")
    check_start(found, expected(old, initial, ("item", "tag"), dense=False), "two tables")
    check("2 tables alone taken" in text and "ignored" not in text, f"not told:\n{text}")
    # one table less, hence another first layer of the over arch
    shared = f"-data_train new_data.h5 -steps 0 {HALVES} -tables user,item,tag"
    fewer, _ = train(binary, folder, "fewer", 1, shared)
    found, text = train(binary, folder, "run", 3, f"{shared} -init_from old.final.h5 -init_from_missing initial -init_from_rows grow")
    check_start(found, expected(old, fewer), "a table less")
    check("/dense/over_arch/0/weight: the file has float32 [16, " in text and ", another shape" in text, f"not told:\n{text}")
    found, text = train(binary, folder, "run", 2, "-data_train new_data.h5 -steps 0 -init_from old.final.h5 -init_from_tables user -init_from_rows grow")
    with h5py.File(os.path.join(folder, "old.final.h5")) as h:
        halves = h["embedding/user/weight"][()]
    check(same_bits(found["embedding/user/weight"][:50], halves.astype(np.float32)), "halves are not the numbers they were")
    check("1 table of another data type converted" in text, f"not told:\n{text}")


def turned(path, other):
    """Copy a dataset with its features in the reverse order."""
    shutil.copyfile(path, other)
    with h5py.File(other, "r+") as h:
        sparse = h["sparse"]
        lengths, values, n = sparse["lengths"][()], sparse["values"][()], len(sparse.attrs["features"])
        bags = np.split(values, np.cumsum(lengths.reshape(-1))[:-1])
        sparse["values"][...] = np.concatenate([bag for sample in range(len(lengths)) for bag in bags[sample * n:(sample + 1) * n][::-1]])
        sparse["lengths"][...] = lengths[:, ::-1]
        for name in ("features", "num_embeddings"):
            sparse.attrs[name] = sparse.attrs[name][::-1]


def test_start_in_another_order(binary, folder):
    """If data lists its features in another order, a resumed run keeps the model's order. A run
    that starts from weights is told to specify the order."""
    data = os.path.join(folder, "old_data.h5")
    write_dataset(data, 96, features=OLD)
    turned(data, os.path.join(folder, "turned.h5"))
    plan = "-table_word_sharding_types table_wise -steps 4"
    train(binary, folder, "old", 2, f"-data_train old_data.h5 {plan} -checkpoint_dir ckpt")
    shutil.copytree(os.path.join(folder, "ckpt"), os.path.join(folder, "other"))
    more = plan.replace("-steps 4", "-steps 7")
    wanted, _ = train(binary, folder, "wanted", 1, f"-data_train old_data.h5 {more} -checkpoint_dir ckpt -resume")
    found, text = train(binary, folder, "found", 1, f"-data_train turned.h5 {more} -checkpoint_dir other -resume")
    check_start(found, wanted, "resumed")
    check("resume     -tables" not in text, f"the model's own order is told of:\n{text}")
    for ranks in (1, 3):
        start = f"-batch_size {24 // ranks} -data_train turned.h5 -init_from old.final.h5 {MODEL} {PLAN} {more}"
        message = run(binary, ranks, start, folder, status=64).text
        check("-tables (default)" in message and "in that order: user,item,tag,word" in message, message)
    wanted, _ = train(binary, folder, "wanted", 1, f"-data_train old_data.h5 -init_from old.final.h5 {more}")
    found, text = train(binary, folder, "found", 1, f"-data_train turned.h5 -init_from old.final.h5 -tables user,item,tag,word {more}")
    check_start(found, wanted, "from weights")
    check("weights    -tables" not in text, f"told of an order that is the model's:\n{text}")
    _, text = train(binary, folder, "found", 2, f"-data_train old_data.h5 -init_from old.final.h5 -tables word,tag,item,user {more}")
    check("weights    -tables was user,item,tag,word, is word,tag,item,user" in text, f"another order that was asked for is not told of:\n{text}")


def test_start_tells_of_model(binary, folder):
    """Weights that a model with other options takes: each differing option is reported. Tables with
    mapped ids cannot grow. Averages are reported as such."""
    write_dataset(os.path.join(folder, "old_data.h5"), 96, features=OLD)
    shared = "-data_train old_data.h5 -table_word_sharding_types table_wise"
    train(binary, folder, "old", 2, f"{shared} -steps 4 -checkpoint_every 4 -checkpoint_dir ckpt")
    told = lambda text: sorted(line[11:] for line in text.splitlines() if line.startswith("weights ") and " was " in line)
    _, text = train(binary, folder, "run", 2, f"{shared} -steps 1 -init_from old.final.h5")
    check(not told(text), f"told without a change: {told(text)}")
    _, text = train(binary, folder, "run", 1, f"{shared} -steps 1 -init_from old.final.h5 -over_arch_activation sigmoid -table_tag_id_map hash -table_tag_num_embeddings 20 -ema_decay 0.9")
    check(told(text) == ["-over_arch_activation was relu, is sigmoid", "-table_tag_id_map was none, is hash"], f"told: {told(text)}")
    check("the averages of -ema_decay begin as the weights" in text and "the checkpoint lacks" not in text and "warning" not in text, text)
    train(binary, folder, "mapped", 2, f"{shared} -steps 1 -table_tag_id_map modulo -table_tag_num_embeddings 20")
    _, text = train(binary, folder, "pooled", 1, f"{shared} -steps 1 -table_tag_pooling none -table_tag_sequence_pooling max")
    _, text = train(binary, folder, "run", 1, f"{shared} -steps 1 -table_tag_pooling none -init_from pooled.final.h5")
    check(told(text) == ["-table_tag_sequence_pooling was max, is mean"], f"told: {told(text)}")
    grown = f"-batch_size 24 {MODEL} {PLAN} {shared} -steps 1 -init_from mapped.final.h5 -table_tag_id_map modulo -table_tag_num_embeddings 30 -init_from_rows grow"
    message = run(binary, 1, grown, folder, status=64).text
    check("-init_from_rows" in message and 'table "tag" maps its ids to its number of rows' in message, message)
    resume = f"-batch_size 12 {MODEL} {PLAN} {shared} -steps 6 -resume -checkpoint_dir ckpt"
    for changed, words in (("-ema_decay 0.9", "-ema_decay was not given"), ("-over_arch_activation sigmoid", "has -over_arch_activation relu; leave the option out"),
                           ("-table_tag_id_map hash -table_tag_num_embeddings 20", "has -tables_id_map none; leave the option out")):
        message = run(binary, 2, f"{resume} {changed}", folder, status=64).text
        check(words in message, f"{changed}: no '{words}' in\n{message}")


def test_start_of_new_states(binary, folder):
    """If only weights are taken, adam's states start anew. They count their updates from there,
    also in a resumed run."""
    write_dataset(os.path.join(folder, "old_data.h5"), 96, features=OLD)
    shared = "-data_train old_data.h5 -table_word_sharding_types table_wise"
    states = f"{shared} -embedding_optimizer sgd -dense_optimizer sgd"
    plan = PLAN.replace("-embedding_optimizer adam -dense_optimizer adam", "")
    words = lambda ranks, options: f"-batch_size {24 // ranks} {MODEL} {plan} {options}"
    run(binary, 2, words(2, f"{states} -steps 7 -checkpoint_final old.h5"), folder)
    shutil.copyfile(os.path.join(folder, "old.h5"), os.path.join(folder, "new.h5"))
    with h5py.File(os.path.join(folder, "new.h5"), "r+") as h:
        h.attrs["step"] = np.int64(0)
    for kinds in ("-embedding_optimizer adam -dense_optimizer adam", "-embedding_optimizer lamb -dense_optimizer sgd", "-embedding_optimizer sgd -dense_optimizer adamw"):
        adam = f"{shared} {kinds} -embedding_learning_rate 0.1 -dense_learning_rate 0.1"
        run(binary, 2, words(2, f"{adam} -steps 4 -init_from new.h5 -checkpoint_final wanted.h5 -existing_outputs replace"), folder)
        text = run(binary, 2, words(2, f"{adam} -steps 4 -init_from old.h5 -checkpoint_final found.h5 -existing_outputs replace"), folder).text
        check("updates are counted on from 7" in text and "3 times" not in text, text)
        wanted, found = (tensors(os.path.join(folder, name)) for name in ("wanted.h5", "found.h5"))
        check_start(found, wanted, kinds)
        shutil.rmtree(os.path.join(folder, "ckpt"), ignore_errors=True)
        run(binary, 2, words(2, f"{adam} -steps 2 -init_from old.h5 -checkpoint_dir ckpt"), folder)
        run(binary, 2, words(2, f"{adam} -steps 4 -checkpoint_dir ckpt -resume -checkpoint_final found.h5 -existing_outputs replace"), folder)
        check_start(tensors(os.path.join(folder, "found.h5")), wanted, f"{kinds}, resumed")
        check(int(attribute(os.path.join(folder, "found.h5"), "step")) == 11, "updates are not counted on")


def test_start_with_odd_names(binary, folder):
    """Features whose names begin or end with a blank, or contain a quote: a run continues, and
    another order is refused."""
    features = {"sp ": 20, " sp": 20, 'q"u': 20, "z": 20}
    write_dataset(os.path.join(folder, "odd.h5"), 96, features=features)
    words = f"-batch_size 12 {MODEL} -checkpoint_dir ckpt -resume"
    for steps in (3, 5):
        text = run(binary, 2, f"-data_train odd.h5 {words} -steps {steps}", folder).text
    check("step-000000003.h5, after 3 updates" in text, text)
    write_dataset(os.path.join(folder, "quoted.h5"), 96, features={'q"u': 20, "z": 30})
    turned(os.path.join(folder, "quoted.h5"), os.path.join(folder, "turned.h5"))
    run(binary, 1, f"-data_train quoted.h5 -batch_size 24 {MODEL} -steps 2 -checkpoint_final quoted.final.h5", folder)
    text = run(binary, 1, f"-data_train turned.h5 -batch_size 24 {MODEL} -steps 2 -init_from quoted.final.h5", folder, status=64).text
    check('in that order: q"u,z' in text, text)


def test_start_with_quoted_names(binary, folder):
    """Tables whose names have commas and blanks keep their options and their order in the model.
    Evaluations and later runs read them from there."""
    write_dataset(os.path.join(folder, "data.h5"), 96, features={"last, first": 20, "my item": 30, "#z": 25})
    turned(os.path.join(folder, "data.h5"), os.path.join(folder, "turned.h5"))
    with open(os.path.join(folder, "own.opts"), "w") as file:
        file.write('"-table_last, first_pooling" mean\n"-table_my item_num_embeddings" 40\n"-table_my item_init_max" 0.3\n-table_#z_pooling mean\n')
    words = f"-options_file own.opts -batch_size 12 {MODEL}"
    run(binary, 2, f"{words} -data_train data.h5 -steps 3 -checkpoint_final kept.h5 -checkpoint_dir ckpt", folder)
    predictions = []
    for data in ("data", "turned"):
        run(binary, 2, f"-task eval -init_from kept.h5 -data_eval {data}.h5 -batch_size 12 -output {data}.eval.h5", folder)
        with h5py.File(os.path.join(folder, f"{data}.eval.h5")) as h:
            predictions.append(h["predictions"][()])
    check(same_bits(*predictions), "features in another order: other predictions")
    text = run(binary, 1, f"-batch_size 24 {MODEL} -data_train turned.h5 -steps 2 -init_from kept.h5 -tables_num_embeddings 40", folder, status=64).text
    check('in that order: "last, first",my item,#z' in text, text)
    text = run(binary, 1, f"-batch_size 24 {MODEL} -data_train data.h5 -steps 2 -init_from kept.h5 -init_from_rows grow -tables_num_embeddings 40", folder).text
    check("-table_last, first_pooling was mean, is sum" in text and "-table_#z_pooling was mean, is sum" in text, text)
    text = run(binary, 2, f"-batch_size 12 {MODEL} -data_train turned.h5 -steps 5 -resume -checkpoint_dir ckpt", folder).text
    check("after 3 updates" in text and "-table_my item_init_max was 0.3, is not given" in text and "pooling" not in text, text)
