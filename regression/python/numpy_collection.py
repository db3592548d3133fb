#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Python package against numpy: pooled rows, updates with plain SGD and AdaGrad, files, errors.
mpirun starts it on any number of ranks."""
import ctypes
import os
import pathlib
import sys
import tempfile

import numpy as np

import trshard

TABLES = [trshard.EmbeddingBagConfig("t0", 40, 8, ["a", "b"]), trshard.EmbeddingBagConfig("t1", 30, 4, pooling="mean"),
          trshard.EmbeddingBagConfig("t2", 60, 16, weighted=True)]
FEATURES = [(0, "a"), (0, "b"), (1, "t1"), (2, "t2")]
RANK, SIZE = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)), int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
BATCH, STEPS, RATE = 6, 4, 0.5
FACTORS = (1, 0.25, 0, 2)  # factor of the learning rate in each step


def make_batch(step, rank):
    random = np.random.default_rng([step, rank])
    # ranks have different numbers of samples
    lengths = random.integers(0, 4, (4, BATCH + rank), dtype=np.int32)
    values = np.concatenate([random.integers(0, TABLES[t].num_embeddings, lengths[f].sum()) for f, (t, _) in enumerate(FEATURES)])
    return lengths, values, random.random(values.size, dtype=np.float32)


def rows_of(ebc, table):
    """All rows of a table, read with bags of one id."""
    n, out = TABLES[table].num_embeddings, []
    for begin in range(0, n, BATCH):
        ids = np.arange(begin, min(begin + BATCH, n))
        lengths = np.zeros((4, len(ids)), np.int32)
        f = [t for t, _ in FEATURES].index(table)
        lengths[f] = 1
        out.append(ebc.evaluate(lengths, ids, np.ones(len(ids)))[:, ebc.columns[FEATURES[f][1]]].copy())
    return np.concatenate(out)


def each_bag(lengths, values, weights):
    """(feature, sample, ids, factors) of each bag. The factors multiply the rows in the bag's sum.
    """
    at = 0
    for f, (t, _) in enumerate(FEATURES):
        for sample, n in enumerate(lengths[f]):
            ids, w = values[at:at + n], weights[at:at + n]
            at += n
            yield f, sample, ids, w if TABLES[t].weighted else np.full(n, 1 / n if TABLES[t].pooling == "mean" and n else 1, np.float32)


def check_training(optimizer, sharding, ahead):
    with trshard.EmbeddingBagCollection(
            TABLES, BATCH + SIZE, f"-device cpu -embedding_optimizer {optimizer} -embedding_learning_rate {RATE} -tables_sharding_types {sharding}") as ebc:
        weights = [rows_of(ebc, t).astype(np.float64) for t in range(3)]
        sums = [np.zeros_like(w) for w in weights]
        batches = [[make_batch(step, rank) for rank in range(SIZE)] for step in range(STEPS)]
        if ahead:
            ebc.input_dist(*batches[0][RANK])
        for step in range(STEPS):
            if ahead and step + 1 < STEPS:
                ebc.input_dist(*batches[step + 1][RANK])
            # a model's matrix that has other columns, too
            wide = np.full((BATCH + RANK, ebc.width + 5), 7, np.float32)
            out = wide[:, 3:3 + ebc.width] if step % 2 else None
            pooled = ebc.forward(out=out) if ahead else ebc.forward(*batches[step][RANK], out=out)
            assert out is None or (pooled is out and (wide[:, :3] == 7).all() and (wide[:, -2:] == 7).all())
            expected = np.zeros_like(pooled)
            gradients = [np.zeros_like(w) for w in weights]
            for rank in range(SIZE):
                for f, sample, ids, factors in each_bag(*batches[step][rank]):
                    t, columns = FEATURES[f][0], ebc.columns[FEATURES[f][1]]
                    bag = factors @ weights[t][ids]
                    if rank == RANK:
                        expected[sample, columns] = bag
                    # the loss is half the sum of squares
                    np.add.at(gradients[t], ids, np.outer(factors, bag))
            np.testing.assert_allclose(pooled, expected, rtol=1e-5, atol=1e-6)
            before = wide.tobytes(), pooled.tobytes()
            ebc.set_learning_rate_factor(FACTORS[step])
            ebc.backward(pooled)
            assert (wide.tobytes(), pooled.tobytes()) == before, "a backward changes the caller's matrix"
            for t, gradient in enumerate(gradients):
                sums[t] += gradient**2
                weights[t] -= RATE * FACTORS[step] * (gradient if optimizer == "sgd" else gradient / (np.sqrt(sums[t]) + 1e-8))
        for t in range(3):
            np.testing.assert_allclose(rows_of(ebc, t), weights[t], rtol=1e-4, atol=2e-5)


def check_files():
    folder = os.path.dirname(os.path.abspath(sys.argv[1]))
    path = os.path.join(folder, f"collection_n{SIZE}.h5")
    mine = np.arange(6, dtype=np.float32).reshape(2, 3)
    read = np.zeros_like(mine)
    with trshard.EmbeddingBagCollection(TABLES, BATCH + SIZE, "-device cpu") as ebc:
        ebc.forward(*make_batch(0, RANK))
        ebc.backward(np.ones((BATCH + RANK, ebc.width), np.float32))
        ebc.save(path, over=mine)
        with trshard.EmbeddingBagCollection(TABLES, BATCH + SIZE, "-device cpu -seed 5 -tables_sharding_types row_wise") as other:
            other.load(path, over=read)
            np.testing.assert_array_equal(read, mine)
            np.testing.assert_array_equal(rows_of(other, 2), rows_of(ebc, 2))
        for optimizer, text in (("adam", "lacks /embedding/t0/exp_avg"), ("adagrad", "momentum1 is of optimizer rowwise_adagrad"), ("sgd", None)):
            with trshard.EmbeddingBagCollection(TABLES, BATCH + SIZE, f"-device cpu -seed 5 -embedding_optimizer {optimizer}") as other:
                if text:
                    assert fails(lambda: other.load(path), trshard.Error, text).status == 65
                else:
                    other.load(path)
                    np.testing.assert_array_equal(rows_of(other, 2), rows_of(ebc, 2))
        assert ebc.plan["world_size"] == SIZE, ebc.plan


def check_rows(sharding, ahead):
    """Rows by id, and their updates with plain SGD: each table adds up the gradients of all ranks'
    ids."""
    tables = [trshard.EmbeddingConfig("t0", 40, 8, ["a", "b"]), trshard.EmbeddingConfig("t1", 30, 8)]
    of, options = [0, 0, 1], f"-device cpu -embedding_optimizer sgd -embedding_learning_rate {RATE} -tables_sharding_types {sharding}"
    with trshard.EmbeddingCollection(tables, BATCH + SIZE, options) as ec:
        batches = []
        for step in range(STEPS):
            lengths = [np.random.default_rng([step, rank]).integers(0, 4, (3, BATCH + rank), dtype=np.int32) for rank in range(SIZE)]
            ids = [[np.random.default_rng([step, rank, f]).integers(0, tables[t].num_embeddings, lengths[rank][f].sum()) for f, t in enumerate(of)]
                   for rank in range(SIZE)]
            batches.append([(lengths[rank], ids[rank]) for rank in range(SIZE)])

        def rows_of_table(f):
            n = tables[of[f]].num_embeddings
            lengths = np.zeros((3, 1), np.int32)
            lengths[f] = n
            return ec.evaluate(lengths, np.arange(n)).astype(np.float64)

        weights = [rows_of_table(0), rows_of_table(2)]
        for step in range(STEPS):
            lengths, ids = batches[step][RANK]
            if ahead:
                ec.input_dist(lengths, np.concatenate(ids))
            rows = ec.forward() if ahead else ec.forward(lengths, np.concatenate(ids))
            for part, f in zip(ec.features(rows, lengths).values(), range(3)):
                np.testing.assert_allclose(part, weights[of[f]][ids[f]], rtol=1e-5, atol=1e-6)
            gradient = [np.zeros_like(w) for w in weights]
            for rank in range(SIZE):
                for f, some in enumerate(batches[step][rank][1]):
                    np.add.at(gradient[of[f]], some, weights[of[f]][some])
            ec.backward(rows)  # the loss is half the sum of squares
            weights = [w - RATE * g for w, g in zip(weights, gradient)]
        for f, w in ((0, weights[0]), (2, weights[1])):
            np.testing.assert_allclose(rows_of_table(f), w, rtol=1e-4, atol=2e-5)


def check_tables(**options):
    """A table as an array equals the rows that bags of one id give, after an update and after a
    write. TorchRec's names; nothing changes after a mistake."""
    with trshard.EmbeddingBagCollection(TABLES, BATCH + SIZE, {"device": "cpu", "seed": 3, **options}) as ebc:
        pooled = ebc.forward(*make_batch(0, RANK))
        fails(lambda: ebc.table("t0"), trshard.Error, "1 batches are under way")
        ebc.backward(pooled)
        state = ebc.state_dict(prefix="model.")
        assert list(state) == [f"model.embedding_bags.t{t}.weight" for t in range(3)], list(state)
        for t, table in enumerate(TABLES):
            rows = rows_of(ebc, t)
            assert (ebc.table(table.name) == rows).all() and (state[f"model.embedding_bags.{table.name}.weight"] == rows).all(), (options, t)
            assert (ebc.table(table.name, 7, 5) == rows[7:12]).all() and ebc.table(table.name, 9, 0).shape == (0, table.embedding_dim)
            written = np.arange(6 * table.embedding_dim, dtype=np.float32).reshape(6, -1) / 8
            ebc.set_table(table.name, written, 11)
            rows[11:17] = written
            assert (rows_of(ebc, t) == rows).all() and (ebc.table(table.name) == rows).all(), (options, t)
        for call, error, text in ((lambda: ebc.table("t9"), ValueError, "expected one of t0, t1, t2"), (lambda: ebc.table("t0", 38, 3), trshard.Error, '"t0", which has 40'),
                                  (lambda: ebc.set_table("t1", np.zeros((2, 3))), ValueError, "(n, 4)"), (lambda: ebc.set_table("t1", np.zeros((2, 4)), 29), trshard.Error, "which has 30"),
                                  (lambda: ebc.load_state_dict({"x": 0}), KeyError, "embedding_bags.t0.weight"),
                                  (lambda: ebc.load_state_dict({**state, "model.embedding_bags.t2.weight": np.zeros((60, 4))}, prefix="model."), ValueError, "(60, 16)")):
            fails(call, error, text)
        assert (ebc.table("t2") == rows).all()
        ebc.load_state_dict(state, prefix="model.")
        assert all((ebc.table(table.name) == state[f"model.embedding_bags.{table.name}.weight"]).all() for table in TABLES)
        ebc.load_state_dict({"embedding_bags.t1.weight": np.ones((30, 4), np.float64), "other": None}, strict=False)
        assert (ebc.table("t1") == 1).all() and (ebc.table("t0") == state["model.embedding_bags.t0.weight"]).all()
        text = repr(ebc)
        assert "t0: 40 x 8 sum, " in text and f"plan for {SIZE} rank" in text and options.get("tables_sharding_types", "wise") in text, text


