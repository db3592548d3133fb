#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record trainings with copies of the tables (src/RULES.md, section 21) by torch: train.h5, init.h5
and reference.h5.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 numpy h5py
    DIR/bin/python record_replicas.py FOLDER

TorchRec's DMPCollection refuses CPUs, so torch.nn.EmbeddingBag collections replace it: R
collections beside one dense model. Like a replica in TorchRec, each collection has its part of the
batch and this part's mean loss. The dense model has the mean loss of the batch. Every k steps, and
at the end, the collections' weights and states become their means. Initial weights are floats, and
torch computes in double. Both optimizers are torch's.
"""
import copy
import os
import sys

import h5py
import numpy as np
import torch

SAMPLES, BATCH, STEPS, NUM_DENSE, D = 120, 12, 10, 4, 8
ROWS = {"user": 30, "item": 17}
CASES = [(2, 1), (2, 3), (3, 4), (4, 100)]  # copies, steps between averages


class Dense(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Sequential(torch.nn.Linear(NUM_DENSE, 8), torch.nn.ReLU(), torch.nn.Linear(8, D), torch.nn.ReLU())
        self.over = torch.nn.Sequential(torch.nn.Linear(3 * D, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

    def forward(self, dense, vectors):
        return self.over(torch.cat([self.dense(dense)] + vectors, 1))[:, 0]


def tensors(tables, model, states):
    found = {f"embedding/{name}/weight": table.weight for name, table in tables.items()}
    found.update({f"embedding/{name}/momentum1": state for name, state in states.items()})
    for stack, module in (("dense_arch", model.dense), ("over_arch", model.over)):
        for i, linear in enumerate(module[::2]):
            found[f"dense/{stack}/{i}/weight"], found[f"dense/{stack}/{i}/bias"] = linear.weight, linear.bias
    return {name: weight.detach().float().numpy() for name, weight in found.items()}


def write_dataset(path, dense, labels, bags):
    lengths = np.stack([[len(bag) for bag in bags[name]] for name in ROWS], 1).astype(np.int32)
    with h5py.File(path, "w") as h:
        h.attrs.update({"format": "trshard-dataset", "version": np.int64(1), "num_samples": np.int64(SAMPLES)})
        h["dense"], h["labels"] = dense, labels
        sparse = h.create_group("sparse")
        sparse.attrs["features"], sparse.attrs["num_embeddings"] = list(ROWS), np.array(list(ROWS.values()), np.int64)
        sparse["lengths"], sparse["offsets"] = lengths, np.concatenate([[0], np.cumsum(lengths.sum(1))]).astype(np.int64)
        sparse["values"] = np.concatenate([bags[name][b] for b in range(SAMPLES) for name in ROWS]).astype(np.int64)


def average(copies, optimizers):
    for name in ROWS:
        weights = [tables[name].weight for tables in copies]
        states = [optimizer.state[weight]["sum"] for optimizer, weight in zip(optimizers, weights)]
        for of in (weights, states):
            mean = torch.stack([one.detach() for one in of]).mean(0)
            for one in of:
                one.data.copy_(mean)


def train(start, model, n_copies, every, dense, labels, bags):
    model, part = copy.deepcopy(model), BATCH // n_copies
    copies = [copy.deepcopy(start) for _ in range(n_copies)]
    optimizers = [torch.optim.Adagrad(tables.parameters(), lr=0.1, eps=0.01) for tables in copies]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    loss_of, losses = torch.nn.BCEWithLogitsLoss(), []
    for step in range(STEPS):
        parts = []
        for r, tables in enumerate(copies):
            rows = range(step * BATCH + r * part, step * BATCH + (r + 1) * part)
            vectors = []
            for name in ROWS:
                of = [bags[name][b] for b in rows]
                offsets = torch.tensor(np.concatenate([[0], np.cumsum([len(bag) for bag in of])[:-1]]), dtype=torch.int64)
                vectors.append(tables[name](torch.cat(of), offsets))
            parts.append(loss_of(model(dense[rows.start:rows.stop], vectors), labels[rows.start:rows.stop]))
        for one in optimizers + [optimizer]:
            one.zero_grad()
        sum(parts).backward()
        for parameter in model.parameters():  # the mean over the ranks
            parameter.grad /= n_copies
        for one in optimizers + [optimizer]:
            one.step()
        losses.append(sum(parts).item() / n_copies)
        if (step + 1) % every == 0:
            average(copies, optimizers)
    average(copies, optimizers)
    return losses, tensors(copies[0], model, {name: optimizers[0].state[copies[0][name].weight]["sum"] for name in ROWS})


def main():
    torch.manual_seed(17)
    rng = np.random.default_rng(17)
    path = lambda file: os.path.join(sys.argv[1], file)
    dense, labels = rng.random((SAMPLES, NUM_DENSE), np.float32), rng.integers(0, 2, SAMPLES).astype(np.float32)
    bags = {name: [rng.integers(0, ROWS[name], rng.integers(0, 4)) for _ in range(SAMPLES)] for name in ROWS}
    write_dataset(path("train.h5"), dense, labels, bags)
    tables = torch.nn.ModuleDict({name: torch.nn.EmbeddingBag(ROWS[name], D, mode="sum") for name in ROWS})
    for table in tables.values():
        torch.nn.init.uniform_(table.weight, -0.5, 0.5)
    model = Dense()
    with h5py.File(path("init.h5"), "w") as h:
        h.attrs.update({"format": "trshard-checkpoint", "version": np.int64(1), "step": np.int64(0), "samples_seen": np.int64(0), "options": "", "plan": "{}"})
        for name, tensor in tensors(tables, model, {}).items():
            h[name] = tensor
    tables.double(), model.double()
    dense, labels = torch.tensor(dense).double(), torch.tensor(labels).double()
    bags = {name: [torch.tensor(bag) for bag in of] for name, of in bags.items()}
    with h5py.File(path("reference.h5"), "w") as h:
        h.attrs["torch"] = str(torch.__version__)
        for n_copies, every in CASES:
            losses, found = train(tables, model, n_copies, every, dense, labels, bags)
            group = h.create_group(f"copies{n_copies}_every{every}")
            group.attrs["copies"], group.attrs["every"], group["loss"] = n_copies, every, np.array(losses)
            for name, tensor in found.items():
                group[name] = tensor
            print(f"{group.name}: loss {losses[0]:.6f} to {losses[-1]:.6f}")


if __name__ == "__main__":
    main()
