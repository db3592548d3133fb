#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the predictions of -task predict as Parquet or CSV, with key columns of the table from which the dataset was converted.

  predictions.py scores.h5 --output scores.parquet --keys user,day day_7.parquet
  predictions.py scores.h5 --output scores.csv --keys 'id_*' part-0.csv part-1.csv
  predictions.py scores.h5 --output scores.csv

The INPUTs are the tables that convert_table.py converted to the dataset of -data_eval, in the same order. A key may be a pattern. The output has a
row for each row of the INPUTs, in their order: the keys as they are in the INPUTs, then the predictions in float32. Their columns have the names of
trshard.Predictor.output_names: the task, or task_0, task_1, ... for the classes of a task; without -tasks the label of -data_label, or
"prediction". --prefix sets a text before these names.

convert_table.py keeps each row and the order of rows. The tool checks that the dataset, the predictions and the INPUTs have the same number of rows.
It also encodes each row of the INPUTs as the dataset's mapping says, and compares the result with the dataset, number by number. If a row differs, the
INPUTs are other files, or are in another order, and nothing is written. --no-check leaves out this comparison, which takes as long as a conversion. The
comparison needs a dataset with a mapping whose features all come from columns.

Exit status: 0; 2 wrong usage; 64 a bad option; 65 a file is not as expected, or rows differ; 66 an input is missing; 74 a file cannot be read or written.
"""
import argparse
import contextlib
import csv
import fnmatch
import glob
import io
import os
import sys

import trspython

NEEDS = ["h5py", "numpy"]
if any(word.lower().endswith((".parquet", ".pq")) for word in sys.argv[1:]):
    NEEDS.append("pyarrow")
trspython.require(*NEEDS)

import h5py
import numpy as np

import trscolumns
import trsconvert
import trsdata
import trsencode
import trsfile
import trsmapping
import trsoptions
import trsread
import trstable
from trscolumns import fail

ROWS_AT_ONCE = 1 << 16  # rows of predictions without keys


# --- predictions ---


class Predictions:
    """The predictions of a results file. names: of the columns of the output. n: number of rows."""

    def __init__(self, handle, path, prefix):
        self.path = path
        if trsdata.text(handle.attrs.get("format", "")) != "trshard-run" or "predictions" not in handle:
            fail(f"{path} has no predictions: expected the -output of -task predict")
        self.options = {name: value for name, value, _, _ in trsoptions.options(trsdata.text(handle.attrs.get("options", "")))}
        found, tasks = handle["predictions"], trsoptions.entries(self.options.get("-tasks"))
        if isinstance(found, h5py.Dataset):
            self.parts = [(tasks[0] if tasks else self.options.get("-data_label") or "prediction", found)]
        else:
            self.parts = [(task, found[task]) for task in tasks or sorted(found)]
        self.names = [prefix + name + (f"_{c}" if part.ndim == 2 else "") for name, part in self.parts for c in range(part.shape[1] if part.ndim == 2 else 1)]
        self.n = len(self.parts[0][1])

    def rows(self, begin, end):
        """[outputs] arrays float32 of these rows."""
        return [column for _, part in self.parts for column in np.ascontiguousarray(part[begin:end].reshape(end - begin, -1).T)]

    def datasets(self):
        """The files of -data_eval."""
        found = []
        for word in trsoptions.entries(self.options.get("-data_eval")):
            found += sorted(glob.glob(word)) if not os.path.exists(word) and glob.has_magic(word) else [word]
        return found


# --- the dataset, compared with the encoded rows ---


class Dataset:
    """The samples of files in sequence. mapping: the trsmapping.Mapping of the first file, or None."""

    def __init__(self, paths, stack):
        self.paths, self.files = paths, []
        for path in paths:
            if not os.path.isfile(path):
                fail(f"no file {path}, the dataset of the predictions (--dataset names its files where they are now)", 66)
            self.files.append(stack.enter_context(trsdata.opened(path)))
            if trsdata.text(self.files[-1].attrs.get("format", "")) != "trshard-dataset":
                fail(f"{path} is no dataset of trshard")
        self.sizes = [len(handle["sparse/lengths"]) for handle in self.files]
        self.mapping = trsmapping.of_handle(self.files[0], paths[0]) if self.files else None
        self.file, self.sample, self.id = 0, 0, 0

    def take(self, n):
        """(dense or None, lengths, values) of the next samples, up to n and the end of a file."""
        while self.sample == self.sizes[self.file]:
            self.file, self.sample, self.id = self.file + 1, 0, 0
        handle = self.files[self.file]
        end = min(self.sample + n, self.sizes[self.file])
        lengths = handle["sparse/lengths"][self.sample:end].reshape(end - self.sample, -1)
        ids = int(lengths.sum())
        dense = handle["dense"][self.sample:end] if "dense" in handle else None
        values = handle["sparse/values"][self.id:self.id + ids]
        self.sample, self.id = end, self.id + ids
        return dense, lengths, values


def difference(block, mapping, dataset):
    """Encode a block of rows, and compare it with the next samples of the dataset. Returns the first row that differs, or None."""
    dense = [trsencode.dense_of(block, entry, mapping.nulls)[0] for entry in mapping.dense]
    parts = [trsencode.ids_of(block, entry, mapping.nulls, mapping.vocabulary(entry["name"])) for entry in mapping.sparse]
    lengths = np.stack([part.lengths for part in parts], axis=1)
    values = trsdata.interleave(lengths, [part.values for part in parts])
    ends = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))])
    row = 0
    while row < block.rows:
        of_dense, of_lengths, of_values = dataset.take(block.rows - row)
        n = len(of_lengths)
        wrong = np.zeros(n, bool)
        if dense:
            here = np.stack([column[row:row + n] for column in dense], axis=1)
            wrong |= (here.view(np.uint32) != of_dense.astype(np.float32).view(np.uint32)).any(axis=1)
        wrong |= (lengths[row:row + n] != of_lengths).any(axis=1)
        same = int(np.argmax(wrong)) if wrong.any() else n  # rows before the first whose lengths differ
        first = int(of_lengths[:same].sum())
        unequal = np.flatnonzero(values[ends[row]:ends[row] + first].astype(of_values.dtype) != of_values[:first])
        if len(unequal):
            return row + int(np.searchsorted(ends[row + 1:row + 1 + same] - ends[row], unequal[0], "right"))
        if same < n:
            return row + same
        row += n
    return None


def check_mapping(mapping, path):
    """Refuse a dataset whose rows cannot be compared."""
    hint = "; --no-check compares only the numbers of rows"
    if mapping is None:
        fail(f"{path} has no mapping, so its rows cannot be compared with those of the inputs{hint}")
    if mapping.root.get("converter") != "convert_table.py":
        fail(f"{path} was made by {mapping.root.get('converter', 'another program')}, expected convert_table.py, which keeps the rows of a table{hint}")
    for entry in mapping.dense + mapping.sparse:
        if entry["column"] is None or isinstance(entry.get("vocabulary"), dict):
            fail(f"{path}: the mapping does not say how feature {entry['name']} comes from a column{hint}")


# --- keys ---


def keys_of(table, patterns):
    """The columns of a table that the patterns mean."""
    found = []
    for pattern in patterns:
        names = [pattern] if pattern in table.columns else fnmatch.filter(table.columns, pattern)
        if not names:
            known = ", ".join(table.columns)
            fail(f"--keys {pattern}: {table.path} has no such column; it has {known[:400] + (' ...' if len(known) > 400 else '')}")
        found += [name for name in names if name not in found]
    for name in found:
        if table.columns[name] != 1:
            fail(f"--keys {name}: {table.path} has {table.columns[name]} columns with this name, expected one")
    return found


class ArrowKeys:
    """Takes the next rows of key columns of a Parquet file, with their types."""

    def __init__(self, table, names):
        import pyarrow
        self.arrow, self.names, self.batches, self.held = pyarrow, names, [], 0
        self.source = table.file.iter_batches(ROWS_AT_ONCE, columns=names, use_threads=False)

    def take(self, n):
        while self.held < n:
            self.batches.append(next(self.source))
            self.held += self.batches[-1].num_rows
        table = self.arrow.Table.from_batches(self.batches)
        rest = table.slice(n)
        self.batches, self.held = rest.to_batches(), rest.num_rows
        return [table.column(name).slice(0, n) for name in self.names]


def of_block(block, name):
    """A key column as a list of bytes or an array of numbers."""
    column = block.columns[name]
    return [column.values.bytes(i) for i in range(block.rows)] if isinstance(column.values, trscolumns.Text) else column.values


# --- outputs ---


class CsvOutput:
    """A file of CSV. Text keeps its bytes; missing values become empty."""

    def __init__(self, path, stack):
        self.out = stack.enter_context(trsfile.whole(path, "wb"))

    def begin(self, names):
        self._rows([names])

    def _rows(self, rows):
        lines = io.StringIO(newline="")
        csv.writer(lines, lineterminator="\n").writerows(rows)
        self.out.write(lines.getvalue().encode("utf-8", "surrogateescape"))

    def add(self, names, columns):
        self._rows(zip(*(self._cells(name, column) for name, column in zip(names, columns))))

    @staticmethod
    def _cells(name, column):
        if isinstance(column, np.ndarray):
            return map(str, column) if column.dtype.kind == "f" else column.tolist()
        if isinstance(column, list):
            return [cell.decode("utf-8", "surrogateescape") for cell in column]
        cells = column.to_pylist()
        wrong = next((cell for cell in cells if isinstance(cell, (list, dict))), None)
        if wrong is not None:
            fail(f"--keys {name}: its values are lists, which CSV cannot hold; write Parquet", 64)
        return [cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else cell for cell in cells]

    def close(self):
        """Nothing is left to write."""


class ParquetOutput:
    """A Parquet file. Keys of Parquet keep their types; keys of text files are strings."""

    def __init__(self, path, stack):
        import pyarrow
        import pyarrow.parquet
        self.arrow = pyarrow
        self.out = stack.enter_context(trsfile.whole(path, "wb"))
        self.writer = None

    def begin(self, names):
        """Without rows, the types of the keys are not known."""
        self.empty = self.arrow.table({name: self.arrow.array([], self.arrow.float32()) for name in names})

    def add(self, names, columns):
        arrays = []
        for name, column in zip(names, columns):
            try:
                arrays.append(self.arrow.array([cell.decode() for cell in column], self.arrow.string()) if isinstance(column, list) else
                              self.arrow.array(column) if isinstance(column, np.ndarray) else column)
            except UnicodeDecodeError:
                fail(f"--keys {name}: its text is not UTF-8, which Parquet needs; write CSV")
        table = self.arrow.table(arrays, names=names)
        if self.writer is None:
            self.writer = self.arrow.parquet.ParquetWriter(self.out, table.schema)
        elif table.schema != self.writer.schema:
            other = next(name for name in names if table.schema.field(name) != self.writer.schema.field(name))
            fail(f"--keys {other}: the inputs have the types {self.writer.schema.field(other).type} and {table.schema.field(other).type}, expected one type")
        self.writer.write_table(table)

    def close(self):
        if self.writer is None:
            self.writer = self.arrow.parquet.ParquetWriter(self.out, self.empty.schema)
        self.writer.close()


def output_of(path, stack):
    if path.lower().endswith((".parquet", ".pq")):
        return ParquetOutput(path, stack)
    if path.lower().endswith(".csv"):
        return CsvOutput(path, stack)
    return fail(f"--output {path}: expected a name that ends in .parquet or .csv", 64)


# --- the program ---


def blocks_of(table, keys, mapping):
    """(number of rows, columns of keys, Block or None) for each block of a table's rows."""
    wanted = [entry[key] for entry in (mapping.dense + mapping.sparse if mapping else []) for key in ("column", "weights") if entry.get(key)]
    missing = next((name for name in wanted if name not in table.columns), None)
    if missing:
        fail(f"{table.path} has no column {missing}, from which the dataset has a feature")
    parquet = keys and isinstance(getattr(table, "inner", table), trstable.ParquetTable)
    source = ArrowKeys(table, keys) if parquet else None
    read = list(dict.fromkeys(wanted + ([] if parquet else keys))) or list(table.columns)[:1]
    for _, block in table.blocks(0, read):
        yield block.rows, source.take(block.rows) if parquet else [of_block(block, name) for name in keys], block