def check_options():
    words = trshard.words
    assert words("-a 1", {"b": 2}) == "-a 1 -b 2" and words({"-a": [1, "x"], "b": True, "c": None, "d": ""}) == '-a 1,x -b true -d ""'
    assert words({"table": {"user name": {"pooling": "mean"}}, "p": "a b"}) == '"-table_user name_pooling" mean -p "a b"'
    assert words(None, {"rate": 0.5, "file": pathlib.Path("x/y")}) == "-rate 0.5 -file x/y"
    fails(lambda: words({"a": 'x"y'}), ValueError, "double quotes")
    fails(lambda: words({"a": b"x"}), TypeError, "expected a number")
    for more in ({"tables_sharding_types": ["row_wise"]}, {"table": {"t0": {"sharding_types": "row_wise"}}}):
        with trshard.EmbeddingBagCollection(TABLES, 8, device="cpu", **more) as ebc:
            assert {table["name"]: table["sharding_type"] for table in ebc.plan["tables"]}["t0"] == "row_wise", ebc.plan
    fails(lambda: trshard.EmbeddingBagCollection(TABLES, 8, devise="cpu"), trshard.Error, "-device")


def fails(call, error, text):
    try:
        call()
    except error as found:
        assert text in str(found), f"{text!r} is not in: {found}"
        return found
    raise AssertionError(f"no error, expected one with {text!r}")


