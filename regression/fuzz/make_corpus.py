# SPDX-License-Identifier: BSD-3-Clause
"""make_corpus.py TARGET FOLDER: write small valid inputs as the initial corpus of a fuzz target."""
import os
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


def main():
    target, folder = sys.argv[1:]
    texts = {"plan": PLAN, "options": OPTIONS, "yaml": YAML}
    if target in texts:
        with open(os.path.join(folder, target), "w", encoding="ascii") as file:
            file.write(texts[target])
    for libver in ("earliest", "latest") if target == "dataset" else ():
        trsrun.write_dataset(os.path.join(folder, libver), samples=4, features={"a": 5, "b": 3}, num_dense=1, libver=libver,
                             **({"labels": ["one", "two"], "group": range(4), "time": range(4)} if libver == "latest" else {}))
    if target == "checkpoint":
        write_checkpoint(os.path.join(folder, "earliest"))


main()
