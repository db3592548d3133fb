#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record heads.h5: 60 steps of multi-task models in torch, in double, written from the papers, and
torchrec.metrics of their tasks.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2 numpy h5py
    DIR/bin/python record_heads.py heads.h5

Each group is a case. It has its options, the dataset (train), the first and last weights by a
checkpoint's names (init, final), and the loss of each step. It also has the last weights'
predictions of each task for the whole dataset, and torchrec's metrics of these predictions. The
experts and gates are those of Ma et al. 2018 (equations 5 to 7) and Tang et al. 2020 (equations 1
to 4 and figure 5): a gate is a softmax of a linear map without bias. A NaN label has weight 0, and
each task's loss is the sum over the samples, divided by the size of the batch.
"""
import sys

import h5py
import numpy as np
import torch
import torchrec
from torch.nn import functional
from torchrec.metrics.accuracy import AccuracyMetric
from torchrec.metrics.auc import AUCMetric
from torchrec.metrics.calibration import CalibrationMetric
from torchrec.metrics.metrics_config import DefaultTaskInfo, RecComputeMode, RecTaskInfo
from torchrec.metrics.mse import MSEMetric
from torchrec.metrics.ne import NEMetric

FEATURES, DIM, DENSE, SAMPLES, BATCH, STEPS = {"user": 50, "item": 30, "tag": 20}, 8, 5, 120, 12, 60
DENSE_ARCH, OVER_ARCH, EXPERT = [16, 8], [16, 8, 1], [12, 10]
LOSS = {"click": "bce", "buy": "bce", "price": "huber", "stars": "mse", "kind": "softmax"}
CLASSES, DELTA, POS = 4, 0.7, {"click": 1.0, "buy": 2.5}
WEIGHT = {"click": 1.0, "buy": 0.5, "price": 0.25, "stars": 0.125, "kind": 2.0}
ARCH = {"buy": [6, 1]}
CASES = {"shared": (["click", "buy", "price", "stars", "kind"], "-task_heads shared", "dot"),
         "mmoe": (["click", "buy", "kind"], "-task_heads mmoe -heads_experts 3 -heads_expert_arch 12,10", "dot"),
         "ple": (["click", "price"], "-task_heads ple -heads_experts 2 -heads_task_experts 2 -heads_levels 3 -heads_expert_arch 12,10", "cat")}


def columns(task):
    return CLASSES if LOSS[task] == "softmax" else 1


class Stack(torch.nn.Module):
    """Linear layers with ReLU. If the last layer gives logits, it has no ReLU."""

    def __init__(self, name, n_in, sizes, plain):
        super().__init__()
        self.name, self.plain = name, plain
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b).double() for a, b in zip([n_in] + sizes, sizes))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if not (self.plain and i == len(self.layers) - 1):
                x = torch.relu(x)
        return x

    def tensors(self):
        return {f"dense/{self.name}/{i}/{part}": getattr(layer, part) for i, layer in enumerate(self.layers) for part in ("weight", "bias")}


class Model(torch.nn.Module):
    def __init__(self, tasks, heads, interaction):
        super().__init__()
        self.tasks, self.interaction = tasks, interaction
        words = heads.split()
        self.kind = words[1]
        number = {a: int(b) for a, b in zip(words[::2], words[1::2]) if b.isdigit()}
        self.levels = {"shared": 0, "mmoe": 1}.get(self.kind, number.get("-heads_levels"))
        self.n_shared, self.n_own = number.get("-heads_experts"), number.get("-heads_task_experts", 0)
        self.tables = torch.nn.ParameterDict({f: torch.nn.Parameter(torch.rand(rows, DIM).double() - 0.5) for f, rows in FEATURES.items()})
        self.dense = Stack("dense_arch", DENSE, DENSE_ARCH, False)
        n = len(FEATURES) + 1
        width = DIM + n * (n - 1) // 2 if interaction == "dot" else n * DIM
        self.experts, self.gates = torch.nn.ModuleDict(), torch.nn.ParameterDict()
        for level in range(self.levels):
            n_in = EXPERT[-1] if level else width
            for who, count in [("common", self.n_shared)] + [(f"tasks/{t}", self.n_own) for t in tasks]:
                for e in range(count):
                    self.experts[f"level_{level}/{who}/expert_{e}"] = Stack(f"level_{level}/{who}/expert_{e}", n_in, EXPERT, False)
            for t in tasks:
                self.gates[f"level_{level}/tasks/{t}/gate"] = torch.nn.Linear(n_in, self.n_own + self.n_shared, bias=False).double().weight
            if level < self.levels - 1:
                self.gates[f"level_{level}/common/gate"] = torch.nn.Linear(n_in, len(tasks) * self.n_own + self.n_shared, bias=False).double().weight
        self.towers = torch.nn.ModuleDict(
            {t: Stack(f"tasks/{t}", EXPERT[-1] if self.levels else width, ARCH.get(t, OVER_ARCH[:-1] + [columns(t)]), True) for t in tasks})

    def mix(self, gate, x, experts):
        return (torch.softmax(x @ self.gates[gate].T, dim=1).unsqueeze(2) * torch.stack(experts, dim=1)).sum(dim=1)

    def level(self, level, x):
        """x: the input of each task's experts and gate, and, under None, the input of the shared
        ones. Returns the same for the next level."""
        of = {t: [self.experts[f"level_{level}/tasks/{t}/expert_{e}"](x[t]) for e in range(self.n_own)] for t in self.tasks}
        shared = [self.experts[f"level_{level}/common/expert_{e}"](x[None]) for e in range(self.n_shared)]
        out = {t: self.mix(f"level_{level}/tasks/{t}/gate", x[t], of[t] + shared) for t in self.tasks}
        if level < self.levels - 1:
            out[None] = self.mix(f"level_{level}/common/gate", x[None], sum(of.values(), []) + shared)
        return out

    def forward(self, dense, bags):
        vectors = [self.dense(dense)] + [torch.stack([self.tables[f][ids].sum(dim=0) for ids in bags[f]]) for f in FEATURES]
        if self.interaction == "dot":
            v = torch.stack(vectors, dim=1)
            i, j = torch.triu_indices(len(vectors), len(vectors), 1)
            x = torch.cat([vectors[0], (v @ v.transpose(1, 2))[:, i, j]], dim=1)
        else:
            x = torch.cat(vectors, dim=1)
        now = {t: x for t in self.tasks + [None]}
        for level in range(self.levels):
            now = self.level(level, now)
        return {t: self.towers[t](now[t]) for t in self.tasks}

    def tensors(self):
        out = {f"embedding/{f}/weight": p for f, p in self.tables.items()}
        for stack in [self.dense] + list(self.experts.values()) + list(self.towers.values()):
            out.update(stack.tensors())
        out.update({f"dense/{name}/weight": p for name, p in self.gates.items()})
        return out


def task_loss(task, out, y):
    """The sum over the samples that have a label."""
    there = ~torch.isnan(y)
    out, y = out[there], y[there]
    if LOSS[task] == "bce":
        return functional.binary_cross_entropy_with_logits(out[:, 0], y, pos_weight=torch.tensor(POS[task]).double(), reduction="sum")
    if LOSS[task] == "huber":
        return functional.huber_loss(out[:, 0], y, delta=DELTA, reduction="sum")
    if LOSS[task] == "mse":
        return functional.mse_loss(out[:, 0], y, reduction="sum")
    return functional.cross_entropy(out, y.long(), reduction="sum")


def predict(task, out):
    return torch.sigmoid(out[:, 0]) if LOSS[task] == "bce" else torch.softmax(out, dim=1) if LOSS[task] == "softmax" else out[:, 0]


def make_data(tasks, rng):
    lengths = rng.integers(0, 4, (SAMPLES, len(FEATURES)))
    bags = [[rng.integers(0, rows, n) for rows, n in zip(FEATURES.values(), row)] for row in lengths]
    labels = np.empty((SAMPLES, len(tasks)), np.float32)
    for k, task in enumerate(tasks):
        labels[:, k] = {"bce": lambda: rng.integers(0, 2, SAMPLES), "softmax": lambda: rng.integers(0, CLASSES, SAMPLES),
                        "huber": lambda: 1 + 2 * rng.normal(size=SAMPLES), "mse": lambda: rng.normal(size=SAMPLES) - 1}[LOSS[task]]()
        labels[rng.random(SAMPLES) < 0.2 * (k > 0), k] = np.nan
    return lengths, bags, rng.random((SAMPLES, DENSE), np.float32), labels


def metrics(group, tasks, predictions, labels):
    """torchrec.metrics of all tasks of a kind together. A missing label has weight 0."""
    for metric, kind, name in ((NEMetric, "bce", "ne"), (AUCMetric, "bce", "auc"), (CalibrationMetric, "bce", "calibration"), (AccuracyMetric, "bce", "accuracy"),
                               (MSEMetric, "number", "mse")):
        mine = [t for t in tasks if (LOSS[t] == "bce" if kind == "bce" else LOSS[t] in ("mse", "huber"))]
        if not mine:
            continue
        infos = [RecTaskInfo(name=t, label_name=t, prediction_name=t, weight_name=t) for t in mine]
        m = metric(world_size=1, my_rank=0, batch_size=SAMPLES, tasks=infos, compute_mode=RecComputeMode.UNFUSED_TASKS_COMPUTATION, window_size=SAMPLES)
        y = {t: torch.tensor(labels[:, tasks.index(t)]).double() for t in mine}
        m.update(predictions={t: predictions[t].double() for t in mine}, labels={t: torch.nan_to_num(y[t]) for t in mine},
                 weights={t: (~torch.isnan(y[t])).double() for t in mine})
        for key, value in m.compute().items():
            if "window" in key and f"|window_{name}" in key:
                group[f"{key.split('-')[1].split('|')[0]}/{name}"] = float(value)


def record(group, tasks, heads, interaction, seed):
    torch.manual_seed(seed)
    lengths, bags, dense, labels = make_data(tasks, np.random.default_rng(seed))
    model = Model(tasks, heads, interaction)
    for name, p in model.named_parameters():
        # so that gradients reach the lowest layers
        p.data = (p.data * (2.5 if name.startswith("experts") else 1)).float().double()
    words = [f"-tasks {','.join(tasks)} {heads} -interaction {interaction} -task_kind_classes {CLASSES}" if "kind" in tasks else f"-tasks {','.join(tasks)} {heads} -interaction {interaction}"]
    for t in tasks:
        words.append(f"-task_{t}_loss {LOSS[t]} -task_{t}_weight {WEIGHT[t]}")
        words += [f"-task_{t}_pos_weight {POS[t]}"] if t in POS else [f"-task_{t}_huber_delta {DELTA}"] if LOSS[t] == "huber" else []
        words += [f"-task_{t}_arch {','.join(map(str, ARCH[t]))}"] if t in ARCH else []
    group.attrs["options"] = " ".join(words) + (f" -tables_embedding_dim {DIM} -dense_arch 16,8 -over_arch 16,8,1 -steps {STEPS} -embedding_optimizer sgd "
                                                "-embedding_learning_rate 0.1 -dense_optimizer sgd -dense_learning_rate 0.2")
    group.attrs["tasks"], group.attrs["batch"] = tasks, BATCH
    train = group.create_group("train")
    train.attrs.update(format="trshard-dataset", version=np.int64(1), num_samples=np.int64(SAMPLES))
    train["dense"], train["labels"] = dense, labels
    train["labels"].attrs["names"] = tasks
    train["sparse/lengths"] = lengths.astype(np.int32)
    train["sparse"].attrs["features"], train["sparse"].attrs["num_embeddings"] = list(FEATURES), np.array(list(FEATURES.values()), np.int64)
    train["sparse/offsets"] = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))]).astype(np.int64)
    train["sparse/values"] = np.concatenate([b for row in bags for b in row]).astype(np.int32)
    for name, p in model.tensors().items():
        group[f"init/{name}"] = p.detach().float().numpy()
    optimizer = torch.optim.SGD([{"params": list(model.tables.values()), "lr": 0.1}, {"params": [p for n, p in model.named_parameters() if not n.startswith("tables")], "lr": 0.2}])
    x, losses = torch.tensor(dense).double(), []
    ids = {f: [torch.tensor(row[k]) for row in bags] for k, f in enumerate(FEATURES)}

    def run(part):
        return model(x[part], {f: v[part] for f, v in ids.items()})

    for step in range(STEPS):
        at = step * BATCH % SAMPLES
        part = slice(at, at + BATCH)
        out = run(part)
        loss = sum(WEIGHT[t] * task_loss(t, out[t], torch.tensor(labels[part, k]).double()) for k, t in enumerate(tasks)) / BATCH
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    group["loss"] = np.array(losses)
    for name, p in model.tensors().items():
        group[f"final/{name}"] = p.detach().float().numpy()
    with torch.no_grad():
        out = run(slice(0, SAMPLES))
    predictions = {t: predict(t, out[t]) for t in tasks}
    for k, t in enumerate(tasks):
        y = torch.tensor(labels[:, k]).double()
        there = ~torch.isnan(y)
        group[f"predictions/{t}"] = predictions[t].float().numpy()
        group[f"metrics/{t}/loss"] = float(task_loss(t, out[t], y) / there.sum())
        if LOSS[t] == "softmax":
            group[f"metrics/{t}/accuracy"] = float((predictions[t].argmax(dim=1) == y)[there].double().mean())
    metrics(group["metrics"], tasks, predictions, labels)


def main():
    with h5py.File(sys.argv[1], "w", libver="latest") as file:
        file.attrs["torch"], file.attrs["torchrec"] = str(torch.__version__), str(torchrec.__version__)
        for i, (name, case) in enumerate(CASES.items()):
            record(file.create_group(name), *case, seed=5 + i)


if __name__ == "__main__":
    main()
