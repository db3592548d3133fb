#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""replicas.py TRSHARD: what copies of the tables (-plan_replicas) take of the memory of a plan."""
import tempfile

from planner_test import Checks, load, run, tables

BATCH, ROWS, DIM, POOLING = 128, 1000, 64, 3


def storage(c, folder, copies, ranks, sync, optimizer="sgd"):
    """Bytes of the shards of a plan of one copy, of two table_wise tables."""
    options = {**tables(2, ROWS, DIM, pooling_factors=POOLING, sharding_types="table_wise", optimizer=optimizer), "batch_size": BATCH, "topology_compute_device": "cpu",
               "topology_world_size": copies * ranks, "topology_local_world_size": copies * ranks, "plan_replicas": copies, "replica_sync": sync}
    code, text = run(folder, options, "-plan_search_space", "space.json", "-plan_output", "plan.json")
    c.check(code == 0, text)
    return [shard["storage"]["ddr"] for option in load(folder, "space.json")["options"] for shard in option["shards"]]


def main():
    c = Checks()
    with tempfile.TemporaryDirectory(prefix="trshard_replicas_") as folder:
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
