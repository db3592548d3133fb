# SPDX-License-Identifier: BSD-3-Clause
"""The soak: a training on two ranks that is repeatedly stopped, killed and resumed.

It continues while there is time, and its memory and open files are watched. A case is a round:
several runs of 5 to 30 s. A fault ends each run except the last, which is requested to stop. The
end of the round is then compared, bit for bit, with the same steps in one run from the round's
beginning. Resident memory and open files of each rank are sampled once a second and written to
soak.csv. In the second half of a run, memory may grow by at most 1 KiB a step, and the number of
open files must not keep growing.
"""
import csv
import os
import re
import shutil
import signal
import time

import numpy as np

import trsrun
from campaign import STOPPED, MODEL, Tally, Victim, kill, leftovers, processes, tail
from trsrun import check

RUNS_A_ROUND, RANKS = 5, 2
FAULTS = ["KILL rank", "KILL all", "KILL mpirun", "USR1 mpirun", "TERM rank", "USR1 mpirun", "TERM rank"]
RUN = (f"-data_train train.h5 -batch_size 64 -data_shuffle -report_interval 1 -output run.h5 {MODEL} -tables_embedding_dim 16 -dense_arch 64,16 -over_arch 64,1 "
       "-metrics_every 1000").replace("-tables_embedding_dim 4 -dense_arch 8,4 -over_arch 8,1", "")
# With fewer steps or samples, a slope shows the start-up and the allocator's behaviour.
MOST_BYTES_A_STEP, LEAST_STEPS, LEAST_SAMPLES = 1024, 4000, 8


class Soak:
    name, unit, goal, weight, most_jobs = "soak", "runs", 1 << 30, 4, 1

    def __init__(self, setting):
        self.s = setting
        self.samples = []  # round, run, second, rank, step, resident bytes, open files

    def prepare(self):
        self.folder = self.s.fresh("soak")
        trsrun.write_dataset(os.path.join(self.folder, "train.h5"), samples=4000, features={"user": 3000, "item": 2000, "tag": 500}, num_dense=8)

    def case(self, index):
        rng, tally = self.s.rng(self.name, index), Tally(0)
        begin = self.s.fresh("soak-begin", self.folder)
        try:
            for run in range(RUNS_A_ROUND):
                how = rng.choice(FAULTS) if run < RUNS_A_ROUND - 1 else "USR1 mpirun"
                self.one_run(index, run, how, rng)
                tally.tried += 1
            self.compare(begin)
        except trsrun.Failed as problem:
            tally.failures.append(f"run {tally.tried} of the round: {problem}")
            self.prepare()  # the next round starts from the beginning
        return tally

    def one_run(self, index, run, how, rng):
        words = f"{RUN} -steps 1000000000 -checkpoint_dir ckpt -checkpoint_every {rng.choice([200, 1000])} -resume".split()
        job, seconds, samples = Victim(self.s.binary, RANKS, words, self.folder), rng.uniform(5, 30), []
        start_s = time.monotonic()
        while time.monotonic() - start_s < seconds and job.process.poll() is None:
            time.sleep(1)
            samples += self.sample(job, round(time.monotonic() - start_s))
        early = job.process.poll() is not None
        number, whom = how.split()
        pids = {"rank": [rng.choice(sorted(job.rank_pids().values()) or [job.process.pid])], "all": list(processes(job.marker)), "mpirun": [job.process.pid]}[whom]
        for pid in pids:
            kill(pid, getattr(signal, f"SIG{number}"))
        status, text, problem = job.end(30)
        check(not early, f"ended by itself with {status}:\n{tail(text)}")
        check(not problem, f"{how}: {problem}")
        check("looking for an older" not in text, f"{how}: what was there before was damaged:\n{tail(text)}")
        check(number == "KILL" or status == STOPPED, f"{how}: exit {status}:\n{tail(text)}")
        self.samples += [(index, run, *sample) for sample in samples]
        self.check_slopes(samples, how)

    def sample(self, job, second):
        """(second, rank, step, resident bytes, open files) of each rank."""
        found, step = [], self.newest()
        for rank, pid in job.rank_pids().items():
            try:
                with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                    resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                found.append((second, rank, step, resident, len(os.listdir(f"/proc/{pid}/fd"))))
            except (OSError, IndexError):  # the process has just ended
                continue
        return found

    def newest(self):
        ckpt = os.path.join(self.folder, "ckpt")
        steps = [int(found.group(1)) for name in (os.listdir(ckpt) if os.path.isdir(ckpt) else []) if (found := re.fullmatch(r"step-(\d+)\.h5", name))]
        return max(steps, default=0)

    @staticmethod
    def check_slopes(samples, how):
        for rank in range(RANKS):
            mine = np.array([sample for sample in samples if sample[1] == rank], np.float64)
            # on a busy machine, the start may take half of the run
            mine = mine[mine[:, 2] > mine[0, 2]] if len(mine) else mine
            mine = mine[len(mine) // 2:]
            if len(mine) < LEAST_SAMPLES or mine[-1, 2] - mine[0, 2] < LEAST_STEPS:
                continue
            slope = np.polyfit(mine[:, 2], mine[:, 3], 1)[0]
            check(slope <= MOST_BYTES_A_STEP, f"{how}: rank {rank} grows by {slope:.0f} bytes a step")
            # Writing a checkpoint opens more files temporarily. Only files that are never closed
            # accumulate.
            early, late = np.array_split(mine[:, 4], 2)
            check(late.min() <= early.max(), f"{how}: rank {rank} has first {early.min():.0f} to {early.max():.0f}, then {late.min():.0f} files open and more")

    def compare(self, begin):
        steps = self.newest()
        words = f"{RUN} -steps {steps} -checkpoint_dir ckpt -resume -checkpoint_final final.h5"
        result = trsrun.Job(self.s.binary, RANKS, words, begin).wait(600)
        check(result.status == 0, f"the round in one run: exit {result.status}\n{tail(result.text)}")
        trsrun.check_same_tensors(os.path.join(self.folder, "ckpt", f"step-{steps:09d}.h5"), os.path.join(begin, "final.h5"), f"step {steps} of a round, beside one run")
        check(not leftovers(os.path.join(self.folder, "ckpt")), "temporary files are left")

    def end(self):
        """Write the samples as soak.csv."""
        if self.s.output and self.samples:
            os.makedirs(self.s.output, exist_ok=True)
            with open(os.path.join(self.s.output, "soak.csv"), "w", encoding="ascii", newline="") as file:
                csv.writer(file).writerows([("round", "run", "second", "rank", "newest_checkpoint", "resident_bytes", "open_files"), *self.samples])
        shutil.rmtree(self.folder, ignore_errors=True)
