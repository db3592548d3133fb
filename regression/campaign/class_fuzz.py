# SPDX-License-Identifier: BSD-3-Clause
"""Mutated inputs in process: libFuzzer, with clang's ASan and UBSan, on the parsers of
regression/fuzz.

A case is a run of one target from a small corpus that depends on the seed: plans, option files,
YAML, directories of ids, datasets and checkpoints. HDF5 files are first checked in a child process,
as the program does. This takes milliseconds, so these targets get fewer inputs.
"""
import os
import shutil
import subprocess

from campaign import Tally, tail
from trsrun import check

RUNS = {"plan": 20000, "mapping": 20000, "encode": 100000, "options": 5000, "yaml": 5000, "directory": 10000, "dataset": 1000, "checkpoint": 1000, "delta": 1000}
HERE = os.path.dirname(os.path.abspath(__file__))


class Fuzz:
    name, unit, goal, weight = "fuzz", "inputs in process", 200000, 3

    def __init__(self, setting):
        self.s = setting
        self.folder = os.path.join(setting.folder, "fuzz")

    def prepare(self):
        clang = shutil.which("clang")
        if not clang:
            return "no clang"
        source = os.path.normpath(os.path.join(HERE, "..", ".."))
        for target in RUNS:
            done = subprocess.run([os.path.join(HERE, "..", "fuzz", "run_fuzz.sh"), clang, target, source, self.folder, "/usr/bin/python3", "0"],
                                  capture_output=True, text=True, check=False)
            if "SKIPPED" in done.stdout:
                return done.stdout.strip()
            check(done.returncode == 0, f"{target}: {tail(done.stdout + done.stderr)}")
        return None

    def case(self, index):
        target = list(RUNS)[index % len(RUNS)]
        found = self.s.fresh(f"fuzz-{index}")
        command = [os.path.join(self.folder, f"fuzz_{target}"), f"-runs={RUNS[target]}", f"-seed={self.s.rng(self.name, index).randrange(1, 1 << 31)}", "-timeout=60",
                   "-rss_limit_mb=4096", f"-max_len={16384 if target in ('dataset', 'checkpoint', 'delta') else 4096}", "-verbosity=0", "-print_final_stats=1",
                   f"-artifact_prefix={found}/", found, os.path.join(self.folder, f"corpus_{target}")]
        done = subprocess.run(command, env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"), capture_output=True, text=True, errors="replace", check=False)
        units = [line.split()[-1] for line in done.stderr.splitlines() if line.startswith("stat::number_of_executed_units")]
        tally = Tally(int(units[0]) if units else 1)
        if done.returncode != 0:
            kept = self.keep(found, index)
            at = max(done.stderr.find("==ERROR"), 0)
            tally.failures.append(f"{target}: exit {done.returncode}, input {kept}\n{done.stderr[at:at + 1500]}")
        else:
            shutil.rmtree(found, ignore_errors=True)
        return tally

    def keep(self, found, index):
        """Move the input that libFuzzer reports to the output folder, and name it."""
        bad = [name for name in os.listdir(found) if name.startswith(("crash-", "timeout-", "oom-", "slow-unit-"))]
        if not bad or not self.s.output:
            return bad
        os.makedirs(self.s.output, exist_ok=True)
        return [shutil.copy(os.path.join(found, name), os.path.join(self.s.output, f"fuzz-{index}-{name}")) for name in bad]
