# SPDX-License-Identifier: BSD-3-Clause
"""Tables split by id_map qr: a run agrees with the paper's definition, written in numpy, for any
ranks and plan."""
import os

import h5py
import numpy as np

from trsrun import attribute, check, check_same_tensors, losses, run, same_bits, tensors, thin, thinned, write_dataset

# table -> rows, rows of the remainder's table, operation, features. user: 7 is the square root of
# 37, rounded up. shop's quotient has one row. tag is not split.
TABLES = {"user": (37, 7, "mult", ["user"]), "item": (50, 4, "add", ["item", "near"]), "tag": (20, None, None, ["tag"]), "shop": (6, 6, "mult", ["shop"])}
# in another order than in the model; all ids except tag's have 64 bits
FEATURES = {"near": 0, "shop": 0, "tag": 20, "item": 0, "user": 0}
DIM, BATCH, STEPS, LEARNING_RATE, EPS = 8, 24, 60, 0.05, 1e-8
MODEL = ("-tables user,item,tag,shop -tables_embedding_dim 8 -dense_arch 8,4 -over_arch 8,1 -interaction cat -tables_min_partition 4 "
         "-table_user_id_map qr -table_user_num_embeddings 37 -table_user_is_weighted "
         "-table_item_id_map qr -table_item_num_embeddings 50 -table_item_features item,near -table_item_pooling mean -table_item_qr_operation add "
         "-table_item_qr_collisions 4 -table_shop_id_map qr -table_shop_num_embeddings 6 -table_shop_qr_collisions 9 "
         "-tables_init_fn normal -tables_init_std 0.5 -seed 3")
TRAINING = (f"-data_train train.h5 -steps {STEPS} -dense_optimizer sgd -dense_learning_rate {LEARNING_RATE} -embedding_optimizer adagrad "
            f"-embedding_learning_rate {LEARNING_RATE} -embedding_eps {EPS}")
TYPES = ("data_parallel", "table_wise", "column_wise", "row_wise")


def make(folder):
    """Write train.h5 and eval.h5 with raw ids and weights of ids."""
    for name, samples, seed in (("train.h5", 10 * BATCH, 7), ("eval.h5", 77, 8)):
        write_dataset(os.path.join(folder, name), samples, seed=seed, features={key: rows or 50 for key, rows in FEATURES.items()}, weighted=True)
        with h5py.File(os.path.join(folder, name), "r+") as h:
            keys = np.concatenate([np.repeat(np.arange(len(FEATURES)), sample) for sample in h["sparse/lengths"][()]])
            raw = np.random.default_rng(seed).integers(-2**63, 2**63 - 1, len(keys), endpoint=True)
            raw[:4] = (-1, -2**63, 2**63 - 1, 0)
            values = np.where(keys == list(FEATURES).index("tag"), h["sparse/values"][()], raw)
            del h["sparse/values"]
            h["sparse/values"] = values
            h["sparse"].attrs["num_embeddings"] = np.array(list(FEATURES.values()), np.int64)


def read(path):
    """Dense features, labels, and for each feature its samples' (ids, weights)."""
    with h5py.File(path) as h:
        lengths, values, weights = h["sparse/lengths"][()], h["sparse/values"][()], h["sparse/weights"][()].astype(np.float64)
        ends = np.cumsum(lengths).reshape(lengths.shape)
        bags = {key: [(values[e - n:e], weights[e - n:e]) for n, e in zip(lengths[:, k], ends[:, k])] for k, key in enumerate(FEATURES)}
        return h["dense"][()].astype(np.float64), h["labels"][()].astype(np.float64), bags


