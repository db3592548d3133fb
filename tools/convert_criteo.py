#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Converts Criteo click logs to a trshard dataset: the Kaggle file train.txt, or the Terabyte files day_0 ... day_23, plain or .gz.

  convert_criteo.py --output kaggle_train.h5 --output-eval kaggle_eval.h5 --vocabulary frequency:4 train.txt
  convert_criteo.py --output train.h5 --vocabulary hash:40M day_{0..22}.gz
  convert_criteo.py --output eval.h5 --vocabulary file:train.h5.vocabulary.h5 day_23.gz

A line has a label, 13 integers and 26 categories of up to 8 hexadecimal digits, separated by tabs. All but the label may
be empty. Dense features become log(1 + x), with 0 for a negative or missing x. Every category has exactly one id:
  hash:ROWS      the number modulo ROWS (one entry, or one per feature); missing: 0
  frequency:N    1 + the place of the number among the numbers that occur at least N times, in ascending order of the numbers
                 (not of their frequency); all others and missing: 0. Reads the input twice. Writes the vocabulary beside
                 the output, for converting the evaluation's data
  file:FILE      a vocabulary that was written before; numbers that it lacks become 0
Memory does not grow with the input. If the tool is killed and started again with the same arguments, it continues where it
stopped, and the output has the same content. It reads a .gz again from the start, but does not convert it again. Work in
progress is in OUTPUT.parts/, which takes as much room as the output until the end.
"""
import argparse

import trspython

trspython.require("h5py", "numpy")

import h5py
import numpy as np

import trsconvert
import trsdata
import trsmapping

NUM_DENSE, NUM_SPARSE = 13, 26
FIELDS = 1 + NUM_DENSE + NUM_SPARSE
NAMES = [f"cat_{i}" for i in range(NUM_SPARSE)]
BUCKETS = 256  # ranges of numbers, by the first two hexadecimal digits; counting can merge one range at a time
MERGE_ENTRIES = 1 << 22  # counting merges several ranges at once if they have fewer numbers than this
FAN_IN = 16
MOST_WORDS = 1 << 20  # numbers of all vocabularies that the mapping lists; of more it has only a digest


def place_of(path, line):
    return lambda row: f"{path}, line {line + row}"


def parse(block, path, line, labels=True):
    """labels, dense, categories [n, 26] as uint32, missing [n, 26]"""
    place = place_of(path, line)
    begin, end = trsconvert.fields_of(block, FIELDS, place, f"label, {NUM_DENSE} integers, {NUM_SPARSE} categories")
    category, missing = trsconvert.numbers_of(block, begin[:, 1 + NUM_DENSE:], end[:, 1 + NUM_DENSE:], 16, place, 8)
    if not labels:
        return None, None, category.astype(np.uint32), missing
    integer, _ = trsconvert.numbers_of(block, begin[:, :1 + NUM_DENSE], end[:, :1 + NUM_DENSE], 10, place, 18)
    label = integer[:, 0]
    if np.any((label != 0) & (label != 1)) or np.any(end[:, 0] == begin[:, 0]):
        bad = int(np.argmax((label != 0) & (label != 1) | (end[:, 0] == begin[:, 0])))
        trsdata.fail(f"{place(bad)}: the label must be 0 or 1", 65)
    dense = np.log1p(np.maximum(integer[:, 1:], 0).astype(np.float64)).astype(np.float32)
    return label.astype(np.float32), dense, category.astype(np.uint32), missing


def ranges(paths):
    """Merges runs: yields (feature, sorted numbers, counts), feature by feature, in ascending ranges that fit in memory.

    A run is a file with the sorted numbers of each feature, their counts, and the start of each of BUCKETS ranges.
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
    """Writes a run from (feature, sorted numbers, counts), in the order that ranges() yields."""
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
    """First pass: writes a run for each block. FAN_IN runs of one level are merged to one of the next, so that few are left."""
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
    """The vocabulary: for each feature the sorted numbers that occur at least threshold times."""
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
        self.entries = [{"rows": number, "modulo": True} for number in rows]

    def ids(self, category, missing):
        return np.where(missing, 0, category.astype(np.int64) % np.array(self.rows))


