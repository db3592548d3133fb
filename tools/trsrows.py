# SPDX-License-Identifier: BSD-3-Clause
"""Raw rows of a service as a block of columns: dictionaries, a DataFrame of pandas, a Table of pyarrow, or a structured array of numpy.

encode() makes the dense features and ids of a model from them, with the functions of the converters. It needs numpy only.
"""
import datetime
import decimal
import uuid

import numpy as np

import trsencode
from trscolumns import Block, Column, Refused, Text, array_column, arrow_column, arrow_inner, exact_integers, fail

NUMPY_UNITS = {"day": "D"}  # other units have the same name in numpy
PYARROW_UNITS = ("s", "ms", "us", "ns")


# --- columns ---


def is_missing(value):
    """True for None, NaN, NaT and pandas.NA."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except decimal.InvalidOperation:  # a comparison with sNaN
        return False
    except TypeError:  # pandas.NA is neither true nor false
        return True


def is_list(value):
    return isinstance(value, (list, tuple)) or isinstance(value, np.ndarray) and value.ndim > 0


def text_column(words):
    """A Column of bytes; None is missing."""
    pieces = [word or b"" for word in words]
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64) if pieces else np.zeros(0, np.int64)
    begins = np.concatenate([[0], ends[:-1]]).astype(np.int64) if pieces else ends
    return Column(Text(np.frombuffer(b"".join(pieces) or b"\0", np.uint8), begins, ends), np.array([word is None for word in words], bool))


def not_utf8(where, word):
    """Refuse text with half of a surrogate pair."""
    fail(f"{where}: {word!r} is not text that UTF-8 can hold")


def word_of(value, where):
    """Text as bytes, as a text file would hold it; None if the value is not text."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            not_utf8(where, value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return str(value).encode() if isinstance(value, uuid.UUID) else None


def times_of(value, unit, where):
    """A time, and numpy's type of times in this unit."""
    if hasattr(value, "to_numpy"):  # of pandas, whose nanoseconds Python's types lack
        value = value.to_numpy()
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(datetime.date(1970, 1, 1), value)
    if not unit:
        fail(f"{where}: times, but the mapping has no unit for them")
    return value, f"{'timedelta' if isinstance(value, (datetime.timedelta, np.timedelta64)) else 'datetime'}64[{NUMPY_UNITS.get(unit, unit)}]"


def whole_or_float(value, where):
    """A number as an integer if it is one. A Decimal must be finite."""
    if isinstance(value, decimal.Decimal) and not value.is_finite():
        fail(f"{where}: {value} is not a finite number")
    value = decimal.Decimal(value)
    return int(value) if value.adjusted() < 64 and value == value.to_integral_value() else float(value)  # 1e999999 has a million digits


def numbers_of_list(values, unit, where):
    """A Column of Python's numbers or times; None is missing."""
    missing = np.array([is_missing(value) for value in values], bool)
    present = [value for value in values if not is_missing(value)]
    try:
        if present and isinstance(present[0], (datetime.date, datetime.time, datetime.timedelta)):
            pairs = [times_of(value, unit, where) for value in present]
            present = [int(np.array(value, kind).astype(np.int64)) for value, kind in pairs]
        if any(isinstance(value, decimal.Decimal) for value in present):
            present = [whole_or_float(value, where) for value in present]
        integers = [value for value in present if type(value) is int]
        least, most = min(integers, default=0), max(integers, default=0)
        whole = len(integers) == len(present)
        if whole and (least < -2**63 or most >= 2**64 or least < 0 and most >= 2**63):
            filled = np.zeros(len(values), object)
            filled[~missing] = integers
            return Column(exact_integers(filled.tolist()), missing)
        if not whole and (least < -2**63 or most >= 2**63):
            present = [float(value) if type(value) is int else value for value in present]
        array = np.array(present, np.uint64 if whole and most >= 2**63 else None) if present else np.zeros(0, np.int64)
        if array.dtype.kind not in "biufmM" or array.ndim != 1:
            fail(f"{where}: {present[0]!r} and others, expected text, numbers, or lists of them")
    except Refused:
        raise
    except (OverflowError, TypeError, ValueError) as problem:
        fail(f"{where}: {problem}")
    out = np.zeros(len(values), array.dtype)
    out[~missing] = array
    return of_array(out, unit, where, missing)


