# SPDX-License-Identifier: BSD-3-Clause
"""Flipped bits: reading a checkpoint with one flipped bit is refused, or gives the written values.

Kinds of checkpoints: of one rank; of three ranks with tables cut by columns and rows (chunked, with
column states); of half-precision tables with adam's states; and quantised for inference.
flip_checkpoint.c reads them in one process, with io/'s functions.
"""
import os
import re
import subprocess

import trsrun
from campaign import MODEL, Tally, tail
from trsrun import check

PER_CASE = 100
RUN = f"-data_train train.h5 -batch_size 8 -steps 6 -checkpoint_final flip.h5 -metrics_every 2 {MODEL}"
KINDS = {
    "plain": (1, RUN),
    "cut": (3, f"{RUN} -table_user_sharding_types column_wise -table_user_min_partition 2 -table_item_sharding_types row_wise"),
    "half": (2, f"{RUN} -tables_data_type fp16 -embedding_optimizer adam -dense_optimizer adam"),
    "quantised": (1, f"-task predict -data_eval train.h5 -batch_size 8 -init_from plain/flip.h5 -tables_data_type int8 -quant_checkpoint flip.h5 {MODEL}"),
}


class Flips:
    name, unit, goal, weight = "flips", "flipped bits", 2000, 1

    def __init__(self, setting):
        self.s = setting
        self.program = os.path.join(setting.build, "regression", "campaign", "flip_checkpoint")
        self.files = []

    def prepare(self):
        good = self.s.fresh("flips")
        data = trsrun.write_dataset(os.path.join(good, "train.h5"))
        for kind, (ranks, words) in KINDS.items():
            folder = os.path.join(good, kind)
            os.makedirs(folder)
            result = trsrun.Job(self.s.binary, ranks, words.replace("train.h5", data).replace("plain/", f"{good}/plain/"), folder).wait(60)
            check(result.status == 0, f"{kind}: exit {result.status}\n{tail(result.text)}")
            self.files.append(os.path.join(folder, "flip.h5"))

    def case(self, index):
        """A hundred flips of one file. If a flip ends the process, this is a failure, and the
        remaining flips continue."""
        path, first, tally = self.files[index % len(self.files)], index * PER_CASE, Tally(PER_CASE)
        end = first + PER_CASE
        while first < end:
            done = subprocess.run([self.program, path, str(self.s.seed), str(first), str(end), os.path.join(self.s.folder, "flips", f"copy-{index}.h5")],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, timeout=600 * trsrun.patience())
            tally.failures += [f"{os.path.basename(os.path.dirname(path))}: {line}" for line in done.stdout.splitlines() if line.startswith("silent ")]
            if done.returncode == 0:
                break
            reached = re.findall(r"^at (\d+)$", done.stdout, re.M)
            check(reached, f"exit {done.returncode} before the first flip: {tail(done.stderr)}")
            tally.failures.append(f"flip {reached[-1]} of {path} ends the process with {done.returncode}: {tail(done.stderr)}")
            first = int(reached[-1]) + 1
        return tally
