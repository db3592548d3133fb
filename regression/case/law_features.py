# SPDX-License-Identifier: BSD-3-Clause
"""Sequence tables and position weights in whole runs: against a small model in numpy, against
equivalent plain tables, and under several plans."""
import os

import h5py
import numpy as np

from trsrun import check, check_close_losses, check_close_tensors, check_same_tensors, losses, run, same_bits, tensors, thin, thinned, write_dataset

TOLERANCE = 1e-5  # as for golden data: floats are summed in another order
FEATURES = {"user": 50, "item": 30, "shop": 30, "tag": 20}
DIM, BATCH, STEPS, RATE = 8, 24, 6, 0.5
# item and shop share a table; tag is always a plain sum
TABLES = "-tables user,item,tag -table_item_features item,shop -tables_embedding_dim 8 -tables_min_partition 4"
KINDS = {
    "mean": "-table_user_pooling none -table_item_pooling none",
    "max": "-table_user_pooling none -table_item_pooling none -tables_sequence_pooling max",
    "concat": "-table_user_pooling none -table_item_pooling none -tables_sequence_pooling concat -tables_sequence_length 2",
    "positions": "-table_user_position_weighted true -table_item_position_weighted true -table_user_max_feature_lengths 4 "
                 "-table_item_max_feature_lengths 5,4",
}
PLANS = [(1, "-tables_sharding_types table_wise"), (1, "-tables_sharding_types data_parallel")]
PLANS += [(2, f"-tables_sharding_types {kind}") for kind in ("data_parallel", "table_wise", "row_wise", "column_wise")]
PLANS += [(3, "-table_user_sharding_types row_wise -table_item_sharding_types column_wise -table_tag_sharding_types row_wise"), (4, "-tables_sharding_types row_wise")]
FEW_PLANS = [PLANS[2], PLANS[3], PLANS[6]]  # replicas, whole tables, and rows beside columns


def make(folder, samples=BATCH * STEPS, pruned=True):
    """Bags of up to four ids, with repeats and, if requested, pruned ids."""
    path = write_dataset(os.path.join(folder, "train.h5"), samples, features=FEATURES, num_dense=0, largest_bag=4)
    with h5py.File(path, "r+") as h:
        values = h["sparse/values"][()]
        if pruned:
            values[np.random.default_rng(1).random(len(values)) < 0.1] = -1
        h["sparse/values"][...] = values
    return path


def bags(path):
    """feature -> list of every sample's ids"""
    with h5py.File(path) as h:
        lengths, values = h["sparse/lengths"][()], h["sparse/values"][()]
        found, at = {name: [] for name in FEATURES}, 0
        for row in lengths:
            for name, n in zip(FEATURES, row):
                found[name].append(values[at:at + n])
                at += n
        return found, h["labels"][()].astype(np.float64)


def make_init(folder, kind, hidden=6):
    """A checkpoint with weights for the model of `kind`. Position weights are not all 1."""
    rng = np.random.default_rng(5)
    width = DIM * (7 if kind == "concat" else 4)
    state = {f"embedding/{name}/weight": rng.normal(size=(rows, DIM)) for name, rows in (("user", 50), ("item", 30), ("tag", 20))}
    state.update({"dense/over_arch/0/weight": rng.normal(size=(hidden, width)) / 4, "dense/over_arch/0/bias": rng.normal(size=hidden),
                  "dense/over_arch/1/weight": rng.normal(size=(1, hidden)), "dense/over_arch/1/bias": rng.normal(size=1)})
    if kind == "positions":
        state.update({f"dense/position_weights/{name}/weight": 1 + rng.normal(size=n) / 2 for name, n in (("user", 4), ("item", 5), ("shop", 4))})
    state = {name: value.astype(np.float32) for name, value in state.items()}
    with h5py.File(os.path.join(folder, "init.h5"), "w", libver="latest") as h:
        h.attrs.update(format="trshard-checkpoint", version=np.int64(1), step=np.int64(0), epoch=np.int64(0), samples_seen=np.int64(0))
        for name, value in state.items():
            h[name] = value
    return {name: value.astype(np.float64) for name, value in state.items()}


