#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a full checkpoint from an incremental one and the files before it (-checkpoint_full_every).

  merge_checkpoint.py ckpt/step-000000400.h5 -o full.h5

trshard itself reads incremental checkpoints. Use this tool to copy a model elsewhere as one file, and before tools that read full checkpoints
only. The files that CHECKPOINT needs must be in its folder. The result has the tensors that a full checkpoint of this step would have, bit for
bit, with optimizer states, so -resume accepts it. Deltas (-delta_every) cannot continue from it; they begin a new chain.

Exit status: 0; 2 wrong usage; 64 a bad option; 65 a file is damaged, missing, or not of this chain; 66 CHECKPOINT cannot be read; 69 libxxhash is missing; 73 the
output exists already; 74 the output cannot be written.
"""
import argparse
import contextlib
import os
import re

import trspython

trspython.require("h5py", "numpy")

import numpy as np

import trscheckpoint
import trsdata
import trsdelta
import trsids
from trsformats import FormatError, NUMPY, Tensor, strips

LEFT_OUT = re.compile(r"increment_.*|delta_.*|format|version")  # attributes of the newest file that the result lacks


def opened(path, stack):
    """The file as an increment, or as a full checkpoint."""
    with trsdata.opened(path) as handle:
        is_increment = trsdata.text(handle.attrs.get("format", "")) == trsdelta.INCREMENT[0]
    found = stack.enter_context((trsdelta.opened_increment if is_increment else trscheckpoint.opened)(path))
    trscheckpoint.verify(found)
    return found


def chain(path, stack):
    """The files of a checkpoint, the full one first."""
    files = [opened(path, stack)]
    while isinstance(files[0], trsdelta.Increment):
        of, number = files[0].attributes, files[0].number()
        step = of.get("increment_from_step")
        if not isinstance(step, int) or not 0 <= step < of.get("step", 0) or number < 1:
            raise FormatError(f"{files[0].path} does not say which file is before it")
        earlier = os.path.join(os.path.dirname(path), f"step-{step:09d}.h5")
        if not os.path.exists(earlier):
            raise FormatError(f"{files[0].path} has only the rows that have changed since {earlier}, which is missing")
        file = opened(earlier, stack)
        before = file.number() if isinstance(file, trsdelta.Increment) else 0
        if trsdelta.file_id(file) != of.get("increment_previous") or before != number - 1:
            raise FormatError(f"{files[0].path} is increment {number} and continues file {of.get('increment_previous')}, but {earlier} is increment {before} "
                              f"and file {trsdelta.file_id(file)}: they do not belong together")
        files.insert(0, file)
    return files


class Table:
    """A table's rows in the files of a chain."""

    def __init__(self, files, name):
        self.full, self.increments, self.newest, self.name = files[0], files[1:], files[-1], name
        self.rows = [(file, file.numbers(name, "rows")) for file in self.increments]
        self.buckets = None
        if trsids.kinds(self.newest.tensors).get(name) == "dynamic":
            self.old, self.new = (trsids.whole(file.tensors[f"embedding/{name}/dynamic/buckets"])[:, 0] for file in (self.full, self.newest))
            if len(self.old) != len(self.new):
                raise FormatError(f"{self.full.path}: table {name} has {len(self.old)} buckets, but {len(self.new)} in {self.newest.path}")
            facts = [file.of_tensors[f"embedding/{name}/delta/rows"] for file, rows in self.rows if len(rows)]
            self.buckets = facts[0]["num_embeddings"] // len(self.new) if facts else int(self.new.max())  # rows of a bucket

    def _pieces(self, rows):
        """(first row in the table, rows, first row in the full file, rows there) in the order of the result."""
        if self.buckets is None:
            yield 0, rows, 0, rows
            return
        first = np.concatenate([[0], np.cumsum(self.old)])
        for b, used in enumerate(self.new):
            yield b * self.buckets, int(used), int(first[b]), int(self.old[b])

    def merged(self, path):
        """The weights or a state of all rows."""
        tensor, item = self.full.tensors[path], self.full.file[path]
        for file, rows in self.rows:
            if len(rows) and (path not in file.tensors or file.tensors[path].shape != (len(rows), *tensor.shape[1:]) or file.tensors[path].dtype != tensor.dtype):
                raise FormatError(f"{file.path}: /{path} does not fit the table's {len(rows)} changed rows")
        shape = (tensor.shape[0] if self.buckets is None else int(self.new.sum()), *tensor.shape[1:])

        def blocks():
            for first, rows, at, old in self._pieces(tensor.shape[0]):
                for r, m in strips((rows, *shape[1:]), tensor.dtype):
                    out = np.zeros((m, *shape[1:]), NUMPY[tensor.dtype])
                    there = min(max(old - r, 0), m)
                    if there:
                        out[:there] = item[at + r:at + r + there]
                    for file, numbers in self.rows:
                        a, b = np.searchsorted(numbers, [first + r, first + r + m])
                        if b > a:
                            out[numbers[a:b] - first - r] = file.file[path][a:b]
                    yield out
        return Tensor(tensor.dtype, shape, blocks)


def run(args, stack):
    files = chain(args.checkpoint, stack)
    if len(files) == 1:
        raise ValueError(f"{args.checkpoint} is a full checkpoint already")
    full, newest = files[0], files[-1]
    tensors = {path: tensor for path, tensor in newest.tensors.items() if not path.startswith("embedding/") or trsids.part(path)}
    for name in full.table_names:
        table = Table(files, name)
        for path in full.tensors:
            if os.path.dirname(path) == f"embedding/{name}":
                tensors[path] = table.merged(path)
    attributes = {name: value for name, value in newest.attributes.items() if not LEFT_OUT.fullmatch(name)}
    of_tensors = {path: (full if path in full.tensors else newest).of_tensors[path] for path in tensors}
    with trscheckpoint.bar("write", tensors) as progress:
        trscheckpoint.write(args.out, tensors, attributes, of_tensors, lambda path: f"/{path}", progress.update)
    print(f"{args.out}: the full checkpoint after step {attributes.get('step', 0)}, from {len(files)} files")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="incremental checkpoint")
    parser.add_argument("-o", "--out", required=True, metavar="FULL", help="checkpoint to write")
    parser.add_argument("--force", action="store_true", help="replace an existing output")
    return parser.parse_args()


def main():
    args = parsed()
    if not trscheckpoint.Hash.available():
        trsdata.fail("libxxhash is not installed, and the tool needs it to check a chain", 69)
    if not os.access(args.checkpoint, os.R_OK) or os.path.isdir(args.checkpoint):
        trsdata.fail(f"{args.checkpoint} {'cannot be read' if os.path.exists(args.checkpoint) else 'does not exist'}", 66)
    if os.path.exists(args.out) and os.path.dirname(os.path.realpath(args.out)) == os.path.dirname(os.path.realpath(args.checkpoint)):
        trsdata.fail(f"{args.out} is among the checkpoints: give the output another name", 64)
    problem = trscheckpoint.check_output(args.out, False, args.force)
    if problem:
        trsdata.fail(problem, 73)
    with trsdelta.ending(), contextlib.ExitStack() as stack:
        run(args, stack)
    return 0


if __name__ == "__main__":
    trspython.run(main)
