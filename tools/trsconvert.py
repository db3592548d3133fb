# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the converters of large inputs: lines of text in blocks, fields and numbers without a loop over rows, the hash of text, and a
conversion in parts, which may be killed and ends with a complete file or none.

A converter turns each block of its input into the arrays that trsdata.DatasetWriter.append() takes. convert() stores them as a
part in OUTPUT.parts/ and notes in its state file that the block is done. join() writes the parts in order to the outputs.
"""
import argparse
import contextlib
import functools
import gzip
import json
import os
import re
import shutil
import sys
import zlib

import h5py
import numpy as np
from trspython import tqdm

import trscolumns
import trsdata
import trsfile
from trsnumbers import numbers_of, xxhash64

TAB, NEWLINE, RETURN, QUOTE = 9, 10, 13, 34
HEADER_BYTES = 1 << 24  # a first line longer than this is not a header
OPEN_BLOCKS = 16  # a quoted field that spans more blocks than this was never closed
MOST_BACKUPS = 10  # number of backups FILE.~N~ of an output, as -existing_outputs_keep of the program


# --- arguments ---


def block_bytes(word):
    """The bytes of a number of MiB, as a type for argparse."""
    if not 0 < float(word) < 1e6:
        raise argparse.ArgumentTypeError(f"{word} is not above 0 and below 1,000,000")
    return max(1, int(float(word) * 2**20))


def add_arguments(parser, block_mb):
    """Adds the options of all converters. block_mb is the default of --block-mb."""
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("--output", required=True, metavar="FILE")
    parser.add_argument("--output-eval", metavar="FILE", help="gets the last samples instead")
    parser.add_argument("--eval-fraction", type=float, help="of the samples that go there (default: 1/7, Kaggle's last day)")
    parser.add_argument("--compress", type=int, choices=range(1, 10), metavar="1-9", help="gzip, shuffle and fletcher32")
    parser.add_argument("--block-mb", dest="block_bytes", type=block_bytes, default=str(block_mb), help="of input converted at once; memory is about 40 times that (default: %(default)s)")


def check_arguments(parser, args, files):
    """Ends the program if an input file is missing or a number is out of range."""
    for path in files:
        if not os.path.isfile(path):
            trsdata.fail(f"no file {path}", 66)
    trsfile.check(parser, {"--output": args.output, "--output-eval": args.output_eval}, files)
    if args.eval_fraction is None:
        args.eval_fraction = 1 / 7
    elif not args.output_eval:
        parser.error("--eval-fraction needs --output-eval")
    if not 0 < args.eval_fraction < 1:
        parser.error("--eval-fraction must lie between 0 and 1")


def number_of_rows(word):
    """10, 10k, 10M, 10G; ValueError for anything else."""
    scale = {"k": 10**3, "m": 10**6, "g": 10**9}.get(word[-1:].lower(), 1)
    return int(word[:-1] if scale > 1 else word) * scale


def identity(paths):
    """Identifies the inputs, so that a conversion that continues has the same inputs as the one that was stopped."""
    return [[os.path.abspath(path), os.path.getsize(path), os.stat(path).st_mtime_ns] for path in paths]


def progress(text, paths):
    """A progress bar over the bytes of the inputs, if a terminal can show it."""
    known = None if any(path.endswith(".gz") for path in paths) else sum(os.path.getsize(path) for path in paths)  # a .gz does not tell its uncompressed size
    return tqdm(total=known, desc=text, unit="B", unit_scale=True, disable=not sys.stderr.isatty())


def ending(main):
    """A function that ends the program with one line where `main` refuses its input, and with 74 for a file that cannot be read or written, a .gz
    that ends early, and a full disk."""
    @functools.wraps(main)
    def wrapper():
        try:
            return main()
        except trscolumns.Refused as problem:
            return trsdata.fail(problem, problem.code)
        except BrokenPipeError:
            raise
        except (OSError, EOFError, zlib.error) as problem:
            name = getattr(problem, "filename", None)
            return trsdata.fail(f"{name}: {problem.strerror}" if name else problem or type(problem).__name__, 74)
    return wrapper


# --- text ---


@contextlib.contextmanager
def opened(path):
    """The bytes of a text file. If it cannot be read, or a .gz is damaged or ends early, the program ends with 74 and the file's name."""
    with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as stream:
        try:
            yield stream
        except (EOFError, zlib.error, OSError) as problem:
            trsdata.fail(f"{path}: {problem or type(problem).__name__}", 74)


def last_line_end(text, quoted):
    """The end of the last whole line of the text, 0 if there is none. With quoted, a line break between quotes ends no line."""
    if not quoted or b'"' not in text:
        return text.rfind(b"\n") + 1
    block = np.frombuffer(text, np.uint8)
    lines = np.flatnonzero(block == NEWLINE)
    lines = lines[np.searchsorted(np.flatnonzero(block == QUOTE), lines) % 2 == 0]
    return int(lines[-1]) + 1 if len(lines) else 0


