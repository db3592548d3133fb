#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Criteo click logs to a trshard dataset: the Kaggle file train.txt, or the Terabyte files day_0 ... day_23, plain or .gz.

  convert_criteo.py --output kaggle_train.h5 --output-eval kaggle_eval.h5 --vocabulary frequency:4 train.txt
  convert_criteo.py --output train.h5 --vocabulary hash:40M day_{0..22}.gz
  convert_criteo.py --output eval.h5 --vocabulary file:train.h5.vocabulary.h5 day_23.gz

A line has a label, 13 integers and 26 categories of up to 8 hexadecimal digits, separated by tabs; all but the label may
be empty. Dense features become log(1 + x), with 0 for a negative or missing x. Every category has exactly one id:
  hash:ROWS      the number modulo ROWS (one entry, or one a feature); missing: 0
  frequency:N    1 + the place of the number among those seen at least N times, the smallest number first (not by how often
                 they were seen); all others and missing: 0. Reads the input twice. Writes the vocabulary beside the output, for the evaluation's data
  file:FILE      a vocabulary written before: what it lacks becomes 0
Memory does not grow with the input. Killed and started again with the same arguments it goes on where it was (a .gz is
read from its begin, but not converted again) and ends with the same content. Work in progress is in OUTPUT.parts/, which
takes as much room as the output until the end.
"""
import argparse
import gzip
import json
import os
import shutil
import sys
import zlib

import trspython

trspython.require("h5py", "numpy", "tqdm")

import h5py
import numpy as np
from tqdm import tqdm

import trsdata

NUM_DENSE, NUM_SPARSE = 13, 26
FIELDS = 1 + NUM_DENSE + NUM_SPARSE
NAMES = [f"cat_{i}" for i in range(NUM_SPARSE)]
BUCKETS = 256  # ranges of numbers, by the first two hexadecimal digits: what counting can merge one at a time
MERGE_ENTRIES = 1 << 22  # it takes as many ranges at once as have fewer numbers than this
FAN_IN = 16
TAB, NEWLINE, MINUS = 9, 10, 45


class Input:
    """The lines of several files as blocks of whole lines; remembers where each block begins."""

    def __init__(self, paths, block_bytes):
        self.paths = paths
        self.block_bytes = block_bytes

    def blocks(self, done):
        """Yields (number of the block, file, first line, bytes as uint8) of those from number done on."""
        number = 0
        for path in self.paths:
            line = 1
            rest = b""
            opener = gzip.open if path.endswith(".gz") else open
            with opener(path, "rb") as stream:
                while True:
                    more = stream.read(self.block_bytes)
                    text = rest + more
                    if not text:
                        break
                    end = len(text) if not more else text.rfind(b"\n") + 1
                    block, rest = text[:end], text[end:]
                    if block:
                        if number >= done:
                            yield number, path, line, np.frombuffer(block if block.endswith(b"\n") else block + b"\n", np.uint8)
                        line += block.count(b"\n")
                        number += 1
                    if not more:
                        break

    def identity(self):
        return [[os.path.abspath(path), os.path.getsize(path)] for path in self.paths]


def fields_of(block, path, line):
    """begin and end [lines, 40] of every field of a block; the block must be well formed."""
    block_ends = np.flatnonzero((block == TAB) | (block == NEWLINE))
    kinds = block[block_ends]
    lines = int(np.count_nonzero(kinds == NEWLINE))
    expected = np.full(len(kinds), TAB, np.uint8)
    expected[FIELDS - 1::FIELDS] = NEWLINE
    if len(kinds) != lines * FIELDS or np.any(kinds != expected):
        newline = np.flatnonzero(kinds == NEWLINE)
        counts = np.diff(np.concatenate([[-1], newline]))
        bad = int(np.argmax(counts != FIELDS))
        trsdata.fail(f"{path}, line {line + bad}: {counts[bad]} fields, expected {FIELDS} (label, {NUM_DENSE} integers, {NUM_SPARSE} categories)", 65)
    begins = np.concatenate([[0], block_ends[:-1] + 1])
    return begins.reshape(lines, FIELDS), block_ends.reshape(lines, FIELDS)


def numbers_of(block, begin, end, base, path, line):
    """(value, whether the field is empty) of each field, read digit by digit in base 10 (with sign) or 16."""
    length = end - begin
    longest = int(length.max(initial=0))
    limit = 8 if base == 16 else 18
    if longest > limit:
        bad = int(np.argmax((length > limit).any(axis=1)))
        trsdata.fail(f"{path}, line {line + bad}: a number of {longest} digits, expected {limit} at most", 65)
    value = np.zeros(begin.shape, np.int64)
    negative = np.zeros(begin.shape, bool)
    last = len(block) - 1
    for i in range(longest):
        inside = i < length
        byte = block[np.minimum(begin + i, last)].astype(np.int64)
        digit = byte - 48
        if base == 16:
            letter = (byte | 32) - 97
            digit = np.where((letter >= 0) & (letter < 6), letter + 10, np.where(digit < 10, digit, -1))
        elif i == 0:
            negative = inside & (byte == MINUS)
            digit = np.where(negative, 0, digit)
        wrong = inside & ((digit < 0) | (digit >= base))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            field = bytes(block[begin[row, column]:end[row, column]]).decode("ascii", "replace")
            trsdata.fail(f"{path}, line {line + int(row)}: {field!r} is not a number in base {base}", 65)
        value = np.where(inside, value * base + digit, value)
    return np.where(negative, -value, value), length == 0


def parse(block, path, line, labels=True):
    """labels, dense, categories [n, 26] as uint32, missing [n, 26]"""
    begin, end = fields_of(block, path, line)
    category, missing = numbers_of(block, begin[:, 1 + NUM_DENSE:], end[:, 1 + NUM_DENSE:], 16, path, line)
    if not labels:
        return None, None, category.astype(np.uint32), missing
    integer, _ = numbers_of(block, begin[:, :1 + NUM_DENSE], end[:, :1 + NUM_DENSE], 10, path, line)
    label = integer[:, 0]
    if np.any((label != 0) & (label != 1)) or np.any(end[:, 0] == begin[:, 0]):
        bad = int(np.argmax((label != 0) & (label != 1) | (end[:, 0] == begin[:, 0])))
        trsdata.fail(f"{path}, line {line + bad}: the label must be 0 or 1", 65)
    dense = np.log1p(np.maximum(integer[:, 1:], 0).astype(np.float64)).astype(np.float32)
    return label.astype(np.float32), dense, category.astype(np.uint32), missing


class Work:
    """The folder of parts, and the state file that says how many blocks of each pass are done."""

    def __init__(self, folder, settings):
        self.folder = folder
        self.state_path = os.path.join(folder, "state.json")
        self.state = {"settings": settings, "counted": 0, "runs": [], "merged": False, "converted": 0}
        os.makedirs(folder, exist_ok=True)
        if os.path.exists(self.state_path):
            with open(self.state_path, encoding="utf-8") as stream:
                found = json.load(stream)
            if found["settings"] != settings:
                trsdata.fail(f"{folder} belongs to another conversion; finish that one, or remove the folder")
            self.state = found
            print(f"going on after {found['converted']} blocks ({folder})", file=sys.stderr)

    def save(self, **changes):
        self.state.update(changes)
        temporary = self.state_path + ".tmp"
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(self.state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, self.state_path)

    def path(self, name):
        return os.path.join(self.folder, name)

    def unlink(self, names):
        for name in names:
            if os.path.exists(self.path(name)):
                os.unlink(self.path(name))

    def remove(self):
        shutil.rmtree(self.folder)


def ranges(paths):
    """Merges runs: yields (feature, sorted numbers, counts), feature by feature, in ascending ranges that fit in memory.

    A run is a file with the sorted numbers of each feature, their counts, and where each of BUCKETS ranges starts.
    """
    runs = [h5py.File(path, "r") for path in paths]
    starts = [run["start"][()] for run in runs]
    for f in range(NUM_SPARSE):
        entries = sum(np.diff(start[f]) for start in starts)
        low = 0
        while low < BUCKETS:
            high = low + max(1, int(np.searchsorted(np.cumsum(entries[low:]), MERGE_ENTRIES, "right")))
            slices = [(run, slice(start[f, low], start[f, min(high, BUCKETS)])) for run, start in zip(runs, starts)]
            value, inverse = np.unique(np.concatenate([run["value"][where] for run, where in slices]), return_inverse=True)
            seen = np.concatenate([run["count"][where] for run, where in slices])
            yield f, value, np.bincount(inverse, seen, len(value)).astype(np.int64)
            low = high
    for run in runs:
        run.close()


def write_run(work, name, parts):
    """A run from (feature, sorted numbers, counts), in the order that ranges() yields."""
    out = trsdata.AtomicFile(work.path(name))
    value = out.file.create_dataset("value", (0,), np.uint32, maxshape=(None,), chunks=(1 << 18,))
    seen = out.file.create_dataset("count", (0,), np.int64, maxshape=(None,), chunks=(1 << 17,))
    start = np.zeros((NUM_SPARSE, BUCKETS + 1), np.int64)
    edges = np.arange(BUCKETS + 1, dtype=np.uint64) << np.uint64(24)
    last, base = -1, 0
    for f, numbers, counts in parts:
        if f != last:
            last, base = f, len(value)
            start[f] = base
        start[f] += np.searchsorted(numbers.astype(np.uint64), edges)
        end = len(value) + len(numbers)
        for dataset, rows in ((value, numbers), (seen, counts)):
            dataset.resize(end, axis=0)
            dataset[end - len(numbers):] = rows
    out.file["start"] = start
    out.publish()


def count(source, work, bar):
    """First pass: a run for each block; FAN_IN runs of one level become one of the next, so that few are left."""
    for number, path, line, block in source.blocks(work.state["counted"]):
        _, _, category, missing = parse(block, path, line, labels=False)
        name = f"run-{number:06d}-0.h5"
        write_run(work, name, ((f, *np.unique(category[~missing[:, f], f], return_counts=True)) for f in range(NUM_SPARSE)))
        runs, obsolete, level = work.state["runs"] + [[name, 0]], [], 0
        while len(runs) >= FAN_IN and all(run[1] == level for run in runs[-FAN_IN:]):
            merged = [run[0] for run in runs[-FAN_IN:]]
            level += 1
            name = f"run-{number:06d}-{level}.h5"
            write_run(work, name, ranges([work.path(run) for run in merged]))
            runs[-FAN_IN:] = [[name, level]]
            obsolete += merged
        work.save(counted=number + 1, runs=runs)
        work.unlink(obsolete)
        bar.update(len(block))


def merge(work, threshold, path):
    """The vocabulary: of each feature the sorted numbers seen at least threshold times."""
    out = trsdata.AtomicFile(path)
    out.file.attrs["format"] = "trshard-vocabulary"
    out.file.attrs["version"] = np.int64(1)
    out.file.attrs["threshold"] = np.int64(threshold)
    kept = [out.file.create_dataset(name, (0,), np.uint32, maxshape=(None,), chunks=(1 << 16,)) for name in NAMES]
    for f, value, seen in ranges([work.path(run[0]) for run in work.state["runs"]]):
        frequent = value[seen >= threshold]
        kept[f].resize(len(kept[f]) + len(frequent), axis=0)
        if len(frequent):
            kept[f][-len(frequent):] = frequent
    out.publish()


class Hash:
    def __init__(self, rows):
        self.rows = rows

    def ids(self, category, missing):
        return np.where(missing, 0, category.astype(np.int64) % np.array(self.rows))


class Vocabulary:
    def __init__(self, path):
        with h5py.File(path, "r") as handle:
            if trsdata.text(handle.attrs.get("format", "")) != "trshard-vocabulary":
                trsdata.fail(f"{path} is not a vocabulary written by this tool", 65)
            self.known = [handle[name][()] for name in NAMES]
        self.rows = [1 + len(known) for known in self.known]

    def ids(self, category, missing):
        out = np.zeros(category.shape, np.int64)
        for f, known in enumerate(self.known):
            if len(known):
                place = np.minimum(np.searchsorted(known, category[:, f]), len(known) - 1)
                out[:, f] = np.where(~missing[:, f] & (known[place] == category[:, f]), place + 1, 0)
        return out


def convert(source, work, vocabulary, id_type, bar):
    """Second pass: one part a block."""
    for number, path, line, block in source.blocks(work.state["converted"]):
        label, dense, category, missing = parse(block, path, line)
        out = trsdata.AtomicFile(work.path(f"part-{number:06d}.h5"))
        for name, array in (("label", label), ("dense", dense), ("id", vocabulary.ids(category, missing).astype(id_type))):
            out.file[name] = array
        out.publish()
        work.save(converted=number + 1)
        bar.update(len(block))


def join(work, rows, args, id_type):
    """The parts in order, into the outputs; the last samples go to the evaluation's."""
    parts = [work.path(f"part-{number:06d}.h5") for number in range(work.state["converted"])]
    sizes = []
    for path in parts:
        with h5py.File(path, "r") as part:
            sizes.append(part["label"].shape[0])
    total = sum(sizes)
    if total == 0:
        trsdata.fail("the input has no line", 65)
    cut = total - int(total * args.eval_fraction) if args.output_eval else total
    for path, begin, end in ((args.output, 0, cut), (args.output_eval, cut, total)):
        if path is None:
            continue
        with trsdata.DatasetWriter(path, NAMES, rows, NUM_DENSE, id_dtype=id_type, compress=args.compress) as out:
            out.attribute("converted_by", f"convert_criteo.py --vocabulary {args.vocabulary}")
            first = 0
            for part_path, size in zip(tqdm(parts, desc=path, unit=" parts", disable=not sys.stderr.isatty()), sizes):
                low, high = max(begin - first, 0), min(end - first, size)
                first += size
                if low < high:
                    with h5py.File(part_path, "r") as part:
                        ids = part["id"][low:high]
                        out.append(part["dense"][low:high], part["label"][low:high], np.ones(ids.shape, np.int32), ids.reshape(-1))
        print("wrote", trsdata.describe(path))


