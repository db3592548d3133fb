# SPDX-License-Identifier: BSD-3-Clause
"""tools/convert_criteo.py: against a line-by-line conversion in plain Python, after kills, and on
malformed input."""
import collections
import gzip
import json
import math
import os
import random
import subprocess
import sys
import unittest

import h5py
import numpy as np

import convert_criteo
import scratch

ROWS = 100


def lines(count, seed):
    """Lines in the Kaggle layout with every special case: empty fields, negative integers, hot and
    rare categories."""
    rng = random.Random(seed)

    def category():
        return "" if rng.random() < 0.1 else f"{int(rng.paretovariate(0.6)) * 2654435761 % 2**32:08x}"

    return ["\t".join([str(rng.randint(0, 1))] + [rng.choice(["", str(rng.randint(-3, 5000))]) for _ in range(13)] +
                      [category() for _ in range(26)]) for _ in range(count)]


def expected(text, ids):
    """Labels, dense features and ids, computed in the simplest way. ids: function (feature, field)
    -> id."""
    rows = [line.split("\t") for line in text]
    dense = [[math.log1p(max(int(field or 0), 0)) for field in row[1:14]] for row in rows]
    return ([float(row[0]) for row in rows], np.array(dense, np.float32), [[ids(f, field) for f, field in enumerate(row[14:])] for row in rows])


def frequency(text, threshold):
    columns = list(zip(*[line.split("\t")[14:] for line in text]))
    tables = []
    for column in columns:
        seen = collections.Counter(field for field in column if field)
        tables.append({number: 1 + rank for rank, number in enumerate(sorted(int(k, 16) for k, n in seen.items() if n >= threshold))})
    return tables


class Criteo(scratch.Scratch):
    def setUp(self):
        super().setUp()
        self.text = lines(3000, 1), lines(500, 2)
        with open(self.path("a.txt"), "w", encoding="ascii") as out:
            out.write("\n".join(self.text[0]) + "\n")
        with gzip.open(self.path("b.gz"), "wt", encoding="ascii") as out:
            out.write("\n".join(self.text[1]))  # the last line without its newline

    def command(self, *arguments):
        return [sys.executable, convert_criteo.__file__, *arguments]

    def convert(self, *arguments):
        subprocess.run(self.command(*arguments), check=True, stdout=subprocess.DEVNULL)

    def check(self, path, labels, dense, ids, begin=0, end=None):
        with h5py.File(path) as h:
            self.assertEqual(h["labels"][()].tolist(), labels[begin:end])
            np.testing.assert_array_equal(h["dense"][()], dense[begin:end])
            np.testing.assert_array_equal(h["sparse/values"][()].reshape(-1, 26), ids[begin:end])
            self.assertTrue((h["sparse/lengths"][()] == 1).all())
            self.assertLess(h["sparse/values"][()].max(), h["sparse"].attrs["num_embeddings"].max())

    def test_hash(self):
        self.convert("--output", self.path("out.h5"), "--vocabulary", f"hash:{ROWS}", "--block-mb", "0.1", self.path("a.txt"), self.path("b.gz"))
        self.check(self.path("out.h5"), *expected(self.text[0] + self.text[1], lambda f, field: int(field or "0", 16) % ROWS))
        self.assertFalse(os.path.exists(self.path("out.h5.parts")))

    def test_frequency_and_its_vocabulary(self):
        self.convert("--output", self.path("out.h5"), "--output-eval", self.path("eval.h5"), "--vocabulary", "frequency:3", "--block-mb", "0.02", self.path("a.txt"))
        tables = frequency(self.text[0], 3)
        cut = 3000 - 3000 // 7
        want = expected(self.text[0], lambda f, field: tables[f].get(int(field, 16), 0) if field else 0)
        self.check(self.path("out.h5"), *want, 0, cut)
        self.check(self.path("eval.h5"), *want, cut)
        self.convert("--output", self.path("b.h5"), "--vocabulary", "file:" + self.path("out.h5.vocabulary.h5"), self.path("b.gz"))
        self.check(self.path("b.h5"), *expected(self.text[1], lambda f, field: tables[f].get(int(field, 16), 0) if field else 0))

    def test_killed_and_started_again(self):
        arguments = ["--vocabulary", "frequency:2", "--block-mb", "0.05", self.path("a.txt"), self.path("b.gz")]
        self.convert("--output", self.path("once.h5"), *arguments)
        # in both passes, and at their ends
        for n, counted, converted in ((10, 4, 0), (32, 19, 0), (8, 19, 2), (35, 19, 19)):
            scratch.kill(convert_criteo, n, "--output", self.path("out.h5"), *arguments)
            with open(self.path("out.h5.parts/state.json"), encoding="ascii") as file:
                state = json.load(file)
            self.assertEqual((state["counted"], state["converted"]), (counted, converted))
        self.convert("--output", self.path("out.h5"), *arguments)
        with h5py.File(self.path("once.h5")) as a, h5py.File(self.path("out.h5")) as b:
            for name in ("labels", "dense", "sparse/lengths", "sparse/offsets", "sparse/values"):
                self.assertEqual(a[name][()].tobytes(), b[name][()].tobytes(), name)

    def test_another_vocabulary(self):
        """A conversion does not continue with a changed vocabulary, because its parts would have
        different ids."""
        for n in (2, 3):
            self.convert("--output", self.path(f"{n}.h5"), "--vocabulary", f"frequency:{n}", self.path("a.txt"))
        os.rename(self.path("2.h5.vocabulary.h5"), self.path("v.h5"))
        command = self.command("--output", self.path("out.h5"), "--vocabulary", "file:" + self.path("v.h5"), "--block-mb", "0.05", self.path("a.txt"), self.path("bad.txt"))
        with open(self.path("bad.txt"), "w", encoding="ascii") as out:
            out.write("bad\n")
        self.assertEqual(subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode, 65)
        os.rename(self.path("3.h5.vocabulary.h5"), self.path("v.h5"))
        again = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(again.returncode, 1)
        self.assertIn("an input has changed", again.stderr)

    def test_malformed(self):
        good = self.text[0][0].split("\t")
        cases = {
            "line 2: 39 fields": "\t".join(good[:-1]),
            "line 2: 'xyz' is not a number in base 16": "\t".join(good[:-1] + ["xyz"]),
            "line 2: '4.5' is not a number in base 10": "\t".join(good[:1] + ["4.5"] + good[2:]),
            "line 2: the label must be 0 or 1": "\t".join(["2"] + good[1:]),
            "line 2: a number of 9 digits": "\t".join(good[:-1] + ["123456789"]),
        }
        for message, line in cases.items():
            with open(self.path("bad.txt"), "w", encoding="ascii") as out:
                out.write("\n".join([self.text[0][0], line, self.text[0][1]]) + "\n")
            result = subprocess.run(self.command("--output", self.path("bad.h5"), self.path("bad.txt")), capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 65, result.stderr)
            self.assertIn(message, result.stderr)
            self.assertFalse(os.path.exists(self.path("bad.h5")))
            subprocess.run(["rm", "-r", self.path("bad.h5.parts")], check=True)


if __name__ == "__main__":
    unittest.main()
