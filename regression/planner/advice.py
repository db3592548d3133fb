#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""advice.py TRSHARD: the test follows every advice of -task plan exactly as printed, on varied
problems, and gets the promised result.

Every line of advice is read from the output: better plans, changes that give a plan, options that
relax a shortage, the reason of -plan_explain, the copies of the tables, and the bound that no plan
can beat.
"""
import os
import random
import re
import shlex
import tempfile

from planner_test import Checks, load, run, tables
import problems

LONG = bool(os.environ.get("TRS_LONG"))
ADVICE = ("-plan_advice_seconds", "2")
PROPOSERS = ("grid_search,greedy,greedy_no_depth,uniform", "greedy", "uniform,dynamic_programming", "dynamic_programming", "uniform_no_depth")
DIGITS = 6e-4  # numbers are printed with four digits


def words_of(line):
    """The words of a command line in a line of advice. The text in brackets after them is an
    explanation."""
    return shlex.split(re.split(r" \(|; ", line)[0])


def applied(options, line):
    """The options of the problem after the advice, and the words to add."""
    if line.startswith("leave out the tables' sharding_types and compute_kernels"):
        return {k: v for k, v in options.items() if not re.fullmatch(r"tables?_.*(sharding_types|compute_kernels)", k)}, []
    if not line.startswith("-"):
        raise RuntimeError("no test knows how to follow this advice: " + line)
    return options, words_of(line)


def settings(r, options):
    """Other settings of the search, the reservation and the tables."""
    names = options["tables"].split(",")
    options.update(r.choice([{}, {}, {"plan_optimal_seconds": r.choice([0.05, 0.3, 2])}, {"plan_timeout_seconds": 5}]))
    options.update(r.choice([{}, {"plan_partitioner": "memory_balanced"}, {"plan_prefetch_pipeline": "true"}, {"plan_greedy_sort_by": "perf"}]))
    options.update(r.choice([{}, {"tables_data_type": "fp16"}, {"table_%s_data_type" % r.choice(names): "bf16"}, {"table_%s_data_type" % r.choice(names): "fp32"}]))
    options.update(r.choice([{}, {"embedding_optimizer": "adam"}, {"table_%s_optimizer" % r.choice(names): "adam"}]))
    options["plan_proposers"] = r.choice(PROPOSERS)
    return options


def path_of(folder, options, words=()):
    code, text = run(folder, options, "-plan_output", "advised.json", *words)
    return (load(folder, "advised.json")["critical_path"] if code == 0 else float("inf")), text


def check_better(c, folder, seed):
    r = random.Random(seed)
    options = settings(r, problems.problem(folder, seed, tables=(10, 20, 40), devices=(8, 16, 32)))
    code, text = run(folder, options, *ADVICE, "-plan_output", "plan.json", "-plan_explain", r.choice(options["tables"].split(",")))
    if code == 72:
        return check_none(c, folder, seed, options, text)
    c.check(code == 0, text)
    path = load(folder, "plan.json")["critical_path"]
    name, known = "problem %d" % seed, [path]
    better = re.search(r"^  better +-(\d+)%: (.*)$", text, re.M)
    promises = [(better.group(2), float(re.search(r"\(([0-9.e+-]+) ms", better.group(2)).group(1)))] if better else []
    promises += [(line, float(ms)) for line, ms in re.findall(r"(-\S+ \S+) gives a critical path of ([0-9.e+-]+) ms", text)]
    for line, promised in promises:
        came, _ = path_of(folder, *applied(options, line))
        known.append(came)
        c.check(came <= promised * (1 + DIGITS), "%s: '%s' promises %g ms and gives %g" % (name, line, promised, came))
        c.check(promised < path * (1 + DIGITS), "%s: '%s' promises %g ms, and the plan has %g" % (name, line, promised, path))
    bound = re.search(r"^  bound +no plan is below ([0-9.e+-]+) ms", text, re.M)
    c.check(not bound or float(bound.group(1)) <= min(known) * (1 + DIGITS), "%s: the bound is above %g ms: %s" % (name, min(known), text))
    return len(promises)


def relaxed(options, name):
    """The words after a name in "Relax: ...", or None if the name is no option of the planner."""
    twice = {"topology_hbm_cap": 80 * 10**9, "topology_ddr_cap": 80 * 10**9, "topology_world_size": 8}
    half = {"plan_batch_size": 512, "batch_size": 512, "plan_storage_reservation_percentage": 0.15, "plan_storage_reservation_bytes": 0,
            "plan_parameter_multiplier": 6, "plan_dense_tensor_estimate": 2**28, "plan_replicas": 1, "plan_dense_parameter_bytes": 0}
    key = name.split()[0].lstrip("-")
    if key in twice:
        return ["-" + key, str(2 * max(2**20, int(options.get(key, twice[key]))) if "cap" in key else 2 * int(options[key]))]
    if key in half:
        now = float(options.get(key, half[key]))
        return ["-" + key, "%g" % (now / 2) if "percent" in key or "multiplier" in key else str(max(1, int(now / 2)))]
    if key.endswith("data_type"):
        return ["-" + key, "fp16"]
    if key.endswith("optimizer"):
        return ["-" + key, "rowwise_adagrad"]
    if key.endswith("compute_kernels"):
        return ["-" + key, ",".join(re.findall(r"fused\w*", name.split("(")[1])) + "," + options.get(key, options.get("tables_compute_kernels", "fused"))]
    if key.endswith("sharding_types"):
        return ["-" + key, "data_parallel,table_wise,column_wise,row_wise,table_row_wise,table_column_wise,grid_shard"]
    return ["-plan_proposers", "optimal"] if key == "plan_proposers" else None


def shortage(text):
    found = re.search(r"short by (\d+) bytes", text)
    return int(found.group(1)) if found else None


def check_relax(c, folder, name, options, text, lines):
    """Each named option relaxes the shortage: there is a plan, less memory is missing, or the
    tables only fail to pack. The proposed changes were tried before."""
    found = re.search(r"Relax: (.*)$", text, re.M)
    before = shortage(text)
    for option in re.split(r", (?=-)", found.group(1).split(". ")[0]) if found and before else []:
        if option == "smaller -dense_arch or -over_arch" or any(line.startswith(option.split()[0] + " ") for line in lines):
            continue
        words = relaxed(options, option)
        c.check(words is not None, "%s: no test knows how to relax '%s'" % (name, option))
        code, said = run(folder, options, *(words or []))
        after = shortage(said)
        c.check(code == 0 or (code == 72 and (after is None or after < before)),
                "%s: '%s' as %s relaxes nothing: short by %s, then by %s: %s" % (name, option, words, before, after, said[-600:]))


def check_none(c, folder, seed, options, text):
    lines = re.findall(r"^  (?:change|or) +(.*)$", text, re.M)
    for line in lines:
        changed, words = applied(options, line)
        code, said = run(folder, changed, *words)
        c.check(code == 0, "problem %d: '%s' gives no plan: %s" % (seed, line, said[-400:]))
    check_relax(c, folder, "problem %d" % seed, options, text, lines)
    return len(lines)


def check_missing(c, folder, seed):
    """A problem with less memory than it needs, or with constraints that leave too little."""
    r = random.Random(seed)
    options = settings(r, problems.problem(folder, seed, tables=(4, 10, 20), devices=(8, 16)))
    names = options["tables"].split(",")
    options["topology_hbm_cap"] = int(options["topology_hbm_cap"] * r.choice([0.1, 0.5, 0.8, 0.95])) + 1
    options["topology_ddr_cap"] = r.choice([0, options["topology_hbm_cap"] // 10])
    options.update(r.choice([{}, {}, {"tables_compute_kernels": "fused"}, {"table_%s_sharding_types" % r.choice(names): "table_wise"}]))
    options.update(r.choice([{}, {"plan_storage_reservation": "heuristical", "plan_dense_parameter_bytes": 10**6},
                             {"plan_storage_reservation": "fixed_percentage", "plan_storage_reservation_percentage": 0.33}]))
    if r.random() < 0.3:
        options.update({"topology_compute_device": "cpu", "topology_ddr_cap": options["topology_hbm_cap"]})
        if "dynamic" in options["plan_proposers"]:
            options["plan_proposers"] = "uniform"
    if r.random() < 0.2:
        options["plan_replicas"] = 2
    code, text = run(folder, options, *ADVICE)
    c.check(code in (0, 72), "problem %d: %s" % (seed, text[:400]))
    return check_none(c, folder, seed, options, text) if code == 72 else 0


def check_reserved(c, folder):
    """The reservation or the dense layers leave no memory for tables, and batches take the largest
    part."""
    base = {**tables(3, rows=10**5), "topology_world_size": 4, "topology_compute_device": "cuda", "topology_hbm_cap": 2**30, "topology_ddr_cap": 2**30}
    for options in ({"plan_dense_parameter_bytes": 2**28}, {"plan_dense_tensor_estimate": 2**30}, {"plan_batch_size": 10**6, "plan_storage_reservation_percentage": 0.4},
                    {"topology_compute_device": "cpu", "plan_dense_parameter_bytes": 2**28}, {"plan_batch_size": 10**7, "plan_storage_reservation": "fixed_percentage"}):
        code, text = run(folder, {**base, **options}, *ADVICE)
        c.check(code == 72, "%s: %d: %s" % (options, code, text))
        check_none(c, folder, 0, {**base, **options}, text)


def check_copies(c, folder):
    """The option for each listed number of copies gives the listed plan."""
    options = {**tables(12, dim=64), "topology_world_size": 8, "topology_local_world_size": 4, "topology_compute_device": "cuda",
               "plan_dense_parameter_bytes": 0, **{"table_t%d_num_embeddings" % i: 1000 * 5 ** (i % 6) for i in range(12)}}
    text = run(folder, {**options, "plan_replicas": 0}, *ADVICE)[1]
    found = re.findall(r"^  (?:copies)? +(\d+) of \d+ ranks?: [0-9.e+-]+ ms = ([0-9.e+-]+) of a copy", text, re.M)
    c.check(len(found) > 2, text)
    for copies, ms in found:
        came, said = path_of(folder, {**options, "plan_replicas": copies})
        c.check(abs(came / float(ms) - 1) < DIGITS, "%s copies: %s ms in the list, %g with the option" % (copies, ms, came))


def check_options(c, folder):
    """Each option of -plan_explain has the plan that results if all tables are fixed to their
    options."""
    options = settings(random.Random(5), problems.problem(folder, 12, tables=(10,), devices=(8,)))
    run(folder, options, "-plan_output", "plan.json")
    held = {}
    for table in load(folder, "plan.json")["tables"]:
        held["table_%s_sharding_types" % table["name"]] = table["sharding_type"]
        held["table_%s_compute_kernels" % table["name"]] = table["compute_kernel"]
    for name in options["tables"].split(",")[:4]:
        text = run(folder, options, "-plan_explain", name)[1]
        for kind, kernel, ms, chosen in re.findall(r"^(\w+_\w+) +(\w+) +\d+ .*  ([0-9.e+-]+) ms \([^)]*\)(  <- chosen)?$", text, re.M):
            one = {**options, **held, "table_%s_sharding_types" % name: kind, "table_%s_compute_kernels" % name: kernel, "plan_proposers": "grid_search"}
            code, said = run(folder, one, "-plan_output", "held.json")
            rating = max(sum(d["perf"].values()) for d in load(folder, "held.json")["devices"]) if code == 0 else float("inf")
            c.check(chosen or abs(rating / float(ms) - 1) < 1e-4, "%s as %s/%s: %s ms explained, %g ms held: %s" % (name, kind, kernel, ms, rating, said[-300:]))


def main():
    c, n = Checks(), [0, 0]
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(5000, 5100 if LONG else 5005):
            n[0] += check_better(c, folder, seed)
        for seed in range(6000, 6200 if LONG else 6010):
            n[1] += check_missing(c, folder, seed)
        check_reserved(c, folder)
        check_copies(c, folder)
        check_options(c, folder)
    print("%d promises of a better plan, %d of a plan" % tuple(n))
    c.check(min(n) > 3, "too little advice was tried: the problems are too easy")
    c.finish()


main()
