# SPDX-License-Identifier: BSD-3-Clause
"""The whole workflow: Criteo's rows, as TSV and as a table; two equal datasets; one epoch; the
weights as safetensors; and the same predictions by TorchRec's DLRM, loaded with strict=True, and by
its definition in numpy.

TRS_WHOLE_WAY_ROWS is the number of rows (2,000; the test with the label long has 300,000). The
table is Parquet if there is a Python with pyarrow, otherwise CSV. By hand: TRSHARD=build/trshard
TRS_WHOLE_WAY_ROWS=300000 PYTHONPATH=tools PYTHON regression/tools/test_whole_way.py
"""
import importlib.util
import os
import subprocess
import sys
import time
import unittest

import h5py
import numpy as np

import scratch
import trsdata
import trsformats

TOOLS = os.path.dirname(trsdata.__file__)
PROGRAM = os.environ.get("TRSHARD")
HAS = {module: importlib.util.find_spec(module) is not None for module in ("torchrec", "safetensors", "pyarrow")}
ROWS = int(os.environ.get("TRS_WHOLE_WAY_ROWS", 2000))
LONG = ROWS > 100000
TABLE_ROWS, DIM, DENSE, SPARSE = 5000, 8, 13, 26
COLUMNS = ["click"] + [f"I{i}" for i in range(DENSE)] + [f"C{i}" for i in range(SPARSE)]
LAYERS = [32, DIM], [64, 32, 1]
MODEL = (f"-tables_embedding_dim {DIM} -dense_arch {','.join(map(str, LAYERS[0]))} -over_arch {','.join(map(str, LAYERS[1]))} -batch_size 128 "
         "-dense_optimizer adagrad -dense_learning_rate 0.02 -embedding_learning_rate 0.05")
PARQUET = """
import sys, pyarrow as pa, pyarrow.csv as csv, pyarrow.parquet as pq
names = open(sys.argv[1]).readline().strip().split(",")
types = {name: pa.int64() if name[0] in "cI" else pa.string() for name in names}
options = csv.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""])
pq.write_table(csv.read_csv(sys.argv[1], convert_options=options), sys.argv[2], row_group_size=50000)
"""


def write_rows(folder, count, seed=7):
    """day.tsv in Criteo's format, and day.csv with a header. Some integers and categories make the
    label more likely. Some fields are empty."""
    rng = np.random.default_rng(seed)
    kinds = 10 ** rng.integers(1, 5, SPARSE)
    weights = [rng.normal(0, 0.8, n) for n in kinds]
    with open(os.path.join(folder, "day.tsv"), "w", encoding="ascii") as tsv, open(os.path.join(folder, "day.csv"), "w", encoding="ascii") as table:
        table.write(",".join(COLUMNS) + "\n")
        for first in range(0, count, 50000):
            n = min(50000, count - first)
            integers = np.floor(rng.exponential(20, (n, DENSE))).astype(np.int64) - 1
            chosen = [np.minimum(rng.pareto(1.1, n).astype(np.int64), most - 1) for most in kinds]
            logit = -1.2 + 0.2 * np.log1p(np.maximum(integers[:, :3], 0)).sum(axis=1) - 1.2 + 0.4 * sum(w[c] for w, c in zip(weights, chosen))
            columns = [(rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int).astype(str)]
            columns += [np.where(rng.random(n) < 0.1, "", column.astype(str)) for column in integers.T]
            for k, numbers in enumerate(chosen):
                words = np.array([f"{(number * 2654435761 + k * 97) & 0xffffffff:08x}" for number in numbers.tolist()])
                columns.append(np.where(rng.random(n) < 0.05, "", words))
            for fields in zip(*(column.tolist() for column in columns)):
                tsv.write("\t".join(fields) + "\n")
                table.write(",".join(fields) + "\n")


