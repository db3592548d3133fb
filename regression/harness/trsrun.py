# SPDX-License-Identifier: BSD-3-Clause
"""Run trshard on several ranks from Python tests, make small datasets for it, and read its output
files.

regression/badinput and regression/case use this module. A job of several ranks runs under mpirun. A
small shell starts each rank. It records the rank's process id and, at its end, its exit status,
because mpirun only returns the status of the first rank that fails.
"""
import dataclasses
import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
import time

import h5py
import numpy as np

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
# With this option, mpirun lets the other ranks of a failed rank end by themselves, and then returns
# 0. This saves a second for each failure.
PATIENT = ["--mca", "orte_abort_on_non_zero_status", "0"]
PATIENT_5 = {"PRTE_MCA_state_base_error_non_zero_exit": "0"}  # the same for Open MPI 5
# The shell that starts each rank. It records the process id and, after the rank's end, its exit
# status. SIGTERM is trapped, not ignored: when a rank has failed, mpirun sends SIGTERM to all
# ranks, and the status must still be recorded.
NOTES = ("""trap : TERM USR1; r=${OMPI_COMM_WORLD_RANK:-0}; sh -c 'echo $$ > "$TRS_RANKS/process.$0"; exec "$@"' "$r" "$@"; s=$?; """
         """echo $s > "$TRS_RANKS/status.$r"; exit $s""")
SKIPPED = 77

FEATURES = {"user": 50, "item": 30, "tag": 20}
NUM_DENSE = 3


class Failed(Exception):
    """A test's failure."""


class Skipped(Exception):
    """The reason why this machine cannot run a test."""


def check(condition, message):
    if not condition:
        raise Failed(message)


def thinned(law):
    """Mark a law that takes fewer cases by default than with TRS_LONG in the environment, which the
    test case-long/NAME sets."""
    return law


def thin(every, few):
    """Every case if TRS_LONG is in the environment, otherwise the few representative cases."""
    return every if os.environ.get("TRS_LONG") else few


def patience():
    """The factor by which a limit exceeds the time on an idle machine. The load is an average that
    lags, so the factor starts well above 1. TRS_PATIENCE in the environment raises it for programs
    that are slow."""
    return float(os.environ.get("TRS_PATIENCE", 6)) * load()


