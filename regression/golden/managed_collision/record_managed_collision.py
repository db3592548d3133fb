#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record trainings of TorchRec's sharded managed collision: train.h5, init.h5 and reference.h5.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2 numpy h5py
    DIR/bin/pip install --force-reinstall --no-deps fbgemm-gpu-cpu==1.9.0
    DIR/bin/python record_managed_collision.py FOLDER

The model is a ShardedManagedCollisionEmbeddingBagCollection of one table with two features, and an
over arch of two layers on the pooled rows. One or two gloo processes train the model on the CPU, in
float. Each process has a row_wise shard of the table, with its own map from ids to rows. An id
belongs to the shard id // (IDS / shards). Rows begin with the constant INIT, also after an
eviction.

TorchRec resets an evicted row in two steps. First, FBGEMM sets the weights and the state to zero,
but only with row-wise AdaGrad. This step has no CPU kernel, so reset_on_cpu() replaces it. Then
TorchRec writes the initial weights. With other optimizers, the first step does nothing. So the
trainings with adagrad and sgd use an unchanged TorchRec, in which states stay with their rows.

The plan must name the kernel `fused`. By default it is `dense`, whose module cannot reset rows.
Without reset_on_cpu(), one rank fails at its first eviction, and the other waits for it in an
exchange.

reference.h5 has a group for each case, OPTIMIZER_POLICY_SHARDS. AT has the numbers of steps after
which the tensors were recorded:

  loss      [STEPS] the loss of each step before its update
  weight    [AT, ROWS, DIM] the table
  momentum1 [AT, ROWS] for rowwise_adagrad, [AT, ROWS, DIM] for adagrad
  row       [AT, IDS] the row of each id; an id that has none uses the last row of its shard
  given     [AT] how many rows were given to ids in evictions, so far
  over_arch/LAYER/weight, over_arch/LAYER/bias [AT, ...] the layers of the over arch
