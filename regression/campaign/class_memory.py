# SPDX-License-Identifier: BSD-3-Clause
"""Failing allocations: the N-th allocation of the program, PETSc, jansson or libyaml fails.

Only PETSc's allocations for the program count. The run on one rank reads YAML, resumes a
checkpoint, plans, trains, evaluates and writes. It must end with 71 and one message, or with the
bits of a run that had enough memory. Existing files must stay.
"""
import os
import shutil

import trsrun
from campaign import LIMIT_S, MODEL, Tally, check_end, leftovers, tail
from trsrun import check

RUN = (f"-data_train train.h5 -data_eval train.h5 -batch_size 8 -output run.h5 -checkpoint_final final.h5 -checkpoint_dir ckpt -checkpoint_every 2 -plan_output plan.json "
       f"-options_file more.yaml {MODEL} -resume")
STATUSES = {0, 71}
ENOMEM = 12


class Memory:
    name, unit, goal, weight = "memory", "failing allocations", 2000, 1

    def __init__(self, setting):
        self.s = setting

    def prepare(self):
        self.good = self.s.fresh("memory-good")
        trsrun.write_dataset(os.path.join(self.good, "train.h5"))
        with open(os.path.join(self.good, "more.yaml"), "w", encoding="ascii") as file:
            file.write("table:\n  user: {learning_rate: 0.1}\n")
        result = trsrun.Job(self.s.binary, 1, f"{RUN} -steps 2", self.good).wait(60)
        check(result.status == 0, tail(result.text))
        whole = self.s.fresh("memory-whole", self.good)
        self.n_calls = self.s.counts(1, f"{RUN} -steps 4", whole, "malloc")[0]["malloc"]
        # allocations of PETSc and MPI at start
        first = self.s.counts(1, "-version", self.s.fresh("memory-start"), "malloc")[0]["malloc"]
        self.calls = list(range(first, self.n_calls + 1))
        self.s.rng(self.name, "order").shuffle(self.calls)
        self.goal = self.n_cases = len(self.calls)
        self.wanted = os.path.join(whole, "final.h5")

    def case(self, index):
        n = self.calls[index]
        folder = self.s.fresh(f"memory-{index}", self.good)
        before = os.path.join(self.good, "ckpt", "step-000000002.h5")
        try:
            result = trsrun.Job(self.s.binary, 1, f"{RUN} -steps 4", folder, environment=self.s.fault(folder, "malloc", n, ENOMEM, 0)).wait(LIMIT_S)
            status = check_end(result, 1, STATUSES)
            if status == 0:
                trsrun.check_same_tensors(os.path.join(folder, "final.h5"), self.wanted, f"exit {status}")
            trsrun.check_same_tensors(os.path.join(folder, "ckpt", "step-000000002.h5"), before, "what was there before")
            check(not leftovers(folder), f"exit {status}, temporary files are left: {leftovers(folder)}")
            check("internal error" not in result.text, f"exit {status}: {tail(result.text)}")
        except (trsrun.Failed, OSError) as problem:
            return Tally(1, [f"allocation {n} of {self.n_calls}: {problem}"])
        shutil.rmtree(folder, ignore_errors=True)
        return Tally()
