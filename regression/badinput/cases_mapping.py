# SPDX-License-Identifier: BSD-3-Clause
"""Mappings that are damaged, or that differ between files of one run."""
import json
import os
import shutil

import h5py

import trsrun
from badinput import Case
from prepare import attribute_of, edit_checkpoint
from trsrun import check

DENSE = [{"name": name} for name in ("age", "price", "hour")]
SPARSE = [{"name": "user", "kind": "integer", "rows": 50}, {"name": "item", "kind": "text", "rows": 30, "modulo": True}, {"name": "tag", "vocabulary": ["a", "b", "c"]}]
GOOD = {"format": "trshard-mapping", "version": 1, "dense": DENSE, "sparse": SPARSE, "time": {"kind": "integer", "unit": "s"}}
EVAL = "-data_eval eval.h5"
TASK = "-task eval -data_eval train.h5 -init_from model.h5"


def text_of(value):
    return value if isinstance(value, (str, bytes)) else json.dumps(value)


def train(value, **others):
    """A prepare function: train.h5 has this mapping (None: no attribute), and other datasets, by
    name without .h5, have theirs."""
    def prepare(folder):
        for name, mapping in {"train": value, **others}.items():
            path = os.path.join(folder, f"{name}.h5")
            if name != "train":
                trsrun.write_dataset(path)
            if mapping is not None:
                with h5py.File(path, "r+") as h:
                    h.attrs["mapping"] = text_of(mapping)
    return prepare


def model(mapping, data):
    """A prepare function: train.h5 has the mapping `data`, and model.h5 and ckpt/ hold a checkpoint
    with the mapping `mapping`."""
    def prepare(folder):
        train(data)(folder)
        path = shutil.copyfile(os.path.join(folder, "out", "final.h5"), os.path.join(folder, "model.h5"))
        edit_checkpoint(path, attribute_of("/", "mapping", text_of(mapping)))
        os.mkdir(os.path.join(folder, "ckpt"))
        shutil.copy(path, os.path.join(folder, "ckpt", "step-000000003.h5"))
    return prepare


def changed(key, at, **values):
    """The good mapping with other values of one entry."""
    entries = [dict(entry, **values) if i == at else entry for i, entry in enumerate(GOOD[key])]
    return dict(GOOD, **{key: entries})


def sealed(folder):
    """The mapping of a checkpoint is damaged: its checksum differs."""
    train(dict(GOOD, converter="x" * 5000))(folder)
    path = os.path.join(folder, "model.h5")
    shutil.copyfile(os.path.join(folder, "out", "final.h5"), path)

    def change(h):
        h.attrs["mapping"] = json.dumps(dict(GOOD, converter="x" * 5000))
        h["checksums"].attrs["mapping"] = 1
    edit_checkpoint(path, change, sums=True)


def warned(folder, result):
    check("warning" in result.text and "converted in different ways" in result.text, result.text)


def no_escapes(folder, result):
    check(not any(letter in result.text for letter in "\x1b\x7f\u009b\u202e"), f"a raw escape: {result.text!r}")


