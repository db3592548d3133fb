# SPDX-License-Identifier: BSD-3-Clause
"""Columns of a block of rows, from arrays of numpy and pyarrow: numbers, text and lists of them.

convert_table.py reads them from files, and trshard.Predictor.encode() gets them from a service. So this module, trsnumbers.py and
trsencode.py need only numpy, and raise Refused where a tool would end.
"""
import re
import uuid

import numpy as np

UNITS = ("s", "ms", "us", "ns", "day")  # of times


class Refused(ValueError):
    """An input that is refused. code: the exit status of a tool."""

    def __init__(self, message, code=65):
        super().__init__(message)
        self.code = code


def fail(message, code=65):
    raise Refused(message, code)


def unit_of(kind):
    """The unit of a type of times of pyarrow, such as timestamp[us, tz=UTC]."""
    found = re.search(r"\[(\w+)", kind)
    return found[1] if found else None


class Text:
    """Texts as parts of one block of bytes."""

    def __init__(self, block, begin, end):
        self.block, self.begin, self.end = block, begin, end

    def __len__(self):
        return len(self.begin)

    def __getitem__(self, which):
        return Text(self.block, self.begin[which], self.end[which])

    def bytes(self, i):
        return bytes(self.block[self.begin[i]:self.end[i]])

    def equal(self, word):
        """Mask of the texts that equal this word."""
        same = self.end - self.begin == len(word)
        for i, byte in enumerate(word):
            same &= self.block[np.minimum(self.begin + i, len(self.block) - 1)] == byte
        return same

    def matrix(self):
        """uint8 [n, longest], padded with zeros."""
        longest = max(1, int((self.end - self.begin).max(initial=0)))
        places = self.begin[:, None] + np.arange(longest)
        return np.where(places < self.end[:, None], self.block[np.minimum(places, len(self.block) - 1)], 0).astype(np.uint8)

    def split(self, separator):
        """(lengths [n], Text of the pieces between the separators); an empty text has no piece."""
        places = np.flatnonzero(self.block == separator)
        first = np.searchsorted(places, self.begin)
        count = np.where(self.end > self.begin, np.searchsorted(places, self.end) - first + 1, 0)
        row = np.repeat(np.arange(len(self)), count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        places = np.append(places, 0)  # for indices that np.where computes and does not use
        last = len(places) - 1
        begin = np.where(within == 0, self.begin[row], places[np.clip(first[row] + within - 1, 0, last)] + 1)
        end = np.where(within == count[row] - 1, self.end[row], places[np.minimum(first[row] + within, last)])
        return count, Text(self.block, begin, end)


class Exact:
    """Numbers for which numpy has no type: as float64 for dense features, and exactly for ids.

    integers  int64 [n], the 64 bits of each number
    large     which numbers are 2^63 or more
    wrong     which numbers are not integers of 64 bits
    numbers   float64 [n]
    """

    def __init__(self, integers, large, wrong, numbers):
        self.integers, self.large, self.wrong, self.numbers = integers, large, wrong, numbers

    def __len__(self):
        return len(self.integers)

    def __getitem__(self, which):
        return Exact(self.integers[which], self.large[which], self.wrong[which], self.numbers[which])

    def shown(self, i):
        return str(self.numbers[i] if self.wrong[i] else int(self.integers[i]) + 2**64 * int(self.large[i]))


def exact_integers(numbers):
    """Integers of Python as Exact."""
    integers = np.array([number % 2**64 for number in numbers], np.uint64).view(np.int64)
    wrong = np.array([not -2**63 <= number < 2**64 for number in numbers], bool)
    return Exact(integers, np.array([number >= 2**63 for number in numbers], bool), wrong, np.array([float(number) for number in numbers]))


class Decimals(Exact):
    """Decimal numbers of Parquet."""

    def __init__(self, arrow, array):
        self.array = array
        if array.type.scale == 0:
            self.integers, self.large, self.wrong = self._whole()
        else:
            numbers = [0 if number is None else number for number in array.to_pylist()]
            self.wrong = np.array([number != int(number) or not -2**63 <= number < 2**64 for number in numbers], bool)
            kept = [0 if bad else int(number) for number, bad in zip(numbers, self.wrong)]
            self.integers = np.array([number % 2**64 for number in kept], np.uint64).view(np.int64)
            self.large = np.array([number >= 2**63 for number in kept], bool)
        self.numbers = array.cast(arrow.float64()).fill_null(0).to_numpy(zero_copy_only=False)

    def _whole(self):
        """The integers of a type without decimal places, from their two's complement."""
        width = self.array.type.bit_width // 8
        data = self.array.buffers()[1]
        data = np.frombuffer(data, np.uint8)[self.array.offset * width:][:len(self.array) * width] if data is not None else np.zeros(0, np.uint8)
        if width <= 8:
            words = data.view(f"<i{width}").astype(np.int64)
            none = np.zeros(len(words), bool)
            return words, none, none
        words = data.view("<u8").reshape(len(self.array), width // 8)
        low, high = words[:, 0], words[:, 1:]
        large = low >= np.uint64(2**63)
        negative = (high == np.uint64(2**64 - 1)).all(axis=1) & large
        present = ~self.array.is_null().to_numpy(zero_copy_only=False)
        wrong = ~((high == 0).all(axis=1) | negative) & present  # nulls may have any bits
        return low.copy().view(np.int64), large & ~negative, wrong

    def shown(self, i):
        return str(self.array[i].as_py())


class Column:
    """A column's part of a block.

    values   an array of numbers, Text or Exact; for an array with several columns row by row
    missing  which values are null, or None
    lengths  of the bag of each row, for columns of lists; else None
    width    values per row, if there are no lengths
    """

    def __init__(self, values, missing=None, lengths=None, width=1):
        self.values, self.missing, self.lengths, self.width = values, missing, lengths, width


class Block:
    """Rows of a table: columns by their names, and place(row), which gives a row's place for messages."""

    def __init__(self, rows, columns, place):
        self.rows, self.columns, self.place = rows, columns, place


def array_column(values, width):
    """Rows of an array as a Column."""
    values = np.ascontiguousarray(values).reshape(-1)
    if values.dtype.kind == "U":
        values = np.char.encode(values, "utf-8")
    if values.dtype.kind != "S":
        return Column(values, np.isnan(values) if values.dtype.kind == "f" else None, width=width)
    size = max(1, values.dtype.itemsize)
    begin = np.arange(len(values)) * size
    return Column(Text(np.frombuffer(values.tobytes(), np.uint8), begin, begin + np.char.str_len(values)), width=width)


# --- pyarrow ---


def is_text(kinds, kind):
    return kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind)


def is_view(kinds, kind, words):
    """True if a type is one of these view types, which older versions of pyarrow do not have."""
    return any(getattr(kinds, f"is_{word}_view", lambda _: False)(kind) for word in words)


def is_list(kinds, kind):
    return kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind) or is_view(kinds, kind, ("list", "large_list"))


