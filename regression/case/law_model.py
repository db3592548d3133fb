# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint contains its model. Evaluation and prediction need no model options, and refuse
options that contradict the model. Also pooled embeddings of a prediction."""
import os
import subprocess
import sys

import h5py
import numpy as np

import quantised
from law_ids import make as make_raw
from trsrun import attribute, check, choices, flip_bit, run, same_bits, tensors, thin, thinned, write_dataset

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
FEATURES = {"user": 50, "item": 30, "tag": 20, "shop": 11, "word": 40}
# Two features of one table, mean, position weights, half precision, and a sequence table of which
# three rows are used.
PLAIN = ("-tables user,item,tag,word -table_item_features item,shop -table_item_num_embeddings 30 -table_tag_pooling mean -table_tag_data_type fp16 "
         "-tables_embedding_dim 8 -dense_arch 16,8 -over_arch 16,1")
MODEL = f"{PLAIN} -table_user_position_weighted -table_user_max_feature_lengths 3"
SEQUENCE = "-table_word_pooling none -table_word_sequence_pooling concat -table_word_sequence_length 3"
# Every run needs these options in addition to the model's. They belong to a run, and sums in
# another order have other bits.
RUN = "-batch_size 10 -tables_min_partition 4"


def trained(binary, folder, interaction="dot", model=MODEL):
    """Write train.h5, eval.h5, and the final checkpoint model.h5. Returns the options of its
    model."""
    numbers = {"dcn": "-dcn_low_rank_dim 4", "dcn_mixture": "-dcn_low_rank_dim 4 -dcn_num_experts 3", "deepfm": "-deepfm_arch 8,6", "projection": "-projection_arch1 9,16 -projection_arch2 24"}.get(interaction, "")
    words = f"{model} {SEQUENCE} -interaction {interaction} {numbers}"
    for name, samples, seed in (("train.h5", 120, 7), ("eval.h5", 77, 8)):
        if not os.path.exists(os.path.join(folder, name)):
            write_dataset(os.path.join(folder, name), samples, seed=seed, features=FEATURES)
    run(binary, 1, f"-data_train train.h5 -checkpoint_final model.h5 -embedding_learning_rate 0.3 {RUN} {words}", folder)
    return words


def pair(binary, folder, ranks, task, words, more=""):
    """A task's predictions from the checkpoint without model options, and with all of them."""
    found = []
    for name, given in (("alone", ""), ("given", words)):
        run(binary, ranks, f"-task {task} -init_from model.h5 -data_eval eval.h5 -output {name}.h5 {RUN} {given} {more}", folder)
        with h5py.File(os.path.join(folder, f"{name}.h5")) as h:
            found.append(h["predictions"][()])
    return found


@thinned
def test_model_alone(binary, folder):
    """For every interaction, -task eval and -task predict from the checkpoint have the same bits
    with and without model options, on 1, 2 and 3 ranks."""
    every = [(kind, ranks, task) for kind in choices(binary, "-interaction") if kind != "two_tower" for ranks in (1, 2, 3) for task in ("eval", "predict")]
    few = [("dot", 3, "eval"), ("dot", 2, "predict"), ("dcn", 1, "eval"), ("fm", 1, "eval"), ("deepfm", 1, "predict"), ("dcn_mixture", 1, "eval"),
           ("none", 1, "predict"), ("projection", 1, "eval")]
    last = None
    for kind, ranks, task in thin(every, few):
        if kind != last:
            words, last, before = trained(binary, folder, kind), kind, None
        alone, given = pair(binary, folder, ranks, task, words)
        check(same_bits(alone, given) and len(alone) == 77, f"{kind}, {task} on {ranks} ranks: the checkpoint alone gives other bits")
        check(before is None or np.allclose(alone, before, atol=1e-6), f"{kind}, {task} on {ranks} ranks: other predictions than another task or number of ranks")
        before = alone
        check(np.std(alone) > 1e-4, f"{kind}: all predictions are alike, nothing is tested")