DIFFERENT = "were converted in different ways.*"
CASES = [
    Case("good", 0, "", EVAL, train(GOOD, eval=GOOD)),
    Case("not_json", 65, r"train\.h5: the attribute mapping is not JSON: .*line 1", prepare=train('{"format": ')),
    Case("not_json_three_ranks", 65, r"train\.h5: the attribute mapping is not JSON", prepare=train("{]"), ranks=3),
    Case("not_utf8", 65, r"train\.h5: the attribute mapping is not JSON", prepare=train(b'{"format": "\xff"}')),
    Case("nested_too_deep", 65, r"train\.h5: the attribute mapping is not JSON", prepare=train("[" * 100000)),
    Case("empty", 65, r"train\.h5: the attribute mapping is not JSON", prepare=train("")),
    Case("a_list", 65, r"train\.h5: the attribute mapping has no format", prepare=train([GOOD])),
    Case("another_format", 65, r"train\.h5: the attribute mapping has no format", prepare=train(dict(GOOD, format="plan"))),
    Case("newer_version", 65, r"train\.h5: the mapping has version 2, this program reads version 1", prepare=train(dict(GOOD, version=2))),
    Case("no_version", 65, r"train\.h5: the mapping has no version", prepare=train({"format": "trshard-mapping"})),
    Case("sparse_is_no_list", 65, r'train\.h5: the mapping\'s "sparse" is not a list', prepare=train(dict(GOOD, sparse={}))),
    Case("entry_without_a_name", 65, r'train\.h5: entry 1 of the mapping\'s "dense" has no name', prepare=train(dict(GOOD, dense=[DENSE[0], {"name": 3}, DENSE[2]]))),
    Case("feature_twice", 65, r'train\.h5: the mapping\'s "sparse" has "user" twice', prepare=train(dict(GOOD, sparse=SPARSE + SPARSE[:1]))),
    Case("name_with_escapes", 65, rf"train\.h5 and .*eval\.h5 {DIFFERENT}dense feature 0: name", EVAL,
         train(GOOD, eval=changed("dense", 0, name="\x1b[2J\x7f\u009b2J\u202e")), no_escapes),
    Case("other_dense_columns", 65, r"train\.h5: the mapping has 2 dense features, /dense has 3 columns", prepare=train(dict(GOOD, dense=DENSE[:2]))),
    Case("a_number", 65, r"train\.h5: attribute mapping of / is not a string", prepare=lambda folder: h5py.File(os.path.join(folder, "train.h5"), "r+").attrs.__setitem__("mapping", 3)),
    Case("eval_not_json", 65, r"eval\.h5: the attribute mapping is not JSON", EVAL, train(GOOD, eval="{")),
    Case("eval_has_other_order", 65, rf'train\.h5 and .*eval\.h5 {DIFFERENT}dense feature 0: name is "age" and "price"', EVAL,
         train(GOOD, eval=dict(GOOD, dense=[DENSE[1], DENSE[0], DENSE[2]]))),
    Case("eval_has_log1p", 65, rf"train\.h5 and .*eval\.h5 {DIFFERENT}dense feature 2: log1p is not given and true", EVAL, train(GOOD, eval=changed("dense", 2, log1p=True)), ranks=3),
    Case("eval_has_other_missing", 65, rf"{DIFFERENT}dense feature 1: missing is not given and -1", EVAL, train(GOOD, eval=changed("dense", 1, missing=-1.0))),
    Case("eval_is_hashed_to_other_rows", 65, rf'{DIFFERENT}feature "item": rows is 30 and 31', EVAL, train(GOOD, eval=changed("sparse", 1, rows=31))),
    Case("eval_has_numbers", 65, rf'{DIFFERENT}feature "item": kind is "text" and "integer"', EVAL, train(GOOD, eval=changed("sparse", 1, kind="integer"))),
    Case("eval_has_other_words", 65, rf'{DIFFERENT}feature "tag": word 1 of the vocabulary is "b" and "d".*--vocabulary-from', EVAL,
         train(GOOD, eval=changed("sparse", 2, vocabulary=["a", "d", "c"]))),
    Case("eval_has_more_words", 65, rf'{DIFFERENT}feature "tag": word 3 of the vocabulary is not given and "d"', EVAL,
         train(GOOD, eval=changed("sparse", 2, vocabulary=["a", "b", "c", "d"]))),
    Case("eval_has_no_vocabulary", 65, rf'{DIFFERENT}feature "tag": vocabulary is \["a","b","c"\] and not given', EVAL, train(GOOD, eval=dict(GOOD, sparse=SPARSE[:2] + [{"name": "tag"}]))),
    Case("eval_has_other_times", 65, rf'{DIFFERENT}time: unit is "s" and "ms"', EVAL, train(GOOD, eval=dict(GOOD, time={"kind": "integer", "unit": "ms"}))),
    Case("eval_has_more_rows", 0, "", EVAL, train(GOOD, eval=changed("sparse", 0, rows=70))),
    Case("eval_has_no_mapping", 0, "", EVAL, train(GOOD, eval=None)),
    Case("other_dense_is_not_chosen", 0, "", f"{EVAL} -data_dense 0,2", train(GOOD, eval=changed("dense", 1, log1p=True))),
    Case("other_dense_is_chosen", 65, rf"{DIFFERENT}dense feature 1: log1p", f"{EVAL} -data_dense 1", train(GOOD, eval=changed("dense", 1, log1p=True))),
    Case("unused_feature_differs", 0, "", f"{EVAL} -tables user,tag", train(GOOD, eval=changed("sparse", 1, rows=31))),
    Case("second_file_differs", 65, rf"train\.h5 and .*second\.h5 {DIFFERENT}dense feature 0: log1p", "-data_train train.h5,second.h5",
         train(GOOD, second=changed("dense", 0, log1p=True))),
    Case("second_file_damaged", 65, r"second\.h5: the attribute mapping is not JSON", "-data_train train.h5,second.h5", train(GOOD, second="{")),
    Case("only_second_file", 0, "", "-data_train train.h5,second.h5", train(None, second=GOOD)),
    Case("model_differs", 65, rf'model\.h5 and .*train\.h5 {DIFFERENT}feature "item": rows is 31 and 30', TASK, model(changed("sparse", 1, rows=31), GOOD), without=("-data_train",)),
    Case("model_differs_in_predict", 65, rf"model\.h5 and .*train\.h5 {DIFFERENT}dense feature 0: log1p is true and not given", TASK.replace("-task eval", "-task predict"),
         model(changed("dense", 0, log1p=True), GOOD), ranks=3),
    Case("model_not_json", 65, r"model\.h5: the attribute mapping is not JSON", TASK, model("{", GOOD)),
    Case("model_of_newer_version", 65, r"model\.h5: the mapping has version 3", TASK, model(dict(GOOD, version=3), None)),
    Case("model_damaged", 65, r"model\.h5 is damaged: the checksum of attribute mapping|model\.h5 is damaged: attribute mapping of / has a checksum", TASK, sealed),
    Case("model_fits", 0, "", TASK, model(GOOD, changed("sparse", 0, rows=60))),
    Case("resume_with_other_data", 65, rf'step-000000003\.h5 and .*train\.h5 {DIFFERENT}feature "tag": word 0', "-checkpoint_dir ckpt -resume -steps 5",
         model(changed("sparse", 2, vocabulary=["x", "b", "c"]), GOOD), ranks=3),
    Case("resume_with_the_same", 0, "", "-checkpoint_dir ckpt -resume -steps 5", model(GOOD, GOOD)),
    Case("start_with_other_data", 0, "", "-init_from model.h5", model(changed("sparse", 1, rows=31), GOOD), warned),
]