def rows_of(tables, keys, mapping, dataset, predictions):
    """(columns of keys, number of rows) for each block of all tables, whose rows are those of the dataset."""
    first = 0
    for table in tables:
        for n, columns, block in blocks_of(table, keys, mapping):
            if first + n > predictions.n:
                fail(f"{table.path}: the inputs have more rows than {predictions.path} has predictions, {predictions.n:,}")
            wrong = difference(block, mapping, dataset) if mapping else None
            if wrong is not None:
                fail(f"{block.place(wrong)}: sample {first + wrong} of {dataset.paths[0]} has other numbers than this row, so the inputs are other files, or are in another order")
            yield columns, n
            first += n
    if first < predictions.n:
        fail(f"the inputs have {trsread.counted(first, 'row')}, {predictions.path} has {trsread.counted(predictions.n, 'prediction')}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", metavar="RESULTS", help="the -output of -task predict")
    parser.add_argument("inputs", nargs="*", metavar="INPUT", help="the tables of the dataset, in the order of the conversion")
    parser.add_argument("--output", required=True, metavar="FILE", help="ends in .parquet or .csv")
    parser.add_argument("--keys", metavar="LIST", help="columns of the inputs that the output has before the predictions")
    parser.add_argument("--prefix", default="", metavar="TEXT", help="of the names of predictions")
    parser.add_argument("--dataset", metavar="LIST", help="the dataset's files (default: -data_eval of the results)")
    parser.add_argument("--no-check", action="store_true", help="compare only the numbers of rows")
    parser.add_argument("--delimiter", metavar="C", help="of fields of the inputs (default: a tab in .tsv, else a comma)")
    parser.add_argument("--no-quotes", action="store_true", help="double quotes mean nothing in CSV inputs")
    parser.add_argument("--block-mb", dest="block_bytes", type=trsconvert.block_bytes, default="4", help="of input read at once (default: %(default)s)")
    args = parser.parse_intermixed_args()  # options may stand between RESULTS and the INPUTs
    args.keys = next(csv.reader([args.keys])) if args.keys else []
    if bool(args.keys) != bool(args.inputs):
        parser.error("--keys and INPUTs go together")
    for path in [args.results] + [path for source in args.inputs for path in trstable.paths_of(source)]:
        if not os.path.isfile(path):
            fail(f"no file {path}", 66)
    trsfile.check(parser, {"--output": args.output}, [args.results] + args.inputs)
    return args


