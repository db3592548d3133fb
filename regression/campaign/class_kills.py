# SPDX-License-Identifier: BSD-3-Clause
"""Kills: a training that is killed and resumed repeatedly has the bits of an uninterrupted one.

A case is a chain of up to ten kills in one folder. Every run resumes the checkpoint of the previous
run and is the next victim, so a kill costs one start. The last run is not killed. Half of the kills
occur at a counted system call on a file of the folder (during a write, at a rename, or while a
resume reads a checkpoint). The other half occur after a random time. Chains run on 1, 2 or 3 ranks.
With -reproducible, each run of a chain has another number of ranks.
"""
import os
import signal
import time

import h5py
import numpy as np

import trsrun
from campaign import MODEL, Tally, Victim, errors_in, kill, leftovers, processes, tail
from trsrun import check

STEPS, GLOBAL_BATCH, PER_CHAIN = 120, 12, 10
TABLES = "-table_item_sharding_types row_wise -table_user_sharding_types table_wise -table_tag_sharding_types column_wise"
AT_CALLS = ["pwrite", "pwrite half", "fsync", "rename", "ftruncate", "fallocate", "open", "pread", "unlink", "close", "malloc"]
AT_TIMES = ["KILL rank", "KILL rank", "KILL all", "KILL mpirun", "TERM rank", "USR1 mpirun", "INT mpirun", "TERM mpirun", "USR1 all"]
# messages that a run may print as it ends
EXPECTED = ("stopped on request", "stopped by", "(-watchdog_seconds)", "second signal")


def options(ranks, reproducible, more=""):
    layout = TABLES + " -table_tag_min_partition 2" if ranks > 1 and not reproducible else ""
    return (f"-data_train train.h5 -batch_size {GLOBAL_BATCH // ranks} -steps {STEPS} -output run.h5 -checkpoint_final final.h5 -report_interval 60 "
            f"{MODEL} {layout} {'-reproducible' if reproducible else ''} {more}").split()


