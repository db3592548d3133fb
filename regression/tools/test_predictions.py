# SPDX-License-Identifier: BSD-3-Clause
"""tools/predictions.py: predictions beside the keys of the table, for every form of table, and tables
whose rows are not those of the dataset. The tests of Parquet need pyarrow."""
import csv
import importlib.util
import os
import subprocess
import unittest

import h5py
import numpy as np

import convert_table
import predictions
import scratch

PROGRAM = os.environ.get("TRSHARD")
HAS_PYARROW = importlib.util.find_spec("pyarrow") is not None
MODEL = "-tables_embedding_dim 4 -dense_arch 8,4 -over_arch 8,1 -batch_size 16 -steps 3"
COLUMNS = ["--labels", "y", "--dense", "age", "--sparse", "city,tags:9", "--text", "city,tags", "--bags", "tags"]
# Rows are all different. Keys have commas, quotes, line feeds and bytes that are not UTF-8.
ROWS = [{"key": (b"k%d" % i, b"a,%d" % i, b'"%d"' % i, b"two\nlines %d" % i, b"\xff%d" % i, b"")[i % 6], "y": b"%d" % (i % 2), "age": b"%d.5" % i, "city": b"c%d" % (i % 5),
         "tags": b"|".join(b"t%d" % t for t in range(i % 4)), "n": b"%d" % (7 * i)} for i in range(60)]


