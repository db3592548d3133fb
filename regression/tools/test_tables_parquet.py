# SPDX-License-Identifier: BSD-3-Clause
"""tools/convert_table.py with Parquet: the same dataset as from text; malformed files.

These tests need a Python that has pyarrow: this one, or a virtual environment that is made from
PyPI in the folder TRSHARD_PYARROW. If neither is possible, they are skipped.
"""
import importlib.util
import json
import os
import random
import subprocess
import sys
import unittest

import h5py
import numpy as np

from scratch import Scratch
from tables_fixture import COLUMNS, Conversions, OF_TEXT, SMALL, TABLE, TOOLS, write_text

# convert_table.py on all Parquet files of the folder, which it must refuse with 65 and a line with
# the file's name and the message.
REFUSED = """
import contextlib, glob, io, sys
import convert_table
for name in glob.glob("*.parquet"):
    sys.argv = ["convert_table.py", "--output", name + ".h5", "--labels", "y", "--sparse", "s", name]
    error = io.StringIO()
    try:
        with contextlib.redirect_stderr(error):
            convert_table.main()
    except SystemExit as end:
        assert end.code == 65, error.getvalue()
    print(name, error.getvalue().rstrip())
"""


def python_with_pyarrow():
    """An interpreter, or the reason why there is none."""
    if importlib.util.find_spec("pyarrow"):
        return sys.executable, None
    folder = os.environ.get("TRSHARD_PYARROW")
    if not folder:
        return None, "pyarrow is not there, and TRSHARD_PYARROW names no folder for it"
    python = os.path.join(folder, "bin", "python3")
    if not os.path.exists(os.path.join(folder, "ready")):
        pip = [python, "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "15", "h5py", "numpy", "pyarrow", "pyyaml", "tqdm"]
        try:
            for command in ([sys.executable, "-m", "venv", "--clear", folder], pip):
                subprocess.run(command, check=True, capture_output=True, timeout=180)
        except (OSError, subprocess.SubprocessError) as problem:
            return None, f"pyarrow cannot be installed ({problem})"
        with open(os.path.join(folder, "ready"), "w", encoding="ascii"):
            pass
    return python, None


class Parquet(Conversions):
    @classmethod
    def setUpClass(cls):
        cls.python, reason = python_with_pyarrow()
        if reason:
            raise unittest.SkipTest(reason)

    def write(self, code, *arguments):
        """Run code that writes Parquet, with pa and pq."""
        subprocess.run([self.python, "-c", "import sys, csv, numpy as np, pyarrow as pa, pyarrow.parquet as pq\n" + code, *arguments], check=True)

    def test_parquet_as_criteo(self):
        """Row groups smaller and larger than a block, integers, and categories as text and as a
        dictionary of texts."""
        rows = self.criteo()
        write_text(self.path("a.csv"), rows, COLUMNS)
        self.write("""
rows = list(csv.reader(open(sys.argv[1])))
names, columns = rows[0], list(zip(*rows[1:]))
arrays = [pa.array([int(x) if x else None for x in c], pa.int32()) for c in columns[:14]]
arrays += [pa.array([x or None for x in c]) for c in columns[14:]]
arrays[20] = arrays[20].dictionary_encode()
arrays[3] = arrays[3].cast(pa.float32())
table = pa.table(arrays, names)
for size in (100, 3000):
    pq.write_table(table, f"{sys.argv[2]}/{size}.parquet", row_group_size=size)
""", self.path("a.csv"), self.folder)
        for size in (100, 3000):
            self.convert(f"{size}.h5", *OF_TEXT, "--block-mb", "0.1", self.path(f"{size}.parquet"), python=self.python)
            self.assert_same(f"{size}.h5", "criteo.h5")
        self.convert("text.h5", *OF_TEXT[:4], "--sparse", "C*:1000", self.path("100.parquet"), python=self.python)
        self.convert("csv.h5", *OF_TEXT[:4], "--sparse", "C*:1000", "--text", "C*", self.path("a.csv"))
        self.assert_same("text.h5", "csv.h5")

    def test_bags_and_kinds(self):
        """Lists with nulls and slices, strings, unsigned numbers and times give the result of the
        same rows in CSV."""
        rng = random.Random(5)
        rows = []
        for i in range(1000):
            bag = [rng.choice(["x", "yy", "a longer word", "ä"]) for _ in range(rng.randrange(4))]
            ids = [rng.randrange(2**64) for _ in range(rng.randrange(5))]
            rows.append([i % 2, "|".join(bag), "|".join(map(str, ids)), "|".join(str(k / 4) for k in range(len(ids))), i, 1700000000000 + i])
        write_text(self.path("a.csv"), rows, ["y", "words", "ids", "weights", "g", "t"])
        self.write("""
rows = list(csv.reader(open(sys.argv[1])))[1:]
split = lambda cell: cell.split("|") if cell else []
y, words, ids, weights, g, t = zip(*rows)
words = [None if i % 5 == 0 and not w else [None] * (i % 3 == 0) + split(w) for i, w in enumerate(words)]
table = pa.table({"y": pa.array([x == "1" for x in y]), "words": pa.array(words, pa.large_list(pa.string())), "ids": pa.array([list(map(int, split(i))) for i in ids],
    pa.list_(pa.uint64())), "weights": pa.array([list(map(float, split(w))) for w in weights], pa.list_(pa.float32())), "g": pa.array(map(int, g), pa.time32("ms")),
    "t": pa.array(map(int, t), pa.timestamp("ms")), "unused": pa.array([{"a": 1}] * len(y))})
pq.write_table(table, sys.argv[2] + "/a.parquet", row_group_size=300)
table = table.set_column(1, "words", pa.array(words, pa.large_list(pa.dictionary(pa.int32(), pa.string()))))
pq.write_table(table, sys.argv[2] + "/b.parquet", row_group_size=300)
""", self.path("a.csv"), self.folder)
        with open(self.path("map.json"), "w", encoding="ascii") as out:
            json.dump({"labels": "y", "sparse": [{"column": "words", "rows": 777}, {"column": "ids", "weights": "weights"}], "group": "g", "time": "t"}, out)
        self.convert("csv.h5", "--mapping", self.path("map.json"), "--text", "words", "--bags", "words,ids,weights", self.path("a.csv"))
        for name, *more in (("a.parquet", "--block-mb", "0.003"), ("b.parquet", "--block-mb", "0.003"),
                            # PyPI's HDF5 may be newer than the one that reads the file here
                            ("b.parquet", "--compress", "1")):
            self.convert("parquet.h5", "--mapping", self.path("map.json"), *more, self.path(name), python=self.python)
            self.assert_same("parquet.h5", "csv.h5")

    def test_decimals_and_floats(self):
        """Decimals of every width keep all digits as ids. Floats that cannot represent every
        integer are refused."""
        self.write("""
from decimal import Decimal as D
ids = [2**53 + 1, 2**62 + 1, -2**63, 2**63, 2**64 - 1, -1, 0, None]
wide = [None if i is None else D(i) for i in ids]
def put(name, array): pq.write_table(pa.table({"y": [i % 2 for i in range(len(array))], "d": array, "s": array}), f"{sys.argv[1]}/{name}.parquet")
put("d128", pa.array(wide, pa.decimal128(38, 0)))
put("d256", pa.array(wide, pa.decimal256(60, 0)))
put("sliced", pa.array([D(7), *wide], pa.decimal128(38, 0))[1:])
put("scaled", pa.array(wide, pa.decimal128(38, 3)))
put("large", pa.array([D(3), D(2**64)], pa.decimal128(38, 0)))
put("small", pa.array([D(3), D(-2**63 - 1)], pa.decimal256(60, 0)))
put("half", pa.array([D(3), D("2.5")], pa.decimal128(10, 1)))
put("f32", pa.array([2.0**24 - 1, 2.0**24], pa.float32()))
put("f64", pa.array([2.0**53 - 1, -2.0**53], pa.float64()))
put("f16", pa.array(np.float16([2047, 2048]), pa.float16()))
""", self.folder)
        for name in ("d128", "d256", "sliced", "scaled"):
            self.convert(f"{name}.h5", "--labels", "y", "--dense", "d", "--sparse", "s", self.path(f"{name}.parquet"), python=self.python)
            with h5py.File(self.path(f"{name}.h5")) as h:
                self.assertEqual(h["sparse/values"][()].tolist(), [2**53 + 1, 2**62 + 1, -2**63, -2**63, -1, -1, 0])
                np.testing.assert_array_equal(h["dense"][:, 0], np.float32([2**53, 2**62, -2**63, 2**63, 2**64, -1, 0, 0]))
        self.convert("modulo.h5", "--labels", "y", "--sparse", "s:1000", "--modulo", self.path("d128.parquet"), python=self.python)
        with h5py.File(self.path("modulo.h5")) as h:
            self.assertEqual(h["sparse/values"][()].tolist(), [(2**53 + 1) % 1000, (2**62 + 1) % 1000, -2**63 % 1000, 2**63 % 1000, 615, 999, 0])
        for name, message in (("large", "row 1, column s: 18446744073709551616 is not an integer of 64 bits"), ("small", "-9223372036854775809 is not an integer"),
                              ("half", "row 1, column s: 2.5 is not an integer"), ("f32", "float32 does not hold every integer from 16777216 on"),
                              ("f64", "float64 does not hold every integer from 9007199254740992 on"), ("f16", "float16 does not hold every integer from 2048 on")):
            with self.subTest(name):
                self.assertIn(message, self.convert("bad.h5", "--labels", "y", "--sparse", "s", self.path(f"{name}.parquet"), code=65, python=self.python))

    def test_more_types(self):
        """Views, maps, UUIDs, bytes of one size, and lists as dense features."""
        self.write("""
import uuid
u = [uuid.UUID(int=7), None, uuid.UUID(int=2**127)]
columns = {"y": [0, 1, 0], "d": pa.array([[1.0, 2.0], None, [3.0, 4.5]], pa.list_(pa.float64())), "e": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
           "m": pa.array([[(5, 0.5), (6, 2.0)], [], [(7, 1.0)]], pa.map_(pa.int64(), pa.float32())), "b": pa.array([b"ab", b"cd", None], pa.binary(2)),
           "u": pa.array([x and str(x) for x in u]), "v": ["a", "bb", None]}
table = pa.table(columns)
pq.write_table(table, sys.argv[1] + "/plain.parquet")
if hasattr(pa, "string_view"):
    table = table.set_column(table.schema.names.index("v"), "v", pa.array(["a", "bb", None], pa.string_view()))
if hasattr(pa, "uuid"):
    table = table.set_column(table.schema.names.index("u"), "u", pa.array([x and x.bytes for x in u], pa.uuid()))
pq.write_table(table, sys.argv[1] + "/views.parquet")
pq.write_table(pa.table({"y": [0, 1], "d": [[1.0, 2.0], [3.0]], "m": [1, 2]}), sys.argv[1] + "/ragged.parquet")
""", self.folder)
        with open(self.path("map.json"), "w", encoding="ascii") as out:
            json.dump({"labels": "y", "dense": ["d", "e"], "sparse": [{"column": "m", "weights": "m.value"}, "b", "u", "v"]}, out)
        for name in ("plain", "views"):
            self.convert(f"{name}.h5", "--mapping", self.path("map.json"), self.path(f"{name}.parquet"), python=self.python)
        self.assert_same("views.h5", "plain.h5")
        with h5py.File(self.path("views.h5")) as h:
            np.testing.assert_array_equal(h["dense"][()], np.float32([[1, 2, 1, 2], [0, 0, 3, 4], [3, 4.5, 5, 6]]))
            self.assertEqual((h["sparse/lengths"][:, 0].tolist(), h["sparse/values"][:2].tolist(), h["sparse/weights"][:2].tolist()), ([2, 0, 1], [5, 6], [0.5, 2]))
        message = self.convert("bad.h5", "--labels", "y", "--dense", "d", "--sparse", "m", self.path("ragged.parquet"), code=65, python=self.python)
        self.assertIn("ragged.parquet, row 1, column d: a list of 1 numbers, expected 2", message)

    def test_unsigned(self):
        """Ids of uint64 stay unsigned. Together with signed ids they keep their bits, and the
        converter prints this."""
        self.write("""
pq.write_table(pa.table({"y": [0, 1], "u": pa.array([2**64 - 1, 5], pa.uint64()), "l": pa.array([[2**63], []], pa.list_(pa.uint64())), "i": [-1, 2]}), sys.argv[1])
""", self.path("a.parquet"))
        for columns, kind, values in (("u,l", np.uint64, [2**64 - 1, 2**63, 5]), ("u,i:9", np.uint64, [2**64 - 1, 2**64 - 1, 5, 2]), ("u,i", np.int64, [-1, -1, 5, 2])):
            text = self.convert("a.h5", "--labels", "y", "--sparse", columns, self.path("a.parquet"), python=self.python)
            with h5py.File(self.path("a.h5")) as h:
                self.assertEqual((h["sparse/values"].dtype, h["sparse/values"][()].tolist()), (kind, values))
            self.assertEqual("1 id of 2^63" in text, kind == np.int64)

    def test_killed_with_parquet(self):
        self.write("""
n = np.arange(20000)
table = pa.table({"y": n % 2, "s": n * n, "w": [str(i) for i in n]})
pq.write_table(table, sys.argv[1] + "/a.parquet", row_group_size=700)
pq.write_table(table, sys.argv[1] + "/b.parquet")
""", self.folder)
        self.killed(self.python, "--labels", "y", "--sparse", "s,w", "--vocabulary", "none", *SMALL, self.path("a.parquet"), self.path("b.parquet"))

    def test_malformed_parquet(self):
        self.write("""
base = {"y": [0, 1], "s": [1, 2]}
for name, columns in {"null": {"y": [0, None]}, "nested": {"s": [[[1]], [[2]]]}, "list": {"y": [[0], [1]]}, "struct": {"s": [{"a": 1}, {"a": 2}]},
                      "fraction": {"s": [1.0, 2.5]}, "label": {"y": [0.0, 7.0]}, "cut": {}}.items():
    pq.write_table(pa.table({**base, **columns}), f"{sys.argv[1]}/{name}.parquet")
open(sys.argv[1] + "/text.parquet", "w").write("y,s")
""", self.folder)
        os.truncate(self.path("cut.parquet"), os.path.getsize(self.path("cut.parquet")) - 10)
        result = subprocess.run([self.python, "-c", REFUSED], cwd=self.folder, env={**os.environ, "PYTHONPATH": TOOLS}, capture_output=True, text=True, check=True)
        errors = {line.split()[0]: line for line in result.stdout.splitlines()}
        for name, message in (("null", "null.parquet, row 1, column y: a missing value"), ("nested", "column s: lists of lists"), ("list", "column y: a list, expected one value"),
                              ("struct", "column s: struct<a: int64> is not taken"), ("fraction", "row 1, column s: 2.5 is not an integer"),
                              ("label", "row 1, column y: 7.0, expected a label from 0 to 1"), ("cut", "cut.parquet: "), ("text", "text.parquet: ")):
            with self.subTest(name):
                self.assertIn(message, errors[name + ".parquet"])
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".h5")], [])

    def test_memory_with_parquet(self):
        """a single row group has all rows, so that reading it as a whole would be detected"""
        def write(rows):
            self.write("""
n = np.arange(int(sys.argv[1]))
pq.write_table(pa.table({"y": n % 2, "d": n / 7, "a": n, "b": n * n}), sys.argv[2], row_group_size=len(n), use_dictionary=False)
""", str(rows), self.path("m.parquet"))
            return self.path("m.parquet")

        self.check_memory(self.python, write, 400000, 4000000, 48, "4")  # 122 MiB of numbers


class WithoutPyarrow(Scratch):
    @unittest.skipIf(importlib.util.find_spec("pyarrow"), "pyarrow is there")
    def test_says_how_to_get_it(self):
        result = subprocess.run([sys.executable, TABLE, "--output", self.path("a.h5"), "--labels", "y", "--sparse", "s", self.path("a.parquet")],
                                capture_output=True, text=True, check=False, env={**os.environ, "TRSHARD_PYTHON": sys.executable, "PATH": "/usr/bin"})
        self.assertEqual(result.returncode, 69)
        self.assertRegex(result.stderr, r"-m venv .* -m pip install .*pyarrow.*TRSHARD_PYTHON=")


if __name__ == "__main__":
    unittest.main()
