# SPDX-License-Identifier: BSD-3-Clause
"""Raw ids of 64 bits: a run that maps them equals, bit for bit, a run with the rows to which numpy
maps them."""
import os

import h5py
import numpy as np

from trsrun import check, check_same_tensors, losses, run, same_bits, write_dataset

ROWS = {"user": 37, "item": 64, "tag": 5}
TABLES = "-tables_embedding_dim 4 -tables_min_partition 2 -dense_arch 8,4 -over_arch 8,1"
PLANS = [(1, "table_wise"), (2, "row_wise"), (2, "data_parallel"), (3, "column_wise"), (4, "table_wise")]
MASK = (1 << 64) - 1


def rotate(x, bits):
    return (x << bits | x >> (64 - bits)) & MASK


def mix(x):
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ x >> 33


def murmur(key):
    """murmur_hash3_2x64(key, 0, 0), with integers of any size."""
    h = [0, 0]
    k = rotate(key * 0x87C37B91114253D5 & MASK, 31) * 0x4CF5AD432745937F & MASK
    h[0] = (rotate(h[0] ^ k, 27) + h[1]) * 5 + 0x52DCE729 & MASK
    h[1] = (rotate(h[1], 31) + h[0]) * 5 + 0x38495AB5 & MASK
    h = [half ^ 16 for half in h]
    h[0] = h[0] + h[1] & MASK
    h[1] = h[1] + h[0] & MASK
    h = [mix(half) for half in h]
    h[0] = h[0] + h[1] & MASK
    return h[0] ^ (h[1] + h[0] & MASK)


def rows_of(ids, table_rows, kind):
    if kind == "modulo":
        return np.array([int(key) % rows for key, rows in zip(ids, table_rows)])
    return np.array([murmur(int(key) & MASK) % rows for key, rows in zip(ids, table_rows)])


def make(folder, dtype, kind):
    """Write raw.h5 with ids of the whole range, without bounds, and mapped.h5 with their rows.
    Samples and all other data are equal."""
    paths = [write_dataset(os.path.join(folder, name), 120, features=ROWS) for name in ("raw.h5", "mapped.h5")]
    with h5py.File(paths[0], "r+") as raw, h5py.File(paths[1], "r+") as mapped:
        n, limits = len(raw["sparse/values"]), np.iinfo(dtype)
        ids = np.random.default_rng(3).integers(limits.min, limits.max, n, dtype, endpoint=True)
        ids[:5] = np.array([0, 1, limits.min, limits.max, limits.max - 1], dtype)
        ids[5] = np.array(-1).astype(dtype)
        table_rows = [rows for sample in raw["sparse/lengths"][()] for rows, k in zip(ROWS.values(), sample) for _ in range(k)]
        del raw["sparse/values"]
        raw["sparse/values"] = ids
        raw["sparse"].attrs["num_embeddings"] = np.zeros(len(ROWS), np.int64)
        mapped["sparse/values"][...] = rows_of(ids, table_rows, kind)


def evaluated_as(binary, folder, dtypes):
    """Predictions of raw.final.h5 for raw.h5, whose ids are declared with each of these types."""
    for dtype in dtypes:
        with h5py.File(os.path.join(folder, "raw.h5"), "r+") as h:
            ids = h["sparse/values"][()]
            del h["sparse/values"]
            h["sparse/values"] = ids.view(dtype)
        run(binary, 1, "-task eval -init_from raw.final.h5 -data_eval raw.h5 -batch_size 12 -output evaluated.h5 -existing_outputs replace", folder)
        with h5py.File(os.path.join(folder, "evaluated.h5")) as h:
            yield h["predictions"][()]


def test_id_maps(binary, folder):
    """modulo and hash, int32, int64 and uint64, on any number of ranks."""
    check([murmur(key & MASK) % 1000 for key in (0, 1, 2, 10**15, -5, 2**62)] == [8, 125, 258, 816, 169, 297], "murmur() is not FBGEMM's")
    sizes = " ".join(f"-table_{name}_num_embeddings {rows}" for name, rows in ROWS.items())
    for number, (kind, dtype) in enumerate((("modulo", np.int64), ("hash", np.int64), ("modulo", np.uint64), ("hash", np.uint64), ("modulo", np.int32))):
        make(folder, dtype, kind)
        ranks, plan = PLANS[number]
        options = f"-batch_size {12 // ranks} -epochs 1 -seed 5 {TABLES} -tables_sharding_types {plan} -bounds_check_mode fatal -reproducible"
        for name, more in (("raw", f"-tables_id_map {kind} {sizes}"), ("mapped", "")):
            run(binary, ranks, f"-data_train {name}.h5 {options} {more} -output {name}.run.h5 -checkpoint_final {name}.final.h5 -existing_outputs replace", folder)
        what = f"{kind} of {np.dtype(dtype)} on {ranks} ranks"
        check(same_bits(*(losses(os.path.join(folder, f"{name}.run.h5")) for name in ("raw", "mapped"))), f"{what}: other losses")
        check_same_tensors(*(os.path.join(folder, f"{name}.final.h5") for name in ("raw", "mapped")), what)
        if dtype == np.uint64:  # a model stores the type of its ids
            check(same_bits(*evaluated_as(binary, folder, (np.uint64, np.int64))), f"{what}: other predictions for the same bits as int64")


def test_id_maps_refused(binary, folder):
    """Ids without a bound require a table size. Without a map, ids beyond the table are reported.
    The files of a dataset must have the same id type."""
    make(folder, np.int64, "hash")
    model = f"-batch_size 12 -epochs 1 {TABLES}"
    text = run(binary, 2, f"-data_train raw.h5 {model} -tables_id_map hash", folder, status=64).text
    check("num_embeddings" in text and "has no size" in text, text[:600])
    text = run(binary, 1, f"-data_train raw.h5 {model} -tables_num_embeddings 50 -bounds_check_mode fatal", folder, status=65).text
    check("has id" in text and "expected 0 to 49" in text, text[:600])
    os.rename(os.path.join(folder, "raw.h5"), os.path.join(folder, "signed.h5"))
    make(folder, np.uint64, "hash")
    text = run(binary, 2, f"-data_train signed.h5,raw.h5 {model} -tables_num_embeddings 50 -tables_id_map hash", folder, status=65).text
    check("raw.h5: /sparse/values is uint64, expected a signed type, as in " in text, text[:600])


def test_many_bad_ids(binary, folder):
    """If more than 1 % of a batch's ids became 0, each progress line gives their number. Otherwise
    none does."""
    path = write_dataset(os.path.join(folder, "train.h5"), 240, features=ROWS)
    options = f"-data_train train.h5 -batch_size 60 -epochs 1 {TABLES} -report_interval 0"
    for part, wanted in ((0.002, False), (0.5, True)):
        with h5py.File(path, "r+") as h:
            values = h["sparse/values"][()]
            values[:round(part * len(values))] = 10**6
            h["sparse/values"][...] = values
        text = run(binary, 2, options, folder).text
        lines = [line for line in text.splitlines() if line.startswith("step ")]
        check(lines and all(("% of ids outside of their tables" in line) == wanted for line in lines), f"{part}: {lines}")
