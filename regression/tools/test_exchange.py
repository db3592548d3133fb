# SPDX-License-Identifier: BSD-3-Clause
"""tools/exchange.py: conversion and back with equal bits, names, and parts of models."""
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import types
import unittest
import zipfile

import h5py
import numpy as np

import exchange as tool
import trscheckpoint
import trsformats
from exchange_fixture import GOLDEN_DCP, HAS, LAYER, TABLE, Folder, everything, exchange, make_checkpoint


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


if __name__ == "__main__":
    unittest.main()
