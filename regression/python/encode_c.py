#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""TrshardEncode() gives the bits of trshard.Predictor.encode(), and refuses the same values, for
random mappings and rows with every kind of column. The vocabularies, hashes and numbers are those
of tools/trsencode.py.

    encode_c.py TRSHARD [SEED]
"""
import ctypes
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import trscolumns
import trsmapping
import trsrows
import trshard

BINARY = os.path.abspath(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
LIBRARY = trshard._library
MISSING, INTEGER, UNSIGNED, DOUBLE, TEXT = range(5)
WANTED = ("numbers", "integers", "text", "any")


class As(ctypes.Union):
    _fields_ = [("integer", ctypes.c_int64), ("natural", ctypes.c_uint64), ("number", ctypes.c_double), ("text", ctypes.c_char_p)]


class Value(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("n_bytes", ctypes.c_int64), ("as_", As)]


class Column(ctypes.Structure):
    _fields_ = [("n_values", ctypes.c_int64), ("values", ctypes.POINTER(Value)), ("lengths", ctypes.POINTER(ctypes.c_int32))]


class Info(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("wants", ctypes.c_int), ("unit", ctypes.c_char_p), ("width", ctypes.c_int32), ("is_bag", ctypes.c_int32), ("may_lack", ctypes.c_int32)]


class Encoded(ctypes.Structure):
    _fields_ = [("ids", trshard._Batch), ("num_dense", ctypes.c_int32), ("dense", ctypes.POINTER(ctypes.c_float))]


def value_of(cell):
    if cell is None:
        return Value(MISSING)
    if isinstance(cell, (str, bytes)):
        word = cell.encode() if isinstance(cell, str) else cell
        return Value(TEXT, len(word), As(text=word))
    if isinstance(cell, float):
        return Value(DOUBLE, 0, As(number=cell))
    return Value(INTEGER, 0, As(integer=cell)) if cell < 2**63 else Value(UNSIGNED, 0, As(natural=cell))


def column_of(cells):
    """A Column, and what it points to. Cells are lists in all rows or in none; None: the rows lack the column."""
    if cells is None:
        return Column(), None
    lists = [cell for cell in cells if isinstance(cell, list)]
    if not lists:
        values = (Value * len(cells))(*map(value_of, cells))
        return Column(len(cells), values, None), values
    cells = [[] if cell is None else cell for cell in cells]  # as in trsrows.of_values()
    flat = list(itertools.chain(*cells))
    values, lengths = (Value * max(1, len(flat)))(*map(value_of, flat)), (ctypes.c_int32 * len(cells))(*map(len, cells))
    return Column(len(flat), values, lengths), (values, lengths)


def array(pointer, dtype, *shape):
    return np.ctypeslib.as_array(pointer, shape).astype(dtype, copy=True) if np.prod(shape) and pointer else np.zeros(shape, dtype)


class Encoder:
    def __init__(self, mapping=None, dense=None, features=None, predictor=None):
        self.handle, self.encoded = ctypes.c_void_p(), ctypes.POINTER(Encoded)()
        names = lambda words: None if words is None else (ctypes.c_char_p * max(1, len(words)))(*(word.encode() for word in words))
        if predictor:
            self.check(LIBRARY.TrshardEncoderCreate(predictor._handle, ctypes.byref(self.handle)))
        else:
            self.check(LIBRARY.TrshardEncoderCreateFrom(mapping.encode(), ctypes.c_int32(len(dense or ())), names(dense), ctypes.c_int32(len(features or ())), names(features),
                                                        ctypes.byref(self.handle)))
        n, infos = ctypes.c_int32(), ctypes.POINTER(Info)()
        self.check(LIBRARY.TrshardEncoderColumns(self.handle, ctypes.byref(n), ctypes.byref(infos)))
        self.columns = [(infos[i].name.decode(), WANTED[infos[i].wants], infos[i].unit and infos[i].unit.decode(), infos[i].width, infos[i].is_bag, infos[i].may_lack) for i in range(n.value)]

    @staticmethod
    def check(status):
        if status:
            raise trshard.Error(status, LIBRARY.TrshardErrorMessage().decode())

    def encode(self, rows, n, encoded=None):
        encoded = self.encoded if encoded is None else encoded
        pairs = [column_of(rows.get(column[0])) for column in self.columns]
        columns = (Column * max(1, len(pairs)))(*(column for column, _ in pairs))
        self.check(LIBRARY.TrshardEncode(self.handle, ctypes.c_int64(n), columns, ctypes.byref(encoded)))
        return encoded.contents

    def close(self):
        LIBRARY.TrshardEncodedFree(ctypes.byref(self.encoded))
        assert not self.encoded
        self.check(LIBRARY.TrshardEncoderDestroy(ctypes.byref(self.handle)))


LIBRARY.TrshardErrorMessage.restype = ctypes.c_char_p
LIBRARY.TrshardEncodedFree.restype = None


def arrays_of(found, features):
    """The arrays of encoded rows, as trsrows.Encoder.encode() gives them."""
    n, batch = found.ids.n_values, found.ids.batch
    lengths = array(ctypes.cast(found.ids.lengths, ctypes.POINTER(ctypes.c_int32)), np.int32, features, batch)
    values = array(ctypes.cast(found.ids.values, ctypes.POINTER(ctypes.c_int64)), np.int64, n)
    weights = array(ctypes.cast(found.ids.weights, ctypes.POINTER(ctypes.c_float)), np.float32, n) if found.ids.weights else None
    return lengths, values, weights, array(found.dense, np.float32, batch, found.num_dense) if found.num_dense else None


# --- random mappings and rows ---

WORDS = ["", "a", "b", "NA", "null", "Zürich", "é", "e\u0301", "\u202eabc", "👩\u200d🚀", "x" * 31, "y" * 32, "z" * 40, " ", "0", "true", "a|b", "|", "||", "a||b|", "NA|b", "\x7f", "7.0"]
BYTES = [b"\xff\xfe", b"a\0b", b"\0"]
INTEGERS = [0, 1, -1, -2, 5, 6, 7, 49, 50, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -2**63, -3]
LARGE = [2**63, 2**64 - 1, 2**63 + 12345]
DOUBLES = [0.0, -0.0, 0.5, 1.5, -3.0, 1e-320, 7.0, 2.0**52, 2.0**53, 1e30, 3.4028234663852886e38, 3.4028235e38, 3.5e38, 1e300, float("inf"), float("-inf"), float("nan"), -1e-9]
DIGITS = ["0", "7", "-1", "-0", "-", "+5", "7.0", "-3.0", ".0", "1.5", "007", "123456789012345678", "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
          "-9223372036854775808", "-9223372036854775809", "00000000000000000007", "000000000000000000007", "1_0", " 1", "ff", "FFFFFFFFFFFFFFFF", "8000000000000000", "1ffffffffffffffff", "g", "1e3",
          "NA", "", "--5", "12345678901234567890.0"]
FLOATS = DIGITS + ["1e-5", "  2.5\t", "inf", "-inf", "Infinity", "nan", "-NaN", "nan(1)", "0x10", "1e", "1e+", "1e400", "1e-400", ".5", "5.", ".", "", "TRUE", "False", "yes", "3.40282347e38", "1,5", "\u0661",
                   "1d5", "0.1234567890123456789012345678901234567890123456789012345678901234567890", "1" + "0" * 30, "2.4703282292062327208e-324"]


def any_number(r):
    kind = r.randrange(4)
    return r.choice(INTEGERS) if kind == 0 else r.choice(DOUBLES) if kind == 1 else r.uniform(-1e6, 1e6) if kind == 2 else r.choice([r.randrange(-9, 80), float(r.randrange(-9, 80)), r.choice(LARGE)])


def any_cell(r, entry):
    """A raw value that may fit an entry."""
    if r.random() < 0.1:
        return None
    if r.random() < 0.02:
        return r.choice(BYTES)
    if "kind" not in entry:
        return r.choice(FLOATS) if r.random() < 0.4 else any_number(r)
    if entry["kind"] != "integer" and r.random() < 0.9:
        return r.choice(WORDS) if r.random() < 0.7 else f"w{r.randrange(40)}"
    if r.random() < 0.4:
        word = r.choice(DIGITS) if r.random() < 0.5 else f"{r.getrandbits(r.randrange(1, 66)):x}" if entry["base"] == 16 else str(r.randrange(-5, 60))
        return word if not entry["bag"] or r.random() < 0.5 else "|".join([word, *(str(r.randrange(0, 9)) for _ in range(r.randrange(3)))])
    return any_number(r)


def any_weight(r):
    return None if r.random() < 0.05 else r.choice([0.5, 2.0, 0, 3, -1.25, r.random()])


def any_vocabulary(r, kind):
    if kind == "integer":
        return [r.choice(INTEGERS) if r.random() < 0.5 else r.randrange(-5, 60) for _ in range(r.randrange(30))]
    return [{"hex": "fffe"}, {"hex": "610062"}][:r.randrange(3)] + [word for word in r.sample([w for w in WORDS if w], r.randrange(len(WORDS) - 1))] + [f"w{i}" for i in range(r.randrange(20))]


def any_mapping(r):
    dense = [{"name": f"d{i}", "column": f"D{i}", "log1p": r.random() < 0.5, "missing": r.choice([0.0, -1, 2.5, "refuse", 1e-50])} for i in range(r.randrange(3))]
    if r.random() < 0.3:
        dense += [{"name": f"two_{i}", "column": "two", "place": i, "width": 2} for i in range(2)]
    sparse = []
    for i in range(r.randrange(1, 5)):
        kind = r.choice(["text", "integer", "integer", "any"])
        entry = {"name": f"s{i}", "column": f"S{i}", "kind": kind, "base": r.choice([10, 10, 16]), "bag": r.random() < 0.5, "separator": r.choice("|||,"), "missing": r.choice(["empty", "empty", 0, 3])}
        form = r.randrange(5)
        if form == 1:
            entry.update(rows=r.choice([1, 7, 50, 2**62]), modulo=True)
        elif form == 2:
            entry.update(rows=r.choice([7, 50]), unknown=r.choice([None, 0, 6]))
        elif form == 3:
            entry["vocabulary"] = any_vocabulary(r, kind)
            entry.update(rows=len(entry["vocabulary"]) + 1, unknown=0)
        if r.random() < 0.2:
            entry["weights"] = f"W{i}"
        if form == 4 and not entry["bag"]:
            entry.update(width=3, place=r.randrange(3), column="three", kind="integer", base=10)
        sparse.append(entry)
    root = {"format": "trshard-mapping", "version": 1, "nulls": r.choice([[], ["NA", "null"], ["é"]]), "dense": dense, "sparse": sparse, "absent": {}}
    if r.random() < 0.3:
        root["absent"] = {sparse[0]["column"]: r.choice(["7", None, "a|b"]), "unused": "1"}
    return root


def any_columns(r, mapping, n):
    """Columns of n rows. Each column has lists in all rows or in none."""
    rows = {"other": [0] * n}
    for entry in mapping.dense + mapping.sparse:
        name, width = entry["column"], entry["width"]
        if name in rows or name in mapping.absent and r.random() < 0.7:
            continue
        if width > 1:
            rows[name] = [[any_number(r) if r.random() < 0.3 else r.randrange(9) for _ in range(width if r.random() < 0.97 else r.randrange(5))] for _ in range(n)]
        elif "kind" in entry and (entry["bag"] or r.random() < 0.2) and r.random() < 0.5:
            rows[name] = [[any_cell(r, entry) for _ in range(r.randrange(4))] for _ in range(n)]
        else:
            rows[name] = [any_cell(r, entry) for _ in range(n)]
        if entry.get("weights"):
            form = rows[name]
            size = lambda cell: len(cell) if isinstance(cell, list) else 1 if not entry["bag"] else len(str(cell).split(entry["separator"])) if cell else 0
            if width > 1:
                rows[entry["weights"]] = [[any_weight(r) for _ in range(width)] for _ in range(n)]
            elif isinstance(form[0], list):
                rows[entry["weights"]] = [[any_weight(r) for _ in cell] if r.random() < 0.97 else [1.0] for cell in form]
            elif entry["bag"] and any(isinstance(cell, str) for cell in form):
                rows[entry["weights"]] = [entry["separator"].join("0.5" for _ in range(size(cell))) for cell in form]
            else:
                rows[entry["weights"]] = [any_weight(r) for _ in range(n)]
    return rows


def of_one_kind(columns):
    """True if trsrows takes the kinds of values together: text, or numbers that numpy holds exactly."""
    for cells in columns.values():
        flat = [value for cell in cells for value in (cell if isinstance(cell, list) else [cell]) if value is not None]
        if len({isinstance(value, (str, bytes)) for value in flat}) > 1 or len({type(value) for value in flat if not isinstance(value, (str, bytes))}) > 1:
            return False
    return True


def outcome(encode):
    try:
        return encode(), None
    except (trscolumns.Refused, trshard.Error) as error:
        return None, str(error)


def same(found, wanted):
    return all(a is b is None or a is not None and b is not None and a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(found, wanted))


def check_random(seed, counts):
    r = random.Random(seed)
    mapping = trsmapping.Mapping(any_mapping(r))
    dense, features = [entry["name"] for entry in mapping.dense], [entry["name"] for entry in mapping.sparse]
    r.shuffle(features)
    python, c = trsrows.Encoder(mapping, dense, features), Encoder(mapping.text(), dense, features)
    for n in (1,) * 30 + (6,) * 6:
        rows = any_columns(r, mapping, n)
        if not of_one_kind(rows):
            continue
        wanted, refused = outcome(lambda: python.encode(rows))
        found, message = outcome(lambda: arrays_of(c.encode(rows, n), len(features)))
        shown = f"seed {seed}: {mapping.text()}\n{rows}\n"
        assert (refused is None) == (message is None), f"{shown}C: {message}\nPython: {refused}"
        assert refused or same(found, wanted), f"{shown}C: {found}\nPython: {wanted}"
        assert not refused or "column" in message and "row" in message, message
        counts[bool(refused)] += 1
    c.close()


def check_values(encoder_of):
    """Values that random rows rarely have: computed by hand."""
    encoder = encoder_of(dense=[{"name": "x", "column": "x", "log1p": True}, {"name": "y", "column": "y", "missing": -1}],
                         sparse=[{"name": "at", "column": "at", "unit": "ms"}, {"name": "t", "column": "t", "kind": "text", "bag": True, "vocabulary": ["b", {"hex": "ff00"}, "b", "\u00e9"], "rows": 5}])
    assert [column[:5] for column in encoder.columns] == [("x", "numbers", None, 1, 0), ("y", "numbers", None, 1, 0), ("at", "integers", "ms", 1, 0), ("t", "text", None, 1, 1)]
    times = np.array([-1, 0, 2**40, 1700000000123], "datetime64[ms]")
    rows = {"x": [-5.0, None, 1.0, 0.0], "y": ["", "2", "3", " 1e2 "], "at": times.astype(np.int64).tolist(), "t": ["b|\u00e9", b"\xff\0|c", None, "||"]}
    lengths, values, weights, dense = arrays_of(encoder.encode(rows, 4), 2)
    assert weights is None and dense.tolist() == [[0, -1], [0, 2], [float(np.float32(np.log(2))), 3], [0, 100]], dense
    assert lengths.tolist() == [[1] * 4, [2, 2, 0, 0]] and values.tolist() == [-1, 0, 2**40, 1700000000123, 1, 4, 2, 0], (lengths, values)
    python = trsrows.Encoder(encoder.mapping, ["x", "y"], ["at", "t"])
    assert same((lengths, values, weights, dense), python.encode({**rows, "at": times}))
    memory = ctypes.addressof(encoder.encoded.contents)
    assert arrays_of(encoder.encode({name: column[:2] for name, column in rows.items()}, 2), 2)[1].tolist() == [-1, 0, 1, 4, 2, 0]
    assert ctypes.addressof(encoder.encoded.contents) == memory, "the second call uses other memory"
    assert encoder.encode({}, 0).ids.batch == 0
    for rows, message in (({"x": [1] * 4}, "the rows have no column y"), ({**rows, "y": [1]}, "column y has 1 values, expected 4 for 4 rows"),
                          ({**rows, "x": [[1.0]] * 3 + [[1, 2]]}, "row 3, column x: a list of 2 values, expected a list of 1"), ({**rows, "t": [1] * 4}, "row 0, column t: 1 is not text"),
                          ({**rows, "x": [1, 2, "\x1b]0;a", 4]}, r"row 2, column x: '\x1b]0;a' is not a number"), ({**rows, "x": [1, 2, "9" * 500, 4]}, "999...' is not finite as float32")):
        assert message in (outcome(lambda rows=rows: encoder.encode(rows, 4))[1] or ""), (message, outcome(lambda rows=rows: encoder.encode(rows, 4)))
        assert encoder.encoded.contents.ids.batch == 0, "an error leaves rows"
    encoder.close()


# (change of a good mapping, a part of the message)
BAD = [({"dense": [{"name": "a"}]}, "does not say how feature \"a\" comes from a column"), ({"dense": [{"name": "a", "column": 7}]}, "column of \"a\" in the mapping's \"dense\" is 7, expected text"),
       ({"dense": [{"name": "a", "column": "a", "missing": "x"}]}, "missing of \"a\""), ({"dense": [{"name": "a", "column": "a", "place": 2, "width": 2}]}, "place of \"a\""),
       ({"dense": [{"name": "a", "column": "a", "log1p": 1}]}, "expected true or false"), ({"sparse": [{"name": "a", "column": "a", "kind": "word"}]}, "kind of \"a\""),
       ({"sparse": [{"name": "a", "column": "a", "base": 8}]}, "expected 10 or 16"), ({"sparse": [{"name": "a", "column": "a", "separator": "||"}]}, "expected one ASCII character"),
       ({"sparse": [{"name": "a", "column": "a", "separator": "\u00e9"}]}, "expected one ASCII character"), ({"sparse": [{"name": "a", "column": "a", "rows": -1}]}, "rows of \"a\""),
       ({"sparse": [{"name": "a", "column": "a", "missing": 1.5}]}, "an id or"), ({"sparse": [{"name": "a", "column": "a", "vocabulary": {"values": 9, "xxh64": "0"}}]}, "only a digest"),
       ({"sparse": [{"name": "a", "column": "a", "vocabulary": ["b"]}]}, "not an integer"), ({"sparse": [{"name": "a", "column": "a", "kind": "text", "vocabulary": [{"hex": "f"}]}]}, "neither text nor"),
       ({"sparse": [{"name": "a", "column": "a"}] * 2}, "twice"), ({"nulls": "NA"}, "nulls"), ({"nulls": [1]}, "nulls"), ({"absent": []}, "absent"), ({"absent": {"a": 1}}, "absent"),
       ({"version": 2}, "version 2"), ({"format": "x"}, "no format")]


def check_mappings():
    good = {"format": "trshard-mapping", "version": 1}
    for change, message in BAD:
        _, found = outcome(lambda change=change: Encoder(json.dumps({**good, **change})))
        assert found and message in found, (change, found)
    for arguments, message in ((("{",), "not JSON"), ((json.dumps(good), ["x"], []), "no \"dense\" entry of feature \"x\""), ((json.dumps(good), [], ["x"]), "no \"sparse\" entry")):
        _, found = outcome(lambda arguments=arguments: Encoder(*arguments))
        assert found and message in found, (arguments, found)
    dead = ctypes.c_void_p()
    assert LIBRARY.TrshardEncode(dead, ctypes.c_int64(1), None, ctypes.byref(ctypes.c_void_p())) == 64
    encoder = Encoder(json.dumps(good))
    copy = ctypes.c_void_p(encoder.handle.value)
    encoder.close()
    assert not encoder.handle and LIBRARY.TrshardEncoderDestroy(ctypes.byref(copy)) == 64 and b"not alive" in LIBRARY.TrshardErrorMessage()


def check_model(folder):
    """The encoder of a predictor, on several threads, and without the predictor."""
    with open(os.path.join(folder, "rows.csv"), "w", encoding="utf-8") as out:
        out.write("y,age,at,city,tags\n" + "".join(f"{i % 2},{i if i % 5 else ''},{1700000000 + i},c{i % 7},t{i % 3}|t{i % 4}\n" for i in range(60)))
    run = lambda *words: subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    run(sys.executable, str(pathlib.Path(trsmapping.__file__).parent / "convert_table.py"), "--output", "d.h5", "--labels", "y", "--dense", "age", "--log1p", "--sparse", "city,at:97,tags",
        "--modulo", "--text", "city,tags", "--bags", "tags", "rows.csv")
    run(BINARY, *"-data_train d.h5 -tables at,tags,city -tables_embedding_dim 4 -dense_arch 8,4 -over_arch 8,1 -batch_size 20 -steps 3 -checkpoint_final m.h5".split())
    rows = {"age": [1, None, 7], "at": [1700000000, 5, 2**63 + 1], "city": ["c1", "new", None], "tags": [["t1", "t2"], [], ["x"]]}
    with trshard.Predictor(os.path.join(folder, "m.h5")) as predictor:
        assert predictor.sparse_names == ["at", "tags", "city"], predictor.sparse_names
        encoder, wanted = Encoder(predictor=predictor), predictor.encode(rows)
        found = arrays_of(encoder.encode(rows, 3), 3)
        assert same(found, wanted)
        assert predictor.predict(*found).tobytes() == predictor.predict(*wanted).tobytes()
    results = []

    def work():
        mine = ctypes.POINTER(Encoded)()
        results.append(all(same(arrays_of(encoder.encode(rows, 3, mine), 3), wanted) for _ in range(200)))
        LIBRARY.TrshardEncodedFree(ctypes.byref(mine))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4, results
    encoder.close()


def encoder_of(**root):
    mapping = trsmapping.Mapping(root)
    encoder = Encoder(mapping.text())
    encoder.mapping = mapping
    return encoder


def main():
    counts = {True: 0, False: 0}
    for seed in range(SEED, SEED + 200):
        check_random(seed, counts)
    assert min(counts.values()) > 500, counts
    check_values(encoder_of)
    check_mappings()
    with tempfile.TemporaryDirectory() as folder:
        check_model(folder)
    print(f"encode_c: {counts[False]} random tables have the bits of Python's encoder, {counts[True]} are refused by both")


main()
