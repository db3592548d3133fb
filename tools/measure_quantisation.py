#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures what a trained model loses and saves with quantised tables: -task predict with several types in turn, against fp32.

  measure_quantisation.py --options run.opts --eval eval.h5 checkpoint.h5
  measure_quantisation.py --options run.opts --eval eval.h5 --types fp16,int8,int4 --ranks 4 --extra "-tables_output_dtype fp16" checkpoint.h5

Prints a table: bytes of all tables, AUC and NE with their loss against fp32, the largest and the mean difference of a prediction, samples/s, and
the latency of a batch. A model of several tasks or classes is refused, because it has several predictions per sample. --json FILE writes the
numbers to a file. Without labels in the data AUC and NE are left out. Times are only meaningful on an idle machine.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile

import trspython

trspython.require("h5py", "numpy")

import h5py
import numpy as np

TYPES = "fp32,fp16,bf16,int8,int4,int2"
MPIRUN = "mpirun --allow-run-as-root --oversubscribe --bind-to none"


def predict(args, data_type, output):
    """One run's predictions and figures."""
    command = shlex.split(args.launcher) + ["-n", str(args.ranks), args.binary]
    command += (["-options_file", args.options] if args.options else []) + shlex.split(args.extra)
    command += ["-task", "predict", "-init_from", args.checkpoint, "-data_eval", args.eval, "-tables_data_type", data_type, "-output", output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\nended with {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    with h5py.File(output) as h:
        if isinstance(h["predictions"], h5py.Group):
            sys.exit(f"measure_quantisation.py: {args.checkpoint} has several tasks or classes, expected one prediction a sample")
        latency = h["predict/latency_percentiles_ms"][()]
        return h["predictions"][()].astype(np.float64), {
            "data_type": data_type, "table_bytes": int(h["memory/table_bytes"][:, 0].sum()),
            **({name: float(h[f"eval/{name}"][-1]) for name in ("auc", "ne")} if "eval" in h else {}),
            "samples_per_s": float(h["predict/samples_per_s"][0]), "p50_ms": float(latency[0]), "p99_ms": float(latency[2])}


def measure(args):
    with tempfile.TemporaryDirectory() as folder:
        exact, first = predict(args, "fp32", os.path.join(folder, "run.h5"))
        rows = []
        for data_type in args.types.split(","):
            found, row = predict(args, data_type, os.path.join(folder, "run.h5"))
            off = np.abs(found - exact)
            row.update(max_dp=float(off.max()), mean_dp=float(off.mean()), bytes_of_fp32=row["table_bytes"] / first["table_bytes"])
            if "auc" in first:
                row.update(auc_loss=first["auc"] - row["auc"], ne_loss=row["ne"] - first["ne"])
            rows.append(row)
    return rows


def show(rows):
    labelled = "auc" in rows[0]
    heads = ["type", "table bytes", "of fp32"] + (["AUC", "loses", "NE", "loses"] if labelled else []) + ["max |dp|", "mean |dp|", "samples/s", "p50 ms", "p99 ms"]
    lines = [heads, ["---"] * len(heads)]
    for r in rows:
        quality = [f"{r['auc']:.5f}", f"{r['auc_loss']:+.1e}", f"{r['ne']:.5f}", f"{r['ne_loss']:+.1e}"] if labelled else []
        lines.append([r["data_type"], str(r["table_bytes"]), f"{r['bytes_of_fp32']:.3f}", *quality, f"{r['max_dp']:.1e}", f"{r['mean_dp']:.1e}",
                      f"{r['samples_per_s']:.0f}", f"{r['p50_ms']:.3f}", f"{r['p99_ms']:.3f}"])
    for line in lines:
        print("| " + " | ".join(line) + " |")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="of a training, in fp32, fp16 or bf16")
    parser.add_argument("--options", help="option file with the model and its tables; one of the training will do")
    parser.add_argument("--eval", required=True, metavar="FILE", help="dataset to predict")
    parser.add_argument("--types", default=TYPES, help=f"data types in turn (default: {TYPES})")
    parser.add_argument("--ranks", type=trspython.positive, default=1)
    parser.add_argument("--extra", default="", help="further options of trshard")
    parser.add_argument("--binary", default=os.path.normpath(os.path.join(here, "..", "build", "trshard")))
    parser.add_argument("--launcher", default=MPIRUN, help=f"in front of -n RANKS (default: {MPIRUN})")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here, too")
    args = parser.parse_args()
    rows = measure(args)
    show(rows)
    if args.json:
        with open(args.json, "w", encoding="ascii") as out:
            json.dump(rows, out, indent=1)
    return 0


if __name__ == "__main__":
    trspython.run(main)
