#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tools.py TRSHARD: compare_plans.py and plot_plan.py on plans whose difference is known."""
import json
import os
import re
import subprocess
import sys
import tempfile

from planner_test import BINARY, Checks, load, run, tables, write_options

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")


def tool(folder, name, *words):
    p = subprocess.run([sys.executable, os.path.join(TOOLS, name), *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=120)
    return p.returncode, p.stdout


def main():
    c = Checks()
    options = {**tables(6, rows=50000, compute_kernels="fused"), "topology_world_size": 4, "topology_compute_device": "cuda", "plan_dense_parameter_bytes": 0}
    with tempfile.TemporaryDirectory() as folder:
        for name, more in (("one", ()), ("two", ("-tables_sharding_types", "row_wise"))):
            code, text = run(folder, options, *more, "-plan_output", name + ".json")
            c.check(code == 0, "plan: " + text[:300])
        devices = load(folder, "one.json")["devices"]
        c.check(all(d["capacity"] == {"hbm": 32 << 30, "ddr": 128 << 30} for d in devices), "the capacity is the topology's: " + str(devices[0]))
        c.check(all(0 < d["available"]["hbm"] < 0.85 * (32 << 30) + 1 for d in devices), "15 % are reserved, and more: " + str(devices[0]))
        code, text = run(folder, options, "-plan_input", "one.json", "-plan_output", "other.json", "-topology_hbm_cap", "40GiB")
        c.check(code == 0 and load(folder, "other.json")["devices"][0]["capacity"]["hbm"] == 40 << 30, "a plan of a file, on another machine: " + text[:300])
        code, text = tool(folder, "compare_plans.py", "one.json", "one.json")
        c.check(code == 0 and "0 of 6 tables differ" in text, "a plan against itself: " + text[:500])
        code, text = tool(folder, "compare_plans.py", "one.json", "two.json")
        c.check(code == 0 and "6 of 6 tables differ" in text and "row_wise/fused" in text, "two plans: " + text[:500])
        moved = load(folder, "two.json")
        half = moved["tables"][0]["shards"]
        half[0]["size"][0] -= 1
        half[1]["offset"][0] -= 1
        half[1]["size"][0] += 1
        with open(os.path.join(folder, "moved.json"), "w") as f:
            json.dump(moved, f)
        code, text = tool(folder, "compare_plans.py", "two.json", "moved.json")
        c.check(code == 0 and "1 of 6 tables differ" in text and "row_wise/fused on ranks 0-3" in text, "one row on another rank: " + text[:500])
        write_options(os.path.join(folder, "run.opts"), options)
        code, text = tool(folder, "compare_plans.py", "--what-if", BINARY, "run.opts", "-topology_intra_host_bw", "1e9")
        paths = re.search(r"critical path +([0-9.]+) +([0-9.]+) ms +(\S+)%", text)
        before, after, change = map(float, paths.groups()) if paths else (0, 0, 0)
        c.check(code == 0 and after < before and abs(change - 100 * (after / before - 1)) < 0.01, "what if links were faster: " + text[:500])
        code, text = tool(folder, "compare_plans.py", "--what-if", BINARY, "run.opts", "-topology_hbm_cap", "100000")
        c.check(code != 0 and "no feasible plan" in text, "what if it did not fit: " + text[:500])
        code, text = tool(folder, "plot_plan.py", "two.json", "--output", "plan.png")
        if "matplotlib" in text:
            print("no matplotlib here: the picture is not tested")
        else:
            c.check(code == 0, "plot_plan.py: " + text[:500])
            with open(os.path.join(folder, "plan.png"), "rb") as f:
                c.check(f.read(8) == b"\x89PNG\r\n\x1a\n", "plot_plan.py writes a PNG")
    c.finish()


main()