def map_part(arrow, array, values):
    """The keys or the values of a map as lists."""
    offsets = array.offsets
    if array.null_count:  # a null becomes an empty list
        return arrow.array([None if row is None else [pair[values] for pair in row] for row in array.to_pylist()], arrow.list_(array.type.item_type if values else array.type.key_type))
    return arrow.ListArray.from_arrays(offsets, array.items if values else array.keys)


def arrow_inner(arrow, kind):
    """The type inside lists and dictionaries, and the type of a map's keys."""
    kinds = arrow.types
    if kinds.is_map(kind):
        return arrow_inner(arrow, kind.key_type)
    return arrow_inner(arrow, kind.value_type) if kinds.is_dictionary(kind) or is_list(kinds, kind) else kind


def arrow_kind(arrow, kind):
    """The meaning of a type's numbers: text, times by their unit, null or numbers."""
    kinds, kind = arrow.types, arrow_inner(arrow, kind)
    if is_text(kinds, kind) or is_view(kinds, kind, ("string", "binary")) or kinds.is_fixed_size_binary(kind) or is_uuid(kind):
        return "text"
    return str(kind) if kinds.is_temporal(kind) else "null" if kinds.is_null(kind) else "numbers"


def is_uuid(kind):
    return getattr(kind, "extension_name", None) == "arrow.uuid"


def plain_array(arrow, array):
    """Converts an array of views, UUIDs or bytes of one size to an array of lists or text."""
    kinds, kind = arrow.types, array.type
    if is_uuid(kind):  # as in text files
        words = [None if row is None else str(uuid.UUID(bytes=row)) for row in array.storage.to_pylist()]
        return arrow.array(words, arrow.string())
    if is_view(kinds, kind, ("list", "large_list")):
        return arrow.array(array.to_pylist(), arrow.large_list(kind.value_type))
    if is_view(kinds, kind, ("string", "binary")) or kinds.is_fixed_size_binary(kind):
        return array.cast(arrow.large_string() if is_view(kinds, kind, ("string",)) else arrow.large_binary())
    return array


def arrow_column(arrow, array, inside=False):
    """An array of pyarrow as a Column."""
    array = plain_array(arrow, array)
    kinds, kind = arrow.types, array.type
    if kinds.is_dictionary(kind):
        return arrow_column(arrow, array.dictionary_decode(), inside)
    if is_list(kinds, kind):
        if inside:
            raise TypeError(f"lists of lists ({kind}) are not taken")
        import pyarrow.compute
        lengths = pyarrow.compute.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        inner = arrow_column(arrow, array.flatten(), True)
        return Column(inner.values, inner.missing, lengths.astype(np.int64))
    missing = array.is_null().to_numpy(zero_copy_only=False)
    if is_text(kinds, kind):
        return Column(arrow_text(array, np.int64 if kinds.is_large_string(kind) or kinds.is_large_binary(kind) else np.int32), missing)
    if kinds.is_null(kind):
        array = array.cast(arrow.int64())
    elif kinds.is_date32(kind) or kinds.is_time32(kind):
        array = array.cast(arrow.int32())
    elif kinds.is_temporal(kind):
        array = array.cast(arrow.int64())
    elif kinds.is_boolean(kind):
        array = array.cast(arrow.uint8())
    elif kinds.is_decimal(kind):
        return Column(Decimals(arrow, array), missing)
    elif not (kinds.is_integer(kind) or kinds.is_floating(kind)):
        raise TypeError(f"{kind} is not taken; numbers, text and lists of them are")
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    return Column(values, missing | np.isnan(values) if values.dtype.kind == "f" else missing)


def arrow_text(array, offset_type):
    _, offsets, data = array.buffers()
    if not len(array):
        return Text(np.zeros(1, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
    offsets = np.frombuffer(offsets, offset_type)[array.offset:array.offset + len(array) + 1].astype(np.int64)
    block = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return Text(block, offsets[:-1], offsets[1:])
