# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints for a start or a resume."""
import os
import shutil

import h5py
import numpy as np

import trsrun
from badinput import Case
from prepare import edit_checkpoint, holds
from trsrun import check

WEIGHT = "embedding/user/weight"
FROM = "-init_from bad.h5"


def bad(change=None, damage=None, sums=False):
    """A prepare function: bad.h5 is the good checkpoint, edited as HDF5 (without checksums unless
    `sums`) or as bytes."""
    def prepare(folder):
        path = os.path.join(folder, "bad.h5")
        shutil.copyfile(os.path.join(folder, "out", "final.h5"), path)
        if change:
            edit_checkpoint(path, change, sums)
        if damage:
            damage(path)
    return prepare


def turned(name, convert):
    def change(h):
        values = h[name][()]
        del h[name]
        h[name] = convert(values)
    return change


def flipped(name):
    """Flip one bit of a tensor's last element."""
    def damage(path):
        with h5py.File(path) as h:
            tensor = h[name]
            place = tensor.id.get_offset() if tensor.chunks is None else tensor.id.get_chunk_info(0).byte_offset
            place += tensor.id.get_storage_size() - 2 if tensor.chunks is None else 2
        trsrun.flip_bit(path, place)
    return damage


def outside(h):
    with h5py.File(os.path.join(os.path.dirname(h.filename), "other.h5"), "w") as other:
        other["data"] = h[WEIGHT][()]
    del h[WEIGHT]
    h[WEIGHT] = h5py.ExternalLink("other.h5", "/data")


def folder_with(*damages, first=1):
    """A prepare function: ckpt/ holds the good checkpoint as steps from `first` on. Each step has
    its damage, damage(path) (None: none)."""
    def prepare(folder):
        os.makedirs(os.path.join(folder, "ckpt"))
        for step, damage in enumerate(damages, first):
            path = os.path.join(folder, "ckpt", f"step-{step:09d}.h5")
            shutil.copyfile(os.path.join(folder, "out", "final.h5"), path)
            if damage:
                damage(path)
    return prepare


def resumed_from(name, *warned):
    def after(folder, result):
        check(f"ckpt/{name}, after 3 updates" in result.text, f"not resumed from {name}:\n{result.text[-2000:]}")
        lines = [line for line in result.text.splitlines() if "trshard: warning" in line]
        check(len(lines) == len(warned) and all(w in line for w, line in zip(warned, lines)), f"warnings: {lines}")
    return after


RESUME = "-resume -checkpoint_dir ckpt -steps 5"
INCREMENT = "-init_from ckpt/step-000000004.h5"


def increment(change=None):
    """A prepare function: ckpt/ holds the good checkpoint of step 3, and an increment of step 4 with all rows, edited by `change`. Both are
    without checksums, so that their ids are 0."""
    def make(h):
        h.attrs.update({"format": "trshard-increment", "step": 4, "increment_number": 1, "increment_base": "0" * 16, "increment_base_step": 3,
                        "increment_previous": "0" * 16, "increment_from_step": 3})
        for table in h["embedding"].values():
            rows = len(table["weight"])
            table["delta/rows"] = np.arange(rows, dtype=np.int32)
            table["delta/rows"].attrs["num_embeddings"] = rows
        if change:
            change(h)

    def prepare(folder):
        folder_with(lambda path: edit_checkpoint(path, lambda h: None), lambda path: edit_checkpoint(path, make), first=3)(folder)
    return prepare


ROWS = "embedding/user/delta/rows"


def rows_become(convert):
    """A change: the numbers of the rows become convert(numbers), with the same attributes."""
    def change(h):
        values, rows = convert(h[ROWS][()]), h[ROWS].attrs["num_embeddings"]
        del h[ROWS]
        h[ROWS] = values
        h[ROWS].attrs["num_embeddings"] = rows
    return change

