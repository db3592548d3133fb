#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""plan_input.py TRSHARD: a written plan is read back as it is, on any number of ranks, and an error reaches all ranks."""
import tempfile

from planner_test import Checks, load, run, tables


def main():
    c = Checks()
    options = {**tables(6, rows=5000), "table_t1_sharding_types": "row_wise", "table_t2_sharding_types": "grid_shard",
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
    c.finish()


main()