class Lines:
    """Yields the lines of several files as blocks of whole lines, and remembers where each block begins.

    quoted  fields may be in double quotes, with line breaks in them
    header  the first line of each file is not part of its blocks
    """

    def __init__(self, paths, block_bytes, quoted=False, header=False):
        self.paths = paths
        self.block_bytes = block_bytes
        self.quoted = quoted
        self.header = header

    def blocks(self, done):
        """Yields (number of the block, file, first line, bytes as uint8) for the blocks from number done on."""
        number = 0
        for path in self.paths:
            for line, block in self.blocks_of(path):
                if number >= done:
                    yield number, path, line, np.frombuffer(block if block.endswith(b"\n") else block + b"\n", np.uint8)
                number += 1

    def blocks_of(self, path):
        """Yields (first line, bytes) for a file. It counts lines by their breaks, including breaks between quotes."""
        line, rest = 1, b""
        with opened(path) as stream:
            if self.header:
                line += stream.readline(HEADER_BYTES).count(b"\n")
            while True:
                more = stream.read(self.block_bytes)
                text = rest + more
                if not text:
                    return
                end = last_line_end(text, self.quoted) if more else len(text)
                block, rest = text[:end], text[end:]
                if block:
                    yield line, block
                    line += block.count(b"\n")
                elif len(text) > OPEN_BLOCKS * self.block_bytes and self.quoted and b'"' in text:
                    trsdata.fail(f"{path}, line {line}: a double quote is not closed within {len(text)} bytes (--no-quotes where they mean nothing)", 65)
                if not more:
                    return


def check_quotes(block, quotes, ends, delimiter, place):
    """Ends the program if a double quote is part of a field that is not in quotes, because it would begin or end a quoted field elsewhere."""
    byte = np.concatenate([[NEWLINE], block, [NEWLINE]])  # byte[i] is before block[i], byte[i + 2] after it
    edge = np.isin(byte, (delimiter, NEWLINE, QUOTE))
    edge[:-1] |= (byte[:-1] == RETURN) & (byte[1:] == NEWLINE)
    inside = np.concatenate([quotes[0::2][~edge[quotes[0::2]]], quotes[1::2][~edge[quotes[1::2] + 2]]])
    if len(inside):
        row = int(np.count_nonzero(block[ends[ends < inside.min()]] == NEWLINE))
        trsdata.fail(f"{place(row)}: a double quote in a field that does not begin and end with one (--no-quotes where they mean nothing)", 65)


def fields_of(block, fields, place, expected, delimiter=TAB, quoted=False):
    """begin and end [lines, fields] of every field of a block of whole lines.

    place     function: line of the block, from 0 -> its place in the input, for messages
    expected  what a line should have, in words
    """
    ends = np.flatnonzero((block == delimiter) | (block == NEWLINE))
    quotes = np.flatnonzero(block == QUOTE) if quoted else []
    if len(quotes):
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
        check_quotes(block, quotes, ends, delimiter, place)
    kinds = block[ends]
    lines = int(np.count_nonzero(kinds == NEWLINE))
    if not len(ends) or ends[-1] != len(block) - 1:
        trsdata.fail(f"{place(lines)}: a double quote is not closed", 65)
    pattern = np.full(len(kinds), delimiter, np.uint8)
    pattern[fields - 1::fields] = NEWLINE
    if len(kinds) != lines * fields or np.any(kinds != pattern):
        counts = np.diff(np.concatenate([[-1], np.flatnonzero(kinds == NEWLINE)]))
        bad = int(np.argmax(counts != fields))
        trsdata.fail(f"{place(bad)}: {counts[bad]} fields, expected {fields} ({expected})", 65)
    begins = np.concatenate([[0], ends[:-1] + 1])
    return begins.reshape(lines, fields), ends.reshape(lines, fields)


# --- parts ---


