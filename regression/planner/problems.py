# SPDX-License-Identifier: BSD-3-Clause
"""Generated planning problems that certainly have a solution. Many of them are tight.

uneven() draws tables and devices: rows 1e3 to 1e9, dims 16 to 512, pooling 1 to 200, 8 to 1,024
devices. plant() then asks the program for a plan with ample memory, in which each table has a
random sharding type. Each device gets the memory of this plan's fullest device, times 1 (tight) to
4 (loose). Hence a plan exists, but memory and types are not the ones that TorchRec's proposers
would prefer. In a strict problem, tables are restricted to their drawn types, all with whole
shards, so the memory must be packed.
"""
import random

from planner_test import load, run

PLANTED = "planted.json"
AMPLE = 2**50
# shards that need not be on every device
WHOLE = ["table_wise", "column_wise", "table_row_wise", "table_column_wise"]


def uneven(r, tables=(10, 20, 40, 80, 150, 300), devices=(8, 16, 32, 64, 128, 256, 512, 1024)):
    """Options without memory."""
    n, world = r.choice(tables), r.choice(devices)
    options = {"topology_compute_device": "cuda", "topology_world_size": world, "topology_local_world_size": 8,
               "plan_storage_reservation": "fixed_absolute", "plan_batch_size": r.choice([256, 512, 2048]),
               "tables": ",".join("t%d" % i for i in range(n))}
    for i in range(n):
        options["table_t%d_num_embeddings" % i] = int(10 ** r.uniform(3, 9))
        options["table_t%d_embedding_dim" % i] = r.choice([16, 32, 64, 128, 256, 512])
        options["table_t%d_pooling_factors" % i] = "%.3f" % 10 ** r.uniform(0, 2.301)
    return options


def plant(folder, options, r, strict):
    """Options with as much memory as some plan needs, or slightly more."""
    forced = {"topology_hbm_cap": AMPLE, "topology_ddr_cap": AMPLE}
    for name in options["tables"].split(","):
        planted = r.choice(WHOLE if strict else WHOLE + ["row_wise"])
        forced["table_%s_sharding_types" % name] = planted
        forced["table_%s_compute_kernels" % name] = "fused"
        if strict:
            options["table_%s_sharding_types" % name] = planted + "," + r.choice(WHOLE)
    code, text = run(folder, {**options, **forced}, "-plan_output", PLANTED, "-plan_proposers", "greedy", "-plan_partitioner",
                     "memory_balanced" if strict else "greedy_perf")
    if code:
        raise RuntimeError("planting failed: " + text[:500])
    need = max(d["storage"]["hbm"] for d in load(folder, PLANTED)["devices"])
    slack = r.choice([1, 1, 1.02, 1.1] if strict else [1, 1.02, 1.1, 1.5, 4])
    # without host memory, every table must be on a device
    host = 0 if strict else r.choice([0, 2**37])
    return {**options, "topology_hbm_cap": int(need * slack) + 1, "topology_ddr_cap": host}


def problem(folder, seed, **sizes):
    """Options of problem `seed`. Every fourth problem is strict."""
    r = random.Random(seed)
    options = uneven(r, **sizes)
    return plant(folder, options, r, seed % 4 == 3)


def shard_bytes(folder, options, names):
    """Device bytes of a shard of each table, with its only sharding type."""
    code, text = run(folder, {**options, "topology_hbm_cap": AMPLE, "topology_ddr_cap": AMPLE}, "-plan_search_space", "space.json")
    if code:
        raise RuntimeError("no search space: " + text[:500])
    found = {o["name"]: max(s["storage"]["hbm"] for s in o["shards"]) for o in load(folder, "space.json")["options"]}
    return [found[name] for name in names]


def packed(folder, seed, devices=(8, 16, 64, 256, 1024)):
    """Cheap table_row_wise tables fill whole hosts, and expensive table_wise tables fill devices of
    the other hosts. A search that spreads the expensive tables over all hosts finds no room for the
    others. The rows are such that the planted plan fills each used device to at most 97 %."""
    r = random.Random(seed)
    world, cap = r.choice(devices), 16 * 2**30
    hosts = world // 8
    n_full = hosts * r.randint(1, 3) // 4
    # part of a device, type, dim, pooling
    parts = [(1, "table_row_wise", r.choice([64, 128, 256]), 1) for _ in range(n_full)]
    for _ in range(min(8 * (hosts - n_full), 300)):
        cuts = sorted([0, 1] + [r.uniform(0.1, 0.9) for _ in range(r.choice([0, 0, 1, 2]))])
        parts += [(b - a, "table_wise", r.choice([32, 64, 128]), r.randint(10, 100)) for a, b in zip(cuts, cuts[1:])]
    names = ["t%d" % i for i in range(len(parts))]
    options = {"topology_compute_device": "cuda", "topology_world_size": world, "topology_local_world_size": 8, "plan_batch_size": 64,
               "plan_storage_reservation": "fixed_absolute", "tables": ",".join(names), "tables_compute_kernels": "fused",
               "plan_greedy_sort_by": r.choice(["storage", "perf"])}
    for name, (_, kind, dim, pooling) in zip(names, parts):
        options.update({"table_%s_sharding_types" % name: kind, "table_%s_embedding_dim" % name: dim, "table_%s_pooling_factors" % name: pooling})
    rows = [8 * 10**5 * k for k in (1, 2)]
    small, large = (shard_bytes(folder, {**options, "tables_num_embeddings": n}, names) for n in rows)
    fill = r.choice([0.9, 0.95, 0.97])
    for name, part, a, b in zip(names, parts, small, large):
        fit = int(rows[0] + (part[0] * fill * cap - a) / ((b - a) / rows[0]))
        options["table_%s_num_embeddings" % name] = max(8, fit)
    return {**options, "topology_hbm_cap": cap, "topology_ddr_cap": 0}


def tiny(folder, seed):
    """A problem that an exact solver can solve: fewer devices on smaller hosts."""
    r = random.Random(10000 + seed)
    options = uneven(r, tables=(4, 5, 6, 8), devices=(4, 8))
    options["topology_local_world_size"] = 4
    return plant(folder, options, r, strict=seed % 4 == 3)
