# SPDX-License-Identifier: BSD-3-Clause
"""Failing system calls: each call on a run's files fails once, with each possible error and rank.

The run resumes a checkpoint, and writes two more, its results, its last weights and its plan, on 1,
2 and 3 ranks. Calls are counted first. The cases are all counted calls in an order that depends on
the seed. Afterwards, every rank has ended with the same documented status and one message, and no
temporary file is left. Every file is either unchanged or equal to the file of a run without a
fault.
"""
import errno
import json
import os

import trsrun
from campaign import LIMIT_S, MODEL, Tally, check_end, leftovers, tail
from trsrun import check

WRITING = [errno.EIO, errno.ENOSPC, errno.EDQUOT]
ERRORS = {"pwrite": WRITING + ["SHORT"], "write": WRITING + ["SHORT"], "fsync": WRITING, "rename": WRITING, "ftruncate": WRITING, "fallocate": WRITING, "mkdir": WRITING,
          "open": WRITING, "fopen": WRITING, "close": [errno.EIO], "unlink": [errno.EIO], "opendir": [errno.EIO], "pread": [errno.EIO, "SHORT"], "read": [errno.EIO, "SHORT"]}
STATUSES = {0, 65, 66, 73, 74}
RUN = (f"-data_train train.h5 -output run.h5 -checkpoint_final final.h5 -checkpoint_dir ckpt -checkpoint_every 2 -checkpoint_keep 9 -plan_output plan.json "
       f"{MODEL} -table_item_sharding_types row_wise -table_user_sharding_types table_wise -table_tag_sharding_types row_wise -resume")


def words(ranks, steps):
    return f"{RUN} -batch_size {12 // ranks} -steps {steps}".split()


class Io:
    name, unit, goal, weight = "io", "failing calls", 5000, 5

    def __init__(self, setting):
        self.s = setting
        self.cases, self.good, self.whole = [], {}, {}

    def prepare(self):
        """Make good folders for each number of ranks, the results of the run, and the list of
        cases."""
        for ranks in (1, 2, 3):
            good = self.good[ranks] = self.s.fresh(f"io-good-{ranks}")
            trsrun.write_dataset(os.path.join(good, "train.h5"))
            result = trsrun.Job(self.s.binary, ranks, words(ranks, 2), good).wait(60)
            check(result.status == 0, tail(result.text))
            whole = self.s.fresh(f"io-whole-{ranks}", good)
            counts = self.s.counts(ranks, words(ranks, 4), whole)
            for rank, calls in enumerate(counts):
                for function, errors in ERRORS.items():
                    self.cases += [(ranks, rank, function, n, what) for n in range(1, calls[function] + 1) for what in errors]
            self.whole[ranks] = {name: trsrun.tensors(os.path.join(whole, name)) for name in self.checkpoints(whole)}
        self.s.rng(self.name, "order").shuffle(self.cases)
        self.goal = self.n_cases = len(self.cases)

    @staticmethod
    def checkpoints(folder):
        ckpt = os.path.join(folder, "ckpt")
        return ["final.h5"] + [os.path.join("ckpt", name) for name in sorted(os.listdir(ckpt)) if name.endswith(".h5")]

    def case(self, index):
        ranks, rank, function, n, what = self.cases[index]
        folder = self.s.fresh(f"io-{index}", self.good[ranks])
        try:
            result = trsrun.Job(self.s.binary, ranks, words(ranks, 4), folder, environment=self.s.fault(folder, function, n, what, rank),
                                launcher=trsrun.PATIENT).wait(LIMIT_S)
            status = check_end(result, ranks, STATUSES)
            self.check_files(folder, ranks, status)
        except trsrun.Failed as problem:
            return Tally(1, [f"{function} number {n} of rank {rank} of {ranks} fails with {what}: {problem}"])
        self.s.fresh(f"io-{index}")
        return Tally()

    def check_files(self, folder, ranks, status):
        check(not leftovers(folder), f"exit {status}, temporary files are left: {leftovers(folder)}")
        for name in self.checkpoints(self.good[ranks]):
            check(os.path.exists(os.path.join(folder, name)), f"exit {status}, {name} is gone")
        for name in self.checkpoints(folder):
            with open(os.path.join(folder, name), "rb") as file:
                is_old = file.read() == self.old(ranks, name)
            check(is_old or self.is_new(folder, name, ranks), f"exit {status}, {name} is neither what it was nor what the run makes")
            check(status != 0 or not is_old or name != "final.h5", f"exit 0, but {name} is the old one")
        for name in ("run.h5", "plan.json"):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                if file.read() == self.old(ranks, name):
                    continue
            self.check_readable(path)

    def old(self, ranks, name):
        path = os.path.join(self.good[ranks], name)
        if not os.path.exists(path):
            return b"none"
        with open(path, "rb") as file:
            return file.read()

    def is_new(self, folder, name, ranks):
        wanted = self.whole[ranks].get(name)
        try:
            found = trsrun.tensors(os.path.join(folder, name))
        except OSError:
            return False
        return wanted is not None and sorted(found) == sorted(wanted) and all(trsrun.same_bits(found[t], wanted[t]) for t in found)

    @staticmethod
    def check_readable(path):
        try:
            if path.endswith(".json"):
                with open(path, encoding="utf-8") as file:
                    json.load(file)
            else:
                check(len(trsrun.losses(path)) > 0, f"{path} has no losses")
        except (OSError, ValueError) as problem:
            raise trsrun.Failed(f"{path} is damaged: {problem}") from None
