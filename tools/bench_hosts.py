#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures trainings on several hosts with a slow network, beside a model and beside TorchRec. Called by bench_hosts.sh.

The hosts are network namespaces of this machine (trshosts.py), with one rank each. Open MPI and gloo exchange by TCP. A case is a number of hosts,
a bandwidth and a way to divide the tables: a sharding type, "look_ahead", which are table_wise tables with -ebc_look_ahead, or "replicas", which
are two copies of table_wise tables that exchange gradients.
The model to train is a case of bench_torchrec.py.

  step ms     median time of a step
  predicted   the model's time of this step: see below
  MiB         bytes of messages that the busiest rank sends in a step
  messages    their number
  exposed ms  mean time of a step in which a rank waits or moves data that has arrived
  wire ms     the time that these bytes take at the bandwidth which one TCP connection reaches
  hidden      1 - exposed / wire: the share of the exchanges that computation hides. Waits for slower ranks count as exposed. Below 0: a step
              waits for longer than its bytes take

The model replays exchanges (trsreplay.py). The same training runs without a limit of the bandwidth, just before the measured training. Its
trace gives the own time of a step, the bytes of each exchange, and the points at which an exchange starts and is needed. Exchanges then take
turns on the network, and a rank waits for what is needed and has not arrived.

All hosts share the processors of one machine. If there are more ranks than processors, ranks compete for them, and own time grows with the
ranks. Such runs show bytes, messages and the model's error, but not how a cluster would scale.
"""
import argparse
import dataclasses
import json
import os
import sys
import tempfile

import trspython

trspython.require("h5py", "numpy", "matplotlib")

import h5py
import numpy as np

import bench_common as common
import bench_torchrec
import trshosts
import trsreplay

TYPES = {kind: f"-tables_sharding_types {kind}" for kind in ("table_wise", "row_wise", "grid_shard", "data_parallel")}
TYPES["look_ahead"] = "-tables_sharding_types table_wise -ebc_look_ahead true"
TYPES["replicas"] = "-tables_sharding_types table_wise -plan_replicas 2 -replica_sync gradients"
PEER_TYPES = ("table_wise", "data_parallel")  # on CPUs TorchRec refuses to cut tables by rows; its copies take means of weights
WITHIN = 0.2  # largest error of a prediction
PORT = 29577
SOURCE = "trshard"


class Bench(bench_torchrec.Bench):
    """Trainings on the hosts of the current case."""

    def __init__(self, args, folder):
        super().__init__(args, folder)
        self.hosts, self.reached, self.told = None, {}, False

    def network(self, work, gbps):
        """Shapes the network of so many hosts, which are made if the last case had another number. Returns bytes per ms of a TCP connection."""
        if self.hosts is None or self.hosts.n != work.ranks:
            self.close()
            self.hosts = trshosts.Hosts(work.ranks).__enter__()
        delay_us = self.args.delay_us if gbps else 0.0
        if delay_us and not self.hosts.can_delay():
            if not self.told:
                print("# this kernel has no netem: bandwidth alone, without --delay-us", file=sys.stderr)
            self.told, delay_us, self.args.delay_us = True, 0.0, 0.0
        self.hosts.shape(gbps, delay_us)
        if gbps and gbps not in self.reached:
            self.reached[gbps] = max(self.hosts.measured_gbps() for _ in range(3)) * 1e9 / 8e3
            print(f"# {gbps:g} Gbit/s: a TCP connection reaches {self.reached[gbps] * 8e3 / 1e9:.3g}", file=sys.stderr)
        return self.reached.get(gbps, 0.0)

    def alone(self, contestant):
        """Runs a contestant. If it fails, the hosts are made anew, because processes of a run that took too long are still on them."""
        try:
            return contestant()
        except common.Failed:
            self.close()
            raise

    def processor_seconds(self):
        return self.hosts.processor_seconds() if self.hosts else 0.0

    def close(self):
        if self.hosts:
            self.hosts.__exit__()
        self.hosts = None

    def command(self, work, steps, *more):
        words = super().command(work, steps, *more)
        return self.hosts.mpirun(*words[words.index(self.args.binary):])

    def train(self, work, kind, name):
        """Trains, and leaves the results NAME.h5 and the trace NAME.json."""
        steps, paths = self.args.steps or 20, [os.path.join(self.folder, f"{name}.{end}") for end in ("h5", "json")]
        common.output_of(self.command(work, self.args.warmup + steps, "-output", paths[0], "-trace", paths[1], "-trace_first_step", str(self.args.warmup),
                                      "-trace_steps", str(steps), "-tables_min_partition", str(max(1, work.dim // work.ranks)), *TYPES[kind].split()),
                         common.threads_environment(self.args.threads), timeout=self.args.timeout)
        return paths

    def measured(self, work, kind, gbps):
        self.network(work, 0)
        _, free = self.train(work, kind, "free")
        rate = self.network(work, gbps)
        results, trace = self.train(work, kind, "shaped")
        with h5py.File(results) as h:
            messages, size = h["exchanges/sent"][()].max(axis=0)
            names = h.attrs["stage_names"].split(",")
            exposed_ms = sum(ms for name, ms in zip(names, h["stages/measured_ms"][()].mean(axis=0)) if name in ("waiting", "exchange"))
            step_ms = float(np.median(1e3 * work.batch * work.ranks / h["train/samples_per_s"][self.args.warmup:]))
        wire_ms = size / rate
        return {"step ms": step_ms, "predicted ms": self.predicted(free, rate), "MiB": size / 2**20, "messages": messages, "exposed ms": exposed_ms, "wire ms": wire_ms,
                "hidden": 1 - exposed_ms / wire_ms}

    def predicted(self, free, rate):
        exchanges = [(x["start"], x["need"], 2 if x["name"] == "dense gradients" else 1, 0, x["message_bytes"]) for x in trsreplay.exchanges_of(free)]
        latency_ms = 1e-3 * (self.args.latency_us + self.args.delay_us)
        return trsreplay.replay(trsreplay.own_ms_of(free), exchanges, lambda phases, _, size: 1e-3 * (phases * latency_ms + size / rate))

    def torchrec(self, work, kind, gbps):
        self.network(work, gbps)
        steps = self.args.steps or 20
        words = [self.args.peer_python, os.path.join(bench_torchrec.TOOLS, "bench_torchrec_peer.py"), "--address", f"{trshosts.NET}.1", "--interface", "eth0",
                 "--port", str(PORT), "--sharding-type", kind, "--warmup", str(min(3, self.args.warmup)), "--steps", str(max(1, steps // 2)), "--windows", "2",
                 *self.peer_words(work)]
        text = common.output_of(self.hosts.mpirun(*words), common.threads_environment(self.args.threads), tries=2, timeout=self.args.timeout)
        return {"step ms": 1e3 * work.batch * work.ranks / json.loads(text.strip().splitlines()[-1])["samples_per_s"]}


def print_rows(samples, cases, allowed):
    """Prints the table. Returns rows of the picture: (hosts, Gbit/s, way, step ms, predicted ms, TorchRec's step ms or None)."""
    print(f"{'hosts':>5} {'Gbit/s':>6} {'way':14} {'step ms':>8} {'predicted':>9} {'ratio':>6} {'MiB':>7} {'messages':>8} {'exposed ms':>10} {'wire ms':>8} {'hidden':>6} "
          f"{'TorchRec ms':>11} {'times':>6}")
    rows = []
    for case, (hosts, gbps, kind) in cases.items():
        figures = {name: samples.median(case, SOURCE, name) for name in samples.figures(case, SOURCE)}
        if not figures:
            continue
        peer, ratio = samples.median(case, "TorchRec", "step ms"), figures["predicted ms"] / figures["step ms"]
        foreign = max(samples.foreign(case, who) for who in (SOURCE, "TorchRec"))
        print(f"{hosts:5} {gbps:6g} {kind:14} {figures['step ms']:8.2f} {figures['predicted ms']:9.2f} {ratio:6.2f} {figures['MiB']:7.2f} {figures['messages']:8.1f} "
              f"{figures['exposed ms']:10.2f} {figures['wire ms']:8.2f} {figures['hidden']:6.2f} " +
              (f"{peer:11.2f} {peer / figures['step ms']:6.2f}" if peer else f"{'':18}") + (f"  disturbed, {foreign:.0%}" if foreign > allowed else ""))
        rows.append((hosts, gbps, kind, figures["step ms"], figures["predicted ms"], peer))
    good = sum(abs(row[4] / row[3] - 1) <= WITHIN for row in rows)
    print(f"predicted within {WITHIN:.0%}: {good} of {len(rows)}")
    return rows


def draw(rows, path, title):
    plt = common.pyplot()
    numbers = sorted({row[0] for row in rows})
    figure, axes = plt.subplots(1, len(numbers), figsize=(2 + 4.5 * len(numbers), 4.5), squeeze=False)
    for axis, hosts in zip(axes[0], numbers):
        mine = [row for row in rows if row[0] == hosts]
        axis.bar(range(len(mine)), [row[3] for row in mine], color="#0072b2", label="trshard, measured")
        axis.plot(range(len(mine)), [row[4] for row in mine], "D", color="#e69f00", label="trshard, predicted")
        axis.plot([i for i, row in enumerate(mine) if row[5]], [row[5] for row in mine if row[5]], "_", color="#d55e00", markersize=14, markeredgewidth=3,
                  label="TorchRec")
        axis.set_yscale("log")
        axis.set_xticks(range(len(mine)), [f"{row[2]}, {row[1]:g} Gbit/s" for row in mine], rotation=60, ha="right", fontsize=8)
        axis.set_title(f"{hosts} hosts", fontsize=10)
    axes[0][0].set_ylabel("ms a step")
    axes[0][0].legend(fontsize=8)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(common.with_folder(path), dpi=110)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BINARY", help="trshard")
    parser.add_argument("peer_python", metavar="PEER_PYTHON", nargs="?", default="none", help="a python with torch, torchrec and fbgemm_gpu (default: without a peer)")
    parser.add_argument("--hosts", default="2,4,8", help="list (default: %(default)s)")
    parser.add_argument("--gbps", default="1,10,25", help="list of 1e9 bits/s that a host sends or receives (default: %(default)s)")
    parser.add_argument("--delay-us", type=float, default=0.0, help="of each packet, by netem (default: %(default)s)")
    parser.add_argument("--latency-us", type=float, default=100.0, help="the model's time of an exchange without bytes (default: %(default)s)")
    parser.add_argument("--types", default=",".join(TYPES), help="list (default: %(default)s)")
    parser.add_argument("--case", default="large1", help="the model, as in bench_torchrec.py (default: %(default)s)")
    bench_torchrec.add_training_options(parser)
    common.add_options(parser, "bench_hosts")
    args = parser.parse_args()
    args.binary, args.peer_python = os.path.abspath(args.binary), common.peer_python(args.peer_python) if args.peer_python != "none" else None
    kinds, numbers, speeds = args.types.split(","), [int(n) for n in args.hosts.split(",")], [float(x) for x in args.gbps.split(",")]
    if set(kinds) - set(TYPES) or min(numbers) < 2 or max(numbers) > trshosts.MOST or min(speeds) <= 0 or ("replicas" in kinds and any(n % 2 for n in numbers)):
        parser.error(f"wanted: --types of {', '.join(TYPES)}; 2 to {trshosts.MOST} --hosts, for replicas even numbers; --gbps above 0")
    reason = trshosts.why_not()
    if reason:
        print(f"bench_hosts.py: {reason}", file=sys.stderr)
        return 77
    cases, contestants = {}, {}
    with tempfile.TemporaryDirectory(prefix="trshard-bench-") as folder:
        bench = Bench(args, folder)
        suite = common.Suite(args, bench.processor_seconds)
        work = bench.workload(**dataclasses.asdict(bench_torchrec.parse_case(args.case)))
        for n in numbers:
            mine = dataclasses.replace(work, ranks=n)
            for gbps in speeds:
                for kind in kinds:
                    case = f"{n} hosts {gbps:g} Gbit/s {kind}"
                    cases[case] = (n, gbps, kind)
                    contestants[case] = {SOURCE: lambda mine=mine, kind=kind, gbps=gbps: bench.alone(lambda: bench.measured(mine, kind, gbps))}
                    if args.peer_python and kind in PEER_TYPES:
                        contestants[case]["TorchRec"] = lambda mine=mine, kind=kind, gbps=gbps: bench.alone(lambda: bench.torchrec(mine, kind, gbps))
        try:
            suite.rounds(contestants)
        finally:
            bench.close()
    rows = print_rows(suite.samples, cases, args.foreign)
    if args.plot and rows:
        draw(rows, args.plot, f"hosts of {args.case}, {work.batch} samples a rank: {common.machine()}")
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