class Model:
    """The model in float64: -interaction cat without dense features, an over arch of two layers,
    and sgd for all parameters."""

    def __init__(self, kind, state):
        self.kind, self.state = kind, state

    def vectors(self, name, ids):
        """The model's input from a bag, [vectors, DIM], and the way its gradient returns to rows
        (id, gradient) and to positions."""
        table = "item" if name == "shop" else name
        rows = self.state[f"embedding/{table}/weight"]
        taken = np.array([rows[i] if i >= 0 else np.zeros(DIM) for i in ids]).reshape(-1, DIM)
        kind, n = "sum" if name == "tag" else self.kind, len(ids)
        if kind == "positions":
            path = f"dense/position_weights/{name}/weight"
            p = self.state[path]
            return (p[:n] @ taken)[None], lambda g: ([p[i] * g[0] for i in range(n)], (path, [taken[i] @ g[0] for i in range(n)]))
        if kind == "concat":
            out = np.zeros((2, DIM))
            out[:min(n, 2)] = taken[:2]
            return out, lambda g: ([g[i] if i < 2 else np.zeros(DIM) for i in range(n)], None)
        if kind == "max":
            kept = [i for i in range(n) if ids[i] >= 0]
            if not kept:
                return np.zeros((1, DIM)), lambda g: ([np.zeros(DIM)] * n, None)
            best = np.array(kept)[np.argmax(taken[kept], axis=0)]
            return taken[kept].max(axis=0)[None], lambda g: ([np.where(best == i, g[0], 0) for i in range(n)], None)
        share = 1 / max(n, 1) if kind == "mean" else 1
        return taken.sum(axis=0)[None] * share, lambda g: ([g[0] * share] * n, None)

    def step(self, data, labels, samples):
        """Train one step. Returns the loss before the update."""
        s = self.state
        gradient = {name: np.zeros_like(value) for name, value in s.items()}
        loss = 0
        for b in samples:
            parts = [(name, data[name][b], *self.vectors(name, data[name][b])) for name in ("user", "item", "shop", "tag")]
            x = np.concatenate([vectors.ravel() for _, _, vectors, _ in parts])
            h = s["dense/over_arch/0/weight"] @ x + s["dense/over_arch/0/bias"]
            a = np.maximum(h, 0)
            z = (s["dense/over_arch/1/weight"] @ a + s["dense/over_arch/1/bias"])[0]
            loss += max(z, 0) - z * labels[b] + np.log1p(np.exp(-abs(z)))
            dz = (1 / (1 + np.exp(-z)) - labels[b]) / len(samples)
            da = dz * s["dense/over_arch/1/weight"][0] * (h > 0)
            gradient["dense/over_arch/1/weight"][0] += dz * a
            gradient["dense/over_arch/1/bias"] += dz
            gradient["dense/over_arch/0/weight"] += np.outer(da, x)
            gradient["dense/over_arch/0/bias"] += da
            self.back(s["dense/over_arch/0/weight"].T @ da, parts, gradient)
        for name, value in gradient.items():
            s[name] = s[name] - RATE * value
        return loss / len(samples)

    @staticmethod
    def back(dx, parts, gradient):
        at = 0
        for name, ids, vectors, backward in parts:
            rows, positions = backward(dx[at:at + vectors.size].reshape(vectors.shape))
            at += vectors.size
            for i, g in zip(ids, rows):
                if i >= 0:
                    gradient[f"embedding/{'item' if name == 'shop' else name}/weight"][i] += g
            if positions:
                gradient[positions[0]][:len(ids)] += positions[1]


