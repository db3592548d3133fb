#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""search.py TRSHARD: laws of the search on generated problems, many of them tight.

A proposal may be counted without being placed. The plan and the counts are the same as if it is
placed (if a greedy threshold is never reached, the planner places every proposal). The optimal
proposer's plan fits, is at least as good as the default list's, and is not below its own bound.
"""
import random
import re
import tempfile

from planner_test import Checks, load, run, tables


def problem(r):
    n, world = r.choice([3, 8, 20, 40]), r.choice([2, 4, 8, 12, 64])
    rows = [int(10 ** r.uniform(2, 7.7)) for _ in range(n)]
    dims = [r.choice([16, 32, 64, 96, 128, 256, 512]) for _ in range(n)]
    cap = int(sum(a * b * 4 for a, b in zip(rows, dims)) / world * r.choice([0.8, 1.2, 1.5, 2, 4, 10]) + 2**20)
    options = {"topology_compute_device": "cuda", "topology_world_size": world,
               "topology_local_world_size": min(world, r.choice([2, 4, 8])), "topology_hbm_cap": cap,
               "topology_ddr_cap": cap * r.choice([1, 4]), "plan_dense_parameter_bytes": 0,
               "tables": ",".join("t%d" % i for i in range(n)), "plan_greedy_sort_by": r.choice(["storage", "perf"])}
    for i in range(n):
        options.update({"table_t%d_num_embeddings" % i: rows[i], "table_t%d_embedding_dim" % i: dims[i],
                        "table_t%d_pooling_factors" % i: "%.3f" % 10 ** r.uniform(-0.5, 1.7)})
        if r.random() < 0.2:
            options["table_t%d_sharding_types" % i] = r.choice(["table_row_wise", "row_wise", "table_wise,column_wise", "grid_shard,table_row_wise"])
    return options


def check_optimal(c, folder, name, options, default, seconds="0.3"):
    code, text = run(folder, options, "-plan_proposers", "optimal", "-plan_optimal_seconds", seconds, "-plan_output", "optimal.json",
                     "-plan_report", "stdout")
    c.check(code == 0, "%s: optimal fails: %s" % (name, text[:300]))
    if code:
        return
    plan = load(folder, "optimal.json")
    bound = float(re.search(r"Lower bound of the critical path: ([0-9.e+-]+)", text).group(1))
    c.check(plan["critical_path"] <= default["critical_path"] * (1 + 1e-9), "%s: longer critical path than the default's" % name)
    c.check(plan["critical_path"] >= bound * (1 - 1e-5), "%s: path %g below its bound %g" % (name, plan["critical_path"], bound))
    c.check(all(d["storage"]["hbm"] <= 0.85 * options["topology_hbm_cap"] and d["storage"]["ddr"] <= options["topology_ddr_cap"]
                for d in plan["devices"]), "%s: a device is too full" % name)
    code, text = run(folder, options, "-plan_input", "optimal.json")
    c.check(code == 0, "%s: the optimal plan is not valid: %s" % (name, text[:300]))


def grid_only():
    """Tables that may only be split as grids. Moving them to other hosts improves a plan."""
    rows, pooling = [4000000, 1500000, 1000000, 500000] + 4 * [4000000], [20, 20, 20, 20, 3, 50, 20, 20]
    options = {**tables(8, dim=512, sharding_types="grid_shard", min_partition=128, compute_kernels="fused"), "topology_compute_device": "cuda",
               "topology_world_size": 32, "topology_local_world_size": 4, "topology_hbm_cap": 12 * 2**30, "topology_ddr_cap": 2**37,
               "plan_dense_parameter_bytes": 0}
    for i in range(8):
        options.update({"table_t%d_num_embeddings" % i: rows[i], "table_t%d_pooling_factors" % i: pooling[i]})
    return options


def check_grid(c, folder):
    options = grid_only()
    code, text = run(folder, options, "-plan_output", "plan.json")
    c.check(code == 0, "grids: " + text[:300])
    default = load(folder, "plan.json")
    check_optimal(c, folder, "grids", options, default, seconds="2")
    path = load(folder, "optimal.json")["critical_path"]
    c.check(path < 0.97 * default["critical_path"], "grids: path %g, the default's %g: nothing moved" % (path, default["critical_path"]))


def main():
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(12):
            options, plans = problem(random.Random(seed)), []
            for more in ((), ("-plan_greedy_threshold", "1000000000")):
                code, text = run(folder, options, *more, "-plan_output", "plan.json")
                c.check(code in (0, 72), "problem %d: exit code %d: %s" % (seed, code, text[:300]))
                plans.append(load(folder, "plan.json"))
                plans[-1].pop("message", None)
            c.check(plans[0] == plans[1], "problem %d: counting differs from placing" % seed)
            if "tables" in plans[0]:
                check_optimal(c, folder, "problem %d" % seed, options, plans[0])
        check_grid(c, folder)
    c.finish()


main()
