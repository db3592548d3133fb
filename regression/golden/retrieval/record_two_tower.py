#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record two_tower.h5: 40 steps of two towers in torch, in double, with each loss of pairs, the
last weights' embeddings, and Recall@K by brute force in numpy.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 numpy h5py
    DIR/bin/python record_two_tower.py two_tower.h5

Each group is a case. It has its options, the dataset (train), the first and last weights by a
checkpoint's names (init, final), and the loss of each step. It also has the last weights'
embeddings of both sides of each sample (query, candidate), and recall, [K]. The towers are
torch.nn.Linear with ReLU between. The loss of a query is torch.nn.functional.cross_entropy of its
row of scores, in which accidental hits are -inf, times label and weight. The loss of a step is the
sum over the samples, divided by the sum of the samples' weights.
"""
import sys

import h5py
import numpy as np
import torch
from torch.nn import functional

FEATURES, DIM, DENSE, SAMPLES, BATCH, STEPS = {"user": 50, "item": 14, "tag": 20, "genre": 6}, 8, 5, 120, 12, 40
DENSE_ARCH, ARCHS, SIDES = [16, 8], {"query": [16, 6], "candidate": [12, 10, 6]}, {"query": ["user", "tag"], "candidate": ["item", "genre"]}
RECALL = [1, 3, 10]
CASES = {"bce": {"loss": "bce", "normalize": False, "weights": False},
         "softmax": {"loss": "in_batch_softmax", "normalize": False, "temperature": 1.5, "weights": True},
         "cosine": {"loss": "in_batch_softmax", "normalize": True, "temperature": 0.2, "weights": False},
         "logq": {"loss": "in_batch_softmax", "normalize": True, "temperature": 0.5, "weights": False, "rate": 0.2},
         "sampled": {"loss": "sampled_softmax", "normalize": False, "temperature": 1.0, "weights": False, "rate": 0.1, "negatives": 5}}
SEED, NEGATIVES = 11, 7  # of the runs; the purpose of these random numbers (src/core/random/random.h)


class Model(torch.nn.Module):
    def __init__(self, normalize):
        super().__init__()
        self.normalize = normalize
        self.tables = torch.nn.ParameterDict({f: torch.nn.Parameter(torch.rand(rows, DIM).double() - 0.5) for f, rows in FEATURES.items()})
        sizes = {"dense_arch": [DENSE] + DENSE_ARCH, "query_tower": [3 * DIM] + ARCHS["query"], "candidate_tower": [2 * DIM] + ARCHS["candidate"]}
        self.stacks = torch.nn.ModuleDict({name: torch.nn.ModuleList(torch.nn.Linear(a, b).double() for a, b in zip(n, n[1:])) for name, n in sizes.items()})

    def run(self, name, x):
        for i, layer in enumerate(self.stacks[name]):
            x = layer(x)
            if name == "dense_arch" or i < len(self.stacks[name]) - 1:
                x = torch.relu(x)
        return x

    def forward(self, dense, bags):
        vector = {f: torch.stack([self.tables[f][ids].sum(dim=0) for ids in bags[f]]) for f in FEATURES}
        out = [self.run("query_tower", torch.cat([self.run("dense_arch", dense)] + [vector[f] for f in SIDES["query"]], dim=1)),
               self.run("candidate_tower", torch.cat([vector[f] for f in SIDES["candidate"]], dim=1))]
        return [functional.normalize(x, dim=1) for x in out] if self.normalize else out

    def tensors(self):
        out = {f"embedding/{f}/weight": p for f, p in self.tables.items()}
        for name, stack in self.stacks.items():
            out.update({f"dense/{name}/{i}/{part}": getattr(layer, part) for i, layer in enumerate(stack) for part in ("weight", "bias")})
        return out


def philox(key, a, b):
    """Philox4x32-10 of Salmon et al. 2011: the first two of its four numbers, in this order from
    the high bits."""
    c, k, low = [b & 0xFFFFFFFF, b >> 32, a & 0xFFFFFFFF, a >> 32], [key & 0xFFFFFFFF, key >> 32], 0xFFFFFFFF
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & low, (p >> 32) ^ c[3] ^ k[1], p & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c[0] << 32 | c[1]


def key_of(seed, purpose):
    """splitmix64's finaliser of seed and purpose."""
    all64 = (1 << 64) - 1
    z = (seed + 0x9E3779B97F4A7C15 * purpose) & all64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & all64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & all64
    return z ^ (z >> 31)


def draw(case, step):
    """The samples whose candidates are negatives in a step: those with the smallest random
    numbers."""
    numbers = [philox(key_of(SEED, NEGATIVES), step, i) for i in range(BATCH)]
    return torch.tensor(np.isin(np.arange(BATCH), np.argsort(numbers)[:case.get("negatives", BATCH)]))


def step_loss(case, query, candidate, ids, y, w, step, frequency):
    """The sum of the weighted losses, divided by the sum of the weights. The ids' frequencies, a
    running mean, are updated first."""
    if case["loss"] == "bce":
        return (w * functional.binary_cross_entropy_with_logits((query * candidate).sum(dim=1), y, reduction="none")).sum() / w.sum()
    scores = query @ candidate.T / case["temperature"]
    hits = (ids[:, None] == ids[None, :]) & (ids[:, None] >= 0) & ~torch.eye(len(ids), dtype=bool)
    if "rate" in case:
        once = case["rate"] / len(ids)
        frequency *= 1 - case["rate"]
        for i in ids:
            if i >= 0:
                frequency[i] += once
        scores = scores - torch.log(torch.where(ids >= 0, frequency[ids.clamp(min=0)], once))
    own = torch.eye(len(ids), dtype=bool)
    scores = scores.masked_fill(hits | (~draw(case, step)[None, :] & ~own), -torch.inf)
    return (w * y * functional.cross_entropy(scores, torch.arange(len(ids)), reduction="none")).sum() / w.sum()


