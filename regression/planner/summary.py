#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""summary.py TRSHARD: the first lines of -task plan are true for the plan's file, for a run with
the optimal proposer, and for runs with the proposed changes."""
import math
import re
import shlex
import tempfile

from planner_test import Checks, load, run, tables

GIB = 2.0**30
# the budget is in steps, so that the result does not depend on the machine
ADVICE = ("-plan_advice_seconds", "5")


def problem(n, world_size, local_world_size, **keys):
    """Uneven tables, for which the default proposers make uneven loads."""
    options = {**tables(n, dim=64), "topology_world_size": world_size, "topology_local_world_size": local_world_size, "topology_compute_device": "cuda",
               "topology_hbm_cap": "16GiB", "plan_dense_parameter_bytes": 0, **keys}
    for i in range(n):
        options["table_t%d_num_embeddings" % i] = 1000 * 7 ** (i % 6) + i
        options["table_t%d_pooling_factors" % i] = (1, 3, 10, 70)[i % 4]
    return options


def line(text, word):
    found = re.search(r"^  %s +(.*)$" % word, text, re.M)
    return found.group(1) if found else ""


def check_numbers(c, folder, n, world_size, local_world_size):
    code, text = run(folder, problem(n, world_size, local_world_size), "-plan_output", "plan.json", *ADVICE)
    c.check(code == 0, text)
    plan = load(folder, "plan.json")
    head = text.splitlines()[0]
    c.check(head == "plan: %d table%s on %d ranks, critical path %.4g ms" % (n, "s" * (n > 1), world_size, plan["critical_path"]), head)
    used = [d["storage"]["hbm"] for d in plan["devices"]]
    fits = re.match(r"device memory: the fullest rank is (\d+) with ([0-9.e-]+) of 16 GiB", line(text, "fits"))
    c.check(fits and used[int(fits.group(1))] == max(used) and float(fits.group(2)) >= max(used) / GIB * 0.99, line(text, "fits"))
    tables = re.search(r", ([0-9.e-]+) GiB of it for tables, ", line(text, "fits"))
    c.check(tables and abs(float(tables.group(1)) * GIB / max(used) - 1) < 0.01, line(text, "fits"))
    total = [sum(d["perf"].values()) for d in plan["devices"]]
    slowest = re.match(r"rank (\d+) with ([0-9.e-]+) ms", line(text, "slowest"))
    c.check(slowest and abs(total[int(slowest.group(1))] / max(total) - 1) < 1e-9 and abs(float(slowest.group(2)) / max(total) - 1) < 1e-3, line(text, "slowest"))
    behind = re.search(r": (t\d+) \((\w+)\) (\d+)%", line(text, "slowest"))
    table = next(t for t in plan["tables"] if behind and t["name"] == behind.group(1))
    there = sum(sum(s["perf"].values()) for s in table["shards"] if s["rank"] == int(slowest.group(1)))
    c.check(table["sharding_type"] == behind.group(2) and abs(100 * there / max(total) - int(behind.group(3))) <= 0.51, line(text, "slowest"))
    better = re.match(r"-(\d+)%: -plan_proposers optimal", line(text, "better"))
    code, text_2 = run(folder, problem(n, world_size, local_world_size), "-plan_output", "best.json", "-plan_proposers", "optimal", "-plan_optimal_seconds", "5")
    saved = 100 * (1 - load(folder, "best.json")["critical_path"] / plan["critical_path"])
    c.check(abs(saved - int(better.group(1))) <= 0.51 if better else saved < 1, "%s, but %.2f%%" % (line(text, "better"), saved))
    c.check(code == 0 and (line(text_2, "saved").startswith("-%.0f%%" % saved) or saved < 0.01) and not line(text_2, "better"), text_2)
    c.check(load(folder, "plan.json") == plan, "the advice changed the plan")
    listed = len(re.findall(r"^  t\d+ .* rank", text, re.M))
    c.check(listed == (n if n <= 50 else 0) and len(text.splitlines()) - listed <= 10, text)
    c.check(" GB" not in text, text)


def check_states(c, folder):
    """If the plan counts less memory than a run's tables and states take (computed by hand), this
    is reported."""
    for kind, optimizer, bytes_of in (("fp16", "adam", 2 + 2 * 4), ("fp32", "lamb", 4 + 2 * 4), ("fp32", "rowwise_adagrad", 0), ("fp32", "adam", 0)):
        options = {**tables(1, dim=64), "table_t0_num_embeddings": 1 << 20, "topology_world_size": 2, "topology_compute_device": "cpu", "topology_ddr_cap": "2GiB", "batch_size": 1,
                   "plan_dense_parameter_bytes": 0, "tables_data_type": kind, "embedding_optimizer": optimizer, "tables_sharding_types": "table_wise"}
        text = run(folder, options, *ADVICE)[1]
        told = re.search(r"^memory: in a run, tables and optimizer states of rank \d take ([0-9.]+) MiB", text, re.M)
        c.check(bool(told) == bool(bytes_of) and (not told or abs(float(told.group(1)) - 64 * bytes_of) < 0.01), text)


def check_time(c, folder):
    """If a time limit ends before a plan was found, no lack of memory is reported. The same holds
    for proposers without a proposal."""
    code, text = run(folder, problem(16, 8, 8), "-plan_timeout_seconds", "1e-9", "-plan_advice_seconds", "0", "-plan_proposers", "uniform")
    c.check(code == 72 and "16 tables on 8 ranks, no plan was tried" in text, text)
    many = {**tables(2000, dim=128), "topology_world_size": 256, "topology_local_world_size": 8, "topology_hbm_cap": "1800MiB",
            "plan_storage_reservation": "fixed_absolute"}
    many.update(("table_t%d_num_embeddings" % i, 10**4 * (1 + i % 97)) for i in range(2000))
    code, text = run(folder, many, "-plan_advice_seconds", "0", "-plan_timeout_seconds", "0.003", "-plan_proposers", "greedy")
    c.check(code == 72 and "2000 tables on 256 ranks, no plan was " in text and "-plan_timeout_seconds ended" in text, text)
    code, text = run(folder, many, "-plan_advice_seconds", "0", "-plan_proposers", "grid_search")
    c.check(code == 72 and "no plan was tried" in text, text)


def check_explain(c, folder):
    options = problem(16, 8, 8)
    run(folder, options, "-plan_output", "plan.json")
    plan = load(folder, "plan.json")
    total = [sum(d["perf"].values()) for d in plan["devices"]]
    slowest = total.index(max(total))
    for table in plan["tables"]:
        ranks = {s["rank"] for s in table["shards"]}
        text = run(folder, options, "-plan_explain", table["name"])[1]
        found = re.search(r"On rank (\d+) (?:it|one of its shards) would add ([0-9.e-]+) ms: ([0-9.e-]+) ms", text)
        cost = max(sum(s["perf"].values()) for s in table["shards"])
        if slowest in ranks:
            c.check("of the slowest rank, %d" % slowest in text and not found, text)
        else:
            c.check(found and int(found.group(1)) == slowest and abs(float(found.group(3)) / (max(total) + cost) - 1) < 1e-3, text)


def check_rating(c, folder):
    """The explanation of the optimal proposer's plan compares with that plan."""
    options = {**problem(26, 8, 8), "plan_proposers": "optimal", "plan_optimal_seconds": 1}
    text = run(folder, options, "-plan_explain", "t3", "-plan_output", "plan.json")[1]
    total = [sum(d["perf"].values()) for d in load(folder, "plan.json")["devices"]]
    now = re.search(r"the slowest rank now: ([0-9.e-]+) ms", text)
    c.check(now and abs(float(now.group(1)) / max(total) - 1) < 1e-4, text)
    c.check(re.search(r"%s ms \(\+0%%\)  <- chosen" % re.escape(now.group(1)), text), text)


