# SPDX-License-Identifier: BSD-3-Clause
"""The mapping of the training data is carried unchanged into checkpoints and results, by any number
of ranks, and changes no other bits."""
import json
import os
import shutil

import h5py

from law_plans import MODEL
from trsrun import attribute, check, check_same_tensors, run, write_dataset

WORDS = [f"Wörter {n} \"{n}\"" for n in range(9000)]  # a text of more than 64 KiB, which old HDF5 files cannot hold in a plain attribute
DENSE = [{"name": name, "column": name} for name in ("age", "price", "hour")]
SPARSE = [{"name": "user", "column": "u", "kind": "integer", "rows": 50}, {"name": "item", "kind": "text", "rows": 30, "modulo": True},
          {"name": "tag", "kind": "text", "vocabulary": WORDS, "unknown": 0}]


def mapping(**more):
    return json.dumps({"format": "trshard-mapping", "version": 1, "dense": DENSE, "sparse": SPARSE, **more}, ensure_ascii=False)


def make(path, text, samples=48, **more):
    write_dataset(path, samples, **more)
    if text is not None:
        with h5py.File(path, "r+", libver=more.get("libver", "latest")) as h:
            h.attrs["mapping"] = text


def check_carries(folder, names, text):
    for name in names:
        found = attribute(os.path.join(folder, name), "mapping")
        found = found.decode() if isinstance(found, bytes) else found
        check(found == text, f"{name} has another mapping: {str(found)[:80]}... of {len(found)} characters, expected {len(text)}")


def check_carries_none(path):
    with h5py.File(path) as h:
        check("mapping" not in h.attrs, f"{path} has a mapping, and its data has none")


def train(binary, folder, ranks, name, options):
    run(binary, ranks, f"-batch_size {12 // ranks} -reproducible -output {name}.run.h5 -checkpoint_final {name}.h5 {MODEL} {options}", folder)


def test_mapping_carried(binary, folder):
    """Trainings on 1 to 3 ranks, a resume with other ranks, also with data that has no mapping,
    evaluations and predictions write the text of the data byte for byte. Weights have the bits of a
    training without a mapping."""
    text = mapping(converter="by hand")
    check(len(text) > 1 << 16, "the text is too short to test long attributes")
    make(os.path.join(folder, "train.h5"), text)
    make(os.path.join(folder, "old.h5"), text, libver="earliest", seed=8)
    make(os.path.join(folder, "bare.h5"), None)
    train(binary, folder, 1, "bare_1", "-data_train bare.h5 -steps 6")
    check_carries_none(os.path.join(folder, "bare_1.h5"))
    check_carries_none(os.path.join(folder, "bare_1.run.h5"))
    for ranks in (1, 2, 3):
        train(binary, folder, ranks, f"whole_{ranks}", "-data_train train.h5 -data_eval old.h5 -steps 6 -checkpoint_dir ck -checkpoint_every 3")
        check_carries(folder, [f"whole_{ranks}.h5", f"whole_{ranks}.run.h5", "ck/step-000000003.h5", "ck/step-000000006.h5"], text)
        check_same_tensors(os.path.join(folder, "bare_1.h5"), os.path.join(folder, f"whole_{ranks}.h5"), f"{ranks} ranks with a mapping")
        for data in ("train.h5", "bare.h5"):
            shutil.rmtree(os.path.join(folder, "half"), ignore_errors=True)
            os.mkdir(os.path.join(folder, "half"))
            shutil.copy(os.path.join(folder, "ck", "step-000000003.h5"), os.path.join(folder, "half"))
            name = f"resumed_{ranks}_{data[:-3]}"
            train(binary, folder, 4 - ranks, name, f"-data_train {data} -steps 6 -checkpoint_dir half -resume")
            check_carries(folder, [f"{name}.h5", f"{name}.run.h5", "half/step-000000006.h5"], text)
        shutil.rmtree(os.path.join(folder, "ck"))


def test_mapping_of_serving(binary, folder):
    """Evaluations, predictions and quantised checkpoints carry the checkpoint's mapping. Names of
    columns, bounds of ids and features that only one file has may differ."""
    text = mapping()
    other = mapping(sparse=[dict(SPARSE[2], column="t"), dict(SPARSE[0], column="c1", rows=40), dict(SPARSE[1], separator=";", bag=True), {"name": "new"}], nulls=["NA"])
    make(os.path.join(folder, "train.h5"), text)
    make(os.path.join(folder, "eval.h5"), other, features={"tag": 20, "user": 50, "item": 30, "new": 9})
    train(binary, folder, 2, "model", "-data_train train.h5 -steps 4")
    for task, options, names in (("eval", "", []), ("predict", "-quant_checkpoint q.h5 -tables_data_type int8 -existing_outputs replace", ["q.h5"])):
        for ranks in (1, 3):
            run(binary, ranks, f"-task {task} -data_eval eval.h5 -init_from model.h5 -batch_size 8 -output {task}_{ranks}.h5 {options}", folder)
            check_carries(folder, [f"{task}_{ranks}.h5", *names], text)
    result = run(binary, 1, "-task predict -data_eval eval.h5 -init_from q.h5 -batch_size 8 -output again.h5", folder)
    check("warning" not in result.text, f"a mapping that fits is warned of: {result.text}")
    check_carries(folder, ["again.h5"], text)


def test_mapping_start(binary, folder):
    """A training that takes the weights of a model with another mapping is warned, and carries the
    mapping of its own data."""
    make(os.path.join(folder, "old.h5"), mapping())
    text = mapping(dense=[dict(entry, log1p=True) for entry in DENSE])
    make(os.path.join(folder, "new.h5"), text)
    train(binary, folder, 1, "old_model", "-data_train old.h5 -steps 2")
    result = run(binary, 2, f"-batch_size 6 -data_train new.h5 -init_from old_model.h5 -steps 2 -checkpoint_final new_model.h5 -output run.h5 {MODEL}", folder)
    line = [line for line in result.text.splitlines() if line.startswith("warning") and "converted" in line]
    check(len(line) == 1 and "old_model.h5 and " in line[0] and "dense feature 0: log1p is not given and true" in line[0], f"no warning: {result.text}")
    check_carries(folder, ["new_model.h5", "run.h5"], text)
