# SPDX-License-Identifier: BSD-3-Clause
"""Reads tables block by block: CSV and TSV with a header, npy and npz, Parquet. convert_table.py makes datasets from them.

A table has `columns`, a dictionary from names to widths (the columns of an array, else 1), and `typed`, which tells whether the file says which
columns are text. A typed table also has kinds, a dictionary from names to kinds of columns, and unsigned, the names of the columns of uint64.
blocks(done, wanted) yields (bytes, Block with the wanted columns) for each block of rows, with None for the first `done` blocks. The rows of a
block depend only on the file and the size of blocks. Arrays and row groups that are done are not read.
"""
import csv
import io
import os
import struct
import zipfile
import zlib

import numpy as np

import trsconvert
import trsdata
from trscolumns import Block, Column, Text, array_column, arrow_column, arrow_inner, arrow_kind, is_list, map_part

MOST_ROWS = 1 << 20  # rows of a block whose rows have only a few bytes
BUFFER_BYTES = 1 << 18  # buffer for a column of a Parquet file


def refuse_equal(where, names):
    """Refuses a name that occurs twice."""
    for name in names:
        places = [i + 1 for i, other in enumerate(names) if other == name]
        if len(places) > 1:
            trsdata.fail(f"{where}: columns {', '.join(map(str, places))} are all named {name!r}, expected each name once", 65)


