#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Counts messages between simulated hosts up to --ranks ranks, and models their cost up to --paper ranks.

  bench_messages.py build/trshard                            hosts of 4 ranks, 8 to 64 ranks, row_wise and table_row_wise
  bench_messages.py build/trshard --types row_wise --host 8 --ranks 16,32,64 --step-ms 20
  bench_messages.py build/trshard --types row_wise --host 8 --ranks 16,32 --copies 1,8,16,32,64     2D: copies of the tables on --paper ranks

Each training runs in several ways: with a message for each block, with the relay of small blocks (-comm_relay_bytes), and for row_wise also
with sums by hosts (-ebc_row_wise_reduce_scatter hierarchical). The tool prints the messages per step of the busiest rank, the bytes of a mean
rank, the largest memory of a rank, and the seconds before the first step. On one machine with fewer cores than ranks, these seconds are no
indication for a cluster.

The model ("on paper"): a rank's exchanges take  phases * latency + messages * overhead + bytes / (a host's bandwidth / its ranks),  and
computation hides none of this. The counted messages are fitted to p ceil((W / L - 1) / L) + d (W - L): messages of the relay and of large
blocks. The bytes are fitted to a (W - L) / W + b (W - L). The first term is ids and rows, which are spread over all ranks. The second term is
data for every rank or host: lengths of bags, and sums. The efficiency is that of weak scaling: --step-ms of a single rank, divided by
--step-ms plus the time of the exchanges.

For row_wise the exchanges are also replayed (trsreplay.py): they are traced on 2 and 4 ranks, each of which is a host, and modelled one by
one. The part of an exchange that computation hides then costs nothing. The points of own time at which exchanges start and are needed are
those of the traced model, whose step is assumed to take --step-ms.

With --copies the replay also has copies of row_wise tables (-plan_replicas) on --paper ranks: ids and rows are exchanged within a copy, dense
gradients among all ranks, and every --sync-every steps the copies are averaged. Computation does not hide the averages.
A rank holds a part of --tables-gib, the weights and states of all tables. With more copies, the part is larger. "Bound by" names the work without which a step would be shortest, and the cause
without which it would be shortest: the latency of phases, the number of messages, or the bytes.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

import trspython

trspython.require("h5py", "numpy", "matplotlib")

import h5py
import numpy as np

import bench_common as common
import trsreplay
from bench_reproducible import HERE

TABLES, ROWS, DIM = 4, 5000, 32
MODEL = f"-tables_embedding_dim {DIM} -embedding_optimizer rowwise_adagrad -dense_arch 64,32 -over_arch 64,1 -tables_min_partition 8"


def ways_of(args, kind):
    """Name -> options. The way without a relay comes first."""
    relay = f"-comm_relay_bytes {args.relay} -ebc_row_wise_reduce_scatter"
    ways = {"messages": "-comm_relay_bytes 0 -ebc_row_wise_reduce_scatter flat", "relay": f"{relay} flat"}
    return ways | ({"hierarchical": f"{relay} hierarchical"} if kind == "row_wise" else {})


def train(args, folder, kind, ranks, way):
    """Messages per step of the busiest rank, bytes per step of a mean rank (a host's ranks share its bandwidth), MiB of
    the largest rank, seconds before the first step.
    """
    words = (f"-data_train train.h5 -batch_size {args.batch} -steps {args.steps} {MODEL} -tables_sharding_types {kind} -output run.h5 "
             f"-comm_ranks_per_host {args.host} {way}").split()
    begin = time.monotonic()
    subprocess.run(common.mpirun(ranks) + [os.path.abspath(args.binary)] + words, cwd=folder, check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, **common.threads_environment(1), "OMPI_MCA_mpi_yield_when_idle": "1"})
    seconds = time.monotonic() - begin
    with h5py.File(os.path.join(folder, "run.h5")) as h:
        sent = h["exchanges/sent"][()]
        messages, size = sent[:, 0].max(), sent[:, 1].mean()
        names = h.attrs["stage_names"].split(",")
        step_ms = sum(ms for name, ms in zip(names, h["stages/measured_ms"][()].mean(axis=0)) if name != "plan")
        return float(messages), float(size), int(h.attrs["peak_memory_bytes"]) / 2**20, seconds - step_ms * args.steps / 1e3


