#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record what TorchRec's managed collision does after a load of exchange.py's export.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2 numpy h5py
    DIR/bin/pip install --force-reinstall --no-deps fbgemm-gpu-cpu==1.9.0
    DIR/bin/python record_zch.py FILE

For each eviction policy, and for one bucket and three, a ManagedCollisionEmbeddingBagCollection
trains BEFORE batches. Three buckets are three modules of a third of the rows each, as on the ranks
of a sharded module; an id belongs to the bucket id // ceil(INPUT / 3). tools/exchange.py imports
their state_dict as a checkpoint, and exports it again. New modules load this export with
strict=True. FILE has for each case, POLICY_BUCKETS:

  begin/NAME  the state_dict that was imported; the ids' names are those after the table's
  end/NAME    the state_dict of the new modules after AFTER more batches
  slots       [AFTER, n] the rows of these batches' ids
and for all cases ids [AFTER, n].
"""
import os
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import DistanceLFU_EvictionPolicy, LFU_EvictionPolicy, LRU_EvictionPolicy, ManagedCollisionCollection, MCHManagedCollisionModule

ROWS, DIM, BATCH, BEFORE, AFTER, INTERVAL, INPUT = 60, 4, 24, 8, 6, 2, 300
POLICIES = {"lfu": LFU_EvictionPolicy, "lru": lambda: LRU_EvictionPolicy(1.0), "distance_lfu": lambda: DistanceLFU_EvictionPolicy(1.0)}
EBC = "sparse_arch.embedding_bag_collection."
OF_TABLE = "_managed_collision_collection._managed_collision_modules.t."
EXCHANGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tools/exchange.py")


def batches():
    """Ids below INPUT that drift."""
    rng = np.random.default_rng(11)
    n = BEFORE + AFTER
    return (rng.zipf(1.2, (n, BATCH)) + 9 * np.arange(n)[:, None]) % INPUT


class Modules:
    """A module for each bucket, over their rows."""

    def __init__(self, policy, buckets):
        self.block, self.parts = -(-INPUT // buckets), []
        rows, segments = ROWS // buckets, [ROWS // buckets * b for b in range(buckets + 1)]
        for b in range(buckets):
            ebc = EmbeddingBagCollection(tables=[EmbeddingBagConfig(name="t", embedding_dim=DIM, num_embeddings=rows, feature_names=["seen"])])
            module = MCHManagedCollisionModule(zch_size=rows, device=torch.device("cpu"), eviction_policy=POLICIES[policy](), eviction_interval=INTERVAL,
                                               input_hash_size=INPUT, output_global_offset=segments[b], output_segments=segments, buckets=buckets)
            self.parts.append(ManagedCollisionEmbeddingBagCollection(ebc, ManagedCollisionCollection({"t": module}, ebc.embedding_bag_configs())).train())

    def train(self, ids):
        """The rows of a batch's ids."""
        slots = np.zeros(len(ids), np.int64)
        for b, part in enumerate(self.parts):
            of_bucket = np.flatnonzero(np.minimum(ids // self.block, len(self.parts) - 1) == b)
            kjt = KeyedJaggedTensor.from_lengths_sync(["seen"], torch.from_numpy(ids[of_bucket]), torch.tensor([len(of_bucket)]))
            slots[of_bucket] = part._managed_collision_collection(kjt).values().numpy()
        return slots

    def state(self):
        """The whole state_dict, as of a sharded module: rows one after the other, the ends and the batches once."""
        every = [part.state_dict() for part in self.parts]
        return {name: every[0][name] if name.endswith(("_segments_tensor", "_iter_tensor")) else torch.cat([state[name] for state in every]) for name in every[0]}

    def load(self, state):
        rows = ROWS // len(self.parts)
        for b, part in enumerate(self.parts):
            shared = lambda name: name.endswith(("_segments_tensor", "_iter_tensor"))
            part.load_state_dict({name: value if shared(name) else value[b * rows:(b + 1) * rows] for name, value in state.items()}, strict=True)


def exchanged(state, folder):
    """The state_dict after an import and an export."""
    path = lambda name: os.path.join(folder, name)
    torch.save({EBC + name: value for name, value in state.items()}, path("in.pt"))
    for words in (["in.pt", "--from", "torch", "--output", "model.h5"], ["model.h5", "--to", "torch", "out.pt"]):
        subprocess.run([sys.executable, EXCHANGE, *words, "--force"], cwd=folder, check=True)
    return {name.removeprefix(EBC): value for name, value in torch.load(path("out.pt")).items()}


def main():
    torch.manual_seed(3)
    ids = batches()
    with h5py.File(sys.argv[1], "w") as out, tempfile.TemporaryDirectory() as folder:
        out["ids"] = ids[BEFORE:]
        out.attrs.update(rows=ROWS, dim=DIM, interval=INTERVAL, input=INPUT)
        for policy in POLICIES:
            for buckets in (1, 3):
                case, trained, loaded = f"{policy}_{buckets}", Modules(policy, buckets), Modules(policy, buckets)
                for batch in ids[:BEFORE]:
                    trained.train(batch)
                loaded.load(exchanged(trained.state(), folder))
                out[case + "/slots"] = np.stack([loaded.train(batch) for batch in ids[BEFORE:]])
                for when, modules in (("begin", trained), ("end", loaded)):
                    for name, value in modules.state().items():
                        out.create_dataset(f"{case}/{when}/{name.removeprefix(OF_TABLE)}", data=value.numpy(), compression="gzip" if value.numel() > 1000 else None)


main()
