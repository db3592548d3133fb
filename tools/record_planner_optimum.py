#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""record_planner_optimum.py TRSHARD OUTPUT.json [--problems 12] [--limit 300]: shortest critical paths of tiny problems, by an exact solver.

The problems are tiny(0), tiny(1), ... of regression/planner/problems.py. trshard writes their search space, from which the tool makes a
mixed-integer program. Its variables are an option for each table, and the shards on each device (whole hosts if the option requires them). It
has limits of memory, and a maximum over devices for each part of the critical path. HiGHS (Huangfu and Hall, Math. Programming Computation 10,
2018), which scipy >= 1.9 contains, solves it. A problem that is not solved to 0.1 % within the limit is left out.
regression/planner/optimal.py compares with the recorded numbers.
"""
import argparse
import collections
import json
import os
import sys
import tempfile

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

HERE = os.path.dirname(os.path.abspath(__file__))


class Program:
    """Columns with costs and bounds, rows of (column, factor) pairs."""

    def __init__(self):
        self.cost, self.low, self.high, self.whole, self.rows = [], [], [], [], []

    def column(self, cost=0, high=1, whole=True):
        self.cost.append(cost), self.low.append(0), self.high.append(high), self.whole.append(int(whole))
        return len(self.cost) - 1

    def row(self, pairs, low, high):
        self.rows.append((pairs, low, high))

    def solve(self, limit):
        i = [k for k, (pairs, _, _) in enumerate(self.rows) for _ in pairs]
        j = [c for pairs, _, _ in self.rows for c, _ in pairs]
        x = [v for pairs, _, _ in self.rows for _, v in pairs]
        matrix = coo_matrix((x, (i, j)), shape=(len(self.rows), len(self.cost))).tocsr()
        return milp(np.array(self.cost), integrality=np.array(self.whole), bounds=Bounds(self.low, self.high),
                    constraints=LinearConstraint(matrix, [r[1] for r in self.rows], [r[2] for r in self.rows]),
                    options={"time_limit": limit, "mip_rel_gap": 1e-3})


PARTS = ("fwd_compute", "bwd_compute", "fwd_comms", "bwd_comms")


def place(program, option, chosen, world, group):
    """Columns for the places of an option's shards: {device: [(column, number of its shards there)]}."""
    n, at = len(option["shards"]), collections.defaultdict(list)
    if option["partition_by"] == "uniform":
        for r in range(world):
            at[r].append((chosen, 1))
    elif option["partition_by"] == "device":
        columns = [program.column(high=n) for _ in range(world)]
        program.row([(c, 1) for c in columns] + [(chosen, -n)], 0, 0)
        for r, c in enumerate(columns):
            at[r].append((c, 1))
    else:
        hosts = range(world // group)
        blocks = n // group if option["sharding_type"] in ("table_row_wise", "grid_shard") else 1
        columns = [program.column(high=blocks) for _ in hosts]
        program.row([(c, 1) for c in columns] + [(chosen, -blocks)], 0, 0)
        for h in hosts:
            if option["sharding_type"] == "table_column_wise":
                mine = [program.column(high=n) for _ in range(group)]
                program.row([(c, 1) for c in mine] + [(columns[h], -n)], 0, 0)
                for r, c in enumerate(mine):
                    at[h * group + r].append((c, 1))
            else:
                for r in range(group):
                    at[h * group + r].append((columns[h], 1))
    return at


def build(space, options):
    """The program of a search space. All shards of an option count like its largest shard."""
    world, group = options["topology_world_size"], options["topology_local_world_size"]
    program, maxima, loads = Program(), {}, collections.defaultdict(list)
    memory = {kind: [[] for _ in range(world)] for kind in ("hbm", "ddr")}
    tables = collections.defaultdict(list)
    for option in space["options"]:
        if max(s["storage"]["hbm"] for s in option["shards"]) > options["topology_hbm_cap"]:
            continue
        chosen = program.column()
        tables[option["name"]].append((chosen, 1))
        shard, uniform = option["shards"][0], option["partition_by"] == "uniform"
        at = place(program, option, chosen, world, group)
        for part in PARTS:
            ms = shard["perf"][part]
            key = part if "compute" in part else (part, option["sharding_type"])
            if uniform:
                program.cost[chosen] += ms
                continue
            if key not in maxima:
                maxima[key] = program.column(cost=1, high=np.inf, whole=False)
            for r, pairs in at.items():
                loads[key, r] += [(c, ms * k) for c, k in pairs]
        for kind in memory:
            most = max(s["storage"][kind] for s in option["shards"])
            for r, pairs in at.items():
                memory[kind][r] += [(c, most * k / 2**30) for c, k in pairs]
    for pairs in tables.values():
        program.row(pairs, 1, 1)
    for (key, _), pairs in loads.items():
        program.row(pairs + [(maxima[key], -1)], -np.inf, 0)
    for kind, rows in memory.items():
        for pairs in rows:
            program.row(pairs, -np.inf, options["topology_%s_cap" % kind] / 2**30)
    return program


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("trshard")
    p.add_argument("output")
    p.add_argument("--problems", type=int, default=12)
    p.add_argument("--limit", type=float, default=300, help="seconds of the solver a problem")
    a = p.parse_args()
    sys.argv[1:] = [a.trshard]
    sys.path.insert(0, os.path.join(HERE, "..", "regression", "planner"))
    import problems
    from planner_test import load, run
    found = []
    for seed in range(a.problems):
        with tempfile.TemporaryDirectory() as folder:
            options = problems.tiny(folder, seed)
            code, text = run(folder, options, "-plan_search_space", "space.json")
            if code:
                raise RuntimeError(text)
            answer = build(load(folder, "space.json"), options).solve(a.limit)
        done = answer.status == 0
        print("tiny(%d): %d tables on %d devices: %s ms, lower bound %s ms%s"
              % (seed, options["tables"].count(",") + 1, options["topology_world_size"], answer.fun, answer.mip_dual_bound, "" if done else ", not solved"),
              flush=True)
        if done:
            found.append({"seed": seed, "critical_path": answer.fun, "bound": answer.mip_dual_bound})
    with open(a.output, "w") as f:
        json.dump({"solver": "HiGHS by scipy.optimize.milp, gap 1e-3", "problems": found}, f, indent=1)


if __name__ == "__main__":
    main()