def check_order(kind):
    """A forward pass gives the rows of its ids after refused calls: on all ranks, on one rank,
    before a backward pass, and with an input_dist() ahead."""
    config, width = trshard.EmbeddingBagConfig if kind is trshard.EmbeddingBagCollection else trshard.EmbeddingConfig, 4
    with kind([config("u", 50, width)], 4, "-device cpu -embedding_optimizer sgd -embedding_learning_rate 0 -tables_sharding_types row_wise") as ebc:
        one, zero = np.ones((1, 4), np.int32), np.zeros((4, width), np.float32)
        ids = lambda k: np.full(4, k)
        row = [ebc.evaluate(one, ids(k))[0].copy() for k in range(8)]

        def ask(k, *given):
            assert (ebc.forward(*given) == row[k]).all(), k

        wrong = np.empty((4, width + 4), np.float32)
        fails(lambda: ebc.forward(), trshard.Error, "no batch is under way")
        fails(lambda: ebc.backward(zero), trshard.Error, "no batch is under way")
        fails(lambda: ebc.forward(one, ids(1), out=wrong), ValueError, "out is float32")
        for call in (ebc.forward, ebc.evaluate, lambda *given, out: ebc.input_dist(given[0], given[1] if out is None else None)):
            if RANK == SIZE - 1:
                fails(lambda: call(one, ids(1), out=wrong), ValueError, "values is missing" if call.__name__ == "<lambda>" else "out is float32")
            else:
                assert fails(lambda: call(one, ids(1), out=None), trshard.Error, f"batch is NULL on rank {SIZE - 1}").status == 64
        ask(1, one, ids(1))
        fails(lambda: ebc.forward(one, ids(2)), trshard.Error, "waits for its backward()")
        fails(lambda: ebc.forward(), trshard.Error, "waits for TrshardBackward")
        if RANK == 0:
            # the other ranks wait for a valid gradient
            fails(lambda: ebc.backward(wrong), ValueError, "gradient is")
        ebc.backward(zero)
        ask(2, one, ids(2))
        ebc.backward(zero)
        ebc.input_dist(one, ids(3))
        fails(lambda: ebc.forward(one, ids(4)), trshard.Error, "without ids")
        ebc.input_dist(one, ids(5))
        fails(lambda: ebc.input_dist(one, ids(6)), trshard.Error, "2 batches are under way")
        fails(lambda: ebc.forward(out=wrong), ValueError, "out is float32")
        for k in (3, 5):
            ask(k)
            ebc.backward(zero)
        ask(7, one, ids(7))
        ebc.backward(zero)