def test_model_id_map(binary, folder):
    """The id map belongs to the model: raw ids of 64 bits get the rows with which they were
    trained."""
    make_raw(folder, np.int64, "hash")
    words = "-tables_id_map hash -tables_num_embeddings 37 -table_item_num_embeddings 64 -tables_embedding_dim 4 -dense_arch 8,4 -over_arch 8,1 -interaction cat"
    run(binary, 2, f"-data_train raw.h5 -checkpoint_final model.h5 -batch_size 10 -embedding_learning_rate 0.3 {words}", folder)
    os.rename(os.path.join(folder, "raw.h5"), os.path.join(folder, "eval.h5"))
    for ranks, task in ((1, "eval"), (2, "predict")):
        alone, given = pair(binary, folder, ranks, task, words)
        check(same_bits(alone, given), f"{task} on {ranks} ranks: other bits")
    text = run(binary, 1, f"-task eval -init_from model.h5 -data_eval eval.h5 {RUN} -tables_id_map modulo", folder, status=64).text
    check("-tables_id_map" in text and "model.h5 has -tables_id_map hash" in text, text)


def test_model_data(binary, folder):
    """A dataset with additional features, in another order, gives the same predictions. A dataset
    that lacks something is refused (data with more rows: predict_newer_data)."""
    words = trained(binary, folder)
    wanted, _ = pair(binary, folder, 1, "eval", words)
    evaluate = f"-task eval -init_from model.h5 {RUN} -output other.h5"
    order = ["extra", "word", "shop", "tag", "item", "user"]
    with h5py.File(os.path.join(folder, "eval.h5")) as old:
        lengths, values, names = old["sparse/lengths"][()], old["sparse/values"][()], list(FEATURES)
        at = np.cumsum(np.concatenate([[0], lengths.ravel()]))
        bags = [[values[at[i * len(names) + k]:at[i * len(names) + k + 1]] for k in range(len(names))] for i in range(len(lengths))]
        dense, labels = old["dense"][()], old["labels"][()]
    write_dataset(os.path.join(folder, "wide.h5"), 77, features={name: FEATURES.get(name, 9) for name in order})
    with h5py.File(os.path.join(folder, "wide.h5"), "r+", libver="latest") as h:
        own = [[np.array([3]) if name == "extra" else bag[names.index(name)] for name in order] for bag in bags]
        for name in ("lengths", "offsets", "values"):
            del h[f"sparse/{name}"]
        h["sparse/lengths"] = np.array([[len(b) for b in bag] for bag in own], np.int32)
        h["sparse/offsets"] = np.concatenate([[0], np.cumsum([sum(map(len, bag)) for bag in own])]).astype(np.int64)
        h["sparse/values"] = np.concatenate([b for bag in own for b in bag]).astype(np.int32)
        h["dense"][...], h["labels"][...] = dense, labels
    run(binary, 1, f"{evaluate} -data_eval wide.h5", folder)
    with h5py.File(os.path.join(folder, "other.h5")) as h:
        check(same_bits(h["predictions"][()], wanted), "features in another order: other bits")
    write_dataset(os.path.join(folder, "lacks.h5"), 20, features={n: r for n, r in FEATURES.items() if n != "shop"})
    text = run(binary, 2, f"{evaluate} -data_eval lacks.h5", folder, status=65).text
    check('has no feature "shop"' in text and "model.h5" in text, text)
    write_dataset(os.path.join(folder, "dense.h5"), 20, features=FEATURES, num_dense=5)
    text = run(binary, 1, f"{evaluate} -data_eval dense.h5", folder, status=65).text
    check("dense.h5: 5 dense features, the model of" in text, text)


def test_model_refused(binary, folder):
    """An option that contradicts the model is refused, and the message names both values, for every
    way to give the option. The same value, and values that a run may choose, are accepted."""
    trained(binary, folder)
    evaluate = f"-task eval -init_from model.h5 -data_eval eval.h5 {RUN}"
    for given, has in (("-tables_embedding_dim 16", "-tables_embedding_dim 8"), ("-table_tag_num_embeddings 21", "-table_tag_num_embeddings 20"),
                       ("-tables_num_embeddings 30", "-table_user_num_embeddings 50"),
                       ("-tables item,user,tag,word", "-tables user,item,tag,word"), ("-dense_arch 16,16,8", "-dense_arch 16,8"),
                       ("-interaction cat", "-interaction dot"), ("-tables_position_weighted false", "-table_user_position_weighted true"), ("-dcn_num_layers 2", "-dcn_num_layers 3")):
        text = run(binary, 1, f"{evaluate} {given}", folder, status=64).text
        check(f"{given.split()[0]} \"{given.split()[1]}\" (command line)" in text and f"model.h5 has {has};" in text, f"{given}: {text}")
    with open(os.path.join(folder, "run.opts"), "w", encoding="utf-8") as file:
        file.write("-tables_embedding_dim 16\n")
    text = run(binary, 2, f"{evaluate} -options_file run.opts", folder, status=64).text
    check("run.opts:1" in text, text)
    run(binary, 1, f"{evaluate} -tables_embedding_dim 8 -table_tag_num_embeddings 20 -dense_arch 16,8 -tables_data_type bf16 -output same.h5", folder)
    text = attribute(os.path.join(folder, "same.h5"), "options")
    check("-tables_data_type bf16 # command line" in text and "-table_tag_data_type fp16" not in text, "what the user gave for all tables counts: " + text)
    check("-interaction dot # " in text and "model.h5" in text, "the options of the results do not tell those of the model: " + text)


