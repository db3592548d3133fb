# SPDX-License-Identifier: BSD-3-Clause
"""Trainings that continue with weights from tools/exchange.py, and TorchRec's own DLRM if it can be
imported.

By hand, with a python3 that has torch, torchrec, h5py and tqdm: TRSHARD=build/trshard
PYTHONPATH=tools PYTHON regression/tools/test_exchange_program.py
"""
import json
import os
import subprocess
import sys
import unittest

import h5py
import numpy as np

import trsdata
from exchange_fixture import GOLDEN_NAMES, HAS, INTERACTIONS, MODEL, PROGRAM, TOOLS, Folder, everything


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
