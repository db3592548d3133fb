#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record the whole-program cases sequence_*: trainings of models whose sequences are pooled by
layers, by torch.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 numpy h5py
    DIR/bin/python record_sequences.py FOLDER [CASE ...]

FOLDER gets a folder for each case, with the files of README.md, section 1. The model has a dense
arch of two layers, the sum of the rows of `user`, and the layers of the two features `word` and
`more` of one sequence table, all side by side (interaction cat), and an over arch. The bags have 0
to 200 ids. Initial weights are floats. torch computes in double, without padding, one bag at a
time. Both optimizers are SGD, whose steps are zero for rows that do not occur.
"""
import json
import os
import sys

import h5py
import numpy as np
import torch

SAMPLES, BATCH, STEPS, NUM_DENSE, D = 320, 16, 20, 5, 8
ROWS = {"user": 60, "word": 200, "more": 200}
TABLE_OF = {"user": "user", "word": "word", "more": "word"}
OPTIONS = f"""-steps {STEPS} -dense_arch 8,8 -over_arch 16,1 -interaction cat -dense_optimizer sgd -dense_learning_rate 0.3 -embedding_optimizer sgd
-embedding_learning_rate 0.5 -tables user,word -tables_embedding_dim {D} -table_user_num_embeddings 60 -table_word_num_embeddings 200
-table_word_features word,more -table_word_pooling none"""


class Gru(torch.nn.Module):
    """The last state of torch.nn.GRU. An empty bag has zeros."""

    def __init__(self, width):
        super().__init__()
        self.gru, self.width = torch.nn.GRU(D, width, batch_first=True), width

    def forward(self, rows, target):
        return self.gru(rows[None])[1][0, 0] if len(rows) else rows.new_zeros(self.width)

    def parts(self):
        return dict(self.gru.named_parameters())


class Din(torch.nn.Module):
    """Zhou et al. 2018: a stack on [q, k, q - k, q * k] computes the weight of each row k."""

    def __init__(self, sizes, activation, softmax):
        super().__init__()
        self.linear = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip([4 * D] + sizes, sizes + [1]))
        self.activation, self.softmax, self.width = activation, softmax, D

    def forward(self, rows, target):
        q = target.expand(len(rows), D)
        x = torch.cat([q, rows, q - rows, q * rows], 1)
        for linear in self.linear[:-1]:
            x = self.activation(linear(x))
        weights = self.linear[-1](x)
        return ((torch.softmax(weights, 0) if self.softmax else weights) * rows).sum(0)

    def parts(self):
        return {f"mlp/{i}/{part}": weight for i, linear in enumerate(self.linear) for part, weight in linear.named_parameters()}


class Transformer(torch.nn.Module):
    """Layers of torch.nn.TransformerEncoderLayer, then the mean of the rows. An empty bag has
    zeros."""

    def __init__(self, layers, heads, width, causal):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(D, heads, width, dropout=0.0, batch_first=True) for _ in range(layers))
        self.causal, self.width = causal, D

    def forward(self, rows, target):
        if not len(rows):
            return rows.new_zeros(D)
        mask = torch.triu(torch.full((len(rows), len(rows)), -torch.inf, dtype=rows.dtype), 1) if self.causal else None
        x = rows[None]
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return x[0].mean(0)

    def parts(self):
        return {f"layers/{name}".replace(".", "/"): weight for name, weight in self.layers.named_parameters()}


class Mean(torch.nn.Module):
    """The mean of the rows. An empty bag has zeros."""

    width = D

    def forward(self, rows, target):
        return rows.mean(0) if len(rows) else rows.new_zeros(D)

    def parts(self):
        return {}


# name: (options, a layer). With "din_target word", the feature `word` is the target of `more`, in
# one table.
CASES = {
    "sequence_gru": ("-table_word_sequence_pooling gru -table_word_gru_hidden_size 6", lambda: Gru(6)),
    "sequence_din": ("-table_word_sequence_pooling din -table_word_din_target user -table_word_din_arch 12,6",
                     lambda: Din([12, 6], torch.sigmoid, False)),
    "sequence_din_softmax": ("-table_word_sequence_pooling din -table_word_din_target user -table_word_din_arch 9 -table_word_din_activation relu "
                             "-table_word_din_softmax true", lambda: Din([9], torch.relu, True)),
    "sequence_din_history": ("-table_word_sequence_pooling din -table_word_din_target word -table_word_din_arch 12,6",
                             lambda: Din([12, 6], torch.sigmoid, False)),
    "sequence_transformer": ("-table_word_sequence_pooling transformer -table_word_transformer_layers 2 -table_word_transformer_heads 4 "
                             "-table_word_transformer_dim_feedforward 12", lambda: Transformer(2, 4, 12, False)),
    "sequence_transformer_causal": ("-table_word_sequence_pooling transformer -table_word_transformer_causal true", lambda: Transformer(1, 2, 32, True)),
}


class Model(torch.nn.Module):
    def __init__(self, layer, own_target):
        super().__init__()
        self.own_target = own_target
        self.tables = torch.nn.ModuleDict({name: torch.nn.Embedding(ROWS[name], D) for name in ("user", "word")})
        for table in self.tables.values():
            torch.nn.init.uniform_(table.weight, -0.5, 0.5)
        self.layers = torch.nn.ModuleDict({"word": Mean() if own_target else layer(), "more": layer()})
        self.dense = torch.nn.Sequential(torch.nn.Linear(NUM_DENSE, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8), torch.nn.ReLU())
        width = 2 * D + sum(layer.width for layer in self.layers.values())
        self.over = torch.nn.Sequential(torch.nn.Linear(width, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        for parameter in self.parameters():  # every number is a float
            parameter.data = parameter.data.float()

    def forward(self, dense, bags):
        vectors = []
        for b in range(len(dense)):
            vectors.append(self.vectors_of({name: of[b] for name, of in bags.items()}))
        return self.over(torch.cat([self.dense(dense), torch.stack(vectors)], 1))[:, 0]

    def vectors_of(self, bag):
        user = self.tables["user"](bag["user"]).sum(0)
        word = self.tables["word"](bag["word"])
        target = self.layers["word"](word, None) if self.own_target else user
        first = target if self.own_target else self.layers["word"](word, target)
        return torch.cat([user, first, self.layers["more"](self.tables["word"](bag["more"]), target)])

    def tensors(self):
        found = {f"embedding/{name}/weight": table.weight for name, table in self.tables.items()}
        for stack, module in (("dense_arch", self.dense), ("over_arch", self.over)):
            for i, linear in enumerate(module[::2]):
                found[f"dense/{stack}/{i}/weight"], found[f"dense/{stack}/{i}/bias"] = linear.weight, linear.bias
        for name, layer in self.layers.items():
            found.update({f"dense/sequence/{name}/{part}": weight for part, weight in layer.parts().items()})
        return {name: weight.detach().float().numpy() for name, weight in found.items()}


def make_data(rng):
    lengths = {name: rng.integers(0, 5, SAMPLES) for name in ROWS}
    for name in ("word", "more"):
        lengths[name][rng.random(SAMPLES) < 0.15] = 0
        some = rng.choice(SAMPLES, 60, replace=False)
        lengths[name][some] = rng.integers(5, 30, 60)
        lengths[name][some[:4]] = (200, 199, 64, 200)
    lengths["more"][32:48] = 0  # a whole batch without ids
    bags = {name: [rng.integers(0, ROWS[name], n) for n in lengths[name]] for name in ROWS}
    return rng.random((SAMPLES, NUM_DENSE), np.float32), rng.integers(0, 2, SAMPLES).astype(np.float32), bags


def write_dataset(path, dense, labels, bags):
    lengths = np.stack([[len(bag) for bag in bags[name]] for name in ROWS], 1).astype(np.int32)
    with h5py.File(path, "w") as h:
        h.attrs.update({"format": "trshard-dataset", "version": np.int64(1), "num_samples": np.int64(SAMPLES)})
        h["dense"], h["labels"] = dense, labels
        sparse = h.create_group("sparse")
        sparse.attrs["features"], sparse.attrs["num_embeddings"] = list(ROWS), np.array(list(ROWS.values()), np.int64)
        sparse["lengths"], sparse["offsets"] = lengths, np.concatenate([[0], np.cumsum(lengths.sum(1))]).astype(np.int64)
        sparse["values"] = np.concatenate([bags[name][b] for b in range(SAMPLES) for name in ROWS]).astype(np.int64)


def write_checkpoint(path, model, step, options):
    with h5py.File(path, "w") as h:
        h.attrs.update({"format": "trshard-checkpoint", "version": np.int64(1), "step": np.int64(step), "samples_seen": np.int64(step * BATCH),
                        "options": options, "plan": "{}"})
        for name, tensor in model.tensors().items():
            h[name] = tensor


def record(folder, name, more, layer):
    torch.manual_seed(sum(map(ord, name)))
    dense, labels, bags = make_data(np.random.default_rng(len(name)))
    options = f"{OPTIONS} {more}".replace("\n", " ").replace(" -", "\n-") + "\n"
    os.makedirs(folder, exist_ok=True)
    path = lambda file: os.path.join(folder, file)
    with open(path("run.opts"), "w", encoding="utf-8") as out:
        out.write(options)
    write_dataset(path("train.h5"), dense, labels, bags)
    model = Model(layer, "din_target word" in more)
    write_checkpoint(path("init.h5"), model, 0, "")
    model.double()
    dense, labels = torch.tensor(dense).double(), torch.tensor(labels).double()
    bags = {feature: [torch.tensor(bag) for bag in of] for feature, of in bags.items()}
    loss_of = torch.nn.BCEWithLogitsLoss()
    tables, losses = {id(table.weight) for table in model.tables.values()}, []
    optimizer = torch.optim.SGD([{"params": [p for p in model.parameters() if id(p) in tables], "lr": 0.5},
                                 {"params": [p for p in model.parameters() if id(p) not in tables], "lr": 0.3}])
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        loss = loss_of(model(dense[rows], {feature: of[rows] for feature, of in bags.items()}), labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    write_checkpoint(path("final.h5"), model, STEPS, options)
    with torch.no_grad():
        logits = model(dense, bags)
    with h5py.File(path("reference.h5"), "w") as h:
        h.attrs.update({"format": "trshard-run", "version": np.int64(1), "plan": "{}", "options": options})
        h["train/loss"], h["train/step"] = np.array(losses), np.arange(STEPS)
        h["predictions"] = torch.sigmoid(logits).float().numpy()
        h["eval/loss"], h["eval/step"] = [loss_of(logits, labels).item()], [STEPS]
    case = {"name": name, "note": more, "world_size": 4, "batch_size": BATCH // 4, "global_batch": BATCH, "steps": STEPS, "tol_loss": 1e-5, "tol_weight": 1e-5,
            "half": False, "column_coupled": False, "column_split": [], "dims": [D], "refused_types": ["table_row_wise", "table_column_wise", "grid_shard"],
            "info": {"versions": {"torch": str(torch.__version__), "numpy": np.__version__}, "oracle": "torch, in double"}}
    with open(path("case.json"), "w", encoding="utf-8") as out:
        json.dump(case, out, indent=1)
        out.write("\n")
    print(f"{name}: loss {losses[0]:.6f} to {losses[-1]:.6f}")


def main():
    for name in sys.argv[2:] or CASES:
        record(os.path.join(sys.argv[1], name), name, *CASES[name])


if __name__ == "__main__":
    main()
