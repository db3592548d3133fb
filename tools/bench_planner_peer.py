#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Times TorchRec's EmbeddingShardingPlanner.plan() on the tables of bench_planner.py; prints one line of JSON.

bench_planner.py runs it with the Python that has torchrec. Tables: rows_i = 1000 * 2^(i mod 14) + 7*i,
dim_i = [32, 64, 96, 128, 256][i mod 5], pooling_i = [1, 1, 2, 10, 30][(i // 5) mod 5].
"""
import argparse
import json
import logging
import resource
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

p = argparse.ArgumentParser()
p.add_argument("--tables", type=int, required=True)
p.add_argument("--world-size", type=int, required=True)
p.add_argument("--local-world-size", type=int, default=8)
p.add_argument("--batch", type=int, default=512)
p.add_argument("--hbm-gib", type=float, default=80.0)
a = p.parse_args()

import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

ebc = EmbeddingBagCollection(
    device=torch.device("meta"),
    tables=[
        EmbeddingBagConfig(name="t%d" % i, num_embeddings=1000 * 2 ** (i % 14) + 7 * i, embedding_dim=[32, 64, 96, 128, 256][i % 5], feature_names=["f%d" % i])
        for i in range(a.tables)
    ],
)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ebc = ebc


constraints = {"t%d" % i: ParameterConstraints(pooling_factors=[float([1, 1, 2, 10, 30][(i // 5) % 5])]) for i in range(a.tables)}
topology = Topology(world_size=a.world_size, local_world_size=min(a.local_world_size, a.world_size), compute_device="cuda", hbm_cap=int(a.hbm_gib * 2**30))
planner = EmbeddingShardingPlanner(topology=topology, batch_size=a.batch, constraints=constraints, stats=[])
wall, cpu = time.perf_counter(), time.process_time()
planner.plan(Model(), [EmbeddingBagCollectionSharder()])
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
load = [0.0] * a.world_size
for option in planner._best_plan:
    for shard in option.shards:
        load[shard.rank] += shard.perf.total
print(json.dumps({"wall_s": wall, "cpu_s": cpu, "proposals": planner._num_proposals, "plans": planner._num_plans, "rating_ms": max(load),
                  "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
