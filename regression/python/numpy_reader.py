#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Python package's reader against the arrays from which a dataset was made: every batch and the
smaller last one, steps, epochs, errors. By mpirun."""
import json
import os
import pathlib
import sys

import h5py
import numpy as np

import trshard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import trsdata

RANK, SIZE = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)), int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
# the last of 37 samples leaves the other ranks without a sample
N, BATCH, FEATURES, ROWS = 37, 3, ["a", "b", "c"], [40, 30, 60]
FOLDER = os.path.dirname(os.path.abspath(sys.argv[1]))
PATH, PLAIN, SIGNED, UNSIGNED = (os.path.join(FOLDER, f"reader_{name}_n{SIZE}.h5") for name in ("full", "plain", "signed", "unsigned"))
MAPPED = [os.path.join(FOLDER, f"reader_mapped_{i}_n{SIZE}.h5") for i in range(3)]
MAPPINGS = [json.dumps({"format": "trshard-mapping", "version": 1, "sparse": [{"name": "a"}, {"name": "b"} | b, {"name": "c"} | c]})
            for b, c in (({}, {}), ({}, {"missing": 3}), ({"missing": 3}, {}))]
RANDOM = np.random.default_rng(3)
LENGTHS = RANDOM.integers(0, 4, (N, 3), dtype=np.int32)
IDS = [[RANDOM.integers(0, ROWS[f], LENGTHS[i, f]) for f in range(3)] for i in range(N)]
WEIGHTS = [[RANDOM.random(LENGTHS[i, f], dtype=np.float32) for f in range(3)] for i in range(N)]
DENSE, LABELS = RANDOM.random((N, 2), dtype=np.float32), RANDOM.integers(0, 2, (N, 2)).astype(np.float32)
SAMPLE_WEIGHTS = RANDOM.random(N, dtype=np.float32)
TABLES = [trshard.EmbeddingBagConfig("t0", 60, 4, ["c"], weighted=True), trshard.EmbeddingBagConfig("t1", 40, 4, ["a"])]
PLAIN_TABLES = [table._replace(weighted=False) for table in TABLES]
FACTOR = 2**58 + 1  # multiplies ids for an id_map; some products are negative
KEYS = [2, 0]  # file order of the tables' features


def write():
    flat = [np.concatenate([part for sample in of for part in sample]) for of in (IDS, WEIGHTS)]
    with trsdata.DatasetWriter(PATH, FEATURES, ROWS, 2, weighted=True, sample_weighted=True, labels=["click", "buy"]) as out:
        out.append(DENSE, LABELS, LENGTHS, flat[0], flat[1], SAMPLE_WEIGHTS)
    with trsdata.DatasetWriter(PLAIN, FEATURES, ROWS, 0) as out:
        out.append(None, LABELS[:, 0], LENGTHS, flat[0])
    for path, mapping in zip(MAPPED, MAPPINGS):
        with trsdata.DatasetWriter(path, FEATURES, ROWS, 0) as out:
            out.attribute("mapping", mapping)
            out.append(None, LABELS[:, 0], LENGTHS, flat[0])
    for path, dtype in ((SIGNED, np.int64), (UNSIGNED, np.uint64)):
        with trsdata.DatasetWriter(path, FEATURES, [0, 0, 0], 0, id_dtype=dtype) as out:
            out.append(None, LABELS[:, 0], LENGTHS, (flat[0] * FACTOR).view(dtype))


def mine_of(step):
    """(this rank's samples, all ranks' samples) of a step."""
    begin = step * SIZE * BATCH
    everyone = min(SIZE * BATCH, N - begin)
    parts = [everyone // SIZE + (rank < everyone % SIZE) for rank in range(SIZE)]
    first = begin + sum(parts[:RANK])
    return np.arange(first, first + parts[RANK]), everyone


def flat(of, mine, dtype):
    return np.concatenate([np.zeros(0, dtype)] + [of[i][key] for key in KEYS for i in mine])


def check(samples, step, epoch, passes, full):
    mine, everyone = mine_of(step % passes)
    assert (samples.step, samples.epoch, samples.global_batch) == (step, epoch, everyone), samples[4:]
    lengths, values, weights = samples.ids
    np.testing.assert_array_equal(lengths, LENGTHS[mine][:, KEYS].T)
    np.testing.assert_array_equal(values, flat(IDS, mine, np.int64))
    np.testing.assert_array_equal(samples.labels, LABELS[mine] if full else LABELS[mine, :1])
    if full:
        np.testing.assert_array_equal(weights, flat(WEIGHTS, mine, np.float32))
        np.testing.assert_array_equal(samples.dense, DENSE[mine])
        np.testing.assert_array_equal(samples.weights, SAMPLE_WEIGHTS[mine])
    else:
        assert weights is None and samples.dense is None and samples.weights is None, samples
    for array in (lengths, values, samples.labels):
        # the library owns the memory
        assert not array.size or (not array.flags.writeable and not array.flags.owndata)


def check_passes(full, start, epochs):
    tables = TABLES if full else PLAIN_TABLES
    passes = -(-N // (SIZE * BATCH))
    step = start
    with trshard.EmbeddingBagCollection(tables, BATCH, "-device cpu") as ebc:
        with trshard.Reader(ebc, PATH if full else [PLAIN], f"-epochs {epochs}", step=start) as reader:
            for samples in reader:
                check(samples, step, step // passes, passes, full)
                given = ebc.forward(*samples.ids)
                np.testing.assert_array_equal(given, ebc.evaluate(*(None if x is None else x.copy() for x in samples.ids)))
                ebc.backward(given)
                step += 1
            assert next(reader, None) is None
    assert step == epochs * passes, step


def check_rows():
    """Rows by id accept samples with any number of ids."""
    tables = [trshard.EmbeddingConfig("t0", 60, 4, ["c"]), trshard.EmbeddingConfig("t1", 40, 4, ["a"])]
    with trshard.EmbeddingCollection(tables, BATCH, "-device cpu") as ec:
        for step, samples in enumerate(trshard.Reader(ec, PLAIN, "-epochs 1")):
            check(samples, step, 0, N, False)
            assert ec.evaluate(*samples.ids).shape == (len(samples.ids[1]), 4)


def fails(call, error, text):
    try:
        call()
    except error as found:
        assert text in str(found), f"{text!r} is not in: {found}"
        return found
    raise AssertionError(f"no error, expected one with {text!r}")


def check_errors():
    with trshard.EmbeddingBagCollection(TABLES, BATCH, "-device cpu") as ebc:
        assert fails(lambda: trshard.Reader(ebc, "/nowhere.h5"), trshard.Error, "/nowhere.h5").status == 66
        assert fails(lambda: trshard.Reader(ebc, PATH, "-epoch 1"), trshard.Error, "-epoch").status == 64
        for option in (f"-batch_size {BATCH}", "-accumulate_steps 2", "-data_train x.h5", "-data_eval x.h5", "-data_label click"):
            error = fails(lambda: trshard.Reader(ebc, PATH, option), trshard.Error, "not for a reader of a collection")
            assert error.status == 64 and str(error).startswith(option.split()[0]), error
        fails(lambda: trshard.Reader(ebc, []), trshard.Error, "n_paths is 0")
        reader = trshard.Reader(ebc, pathlib.Path(PATH), "-epochs 1")
        next(reader)
    fails(lambda: next(reader), ValueError, "closed")  # it closes with its collection
    reader.close()
    with trshard.EmbeddingBagCollection(PLAIN_TABLES, BATCH, "-device cpu -tables_id_map modulo") as ebc:
        assert fails(lambda: trshard.Reader(ebc, UNSIGNED), trshard.Error, "give its collection -tables_id_unsigned").status == 65


def check_id_map(path, dtype, options):
    """A reader returns the file's ids. The collection maps them to rows."""
    with trshard.EmbeddingBagCollection(PLAIN_TABLES, BATCH, "-device cpu " + options) as ebc:
        for step, (lengths, ids, *_) in enumerate(samples.ids for samples in trshard.Reader(ebc, path, "-epochs 1")):
            np.testing.assert_array_equal(ids, flat(IDS, mine_of(step)[0], np.int64) * FACTOR)
            table_rows = np.repeat([60, 40], lengths.reshape(2, -1).sum(1)).astype(dtype)
            rows, given = (ids.view(dtype) % table_rows).astype(np.int64), ebc.evaluate(lengths, ids)
            assert "modulo" not in options or (given == ebc.evaluate(lengths, rows)).all()


