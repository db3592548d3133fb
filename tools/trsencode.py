# SPDX-License-Identifier: BSD-3-Clause
"""Makes the dense features and ids of a dataset from the columns of a block, as the entries of a mapping say (input/FORMAT.md, "Mapping").

convert_table.py and trshard.Predictor.encode() call the same functions, so that a service cannot give other numbers than the training.
"""
import collections

import numpy as np

import trscolumns
import trsnumbers
from trscolumns import fail

EXACT = {2: 2.0**11, 4: 2.0**24, 8: 2.0**53}  # floats of so many bytes hold every integer below these bounds
BOOLEANS = {b"true": 1, b"false": 0}  # words of CSV, in upper or lower case, in columns of numbers; Parquet has a boolean type


class Values:
    """The values of one column of a block as numbers. missing: which values are null. lengths: the bags'.

    nulls      words of text that stand for a missing value, beside the empty one
    separator  between the ids of a cell if the column has bags, else None
    """

    def __init__(self, block, name, place, nulls=(), separator=None):
        column = block.columns[name]
        self.name, self.nulls, self.at = name, [str(word).encode() for word in nulls], block.place
        self.lengths, self.values, self.missing = column.lengths, column.values, column.missing
        if self.lengths is None and separator is not None:
            if isinstance(self.values, trscolumns.Text) and column.width == 1:
                self.blank_to_empty()
                self.lengths, self.values = self.values.split(ord(separator))
                self.missing = None
            else:
                self.lengths = np.full(block.rows, column.width, np.int64)
        elif self.lengths is None and column.width > 1:
            self.values = self.values[place::column.width]
            self.missing = None if self.missing is None else self.missing[place::column.width]
        self.missing = np.zeros(len(self.values), bool) if self.missing is None else self.missing.copy()
        if isinstance(self.values, trscolumns.Text):
            self.missing |= self.values.begin == self.values.end
            for word in self.nulls:
                self.missing |= self.values.equal(word)

    def blank_to_empty(self):
        """A cell that is one of --nulls has no ids."""
        for word in self.nulls:
            self.values.end = np.where(self.values.equal(word), self.values.begin, self.values.end)

    def place(self, value):
        """The place of a value, for messages."""
        row = value if self.lengths is None else int(np.searchsorted(np.cumsum(self.lengths), value, "right"))
        return f"{self.at(int(row))}, column {self.name}"

    def refuse(self, wrong, what):
        """Ends the program if a value is wrong. what: a function of the number of the first wrong value that gives the message."""
        if np.any(wrong):
            bad = int(np.argmax(wrong))
            fail(f"{self.place(bad)}: {what(bad)}")

    def shown(self, i):
        if isinstance(self.values, trscolumns.Text):
            return repr(self.values.bytes(i).decode("utf-8", "replace"))
        return self.values.shown(i) if isinstance(self.values, trscolumns.Exact) else str(self.values[i])

    def of_list(self, place, width):
        """One number of each list. All lists must have this many numbers; an empty list lacks all of them."""
        if self.lengths is None or width == 1 and np.any(self.lengths > 1):
            return self
        if isinstance(self.values, trscolumns.Exact):
            self.values = self.values.numbers
        empty = self.lengths == 0
        bad = int(np.argmax(~empty & (self.lengths != width)))
        if np.any(~empty & (self.lengths != width)):
            fail(f"{self.at(bad)}, column {self.name}: a list of {self.lengths[bad]} numbers, expected {width} as in the first row")
        values, missing = np.zeros(len(empty), np.asarray(self.values).dtype), np.ones(len(empty), bool)
        values[~empty], missing[~empty] = self.values[place::width], self.missing[place::width]
        self.values, self.missing, self.lengths = values, missing, None
        return self

    def scalar(self):
        if self.lengths is not None:
            fail(f"{self.at(0)}, column {self.name}: a list, expected one value")
        return self

    def unsigned(self, ids):
        """Mask of the ids that are negative only because they are the 64 bits of a positive number."""
        if isinstance(self.values, trscolumns.Exact):
            return self.values.large & ~self.missing
        if isinstance(self.values, trscolumns.Text):
            return (ids < 0) & (self.values.block[np.minimum(self.values.begin, len(self.values.block) - 1)] != trsnumbers.MINUS)
        return (ids < 0) & (self.values.dtype.kind == "u")

    def present(self):
        self.refuse(self.missing, lambda i: "a missing value")
        return self

    def floats(self):
        """float64, NaN if missing; other values are finite as float32."""
        values = self.values
        if isinstance(values, trscolumns.Text):
            matrix = np.where(self.missing[:, None], 0, values.matrix()).astype(np.uint8)
            matrix[self.missing, 0] = ord("0")
            self.refuse((matrix == ord("_")).any(axis=1), lambda i: f"{self.shown(i)} is not a number")
            words = np.ascontiguousarray(matrix).view(f"S{matrix.shape[1]}")[:, 0]
            try:
                values = words.astype(np.float64)
            except ValueError:
                words = [BOOLEANS.get(word.lower(), word) for word in words]
                self.refuse(np.array([not is_float(word) for word in words]), lambda i: f"{self.shown(i)} is not a number")
                values = np.array(words, np.float64)
            self.missing |= np.isnan(values)
        if isinstance(values, trscolumns.Exact):
            values = values.numbers
        values = np.where(self.missing, np.nan, values.astype(np.float64))
        self.refuse(np.abs(values) > np.finfo(np.float32).max, lambda i: f"{self.shown(i)} is not finite as float32")
        return values

    def hashes(self):
        """XXH64 of each text as int64, 0 if missing."""
        return np.where(self.missing, 0, trsnumbers.xxhash64(self.values.block, self.values.begin, self.values.end))

    def integers(self, kind, base=10, hint=None):
        """int64, 0 if missing. kind: text becomes its hash ("text"), the number that its digits mean ("integer"), or either ("any": as "text").
        hint: the end of the message about text that is not a number."""
        values = self.values
        if isinstance(values, trscolumns.Text):
            return self.digits(base, hint) if kind == "integer" else self.hashes()
        if kind == "text" and not self.missing.all():
            fail(f"{self.at(0)}, column {self.name}: numbers, expected text (--text)")
        if isinstance(values, trscolumns.Exact):
            self.refuse(values.wrong & ~self.missing, lambda i: f"{self.shown(i)} is not an integer of 64 bits")
            return np.where(self.missing, 0, values.integers)
        if values.dtype.kind == "f":
            bits, bound = 8 * values.dtype.itemsize, EXACT[min(8, values.dtype.itemsize)]
            values = np.where(self.missing, 0, values.astype(np.float64))
            self.refuse(values != np.floor(values), lambda i: f"{self.shown(i)} is not an integer")
            self.refuse(np.abs(values) >= bound, lambda i: f"{self.shown(i)}: float{bits} does not hold every integer from {bound:.0f} on, so the id may have "
                        "lost digits; write ids as integers")
        return np.where(self.missing, 0, values.astype(np.uint64).view(np.int64) if values.dtype.kind == "u" else values.astype(np.int64))

    def digits(self, base, hint):
        """Texts as integers of 64 bits, signed or not; 7.0 is read as 7."""
        block, begin, end = self.values.block, self.values.begin, np.where(self.missing, self.values.begin, self.values.end)
        if base == 10:  # pandas writes integers in this form if some are missing
            end = end - 2 * ((end - begin > 2) & (block[np.maximum(end - 2, 0)] == ord(".")) & (block[np.maximum(end - 1, 0)] == ord("0")))
        limit = 16 if base == 16 else 18
        long = (end - begin > limit) & (base == 10)
        hint = f" (--text {self.name} where it is text)" if hint is None else hint
        numbers, _ = trsnumbers.numbers_of(block, begin, np.where(long, begin, end), base, self.place, limit, hint)
        text = trscolumns.Text(block, begin, end)
        for i in np.flatnonzero(long):
            word = text.bytes(i)
            number = int(word) if word.removeprefix(b"-").isdigit() and len(word) <= 20 else 2**64
            if not -2**63 <= number < 2**64:
                self.refuse(np.arange(len(long)) == i, lambda i: f"{self.shown(i)} is not an integer of 64 bits{hint}")
            numbers[i] = number - 2**64 if number >= 2**63 else number
        return numbers