def recall(query, candidate, ids, y, w):
    """Queries are the samples with a label above 0, weighted. Candidates are distinct ids, each
    with the embedding of its first sample."""
    _, first = np.unique(ids, return_index=True)
    first = first[ids[first] >= 0]
    hits = np.zeros((len(RECALL),))
    total = 0.0
    for q in range(len(ids)):
        if ids[q] < 0 or y[q] * w[q] == 0:
            continue
        scores = candidate[first] @ query[q]
        place = int((scores > scores[ids[first] == ids[q]][0]).sum())
        hits += y[q] * w[q] * (place < np.array(RECALL))
        total += y[q] * w[q]
    return hits / total


def make_data(rng):
    lengths = rng.integers(0, 4, (SAMPLES, len(FEATURES)))
    lengths[:, 1] = rng.random(SAMPLES) < 0.95  # an item, except for a few samples without one
    bags = [[rng.integers(0, rows, n) for rows, n in zip(FEATURES.values(), row)] for row in lengths]
    return lengths, bags, rng.random((SAMPLES, DENSE), np.float32), (rng.random(SAMPLES) < 0.8).astype(np.float32), rng.integers(0, 3, SAMPLES).astype(np.float32)


def write_train(train, data, weighted):
    lengths, bags, dense, labels, weights = data
    train.attrs.update(format="trshard-dataset", version=np.int64(1), num_samples=np.int64(SAMPLES))
    train["dense"], train["labels"] = dense, labels
    if weighted:
        train["weights"] = weights
    train["sparse/lengths"] = lengths.astype(np.int32)
    train["sparse"].attrs["features"], train["sparse"].attrs["num_embeddings"] = list(FEATURES), np.array(list(FEATURES.values()), np.int64)
    train["sparse/offsets"] = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))]).astype(np.int64)
    train["sparse/values"] = np.concatenate([b for row in bags for b in row]).astype(np.int32)


def options(case):
    words = [f"-interaction two_tower -query_features {','.join(SIDES['query'])} -candidate_features {','.join(SIDES['candidate'])} -query_arch 16,6 -candidate_arch 12,10,6",
             f"-loss {case['loss']} -tables_embedding_dim {DIM} -dense_arch 16,8 -steps {STEPS}",
             "-embedding_optimizer sgd -embedding_learning_rate 0.1 -dense_optimizer sgd -dense_learning_rate 0.2"]
    words += ["-tower_normalize"] * case["normalize"] + ([f"-softmax_temperature {case['temperature']}"] if "temperature" in case else [])
    words += [f"-softmax_logq streaming -softmax_logq_rate {case['rate']}"] if "rate" in case else []
    words += [f"-softmax_negatives {case['negatives']} -seed {SEED}"] if "negatives" in case else []
    return " ".join(words)


def record(group, case, seed):
    torch.manual_seed(seed)
    data = make_data(np.random.default_rng(seed))
    _, bags, dense, labels, weights = data
    model = Model(case["normalize"])
    for p in model.parameters():
        p.data = p.data.float().double()
    group.attrs["options"], group.attrs["batch"] = options(case), BATCH
    write_train(group.create_group("train"), data, case["weights"])
    for name, p in model.tensors().items():
        group[f"init/{name}"] = p.detach().float().numpy()
    optimizer = torch.optim.SGD([{"params": list(model.tables.values()), "lr": 0.1}, {"params": list(model.stacks.parameters()), "lr": 0.2}])
    x, y, losses = torch.tensor(dense).double(), torch.tensor(labels).double(), []
    w = torch.tensor(weights).double() if case["weights"] else torch.ones(SAMPLES).double()
    ids = {f: [torch.tensor(row[k]) for row in bags] for k, f in enumerate(FEATURES)}
    items = torch.tensor([row[1][0] if len(row[1]) else -1 for row in bags])
    frequency = torch.zeros(FEATURES["item"]).double()
    for step in range(STEPS):
        at = step * BATCH % SAMPLES
        part = slice(at, at + BATCH)
        query, candidate = model(x[part], {f: v[part] for f, v in ids.items()})
        loss = step_loss(case, query, candidate, items[part], y[part], w[part], step, frequency)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    group["loss"] = np.array(losses)
    for name, p in model.tensors().items():
        group[f"final/{name}"] = p.detach().float().numpy()
    with torch.no_grad():
        query, candidate = (out.numpy() for out in model(x, ids))
    group["query"], group["candidate"] = query.astype(np.float32), candidate.astype(np.float32)
    group["recall_at"], group["recall"] = RECALL, recall(query, candidate, items.numpy(), y.numpy(), w.numpy())


def main():
    with h5py.File(sys.argv[1], "w", libver="latest") as file:
        file.attrs["torch"] = str(torch.__version__)
        for i, (name, case) in enumerate(CASES.items()):
            record(file.create_group(name), case, seed=7 + i)


if __name__ == "__main__":
    main()
