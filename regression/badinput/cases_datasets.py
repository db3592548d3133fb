# SPDX-License-Identifier: BSD-3-Clause
"""Datasets with a missing part, a wrong type or shape, or inconsistent contents."""
import os
import shutil

import h5py
import numpy as np

import trsrun
from badinput import Case
from cases_files import edit, replaced
from prepare import attribute_of
from trsrun import check


def absent(name):
    return edit(lambda h: h.__delitem__(name))


def attribute(name, value, where="/"):
    return edit(attribute_of(where, name, value))


def turned(name, convert):
    """A prepare function: /name holds convert(its values)."""
    return replaced(name, lambda h, values: h.__setitem__(name, convert(values)))


def element(name, index, value):
    return edit(lambda h: h[name].__setitem__(index, value))


def extended(h):
    """One more id than the lengths declare."""
    values = h["sparse/values"][()]
    del h["sparse/values"]
    h["sparse/values"] = np.append(values, values[:1])


def shifted_offsets(values):
    return values + 1


def single_ids(h, ids):
    """Every sample has one of these ids for the first feature, and no id for the others."""
    lengths = np.zeros_like(h["sparse/lengths"][()])
    lengths[:, 0] = 1
    for name, values in (("lengths", lengths), ("offsets", np.arange(len(ids) + 1)), ("values", ids.astype(np.int32))):
        del h["sparse"][name]
        h["sparse"][name] = values


def evaluation(**more):
    """A prepare function: eval.h5, which differs in something from train.h5."""
    def prepare(folder):
        trsrun.write_dataset(os.path.join(folder, "eval.h5"), **more)
    return prepare


def evaluation_declares_more(folder):
    evaluation()(folder)
    with h5py.File(os.path.join(folder, "eval.h5"), "r+") as h:
        h["sparse"].attrs["num_embeddings"] = h["sparse"].attrs["num_embeddings"] + 9


def evaluation_with_a_bad_label(folder):
    with h5py.File(shutil.copyfile(os.path.join(folder, "train.h5"), os.path.join(folder, "bad.h5")), "r+") as h:
        h["labels"][17] = -1


def evaluation_without_labels(folder):
    evaluation()(folder)
    with h5py.File(os.path.join(folder, "eval.h5"), "r+") as h:
        del h["labels"]


def weighted(index, value):
    def prepare(folder):
        path = trsrun.write_dataset(os.path.join(folder, "train.h5"), weighted=True)
        with h5py.File(path, "r+") as h:
            h["sparse/weights"][index] = value
    return prepare


def weighted_in_second(index, value):
    """A prepare function: train.h5 and second.h5 have weights of ids, and one weight of the second
    file is bad."""
    def prepare(folder):
        trsrun.write_dataset(os.path.join(folder, "train.h5"), weighted=True)
        second(lambda h: h["sparse/weights"].__setitem__(index, value), weighted=True)(folder)
    return prepare


def sample_weights(value, row=17):
    """A prepare function: the samples of train.h5 have weight 1, except one."""
    def prepare(folder):
        weights = np.ones(40, np.float32)
        weights[row] = value
        trsrun.write_dataset(os.path.join(folder, "train.h5"), sample_weights=weights)
    return prepare


def names_of(h, names):
    h["labels"].attrs["names"] = names


def labelled(change=None, eval_labels=None, second_labels=None):
    """A prepare function: train.h5 with the labels click and buy, except for the change. eval.h5
    and second.h5 have other labels; () is a label without a name."""
    def prepare(folder):
        path = trsrun.write_dataset(os.path.join(folder, "train.h5"), labels=["click", "buy"])
        for name, labels in (("eval.h5", eval_labels), ("second.h5", second_labels)):
            if labels is not None:
                trsrun.write_dataset(os.path.join(folder, name), labels=labels)
        if change:
            with h5py.File(path, "r+") as h:
                change(h)
    return prepare


def second(change=None, **more):
    """A prepare function: second.h5, which fits train.h5 except for the change."""
    def prepare(folder):
        path = trsrun.write_dataset(os.path.join(folder, "second.h5"), seed=8, **more)
        if change:
            with h5py.File(path, "r+") as h:
                change(h)
    return prepare


