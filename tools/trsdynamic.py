# SPDX-License-Identifier: BSD-3-Clause
"""Makes tables that grow (id_map dynamic) from tables of other kinds, whose ids are in a list or, for id_map zch, in the checkpoint.

The new table has a row for each id, in the order of the old rows, and behind row 0 of its bucket, which ids without a row share. This row is
that of the old zch bucket, or zeros. A row of several ids is copied for each. Rows without an id are left out.
"""
import os
import re

import h5py
import numpy as np

import trsdata
import trsids
import trsoptions
from trsformats import FormatError, NoModule, NUMPY, Tensor, strips

ROWS = "rows"  # in the place of a file: the ids are the rows' numbers
MOST_TIME, MOST_COUNT, MOST_ROWS = (1 << 32) - 2, (1 << 32) - 1, (1 << 32) - 2  # of a bucket


# --- lists of ids ---


def _as_ids(where, numbers):
    """Integers of one dimension as int64, uint64 bit for bit."""
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise FormatError(f"{where} is {numbers.dtype} {list(numbers.shape)}, expected one dimension of integers")
    return numbers.astype(np.uint64).view(np.int64) if numbers.dtype.kind == "u" else numbers.astype(np.int64)


def _of_text(path):
    found = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            word = line.strip()
            if not re.fullmatch(rb"[+-]?\d{1,20}", word) or not -(1 << 63) <= int(word) < 1 << 64:
                raise FormatError(f"{path}, line {number}: {word[:40].decode('utf-8', 'replace')!r} is not an id, expected an integer of 64 bits")
            found.append(int(word) - (1 << 64) if int(word) >> 63 > 0 else int(word))
    return np.array(found, np.int64)


def _of_dataset(path, handle, features):
    """The distinct ids that a trshard dataset has of these features."""
    names = [trsdata.text(name) for name in handle["sparse"].attrs["features"]]
    for name in features:
        if name not in names:
            raise FormatError(f"{path} has no feature {name}")
    wanted, found = np.isin(names, features), np.zeros(0, np.int64)
    for _, _, _, lengths, values, _ in trsdata.samples_of(handle):
        of_ids = np.repeat(np.tile(wanted, len(lengths)), lengths.astype(np.int64).reshape(-1))
        found = np.union1d(found, _as_ids(f"{path}: /sparse/values", values[of_ids]))
    return found


def _of_hdf5(path, name, features):
    with trsdata.opened(path) as handle:
        if not name and trsdata.text(handle.attrs.get("format", "")) == "trshard-dataset":
            return _of_dataset(path, handle, features)
        names = [name] if name else []
        if not name:
            handle.visititems(lambda key, item: names.append(key) if isinstance(item, h5py.Dataset) else None)
        if len(names) != 1 or not isinstance(handle.get(names[0]), h5py.Dataset):
            raise FormatError(f"{path} " + (f"has no dataset {name}" if name else f"has {len(names)} datasets, expected one: FILE:NAME says which"))
        return _as_ids(f"{path}: /{names[0]}", handle[names[0]][()])


def _of_parquet(path, name):
    try:
        import pyarrow.lib
        import pyarrow.parquet
    except ImportError:
        raise NoModule("Parquet needs pyarrow: python3 -m pip install pyarrow, or TRSHARD_PYTHON=<a python3 that has pyarrow, h5py and numpy>") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = [name] if name else file.schema_arrow.names
            if len(names) != 1 or names[0] not in file.schema_arrow.names:
                raise FormatError(f"{path} has the columns {', '.join(file.schema_arrow.names)}: FILE:NAME says which one has the ids")
            column = file.read(names).column(0)
    except pyarrow.lib.ArrowException as error:
        raise FormatError(f"{path}: {str(error).splitlines()[0]}") from None
    if column.null_count:
        raise FormatError(f"{path}: column {names[0]} has {column.null_count} ids that are missing")
    return _as_ids(f"{path}: column {names[0]}", column.to_numpy())


def _of_npy(path):
    try:
        return _as_ids(path, np.load(path, allow_pickle=False))
    except (ValueError, EOFError, AttributeError) as error:
        raise FormatError(f"{path}: {str(error).splitlines()[0]}") from None


def read_ids(source, features):
    """The ids of FILE or FILE:NAME, by its ending. features: of the table, for a dataset of trshard."""
    path, name = source, ""
    if not os.path.exists(path) and ":" in path:
        path, _, name = path.rpartition(":")
    ending = os.path.splitext(path)[1].lower()
    if ending in (".h5", ".hdf5"):
        return _of_hdf5(path, name.strip("/"), features)
    if ending in (".parquet", ".pq"):
        return _of_parquet(path, name)
    return _of_npy(path) if ending == ".npy" else _of_text(path)


