#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares kernels with the machine's limits, FBGEMM and torch: lookup, backward with update, ids, codecs, dense layers. Called by
bench_kernels.sh.

Contestants run in turn. Our kernels and the limits run in one process (regression/bench/bench_kernels.c, bench_dense.c). FBGEMM and torch run
as they are, and with FBGEMM_FORCE_AUTOVEC=1, which makes some kernels faster; a kernel's peer is the best of these. With one thread, all times
are processor time. Rates are M rows, ids or values per second, M samples per second for the interaction, and GFLOP/s for the dense layers.
"""
import argparse
import csv
import os
import sys

import bench_common as common

PEERS = {"peer": {}, "peer autovec": {"FBGEMM_FORCE_AUTOVEC": "1"}}
LIMITS = ["limit gather", "limit read-modify-write", "limit memcpy"]
# kernel -> goals: share of a limit, multiple of the peer's default, multiple of the peer's best setting, share of our
# own fp32 lookup or update
TABLES = {
    "forward fp32": {"limit": {1: 0.75, 10: 0.80}, "best": 1.3},
    "backward rowwise_adagrad": {"limit": 0.45, "default": 8.0, "best": 5.0},
    "backward sgd": {"best": 1.8},
    "backward bf16": {"update": None},
    "backward fp16": {"update": None},
    "backward bf16 stochastic": {"update": 0.67},
    "backward fp16 stochastic": {"update": 0.67},
    "forward fp16": {"best": 8.0, "own": 0.7},
    "forward int8": {"best": 8.0, "own": 0.7},
    "forward int4": {"best": 8.0, "own": 0.7},
    "forward int2": {"own": None},
    "bucketize 8": {"best": 1.5},
    "bucketize 64": {"best": 5.0},
    "permute": {"best": None},
    "interaction dot": {"best": None},
    "interaction dot backward": {"best": None},
}
ONCE = {  # measured once: they depend neither on dim nor on pooling
    "encode int8": {"best": 10.0},
    "encode fp8": {"best": 10.0},
    "encode fp16": {"limit": 0.9, "best": None},
    "encode bf16": {"limit": 0.9, "best": None},
    "decode int8": {"best": None},
    "decode fp8": {"best": None},
    "decode fp16": {"limit": 0.9, "best": None},
    "decode bf16": {"limit": 0.9, "best": None},
}
LIMIT_OF = {"forward": "limit gather", "backward": "limit read-modify-write", "encode": "limit memcpy", "decode": "limit memcpy"}
DENSE = {"large MLP": (["-dense_arch", "512,256,64", "-over_arch", "1024,1024,512,256,1"], "large"),
         "small MLP": (["-dense_arch", "64,64", "-over_arch", "64,1"], "small"),
         "DCN": (["-dense_arch", "512,256,64", "-over_arch", "1024,1024,512,256,1", "-interaction", "dcn", "-dcn_low_rank_dim", "512"], "dcn")}


def parse(text):
    """Figures from lines "name,rate[,GB/s,share of limit]"."""
    rows = csv.reader(line for line in text.splitlines() if line.count(",") and not line.startswith(("#", "kernel,")))
    return {row[0]: float(row[1]) for row in rows}


def parse_dense(text):
    """bench_dense's table: part, ms, share, GFLOP/s, ratio to sgemm."""
    figures = {}
    for line in text.splitlines()[2:]:
        name, (milliseconds, _, rate, ratio) = line[:16].strip(), line[16:].split()[:4]
        figures.update({f"{name} ms": float(milliseconds), f"{name} GFLOP/s": float(rate), f"{name} of sgemm": float(ratio)})
    return figures


class Kernels:
    def __init__(self, args):
        self.args = args
        self.binary, self.dense = common.find_binary(args.binary, "bench_kernels"), common.find_binary(args.binary, "bench_dense")
        self.environment = common.threads_environment(args.threads)
        self.sizes = [f"--{name}={getattr(args, name)}" for name in ("tables", "rows", "batch_size")]

    def ours(self, dim, pooling):
        sizes = [word for size in self.sizes for word in size[1:].split("=")]
        return parse(common.output_of([self.binary, "-dim", str(dim), "-pooling", str(pooling), "-rounds", str(self.args.repeats), *sizes], self.environment))

    def peer(self, dim, pooling, environment):
        here = os.path.dirname(os.path.abspath(__file__))
        command = [self.args.peer_python, os.path.join(here, "bench_kernels_peer.py"), "--threads", str(self.args.threads), "--repeats", str(self.args.repeats)]
        return parse(common.output_of(command + ["--dim", str(dim), "--pooling", str(pooling), *self.sizes], {**self.environment, **environment}, tries=2))

    def dense_ours(self, model):
        return parse_dense(common.output_of([self.dense, "-rounds", str(self.args.repeats), "-batch_size", str(self.args.batch_size), *model], self.environment))

    def dense_peer(self, model):
        here = os.path.dirname(os.path.abspath(__file__))
        return parse(common.output_of([self.args.peer_python, os.path.join(here, "bench_kernels_peer.py"), "--threads", str(self.args.threads), "--dense", model,
                                       "--repeats", str(self.args.repeats), f"--batch_size={self.args.batch_size}"], self.environment, tries=2))