@unittest.skipUnless(PROGRAM, "TRSHARD does not name the program")
class Predictions(scratch.Scratch):
    def write(self, name, rows):
        with open(self.path(name), "wb") as out:
            out.write(b",".join(column.encode() for column in rows[0]) + b"\n")
            for row in rows:
                cells = [b'"' + cell.replace(b'"', b'""') + b'"' if any(byte in cell for byte in b',"\n') else cell for cell in row.values()]
                out.write(b",".join(cells) + b"\n")
        return self.path(name)

    def predict(self, *convert, more=MODEL):
        """Convert, train and predict. Returns the predictions."""
        result = scratch.inside(convert_table, "--output", self.path("d.h5"), *convert)
        self.assertEqual(result.returncode or 0, 0, result.stderr)
        for words in (["-data_train", "d.h5", *more.split(), "-checkpoint_final", "m.h5"], ["-task", "predict", "-data_eval", "d.h5", "-init_from", "m.h5", "-output", "p.h5"]):
            result = subprocess.run([PROGRAM, *words], cwd=self.folder, capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        with h5py.File(self.path("p.h5")) as handle:
            found = handle["predictions"]
            return found[()] if isinstance(found, h5py.Dataset) else {name: item[()] for name, item in found.items()}

    def tool(self, out, *words, code=0, message=""):
        result = scratch.inside(predictions, self.path("p.h5"), "--output", self.path(out), *words)
        self.assertEqual(result.returncode or 0, code, result.stdout + result.stderr)
        self.assertIn(message, result.stdout + result.stderr)
        if code:
            self.assertFalse(os.path.exists(self.path(out)))
            self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".tmp")], [])
        return result.stdout

    def read(self, name):
        with open(self.path(name), newline="", encoding="utf-8", errors="surrogateescape") as stream:
            return list(csv.DictReader(stream))

    def assert_numbers(self, cells, numbers):
        """The text of each number gives its bits back."""
        self.assertEqual(np.array(cells, np.float32).tobytes(), np.ascontiguousarray(numbers).tobytes())

    def test_csv(self):
        """Two files. The keys keep their bytes; the order and the number of rows are checked."""
        files = [self.write("a.csv", ROWS[:23]), self.write("b.csv", ROWS[23:])]
        expected = self.predict(*COLUMNS, *files)
        self.assertGreater(np.ptp(expected), 1e-3)
        text = self.tool("out.csv", "--keys", "n,key", "--block-mb", "0.0003", *files)
        self.assertIn("60 rows with 2 keys and 1 prediction; each row compared with the dataset", text)
        found = self.read("out.csv")
        self.assertEqual([row["key"].encode("utf-8", "surrogateescape") for row in found], [row["key"] for row in ROWS])
        self.assertEqual([row["n"] for row in found], [row["n"].decode() for row in ROWS])
        self.assert_numbers([row["prediction"] for row in found], expected)
        self.tool("plain.csv", message="60 rows with 1 prediction")
        self.assert_numbers([row["prediction"] for row in self.read("plain.csv")], expected)
        self.tool("glob.csv", "--keys", "k*", *files, "--prefix", "p_")
        self.assertEqual(list(self.read("glob.csv")[0]), ["key", "p_prediction"])
        for words, code, message in ((["--keys", "key", files[1], files[0]], 65, "b.csv, line 2: sample 0 of"),
                                     (["--keys", "key", files[0]], 65, "the inputs have 23 rows"), (["--keys", "key", *files, files[0]], 65, "more rows than"),
                                     (["--keys", "none", *files], 65, "--keys none:"), (["--keys", "key"], 2, ""), (files, 2, ""), (["--keys", "key", self.path("absent.csv")], 66, "absent.csv"),
                                     (["--keys", "key", "--dataset", self.path("m.h5"), *files], 65, "m.h5 is no dataset"), (["--keys", "key", "--delimiter", ";;", *files], 64, "--delimiter ';;'"),
                                     (["--keys", "key", "--dataset", self.path("e.h5"), *files], 66, "e.h5"), (["--block-mb", "nan"], 2, "nan is not above 0")):
            self.tool("bad.csv", *words, code=code, message=message)
        self.tool("none/bad.csv", code=74, message="No such file or directory")
        self.tool("bad.txt", code=64, message="expected a name that ends in .parquet or .csv")

    def test_differences(self):
        """A single changed value in one row is found, in each kind of column and for any size of blocks."""
        files = [self.write("a.csv", ROWS)]
        self.predict(*COLUMNS, *files)
        for row, column, cell in ((41, "age", b"41.25"), (0, "city", b"c9"), (59, "tags", b"t0|t1|t9"), (30, "tags", b""), (7, "age", b"")):
            rows = [dict(one) for one in ROWS]
            rows[row][column] = cell
            changed = self.write("changed.csv", rows)
            for size in ("4", "0.0002"):
                self.tool("bad.csv", "--keys", "n", "--block-mb", size, changed, code=65, message=f"sample {row} of")
            self.tool("same.csv", "--keys", "n", "--no-check", changed, message="the numbers of rows compared")
            os.unlink(self.path("same.csv"))
        rows = [dict(one, y=b"0") for one in ROWS]  # labels are no input of the model
        self.tool("labels.csv", "--keys", "n", self.write("changed.csv", rows))

    def test_without_mapping(self):
        files = [self.write("a.csv", ROWS)]
        expected = self.predict(*COLUMNS, *files)
        with h5py.File(self.path("d.h5"), "a") as handle:
            del handle.attrs["mapping"]
        self.tool("bad.csv", "--keys", "n", *files, code=65, message="has no mapping")
        self.tool("out.csv", "--keys", "n", "--no-check", *files)
        self.assert_numbers([row["prediction"] for row in self.read("out.csv")], expected)
        with h5py.File(self.path("d.h5"), "a") as handle:
            handle.attrs["mapping"] = '{"format": "trshard-mapping", "version": 1, "converter": "convert_movielens.py"}'
        self.tool("bad.csv", "--keys", "n", *files, code=65, message="made by convert_movielens.py, expected convert_table.py")
        with h5py.File(self.path("p.h5"), "a") as handle:
            del handle["predictions"]
        self.tool("bad.csv", code=65, message="has no predictions")

    def test_tasks(self):
        """A column for each task, and for each class of a task; two datasets."""
        rows = [dict(row, kind=b"%d" % (i % 3)) for i, row in enumerate(ROWS)]
        files = [self.write("a.csv", rows)]
        convert = [word if word != "y" else "y,kind" for word in COLUMNS] + ["--task-labels"]
        expected = self.predict(*convert, *files, more=MODEL + " -tasks y,kind -task_kind_loss softmax -task_kind_classes 3")
        self.tool("out.csv", "--keys", "n", *files)
        found = self.read("out.csv")
        self.assertEqual(list(found[0]), ["n", "y", "kind_0", "kind_1", "kind_2"])
        self.assert_numbers([row["y"] for row in found], expected["y"])
        for c in range(3):
            self.assert_numbers([row[f"kind_{c}"] for row in found], expected["kind"][:, c])
        self.tool("bad.csv", "--keys", "y", *files, code=64, message="column y twice")
        if HAS_PYARROW:
            import pyarrow.parquet
            self.tool("out.parquet", "--keys", "n", *files)
            self.assertEqual(pyarrow.parquet.read_table(self.path("out.parquet")).column("kind_2").to_pylist(), expected["kind"][:, 2].tolist())
            self.tool("bad.parquet", "--keys", "key", *files, code=65, message="not UTF-8")

    def test_arrays(self):
        rng = np.random.default_rng(1)
        np.savez(self.path("a.npz"), y=np.arange(40) % 2, x=rng.random((40, 2), np.float32), c=rng.integers(0, 50, 40), key=np.arange(2**62, 2**62 + 40))
        expected = self.predict("--labels", "y", "--dense", "x", "--sparse", "c:50", self.path("a.npz"))
        self.tool("out.csv", "--keys", "key", self.path("a.npz"))
        self.assertEqual([int(row["key"]) for row in self.read("out.csv")], list(range(2**62, 2**62 + 40)))
        self.assert_numbers([row["prediction"] for row in self.read("out.csv")], expected)
        self.tool("bad.csv", "--keys", "x", self.path("a.npz"), code=65, message="has 2 columns")

    @unittest.skipUnless(HAS_PYARROW, "pyarrow is not there")
    def test_parquet(self):
        """Keys keep their types, whatever the row groups and blocks are."""
        import datetime

        import pyarrow as pa
        import pyarrow.parquet as pq
        n = 200
        start = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
        table = pa.table({"at": pa.array([start + datetime.timedelta(microseconds=i) for i in range(n)], pa.timestamp("us", "UTC")), "user": pa.array([None if i % 9 == 0 else 2**63 + i for i in range(n)], pa.uint64()),
                          "name": pa.array([f"é{i}" for i in range(n)]).dictionary_encode(), "pair": pa.array([[i, i + 1] for i in range(n)]), "y": pa.array([float(i % 2) for i in range(n)]),
                          "x": pa.array([i / 7 for i in range(n)], pa.float32()), "c": pa.array([[i % 11] * (i % 3) for i in range(n)], pa.list_(pa.int32()))})
        files = [self.path("a.parquet"), self.path("b.parquet")]
        pq.write_table(table.slice(0, 130), files[0], row_group_size=17)
        pq.write_table(table.slice(130), files[1], row_group_size=64)
        expected = self.predict("--labels", "y", "--dense", "x", "--sparse", "c:11,at", *files, more=MODEL + " -table_at_id_map hash -table_at_num_embeddings 30")
        for size in ("4", "0.0005"):
            self.tool("out.parquet", "--keys", "at,user,name,pair", "--block-mb", size, *files)
            found = pq.read_table(self.path("out.parquet"))
            self.assertEqual(found.select(["at", "user", "pair"]), table.select(["at", "user", "pair"]))
            self.assertEqual((found.schema.field("at").type, found.column("name").to_pylist()), (pa.timestamp("us", "UTC"), table.column("name").to_pylist()))
            self.assertEqual(found.column("prediction").type, pa.float32())
            self.assert_numbers(found.column("prediction").to_pylist(), expected)
        self.tool("out.csv", "--keys", "user,name", *files)
        self.assertEqual([row["user"] for row in self.read("out.csv")], ["" if user is None else str(user) for user in table.column("user").to_pylist()])
        self.tool("bad.csv", "--keys", "pair", *files, code=64, message="values are lists")
        pq.write_table(table.slice(130).set_column(1, "user", pa.array(range(70))), files[1])
        self.tool("bad.parquet", "--keys", "user", *files, code=65, message="the inputs have the types uint64 and int64")
        pq.write_table(table.slice(130).take(list(reversed(range(70)))), files[1])
        self.tool("bad.parquet", "--keys", "at", *files, code=65, message="sample 130 of")


if __name__ == "__main__":
    unittest.main()