def load():
    """Number of processes that compete for a core: 1 on an idle machine."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


@dataclasses.dataclass
class Result:
    status: int  # mpirun's
    ranks: dict  # rank -> its exit status, if it was recorded
    text: str  # stdout and stderr
    seconds: float

    def all_left_with(self, status, ranks, patient):
        """Whether every rank ended with this status. Without PATIENT, mpirun kills a slow rank
        before it can record its status."""
        noted = set(self.ranks.values()) == {status}
        return noted and (len(self.ranks) == ranks if patient else self.status == status)


class Job:
    """A running job. options: text or list. prelude: shell code before each rank. launcher: options
    of mpirun, unused with one rank."""

    def __init__(self, binary, ranks, options, folder, environment=None, prelude="", launcher=()):
        self.notes = os.path.join(folder, f".ranks-{time.monotonic_ns()}")
        os.makedirs(self.notes)
        words = shlex.split(options) if isinstance(options, str) else list(options)
        # TRS_GPU_OPTIONS is for a machine with fewer GPUs than ranks: "-comm_backend mpi
        # -gpu_share"
        if "-gpu_share" not in words:
            words += shlex.split(os.environ.get("TRS_GPU_OPTIONS", ""))
        variables = dict(os.environ, TRS_RANKS=self.notes, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", OMPI_MCA_mpi_yield_when_idle="1")
        # without mpirun, and without the daemon that Open MPI starts beside such a rank
        if ranks == 1:
            variables["OMPI_MCA_ess_singleton_isolated"] = "1"
            # with a shared folder, a rank that ends would remove the folder of a rank that starts
            variables["OMPI_MCA_orte_tmpdir_base"] = os.path.abspath(self.notes)
        if launcher is PATIENT:
            variables.update(PATIENT_5)
        variables.update(environment or {})
        command = (MPIRUN + list(launcher) + ["-n", str(ranks)] if ranks > 1 else []) + ["sh", "-c", prelude + NOTES, "rank", binary] + words
        self.is_alone = ranks == 1
        self.start_s = time.monotonic()
        self.process = subprocess.Popen(command, cwd=folder, env=variables, text=True, errors="replace", stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def pid(self, rank):
        """Wait until the rank has a process id, and return it."""
        path = os.path.join(self.notes, f"process.{rank}")
        while not (os.path.exists(path) and open(path).read().strip()):
            check(self.process.poll() is None, "the job ended before its ranks started")
            time.sleep(0.02)
        return int(open(path).read())

    def send_signal(self, number):
        """Send a signal as Slurm and users do: to mpirun, which passes it on, or to a rank without
        mpirun."""
        os.kill(self.pid(0) if self.is_alone else self.process.pid, number)

    def read_to(self, start):
        """Read the job's output up to a line that begins with this text."""
        for line in self.process.stdout:
            if line.startswith(start):
                return
        raise Failed(f"the job ended without a line that begins with {start!r}")

    def wait(self, limit_s):
        """Wait for the job's result. If the job takes too long, it is killed, which is a failure.
        On a busy machine the limit is longer."""
        begin_s, text = time.monotonic(), None
        while text is None:
            try:
                text, _ = self.process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                if time.monotonic() - begin_s >= limit_s * patience():
                    self.kill()
                    raise Failed(f"still running after {time.monotonic() - begin_s:.0f} s") from None
        seconds = time.monotonic() - self.start_s
        ranks = {}
        for name in os.listdir(self.notes):
            if not name.startswith("status."):
                continue
            note = open(os.path.join(self.notes, name)).read().strip()
            if note:  # empty if mpirun killed the rank's shell between open and write
                ranks[int(name[7:])] = int(note)
        # a shell that mpirun killed may still be exiting
        shutil.rmtree(self.notes, ignore_errors=True)
        return Result(self.process.returncode, ranks, text, seconds)

    def kill(self):
        """End the ranks. Returns their output."""
        for name in os.listdir(self.notes):
            if name.startswith("process."):
                try:
                    os.kill(int(open(os.path.join(self.notes, name)).read()), signal.SIGKILL)
                except (ProcessLookupError, ValueError):
                    pass
        self.process.terminate()
        try:
            return self.process.communicate(timeout=30)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()[0]


def run(binary, ranks, options, folder, limit_s=60, status=0, **more):
    """Run a job to its end and check mpirun's exit status (None: any)."""
    result = Job(binary, ranks, options, folder, **more).wait(limit_s)
    check(status is None or result.status == status, f"exit {result.status}, expected {status}:\n{result.text[-2000:]}")
    return result


@functools.lru_cache(maxsize=None)
def choices(binary, option):
    """The words that an option accepts, from the program's -help."""
    text = subprocess.run([binary, "-help"], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"^  {option} <word> .*?\[one of ([a-z0-9_, ]+)", re.sub(r"\n   +", " ", text), re.M)
    check(found, f"-help names no choices of {option}")
    return tuple(found[1].replace(",", " ").split())


def optimizers(binary):
    """The optimizers that can train embedding tables."""
    return tuple(word for word in choices(binary, "-embedding_optimizer") if word not in ("none", "shampoo"))


