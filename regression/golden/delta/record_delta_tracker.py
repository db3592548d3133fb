#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record delta_tracker.json: the rows that TorchRec's ModelDeltaTracker (ID_ONLY) reports every few
steps of a training, and the ids of its batches.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2
    DIR/bin/pip install --force-reinstall --no-deps fbgemm-gpu-cpu==1.9.0
    DIR/bin/python record_delta_tracker.py delta_tracker.json

The model is one sharded EmbeddingBagCollection on one rank (gloo, CPU). Each looked-up row gets a
gradient, and is updated. The law case/delta_tracker makes a dataset of the ids.
"""
import json
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
import torchrec
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.model_tracker.types import DeltaTrackerConfig, TrackingMode

BATCH, STEPS, EVERY, D = 6, 20, 4, 8
ROWS = {"user": 300, "item": 90, "shop": 90, "tag": 40}  # by feature; item and shop share a table
TABLES = {"user": ["user"], "item": ["item", "shop"], "tag": ["tag"]}


class Model(torch.nn.Module):
    """With a dense layer, because the tracker expects a model in DistributedDataParallel."""

    def __init__(self, tables):
        super().__init__()
        self.tables, self.dense = tables, torch.nn.Linear(D * len(ROWS), 1)

    def forward(self, batch):
        return self.dense(self.tables(batch).wait().values()).sum()


def batch_of(values, step):
    samples = values[step * BATCH:(step + 1) * BATCH]
    bags = [sample[f] for f in range(len(ROWS)) for sample in samples]
    return KeyedJaggedTensor(keys=list(ROWS), values=torch.tensor(np.concatenate(bags).astype(np.int64)), lengths=torch.tensor([len(bag) for bag in bags]))


def main():
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29541")
    dist.init_process_group("gloo")
    rng = np.random.default_rng(23)
    lengths = rng.integers(0, 3, (BATCH * STEPS, len(ROWS))).astype(np.int32)
    # ids drift over time, so that deltas differ
    values = [[(rng.integers(0, rows // 3, n) + step // BATCH * 4) % rows for rows, n in zip(ROWS.values(), row)] for step, row in enumerate(lengths)]
    tables = EmbeddingBagCollection(device=torch.device("meta"), tables=[EmbeddingBagConfig(
        name=f"t_{name}", embedding_dim=D, num_embeddings=ROWS[name], feature_names=features) for name, features in TABLES.items()])
    apply_optimizer_in_backward(torch.optim.SGD, tables.parameters(), {"lr": 0.1})
    model = DistributedModelParallel(Model(tables), device=torch.device("cpu"), sharders=[EmbeddingBagCollectionSharder()])
    tracker = model.init_torchrec_delta_tracker(DeltaTrackerConfig(tracking_mode=TrackingMode.ID_ONLY))
    deltas = {}
    for step in range(STEPS):
        model(batch_of(values, step)).backward()
        if (step + 1) % EVERY == 0:
            deltas[step + 1] = {name.rpartition(".")[2].removeprefix("t_"): sorted(ids.tolist()) for name, ids in tracker.get_unique_ids().items()}
    recorded = {"torch": str(torch.__version__), "torchrec": torchrec.__version__, "batch": BATCH, "every": EVERY, "rows": ROWS, "tables": TABLES,
                "ids": [[bag.tolist() for bag in sample] for sample in values], "deltas": deltas}
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write("{\n" + ",\n".join(f' "{name}": {json.dumps(value)}' for name, value in recorded.items()) + "\n}\n")



if __name__ == "__main__":
    main()