def test_model_old(binary, folder):
    """A checkpoint without its model, as earlier versions wrote it, needs all options, and the
    message says so."""
    words = trained(binary, folder)
    wanted, _ = pair(binary, folder, 1, "eval", words)
    with h5py.File(os.path.join(folder, "model.h5"), "r+", libver="latest") as h:
        del h.attrs["model"]
    evaluate = f"-init_from model.h5 -data_eval eval.h5 {RUN} -output old.h5"
    for task in ("eval", "predict"):
        text = run(binary, 1, f"-task {task} {evaluate}", folder, status=64).text
        check("embedding_dim" in text and "model.h5 does not say: an earlier version or another program wrote it" in text, text)
    text = run(binary, 1, f"-task eval {evaluate} {words}", folder).text
    check("model.h5 does not hold its model, as files of earlier versions or other programs" in text, text)
    with h5py.File(os.path.join(folder, "old.h5")) as h:
        check(same_bits(h["predictions"][()], wanted), "other bits")
    # a new checkpoint contains the model
    run(binary, 2, f"-task predict {evaluate} {words} -tables_data_type int8 -quant_checkpoint new.h5", folder)
    run(binary, 1, f"-task predict -init_from new.h5 -data_eval eval.h5 {RUN}", folder)


def test_model_damaged(binary, folder):
    """Flipped bits in the model's text are detected: HDF5's checksum detects them in a short text,
    and ours in a long text. An invalid text is detected, too."""
    for n in (3, 60):
        write_dataset(os.path.join(folder, "train.h5"), 20, features={f"feature_{i}": 9 for i in range(n)}, largest_bag=1)
        run(binary, 1, "-data_train train.h5 -checkpoint_final model.h5 -batch_size 20 -tables_embedding_dim 4 -dense_arch 8,4 -over_arch 8,1", folder)
        path = os.path.join(folder, "model.h5")
        with open(path, "rb") as file:
            content = file.read()
        start = content.index(b"-tables feature_0,")
        check(content.count(b"-tables feature_0,") == 1, "the model's text is there twice")
        size = len(attribute(path, "model"))
        check((size > 2048) == (n == 60), f"a text of {size} bytes")
        for place, bit, task in ((start, 0, "eval"), (start + size // 2, 4, "predict"), (start + size - 2, 1, "eval")):
            flip_bit(path, place, bit)
            text = run(binary, 1, f"-task {task} -init_from model.h5 -data_eval train.h5 -batch_size 20", folder, status=65).text
            check("model.h5" in text and "damaged" in text, text)
            flip_bit(path, place, bit)
    for wrong, pattern in (("nonsense", "attribute model is no text of options"), ("-epochs 3\n", "attribute model has -epochs"),
                           ("-tables_pooling most\n", "-tables_pooling \"most\" (")):
        with h5py.File(path, "r+", libver="latest") as h:
            h.attrs["model"] = np.bytes_(wrong.encode())
            del h["checksums"]
            h.create_group("checksums")
        text = run(binary, 1, "-task eval -init_from model.h5 -data_eval train.h5", folder, status=65).text
        check(pattern in text and "model.h5" in text, text)


def test_model_inspect(binary, folder):
    """inspect_file prints the model and the options of its run. The model's text is an option
    file."""
    trained(binary, folder)
    found = subprocess.run([sys.executable, os.path.join(TOOLS, "inspect_file.py"), "model.h5"], cwd=folder, capture_output=True, text=True, check=True).stdout
    for wanted in ("-interaction dot", "-tables user,item,tag,word", "-table_tag_pooling mean", "-table_user_num_embeddings 50", "-embedding_learning_rate 0.3", "-batch_size 10"):
        check(wanted in found, f"{wanted} is not in\n{found}")
    cut = subprocess.run(f"PYTHONUNBUFFERED=1 {sys.executable} {os.path.join(TOOLS, 'inspect_file.py')} model.h5 | head -n 1", shell=True, cwd=folder, capture_output=True, text=True)
    check(cut.stdout == found.splitlines(True)[0] and not cut.stderr, f"inspect_file.py | head: {cut.stderr}")
    with open(os.path.join(folder, "model.opts"), "wb") as file:
        file.write(attribute(os.path.join(folder, "model.h5"), "model"))
    run(binary, 1, f"-options_file model.opts -data_train train.h5 -checkpoint_final again.h5 -embedding_learning_rate 0.3 {RUN}", folder)
    one, other = tensors(os.path.join(folder, "model.h5")), tensors(os.path.join(folder, "again.h5"))
    check(sorted(one) == sorted(other) and all(same_bits(one[n], other[n]) for n in one), "a training with the model's text as its option file: another model")


def embeddings(binary, folder, ranks, options, features="user,shop,tag"):
    """feature -> [N, D]"""
    run(binary, ranks, f"-task predict -init_from model.h5 -data_eval eval.h5 -tables_min_partition 4 -output found.h5 -predict_embeddings {features} {options}", folder)
    with h5py.File(os.path.join(folder, "found.h5")) as h:
        check(sorted(h["embeddings"]) == sorted(features.split(",")), f"embeddings of {sorted(h['embeddings'])}")
        return {name: h[f"embeddings/{name}"][()] for name in h["embeddings"]}, h["predictions"][()]


@thinned
def test_predict_embeddings(binary, folder):
    """Pooled embeddings agree with numpy's on 1, 2 and 3 ranks, quantised or not. With
    -reproducible, the bits are equal for any ranks and sharding."""
    trained(binary, folder)
    _, _, bags = quantised.read_dataset(os.path.join(folder, "eval.h5"))
    state = tensors(os.path.join(folder, "model.h5"))
    tables = {"user": ("user", "sum"), "shop": ("item", "sum"), "tag": ("tag", "mean")}
    plans = ((1, "table_wise"), (2, "row_wise"), (3, "column_wise"), (3, "table_wise,row_wise,column_wise"))
    for data_type in ("fp32", "int8"):
        wanted = {}
        for feature, (table, pooling) in tables.items():
            weight = quantised.rounded(state[f"embedding/{table}/weight"].astype(np.float32), data_type)
            positions = state["dense/position_weights/user/weight"] if feature == "user" else None
            wanted[feature] = quantised.pool(weight, bags[feature], pooling, feature == "user", positions=positions)
        for ranks, kind in thin(plans, plans[1:2] if data_type == "fp32" else plans[2:3]):
            found, _ = embeddings(binary, folder, ranks, f"-batch_size 10 -tables_data_type {data_type} -tables_sharding_types {kind}")
            for feature, values in wanted.items():
                check(found[feature].shape == (77, 8) and found[feature].dtype == np.float32, f"{feature}: {found[feature].shape} {found[feature].dtype}")
                off = np.max(np.abs(found[feature] - values))
                check(off < 1e-6 and np.std(values) > 1e-3, f"{feature}, {data_type}, {kind} on {ranks} ranks: differs by {off:.1e}")
    trained(binary, folder, model=PLAIN)  # -reproducible does not support position weights
    first, predictions = embeddings(binary, folder, 1, "-reproducible -batch_size 24")
    for ranks, kind in thin(plans, plans[1:3]):
        found, others = embeddings(binary, folder, ranks, f"-reproducible -batch_size {24 // ranks} -tables_sharding_types {kind}")
        check(all(same_bits(found[name], first[name]) for name in first), f"-reproducible, {kind} on {ranks} ranks: other bits")
        check(same_bits(others, predictions), f"-reproducible, {kind} on {ranks} ranks: other predictions")


def test_predict_embeddings_refused(binary, folder):
    """Features that do not exist, occur twice, or are of a sequence table are refused, and so are
    embeddings without an output."""
    trained(binary, folder)
    predict = f"-task predict -init_from model.h5 -data_eval eval.h5 {RUN}"
    for options, pattern in (("-output o.h5 -predict_embeddings usr", 'the model has no feature "usr"; the closest is "user"'),
                             ("-output o.h5 -predict_embeddings user,tag,user", 'names the feature "user" twice'),
                             ("-output o.h5 -predict_embeddings tag,word", 'feature "word" is of the sequence table "word" (pooling none)'),
                             ("-predict_embeddings tag", "needs -output")):
        text = run(binary, 1, f"{predict} {options}", folder, status=64).text
        check("-predict_embeddings" in text and pattern in text, text)
