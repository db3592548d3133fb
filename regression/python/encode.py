#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Raw rows through Predictor.encode() are the dataset that convert_table.py makes of them, bit for
bit, for every kind of column and every form of rows; and predict() of them gives the numbers of
-task predict. Without pyarrow or pandas, their forms are left out.

    encode.py TRSHARD
"""
import csv
import decimal
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import h5py
import numpy as np

import trshard

BINARY = os.path.abspath(sys.argv[1])
TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
N = 200
RANDOM = np.random.default_rng(3)
HAS = {name: importlib.util.find_spec(name) is not None for name in ("pyarrow", "pandas")}
# (name, values): what a service has. None is missing.
AGES = [None if i % 7 == 0 else round(float(RANDOM.normal()) * 10, 3) for i in range(N)]
COLUMNS = {
    "click": [float(i % 2) for i in range(N)],
    "age": AGES,
    "price": [None if i % 11 == 0 else float(RANDOM.integers(-5, 1000)) for i in range(N)],
    "city": [None if i % 13 == 0 else f"Zürich {i % 17}" for i in range(N)],
    "plan": [("free", "pro", "team")[i % 3] for i in range(N)],
    "user": [int(RANDOM.integers(0, 2**62)) for i in range(N)],
    "item": [None if i % 5 == 0 else int(RANDOM.integers(0, 60)) for i in range(N)],
    "hex": [f"{int(RANDOM.integers(0, 2**32)):x}" for i in range(N)],
    "tags": ["|".join(f"t{t}" for t in RANDOM.integers(0, 30, i % 4)) for i in range(N)],
    "seen": ["|".join(str(t) for t in RANDOM.integers(0, 40, i % 3)) for i in range(N)],
}
CONVERT = ["--labels", "click", "--dense", "age,price", "--log1p", "--text", "city,plan,tags", "--bags", "tags,seen", "--hexadecimal", "hex", "--nulls", "NULL",
           "--dense-missing", "0.25"]
SPARSE = {"modulo": ["--sparse", "city:50,plan:20,user:40,item:60,hex:30,tags:25,seen:40", "--modulo"],
          "unknown": ["--sparse", "city:50,plan:50,item:50,hex:50,tags:50,seen:50", "--sparse-unknown", "40", "--sparse-missing", "3"],
          "open": ["--sparse", "city,plan,user,item,hex,tags,seen", "--vocabulary", "none"],
          "vocabulary": ["--sparse", "city,plan,user:40,item,hex:30,tags,seen", "--modulo", "--vocabulary", "city:10:3,item:20,seen"]}
MODEL = "-tables_embedding_dim 4 -dense_arch 8,4 -over_arch 8,1 -batch_size 50 -steps 12 -dense_learning_rate 0.1 -embedding_learning_rate 0.5"


def run(*words, cwd):
    result = subprocess.run([str(word) for word in words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, f"{words}: {result.stdout[-2000:]}"
    return result.stdout


def write_csv(path):
    with open(path, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(COLUMNS)
        for row in zip(*COLUMNS.values()):
            writer.writerow("NULL" if value is None else value for value in row)


def forms():
    """name -> the rows in this form."""
    bags = {name: [cell.split("|") if cell else [] for cell in COLUMNS[name]] for name in ("tags", "seen")}
    found = {"columns": COLUMNS, "rows": [dict(zip(COLUMNS, row)) for row in zip(*COLUMNS.values())], "bags as lists": COLUMNS | bags,
             "numbers in lists": COLUMNS | {"seen": [[int(word) for word in cell] for cell in bags["seen"]]}}
    kinds = [("age", "f8"), ("price", "f4"), ("city", "S20"), ("plan", "U8"), ("user", "i8"), ("item", "f8"), ("hex", "S8"), ("tags", "U40"), ("seen", "U40")]
    table = np.zeros(N, kinds)
    for name, kind in kinds:
        empty = np.nan if kind[0] == "f" else ""
        table[name] = [empty if value is None else value.encode() if kind[0] == "S" else value for value in COLUMNS[name]]
    found["structured array"] = table
    if HAS["pandas"]:
        import pandas
        found["pandas"] = pandas.DataFrame(COLUMNS)
        found["pandas, its own types"] = pandas.DataFrame(COLUMNS).astype({"item": "Int64", "city": "string", "plan": "category"})
    if HAS["pyarrow"]:
        import pyarrow
        found["pyarrow"] = pyarrow.table(COLUMNS)
    return found


def of_dataset(path, names):
    """The arrays of a dataset, as predict() takes them."""
    with h5py.File(path) as h:
        lengths, values, dense = h["sparse/lengths"][()], h["sparse/values"][()], h["dense"][()]
        known = [name.decode() if isinstance(name, bytes) else name for name in h["sparse"].attrs["features"]]
    ends = np.cumsum(lengths.reshape(-1))
    bags = np.split(values, ends[:-1])
    places = [known.index(name) for name in names]
    return lengths[:, places].T, np.concatenate([bags[i * len(known) + f] for f in places for i in range(len(lengths))]).astype(np.int64), dense


def same(found, lengths, values, dense):
    return np.array_equal(found.lengths, lengths) and np.array_equal(found.values, values) and found.dense.tobytes() == dense.tobytes()


def check_kind(folder, kind, options):
    data = os.path.join(folder, f"{kind}.h5")
    run(sys.executable, TOOLS / "convert_table.py", "--output", data, *CONVERT, *SPARSE[kind], os.path.join(folder, "rows.csv"), cwd=folder)
    words = f"-data_train {kind}.h5 {MODEL} {options} -checkpoint_final {kind}.model.h5".split()
    run(BINARY, *words, cwd=folder)
    run(BINARY, *f"-task predict -data_eval {kind}.h5 -init_from {kind}.model.h5 -batch_size {N} -output {kind}.run.h5".split(), cwd=folder)
    with h5py.File(os.path.join(folder, f"{kind}.run.h5")) as h, h5py.File(data) as d:
        wanted, carried = h["predictions"][()], h.attrs["mapping"]
        assert carried == d.attrs["mapping"], "the results carry another mapping"
    with trshard.Predictor(os.path.join(folder, f"{kind}.model.h5")) as predictor:
        assert json.loads(predictor.mapping)["format"] == "trshard-mapping" and predictor.mapping == carried
        assert predictor.dense_names == ["age", "price"] and predictor.output_names == ["prediction"] and predictor.step == 12
        lengths, values, dense = of_dataset(data, predictor.sparse_names)
        reference = predictor.predict(lengths, values, dense=dense)
        assert reference[:, 0].tobytes() == wanted.tobytes(), "predict() and -task predict differ"
        for form, rows in forms().items():
            encoded = predictor.encode(rows)
            assert same(encoded, lengths, values, dense), f"{kind}: {form} gives other inputs"
            assert predictor.predict(*encoded).tobytes() == reference.tobytes(), f"{kind}: {form} gives other predictions"
    return f"{kind}.model.h5"


def one(name, value):
    """A copy of COLUMNS in which one column has another first value."""
    return dict(COLUMNS, **{name: [value, *COLUMNS[name][1:]]})


# (rows, a part of the message)
REFUSED = [({"age": [1.0]}, "no column"), (dict(COLUMNS, city=list(range(N))), "expected text"), ([1, 2], "expected a dictionary"),
           (dict(COLUMNS, age=["old"] * N), "'old' is not a number"), (dict(COLUMNS, item=[1.5] * N), "not an integer"), (dict(COLUMNS, age=[1.0]), "values, expected"),
           (dict(COLUMNS, age=31), "column age is of type int, expected a list"), (dict(COLUMNS, age=np.array(31.0)), "column age is one value"),
           (dict(COLUMNS, plan=(value for value in COLUMNS["plan"])), "column plan is of type generator"), (dict(COLUMNS, plan=None), "column plan is of type NoneType"),
           (dict(COLUMNS, city="x" * N), "column city is of type str, expected a list"), (dict(COLUMNS, city=b"x" * N), "column city is of type bytes"),
           (dict(COLUMNS, plan=dict.fromkeys(range(N), "pro")), "column plan is of type dict"), (one("city", "\ud800"), "column city: '\\ud800' is not text that UTF-8 can hold"),
           (dict(COLUMNS, plan=np.array(["a\udfff"] * N)), "column plan: 'a\\udfff' is not text"), (one("age", decimal.Decimal("Infinity")), "column age: Infinity is not a finite number"),
           (one("item", decimal.Decimal("-Infinity")), "column item: -Infinity is not"), (one("age", decimal.Decimal("sNaN")), "column age: sNaN is not a finite number"),
           (one("age", 1 << 2000), "column age: int too large"), (one("item", 1 << 80), "is not an integer of 64 bits"), (one("age", decimal.Decimal("1e999999")), "not finite as float32"), (one("item", 1j), "column item: 1j"), ([dict({name: column[5] for name, column in COLUMNS.items()}, city={"x": 1})], "column city: {'x': 1}")]


def refused_tables():
    """DataFrames and Tables that are refused: (rows, a part of the message)."""
    found = []
    if HAS["pandas"]:
        import pandas
        frame = pandas.DataFrame(COLUMNS)
        found = [(pandas.concat([frame, frame["age"]], axis=1), "the rows have column age twice"), (frame.assign(city=pandas.Series(["\ud800"] * N, dtype=object)), "column city: '\\ud800' is not text")]
    if HAS["pyarrow"]:
        import pyarrow
        table = pyarrow.table(COLUMNS)
        found.append((table.append_column("age", table.column("age")), "the rows have column age twice"))
    return found


def check_errors(model):
    with trshard.Predictor(model) as predictor:
        for rows, message in REFUSED + refused_tables():
            try:
                predictor.encode(rows)
            except trshard.Error as error:
                assert error.status == 65 and message in str(error), error
            else:
                raise AssertionError(f"{message}: nothing is refused")
        assert predictor.encode({name: column[:0] for name, column in COLUMNS.items()}).values.size == 0
        row = {name: column[5] for name, column in COLUMNS.items()}
        wanted, found = predictor.encode([row]), []
        threads = [threading.Thread(target=lambda: found.append(predictor.encode([row]))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8 and all(np.array_equal(one.values, wanted.values) for one in found)


def check_without_mapping(folder, model):
    path = os.path.join(folder, "bare.h5")
    with open(model, "rb") as source, open(path, "wb") as out:
        out.write(source.read())
    with h5py.File(path, "r+") as h:
        del h.attrs["mapping"]
        if "mapping" in h["checksums"].attrs:
            del h["checksums"].attrs["mapping"]
    with trshard.Predictor(path) as predictor:
        assert predictor.mapping is None and predictor.dense_names is None
        try:
            predictor.encode(COLUMNS)
        except trshard.Error as error:
            assert error.status == 65 and "no mapping" in str(error)
        else:
            raise AssertionError("a checkpoint without a mapping encodes")


with tempfile.TemporaryDirectory() as root:
    write_csv(os.path.join(root, "rows.csv"))
    models = [check_kind(root, "modulo", ""), check_kind(root, "unknown", ""), check_kind(root, "open", "-tables_id_map hash -tables_num_embeddings 50"),
              check_kind(root, "vocabulary", "")]
    check_errors(os.path.join(root, models[0]))
    check_without_mapping(root, os.path.join(root, models[0]))
print("encode: every form of rows equals the converted table")
