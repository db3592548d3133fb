# SPDX-License-Identifier: BSD-3-Clause
"""make_corpus.py TARGET FOLDER: write small valid inputs as the initial corpus of a fuzz target."""
import os
import struct
import sys

import h5py
import numpy as np

import trsrun

DEVICE = '"storage": {"hbm": 0, "ddr": 0}, "perf": {"fwd_compute": 0, "fwd_comms": 0, "bwd_compute": 0, "bwd_comms": 0, "prefetch_compute": 0}'
PLAN = f"""{{"format": "trshard-plan", "version": 1, "world_size": 2, "local_world_size": 2, "tables": [{{"name": "a", "sharding_type": "table_wise",
 "compute_kernel": "fused", "ranks": [1], "shards": [{{"rank": 1, "offset": [0, 0], "size": [10, 8], {DEVICE}}}]}}],
 "devices": [{{"rank": 0, {DEVICE}}}, {{"rank": 1, {DEVICE}}}], "critical_path": 1.5, "proposals": 1, "feasible": 1, "partitioned": 1}}"""
OPTIONS = """-tables a,b
-tables_embedding_dim 64 # width
-table_a_num_embeddings 10M
-table_b_num_embeddings 5
-table_b_sharding_types row_wise,table_wise
-topology_hbm_cap 80GiB
"""
MAPPING = """{"format": "trshard-mapping", "version": 1, "dense": [{"name": "a"}, {"name": "b", "log1p": true, "missing": 0.5}],
 "sparse": [{"name": "u", "kind": "text", "rows": 9, "modulo": true}, {"name": "w", "vocabulary": ["x", {"hex": "ff"}], "unknown": 0}], "time": {"unit": "s"}}"""
# fuzz_encode.c: a mapping, and after a 0 byte columns of three rows. A column has a form (1: one value for each row, 3: lists) and
# values, which have a kind and 8 bytes, or a number of bytes and a text.
ENCODE_MAPPING = """{"format":"trshard-mapping","version":1,"nulls":["NA"],"absent":{"a":"7"},"dense":[{"name":"d","column":"d","log1p":true}],"sparse":[{"name":"u",
"column":"u","kind":"text","bag":true,"vocabulary":["x",{"hex":"ff"}]},{"name":"i","column":"i","rows":9,"unknown":0,"weights":"d"},{"name":"a","column":"a","width":2}]}"""
ENCODE_VALUES = (b"\x01" + b"\x04\x031.5" + b"\x03" + struct.pack("<d", 2.5) + b"\x00" + bytes(8) + b"\x01" + b"\x04\x03x|y" + b"\x04\x02NA" + b"\x04\x01\xff" +
                 b"\x01" + b"\x01" + struct.pack("<q", 5) + b"\x02" + struct.pack("<Q", 2**63) + b"\x04\x037.0" + b"\x03\x02\x02\x02" + (b"\x01" + struct.pack("<q", 1)) * 6)
# the first two bytes say where the JSON part ends (fuzz_serve.c)
SERVE = ["\0\0" + """{"id": "a", "inputs": [{"name": "dense", "datatype": "FP32", "shape": [2, 2], "data": [1, 0.5, 2, 3]}, {"name": "user.ids", "datatype": "INT64",
 "shape": [3], "data": [1, 2, 3]}, {"name": "user.lengths", "datatype": "INT32", "shape": [2], "data": [[2, 1]]}, {"name": "item.ids", "datatype": "UINT8",
 "shape": [2, 1], "data": [[4], [5]]}], "outputs": [{"name": "buy", "parameters": {"binary_data": true}}]}""",
         "\x0b\x10" + """{"inputs": [{"name": "dense", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}, {"name": "item.ids", "datatype": "INT8",
 "shape": [3], "parameters": {"binary_data_size": 3}}, {"name": "item.lengths", "datatype": "INT32", "shape": [1], "data": [3]}, {"name": "item.weights",
 "datatype": "FP32", "shape": [3], "data": [1, 2, 3]}], "parameters": {"binary_data_output": true}}""" + "01230123abc", "\0\0" + """{"inputs": [{"name": "city", "datatype": "BYTES", "shape": [2],
 "data": ["Rome", null]}, {"name": "age", "datatype": "FP64", "shape": [2, 1], "data": [1, null]}, {"name": "user", "datatype": "BYTES", "shape": [3], "data": ["a", "b", "c"]},
 {"name": "user.lengths", "datatype": "INT32", "shape": [2], "data": [2, 1]}]}""", "\x08\x10" + """{"inputs": [{"name": "city", "datatype": "BYTES", "shape": [1],
 "parameters": {"binary_data_size": 8}}]}""" + "\4\0\0\0Rome", "\0\0/v2/models/model/versions/7/infer"]