"""
import copy
import functools
import os
import sys
import tempfile

import fbgemm_gpu
import h5py
import numpy as np
import torch
import torch.distributed as dist
import torchrec
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.mc_embeddingbag import ManagedCollisionEmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
from torchrec.distributed.types import ShardingEnv
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import DistanceLFU_EvictionPolicy, LFU_EvictionPolicy, LRU_EvictionPolicy, ManagedCollisionCollection, MCHManagedCollisionModule

ROWS, DIM, IDS, BATCH, STEPS, AT, INTERVAL, INIT = 40, 4, 300, 16, 60, (20, 40, 60), 3, 0.01
EPS, DENSE_RATE, EXPONENT = 1e-3, 0.3, 0.7
FEATURES = ("seen", "bought")
POLICIES = {"lfu": LFU_EvictionPolicy, "lru": lambda: LRU_EvictionPolicy(EXPONENT), "distance_lfu": lambda: DistanceLFU_EvictionPolicy(EXPONENT)}
# name: (FBGEMM's name, learning rate)
OPTIMIZERS = {"rowwise_adagrad": (EmbOptimType.EXACT_ROWWISE_ADAGRAD, 0.1), "adagrad": (EmbOptimType.EXACT_ADAGRAD, 0.1), "sgd": (EmbOptimType.EXACT_SGD, 2.0)}
CASES = [("rowwise_adagrad", policy, shards) for policy in POLICIES for shards in (1, 2)] + [("adagrad", "lfu", 1), ("adagrad", "distance_lfu", 2), ("sgd", "lru", 2)]
VERSION = ("v110", "v110")  # of the HDF5 files: the newest that HDF5 1.10 reads


def make_data():
    """Labels, lengths [samples, features], and ids that drift. The first batch is small, so that the
    history of later intervals is full before an eviction."""
    rng = np.random.default_rng(23)
    n = STEPS * BATCH
    lengths = np.stack([rng.integers(1, 3, n), rng.integers(0, 5, n)], 1).astype(np.int32)
    lengths[:BATCH] = (1, 1)
    ids = (rng.zipf(1.2, lengths.sum()) + np.repeat(np.arange(n) * 6 // BATCH, lengths.sum(1))) * 7 % IDS
    labels = (rng.random(n) < 0.5 + 0.4 * np.sin(np.add.reduceat(ids, np.cumsum(lengths.sum(1)) - lengths.sum(1)))).astype(np.float32)
    return labels, lengths, ids


def layers(over):
    """The parameters by their names in trshard."""
    return {f"over_arch/{i}/{name}": parameter.detach().numpy().copy() for i, linear in enumerate(over[::2]) for name, parameter in linear.named_parameters()}


def write_inputs(folder, labels, lengths, ids, over):
    with h5py.File(os.path.join(folder, "train.h5"), "w", libver=VERSION) as h:
        h.attrs.update({"format": "trshard-dataset", "version": np.int64(1), "num_samples": np.int64(len(labels))})
        h["labels"] = labels
        sparse = h.create_group("sparse")
        sparse.attrs["features"], sparse.attrs["num_embeddings"] = list(FEATURES), np.zeros(len(FEATURES), np.int64)
        for name, values in (("lengths", lengths), ("values", ids.astype(np.int32)), ("offsets", np.concatenate([[0], np.cumsum(lengths.sum(1))]).astype(np.int64))):
            sparse.create_dataset(name, data=values, compression="gzip", shuffle=True)
    with h5py.File(os.path.join(folder, "init.h5"), "w", libver=VERSION) as h:
        h.attrs.update({"format": "trshard-checkpoint", "version": np.int64(1), "step": np.int64(0), "samples_seen": np.int64(0), "options": "", "plan": "{}"})
        for name, parameter in layers(over).items():
            h[f"dense/{name}"] = parameter


def reset_on_cpu(tbe, pruned_indices, pruned_indices_offsets, logical_table_ids, buffer_ids):
    """SplitTableBatchedEmbeddingBagsCodegen.reset_embedding_weight_momentum for one table with
    row-wise AdaGrad, as its CUDA kernel does it."""
    tbe.split_embedding_weights()[0][pruned_indices] = 0
    tbe.split_optimizer_states()[0][0][pruned_indices] = 0


def collection(optimizer, policy, shards):
    """The sharded module of this rank."""
    cpu = torch.device("cpu")
    table = EmbeddingBagConfig(name="t", embedding_dim=DIM, num_embeddings=ROWS, feature_names=list(FEATURES), init_fn=functools.partial(torch.nn.init.constant_, val=INIT))
    ebc = EmbeddingBagCollection(tables=[table], device=cpu)
    ids = MCHManagedCollisionModule(zch_size=ROWS, device=cpu, eviction_policy=POLICIES[policy](), eviction_interval=INTERVAL, input_hash_size=IDS)
    module = ManagedCollisionEmbeddingBagCollection(ebc, ManagedCollisionCollection({"t": ids}, ebc.embedding_bag_configs()))
    fused = dict(zip(("optimizer", "learning_rate"), OPTIMIZERS[optimizer]), eps=EPS)
    sharder = ManagedCollisionEmbeddingBagCollectionSharder(EmbeddingBagCollectionSharder(fused_params=fused))
    plan = construct_module_sharding_plan(module, {"t": row_wise(compute_kernel="fused")}, sharder=sharder, local_size=shards, world_size=shards, device_type="cpu")
    return sharder.shard(module, plan, ShardingEnv.from_process_group(dist.group.WORLD), cpu).train()


class Recorder:
    """The tensors of a case, gathered from its ranks after some of the steps."""

    def __init__(self, sharded):
        self.tbe, self.found, self.given = sharded._table_to_tbe_and_index["t"][0], [], 0
        self.ids = sharded._managed_collision_collection._managed_collision_modules["t"]
        evict = sharded._evict

        def count(rows_of_table):
            self.given += 0 if rows_of_table["t"] is None else len(rows_of_table["t"])
            evict(rows_of_table)

        sharded._evict = count

    def rows(self):
        """[IDS] the row of each id on this rank's shard, -1 for ids of other shards."""
        block, rank, held = IDS // dist.get_world_size(), dist.get_rank(), self.ids._mch_sorted_raw_ids.tolist()
        rows = np.full(IDS, -1, np.int16)
        rows[rank * block:(rank + 1) * block] = self.ids._output_global_offset + self.ids._zch_size - 1
        for raw, slot in zip(held, self.ids._mch_remapped_ids_mapping.tolist()):
            if raw < IDS:
                rows[raw] = slot
        return rows

    def record(self, over):
        tensors = {"weight": self.tbe.split_embedding_weights()[0].detach().numpy().copy(), "row": self.rows(), "given": np.array(self.given)}
        if self.tbe.optimizer != EmbOptimType.EXACT_SGD:
            tensors["momentum1"] = self.tbe.split_optimizer_states()[0][0].detach().numpy().copy()
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, tensors)
        join = {"row": lambda parts: np.max(parts, 0), "given": sum}
        joined = {name: join.get(name, np.concatenate)([part[name] for part in every]) for name in tensors}
        self.found.append({**joined, **layers(over)})


