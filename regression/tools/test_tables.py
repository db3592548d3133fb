# SPDX-License-Identifier: BSD-3-Clause
"""tools/convert_table.py: the same dataset from text and arrays, against convert_criteo.py and plain
Python; after kills; with malformed input."""
import csv
import ctypes
import ctypes.util
import gzip
import json
import os
import random
import resource
import subprocess
import sys
import unittest

import h5py
import numpy as np

import convert_table
import scratch
import trsconvert
import trsdata
from tables_fixture import COLUMNS, CRITEO, Conversions, OF_TEXT, SMALL, TABLE, TOOLS, contents, criteo_rows, write_text


class Tables(Conversions):
    def test_text_and_arrays_as_criteo(self):
        rows = self.criteo()
        write_text(self.path("a.tsv"), rows, COLUMNS, delimiter="\t")
        shuffled = random.Random(3).sample(range(len(COLUMNS)), len(COLUMNS))
        # names identify columns, so their order in the file does not matter
        pattern = sorted(c for c in shuffled if c > 13)
        write_text(self.path("b.csv.gz"), [[row[c] for c in shuffled] for row in rows], [COLUMNS[c] for c in shuffled], quoting=csv.QUOTE_ALL, lineterminator="\r\n")
        integers = np.array([[int(field or "0") for field in row[:14]] for row in rows], np.int32)
        categories = np.array([[int(field or "0", 16) for field in row[14:]] for row in rows], np.uint32)
        arrays = {"y": integers[:, 0], "X_int": integers[:, 1:], "X_cat": categories, "counts": np.full(26, 100)}
        np.savez(self.path("c.npz"), **arrays)
        np.savez_compressed(self.path("d.npz"), **{**arrays, "X_cat": np.asfortranarray(categories)})
        self.convert("a.h5", *OF_TEXT, *SMALL, self.path("a.tsv"))
        listed = OF_TEXT[:2] + ["--dense", ",".join(COLUMNS[1:14]), "--sparse", ",".join(f"cat_{c - 14}={COLUMNS[c]}:100" for c in pattern)] + OF_TEXT[6:]
        self.convert("b.h5", *listed, *SMALL, self.path("b.csv.gz"))
        self.convert("c.h5", "--layout", "dlrm", "--modulo", *SMALL, self.path("c.npz"))
        self.convert("d.h5", "--layout", "dlrm", "--modulo", *SMALL, self.path("d.npz"))
        for name in ("a.h5", "b.h5", "c.h5", "d.h5"):
            self.assert_same(name, "criteo.h5")
            self.assertFalse(os.path.exists(self.path(name + ".parts")))

    def test_several_inputs_and_an_evaluation(self):
        rows = self.criteo()
        write_text(self.path("1.tsv"), rows[:1000], COLUMNS, delimiter="\t")
        write_text(self.path("2.csv"), rows[1000:], COLUMNS)
        self.convert("all.h5", *OF_TEXT, "--output-eval", self.path("eval.h5"), "--eval-fraction", "0.25", *SMALL, self.path("1.tsv"), self.path("2.csv"))
        with h5py.File(self.path("criteo.h5")) as whole, h5py.File(self.path("all.h5")) as train, h5py.File(self.path("eval.h5")) as evaluation:
            for name in ("labels", "dense", "sparse/values"):
                self.assertEqual(whole[name][()].tobytes(), train[name][()].tobytes() + evaluation[name][()].tobytes(), name)
            self.assertEqual(len(evaluation["labels"]), 750)

    def test_killed_with_text(self):
        write_text(self.path("a.csv"), criteo_rows(3000, 2), COLUMNS)
        self.killed(sys.executable, *OF_TEXT, *SMALL, self.path("a.csv"))

    def test_killed_with_arrays(self):
        rng = np.random.default_rng(1)
        arrays = {"y": rng.integers(0, 2, 3000), "X_int": rng.integers(0, 9, (3000, 4)), "X_cat": np.asfortranarray(rng.integers(0, 99, (3000, 5)))}
        np.savez(self.path("a.npz"), **arrays)
        np.savez_compressed(self.path("b.npz"), **arrays)
        self.killed(sys.executable, "--layout", "dlrm", *SMALL, self.path("a.npz"), self.path("b.npz"))

    def test_another_conversion_is_not_continued(self):
        """A folder of parts can only be continued with the same arguments and inputs. If an input
        is wrong, no folder remains."""
        write_text(self.path("a.csv"), criteo_rows(300, 2) + [["broken"]], COLUMNS)
        self.convert("a.h5", *OF_TEXT, "--block-mb", "0.01", self.path("a.csv"), code=65)
        self.assertFalse(os.path.exists(self.path("a.h5.parts")))
        write_text(self.path("a.csv"), criteo_rows(3000, 2), COLUMNS)
        scratch.kill(convert_table, 4, "--output", self.path("a.h5"), *OF_TEXT, "--block-mb", "0.01", self.path("a.csv"))
        self.assertIn("belongs to another conversion", self.convert("a.h5", *OF_TEXT, "--dense-missing", "1", "--block-mb", "0.01", self.path("a.csv"), code=1))
        with open(self.path("a.csv"), "ab") as table:
            table.write(b"\n")
        self.assertIn("an input has changed", self.convert("a.h5", *OF_TEXT, "--block-mb", "0.01", self.path("a.csv"), code=1))

    def test_mapping(self):
        """Every role, from YAML. Expected numbers are computed by hand, and hashes are those that
        xxHash's authors publish."""
        a, abc = 0xD24EC4F1A98C6E5B - 2**64, 0x44BC2CF5AD770999
        with open(self.path("map.yaml"), "w", encoding="utf-8") as out:
            out.write("labels: [click, buy]\ndense: [price, age]\nsparse:\n  - user\n  - {column: words, name: query, rows: 1k}\n"
                      "  - {column: shown, weights: attention}\nweights: w\ngroup: session\ntime: at\n"
                      "text: [words]\nbags: [words, shown, attention]\nnulls: [NA]\ndense_missing: -1\n")
        header = ["at", "click", "buy", "age", "price", "user", "words", "shown", "attention", "w", "session"]
        rows = [["5", "1", "0", "30", "1e-3", "-9223372036854775808", "a|abc", "1|2|3", "0.5|1|2", "1", "-7"],
                ["5", "0", "0.5", "NA", "nan", "18446744073709551615.0", "abc", "", "", "0", "8"],
                ["-6.0", "1", "1", "", "-2.5", "NA", "NA", "4.0||5", "3|1|4", "2.5", "9223372036854775807"]]
        write_text(self.path("t.csv"), rows, header)
        self.convert("t.h5", "--mapping", self.path("map.yaml"), self.path("t.csv"))
        want = {"labels": [[1, 0], [0, 0.5], [1, 1]], "dense": [[np.float32(1e-3), 30], [-1, -1], [-2.5, -1]], "weights": [1, 0, 2.5],
                "group": [-7, 8, 2**63 - 1], "time": [5, 5, -6], "sparse/lengths": [[1, 2, 3], [1, 1, 0], [0, 0, 2]], "sparse/offsets": [0, 6, 8, 10],
                "sparse/values": [-2**63, a % 1000, abc % 1000, 1, 2, 3, -1, abc % 1000, 4, 5], "sparse/weights": [1, 1, 1, 0.5, 1, 2, 1, 1, 3, 4]}
        with h5py.File(self.path("t.h5")) as h:
            for name, values in want.items():
                self.assertEqual(h[name][()].tolist(), values, name)
            self.assertEqual([h[name].dtype for name in ("group", "time", "labels", "sparse/values")], [np.int64, np.int64, np.float32, np.int64])
            self.assertEqual(list(h["labels"].attrs["names"]), ["click", "buy"])
            self.assertEqual((list(h["sparse"].attrs["features"]), h["sparse"].attrs["num_embeddings"].tolist()), (["user", "query", "shown"], [0, 1000, 0]))

    def test_layout_of_mlperf(self):
        """Labels and dense features in npy files, and a bag of fixed size for each feature in an
        npz file."""
        rng = np.random.default_rng(2)
        hot = {str(f): rng.integers(0, 50, (400, 1 + f % 3)).astype(np.int32) for f in range(12)}
        labels, dense = rng.integers(0, 2, (400, 1)).astype(np.int32), rng.random((400, 3), np.float32)
        np.save(self.path("day_0_labels.npy"), labels)
        np.save(self.path("day_0_dense.npy"), dense)
        np.savez(self.path("day_0_sparse_multi_hot.npz"), **hot)
        source = "+".join(self.path(f"day_0_{what}") for what in ("labels.npy", "dense.npy", "sparse_multi_hot.npz"))
        self.convert("day.h5", "--layout", "mlperf", "--block-mb", "0.01", source)
        with h5py.File(self.path("day.h5")) as h:
            np.testing.assert_array_equal(h["labels"][()], labels[:, 0])
            np.testing.assert_array_equal(h["dense"][()], dense)
            np.testing.assert_array_equal(h["sparse/values"][()], np.concatenate(list(hot.values()), axis=1).reshape(-1))
            self.assertEqual(h["sparse/lengths"][()].tolist(), [[1 + f % 3 for f in range(12)]] * 400)
            self.assertEqual(list(h["sparse"].attrs["features"]), [f"cat_{f}" for f in range(12)])

    def test_columns_of_several_inputs(self):
        """The columns of a pattern have the order of the first input. All inputs must have the same
        columns."""
        write_text(self.path("a.csv"), [["1", "0", "1", "2", "5"]], ["y1", "y2", "I1", "I2", "c"])
        write_text(self.path("b.csv"), [["2", "5", "1", "0", "1"]], ["I2", "c", "y1", "y2", "I1"])
        write_text(self.path("c.csv"), [["2", "5", "1", "0", "1"]], ["I7", "c", "y1", "y2", "I1"])
        words = ["--labels", "y*", "--dense", "I*", "--sparse", "c"]
        self.convert("same.h5", *words, self.path("a.csv"), self.path("b.csv"))
        with h5py.File(self.path("same.h5")) as h:
            self.assertEqual((h["labels"][()].tolist(), h["dense"][()].tolist()), ([[1, 0]] * 2, [[1, 2]] * 2))
        self.assertIn("has other columns I*", self.refused("other.h5", *words, self.path("a.csv"), self.path("c.csv"), code=65))
        for name in ("day_0", "day_1"):  # a single column may have another name in each file
            np.savez(self.path(name + ".npz"), **{name + "_labels": np.ones(2), "c": np.arange(2)})
        self.convert("days.h5", "--labels", "*labels", "--sparse", "c", self.path("day_0.npz"), self.path("day_1.npz"))
        np.savez(self.path("text.npz"), y=np.ones(1), c=np.array(["5"]))
        write_text(self.path("ids.csv"), [["1", "5"]], ["y", "c"])
        mixed = ["--labels", "y", "--sparse", "c", self.path("ids.csv"), self.path("text.npz")]
        self.assertIn("text.npz: column c is text, in " + self.path("ids.csv") + " it is numbers", self.refused("mixed.h5", *mixed, code=65))
        self.convert("mixed.h5", *mixed, "--text", "c")
        with h5py.File(self.path("mixed.h5")) as h:
            self.assertEqual(len(set(h["sparse/values"][()].tolist())), 1)
        write_text(self.path("bags.csv"), [["1", "5|6", "7"]], ["y", "C1", "C2"])
        self.convert("bags.h5", "--labels", "y", "--sparse", "C*", "--bags", "C1", self.path("bags.csv"))
        with h5py.File(self.path("bags.h5")) as h:
            self.assertEqual((h["sparse/lengths"][()].tolist(), h["sparse/values"][()].tolist()), ([[2, 1]], [5, 6, 7]))

    def test_no_labels(self):
        """Rows only for predictions: the dataset equals that of rows with labels, without the
        labels."""
        rows = [[str(i % 2), str(i), str(i % 7)] for i in range(50)]
        write_text(self.path("a.csv"), rows, ["y", "d", "c"])
        write_text(self.path("b.csv"), [row[1:] for row in rows], ["d", "c"])
        with open(self.path("map.json"), "w", encoding="ascii") as out:
            json.dump({"labels": "y", "dense": "d", "sparse": "c:7"}, out)
        words = ["--mapping", self.path("map.json"), "--output-eval"]
        self.convert("a.h5", *words, self.path("a_eval.h5"), self.path("a.csv"))
        self.convert("b.h5", *words, self.path("b_eval.h5"), "--no-labels", self.path("b.csv"))
        for part in ("", "_eval"):
            expected = contents(self.path(f"a{part}.h5"))
            del expected["labels"]
            self.assertEqual(contents(self.path(f"b{part}.h5")), expected)
            shown = subprocess.run([sys.executable, os.path.join(TOOLS, "inspect_file.py"), "--check", self.path(f"b{part}.h5")], capture_output=True, text=True, check=True)
            self.assertIn("no labels, for predictions alone", shown.stdout)
        self.assertIn("--labels does not go with --no-labels", self.refused("c.h5", "--labels", "y", "--sparse", "c", "--no-labels", self.path("a.csv"), code=64))

    def test_labels_of_tasks(self):
        """--task-labels: any finite numbers, NaN for a missing label."""
        write_text(self.path("a.csv"), [["1", "-2.5", "3", "5"], ["0", "", "", "6"]], ["click", "price", "kind", "c"])
        words = ["--labels", "click,price,kind", "--sparse", "c:10", self.path("a.csv")]
        self.assertIn("line 3, column price: a missing value", self.refused("a.h5", *words, code=65))
        self.convert("tasks.h5", "--task-labels", *words)
        with h5py.File(self.path("tasks.h5")) as h:
            np.testing.assert_array_equal(h["labels"][()], np.float32([[1, -2.5, 3], [0, np.nan, np.nan]]))
        self.convert("price.h5", "--task-labels", "--labels", "price", *words[2:])
        with h5py.File(self.path("price.h5")) as h:
            np.testing.assert_array_equal(h["labels"][()], np.float32([[-2.5], [np.nan]]))
            self.assertEqual(list(h["labels"].attrs["names"]), ["price"])
        for name in ("tasks.h5", "price.h5"):  # such numbers are valid if labels have names
            result = subprocess.run([sys.executable, os.path.join(TOOLS, "inspect_file.py"), "--check", self.path(name)], capture_output=True, text=True, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)

    def test_booleans(self):
        """Where numbers are expected, true and false are 1 and 0, like Parquet's booleans."""
        write_text(self.path("a.csv"), [["True", "1.5", "3"], ["False", "FALSE", "4"], ["0.25", "", "5"], ["true", "yes", "6"]], ["click", "d", "c"])
        words = ["--labels", "click", "--sparse", "c:10", self.path("a.csv")]
        self.convert("a.h5", *words)
        with h5py.File(self.path("a.h5")) as h:
            self.assertEqual(h["labels"][()].tolist(), [1, 0, 0.25, 1])
        self.assertIn("line 5, column d: 'yes' is not a number", self.refused("b.h5", "--dense", "d", *words, code=65))

    def test_mappings(self):
        """A mistake in a mapping or in a header gives one line."""
        write_text(self.path("a.csv"), [["1", "2"]], ["y", "c"])
        for code, message, sparse in ((65, "has no column nope; it has y, c", [{"column": "c", "weights": "nope"}]), (65, "has no column 5", [{"column": 5}]),
                                      (64, "of 64 bits", ["c:10000000000G"])):
            with open(self.path("map.json"), "w", encoding="ascii") as out:
                json.dump({"labels": "y", "sparse": sparse}, out)
            self.assertIn(message, self.refused("o.h5", "--mapping", self.path("map.json"), self.path("a.csv"), code=code))
        with open(self.path("map.yaml"), "w", encoding="ascii") as out:
            out.write("labels: y\nsparse: [{column: c, name: 5}]\nnulls: [2020-01-01]\n")
        self.convert("named.h5", "--mapping", self.path("map.yaml"), self.path("a.csv"))
        with h5py.File(self.path("named.h5")) as h:
            self.assertEqual(list(h["sparse"].attrs["features"]), ["5"])
        with open(self.path("map.yaml"), "w", encoding="ascii") as out:
            out.write("labels: y\nsparse: c\nnulls: [no]\n")
        self.assertIn("nulls: False, expected text", self.refused("o.h5", "--mapping", self.path("map.yaml"), self.path("a.csv"), code=64))
        for text, message in (("y,c\r1,2\r", "line 1: new-line character"), ("y," + "q" * 200000 + ",c\n1,2\n", "line 2: 2 fields, expected 3")):
            with open(self.path("b.csv"), "w", encoding="ascii", newline="") as out:
                out.write(text)
            self.assertIn(message, self.refused("o.h5", "--labels", "y", "--sparse", "c", self.path("b.csv"), code=65))

    def test_killed_while_joining(self):
        """If a conversion was killed, its continuation removes the partial output."""
        write_text(self.path("a.csv"), [["1", "2"]], ["y", "c"])
        left = trsdata.AtomicFile(self.path("o.h5"))
        left.file.close()
        self.convert("o.h5", "--labels", "y", "--sparse", "c", self.path("a.csv"))
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.path("a.csv")))), ["a.csv", "o.h5"])

    def test_full_disk(self):
        """If a disk is full, a tool ends with 74 and one line. The test uses a limit of the file
        size, which Python reports as an error."""
        write_text(self.path("a.csv"), [["1", str(n)] for n in range(50000)], ["y", "c"])
        for tool, words in ((TABLE, ["--labels", "y", "--sparse", "c", self.path("a.csv")]), (os.path.join(os.path.dirname(TABLE), "generate_data.py"), ["--num-samples", "50000"])):
            result = subprocess.run([sys.executable, tool, "--output", self.path("o.h5"), *words], capture_output=True, text=True, check=False,
                                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, 1 << 17)))
            self.assertEqual((result.returncode, len(result.stderr.splitlines())), (74, 1), result.stderr)
            self.assertFalse(os.path.exists(self.path("o.h5")))

    def test_outputs_replace_nothing(self):
        """An output must not be an input or another output."""
        write_text(self.path("a.csv"), [["1", "5"]] * 4, ["y", "c"])
        words = ["--labels", "y", "--sparse", "c", self.path("a.csv")]
        for output, of_eval, message in (("a.csv", "b.h5", "would replace the input"), ("b.h5", "b.h5", "would replace that of --output"), ("b.h5", "a.csv", "would replace the input")):
            self.assertIn(message, self.convert(output, "--output-eval", self.path(of_eval), *words, code=2))
        self.assertEqual(os.listdir(os.path.dirname(self.path("a.csv"))), ["a.csv"])

    def test_text_of_arrays(self):
        """Texts, and unsigned ids above 2^63, in arrays are the same as in CSV."""
        words, ids = ["a", "", "näh", "a longer word than the others, of more than 32 bytes"], [1, 2**63, 2**64 - 1, 5]
        np.savez(self.path("a.npz"), y=np.zeros(4), w=np.array(words), u=np.array(ids, np.uint64), f=np.array([1, np.nan, 3, 4]))
        write_text(self.path("a.csv"), list(zip("0000", words, ids, ["1", "", "3", "4"])), ["y", "w", "u", "f"])
        self.convert("npz.h5", "--labels", "y", "--sparse", "w,u,f", self.path("a.npz"))
        self.convert("csv.h5", "--labels", "y", "--sparse", "w,u,f", "--text", "w", self.path("a.csv"))
        self.assert_same("npz.h5", "csv.h5")

    def test_xxhash64(self):
        published = {b"": 0xEF46DB3751D8E999, b"a": 0xD24EC4F1A98C6E5B, b"abc": 0x44BC2CF5AD770999}
        block = np.frombuffer(b"abc", np.uint8)
        got = trsconvert.xxhash64(block, np.zeros(3, np.int64), np.array([0, 1, 3])).view(np.uint64).tolist()
        self.assertEqual(got, list(published.values()))
        name = ctypes.util.find_library("xxhash")
        if name:
            library = ctypes.CDLL(name)
            library.XXH64.restype = ctypes.c_uint64
            data = bytes(random.Random(4).randbytes(400))
            begin = np.arange(200)
            got = trsconvert.xxhash64(np.frombuffer(data, np.uint8), begin, 2 * begin).view(np.uint64).tolist()
            self.assertEqual(got, [library.XXH64(data[i:2 * i], ctypes.c_size_t(i), ctypes.c_uint64(0)) for i in begin.tolist()])

    def test_malformed_text(self):
        """Each malformed row is named, and no file appears under the output's name."""
        plain = ["--labels", "y", "--dense", "d", "--sparse", "s:10"]
        cases = [
            ("y,d,s\n1,2,3\n1,2\n", plain, "line 3: 2 fields, expected 3"),
            ("y,d,s\n1,2,3\n1,2,3,4\n", plain, "line 3: 4 fields, expected 3"),
            ("y,d,s\n1,\"2\n3\",3\n", plain, "line 2, column d: '2\\n3' is not a number"),
            ("y,d,s\n\"1\",\"2\",\"3\"\n1,\"2,3\n", plain, "line 3: a double quote is not closed"),
            ("y,d,s\n1,\"2\"0,3\n", plain, "line 2: a double quote in a field that does not begin and end with one"),
            ("y,d,s\n1,2,3\n1,2\" and 3,3\n0,2,3\n1,4\" and 3,3\n", plain, "line 3: a double quote in a field"),
            ("y,d,s\n1,\"2\n\n\",3\n1,2,3\n1,2\",3\n1,2,\"3\"\n", plain, "line 6: a double quote in a field"),
            ("y,d,s\n1,2,x\n", plain, "line 2, column s: 'x' is not a number in base 10 (--text s where it is text)"),
            ("y,d,s\n1,2,3.5\n", plain, "line 2, column s: '3.5' is not a number in base 10"),
            ("y,d,s\n1,2,-\n", plain, "line 2, column s: '-' is not a number in base 10"),
            ("y,d,s\n1,2,36893488147419103232\n", plain, "line 2, column s: '36893488147419103232' is not an integer of 64 bits"),
            ("y,d,s\n1,2,1\n1,2,10\n", plain, "line 3, column s: id 10, expected -1 to 9 (or --modulo, --sparse-unknown)"),
            ("y,d,s\n1,2,-2\n", plain, "line 2, column s: id -2, expected -1 to 9"),
            ("y,d,s\n1,2,-1\n1,2,18446744073709551615\n", plain, "line 3, column s: id 18446744073709551615, expected -1 to 9"),
            ("y,d,s\n1,2,3\n1,2,ffffffffffffffff\n", [*plain, "--hexadecimal", "s"], "line 3, column s: id 18446744073709551615, expected -1 to 9"),
            ("y,d,s\n1,two,3\n", plain, "line 2, column d: 'two' is not a number"),
            ("y,d,s\n1,1_0,3\n", plain, "line 2, column d: '1_0' is not a number"),
            ("y,d,s\n1,inf,3\n", plain, "line 2, column d: 'inf' is not finite as float32"),
            ("y,d,s\n1,1e39,3\n", plain, "line 2, column d: '1e39' is not finite as float32"),
            ("y,d,s\n1,,3\n", [*plain, "--dense-missing", "refuse"], "line 2, column d: a missing value"),
            ("y,d,s\n2,2,3\n", plain, "line 2, column y: '2', expected a label from 0 to 1"),
            ("y,d,s\n,2,3\n", plain, "line 2, column y: a missing value"),
            ("y,d,s\n1,-2,3\n", [*plain, "--weights", "d"], "line 2, column d: '-2', expected a weight that is not negative"),
            ("y,d,s\n1,2.5,3\n", [*plain, "--group", "d"], "line 2, column d: '2.5' is not a number in base 10"),
            ("y,d,s\n1,,3\n", [*plain, "--time", "d"], "line 2, column d: a missing value"),
            ("y,d,d\n1,2,3\n", plain, "line 1: columns 2, 3 are all named 'd', expected each name once"),
            ("y,d,t\n1,2,3\n", plain, "has no column s; it has y, d, t"),
            ("y,d,s\n1,2,3\n", [*plain, "--bags", "t"], "--bags t: no column of"),
            ("y,d,s\n", plain, "the input has no sample"),
            ("", plain, "line 1: expected a header"),
        ]
        for number, (text, arguments, message) in enumerate(cases):
            with self.subTest(message):
                with open(self.path(f"{number}.csv"), "w", encoding="utf-8") as out:
                    out.write(text)
                self.assertIn(message, self.refused(f"{number}.h5", *arguments, self.path(f"{number}.csv"), code=65))
                self.assertFalse(os.path.exists(self.path(f"{number}.h5")))

    def test_malformed_arrays(self):
        ids, label = np.arange(2000), np.zeros(2000)
        np.savez(self.path("rows.npz"), y=label[1:], s=ids)
        np.savez(self.path("objects.npz"), y=label, s=ids.astype(object))
        np.savez(self.path("fractions.npz"), y=label, s=ids + 0.5)
        np.savez_compressed(self.path("bytes.npz"), y=label, s=np.random.default_rng(1).integers(0, 99, 2000))
        with open(self.path("bytes.npz"), "r+b") as file:
            file.seek(os.path.getsize(self.path("bytes.npz")) - 1500)
            file.write(b"broken" * 20)
        np.save(self.path("s.npy"), ids)
        np.save(self.path("y.npy"), label)
        os.truncate(self.path("s.npy"), 5000)
        for name, message in (("rows.npz", "1999 rows (y), 2000 rows (s)"), ("objects.npz", "of object, expected"), ("bytes.npz", "s.npy: "),
                              ("fractions.npz", "fractions.npz, row 0, column s: 0.5 is not an integer"), ("s.npy", "s.npy ends early")):
            with self.subTest(name):
                source = self.path(name) if name != "s.npy" else self.path("y.npy") + "+" + self.path(name)
                self.assertIn(message, self.refused("bad.h5", "--labels", "y", "--sparse", "s", source, code=65))
                self.assertFalse(os.path.exists(self.path("bad.h5")))
        np.savez(self.path("unsigned.npz"), y=label, s=np.where(ids == 7, np.uint64(2**64 - 1), np.uint64(3)))
        words = ["--labels", "y", "--sparse", "s:10", self.path("unsigned.npz")]
        self.assertIn("row 7, column s: id 18446744073709551615, expected -1 to 9", self.refused("bad.h5", *words, code=65))
        # the unsigned remainder, as -tables_id_map modulo computes it for uint64
        self.convert("modulo.h5", "--modulo", *words)
        with h5py.File(self.path("modulo.h5")) as h:
            self.assertEqual(h["sparse/values"][6:9].tolist(), [3, 5, 3])
        self.convert("as_they_are.h5", *words[:3], "s", words[-1])
        with h5py.File(self.path("as_they_are.h5")) as h:
            self.assertEqual((h["sparse/values"].dtype, h["sparse/values"][7]), (np.uint64, 2**64 - 1))

    def test_absent_columns(self):
        """If some inputs lack a column, it has the given value there, or a missing value, as if the
        cells were in the file."""
        header = ["y", "s", "w", "d"]
        rows = {"a": [["1", "3", "x", "1.5"], ["0", "4", "", ""]], "b": [["1", "7", "kiosk", "0.25"], ["1", "7", "kiosk", "0.25"]], "c": [["0", "7", "", ""], ["0", "2", "", ""]]}
        kept = {"a": (0, 1, 2, 3), "b": (0,), "c": (0, 1)}
        for name, lines in rows.items():
            write_text(self.path(f"{name}.csv"), lines, header)
            write_text(self.path(f"part-{name}.csv"), [[line[i] for i in kept[name]] for line in lines], [header[i] for i in kept[name]])
        whole, parts = ([self.path(f"{prefix}{name}.csv") for name in "bac"] for prefix in ("", "part-"))
        words = ["--labels", "y", "--dense", "d", "--sparse", "s:10,w", "--text", "w", "--dense-missing", "9"]
        self.convert("whole.h5", *words, *whole[:2])
        self.convert("parts.h5", *words, "--absent", "s=7,w=kiosk,d=0.25", *parts[:2])
        self.assertEqual(contents(self.path("parts.h5")), contents(self.path("whole.h5")))
        self.convert("whole.h5", *words, *whole[1:])
        with open(self.path("map.json"), "w", encoding="ascii") as out:
            json.dump({"absent": {"w": None, "d": None}}, out)
        self.convert("parts.h5", *words, "--mapping", self.path("map.json"), *parts[1:])
        self.assertEqual(contents(self.path("parts.h5")), contents(self.path("whole.h5")))
        # Arrays determine the kind of a column: numbers, or text, which is hashed.
        np.savez(self.path("a.npz"), y=[1.0, 0.0], s=[3, 4], w=np.array(["x", "y"]), d=[1.5, 2.5])
        np.savez(self.path("b.npz"), y=[1.0, 1.0])
        np.savez(self.path("whole.npz"), y=[1.0, 1.0], s=[7, 7], w=np.array(["kiosk"] * 2), d=[0.25] * 2)
        words.remove("--text"), words.remove("w")
        self.convert("whole.h5", *words, self.path("whole.npz"), self.path("a.npz"))
        self.convert("parts.h5", *words, "--absent", "s=7,w=kiosk,d=0.25", self.path("b.npz"), self.path("a.npz"))
        self.assertEqual(contents(self.path("parts.h5")), contents(self.path("whole.h5")))
        for code, message, absent in ((65, "has no column s", "w,d"), (65, "--absent z: no input has such a column", "s,w,d,z"), (64, "--absent s=x: expected a number", "s=x,w,d"),
                                      (65, "id 10, expected -1 to 9", "s=10,w,d")):
            self.assertIn(message, self.refused("bad.h5", *words, "--absent", absent, self.path("b.npz"), self.path("a.npz"), code=code))

    def test_unknown_ids(self):
        """--sparse-unknown: ids of at least ROWS become the given row and are counted. Missing and
        pruned ids do not change."""
        write_text(self.path("a.csv"), [["1", "3|12|-1"], ["0", ""], ["1", "-2|18446744073709551615|0"]], ["y", "s"])
        words = ["--labels", "y", "--sparse", "s:11", "--bags", "s", self.path("a.csv")]
        self.assertIn("id 12, expected -1 to 10 (or --modulo, --sparse-unknown)", self.refused("bad.h5", *words, code=65))
        self.convert("a.h5", "--sparse-unknown", "10", *words)
        with h5py.File(self.path("a.h5")) as h:
            self.assertEqual((h["sparse/lengths"][:, 0].tolist(), h["sparse/values"][()].tolist()), ([3, 0, 3], [3, 10, -1, 10, 10, 0]))
        for code, message, more in ((64, "--sparse-unknown 11: feature s has 11 rows", ["--sparse-unknown", "11"]), (64, "--sparse-unknown -1:", ["--sparse-unknown=-1"]),
                                    (64, "--sparse-unknown x: expected a number", ["--sparse-unknown", "x"]), (64, "does not go with --modulo", ["--sparse-unknown", "1", "--modulo"]),
                                    (64, "--sparse-unknown: no feature has ROWS", ["--sparse-unknown", "1", "--sparse", "s"])):
            self.assertIn(message, self.refused("bad.h5", *words[:-1], *more, words[-1], code=code))

    def test_what_went_wrong_is_named(self):
        """An error names the file of several, the column as it was written, and which of two equal
        columns. Existing files stay."""
        for name in ("a.csv.gz", "b.csv.gz"):
            with gzip.open(self.path(name), "wt", encoding="ascii") as out:
                out.write("y,user_id:token,t\n" + "".join(f"1,{i},{i}\n" for i in range(9999)))
        good, bad = self.path("a.csv.gz"), self.path("b.csv.gz")
        with open(bad, "r+b") as file:
            file.seek(os.path.getsize(bad) // 2)
            file.write(bytes(64))
        words = ["--labels", "y", "--sparse", "user_id:token"]
        self.assertIn("b.csv.gz: ", self.convert("x.h5", *words, good, bad, code=74))
        os.unlink(self.path("x.h5.parts/state.json"))
        self.convert("x.h5", *words, good)
        self.convert("x.h5", "--labels", "y", "--sparse", "u=user_id:token:10k", good)
        with h5py.File(self.path("x.h5")) as h, h5py.File(self.path("x.h5.~1~")) as old:
            self.assertEqual((list(h["sparse"].attrs["features"]), list(old["sparse"].attrs["features"])), (["u"], ["user_id:token"]))
            self.assertEqual((h["sparse"].attrs["num_embeddings"][0], old["sparse"].attrs["num_embeddings"][0]), (10000, 0))
        # The newest backups stay, and so do files that are not datasets.
        for number in (*range(2, 15), 16):
            os.link(self.path("x.h5.~1~"), self.path(f"x.h5.~{number}~"))
        os.symlink("x.h5", self.path("x.h5.~15~"))
        write_text(self.path("x.h5.~17~"), [["mine"]], None)
        self.assertIn("x.h5.~6~ is removed: 10 backups stay", self.convert("x.h5", *words, good))
        self.assertEqual({name for name in os.listdir(self.folder) if name.startswith("x.h5.~")}, {f"x.h5.~{number}~" for number in range(7, 19)})
        write_text(self.path("twice.csv"), [["1", "2", "3"]], ["y", "s", "s"])
        self.assertIn("twice.csv, line 1: columns 2, 3 are all named 's'", self.refused("z.h5", "--labels", "y", "--sparse", "s", self.path("twice.csv"), code=65))
        write_text(self.path("times.csv"), [["1", "2", "2024-05-01 10:00:00"]], ["y", "s,x", "t"])
        self.assertIn("a time or group of a text file must be an integer", self.refused("z.h5", "--labels", "y", "--sparse", '"s,x"', "--time", "t", self.path("times.csv"), code=65))
        self.assertFalse(os.path.exists(self.path("z.h5.parts")))

    def test_options(self):
        write_text(self.path("a.csv"), [["1", "2"]], ["y", "s"])
        with open(self.path("bad.yaml"), "w", encoding="ascii") as out:
            out.write("lables: [y]\n")
        with open(self.path("t.json"), "w", encoding="ascii") as out:
            out.write("{labels: y}")
        for code, message, arguments in ((64, "--labels is missing", ["--sparse", "s"]), (64, "unknown key lables", ["--mapping", self.path("bad.yaml")]),
                                         (64, "t.json: Expecting", ["--mapping", self.path("t.json")]), (66, "none.json", ["--mapping", self.path("none.json")]),
                                         (64, "--dense-missing x", ["--labels", "y", "--sparse", "s", "--dense-missing", "x"]),
                                         (64, "expected one ASCII character", ["--labels", "y", "--sparse", "s", "--delimiter", "ab"]),
                                         (66, "no file", ["--labels", "y", "--sparse", "s", self.path("none.csv")])):
            self.assertIn(message, self.refused("a.h5", *arguments, self.path("a.csv"), code=code))
        for tool in (TABLE, CRITEO):
            self.assertIn("--eval-fraction needs --output-eval", self.convert("a.h5", "--eval-fraction", "0.5", self.path("a.csv"), tool=tool, code=2))

    def test_memory_with_text(self):
        def write(rows):
            with open(self.path("m.csv"), "w", encoding="ascii") as out:
                out.write("y,d,a,b\n")
                out.writelines(f"{i % 2},{i / 7:.6f},{i},{i * i}\n" for i in range(rows))
            return self.path("m.csv")

        self.check_memory(sys.executable, write, 30000, 300000, 8, "0.25")

    def test_memory_with_arrays(self):
        def write(rows):
            n = np.arange(rows)
            np.savez_compressed(self.path("m.npz"), y=n % 2, d=n / 7, a=n, b=n * n)
            return self.path("m.npz")

        self.check_memory(sys.executable, write, 30000, 300000, 8, "0.25")


if __name__ == "__main__":
    unittest.main()
