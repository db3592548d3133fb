# SPDX-License-Identifier: BSD-3-Clause
"""The mapping that convert_table.py writes, and the encoder that applies it: raw rows become the
dataset's numbers, bit for bit. The tests of Parquet need pyarrow."""
import datetime
import decimal
import importlib.util
import json
import os
import subprocess
import sys
import unittest
import unittest.mock

import h5py
import numpy as np

import convert_criteo
import convert_table
import scratch
import trscolumns
import trsmapping
import trsrows
import trsvocabulary

TABLE = os.path.join(os.path.dirname(trsmapping.__file__), "convert_table.py")
HAS_PYARROW, HAS_PANDAS = (importlib.util.find_spec(name) is not None for name in ("pyarrow", "pandas"))


class OfTables(scratch.Scratch):
    def convert(self, name, *arguments, code=0, tool=convert_table):
        """Run the converter in this process. Returns what it prints."""
        result = scratch.inside(tool, "--output", self.path(name), *arguments)
        self.assertEqual(result.returncode or 0, code, result.stderr)
        return result.stdout + result.stderr

    def mapping(self, name):
        with h5py.File(self.path(name)) as h:
            return trsmapping.read(h.attrs["mapping"], name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as out:
            out.write(text)
        return self.path(name)

    def assert_encodes(self, name, rows):
        """The rows, encoded by the mapping of the dataset, are the dataset."""
        mapping = self.mapping(name)
        features = [entry["name"] for entry in mapping.sparse]
        encoder = trsrows.Encoder(mapping, [entry["name"] for entry in mapping.dense], features)
        lengths, values, weights, dense = encoder.encode(rows)
        with h5py.File(self.path(name)) as h:
            ends = np.cumsum(h["sparse/lengths"][()].reshape(-1))
            order = [i * len(features) + f for f in range(len(features)) for i in range(len(h["sparse/lengths"]))]
            by_feature = lambda array: (lambda bags: np.concatenate([bags[i] for i in order]))(np.split(array, ends[:-1]))
            self.assertEqual(lengths.T.tolist(), h["sparse/lengths"][()].tolist())
            self.assertEqual(values.tolist(), by_feature(h["sparse/values"][()]).astype(np.int64).tolist())
            if "sparse/weights" in h:
                self.assertEqual(weights.tobytes(), by_feature(h["sparse/weights"][()]).tobytes())
            if "dense" in h:
                self.assertEqual(dense.tobytes(), h["dense"][()].tobytes())
        return encoder

    def test_entries(self):
        """The mapping names every decision. Equal conversions have equal texts."""
        self.write("a.csv", "at,y,age,user,hex,tags,device\n5,1,30,x,ff,a|b,\n6,0,NA,,a,,\n")
        self.write("b.csv", "at,y,age,user,hex,tags\n7,1,1e3,y,0,c\n")
        options = ["--labels", "y", "--dense", "age", "--log1p", "--dense-missing", "-1", "--sparse", "user:10,n=hex,tags:7,device", "--text", "user,tags,device", "--hexadecimal", "hex",
                   "--bags", "tags", "--nulls", "NA", "--time", "at", "--time-unit", "ms", "--absent", "device=tv", "--sparse-missing", "2", "--vocabulary", "none"]
        for name in ("d.h5", "e.h5"):
            self.convert(name, *options, self.path("a.csv"), self.path("b.csv"))
        mapping = self.mapping("d.h5")
        self.assertEqual(mapping.text(), self.mapping("e.h5").text())
        self.assertEqual(mapping.root["time"], {"column": "at", "place": 0, "kind": "integer", "base": 10, "unit": "ms"})
        self.assertEqual((mapping.nulls, mapping.absent, mapping.root["labels"]), (["NA"], {"device": "tv"}, [{"name": "y", "column": "y", "place": 0}]))
        self.assertEqual(mapping.dense, [{"name": "age", "column": "age", "place": 0, "width": 1, "unit": None, "log1p": True, "missing": -1.0}])
        short = [[entry[key] for key in ("name", "column", "kind", "base", "rows", "modulo", "bag", "missing")] for entry in mapping.sparse]
        self.assertEqual(short, [["user", "user", "text", 10, 10, True, False, 2], ["n", "hex", "integer", 16, 0, False, False, 2],
                                 ["tags", "tags", "text", 10, 7, True, True, 2], ["device", "device", "text", 10, 0, False, False, 2]])
        self.assert_encodes("d.h5", [{"age": 30, "user": "x", "hex": "ff", "tags": ["a", "b"], "device": None}, {"age": None, "user": "", "hex": "a", "tags": "", "device": ""},
                                     {"age": 1000.0, "user": "y", "hex": "0", "tags": ["c"], "device": "tv"}])
        row = {"age": np.nan, "user": b"q", "hex": "1", "tags": "c|"}
        encoder = trsrows.Encoder(mapping, ["age"], ["device"])
        self.assertEqual(encoder.encode([dict(row, device="tv")])[1].tolist(), encoder.encode([row])[1].tolist(), "an absent column has its value")

    def test_arrays(self):
        """Columns of npy and npz files with several numbers in a row, as arrays and as lists."""
        rng = np.random.default_rng(1)
        integers, cats = rng.integers(-2, 90, (40, 3)), rng.integers(0, 2**40, (40, 2))
        np.savez(self.path("p.npz"), X_int=integers, X_cat=cats, y=rng.integers(0, 2, 40), counts=np.array([11, 1001]))
        self.convert("p.h5", "--layout", "dlrm", "--modulo", self.path("p.npz"))
        mapping = self.mapping("p.h5")
        self.assertEqual([entry["name"] for entry in mapping.dense], ["X_int_0", "X_int_1", "X_int_2"])
        self.assert_encodes("p.h5", {"X_int": integers, "X_cat": cats})
        self.assert_encodes("p.h5", [{"X_int": a.tolist(), "X_cat": b.tolist()} for a, b in zip(integers, cats)])
        hot = {str(f): rng.integers(0, 50, (40, 1 + f)).astype(np.int32) for f in range(3)}
        for name, array in (("day_3_labels", rng.integers(0, 2, (40, 1))), ("day_3_dense", rng.random((40, 3), np.float32))):
            np.save(self.path(f"{name}.npy"), array)
        np.savez(self.path("day_3_hot.npz"), **hot)
        self.convert("m.h5", "--layout", "mlperf", "+".join(self.path(f"day_3_{word}") for word in ("labels.npy", "dense.npy", "hot.npz")))
        self.assertEqual([entry["name"] for entry in self.mapping("m.h5").dense], ["dense_0", "dense_1", "dense_2"], "names do not depend on the day")
        self.assert_encodes("m.h5", {**hot, "day_3_dense": np.load(self.path("day_3_dense.npy"))})

    @unittest.skipUnless(HAS_PYARROW, "pyarrow is not there")
    def test_parquet(self):
        """Types of Parquet with times, decimals, lists, maps of weights and dictionaries, also from
        Python's own types and from numpy."""
        import pyarrow as pa
        import pyarrow.parquet as pq
        times = [datetime.datetime(2024, 1, day, 12, 30, 15, 250000) for day in range(1, 9)]
        days = [datetime.date(2024, 2, day) if day != 3 else None for day in range(1, 9)]
        columns = {"y": pa.array([0.0, 1.0] * 4), "at": pa.array(times, pa.timestamp("ms")), "day": pa.array(days, pa.date32()),
                   "cost": pa.array([decimal.Decimal(n) / 8 for n in range(8)], pa.decimal128(9, 3)), "id": pa.array([2**62 + n for n in range(8)], pa.decimal128(38, 0)),
                   "word": pa.array(["a", None, "", "é"] * 2).dictionary_encode(), "list": pa.array([[1, 2], [], None, [2**63 + 1]] * 2, pa.list_(pa.uint64())),
                   "w": pa.array([[0.5, 2.0], [], None, [3.0]] * 2), "two": pa.array([[1.5, 2.5]] * 8, pa.list_(pa.float32(), 2)), "flag": pa.array([True, None] * 4)}
        table = pa.table(columns)
        pq.write_table(table, self.path("t.parquet"))
        self.convert("t.h5", "--mapping", self.write("m.json", json.dumps({
            "labels": ["y"], "dense": ["cost", "two", "flag", "at"], "time": "at", "modulo": True,
            "sparse": [{"column": "day", "rows": 1000}, {"column": "id", "rows": 97}, {"column": "word", "rows": 11}, {"column": "list", "rows": 13, "weights": "w"}, "at:50"]})),
            self.path("t.parquet"))
        mapping = self.mapping("t.h5")
        self.assertEqual([entry["unit"] for entry in mapping.sparse], ["day", None, None, None, "ms"])
        self.assertEqual((mapping.root["time"]["unit"], mapping.dense[-1]["unit"]), ("ms", "ms"))
        self.assert_encodes("t.h5", table)
        rows = table.to_pylist()
        self.assert_encodes("t.h5", rows)
        finer = table.set_column(1, "at", pa.array(times, pa.timestamp("ns", "Europe/Zurich")).cast(pa.timestamp("ns")))
        self.assert_encodes("t.h5", finer)
        self.assert_encodes("t.h5", {name: [row[name] for row in rows] for name in rows[0]} | {"at": np.array(times, "datetime64[us]")})
        with self.assertRaisesRegex(trscolumns.Refused, "expected times in units of day"):
            self.assert_encodes("t.h5", table.set_column(2, "day", pa.array(times, pa.timestamp("s"))))

    def values(self, entry, column):
        """The ids of a sparse feature that this entry of a mapping makes of a column."""
        encoder = trsrows.Encoder(trsmapping.Mapping({"sparse": [{"name": "a", "column": "a", **entry}]}), [], ["a"])
        return encoder.encode({"a": column} if isinstance(column, (list, tuple, np.ndarray)) else column)[1].tolist()

    def test_times_before_1970(self):
        """Times of a finer unit are rounded down, before 1970 too, in every form of rows."""
        times = np.array([-1_500_001, -1, 0, 1_500_001], "datetime64[us]")
        spans, wanted = times.astype(np.int64).astype("timedelta64[us]"), [-1501, -1, 0, 1500]
        for unit, ids in (("ms", wanted), ("s", [-2, -1, 0, 1])):
            forms = [times, spans, times.tolist(), spans.tolist(), list(times), times.astype("datetime64[ns]")]
            if HAS_PYARROW:
                import pyarrow as pa
                forms += [pa.table({"a": array}) for array in (pa.array(times), pa.array(spans), pa.array(times).cast(pa.timestamp("ns", "UTC")), pa.array(times).dictionary_encode())]
            if HAS_PANDAS:
                import pandas
                forms += [pandas.DataFrame({"a": array}) for array in (times, spans, pandas.Series(times).astype(object))]
            for form in forms:
                self.assertEqual(self.values({"unit": unit}, form), ids, f"{unit} of {form!r}")
        if HAS_PANDAS:
            fine = pandas.Series(pandas.to_datetime([-1_500_001, 7], unit="ns"))
            for form in (fine, fine.dt.tz_localize("UTC"), fine.dt.tz_localize("UTC").dt.tz_convert("Europe/Zurich"), fine.astype(object)):
                self.assertEqual(self.values({"unit": "ns"}, pandas.DataFrame({"a": form})), [-1_500_001, 7])
        if HAS_PYARROW:
            missing = pa.table({"a": pa.array([-1, None, 2_000], pa.timestamp("us"))})
            self.assertEqual(self.values({"unit": "ms"}, missing), [-1, 2])
            for array, message in ((pa.array([10**12], pa.timestamp("s")), "column a: Casting"), (pa.array([[1]], pa.list_(pa.timestamp("s"))), "expected times in units of ns")):
                with self.assertRaisesRegex(trscolumns.Refused, message):
                    self.values({"unit": "ns", "bag": pa.types.is_list(array.type)}, pa.table({"a": array}))

    def test_both_signs(self):
        """Integers of 2^63 and above beside negative ones are those of the converter, alone and in bags."""
        numbers = [2**63, -3, None, 2**64 - 1, 5]
        for rows, wanted in ((0, [-2**63, -3, -1, 5]), (7, [2**63 % 7, 4, (2**64 - 1) % 7, 5])):
            self.write("a.csv", "y,a\n" + "".join(f"1,{'' if number is None else number}\n" for number in numbers))
            self.convert("a.h5", "--labels", "y", "--sparse", *([f"a:{rows}", "--modulo"] if rows else ["a"]), "--vocabulary", "none", self.path("a.csv"))
            self.assert_encodes("a.h5", [{"a": number} for number in numbers])
            entry = {"rows": rows, "modulo": bool(rows)}
            self.assertEqual(self.values(entry, numbers), wanted)
            self.assertEqual(self.values({**entry, "bag": True, "separator": "|"}, [numbers[:2], [], numbers[2:]]), wanted)
            self.assertEqual(self.values(entry, np.array(numbers, object)), wanted)
        with self.assertRaisesRegex(trscolumns.Refused, "row 1, column a: id 18446744073709551615"):
            self.values({"rows": 7}, [-1, 2**64 - 1])
        mapping = trsmapping.Mapping({"dense": [{"name": "d", "column": "d"}, {"name": "e", "column": "e", "place": 1, "width": 2}]})
        dense = trsrows.Encoder(mapping, ["d", "e"], []).encode({"d": [2**63, -3], "e": [[0, 2**63], [1, -4]]})[3]
        self.assertEqual(dense.tolist(), [[2.0**63, 2.0**63], [-3, -4]])
        for column, message in (([2**80, 1], "row 0, column a: 1.2089258196146292e\\+24 is not an integer of 64 bits"), ([1, 2**63, 1.5], "float64 does not|not an integer"),
                                ([2**80, 1.5], "float64 does not|not an integer|expected text")):
            with self.assertRaisesRegex(trscolumns.Refused, message):
                self.values({}, column)

    def test_vocabulary(self):
        """Ids by descending frequency, equal counts by value, over several inputs; rare, later and
        missing values; the same ids for other data. Numbers are computed by hand."""
        self.write("a.csv", "y,city,n,tags\n1,b,7,x|x|z\n0,a,7,\n0,b,9,y|x\n")
        self.write("b.csv", "y,city,n,tags\n1,,8,z\n1,c,,w|\n1,a,7,x\n")
        columns = ["--labels", "y", "--sparse", "city,n,tags", "--text", "city,tags", "--bags", "tags"]
        files = [self.path("a.csv"), self.path("b.csv")]
        text = self.convert("v.h5", *columns, "--vocabulary", "n:5:2,tags:2", *files)
        mapping = self.mapping("v.h5")
        self.assertEqual([entry["vocabulary"] for entry in mapping.sparse], [["a", "b", "c"], [7], ["x", "z"]])
        for line in ("city: a vocabulary of 3 words in 4 rows; row 0", "n: a vocabulary of 1 word in 2 rows; 2 others have row 0", "tags: a vocabulary of 2 words in 3 rows; 2 others"):
            self.assertIn(line, text)
        with h5py.File(self.path("v.h5")) as h:
            self.assertEqual(h["sparse"].attrs["num_embeddings"].tolist(), [4, 2, 3])
            self.assertEqual(h["sparse/lengths"][()].tolist(), [[1, 1, 3], [1, 1, 0], [1, 1, 2], [0, 1, 1], [1, 0, 1], [1, 1, 1]])
            self.assertEqual(h["sparse/values"][()].tolist(), [2, 1, 1, 1, 2] + [1, 1] + [2, 0, 0, 1] + [0, 2] + [3, 0] + [1, 1, 1])
            self.assertEqual(h["sparse/values"].dtype, np.int32)
        self.assert_encodes("v.h5", {"city": ["b", "a", "b", None, "c", "a"], "n": [7, 7, 9, 8, None, 7], "tags": ["x|x|z", "", "y|x", "z", "w|", "x"]})
        self.write("c.csv", "y,city,n,tags\n1,new,7,z|new\n0,c,,x\n")
        for source in ("v.h5", "m.json"):
            with open(self.path("m.json"), "w", encoding="utf-8") as out:
                out.write(mapping.text())
            self.convert("w.h5", *columns, "--vocabulary-from", self.path(source), "--sparse-missing", "0", self.path("c.csv"))
            with h5py.File(self.path("w.h5")) as h:
                self.assertEqual(h["sparse/values"][()].tolist(), [0, 1, 2, 0, 3, 0, 1])
            self.assertEqual([entry["vocabulary"] for entry in self.mapping("w.h5").sparse], [entry["vocabulary"] for entry in mapping.sparse])
        self.convert("old.h5", *columns, "--vocabulary", "none", *files)
        with h5py.File(self.path("old.h5")) as h:
            self.assertEqual(h["sparse"].attrs["num_embeddings"].tolist(), [0, 0, 0])

    def test_many_words(self):
        """Text with more words than the limit (50 here) keeps its hash, unless --vocabulary names the column. Words that are not UTF-8 are
        words. The converter prints in how many rows the words of a hash are."""
        n = 200
        with open(self.path("a.csv"), "wb") as out:
            out.write(b"y,many,raw,hashed\n" + b"".join(b"1,w%d,%s,h%d\n" % (i, b"\xff" if i % 3 else b"q", i % 24) for i in range(n)))
        columns = ["--labels", "y", "--sparse", "many,raw,hashed:23", "--text", "many,raw,hashed", self.path("a.csv")]
        with unittest.mock.patch.object(trsvocabulary, "MOST_WORDS", 50):
            text = self.convert("a.h5", *columns)
        self.assertIn("many: more than 50 words, so its ids are 64-bit hashes (--vocabulary many:MAX", text)
        mapping = self.mapping("a.h5")
        self.assertEqual([entry.get("vocabulary") for entry in mapping.sparse], [None, [{"hex": "ff"}, "q"], None])
        used = len({int(value) for value in self.values_of("a.h5", 2)})
        self.assertLess(used, 23)
        self.assertIn(f"hashed: 24 words in {used} rows", text)
        self.assertEqual((mapping.sparse[2]["words"], mapping.sparse[2]["words_rows"]), (24, used))
        self.convert("b.h5", "--vocabulary", "many:10:1", *columns)
        self.assertEqual(self.mapping("b.h5").sparse[0]["vocabulary"], ["w0", "w1", "w10", "w100", "w101", "w102", "w103", "w104", "w105", "w106"])
        shown = subprocess.run([sys.executable, TABLE.replace("convert_table", "inspect_file"), self.path("a.h5")], capture_output=True, text=True, check=True).stdout
        self.assertRegex(shown, f"hashed, .*24 words in {used} rows")
        told = subprocess.run([sys.executable, TABLE.replace("convert_table", "dataset_statistics"), self.path("a.h5")], capture_output=True, text=True, check=True).stdout
        self.assertRegex(told, f"hashed: 24 words in {used} rows")

    def test_killed(self):
        """A conversion with vocabularies and counted words that is killed anywhere and started again
        gives the same samples and the same mapping."""
        self.write("a.csv", "y,s,t\n" + "".join(f"1,w{i * i % 97},h{i % 60}\n" for i in range(4000)))
        words = ["--labels", "y", "--sparse", "s,t:40", "--text", "s,t", "--block-mb", "0.01", "--output-eval", self.path("e.h5"), self.path("a.csv")]
        once = self.convert("once.h5", *words)
        self.assertEqual(self.mapping("e.h5").text(), self.mapping("once.h5").text())
        for n in (1, 2, 5, 11):
            scratch.kill(convert_table, n, "--output", self.path("again.h5"), *words)
        self.assertIn("going on after", self.convert("again.h5", *words))
        self.assertEqual(self.mapping("again.h5").text(), self.mapping("once.h5").text())
        self.assertIn("t: 60 words in", once)
        with h5py.File(self.path("again.h5")) as a, h5py.File(self.path("once.h5")) as b:
            self.assertEqual(a["sparse/values"][()].tolist(), b["sparse/values"][()].tolist())

    def values_of(self, name, feature):
        """The ids of a feature that has one id in each sample."""
        with h5py.File(self.path(name)) as h:
            return h["sparse/values"][()].reshape(-1, 3)[:, feature]

    def test_vocabularies_refused(self):
        self.write("a.csv", "y,s,t\n1,a,2\n")
        columns = ["--labels", "y", "--sparse", "s,t:5", "--text", "s"]
        self.convert("v.h5", *columns, self.path("a.csv"))
        self.write("bare.json", trsmapping.Mapping({"sparse": [{"name": "s"}]}).text())
        self.write("numbers.json", trsmapping.Mapping({"sparse": [{"name": "s", "vocabulary": [1]}]}).text())
        self.write("t.json", trsmapping.Mapping({"sparse": [{"name": "t", "vocabulary": [1]}]}).text())
        for options, code, message in ((["--vocabulary", "x"], 64, "no sparse feature"), (["--vocabulary", "t"], 64, "has 5 rows by --sparse"), (["--vocabulary", "s:0"], 64, "MIN_COUNT"),
                                       (["--vocabulary-from", self.path("none.h5")], 66, "none.h5"), (["--vocabulary-from", self.path("a.csv")], 65, "a.csv"),
                                       (["--vocabulary-from", self.path("bare.json")], 65, "no vocabulary"), (["--vocabulary-from", self.path("numbers.json")], 65, "integer there"),
                                       (["--vocabulary-from", self.path("t.json")], 64, "has a vocabulary there"), (["--sparse-missing", "4"], 64, "feature s has 2 rows")):
            self.assertIn(message, self.convert("x.h5", *columns, *options, self.path("a.csv"), code=code), options)
            self.assertFalse(os.path.exists(self.path("x.h5.parts")), options)

    def test_criteo(self):
        """Both kinds of convert_criteo.py, with its columns' usual names."""
        rng = np.random.default_rng(4)
        rows = [[str(int(rng.integers(0, 2)))] + [str(int(n)) if n > -3 else "" for n in rng.integers(-4, 90, 13)] + [f"{n:x}" if n % 5 else "" for n in rng.integers(0, 40, 26)]
                for _ in range(200)]
        self.write("t.txt", "".join("\t".join(row) + "\n" for row in rows))
        columns = {f"I{i + 1}": [int(row[1 + i]) if row[1 + i] else None for row in rows] for i in range(13)} | {f"C{i + 1}": [row[14 + i] for row in rows] for i in range(26)}
        for kind in ("hash:17", "frequency:7"):
            self.convert("c.h5", "--vocabulary", kind, self.path("t.txt"), tool=convert_criteo)
            self.assert_encodes("c.h5", columns)

    def test_damaged(self):
        """A text that is not a mapping is refused. An encoder refuses a mapping that does not
        describe all features."""
        good = trsmapping.Mapping({"dense": [], "sparse": [{"name": "a", "column": "a"}]}).text()
        self.assertEqual(trsmapping.read(good, "x").sparse[0]["missing"], "empty")
        for text, message in (("{", "is not JSON"), ("[" * 100000, "is not JSON"), ("[]", "no format"), (good.replace('"version":1', '"version":2'), "version 2"),
                              (good.replace('"rows":0', '"rows":"0"'), r"sparse\[0\].rows is"), (good.replace('"modulo":false', '"modulo":0'), "modulo is 0"),
                              (good.replace('"integer"', '"float"'), "kind is 'float'"), (good.replace('"rows":0', '"rows":true'), "rows is true"),
                              (good.replace('[{"name":"a"', '[{"name":"a"},{"name":"a"'), "an entry twice: a"), (good.replace('"separator":"|"', '"separator":""'), "separator")):
            with self.assertRaisesRegex(trscolumns.Refused, message):
                trsmapping.read(text, "x")
        computed = trsmapping.Mapping({"dense": [{"name": "d"}], "sparse": [{"name": "a", "column": "a"}]})
        for dense, sparse in ((["d"], ["a"]), ([], ["b"])):
            with self.assertRaisesRegex(trscolumns.Refused, "does not say how"):
                trsrows.Encoder(computed, dense, sparse)


if __name__ == "__main__":
    unittest.main()
