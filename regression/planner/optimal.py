#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""optimal.py TRSHARD: the optimal proposer finds a plan wherever one was planted, and says what it has not proven."""
import tempfile

from planner_test import Checks, load, run, tables
import problems

OPTIMAL = ("-plan_proposers", "optimal", "-plan_output", "optimal.json")


def fits(options, plan):
    return all(d["storage"]["hbm"] <= options["topology_hbm_cap"] and d["storage"]["ddr"] <= options["topology_ddr_cap"] for d in plan["devices"])


def check_packed(c, folder):
    """Seeds where the default list ends with 72, and so did a search that places each table once; 12 and 27 have 256 devices."""
    for seed in (3, 7, 8, 12, 13, 15, 27):
        options = problems.packed(folder, seed)
        code, text = run(folder, options, *OPTIMAL, "-plan_optimal_seconds", "2")
        c.check(code == 0, "packed problem %d: exit code %d: %s" % (seed, code, text[:300]))
        if code == 0:
            c.check(fits(options, load(folder, "optimal.json")), "packed problem %d: a device is too full" % seed)


def check_in_vain(c, folder):
    """Three tables of 0.6 devices on two devices: the sum fits, the shards do not."""
    options = {**tables(3, rows=10**6, dim=64, sharding_types="table_wise", compute_kernels="fused"), "topology_compute_device": "cuda",
               "topology_world_size": 2, "plan_storage_reservation": "fixed_absolute", "topology_hbm_cap": int(256e6 / 0.6), "topology_ddr_cap": 0,
               "plan_batch_size": 8}
    code, text = run(folder, options, *OPTIMAL)
    c.check(code == 72 and "does not prove" in text, "no plan, no proof: exit code %d: %s" % (code, text[:600]))


def main():
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        check_packed(c, folder)
        check_in_vain(c, folder)
    c.finish()


main()