class Kills:
    name, unit, goal, weight = "kills", "kills", 1000, 6

    def __init__(self, setting):
        self.s = setting
        self.whole, self.calls, self.seconds = {}, {}, {}

    def prepare(self):
        self.good = self.s.fresh("kills-good")
        trsrun.write_dataset(os.path.join(self.good, "train.h5"), samples=60)
        for ranks, reproducible in ((1, False), (2, False), (3, False), (1, True)):
            folder = self.s.fresh(f"kills-whole-{ranks}{reproducible}", self.good)
            result = trsrun.Job(self.s.binary, ranks, options(ranks, reproducible), folder).wait(60)
            check(result.status == 0, f"the run that is left alone: exit {result.status}\n{tail(result.text)}")
            self.whole["any" if reproducible else ranks] = folder
            self.seconds[ranks] = result.seconds
        for ranks in (1, 2, 3):  # calls of a run that resumes and trains about eight steps
            folder = self.s.fresh(f"kills-count-{ranks}", self.good)
            words = options(ranks, False, "-checkpoint_dir ckpt -checkpoint_every 1 -resume")
            words[words.index("-steps") + 1] = "2"
            trsrun.Job(self.s.binary, ranks, words, folder).wait(60)
            words[words.index("-steps") + 1] = "10"
            self.calls[ranks] = self.s.counts(ranks, words, folder, "malloc")

    def case(self, index):
        rng, tally = self.s.rng(self.name, index), Tally(0)
        folder = self.s.fresh(f"kills-{index}", self.good)
        fixed = rng.choice([1, 2, 3, 0])
        more = f"-checkpoint_dir ckpt -checkpoint_every {rng.choice([1, 1, 2, 5])} -checkpoint_keep {rng.randint(1, 3)} -checkpoint_full_every {rng.choice([1, 2, 5, 50])} -resume"
        more += rng.choice(["", " -checkpoint_async", " -checkpoint_async -checkpoint_async_bytes 4096"])
        finished = False
        for n in range(PER_CHAIN + 1):
            ranks = fixed or rng.choice([1, 2, 3])
            words = options(ranks, fixed == 0, more)
            how = self.choose(rng, ranks) if n < PER_CHAIN else None
            try:
                finished = self.one_run(how, ranks, words, folder, rng)
                tally.tried += how is not None and not finished
                if finished:
                    break
            except trsrun.Failed as problem:
                tally.tried += how is not None
                tally.failures.append(f"kill {n} of the chain, {how} on {ranks} ranks: {problem}")
                return tally
        try:
            check(finished, "the run that was left alone did not finish")
            self.compare(folder, self.whole[fixed or "any"])
        except trsrun.Failed as problem:
            tally.failures.append(f"after {tally.tried} kills: {problem}")
        if not tally.failures:
            self.s.fresh(f"kills-{index}")
        return tally

    def choose(self, rng, ranks):
        """("call", function, what, number, rank) or ("time", signal, target, seconds, seconds until
        KILL)."""
        if rng.random() < 0.5:
            name = rng.choice(AT_CALLS)
            function, victim = name.split()[0], rng.randrange(ranks)
            n = self.calls[ranks][victim].get(function, 0)
            if n == 0:
                victim, n = 0, self.calls[ranks][0][function]
            what = "KILL_HALF" if "half" in name else "KILL_JOB" if ranks > 1 and rng.random() < 0.2 else "KILL"
            return "call", function, what, rng.randint(1, max(1, n)), victim
        number, whom = rng.choice(AT_TIMES).split()
        after_s = rng.random() * 0.2 if number != "KILL" else 0
        return "time", number, whom if ranks > 1 else "rank", rng.random() * self.seconds[ranks], after_s

    def one_run(self, how, ranks, words, folder, rng):
        """Run once with this kill. Returns whether the run finished nevertheless."""
        environment = self.s.fault(folder, how[1], how[3], how[2], how[4]) if how and how[0] == "call" else None
        job = Victim(self.s.binary, ranks, words, folder, environment)
        if how and how[0] == "time":
            self.kill_later(job, how, rng)
        status, text, problem = job.end(60 if not how else 10)
        check(not problem, f"{problem}\n{tail(text)}")
        check("looking for an older" not in text and "is damaged" not in text, f"what was there before was damaged:\n{tail(text)}")
        odd = [line for line in errors_in(text) if not any(word in line for word in EXPECTED)]
        check(not odd, f"exit {status}:\n{tail(text)}")
        self.check_folder(folder)
        done = os.path.exists(os.path.join(folder, "final.h5"))
        check(how or status == 0, f"exit {status}:\n{tail(text)}")
        check(status != 0 or done, f"exit 0 without final.h5:\n{tail(text)}")
        return status == 0

    def kill_later(self, job, how, rng):
        _, number, whom, delay_s, after_s = how
        time.sleep(delay_s)
        self.send(job, getattr(signal, f"SIG{number}"), whom, rng)
        if number != "KILL":
            time.sleep(after_s)
            for pid in processes(job.marker):
                kill(pid, signal.SIGKILL)

    def send(self, job, number, whom, rng):
        ranks = job.rank_pids()
        if whom == "mpirun" or not ranks:
            kill(job.process.pid, number)
        elif whom == "all":
            for pid in list(ranks.values()) + ([job.process.pid] if number == signal.SIGKILL else []):
                kill(pid, number)
        else:
            kill(rng.choice(sorted(ranks.values())), number)

    def check_folder(self, folder):
        """Every file that has its final name is complete."""
        names = [os.path.join("ckpt", name) for name in os.listdir(os.path.join(folder, "ckpt"))] if os.path.isdir(os.path.join(folder, "ckpt")) else []
        for name in [n for n in names if n.endswith(".h5") and not os.path.basename(n).startswith(".")] + ["run.h5", "final.h5"]:
            path = os.path.join(folder, name)
            if not os.path.exists(path):
                continue
            try:
                trsrun.tensors(path)
            except OSError as problem:
                raise trsrun.Failed(f"{name} is damaged: {problem}") from None
        left = leftovers(folder)
        check(len(left) <= 6, f"left-overs of killed runs pile up: {left}")

    def compare(self, folder, whole):
        trsrun.check_same_tensors(os.path.join(folder, "final.h5"), os.path.join(whole, "final.h5"), "killed and resumed, beside left alone")
        with h5py.File(os.path.join(folder, "run.h5")) as h:
            steps, losses = (h["train/step"][()], h["train/loss"][()]) if "train/step" in h else (np.zeros(0, int), np.zeros(0))
        wanted = trsrun.losses(os.path.join(whole, "run.h5"))
        check(len(set(steps)) == len(steps), "a step is there twice in /train/step")
        check(trsrun.same_bits(losses, wanted[steps]), "other losses than those of the run that was left alone")
        check(not leftovers(folder), f"temporary files are left: {leftovers(folder)}")
