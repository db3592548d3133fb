# SPDX-License-Identifier: BSD-3-Clause
"""Tables in several formats, and conversions of them, for the tests of tools/convert_table.py."""
import contextlib
import csv
import functools
import gzip
import io
import json
import os
import random
import subprocess
import sys
import unittest
import unittest.mock

import h5py
import numpy as np

import convert_table
import scratch
import trsconvert
import trspython

TOOLS = os.path.dirname(trsconvert.__file__)
TABLE, CRITEO = (os.path.join(TOOLS, name) for name in ("convert_table.py", "convert_criteo.py"))
COLUMNS = ["click"] + [f"I{i}" for i in range(13)] + [f"C{i}" for i in range(26)]
AS_CRITEO = ["--log1p", "--modulo", "--sparse-missing", "0"]
OF_TEXT = ["--labels", "click", "--dense", "I*", "--sparse", "cat=C*:100", "--hexadecimal", "C*", *AS_CRITEO]
SMALL = ["--block-mb", "0.1"]

# convert_table.py, which then prints its largest resident memory in KiB.
PEAK = """
import re
import convert_table
convert_table.main()
with open("/proc/self/status", encoding="ascii") as file:
    print(re.search(r"VmHWM:\\s+(\\d+)", file.read())[1])
"""


def criteo_rows(count, seed):
    """Rows in the Kaggle layout: empty fields, negative integers, hot and rare categories."""
    rng = random.Random(seed)

    def category():
        return "" if rng.random() < 0.1 else f"{int(rng.paretovariate(0.6)) * 2654435761 % 2**32:08x}"

    return [[str(rng.randint(0, 1))] + [rng.choice(["", str(rng.randint(-3, 5000))]) for _ in range(13)] + [category() for _ in range(26)] for _ in range(count)]


def write_text(path, rows, header, **arguments):
    with (gzip.open if path.endswith(".gz") else open)(path, "wt", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, **{"lineterminator": "\n", **arguments})
        writer.writerows(([header] if header else []) + rows)


def contents(path):
    """All content of a dataset except what identifies the tool. Ids are compared as 64 bits,
    because text files do not declare them as unsigned."""
    kind = lambda item: np.dtype(np.int64) if item.dtype == np.uint64 else item.dtype
    found = {}
    with h5py.File(path) as h:
        h.visititems(lambda name, item: found.update({name: (kind(item), item.shape, item[()].tobytes())}) if isinstance(item, h5py.Dataset) else None)
        found["features"] = list(h["sparse"].attrs["features"])
        found["num_embeddings"] = h["sparse"].attrs["num_embeddings"].tolist()
        found["names"] = list(h["labels"].attrs.get("names", [])) if "labels" in h else []
    return found


class Conversions(scratch.Scratch):
    maxDiff = 2000

    def convert(self, name, *arguments, python=sys.executable, tool=TABLE, code=0):
        """Run a converter. Returns its stderr."""
        result = subprocess.run([python, tool, "--output", self.path(name), *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stderr

    def refused(self, name, *arguments, code):
        """Run a converter that must end with this code and one line, in this process. Returns the
        line."""
        error = io.StringIO()
        with unittest.mock.patch.object(sys, "argv", [TABLE, "--output", self.path(name), *arguments]), contextlib.redirect_stderr(error):
            with self.assertRaises(SystemExit) as end:
                trspython.run(convert_table.main)
        self.assertEqual(end.exception.code, code, error.getvalue())
        self.assertEqual(len(error.getvalue().splitlines()), 1, error.getvalue())
        return error.getvalue()

    def assert_same(self, name, other):
        one, two = contents(self.path(name)), contents(self.path(other))
        self.assertEqual(list(one), list(two))
        for key, value in one.items():
            self.assertTrue(value == two[key], f"{key} of {name} and {other}")

    def criteo(self, count=3000):
        """Write the rows as Criteo's file, and the dataset that convert_criteo.py makes of it."""
        rows = criteo_rows(count, 1)
        write_text(self.path("train.txt"), rows, None, delimiter="\t")
        self.convert("criteo.h5", "--vocabulary", "hash:100", self.path("train.txt"), tool=CRITEO)
        return rows

    def state(self, name):
        path = self.path(name + ".parts/state.json")
        if not os.path.exists(path):  # killed before the first block was complete
            return {"converted": 0}
        with open(path, encoding="ascii") as file:
            return json.load(file)

    def killed(self, python, *arguments):
        """A conversion that is killed repeatedly and then started again gives the same dataset."""
        self.convert("once.h5", *arguments, python=python)
        kill = functools.partial(scratch.kill, convert_table, python=python)
        words = ["--output", self.path("again.h5"), *arguments]
        done = []
        for n in (2, 3, 8):
            kill(n, *words)
            self.assertFalse(os.path.exists(self.path("again.h5")))
            done.append(self.state("again.h5")["converted"])
        self.assertEqual(done, [0, 1, 4])
        self.assertIn("going on after 4 blocks", self.convert("again.h5", *arguments, python=python))
        self.assert_same("again.h5", "once.h5")
        kill(1000, *words)  # all files are in place
        self.assert_same("again.h5", "once.h5")
        self.convert("again.h5", *arguments, python=python)
        self.assert_same("again.h5", "once.h5")
        self.assertFalse(os.path.exists(self.path("again.h5.parts")))

    def peak(self, python, *arguments):
        """Largest resident memory of a conversion, in MiB."""
        result = subprocess.run([python, "-c", PEAK, "--output", self.path("peak.h5"), *arguments], env={**os.environ, "PYTHONPATH": TOOLS},
                                capture_output=True, text=True, check=True)
        return int(result.stdout.split()[-1]) / 1024

    def check_memory(self, python, write, few, more, growth, block_mb):
        """Ten times as many rows take the same memory, except for one-time allocations: at most
        `growth` MiB more."""
        peaks = [self.peak(python, "--labels", "y", "--dense", "d", "--sparse", "a,b", "--block-mb", block_mb, write(rows)) for rows in (few, more)]
        self.assertLess(peaks[1], peaks[0] + growth, peaks)