def check_changes(c, folder):
    """Each proposed change gives a plan, and the next lower number does not. The ranks are those of
    all copies of the tables."""
    for world_size, local_world_size, copies in ((4, 4, 1), (8, 8, 2), (6, 2, 3)):
        check_changes_of(c, folder, world_size, local_world_size, copies)


def check_changes_of(c, folder, world_size, local_world_size, copies):
    options = {**problem(12, world_size, local_world_size), "topology_hbm_cap": "1GiB", "tables_compute_kernels": "fused", "plan_replicas": copies}
    code, text = run(folder, options, *ADVICE)
    c.check(code == 72 and text.startswith("plan: none: 12 tables on %d ranks, no plan fits" % (world_size // copies)) and text.count("trshard: error") == 1, text)
    c.check((copies > 1) == ("-plan_replicas" in text), text)
    changes = [words for words in re.findall(r"^  (?:change|or) +(.*)$", text, re.M) if words.startswith("-")]
    c.check(len(changes) >= 2, text)
    for change in changes:
        code, said = run(folder, options, *shlex.split(change.split(" (")[0]))
        c.check(code == 0, "%s: %s" % (change, said))
    hosts = re.search(r"-topology_world_size (\d+)", text)
    c.check(copies == 1 or hosts, text)
    if hosts:
        less = int(hosts.group(1)) - math.lcm(local_world_size, copies)
        code, said = run(folder, options, "-topology_world_size", str(less), "-topology_local_world_size", str(local_world_size))
        c.check(code == 72, "one host less fits, too: " + said)
    code, text = run(folder, options)
    c.check(code == 72 and "  needs " in text and "  change " not in text, text)


def check_columns(c, folder):
    """Names that are not ASCII move no column, in the list and in the report. Names of any length
    are shown in full."""
    names = ["b", "größe", "größe_" + "é" * 60]
    options = {"tables": ",".join(names), "tables_num_embeddings": 1000, "tables_embedding_dim": 16, "topology_world_size": 2}
    text = run(folder, options, "-plan_list_tables", "-plan_report", "stdout")[1]
    # in the list and in the report
    found = [sorted(line for line in text.splitlines() if re.match(r"(?:  |ebc\.)%s " % name, line)) for name in names]
    c.check(all(len(lines) == 2 for lines in found), text)
    for word in (" 1000 ", "fused"):
        places = [[line.rindex(word) - max(0, len(name) + (2 if i == 0 else 4) - (26 if i == 0 else 24)) for i, line in enumerate(lines)] for name, lines in zip(names, found)]
        c.check(places[0] == places[1] == places[2], "%s: %s\n%s" % (word, places, text))


def check_listed(c, folder):
    """If the memory of each rank is given, no advice names the option for all ranks, which would
    have no effect."""
    options = {**problem(12, 4, 4), "topology_hbm_cap_per_rank": ",".join(["1GiB"] * 4), "tables_compute_kernels": "fused"}
    code, text = run(folder, options, *ADVICE)
    c.check(code == 72 and "-topology_hbm_cap_per_rank" in text and not re.search(r"-topology_hbm_cap\b(?!_)|-topology_world_size \d", text), text)
    code, text = run(folder, {**options, "topology_hbm_cap_per_rank": "1GiB,2GiB,512MiB,1GiB"})
    c.check(code == 72 and " on 4 ranks of 0.5 to 2 GiB\n" in text, text)


def main():
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        for n, world_size, local_world_size in ((1, 2, 2), (8, 2, 2), (26, 8, 8), (60, 16, 4)):
            check_numbers(c, folder, n, world_size, local_world_size)
        check_states(c, folder)
        check_columns(c, folder)
        check_listed(c, folder)
        check_time(c, folder)
        check_explain(c, folder)
        check_rating(c, folder)
        check_changes(c, folder)
    c.finish()


main()
