#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of tools/bench_common.py with made-up contestants: turns, discarded windows, medians,
resuming, verdicts. Expected numbers are derived by hand."""
import argparse
import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import bench_common as common  # noqa: E402 (after the path)


def options(folder, *words):
    parser = argparse.ArgumentParser()
    common.add_options(parser, "bench")
    return parser.parse_args(["--csv", os.path.join(folder, "b.csv"), "--plot", os.path.join(folder, "b.png"), *words])


class Turns(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.calls = []
        self.shares = []  # foreign share of the next windows, then 0
        self.real, common.window = common.window, self.window
        self.quiet = contextlib.redirect_stderr(io.StringIO())
        self.quiet.__enter__()

    def tearDown(self):
        common.window = self.real
        self.quiet.__exit__(None, None, None)
        self.folder.cleanup()

    def window(self, contestant, more_seconds):
        return contestant(), self.shares.pop(0) if self.shares else 0.0

    def contestant(self, name, values):
        def run():
            self.calls.append(name)
            return {"speed": values.pop(0)}
        return run

    def suite(self, *words):
        return common.Suite(options(self.folder.name, *words))

    def test_contestants_take_turns(self):
        suite = self.suite("--rounds", "3")
        suite.rounds({"c": {"a": self.contestant("a", [1, 9, 2]), "b": self.contestant("b", [4, 5, 60])}})
        self.assertEqual(self.calls, ["a", "b"] * 3)
        self.assertEqual((suite.samples.median("c", "a", "speed"), suite.samples.median("c", "b", "speed")), (2, 5))

    def test_disturbed_windows_are_repeated_and_thrown_away(self):
        suite, self.shares = self.suite("--rounds", "1"), [0.5, 0.2, 0.0]
        suite.rounds({"c": {"a": self.contestant("a", [1, 2, 3])}})
        self.assertEqual(suite.samples.values("c", "a", "speed"), [3])
        self.assertEqual(suite.thrown, 2)
        with open(suite.options.csv, encoding="utf-8") as file:
            self.assertEqual([line.rsplit(",", 1)[1].strip() for line in file][2:], ["thrown", "thrown", "yes"])

    def test_the_least_disturbed_one_counts_and_the_verdict_says_so(self):
        suite, self.shares = self.suite("--rounds", "1"), [0.5, 0.2, 0.3]
        suite.rounds({"c": {"a": self.contestant("a", [1, 2, 3])}})
        row, = common.judge([common.Goal("w", ("c", "a", "speed"), 1.0, 2.0)], suite.samples, 0.03)
        self.assertEqual((row.value, row.met, row.disturbed), (2, True, True))

    def test_resume_takes_only_what_is_missing(self):
        self.suite("--rounds", "2").rounds({"c": {"a": self.contestant("a", [1, 3])}})
        suite = self.suite("--rounds", "3", "--resume")
        suite.rounds({"c": {"a": self.contestant("again", [8])}})
        self.assertEqual(self.calls, ["a", "a", "again"])
        self.assertEqual(suite.samples.median("c", "a", "speed"), 3)

    def test_nothing_starts_after_the_time_is_up(self):
        suite = self.suite("--minutes", "1e-9")
        suite.rounds({"c": {"a": self.contestant("a", [1, 2, 3])}})
        self.assertEqual((self.calls, suite.cut), ([], True))

    def test_a_failed_contestant_is_told_once_and_left_out(self):
        def fail():
            self.calls.append("fail")
            raise common.Failed("no such peer")
        suite = self.suite("--rounds", "3")
        suite.rounds({"c": {"a": self.contestant("a", [1, 2, 3]), "b": fail}})
        self.assertEqual(self.calls.count("fail"), 1)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(suite.finish([common.Goal("w", ("c", "a", "speed"), ("c", "b", "speed"), 2.0)], "t"), 1)
        self.assertNotIn("met", out.getvalue())

    def test_verdicts(self):
        suite = self.suite("--rounds", "1")
        suite.rounds({"c": {"a": self.contestant("a", [10]), "b": self.contestant("b", [4]), "d": self.contestant("d", [6])}})
        a, b, d = (("c", name, "speed") for name in "abd")
        goals = [common.Goal("best of two", a, [b, d], 1.6), common.Goal("one of them", a, [b], 2.6), common.Goal("at most", b, 4.5, 0.9, at_most=True),
                 common.Goal("scaled", d, b, 0.75, scale=2.0), common.Goal("shown", a)]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(suite.finish(goals, "t"), 0)
        rows = common.judge(goals, suite.samples, 0.03)
        self.assertEqual([row.met for row in rows], [True, False, True, True, None])
        self.assertEqual([row.ratio for row in rows][:4], [10 / 6, 2.5, 4 / 4.5, 0.75])
        self.assertEqual(out.getvalue().count("NOT MET"), 1)
        self.assertGreater(os.path.getsize(suite.options.plot), 1000)


class Windows(unittest.TestCase):
    def test_own_work_is_not_foreign(self):
        """A child that computes for a while is ours. The foreign share is at most the rest of the
        processors."""
        def work():
            return {"x": float(common.output_of([sys.executable, "-c", "print(sum(range(10**7)))"]))}
        figures, foreign = common.window(work)
        self.assertEqual(figures, {"x": (10**7 - 1) * 10**7 / 2})
        self.assertTrue(0.0 <= foreign <= 1.0, foreign)

    def test_failure_names_command_and_message(self):
        with self.assertRaisesRegex(common.Failed, r"exit code 3 of sh -c.*\nboom"):
            common.output_of(["sh", "-c", "echo boom >&2; exit 3"])


if __name__ == "__main__":
    unittest.main()