YAML = """tables: [a, b]
tables_embedding_dim: &width 64 # width
table:
  a: &first
    num_embeddings: 10M
  b:
    <<: *first
    sharding_types: "row_wise,table_wise"
    embedding_dim: *width
topology_hbm_cap: 80GiB
"""


def write_checkpoint(path):
    """The model of fuzz_checkpoint.c, as another program would write it: without checksums, in
    HDF5's oldest format."""
    with h5py.File(path, "w", libver="earliest") as h:
        h.attrs["format"], h.attrs["version"], h.attrs["step"] = "trshard-checkpoint", np.int64(1), np.int64(3)
        h["embedding/a/weight"] = np.ones((6, 4), np.float32)
        h["embedding/a/momentum1"] = np.ones(6, np.float32)
        h["embedding/a/momentum1"].attrs["optimizer"] = "rowwise_adagrad"
        h["dense/over_arch/0/bias"] = np.ones(3, np.float32)


def write_delta(path):
    """The model of fuzz_delta.c: a delta without checksums."""
    with h5py.File(path, "w", libver="earliest") as h:
        h.attrs["format"], h.attrs["version"], h.attrs["step"] = "trshard-delta", np.int64(1), np.int64(5)
        h.attrs["delta_number"], h.attrs["delta_base_step"], h.attrs["delta_from_step"] = np.int64(1), np.int64(3), np.int64(3)
        h.attrs["delta_base"] = h.attrs["delta_previous"] = "0123456789abcdef"
        for name, numbers in (("rows", np.array([1, 4, 7], np.int32)), ("ids", np.array([10, 21, 0])), ("held", np.array([1, 1, 0], np.uint8)), ("used", np.array([3, 4]))):
            h[f"embedding/a/delta/{name}"] = numbers
        h["embedding/a/delta/rows"].attrs.update(num_embeddings=np.int64(8), buckets=np.int64(2))
        h["embedding/a/weight"] = np.ones((3, 4), np.float32)
        h["dense/over_arch/0/bias"] = np.ones(3, np.float32)


def main():
    target, folder = sys.argv[1:]
    texts = {"plan": PLAN, "options": OPTIONS, "yaml": YAML, "mapping": MAPPING}
    if target in texts:
        with open(os.path.join(folder, target), "w", encoding="ascii") as file:
            file.write(texts[target])
    if target == "encode":
        with open(os.path.join(folder, target), "wb") as file:
            file.write(ENCODE_MAPPING.encode() + b"\0" + ENCODE_VALUES)
    for i, text in enumerate(SERVE if target == "serve" else ()):
        with open(os.path.join(folder, f"serve{i}"), "w", encoding="ascii") as file:
            file.write(text)
    for libver in ("earliest", "latest") if target == "dataset" else ():
        trsrun.write_dataset(os.path.join(folder, libver), samples=4, features={"a": 5, "b": 3}, num_dense=1, libver=libver,
                             **({"labels": ["one", "two"], "group": range(4), "time": range(4)} if libver == "latest" else {}))
    if target == "checkpoint":
        write_checkpoint(os.path.join(folder, "earliest"))
    if target == "delta":
        write_delta(os.path.join(folder, "earliest"))


main()
