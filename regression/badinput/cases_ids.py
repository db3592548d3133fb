# SPDX-License-Identifier: BSD-3-Clause
"""Ids outside their tables under each -bounds_check_mode, and id -1, which is pruned."""
import os

import h5py
import numpy as np

import trsrun
from badinput import Case

TAG = 2  # key of the changed feature; its table has 20 rows


def place_of(h, sample, feature):
    """The position in values of the first id of a sample's feature. The sample must have an id."""
    lengths = h["sparse/lengths"][()]
    assert lengths[sample, feature] > 0
    return int(h["sparse/offsets"][sample] + lengths[sample, :feature].sum())


def samples_with(h, feature):
    return np.flatnonzero(h["sparse/lengths"][:, feature])


def ids(*changes, name="train.h5"):
    """A prepare function: for each (i, id), the i-th sample that has TAG gets this id. It is also
    recorded for `equals`."""
    def prepare(folder):
        with h5py.File(os.path.join(folder, name), "r+") as h:
            for i, value in changes:
                h["sparse/values"][place_of(h, samples_with(h, TAG)[i], TAG)] = value
    return prepare


def without_id(folder):
    """plain.h5: train.h5 without the first id of the second sample that has TAG."""
    with h5py.File(os.path.join(folder, "train.h5")) as h, h5py.File(os.path.join(folder, "plain.h5"), "w", libver="latest") as out:
        sample = samples_with(h, TAG)[1]
        place = place_of(h, sample, TAG)
        for part in ("dense", "labels"):
            h.copy(part, out)
        out.attrs.update(h.attrs)
        out.create_group("sparse").attrs.update(h["sparse"].attrs)
        out["sparse/values"] = np.delete(h["sparse/values"][()], place)
        out["sparse/offsets"] = h["sparse/offsets"][()] - (np.arange(len(h["sparse/offsets"])) > sample)
        out["sparse/lengths"] = h["sparse/lengths"][()]
        out["sparse/lengths"][sample, TAG] -= 1


def plain_copy(change):
    """A prepare function: plain.h5 is the good dataset with `change`. A run must behave as with
    this dataset."""
    def prepare(folder):
        with open(os.path.join(folder, "train.h5"), "rb") as good, open(os.path.join(folder, "plain.h5"), "wb") as out:
            out.write(good.read())
        change(folder)
    return prepare


def both(*steps):
    def prepare(folder):
        for step in steps:
            step(folder)
    return prepare


class EqualsPlain:
    """An after check: losses and weights have the bits of a run with plain.h5. It needs the binary,
    which it finds from the run."""

    def __init__(self, options=""):
        self.options = options

    def __call__(self, folder, result):
        os.rename(os.path.join(folder, "out"), os.path.join(folder, "found"))
        os.makedirs(os.path.join(folder, "out"))
        words = Case("plain", 0, options=f"-data_train plain.h5 {self.options}").words()
        trsrun.run(os.environ["TRS_BINARY"], 2, words, folder)
        found, plain = (trsrun.losses(os.path.join(folder, part, "run.h5")) for part in ("found", "out"))
        trsrun.check(trsrun.same_bits(found, plain), f"losses {found} for {plain}")
        trsrun.check_same_tensors(os.path.join(folder, "found", "final.h5"), os.path.join(folder, "out", "final.h5"), "weights")


class Warns(EqualsPlain):
    """An after check: a warning counts the ids, too."""

    def __call__(self, folder, result):
        lines = [line for line in result.text.splitlines() if "warning" in line and "tag" in line]
        trsrun.check(lines, f"no warning of feature tag:\n{result.text[-2000:]}")
        super().__call__(folder, result)


BAD = ids((2, 20), (4, 1 << 30), (6, -2))
ZERO = plain_copy(ids((2, 0), (4, 0), (6, 0), name="plain.h5"))
EVALUATE = "-data_eval plain.h5 -batch_size 3 -bounds_check_mode fatal"
LATE = r'plain\.h5: feature "tag" of sample \d+ has id 20, expected 0 to 19'
FATAL = r'train\.h5: feature "tag" of sample \d+ has id {}, expected 0 to 19'

TWO_RANKS = True
CASES = [
    Case("fatal_too_large", 65, FATAL.format(20), "-bounds_check_mode fatal", ids((2, 20))),
    Case("fatal_far_too_large", 65, FATAL.format(2147483647), "-bounds_check_mode fatal", ids((2, 2147483647))),
    Case("fatal_negative", 65, FATAL.format(-2), "-bounds_check_mode fatal", ids((2, -2))),
    Case("fatal_for_one_table", 65, FATAL.format(20), "-table_tag_bounds_check_mode fatal", ids((2, 20))),
    Case("fatal_three_ranks", 65, FATAL.format(20), "-bounds_check_mode fatal", ids((2, 20)), ranks=3),
    Case("fatal_row_wise", 65, FATAL.format(20), "-bounds_check_mode fatal -tables_sharding_types row_wise", ids((2, 20))),
    Case("fatal_in_a_later_step", 65, FATAL.format(20), "-bounds_check_mode fatal -steps 20 -batch_size 4", ids((25, 20))),
    Case("fatal_pipeline_base", 65, FATAL.format(20), "-bounds_check_mode fatal -pipeline base -batch_size 4", ids((12, 20))),
    Case("fatal_in_a_later_evaluated_batch", 65, LATE, f"-task eval -init_from out/final.h5 {EVALUATE}", plain_copy(ids((25, 20), name="plain.h5")), ranks=3),
    Case("fatal_evaluated_between_steps", 65, LATE, f"-eval_every 1 -pipeline prefetch_sparse_dist {EVALUATE}", plain_copy(ids((25, 20), name="plain.h5")), ranks=3),
    Case("warning", 0, "", "", both(BAD, ZERO), Warns()),
    Case("warning_row_wise", 0, "", "-tables_sharding_types row_wise", both(BAD, ZERO), Warns("-tables_sharding_types row_wise")),
    Case("ignore", 0, "", "-bounds_check_mode ignore", both(BAD, ZERO), EqualsPlain()),
    Case("none_does_not_crash", 0, "", "-bounds_check_mode none", BAD),
    Case("none_does_not_crash_row_wise", 0, "", "-bounds_check_mode none -tables_sharding_types row_wise", BAD),
    Case("none_does_not_crash_data_parallel", 0, "", "-bounds_check_mode none -tables_sharding_types data_parallel", BAD),
    Case("pruned", 0, "", "-bounds_check_mode fatal", both(without_id, ids((1, -1))), EqualsPlain()),
    Case("pruned_row_wise", 0, "", "-bounds_check_mode fatal -tables_sharding_types row_wise", both(without_id, ids((1, -1))),
         EqualsPlain("-tables_sharding_types row_wise")),
    Case("pruned_data_parallel", 0, "", "-bounds_check_mode fatal -tables_sharding_types data_parallel", both(without_id, ids((1, -1))),
         EqualsPlain("-tables_sharding_types data_parallel")),
]