def train(binary, folder, name, ranks, options, **more):
    words = (f"-data_train train.h5 -batch_size {BATCH // ranks} -output {name}.h5 -checkpoint_final {name}.final.h5 -interaction cat "
             f"-over_arch 6,1 -dense_learning_rate {RATE} -embedding_optimizer sgd -embedding_learning_rate {RATE} {TABLES} {options}")
    run(binary, ranks, words, folder, **more)
    return losses(os.path.join(folder, f"{name}.h5")), os.path.join(folder, f"{name}.final.h5")


def against_numpy(binary, folder, kind, extra=""):
    path = make(folder)
    state = make_init(folder, kind)
    model = Model(kind, state)
    data, labels = bags(path)
    wanted = np.array([model.step(data, labels, range(s * BATCH, (s + 1) * BATCH)) for s in range(STEPS)])
    for ranks, plan in thin(PLANS, FEW_PLANS):
        found, final = train(binary, folder, "run", ranks, f"-init_from init.h5 {KINDS[kind]} {plan} {extra}")
        what = f"{kind} on {ranks} ranks, {plan} {extra}"
        check_close_losses(found, wanted, TOLERANCE, what)
        weights = tensors(final)
        check(sorted(weights) == sorted(model.state), f"{what}: tensors {sorted(set(weights) ^ set(model.state))}")
        for name, value in model.state.items():
            off = np.max(np.abs(weights[name] - value) / (1 + np.abs(value)))
            check(off <= TOLERANCE, f"{what}: /{name} is {off:.1e} off")


@thinned
def test_sequence_mean(binary, folder):
    """src/RULES.md, rule A26: rows travel, and their mean enters the model. Training agrees with
    numpy under every plan."""
    against_numpy(binary, folder, "mean")


@thinned
def test_sequence_max(binary, folder):
    against_numpy(binary, folder, "max")


@thinned
def test_sequence_concat(binary, folder):
    against_numpy(binary, folder, "concat")


@thinned
def test_sequence_index_dedup(binary, folder):
    """Training agrees with numpy also if distinct ids are sent once."""
    for kind in thin(("max", "mean"), ("max",)):
        against_numpy(binary, folder, kind, "-ec_index_dedup")


@thinned
def test_position_weights(binary, folder):
    """Learned position weights agree with numpy under every plan."""
    against_numpy(binary, folder, "positions")


@thinned
def test_index_dedup_keeps_bits(binary, folder):
    """The forward pass has the same bits with and without index dedup. Hence the first loss and an
    evaluation of the same weights agree. This also holds if rows travel as bf16, or as fp8 with
    scales for each row."""
    make(folder)
    for i, (kind, precision) in enumerate((("mean", "bf16"), ("max", "fp8"), ("concat", "fp8 -qcomm_fp8_row_dim 4"))):
        make_init(folder, kind)
        plans = ((2, f"row_wise -qcomm_forward_precision {precision}"), (3, "column_wise"), (3, "row_wise"))
        for ranks, plan in thin(plans, {plans[0], plans[i]}):
            options = f"-task eval -data_eval train.h5 -init_from init.h5 {KINDS[kind]} -tables_sharding_types {plan}"
            found = []
            for dedup in ("false", "true"):
                train(binary, folder, "eval", ranks, f"{options} -ec_index_dedup {dedup}")
                with h5py.File(os.path.join(folder, "eval.h5")) as h:
                    found.append(h["predictions"][()])
            check(same_bits(*found), f"{kind}, {plan} on {ranks} ranks: dedup changes the forward")


