#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares two sharding plans, or one problem on two topologies.

  compare_plans.py A.json B.json
      two -plan_output files: cost, memory and every table whose choice differs
  compare_plans.py --what-if TRSHARD RUN.opts -option value [-option value ...]
      plans RUN.opts as it is and with the given options changed (-topology_hbm_cap 40GiB, -topology_inter_host_bw 5e7, ...)
"""
import json
import os
import subprocess
import sys
import tempfile

import trspython

GIB = 2.0**30


def load(path):
    try:
        with open(path, encoding="utf-8") as f:
            plan = json.load(f)
    except OSError as error:
        sys.exit("%s: %s" % (path, error.strerror))
    except ValueError as error:
        sys.exit("%s is no JSON: %s" % (path, error))
    if not isinstance(plan, dict):
        sys.exit("%s is not a plan" % path)
    if plan.get("format") == "trshard-plan-error":
        sys.exit("%s: no plan (%s): %s" % (path, plan["error_type"], plan.get("message", "")))
    if plan.get("format") != "trshard-plan":
        sys.exit("%s is not a plan" % path)
    if "devices" not in plan:
        sys.exit("%s has no costs to compare: -task plan -plan_input FILE -plan_output NEW adds them" % path)
    return plan


def total(perf):
    return sum(perf.values())


def describe(table):
    ranks = table["ranks"]
    first, last, n = min(ranks), max(ranks), len(ranks)
    where = str(first) if n == 1 else "ranks %d-%d" % (first, last) if last - first == n - 1 else "%d ranks in %d-%d" % (n, first, last)
    return "%s/%s on %s" % (table["sharding_type"], table["compute_kernel"], where)


def choice(table):
    return table["sharding_type"], table["compute_kernel"], [(s["rank"], s["offset"], s["size"]) for s in table["shards"]]


def row(name, a, b, unit):
    change = "%+.2f%%" % (100 * (b / a - 1)) if a else ""
    print("%-28s %14.5g %14.5g %-4s %s" % (name, a, b, unit, change))


def compare(a, b):
    print("%-28s %14s %14s" % ("", "A", "B"))
    row("devices", a["world_size"], b["world_size"], "")
    row("critical path", a["critical_path"], b["critical_path"], "ms")
    for name, pick in (("slowest rank", max), ("mean of ranks", lambda x: sum(x) / len(x))):
        row(name, *(pick([total(d["perf"]) for d in p["devices"]]) for p in (a, b)), "ms")
    for part in ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "prefetch_compute"):
        row("  most " + part, *(max(d["perf"][part] for d in p["devices"]) for p in (a, b)), "ms")
    for kind in ("hbm", "ddr"):
        row("fullest rank, " + kind, *(max(d["storage"][kind] for d in p["devices"]) / GIB for p in (a, b)), "GiB")
        row("all ranks, " + kind, *(sum(d["storage"][kind] for d in p["devices"]) / GIB for p in (a, b)), "GiB")
    left, right = ({t["name"]: t for t in p["tables"]} for p in (a, b))
    changed = [n for n in left if n in right and choice(left[n]) != choice(right[n])]
    print("\n%d of %d tables differ" % (len(changed), len(left)))
    for name in sorted(changed, key=lambda n: -sum(total(s["perf"]) for s in left[n]["shards"])):
        cost = [sum(total(s["perf"]) for s in t[name]["shards"]) for t in (left, right)]
        print("  %-20s %-42s -> %-42s %10.4g -> %.4g ms" % (name, describe(left[name]), describe(right[name]), *cost))
    for here, there, label in ((left, right, "A"), (right, left, "B")):
        alone = [n for n in here if n not in there]
        if alone:
            print("only in %s: %s" % (label, ", ".join(alone)))


def plan_with(binary, options, more):
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "plan.json")
        p = subprocess.run([binary, "-task", "plan", "-options_file", options, "-plan_output", output, *more], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
        if p.returncode:
            error = next((line for line in p.stdout.splitlines() if "error" in line), "exit code %d" % p.returncode)
            sys.exit("with %s: %s" % (" ".join(more) or "no change", error))
        return load(output)


def main():
    words = sys.argv[1:]
    if words in (["-h"], ["--help"]):
        print(__doc__)
    elif len(words) == 2 and words[0] != "--what-if":
        compare(load(words[0]), load(words[1]))
    elif len(words) > 3 and words[0] == "--what-if":
        print("A: %s\nB: the same with %s\n" % (words[2], " ".join(words[3:])))
        compare(plan_with(words[1], words[2], []), plan_with(words[1], words[2], words[3:]))
    else:
        sys.exit(__doc__)


trspython.run(main)