def write_dataset(path, samples=40, seed=7, features=None, num_dense=NUM_DENSE, weighted=False, largest_bag=3, sample_weights=None,
                  libver="latest", labels=None, group=None, time=None):
    """Write a dataset of random numbers with contiguous data. The file format is the newest unless
    libver is given."""
    rng = np.random.default_rng(seed)
    features = features or FEATURES
    lengths = rng.integers(0, largest_bag + 1, (samples, len(features))).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))]).astype(np.int64)
    values = np.concatenate([rng.integers(0, rows, n) for sample in lengths for rows, n in zip(features.values(), sample)])
    with h5py.File(path, "w", libver=libver) as h:
        h.attrs["format"], h.attrs["version"], h.attrs["num_samples"] = "trshard-dataset", np.int64(1), np.int64(samples)
        if num_dense:
            h["dense"] = rng.random((samples, num_dense), np.float32)
        h["labels"] = rng.integers(0, 2, samples).astype(np.float32)
        if labels:  # names; the first label has the values of a dataset without names
            first = h["labels"][()]
            del h["labels"]
            h["labels"] = np.stack([first] + [np.random.default_rng(seed + k).integers(0, 2, samples) for k in range(1, len(labels))], axis=1).astype(np.float32)
            h["labels"].attrs["names"] = list(labels)
        for name, whole in (("group", group), ("time", time)):
            if whole is not None:
                h[name] = np.asarray(whole, np.int64)
        sparse = h.create_group("sparse")
        sparse.attrs["features"] = list(features)
        sparse.attrs["num_embeddings"] = np.array(list(features.values()), np.int64)
        sparse["lengths"], sparse["offsets"], sparse["values"] = lengths, offsets, values.astype(np.int32)
        if weighted:
            sparse["weights"] = rng.random(len(values), np.float32)
        if sample_weights is not None:  # one number for all samples, or a number for each
            h["weights"] = np.broadcast_to(np.asarray(sample_weights, np.float32), samples)
    return path


def flip_bit(path, place, bit=3):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ (1 << bit)]))


def tensors(path):
    """name -> array of a checkpoint's tensors, without checksums, whose parts depend on the
    plan."""
    found = {}
    with h5py.File(path) as h:
        h.visititems(lambda name, object: found.__setitem__(name, object[()])
                     if isinstance(object, h5py.Dataset) and not name.startswith("checksums/") else None)
    return found


def attribute(path, name):
    with h5py.File(path) as h:
        return h.attrs[name]


def losses(path, of="train"):
    """Losses of every step, or of every evaluation (of="eval"); empty if the run had none."""
    with h5py.File(path) as h:
        return h[f"{of}/loss"][()] if f"{of}/loss" in h else np.zeros(0)


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def check_same_tensors(one, other, what, ignore=()):
    """Compare every tensor of two checkpoints, bit for bit, except tensors whose name ends in an
    entry of `ignore`."""
    a, b = ({n: v for n, v in tensors(p).items() if not n.endswith(tuple(ignore))} for p in (one, other))
    check(sorted(a) == sorted(b), f"{what}: other tensors: {sorted(set(a) ^ set(b))}")
    differ = [name for name in a if not same_bits(a[name], b[name])]
    check(not differ, f"{what}: {len(differ)} of {len(a)} tensors differ: {differ[:4]}")


def check_close_tensors(one, other, tolerance, what):
    """|a - b| <= tolerance * (1 + |b|), as for golden data."""
    a, b = tensors(one), tensors(other)
    check(sorted(a) == sorted(b), f"{what}: other tensors: {sorted(set(a) ^ set(b))}")
    for name in a:
        check(a[name].shape == b[name].shape, f"{what}: /{name} has shape {a[name].shape} for {b[name].shape}")
        x, y = a[name].astype(np.float64), b[name].astype(np.float64)
        off = np.max(np.abs(x - y) / (1 + np.abs(y)), initial=0.0)
        check(off <= tolerance, f"{what}: /{name} differs by {off:.1e}, allowed {tolerance:.0e}")


def check_close_losses(a, b, tolerance, what):
    check(a.shape == b.shape, f"{what}: {len(a)} steps for {len(b)}")
    off = np.max(np.abs(a - b) / np.abs(b))
    check(off <= tolerance, f"{what}: losses differ by {off:.1e}, allowed {tolerance:.0e}")
