#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Benchmarks of the planner.

  bench_planner.py speed   TRSHARD [--peer PYTHON] [--sizes 26x8,100x8,...] [--limit S] [--rounds 3] [--csv FILE] [--plot FILE] [--resume]
      tables x devices with the default proposers, in turn with the real TorchRec if PYTHON has it: plans per second, goal 100 times. A TorchRec run
      that takes longer than --limit seconds of elapsed time counts as done after them, so its ratio is too small
  bench_planner.py growth  TRSHARD [--sizes ...]
      time and memory for several numbers of tables, devices and proposals; growth between two rows that differ in one of them: 1 is linear, 2 quadratic
  bench_planner.py optimal TRSHARD [--problems 30] [--seconds 2]
      critical path of -plan_proposers optimal against TorchRec's default list on generated, uneven problems, and the gap to the proven bound

Times are CPU seconds, because both planners use one thread and elapsed time depends on the machine's other work. They cover only planning,
without MPI's start, reading the options and TorchRec's import. "run s" is the time of the whole program, with these.
"""
import argparse
import json
import math
import os
import random
import re
import resource
import subprocess
import sys
import tempfile

import bench_common as common

HERE = os.path.dirname(os.path.abspath(__file__))
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def standard(n, world, hbm_gib=80):
    """The tables of bench_planner_peer.py."""
    options = {"topology_world_size": world, "topology_local_world_size": min(8, world), "topology_compute_device": "cuda",
               "topology_hbm_cap": "%gGiB" % hbm_gib, "plan_dense_parameter_bytes": 0, "tables": ",".join("t%d" % i for i in range(n))}
    for i in range(n):
        options["table_t%d_num_embeddings" % i] = 1000 * 2 ** (i % 14) + 7 * i
        options["table_t%d_embedding_dim" % i] = [32, 64, 96, 128, 256][i % 5]
        options["table_t%d_pooling_factors" % i] = [1, 1, 2, 10, 30][(i // 5) % 5]
    return options


def uneven(seed):
    """Zipf table sizes, mixed widths and poolings, memory for 1.2 to 4 times the tables."""
    r = random.Random(seed)
    n, world = r.choice([12, 26, 50, 100]), r.choice([4, 8, 16, 32, 64])
    scale, exponent = 10 ** r.uniform(6.5, 8.5), r.uniform(0.8, 1.4)
    rows = [max(100, int(scale / (i + 1) ** exponent)) for i in range(n)]
    dims = [r.choice([16, 32, 64, 128, 256, 512]) for _ in range(n)]
    cap = int(sum(4 * a * b for a, b in zip(rows, dims)) / world * r.choice([1.2, 1.5, 2, 4]) / 0.85 + 2**28)
    options = {"topology_world_size": world, "topology_local_world_size": min(world, 8), "topology_compute_device": "cuda",
               "topology_hbm_cap": cap, "plan_dense_parameter_bytes": 0, "plan_batch_size": r.choice([512, 2048, 8192]),
               "tables": ",".join("t%d" % i for i in range(n))}
    for i in range(n):
        options["table_t%d_num_embeddings" % i] = rows[i]
        options["table_t%d_embedding_dim" % i] = dims[i]
        options["table_t%d_pooling_factors" % i] = "%.3f" % (10 ** r.uniform(-0.5, 1.8))
    return options


def trshard(binary, options, *more, timeout=600):
    """The plan, the report, and (CPU seconds, peak MB) of one run, which include MPI's start and reading the options; None if there is no plan."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "run.opts"), "w") as f:
            f.writelines("-%s %s\n" % kv for kv in options.items())
        p = subprocess.run([binary, "-task", "plan", "-options_file", "run.opts", "-plan_report", "report.txt", "-plan_advice_seconds", "0", *more], cwd=folder,
                           env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
        if p.returncode:
            return None, p.stdout, (0, 0)
        with open(os.path.join(folder, "report.txt")) as f:
            report = f.read()
        plan = None
        if os.path.exists(os.path.join(folder, "plan.json")):
            with open(os.path.join(folder, "plan.json")) as f:
                plan = json.load(f)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return plan, report, (usage.ru_utime - before, usage.ru_maxrss / 1024)


def seconds(report):
    return float(re.search(r"ran for [0-9.]+ s \(([0-9.]+) s of a core", report).group(1))


def evaluated(report):
    return int(re.search(r"Evaluated (\d+)", report).group(1))


RATE = "plans a CPU second"


def ours(binary, n, world):
    return {RATE: 1 / max(seconds(trshard(binary, standard(n, world))[1]), 1e-6)}


def peer(python, n, world, limit, late=set()):
    """late: sizes that once exceeded the limit, and are not tried again."""
    if (n, world) in late:
        return {RATE: 1 / limit}
    command = [python, os.path.join(HERE, "bench_planner_peer.py"), "--tables", str(n), "--world-size", str(world)]
    try:
        return {RATE: 1 / json.loads(common.output_of(command, timeout=limit).strip().splitlines()[-1])["cpu_s"]}
    except common.TimeIsUp:
        late.add((n, world))
        return {RATE: 1 / limit}


def speed(a):
    """Tables of goals and samples, as in the other benchmarks."""
    cases, goals = {}, []
    python = common.peer_python(a.peer) if a.peer else None
    for size in (a.sizes or "26x8,100x8,100x64,100x256,500x64,1000x1024").split(","):
        n, world = map(int, size.split("x"))
        cases[size] = {"trshard": lambda n=n, world=world: ours(a.trshard, n, world)}
        if python:
            cases[size]["TorchRec"] = lambda n=n, world=world: peer(python, n, world, a.limit)
        goals.append(common.Goal(f"{n} tables on {world} devices, {RATE}", (size, "trshard", RATE), (size, "TorchRec", RATE), 100, of="TorchRec"))
        if (n, world) == (1000, 1024):
            goals.append(common.Goal(f"{n} tables on {world} devices, {RATE}", (size, "trshard", RATE), 1 / 5, 1.0, of="one in 5 s"))
    suite = common.Suite(a)
    suite.rounds(cases)
    return suite.finish(goals, f"planner: {common.machine()}")


def growth(a):
    print("%7s %8s %10s %10s %10s %10s %8s" % ("tables", "devices", "evaluated", "planning s", "run s", "peak MB", "growth"))
    before = None
    for size in (a.sizes or "100x1024,300x1024,1000x1024,3000x1024,10000x1024,1000x8,1000x128,1000x1024,1000x16384,10000x16384").split(","):
        n, world = map(int, size.split("x"))
        child = subprocess.run([sys.executable, os.path.abspath(__file__), "one", a.trshard, "--sizes", size],
                               stdout=subprocess.PIPE, text=True, check=True)  # a separate process: peak memory is per process
        planning = float(child.stdout.split()[3])
        power = ""
        if before and (n == before[0]) != (world == before[1]):
            power = "%8.2f" % (math.log(planning / before[2]) / math.log(n / before[0] if n != before[0] else world / before[1]))
        print(child.stdout.rstrip("\n"), power, flush=True)
        before = (n, world, planning)


def sizes(text):
    if not re.fullmatch(r"\d+x\d+(,\d+x\d+)*", text):
        raise argparse.ArgumentTypeError(f"{text}: expected tables x devices, such as 26x8,100x64")
    return text


def one(a):
    n, world = map(int, a.sizes.split("x"))
    _, report, usage = trshard(a.trshard, standard(n, world))
    print("%7d %8d %10d %10.4f %10.2f %10.0f" % (n, world, evaluated(report), seconds(report), *usage))


def optimal(a):
    print("%4s %6s %7s %12s %12s %8s %8s" % ("seed", "tables", "devices", "TorchRec ms", "optimal ms", "gain", "gap"))
    gains, gaps = [], []
    seed = 0
    while len(gains) < a.problems:
        options = uneven(seed)
        seed += 1
        plan, _, _ = trshard(a.trshard, options, "-plan_output", "plan.json")
        if plan is None:  # TorchRec's list finds no plan: there is nothing to compare with
            continue
        best, report, _ = trshard(a.trshard, options, "-plan_output", "plan.json", "-plan_proposers", "optimal", "-plan_optimal_seconds", str(a.seconds))
        bound = float(re.search(r"Lower bound of the critical path: ([0-9.e+-]+)", report).group(1))
        gains.append(plan["critical_path"] / best["critical_path"])
        gaps.append(best["critical_path"] / bound - 1)
        print("%4d %6d %7d %12.5g %12.5g %7.2fx %7.1f%%" % (seed - 1, options["tables"].count(",") + 1, options["topology_world_size"],
                                                         plan["critical_path"], best["critical_path"], gains[-1], 100 * gaps[-1]), flush=True)
    print("geometric-mean gain %.3fx, least %.3fx, most %.3fx; gap to the bound: mean %.1f%%, median %.1f%%, most %.1f%%"
          % (math.exp(sum(map(math.log, gains)) / len(gains)), min(gains), max(gains), 100 * sum(gaps) / len(gaps),
             100 * sorted(gaps)[len(gaps) // 2], 100 * max(gaps)))


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("what", choices=["speed", "growth", "optimal", "one"])
p.add_argument("trshard")
p.add_argument("--peer")
p.add_argument("--sizes", type=sizes, help="tables x devices,...")
p.add_argument("--limit", type=float, default=240)
p.add_argument("--problems", type=int, default=30)
p.add_argument("--seconds", type=float, default=2)
common.add_options(p, "bench_planner", minutes=30)
a = p.parse_args()
if a.what == "one" and (not a.sizes or "," in a.sizes):
    p.error("one needs --sizes with one size, such as 100x64")
a.trshard = os.path.abspath(a.trshard)
sys.exit({"speed": speed, "growth": growth, "optimal": optimal, "one": one}[a.what](a))
