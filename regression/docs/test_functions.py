# SPDX-License-Identifier: BSD-3-Clause
"""The documents of the library's functions: each function has a manual page that mandoc and man
accept, and each argument that a page describes is one of the function's."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import document_functions  # noqa: E402

TEXT = (ROOT / "src/api/trshard.h").read_text(encoding="utf-8")
HEADER = document_functions.read(TEXT)
EXAMPLE = '''/* intro */ /*
  lib: a library.

  It does things. */
enum { TRSHARD_ERROR_OPTION = 64, TRSHARD_ERROR_DATA = 65 };
/* A thing. */
typedef struct { int a; } Thing;
/* To it:

    use();
*/
typedef struct Impl *Handle;
/*
  F - Do it.

  Collective. It takes -x y.

  In:     a   [n] numbers
              of two lines
          bc  more
  Out:    d   [m]
  Errors: DATA, also for
          something else
*/
TRSHARD_API int F(int a, int bc,
                  int *d);
/* Undo it. Not collective. Errors (on all ranks): OPTION */
TRSHARD_API void G(void);
/*
  H - One.
  I - The other,
    too. It is more.

  In:     a     x
          b, c  y
  InOut:  d     z
*/
TRSHARD_API int H(int a, int b, int c, int *d);
TRSHARD_API int I(int a, int b, int c, int *d);
'''


class Parsing(unittest.TestCase):
    def test_example(self):
        header = document_functions.read(EXAMPLE)
        one, two, *both = header.functions
        self.assertEqual([(f.name, f.summary, f.arguments) for f in both], [(name, summary, [("In", "a", "x"), ("In", "b, c", "y"), ("InOut", "d", "z")])
                                                                                for name, summary in (("H", "One."), ("I", "The other, too."))])
        self.assertEqual((one.name, one.declaration, one.summary, one.paragraphs), ("F", "int F(int a, int bc, int *d)", "Do it.", ["Collective. It takes -x y."]))
        self.assertEqual(one.arguments, [("In", "a", "[n] numbers of two lines"), ("In", "bc", "more"), ("Out", "d", "[m]")])
        self.assertEqual(one.errors, "DATA, also for something else")
        self.assertEqual((two.summary, two.paragraphs, two.errors), ("Undo it.", ["Not collective."], "OPTION (on all ranks)"))
        self.assertEqual(header.types, [("Thing", ["A thing."], "typedef struct { int a; } Thing;"), ("Handle", ["To it:", "  use();"], "typedef struct Impl *Handle;")])
        self.assertIn("TRSHARD_ERROR_DATA, also", document_functions.manual(one, header, "1"))
        self.assertIn("| `bc` | in | more |", document_functions.page(EXAMPLE))

    def test_every_function(self):
        declared = re.findall(r"^TRSHARD_API [^(]*?(\w+)\(", TEXT, re.MULTILINE)
        self.assertEqual([f.name for f in HEADER.functions], declared)
        self.assertGreater(len(declared), 25)
        for f in HEADER.functions:
            parameters = re.findall(r"(\w+)(?:,|\)$)", f.declaration)
            for _, name, text in f.arguments:
                self.assertTrue(set(name.split(", ")) <= set(parameters) and text, f"{f.name}: {name} is not one of {parameters}")
            self.assertNotRegex(" ".join([f.summary, *f.paragraphs]), r"\b(In|Out|Errors):")
        self.assertEqual([name for name, *_ in HEADER.types], re.findall(r"^(?:\}|typedef (?:enum \{.*\}|struct \w+)) \*?(\w+);", TEXT, re.MULTILINE))


class Pages(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="trshard-man-")
        self.addCleanup(self.folder.cleanup)
        subprocess.run([sys.executable, ROOT / "tools/document_functions.py", ROOT / "src/api/trshard.h", "--output-dir", self.folder.name, "--version", "1"], check=True)
        self.pages = sorted(os.listdir(self.folder.name))

    def test_names(self):
        self.assertEqual(set(self.pages), {f"{f.name}.3" for f in HEADER.functions} | {"libtrshard.3"})

    @unittest.skipUnless(shutil.which("mandoc"), "there is no mandoc")
    def test_mandoc(self):
        for page in self.pages:
            found = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], cwd=self.folder.name, capture_output=True, text=True, check=False).stdout
            self.assertEqual([line for line in found.splitlines() if "missing date" not in line], [])

    @unittest.skipUnless(shutil.which("groff"), "there is no groff")
    def test_groff(self):
        for page in self.pages:
            done = subprocess.run(["groff", "-man", "-ww", "-Tascii", page], cwd=self.folder.name, capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "", page)
        text = subprocess.run(["groff", "-man", "-Tascii", "-P-c", "-P-b", "-P-u", "TrshardPredict.3"], cwd=self.folder.name, capture_output=True, text=True, check=True).stdout
        self.assertIn("TrshardPredict(TrshardPredictor predictor", text)
        self.assertIn("TRSHARD_ERROR_DATA", text)


if __name__ == "__main__":
    unittest.main()
