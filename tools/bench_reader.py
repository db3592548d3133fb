#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the reader by itself: samples per second, and CPU time beside a copy of the same bytes.

  bench_reader.py build

Datasets are stored contiguously, in plain chunks of 1 MiB as the generator writes them, and in gzip chunks. They are read in file order,
shuffled, and as for a device. They have 1 and 10 ids per bag, and MLPerf's multi-hot data with 214 ids per sample. On a busy machine, CPU ns
per sample is the number that counts. A reader does not slow a training down if it takes less time per sample than a step does. The only goal
is memory's own speed: the ratios are the time of copying a batch's bytes once, and of reading the file's bytes once, divided by the reader's
time. Prints a table and writes all figures as CSV.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import trspython

trspython.require("h5py")

import h5py

import bench_common as common
import trsdata

TOOLS = os.path.dirname(os.path.abspath(__file__))
LINE = re.compile(r"(\d+) samples/s +(\d+) CPU ns/sample +(\d+) bytes/sample +memcpy (\d+) CPU ns/sample +ratio [\d.]+ +read (\d+) CPU ns/sample")
FIGURES = ("samples/s", "CPU ns/sample", "bytes/sample", "memcpy CPU ns/sample", "read CPU ns/sample")
POOLINGS = {"1 ids a bag": "1", "10 ids a bag": "10", "MLPerf's 214 ids": "3,2,1,2,6,1,1,1,1,7,3,8,1,6,9,5,1,1,1,12,100,27,10,3,1,1"}
STORAGES = ("contiguous", "chunked", "gzip")
WAYS = {"as is": (), "shuffled": ("-data_shuffle",), "for a device": ("-for_device",)}


def generate(path, pooling, args, *more):
    subprocess.run([sys.executable, os.path.join(TOOLS, "generate_data.py"), "--output", path, "--num-samples", str(args.samples), "--features", "26",
                    "--num-embeddings", "100000", "--num-dense", "13", "--pooling", pooling, *more], check=True, stdout=subprocess.DEVNULL)


def store_contiguously(source, target):
    with h5py.File(source) as old, h5py.File(target, "w", libver=trsdata.LIBVER) as new:
        new.attrs.update(old.attrs)
        new.create_group("sparse").attrs.update(old["sparse"].attrs)

        def copy(name, item):
            if isinstance(item, h5py.Dataset):
                new[name] = item[()]

        old.visititems(copy)


def make(folder, name, pooling, args):
    """The datasets of a pooling, with the same samples in each way of storage."""
    paths = {storage: os.path.join(folder, f"{storage} {name}.h5") for storage in STORAGES}
    generate(paths["chunked"], pooling, args)
    generate(paths["gzip"], pooling, args, "--compress", "1")
    store_contiguously(paths["chunked"], paths["contiguous"])
    return paths


def measure(args, path, way):
    text = common.output_of([args.binary, "-data_train", path, "-batch_size", str(args.batch), "-epochs", "1", *WAYS[way]], common.threads_environment(1))
    found = LINE.search(text)
    if not found:
        raise common.Failed(f"{args.binary} printed no figures: {text}")
    return dict(zip(FIGURES, map(float, found.groups())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BUILD_OR_BINARY", help="build folder, or bench_reader")
    parser.add_argument("--samples", type=int, default=65536, help="of a dataset (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=2048, help="size (default: %(default)s)")
    common.add_options(parser, "bench_reader")
    args = parser.parse_args()
    args.binary, args.plot = common.find_binary(args.binary, "bench_reader"), ""  # the picture would show goals, and there are none
    suite = common.Suite(args)
    with tempfile.TemporaryDirectory(prefix="trshard-bench-") as folder:
        paths = {name: make(folder, name, pooling, args) for name, pooling in POOLINGS.items()}
        suite.rounds({f"{storage}, {name}": {way: lambda path=path, way=way: measure(args, path, way) for way in WAYS}
                      for name in paths for storage, path in paths[name].items()})
    goals = [common.Goal(f"{case}, {way}, {figure}", (case, way, figure), against, of=of) for case, way in suite.samples.kept
             for figure, against, of in (("samples/s", None, ""), ("memcpy CPU ns/sample", (case, way, "CPU ns/sample"), "the reader's"),
                                  ("read CPU ns/sample", (case, way, "CPU ns/sample"), "the reader's"))]
    return suite.finish(goals, "")


if __name__ == "__main__":
    sys.exit(main())
