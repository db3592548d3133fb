#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""optimal.py TRSHARD: the optimal proposer finds a plan wherever one was planted, the shortest path
of tiny problems, a valid bound, and the same plan in each run. It reports what it has not proven.
optimum.json has the shortest paths, from tools/record_planner_optimum.py."""
import json
import os
import re
import tempfile

from planner_test import Checks, load, run, tables
import problems

OUTPUT = ("-plan_output", "optimal.json")
OPTIMAL = ("-plan_proposers", "optimal", *OUTPUT)


def fits(options, plan):
    return all(d["storage"]["hbm"] <= options["topology_hbm_cap"] and d["storage"]["ddr"] <= options["topology_ddr_cap"] for d in plan["devices"])


def check_packed(c, folder):
    """Seeds for which the default list ends with 72, and so did a search that places each table
    once. 12 and 27 have 256 devices."""
    for seed in (3, 7, 8, 12, 13, 15, 27):
        options = problems.packed(folder, seed)
        code, text = run(folder, options, *OPTIMAL, "-plan_optimal_seconds", "2")
        c.check(code == 0, "packed problem %d: exit code %d: %s" % (seed, code, text[:300]))
        if code == 0:
            c.check(fits(options, load(folder, "optimal.json")), "packed problem %d: a device is too full" % seed)


def check_in_vain(c, folder):
    """Whole tables on two devices: their sum fits, but their shards, as fractions of a device, do
    not. Once without a proof, and once with."""
    for parts, said in (((0.7, 0.2, 0.2, 0.45, 0.45), "does not prove"), ((0.6, 0.6, 0.6), "proven")):
        options = {**tables(len(parts), dim=64, sharding_types="table_wise", compute_kernels="fused"), "topology_compute_device": "cuda",
                   "topology_world_size": 2, "plan_storage_reservation": "fixed_absolute", "topology_hbm_cap": 400 * 10**6, "topology_ddr_cap": 0,
                   "plan_batch_size": 8}
        for i, part in enumerate(parts):
            options["table_t%d_num_embeddings" % i] = int(0.99 * part * 400e6 / 260)
        code, text = run(folder, options, *OPTIMAL, "-plan_optimal_seconds", "1")
        c.check(code == 72 and said in text, "no plan for %s, '%s': exit code %d: %s" % (parts, said, code, text[:900]))


def bound_of(text):
    return float(re.search(r"Lower bound of the critical path: ([0-9.e+-]+)", text).group(1))


def check_tiny(c, folder):
    """Within 1 % of an exact solver's shortest path, with the bound below it, also for auto."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimum.json")) as f:
        recorded = json.load(f)["problems"]
    for number, problem in enumerate(recorded):
        name, options = "tiny problem %d" % problem["seed"], problems.tiny(folder, problem["seed"])
        how = ("-plan_proposers", "auto", *OUTPUT) if number % 3 == 0 else (*OPTIMAL, "-plan_optimal_seconds", "1")
        code, text = run(folder, options, *how, "-plan_report", "stdout")
        c.check(code == 0, "%s: exit code %d: %s" % (name, code, text[:300]))
        if code:
            continue
        path = load(folder, "optimal.json")["critical_path"]
        c.check(path <= 1.01 * problem["critical_path"], "%s: path %g, the shortest is %g" % (name, path, problem["critical_path"]))
        c.check(path >= problem["bound"] * (1 - 1e-6), "%s: path %g below the solver's bound %g: the model differs" % (name, path, problem["bound"]))
        c.check(bound_of(text) <= problem["critical_path"] * (1 + 1e-6), "%s: the bound is above the shortest path" % name)


def check_same(c, folder):
    """A number of steps ends the search, not time, so the plan is the same in each run."""
    options, plans = problems.problem(folder, 1000, tables=(30,), devices=(32,)), []
    for _ in range(2):
        code, text = run(folder, options, *OPTIMAL, "-plan_optimal_seconds", "0.5", "-plan_report", "stdout")
        c.check(code == 0, "twice: " + text[:300])
        if "The time limit ended the search" in text:
            print("this machine is too slow to compare two runs")
            return
        plans.append(load(folder, "optimal.json"))
    c.check(plans[0] == plans[1], "two runs of the optimal proposer differ")


def main():
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        check_packed(c, folder)
        check_in_vain(c, folder)
        check_tiny(c, folder)
        check_same(c, folder)
    c.finish()


main()
