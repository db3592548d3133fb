# SPDX-License-Identifier: BSD-3-Clause
"""Shared code of the planner's tests: run the program with options from a dictionary."""
import json
import os
import subprocess
import sys

BINARY = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "trshard"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"]


def write_options(path, options):
    """"-key value" lines. A value of None gives a flag without a value."""
    with open(path, "w", encoding="utf-8") as f:
        for key, value in options.items():
            f.write("-%s %s\n" % (key, "" if value is None else value))


def run(folder, options, *more, ranks=0):
    """Exit code and output of a dry run in `folder`. `more` are words of the command line."""
    write_options(os.path.join(folder, "run.opts"), options)
    # advice takes time, and does not change the plan
    advice = [] if "-plan_advice_seconds" in more else ["-plan_advice_seconds", "0"]
    command = (MPIRUN + [str(ranks)] if ranks else []) + [BINARY, "-task", "plan", "-options_file", "run.opts", *advice, *more]
    p = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500)
    return p.returncode, p.stdout.decode("utf-8", "replace")


def load(folder, name):
    with open(os.path.join(folder, name)) as f:
        return json.load(f)


def tables(n, rows=1000, dim=64, **keys):
    """Options of n tables t0, t1, ..."""
    options = {"tables": ",".join("t%d" % i for i in range(n)), "tables_num_embeddings": rows, "tables_embedding_dim": dim}
    options.update({"tables_" + k: v for k, v in keys.items()})
    return options


class Checks:
    def __init__(self):
        self.n_failed = 0

    def check(self, condition, message):
        if not condition:
            self.n_failed += 1
            print("FAIL " + message)

    def finish(self):
        print("%d check(s) failed" % self.n_failed if self.n_failed else "all checks passed")
        sys.exit(1 if self.n_failed else 0)