def tables_of(args, mapping):
    if args.delimiter not in (None, r"\t") and len(args.delimiter.encode()) != 1:
        fail(f"--delimiter {args.delimiter!r}: expected one ASCII character", 64)
    tables = [trstable.table(source, args.block_bytes, "\t" if args.delimiter == r"\t" else args.delimiter, not args.no_quotes) for source in args.inputs]
    if mapping is None:
        return tables
    texts = {entry["column"] for entry in mapping.sparse if entry["kind"] == "text"}
    return trstable.completed(tables, mapping.absent, texts.__contains__)


def write(args, predictions, dataset, stack):
    mapping = None
    if args.keys and not args.no_check:
        mapping = dataset.mapping
        check_mapping(mapping, dataset.paths[0])
    tables = tables_of(args, mapping)
    keys = keys_of(tables[0], args.keys) if tables else []
    for table in tables[1:]:
        if keys_of(table, args.keys) != keys:
            fail(f"{table.path} has other columns {', '.join(args.keys)} than {tables[0].path}")
    names = keys + predictions.names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        fail(f"the output has the column {twice} twice; --prefix gives the predictions other names", 64)
    output = output_of(args.output, stack)
    output.begin(names)
    first = 0
    whole = (([], min(ROWS_AT_ONCE, predictions.n - begin)) for begin in range(0, predictions.n, ROWS_AT_ONCE))
    for columns, n in rows_of(tables, keys, mapping, dataset, predictions) if tables else whole:
        output.add(names, columns + predictions.rows(first, first + n))
        first += n
    output.close()
    return len(keys), "each row compared with the dataset" if mapping else "the numbers of rows compared" if tables else ""


@trsconvert.ending
def main():
    args = arguments()
    with contextlib.ExitStack() as inputs:
        predictions = Predictions(inputs.enter_context(trsdata.opened(args.results)), args.results, args.prefix)
        dataset = None
        if args.keys:
            dataset = Dataset(next(csv.reader([args.dataset])) if args.dataset else predictions.datasets(), inputs)
            if sum(dataset.sizes) != predictions.n:
                fail(f"{dataset.paths[0]}: the dataset has {trsread.counted(sum(dataset.sizes), 'sample')}, {args.results} has {trsread.counted(predictions.n, 'prediction')}")
        with contextlib.ExitStack() as stack:
            n_keys, checked = write(args, predictions, dataset, stack)
    columns = f"{trsread.counted(n_keys, 'key')} and {trsread.counted(len(predictions.names), 'prediction')}" if n_keys else trsread.counted(len(predictions.names), "prediction")
    print(f"wrote {args.output}: {trsread.counted(predictions.n, 'row')} with {columns}{'; ' * bool(checked)}{checked}")


if __name__ == "__main__":
    trspython.run(main)
