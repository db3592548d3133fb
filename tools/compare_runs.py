#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares two files of results or two checkpoints, tensor by tensor.

  compare_runs.py run.h5 reference.h5                      |a - b| <= atol + rtol |b| everywhere
  compare_runs.py --steps 25 --rtol 1e-5 run.h5 ref.h5     the first 25 steps only
  compare_runs.py --exact resumed.h5 unbroken.h5           bit for bit (NaN equals NaN)

Tables that give their rows to ids (id_map zch and dynamic) are compared id by id if an id has another row in FILE, for example after a run of
another cap or with other buckets. Ids that only FILE has are named, and ids that only REFERENCE has are a difference.

Every dataset of REFERENCE must be in FILE. Datasets that only FILE has are named. Times and speeds are not compared.
Exit status: 0 all within the tolerance; 1 not; 2 a file cannot be read.
"""
import argparse
import re

import trspython

trspython.require("h5py", "numpy")

import h5py
import numpy as np

import trsdata
import trsids
from trsformats import FormatError

# These differ from run to run. In a model they are compared, because tables, features and tasks may have such names.
TIMES = r"^(?!(predictions|embeddings|embedding|dense|dense_optimizer)/|time$)(.*/)?(samples_per_s|time|.*throughput|.*_s|.*_ms|.*_bytes)$"
OTHERS = r"^(starts|stages|exchanges|memory|predicted|measured|checksums)(/|$)"  # these groups differ from run to run, too; checksums depend on the split into shards
ELEMENTS_AT_ONCE = 1 << 20


def datasets(handle):
    found = {}
    handle.visititems(lambda name, item: found.__setitem__(name, item) if isinstance(item, h5py.Dataset) else None)
    return {name: item for name, item in found.items() if not re.search(TIMES, name) and not re.search(OTHERS, name)}


def blocks(shape):
    """Slices of rows of a few MiB each, because a table may be larger than the memory. A dataset without rows is one slice."""
    at_once = max(1, ELEMENTS_AT_ONCE // max(1, int(np.prod(shape[1:]))))
    return [slice(first, min(first + at_once, shape[0])) for first in range(0, shape[0], at_once)] if shape and shape[0] else [()]


def differences(a, b, args):
    """(largest absolute difference, largest relative difference, number outside the tolerance) of two arrays of one shape."""
    if a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":
        return 0.0, 0.0, int(np.sum(a != b))
    if args.exact:
        same = a.dtype == b.dtype and a.tobytes() == b.tobytes()
        outside = 0 if same else max(1, int(np.sum((a != b) & ~((a != a) & (b != b)))))
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        gap = np.where(np.isnan(gap), np.inf, gap)
        relative = np.divide(gap, np.abs(y), out=np.where(gap == 0, 0.0, np.inf), where=np.abs(y) > 0)
    if not args.exact:
        outside = int(np.sum(~(gap <= args.atol + args.rtol * np.nan_to_num(np.abs(y)))))
    return gap.max(initial=0.0), relative.max(initial=0.0), outside


class ById:
    """A table of both files whose ids have other rows in them: the rows of the ids that both have, and of ids without a row."""

    def __init__(self, table, ours, theirs):
        self.folder, self.of = f"embedding/{table}", (ours, theirs)
        both = np.intersect1d(ours.id, theirs.id)
        self.rows = [np.concatenate([found.find(both), found.unknown if len(ours.unknown) == len(theirs.unknown) else found.unknown[:0]]) for found in self.of]
        self.n, self.missing, self.more = len(both), len(theirs.id) - len(both), len(ours.id) - len(both)

    def words(self):
        return (f"{self.n} ids in both, {self.missing} only in the reference, {self.more} only in FILE; {self.of[0].used} rows, reference {self.of[1].used}; "
                "rows compared by id")

    def has(self, name):
        """The tensors of rows; those of the directory itself are not compared."""
        return name.startswith(self.folder + "/") and "/" not in name[len(self.folder) + 1:]

    def parts(self, pair):
        """Blocks of the rows of the same ids, from two datasets."""
        at_once = max(1, ELEMENTS_AT_ONCE // max(1, int(np.prod(pair[0].shape[1:]))))
        for first in range(0, len(self.rows[0]), at_once):
            yield [_rows(item, rows[first:first + at_once]) for item, rows in zip(pair, self.rows)]


def _rows(item, rows):
    """Rows of a dataset in any order."""
    found, back = np.unique(rows, return_inverse=True)
    return np.asarray(trsdata.numbers(item, item[found]))[back]


def tables_by_id(file, reference):
    """[ById] of the tables whose ids do not have the same rows in both files."""
    found = []
    names = [set(trsids.kinds(datasets(handle))) for handle in (file, reference)]
    for table in sorted(names[0] & names[1]):
        ours, theirs = (trsids.of_handle(handle, handle.filename, table) for handle in (file, reference))
        if ours.used != theirs.used or not np.array_equal(ours.id, theirs.id) or not np.array_equal(ours.row, theirs.row):
            found.append(ById(table, ours, theirs))
    return found


def compare(file, reference, args):
    """Prints one line per dataset; returns how many differ."""
    ours, theirs = datasets(file), datasets(reference)
    by_id = tables_by_id(file, reference)
    names = [name for name in sorted(theirs) if re.search(args.only, name) and not (args.ignore and re.search(args.ignore, name))]
    if not names:
        trsdata.fail("nothing to compare", 2)
    names = [name for name in names if not any(trsids.part(name) and name.startswith(table.folder + "/") for table in by_id)]
    bad = 0
    width = max(map(trsdata.cells, names + [table.folder for table in by_id]), default=0)
    for table in by_id:
        bad += table.missing > 0
        print(f"{'DIFFERS' if table.missing else 'ok     '} {trsdata.padded(table.folder, width)}  {table.words()}")
    for name in names:
        if name not in ours:
            print(f"DIFFERS {trsdata.padded(name, width)}  missing in FILE")
            bad += 1
            continue
        pair = ours[name], theirs[name]
        steps = args.steps if name.startswith("train/") else None
        one, other = (item.shape if steps is None else (min(steps, len(item)), *item.shape[1:]) for item in pair)
        table = next((table for table in by_id if table.has(name)), None)
        if one != other and not (table and one[1:] == other[1:]):
            print(f"DIFFERS {trsdata.padded(name, width)}  shape {one}, reference {other}")
            bad += 1
            continue
        arrays = table.parts(pair) if table else ([np.asarray(trsdata.numbers(item, item[part])) for item in pair] for part in blocks(one))
        parts = [differences(*both, args) for both in arrays] or [(0.0, 0.0, 0)]
        absolute, relative, outside = (fold(column) for fold, column in zip((max, max, sum), zip(*parts)))
        where = ""
        if outside:
            where = f"  {outside} of {int(np.prod(other))} outside"
            bad += 1
        if outside or not args.quiet:
            print(f"{'DIFFERS' if outside else 'ok     '} {trsdata.padded(name, width)}  max abs {absolute:.2e}  max rel {relative:.2e}{where}")
    agree = len(names) - bad + sum(table.missing > 0 for table in by_id)
    for name in ("step", "epoch", "samples_seen"):
        if args.attributes and name in reference.attrs and name in file.attrs and file.attrs[name] != reference.attrs[name]:
            print(f"DIFFERS attribute {name}: {file.attrs[name]}, reference {reference.attrs[name]}")
            bad += 1
    more = sorted(set(ours) - set(theirs))
    if more and not args.quiet:
        print(f"only in FILE: {', '.join(more[:8])}{' ...' if len(more) > 8 else ''}")
    print(f"{agree} of {len(names)} datasets agree" + (" bit for bit" if args.exact else f" (rtol {args.rtol:g}, atol {args.atol:g})"))
    return bad


def pattern(word):
    try:
        return re.compile(word)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{word}: {error}") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("reference", metavar="REFERENCE")
    parser.add_argument("--rtol", type=float, default=1e-5, help="(default: %(default)s)")
    parser.add_argument("--atol", type=float, default=1e-6, help="(default: %(default)s)")
    parser.add_argument("--exact", action="store_true", help="bit for bit")
    parser.add_argument("--steps", type=trspython.positive, help="of /train, only the first STEPS steps")
    parser.add_argument("--only", type=pattern, default="", metavar="REGEX", help="datasets to compare")
    parser.add_argument("--ignore", type=pattern, metavar="REGEX", help="datasets to leave out")
    parser.add_argument("--attributes", action="store_true", help="also the attributes step, epoch and samples_seen")
    parser.add_argument("--quiet", action="store_true", help="print differences only")
    args = parser.parse_args()
    try:
        with trsdata.opened(args.file) as file, trsdata.opened(args.reference) as reference:
            kinds = [trsdata.text(handle.attrs.get("format", "unknown")) for handle in (file, reference)]
            if kinds[0] != kinds[1]:
                trsdata.fail(f"{args.file} is a {kinds[0]}, {args.reference} a {kinds[1]}", 2)
            return 1 if compare(file, reference, args) else 0
    except BrokenPipeError:
        raise
    except (OSError, FormatError) as error:
        trsdata.fail(str(error), 2)


if __name__ == "__main__":
    trspython.run(main)