@thinned
def test_concat_is_a_feature_a_place(binary, folder):
    """A table that concatenates three rows equals a table with three features of one id each. This
    also holds for dot and dcn, where every place is an embedding."""
    path = make(folder, pruned=False)
    data, labels = bags(path)
    names = [f"user{i}" for i in range(3)]
    with h5py.File(os.path.join(folder, "places.h5"), "w", libver="latest") as h:
        columns = [[bag[i:i + 1] for bag in data["user"]] for i in range(3)] + [data[name] for name in ("item", "shop", "tag")]
        h.attrs.update(format="trshard-dataset", version=np.int64(1), num_samples=np.int64(len(labels)))
        h["labels"] = labels.astype(np.float32)
        sparse = h.create_group("sparse")
        sparse.attrs["features"] = names + ["item", "shop", "tag"]
        sparse.attrs["num_embeddings"] = np.array([50, 50, 50, 30, 30, 20], np.int64)
        sparse["lengths"] = np.array([[len(bag) for bag in row] for row in zip(*columns)], np.int32)
        sparse["offsets"] = np.concatenate([[0], np.cumsum(sparse["lengths"][()].sum(axis=1))]).astype(np.int64)
        sparse["values"] = np.concatenate([bag for row in zip(*columns) for bag in row]).astype(np.int32)
    plans = ((2, "table_wise"), (2, "row_wise"), (3, "column_wise"), (2, "data_parallel"))
    for i, interaction in enumerate(("dot", "dcn -dcn_low_rank_dim 4", "cat")):
        options = f"-interaction {interaction} -tables user,item,tag -table_item_features item,shop -tables_embedding_dim 8 -tables_min_partition 4 -over_arch 6,1 -epochs 1 -embedding_optimizer adagrad"
        run(binary, 1, f"-data_train places.h5 -batch_size 24 -output wanted.h5 -checkpoint_final wanted.final.h5 -table_user_features {','.join(names)} {options}", folder)
        for ranks, plan in thin(plans, plans[i:i + 2]):
            run(binary, ranks, f"-data_train train.h5 -batch_size {24 // ranks} -output found.h5 -checkpoint_final found.final.h5 -table_user_pooling none "
                f"-tables_sequence_pooling concat -tables_sequence_length 3 -tables_sharding_types {plan} {options}", folder)
            what = f"{interaction}, {plan} on {ranks} ranks"
            check_close_losses(losses(os.path.join(folder, "found.h5")), losses(os.path.join(folder, "wanted.h5")), TOLERANCE, what)
            check_close_tensors(os.path.join(folder, "found.final.h5"), os.path.join(folder, "wanted.final.h5"), TOLERANCE, what)


@thinned
def test_features_pipelines_equal(binary, folder):
    """A run with every kind of feature has the same bits on every pipeline and with any number of
    threads."""
    make(folder)
    kinds = ("-table_user_pooling none -table_item_pooling none -table_user_sequence_pooling max -table_tag_position_weighted true "
             "-table_tag_max_feature_lengths 4 -epochs 2")
    for ranks, plan in ((2, "-tables_sharding_types row_wise"), (3, "-table_user_sharding_types column_wise -table_item_sharding_types data_parallel")):
        for dedup in thin(("false", "true"), ("true",) if ranks == 2 else ("false",)):
            options = f"{kinds} {plan} -ec_index_dedup {dedup}"
            wanted, state = train(binary, folder, "base", ranks, f"{options} -pipeline base")
            for more in ({}, {"environment": {"OMP_NUM_THREADS": "3"}}):
                found, other = train(binary, folder, "other", ranks, f"{options} -pipeline sparse_dist", **more)
                check(same_bits(found, wanted), f"{plan} on {ranks} ranks, dedup {dedup}: other losses")
                check_same_tensors(other, state, f"{plan} on {ranks} ranks, dedup {dedup}")


def test_position_weights_resume(binary, folder):
    """Position weights and their optimizer's state are restored from a checkpoint under another
    plan and number of ranks."""
    make(folder)
    options = f"{KINDS['positions']} -dense_optimizer adam"
    wanted, state = train(binary, folder, "whole", 2, f"{options} -tables_sharding_types row_wise -epochs 2")
    train(binary, folder, "half", 2, f"{options} -tables_sharding_types row_wise -epochs 1")
    names = [name for name in tensors(state) if "position_weights" in name]
    check(sorted(names) == sorted(f"{top}/position_weights/{feature}/weight{tail}" for feature in ("user", "item", "shop")
                                  for top, tail in (("dense", ""), ("dense_optimizer", "/exp_avg"), ("dense_optimizer", "/exp_avg_sq"))), f"{names}")
    for ranks, plan in ((1, "table_wise"), (3, "row_wise"), (4, "column_wise")):
        found, other = train(binary, folder, "rest", ranks, f"{options} -init_from half.final.h5 -tables_sharding_types {plan} -epochs 1")
        check_close_losses(found, wanted[STEPS:], TOLERANCE, f"{plan} on {ranks} ranks")
        check_close_tensors(other, state, TOLERANCE, f"{plan} on {ranks} ranks")


