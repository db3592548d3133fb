# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint of random numbers, and exchange.py on it, for the tests of tools/exchange.py."""
import importlib.util
import os
import subprocess
import sys

import h5py
import numpy as np

import exchange as tool
import scratch
import trscheckpoint
import trsdata

TOOLS = os.path.dirname(trsdata.__file__)
PROGRAM = os.environ.get("TRSHARD")
HAS = {module: importlib.util.find_spec(module) is not None for module in ("torch", "torchrec")}
TABLE = "sparse_arch.embedding_bag_collection.embedding_bags.t_a.weight"
LAYER = "dense_arch.model._mlp.0._linear."
# written by TorchRec on two ranks, column_wise
GOLDEN_DCP = os.path.join(TOOLS, "../regression/golden/exchange/dcp")
# names and shapes of TorchRec's state_dicts
GOLDEN_NAMES = os.path.join(TOOLS, "../regression/golden/exchange/crossnets.json")
INTERACTIONS = {"dcn": "-dcn_num_layers 2 -dcn_low_rank_dim 3", "dcn_full": "-dcn_num_layers 2", "dcn_vector": "-dcn_num_layers 2",
                "dcn_mixture": "-dcn_num_layers 2 -dcn_low_rank_dim 3 -dcn_num_experts 4", "projection": "-projection_arch1 16 -projection_arch2 12,24"}
MODEL = "-dense_arch 16,8 -over_arch 16,8,1 -tables_embedding_dim 8 -batch_size 64"

def exchange(*words, environment=None):
    """The tool's status and output."""
    if not environment:
        return scratch.inside(tool, *words)
    command = [sys.executable, tool.__file__, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ, **environment))


def everything(path):
    """All content of a checkpoint: bits of tensors and checksums, types, attributes."""
    found = {}

    def visit(name, item):
        found[name + "@"] = {key: trscheckpoint.plain(value) for key, value in item.attrs.items()}
        if isinstance(item, h5py.Dataset):
            found[name] = (str(item.dtype), item.shape, item[()].tobytes())
    with h5py.File(path) as handle:
        visit("", handle)
        handle.visititems(visit)
    return found


def random_tensors():
    """A DLRM with cross layers and states, as (path, numbers, attributes)."""
    rng = np.random.default_rng(7)
    real = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    bf16 = (real(6, 4).view(np.uint32) >> 16).astype(np.uint16)
    yield "embedding/t_a/weight", real(9, 4), {}
    yield "embedding/t_b/weight", bf16, {"dtype": "bf16"}
    yield "embedding/t_c/weight", real(300000, 8).astype(np.float16), {}  # more than one block
    yield "embedding/of/t_d/weight", real(3, 4), {}
    yield "embedding/of/t_d/momentum1", real(3), {"optimizer": "rowwise_adagrad"}
    yield "embedding/t_a/momentum1", real(9), {"optimizer": "rowwise_adagrad"}
    yield "embedding/t_a/momentum1_columns", real(9, 2), {"optimizer": "rowwise_adagrad", "column_offsets": [0, 2]}
    for module, widths in (("dense_arch", (3, 5, 4)), ("over_arch", (8, 7, 6, 1))):
        for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
            for name, shape in (("weight", (outputs, inputs)), ("bias", (outputs,))):
                yield f"dense/{module}/{i}/{name}", real(*shape), {}
                yield f"dense_optimizer/{module}/{i}/{name}/exp_avg", real(*shape), {}
    for name, shape in (("W", (8, 2)), ("V", (2, 8)), ("bias", (8,))):
        yield f"dense/crossnet/0/{name}", real(*shape), {}
    yield "dense/position_weights/hist/weight", real(5), {}
    yield "dense/own", real(2, 3), {}  # a tensor of a program that uses the library
    yield "dense_optimizer/candidates/frequency", real(7), {"optimizer": "streaming"}


def make_checkpoint(path, leave=()):
    sums = trscheckpoint.Hash.available()
    with h5py.File(path, "w") as handle:
        for name, numbers, attributes in random_tensors():
            if name in leave:
                continue
            item = handle.create_dataset(name, data=numbers)
            parts = trscheckpoint.Parts(numbers.shape, numbers.itemsize)
            if sums:
                parts.add(numbers)
                handle["checksums/" + name] = parts.end()
            trscheckpoint.set_attributes(item, attributes, None)
        attributes = {"step": 12, "run_id": "0123456789abcdef", "metrics": [0.1, 3.0, -1e300], "options": "-seed 1\n" * 500, "plan": "{}",
                      "epoch": 1, "samples_seen": 99, "run_step": 4, "global_batch": 8, "format": "trshard-checkpoint", "version": 1}
        trscheckpoint.set_attributes(handle, attributes, handle["checksums"] if sums else None)
    return path


class Folder(scratch.Scratch):
    def good(self, *arguments):
        result = exchange(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)

    def refused(self, status, words, *arguments, environment=None):
        result = exchange(*arguments, environment=environment)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