def traced(args, folder):
    """The schedule of row_wise's exchanges in a step, and their kinds and blocks (trsreplay.py)."""
    found, ranks = [], (2, 4)
    for w in ranks:
        words = (f"-data_train train.h5 -batch_size {args.batch} -steps 60 {MODEL} -tables_sharding_types row_wise -ebc_row_wise_reduce_scatter flat "
                 f"-comm_ranks_per_host 1 -trace trace.json -trace_first_step 20").split()
        subprocess.run(common.mpirun(w) + [os.path.abspath(args.binary)] + words, cwd=folder, check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, **common.threads_environment(1), "OMPI_MCA_mpi_yield_when_idle": "1"})
        found.append(trsreplay.exchanges_of(os.path.join(folder, "trace.json")))
    return found[0], trsreplay.blocks_of(*found, ranks)


def replayed(args, schedule, blocks, w, way):
    """Messages and bytes of the replayed exchanges, and the efficiency."""
    costs = trsreplay.costs(schedule, blocks, w, args.host, way, args.relay)
    step_ms = trsreplay.replay(args.step_ms, costs, lambda phases, messages, size: 1e-3 * exchange_ms(args, phases, messages, size))
    return {"replayed_messages": sum(x[3] for x in costs), "replayed_bytes": sum(x[4] for x in costs), "replayed_efficiency": args.step_ms / step_ms}


WORK = ("dense gradients", "rows and ids", "averages")
CAUSES = ("phases", "messages", "bytes")


def copies_on_paper(args, schedule, blocks, w, copies, way):
    """A row of the table for copies of the tables on w ranks."""
    rank_bytes = args.tables_gib * 2**30 * copies / w

    def step(without=None):
        def ms(*parts):
            return exchange_ms(args, *(0 if without == cause else part for cause, part in zip(CAUSES, parts)))

        costs = trsreplay.costs(schedule, blocks, w, args.host, way, args.relay, copies, dense=without != WORK[0], tables=without != WORK[1])
        averaged = 0.0 if without == WORK[2] else ms(*trsreplay.average([rank_bytes], copies)) / args.sync_every
        return trsreplay.replay(args.step_ms, costs, lambda *parts: 1e-3 * ms(*parts)) + averaged

    whole, costs = step(), trsreplay.costs(schedule, blocks, w, args.host, way, args.relay, copies)
    saved = {name: whole - step(name) for name in WORK + CAUSES}
    return {"copies": copies, "ranks_of_a_copy": w // copies, "gib": rank_bytes / 2**30, "messages": sum(x[3] for x in costs), "bytes": sum(x[4] for x in costs),
            "step_ms": whole, "efficiency": args.step_ms / whole, "saved_ms": saved,
            "bound": [max(names, key=saved.get) if max(saved[name] for name in names) > 0.01 * whole else "nothing" for names in (WORK, CAUSES)]}


