#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A PyTorch model on libtrshard's tables. On any number of ranks it has the same losses, up to rounding.

    mpirun -n 2 python3 train_torch.py [--steps 200] [--ddp]

The data is synthetic: user u likes item i if u + i is even. Every rank takes its part of each global batch of 240 samples.
--ddp wraps the dense layers in torch.nn.parallel.DistributedDataParallel, which needs torch.distributed. Without --ddp,
trshard.torch.Parallel sums their gradients.
"""
import argparse
import os

import numpy as np
import torch

import trshard
import trshard.torch

USERS, ITEMS, DIM, GLOBAL_BATCH = 1000, 500, 16, 240


def make_batch(step, begin, end):
    """The ids and labels of the samples begin to end - 1 of a step: the same on any number of ranks."""
    random = np.random.default_rng(step)
    users, items = random.integers(0, USERS, GLOBAL_BATCH), random.integers(0, ITEMS, GLOBAL_BATCH)
    labels = torch.from_numpy(((users + items + 1) % 2).astype(np.float32))
    return np.concatenate([users[begin:end], items[begin:end]]), labels[begin:end]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ddp", action="store_true")
    args = parser.parse_args()
    tables = [trshard.EmbeddingBagConfig("user", USERS, DIM), trshard.EmbeddingBagConfig("item", ITEMS, DIM)]
    options = "-embedding_optimizer adagrad -embedding_learning_rate 0.3 -tables_init_fn normal -tables_init_std 0.3 -seed 1"
    torch.manual_seed(1)
    with trshard.EmbeddingBagCollection(tables, GLOBAL_BATCH, options) as ebc:
        embeddings = trshard.torch.Module(ebc)
        rank, size = embeddings.ranks.rank, embeddings.ranks.size
        model = torch.nn.Sequential(torch.nn.Linear(3 * DIM, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        if args.ddp:
            os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
            os.environ.setdefault("MASTER_PORT", "29518")
            torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
            model = torch.nn.parallel.DistributedDataParallel(model)
        parallel = trshard.torch.Parallel(model, embeddings)
        optimizer = torch.optim.Adagrad(parallel.parameters(), lr=0.02)
        loss_of = torch.nn.BCEWithLogitsLoss(reduction="none")  # a loss for each sample
        begin, end = GLOBAL_BATCH * rank // size, GLOBAL_BATCH * (rank + 1) // size
        for step in range(args.steps):
            ids, labels = make_batch(step, begin, end)
            optimizer.zero_grad()
            user, item = embeddings(np.ones((2, end - begin), np.int32), ids).split(DIM, dim=1)
            logits = model(torch.cat([user * item, user, item], 1)).squeeze(1)
            loss = parallel.backward(loss_of(logits, labels))  # the mean over all ranks' samples
            optimizer.step()
            if rank == 0 and (step + 1) % 20 == 0:
                print(f"step {step + 1} loss {loss:.5f}", flush=True)
        ebc.save("train_torch.h5")
    if args.ddp:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
