#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures a dataset for the planner: ids per sample, and how well a cache of rows would serve them.

  dataset_statistics.py train.h5 --batch-size 512 --ranks 2 -o statistics.opts
  trshard -task plan -options_file run.opts -options_file statistics.opts

Several files are one dataset, in the given order. For each table, the option file has -table_NAME_pooling_factors and the three
-table_NAME_cache_stats_ options. It also has -plan_cache_hit_rates and -plan_cache_steps, so that the planner rates a cache by
its hits. --batch-size and --ranks are those of the run: a cache is filled once per batch, and a rank's cache of a whole table
sees the global batch.

The miss-rate curve belongs to the cache of fused_uvm_caching (32 lines per set; src/compute/cache.h), which is empty at the start.
The tool simulates the cache batch by batch at several load factors, and interpolates linearly between them. It simulates each
table separately. If tables share a cache (same load factor and algorithm on a rank), the planner computes their common hit
rates; -plan_report shows the hit rates of a plan's caches. Counts are exact for tables whose rows fit into memory. In larger
tables ids share counters by a hash: distinct ids are then an estimate (linear counting), and frequencies are upper bounds.
Large caches are simulated on a sample of their sets.

Exit status: 0; 2 for wrong usage, 64 for wrong options, 65 for wrong data, 66 without a file, 73 if the output cannot be written, 74 if its disk is full.
"""
import argparse
import errno
import os
import sys

import trspython

trspython.require("h5py", "numpy")

import h5py
import numpy as np
from trspython import tqdm

import trscache
import trscolumns
import trsdata
import trsfile
import trsmapping
import trsoptions
from trsread import counted

LOAD_FACTORS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
BINS = 1000  # largest number of bins in the histogram of reuse distances: load factors below 0.001 count as 0.001
COUNTS = 1000000  # sum of the histogram: float32 adds such integers exactly
SHARES = (0.001, 0.01, 0.1)
IDS_OF_A_BATCH = 4096  # approximate number of distinct ids of a table that a simulation uses
LINE_BYTES = 16  # bytes of a simulated line
SHOWN = (0.01, 0.05, 0.1, 0.2, 0.5)


# --- the dataset ---

class Dataset:
    """Files that are one dataset: names and rows of the features, total number of samples."""

    def __init__(self, paths):
        self.paths, self.names, self.rows, self.samples = paths, None, None, 0
        for path in paths:
            with self.open(path) as h:
                self._take(path, h)

    @staticmethod
    def open(path):
        if not os.path.exists(path):
            trsdata.fail(f"{path} does not exist", 66)
        try:
            return trsdata.opened(path)
        except OSError as error:
            trsdata.fail(error, 65)

    def _take(self, path, h):
        if trsdata.text(h.attrs.get("format", "")) != "trshard-dataset":
            trsdata.fail(f"{path} is not a dataset: its attribute format is not \"trshard-dataset\"", 65)
        for part in ("sparse/lengths", "sparse/offsets", "sparse/values"):
            if part not in h:
                trsdata.fail(f"{path} has no /{part}", 65)
            if not isinstance(h[part], h5py.Dataset) or h[part].dtype.kind not in "iu" or not h[part].shape:
                trsdata.fail(f"{path}: /{part} is not a dataset of integers", 65)
        try:
            names = [trsdata.text(name) for name in h["sparse"].attrs["features"]]
            rows = np.asarray(h["sparse"].attrs["num_embeddings"], np.int64)
        except (KeyError, TypeError, ValueError) as error:
            trsdata.fail(f"{path}: /sparse lacks an attribute, or it is damaged: {error}", 65)
        samples = h["sparse/lengths"].shape[0]
        if rows.shape != (len(names),) or h["sparse/lengths"].shape != (samples, len(names)) or h["sparse/offsets"].shape != (samples + 1,):
            trsdata.fail(f"{path}: /sparse/lengths or /sparse/offsets do not fit {samples} samples and {len(names)} features", 65)
        if self.names not in (None, names):
            trsdata.fail(f"{path} has the features {','.join(names)}, {self.paths[0]} has {','.join(self.names)}", 65)
        self.names = names
        self.rows = rows if self.rows is None else np.maximum(self.rows, rows)
        self.samples += samples

    def slices(self, at_once):
        """(lengths [n, F], values) of at most at_once samples."""
        for path in self.paths:
            with self.open(path) as h:
                parts = trsdata.samples_of(h, at_once)
                while (part := self._next(path, parts)) is not None:
                    first, _, _, lengths, values, _ = part
                    values = values.astype(np.int64, copy=False)  # of uint64 its 64 bits, as in the program
                    self._check(path, first, lengths, values)
                    yield lengths, values

    @staticmethod
    def _next(path, parts):
        try:
            return next(parts, None)
        except (OSError, ValueError) as error:  # a part of the file is damaged or lost
            trsdata.fail(f"{path} cannot be read: {error}", 65)

    def _check(self, path, first, lengths, values):
        if lengths.size and (lengths.min() < 0 or lengths.sum() != len(values)):
            trsdata.fail(f"{path}: /sparse/lengths and /sparse/offsets disagree in samples {first} to {first + len(lengths) - 1}", 65)
        rows = np.repeat(np.tile(self.rows, len(lengths)), lengths.reshape(-1))
        bad = (rows > 0) & ((values < -1) | (values >= rows))  # 0: ids have no bound
        if bad.any():
            at = int(np.argmax(bad))
            place = int(np.searchsorted(np.cumsum(lengths.reshape(-1)), at, side="right"))
            sample, f = divmod(place, len(self.names))
            trsdata.fail(f"{path}: /sparse/values has the id {values[at]} for feature {self.names[f]} of sample {first + sample}, "
                         f"expected -1 to {self.rows[f] - 1}", 65)

    def batches(self, size):
        """(lengths, values) of one pass, size samples at a time, across files; the last batch may be smaller."""
        lengths, values = np.zeros((0, len(self.names)), np.int32), np.zeros(0, np.int64)
        for more in self.slices(max(1, trsdata.SAMPLES_AT_ONCE // size) * size):
            lengths, values = np.concatenate([lengths, more[0]]), np.concatenate([values, more[1]])
            ends = np.concatenate([[0], np.cumsum(lengths.sum(axis=1, dtype=np.int64))])
            whole = len(lengths) // size * size
            for first in range(0, whole, size):
                yield lengths[first:first + size], values[ends[first]:ends[first + size]]
            lengths, values = lengths[whole:], values[ends[whole]:]
        if len(lengths):
            yield lengths, values


def by_feature(lengths, values):
    """The ids of each feature, in the order of samples."""
    feature = np.repeat(np.tile(np.arange(lengths.shape[1]), len(lengths)), lengths.reshape(-1))
    order = np.argsort(feature, kind="stable")
    return np.split(values[order], np.cumsum(lengths.sum(axis=0, dtype=np.int64))[:-1])


# --- a table ---

class Counts:
    """Number of lookups of each id. If there are more rows than slots, ids share slots by their hash."""

    def __init__(self, rows, slots):
        self.exact = 0 < rows <= slots
        self.slot = np.zeros(rows if self.exact else slots, np.int64)

    def _of(self, ids):
        # The upper half of the hash, because the lower half selects the sets.
        return ids if self.exact else ((trscache.hash_of(ids) >> np.uint64(20)) % np.uint64(len(self.slot))).astype(np.int64)

    def add(self, ids, times):
        np.add.at(self.slot, self._of(ids), times)

    def of(self, ids):
        return self.slot[self._of(ids)]

    def distinct(self):
        used = int(np.count_nonzero(self.slot))
        if self.exact or used == len(self.slot):
            return used
        return -len(self.slot) * np.log1p(-used / len(self.slot))

    def shares(self, parts):
        """The shares of all lookups that the most frequent ids take, for these parts of the distinct ids."""
        used = np.sort(self.slot[self.slot > 0])[::-1]
        below = np.concatenate([[0], np.cumsum(used)])
        return [below[min(len(used), max(1, round(part * self.distinct())))] / max(1, below[-1]) for part in parts]


class Table:
    def __init__(self, name, features, dataset):
        self.name = name
        self.features = [dataset.names.index(feature) for feature in features]
        self.feature_names = features
        bounds = dataset.rows[self.features]
        self.rows = int(bounds.max()) if (bounds > 0).all() else 0  # 0: ids have no bound
        self.bins = max(2, min(BINS, -(-self.rows // trscache.WAYS)))
        self.ids = np.zeros(len(features), np.int64)
        self.longest = np.zeros(len(features), np.int64)
        self.n_batches = self.distinct_of_batches = 0
        self.counts, self.caches, self.load_factors = None, None, ()

    def prepare(self, args, slots):
        self.counts = Counts(self.rows, slots)
        self.lines = slots * 8 // LINE_BYTES  # caches use as much memory as the counts
        usual = LOAD_FACTORS if self.bins > len(LOAD_FACTORS) else [i / self.bins for i in range(1, self.bins)]  # a small table gets every possible number of sets
        self.load_factors = sorted(set(usual) | set(args.load_factors))

    def _make_caches(self, args, distinct):
        """Caches for batches of about this many distinct ids."""
        lines = sum(trscache.sets_for(self.rows, r) * trscache.WAYS for r in self.load_factors)
        sampled = min(1.0, IDS_OF_A_BATCH / max(1, distinct), self.lines / max(1, lines))
        self.caches = [trscache.Cache(self.rows, r, sampled, args.algorithm, args.ahead) for r in self.load_factors]

    def batch(self, args, lengths, ids_of):
        self.ids += lengths[:, self.features].sum(axis=0, dtype=np.int64)
        self.longest = np.maximum(self.longest, lengths[:, self.features].max(axis=0, initial=0))
        ids = np.concatenate([ids_of[f] for f in self.features])
        ids, times = np.unique(ids[ids >= 0] if self.rows else ids, return_counts=True)
        ids = ids.astype(np.int64)
        self.counts.add(ids, times)
        self.n_batches += 1
        self.distinct_of_batches += len(ids)
        if not len(ids) or not self.rows:
            return
        if self.caches is None:
            self._make_caches(args, len(ids))
        hashes = trscache.hash_of(ids)
        for cache in self.caches:
            cache.batch(ids, hashes, self.counts.of)

    @property
    def expected_lookups(self):
        return self.distinct_of_batches / max(1, self.n_batches)

    def curve(self):
        """Load factors and hit rates, both ascending, from no cache to the cache with the largest load factor."""
        rates = [cache.hit_rate for cache in self.caches] if self.caches else [0.0] * len(self.load_factors)
        return np.array([0.0, *self.load_factors]), np.maximum.accumulate([0.0, *rates])

    def hit_rate(self, load_factor):
        """Hit rate of a cache that has at least one set, as in a run; computed from the histogram as the planner does (src/plan/cost/cache_stats.c)."""
        parts = np.searchsorted(np.linspace(0, self.rows, self.bins + 1), max(load_factor * self.rows - 1, 0), side="right")
        return float(self.histogram()[:parts].sum() / COUNTS)

    def histogram(self):
        """Histogram of reuse distances over equal parts of the rows. Lookups that only a cache of the whole table serves are in the last part."""
        edges = np.arange(1, self.bins) / self.bins
        below = np.round(COUNTS * np.interp(edges, *self.curve())).astype(np.int64)
        return np.diff(np.concatenate([[0], below, [COUNTS]]))

    def cacheability(self):
        """The area under the miss-rate curve."""
        x, y = self.curve()
        x, miss = np.append(x, 1.0), 1 - np.append(y, y[-1])
        return float(((miss[1:] + miss[:-1]) / 2 * np.diff(x)).sum())


def read(args, dataset, tables):
    """Runs through the dataset, and starts again if --steps is more than a pass."""
    size = args.batch_size * args.ranks
    steps = args.steps or -(-dataset.samples // size)
    slots = max(1024, args.memory // (2 * 8 * len(tables)))
    for table in tables:
        table.prepare(args, slots)
    samples = done = 0
    with tqdm(total=steps, unit=" batches", disable=not sys.stderr.isatty()) as bar:
        while done < steps:
            for lengths, values in dataset.batches(size):
                ids_of = by_feature(lengths, values)
                for table in tables:
                    table.batch(args, lengths, ids_of)
                samples += len(lengths)
                done += 1
                bar.update()
                if done == steps:
                    break
    return samples


# --- output ---

def show(tables, samples):
    lines = [["table", "feature", "rows", "mean", "longest", "distinct", "0.1% take", "1% take", "10% take"] + [f"hits {r:g}" for r in SHOWN]]
    for table in tables:
        shares = table.counts.shares(SHARES)
        for i, feature in enumerate(table.feature_names):
            about = "" if table.counts.exact else "~"
            line = [table.name, feature, f"{table.rows:,}" if table.rows else "any id", f"{table.ids[i] / samples:.2f}", table.longest[i]]
            of_table = [f"{about}{table.counts.distinct():,.0f}"] + [f"{share:.1%}" for share in shares]
            of_table += [f"{table.hit_rate(r):.1%}" for r in SHOWN] if table.rows else ["-"] * len(SHOWN)
            lines.append(line + (of_table if i == 0 else [""] * len(of_table)))
    print("\n".join(trsdata.table(lines, left=(0, 1))))


def shared_rows(dataset, tables):
    """Lines about hashed text whose words share rows (tools/convert_table.py counted them)."""
    for path in dataset.paths:
        try:
            with dataset.open(path) as h:
                mapping = trsmapping.of_handle(h, path)
        except trscolumns.Refused as problem:
            trsdata.fail(problem, problem.code)
        for entry in mapping.sparse if mapping else ():
            if trsmapping.shared_rows(entry) and any(entry["name"] in table.feature_names for table in tables):
                yield f"{entry['name']}: {trsmapping.shared_rows(entry)}" + (f" ({path})" if len(dataset.paths) > 1 else "")


def option_text(args, tables, samples):
    text = [f"# Made by tools/dataset_statistics.py of {counted(samples, 'sample')} in batches of {args.batch_size} on {counted(args.ranks, 'rank')}, caches by {args.algorithm}.",
            "# The statistics are those of a run with the same global batch and about as many steps.", "-plan_cache_hit_rates true", f"-plan_cache_steps {tables[0].n_batches if tables else 0}"]
    for table in tables:
        if "\n" in table.name or "\r" in table.name:
            text += ["", f"# {table.name!r}: no option can say this name. Give the table one with -tables and -table_<name>_features."]
            continue
        option = lambda key: trsoptions.word(f"-table_{table.name}_{key}")
        shares = ", ".join(f"{part:.1%} of them take {share:.1%}" for part, share in zip(SHARES, table.counts.shares(SHARES)))
        text += ["", f"# {table.name}: {counted(round(table.counts.distinct()), 'distinct id')}; {shares}",
                 option("pooling_factors") + " " + ",".join(f"{n / samples:.6g}" for n in table.ids)]
        if table.rows:
            text += [f"{option('cache_stats_cacheability')} {table.cacheability():.6g}",
                     f"{option('cache_stats_expected_lookups')} {table.expected_lookups:.6g}",
                     option("cache_stats_mrc_hist") + " " + ",".join(map(str, table.histogram()))]
        else:
            text.append("# Its ids have no bound, so its cache is not known.")
    return "\n".join(text) + "\n"


def write(path, text):
    try:
        with trsfile.whole(path) as out:
            out.write(text)
    except OSError as error:
        trsdata.fail(f"--output {path}: {error.strerror}", 74 if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else 73)


# --- options ---

class Parser(argparse.ArgumentParser):
    def error(self, message):
        trsdata.fail(message, 64)


def load_factor(word):
    value = float(word)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{word} is not above 0 and below 1")
    return value


def parse():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", metavar="DATA.h5")
    parser.add_argument("-o", "--output", metavar="FILE", help="the option file; without it only the table is printed")
    parser.add_argument("--batch-size", type=trspython.positive, default=512, metavar="B", help="-batch_size of the run, of each rank (default: %(default)s)")
    parser.add_argument("--ranks", type=trspython.positive, default=1, metavar="W", help="ranks of the run (default: %(default)s)")
    parser.add_argument("--steps", type=trspython.positive, metavar="N", help="steps of the run; more than a pass go round (default: one pass)")
    parser.add_argument("--algorithm", choices=("lru", "lfu"), default="lru", help="-tables_cache_algorithm of the run (default: %(default)s)")
    parser.add_argument("--ahead", action="store_true", help="caches are filled one batch ahead: -pipeline prefetch_sparse_dist")
    parser.add_argument("--table", action="append", default=[], metavar="NAME=F,F", help="a table of these features (default: one of each feature's name)")
    parser.add_argument("--load-factors", type=lambda words: [load_factor(word) for word in words.split(",")], default=[], metavar="R,R",
                        help="load factors to simulate besides the usual ones")
    parser.add_argument("--memory", type=trspython.positive, default=1024, metavar="MIB", help="for counts and simulated caches (default: %(default)s)")
    args = parser.parse_args()
    trsfile.check(parser, {"--output": args.output}, args.data)
    args.memory <<= 20
    return args


def tables_of(args, dataset):
    tables, used = [], set()
    for word in args.table:
        name, _, features = word.partition("=")
        features = features.split(",")
        for feature in features:
            if feature not in dataset.names or feature in used:
                trsdata.fail(f"--table {word}: feature \"{feature}\" is {'named twice' if feature in used else 'not in ' + dataset.paths[0]}", 64)
            used.add(feature)
        tables.append(Table(name, features, dataset))
    tables += [Table(name, [name], dataset) for name in dataset.names if name not in used]
    names = [table.name for table in tables]
    twice = next((name for name in names if not name or names.count(name) > 1), None)
    if twice is not None:
        trsdata.fail(f"--table: two tables have the name \"{twice}\"" if twice else "--table: a table has no name, expected NAME=FEATURE,...", 64)
    return tables


def main():
    args = parse()
    dataset = Dataset(args.data)
    if dataset.samples == 0:
        trsdata.fail(f"{args.data[0]}: no sample in /sparse/lengths, expected at least one", 65)
    tables = tables_of(args, dataset)
    samples = read(args, dataset, tables)
    show(tables, samples)
    for line in shared_rows(dataset, tables):
        print(line)
    if args.output:
        write(args.output, option_text(args, tables, samples))
        print("wrote", args.output)


if __name__ == "__main__":
    trspython.run(main)