class Work:
    """The folder of parts, and the state file, which records the progress of each pass.

    settings  must be the same in a conversion and in the conversion that continues it
    state     further entries of the state file, with their first values
    """

    def __init__(self, folder, settings, **state):
        self.folder = folder
        self.state_path = os.path.join(folder, "state.json")
        self.state = {"settings": settings, "converted": 0, **state}
        os.makedirs(folder, exist_ok=True)
        if os.path.exists(self.state_path):
            with open(self.state_path, encoding="utf-8") as stream:
                found = json.load(stream)
            if found["settings"] != settings:
                trsdata.fail(f"{folder} belongs to another conversion, or an input has changed since; finish that one, or remove the folder")
            self.state = found
            print(f"going on after {found['converted']} blocks ({folder})", file=sys.stderr)

    def save(self, **changes):
        self.state.update(changes)
        with trsfile.whole(self.state_path) as stream:
            json.dump(self.state, stream)

    def path(self, name):
        return os.path.join(self.folder, name)

    def part(self, number):
        return self.path(f"part-{number:06d}.h5")

    def unlink(self, names):
        for name in names:
            if os.path.exists(self.path(name)):
                os.unlink(self.path(name))

    @contextlib.contextmanager
    def removed_if_wrong(self):
        """Removes the folder if an input or an option is wrong, because a conversion that continues would then have other inputs."""
        try:
            yield
        except trscolumns.Refused:
            self.remove()
            raise
        except SystemExit as end:
            if end.code in (64, 65):
                self.remove()
            raise

    def remove(self):
        self.unlink([os.path.basename(self.state_path)])  # first, because a state whose parts are half removed could not continue
        shutil.rmtree(self.folder)


def convert(parts, work, bar):
    """Stores each of the parts: (number of the block, its bytes, arrays by the names of DatasetWriter.append()'s arguments).

    A part without lengths has one id for each feature, and values [n, F].
    """
    for number, size, arrays in parts:
        out = trsdata.AtomicFile(work.part(number))
        for name, array in arrays.items():
            if array is not None:
                out.file[name] = array
        out.publish()
        work.save(converted=number + 1)
        bar.update(size)


def slice_of(part, low, high):
    """Samples low to high of a part, as DatasetWriter.append() takes them."""
    arrays = {name: part[name][low:high] for name in part if name not in ("values", "weights")}
    if "lengths" in arrays:
        ends = np.concatenate([[0], np.cumsum(part["lengths"][()].sum(axis=1, dtype=np.int64))])
        arrays.update({name: part[name][ends[low]:ends[high]] for name in ("values", "weights") if name in part})
    else:
        ids = part["values"][low:high]
        arrays.update(lengths=np.ones(ids.shape, np.int32), values=ids.reshape(-1))
    return {"dense": None, **arrays}


def keep_other(path, work):
    """Renames another file at the path of an output to FILE.~N~. At most MOST_BACKUPS such datasets are kept, as the
    program does with its outputs.
    """
    if not os.path.isfile(path) or path in work.state.get("written", []):
        return
    pattern = re.compile(re.escape(os.path.basename(path)) + r"\.~([1-9][0-9]{0,8})~")
    found = sorted(int(match[1]) for match in map(pattern.fullmatch, os.listdir(os.path.dirname(path) or ".")) if match)
    number = max(found, default=0) + 1
    target = os.path.realpath(path)  # a link stays
    os.link(target, f"{path}.~{number}~")
    print(f"{path} was there: it is kept as {path}.~{number}~", file=sys.stderr)
    for oldest in [old for old in (f"{path}.~{n}~" for n in found) if is_dataset(old)][:1 - MOST_BACKUPS]:
        os.unlink(oldest)
        print(f"{oldest} is removed: {MOST_BACKUPS} backups stay", file=sys.stderr)


def is_dataset(path):
    """True if a path is a dataset, and not a link to one."""
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    try:
        with h5py.File(path, "r") as file:
            return trsdata.text(file.attrs.get("format", "")) == "trshard-dataset"
    except OSError:
        return False


def join(work, args, writer, attributes):
    """Writes the parts in order to the outputs; the last samples go to the evaluation's output. writer: path -> a new DatasetWriter."""
    parts = [work.part(number) for number in range(work.state["converted"])]
    sizes = []
    for path in parts:
        with h5py.File(path, "r") as part:
            sizes.append(part["labels"].shape[0])
    total = sum(sizes)
    if total == 0:
        trsdata.fail("the input has no sample", 65)
    cut = total - int(total * args.eval_fraction) if args.output_eval else total
    if args.output_eval and not 0 < cut < total:
        trsdata.fail(f"{total} samples: none is left for {args.output if cut == 0 else args.output_eval} (--eval-fraction)", 65)
    for path, begin, end in ((args.output, 0, cut), (args.output_eval, cut, total)):
        if path is None:
            continue
        trsdata.remove_temporaries(path)  # temporary files of a conversion that was killed here
        keep_other(path, work)
        with writer(path) as out:
            for name, value in attributes.items():
                out.attribute(name, value)
            first = 0
            for part_path, size in zip(tqdm(parts, desc=path, unit=" parts", disable=not sys.stderr.isatty()), sizes):
                low, high = max(begin - first, 0), min(end - first, size)
                first += size
                if low < high:
                    with h5py.File(part_path, "r") as part:
                        out.append(**slice_of(part, low, high))
        work.save(written=work.state.get("written", []) + [path])
        print("wrote", trsdata.describe(path))