def of_array(values, unit, where, missing=None):
    """A Column of an array of one or two dimensions."""
    width = values.shape[1] if values.ndim == 2 else 1
    values = np.ascontiguousarray(values).reshape(-1)
    if values.dtype.kind in "mM":
        if not unit:
            fail(f"{where}: times, but the mapping has no unit for them")
        nat = np.isnat(values)
        missing = nat if missing is None else missing | nat
        kind = "timedelta64" if values.dtype.kind == "m" else "datetime64"
        return Column(np.where(nat, 0, values.astype(f"{kind}[{NUMPY_UNITS.get(unit, unit)}]").astype(np.int64)), missing, width=width)
    if values.dtype.kind == "b":
        values = values.astype(np.uint8)
    if values.dtype.kind == "O":
        return of_values(list(values), unit, where, width)
    if values.dtype.kind not in "iufSU":
        fail(f"{where}: {values.dtype}, expected numbers or text")
    try:
        column = array_column(values, width)
    except UnicodeEncodeError as problem:
        not_utf8(where, str(problem.object))
    if missing is not None and missing.any():
        column.missing = missing if column.missing is None else column.missing | missing
    return column


def of_values(values, unit, where, width=1):
    """A Column of a list of Python's values, which may be lists."""
    if any(is_list(value) for value in values):
        lists = [[] if not is_list(value) and is_missing(value) else list(value) if is_list(value) else [value] for value in values]
        inner = of_values([value for found in lists for value in found], unit, where)
        lengths = np.array([len(found) for found in lists], np.int64)
        if inner.lengths is not None:
            fail(f"{where}: lists of lists are not taken")
        return Column(inner.values, inner.missing, lengths)
    words = [None if is_missing(value) else word_of(value, where) for value in values]
    if any(word is not None for word in words):
        for value, word in zip(values, words):
            if word is None and not is_missing(value):
                fail(f"{where}: text and {value!r}, expected values of one kind")
        column = text_column(words)
    else:
        column = numbers_of_list([value.item() if isinstance(value, np.generic) and value.dtype.kind not in "mM" else value for value in values], unit, where)
    column.width = width
    return column


def of_pandas(series, unit, where):
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufmM":
        return of_array(series.to_numpy(), unit, where)
    return of_values(series.astype(object).tolist(), unit, where)


