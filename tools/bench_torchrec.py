#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains the same DLRM in trshard and in the real TorchRec, in turn, and judges the ratios. Called by bench_torchrec.sh.

A case is the name of an MLP with the ids per bag, then its deviations from 2 ranks, uniform ids and dim 64:
  large1 large10     512-256-D and 1024-1024-512-256-1, 1 or 10 ids a bag      goals 2.5, 4 times TorchRec
  small1 small10     64-D and 64-1                                             6, 10 times
  dcn1 dcn10         DCN of 3 layers of rank 512, large MLPs, batch 1024       2 times
  ...-zipf -d128 -r1 -b512    ids by a power law of 1.05, dim, ranks, batch                       the goal of the name before
  ...-bf16                    operands of dense products in bf16; TorchRec with torch.autocast    the goal of the name before
  types              row_wise, table_row_wise, grid_shard and adam against table_wise, large MLP, 10 ids      0.8
  scaling            2 ranks against 1, and exposed communication's share of a step      0.90, 15 %
  torch1 torch10     small1 and small10 in PyTorch on both sides: libtrshard's tables by trshard.autograd under DistributedDataParallel      3 times
  launch             from launch to the end of the first step; TorchRec's beside it         0.5 s + tables' initialisation
  memory                      resident memory of a rank against 1.05 x (tables + states) + batches + 128 MiB; others' memory that a rank reads
                              is counted once, in its owner, although the system counts it in both
"all" means all of them with every variant. The models have 26 tables of 100,000 rows, batch 2048 per rank (1024 with dim 128), row-wise
AdaGrad, dense SGD, one thread per rank. trshard reads its batches from an HDF5 file, TorchRec has them in memory. TorchRec's speed is the
better of the plain loop and TrainPipelineSparseDist, and the better of FBGEMM's default kernels and FBGEMM_FORCE_AUTOVEC=1. The worse
environment is dropped after one round.

Both programs are also compared with the machine's own limit in each of these cases. bench_limits measures the limit in turn with the others,
with as many ranks and threads. It has a probe for each part of a step: the lookup of the rows, the vectors that are read and written where they
were pooled, the matrix products with the layers' own shapes, the grouping of ids, the whole update of distinct rows with gradients and states,
the dense optimizer, the copy of exchanged data in shared memory, and the copy of a batch. The limit is the sum of these times. The goals are 0.9
of the limit with large MLPs and DCN, 0.85 with small MLPs, and 0.8 in each stage. "The rest" is the time of a step outside of these stages:
input dist, waiting for other ranks or for the reader, and moving data (the rows "waiting", "exchange", "input_dist" and "I/O" of -log_view), and
what no stage contains. Exposed communication is the time that no computation hides: waiting and moving data, as in the run's own report.
"""
import argparse
import dataclasses
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time

import trspython

trspython.require("h5py", "numpy")

import h5py
import numpy as np

import bench_common as common
import trsdata
from bench_torchrec_peer import free_port

TOOLS = os.path.dirname(os.path.abspath(__file__))
BATCHES = 8  # distinct batches per rank
NUM_DENSE = 13
LAUNCH_BYTES = 256 << 20  # more than a rank needs, in addition to its tables, until its first step
GOALS = {("large", 1): 2.5, ("large", 10): 4.0, ("small", 1): 6.0, ("small", 10): 10.0, ("dcn", 1): 2.0, ("dcn", 10): 2.0}
DEFAULT = "large1,large10,small1,small10,dcn1,types,scaling,launch,memory"
ALL = (DEFAULT + ",large1-r1,large10-r1,small1-r1,small10-r1,large10-zipf,small10-zipf,large1-d128,large10-d128,small1-d128,small10-d128,dcn10,dcn1-r1")
OWN_TYPES = ("table_wise", "row_wise", "table_row_wise", "grid_shard")
IN_TORCH = 3.0  # smallest ratio of libtrshard's tables to TorchRec's in one PyTorch model
OF_LIMIT = {"large": 0.9, "small": 0.85, "dcn": 0.9}  # smallest share of the machine's limit
OF_STAGE = 0.8  # the same for one stage
STAGES = ("lookup", "dense forward", "dense backward", "embedding backward", "optimizer")  # stages of a run with a limit of their own
LIMIT_DIMS = (32, 64, 128, 256)
PEERS = {"TorchRec": {}, "TorchRec autovec": {"FBGEMM_FORCE_AUTOVEC": "1"}}
SPEED = "samples/s"


@dataclasses.dataclass(frozen=True)
class Workload:
    mlp: str = "large"
    pooling: int = 1
    zipf: bool = False
    ranks: int = 2
    dim: int = 64
    batch: int = 2048
    tables: int = 26
    rows: int = 100000  # rows of each table; if they differ, a comma-separated list
    optimizer: str = "rowwise_adagrad"
    bf16: bool = False

    @property
    def dense_arch(self):
        return f"64,{self.dim}" if self.mlp == "small" else f"512,256,{self.dim}"

    @property
    def over_arch(self):
        return "64,1" if self.mlp == "small" else "1024,1024,512,256,1"

    @property
    def interaction(self):
        return "dcn" if self.mlp == "dcn" else "dot"

    @property
    def seconds(self):
        """A rough guess of TorchRec's time for a step, only used to choose the number of steps."""
        dense = {"large": 2.2e-4, "small": 5e-5, "dcn": 6e-4}[self.mlp]
        return self.batch * (dense + self.tables * self.pooling * self.dim / 64 * 6e-7)