CASES = [
    Case("missing", 66, r"bad\.h5: cannot be opened: No such file", FROM),
    Case("missing_for_evaluation", 66, r"bad\.h5: cannot be opened", f"-task eval -data_eval train.h5 {FROM}"),
    Case("directory", 66, r"out is a directory", "-init_from out"),
    Case("empty", 65, r"bad\.h5 is empty", FROM, bad(damage=lambda path: os.truncate(path, 0))),
    Case("not_hdf5", 65, r"bad\.h5 is not an HDF5 file", FROM, bad(damage=lambda path: open(path, "wb").write(b"weights" * 100))),
    Case("truncated", 65, r"bad\.h5 .*truncated, damaged", FROM, bad(damage=lambda path: os.truncate(path, os.path.getsize(path) * 3 // 4))),
    Case("truncated_by_one_byte", 65, r"bad\.h5 .*truncated, damaged", FROM, bad(damage=lambda path: os.truncate(path, os.path.getsize(path) - 1))),
    Case("dataset_as_checkpoint", 65, r'train\.h5: attribute format is "trshard-dataset", expected "trshard-checkpoint"', "-init_from train.h5"),
    Case("delta_as_checkpoint", 65, r"bad\.h5 is a delta, .*tools/apply_delta\.py", FROM, bad(lambda h: h.attrs.__setitem__("format", "trshard-delta")), ranks=3),
    Case("delta_base_is_no_id", 65, r'bad\.h5: attribute delta_base is "here", expected 16 hexadecimal digits', FROM, bad(lambda h: h.attrs.__setitem__("delta_base", "here"))),
    Case("place_without_an_id", 65, r"bad\.h5 has attribute delta_base, but no delta_id", FROM, bad(lambda h: h.attrs.__setitem__("delta_base", "0" * 16))),
    Case("increment_is_read", 0, "", INCREMENT, increment(), ranks=3),
    Case("increment_alone", 65, r"bad\.h5 has only the rows that have changed since .*/step-000000003\.h5, which is missing", FROM,
         lambda folder: (increment()(folder), os.rename(os.path.join(folder, "ckpt", "step-000000004.h5"), os.path.join(folder, "bad.h5"))), ranks=3),
    Case("increment_without_a_place", 65, r"step-000000004\.h5 is an incremental checkpoint, but does not say which file is before it", INCREMENT, increment(lambda h: h.attrs.__delitem__("increment_base"))),
    Case("increment_of_no_number", 65, r"step-000000004\.h5 is an incremental checkpoint, but does not say which file is before it", INCREMENT, increment(lambda h: h.attrs.__setitem__("increment_number", 0))),
    Case("increment_previous_is_no_id", 65, r'step-000000004\.h5: attribute increment_previous is "here", expected 16 hexadecimal digits', INCREMENT,
         increment(lambda h: h.attrs.__setitem__("increment_previous", "here"))),
    Case("increment_of_itself", 65, r"step-000000004\.h5 has step 4, and attribute increment_from_step 4, expected an earlier step", INCREMENT,
         increment(lambda h: h.attrs.__setitem__("increment_from_step", 4)), ranks=3),
    Case("increment_of_another_file", 65, r"increment 1 and continues file 0{15}1, but .*step-000000003\.h5 is increment 0 and file 0{16}: they do not belong together", INCREMENT,
         increment(lambda h: h.attrs.__setitem__("increment_previous", "0" * 15 + "1")), ranks=3),
    Case("increment_after_a_gap", 65, r"is increment 2 and continues .*is increment 0 .*they do not belong together", INCREMENT, increment(lambda h: h.attrs.__setitem__("increment_number", 2))),
    Case("increment_rows_not_ascending", 65, r"step-000000004\.h5: /embedding/user/delta/rows: row 1 is 48, expected ascending numbers below 50", INCREMENT, increment(rows_become(lambda v: v[::-1])), ranks=3),
    Case("increment_row_outside", 65, r"delta/rows: row 49 is 50, expected ascending numbers below 50", INCREMENT, increment(rows_become(lambda v: np.append(v[:-1], np.int32(50))))),
    Case("increment_row_negative", 65, r"delta/rows: row 0 is -1, expected ascending numbers below 50", INCREMENT, increment(rows_become(lambda v: v - 1))),
    Case("increment_fewer_rows", 65, r"/embedding/user/weight has 50 rows, but /embedding/user/delta/rows has 49", INCREMENT, increment(rows_become(lambda v: v[1:])), ranks=3),
    Case("increment_rows_are_floats", 65, r"/embedding/user/delta/rows is no list of rows", INCREMENT, increment(rows_become(lambda v: v.astype(np.float32)))),
    Case("increment_of_a_larger_table", 65, r'table "user" has 60 rows, but 50 in the full checkpoint of its chain', INCREMENT, increment(lambda h: h[ROWS].attrs.__setitem__("num_embeddings", 60))),
    Case("increment_without_weights", 65, r"/embedding/user/weight has 0 rows, but /embedding/user/delta/rows has 50", INCREMENT, increment(lambda h: h.__delitem__(WEIGHT))),
    Case("increment_of_another_width", 65, r"step-000000004\.h5: /embedding/user/weight is float32 \[50, 3\], the model wants float32 \[50, 4\]", INCREMENT,
         increment(turned(WEIGHT, lambda v: v[:, :-1])), ranks=3),
    Case("increment_is_skipped", 0, "", RESUME, increment(lambda h: h.attrs.__setitem__("increment_previous", "0" * 15 + "1")),
         resumed_from("step-000000003.h5", "do not belong together"), ranks=3),
    Case("weights_alone_are_not_resumed", 64, r"-resume .*step-000000003\.h5 has weights only, because tools/apply_delta\.py made it", RESUME,
         folder_with(lambda path: edit_checkpoint(path, lambda h: h.attrs.__setitem__("weights_only", 1)), first=3), ranks=2),
    Case("newer_version", 65, r"bad\.h5 is version 2", FROM, bad(lambda h: h.attrs.__setitem__("version", 2))),
    Case("negative_step", 65, r"bad\.h5: step -3", FROM, bad(lambda h: h.attrs.__setitem__("step", -3))),
    Case("no_table", 65, r"bad\.h5 has no dataset /embedding/user/weight", FROM, bad(lambda h: h.__delitem__("embedding/user"))),
    Case("no_layer", 65, r"bad\.h5 has no dataset /dense/over_arch/1/weight", FROM, bad(lambda h: h.__delitem__("dense/over_arch/1"))),
    Case("another_number_of_rows", 65, r"bad\.h5: /embedding/user/weight is float32 \[49, 4\], the model wants float32 \[50, 4\]", FROM,
         bad(turned(WEIGHT, lambda v: v[:-1]))),
    Case("another_width", 65, r"bad\.h5: /embedding/user/weight is float32 \[50, 4\], the model wants float32 \[50, 8\]",
         f"{FROM} -tables_embedding_dim 8 -dense_arch 8,8", bad()),
    Case("another_layer_size", 65, r"bad\.h5: /dense/dense_arch/\d/weight is float32 \[.*the model wants float32",
         f"{FROM} -dense_arch 6,4", bad()),
    Case("another_data_type_is_converted", 0, "", f"{FROM} -tables_data_type fp16", bad()),
    Case("integers_are_not_converted", 65, r"bad\.h5: /embedding/user/weight is u?int16.*the model wants float16", f"{FROM} -tables_data_type fp16", bad(turned(WEIGHT, lambda w: w.astype(np.uint16)))),
    Case("double_precision", 65, r"bad\.h5: /embedding/user/weight is float64", FROM, bad(turned(WEIGHT, lambda v: v.astype(np.float64)))),
    Case("integers", 65, r"bad\.h5: /embedding/user/weight is int32", FROM, bad(turned(WEIGHT, lambda v: v.astype(np.int32)))),
    Case("one_dimension", 65, r"bad\.h5: /embedding/user/weight is float32 \[200\]", FROM, bad(turned(WEIGHT, np.ravel))),
    Case("state_of_wrong_shape", 65, r"bad\.h5: /embedding/user/momentum1 is", FROM, bad(turned("embedding/user/momentum1", lambda v: v[:-1]))),
    Case("bit_flip_in_weights", 65, r"bad\.h5 is damaged: the checksum of /embedding/user/weight", FROM, bad(damage=flipped(WEIGHT))),
    Case("bit_flip_in_state", 65, r"bad\.h5 is damaged: the checksum of /embedding/item/momentum1", FROM, bad(damage=flipped("embedding/item/momentum1"))),
    Case("bit_flip_in_dense", 65, r"bad\.h5 is damaged: the checksum of /dense/dense_arch/0/weight", FROM, bad(damage=flipped("dense/dense_arch/0/weight"))),
    Case("bit_flip_in_checksum", 65, r"bad\.h5.*checksum", FROM, bad(damage=flipped(f"checksums/{WEIGHT}"))),
    Case("bit_flip_three_ranks", 65, r"bad\.h5 is damaged", FROM, bad(damage=flipped(WEIGHT)), ranks=3),
    Case("bit_flip_for_evaluation", 65, r"bad\.h5 is damaged", f"-task eval -data_eval train.h5 {FROM}", bad(damage=flipped(WEIGHT))),
    Case("edited_without_new_checksum", 65, r"bad\.h5 is damaged", FROM, bad(lambda h: h[WEIGHT].__setitem__((0, 0), 0.5), sums=True)),
    Case("missing_policy_unknown", 64, r"-init_from_missing.*fatal, ?initial", f"{FROM} -init_from_missing zero", bad()),
    Case("rows_policy_unknown", 64, r"-init_from_rows.*fatal, ?grow", f"{FROM} -init_from_rows shrink", bad()),
    Case("missing_without_a_file", 64, r"-init_from_missing.*needs -init_from", "-init_from_missing initial"),
    Case("table_of_no_model", 64, r'-init_from_tables.*no table "usr"; the closest is "user"', f"{FROM} -init_from_tables usr", bad()),
    Case("table_named_twice", 64, r'-init_from_tables.*"user" twice', f"{FROM} -init_from_tables user,user", bad()),
    Case("wanted_table_is_missing", 65, r"bad\.h5 has no dataset /embedding/user/weight.*-init_from_missing initial", f"{FROM} -init_from_tables user",
         bad(lambda h: h.__delitem__("embedding/user"))),
    Case("missing_is_initial", 0, "", f"{FROM} -init_from_missing initial", bad(lambda h: h.__delitem__("embedding/user"))),
    Case("fewer_rows_told", 65, r"/embedding/user/weight is float32 \[49, 4\].*-init_from_rows grow", f"{FROM} -init_from_missing initial", bad(turned(WEIGHT, lambda v: v[:-1]))),
    Case("more_rows_than_the_model", 65, r"/embedding/user/weight is float32 \[51, 4\], the model wants float32 \[50, 4\]",
         f"{FROM} -init_from_missing initial -init_from_rows grow", bad(turned(WEIGHT, lambda v: np.vstack([v, v[:1]])))),
    Case("another_width_when_grown", 65, r"/embedding/user/weight is float32 \[40, 3\]", f"{FROM} -init_from_missing initial -init_from_rows grow",
         bad(turned(WEIGHT, lambda v: v[:40, :3])), ranks=3),
    Case("grown_state_of_other_rows", 65, r"bad\.h5: /embedding/user/momentum1 is float32 \[60\]", f"{FROM} -init_from_rows grow", bad(turned("embedding/user/momentum1", lambda v: np.append(v, v[:10])))),
    Case("integers_when_anything_goes", 65, r"bad\.h5: /dense/over_arch/1/bias is int32", f"{FROM} -init_from_missing initial", bad(turned("dense/over_arch/1/bias", lambda v: v.astype(np.int32)))),
    Case("external_link", 65, r"bad\.h5: /embedding/user/weight is an? external link", FROM, bad(outside)),
    Case("weights_not_finite", 78, r"the loss of step 3 is", FROM, bad(turned("dense/over_arch/1/bias", lambda v: v * np.nan))),
    Case("without_checksums", 0, "", FROM, bad(lambda h: None)),
    Case("resume_passes_over_the_damaged", 0, "", RESUME, folder_with(None, None, flipped(WEIGHT)),
         resumed_from("step-000000002.h5", "step-000000003.h5")),
    Case("resume_passes_over_what_is_cut", 0, "", RESUME, folder_with(None, lambda path: os.truncate(path, 1000), lambda path: os.truncate(path, 0)),
         resumed_from("step-000000001.h5", "step-000000003.h5", "step-000000002.h5")),
    Case("resume_when_all_are_damaged", 65, r"ckpt: none of its 2 checkpoints can be read", RESUME, folder_with(flipped(WEIGHT), flipped(WEIGHT))),
    Case("resume_from_another_model", 64, r'-dense_arch "6,4" .*the model of .*step-000000001\.h5 has -dense_arch 8,4; leave', f"{RESUME} -dense_arch 6,4", folder_with(None)),
    Case("resume_from_a_file", 73, r"ckpt is not a folder", RESUME, holds("ckpt", "not a folder\n")),
    Case("resume_from_nothing_yet", 0, "", RESUME),
]
