#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Estimates how many samples/s a GPU trains when several GPUs exchange rows and gradients, from the step of one GPU.

    tools/model_gpus.py [--model input/dlrm_dcnv2.yaml] [--gpus 8,64] [--batch 8192]

Nothing of this was measured between GPUs. The step of one GPU is measured or a goal (--step_ms), the bytes are those of the exchanges (a test compares
them with the trace of a run on the CPU stand-in for CUDA), and the rates of the links are the makers', times --efficiency. A GPU has whole tables. If
there are more GPUs than tables, tables are cut by columns. The model has bf16 pooled rows, and fp32 gradients of the dense layers.

An exchange is hidden as far as work that does not need it takes time: the ids of the next batch, by the whole step; pooled rows, by the dense arch's
forward; their gradients, by its backward; gradients of dense layers, by the rest of the backward, except for the last bucket.
"""
import argparse
import dataclasses
import os
import sys

ID_BYTES, LENGTH_BYTES, POOLED_BYTES, GRADIENT_BYTES = 8, 4, 2, 4
BUCKET_BYTES = 16 << 20  # -dense_bucket_bytes with nccl
# A machine: GPUs joined by NVLink, bytes/s of a GPU in one direction by NVLink and by the network, and the seconds until a call has begun.
MACHINES = {
    "DGX H100": {"joined": 8, "nvlink": 450e9, "network": 50e9},
    "GB200 NVL72": {"joined": 72, "nvlink": 900e9, "network": 50e9},
}
CALL_S = {"nvlink": 15e-6, "network": 30e-6}
# Samples/s a GPU that HugeCTR reached: v3.0's DGX H100 with 6,912 samples a GPU, and 64 GB200
HUGECTR = {("DGX H100", 8): 1.815e6, ("GB200 NVL72", 64): 1.67e6}


@dataclasses.dataclass
class Model:
    tables: int
    dim: int
    ids: float  # of a sample, in all tables
    num_dense: int
    dense_arch: list
    over_arch: list
    layers: int
    rank: int

    def vectors(self):
        return self.tables + 1

    def parameters(self):
        """Weights and biases of the dense layers, with DCNv2's low-rank cross layers."""
        width = self.vectors() * self.dim
        linear = lambda sizes: sum(a * b + b for a, b in zip(sizes, sizes[1:]))
        return linear([self.num_dense, *self.dense_arch]) + self.layers * (2 * width * self.rank + width) + linear([width, *self.over_arch])


def read_model(path):
    """The part of an options file in YAML that this model needs."""
    values, pooling, tables, in_tables = {}, [], 0, False
    with open(path, encoding="utf-8") as file:
        for line in file:
            key, _, value = line.split("#")[0].strip().partition(":")
            in_tables = in_tables or key == "table"
            if in_tables and line.startswith("  ") and not line.startswith("   "):
                tables += 1
            if key == "pooling_factors":
                pooling.append(float(value))
            values.setdefault(key, value.strip().strip('"'))
    numbers = lambda key: [int(x) for x in values[key].split(",")]
    return Model(tables, int(values["tables_embedding_dim"]), sum(pooling) + tables - len(pooling), int(values["num_dense"]), numbers("dense_arch"), numbers("over_arch"),
                 int(values["dcn_num_layers"]), int(values["dcn_low_rank_dim"]))


def column_cuts(model, gpus):
    """Parts of a table, so that every GPU has a part."""
    cuts = 1
    while model.tables * cuts < gpus and model.dim // (2 * cuts) >= 4:
        cuts *= 2
    return cuts


def exchanged_bytes(model, gpus, batch, cuts=1):
    """Kind -> bytes that a GPU sends to others in a step, on average."""
    others = (gpus - 1) / gpus
    return {
        "ids": batch * cuts * (model.ids * ID_BYTES + model.tables * LENGTH_BYTES) * others,
        "pooled rows": batch * model.tables * model.dim * POOLED_BYTES * others,
        "gradients of rows": batch * model.tables * model.dim * POOLED_BYTES * others,
        "dense gradients": 2 * model.parameters() * GRADIENT_BYTES * others,
    }


