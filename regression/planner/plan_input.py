#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""plan_input.py TRSHARD: a written plan is read back as it is, on any number of ranks, and an error reaches all ranks."""
import json
import os
import re
import tempfile

from planner_test import Checks, load, run, tables


def moved(c, folder, options):
    """A table that a user has moved in a written plan takes its memory and time to the other rank, in all that is told."""
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
    c.finish()


main()