class Vocabulary:
    def __init__(self, path):
        with h5py.File(path, "r") as handle:
            if trsdata.text(handle.attrs.get("format", "")) != "trshard-vocabulary":
                trsdata.fail(f"{path} is not a vocabulary written by this tool", 65)
            self.known = [handle[name][()] for name in NAMES]
        self.rows = [1 + len(known) for known in self.known]
        listed = sum(self.rows) <= MOST_WORDS
        self.entries = [{"rows": rows, "unknown": 0, "vocabulary": known.tolist() if listed else trsmapping.digest(known)} for rows, known in zip(self.rows, self.known)]

    def ids(self, category, missing):
        out = np.zeros(category.shape, np.int64)
        for f, known in enumerate(self.known):
            if len(known):
                place = np.minimum(np.searchsorted(known, category[:, f]), len(known) - 1)
                out[:, f] = np.where(~missing[:, f] & (known[place] == category[:, f]), place + 1, 0)
        return out


def parts(source, work, vocabulary, id_type):
    """Second pass: writes one part per block."""
    for number, path, line, block in source.blocks(work.state["converted"]):
        labels, dense, category, missing = parse(block, path, line)
        yield number, len(block), {"labels": labels, "dense": dense, "values": vocabulary.ids(category, missing).astype(id_type)}


def mapping_of(vocabulary):
    """The mapping of the dataset. Columns have the usual names I1 ... I13 and C1 ... C26."""
    dense = [{"name": f"I{i}", "column": f"I{i}", "log1p": True, "missing": 0.0} for i in range(1, 1 + NUM_DENSE)]
    sparse = [{"name": name, "column": f"C{f + 1}", "kind": "integer", "base": 16, "missing": 0, **vocabulary.entries[f]} for f, name in enumerate(NAMES)]
    return trsmapping.Mapping({"converter": "convert_criteo.py", "dense": dense, "sparse": sparse, "labels": [{"name": "label", "column": "label"}]})


def hash_rows(words):
    try:
        rows = [trsconvert.number_of_rows(word) for word in words.split(",")]
    except ValueError:
        trsdata.fail(f"--vocabulary hash:{words}: expected a number of rows, or {NUM_SPARSE} of them")
    if len(rows) not in (1, NUM_SPARSE) or min(rows) < 1:
        trsdata.fail(f"--vocabulary hash: {len(rows)} numbers of rows, expected 1 or {NUM_SPARSE}, each at least 1")
    return (rows * NUM_SPARSE)[:NUM_SPARSE]


@trsconvert.ending
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    trsconvert.add_arguments(parser, 32)
    parser.add_argument("--vocabulary", default="hash:100k", metavar="KIND", help="see above (default: %(default)s)")
    args = parser.parse_args()
    kind, _, words = args.vocabulary.partition(":")
    if kind not in ("hash", "frequency", "file") or not words or (kind == "frequency" and not words.isdigit()):
        parser.error("--vocabulary must be hash:ROWS, frequency:N or file:FILE")
    trsconvert.check_arguments(parser, args, args.inputs + [words] * (kind == "file"))
    source = trsconvert.Lines(args.inputs, args.block_bytes)
    work = trsconvert.Work(args.output + ".parts", {"inputs": trsconvert.identity(args.inputs + [words] * (kind == "file")), "vocabulary": args.vocabulary, "block_bytes": args.block_bytes},
                           counted=0, runs=[], merged=False)
    if kind == "hash":
        vocabulary = Hash(hash_rows(words))
    elif kind == "file":
        vocabulary = Vocabulary(words)
    else:
        path = args.output + ".vocabulary.h5"
        if not work.state["merged"]:
            with trsconvert.progress("count", args.inputs) as progress:
                count(source, work, progress)
            trsdata.remove_temporaries(path)
            merge(work, int(words), path)
            work.save(merged=True)
            work.unlink([run[0] for run in work.state["runs"]])
        vocabulary = Vocabulary(path)
    id_type = np.int32 if max(vocabulary.rows) <= np.iinfo(np.int32).max else np.int64
    with trsconvert.progress("convert", args.inputs) as progress:
        trsconvert.convert(parts(source, work, vocabulary, id_type), work, progress)
    trsconvert.join(work, args, lambda path: trsdata.DatasetWriter(path, NAMES, vocabulary.rows, NUM_DENSE, id_dtype=id_type, compress=args.compress),
                    {"converted_by": f"convert_criteo.py --vocabulary {args.vocabulary}", trsmapping.ATTRIBUTE: mapping_of(vocabulary).text()})
    work.remove()


if __name__ == "__main__":
    trspython.run(main)
