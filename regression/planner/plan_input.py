#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""plan_input.py TRSHARD: a written plan is read back unchanged, on any number of ranks, and an
error reaches all ranks."""
import json
import os
import re
import tempfile

from planner_test import Checks, load, run, tables


def moved(c, folder, options):
    """If a user moves a table in a written plan, all outputs show its memory and time on the other
    rank."""
    plan = load(folder, "one.json")
    table = next(table for table in plan["tables"] if table["name"] == "t0")
    shard, = table["shards"]
    old, new = shard["rank"], (shard["rank"] + 1) % 6
    wanted = [dict(device["storage"], ms=sum(device["perf"].values())) for device in plan["devices"]]
    for rank, sign in ((old, -1), (new, 1)):
        for key in ("hbm", "ddr"):
            wanted[rank][key] += sign * shard["storage"][key]
        wanted[rank]["ms"] += sign * sum(shard["perf"].values())
    shard["rank"], table["ranks"] = new, [new]
    with open(os.path.join(folder, "moved.json"), "w") as f:
        json.dump(plan, f)
    code, text = run(folder, options, "-plan_input", "moved.json", "-plan_output", "told.json")
    told = load(folder, "told.json")
    c.check(code == 0 and [(d["storage"]["hbm"], d["storage"]["ddr"]) for d in told["devices"]] == [(w["hbm"], w["ddr"]) for w in wanted], "memory: " + text)
    c.check(all(abs(sum(d["perf"].values()) - w["ms"]) <= 1e-12 * w["ms"] for d, w in zip(told["devices"], wanted)), "times: %s" % told["devices"])
    paths = re.findall(r"(?:critical path|path  ) +([-+.e0-9]+) ms", text)
    c.check(len(paths) == 2 and paths[0] == paths[1] == "%.4g" % told["critical_path"], "the critical path is %s: %s" % (told["critical_path"], text))


def priced(c, folder, options, *more):
    """A plan without costs, as written by hand, gets the costs that the planner gives its own
    plans. A plan that does not fit is reported."""
    code, text = run(folder, options, *more, "-plan_output", "own.json", "-plan_report", "own.txt")
    own = load(folder, "own.json")
    hand = {key: own[key] for key in ("format", "version", "world_size", "local_world_size", "pod_size")}
    hand["tables"] = [dict(table, shards=[{key: shard[key] for key in ("rank", "offset", "size")} for shard in table["shards"]]) for table in own["tables"]]
    with open(os.path.join(folder, "hand.json"), "w") as f:
        json.dump(hand, f)
    code, text = run(folder, options, *more, "-plan_input", "hand.json", "-plan_output", "priced.json", "-plan_report", "priced.txt", ranks=2)
    c.check(code == 0 and load(folder, "priced.json") == dict(own, proposals=0, feasible=0, partitioned=0), "costs of a plan by hand: " + text)
    reports = [open(os.path.join(folder, name)).read().split("Ranks", 1)[1] for name in ("own.txt", "priced.txt")]
    c.check(reports[0] == reports[1], "reports: %s\n%s" % tuple(reports))
    code, text = run(folder, options, *more, "-plan_input", "hand.json", "-topology_hbm_cap", "1MB")
    c.check(code == 0 and "too large  device memory" in text and "short by" in text, "a plan by hand that does not fit: " + text)


def main():
    c = Checks()
    options = {**tables(6, rows=5000), "table_t0_sharding_types": "table_wise", "table_t1_sharding_types": "row_wise", "table_t2_sharding_types": "grid_shard",
               "table_t3_sharding_types": "data_parallel", "table_t4_sharding_types": "table_row_wise",
               "table_t5_sharding_types": "table_column_wise", "tables_min_partition": 32,
               "topology_world_size": 6, "topology_local_world_size": 2, "topology_compute_device": "cuda"}
    with tempfile.TemporaryDirectory() as folder:
        code, text = run(folder, options, "-plan_output", "one.json")
        c.check(code == 0, "plan: " + text)
        for ranks in (1, 2, 3):
            code, text = run(folder, options, "-plan_output", "many.json", ranks=ranks)
            c.check(code == 0 and load(folder, "many.json") == load(folder, "one.json"), "%d ranks: the same plan: %s" % (ranks, text))
            code, text = run(folder, options, "-plan_input", "one.json", "-plan_output", "again.json", ranks=ranks)
            c.check(code == 0 and load(folder, "again.json") == load(folder, "one.json"), "%d ranks: read back: %s" % (ranks, text))
            code, text = run(folder, {**options, "topology_hbm_cap": 1000}, ranks=ranks)
            c.check(code == 72 and text.count("trshard: error") == 1, "%d ranks: no plan: %d %s" % (ranks, code, text[:500]))
        code, text = run(folder, options, "-plan_report", "stdout", "-plan_explain", "t0")
        c.check(code == 0 and "Critical path" in text and "<- chosen" in text, "report and explanation")
        code, text = run(folder, options, "-plan_input", "one.json", "-plan_report", "report.txt")
        c.check(code == 0, "report on a plan from a file: " + text)
        moved(c, folder, options)
        priced(c, folder, options)
        priced(c, folder, {**tables(4, rows=5003, compute_kernels="fused_uvm_caching", cache_load_factor=0.3, sharding_types="row_wise,column_wise", min_partition=32),
                           "topology_world_size": 3, "topology_compute_device": "cuda", "plan_replicas": 1})
        priced(c, folder, {**options, "topology_row_read_bw": 1e6, "topology_row_update_bw": 1e6, "topology_stream_bw": 1e6}, "-plan_cost_model", "measured")
    c.finish()


main()
