#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record a distributed checkpoint that TorchRec writes on 2 ranks (gloo, CPU), and TorchRec's
continuation from it.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2 numpy h5py
    DIR/bin/pip install --force-reinstall --no-deps fbgemm-gpu-cpu==1.9.0
    DIR/bin/python record_torchrec_dcp.py FOLDER

The model is a DLRM with two tables of 8 columns, each column_wise on both ranks, with row-wise
AdaGrad in the backward pass, and AdaGrad for the dense layers. After 8 steps,
torch.distributed.checkpoint writes FOLDER/dcp, as {"model": state_dict, "optimizer": state_dict}.
FOLDER/continued.h5 has 20 more batches of 12 samples (dense features, labels, and each feature's
lengths and ids, sample by sample). It also has two continuations over these batches, each with the
loss of each step before its update and the last weights:
  column_wise  TorchRec itself continues: each column shard has its own momentum
  table_wise   a new TorchRec model with whole tables, where the momentum of a row is the mean of
               its two shards
"""
import os
import socket
import sys

import h5py
import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.optim import _apply_optimizer_in_backward
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding_plan import column_wise, construct_module_sharding_plan, table_wise
from torchrec.distributed.types import ShardingPlan
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.datasets.utils import Batch
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

RANKS, GLOBAL, DIM, RATE = 2, 12, 8, 0.1
ROWS = {"t_a": 20, "t_b": 11}
FEATURES = {"t_a": "a", "t_b": "b"}
EBC = "sparse_arch.embedding_bag_collection"


def samples(steps, seed):
    """Dense features, labels, and each feature's lengths and ids, with a signal that can be
    learned."""
    rng = np.random.default_rng(seed)
    n = steps * GLOBAL
    made = {"dense": rng.random((n, 3), np.float32), "labels": np.zeros(n, np.float32)}
    logit = made["dense"][:, 0] - 0.5
    for table, rows in ROWS.items():
        lengths = rng.integers(0 if table == "t_b" else 1, 4, n)
        ids = rng.integers(0, rows, lengths.sum())
        np.add.at(logit, np.repeat(np.arange(n), lengths), np.sin(ids * 2.1).astype(np.float32))
        made[FEATURES[table] + "/lengths"], made[FEATURES[table] + "/ids"] = lengths, ids
    made["labels"][:] = rng.random(n) < 1 / (1 + np.exp(-2 * logit))
    return made


def batches(made, rank):
    """This rank's part of each global batch."""
    offsets = {f: np.concatenate([[0], np.cumsum(made[f + "/lengths"])]) for f in FEATURES.values()}
    for first in range(rank * GLOBAL // RANKS, len(made["labels"]), GLOBAL):
        last = first + GLOBAL // RANKS
        lengths = np.concatenate([made[f + "/lengths"][first:last] for f in FEATURES.values()])
        ids = np.concatenate([made[f + "/ids"][offsets[f][first]:offsets[f][last]] for f in FEATURES.values()])
        bags = KeyedJaggedTensor(list(FEATURES.values()), torch.from_numpy(ids), lengths=torch.from_numpy(lengths))
        yield Batch(torch.from_numpy(made["dense"][first:last]), bags, torch.from_numpy(made["labels"][first:last]))


def sharded(kinds):
    """A model and its optimizers, with the tables sharded by `kinds`."""
    torch.manual_seed(3)
    ebc = EmbeddingBagCollection(device=torch.device("meta"), tables=[
        EmbeddingBagConfig(name=name, embedding_dim=DIM, num_embeddings=rows, feature_names=[FEATURES[name]]) for name, rows in ROWS.items()])
    model = DLRMTrain(DLRM(ebc, 3, [6, DIM], [5, 1], dense_device=torch.device("cpu")))
    _apply_optimizer_in_backward(RowWiseAdagrad, model.model.sparse_arch.parameters(), {"lr": RATE})
    sharder = EmbeddingBagCollectionSharder()
    plan = construct_module_sharding_plan(ebc, kinds, sharder=sharder, local_size=RANKS, world_size=RANKS, device_type="cpu")
    dmp = DistributedModelParallel(model, device=torch.device("cpu"), sharders=[sharder], plan=ShardingPlan({"model." + EBC: plan}))
    dense = KeyedOptimizerWrapper(dict(in_backward_optimizer_filter(dmp.named_parameters())), lambda p: torch.optim.Adagrad(p, lr=RATE))
    return dmp, dense


def train(dmp, dense, made, rank):
    losses = []
    for batch in batches(made, rank):
        dense.zero_grad()
        loss, _ = dmp(batch)
        loss.backward()
        dense.step()
        mean = loss.detach().double() / RANKS
        dist.all_reduce(mean)
        losses.append(mean.item())
    return np.array(losses)


def states_of(dmp):
    """(table, first column, weights, momentum) of this rank's shards. TorchRec stores the momenta
    of column shards one after another."""
    found = []
    for state in dmp.fused_optimizer.state_dict()["state"].values():
        for name, value in state.items():
            table, rows = name.split(".")[0], ROWS[name.split(".")[0]]
            weights = dmp.state_dict()[f"model.{EBC}.embedding_bags.{table}.weight"].local_shards()
            momenta = {shard.metadata.shard_offsets[0] // rows: shard.tensor for shard in value.local_shards()}
            found += [(table, shard.metadata.shard_offsets[1], shard.tensor, momenta[shard.metadata.shard_offsets[1] * 2 // DIM]) for shard in weights]
    return found


def gathered(dmp):
    """Each table's weights, and each shard's momentum of a row, ordered by falling rank of the
    shard's first column."""
    found = [None] * RANKS
    dist.all_gather_object(found, [(table, column, weight.numpy().copy(), momentum.numpy().copy()) for table, column, weight, momentum in states_of(dmp)])
    every = sorted((part for parts in found for part in parts), key=lambda part: part[:2])
    return {table: (np.concatenate([part[2] for part in every if part[0] == table], axis=1),
                    np.stack([part[3] for part in every if part[0] == table], axis=1)) for table in ROWS}


def dense_of(dmp):
    return {name.removeprefix("model."): value.detach().numpy().copy() for name, value in dmp.state_dict().items() if "embedding_bags" not in name}


def go_on_table_wise(tables, dense_weights, dense_sums, made, rank):
    dmp, dense = sharded({"t_a": table_wise(rank=0), "t_b": table_wise(rank=1)})
    with torch.no_grad():
        for table, _, weight, momentum in states_of(dmp):
            weight.copy_(torch.from_numpy(tables[table][0]))
            momentum.copy_(torch.from_numpy(tables[table][1].mean(axis=1)))
        for name, value in dmp.named_parameters():
            key = name.removeprefix("_dmp_wrapped_module.").removeprefix("module.").removeprefix("model.").replace("model.module.", "").replace("module.", "")
            if "embedding_bags" not in name:
                value.copy_(torch.from_numpy(dense_weights[key]))
                dense.state[value]["sum"].copy_(torch.from_numpy(dense_sums[key]))
    for table, _, weight, momentum in states_of(dmp):
        assert np.array_equal(weight.numpy(), tables[table][0]) and np.allclose(momentum.numpy(), tables[table][1].mean(axis=1))
    return train(dmp, dense, made, rank), dmp


def save(file, name, losses, tables, dense):
    for path, numbers in [("losses", losses)] + [(table, tables[table][0]) for table in ROWS] + list(dense.items()):
        file[f"{name}/{path}"] = numbers


def work(rank, folder, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS),
                      LOCAL_WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    dmp, dense = sharded({table: column_wise(ranks=[0, 1]) for table in ROWS})
    train(dmp, dense, samples(8, 1), rank)
    optimizer = CombinedOptimizer([dmp.fused_optimizer, dense])
    dcp.save({"model": dmp.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id=os.path.join(folder, "dcp"))
    tables, dense_weights = gathered(dmp), dense_of(dmp)
    named = dict(dmp.named_parameters())
    sums = {name.removeprefix("model."): dense.state[value]["sum"].numpy().copy() for name, value in named.items() if value in dense.state}
    made = samples(20, 2)
    losses = train(dmp, dense, made, rank)
    ends = gathered(dmp), dense_of(dmp)
    other, dmp_other = go_on_table_wise(tables, dense_weights, sums, made, rank)
    other_ends = gathered(dmp_other), dense_of(dmp_other)
    if rank == 0:
        with h5py.File(os.path.join(folder, "continued.h5"), "w") as file:
            file.attrs.update(torch=str(torch.__version__), torchrec="1.9.2", global_batch=GLOBAL, learning_rate=RATE)
            for name, numbers in made.items():
                file["data/" + name] = numbers.astype(np.int8) if numbers.dtype == np.int64 else numbers
            save(file, "column_wise", losses, *ends)
            save(file, "table_wise", other, *other_ends)
        print("greatest difference of the continuations' losses:", np.abs(losses - other).max(), "; losses", losses[0], "to", losses[-1])
    dist.barrier()


def main():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.makedirs(sys.argv[1], exist_ok=True)
    torch.multiprocessing.spawn(work, (os.path.abspath(sys.argv[1]), port), nprocs=RANKS)


if __name__ == "__main__":
    main()
