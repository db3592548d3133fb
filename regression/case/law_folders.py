# SPDX-License-Identifier: BSD-3-Clause
"""A run and the folder of its checkpoints: whose it is, who may write there, and what a second job does."""
import os
import re

import h5py

from law_plans import MODEL, TABLES, make
from trsrun import attribute, check, run


def train(binary, folder, ranks, options, **more):
    """A run on batches of 24 samples over all ranks."""
    return run(binary, ranks, f"-data_train train.h5 -batch_size {24 // ranks} {MODEL} {TABLES} {options}", folder, **more)


def run_id(path):
    name = attribute(path, "run_id")
    name = name.decode() if isinstance(name, bytes) else name
    check(re.fullmatch("[0-9a-f]{16}", name), f"{path}: run_id is {name!r}")
    return name


def test_run_id(binary, folder):
    """A run's id is in its results and in each of its checkpoints, kept over a resume on other ranks, and another run has another."""
    make(folder)
    at = lambda name: os.path.join(folder, name)
    train(binary, folder, 2, "-steps 6 -checkpoint_every 3 -checkpoint_dir ckpt -checkpoint_final final.h5 -output first.h5")
    first = run_id(at("first.h5"))
    for name in ("ckpt/step-000000003.h5", "ckpt/step-000000006.h5", "final.h5"):
        check(run_id(at(name)) == first, f"{name} is of another run")
    train(binary, folder, 3, "-steps 9 -resume -checkpoint_every 3 -checkpoint_dir ckpt -output rest.h5")
    for name in ("ckpt/step-000000009.h5", "rest.h5"):
        check(run_id(at(name)) == first, f"{name} is of another run")
    train(binary, folder, 1, "-steps 3 -init_from final.h5 -output other.h5")
    check(run_id(at("other.h5")) != first, "two runs have one id")


def test_run_id_of_old_checkpoint(binary, folder):
    """A checkpoint of an older version has no run id: it is read as ever, and the run gets one when it goes on."""
    make(folder)
    train(binary, folder, 1, "-steps 3 -checkpoint_every 3 -checkpoint_dir ckpt")
    with h5py.File(os.path.join(folder, "ckpt/step-000000003.h5"), "r+") as h:
        del h.attrs["run_id"]
    train(binary, folder, 2, "-steps 6 -resume -checkpoint_every 3 -checkpoint_dir ckpt -output rest.h5")
    check(run_id(os.path.join(folder, "ckpt/step-000000006.h5")) == run_id(os.path.join(folder, "rest.h5")), "two ids for one run")
