#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""bad_input.py TRSHARD: every kind of bad input to the planner gives one clear message and the
documented exit code."""
import json
import os
import re
import tempfile

from planner_test import Checks, load, run, tables

TWO = {"topology_world_size": 2, "topology_compute_device": "cuda"}

# name, options, exit code, text that the message must contain
CASES = [
    ("table twice", {"tables": "a,b,a", "tables_num_embeddings": 10, "tables_embedding_dim": 4}, 64, r'-tables.*"a" is listed twice'),
    ("unknown key", {**tables(1), "table_t0_embeding_dim": 8}, 64, r"table_t0_embeding_dim.*embedding_dim"),
    ("unknown table", {**tables(2), "table_t7_embedding_dim": 8}, 64, r"t7"),
    ("unknown option", {**tables(1), "plan_proposer": "greedy"}, 64, r"plan_proposer.*plan_proposers"),
    ("unknown proposer", {**tables(1), "plan_proposers": "greedy,magic"}, 64, r"plan_proposers.*magic"),
    ("unknown type", tables(1, sharding_types="row_wise,diagonal"), 64, r"diagonal"),
    ("no size", {"tables": "a", "tables_embedding_dim": 4}, 64, r"num_embeddings"),
    ("no width", {"tables": "a", "tables_num_embeddings": 4}, 64, r"embedding_dim"),
    ("no tables", {}, 64, r"-tables"),
    ("zero rows", tables(1, rows=0), 64, r"num_embeddings.*0"),
    ("negative dim", tables(1, dim=-4), 64, r"embedding_dim.*-4"),
    ("zero world", {**tables(1), "topology_world_size": 0}, 64, r"topology_world_size.*0"),
    ("zero batch", {**tables(1), "plan_batch_size": 0}, 64, r"plan_batch_size.*0"),
    ("table overflow", tables(1, rows=2**62, dim=1024), 64, r"overflow"),
    ("option overflow", {**tables(1, rows=2**54, dim=4), "topology_world_size": 1000}, 64, r"overflow"),
    ("not a number", {**tables(1), "topology_inter_host_bw": "nan"}, 64, r"topology_inter_host_bw.*nan"),
    ("uneven lists", tables(1, pooling_factors="1,2", batch_sizes="3"), 64, r"batch_sizes.*pooling_factors"),
    ("half of the stats", tables(1, cache_stats_cacheability=0.3), 64, r"expected_lookups"),
    ("feature twice", {**tables(2), "tables_features": "f"}, 64, r'"f" is looked up twice'),
    ("init order", tables(1, init_min=1, init_max=-1), 64, r"init_min"),
    ("sequence dims", {**tables(2, pooling="none"), "table_t1_embedding_dim": 32}, 64, r"one embedding_dim"),
    ("caps of another world", {**tables(1), **TWO, "topology_hbm_cap_per_rank": "1GiB,1GiB,1GiB"}, 64, r"3 entries for 2 devices"),
    ("dp without hbm", {**tables(1), "topology_compute_device": "cpu", "plan_proposers": "dynamic_programming"}, 64, r"dynamic_programming"),
    ("no plan file", {**tables(1), "plan_input": "nowhere.json"}, 66, r"nowhere\.json"),
    ("contradiction", {**tables(1, sharding_types="data_parallel", compute_kernels="fused"), **TWO}, 72, r"t0.*sharding_types.*compute_kernels"),
    ("too large", {**tables(1, rows=10**9, dim=128, compute_kernels="fused"), **TWO}, 72, r"short by \d+ bytes.*Relax"),
    ("host memory", {**tables(1, rows=10**9, dim=128, compute_kernels="fused_uvm"), **TWO, "topology_ddr_cap": 2**30}, 72,
     r"^(?!.*topology_hbm_cap).*host memory.*short by \d+ bytes.*Relax.*topology_ddr_cap.*compute_kernels \(fused\)"),
    ("device memory", {**tables(1, rows=10**9, dim=128, compute_kernels="fused"), **TWO}, 72, r"^(?!.*topology_ddr_cap).*topology_hbm_cap.*fused_uvm"),
    ("one shard too large", {**tables(1, rows=10**8, dim=128, compute_kernels="fused", sharding_types="table_wise"), **TWO}, 72, r"t0.*short by \d+ bytes"),
    ("load factor", {**tables(1, compute_kernels="fused_uvm_caching", cache_load_factor=1.5), **TWO}, 72, r"load factor of 1\.5"),
    ("bad output", {**tables(1), "plan_output": "no/such/folder/plan.json"}, 73, r"plan_output.*no/such/folder"),
    ("explain unknown", {**tables(1), "plan_explain": "t9"}, 64, r"t9"),
]


def plan_files():
    """Damaged plan files: a function that changes a good plan's JSON text, exit code 65, and a text
    that the message must contain."""

    def edit(change):
        def apply(text):
            plan = json.loads(text)
            change(plan)
            return json.dumps(plan)

        return apply

    def shard(plan):
        return plan["tables"][0]["shards"][0]

    return [
        ("cut", lambda t: t[: len(t) // 2], r"not JSON"),
        ("empty", lambda t: "", r"not JSON"),
        ("a list", lambda t: "[]", r"expected a JSON object"),
        ("duplicate key", lambda t: t.replace('"version": 1,', '"version": 1, "version": 1,'), r"not JSON.*duplicate"),
        ("other format", edit(lambda p: p.update(format="something")), r"trshard-plan"),
        ("other version", edit(lambda p: p.update(version=2)), r"version"),
        ("no tables", edit(lambda p: p.pop("tables")), r'"tables"'),
        ("string rank", edit(lambda p: shard(p).update(rank="0")), r"tables\[0\]\.shards\[0\]\.rank"),
        ("rank outside", edit(lambda p: (shard(p).update(rank=9), p["tables"][0]["ranks"].__setitem__(0, 9))), r"rank 9"),
        ("ranks disagree", edit(lambda p: p["tables"][0]["ranks"].__setitem__(0, 1 - p["tables"][0]["ranks"][0])), r"disagrees"),
        ("unknown kernel", edit(lambda p: p["tables"][0].update(compute_kernel="magic")), r"magic"),
        ("hole", edit(lambda p: shard(p)["size"].__setitem__(0, shard(p)["size"][0] - 1)), r"cover|gap"),
        ("negative size", edit(lambda p: shard(p)["size"].__setitem__(0, -5)), r"size"),
        ("other model", edit(lambda p: p["tables"][0].update(name="zz")), r"zz|t0"),
        ("table twice", edit(lambda p: p["tables"].append(p["tables"][0])), r"twice"),
        ("missing table", edit(lambda p: p["tables"].pop()), r"no table"),
        ("huge number", lambda t: t.replace('"rank": 0', '"rank": 99999999999999999999', 1), r"JSON|rank"),
    ]


def main():
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        for name, options, code, pattern in CASES:
            found, text = run(folder, options)
            first = next((line for line in text.splitlines() if line.startswith("trshard: error")), text[:300])
            c.check(found == code, "%s: exit code %d, expected %d: %s" % (name, found, code, first[:300]))
            c.check(re.search(pattern, first), "%s: message does not say /%s/: %s" % (name, pattern, first[:300]))
            c.check(text.count("trshard: error") == 1, "%s: %d messages" % (name, text.count("trshard: error")))
        good = {**tables(2), **TWO}
        code, text = run(folder, good, "-plan_output", "good.json")
        c.check(code == 0, "good plan: " + text)
        with open(os.path.join(folder, "good.json")) as f:
            text = f.read()
        for name, change, pattern in plan_files():
            with open(os.path.join(folder, "bad.json"), "w") as f:
                f.write(change(text))
            code, output = run(folder, good, "-plan_input", "bad.json")
            first = output.split("\n")[0]
            c.check(code == 65, "plan file, %s: exit code %d: %s" % (name, code, first[:300]))
            c.check(re.search(pattern, first), "plan file, %s: message does not say /%s/: %s" % (name, pattern, first[:300]))
        code, output = run(folder, {**good, "topology_world_size": 4}, "-plan_input", "good.json")
        c.check(code == 65 and "2 ranks" in output, "plan file of another world: %d %s" % (code, output[:300]))
        code, output = run(folder, {**tables(1, rows=10**9, dim=128, compute_kernels="fused"), **TWO}, "-plan_output", "err.json")
        error = load(folder, "err.json")
        c.check(error["format"] == "trshard-plan-error" and error["message"] in output, "the error file holds the message")
    c.finish()


main()
