#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""replicas.py TRSHARD: copies of the tables (-plan_replicas): their memory in a plan, and the
number that the planner chooses."""
import re
import tempfile
import time

from planner_test import Checks, load, run, tables

BATCH, ROWS, DIM, POOLING = 128, 1000, 64, 3


def storage(c, folder, copies, ranks, sync, optimizer="sgd"):
    """Bytes of the shards in a plan of one copy of two table_wise tables."""
    options = {**tables(2, ROWS, DIM, pooling_factors=POOLING, sharding_types="table_wise", optimizer=optimizer), "batch_size": BATCH, "topology_compute_device": "cpu",
               "topology_world_size": copies * ranks, "topology_local_world_size": copies * ranks, "plan_replicas": copies, "replica_sync": sync}
    code, text = run(folder, options, "-plan_search_space", "space.json", "-plan_output", "plan.json")
    c.check(code == 0, text)
    return [shard["storage"]["ddr"] for option in load(folder, "space.json")["options"] for shard in option["shards"]]


GIB_PER_MS = 2**30 / 1000  # bytes/ms of 1 GiB/s
INTRA, OWN = 20.0, 51.0


def world(ranks, host, inter, sync, rows=ROWS, **more):
    """Options of a dry run whose batches use much of the tables, on hosts with a network of `inter`
    GiB/s."""
    return {**tables(6, rows, DIM, pooling_factors=POOLING, optimizer="adagrad"), "batch_size": BATCH, "topology_compute_device": "cpu", "topology_world_size": ranks,
            "topology_local_world_size": host, "topology_intra_host_bw": int(INTRA * GIB_PER_MS), "topology_inter_host_bw": int(inter * GIB_PER_MS), "replica_sync": sync, **more}


def sync_ms(plan, copies, ranks, host, inter, sync, every=1):
    """src/plan/RULES.md, section 13, computed from the plan of a copy."""
    size = ranks // copies
    near = max(1, min(copies, host / size))
    intra, inter, own = (int(x * GIB_PER_MS) for x in (INTRA, inter, OWN))
    slowest = 0
    for rank in range(size):
        shards = [(table["sharding_type"], s) for table in plan["tables"] for s in table["shards"] if s["rank"] == rank]
        if sync == "gradients":
            def arriving(kind, s):
                share = size if kind == "row_wise" else 1
                samples = BATCH if kind == "data_parallel" else BATCH * size
                return samples * POOLING * 8 / share + samples * s["size"][1] * 4
            bytes = sum(arriving(kind, s) for kind, s in shards)
            ms = bytes * (near - 1) / intra + bytes * (copies - near) / inter + (copies - 1) * sum(s["perf"]["bwd_compute"] for _, s in shards)
        else:
            # adagrad: a state for each element
            bytes = sum(s["size"][0] * s["size"][1] * 8 for _, s in shards)
            ms = (2 * (copies - 1) / copies * bytes / (inter if near < copies else intra) + 2 * bytes / own) / every
        slowest = max(slowest, ms)
    return slowest if copies > 1 else 0.0


def choice(c, folder, name, ranks, host, inter, sync, **more):
    """Check that the planner chooses the cheapest number of copies, and that its lines show the
    costs. Returns the chosen number."""
    kinds = {"tables_sharding_types": "table_wise,row_wise,data_parallel"}
    options = {**world(ranks, host, inter, sync, **more), **kinds}
    code, text = run(folder, {**options, "plan_replicas": 0}, "-plan_output", "chosen.json")
    c.check(code == 0, f"{name}: {text}")
    lines = re.findall(r"^  (?:copies)? +(\d+) of (\d+) ranks?: (.*)$", text, re.M)
    costs = {}
    for copies, size, line in lines:
        copies = int(copies)
        c.check(copies * int(size) == ranks, f"{name}: {copies} of {size}")
        code, other = run(folder, {**options, "plan_replicas": copies}, "-plan_output", "plan.json")
        if line == "no plan":
            c.check(code == 65, f"{name}: {copies} copies have a plan: {code} {other}")
            continue
        plan = load(folder, "plan.json")
        path, extra = plan["critical_path"], sync_ms(plan, copies, ranks, host, inter, sync, more.get("replica_sync_every", 1))
        costs[copies] = path + extra
        found = [float(x) for x in re.findall(r"[-+.\de]+(?= ms| of a copy| to keep)", line)]
        c.check(all(abs(a - b) <= 2e-3 * b for a, b in zip(found, (path + extra, path, extra))) and len(found) == 3, f"{name}, {copies} copies: {line!r}, expected {path} and {extra}")
        # also if the number is given
        told = re.findall(r"^  copies +\d+ of \d+ ranks?: (.*), taken$", other, re.M)
        c.check(told == ([line.removesuffix(", taken")] if copies > 1 else []), f"{name}, {copies} copies, given: {told}, expected {line!r}")
    best = min(costs, key=lambda copies: (costs[copies], copies))
    taken = [int(copies) for copies, _, line in lines if line.endswith("taken")]
    c.check(taken == [best], f"{name}: takes {taken}, the costs are {costs}")
    c.check(load(folder, "chosen.json")["world_size"] * best == ranks, f"{name}: a plan for another number of ranks")
    return best, [int(copies) for copies, _, _ in lines]


def choices(c, folder):
    best, seen = choice(c, folder, "slow network, means", 16, 2, 0.05, "average", replica_sync_every=50)
    c.check(best > 1 and seen == [1, 2, 4, 8, 16], f"{best} copies of {seen}")
    best, _ = choice(c, folder, "slow network, means of large tables in each step", 16, 2, 0.05, "average", rows=10**6)
    c.check(best == 1, f"{best} copies of large tables")
    choice(c, folder, "gradients", 8, 4, 1, "gradients")
    best, seen = choice(c, folder, "hosts of 3", 12, 3, 0.05, "average", replica_sync_every=100)
    c.check(seen == [1, 2, 4, 12], f"hosts of 3 ranks: {seen}")
    # A copy on one rank would need memory for all six tables with their states.
    _, seen = choice(c, folder, "little memory", 4, 2, 0.05, "average", rows=10**5, topology_ddr_cap=4 * 10**8, plan_storage_reservation="fixed_percentage",
                     plan_storage_reservation_percentage=0)
    c.check(seen[0] == 1 and len(seen) < 4, f"little memory: {seen}")
    for more, words in (({"topology_pod_size": 2}, "-topology_pod_size"), ({"topology_ddr_cap_per_rank": ",".join(["100000000"] * 8)}, "-topology_ddr_cap_per_rank")):
        code, text = run(folder, {**world(8, 2, 1, "average"), "plan_replicas": 0, **more})
        c.check(code == 64 and "-plan_replicas" in text and words in text, f"{code}: {text}")
    # A plan from a file has its number of ranks.
    code, text = run(folder, {**world(8, 2, 1, "average"), "plan_replicas": 4}, "-plan_output", "plan.json")
    c.check(code == 0, text)
    code, text = run(folder, {**world(8, 2, 1, "average"), "plan_replicas": 0}, "-plan_input", "plan.json", "-plan_output", "same.json")
    c.check(code == 0 and load(folder, "same.json")["world_size"] == 2, text)
    # Copies that are only read stay equal.
    code, text = run(folder, {**world(8, 2, 1, "average"), "plan_replicas": 4, "plan_is_inference": None}, "-plan_output", "read.json")
    c.check(code == 0 and "  copies     4 of 2 ranks: %.4g ms of a copy, taken\n" % load(folder, "read.json")["critical_path"] in text, text)


def thousands(c, folder):
    """4,096 ranks: the time of the choice is printed, but does not decide the test."""
    begin = time.monotonic()
    code, text = run(folder, {**world(4096, 8, 12.5, "average", rows=10**6, replica_sync_every=100), "plan_replicas": 0})
    c.check(code == 0 and len(re.findall(r" of \d+ ranks?: ", text)) >= 4, text)
    print("4,096 ranks: %.1f s" % (time.monotonic() - begin))
    print(text)


def main():
    c = Checks()
    with tempfile.TemporaryDirectory(prefix="trshard_replicas_") as folder:
        choices(c, folder)
        thousands(c, folder)
        for ranks in (1, 2, 4):
            table, batch = ROWS * DIM * 4, ranks * BATCH * (POOLING * 8 + DIM * 4)
            for copies in (1, 2, 5):
                found = storage(c, folder, copies, ranks, "average")
                c.check(found == [table + batch] * 2, f"average, {copies} copies of {ranks}: {found}, expected {table + batch}")
                wanted = table + batch * (1 + (copies if copies > 1 else 0))
                found = storage(c, folder, copies, ranks, "gradients")
                c.check(found == [wanted] * 2, f"gradients, {copies} copies of {ranks}: {found}, expected {wanted}")
    c.finish()


main()
