# SPDX-License-Identifier: BSD-3-Clause
"""The checkers of documents find the mistakes that they are made for (docs.py,
tools/check_documents.py, tools/check_comments.py)."""
import os
import pathlib
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "tools")]
import check_comments  # noqa: E402
import check_documents  # noqa: E402
import docs  # noqa: E402


class Blocks(unittest.TestCase):
    def test_fences_and_indents(self):
        text = "a\n\n    one\n    two\n\n```sh\nthree\n```\n```text\nfour\n```\n"
        self.assertEqual(docs.markdown_blocks(text), [["one", "two"], ["three"]])

    def test_block_without_rule_fails(self):
        with self.assertRaises(AssertionError):
            docs.rule_of("README.md", ["rm -rf everything"])
        self.assertIs(docs.rule_of("README.md", ["$ build/trshard"]), docs.transcript)
        self.assertIs(docs.rule_of("README.md", ["# run.yaml"]), docs.kept_file)

    def test_exchanges(self):
        lines = ["$ one \\", "    two", "out", "exit code 64", "$ three"]
        self.assertEqual(docs.exchanges_of(lines), [("one two", "out", 64), ("three", "", 0)])

    def test_options(self):
        text = "`-batch_size 3`, `--other`, `-plan_...`, `-table_a_pooling`\n```sh\n# a.opts\n-steps 3 # -no\n```\n"
        self.assertEqual({name for name, _ in docs.options_named(text)}, {"batch_size", "plan_", "table_a_pooling", "steps"})


class Printed(unittest.TestCase):
    OUTPUT = "first line 12\nloss 0.58  AUC -1.2e-05 of f1\n/tmp/x/run.h5 is there\n"

    def check(self, printed):
        docs.compare_printed(printed, self.OUTPUT, "/tmp/x")

    def test_equal(self):
        self.check("first line 12\n...\nloss 0.57 AUC 0.0001 of\nf1 ...")
        self.check("run.h5 is there")

    def test_numbers(self):
        """Whole numbers are equal, others are close, and measured numbers may be anything. If a
        line is printed twice, either may match."""
        output = "epoch 1: 1,200 ids, 0.50 MiB in 2.5 s, 20,000 samples/s\nepoch 2: 1,200 ids, 0.90 MiB in 3 ms, 7 samples/s\n"
        docs.compare_printed("epoch 1: 1,200 ids, 0.52 MiB in 0.1 s, 3 samples/s ...", output)
        docs.compare_printed("ids, 0.90 MiB", output)
        for printed in ("1,201 ids", "0.60 MiB", "0.0 MiB", "epoch 1: 1,200 ids, 0.90 MiB", "ids, 0.90 MiB ... ids, 0.50 MiB", "epoch 12"):
            with self.assertRaises(AssertionError):
                docs.compare_printed(printed, output)

    def test_different(self):
        for printed in ("second line", "loss 0.58  AUC 0 of f2", "...\nloss 0.58\n...\nfirst line 12"):
            with self.assertRaises(AssertionError):
                self.check(printed)


class Documents(unittest.TestCase):
    def problems(self, name, text):
        """Findings in a page with this name, in a folder whose only other page is other.md."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            (root / "other.md").write_text("# A heading: `code`\n")
            (root / name).write_text(text)
            found = []
            check_documents.check_plain(name, text, found)
            check_documents.check_links(root, root / name, found)
            return found

    def test_good(self):
        text = f"# Title\n\n{'word ' * 19}word.\n{'Word ' * 19}word\n\n- {'word ' * 18}word\n- [link](other.md#a-heading-code)\n\n```sh\n[x](none.md)\n```\n"
        self.assertEqual(self.problems("README.md", text), [])

    def test_bad(self):
        for text in ("x" * 101, "line\n" * 121, "word " * 31, "| cell | " + "word " * 31 + "|\n", "- " + "word\n  " * 31,
                     "[link](none.md)\n", "[link](other.md#nothing)\n", "![picture](none.png)\n", "[out](../../etc/passwd)\n"):
            self.assertTrue(self.problems("README.md", text), text)


class Comments(unittest.TestCase):
    def found(self, text, natural=True):
        return [what for _, what in check_comments.findings(text, natural)]

    def test_layout(self):
        self.assertEqual(self.found(f"int a; /* {'x' * 80} */\n"), [])
        for text in (f"int a; /* {'x' * 90} */\n", f"/*\n  {'x' * 99}\n*/\n", "int a; /* first, */\n"):
            self.assertEqual(len(self.found(text)), 1, text)

    def test_natural(self):
        text = ("/* TrsX - Sum the rows. What is left? The ids of a batch, which the caller must sort, e.g. Of. */\n"
                'int a; /* what a row holds */\nconst char *text = "/* Of texts. */";\n/* It stands alone. Alone again. */\n')
        self.assertEqual(self.found(text), [])
        for text in ("/* Sum them. Of rows the first. */", "/* What is left is\n   nothing. */", "/*\n  TrsX - Where a row is.\n*/",
                     "// How it is done.", "/* All but for one. */", "/* A map and its\n * like. */",
                     "/* alone */ /* alone */\n/* alone */", "/*\n  In:     a  rows. Which of them is first.\n*/"):
            self.assertEqual(len(self.found(text)), 1, text)
            self.assertEqual(self.found(text, False), [], text)

    def test_pages(self):
        for text in ("Of rows the first.\n", "- What is left.\n", "| cell | Whether it is. |\n", "all but\nfor one\n"):
            self.assertEqual(len(list(check_comments.voice(check_documents.sentences(text)))), 1, text)
        text = "# What is new\n\nWhat is left? If `Of x`, the row.\n\n```\nOf code.\n```\n"
        self.assertEqual(list(check_comments.voice(check_documents.sentences(text))), [])

    def test_listed(self):
        self.assertTrue(check_comments.listed("src/cpu/a.c", ("src/cpu",)) and check_comments.listed("src/a.c", ("src/a.c",)))
        self.assertFalse(check_comments.listed("src/cpus/a.c", ("src/cpu",)))


if __name__ == "__main__":
    unittest.main()