def calls(model, kind):
    """Groups of NCCL calls in a step: lengths and ids, a block of rows, and per bucket a reduce-scatter and an all-gather."""
    return {"ids": 2, "dense gradients": 2 * -(-model.parameters() * GRADIENT_BYTES // BUCKET_BYTES)}.get(kind, 1)


def seconds_of(machine, gpus, sent, n_calls, efficiency):
    """An exchange with all GPUs: NVLink and network carry their parts at the same time."""
    near = (min(gpus, machine["joined"]) - 1) / (gpus - 1)
    far = 1 - near
    return n_calls * CALL_S["network" if far else "nvlink"] + max(sent * near / machine["nvlink"], sent * far / machine["network"]) / efficiency


def estimate(model, machine, gpus, batch, step_s, shares, efficiency):
    """[(kind, bytes, calls, seconds, exposed seconds)] and the seconds of a step. shares: part of one GPU's step -> its share of the step."""
    cuts = column_cuts(model, gpus)
    hides = {"ids": step_s, "pooled rows": shares["dense arch"] * step_s / 3, "gradients of rows": shares["dense arch"] * step_s * 2 / 3,
             "dense gradients": shares["backward"] * step_s}
    rows = []
    for kind, sent in exchanged_bytes(model, gpus, batch, cuts).items():
        n_calls = calls(model, kind)
        took = seconds_of(machine, gpus, sent, n_calls, efficiency)
        last = took * 2 / n_calls if kind == "dense gradients" else 0  # the last bucket's gradients are complete at the end
        rows.append((kind, sent, n_calls, took, max(took - hides[kind], min(last, took))))
    # tables are spread as evenly as their number allows
    shards = model.tables * cuts
    uneven = shares["tables"] * step_s * (-(-shards // gpus) * gpus / shards - 1)
    return rows, step_s + uneven + sum(row[4] for row in rows), uneven


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=os.path.join(here, "..", "input", "dlrm_dcnv2.yaml"), metavar="FILE", help="options file of a DCNv2 (default: MLPerf's)")
    parser.add_argument("--batch", type=int, default=8192, help="samples a GPU (default: %(default)s)")
    parser.add_argument("--step_ms", default="3.53,2.55", help="list: a step of one GPU (default: %(default)s, an H200's of 2026-11-26 and the goal)")
    parser.add_argument("--efficiency", type=float, default=0.75, help="share of the links' rates that NCCL reaches (default: %(default)s)")
    parser.add_argument("--machines", default="DGX H100:8,DGX H100:64,GB200 NVL72:64", help="list of MACHINE:GPUS (default: %(default)s)")
    args = parser.parse_args()
    model = read_model(args.model)
    # of one GPU's step: the dense arch and its backward (H200: 0.12 of 3.53 ms), the backward of the other dense layers, lookups and updates
    shares = {"dense arch": 0.035, "backward": 0.40, "tables": 0.30}
    print(f"{model.tables} tables of {model.dim}, {model.ids:g} ids a sample, {model.parameters() / 1e6:.1f} M dense parameters, batch {args.batch} a GPU")
    for entry in args.machines.split(","):
        name, _, number = entry.partition(":")
        if name not in MACHINES or not number.isdigit() or int(number) < 2:
            parser.error(f"--machines: '{entry}' is not MACHINE:GPUS with {', '.join(MACHINES)} and 2 GPUs or more")
        gpus = int(number)
        for step_ms in (float(x) for x in args.step_ms.split(",")):
            rows, step_s, uneven = estimate(model, MACHINES[name], gpus, args.batch, step_ms * 1e-3, shares, args.efficiency)
            print(f"\n{name}, {gpus} GPUs, {step_ms:g} ms a step on one\n{'exchange':<20} {'MB sent':>9} {'calls':>6} {'ms':>8} {'exposed':>8}")
            for kind, sent, n_calls, took, exposed in rows:
                print(f"{kind:<20} {sent * 1e-6:>9.1f} {n_calls:>6} {took * 1e3:>8.3f} {exposed * 1e3:>8.3f}")
            reference = HUGECTR.get((name, gpus))
            print(f"uneven tables {uneven * 1e3:.3f} ms; a step {step_s * 1e3:.2f} ms; {args.batch / step_s / 1e6:.2f} M samples/s a GPU"
                  + (f", HugeCTR {reference / 1e6:.3f} M" if reference else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