def is_float(word):
    try:
        float(word)
    except ValueError:
        return False
    return True


class Vocabulary:
    """The ids of known values: 1 plus a value's place in the list; 0 for all others. Words are looked up by their XXH64."""

    def __init__(self, values, kind):
        if kind == "integer":
            keys = np.array(values, np.int64)
        else:
            words = [bytes.fromhex(word["hex"]) if isinstance(word, dict) else word.encode() for word in values]
            ends = np.cumsum([len(word) for word in words], dtype=np.int64)
            keys = trsnumbers.xxhash64(np.frombuffer(b"".join(words) or b"\0", np.uint8), np.concatenate([[0], ends[:-1]]).astype(np.int64), ends)
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]

    def ids(self, keys):
        """The id of each number or hash."""
        if not len(self.keys):
            return np.zeros(len(keys), np.int64)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.order[place] + 1, 0)


def dense_of(block, entry, nulls=()):
    """(float32 [rows], number of missing values) of a dense feature."""
    value = Values(block, entry["column"], entry["place"], nulls).of_list(entry["place"], entry["width"]).scalar()
    numbers = value.floats()
    if entry["missing"] == "refuse":
        value.present()
    if entry["log1p"]:
        numbers = np.log1p(np.maximum(numbers, 0))
    missing = int(value.missing.sum())
    return np.where(value.missing, entry["missing"], numbers).astype(np.float32) if missing else numbers.astype(np.float32), missing


