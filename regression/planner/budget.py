#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""budget.py TRSHARD: a larger budget of the optimal proposer never gives a worse plan, on varied
problems. auto is a budget of one second."""
import os
import random
import tempfile

from planner_test import Checks, load, run
import problems

SECONDS = (0.02, 0.1, 0.3, 1)
SEEDS = range(3000, 3024) if os.environ.get("TRS_LONG") else (3000, 3004, 3006, 3007, 3008)
CLUSTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "input", "plan_cluster.yaml")


def length(folder, options, *how):
    """The critical path, infinite without a plan."""
    words = ("-options_file", CLUSTER) if options is None else ()
    code, text = run(folder, options or {}, *words, "-plan_output", "plan.json", *how)
    if code not in (0, 72):
        raise RuntimeError(text[:500])
    return load(folder, "plan.json")["critical_path"] if code == 0 else float("inf")


def check(c, folder, name, options, seconds=SECONDS):
    paths = [length(folder, options, "-plan_proposers", "optimal", "-plan_optimal_seconds", str(s)) for s in seconds]
    for k in range(1, len(paths)):
        c.check(paths[k] <= paths[k - 1] * (1 + 1e-9), "%s: %g ms in %g s, %g ms in %g s" % (name, paths[k], seconds[k], paths[k - 1], seconds[k - 1]))
    auto = length(folder, options, "-plan_proposers", "auto")
    if 1 in seconds:
        c.check(auto == paths[seconds.index(1)], "%s: auto has %g ms, one second %g ms" % (name, auto, paths[seconds.index(1)]))
    limited = length(folder, options, "-plan_proposers", "optimal", "-plan_timeout_seconds", str(seconds[-2]))
    c.check(limited <= paths[-2] * (1 + 1e-9), "%s: %g ms with a timeout of %g s, %g ms in that time" % (name, limited, seconds[-2], paths[-2]))


def varied(folder, seed):
    """A problem of problems.py with other settings of the search and of the cost model."""
    r = random.Random(seed)
    options = problems.packed(folder, seed, devices=(8, 16)) if seed % 5 == 4 else problems.problem(folder, seed, tables=(10, 20, 40), devices=(8, 16, 32))
    options.update(r.choice([{}, {"plan_prefetch_pipeline": "true"}, {"plan_partitioner": "memory_balanced"}, {"plan_is_inference": "true"},
                             {"plan_storage_reservation": "heuristical", "plan_storage_reservation_percentage": 0, "plan_dense_parameter_bytes": 0}]))
    return options


def main():
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        check(c, folder, "plan_cluster.yaml", None, seconds=(0.1, 0.5, 1, 10))
        for seed in SEEDS:
            check(c, folder, "problem %d" % seed, varied(folder, seed))
    c.finish()


main()
