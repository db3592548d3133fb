# SPDX-License-Identifier: BSD-3-Clause
"""Threads: tests of pipelines, readers and exchanges in regression/sanitize's ThreadSanitizer
build."""
import os
import subprocess

from campaign import Tally, tail
from trsrun import check

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sanitize", "sanitize.sh")
PARTS = ["unit_threads", "case_threads"]


class Threads:
    name, unit, goal, weight = "threads", "parts under TSan", len(PARTS), 1
    n_cases, most_jobs = len(PARTS), 1

    def __init__(self, setting):
        self.s = setting
        self.folder = os.path.join(setting.build, "sanitize_threads")

    def prepare(self):
        done = self.run("build_threads")
        check(done.returncode == 0, tail(done.stdout))

    def run(self, part):
        return subprocess.run([SCRIPT, part, self.folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)

    def case(self, index):
        done = self.run(PARTS[index])
        return Tally(1, [] if done.returncode == 0 else [f"{PARTS[index]}: exit {done.returncode}\n{tail(done.stdout)}"])
