# SPDX-License-Identifier: BSD-3-Clause
"""tools/stage_data.py: the files that a run would read, from the command line, .opts and YAML files, and the options for their
copies. slurm/two_nodes copies and trains."""
import os
import shlex
import unittest

import scratch
import stage_data


class Stage(scratch.Scratch):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("sub"))
        for name in ("a.h5", "day_10.h5", "day_2.h5", "x,y.h5", 'a"b c.h5', "sub/a.h5"):
            self.text(name, "")

    def text(self, name, words):
        with open(self.path(name), "w", encoding="utf-8") as out:
            out.write(words)
        return self.path(name)

    def stage(self, *words):
        """The pairs of files and copies, and the options, as a shell reads them."""
        done = scratch.inside(stage_data, "/local/job 7", *words)
        self.assertIn(done.returncode, (0, None), done.stderr)
        first, second = done.stdout.splitlines()
        copies, options = (shlex.split(line.partition("=(")[2][:-1]) for line in (first, second))
        self.assertTrue(first.startswith("copies=(") and second.startswith("staged=(") and first[-1] == second[-1] == ")")
        return list(zip(copies[::2], copies[1::2])), options

    def test_command_line(self):
        """A pattern's files come in the order of their bytes, and names with commas and quotes are entries in quotes."""
        copies, options = self.stage("-data_train", f"{self.path('day_*.h5')},{self.path('a.h5')}", "-data_eval", '"' + self.path("x,y.h5") + '"')
        self.assertEqual(copies, [(self.path(name), f"/local/job 7/{i}-{name}") for i, name in enumerate(("day_10.h5", "day_2.h5", "a.h5", "x,y.h5"))])
        self.assertEqual(options, ["-data_train", "/local/job 7/0-day_10.h5,/local/job 7/1-day_2.h5,/local/job 7/2-a.h5", "-data_eval", '"/local/job 7/3-x,y.h5"'])
        _, options = self.stage("-data_eval", '"' + self.path('a""b c.h5') + '"')
        self.assertEqual(options, ["-data_eval", '"/local/job 7/0-a""b c.h5"'])

    def test_option_files(self):
        """Relative paths start at the option file's folder; later files and then the command line have precedence; a file of both
        options is copied once, and two files of one name have two copies."""
        one = self.text("sub/one.opts", "# -data_train no.h5\n-batch_size 4 # -data_train no.h5\n-steps 20 -data_train ../a.h5,a.h5 -seed 1 # both\n-data_eval \"a.h5\"\n")
        copies, options = self.stage("-options_file", one)
        here = os.path.realpath(self.folder)
        self.assertEqual(copies, [(f"{here}/a.h5", "/local/job 7/0-a.h5"), (f"{here}/sub/a.h5", "/local/job 7/1-a.h5")])
        self.assertEqual(options, ["-data_train", "/local/job 7/0-a.h5,/local/job 7/1-a.h5", "-data_eval", "/local/job 7/1-a.h5"])
        two = self.text("two.opts", "-data_train \"\"\"x,y.h5\"\"\"\n")
        _, options = self.stage("-options_file", one, "-options_file", two)
        self.assertEqual(options[1], '"/local/job 7/0-x,y.h5"')
        for hyphens in ("-", "--"):
            _, options = self.stage(hyphens + "options_file", two, hyphens + "data_train", self.path("a.h5"))
            self.assertEqual(options, ["-data_train", "/local/job 7/0-a.h5"])
        with open(self.path("latin.opts"), "wb") as out: # trshard takes any bytes
            out.write(b"# Z\xfcrich\n-data_train a.h5\n")
        _, options = self.stage("-options_file", self.path("latin.opts"))
        self.assertEqual(options, ["-data_train", "/local/job 7/0-a.h5"])

    def test_yaml(self):
        try:
            import yaml  # noqa: F401
        except ImportError:
            self.skipTest("no yaml here")
        for words in ("data_train: [a.h5, 'x,y.h5']\ndata:\n  eval: sub/a.h5\n", "data:\n  train: 'a.h5,\"x,y.h5\"'\n  eval: [sub/a.h5]\n"):
            _, options = self.stage("-options_file", self.text("run.yaml", words))
            self.assertEqual(options, ["-data_train", '/local/job 7/0-a.h5,"/local/job 7/1-x,y.h5"', "-data_eval", "/local/job 7/2-a.h5"])

    def test_refusals(self):
        for code, words, arguments in ((64, "there is no -data_train", ("-steps", "3")), (66, "no file matches", ("-data_train", self.path("no*.h5"))), (66, "is no file", ("-data_train", self.path("no.h5"))),
                                       (66, "cannot be read", ("-options_file", self.path("no.opts"))), (66, "is no file", ("-data_eval", self.folder))):
            done = scratch.inside(stage_data, "/local", *arguments)
            self.assertEqual((done.returncode, done.stdout), (code, ""), arguments)
            self.assertIn(words, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