@thinned
def test_variable_batch(binary, folder):
    """Sending equal bags once gives the same bits in the forward pass, with weights, means,
    positions, and features that share a table."""
    path = write_dataset(os.path.join(folder, "train.h5"), 144, features={"user": 3, "item": 30, "shop": 30, "tag": 2}, num_dense=0, largest_bag=2, weighted=True)
    check(len({tuple(bag) for bag in bags(path)[0]["tag"][:12]}) < 12, "no bag is there twice")
    kinds = "-table_tag_position_weighted true -table_tag_max_feature_lengths 2 -table_user_is_weighted -table_item_pooling mean -epochs 2"
    plans = ((2, "table_wise"), (3, "row_wise"), (4, "grid_shard -topology_local_world_size 2"), (1, "table_wise"), (3, "column_wise"),
             (4, "table_row_wise -topology_local_world_size 2"))
    for ranks, plan in thin(plans, plans[:3]):
        found = []
        for variable in ("false", "true"):
            runs = [train(binary, folder, f"{variable}{pipeline}", ranks, f"{kinds} -tables_sharding_types {plan} -ebc_variable_batch {variable} -pipeline {pipeline}")
                    for pipeline in ("base", "sparse_dist")]
            check(same_bits(runs[0][0], runs[1][0]), f"{plan} on {ranks} ranks: pipelines differ")
            found.append(runs[0])
        what = f"{plan} on {ranks} ranks"
        check(found[0][0][0] == found[1][0][0], f"{what}: another first loss")
        check_close_losses(found[1][0], found[0][0], TOLERANCE, what)
        check_close_tensors(found[1][1], found[0][1], TOLERANCE, what)
    text = run(binary, 2, f"-data_train train.h5 -batch_size 12 -interaction cat -over_arch 6,1 {TABLES} -tables_sharding_types table_wise -ebc_variable_batch -reproducible",
               folder, status=None).text
    check("error: -reproducible" in text and "-ebc_variable_batch" in text, text[-500:])


@thinned
def test_sequences_reproducible(binary, folder):
    """-reproducible: rows that travel by table, by row or by replica give the same bits on any
    number of ranks. Refused options are named."""
    make(folder)
    options = "-table_user_pooling none -table_item_pooling none -table_user_sequence_pooling max -epochs 1 -reproducible"
    wanted, state = train(binary, folder, "one", 1, f"{options} -tables_sharding_types table_wise")
    plans = ((2, "row_wise"), (3, "table_wise"), (3, "data_parallel"), (4, "row_wise"))
    for ranks, plan in thin(plans, plans[:3]):
        found, other = train(binary, folder, "other", ranks, f"{options} -tables_sharding_types {plan}")
        check(same_bits(found, wanted), f"{plan} on {ranks} ranks: other losses")
        check_same_tensors(other, state, f"{plan} on {ranks} ranks")
    for more, message in (("-ec_index_dedup -tables_sharding_types row_wise", "-ec_index_dedup"), ("-table_user_sharding_types column_wise -tables_min_partition 4", "column_wise"),
                          ("-table_tag_position_weighted true -table_tag_max_feature_lengths 4", "position_weighted")):
        text = run(binary, 2, f"-data_train train.h5 -batch_size 12 -interaction cat -over_arch 6,1 {TABLES} {options} {more}", folder, status=None).text
        check("error: -reproducible" in text and message in text, f"{more}: {text[-500:]}")