def check_errors():
    error = fails(lambda: trshard.EmbeddingBagCollection(TABLES, 8, "-tables_datatype fp16"), trshard.Error, "-tables_data")
    assert error.status == 64, error.status
    fails(lambda: trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig("x", 4, 4, pooling="max")], 8), ValueError, "'sum' or 'mean'")
    with trshard.EmbeddingBagCollection(TABLES, BATCH + SIZE, "-device cpu -bounds_check_mode fatal") as ebc:
        lengths, values, weights = make_batch(0, RANK)
        fails(lambda: ebc.forward(lengths[:2], values, weights), ValueError, "lengths has shape")
        fails(lambda: ebc.forward(lengths, values, weights[1:]), ValueError, "weights has")
        fails(lambda: ebc.forward(lengths, values), trshard.Error, "batch.weights is NULL")
        values[-1] = 60
        assert fails(lambda: ebc.forward(lengths, values, weights), trshard.Error, "id 60, expected 0 to 59").status == 65
        values[-1] = 59
        out = np.empty((BATCH + RANK, ebc.width), np.float32)
        assert ebc.forward(lengths, values, weights, out=out) is out  # no copy
        fails(lambda: ebc.backward(out[:, ::-1]), ValueError, "neighbours")
        # read-only, and rows at a distance of 5 bytes
        for written in (out.view(), np.zeros(out.shape, [("x", "u1"), ("m", np.float32)])["m"]):
            written.flags.writeable = written.strides[-1] == 5
            fails(lambda: ebc.evaluate(lengths, values, weights, out=written), ValueError, "read-only" if written.strides[-1] == 4 else "strides")
        fails(lambda: ebc.evaluate(lengths.astype(np.int64) + 2**32, values, weights), ValueError, "not int32")
        fails(lambda: ebc.evaluate(lengths, values + 0.5, weights), ValueError, "not int64")
        fails(lambda: trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig("x", 4, 2**32 + 4)], 8), ValueError, "embedding_dim is 4294967300")
        ebc.backward(out)


# symbols that a later import finds first, as h5py's wheel includes another HDF5
shown = ctypes.CDLL(None)
assert not hasattr(shown, "H5open") and hasattr(shown, "MPI_Init"), "the symbols of HDF5 are shown, or those of MPI are not"
for arguments in [("sgd", "row_wise", False), ("adagrad", "table_wise", True), ("sgd", "data_parallel", True)]:
    check_training(*arguments)
for sharding in ("row_wise", "table_wise", "column_wise", "data_parallel"):
    check_tables(tables_sharding_types=sharding, tables_min_partition=4)
check_tables(tables_data_type="fp16")
check_tables(tables_compute_kernels="fused_uvm_caching", tables_cache_load_factor=0.3)
check_options()
check_rows("row_wise", False)
check_rows("table_wise", True)
check_files()
check_order(trshard.EmbeddingBagCollection)
check_order(trshard.EmbeddingCollection)
check_errors()
print(f"rank {RANK}: trshard {trshard.version()} agrees with numpy")
