#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_bench.py [--lines REGEX ...] [--pictures NAME ...] -- COMMAND

Runs a benchmark in an empty folder. Each REGEX must match a line that it prints. results/ must
contain the pictures and a CSV of samples, and no other file may exist. A benchmark that ends with
77 cannot run here, and this script ends with 77, too.
"""
import argparse
import csv
import glob
import os
import re
import subprocess
import sys
import tempfile

split = sys.argv.index("--")
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lines", nargs="*", default=[])
parser.add_argument("--pictures", nargs="*", default=[])
args, command = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1:]
with tempfile.TemporaryDirectory(prefix="trshard-bench-") as folder:
    result = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    print(result.stdout, result.stderr, sep="")
    if result.returncode == 77:
        sys.exit(77)
    faults = [f"exit code {result.returncode}"] if result.returncode else []
    faults += [f"no line matches {regex!r}" for regex in args.lines if not re.search(regex, result.stdout, re.MULTILINE)]
    faults += [f"no picture {name}" for name in args.pictures if not os.path.exists(os.path.join(folder, "results", name)) or os.path.getsize(os.path.join(folder, "results", name)) < 1000]
    faults += [f"writes {name} into the current folder" for name in os.listdir(folder) if name != "results"]
    tables = glob.glob(os.path.join(folder, "results", "*.csv"))
    if len(tables) != 1:
        faults.append(f"{len(tables)} CSV files")
    for path in tables:
        with open(path, newline="", encoding="utf-8") as file:
            if not list(csv.DictReader(line for line in file if not line.startswith("#"))):
                faults.append(f"{path} has no rows")
sys.exit("; ".join(faults) or 0)