def hash_rows(words):
    scale = {"k": 10**3, "m": 10**6, "g": 10**9}
    try:
        rows = [int(word[:-1]) * scale[word[-1].lower()] if word[-1:].lower() in scale else int(word) for word in words.split(",")]
    except ValueError:
        trsdata.fail(f"--vocabulary hash:{words}: expected a number of rows, or {NUM_SPARSE} of them")
    if len(rows) not in (1, NUM_SPARSE) or min(rows) < 1:
        trsdata.fail(f"--vocabulary hash: {len(rows)} numbers of rows, expected 1 or {NUM_SPARSE}, each at least 1")
    return (rows * NUM_SPARSE)[:NUM_SPARSE]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("--output", required=True, metavar="FILE")
    parser.add_argument("--output-eval", metavar="FILE", help="gets the last samples instead")
    parser.add_argument("--eval-fraction", type=float, default=1 / 7, help="of the samples that go there (default: 1/7, Kaggle's last day)")
    parser.add_argument("--vocabulary", default="hash:100k", metavar="KIND", help="see above (default: %(default)s)")
    parser.add_argument("--compress", type=int, choices=range(1, 10), metavar="1-9", help="gzip, shuffle and fletcher32")
    parser.add_argument("--block-mb", type=float, default=32, help="of input converted at once; memory is about 40 times that (default: %(default)s)")
    args = parser.parse_args()
    for path in args.inputs:
        if not os.path.isfile(path):
            trsdata.fail(f"no file {path}", 66)
    if not 0 < args.eval_fraction < 1 or args.block_mb <= 0:
        parser.error("--eval-fraction must lie between 0 and 1, --block-mb above 0")
    kind, _, words = args.vocabulary.partition(":")
    if kind not in ("hash", "frequency", "file") or not words or (kind == "frequency" and not words.isdigit()):
        parser.error("--vocabulary must be hash:ROWS, frequency:N or file:FILE")
    source = Input(args.inputs, max(1, int(args.block_mb * 2**20)))
    work = Work(args.output + ".parts", {"inputs": source.identity(), "vocabulary": args.vocabulary, "block_mb": args.block_mb})
    size = sum(os.path.getsize(path) for path in args.inputs)

    def bar(text):  # of a .gz the plain size is not known beforehand
        known = None if any(path.endswith(".gz") for path in args.inputs) else size
        return tqdm(total=known, desc=text, unit="B", unit_scale=True, disable=not sys.stderr.isatty())

    if kind == "hash":
        vocabulary = Hash(hash_rows(words))
    elif kind == "file":
        vocabulary = Vocabulary(words)
    else:
        path = args.output + ".vocabulary.h5"
        if not work.state["merged"]:
            with bar("count") as progress:
                count(source, work, progress)
            merge(work, int(words), path)
            work.save(merged=True)
            work.unlink([run[0] for run in work.state["runs"]])
        vocabulary = Vocabulary(path)
    id_type = np.int32 if max(vocabulary.rows) <= np.iinfo(np.int32).max else np.int64
    with bar("convert") as progress:
        convert(source, work, vocabulary, id_type, progress)
    join(work, vocabulary.rows, args, id_type)
    work.remove()


if __name__ == "__main__":
    try:
        main()
    except (OSError, EOFError, zlib.error) as problem:  # unreadable input, a .gz that ends early, a full disk
        trsdata.fail(f"{problem or type(problem).__name__}", 74)
