# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of tables that give rows to ids: damaged directories, and the output of
inspect_file.py and compare_runs.py for intact ones."""
import os
import subprocess
import sys

import h5py
import numpy as np

import law_dynamic
import law_zch
from trsrun import check, run, tensors, thin, thinned, write_dataset

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
    """A damaged tensor of a directory ends the run with 65 and the tensor's path, for each damage
    and each tensor, on one rank and two. A required tensor that is missing is named, too."""
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


def tool(folder, name, *words, status=0):
    result = subprocess.run([sys.executable, os.path.join(TOOLS, name), *words], cwd=folder, capture_output=True, text=True, check=False)
    check(result.returncode == status, f"{name} {' '.join(words)}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def predictions(binary, folder, model, ranks=1):
    run(binary, ranks, f"-task predict -data_eval raw.h5 -init_from {model} -batch_size 8 -output p.h5 -existing_outputs replace", folder)
    with h5py.File(os.path.join(folder, "p.h5")) as h:
        return h["predictions"][()]


def lists_of(folder, ids):
    """The same ids in files of each kind."""
    with open(os.path.join(folder, "ids.txt"), "w", encoding="ascii") as out:
        out.write("".join(f"{i}\n" for i in ids.tolist()))
    np.save(os.path.join(folder, "ids.npy"), ids.view(np.uint64))
    with h5py.File(os.path.join(folder, "ids.h5"), "w") as out:
        out["a/ids"], out["other"] = ids, np.zeros(3)
    files = ["ids.txt", "ids.npy", "ids.h5:a/ids"]
    try:
        import pyarrow
        import pyarrow.parquet
        pyarrow.parquet.write_table(pyarrow.table({"id": ids}), os.path.join(folder, "ids.parquet"))
        files += ["ids.parquet", "ids.parquet:id"]
    except ImportError:
        pass
    return files


@thinned
def test_made_dynamic(binary, folder):
    """A table that --to dynamic has made predicts with the bits of the static, hashed or zch table
    that it was made from, on one rank and two, and trains on with its states."""
    pairs = law_zch.make(folder)
    ids = np.unique(np.concatenate([np.concatenate(of) for of in pairs]))
    files = lists_of(folder, ids)
    for kind, words, sources in thin((("hash", "-embedding_optimizer adam", ["raw.h5", *files]), ("modulo", "-table_t_data_type bf16", files[:1]), ("modulo", "-table_t_id_unsigned true", files[1:2]),
                                      ("zch", "-table_t_zch_policy lru -table_t_zch_buckets 3", [None]), ("zch", "-table_t_zch_interval 4 -table_t_zch_policy distance_lfu", [None])),
                                     (("hash", "-embedding_optimizer adam", ["raw.h5", files[-1]]), ("zch", "-table_t_zch_policy lru -table_t_zch_buckets 3", [None]))):
        law_zch.train(binary, folder, "old", 1, f"-tables t -table_t_features seen,bought -table_t_id_map {kind} -table_t_num_embeddings 300 {law_zch.SHAPE} -steps 20 {words}")
        wanted = predictions(binary, folder, "old.final.h5")
        for source in sources:
            text = tool(folder, "exchange.py", "old.final.h5", "--to", "dynamic", "new.h5", "--force", *(["--ids", f"t={source}"] if source else []))
            for ranks in (1, 2):
                check(np.array_equal(predictions(binary, folder, "new.h5", ranks), wanted), f"{kind} {words} {source}, {ranks} ranks: other predictions")
            found = tensors(os.path.join(folder, "new.h5"))
            held = found["embedding/t/dynamic/ids"][:, 1] > 0
            check(kind == "zch" or np.array_equal(np.sort(found["embedding/t/dynamic/ids"][held, 0]), ids), f"{kind}, {source}: other ids")
            rows = len(np.unique(found["embedding/t/weight"][held], axis=0))
            check(kind == "zch" or f"{held.sum() - rows:,} of {len(ids):,} ids share a row" in text, f"{kind}: {rows} rows of {held.sum()} ids\n{text}")
            optimizer = words if "optimizer" in words else ""
            dtype = words if "data_type" in words else ""
            law_zch.train(binary, folder, "on", 2, law_dynamic.options(4000, f"-steps 2 -init_from new.h5 {optimizer} {dtype}"))
            check(len(tensors(os.path.join(folder, "on.final.h5"))["embedding/t/weight"]) >= held.sum(), f"{kind}: rows are lost")
        if kind == "zch":
            tool(folder, "compare_runs.py", "--exact", "--only", "^(embedding|dense)", "new.h5", "old.final.h5")


def test_made_dynamic_static(binary, folder):
    """A static table with a list of the rows' raw ids: data with these ids has the predictions that the
    data with row numbers had. "rows" for the list keeps the numbers as ids."""
    path = write_dataset(os.path.join(folder, "raw.h5"), 120, features={"seen": 40, "bought": 40})
    law_zch.train(binary, folder, "old", 1, f"-tables t -table_t_features seen,bought -table_t_num_embeddings 50 {law_zch.SHAPE} -steps 5")
    wanted = predictions(binary, folder, "old.final.h5")
    ids = np.random.default_rng(2).integers(INT64.min, INT64.max, 45)
    files = lists_of(folder, ids)
    check("5 of 50 rows have no id" in tool(folder, "exchange.py", "old.final.h5", "--to", "dynamic", "new.h5", "--ids", f"t={files[0]}"), "rows that are left out")
    tool(folder, "exchange.py", "old.final.h5", "--to", "dynamic", "same.h5", "--ids", "t=rows")
    with h5py.File(path, "r+") as h:
        h["sparse"].attrs["num_embeddings"] = np.zeros(2, np.int64)
    check(np.array_equal(predictions(binary, folder, "same.h5"), wanted), "ids that are row numbers: other predictions")
    with h5py.File(path, "r+") as h:
        values = ids[h["sparse/values"][()]]
        del h["sparse/values"]
        h["sparse/values"] = values
    check(np.array_equal(predictions(binary, folder, "new.h5"), wanted), "raw ids: other predictions")


def test_directories_shown(binary, folder):
    """inspect_file.py prints how many ids a table holds. compare_runs.py compares by id if rows differ: runs with other numbers of buckets
    agree, and a run with a smaller cap lacks ids."""
    law_zch.make(folder)
    for name, cap, buckets in (("one", 600, 1), ("three", 600, 3), ("small", 60, 1)):
        law_zch.train(binary, folder, name, 1, law_dynamic.options(cap, f"-steps 8 -reproducible -embedding_learning_rate 0.5 -table_t_dynamic_buckets {buckets}"))
    held = len(law_dynamic.rows_of_ids(os.path.join(folder, "three.final.h5")))
    check(f"table t: dynamic, {held} ids in {held + 3} rows in use, 3 buckets, 8 batches" in tool(folder, "inspect_file.py", "--check", "three.final.h5"), "inspect_file.py")
    text = tool(folder, "compare_runs.py", "--exact", "one.final.h5", "three.final.h5")
    check(f"{held} ids in both, 0 only in the reference, 0 only in FILE; {held + 1} rows, reference {held + 3}" in text and "DIFFERS" not in text, text)
    text = tool(folder, "compare_runs.py", "--only", "embedding", "small.final.h5", "one.final.h5", status=1)
    check(f"{held - 59} only in the reference" in text, text)
    path = train(binary, folder, "zch")
    check("table t: zch, 46 ids in 48 rows, 2 buckets, 8 batches" in tool(folder, "inspect_file.py", path), tool(folder, "inspect_file.py", path))
    edited(path, os.path.join(folder, "bad.h5"), "embedding/t/zch/slot", lambda v: put(v, 0, v[1]))
    check("PROBLEM" in tool(folder, "inspect_file.py", "bad.h5", status=1), "a damaged directory has no problem")
