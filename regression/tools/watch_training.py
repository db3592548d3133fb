# SPDX-License-Identifier: BSD-3-Clause
"""report.py --watch on real trainings: what it reads in the program's own log and results while a training runs, after its end, after
a stop and after an error.

TRSHARD names the program, TRSHARD_OPTIONS an option file with data.
"""
import os
import signal
import subprocess
import time
import unittest

import scratch
import trsread
import trswatch


class Training(scratch.Scratch):
    def train(self, *options):
        """Start a training with its log beside its results."""
        with open(self.path("run.log"), "wb") as log:
            process = subprocess.Popen([os.environ["TRSHARD"], "-options_file", os.environ["TRSHARD_OPTIONS"], "-output", self.path("run.h5"), "-report_interval", "0.05", "-output_every", "0.05", *options],
                                       stdout=log, stderr=log)
        self.addCleanup(lambda: (process.kill(), process.wait()))
        return process

    def state(self, with_log=True):
        path = self.path("run.h5")
        log = trswatch.read_log(trswatch.find_log(path)) if with_log else None
        return trswatch.state_of(trsread.read_run(path) if os.path.exists(path) else None, os.path.getmtime(path) if os.path.exists(path) else None, log)

    def until(self, condition, *arguments):
        """Wait for a state that fulfils the condition."""
        for _ in range(2400):
            found = self.state(*arguments)
            if condition(found):
                return found
            time.sleep(0.05)
        self.fail(f"the last state is {found}")

    def test_stopped(self):
        """The state of a long training is read with its log, and from its results only. The training is then stopped, and its state says how to
        go on."""
        process = self.train("-steps", "1000000000", "-checkpoint_dir", self.path("checkpoints"))
        for with_log in (True, False):
            found = self.until(lambda found: found.step > 1, with_log)
            self.assertEqual((found.word, found.total), ("training", 10**9))
            self.assertGreater(found.ends, time.time())
            self.assertGreater(found.speed, 0)
            self.assertTrue(0 < found.loss < 10)
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(120), 75)
        found = self.state()
        self.assertEqual((found.word, found.ends), ("stopped; with -resume it goes on from its checkpoint", None))
        self.assertEqual(found.step, len(trsread.read_run(self.path("run.h5"))["train/step"]))

    def test_ended(self):
        self.assertEqual(self.train("-steps", "20").wait(120), 0)
        for with_log in (True, False):
            found = self.state(with_log)
            self.assertEqual((found.word, found.step, found.total, found.ends), ("ended", 20, 20, None))

    def test_failed(self):
        self.assertNotEqual(self.train("-data_train", self.path("none.h5")).wait(120), 0)
        self.assertRegex(self.state().word, "^failed: .*none.h5")


if __name__ == "__main__":
    unittest.main()
