# SPDX-License-Identifier: BSD-3-Clause
"""Trainings that follow a folder (-data_follow)."""
import os

import h5py
import numpy as np

from badinput import Case
from cases_checkpoints import folder_with
from prepare import attribute_of, edit_checkpoint
from trsrun import check, write_dataset

FOLLOW = "-data_follow new"
RESUME = "-data_follow new -checkpoint_dir ckpt -resume -steps 6"
UNREADABLE = r"none of its 1 checkpoint can be read"
NO_FILES = ("-data_train",)
PLACE = {"follow_position": np.int64(24), "follow_file": "b.h5", "follow_samples": np.array([10, 20], np.int64), "follow_hash": np.int64(1)}


def new(*files, stop=False):
    """A prepare function: the folder new/ has these datasets, and a file STOP if `stop`."""
    def prepare(folder):
        os.makedirs(os.path.join(folder, "new"))
        for k, name in enumerate(files):
            write_dataset(os.path.join(folder, "new", name), 20, seed=k)
        if stop:
            open(os.path.join(folder, "new", "STOP"), "w").close()
    return prepare


def with_place(*files, **changes):
    """A prepare function: ckpt/ holds a checkpoint of a training that followed new/."""
    def change(h):
        for name, value in dict(PLACE, **changes).items():
            attribute_of("/", name, value)(h) if value is not None else None

    def prepare(folder):
        new(*files)(folder)
        folder_with(lambda path: edit_checkpoint(path, change), first=3)(folder)
    return prepare


def warns(reason):
    """A check: the warning about the checkpoint has this reason."""
    return lambda folder, result: check(reason in result.text, result.text)


def kept_three_steps(folder, result):
    check("after sample 24 of the stream, 10 of b.h5" in result.text, result.text)


CASES = [
    Case("no_folder", 66, r"-data_follow .*nothing: the folder cannot be read", "-data_follow nothing"),
    Case("folder_is_a_file", 66, r"-data_follow .*train.h5: the folder cannot be read", "-data_follow train.h5"),
    Case("no_file", 66, r"new has no file to train on: STOP in .*new", FOLLOW, new(stop=True), without=NO_FILES),
    Case("idle", 66, r"new has no file to train on: no file for 0 s", f"{FOLLOW} -data_follow_idle_seconds 0", new(), without=NO_FILES),
    Case("shuffled", 64, r"-data_shuffle .*needs all samples at the start", f"{FOLLOW} -data_shuffle", new("a.h5")),
    Case("epochs", 64, r"-epochs .*is 2, but -data_follow takes each sample once", f"{FOLLOW} -epochs 2", new("a.h5")),
    Case("repeated", 64, r"-data_repeat_batches .*takes each sample once", f"{FOLLOW} -data_repeat_batches 2", new("a.h5")),
    Case("bad_without_folder", 64, r"-data_follow_bad .*needs -data_follow", "-data_follow_bad skip"),
    Case("idle_without_folder", 64, r"-data_follow_idle_seconds .*needs -data_follow", "-data_follow_idle_seconds 1"),
    Case("ahead_without_folder", 64, r"-eval_ahead .*needs -data_follow", "-eval_ahead"),
    Case("negative_idle", 64, r"-data_follow_idle_seconds", f"{FOLLOW} -data_follow_idle_seconds -1", new("a.h5")),
    Case("resume_without_folder", 64, r"is of a training that follows a folder: give -data_follow", "-checkpoint_dir ckpt -resume -steps 6", with_place("b.h5")),
    Case("resume_of_another_training", 64, r"-data_follow .*did not follow a folder", RESUME, lambda folder: (new("b.h5")(folder), folder_with(lambda path: None, first=3)(folder))),
    Case("resume", 0, "", f"{RESUME} -data_follow_idle_seconds 0", with_place("a.h5", "b.h5"), kept_three_steps, without=NO_FILES),
    Case("resume_file_gone", 66, r"new/b.h5 is not there, but the training goes on after its sample 10 of 20", RESUME, with_place("a.h5"), ranks=2),
    Case("resume_file_changed", 65, r"new/b.h5 has 20 samples, expected 21, because the training goes on after its sample 10", RESUME,
         with_place("a.h5", "b.h5", follow_samples=np.array([10, 21], np.int64)), ranks=2),
    Case("resume_train_missing", 64, r"-data_train is missing: the training goes on after its sample 10", RESUME, with_place("b.h5", follow_file=""), without=NO_FILES),
    Case("resume_train_changed", 65, r"-data_train has 40 samples, expected 20", RESUME, with_place("b.h5", follow_file="")),
    Case("place_file", 65, UNREADABLE, RESUME, with_place("b.h5", follow_file="../b.h5"), warns("attribute follow_file is \"../b.h5\", expected the name of a file")),
    Case("place_samples", 65, UNREADABLE, RESUME, with_place("b.h5", follow_samples=np.array([21, 20], np.int64)), warns("attribute follow_samples is 21, 20, expected")),
    Case("place_position", 65, UNREADABLE, RESUME, with_place("b.h5", follow_position=np.int64(2**62)), warns("follow_position 4611686018427387904, expected")),
]