def parse_case(word):
    match = re.fullmatch(r"(large|small|dcn)(\d+)((?:-(?:zipf|bf16|d\d+|r\d+|b\d+))*)", word)
    if not match:
        trsdata.fail(f"--cases: {word} is none of types, scaling, launch, memory, torch1, torch10, all, or large|small|dcn, ids a bag, and -zipf, -bf16, -dN, -rN, -bN", 64)
    more = dict(re.findall(r"-(zipf|bf16|[drb])(\d*)", match[3]))
    dim = int(more.get("d", 64))
    return Workload(match[1], int(match[2]), "zipf" in more, int(more.get("r", 2)), dim, int(more.get("b", 1024 if dim > 64 or match[1] == "dcn" else 2048)),
                    bf16="bf16" in more)


def write_once(turn, n_bytes):
    turn.wait()
    start = time.monotonic()
    np.ones(n_bytes // 4, np.float32)
    return time.monotonic() - start


def seconds_of_writing(processes, n_bytes):
    """Seconds of the slowest of these processes, which write n_bytes of fresh memory each at the same time."""
    with multiprocessing.Manager() as manager, multiprocessing.Pool(processes) as pool:
        turn = manager.Barrier(processes)
        return max(pool.starmap(write_once, [(turn, n_bytes)] * processes, chunksize=1))


class Bench:
    """Workloads and the two programs that train them."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        limits = os.path.join(os.path.dirname(args.binary), "regression", "bench", "bench_limits")
        self.limits = limits if os.path.exists(limits) else None  # an installed trshard has no limits

    def workload(self, **settings):
        """The workload with the sizes that --batch, --rows and --tables force, so that a trial is short."""
        forced = {key: getattr(self.args, key) for key in ("batch", "rows", "tables") if getattr(self.args, key, None)}
        return Workload(**{**settings, **forced})

    def dataset(self, work):
        path = os.path.join(self.folder, f"t{work.tables}-R{str(work.rows).replace(',', '-')}-p{work.pooling}-z{int(work.zipf)}-n{work.batch * work.ranks}.h5")
        if not os.path.exists(path):
            common.output_of([sys.executable, os.path.join(TOOLS, "generate_data.py"), "--output", path, "--num-samples", str(BATCHES * work.batch * work.ranks),
                              "--features", str(work.tables), "--num-embeddings", str(work.rows), "--num-dense", str(NUM_DENSE),
                              "--pooling", str(work.pooling), "--ids", "zipf" if work.zipf else "uniform"])
        return path

    def command(self, work, steps, *more):
        return common.mpirun(work.ranks, self.args.threads) + [
            self.args.binary, "-data_train", self.dataset(work), "-batch_size", str(work.batch), "-steps", str(steps), "-tables_embedding_dim", str(work.dim),
            "-dense_arch", work.dense_arch, "-over_arch", work.over_arch, "-interaction", work.interaction, "-embedding_optimizer", work.optimizer,
            "-dense_optimizer", "sgd", *([] if work.interaction == "dot" else ["-dcn_num_layers", "3", "-dcn_low_rank_dim", "512"]),
            *(["-dense_precision", "bf16"] if work.bf16 else []), *more]

    def steps(self, work, of):
        """The number of timed steps: about --seconds of TorchRec's, or of ours, which is assumed to be `of` times as fast."""
        return self.args.steps or max(4, min(200, round(self.args.seconds * of / work.seconds)))

    def ours(self, work, *more):
        steps, warmup, output = self.steps(work, 4), self.args.warmup, os.path.join(self.folder, "run.h5")
        common.output_of(self.command(work, warmup + steps, "-output", output, *more), common.threads_environment(self.args.threads), timeout=self.args.timeout)
        with h5py.File(output) as h:
            speeds = h["train/samples_per_s"][warmup:]
            names = trsdata.text(h.attrs["stage_names"]).split(",")
            stages = {name: ms for name, ms in zip(names, h["stages/measured_ms"][()].mean(axis=0)) if name != "plan"}
            tables, states, _, peak = h["memory/measured_bytes"][()].T
            peak -= h["memory/held_bytes"][:, trsdata.text(h.attrs["held_names"]).split(",").index("others_pages")]
        batches = 3 * work.batch * (4 * (NUM_DENSE + 1) + work.tables * (4 + 8 * work.pooling))
        allowed = 1.05 * (tables + states) + batches + (128 << 20)
        worst = int(np.argmax(peak / allowed))
        figures = {SPEED: float(len(speeds) / np.sum(1 / speeds)), "exposed share": (stages["waiting"] + stages["exchange"]) / max(sum(stages.values()), 1e-9),
                   "resident MiB": float(peak[worst]) / 2**20, "allowed MiB": float(allowed[worst]) / 2**20}
        step = 1e3 * work.batch * work.ranks / figures[SPEED]
        figures |= {"step ms": step, "rest ms": step - sum(float(stages[name]) for name in STAGES)}
        return figures | {f"{name} ms": float(ms) for name, ms in stages.items() if ms > 0}

    def machine(self, work):
        """The machine's limit: milliseconds of a rank's step and of its stages, if all ranks do the same parts at the same time."""
        command = common.mpirun(work.ranks, self.args.threads) + [
            self.limits, "-rounds", "9", "-tables", str(-(-work.tables // work.ranks)), "-features", str(work.tables), "-rows", str(work.rows),
            "-dim", str(work.dim), "-pooling", str(work.pooling), "-alpha", "1.05" if work.zipf else "0", "-batch_size", str(work.batch),
            "-dense_arch", work.dense_arch, "-over_arch", work.over_arch, "-interaction", work.interaction, "-precision", "bf16" if work.bf16 else "fp32"]
        text = common.output_of(command, common.threads_environment(self.args.threads), timeout=self.args.timeout)
        parts = {name: float(ms) for name, ms in re.findall(r"^limit ([a-z ]+),([0-9.]+)$", text, re.M)}
        stages = {stage: sum(ms for name, ms in parts.items() if name.startswith(stage)) for stage in STAGES}
        total = sum(parts.values())
        return {SPEED: 1e3 * work.batch * work.ranks / total, "rest ms": total - sum(stages.values()),
                **{f"{name} ms": ms for name, ms in (parts | stages).items()}}

    def peer_words(self, work):
        """The options of bench_torchrec_peer.py that describe the workload."""
        return ["--threads", str(self.args.threads), "--ids", "zipf" if work.zipf else "uniform", "--ranks", str(work.ranks), "--batch", str(work.batch),
                "--tables", str(work.tables), "--rows", str(work.rows), "--dim", str(work.dim), "--pooling", str(work.pooling), "--num-dense", str(NUM_DENSE),
                "--dense-arch", work.dense_arch, "--over-arch", work.over_arch, "--interaction", work.interaction, *(["--autocast"] if work.bf16 else []),
                "--batches", str(BATCHES)]

    def peer(self, work, environment, *more, own=False):
        launcher = []
        if own:
            environment = {**common.threads_environment(self.args.threads), **environment, "PYTHONPATH": os.path.join(TOOLS, "python"),
                           "TRSHARD_LIBRARY": os.path.join(os.path.dirname(self.args.binary), "libtrshard.so.1")}
            launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(work.ranks)]  # the ranks choose their cores, as the peer's do
            more = ("--own-tables", "--port", str(free_port()), *more)
        command = [*launcher, self.args.peer_python, os.path.join(TOOLS, "bench_torchrec_peer.py"), *self.peer_words(work), "--warmup", str(min(3, self.args.warmup)),
                   "--steps", str(max(1, self.steps(work, 1) // 4)), "--windows", "2", *more]
        found = json.loads(common.output_of(command, environment, tries=3, timeout=self.args.timeout).strip().splitlines()[-1])
        figures = {SPEED: found["samples_per_s"], **{f"samples/s {name}": speed for name, speed in found["of_pipeline"].items()}}
        return figures if own else figures | {"launch s": found["launch_s"], "resident MiB": found["resident_bytes"] / 2**20}

    def launch(self, work):
        """Seconds from mpirun to the line of the first step, and its limit: 0.5 s more than as many processes take to write the tables once
        into fresh memory. A virtual machine returns free memory to its host, and getting it back takes many times longer than writing to it.
        So the memory is taken once before either time is measured."""
        self.dataset(work)
        table_bytes = 4 * work.tables * work.rows * (work.dim + 1) // work.ranks
        seconds_of_writing(work.ranks, table_bytes + LAUNCH_BYTES)
        start = time.monotonic()
        with subprocess.Popen(self.command(work, 1, "-report_interval", "0"), env={**os.environ, **common.threads_environment(self.args.threads)},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            text, first = "", None
            for line in process.stdout:
                text += line
                if first is None and line.startswith("step 1/"):
                    first = time.monotonic() - start
        if process.returncode or first is None:
            raise common.Failed(f"{text[-1500:]}\nfailed with {process.returncode}, or printed no step")
        return {"launch s": first, "allowed s": 0.5 + seconds_of_writing(work.ranks, table_bytes)}


def against_peer(bench, words):
    """Contestants and goals of the cases with a peer."""
    cases, goals = {}, []
    for word in words:
        work = bench.workload(**dataclasses.asdict(parse_case(word)))
        cases[word] = {"trshard": lambda work=work: bench.ours(work)}
        if bench.args.peer_python:
            for name, environment in PEERS.items():
                cases[word][name] = lambda work=work, environment=environment: bench.peer(work, environment)
        peers = [(word, name, SPEED) for name in PEERS]
        goals.append(common.Goal(f"DLRM {word}, samples/s", (word, "trshard", SPEED), peers, GOALS.get((work.mlp, work.pooling))))
        if bench.limits and work.dim in LIMIT_DIMS:
            cases[word]["machine"] = lambda work=work: bench.machine(work)
            goals.append(common.Goal(f"DLRM {word}, samples/s", (word, "trshard", SPEED), (word, "machine", SPEED), OF_LIMIT[work.mlp], of="the machine's limit"))
            goals.append(common.Goal(f"limit of {word}, samples/s", (word, "machine", SPEED), peers))
            for stage in STAGES:
                if stage != "optimizer" or work.mlp != "small":  # takes microseconds
                    goals.append(common.Goal(f"limit of {word}, {stage}, ms", (word, "machine", f"{stage} ms"), (word, "trshard", f"{stage} ms"), OF_STAGE, of="ours"))
            goals.append(common.Goal(f"limit of {word}, the rest, ms", (word, "machine", "rest ms"), (word, "trshard", "rest ms"), of="ours"))
            goals.append(common.Goal(f"the rest of {word}, ms", (word, "trshard", "rest ms"), (word, "trshard", "step ms"), of="our step"))
    return cases, goals


def own_types(bench):
    work = bench.workload(mlp="large", pooling=10)
    cases = {kind: lambda kind=kind: bench.ours(work, "-tables_sharding_types", kind, "-tables_min_partition", str(work.dim // 2)) for kind in OWN_TYPES}
    cases["adam"] = lambda: bench.ours(dataclasses.replace(work, optimizer="adam"), "-tables_sharding_types", "table_wise")
    goals = [common.Goal(f"{kind}, samples/s", ("types", kind, SPEED), ("types", "table_wise", SPEED), 0.8, of="our table_wise") for kind in cases if kind != "table_wise"]
    return {"types": cases}, goals


def scaling(bench):
    cases, goals = {}, []
    for pooling in (1, 10):
        case = f"scaling large{pooling}"
        cases[case] = {f"{ranks} ranks": lambda ranks=ranks, pooling=pooling: bench.ours(bench.workload(mlp="large", pooling=pooling, ranks=ranks)) for ranks in (1, 2)}
        goals.append(common.Goal(f"2 ranks large{pooling}, samples/s", (case, "2 ranks", SPEED), (case, "1 ranks", SPEED), 0.90, scale=2.0, of="twice 1 rank"))
        goals.append(common.Goal(f"exposed communication large{pooling}, share of a step", (case, "2 ranks", "exposed share"), 1.0, 0.15, at_most=True, of="step"))
    return cases, goals


def launch(bench):
    work = bench.workload(mlp="large", pooling=1)
    cases = {"launch": {"trshard": lambda: bench.launch(work)}}
    goals = [common.Goal("launch to first step, s", ("launch", "trshard", "launch s"), ("launch", "trshard", "allowed s"), 1.0, at_most=True, of="0.5 s + tables written")]
    if bench.args.peer_python:
        cases["launch"]["TorchRec"] = lambda: bench.peer(work, {}, "--pipelines", "none", "--warmup", "0", "--steps", "1", "--windows", "1")
        goals.append(common.Goal("launch to first step, s", ("launch", "trshard", "launch s"), ("launch", "TorchRec", "launch s"), at_most=True, of="TorchRec"))
    return cases, goals


def memory(bench):
    work = bench.workload(mlp="large", pooling=10)
    cases = {"memory": {f"{ranks} ranks": lambda ranks=ranks: bench.ours(dataclasses.replace(work, ranks=ranks)) for ranks in (1, 2)}}
    goals = [common.Goal(f"resident memory of a rank of {ranks}, MiB", ("memory", f"{ranks} ranks", "resident MiB"), ("memory", f"{ranks} ranks", "allowed MiB"),
                         1.0, at_most=True, of="allowed") for ranks in (1, 2)]
    return cases, goals


def in_torch(bench, word):
    """The same PyTorch model with libtrshard's tables, and with TorchRec's sharded ones."""
    work = bench.workload(mlp="small", pooling=int(word.removeprefix("torch")))
    if not bench.args.peer_python:
        return {}, []
    cases = {word: {"libtrshard": lambda: bench.peer(work, {}, own=True)}}
    for name, environment in PEERS.items():
        cases[word][name] = lambda environment=environment: bench.peer(work, environment)
    return cases, [common.Goal(f"PyTorch DLRM {word}, samples/s", (word, "libtrshard", SPEED), [(word, name, SPEED) for name in PEERS], IN_TORCH)]


def keep_best_peer(cases, suite):
    """After the first round, the slower of TorchRec's environments no longer takes part."""
    for case, contestants in cases.items():
        speeds = {name: suite.samples.median(case, name, SPEED) for name in PEERS if name in contestants}
        if len(speeds) > 1 and None not in speeds.values():
            del contestants[min(speeds, key=speeds.get)]


def add_training_options(parser):
    parser.add_argument("--threads", type=int, default=1, help="a rank (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=5, help="steps (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="about as long as the timed steps of a run take (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="timed in a run, instead of --seconds")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a run may take (default: %(default)s)")
    for name in ("batch", "rows", "tables"):
        parser.add_argument(f"--{name}", type=int, help="force it in all cases (for trials: the goals are not for these)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BINARY", help="trshard")
    parser.add_argument("peer_python", metavar="PEER_PYTHON", help="a python with torch, torchrec and fbgemm_gpu; none: without a peer")
    parser.add_argument("--cases", default=DEFAULT, help="list (default: %(default)s)")
    add_training_options(parser)
    common.add_options(parser, "bench_torchrec", minutes=10)
    args = parser.parse_args()
    args.binary, args.peer_python = os.path.abspath(args.binary), common.peer_python(args.peer_python)
    words = list(dict.fromkeys((ALL if args.cases == "all" else args.cases).split(",")))
    own = {"types": own_types, "scaling": scaling, "launch": launch, "memory": memory,
           "torch1": lambda bench: in_torch(bench, "torch1"), "torch10": lambda bench: in_torch(bench, "torch10")}
    with tempfile.TemporaryDirectory(prefix="trshard-bench-") as folder:
        bench = Bench(args, folder)
        cases, goals = against_peer(bench, [word for word in words if word not in own])
        for word in words:
            if word in own:
                more, their_goals = own[word](bench)
                cases.update(more)
                goals += their_goals
        suite = common.Suite(args)
        rounds, args.rounds = args.rounds, 1
        suite.rounds(cases)
        keep_best_peer(cases, suite)
        args.rounds = rounds
        suite.rounds(cases)
        return suite.finish(goals, f"trshard and TorchRec: {common.machine()}")


if __name__ == "__main__":
    sys.exit(main())