def heap(offset, n, value=0):
    """A prepare function: in the heap of the names' strings, n bytes from `offset` on become
    `value`."""
    def prepare(folder):
        path = os.path.join(folder, "train.h5")
        with open(path, "rb") as file:
            data = bytearray(file.read())
        place = data.index(b"GCOL") + offset
        data[place:place + n] = bytes([value]) * n
        with open(path, "wb") as file:
            file.write(data)
    return prepare


def chunk_elsewhere(name, place=None):
    """A prepare function: in an old file, whose index has no checksums, the address of a dataset's
    first chunk is changed, by default to beyond the end."""
    def prepare(folder):
        path = os.path.join(folder, "train.h5")
        rewrite(folder, libver="earliest")
        with h5py.File(path) as h:
            address = h[name].id.get_chunk_info(0).byte_offset.to_bytes(8, "little")
        with open(path, "rb") as file:
            data = file.read()
        assert data.count(address) == 1
        with open(path, "wb") as file:
            file.write(data.replace(address, (place or len(data) - 4).to_bytes(8, "little")))
    return prepare


BOTH = "-data_train train.h5,second.h5"

CASES = [
    Case("no_format", 65, r"train\.h5 has no attribute format", prepare=attribute("format", None)),
    Case("other_format", 65, r'train\.h5: attribute format is "trshard-run", expected "trshard-dataset"', prepare=attribute("format", "trshard-run")),
    Case("checkpoint_as_dataset", 65, r'final\.h5: attribute format is "trshard-checkpoint"', "-data_train out/final.h5 -checkpoint_final w.h5"),
    Case("format_is_a_number", 65, r"train\.h5.*format", prepare=attribute("format", 3)),
    Case("newer_version", 65, r"train\.h5 is version 2 of trshard-dataset, this program reads version 1", prepare=attribute("version", 2)),
    Case("no_version", 65, r"train\.h5.*version", prepare=attribute("version", None)),
    Case("version_is_text", 65, r"train\.h5.*version", prepare=attribute("version", "one")),
    Case("no_num_samples", 65, r"train\.h5.*num_samples", prepare=attribute("num_samples", None)),
    Case("zero_samples", 65, r"train\.h5: num_samples is 0, expected 1 to ", prepare=attribute("num_samples", 0)),
    Case("negative_samples", 65, r"train\.h5: num_samples is -40", prepare=attribute("num_samples", -40)),
    Case("more_samples_than_rows", 65, r"train\.h5: /sparse/lengths is int32 \[40, 3\], expected 41 rows: attribute num_samples", prepare=attribute("num_samples", 41)),
    Case("far_more_samples_than_rows", 65, r"train\.h5: /sparse/lengths is .*expected 1000000000000 rows: attribute num_samples", prepare=attribute("num_samples", 10**12)),
    Case("no_sparse", 65, r"train\.h5 has no group /sparse", prepare=absent("sparse")),
    Case("no_lengths", 65, r"train\.h5 has no dataset /sparse/lengths", prepare=absent("sparse/lengths")),
    Case("no_offsets", 65, r"train\.h5 has no dataset /sparse/offsets", prepare=absent("sparse/offsets")),
    Case("no_values", 65, r"train\.h5 has no dataset /sparse/values", prepare=absent("sparse/values")),
    Case("no_labels", 65, r"train\.h5 has no dataset /labels", prepare=absent("labels")),
    Case("evaluation_without_labels", 65, r"eval\.h5 has no dataset /labels, which an evaluation needs", "-data_eval eval.h5", evaluation_without_labels),
    Case("no_weights_for_weighted", 65, r"train\.h5 has no dataset /sparse/weights", "-tables_is_weighted"),
    Case("no_features", 65, r"train\.h5.*features", prepare=attribute("features", None, "sparse")),
    Case("empty_features", 65, r"train\.h5.*features", prepare=attribute("features", h5py.Empty("S4"), "sparse")),
    Case("feature_twice", 65, r'train\.h5: features 0 and 1 have the same name "user"', prepare=attribute("features", ["user", "user", "tag"], "sparse")),
    Case("feature_without_name", 65, r"train\.h5: feature 1 has an empty name", prepare=attribute("features", ["user", "", "tag"], "sparse")),
    Case("num_embeddings_too_short", 65, r"train\.h5.*num_embeddings", prepare=attribute("num_embeddings", np.array([50, 30]), "sparse")),
    Case("num_embeddings_negative", 65, r'train\.h5: num_embeddings of feature "item" is -1', prepare=attribute("num_embeddings", np.array([50, -1, 20]), "sparse")),
    Case("num_embeddings_zero", 64, r'-table_item_num_embeddings.*table "item" has no size', prepare=attribute("num_embeddings", np.array([50, 0, 20]), "sparse")),
    Case("num_embeddings_real", 65, r"train\.h5.*num_embeddings", prepare=attribute("num_embeddings", np.array([50.0, 30.0, 20.0]), "sparse")),
    Case("labels_are_integers", 65, r"train\.h5: /labels is int64 \[40\], expected float32", prepare=turned("labels", lambda v: v.astype(np.int64))),
    Case("lengths_are_real", 65, r"train\.h5: /sparse/lengths is float32.*expected integers", prepare=turned("sparse/lengths", lambda v: v.astype(np.float32))),
    Case("values_are_text", 65, r"train\.h5: /sparse/values holds strings", prepare=turned("sparse/values", lambda v: v.astype("S4"))),
    Case("dense_is_compound", 65, r"train\.h5: /dense holds compounds", prepare=turned("dense", lambda v: v[:, 0].astype([("x", np.float32)]))),
    Case("dense_of_one_dimension", 65, r"train\.h5: /dense is float32 \[40\], expected 2 dimensions", prepare=turned("dense", lambda v: v[:, 0])),
    Case("dense_of_three_dimensions", 65, r"train\.h5: /dense has 3 dimensions", prepare=turned("dense", lambda v: v[:, :, None])),
    Case("labels_without_names", 65, r"train\.h5 has no attribute names|train\.h5: .*names", prepare=turned("labels", lambda v: v[:, None])),
    Case("labels_of_three_dimensions", 65, r"train\.h5: /labels has 3 dimensions", prepare=turned("labels", lambda v: v[:, None, None])),
    Case("labels_and_too_few_names", 65, r"train\.h5: attribute names of /labels has 1 entries, expected 2", prepare=labelled(lambda h: names_of(h, ["click"]))),
    Case("label_twice", 65, r'train\.h5: labels 0 and 1 have the same name "click"', prepare=labelled(lambda h: names_of(h, ["click", "click"]))),
    Case("label_without_name", 65, r"train\.h5: label 1 has an empty name", prepare=labelled(lambda h: names_of(h, ["click", ""]))),
    Case("label_names_are_numbers", 65, r"train\.h5.*names", prepare=labelled(lambda h: names_of(h, np.array([1, 2])))),
    Case("labels_too_few_rows", 65, r"train\.h5: /labels is float32 \[40, 2\], expected 41 rows|/sparse/lengths is int32 \[40, 3\], expected 41", prepare=labelled(lambda h: h.attrs.__setitem__("num_samples", 41))),
    Case("label_unknown", 64, r'-data_label: .*train\.h5 has no label "sale", expected one of click, buy', "-data_label sale", labelled()),
    Case("label_of_data_without_names", 64, r'-data_label: .*train\.h5 has one label without a name, expected a label "buy"', "-data_label buy"),
    Case("second_label_too_large", 65, r"train\.h5: /labels\[3, 1\] is 1\.5, expected a number in \[0, 1\]", "-data_label buy", labelled(lambda h: h["labels"].__setitem__((3, 1), 1.5))),
    Case("other_label_is_unused", 0, "", "-data_label buy -data_shuffle", labelled(lambda h: h["labels"].__setitem__((3, 0), 1.5))),
    Case("evaluation_lacks_the_label", 65, r'eval\.h5 has no label "click", expected one of buy, sale', "-data_eval eval.h5", labelled(eval_labels=["buy", "sale"])),
    Case("evaluation_has_no_names", 65, r'eval\.h5 has one label without a name, expected a label "click"', "-data_eval eval.h5", labelled(eval_labels=())),
    Case("evaluation_alone_has_names", 65, r"eval\.h5 has the labels buy, sale, the training data one without a name", "-data_eval eval.h5", evaluation(labels=["buy", "sale"])),
    Case("second_has_other_labels", 65, r'second\.h5: label 1 of /labels is "like", expected "buy", as in .*train\.h5', BOTH, labelled(second_labels=["click", "like"])),
    Case("second_has_more_labels", 65, r"second\.h5: /labels has 3 columns, expected 2, as .*train\.h5 has", BOTH, labelled(second_labels=["click", "buy", "like"])),
    Case("second_has_one_label", 65, r"second\.h5: /labels has (1 column,|1 dimension, expected 2)", BOTH, labelled(second_labels=())),
    Case("groups_missing", 65, r"train\.h5 has no dataset /group, which -metrics_group names", "-metrics_group /group"),
    Case("groups_missing_in_evaluation", 65, r"eval\.h5 has no dataset /group, which -metrics_group names", "-metrics_group /group -data_eval eval.h5",
         lambda folder: (evaluation()(folder), edit(lambda h: h.__setitem__("group", np.ones(40, np.int64)))(folder))),
    Case("group_of_no_feature", 64, r"-metrics_group users: .*train\.h5 has no feature of this name, expected one, or /group", "-metrics_group users"),
    Case("group_of_several_ids", 65, r'train\.h5: feature "user" of sample \d+ has [023] ids, expected one, the sample.s group \(-metrics_group\)', "-metrics_group user -data_shuffle"),
    Case("at_without_groups", 64, r"-metrics_at.*needs -metrics_group", "-metrics_at 5"),
    Case("at_zero", 64, r"-metrics_at", "-metrics_group user -metrics_at 5,0"),
    Case("at_too_many", 64, r"-metrics_at.*has 9 numbers, expected at most 8", "-metrics_group user -metrics_at 1,2,3,4,5,6,7,8,9"),
    Case("segments_without_groups", 64, r"-metrics_segments.*needs -metrics_group", "-metrics_segments 4"),
    Case("segments_too_many", 64, r"-metrics_segments.*\[0, 256\]|-metrics_segments.*256", "-metrics_group /group -metrics_segments 257"),
    Case("segment_too_large", 65, r"train\.h5: the group of sample 17 \(/group\) is 4, expected 0 to 3 \(-metrics_segments 4\)", "-metrics_group /group -metrics_segments 4 -data_shuffle",
         edit(lambda h: h.__setitem__("group", np.where(np.arange(40) == 17, 4, np.arange(40) % 4)))),
    Case("segment_negative_in_evaluation", 65, r"eval\.h5: the group of sample 3 \(/group\) is -1, expected 0 to 3 \(-metrics_segments 4\)", "-metrics_group /group -metrics_segments 4 -data_eval eval.h5",
         lambda folder: (evaluation(group=np.where(np.arange(40) == 3, -1, 0))(folder), edit(lambda h: h.__setitem__("group", np.ones(40, np.int64)))(folder)),
         lambda folder, _: trsrun.check(os.path.exists(os.path.join(folder, "out", "final.h5.~1~")), "the trained weights are lost with their evaluation")),
    Case("segment_of_feature_too_large", 65, r"train\.h5: the group of sample 5 \(feature user\) is 2, expected 0 to 1 \(-metrics_segments 2\)", "-metrics_group user -metrics_segments 2 -data_shuffle",
         edit(lambda h: single_ids(h, np.where(np.arange(40) == 5, 2, 1)))),
    Case("early_stopping_without_groups", 64, r"-early_stopping_metric.*gauc needs -metrics_group", "-early_stopping_metric gauc -eval_every 2"),
    Case("group_is_real", 65, r"train\.h5: /group is float32 \[40\], expected integers", prepare=edit(lambda h: h.__setitem__("group", np.ones(40, np.float32)))),
    Case("group_of_two_dimensions", 65, r"train\.h5: /group is int64 \[40, 1\], expected 1 dimension", prepare=edit(lambda h: h.__setitem__("group", np.ones((40, 1), np.int64)))),
    Case("group_too_short", 65, r"train\.h5: /group is int64 \[39\], expected 40 rows", prepare=edit(lambda h: h.__setitem__("group", np.ones(39, np.int64)))),
    Case("group_unsigned", 65, r"train\.h5: /group is uint64, expected int64", prepare=edit(lambda h: h.__setitem__("group", np.ones(40, np.uint64)))),
    Case("time_is_text", 65, r"train\.h5: /time holds strings", prepare=edit(lambda h: h.__setitem__("time", np.array(["x"] * 40, "S4")))),
    Case("time_too_long", 65, r"train\.h5: /time is int64 \[41\], expected 40 rows", prepare=edit(lambda h: h.__setitem__("time", np.ones(41, np.int64)))),
    Case("second_has_groups", 65, r"second\.h5 has a /group, but .*train\.h5 has none", BOTH, second(group=range(40))),
    Case("second_has_times", 65, r"second\.h5 has a /time, but .*train\.h5 has none", BOTH, second(time=range(40))),
    Case("labels_scalar", 65, r"train\.h5: /labels has 0 dimensions", prepare=turned("labels", lambda v: v[0])),
    Case("dense_without_columns", 65, r"train\.h5: /dense is float32 \[40, 0\]", prepare=turned("dense", lambda v: v[:, :0])),
    Case("too_few_labels", 65, r"train\.h5: /labels is float32 \[39\], expected 40 rows", prepare=turned("labels", lambda v: v[:-1])),
    Case("too_few_dense_rows", 65, r"train\.h5: /dense is float32 \[39, 3\], expected 40 rows", prepare=turned("dense", lambda v: v[:-1])),
    Case("too_few_offsets", 65, r"train\.h5: /sparse/offsets is int64 \[40\], expected 41 rows", prepare=turned("sparse/offsets", lambda v: v[:-1])),
    Case("lengths_for_other_features", 65, r"train\.h5: /sparse/lengths is int32 \[40, 2\], expected 3 columns", prepare=turned("sparse/lengths", lambda v: v[:, :2])),
    Case("offsets_do_not_start_at_zero", 65, r"train\.h5: .*/sparse/offsets\[0\] is 1, expected 0|/sparse/offsets\[40\]", prepare=turned("sparse/offsets", shifted_offsets)),
    Case("offsets_decrease", 65, r"train\.h5: /sparse/offsets\[8\] is 0 after \d+, expected not to decrease", prepare=element("sparse/offsets", 8, 0)),
    Case("offsets_beyond_values", 65, r"train\.h5: /sparse/offsets\[8\] is 1099511627776 after", prepare=element("sparse/offsets", 8, 1 << 40)),
    Case("offsets_negative", 65, r"train\.h5: /sparse/offsets\[8\] is -1", prepare=element("sparse/offsets", 8, -1)),
    Case("offsets_disagree_with_values", 65, r"train\.h5: the last of /sparse/offsets is \d+, but /sparse/values has \d+ entries", prepare=edit(extended)),
    Case("lengths_disagree_with_offsets", 65, r"train\.h5: row 9 of /sparse/lengths adds up to", prepare=element("sparse/lengths", (9, 1), 17)),
    Case("lengths_negative", 65, r"train\.h5: /sparse/lengths\[9, 1\] is -3, expected at least 0", prepare=element("sparse/lengths", (9, 1), -3)),
    Case("lengths_overflow", 65, r"train\.h5: row 9 of /sparse/lengths adds up to", prepare=element("sparse/lengths", 9, 2147483647)),
    Case("dense_nan", 65, r"train\.h5: /dense\[17, 2\] is -?nan, expected a finite number", prepare=element("dense", (17, 2), np.nan)),
    Case("dense_infinite", 65, r"train\.h5: /dense\[5, 0\] is inf", prepare=element("dense", (5, 0), np.inf)),
    Case("label_too_large", 65, r"train\.h5: /labels\[3, 0\]|/labels\[3\] is 1\.5", prepare=element("labels", 3, 1.5)),
    Case("label_negative", 65, r"train\.h5: /labels\[20", prepare=element("labels", 20, -1)),
    Case("label_nan", 65, r"train\.h5: /labels\[0", prepare=element("labels", 0, np.nan)),
    Case("weight_nan", 65, r"train\.h5: /sparse/weights holds -?nan", "-tables_is_weighted", weighted(10, np.nan)),
    Case("label_too_large_is_allowed", 0, "", "-data_check warning", element("labels", 3, 1.5)),
    Case("dense_nan_is_allowed", 65, r"the loss of step \d is -?nan: its batch has 1 number not finite or out of range, which -data_check warning let pass",
         "-data_check warning", prepare=element("dense", (17, 2), np.nan)),
    Case("dense_nan_is_not_looked_for", 78, r"the loss of step \d is -?nan: lower .*; or the data holds such numbers, which -data_check none lets pass",
         "-data_check none", prepare=element("dense", (17, 2), np.nan)),
    Case("evaluation_with_a_bad_label_warns", 0, "", "-data_check warning -data_eval bad.h5", evaluation_with_a_bad_label,
         lambda folder, result: check("eval: 1 number of the dataset: NaN" in result.text, result.text[-2000:])),
    Case("prediction_with_a_bad_number", 65, r"the prediction of sample 17 is -?nan: its batch has 1 number not finite",
         "-task predict -data_eval train.h5 -init_from out/final.h5 -data_check warning", element("dense", (17, 2), np.nan), without=("-checkpoint_final",)),
    Case("prediction_with_a_number_not_looked_for", 78, r"the prediction of sample 17 is -?nan: .*final\.h5 holds weights .*; or the data holds such numbers",
         "-task predict -data_eval train.h5 -init_from out/final.h5 -data_check none", element("dense", (17, 2), np.nan), without=("-checkpoint_final",)),
    Case("evaluation_has_other_dense", 65, r"eval\.h5: /dense has 5 columns.*has 3", "-data_eval eval.h5", evaluation(num_dense=5)),
    Case("evaluation_lacks_a_feature", 65, r"eval\.h5: /sparse has no feature .item.", "-data_eval eval.h5", evaluation(features={"user": 50, "tag": 20})),
    Case("evaluation_has_more_ids", 65, r"eval\.h5: feature .item. of sample \d+ has id 3\d, expected 0 to 29", "-data_eval eval.h5 -bounds_check_mode fatal",
         evaluation(features={"user": 50, "item": 40, "tag": 20})),
    Case("evaluation_declares_more_ids", 0, "", "-data_eval eval.h5 -bounds_check_mode fatal", evaluation_declares_more),
    Case("sample_weight_negative", 65, r"train\.h5: /weights\[17, 0\] is -2, expected a finite number that is not negative", prepare=sample_weights(-2)),
    Case("sample_weight_nan", 65, r"train\.h5: /weights\[17, 0\] is -?nan", prepare=sample_weights(np.nan)),
    Case("sample_weight_infinite", 65, r"train\.h5: /weights\[3, 0\] is inf", "-data_shuffle -steps 10", prepare=sample_weights(np.inf, 3)),
    Case("sample_weight_negative_is_counted", 0, "", "-data_check warning", prepare=sample_weights(-2)),
    Case("sample_weight_unused", 0, "", "-data_weights false", prepare=sample_weights(-2)),
    Case("sample_weights_too_few", 65, r"train\.h5: /weights is float32 \[39\], expected 40 rows", prepare=edit(lambda h: h.__setitem__("weights", np.ones(39, np.float32)))),
    Case("sample_weights_are_integers", 65, r"train\.h5: /weights is int64 \[40\], expected float32", prepare=edit(lambda h: h.__setitem__("weights", np.ones(40, np.int64)))),
    Case("second_has_sample_weights", 65, r"second\.h5 has a /weights, but .*train\.h5 has none", BOTH, second(sample_weights=1)),
    Case("two_files", 0, "", BOTH, second()),
    Case("pattern", 0, "", "-data_train '[ts][re]*[nd].h5' -data_eval second.*", second()),
    Case("pattern_without_a_match", 66, r"day_\*\.h5: no file matches this pattern", "-data_train 'day_*.h5'"),
    Case("second_file_missing", 66, r"second\.h5: cannot be opened: No such file", BOTH),
    Case("empty_name_in_list", 64, r"-data_train .*entry 2", "-data_train train.h5,,second.h5", second()),
    Case("second_has_other_dense", 65, r"second\.h5: /dense has 5 columns, expected 3, as .*train\.h5 has", BOTH, second(num_dense=5)),
    Case("second_has_no_dense", 65, r"second\.h5 has no /dense, but .*train\.h5 has one", BOTH, second(num_dense=0)),
    Case("second_has_no_labels", 65, r"second\.h5 has no /labels, but .*train\.h5 has one", BOTH, second(lambda h: h.__delitem__("labels"))),
    Case("second_has_weights", 65, r"second\.h5 has a /sparse/weights, but .*train\.h5 has none", BOTH, second(weighted=True)),
    Case("second_has_fewer_features", 65, r"second\.h5: /sparse has 2 features, expected 3, as .*train\.h5 has", BOTH, second(features={"user": 50, "item": 30})),
    Case("second_has_other_order", 65, r'second\.h5: feature 0 of /sparse is "item", expected "user", as in .*train\.h5', BOTH,
         second(features={"item": 30, "user": 50, "tag": 20})),
    Case("second_has_more_ids", 65, r"second\.h5: feature .item. of sample \d+ has id 3\d, expected 0 to 29", "-data_eval train.h5,second.h5 -bounds_check_mode fatal",
         second(features={"user": 50, "item": 40, "tag": 20})),
    Case("dense_nan_in_second", 65, r"second\.h5: /dense\[2, 1\] is -?nan", BOTH + " -steps 10", second(lambda h: h["dense"].__setitem__((2, 1), np.nan))),
    Case("nan_weight_in_second", 65, r"second\.h5: /sparse/weights holds -?nan in sample 17, expected finite numbers",
         BOTH + " -steps 10 -data_shuffle -tables_is_weighted", weighted_in_second(71, np.nan)),
    Case("id_in_second", 65, r'second\.h5: feature "\w+" of sample 3\d has id 77', BOTH + " -steps 10 -bounds_check_mode fatal",
         second(lambda h: h["sparse/values"].__setitem__(-1, 77))),
    Case("heap_without_objects", 65, r"train\.h5.*attribute format cannot be read", prepare=heap(16, 40)),
    Case("heap_without_version", 65, r"train\.h5.*attribute format cannot be read", prepare=heap(4, 40)),
    Case("heap_object_of_no_size", 65, r"train\.h5.*format", prepare=heap(16, 16), ranks=3),
    Case("heap_object_too_large", 65, r"train\.h5.*attribute format cannot be read", prepare=heap(24, 7, 255), ranks=1),
    Case("chunk_behind_the_end", 65, r"train\.h5 is damaged: \d+ bytes of /labels are said to lie at \d+ of its \d+ bytes", prepare=chunk_elsewhere("labels")),
    Case("chunk_far_behind_the_end", 65, r"train\.h5.*/dense", prepare=chunk_elsewhere("dense", 1 << 62), ranks=3),
    Case("old_file_format", 0, "", prepare=lambda folder: rewrite(folder, libver="earliest")),
    Case("compressed", 0, "", prepare=lambda folder: rewrite(folder, libver="latest", compression="gzip", shuffle=True, fletcher32=True)),
]


def rewrite(folder, libver, **filters):
    """Write train.h5 again with another storage layout."""
    path = os.path.join(folder, "train.h5")
    with h5py.File(path) as old, h5py.File(path + ".new", "w", libver=libver) as new:
        new.attrs.update(old.attrs)
        new.create_group("sparse").attrs.update(old["sparse"].attrs)
        for name in ("dense", "labels", "sparse/lengths", "sparse/offsets", "sparse/values"):
            new.create_dataset(name, data=old[name][()], chunks=True, **filters)
    os.rename(path + ".new", path)