def kernel_goals(case, pooling, kernels):
    goals = []
    for kernel, wanted in kernels.items():
        mine, peers = (case, "trshard", kernel), [(case, name, figure) for name in PEERS for figure in (kernel, f"{kernel} torch")]
        for what, goal in wanted.items():
            goal = goal.get(pooling) if isinstance(goal, dict) else goal
            limit = LIMIT_OF.get(kernel.split()[0])
            against, of = {"best": (peers, "best of"), "default": (peers[:2], "default"), "own": ((case, "trshard", "forward fp32"), "our forward fp32"),
                           "update": ((case, "trshard", "backward rowwise_adagrad"), "our fp32 backward"),
                           "limit": ((case, "trshard", limit), limit)}[what]
            goals.append(common.Goal(f"{case} {kernel}, M/s", mine, against, goal, of=of))
    return goals


def dense_goals(args):
    names = args.dense.split(",")
    goals = [common.Goal("limit sgemm, GFLOP/s", [(f"dense {name}", "trshard", "sgemm GFLOP/s") for name in names])]
    for name in names:
        case = f"dense {name}"
        goals.append(common.Goal(f"{case}, GFLOP/s", (case, "trshard", "step GFLOP/s"), goals[0].figure + [(case, "torch", "sgemm GFLOP/s")],
                                 0.85 if name == "large MLP" else None, of="best:"))
        goals.append(common.Goal(f"{case}, step ms", (case, "trshard", "step ms"), (case, "torch", "step ms"), at_most=True, of="torch"))
    return goals


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BINARY", help="bench_kernels (bench_dense lies beside it), or the build folder")
    parser.add_argument("peer_python", metavar="PEER_PYTHON", help="a python with torch and fbgemm-gpu-cpu; none: without a peer")
    parser.add_argument("--threads", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--dims", default="64,128", help="list; 'none': no embeddings (default: %(default)s)")
    parser.add_argument("--pooling", default="1,10", help="list (default: %(default)s)")
    parser.add_argument("--dense", default=",".join(DENSE), help="list of dense parts, or none (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="of a kernel in a window (default: %(default)s)")
    for name, value in (("tables", 26), ("rows", 100000), ("batch_size", 2048)):
        parser.add_argument(f"--{name}", type=int, default=value, help="(default: %(default)s)")
    common.add_options(parser, "bench_kernels", minutes=15)
    args = parser.parse_args()
    args.peer_python = common.peer_python(args.peer_python)
    kernels, cases, goals = Kernels(args), {}, []
    for dim in map(int, [] if args.dims == "none" else args.dims.split(",")):
        for pooling in map(int, args.pooling.split(",")):
            case = f"D{dim} P{pooling}"
            goals += [common.Goal(f"{case} {limit}, M/s", (case, "trshard", limit)) for limit in LIMITS[:3 if not cases else 2]]
            goals += kernel_goals(case, pooling, TABLES | (ONCE if not cases else {}))
            cases[case] = {"trshard": lambda dim=dim, pooling=pooling: kernels.ours(dim, pooling)}
            for name, environment in PEERS.items() if args.peer_python else ():
                cases[case][name] = lambda dim=dim, pooling=pooling, environment=environment: kernels.peer(dim, pooling, environment)
    for name in [] if args.dense == "none" else args.dense.split(","):
        options, model = DENSE[name]
        cases[f"dense {name}"] = {"trshard": lambda options=options: kernels.dense_ours(options)}
        if args.peer_python:
            cases[f"dense {name}"]["torch"] = lambda model=model: kernels.dense_peer(model)
    if args.dense != "none":
        goals += dense_goals(args)
    suite = common.Suite(args)
    suite.rounds(cases)
    return suite.finish(goals, f"kernels, {args.threads} thread(s): {common.machine()}")


if __name__ == "__main__":
    sys.exit(main())
