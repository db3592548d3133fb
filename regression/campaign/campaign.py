# SPDX-License-Identifier: BSD-3-Clause
"""Shared code of the classes of faults: paths, jobs that leave no processes, checks, and counts.

A class of faults is a module with a class that has
  name, unit, goal   its name, what it counts, and the count that a whole campaign must reach
  weight             its share of the remaining time
  prepare()          makes the start of all cases; returns a reason to skip the class, or None
  case(index)        runs the case that the index and the seed determine; returns a Tally
  end()              optional: saves files in the output folder
"""
import dataclasses
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
import typing

import trsrun

STOPPED = 75  # stopped on request, after a checkpoint
DOCUMENTED = {0, 64, 65, 66, 69, 71, 72, 73, 74, 75, 76, 78}  # 70 means a bug
LIMIT_S = 10
MODEL = "-tables_embedding_dim 4 -dense_arch 8,4 -over_arch 8,1 -seed 1"
RUN_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "SLURM_NTASKS": "1",
                   # PMIx's shared memory has a lock. If a killed rank holds it, mpirun waits
                   # forever.
                   "PMIX_MCA_gds": "hash"}
SANITIZER_ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=0:exitcode=99:strict_string_checks=1:allocator_may_return_null=1",
                         "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=99"}


@dataclasses.dataclass
class Tally:
    """The result of a case: the number of the class's units that it tried, and descriptions of
    failures."""
    tried: int = 1
    failures: list = dataclasses.field(default_factory=list)
    seconds: float = 0.0  # of a run that is expected to end soon


@dataclasses.dataclass
class Setting:
    """The campaign in which a class runs."""
    binary: str
    sanitized: str  # the build with sanitizers, or ""
    build: str  # build folder, with the injector and other test programs
    folder: str  # scratch, removed at the end
    output: typing.Optional[str]  # output folder; None: nothing is saved
    seed: int

    def rng(self, name, index):
        return random.Random(f"{self.seed}/{name}/{index}")

    def fresh(self, name, good=None):
        """An empty folder, or a copy of `good`."""
        path = os.path.join(self.folder, name)
        shutil.rmtree(path, ignore_errors=True)
        if good:
            shutil.copytree(good, path)
        else:
            os.makedirs(path)
        return path

    @property
    def injector(self):
        return os.path.join(self.build, "regression", "fault", "libfault_preload.so")

    def fault(self, folder, function, n, what, rank):
        """Environment in which call number n of a function fails on a rank."""
        return {"TRS_FAULT": f"{function} {n} {what} {rank}", "TRS_FAULT_PROGRAM": os.path.realpath(self.binary), "TRS_FAULT_PATH": folder,
                "LD_PRELOAD": self.injector}

    def counts(self, ranks, words, folder, of="open"):
        """Run successfully and count calls. Returns, by rank, {function: calls for files in the
        folder}."""
        environment = dict(self.fault(folder, of, 0, 0, 0), TRS_FAULT_COUNTS=os.path.join(folder, "counts"))
        result = trsrun.Job(self.binary, ranks, words, folder, environment=environment).wait(60)
        trsrun.check(result.status == 0, f"counting calls: exit {result.status}\n{result.text[-2000:]}")
        found = []
        for rank in range(ranks):
            with open(os.path.join(folder, f"counts.{rank}"), encoding="ascii") as file:
                found.append({name: int(n) for name, n in (line.split() for line in file)})
        return found


def processes(marker):
    """pid -> rank of the live processes of the job with this marker. The rank is None for mpirun, a
    shell, and the child with which a rank checks a file."""
    found, parents, wanted = {}, {}, f"TRS_JOB={marker}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                words = file.read().split(b"\0")
            if wanted not in words:
                continue
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                state, parent = file.read().rsplit(")", 1)[1].split()[:2]
        except (OSError, IndexError):
            continue
        if state != "Z":
            rank = [word for word in words if word.startswith(b"OMPI_COMM_WORLD_RANK=")]
            found[int(name)], parents[int(name)] = int(rank[0].split(b"=")[1]) if rank else None, int(parent)
    return {pid: rank if found.get(parents[pid]) is None else None for pid, rank in found.items()}


class Victim:
    """A job that the test will kill: the program directly under mpirun, or without mpirun. It
    leaves no processes or files."""
    serial = 0
    lock = threading.Lock()

    def __init__(self, binary, ranks, words, folder, environment=None):
        with Victim.lock:
            Victim.serial += 1
            self.marker = f"{os.getpid()}.{Victim.serial}"
        self.ranks, self.scratch = ranks, os.path.join(folder, f".tmp-{self.marker}")
        os.makedirs(self.scratch)  # for files that a killed mpirun leaves in its TMPDIR
        variables = dict(os.environ, TRS_JOB=self.marker, TMPDIR=self.scratch, OMPI_MCA_btl_vader_backing_directory=self.scratch)
        variables.update(environment or {})
        command = (trsrun.MPIRUN + ["-n", str(ranks)] if ranks > 1 else []) + [binary] + words
        self.log = open(os.path.join(self.scratch, "log"), "w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def rank_pids(self):
        found = processes(self.marker)
        return {rank: pid for pid, rank in found.items() if rank is not None} if self.ranks > 1 else {0: self.process.pid}

    def end(self, limit_s=LIMIT_S):
        """Wait for all of the job's processes. Returns (status, text, problem)."""
        limit_s, problem = limit_s * trsrun.patience(), ""
        start_s = time.monotonic()
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            problem = f"still running {limit_s:.0f} s later"
        while not problem and processes(self.marker):
            if time.monotonic() - start_s > limit_s:
                problem = f"ranks are left {limit_s:.0f} s after mpirun"
            time.sleep(0.02)
        if problem:
            for pid in processes(self.marker):
                kill(pid, signal.SIGKILL)
            self.process.wait()
        self.log.seek(0)
        text = self.log.read()
        self.log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        return self.process.returncode, text, problem


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def errors_in(text):
    return [line for line in text.splitlines() if "trshard: error" in line]


def check_end(result, ranks, statuses=DOCUMENTED):
    """Check that a run ended as documented: all ranks have the same status, which is one of these.
    A failure has one message, and a success none. No sanitizer reports an error. Returns the
    status."""
    noted = set(result.ranks.values())
    trsrun.check(len(noted) == 1 and len(result.ranks) == ranks, f"exit status by rank {result.ranks}, mpirun {result.status}:\n{tail(result.text)}")
    status = noted.pop()
    report = re.search(r"(ERROR: \w+Sanitizer.*|runtime error:.*)", result.text)
    trsrun.check(not report, f"sanitizer: {report.group(1) if report else ''}\n{tail(result.text)}")
    trsrun.check(status in statuses, f"exit status {status}:\n{tail(result.text)}")
    errors = errors_in(result.text)
    trsrun.check(len(errors) == (0 if status == 0 else 1), f"exit status {status} with {len(errors)} messages:\n{tail(result.text)}")
    trsrun.check("PETSC ERROR" not in result.text, f"more than a message:\n{tail(result.text)}")
    return status


def tail(text):
    return text[-1500:]


def leftovers(folder):
    """Temporary files below the folder."""
    return [name for _, _, files in os.walk(folder) for name in files if name.endswith(".tmp")]
