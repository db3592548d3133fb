#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The campaign of faults: kills, failing calls, flipped bits, mutated inputs, failing allocations,
threads, and a soak.

  run.py --minutes 60 --output table            all classes, which share the time
  run.py --minutes 10 --only kills,io --seed 7  some classes, other cases
  run.py --only kills --slice 0.02              this share of the goal's cases, regardless of time
  run.py --only io --seed 7 --case 42           one case again, with its files in the output folder
  run.py --list                                 the classes, their units and their goals

A class ends at its goal, or when its share of the time is over. The output folder has campaign.txt,
campaign.csv and campaign.json, with the number of tried and survived units and the command of each
failure. Exit status: 0 all survived, 1 something failed, 2 wrong arguments, 77 nothing could run. A
case depends only on the seed, the class and its number.
"""
import argparse
import csv
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "harness")]

import campaign  # noqa: E402
import trsrun  # noqa: E402

CLASSES = {"flips": "Flips", "memory": "Memory", "fuzz": "Fuzz", "threads": "Threads", "kills": "Kills", "io": "Io", "mutations": "Mutations", "soak": "Soak"}
SHOWN_FAILURES = 3  # of a class on the screen; files have all of them


class Record:
    """The results of a class so far. Its cases end on several threads."""

    def __init__(self, kind, seed):
        self.kind, self.seed, self.lock = kind, seed, threading.Lock()
        self.cases = self.tried = 0
        self.failures, self.skipped, self.seconds, self.slowest = [], "", 0.0, (0.0, -1)

    def add(self, index, tally):
        """Run one case. Case -1 is the preparation."""
        with self.lock:
            self.cases += 1
            self.tried += tally.tried
            self.slowest = max(self.slowest, (tally.seconds, index))
            for text in tally.failures:
                command = f"regression/campaign/run.py --only {self.kind.name} --seed {self.seed} --case {index}"
                self.failures.append({"case": index, "command": command, "what": text})
                if len(self.failures) <= SHOWN_FAILURES:
                    print(f"FAIL {command}\n     {text[:800]}", flush=True)

    def row(self):
        failed = len(self.failures)
        return {"class": self.kind.name, "unit": self.kind.unit, "goal": self.kind.goal, "cases": self.cases, "tried": self.tried, "survived": max(0, self.tried - failed),
                "failed": failed, "seconds": round(self.seconds, 1), "slowest_s": round(self.slowest[0], 1), "slowest_case": self.slowest[1], "skipped": self.skipped}


def one_case(kind, index, record):
    try:
        tally = kind.case(index)
    except trsrun.Failed as problem:
        tally = campaign.Tally(1, [str(problem)])
    except Exception:  # an error of the harness is also a failure, and the other cases continue
        tally = campaign.Tally(1, [traceback.format_exc(limit=-2)])
    record.add(index, tally)


def run_class(kind, record, until_s, jobs, scale):
    """Run cases 0, 1, 2, ... on this number of threads, until the goal or the time is reached, or
    no case is left."""
    goal, end, indices = max(1, round(kind.goal * scale)), getattr(kind, "n_cases", None), iter(range(1 << 30))

    def work():
        while record.tried < goal and time.monotonic() < until_s:
            with record.lock:
                index = next(indices)
            if end is not None and index >= end:
                return
            one_case(kind, index, record)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(jobs, getattr(kind, "most_jobs", jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run_campaign(args, setting):
    """The records of all requested classes, one after another."""
    until_s = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    kinds = [getattr(importlib.import_module(f"class_{name}"), CLASSES[name])(setting) for name in CLASSES if name in args.only]
    records = []
    for i, kind in enumerate(kinds):
        start_s, record = time.monotonic(), Record(kind, args.seed)
        records.append(record)
        share = kind.weight / sum(later.weight for later in kinds[i:])
        try:
            record.skipped = kind.prepare() or ""
        except (trsrun.Failed, OSError, subprocess.SubprocessError) as problem:
            record.add(-1, campaign.Tally(0, [f"nothing could be prepared: {problem}"]))
        else:
            if record.skipped:
                print(f"skipped: {kind.name}: {record.skipped}", flush=True)
            elif args.case is not None:
                one_case(kind, args.case, record)
            else:
                run_class(kind, record, start_s + (until_s - start_s) * share, args.jobs, args.slice or 1)
        if hasattr(kind, "end"):
            kind.end()
        record.seconds = time.monotonic() - start_s
        print(line_of(record.row()), flush=True)
    return records


def line_of(row):
    return f"{row['class']:10} {row['tried']:8} tried of {row['goal']:<8} {row['survived']:8} survived {row['failed']:6} failed {row['seconds']:8} s  {row['unit']}" + (
        f"  (skipped: {row['skipped']})" if row["skipped"] else "")


def write_table(args, records):
    rows = [record.row() for record in records]
    failures = [dict(failure, **{"class": record.kind.name}) for record in records for failure in record.failures]
    os.makedirs(args.output, exist_ok=True)
    with open(os.path.join(args.output, "campaign.json"), "w", encoding="utf-8") as file:
        json.dump({"seed": args.seed, "commit": version(args.binary), "classes": rows, "failures": failures}, file, indent=1)
    with open(os.path.join(args.output, "campaign.csv"), "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    with open(os.path.join(args.output, "campaign.txt"), "w", encoding="utf-8") as file:
        file.write(f"seed {args.seed}, {version(args.binary)}\n" + "".join(line_of(row) + "\n" for row in rows))
        for failure in failures:
            file.write(f"\n{failure['command']}\n{failure['what']}\n")


def version(binary):
    done = subprocess.run([binary, "-version"], env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"), capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or ["?"])[0]


def arguments():
    build = os.path.join(HERE, "..", "..", "build")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="stop after so long, whatever of the goals is reached (default: at the goals)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CLASSES), metavar="CLASS,...")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slice", type=float, metavar="SHARE", help="of each goal")
    parser.add_argument("--case", type=int, metavar="N", help="this case alone; its files are kept")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cases at a time (default: cores)")
    parser.add_argument("--build", default=os.path.normpath(build), metavar="FOLDER", help="of the program and the test programs")
    parser.add_argument("--binary", help="default: trshard in the build folder")
    parser.add_argument("--sanitized", help="the program with ASan and UBSan; default: sanitize/trshard in the build folder")
    parser.add_argument("--output", metavar="FOLDER", help="for the table (default: none is written)")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    unknown = [name for name in args.only if name not in CLASSES]
    if unknown or (args.case is not None and len(args.only) != 1):
        parser.error(f"no class {unknown}; there are {', '.join(CLASSES)}" if unknown else "--case wants one class in --only")
    args.build = os.path.abspath(args.build)
    args.binary = os.path.abspath(args.binary or os.path.join(args.build, "trshard"))
    args.sanitized = os.path.abspath(args.sanitized or os.path.join(args.build, "sanitize", "trshard"))
    args.output = os.path.abspath(args.output) if args.output else tempfile.gettempdir() if args.case is not None else None
    return args


def main():
    args = arguments()
    if args.list:
        for name in CLASSES:
            kind = getattr(importlib.import_module(f"class_{name}"), CLASSES[name])
            print(f"{name:10} {kind.goal:8} {kind.unit:18} {importlib.import_module(kind.__module__).__doc__.splitlines()[0]}")
        return 0
    os.environ.update(campaign.RUN_ENVIRONMENT)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the scratch folder is removed
    folder = tempfile.mkdtemp(prefix="trshard-campaign-")
    setting = campaign.Setting(args.binary, args.sanitized if os.access(args.sanitized, os.X_OK) else "", args.build, folder, args.output, args.seed)
    try:
        records = run_campaign(args, setting)
        if args.case is None and args.output:
            write_table(args, records)
    finally:
        if args.case is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"files: {folder}")
    if any(record.failures for record in records):
        return 1
    return trsrun.SKIPPED if all(record.skipped for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
