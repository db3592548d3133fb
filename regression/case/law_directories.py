# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of tables that give rows to ids: damaged directories, and what inspect_file.py and
compare_runs.py say about whole ones."""
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np

import law_dynamic
import law_zch
from trsrun import check, run, tensors, thin, thinned

INT64 = np.iinfo(np.int64)
TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
RUNS = {"zch": (law_zch.options, 48, "-table_t_zch_interval 3 -table_t_zch_policy distance_lfu -table_t_zch_buckets 2"),
        "dynamic": (law_dynamic.options, 120, "-table_t_dynamic_admit_after 2 -table_t_dynamic_candidates 9 -table_t_dynamic_buckets 2")}


def put(values, where, value):
    values = values.copy()
    values[where] = value
    return values


def held(values):
    """The rows of dynamic/ids that have an id."""
    return np.flatnonzero(values[:, 1] > 0)


# what becomes of a tensor, by kind and tensor
DAMAGE = {
    "zch": {"raw": (lambda v: put(v, 0, INT64.max), lambda v: put(v, 1, v[0]), lambda v: put(v, 0, INT64.min + 2), lambda v: v[::-1], lambda v: put(v, -1, INT64.max - 1)),
            "slot": (lambda v: v + 48, lambda v: put(v, 0, v[1]), lambda v: put(v, 0, INT64.min), lambda v: put(v, 3, INT64.max), lambda v: v - 48, lambda v: v[:-1]),
            "count": (lambda v: put(v, 0, -1), lambda v: put(v, 0, INT64.max), lambda v: v[:, None]),
            "last": (lambda v: put(v, 0, -1), lambda v: put(v, 0, INT64.max), lambda v: put(v, 0, INT64.min)),
            "numbers": (lambda v: put(v, (0, 0), -1), lambda v: put(v, (0, 0), INT64.max), lambda v: put(v, (1, 1), 99), lambda v: put(v, (1, 3), 1 << 50), lambda v: put(v, (0, 4), 30),
                        lambda v: put(v, (0, 4), INT64.min), lambda v: v[:1], lambda v: v[:, :4]),
            "seen": (lambda v: np.repeat(v, 2, axis=0), lambda v: put(v, (0, 1), -5), lambda v: put(v, (0, 1), INT64.max), lambda v: put(v, (0, 2), INT64.min), lambda v: v[:, :2])},
    "dynamic": {"buckets": (lambda v: put(v, (0, 0), 0), lambda v: put(v, (0, 0), INT64.max), lambda v: put(v, (1, 0), INT64.min), lambda v: v[:1], lambda v: v[:, :2], lambda v: put(v, (0, 0), v[0, 0] + 1),
                            lambda v: put(v, (0, 1), -1), lambda v: put(v, (1, 1), 1 << 32), lambda v: put(v, (0, 2), -1), lambda v: put(v, (0, 2), INT64.max), lambda v: np.concatenate([v, v])),
                "ids": (lambda v: put(v, (0, 1), 1), lambda v: put(v, (held(v)[1], 0), v[held(v)[0], 0]), lambda v: put(v, (held(v)[0], 1), 1 << 40), lambda v: put(v, (held(v)[0], 1), -1),
                        lambda v: put(v, (held(v)[0], 2), -1), lambda v: put(v, (held(v)[0], 2), 1 << 32), lambda v: v[::-1], lambda v: v[:, :2]),
                "candidates": (lambda v: np.repeat(v, 2, axis=0), lambda v: put(v, (0, 1), -1), lambda v: put(v, (0, 1), 1 << 40), lambda v: put(v, (0, 2), 0), lambda v: put(v, (0, 2), 256)),
                "sketch": (lambda v: v[:, :1],)},
}


def edited(path, to, name, change):
    """A copy of a checkpoint without checksums, in which a tensor is changed; None: removed."""
    with h5py.File(path) as old, h5py.File(to, "w", libver="latest") as new:
        for group in old:
            if group != "checksums":
                old.copy(group, new)
        new.attrs.update(old.attrs)
        values = new[name][()]
        del new[name]
        if change:
            new[name] = change(values)


def train(binary, folder, kind, more="", name="model", ranks=1, cap=None):
    make, rows, words = RUNS[kind]
    return law_zch.train(binary, folder, name, ranks, make(cap or rows, f"-steps 8 {words} {more}"))[0]


@thinned
def test_directories_damaged(binary, folder):
    """Each damage of each tensor of a directory ends with 65 and the tensor's path, on one rank and
    two. A required tensor that is missing is named, too."""
    law_zch.make(folder)
    for kind, of_tensors in DAMAGE.items():
        path, damaged = train(binary, folder, kind), os.path.join(folder, "damaged.h5")
        make, rows, words = RUNS[kind]
        check({name.split("/")[-1] for name in tensors(path) if f"/{kind}/" in name} - {"times"} == set(of_tensors), f"{kind}: other tensors than those that are damaged here")
        number = 0
        for tensor, changes in of_tensors.items():
            name = f"embedding/t/{kind}/{tensor}"
            required = [None] * (tensor in ("raw", "slot", "buckets", "ids"))
            for i, change in enumerate([*changes, *required, lambda v: v[:0], *thin([lambda v: v.astype(np.float32), lambda v: v.reshape(-1)[0]], [])]):
                edited(path, damaged, name, change)
                number += 1
                text = run(binary, 1 + (number % thin(2, 9) == 0), f"-data_train raw.h5 -batch_size 8 -steps 1 {make(rows, words)} -init_from damaged.h5", folder, status=None)
                good = text.status == 0 and change and tensor in ("candidates", "sketch", "seen") and i == len(changes) + len(required)  # an empty list
                check(good or text.status == 65 and (f"/{name}" in text.text), f"{name}, damage {i}: exit {text.status}\n{text.text[-900:]}")
