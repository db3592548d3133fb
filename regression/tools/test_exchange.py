# SPDX-License-Identifier: BSD-3-Clause
"""tools/exchange.py: conversion and back with equal bits, names, invalid files, and TorchRec's own
DLRM if it can be imported.

By hand, with a python3 that has torch, torchrec, h5py and tqdm: TRSHARD=build/trshard
PYTHONPATH=tools PYTHON regression/tools/test_exchange.py
"""
import contextlib
import importlib.util
import json
import os
import pickle
import shutil
import subprocess
import sys
import types
import unittest
import zipfile

import h5py
import numpy as np

import exchange as tool
import scratch
import trscheckpoint
import trsdata
import trsformats

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


class ThereAndBack(Folder):
    def test_bits(self):
        model = make_checkpoint(self.path("model.h5"))
        for kind in ("safetensors", "npz") + (("torch", "dcp") if HAS["torch"] else ()):
            with self.subTest(kind):
                out, back = self.path("model." + kind), self.path(f"{kind}.h5")
                self.good(model, "--to", kind, "--states", out)
                self.good(out, "--from", kind, "--states", "--output", back)
                expected, found = everything(model), everything(back)
                self.assertEqual(expected.keys(), found.keys())
                for name, value in expected.items():
                    self.assertEqual(value, found[name], name)
                self.refused(73, [out, "--force"], model, "--to", kind, out)
                self.good(model, "--to", kind, "--force", out)
                self.good(out, "--from", kind, "--output", back, "--force")
                self.assertFalse([name for name in everything(back) if "optimizer" in name or "momentum" in name])
                os.rename(out, self.path("far"))
                os.symlink("far", out)
                # the link stays, and its target is replaced
                self.good(model, "--to", kind, "--force", out)
                self.assertEqual((os.readlink(out), os.path.exists(self.path("far"))), ("far", True))
                self.good(out, "--from", kind, "--output", back, "--force")
                os.rename(self.path("far"), self.path(f"far.{kind}"))
        self.assertFalse([name for name in os.listdir(self.folder) if name.startswith(".")])

    def test_names(self):
        model, out = make_checkpoint(self.path("model.h5")), self.path("m.safetensors")
        self.good(model, "--to", "safetensors", "--prefix", "model.", "--states", out)
        with open(out, "rb") as file:
            names = set(json.loads(file.read(int.from_bytes(file.read(8), "little"))))
        self.assertLess({"model." + TABLE, "model.over_arch.model.0._mlp.1._linear.bias", "model.over_arch.model.1.weight",
                         "model.inter_arch.crossnet.V_kernels.0", f"optimizer.state.model.{TABLE}.t_a.momentum1",
                         "model." + TABLE.replace("t_a", "of/t_d"), f"optimizer.state.model.{TABLE.replace('t_a', 'of/t_d')}.of/t_d.momentum1",
                         "optimizer.state.model.over_arch.model.1.weight.exp_avg"}, names)
        self.refused(65, [out, "is not known"], out, "--from", "safetensors", "--prefix", "other.", "--output", self.path("b.h5"))
        self.good(out, "--from", "safetensors", "--prefix", "model.", "--states", "--output", self.path("b.h5"))
        self.assertEqual(everything(model), everything(self.path("b.h5")))

    def test_key_map(self):
        model, out, keys = make_checkpoint(self.path("model.h5")), self.path("m.npz"), self.path("keys")
        with open(keys, "w", encoding="utf-8") as file:
            file.write("# ours theirs\nembedding/t_*/weight  emb.*\ndense/over_arch/*/weight top.*.w\ndense/position_weights/hist/weight - # not wanted\n")
        self.good(model, "--to", "npz", "--key-map", keys, "--states", out)
        with zipfile.ZipFile(out) as file:
            self.assertLess({"emb.a.npy", "emb.b.npy", "top.0.w.npy", "top.2.w.npy", "optimizer.state.emb.a.t_a.momentum1.npy"}, set(file.namelist()))
        self.good(out, "--from", "npz", "--key-map", keys, "--states", "--output", self.path("b.h5"))
        expected = {name: value for name, value in everything(model).items() if "position_weights" not in name}
        self.assertEqual(expected, everything(self.path("b.h5")))
        with open(keys, "w", encoding="utf-8") as file:
            file.write("embedding/*/weight\n")
        self.refused(64, ["line 1"], model, "--to", "npz", "--key-map", keys, self.path("c.npz"))
        with open(keys, "w", encoding="utf-8") as file:
            file.write("embedding/t_a/weight x\nembedding/t_b/weight x\n")
        self.refused(65, ["/embedding/t_a/weight", "/embedding/t_b/weight"], model, "--to", "npz", "--key-map", keys, self.path("c.npz"))

    def test_key_map_without_prefix(self):
        """Names without the prefix are used as they are. Names with the prefix can be given with or
        without it."""
        keys = self.path("keys")
        with open(keys, "w", encoding="utf-8") as file:
            file.write("- loss_fn.*\n- model.left\n- left_too\n- model." + TABLE.replace("t_a", "t_b") + "\nembedding/t_c/weight other.c\n")
        momentum = f"optimizer.state.model.{TABLE.replace('t_a', 't_b')}.t_b.momentum1"
        np.savez(self.path("m.npz"), **{"model." + LAYER + "weight": np.ones((4, 3), np.float32), "model." + LAYER + "bias": np.ones(4, np.float32)},
                 **{name: np.ones((5, 4), np.float32) for name in ("loss_fn.pos_weight", "model.left", "model.left_too", "other.c", "model." + TABLE)},
                 **{"model." + TABLE.replace("t_a", "t_b"): np.ones((5, 4), np.float32), momentum: np.ones(5, np.float32)})
        bring = [self.path("m.npz"), "--from", "npz", "--prefix", "model.", "--states", "--partial", "--output", self.path("b.h5")]
        self.refused(65, ["loss_fn.pos_weight is not known", '"- loss_fn.pos_weight"'], *bring)
        self.good(*bring, "--key-map", keys)
        with trscheckpoint.opened(self.path("b.h5")) as found:
            self.assertEqual(set(found.tensors), {"dense/dense_arch/0/weight", "dense/dense_arch/0/bias", "embedding/t_a/weight", "embedding/t_c/weight"})

    def of_torch(self, states):
        """A file without a description: a table and a layer, with states of these names beside
        their weights."""
        weights = {TABLE: np.ones((9, 4), np.float32), LAYER + "weight": np.ones((4, 3), np.float32), LAYER + "bias": np.ones(4, np.float32)}
        np.savez(self.path("theirs.npz"), **weights, **{"optimizer.state." + name: numbers for name, numbers in states.items()})
        return [self.path("theirs.npz"), "--from", "npz", "--states", "--partial", "--force", "--output", self.path("b.h5")]

    def step_and_shapes(self):
        with trscheckpoint.opened(self.path("b.h5")) as found:
            return found.attributes["step"], {path.removeprefix("embedding/t_a/"): tuple(tensor.shape) for path, tensor in found.tensors.items() if "t_a/" in path}

    def test_steps(self):
        """The number of updates is exported beside each state, as in torch, and is imported from
        there."""
        model, out = make_checkpoint(self.path("model.h5")), self.path("m.npz")
        self.good(model, "--to", "npz", "--states", out)
        with np.load(out) as file:
            theirs = {name: file[name] for name in file.files if name != trsformats.DESCRIPTION}
        steps = {name: numbers for name, numbers in theirs.items() if name.endswith(".step")}
        self.assertEqual(set(steps), {name.replace(".exp_avg", ".step") for name in theirs if name.endswith(".exp_avg")})
        self.assertEqual({(numbers.dtype, numbers.shape, float(numbers)) for numbers in steps.values()}, {(np.dtype(np.float32), (), 12)})
        np.savez(out, **theirs)
        self.good(out, "--from", "npz", "--states", "--output", self.path("b.h5"))
        self.assertEqual(self.step_and_shapes()[0], 12)
        self.good(out, "--from", "npz", "--output", self.path("b.h5"), "--force")
        self.assertEqual(self.step_and_shapes()[0], 0)
        with h5py.File(model, "a") as handle:
            handle.attrs["step"] = (1 << 24) + 1  # not representable in float32
        self.good(model, "--to", "npz", "--states", "--force", out)
        self.good(out, "--from", "npz", "--states", "--output", self.path("b.h5"), "--force")
        self.assertEqual(self.step_and_shapes()[0], (1 << 24) + 1)

    def test_steps_that_are_not_one_number(self):
        moments = {LAYER + "bias.exp_avg": np.ones(4, np.float32), LAYER + "bias.exp_avg_sq": np.ones(4, np.float32)}
        step = {LAYER + "bias.step": np.float32(8)}
        self.refused(65, [LAYER + "bias.exp_avg_sq", ".step", "--step N"], *self.of_torch(moments))
        self.good(*self.of_torch(moments), "--step", "7")
        self.assertEqual(self.step_and_shapes()[0], 7)
        self.good(*self.of_torch(moments | step))
        self.assertEqual(self.step_and_shapes()[0], 8)
        for value, words in ((np.float32(5), ["bias.step is 8", "weight.step is 5", "--step N"]), (np.float32(0.5), ["weight.step is 0.5"]),
                             (np.float32(np.nan), ["weight.step is nan"]), (np.array([8, -1]), ["weight.step is -1"])):
            self.refused(65, words, *self.of_torch(moments | step | {LAYER + "weight.step": value}))
        self.good(*self.of_torch(moments | step | {LAYER + "weight.step": np.float32(5)}), "--step", "5")
        self.assertEqual(self.step_and_shapes()[0], 5)
        self.assertEqual(exchange(*self.of_torch(moments), "--step", "-1").returncode, 2)
        self.assertIn("--step is for --from", exchange(self.path("b.h5"), "--to", "npz", "--step", "1", self.path("c.npz")).stderr)

    def test_states_of_tables(self):
        """The names that TorchRec 1.9.2 writes for FBGEMM's Adam and partial row-wise Adam, and for
        torch's optimizers of a data_parallel table."""
        square, row = np.ones((9, 4), np.float32), np.ones(9, np.float32)
        fused, apart = f"{TABLE}.t_a.", f"{TABLE}."
        step = {LAYER + "weight.step": np.float32(3), LAYER + "weight.sum": np.ones((4, 3), np.float32)}
        cases = [({fused + "momentum1": square, fused + "exp_avg_sq": square}, {"exp_avg": (9, 4), "exp_avg_sq": (9, 4)}),
                 ({fused + "momentum1": square, fused + "exp_avg_sq": row}, {"exp_avg": (9, 4), "exp_avg_sq": (9,)}),
                 ({fused + "momentum1": row}, {"momentum1": (9,)}), ({fused + "exp_avg": square}, {"exp_avg": (9, 4)}),
                 ({apart + "exp_avg": square, apart + "exp_avg_sq": square, apart + "step": np.float32(3)}, {"exp_avg": (9, 4), "exp_avg_sq": (9, 4)}),
                 ({apart + "sum": square, apart + "step": np.float32(3)}, {"momentum1": (9, 4)}),
                 ({apart + "sum": row.reshape(9, 1), apart + "step": np.float32(3)}, {"momentum1": (9,)})]
        for states, expected in cases:
            with self.subTest(sorted(states)):
                self.good(*self.of_torch(states | step))
                self.assertEqual(self.step_and_shapes(), (3, expected | {"weight": (9, 4)}))
                if any(fused in name for name in states):
                    self.good(self.path("b.h5"), "--to", "npz", "--states", "--force", self.path("back.npz"))
                    with np.load(self.path("back.npz")) as file:
                        self.assertEqual({name: file[name].shape for name in file.files if fused in name},
                                         {"optimizer.state." + name: numbers.shape for name, numbers in states.items()})

    def test_columns_of_other_widths(self):
        """Row states of column shards become their mean by width, and the shards' states are also
        kept side by side."""
        # the states of three rows: first of the first column, then of the other three columns
        state = np.float32([1, 2, 3, 5, 6, 7])
        tensors = {"embedding/t/weight": trsformats.Tensor("F32", (3, 4), None), "embedding/t/momentum1": trsformats.Tensor("F32", (6,), lambda: [state])}
        source = types.SimpleNamespace(columns={"theirs": [0, 1]})
        self.assertEqual(tool.by_columns(source, tensors, {"embedding/t/weight": "theirs", "embedding/t/momentum1": "state"}),
                         {"embedding/t/momentum1_columns": {"column_offsets": [0, 1]}})
        self.assertEqual(np.concatenate(list(tensors["embedding/t/momentum1"].blocks())).tolist(), [4, 5, 6])
        self.assertEqual(np.concatenate(list(tensors["embedding/t/momentum1_columns"].blocks())).tolist(), [[1, 5], [2, 6], [3, 7]])

    def test_renamed_tables(self):
        """One line renames a table and its states. TorchRec has the new name in the weight's name,
        and in a state's name between the weight's name and the state."""
        model, out, keys = make_checkpoint(self.path("model.h5")), self.path("m.npz"), self.path("keys")
        theirs = TABLE.replace("t_a", "users")
        with open(keys, "w", encoding="utf-8") as file:
            file.write(f"embedding/t_a/weight {theirs}\n")
        self.good(model, "--to", "npz", "--states", "--key-map", keys, out)
        with np.load(out) as file:
            self.assertEqual([name for name in file.files if "t_a" in name], [])
            self.assertIn(f"optimizer.state.{theirs}.users.momentum1", file.files)
        self.good(out, "--from", "npz", "--states", "--key-map", keys, "--output", self.path("b.h5"))
        self.assertEqual(everything(model), everything(self.path("b.h5")))

    def test_back_to_torchrec(self):
        """An exported DCP has the names, shapes and steps of TorchRec's own DCP, except for the
        momenta of its column shards."""
        self.good(GOLDEN_DCP, "--from", "dcp", "--prefix", "model.model.", "--states", "--output", self.path("dcp.h5"))
        with trsformats.source("dcp", GOLDEN_DCP) as golden, trscheckpoint.opened(self.path("dcp.h5")) as checkpoint:
            found, _ = tool.named_tensors(checkpoint, tool.KeyMap(None, "model.model.", "dcp"), True)
            self.assertEqual(set(golden.tensors), {name for name in found if not name.endswith("_columns")})
            self.assertEqual(checkpoint.attributes["step"], 8)
            for name, tensor in golden.tensors.items():
                if not name.endswith(".momentum1"):
                    self.assertEqual((name, tensor.dtype, tuple(tensor.shape)), (name, found[name].dtype, tuple(found[name].shape)))
                    np.testing.assert_array_equal(np.ravel(*tensor.blocks()), np.ravel(*found[name].blocks()))

    def test_checkpoints_that_do_not_go_out(self):
        out = self.path("out")
        self.refused(66, ["none.h5"], self.path("none.h5"), "--to", "npz", out)
        with open(self.path("text.h5"), "w", encoding="utf-8") as file:
            file.write("no HDF5")
        self.refused(65, ["text.h5 cannot be read: it is not an HDF5 file"], self.path("text.h5"), "--to", "npz", out)
        model = make_checkpoint(self.path("model.h5"))
        if trscheckpoint.Hash.available():
            with h5py.File(model, "a") as handle:
                handle["embedding/t_c/weight"][77777, 3] += 1
            self.refused(65, ["damaged", "/embedding/t_c/weight"], model, "--to", "npz", out)
        with h5py.File(model, "a") as handle:
            handle["embedding/t_q/weight_quantised"] = np.zeros((4, 16), np.uint8)
            handle["embedding/t_q/weight_quantised"].attrs["data_type"] = "int8"
        self.refused(65, ["/embedding/t_q/weight_quantised", "quantised (int8)"], model, "--to", "npz", out)
        self.assertFalse(os.path.exists(out))

    def test_without_torch(self):
        model, hidden = make_checkpoint(self.path("model.h5")), self.path("hidden")
        os.makedirs(hidden)
        with open(os.path.join(hidden, "torch.py"), "w", encoding="utf-8") as file:
            file.write("raise ImportError\n")
        without = {"PYTHONPATH": hidden + os.pathsep + os.environ.get("PYTHONPATH", "")}
        for kind in ("torch", "dcp"):
            self.refused(69, ["pip install torch"], model, "--to", kind, self.path("out"), environment=without)
        result = exchange(GOLDEN_DCP, "--from", "dcp", "--prefix", "model.model.", "--states", "--output", self.path("dcp.h5"), environment=without)
        self.assertEqual(result.returncode, 0, result.stderr)

    @unittest.skipIf(HAS["torch"], "this interpreter has torch")
    def test_interpreter_with_torch(self):
        """If only torch is missing in this Python, TRSHARD_PYTHON may name one that has it."""
        model, python = make_checkpoint(self.path("model.h5")), self.path("python")
        with open(python, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\n[ "$1" = -c ] || echo "went on: $*"\n')
        os.chmod(python, 0o755)
        for words in ((model, "--to", "torch", self.path("m.pt")), (model, "--to=dcp", self.path("m.dcp"))):
            self.assertIn("went on: ", exchange(*words, environment={"TRSHARD_PYTHON": python}).stdout)


class Parts(Folder):
    """Weights in several files with an index, and sources that have only a part of a model."""

    def setUp(self):
        super().setUp()
        self.model, self.out = make_checkpoint(self.path("model.h5")), self.path("out.h5")
        self.good(self.model, "--to", "safetensors", "--prefix", "module.", self.path("all.safetensors"))
        with contextlib.ExitStack() as stack:
            source = trsformats.Safetensors(self.path("all.safetensors"), stack)
            self.tensors = {name: trsformats.Tensor(t.dtype, t.shape, lambda kept=[b.copy() for b in t.blocks()]: iter(kept)) for name, t in source.tensors.items()}
        os.mkdir(self.path("parts"))
        self.where, names = {}, sorted(self.tensors)
        for i, part in enumerate((names[:3], names[3:])):
            file = f"model-{i + 1:05d}-of-00002.safetensors"
            self.write(self.path(f"parts/{file}"), part)
            self.where.update(dict.fromkeys(part, file))
        self.index({"metadata": {}, "weight_map": self.where})

    def write(self, path, names):
        """A file of another program, without our description."""
        trsformats.write_safetensors(path, {name: self.tensors[name] for name in names}, "")
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header, data = json.loads(file.read(size)), file.read()
        del header["__metadata__"]
        text = json.dumps(header).encode()
        with open(path, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + data)

    def index(self, content):
        with open(self.path("parts/model.safetensors.index.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)

    def bring(self, source, *more):
        return exchange(self.path(source), "--from", "safetensors", "--output", self.out, "--force", *more)

    def test_index(self):
        """The index, and its folder, import all tensors. The common prefix is found and named."""
        self.good(self.path("all.safetensors"), "--from", "safetensors", "--prefix", "module.", "--output", self.path("want.h5"))
        want = {name: rows for name, rows in everything(self.path("want.h5")).items() if "checksum" not in name}
        for source in ("parts/model.safetensors.index.json", "parts"):
            result = self.bring(source)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("names begin with module. (--prefix module.)", result.stderr)
            found = everything(self.out)
            self.assertEqual([name for name in want if name.startswith(("embedding", "dense/")) and found.get(name) != want[name]], [])

    def test_bad_index(self):
        first = next(iter(self.where))
        for content, words in (({"weight_map": dict(self.where, more=self.where[first])}, "tensor more is not in model-0000"),
                               ({"weight_map": {n: f for n, f in self.where.items() if n != first}}, f"tensor {first} is in model-0000"),
                               ({"weight_map": dict(self.where, more="none.safetensors")}, "names none.safetensors, which is not there"),
                               ({"weight_map": dict(self.where, more="../x.safetensors")}, "names files of other folders"),
                               ({"weight_map": [1]}, "is not an index"), ({}, "is not an index"), ([], "is not an index")):
            self.index(content)
            result = self.bring("parts")
            self.assertEqual((result.returncode, words in result.stderr, len(result.stderr.splitlines())), (65, True, 1), result.stderr)

    def test_part_of_a_model(self):
        tables = [name for name in self.tensors if "embedding_bags" in name]
        dense = [name for name in self.tensors if name not in tables and "position" not in name]
        self.write(self.path("dense.safetensors"), dense)
        self.write(self.path("no_over.safetensors"), [name for name in self.tensors if "over_arch" not in name and "inter_arch" not in name])
        self.write(self.path("tables.safetensors"), tables)
        for source, words in (("parts/model-00001-of-00002.safetensors", "it is part 1 of 2: give the index"), ("dense.safetensors", "it has dense layers and no table"),
                              ("no_over.safetensors", "it has the dense arch and no over arch")):
            result = self.bring(source)
            self.assertEqual((result.returncode, words in result.stderr), (65, True), result.stderr)
            self.assertFalse(os.path.exists(self.out))
        self.assertEqual(self.bring("dense.safetensors", "--partial").returncode, 0)
        result = self.bring("tables.safetensors")
        self.assertEqual((result.returncode, "no dense layers" in result.stderr), (0, True), result.stderr)

    def test_float64(self):
        numbers = np.array([[1.5, 2.0**-140]]), np.array([[0.1, 3.0]])
        np.savez(self.path("a.npz"), **{TABLE: np.concatenate(numbers)})
        self.good(self.path("a.npz"), "--from", "npz", "--output", self.out)
        with h5py.File(self.out) as file:
            np.testing.assert_array_equal(file["embedding/t_a/weight"][()], np.concatenate(numbers).astype(np.float32))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no torch")
    def test_legacy_torch(self):
        """Files of torch.save before its zip format, and names below state_dict."""
        code = ("import sys, torch\ntorch.save({'epoch': 3, 'state_dict': {'_orig_mod.' + sys.argv[2]: torch.ones(9, 4, dtype=torch.float64)}}, sys.argv[1], "
                "_use_new_zipfile_serialization=False)")
        subprocess.run([sys.executable, "-c", code, self.path("a.pt"), TABLE], check=True)
        result = exchange(self.path("a.pt"), "--from", "torch", "--output", self.out)
        self.assertEqual((result.returncode, "names begin with state_dict._orig_mod." in result.stderr), (0, True), result.stderr)


class Malformed(Folder):
    """Each source has one error, and one message names it."""

    def setUp(self):
        super().setUp()
        small = {name: numbers for name, numbers, attributes in random_tensors() if "t_a" not in name and "t_c" not in name
                 and not attributes and "optimizer" not in name and "position" not in name and "own" not in name}
        names = {"dense_arch": "dense_arch.model._mlp.{0}._linear.{1}", "over_arch": "over_arch.model.0._mlp.{0}._linear.{1}"}
        self.tensors = {TABLE: np.ones((9, 4), np.float32)}
        for path, numbers in small.items():
            _, module, i, parameter = path.split("/")
            if module in names and (module, i) != ("over_arch", "2"):
                self.tensors[names[module].format(i, parameter)] = numbers
            elif module == "over_arch":
                self.tensors["over_arch.model.1." + parameter] = numbers

    def safetensors(self, change=None, cut=None, metadata=None):
        """A file with a changed header, cut to this number of bytes."""
        header, data = {}, b""
        for name, numbers in self.tensors.items():
            kind = {"float32": "F32", "float64": "F64", "int64": "I64"}[str(numbers.dtype)]
            header[name] = {"dtype": kind, "shape": list(numbers.shape), "data_offsets": [len(data), len(data) + numbers.nbytes]}
            data += numbers.tobytes()
        if metadata is not None:
            header["__metadata__"] = {"trshard": metadata}
        header = change(header) if change else header
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        with open(self.path("in.safetensors"), "wb") as file:
            file.write((len(text).to_bytes(8, "little") + text + data)[:cut])
        return self.path("in.safetensors")

    def refuse(self, words, path, kind="safetensors"):
        self.refused(65, [path] + words, path, "--from", kind, "--output", self.path("out.h5"))
        self.assertFalse([name for name in os.listdir(self.folder) if "out.h5" in name])

    def test_good(self):
        """The source from which the others are made by one change is accepted, and contains only
        weights."""
        self.good(self.safetensors(), "--from", "safetensors", "--output", self.path("out.h5"))
        with h5py.File(self.path("out.h5")) as handle:
            self.assertEqual(handle["dense/over_arch/2/weight"].shape, (1, 6))
            self.assertEqual(int(handle.attrs["step"]), 0)

    def test_headers(self):
        def entry(key, value):
            def change(header):
                header[TABLE][key] = value
                return header
            return change
        over, size = "over_arch.model.1.bias", 9 * 4 * 4
        cases = [({"cut": 0}, ["cut off"]), ({"cut": 5}, ["cut off"]), ({"cut": 100}, ["cut off"]), ({"cut": -4}, [over, "outside"]),
                 ({"change": lambda _: b"{"}, ["JSON"]), ({"change": lambda _: b"[]"}, ["object"]), ({"change": lambda _: b"[" * 100000}, ["JSON"]),
                 ({"change": lambda _: b'{"a": {}, "a": {}}'}, ["'a' twice"]),
                 ({"change": lambda h: dict(h, x=3)}, ["tensor x", "lacks"]),
                 ({"change": entry("dtype", "F8_E4M3")}, [TABLE, "F8_E4M3"]),
                 ({"change": entry("shape", [9, -4])}, [TABLE, "[9, -4]"]),
                 ({"change": entry("shape", [1 << 40, 1 << 40])}, [TABLE, "takes"]),
                 ({"change": entry("data_offsets", [0, 1 << 60])}, [TABLE, "outside"]),
                 ({"change": entry("data_offsets", [size, 0])}, [TABLE, "outside"]),
                 ({"change": entry("data_offsets", [4, size + 4])}, [TABLE, "a gap"]),
                 ({"change": lambda h: dict(h, copy=h[TABLE])}, ["another one is"]),
                 ({"change": lambda h: {name: value for name, value in h.items() if name != over}}, ["belong to none"])]
        for i, (made, words) in enumerate(cases):
            with self.subTest(i):
                self.refuse(words, self.safetensors(**made))

    def test_models(self):
        first, bias = "dense_arch.model._mlp.0._linear.weight", "over_arch.model.1.bias"
        nan = np.ones((9, 4), np.float32)
        nan[5, 2] = np.nan
        cases = [({TABLE: np.full((9, 4), 1e39)}, [TABLE, "too large for float32"]), ({TABLE: np.ones((9, 4), np.int64)}, [TABLE, "I64"]),
                 ({TABLE: np.ones(9, np.float32)}, [TABLE, "[9]"]),
                 ({TABLE: np.ones((0, 4), np.float32)}, [TABLE, "[0, 4]"]), ({TABLE: nan}, [TABLE, "row 5", "not finite"]),
                 ({first: np.ones((6, 3), np.float32)}, ["_mlp.0._linear.bias", "[5]", "expected [6]"]),
                 ({first: None}, ["no tensor " + first]), ({bias: None}, ["no tensor " + bias]),
                 ({bias: np.ones(2, np.float32)}, [bias, "[2]", "[1]"]), ({"strange": np.ones(1, np.float32)}, ["tensor strange", "not known"]),
                 ({"dense/over_arch/2/bias": np.ones(1, np.float32)}, ["no tensor", "/dense/over_arch/3/weight"]), ({"embedding//weight": nan}, ["not a path"]),
                 ({"embedding/t_a/weight": self.tensors[TABLE]}, ["both", TABLE])]
        all_of_them = dict(self.tensors)
        for i, (changes, words) in enumerate(cases):
            with self.subTest(i):
                self.tensors = {name: numbers for name, numbers in dict(all_of_them, **changes).items() if numbers is not None}
                self.refuse(words, self.safetensors())
        self.tensors = {}
        self.refuse(["no tensor"], self.safetensors())

    def test_descriptions(self):
        missing = {"attributes": {}, "tensors": {"embedding/t_z/weight": {"dtype": "F32", "shape": [1, 1], "attributes": {}}}}
        other = {"attributes": {}, "tensors": {"embedding/t_a/weight": {"dtype": "F32", "shape": [1, 1], "attributes": {}}}}
        for text, words in ((b"", ["damaged"]), ([], ["damaged"]), ({"attributes": {"a": {}}, "tensors": {}}, ["damaged"]),
                            (missing, ["embedding_bags.t_z.weight"]), (other, [TABLE, "[1, 1]"])):
            with self.subTest(words):
                self.refuse(words, self.safetensors(metadata=json.dumps(text) if text != b"" else "{"))

    def test_npz(self):
        path = self.path("in.npz")
        with open(path, "wb") as file:
            file.write(b"no zip")
        self.refuse(["npz"], path, "npz")
        for changes, words in (({TABLE: np.array([{}], object)}, [TABLE, "object"]), ({TABLE: np.ones((9, 4), ">f4")}, [TABLE, ">f4"]),
                               ({TABLE: np.asfortranarray(np.ones((9, 4), np.float32))}, [TABLE, "by columns"])):
            with self.subTest(words):
                np.savez(path, **dict(self.tensors, **changes))
                self.refuse(words, path, "npz")
        np.savez(path, **self.tensors)
        with zipfile.ZipFile(path, "a") as file:
            file.writestr("bad.npy", b"\x93NUMPY\x01\x00")
        self.refuse(["bad.npy"], path, "npz")

        with open(path, "wb") as file:
            np.savez(file, **self.tensors)
            file.seek(200)
            # numbers of the first tensor, whose checksum in the zip is then wrong
            file.write(b"\xff" * 8)
        self.refuse(["t_a.weight.npy", "CRC-32"], path, "npz")

    def test_other_kinds(self):
        """A folder in place of a file, a file in place of a folder, and a path that is neither."""
        os.makedirs(self.path("folder"))
        with open(self.path("text"), "w", encoding="utf-8") as file:
            file.write("text")
        for kind in sorted(trsformats.READERS):
            of_torch = kind == "torch" and not HAS["torch"]
            self.refuse(["folder", "no .metadata" if kind == "dcp" else "expected a file"], self.path("folder"), kind)
            if not of_torch:
                self.refuse(["text"], self.path("text"), kind)
        self.refused(65, ["folder", "expected a file"], self.path("folder"), "--to", "npz", self.path("out.npz"))

    def dcp(self):
        """A copy of TorchRec's."""
        shutil.rmtree(self.path("in.dcp"), ignore_errors=True)
        return shutil.copytree(GOLDEN_DCP, self.path("in.dcp"))

    def refuse_dcp(self, words, path):
        self.refused(65, [path] + words, path, "--from", "dcp", "--prefix", "model.model.", "--states", "--output", self.path("out.h5"))
        self.assertFalse(os.path.exists(self.path("out.h5")))

    def test_dcp(self):
        """Without torch."""
        cases = [(".metadata", lambda data: data[:500], [".metadata is not the index"]), (".metadata", lambda data: b"", [".metadata is not the index"]),
                 (".metadata", lambda data: data.replace(b"__1_0.distcp", b"../_0.distcp"), ["other folders"]),
                 (".metadata", lambda data: data.replace(b"float32", b"strided"), ["torch.strided", "expected float32"]),
                 (".metadata", lambda data: data.replace(b"ChunkStorageMetadata", b"ChunkStorageMetadatb"), ["not of an index"]),
                 ("__1_0.distcp", lambda data: data[:3000], ["__1_0.distcp", "cannot be read"]),
                 ("__1_0.distcp", lambda data: b"\0" * len(data), ["__1_0.distcp", "cannot be read"]),
                 ("__1_0.distcp", lambda data: data.replace(b"FloatStorage", b"FloatStorbge"), ["__1_0.distcp"]),
                 ("__1_0.distcp", None, ["__1_0.distcp", "No such file"])]
        for i, (name, change, words) in enumerate(cases):
            with self.subTest(i):
                file_name = os.path.join(self.dcp(), name)
                with open(file_name, "rb") as file:
                    data = file.read()
                os.unlink(file_name)
                if change:
                    self.assertNotEqual(change(data), data)
                    with open(file_name, "wb") as file:
                        file.write(change(data))
                self.refuse_dcp(words, self.path("in.dcp"))

    def test_pickles_of_dcp(self):
        """Code that an index or a tensor names is not called."""
        class Evil:
            def __reduce__(self):
                return open, (self.made, "w")
        Evil.made = self.path("made")
        with open(os.path.join(self.dcp(), ".metadata"), "wb") as file:
            pickle.dump(Evil(), file)
        self.refuse_dcp([".metadata", "not of an index"], self.path("in.dcp"))
        with zipfile.ZipFile(self.path("tensor"), "w") as file:
            file.writestr("archive/data.pkl", pickle.dumps(Evil()))
        with zipfile.ZipFile(self.path("tensor")) as file, self.assertRaises(pickle.UnpicklingError):
            trsformats._contiguous_bytes(file, (1,))
        self.assertFalse(os.path.exists(Evil.made))

    @unittest.skipUnless(HAS["torch"], "torch is not there")
    def test_views_of_dcp(self):
        """If torch would read the numbers in another order, the file is refused or read as ours."""
        import torch
        import torch.distributed.checkpoint
        torch.distributed.checkpoint.save({name: torch.from_numpy(numbers) for name, numbers in self.tensors.items() if name != TABLE} |
                                          {TABLE: torch.arange(36, dtype=torch.float32).reshape(4, 9).T}, checkpoint_id=self.path("in.dcp"), no_dist=True)
        result = exchange(self.path("in.dcp"), "--from", "dcp", "--output", self.path("out.h5"))
        if result.returncode == 0:  # a torch that writes it in one piece
            with h5py.File(self.path("out.h5")) as handle:
                self.assertEqual(handle["embedding/t_a/weight"][1].tolist(), [1, 10, 19, 28])
        else:
            self.assertIn("in one piece", result.stderr)

    @unittest.skipUnless(HAS["torch"], "torch is not there")
    def test_pickles(self):
        """A pickle that would create a file creates none."""
        import torch

        class Evil:
            def __reduce__(self):
                return open, (self.made, "w")
        Evil.made = self.path("made")
        torch.save({TABLE: torch.ones(9, 4), "evil": Evil()}, self.path("in.pt"))
        self.refuse(["weights_only"], self.path("in.pt"), "torch")
        torch.save(dict.fromkeys([TABLE], torch.ones(9, 4)), self.path("cut.pt"))
        os.truncate(self.path("cut.pt"), os.path.getsize(self.path("cut.pt")) - 100)
        self.refuse(["cut.pt"], self.path("cut.pt"), "torch")
        torch.save([1], self.path("list.pt"))
        self.refuse(["state_dict"], self.path("list.pt"), "torch")
        self.assertFalse(os.path.exists(Evil.made))


@unittest.skipUnless(PROGRAM, "TRSHARD does not name the program")
class Program(Folder):
    def run_program(self, *options):
        result = subprocess.run([PROGRAM, *options], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def data(self, *options):
        command = [sys.executable, os.path.join(TOOLS, "generate_data.py"), "--output", self.path("data.h5"), "--num-samples", "512", "--features",
                   "user,item,hist", "--num-embeddings", "100,50,50", "--pooling", "1,1,1:5", *options]
        subprocess.run(command, check=True, capture_output=True)

    def series(self, name, path):
        with h5py.File(self.path(name)) as handle:
            return handle[path][()]

    def test_goes_on(self):
        """-init_from of the imported file gives the losses of the checkpoint itself."""
        self.data()
        model = [*MODEL.split(), "-data_train", "data.h5", "-embedding_optimizer", "rowwise_adagrad", "-dense_optimizer", "adam",
                 "-table_user_data_type", "bf16", "-table_item_data_type", "fp16", "-reproducible"]
        self.run_program(*model, "-steps", "4", "-checkpoint_final", "model.h5")
        self.good(self.path("model.h5"), "--to", "safetensors", "--states", self.path("model.safetensors"))
        self.good(self.path("model.safetensors"), "--from", "safetensors", "--states", "--output", self.path("back.h5"))
        self.assertEqual(everything(self.path("model.h5")), everything(self.path("back.h5")))
        for name in ("model", "back"):
            self.run_program(*model, "-init_from", name + ".h5", "-steps", "4", "-output", name + "_run.h5")
        losses = self.series("model_run.h5", "train/loss")
        self.assertEqual(len(losses), 4)
        self.assertEqual(losses.tolist(), self.series("back_run.h5", "train/loss").tolist())

    def test_averages(self):
        """For a model with -ema_decay, the averages are exported, because predictions use them.
        --states keeps weights and averages. Both come back as a model with the same predictions. If
        a file of --states is imported without them, it has the averages."""
        self.data()
        for kind, options in (("dot", "-table_hist_position_weighted -table_hist_max_feature_lengths 5"), ("dcn_mixture", INTERACTIONS["dcn_mixture"])):
            with self.subTest(kind):
                self.run_program(*MODEL.split(), "-interaction", kind, *options.split(), "-data_train", "data.h5", "-ema_decay", "0.7",
                                 "-dense_learning_rate", "0.1", "-steps", "6", "-checkpoint_final", "model.h5", "-existing_outputs", "replace")
                model, weights, states = (self.path(name) for name in ("model.h5", "weights.npz", "states.npz"))
                self.good(model, "--to", "npz", weights, "--force")
                self.good(model, "--to", "npz", "--states", states, "--force")
                found, both = np.load(weights), np.load(states)
                self.assertFalse([name for name in found.files if name.endswith(".ema")])
                averages = {name: both[f"optimizer.state.{name}.ema"] for name in found.files if f"optimizer.state.{name}.ema" in both.files}
                self.assertEqual(len(averages), len([name for name in found.files if "arch" in name and "embedding_bags" not in name]))
                for name, average in averages.items():
                    np.testing.assert_array_equal(found[name], average)
                self.assertTrue(any((both[name] != average).any() for name, average in averages.items()))
                self.good(states, "--from", "npz", "--states", "--output", self.path("all.h5"), "--force")
                self.assertEqual(everything(model), everything(self.path("all.h5")))
                self.good(weights, "--from", "npz", "--output", self.path("back.h5"), "--force")
                self.good(states, "--from", "npz", "--output", self.path("left.h5"), "--force")
                self.assertEqual(everything(self.path("back.h5")), everything(self.path("left.h5")))
                for name in ("model", "all", "back"):
                    self.run_program("-task", "predict", "-data_eval", "data.h5", "-init_from", name + ".h5", "-output", name + "_run.h5", "-existing_outputs", "replace")
                    self.assertEqual(self.series(name + "_run.h5", "predictions").tolist(), self.series("model_run.h5", "predictions").tolist(), name)

    def test_inspect(self):
        """inspect_file.py --check detects a damaged checkpoint, quantised or not."""
        self.data()
        self.run_program(*MODEL.split(), "-data_train", "data.h5", "-steps", "2", "-checkpoint_final", "model.h5")
        self.run_program("-task", "predict", "-data_eval", "data.h5", "-init_from", "model.h5", "-quant_checkpoint", "quantised.h5", "-tables_data_type", "int8", "-batch_size", "64")
        inspect = lambda name: subprocess.run([sys.executable, os.path.join(TOOLS, "inspect_file.py"), "--check", self.path(name)], capture_output=True, text=True, check=False)
        for name, tensor in (("model.h5", "embedding/user/weight"), ("quantised.h5", "embedding/user/weight_quantised")):
            self.assertEqual(inspect(name).returncode, 0, inspect(name).stdout)
            with h5py.File(self.path(name)) as handle:
                place = handle[tensor].id.get_offset()
            with open(self.path(name), "r+b") as file:
                file.seek(place + 9)
                byte = file.read(1)[0]
                file.seek(place + 9)
                file.write(bytes([byte ^ 1]))
            self.assertEqual(inspect(name).returncode, 1)
            self.assertIn(f"checksum of /{tensor}", inspect(name).stdout)

    def test_crossnets(self):
        """Names and shapes are those of TorchRec's modules, as recorded. The imported file, with
        states, has the exported bits."""
        self.data()
        with open(GOLDEN_NAMES, encoding="utf-8") as file:
            recorded = json.load(file)
        self.assertEqual(recorded.keys(), INTERACTIONS.keys())
        for name, options in INTERACTIONS.items():
            with self.subTest(name):
                model, out, back = (self.path(name + end) for end in (".h5", ".safetensors", "_back.h5"))
                self.run_program(*MODEL.split(), "-interaction", name, *options.split(), "-dense_optimizer", "adam", "-data_train", "data.h5", "-steps", "2",
                                 "-checkpoint_final", model)
                self.good(model, "--to", "safetensors", "--prefix", "model.", "--states", out)
                with open(out, "rb") as file:
                    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
                header.pop("__metadata__")
                self.assertEqual({"model." + key: shape for key, shape in recorded[name].items()},
                                 {key: about["shape"] for key, about in header.items() if not key.startswith("optimizer.")})
                self.assertEqual({f"optimizer.state.model.{key}.exp_avg": shape for key, shape in recorded[name].items() if "embedding" not in key},
                                 {key: about["shape"] for key, about in header.items() if key.endswith(".exp_avg")})
                self.good(out, "--from", "safetensors", "--prefix", "model.", "--states", "--output", back)
                self.assertEqual(everything(model), everything(back))

    def test_gates_of_other_experts(self):
        """A gate that is missing, or of another width, is named."""
        kernels = {"inter_arch.crossnet.U_kernels.0": np.ones((2, 8, 3), np.float32), "inter_arch.crossnet.bias.0": np.ones((8, 1), np.float32)}
        for gates, named in (({0: 8, 2: 8}, "gates.2.weight"), ({0: 8, 1: 7}, "gates.1.weight")):
            np.savez(self.path("m.npz"), **kernels, **{f"inter_arch.crossnet.gates.{k}.weight": np.ones((1, n), np.float32) for k, n in gates.items()})
            self.refused(65, [named, "no gate of 2 experts"], self.path("m.npz"), "--from", "npz", "--output", self.path("m.h5"))

    @unittest.skipUnless(HAS["torchrec"], "torchrec is not there")
    def test_torchrec(self):
        """TorchRec's DLRMs accept the weights with strict=True and predict the values of
        /predictions. Also the way back."""
        self.data()
        tables = {name: (rows, [name]) for name, rows in (("user", 100), ("item", 50), ("hist", 50))}
        for name, options in {"dot": "", **INTERACTIONS}.items():
            with self.subTest(name):
                model = [*MODEL.split(), "-interaction", name, *options.split(), "-tables_pooling", "mean"]
                self.run_program(*model, "-data_train", "data.h5", "-steps", "8", "-checkpoint_final", name + ".h5")
                make = lambda ebc: self.torchrec(ebc, [16, 8], [16, 8, 1], name)
                self.compare(name + ".h5", "data.h5", model, tables, 8, make)

    @unittest.skipUnless(HAS["torchrec"] and os.path.exists(os.path.join(os.environ.get("TRSHARD_DATA", ""), "ml100k_eval.h5")), "torchrec or MovieLens is not there")
    def test_movielens(self):
        """The whole evaluation, with the weights of one epoch."""
        folder = os.environ["TRSHARD_DATA"]
        golden = os.path.join(TOOLS, "../regression/golden/ml100k/run.opts")
        model = ["-options_file", golden, "-data_train", folder + "/ml100k_train.h5", "-data_eval", folder + "/ml100k_eval.h5"]
        self.run_program(*model, "-epochs", "1", "-init_from", os.path.join(os.path.dirname(golden), "init.h5"), "-checkpoint_final", "model.h5")
        rows = {"user": 944, "item": 1683, "genre": 20, "occupation": 22, "gender": 3, "zip": 1001, "title": 3001}
        tables = {name: (count, ["item", "hist"] if name == "item" else [name]) for name, count in rows.items()}
        self.compare("model.h5", folder + "/ml100k_eval.h5", model, tables, 16, lambda ebc: self.torchrec(ebc, [32, 16], [64, 32, 1], "dot"))

    def torchrec(self, ebc, dense_arch, over_arch, kind):
        from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRM_Projection
        from torchrec.modules.crossnet import CrossNet, LowRankMixtureCrossNet, VectorCrossNet
        if kind == "dot":
            return DLRM(ebc, self.num_dense, dense_arch, over_arch)
        if kind == "projection":
            return DLRM_Projection(ebc, self.num_dense, dense_arch, over_arch, [16], [12, 24])
        dlrm, width = DLRM_DCN(ebc, self.num_dense, dense_arch, over_arch, 2, 3), 32
        made = {"dcn_full": lambda: CrossNet(width, 2), "dcn_vector": lambda: VectorCrossNet(width, 2), "dcn_mixture": lambda: LowRankMixtureCrossNet(width, 2, 4, 3)}
        if kind in made:
            dlrm.inter_arch.crossnet = made[kind]()
        return dlrm

    def compare(self, checkpoint, data, model, tables, dim, make):
        import torch
        import torchrec
        with h5py.File(os.path.join(self.folder, data)) as handle:
            names = [trsdata.text(name) for name in handle["sparse"].attrs["features"]]
            self.num_dense = handle["dense"].shape[1]
            dense, lengths, values = torch.from_numpy(handle["dense"][()]), handle["sparse/lengths"][()], handle["sparse/values"][()]
        by_feature = np.argsort(np.tile(np.arange(len(names)), len(lengths)).repeat(lengths.reshape(-1)), kind="stable")
        bags = torchrec.KeyedJaggedTensor(names, torch.from_numpy(values[by_feature]).long(), lengths=torch.from_numpy(lengths.T.copy().reshape(-1)))
        ebc = torchrec.EmbeddingBagCollection(tables=[torchrec.EmbeddingBagConfig(
            name=name, embedding_dim=dim, num_embeddings=rows, feature_names=features, pooling=torchrec.PoolingType.MEAN)
            for name, (rows, features) in tables.items()])
        network = make(ebc)
        self.good(self.path(checkpoint), "--to", "torch", "--force", self.path("model.pt"))
        network.load_state_dict(torch.load(self.path("model.pt"), weights_only=True), strict=True)
        with torch.no_grad():
            theirs = torch.sigmoid(network(dense, bags)).squeeze(1).numpy()
        torch.save(network.state_dict(), self.path("theirs.pt"))
        self.good(self.path("theirs.pt"), "--from", "torch", "--force", "--output", self.path("theirs.h5"))
        for weights in (checkpoint, "theirs.h5"):
            self.run_program("-task", "predict", *model, "-data_eval", data, "-init_from", weights, "-output", "predictions.h5")
            ours = self.series("predictions.h5", "predictions")
            worst = np.abs(ours - theirs).max()
            print(f"{weights}: {len(ours)} predictions, greatest difference to TorchRec's {worst:.2g}", file=sys.stderr)
            self.assertEqual(len(ours), len(theirs))
            self.assertLess(worst, 1e-6)


if __name__ == "__main__":
    unittest.main()