def auc(labels, scores):
    """Equal scores count half."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positive = labels > 0.5
    return (ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2) / (positive.sum() * (~positive).sum())


def dlrm(tensors, dense, ids, names):
    """TorchRec's DLRM by its definition. Tensors have TorchRec's names, and each sample has one id
    for each feature."""
    def layer(x, name):
        return x @ tensors[name + ".weight"].T + tensors[name + ".bias"]
    for i in range(len(LAYERS[0])):
        dense = np.maximum(layer(dense, f"dense_arch.model._mlp.{i}._linear"), 0)
    vectors = [dense] + [tensors[f"sparse_arch.embedding_bag_collection.embedding_bags.{name}.weight"][ids[:, f]] for f, name in enumerate(names)]
    vectors = np.stack(vectors, axis=1)
    first, second = np.triu_indices(vectors.shape[1], 1)
    x = np.concatenate([dense, np.einsum("bij,bkj->bik", vectors, vectors)[:, first, second]], axis=1)
    for i in range(len(LAYERS[1]) - 1):
        x = np.maximum(layer(x, f"over_arch.model.0._mlp.{i}._linear"), 0)
    return 1 / (1 + np.exp(-layer(x, "over_arch.model.1")[:, 0]))


@unittest.skipUnless(PROGRAM, "TRSHARD does not name the program")
class WholeWay(scratch.Scratch):
    def tell(self, what, value):
        print(f"{ROWS:,} rows: {what}: {value}", file=sys.stderr)

    def timed(self, what, *command):
        """Run a command in the folder, and print its rows a second."""
        start = time.monotonic()
        result = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.tell(what, f"{ROWS / (time.monotonic() - start):,.0f} rows/s with its start")
        return result.stdout

    def tool(self, name, *arguments, python=sys.executable):
        return self.timed(name, python, os.path.join(TOOLS, name), *arguments)

    def table(self):
        """(file, the interpreter that reads it)"""
        venv = os.path.join(os.environ.get("TRSHARD_PYARROW", ""), "bin", "python3")
        python = sys.executable if HAS["pyarrow"] else venv if os.path.exists(os.path.join(os.path.dirname(venv), "..", "ready")) else None
        if not python:
            if LONG:
                self.skipTest("no Python with pyarrow, which writes and reads Parquet")
            return "day.csv", sys.executable
        subprocess.run([python, "-c", PARQUET, "day.csv", "day.parquet"], cwd=self.folder, check=True)
        return "day.parquet", python

    def same_datasets(self, one, other):
        with h5py.File(self.path(one)) as a, h5py.File(self.path(other)) as b:
            for name in ("labels", "dense", "sparse/lengths", "sparse/offsets", "sparse/values"):
                self.assertEqual(a[name].shape, b[name].shape, name)
                self.assertTrue(np.array_equal(a[name][()], b[name][()]), name)
            for a_name, b_name in zip(a["sparse"].attrs["num_embeddings"], b["sparse"].attrs["num_embeddings"]):
                self.assertEqual(a_name, b_name)
            return len(a["labels"])

    def converted(self):
        write_rows(self.folder, ROWS)
        self.tool("convert_criteo.py", "--output", "tsv.h5", "--output-eval", "tsv_eval.h5", "--vocabulary", f"hash:{TABLE_ROWS}", "day.tsv")
        table, python = self.table()
        self.tool("convert_table.py", "--output", "table.h5", "--output-eval", "table_eval.h5", "--labels", "click", "--dense", "I*", "--sparse",
                  f"cat=C*:{TABLE_ROWS}", "--hexadecimal", "C*", "--log1p", "--modulo", "--sparse-missing", "0", table, python=python)
        n = self.same_datasets("tsv.h5", "table.h5") + self.same_datasets("tsv_eval.h5", "table_eval.h5")
        self.assertEqual(n, ROWS)
        self.tell("equal datasets of", f"day.tsv and {table}")

    def torchrec(self, dense, ids, names):
        import safetensors.torch
        import torch
        import torchrec
        from torchrec.models.dlrm import DLRM
        tables = [torchrec.EmbeddingBagConfig(name=name, embedding_dim=DIM, num_embeddings=TABLE_ROWS, feature_names=[name]) for name in names]
        network = DLRM(torchrec.EmbeddingBagCollection(tables=tables), DENSE, *LAYERS)
        network.load_state_dict(safetensors.torch.load_file(self.path("model.safetensors")), strict=True)
        found = []
        with torch.no_grad():
            for first in range(0, len(ids), 4096):
                part = ids[first:first + 4096]
                bags = torchrec.KeyedJaggedTensor(names, torch.from_numpy(part.T.reshape(-1).copy()).long(), lengths=torch.ones(part.size, dtype=torch.int32))
                found.append(torch.sigmoid(network(torch.from_numpy(dense[first:first + 4096]), bags)).squeeze(1).numpy())
        return np.concatenate(found)

    def test_whole_way(self):
        self.converted()
        self.timed("one epoch and its evaluation", PROGRAM, *MODEL.split(), "-data_train", "table.h5", "-data_eval", "table_eval.h5", "-epochs", "1",
                   "-checkpoint_final", "model.h5", "-output", "run.h5")
        self.timed("prediction", PROGRAM, "-task", "predict", "-init_from", "model.h5", "-data_eval", "table_eval.h5", "-output", "predictions.h5")
        self.tool("exchange.py", "model.h5", "--to", "safetensors", "model.safetensors")
        with h5py.File(self.path("table_eval.h5")) as handle:
            names = [trsdata.text(name) for name in handle["sparse"].attrs["features"]]
            labels, dense, ids = handle["labels"][()], handle["dense"][()], handle["sparse/values"][()].reshape(-1, SPARSE)
        with h5py.File(self.path("run.h5")) as run, h5py.File(self.path("predictions.h5")) as predicted:
            ours, said, speeds = predicted["predictions"][()], run["eval/auc"][-1], run["train/samples_per_s"][()]
        self.tell("steps of the epoch", f"{len(speeds)}, median {np.median(speeds):,.0f} samples/s")
        self.assertAlmostEqual(auc(labels, ours), said, delta=1e-5)
        self.tell("AUC", f"{said:.5f}")
        self.assertGreater(said, 0.65 if LONG else 0.55)
        with trsformats.source("safetensors", self.path("model.safetensors")) as source:
            tensors = {name: np.concatenate(list(tensor.blocks())) for name, tensor in source.tensors.items()}
        theirs = {"numpy": dlrm(tensors, dense, ids, names)}
        if HAS["torchrec"] and HAS["safetensors"]:
            theirs["TorchRec"] = self.torchrec(dense, ids, names)
        for who, predictions in theirs.items():
            worst = np.abs(predictions - ours).max()
            self.tell(f"{len(ours):,} predictions, greatest difference to {who}'s", f"{worst:.2g}")
            self.assertLess(worst, 1e-6)


if __name__ == "__main__":
    unittest.main()
