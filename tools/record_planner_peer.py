#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Records TorchRec's plan and search space of a dry run: PEER_PYTHON tools/record_planner_peer.py CASE.opts... writes CASE.plan.json, CASE.space.json beside each.

Accepts the options below of an option file and refuses others. regression/golden/planner/README.md describes the files. Among the older cases there,
this tool writes qcomm_0 and qcomm_1 without differences.
"""
import json
import logging
import os
import re
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import torch
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.stats import _calculate_critical_path
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import CommOp
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.optim import RowWiseAdagrad

TYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16}
OPS = {"all_to_all": CommOp.POOLED_EMBEDDINGS_ALL_TO_ALL, "reduce_scatter": CommOp.POOLED_EMBEDDINGS_REDUCE_SCATTER,
       "sequence": CommOp.SEQUENCE_EMBEDDINGS_ALL_TO_ALL}
PERF = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "prefetch_compute")


def read(path):
    with open(path, encoding="ascii") as file:
        text = " ".join(line for line in file if not line.startswith("#"))
    words = [option.split() for option in re.split(r"\s+(?=-[a-z])", text.strip())]  # a line may hold several options
    return {name: " ".join(values) for name, *values in words}


def registry_of(options):
    """As a user composes it from one configuration for each exchange."""
    registry = {}
    for name, op in OPS.items():
        precision = {way: options.pop(f"-qcomm_{name}_{way}_precision", options.get(f"-qcomm_{way}_precision", "fp32")) for way in ("forward", "backward")}
        config = QCommsConfig(forward_precision=CommType(precision["forward"]), backward_precision=CommType(precision["backward"]))
        registry.update(get_qcomm_codecs_registry(config, [op], torch.device("cuda")) or {})
    for way in ("forward", "backward"):
        options.pop(f"-qcomm_{way}_precision", None)
    return registry or None


class Model(torch.nn.Module):
    """Pooled tables, sequence tables, and the dense parameters."""

    def __init__(self, options):
        super().__init__()
        bags, rows, self.constraints = [], [], {}
        for table in options.pop("-tables").split(","):
            key = {name: options.pop(f"-table_{table}_{name}", fallback) for name, fallback in
                   (("num_embeddings", None), ("embedding_dim", None), ("pooling_factors", "1"), ("pooling", "sum"), ("data_type", "fp32"))}
            shared = {"name": table, "num_embeddings": int(key["num_embeddings"]), "embedding_dim": int(key["embedding_dim"]), "feature_names": [table],
                      "data_type": TYPES[key["data_type"]]}
            if key["pooling"] == "none":
                rows.append(EmbeddingConfig(**shared))
            else:
                bags.append(EmbeddingBagConfig(**shared, pooling=PoolingType[key["pooling"].upper()]))
            self.constraints[table] = ParameterConstraints(pooling_factors=[float(key["pooling_factors"])])
        if bags:
            self.ebc = EmbeddingBagCollection(tables=bags, device=torch.device("meta"))
        if rows:
            self.ec = EmbeddingCollection(tables=rows, device=torch.device("meta"))
        for parameter in self.parameters():
            parameter._optimizer_classes = [RowWiseAdagrad]  # trshard's default; its states count
        self.dense = torch.nn.Parameter(torch.empty(int(options.pop("-plan_dense_parameter_bytes", "0")) // 4, device="meta"))


def perf_of(perf):
    return {part: getattr(perf, part) for part in PERF}


def storage_of(storage):
    return {"hbm": storage.hbm, "ddr": storage.ddr}


def shard_of(shard):
    return {"offset": list(shard.offset), "size": list(shard.size), "storage": storage_of(shard.storage), "perf": perf_of(shard.perf)}


def counted(function, counts, what):
    def call(*args, **named):
        result = function(*args, **named)
        counts[what] += bool(result)
        return result
    return call


def plan_of(planner, options, world_size, local_world_size, n_proposals):
    devices = [{"rank": rank, "storage": {"hbm": 0, "ddr": 0}, "perf": dict.fromkeys(PERF, 0.0)} for rank in range(world_size)]
    tables = []
    for option in options:
        tables.append({"name": option.name, "sharding_type": option.sharding_type, "compute_kernel": option.compute_kernel,
                       "ranks": [shard.rank for shard in option.shards], "shards": [{"rank": shard.rank, **shard_of(shard)} for shard in option.shards]})
        for shard in option.shards:
            device = devices[shard.rank]
            for kind, value in storage_of(shard.storage).items():
                device["storage"][kind] += value
            for part, value in perf_of(shard.perf).items():
                device["perf"][part] += value
    return {"format": "trshard-plan", "version": 1, "world_size": world_size, "local_world_size": local_world_size, "tables": tables, "devices": devices,
            "critical_path": _calculate_critical_path(options).total(), "proposals": n_proposals, "feasible": planner._num_plans, "partitioned": planner._num_proposals}


def space_of(options):
    return {"format": "trshard-search-space", "version": 1,
            "options": [{"name": option.name, "sharding_type": option.sharding_type, "compute_kernel": option.compute_kernel, "partition_by": option.partition_by,
                         "shards": [shard_of(shard) for shard in option.shards], "total_storage": storage_of(option.total_storage), "total_perf": option.total_perf}
                        for option in options]}


def record(path):
    options, counts = read(path), {"proposals": 0}
    if options.pop("-task") != "plan":
        sys.exit(f"{path}: not a dry run")
    world_size, local_world_size = (int(options.pop(f"-topology_{name}world_size")) for name in ("", "local_"))
    topology = Topology(world_size=world_size, local_world_size=local_world_size, compute_device=options.pop("-topology_compute_device"))
    registry, model = registry_of(options), Model(options)
    if options:
        sys.exit(f"{path}: options that this does not know: {' '.join(options)}")
    planner = EmbeddingShardingPlanner(topology=topology, batch_size=512, constraints=model.constraints, stats=[])
    sharders = [sharder(qcomm_codecs_registry=registry) for sharder in (EmbeddingBagCollectionSharder, EmbeddingCollectionSharder)]
    for proposer in planner._proposers:
        proposer.propose = counted(proposer.propose, counts, "proposals")
    planner.plan(model, sharders)
    made = {"plan": plan_of(planner, planner._best_plan, world_size, local_world_size, counts["proposals"]), "space": space_of(planner._enumerator.enumerate(model, sharders))}
    for kind, content in made.items():
        with open(f"{os.path.splitext(path)[0]}.{kind}.json", "w", encoding="ascii") as file:
            file.write(json.dumps(content, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    for case in sys.argv[1:]:
        record(case)