def train(rank, case, data, over, path):
    optimizer, policy, shards = case
    torch.set_num_threads(1)
    over = copy.deepcopy(over)  # spawn() shares its tensors among all ranks and cases
    dist.init_process_group("gloo", init_method=f"file://{path}.group", rank=rank, world_size=shards)
    if optimizer == "rowwise_adagrad":
        SplitTableBatchedEmbeddingBagsCodegen.reset_embedding_weight_momentum = reset_on_cpu
    labels, lengths, ids = data
    offsets = np.concatenate([[0], np.cumsum(lengths)])  # of each sample and feature
    sharded, loss_of, losses = collection(optimizer, policy, shards), torch.nn.BCEWithLogitsLoss(), []
    recorder, dense = Recorder(sharded), torch.optim.SGD(over.parameters(), lr=DENSE_RATE)
    for step in range(STEPS):
        mine = np.arange(BATCH // shards) + step * BATCH + rank * BATCH // shards
        values = np.concatenate([ids[offsets[2 * i + f]:offsets[2 * i + f + 1]] for f in range(len(FEATURES)) for i in mine])
        pooled, _ = sharded(KeyedJaggedTensor.from_lengths_sync(list(FEATURES), torch.from_numpy(values), torch.from_numpy(lengths[mine].T.ravel().copy())))
        dense.zero_grad()
        loss = loss_of(over(pooled.values())[:, 0], torch.from_numpy(labels[mine]))
        loss.backward()  # TorchRec divides the rows' gradients by the number of ranks
        mean = torch.cat([loss.detach().reshape(1)] + [parameter.grad.reshape(-1) for parameter in over.parameters()])
        dist.all_reduce(mean)
        mean /= shards
        losses.append(mean[0].item())
        for parameter, grad in zip(over.parameters(), mean[1:].split([parameter.numel() for parameter in over.parameters()])):
            parameter.grad.copy_(grad.view_as(parameter))
        dense.step()
        if step + 1 in AT:
            recorder.record(over)
    if rank == 0:
        np.savez(path, loss=np.array(losses, np.float32), **{name: np.stack([of[name] for of in recorder.found]) for name in recorder.found[0]})
    dist.barrier()
    os._exit(0)  # torch's threads may abort the process while it tears them down


def main():
    torch.manual_seed(31)
    data, over = make_data(), torch.nn.Sequential(torch.nn.Linear(len(FEATURES) * DIM, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    write_inputs(sys.argv[1], *data, over)
    with h5py.File(os.path.join(sys.argv[1], "reference.h5"), "w", libver=VERSION) as out, tempfile.TemporaryDirectory() as folder:
        out.attrs.update({"torch": str(torch.__version__), "torchrec": torchrec.__version__, "fbgemm_gpu": fbgemm_gpu.__version__})
        out.attrs.update({"rows": ROWS, "dim": DIM, "ids": IDS, "batch": BATCH, "steps": STEPS, "at": AT, "interval": INTERVAL, "init": INIT, "eps": EPS, "dense_rate": DENSE_RATE,
                          "exponent": EXPONENT})
        for case in CASES:
            name = "_".join(map(str, case))
            path = os.path.join(folder, name + ".npz")
            torch.multiprocessing.spawn(train, (case, data, over, path), nprocs=case[2])
            out.create_group(name).attrs.update(zip(("optimizer", "policy", "shards", "rate"), (*case, OPTIMIZERS[case[0]][1])))
            with np.load(path) as found:
                for tensor, numbers in found.items():
                    out.create_dataset(f"{name}/{tensor}", data=numbers, compression="gzip" if tensor == "row" else None)
                print(f"{name}: loss {found['loss'][0]:.6f} to {found['loss'][-1]:.6f}, {found['given'].tolist()} rows given, {len(set(found['row'][-1].tolist()))} rows in use")


if __name__ == "__main__":
    main()