# --- which old row a new row is ---


class Growing:
    """A table's new rows: row[n] of the old table (-1: zeros), id, last and count [n], begin[buckets + 1]. notes: what the user should know."""

    def __init__(self, rows):
        self.rows, self.notes = rows, []

    def of_ids(self, ids, row, time):
        """Each id has a row of the old table."""
        order = np.argsort(row, kind="stable")
        self._set(1, [order], ids, row, np.full(len(ids), time), np.ones(len(ids), np.int64), [-1], time)
        copied = len(ids) - len(np.unique(row))
        if copied:
            self.notes.append(f"{copied:,} of {len(ids):,} ids share a row with an earlier id, and each got a copy of it")

    def of_zch(self, old):
        """The ids of a Directory. Its buckets stay if a hash chose them: then an id without a row has the same row as before."""
        bucket = trsids.bucket_of(old.id, old.buckets, 0) if not old.block else np.zeros(len(old.id), np.int64)
        n = 1 if old.block else old.buckets
        if not old.block and not np.array_equal(bucket, old.row // (self.rows // old.buckets)):
            n, bucket = 1, np.zeros(len(old.id), np.int64)  # the hash did not choose the buckets
        orders = [np.flatnonzero(bucket == b)[np.argsort(old.row[bucket == b], kind="stable")] for b in range(n)]
        time = min(max(old.time, int(old.last.max(initial=1)), 1), MOST_TIME)
        self._set(n, orders, old.id, old.row, np.clip(old.last, 1, time), np.clip(old.count, 1, MOST_COUNT), old.unknown[:n], time)
        if n < old.buckets:
            self.notes.append(f"{old.buckets} buckets become one; ids without a row get that of the first bucket")

    def _set(self, n, orders, ids, row, last, count, unknown, time):
        joined = lambda first, values: np.concatenate([part for b in range(n) for part in ([first[b]], values[orders[b]])]).astype(np.int64)
        self.buckets, self.time, zeros = n, time, [0] * n
        self.id, self.row, self.last, self.count = joined(zeros, ids), joined(unknown, row), joined(zeros, last), joined(zeros, count)
        self.used = np.array([len(order) + 1 for order in orders], np.int64)
        self.unused = self.rows - len(np.unique(self.row[self.row >= 0]))

    def cap(self):
        """At least as many rows as before, and room for the fullest bucket."""
        return self.buckets * max(-(-self.rows // self.buckets), int(self.used.max()), 2)

    def directory(self, table):
        folder = f"embedding/{table}/dynamic"
        zeros = np.zeros(self.buckets, np.int64)
        return {f"{folder}/buckets": trsids.constant(np.stack([self.used, zeros + self.time, zeros], 1)),
                f"{folder}/ids": trsids.constant(np.stack([self.id, self.last, self.count], 1))}

    def gathered(self, item, tensor):
        """The new rows of a tensor of the old rows. item: its dataset. Reads forward, but for the rows of ids without one."""
        def blocks():
            for first, n in strips((len(self.row), *tensor.shape[1:]), tensor.dtype):
                row = self.row[first:first + n]
                there = np.flatnonzero(row >= 0)
                out = np.zeros((n, *tensor.shape[1:]), NUMPY[tensor.dtype])
                there = there[np.argsort(row[there], kind="stable")]
                for a, m in _runs(row[there], tensor):
                    at = there[a:a + m]
                    begin = row[at[0]]
                    out[at] = item[begin:row[at[-1]] + 1].astype(NUMPY[tensor.dtype], copy=False)[row[at] - begin]
                yield out
        return Tensor(tensor.dtype, (len(self.row), *tensor.shape[1:]), blocks)


def _runs(wanted, tensor):
    """(first, number) of pieces of ascending row numbers that are read at once: close together, and few bytes."""
    bytes_of_row = max(1, tensor.bytes // max(1, tensor.shape[0]))
    at_once = max(1, (4 << 20) // bytes_of_row)
    first = 0
    for i in range(1, len(wanted) + 1):
        if i == len(wanted) or wanted[i] - wanted[i - 1] > 64 or wanted[i] - wanted[first] >= at_once:
            yield first, i - first
            first = i


# --- the tables of a checkpoint ---


def _row_of_id(checkpoint, table, keys, ids, source):
    """Each id's row, for a table of id_map none, modulo or hash. Returns the ids, each once, and their rows."""
    rows, kind = checkpoint.tensors[f"embedding/{table}/weight"].shape[0], keys("id_map", "none")
    if kind == "none":
        if len(ids) > rows:
            raise FormatError(f"{source} has {len(ids):,} ids, but table {table} has {rows:,} rows: line i has the id of row i")
        found, first, number = np.unique(ids, return_index=True, return_counts=True)
        if number.max(initial=1) > 1:
            double = found[number > 1][0]
            at = np.flatnonzero(ids == double)[:2] + 1
            raise FormatError(f"{source}: id {double} is there twice, in lines {at[0]} and {at[1]}: line i has the id of row i of table {table}")
        return ids, np.arange(len(ids))
    ids = ids[np.sort(np.unique(ids, return_index=True)[1])]
    if kind == "hash":
        return ids, (trsids.hashed(ids) % np.uint64(rows)).astype(np.int64)
    if kind == "modulo":
        unsigned = keys("id_unsigned", "false") == "true"
        return ids, (ids.view(np.uint64) % np.uint64(rows)).astype(np.int64) if unsigned else ids % rows
    raise FormatError(f"{checkpoint.path}: table {table} has id_map {kind}, whose rows are not of single ids: it cannot become dynamic")


def growing(checkpoint, table, source):
    """The Growing of a table. source: FILE, ROWS, or None for a table of id_map zch."""
    keys = trsids.Keys(checkpoint.attributes, table)
    new = Growing(checkpoint.tensors[f"embedding/{table}/weight"].shape[0])
    if source is None:
        new.of_zch(trsids.directory(checkpoint.path, table, checkpoint.tensors, checkpoint.attributes))
    else:
        ids = np.arange(new.rows) if source == ROWS else read_ids(source, trsoptions.entries(keys("features", table)))
        time = min(max(int(checkpoint.attributes.get("step", 1)), 1), MOST_TIME)
        new.of_ids(*_row_of_id(checkpoint, table, keys, ids, source), time)
    if new.used.max() > MOST_ROWS:
        raise FormatError(f"{checkpoint.path}: table {table} would have {new.used.max():,} rows, at most {MOST_ROWS:,} are possible")
    if new.unused:
        new.notes.append(f"{new.unused:,} of {new.rows:,} rows have no id and are left out")
    return new


def with_dynamic(text, table, new):
    """The options of a model in which the table has become dynamic."""
    name = f"-table_{table}_"
    gone = re.compile(re.escape(name) + r"(id_map|id_unsigned|num_embeddings|(zch|dynamic|qr)_.+)")
    lines = [line for line in text.splitlines() if not any(gone.fullmatch(found) for found, *_ in trsoptions.options(line))]
    cap = new.cap()
    values = {"id_map": "dynamic", "num_embeddings": cap, "dynamic_cap": cap, "dynamic_buckets": new.buckets}
    return "\n".join(lines + [f"{trsoptions.word(name + key)} {value}" for key, value in values.items()]) + "\n"


def _of_rows(path, table):
    """True for the tensors that have a row for each row of the table."""
    return path.startswith(f"embedding/{table}/") and "/" not in path[len(f"embedding/{table}/"):]


def tables_of(checkpoint, sources):
    """The tables to convert. sources: {table: FILE or ROWS}. Raises ValueError for options that do not fit."""
    kinds, found = trsids.kinds(checkpoint.tensors), {}
    weights = set(checkpoint.table_names)
    for table, source in sources.items():
        if table not in weights:
            raise ValueError(f"--ids {table}: there is no such table, the tables are {', '.join(sorted(weights))}")
        if table in kinds:
            raise ValueError(f"--ids {table}: the table has its ids in the checkpoint ({kinds[table]})")
        found[table] = source
    found.update((table, None) for table, kind in kinds.items() if kind == "zch")
    if not found:
        raise ValueError("--ids TABLE=FILE is missing: no table has id_map zch, whose ids are in the checkpoint")
    return found


def convert(checkpoint, sources, note):
    """(tensors by path, attributes) of a checkpoint in which these tables are dynamic. note(text) is called with what the user should know."""
    tensors, attributes = dict(checkpoint.tensors), dict(checkpoint.attributes)
    for table, source in tables_of(checkpoint, sources).items():
        new = growing(checkpoint, table, source)
        for text in new.notes:
            note(f"table {table}: {text}")
        for path in [path for path in tensors if trsids.part(path) and trsids.part(path)[0] == table]:
            del tensors[path]
        for path in [path for path in tensors if _of_rows(path, table)]:
            tensors[path] = new.gathered(checkpoint.file[path], tensors[path])
        tensors.update(new.directory(table))
        if isinstance(attributes.get("model"), str):
            attributes["model"] = with_dynamic(attributes["model"], table, new)
    return tensors, {name: value for name, value in attributes.items() if name not in ("format", "version")}