class Reference:
    """The model in float64, from the weights of a checkpoint. Tables use AdaGrad, and layers
    SGD."""

    def __init__(self, checkpoint):
        self.weight = {name: value.astype(np.float64) for name, value in tensors(checkpoint).items() if name.endswith(("/weight", "/bias"))}
        self.square = {name: np.zeros_like(value) for name, value in self.weight.items()}

    def lookups(self, bags, table, feature):
        """(name, matrix) of each table of a feature. Row b of the matrix times the table's weights
        is sample b's pooled vector."""
        rows, m, _, _ = TABLES[table]
        parts = {table: (rows, lambda x: x)} if m is None else {f"{table}_quotient": (-(-rows // m), lambda x: x // m), f"{table}_remainder": (m, lambda x: x % m)}
        found = []
        for name, (n, row) in parts.items():
            matrix = np.zeros((len(bags[feature]), n))
            for b, (ids, weights) in enumerate(bags[feature]):
                for one, weight in zip(ids, weights):
                    matrix[b, row(int(one) % rows)] += weight if table == "user" else 1 / len(ids) if table == "item" else 1
            found.append((f"embedding/{name}/weight", matrix))
        return found

    def vectors(self, bags):
        """The vectors for the interaction, and the data that their backward pass needs."""
        for table, (_, _, operation, features) in TABLES.items():
            for feature in features:
                looked_up = self.lookups(bags, table, feature)
                pooled = [matrix @ self.weight[name] for name, matrix in looked_up]
                joined = pooled[0] if operation is None else pooled[0] + pooled[1] if operation == "add" else pooled[0] * pooled[1]
                yield feature, operation, looked_up, pooled, joined

    def layers(self, arch):
        names = sorted(name for name in self.weight if name.startswith(f"dense/{arch}/") and name.endswith("/weight"))
        return [(name, name.replace("/weight", "/bias")) for name in names]

    def forward(self, dense, bags):
        self.inputs, x = {}, dense
        for w, b in self.layers("dense_arch"):
            self.inputs[w], x = x, np.maximum(x @ self.weight[w].T + self.weight[b], 0)
        self.bottom, self.joins = x, list(self.vectors(bags))
        x = np.concatenate([x] + [join[-1] for join in self.joins], axis=1)
        for w, b in self.layers("over_arch"):
            self.inputs[w], z = x, x @ self.weight[w].T + self.weight[b]
            x = np.maximum(z, 0)
        return z[:, 0]

    def step(self, dense, labels, bags):
        """One step of training. Returns the loss before it."""
        z = self.forward(dense, bags)
        grads, g = {}, ((1 / (1 + np.exp(-z)) - labels) / len(labels))[:, None]
        x = None  # the output of the layer, for its ReLU
        for w, b in reversed(self.layers("over_arch")):
            g = g if x is None else g * (x > 0)
            grads[w], grads[b], g, x = g.T @ self.inputs[w], g.sum(axis=0), g @ self.weight[w], self.inputs[w]
        n = self.bottom.shape[1]
        for k, (_, operation, looked_up, pooled, _) in enumerate(self.joins):
            part = g[:, n + k * DIM:n + (k + 1) * DIM]
            for i, (name, matrix) in enumerate(looked_up):
                grads[name] = grads.get(name, 0) + matrix.T @ (part * pooled[1 - i] if operation == "mult" else part)
        g, x = g[:, :n], self.bottom
        for w, b in reversed(self.layers("dense_arch")):
            g = g * (x > 0)
            grads[w], grads[b], g, x = g.T @ self.inputs[w], g.sum(axis=0), g @ self.weight[w], self.inputs[w]
        for name, grad in grads.items():
            if name.startswith("embedding/"):
                self.square[name] += grad * grad
                grad = grad / (np.sqrt(self.square[name]) + EPS)
            self.weight[name] -= LEARNING_RATE * grad
        return np.mean(np.maximum(z, 0) - z * labels + np.log1p(np.exp(-np.abs(z))))


def reference(binary, folder):
    """The definition's (losses, model after training)."""
    run(binary, 1, f"{TRAINING.replace(f'-steps {STEPS}', '-steps 0')} {MODEL} -batch_size {BATCH} -checkpoint_final begin.h5", folder)
    model, (dense, labels, bags) = Reference(os.path.join(folder, "begin.h5")), read(os.path.join(folder, "train.h5"))
    found = []
    for step in range(STEPS):
        part = slice(step % 10 * BATCH, (step % 10 + 1) * BATCH)
        found.append(model.step(dense[part], labels[part], {key: bag[part] for key, bag in bags.items()}))
    return np.array(found), model


@thinned
def test_qr_definition(binary, folder):
    """60 steps of training follow the definition to 1e-5 on 1, 2 and 3 ranks with each sharding:
    losses, tables and layers."""
    make(folder)
    wanted, model = reference(binary, folder)
    check(wanted[-10:].mean() < wanted[:10].mean() - 0.02, f"nothing is learned: {wanted}")
    every = [(ranks, kind) for ranks in (1, 2, 3) for kind in TYPES]
    for ranks, kind in thin(every, [(1, "table_wise"), (2, "row_wise"), (3, "column_wise"), (2, "data_parallel")]):
        run(binary, ranks, f"{TRAINING} {MODEL} -batch_size {BATCH // ranks} -tables_sharding_types {kind} -output run.h5 -checkpoint_final end.h5 "
            "-existing_outputs replace", folder)
        off = np.max(np.abs(losses(os.path.join(folder, "run.h5")) - wanted) / wanted)
        check(off <= 1e-5, f"{kind} on {ranks} ranks: losses differ by {off:.1e}")
        end = tensors(os.path.join(folder, "end.h5"))
        check({"embedding/user_quotient/weight", "embedding/user_remainder/weight"} < set(end) and "embedding/user/weight" not in end, str(sorted(end)))
        for name, value in model.weight.items():
            off = np.max(np.abs(end[name] - value) / (1 + np.abs(value)))
            check(off <= 1e-5, f"{kind} on {ranks} ranks: {name} differs by {off:.1e}")


def test_qr_reproducible(binary, folder):
    """With -reproducible, the bits are the same for every number of ranks and plan, also in a
    training that continues from a checkpoint."""
    make(folder)
    shared = f"{TRAINING} {MODEL} -reproducible -checkpoint_dir states -checkpoint_every 30"
    run(binary, 1, f"{shared.replace('states', 'whole')} -batch_size {BATCH} -output whole.h5 -checkpoint_final whole.final.h5", folder)
    for ranks, steps, kind in ((3, 30, "row_wise"), (2, 60, "column_wise")):
        run(binary, ranks, f"{shared} -resume -steps {steps} -batch_size {BATCH // ranks} -tables_sharding_types {kind} -output part.h5 "
            "-checkpoint_final part.final.h5 -existing_outputs replace", folder)
    check(same_bits(losses(os.path.join(folder, "part.h5"))[-30:], losses(os.path.join(folder, "whole.h5"))[-30:]), "other losses")
    check_same_tensors(os.path.join(folder, "part.final.h5"), os.path.join(folder, "whole.final.h5"), "3, then 2 ranks, for one")


def test_qr_predict(binary, folder):
    """A checkpoint contains the model. Evaluation, prediction with joined embeddings, and quantised
    prediction need no other option."""
    make(folder)
    run(binary, 1, f"{TRAINING} {MODEL} -batch_size {BATCH} -checkpoint_final model.h5", folder)
    text = attribute(os.path.join(folder, "model.h5"), "model").decode()
    check("-table_user_qr_collisions 7" in text and "-table_item_qr_operation add" in text, text)
    model, (dense, _, bags) = Reference(os.path.join(folder, "model.h5")), read(os.path.join(folder, "eval.h5"))
    wanted = 1 / (1 + np.exp(-model.forward(dense, bags)))
    joined = {join[0]: join[-1] for join in model.joins}
    shared = "-init_from model.h5 -data_eval eval.h5 -batch_size 10 -existing_outputs replace -output out.h5"
    for ranks, words, tolerance in ((1, "-task eval", 1e-6), (2, "-task predict -predict_embeddings user,near", 1e-6),
                                    (3, "-task predict -tables_data_type int8 -quant_checkpoint small.h5", 2e-2),
                                    (1, "-task predict -init_from small.h5", 2e-2)):
        run(binary, ranks, f"{shared} {words}", folder)
        with h5py.File(os.path.join(folder, "out.h5")) as h:
            off = np.max(np.abs(h["predictions"][()] - wanted))
            check(0 < off <= tolerance, f"{words}: predictions differ by {off:.1e}")
            for key in h.get("embeddings", ()):
                check(np.allclose(h[f"embeddings/{key}"][()], joined[key], atol=1e-6), f"{words}: other embeddings of {key}")


def test_qr_refused(binary, folder):
    """Options that a split table does not support are refused by name."""
    make(folder)
    for words, named in (("-table_user_pooling none -table_user_is_weighted false", 'table "user" is a sequence table'),
                         ("-table_shop_position_weighted -table_shop_max_feature_lengths 3", 'table "shop" is position_weighted'),
                         ("-table_tag_qr_collisions 3", 'table "tag" is not split'), ("-table_tag_qr_operation add", "-table_tag_qr_operation"),
                         ("-tables user,user_remainder -table_user_remainder_features tag", 'table "user_remainder" is there beside'),
                         ("-table_user_qr_collisions 0", "-table_user_qr_collisions")):
        text = run(binary, 1, f"{TRAINING} {MODEL} -batch_size {BATCH} -allow_unused_options {words}", folder, status=64).text
        check(named in text, f"{words}: {text[:600]}")
    text = run(binary, 1, f"{TRAINING} {MODEL} -batch_size {BATCH} -checkpoint_final model.h5", folder).text
    text = run(binary, 1, "-task eval -init_from model.h5 -data_eval eval.h5 -table_user_qr_collisions 8", folder, status=64).text
    check("model.h5 has -table_user_qr_collisions 7" in text, text[:600])
