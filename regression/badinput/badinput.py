# SPDX-License-Identifier: BSD-3-Clause
"""Bad inputs, each with a name: the program's message, its exit status on every rank, its speed,
and the files that it must not change.

  badinput.py --binary BINARY GROUP          run the cases of cases_GROUP.py
  badinput.py --binary BINARY GROUP -k NAME  only the cases whose name contains NAME
  badinput.py --list                         list the cases of all groups

A case is a good run with one change that makes it bad. Every case must end within 10 s (longer on a
busy machine), and print exactly one message "trshard: error: ..." that matches the case's pattern
(it names the option, or the file and dataset). Every rank must end with the case's status. An
earlier run's results and checkpoint must stay unchanged, byte for byte, and no temporary file may
remain. Cases that end with 0 are inputs that only look bad, or that options allow.
"""
import argparse
import dataclasses
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import typing

import trsrun
from trsrun import Failed, check

GROUPS = ["options", "option_files", "model", "files", "datasets", "ids", "checkpoints", "predict", "plans", "outputs", "disks", "training", "features", "follow", "mapping"]
LIMIT_S = 10
LARGE_BYTES = 64 << 20
# cases, unless they give a number of ranks; the other cases have one rank, which takes a third of
# the time. TRS_LONG: two ranks for all
TWO_RANKS_EVERY = 8
GOOD = {"-data_train": "train.h5", "-batch_size": "8", "-steps": "3", "-output": "out/run.h5", "-checkpoint_final": "out/final.h5",
        "-tables_embedding_dim": "4", "-dense_arch": "8,4", "-over_arch": "8,1", "-seed": "1"}


@dataclasses.dataclass
class Case:
    name: str
    status: int
    message: str = ""  # pattern of the error's text; if empty, there must be no error
    options: str = ""  # in place of good options, or in addition
    # (folder): makes the files; the good dataset is train.h5
    prepare: typing.Optional[typing.Callable] = None
    after: typing.Optional[typing.Callable] = None  # (folder, result): additional checks
    # with 3, mpirun's exit status is checked, too; None: two, or one for other cases (main)
    ranks: typing.Optional[int] = None
    without: tuple = ()  # good options to omit
    environment: typing.Optional[dict] = None
    prelude: str = ""  # shell code before each rank

    def words(self):
        given = shlex.split(self.options)
        good = {name: value for name, value in GOOD.items() if name not in given and name not in self.without}
        return [word for pair in good.items() for word in pair] + given


def snapshot(folder):
    """path -> bytes of every file below the folder, or size and time for a very large file. Folders
    and special files have None."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(where, name)
            regular = os.path.isfile(path) and not os.path.islink(path)
            state = os.stat(path) if regular else None
            large = regular and state.st_size > LARGE_BYTES
            found[os.path.relpath(path, folder)] = (state.st_size, state.st_mtime_ns) if large else open(path, "rb").read() if regular else None
    return found


def check_error(case, result):
    errors = [line for line in result.text.splitlines() if "trshard: error" in line]
    if not case.message:
        check(not errors, f"unexpected: {errors}")
        return
    check(len(errors) == 1, f"{len(errors)} messages, expected one:\n{result.text[-2000:]}")
    check(re.search(case.message, errors[0]), f"the message is {errors[0]!r},\n    expected to match {case.message!r}")
    check(len(errors[0]) <= 2048, f"a message of {len(errors[0])} characters")
    check("PETSC ERROR" not in result.text and "Traceback" not in result.text, f"more than a message:\n{result.text[-2000:]}")


def run_case(case, binary, folder, good):
    """Run one case in its own folder. Raises Failed."""
    shutil.copytree(good, folder)
    if case.prepare:
        case.prepare(folder)
    before = snapshot(folder)
    result = trsrun.Job(binary, case.ranks, case.words(), folder, environment=case.environment, prelude=case.prelude,
                        launcher=trsrun.PATIENT if case.ranks == 2 else ()).wait(LIMIT_S)
    check(result.all_left_with(case.status, case.ranks, patient=case.ranks == 2 or case.status == 0),
          f"exit status by rank {result.ranks}, mpirun {result.status}, expected {case.status}:\n{result.text[-2000:]}")
    check_error(case, result)
    after = snapshot(folder)
    check(not [name for name in after if name.endswith(".tmp")], f"temporary files: {[n for n in after if n.endswith('.tmp')]}")
    if case.status:
        # a backup counts, too
        kept = lambda name: before[name] in (after.get(name), after.get(name + ".~1~"))
        changed = [name for name in before if not kept(name)]
        check(not changed, f"changed: {changed}")
    if case.after:
        case.after(folder, result)
    return result.seconds


def make_good(binary, folder):
    """Make the start of every case: the dataset, and the results and checkpoint of a good run."""
    os.makedirs(os.path.join(folder, "out"))
    trsrun.write_dataset(os.path.join(folder, "train.h5"))
    trsrun.run(binary, 2, Case("good", 0).words(), folder)


def cases_of(group):
    cases = importlib.import_module(f"cases_{group}").CASES
    assert len({case.name for case in cases}) == len(cases), f"{group}: a name is used twice"
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", nargs="?", choices=GROUPS)
    parser.add_argument("--binary")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("-k", default="", metavar="NAME")
    args = parser.parse_args()
    if args.list:
        names = [f"{group}/{case.name}" for group in GROUPS for case in cases_of(group)]
        print("\n".join(names + [f"{len(names)} cases"]))
        return 0
    skip = getattr(importlib.import_module(f"cases_{args.group}"), "skip", lambda: None)()
    if skip:
        print(f"skipped: {skip}")
        return trsrun.SKIPPED
    n_failed = 0
    os.environ["TRS_BINARY"] = os.path.abspath(args.binary)  # for checks that run the program again
    cases = [case for case in cases_of(args.group) if args.k in case.name]
    # a group whose cases are about the division over ranks
    two_ranks = getattr(importlib.import_module(f"cases_{args.group}"), "TWO_RANKS", False)
    with tempfile.TemporaryDirectory(prefix="trshard-badinput-", ignore_cleanup_errors=True) as work:
        good = os.path.join(work, ".good")
        make_good(os.path.abspath(args.binary), good)
        for index, case in enumerate(cases):
            if case.ranks is None:
                alone = index % TWO_RANKS_EVERY and not two_ranks
                case = dataclasses.replace(case, ranks=trsrun.thin(2, 1 if alone else 2))
            try:
                seconds = run_case(case, os.path.abspath(args.binary), os.path.join(work, case.name), good)
                print(f"ok   {case.name} ({seconds:.1f} s)", flush=True)
            except Failed as problem:
                n_failed += 1
                print(f"FAIL {case.name}: {problem}", flush=True)
            small = os.path.join(work, case.name, "small")
            if os.path.ismount(small):
                subprocess.run(["umount", "--lazy", small], check=True)
    print(f"{args.group}: {len(cases) - n_failed}/{len(cases)} cases as expected")
    return 1 if n_failed or not cases else 0


if __name__ == "__main__":
    sys.modules["badinput"] = sys.modules["__main__"]  # the groups import Case from here
    sys.exit(main())
