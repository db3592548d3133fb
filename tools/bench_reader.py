#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Samples a second that the reader gives by itself, and its CPU time beside a copy of the same bytes.

  bench_reader.py build/regression/bench/bench_reader

Datasets stored contiguously, in plain chunks and in gzip chunks, 1 and 10 ids a bag, in file order and shuffled. CPU ns a sample is what counts on a busy
machine; a training is not held up by its reader as long as that is less than a step's time a sample. Best of the rounds, which take the cases in turn.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import h5py

import trsdata

TOOLS = os.path.dirname(os.path.abspath(__file__))
LINE = re.compile(r"(\d+) samples/s +(\d+) CPU ns/sample +(\d+) bytes/sample +memcpy (\d+) CPU ns/sample +ratio ([0-9.]+)")


def rechunk(source, target, rows):
    """The same dataset in chunks without filters."""
    with h5py.File(source) as old, h5py.File(target, "w") as new:
        new.attrs.update(old.attrs)
        new.create_group("sparse").attrs.update(old["sparse"].attrs)

        def copy(name, item):
            if isinstance(item, h5py.Dataset):
                new.create_dataset(name, data=item[()], chunks=(min(rows, item.shape[0]), *item.shape[1:]))

        old.visititems(copy)


def make(folder, storage, pooling, args):
    path = os.path.join(folder, f"{storage}-{pooling}.h5")
    plain = os.path.join(folder, f"contiguous-{pooling}.h5")
    if storage == "chunked":
        rechunk(plain, path, 4096)
        return path
    subprocess.run([sys.executable, os.path.join(TOOLS, "generate_data.py"), "--output", path, "--num-samples", str(args.samples), "--features", "26",
                    "--num-embeddings", "100000", "--num-dense", "13", "--pooling", str(pooling), *(["--compress", "1"] if storage == "gzip" else [])],
                   check=True, stdout=subprocess.DEVNULL)
    return path


def measure(args, path, shuffle):
    command = [args.binary, "-data_train", path, "-batch_size", str(args.batch), "-epochs", "1", *(["-data_shuffle"] if shuffle else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = LINE.search(done.stdout)
    if not found:
        trsdata.fail(f"{' '.join(command)}: {done.stdout}{done.stderr}", 70)
    return [float(x) for x in found.groups()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BINARY", help="regression/bench/bench_reader of the build")
    parser.add_argument("--samples", type=int, default=65536, help="of a dataset (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=2048, help="size (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trshard-bench-") as folder:
        paths = {(storage, pooling): make(folder, storage, pooling, args) for pooling in (1, 10) for storage in ("contiguous", "chunked", "gzip")}
        cases = [(key, shuffle) for key in paths for shuffle in (False, True)]
        found = {case: [] for case in cases}
        for _ in range(args.rounds):
            for case in cases:
                found[case].append(measure(args, paths[case[0]], case[1]))
    print(f"{'dataset':12} {'ids':>3} {'order':8} {'samples/s':>12} {'CPU ns/sample':>14} {'memcpy':>7} {'share':>6}")
    for (storage, pooling), shuffle in cases:
        rows = found[(storage, pooling), shuffle]
        cpu, copy = min(row[1] for row in rows), min(row[3] for row in rows)
        print(f"{storage:12} {pooling:3} {'shuffled' if shuffle else 'as is':8} {max(row[0] for row in rows):12,.0f} {cpu:14,.0f} {copy:7,.0f} {copy / cpu:6.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