def rows_of_block(block_bytes, row_bytes):
    return int(np.clip(block_bytes // max(1, row_bytes), 1, MOST_ROWS))


# --- CSV and TSV ---


class TextTable:
    """Text with a header. Fields may be in double quotes (RFC 4180), unless quoted is false."""

    typed = False
    unsigned = frozenset()

    def __init__(self, path, block_bytes, delimiter, quoted):
        self.path, self.delimiter, self.quoted = path, delimiter, quoted
        self.lines = trsconvert.Lines([path], block_bytes, quoted, header=True)
        with trsconvert.opened(path) as stream:
            header = stream.readline(trsconvert.HEADER_BYTES)
        try:
            text = header.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            trsdata.fail(f"{path}, line 1: the header is not UTF-8", 65)
        csv.field_size_limit(trsconvert.HEADER_BYTES)
        try:
            names = next(csv.reader([text], delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE), [])
        except csv.Error as problem:
            trsdata.fail(f"{path}, line 1: {problem}; expected a line of names that ends with a line feed", 65)
        if not names:
            trsdata.fail(f"{path}, line 1: expected a header of names", 65)
        refuse_equal(f"{path}, line 1", names)
        self.names = names
        self.columns = {name: 1 for name in names}

    def blocks(self, done, wanted):
        for number, _, line, block in self.lines.blocks(0):
            yield len(block), self.block(line, block, wanted) if number >= done else None

    def block(self, line, block, wanted):
        def place(row):
            if not self.quoted or not np.any(block == trsconvert.QUOTE):
                return f"{self.path}, line {line + row}"
            ends = np.flatnonzero(block == trsconvert.NEWLINE)  # line ends between quotes begin no row
            outside = np.searchsorted(np.flatnonzero(block == trsconvert.QUOTE), ends) % 2 == 0
            return f"{self.path}, line {line + (0 if row == 0 else int(np.flatnonzero(outside)[row - 1]) + 1)}"

        begin, end = trsconvert.fields_of(block, len(self.names), place, "as in the header", ord(self.delimiter), self.quoted)
        end[:, -1] -= (block[end[:, -1] - 1] == trsconvert.RETURN) & (end[:, -1] > begin[:, -1])
        columns = {}
        for name in wanted:
            c = self.names.index(name)
            text = Text(block, begin[:, c].copy(), end[:, c].copy())
            columns[name] = Column(self.unquoted(text) if self.quoted else text)
        return Block(len(begin), columns, place)

    @staticmethod
    def unquoted(text):
        """The texts without the quotes around them, and with one quote for two inside."""
        block, begin, end = text.block, text.begin, text.end
        which = np.flatnonzero((end > begin) & (block[np.minimum(begin, len(block) - 1)] == trsconvert.QUOTE))
        if not len(which):
            return text
        begin[which] += 1
        end[which] -= 1
        quotes = np.flatnonzero(block == trsconvert.QUOTE)
        doubled = which[np.searchsorted(quotes, begin[which]) < np.searchsorted(quotes, end[which])]
        pieces, size = [block], len(block)
        for i in doubled:
            plain = np.frombuffer(text.bytes(i).replace(b'""', b'"'), np.uint8)
            begin[i], end[i] = size, size + len(plain)
            pieces.append(plain)
            size += len(plain)
        return Text(np.concatenate(pieces) if len(doubled) else block, begin, end)


# --- npy and npz ---


class Array:
    """An array in a file, whose rows are read in ascending order. open(): a new stream of the npy file's bytes."""

    def __init__(self, where, open_stream):
        self.where, self.open = where, open_stream
        self.streams = {}
        with open_stream() as stream:
            try:
                version = np.lib.format.read_magic(stream)
                header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
                self.shape, self.fortran, self.dtype = header(stream)
            except (ValueError, KeyError) as problem:
                trsdata.fail(f"{where} is not an array of numpy's ({problem})", 65)
            self.first = stream.tell()
        self.width = self.shape[1] if len(self.shape) == 2 else 1

    def read(self, begin, count, stream_of):
        """Reads count numbers, beginning with number begin. If columns are stored one after the other, each has its own
        stream, which only moves forward.
        """
        if stream_of not in self.streams:
            self.streams[stream_of] = self.open()
        stream = self.streams[stream_of]
        try:
            stream.seek(self.first + begin * self.dtype.itemsize)
            data = stream.read(count * self.dtype.itemsize)
        except (zipfile.BadZipFile, zlib.error, EOFError) as problem:
            trsdata.fail(f"{self.where}: {problem or type(problem).__name__}", 65)
        if len(data) < count * self.dtype.itemsize:
            trsdata.fail(f"{self.where} ends early: expected {self.shape} numbers of {self.dtype}", 65)
        return np.frombuffer(data, self.dtype)

    def close(self):
        for stream in self.streams.values():
            stream.close()
        self.streams = {}

    def rows(self, begin, end):
        """[end - begin] or [end - begin, width]"""
        if len(self.shape) == 1:
            return self.read(begin, end - begin, 0)
        if not self.fortran:
            return self.read(begin * self.width, (end - begin) * self.width, 0).reshape(-1, self.width)
        return np.stack([self.read(k * self.shape[0] + begin, end - begin, k) for k in range(self.width)], axis=1)


def arrays_of(path):
    """Name -> Array of an npy file (one array, with the file's name) or an npz file."""
    if path.endswith(".npy"):
        return {os.path.basename(path)[:-4]: Array(path, lambda: open(path, "rb"))}
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as problem:
        trsdata.fail(f"{path}: {problem}", 65)

    def opener(info):
        if info.compress_type != zipfile.ZIP_STORED:
            return lambda: archive.open(info)
        with open(path, "rb") as stream:  # numbers that are not compressed are stored in the file as they are
            stream.seek(info.header_offset + 26)
            first = info.header_offset + 30 + sum(struct.unpack("<HH", stream.read(4)))
        return lambda: Window(path, first)

    return {info.filename[:-4]: Array(f"{path}: {info.filename}", opener(info)) for info in archive.infolist() if info.filename.endswith(".npy")}


class Window(io.FileIO):
    """A file from a given byte on."""

    def __init__(self, path, first):
        super().__init__(path, "rb")
        self.offset = first
        self.seek(0)

    def seek(self, place, whence=os.SEEK_SET):
        return super().seek(place + self.offset if whence == os.SEEK_SET else place, whence) - self.offset

    def tell(self):
        return super().tell() - self.offset


class ArrayTable:
    """Arrays of one or several npy and npz files that have the same rows."""

    typed = True

    def __init__(self, paths, block_bytes):
        self.path, self.block_bytes = "+".join(paths), block_bytes
        self.size = sum(os.path.getsize(path) for path in paths)
        self.arrays = {}
        for path in paths:
            for name, array in arrays_of(path).items():
                if name in self.arrays:
                    trsdata.fail(f"{self.path} has two arrays with the name {name}", 65)
                self.arrays[name] = array
        self.columns = {name: array.width for name, array in self.arrays.items()}
        self.kinds = {name: "text" if array.dtype.kind in "SU" else "numbers" for name, array in self.arrays.items()}
        self.unsigned = {name for name, array in self.arrays.items() if array.dtype == np.uint64}

    def blocks(self, done, wanted):
        arrays = {name: self.arrays[name] for name in wanted}
        for array in arrays.values():
            if array.dtype.kind not in "biufSU" or len(array.shape) not in (1, 2) or array.width == 0:
                trsdata.fail(f"{array.where} has shape {array.shape} of {array.dtype}, expected one or two dimensions of numbers or text", 65)
        rows = {array.shape[0] for array in arrays.values()}
        if len(rows) != 1:
            trsdata.fail(f"{self.path}: arrays of {', '.join(f'{array.shape[0]} rows ({name})' for name, array in arrays.items())}, expected as many of each", 65)
        total = rows.pop()
        step = rows_of_block(self.block_bytes, sum(array.width * max(8, array.dtype.itemsize) for array in arrays.values()))
        try:
            for number, first in enumerate(range(0, total, step)):
                last = min(total, first + step)
                yield self.size * (last - first) // total, self.block(arrays, first, last) if number >= done else None
        finally:
            for array in arrays.values():
                array.close()

    def block(self, arrays, first, last):
        columns = {name: array_column(array.rows(first, last), array.width) for name, array in arrays.items()}
        return Block(last - first, columns, lambda row: f"{self.path}, row {first + row}")


# --- Parquet ---


class ParquetTable:
    """A Parquet file, read by pyarrow. A block of rows spans several row groups if they are small."""

    typed = True

    def __init__(self, path, block_bytes):
        import pyarrow
        import pyarrow.parquet
        self.path, self.block_bytes, self.arrow = path, block_bytes, pyarrow
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # other pools keep freed memory
        try:
            self.file = pyarrow.parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False)
        except pyarrow.ArrowInvalid as problem:
            trsdata.fail(f"{path}: {str(problem).splitlines()[0]}", 65)
        names = self.file.schema_arrow.names
        refuse_equal(path, names)
        self.columns = {name: 1 for name in names}
        for field in self.file.schema_arrow:
            if pyarrow.types.is_map(field.type):  # its keys are a list; its values are beside them
                self.columns[field.name + ".value"] = 1
        self.kinds = {field.name: arrow_kind(pyarrow, field.type) for field in self.file.schema_arrow}
        self.unsigned = {field.name for field in self.file.schema_arrow if arrow_inner(pyarrow, field.type) == pyarrow.uint64()}

    def width_of_lists(self, name):
        """The length of a column's lists if they are numbers for dense features; 1 for other columns."""
        kind = self.file.schema_arrow.field(name).type if name in self.file.schema_arrow.names else self.arrow.null()
        if self.arrow.types.is_fixed_size_list(kind):
            return kind.list_size
        if not is_list(self.arrow.types, kind):
            return 1
        for batch in self.file.iter_batches(1024, columns=[name], use_threads=False):
            for row in batch.column(0):
                if row.is_valid and len(row):
                    return len(row)
        return 1

    def units(self, wanted):
        """Lists of row groups that are read together, each with its number of rows, and the rows of a block."""
        metadata = self.file.metadata
        size, counts = 0, []
        for group in range(metadata.num_row_groups):
            counts.append(metadata.row_group(group).num_rows)
            for c in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(c)
                if any(chunk.path_in_schema == name or chunk.path_in_schema.startswith(self.stored(name) + ".") for name in wanted):
                    size += max(chunk.total_uncompressed_size, 8 * chunk.num_values)
        step = rows_of_block(self.block_bytes, size // max(1, sum(counts)))
        unit, rows = [], 0
        for group, count in enumerate(counts):
            unit.append(group)
            rows += count
            if rows >= step or group == len(counts) - 1:
                yield unit, rows, step
                unit, rows = [], 0

    def stored(self, name):
        """The column of the file that has these values."""
        return name if name in self.kinds else name.removesuffix(".value")

    def blocks(self, done, wanted):
        number, first, total = 0, 0, max(1, self.file.metadata.num_rows)
        for groups, rows, step in self.units(wanted):
            count = -(-rows // step)
            if number + count <= done:
                for _ in range(count):
                    yield 0, None
            else:
                for i, table in enumerate(self.tables(groups, step, wanted)):
                    size = os.path.getsize(self.path) * table.num_rows // total
                    yield size, self.block(table, first + i * step, wanted) if number + i >= done else None
            number += count
            first += rows

    def tables(self, groups, step, wanted):
        """The rows of these row groups, step by step; pyarrow's own batches may end early."""
        batches, rows = [], 0
        try:
            # One row group after the other: pyarrow cannot read lists of a dictionary's words from several groups at
            # once.
            for batch in (batch for group in groups for batch in self.file.iter_batches(step, row_groups=[group], columns=list(dict.fromkeys(map(self.stored, wanted))), use_threads=False)):
                batches.append(batch)
                rows += batch.num_rows
                while rows >= step:
                    table = self.arrow.Table.from_batches(batches)
                    yield table.slice(0, step)
                    rest = table.slice(step)
                    batches, rows = rest.to_batches(), rest.num_rows
        except (self.arrow.ArrowException, OSError) as problem:
            trsdata.fail(f"{self.path}, row groups {groups[0]} to {groups[-1]}: {str(problem).splitlines()[0]}", 65)
        if rows:
            yield self.arrow.Table.from_batches(batches)

    def block(self, table, first, wanted):
        columns = {}
        for name in wanted:
            array = table.column(self.stored(name)).combine_chunks()
            if isinstance(array, self.arrow.ChunkedArray):
                array = array.chunk(0) if array.num_chunks else self.arrow.array([], array.type)
            try:
                if self.arrow.types.is_map(array.type):
                    array = map_part(self.arrow, array, name != self.stored(name))
                columns[name] = arrow_column(self.arrow, array)
            except (TypeError, self.arrow.ArrowException) as problem:
                trsdata.fail(f"{self.path}: column {name}: {problem}", 65)
        return Block(table.num_rows, columns, lambda row: f"{self.path}, row {first + row}")


# --- columns that some inputs lack ---


class Completed:
    """A table with additional columns, whose rows all have the same value.

    lacking  name -> (value, kind). value: bytes, a number, or None for a missing value. kind: the column's kind in another table
    """

    def __init__(self, inner, lacking):
        self.inner, self.lacking = inner, lacking
        self.columns = {**inner.columns, **dict.fromkeys(lacking, 1)}
        if inner.typed:
            self.kinds = {**inner.kinds, **{name: "null" if value is None else kind for name, (value, kind) in lacking.items()}}
            self.unsigned = inner.unsigned | {name for name, (value, _) in lacking.items() if value is None or isinstance(value, int) and value >= 0}

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def blocks(self, done, wanted):
        present = [name for name in wanted if name not in self.lacking] or list(self.inner.columns)[:1]
        for size, block in self.inner.blocks(done, present):
            if block is not None:
                block.columns.update({name: self.column(name, block.rows) for name in wanted if name in self.lacking})
            yield size, block

    def column(self, name, rows):
        value, _ = self.lacking[name]
        if isinstance(value, bytes) or value is None and not self.typed:
            word = value or b""
            return Column(Text(np.frombuffer(word or b"\0", np.uint8), np.zeros(rows, np.int64), np.full(rows, len(word), np.int64)))
        return Column(np.full(rows, 0 if value is None else value), np.full(rows, value is None))


def completed(tables, absent, texts):
    """The tables, each with all columns of `absent`, a dictionary from names to words or None. texts: a function that
    tells which columns are hashed text.
    """
    for name in absent:
        if not any(name in found.columns for found in tables):
            trsdata.fail(f"--absent {name}: no input has such a column", 65)

    def lacking(found, name):
        word, kinds = absent[name], [other.kinds[name] for other in tables if other.typed and name in other.kinds]
        kind = next((kind for kind in kinds if kind != "null"), "numbers")
        if word is None:
            return None, "null"
        if not found.typed or kind == "text" or texts(name):
            return word.encode(), "text"
        for number in (int, float):
            try:
                return number(word), kind
            except ValueError:
                pass
        return trsdata.fail(f"--absent {name}={word}: expected a number, as the column has in other inputs", 64)

    return [Completed(found, {name: lacking(found, name) for name in absent if name not in found.columns}) if any(name not in found.columns for name in absent) else found
            for found in tables]


def table(source, block_bytes, delimiter, quoted):
    """The table of an input: a path, or paths of npy and npz files joined by +."""
    paths = paths_of(source)
    name = paths[0].lower()
    if all(path.endswith((".npy", ".npz")) for path in paths):
        return ArrayTable(paths, block_bytes)
    if name.endswith((".parquet", ".pq")):
        return ParquetTable(source, block_bytes)
    tab = name.removesuffix(".gz").endswith((".tsv", ".tab"))
    if delimiter is None and not tab and not name.removesuffix(".gz").endswith(".csv"):
        trsdata.fail(f"{source}: expected a name that ends in .parquet, .csv, .tsv, .npy or .npz, or --delimiter")
    return TextTable(source, block_bytes, delimiter or ("\t" if tab else ","), quoted)


def paths_of(source):
    """The files of an input."""
    return [source] if os.path.exists(source) else source.split("+")