def count_copies(args, folder, schedule, blocks, w):
    """Trains with two copies, which are averaged once, at the end. Prints the counted messages and bytes beside the replay's."""
    rows = ROWS / (w // 2)
    _, more, more_bytes = trsreplay.average([4 * rows * DIM, 4 * rows] * TABLES, 2)  # rowwise_adagrad has a number for each row
    for way, options in ways_of(args, "row_wise").items():
        messages, size, *_ = train(args, folder, "row_wise", w, f"{options} -plan_replicas 2 -replica_sync_every {args.steps}")
        costs = trsreplay.costs(schedule, blocks, w, args.host, way, args.relay, 2)
        print(f"2 copies on {w} ranks, {way}: counted {messages:.1f} messages, {size / 1024:.0f} KiB; replayed {sum(x[3] for x in costs) + more / args.steps:.1f} "
              f"messages, {(sum(x[4] for x in costs) + more_bytes / args.steps) / 1024:.0f} KiB", flush=True)


def print_copies(args, schedule, blocks):
    print(f"\ncopies of row_wise tables on {args.paper} ranks, {args.host} a host; tables of {args.tables_gib:g} GiB, averaged every {args.sync_every} steps; own step "
          f"{args.step_ms:g} ms\n{'copies':>6} {'ranks':>6} {'way':>12} {'GiB a rank':>10} {'messages':>9} {'KiB':>9} {'step ms':>8} {'efficiency':>10} "
          f"{'saved without: ' + ', '.join(WORK + CAUSES)} / bound by")
    rows = []
    for copies in args.copies:
        for way in ("relay", "hierarchical"):
            row = copies_on_paper(args, schedule, blocks, args.paper, copies, way) | {"way": way}
            rows.append(row)
            print(f"{copies:6} {row['ranks_of_a_copy']:6} {way:>12} {row['gib']:10.2f} {row['messages']:9.0f} {row['bytes'] / 1024:9.1f} {row['step_ms']:8.2f} "
                  f"{row['efficiency']:10.3f} " + " ".join(f"{row['saved_ms'][name]:6.2f}" for name in WORK + CAUSES) + f" / {row['bound'][0]}, {row['bound'][1]}")
    return rows


def fit(points, terms):
    """Factors >= 0 of the terms, which are functions of the ranks, for (ranks, value) points: least squares of the relative errors."""
    best = None
    for used in range(1, 2 ** len(terms)):
        chosen = [i for i in range(len(terms)) if used >> i & 1]
        rows = [[terms[i](w) / y for i in chosen] for w, y in points]
        factors, *_ = np.linalg.lstsq(rows, np.ones(len(points)), rcond=None)
        error = float(np.square(np.dot(rows, factors) - 1).sum())
        if min(factors) >= 0 and (best is None or error < best[0] - 1e-12):
            best = error, {i: float(x) for i, x in zip(chosen, factors)}
    return lambda w: sum(x * terms[i](w) for i, x in best[1].items())


def on_paper(args, counted, relayed):
    """Two functions of the number of ranks: a rank's messages and bytes per step."""
    to_ranks, to_hosts = (lambda w: w - args.host), (lambda w: math.ceil((w / args.host - 1) / args.host))
    messages = fit([(w, x[0]) for w, x in counted.items()], [to_ranks, to_hosts] if relayed else [to_ranks])
    return messages, fit([(w, x[1]) for w, x in counted.items()], [to_ranks, lambda w: (w - args.host) / w])


def exchange_ms(args, phases, messages, size):
    return 1e-3 * (phases * args.latency_us + messages * args.overhead_us) + 1e3 * size / (args.host_gbps * 1e9 / args.host)


def draw(args, paper, path):
    plt = common.pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(16, 4.2))
    styles = {"messages": ":", "relay": "--", "hierarchical": "-"}
    for (kind, way), rows in paper.items():
        label = f"{kind}, {'a message a block' if way == 'messages' else way}"
        ranks = [row["ranks"] for row in rows]
        line, = axes[0].plot(ranks, [row["messages"] for row in rows], linestyle=styles[way], label=label)
        if "replayed_efficiency" in rows[0]:
            axes[2].plot(ranks, [row["replayed_efficiency"] for row in rows], linestyle=styles[way], color=line.get_color(), label=label)
        counted = [row for row in rows if "counted" in row]
        axes[0].plot([row["ranks"] for row in counted], [row["counted"] for row in counted], "o", color=line.get_color())
        axes[1].plot(ranks, [row["efficiency"] for row in rows], linestyle=styles[way], label=label)
    axes[0].set_yscale("log")
    axes[0].set_ylabel("messages a step of the busiest rank (dots: counted)")
    axes[1].set_ylabel(f"efficiency on paper, step of {args.step_ms:g} ms")
    axes[2].set_ylabel(f"efficiency, exchanges replayed, step of {args.step_ms:g} ms")
    axes[1].set_ylim(0, 1.02)
    axes[2].set_ylim(0, 1.02)
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.set_xlabel(f"ranks, {args.host} a host")
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(common.with_folder(path), dpi=110)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--types", default="row_wise,table_row_wise", help="sharding types (default: %(default)s)")
    parser.add_argument("--ranks", default="8,16,32,64", help="ranks of the trainings (default: %(default)s)")
    parser.add_argument("--host", type=int, default=4, help="ranks of a simulated host (default: %(default)s)")
    parser.add_argument("--relay", type=int, default=2048, help="-comm_relay_bytes (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="of a rank (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--paper", type=int, default=4096, help="the most ranks on paper (default: %(default)s)")
    parser.add_argument("--step-ms", type=float, default=10.0, help="a rank's own step (default: %(default)s)")
    parser.add_argument("--latency-us", type=float, default=3.0, help="of a phase (default: %(default)s)")
    parser.add_argument("--overhead-us", type=float, default=1.0, help="of a message, for sender and receiver together (default: %(default)s)")
    parser.add_argument("--host-gbps", type=float, default=25.0, help="bandwidth of a host in GB/s (default: %(default)s)")
    parser.add_argument("--copies", default="", help="list of numbers of copies of the tables on --paper ranks (default: none)")
    parser.add_argument("--tables-gib", type=float, default=100.0, help="weights and states of all tables, with --copies (default: %(default)s)")
    parser.add_argument("--sync-every", type=int, default=100, help="-replica_sync_every, with --copies (default: %(default)s)")
    parser.add_argument("--output", default=common.FOLDER, metavar="FOLDER", help="of messages.png and messages.json (default: %(default)s)")
    args = parser.parse_args()
    args.phases, paper, exchanges = 0, {}, None
    ranks = sorted(int(w) for w in args.ranks.split(","))
    if ranks[0] <= args.host or any(w % args.host for w in ranks):
        parser.error("--ranks wants multiples of --host, of at least two hosts")
    args.copies = [int(n) for n in args.copies.split(",") if n]
    if any(n < 1 or args.paper % (n * args.host) for n in args.copies) or args.sync_every < 1 or args.tables_gib < 0:
        parser.error("--copies wants numbers with which a copy on --paper ranks has whole hosts; --sync-every is at least 1, and --tables-gib at least 0")
    if args.copies and "row_wise" not in args.types.split(","):
        parser.error("--copies wants row_wise among the --types")
    with tempfile.TemporaryDirectory(prefix="trshard-messages-") as folder:
        subprocess.run([sys.executable, os.path.join(HERE, "generate_data.py"), "--output", os.path.join(folder, "train.h5"), "--num-samples",
                        str(args.batch * ranks[-1] * 4), "--features", str(TABLES), "--num-embeddings", str(ROWS), "--num-dense", "4", "--pooling", "2"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for kind in args.types.split(","):
            print(f"{kind:16} {'ranks':>6} {'way':>12} {'messages':>9} {'KiB':>9} {'MiB a rank':>11} {'start s':>8}")
            schedule = traced(args, folder) if kind == "row_wise" else None
            exchanges = schedule or exchanges
            if schedule and args.copies and ranks[-1] % (2 * args.host) == 0:
                count_copies(args, folder, *schedule, ranks[-1])
            for way, options in ways_of(args, kind).items():
                counted = {}
                for w in ranks:
                    counted[w] = train(args, folder, kind, w, options)
                    messages, size, memory, start_s = counted[w]
                    print(f"{'':16} {w:6} {way:>12} {messages:9.1f} {size / 1024:9.1f} {memory:11.1f} {start_s:8.2f}", flush=True)
                if way == "messages":
                    args.phases = counted[ranks[-1]][0] / (ranks[-1] - args.host)
                messages_of, bytes_of = on_paper(args, counted, way != "messages")
                paper[kind, way], w = [], ranks[0]
                while w <= args.paper:
                    row = {"ranks": w, "messages": messages_of(w), "bytes": bytes_of(w), "ms": exchange_ms(args, args.phases, messages_of(w), bytes_of(w))}
                    if schedule:
                        row |= replayed(args, *schedule, w, way)
                    paper[kind, way].append(row | {"efficiency": args.step_ms / (args.step_ms + row["ms"])} | ({"counted": counted[w][0]} if w in counted else {}))
                    w *= 2
    print(f"\non paper: {args.latency_us:g} us a phase, {args.overhead_us:g} us a message, {args.host_gbps:g} GB/s a host; nothing is hidden\n"
          f"{'':16} {'ranks':>6} {'way':>12} {'messages':>9} {'KiB':>9} {'ms':>8} {'efficiency':>11}  replayed: messages, KiB, efficiency")
    for (kind, way), rows in paper.items():
        for row in rows:
            print(f"{kind:16} {row['ranks']:6} {way:>12} {row['messages']:9.1f} {row['bytes'] / 1024:9.1f} {row['ms']:8.3f} {row['efficiency']:11.3f}" +
                  (f"  {row['replayed_messages']:9.0f} {row['replayed_bytes'] / 1024:9.1f} {row['replayed_efficiency']:11.3f}" if "replayed_bytes" in row else ""))
    of_copies = print_copies(args, *exchanges) if args.copies else []
    draw(args, paper, os.path.join(args.output, "messages.png"))
    with open(os.path.join(args.output, "messages.json"), "w", encoding="utf-8") as out:
        json.dump({"options": {k: v for k, v in vars(args).items() if k != "binary"}, "paper": {f"{kind} {way}": rows for (kind, way), rows in paper.items()},
                   "copies": of_copies}, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
