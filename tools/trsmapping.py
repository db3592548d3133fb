# SPDX-License-Identifier: BSD-3-Clause
"""The mapping of a dataset: how a converter made its dense features and ids from the columns of a table (input/FORMAT.md, "Mapping").

The converter writes it into the dataset, the program carries it into checkpoints and results, and trshard.Predictor.encode() applies it.
"""
import json

import numpy as np

import trsencode
import trsnumbers
from trscolumns import Refused, fail

ATTRIBUTE = "mapping"  # of the root of datasets, checkpoints and results
FORMAT, VERSION = "trshard-mapping", 1
MOST_BYTES = 64 << 20  # of its text, as in src/spec/mapping.h
KINDS = ("text", "integer", "any")
# The keys of an entry with their defaults; TYPES has the expected types of their values.
NUMBER = (int, float)
DENSE = {"name": "", "column": None, "place": 0, "width": 1, "unit": None, "log1p": False, "missing": 0.0}
SPARSE = {"name": "", "column": None, "place": 0, "width": 1, "kind": "integer", "base": 10, "unit": None, "bag": False, "separator": "|", "rows": 0,
          "modulo": False, "unknown": None, "missing": "empty", "weights": None}
TYPES = {"name": str, "column": (str, type(None)), "place": int, "width": int, "unit": (str, type(None)), "log1p": bool, "missing": (str, *NUMBER), "kind": str, "base": int,
         "bag": bool, "separator": str, "rows": int, "modulo": bool, "unknown": (int, type(None)), "weights": (str, type(None))}


class Mapping:
    """root: the JSON as a dictionary. dense, sparse: its entries, with all keys. nulls: words of text that stand for a missing value."""

    def __init__(self, root, path="the mapping"):
        self.path, self.root = path, root
        self.nulls, self.absent = root.get("nulls", []), root.get("absent", {})
        self.dense = self._entries("dense", DENSE)
        self.sparse = self._entries("sparse", SPARSE)
        self.known = {}

    def _entries(self, name, defaults):
        found = self.root.get(name, [])
        if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
            fail(f"{self.path}: {name} is not a list of objects")
        entries = [{**defaults, **entry} for entry in found]
        for i, entry in enumerate(entries):
            for key in defaults:
                if not isinstance(entry[key], TYPES[key]) or isinstance(entry[key], bool) and TYPES[key] is not bool:
                    fail(f"{self.path}: {name}[{i}].{key} is {json.dumps(entry[key])[:60]}")
            if "kind" in defaults and entry["kind"] not in KINDS:
                fail(f"{self.path}: {name}[{i}].kind is {entry['kind']!r}, expected {', '.join(KINDS)}")
            if "separator" in defaults and len(entry["separator"].encode()) != 1:
                fail(f"{self.path}: {name}[{i}].separator is {entry['separator']!r}, expected one ASCII character")
        names = [entry["name"] for entry in entries]
        if len(set(names)) < len(names):
            fail(f"{self.path}: {name} has an entry twice: {next(n for n in names if names.count(n) > 1)}")
        return entries

    def entry(self, name):
        """The entry of a sparse feature, or None."""
        return next((entry for entry in self.sparse if entry["name"] == name), None)

    def vocabulary(self, name):
        """The Vocabulary of a sparse feature, or None."""
        if name not in self.known:
            entry = self.entry(name)
            words = entry.get("vocabulary") if entry else None
            self.known[name] = None if words is None else trsencode.Vocabulary(words, entry["kind"])
        return self.known[name]

    def text(self):
        """The JSON text. Equal mappings have equal texts."""
        root = {"format": FORMAT, "version": VERSION, **self.root, "dense": self.dense, "sparse": self.sparse}
        text = json.dumps(root, ensure_ascii=False, separators=(",", ":"))
        if len(text.encode()) > MOST_BYTES:
            fail(f"the mapping has {len(text.encode()):,} bytes, expected at most {MOST_BYTES:,}: smaller vocabularies (--vocabulary COLUMN:MAX)")
        return text


def of_handle(handle, path):
    """The Mapping of an open HDF5 file, or None."""
    text = handle.attrs.get(ATTRIBUTE)
    return None if text is None else read(text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text), path)


def shared_rows(entry):
    """The number of words that were hashed and the number of rows that they have, as text; "" if they were not counted."""
    return f"{entry['words']:,} words in {entry['words_rows']:,} rows" if isinstance(entry.get("words"), int) and isinstance(entry.get("words_rows"), int) else ""


def lines_of(mapping):
    """A line for each feature: how its values become numbers."""
    for entry in mapping.dense:
        words = ["computed by the converter" if entry["column"] is None else f"column {entry['column']}"] + ["log1p"] * entry["log1p"] + [f"missing {entry['missing']}"]
        yield f"dense {entry['name']}: {', '.join(words)}"
    for entry in mapping.sparse:
        words = ["computed by the converter" if entry["column"] is None else f"column {entry['column']}", entry["kind"]] + ["bags"] * entry["bag"]
        if "vocabulary" in entry:
            count = len(entry["vocabulary"]) if isinstance(entry["vocabulary"], list) else entry["vocabulary"].get("values", 0)
            words.append(f"vocabulary of {count:,}")
        elif entry["rows"]:
            words.append(f"{'modulo' if entry['modulo'] else 'below'} {entry['rows']:,}")
        yield f"sparse {entry['name']}: {', '.join(words + [word for word in [shared_rows(entry)] if word])}"


def digest(numbers):
    """The object that stands for a vocabulary that is too long for the mapping. It is equal for equal vocabularies."""
    data = np.ascontiguousarray(numbers, np.int64)
    parts = np.arange(0, len(data), 1 << 16)  # XXH64 of the hashes of parts
    hashes = [trsnumbers.xxhash64(data[i:i + (1 << 16)].view(np.uint8), np.zeros(1, np.int64), np.full(1, 8 * len(data[i:i + (1 << 16)])))[0] for i in parts]
    whole = np.array(hashes, np.int64).view(np.uint8)
    return {"values": len(data), "xxh64": f"{int(trsnumbers.xxhash64(whole, np.zeros(1, np.int64), np.full(1, len(whole)))[0]) % 2**64:016x}"}


def read(text, path):
    """The Mapping of a JSON text. path: for messages."""
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise Refused(f"{path}: the mapping is not JSON: {' '.join(str(problem).split())}") from None
    if not isinstance(root, dict) or root.get("format") != FORMAT:
        fail(f"{path}: the mapping has no format {FORMAT}")
    if root.get("version") != VERSION:
        fail(f"{path}: the mapping has version {root.get('version')}, expected {VERSION}")
    return Mapping(root, f"{path}: the mapping")