# The ids of a sparse feature: lengths [rows]; values and weights (or None) of all rows; hashes of the present texts before ROWS, or None; the number
# of ids of 2^63 and above that keep their bits; the number of unknown ids.
Ids = collections.namedtuple("Ids", "lengths values weights hashes large unknown")


def ids_of(block, entry, nulls=(), vocabulary=None):
    """The Ids of a sparse feature. vocabulary: the entry's, or None."""
    value = Values(block, entry["column"], entry["place"], nulls, entry["separator"] if entry["bag"] else None)
    ids = value.integers(entry["kind"], entry["base"])
    rows, unknown = entry["rows"], 0
    hashed = isinstance(value.values, trscolumns.Text) and entry["kind"] != "integer"
    hashes = ids if hashed else None
    unsigned = value.unsigned(ids) & ~np.bool_(hashed)
    if vocabulary is not None:
        ids = np.where(value.missing, 0, vocabulary.ids(ids))
        unknown = int((~value.missing & (ids == 0)).sum())
    elif rows and (entry["modulo"] or hashed):
        ids = np.where(unsigned, (ids.view(np.uint64) % np.uint64(rows)).view(np.int64), ids % rows)
    elif rows:
        outside = ((ids < -1) | (ids >= rows) | unsigned) & ~value.missing
        if entry["unknown"] is not None:
            ids, unknown, outside = np.where(outside, entry["unknown"], ids), int(outside.sum()), False
        value.refuse(outside, lambda i: f"id {int(ids[i]) + 2**64 * int(unsigned[i])}, expected -1 to {rows - 1} (or --modulo, --sparse-unknown)")
    weights = weights_of(block, entry, nulls, value) if entry["weights"] else None
    lengths, keep = value.lengths, ~value.missing
    if lengths is None and entry["missing"] != "empty":
        ids, keep = np.where(value.missing, entry["missing"], ids), np.ones(len(ids), bool)
        lengths = np.ones(block.rows, np.int64)
    elif lengths is None:
        lengths = keep.astype(np.int64)
    elif not keep.all():
        lengths = np.bincount(np.repeat(np.arange(block.rows), lengths)[keep], minlength=block.rows)
    hashes = hashes[~value.missing] if hashed else None
    return Ids(lengths, ids[keep], None if weights is None else weights[keep], hashes, 0 if rows else int(unsigned.sum()), unknown)


def weights_of(block, entry, nulls, ids):
    """A weight for each id, also for missing ids."""
    value = Values(block, entry["weights"], entry["place"], nulls, entry["separator"] if entry["bag"] else None)
    numbers = value.floats()
    if (value.lengths is None) != (ids.lengths is None) or len(numbers) != len(ids.values) or (ids.lengths is not None and np.any(value.lengths != ids.lengths)):
        row = 0 if value.lengths is None or ids.lengths is None else int(np.argmax(value.lengths != ids.lengths))
        fail(f"{block.place(row)}: the columns {entry['column']} and {entry['weights']} have bags of different lengths")
    value.refuse(np.isnan(numbers) & ~ids.missing, lambda i: "a missing value")
    return np.where(np.isnan(numbers), 1, numbers).astype(np.float32)
