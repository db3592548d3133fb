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

CASES = [
    Case("missing", 66, r"bad\.h5: cannot be opened: No such file", FROM),
    Case("missing_for_evaluation", 66, r"bad\.h5: cannot be opened", f"-task eval -data_eval train.h5 {FROM}"),
    Case("directory", 66, r"out is a directory", "-init_from out"),
    Case("empty", 65, r"bad\.h5 is empty", FROM, bad(damage=lambda path: os.truncate(path, 0))),
    Case("not_hdf5", 65, r"bad\.h5 is not an HDF5 file", FROM, bad(damage=lambda path: open(path, "wb").write(b"weights" * 100))),
    Case("truncated", 65, r"bad\.h5 .*truncated, damaged", FROM, bad(damage=lambda path: os.truncate(path, os.path.getsize(path) * 3 // 4))),
    Case("truncated_by_one_byte", 65, r"bad\.h5 .*truncated, damaged", FROM, bad(damage=lambda path: os.truncate(path, os.path.getsize(path) - 1))),
    Case("dataset_as_checkpoint", 65, r'train\.h5: attribute format is "trshard-dataset", expected "trshard-checkpoint"', "-init_from train.h5"),
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