def in_unit(array, unit):
    """Times of pyarrow as integers of this unit. A finer unit is rounded down, as numpy does; a cast of pyarrow rounds toward 0."""
    import pyarrow
    steps = 1000 ** (PYARROW_UNITS.index(array.type.unit) - PYARROW_UNITS.index(unit))
    if steps < 1:
        return array.cast(pyarrow.timestamp(unit, array.type.tz) if pyarrow.types.is_timestamp(array.type) else pyarrow.duration(unit))
    numbers = array.cast(pyarrow.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pyarrow.array(numbers // steps, pyarrow.int64(), mask=array.is_null().to_numpy(zero_copy_only=False))


def of_arrow(chunks, unit, where):
    import pyarrow
    import pyarrow.types as types
    array = chunks.combine_chunks() if isinstance(chunks, pyarrow.ChunkedArray) else chunks
    if isinstance(array, pyarrow.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pyarrow.array([], array.type)
    try:
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        kind = arrow_inner(pyarrow, array.type)
        if types.is_temporal(kind):
            if not unit:
                fail(f"{where}: {array.type}, but the mapping has no unit for times")
            if (types.is_timestamp(array.type) or types.is_duration(array.type)) and unit in PYARROW_UNITS:
                array = in_unit(array, unit)
            elif f"[{unit}" not in str(kind):
                fail(f"{where}: {array.type}, expected times in units of {unit}")
        return arrow_column(pyarrow, array)
    except (TypeError, pyarrow.ArrowException) as problem:
        return fail(f"{where}: {problem}")


def size_of(name, column):
    """The number of values of a column. Refuse text, whose letters are no values, and objects that have no length or no order."""
    wanted = "expected a list or an array with a value for each row"
    if isinstance(column, np.ndarray) and column.ndim == 0:
        fail(f"column {name} is one value, {wanted}")
    if isinstance(column, (str, bytes, bytearray, dict, set, frozenset)) or not hasattr(column, "__len__"):
        fail(f"column {name} is of type {type(column).__name__}, {wanted}")
    return len(column)


class Rows:
    """Raw rows: their number, and column(name, unit), a Column or None if the rows lack it."""

    def __init__(self, rows):
        kind = type(rows).__module__.partition(".")[0]
        if kind == "pyarrow" and hasattr(rows, "column_names"):
            self.rows, self.names, self.get = rows.num_rows, rows.column_names, lambda name, *at: of_arrow(rows.column(name), *at)
        elif kind == "pandas" and hasattr(rows, "columns"):
            self.rows, self.names, self.get = len(rows), list(rows.columns), lambda name, *at: of_pandas(rows[name], *at)
        elif isinstance(rows, np.ndarray) and rows.dtype.names:
            rows = rows.reshape(-1)
            self.rows, self.names, self.get = len(rows), rows.dtype.names, lambda name, *at: of_array(rows[name].reshape(len(rows), -1) if rows[name].ndim > 1 else rows[name], *at)
        elif isinstance(rows, dict):
            self._of_columns(rows)
        elif isinstance(rows, (list, tuple)) and all(isinstance(row, dict) for row in rows):
            names = list(dict.fromkeys(name for row in rows for name in row))
            self.rows, self.names = len(rows), names
            self.get = lambda name, *at: of_values([row.get(name) for row in rows], *at)
        else:
            fail(f"rows are a {type(rows).__name__}, expected a dictionary of columns, a list of dictionaries, a pandas.DataFrame, a pyarrow.Table or a structured array")

    def _of_columns(self, columns):
        sizes = {name: size_of(name, column) for name, column in columns.items()}
        self.rows, self.names = next(iter(sizes.values()), 0), list(columns)
        for name, size in sizes.items():
            if size != self.rows:
                fail(f"column {name} has {size} values, expected {self.rows} as column {self.names[0]}")

        def get(name, unit, where):
            column = columns[name]
            if isinstance(column, np.ndarray) and column.dtype.kind != "O" and column.ndim in (1, 2):
                return of_array(column, unit, where)
            return of_values(list(column), unit, where)

        self.get = get


# --- the encoder ---


def with_width(column, entry, where):
    """The column with `width` values for each row, if a row of the table has this many and the column is one of lists."""
    width = entry["width"]
    if column.lengths is None or width == 1 or entry.get("bag"):
        return column
    if np.any(column.lengths != width) and "kind" in entry:
        fail(f"{where}: a list of {int(column.lengths[np.argmax(column.lengths != width)])} values, expected {width}")
    return Column(column.values, column.missing, width=width) if np.all(column.lengths == width) else column


class Encoder:
    """Encodes raw rows for a model.

    mapping     a trsmapping.Mapping
    dense       names of the model's dense features, in order
    features    names of its sparse features, in order
    """

    def __init__(self, mapping, dense, features):
        self.mapping = mapping
        named = {entry["name"]: entry for entry in mapping.dense}
        self.dense = [self._entry(named.get(name), f"dense feature {name}") for name in dense]
        self.sparse = [self._entry(mapping.entry(name), f"feature {name}") for name in features]
        for entry in self.sparse:
            if isinstance(entry.get("vocabulary"), dict):
                fail(f"{mapping.path} has no words of feature {entry['name']}, only a digest of them")
            mapping.vocabulary(entry["name"])

    def _entry(self, entry, what):
        if entry is None or entry["column"] is None:
            fail(f"{self.mapping.path} does not say how {what} comes from a column")
        return entry

    def _block(self, rows):
        """The Block of all columns that the model needs."""
        found, columns = Rows(rows), {}
        for entry in self.dense + self.sparse:
            for name in filter(None, (entry["column"], entry.get("weights"))):
                if name not in columns:
                    columns[name] = with_width(self._column(found, name, entry), entry, f"column {name}")
        return Block(found.rows, columns, lambda row: f"row {row}")

    def _column(self, found, name, entry):
        if found.names.count(name) > 1:
            fail(f"the rows have column {name} twice")
        if name in found.names:
            return found.get(name, entry["unit"], f"column {name}")
        if name not in self.mapping.absent:
            fail(f"the rows have no column {name}")
        word = self.mapping.absent[name]
        return text_column([None if word is None else str(word).encode()] * found.rows)

    def encode(self, rows):
        """(lengths int32 [features, rows], values int64, weights float32 or None, dense float32 [rows, dense features] or None) of raw rows."""
        block = self._block(rows)
        dense = [trsencode.dense_of(block, entry, self.mapping.nulls)[0] for entry in self.dense]
        parts = [trsencode.ids_of(block, entry, self.mapping.nulls, self.mapping.vocabulary(entry["name"])) for entry in self.sparse]
        lengths = np.array([part.lengths for part in parts], np.int32).reshape(len(parts), block.rows)
        values = np.concatenate([part.values for part in parts]).astype(np.int64) if parts else np.zeros(0, np.int64)
        weights = None
        if any(entry["weights"] for entry in self.sparse):
            weights = np.concatenate([np.ones(len(part.values), np.float32) if part.weights is None else part.weights for part in parts])
        return lengths, values, weights, np.stack(dense, axis=1) if dense else None
