#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A DLRM of TorchRec that trains with trshard's tables. Three lines differ from the program for TorchRec alone. Each of them has
TorchRec's line behind it.

    mpirun -n 2 python3 migrate_torchrec.py [STEPS]

It needs torchrec and fbgemm_gpu. The data is synthetic. Every rank takes its part of each global batch of 120 samples, so the losses
are the same on any number of ranks, and those of TorchRec.
"""
import os
import sys

import numpy as np
import torch
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.models.dlrm import DLRM
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection as TorchRecCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

import trshard.torch

ROWS, DIM, NUM_DENSE, GLOBAL_BATCH = {"user": 1000, "item": 800, "tag": 2000}, 16, 4, 120


@torch.no_grad()
def first_values(weight):
    weight.copy_(torch.cos(torch.arange(weight.numel(), dtype=torch.float32)).view_as(weight) / 4)


def make_batch(step, rank, size):
    """This rank's samples of a step: dense features, ids and labels."""
    random = np.random.default_rng(step)
    dense = random.normal(size=(GLOBAL_BATCH, NUM_DENSE)).astype(np.float32)
    ids = np.stack([random.integers(0, rows, GLOBAL_BATCH) for rows in ROWS.values()])
    labels = ((ids[0] + ids[1]) % 2 == 0).astype(np.float32)
    mine = slice(GLOBAL_BATCH * rank // size, GLOBAL_BATCH * (rank + 1) // size)
    ids = torch.from_numpy(ids[:, mine].copy())
    features = KeyedJaggedTensor.from_lengths_sync(list(ROWS), ids.view(-1), torch.ones(ids.numel(), dtype=torch.int32))
    return torch.from_numpy(dense[mine]), features, torch.from_numpy(labels[mine])


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for name, mpi in (("RANK", "OMPI_COMM_WORLD_RANK"), ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"), ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")):
        os.environ.setdefault(name, os.environ.get(mpi, "1" if name == "WORLD_SIZE" else "0"))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29519")
    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(1)
    configs = [EmbeddingBagConfig(name=name, embedding_dim=DIM, num_embeddings=rows, feature_names=[name], init_fn=first_values) for name, rows in ROWS.items()]
    tables = trshard.torch.EmbeddingBagCollection(tables=configs)  # TorchRec: tables = TorchRecCollection(tables=configs, device=torch.device("meta"))
    model = DLRM(tables, dense_in_features=NUM_DENSE, dense_arch_layer_sizes=[32, DIM], over_arch_layer_sizes=[32, 1])
    apply_optimizer_in_backward(torch.optim.Adagrad, model.sparse_arch.parameters(), {"lr": 0.1, "eps": 1e-8})
    parallel = trshard.torch.Parallel(model, tables)  # TorchRec: model = DistributedModelParallel(model, device=torch.device("cpu"))
    optimizer = KeyedOptimizerWrapper(dict(in_backward_optimizer_filter(model.named_parameters())), lambda p: torch.optim.Adagrad(p, lr=0.02))
    for step in range(steps):
        dense, features, labels = make_batch(step, rank, size)
        optimizer.zero_grad()
        losses = torch.nn.functional.binary_cross_entropy_with_logits(model(dense, features).squeeze(1), labels, reduction="none")
        parallel.backward(losses)  # TorchRec: losses.mean().backward()
        optimizer.step()
        mean = losses.detach().mean()
        torch.distributed.all_reduce(mean)
        if rank == 0 and (step + 1) % 20 == 0:
            print(f"step {step + 1} loss {mean / size:.6f}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