def check_newer_data():
    """If a file declares more rows than the collection's tables, only bounds_check_mode determines
    the effect of an unknown id."""
    tables = [PLAIN_TABLES[0]._replace(num_embeddings=50), PLAIN_TABLES[1]]
    for word, error in (("warning", None), ("ignore", None), ("fatal", 'feature "c" of sample'), (None, 'feature "c" of sample')):
        with trshard.EmbeddingBagCollection(tables, BATCH, "-device cpu" + (f" -bounds_check_mode {word}" if word else "")) as ebc:
            with trshard.Reader(ebc, PLAIN, "-epochs 1") as reader:
                if error:
                    assert fails(lambda reader=reader: list(reader), trshard.Error, error).status == 65
                    continue
                for step, (lengths, ids, *_) in enumerate(samples.ids for samples in reader):
                    given = flat(IDS, mine_of(step)[0], np.int64)
                    of_c = np.repeat([True, False], lengths.reshape(2, -1).sum(1))
                    np.testing.assert_array_equal(ids, np.where(of_c & (given >= 50), 0, given))


def check_mapping():
    """save() carries the mapping of the data that was read, or of the file that was loaded. Data and
    a loaded file with other mappings of a feature of the collection are refused."""
    model = os.path.join(FOLDER, f"reader_mapped_n{SIZE}.model.h5")

    def carried():
        with h5py.File(model) as h:
            found = h.attrs["mapping"]
            return found.decode() if isinstance(found, bytes) else found

    with trshard.EmbeddingBagCollection(PLAIN_TABLES, BATCH, "-device cpu") as ebc:
        trshard.Reader(ebc, MAPPED[0]).close()
        ebc.save(model)
        assert carried() == MAPPINGS[0]
    with trshard.EmbeddingBagCollection(PLAIN_TABLES, BATCH, "-device cpu") as ebc:
        ebc.load(model)
        ebc.save(model)
        assert carried() == MAPPINGS[0]
        error = fails(lambda: trshard.Reader(ebc, MAPPED[1]), trshard.Error, 'feature "c": missing is not given and 3')
        assert error.status == 65 and MAPPED[1] in str(error) and model in str(error), error
        trshard.Reader(ebc, MAPPED[2]).close()  # differs in feature b, which the collection does not have
        ebc.save(model)
        assert carried() == MAPPINGS[2]


if RANK == 0:
    write()
for arguments in [(True, 0, 2), (True, 1, 1), (False, 0, 1)]:
    check_passes(*arguments)  # creating a collection waits for rank 0's files
check_rows()
for word in ("modulo", "hash"):
    check_id_map(SIGNED, np.int64, "-tables_id_map " + word)
check_id_map(UNSIGNED, np.uint64, "-tables_id_map modulo -tables_id_unsigned")
check_newer_data()
check_mapping()
check_errors()
print(f"rank {RANK}: the reader agrees with numpy")
