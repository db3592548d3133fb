# SPDX-License-Identifier: BSD-3-Clause
"""tools/exchange.py --to onnx: the file's predictions agree with /predictions. numpy runs the file,
and so does onnxruntime if it can be imported.

By hand, with a python3 that has onnx, onnxruntime, h5py and tqdm: TRSHARD=build/trshard
PYTHONPATH=tools PYTHON regression/tools/test_onnx.py
"""
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import h5py
import numpy as np

import exchange
import onnx_numpy
import scratch
import trscheckpoint
import trsdata
import trsonnx

TOOLS = os.path.dirname(trsdata.__file__)
PROGRAM = os.environ.get("TRSHARD")
HAS = {module: importlib.util.find_spec(module) is not None for module in ("onnx", "onnxruntime")}
ARCH = "-dense_arch 16,8 -over_arch 16,8,1 -batch_size 64 -dense_learning_rate 0.1 -embedding_learning_rate 0.5"
ROWS = "-table_user_num_embeddings 100 -table_item_num_embeddings 50 "
# name: (options, are there dense features?, are ids any 64-bit numbers?)
MODELS = {
    "dot": ("-tables user,item -table_item_features item,hist -tables_embedding_dim 8 -table_user_data_type bf16 -table_item_data_type fp16", True, False),
    "dot_alone": ("-tables user,item,hist -tables_embedding_dim 4 -tables_pooling mean", False, False),
    "dcn": ("-tables_embedding_dim 8 -interaction dcn -dcn_num_layers 2 -dcn_low_rank_dim 3 -tables_pooling mean", True, False),
    "cat": ("-tables user,item,hist -table_user_embedding_dim 4 -table_item_embedding_dim 12 -table_hist_embedding_dim 3 -interaction cat "
            "-table_hist_is_weighted true -tables_id_map modulo -table_hist_num_embeddings 7 " + ROWS, True, True),
    "fm": ("-tables_embedding_dim 8 -interaction fm -table_hist_position_weighted true -table_hist_max_feature_lengths 5", True, False),
    "deepfm": ("-tables user,item -table_item_features item,hist -table_item_pooling none -table_item_sequence_pooling concat "
               "-table_item_sequence_length 3 -interaction deepfm -deepfm_arch 8,4 -tables_id_map hash -tables_embedding_dim 8 " + ROWS, True, True),
    "dcn_full": ("-tables_embedding_dim 4 -interaction dcn_full -dcn_num_layers 2", True, False),
    "dcn_vector": ("-tables_embedding_dim 8 -interaction dcn_vector -dcn_num_layers 3", True, False),
    "dcn_mixture": ("-tables_embedding_dim 8 -interaction dcn_mixture -dcn_num_layers 2 -dcn_low_rank_dim 3 -dcn_num_experts 3", True, False),
    "one_expert": ("-tables_embedding_dim 8 -interaction dcn_mixture -dcn_num_layers 1 -dcn_low_rank_dim 3 -dcn_num_experts 1 -over_arch 16,16,1 -over_arch_residual -dense_arch 16,16,8 -dense_arch_residual", True, False),
    "none": ("-tables_embedding_dim 8 -interaction none", True, False),
    "projection": ("-tables_embedding_dim 8 -interaction projection -projection_arch1 9,16 -projection_arch2 24", True, False),
    "activations": ("-tables_embedding_dim 8 -dense_arch_activation tanh -over_arch_activation sigmoid -over_arch 16,16,1 -over_arch_residual", True, False),
    "average": ("-tables_embedding_dim 8 -ema_decay 0.7 -dense_optimizer adam", True, False),
    "unsigned": ("-tables_embedding_dim 8 -tables_id_map modulo -tables_id_unsigned true -table_hist_num_embeddings 7 " + ROWS, True, True),
    "split": ("-tables_embedding_dim 8 -table_user_id_map qr -table_user_qr_collisions 7", True, False),
    "zch": ("-tables_embedding_dim 8 -tables_id_map zch -tables_zch_interval 2 -table_hist_zch_buckets 5 -table_hist_zch_input_hash_size 1000000000000 "
            "-table_item_zch_buckets 2 -table_hist_num_embeddings 20 -table_item_num_embeddings 30 -table_user_num_embeddings 64", True, True),
    "dynamic": ("-tables_embedding_dim 8 -interaction dcn -dcn_num_layers 2 -dcn_low_rank_dim 3 -tables_id_map dynamic -table_user_dynamic_cap 33 -table_user_dynamic_buckets 3 -table_hist_dynamic_cap 2 "
                "-table_item_dynamic_cap 1000 -table_item_dynamic_ttl 4 -table_item_data_type fp16", True, True),
    "no_ids": ("-tables_embedding_dim 8 -table_hist_id_map zch -tables_zch_interval 50 -table_hist_num_embeddings 20 -table_user_id_map hash -table_item_id_map modulo " + ROWS, True, True),
    "sequences": ("-tables user,item,hist -tables_embedding_dim 8 -tables_pooling none -table_hist_sequence_pooling max "
                  "-table_item_sequence_pooling mean -table_user_sequence_pooling concat -table_user_sequence_length 2", True, False),
}
# name: (options, labels)
TASKS = {
    "tasks": ("-tasks click,buy,price,kind -task_price_loss mse -task_buy_loss huber -task_buy_arch 7,1 -task_kind_loss softmax -task_kind_classes 3", "click,buy,price,kind"),
    "one_task": ("-tasks buy", "click,buy"),
    "classes_alone": ("-tasks kind -tasks_loss softmax -tasks_classes 4 -interaction dcn -dcn_num_layers 1 -dcn_low_rank_dim 3", "click,kind"),
    "mmoe": ("-tasks click,x.+y,kind -task_heads mmoe -heads_experts 3 -heads_expert_arch 12,10 -task_kind_loss softmax -task_kind_classes 2 -over_arch_activation tanh", "click,x.+y,kind"),
    "mmoe_one_task": ("-tasks click -task_heads mmoe -heads_experts 2 -heads_expert_arch 6", "click,buy"),
    "ple": ("-tasks click,price -task_heads ple -heads_experts 2 -heads_task_experts 2 -heads_levels 3 -heads_expert_arch 12,10 -task_price_loss mse -interaction cat -ema_decay 0.5 -dense_optimizer adam -dense_learning_rate 0.01", "click,price"),
}


def convert(*arguments, most_bytes=trsonnx.MOST_BYTES):
    with unittest.mock.patch.object(trsonnx, "MOST_BYTES", most_bytes):
        return scratch.inside(exchange, *arguments)


def feeds_of(path, onnx_path, samples):
    """The first samples of a dataset as the inputs of a file."""
    with h5py.File(path) as handle:
        names = [trsdata.text(name) for name in handle["sparse"].attrs["features"]]
        end = handle["sparse/offsets"][samples]
        lengths, values = handle["sparse/lengths"][:samples], handle["sparse/values"][:end].astype(np.int64)
        weights = handle["sparse/weights"][:end] if "sparse/weights" in handle else None
        every = {"dense": handle["dense"][:samples]} if "dense" in handle else {}
    feature = np.tile(np.arange(len(names)), samples).repeat(lengths.reshape(-1))
    for f, name in enumerate(names):
        every[name + ".ids"] = values[feature == f]
        every[name + ".offsets"] = np.concatenate([[0], np.cumsum(lengths[:, f])]).astype(np.int64)
        if weights is not None:
            every[name + ".weights"] = weights[feature == f].astype(np.float32)
    with open(onnx_path, "rb") as file:
        graph = onnx_numpy.fields(onnx_numpy.fields(memoryview(file.read()))[7][0])
    wanted = {onnx_numpy.text(onnx_numpy.fields(item)[1][0]) for item in graph[11]}
    return {name: numbers for name, numbers in every.items() if name in wanted}


@unittest.skipUnless(PROGRAM, "TRSHARD does not name the program")
class Onnx(scratch.Scratch):
    def run_program(self, *options):
        result = subprocess.run([PROGRAM, *options], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    @classmethod
    def setUpClass(cls):
        """200 samples. Bags of hist may be empty."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.made = os.path.join(folder.name, "data.h5")
        command = [sys.executable, os.path.join(TOOLS, "generate_data.py"), "--output", cls.made, "--num-samples", "200", "--features", "user,item,hist",
                   "--num-embeddings", "100,50,50", "--pooling", "1,1,0:5", "--id-type", "int64", "--weighted", "hist"]
        subprocess.run(command, check=True, capture_output=True)

    def data(self, has_dense, any_ids):
        """Some ids are pruned or outside their table, or all ids are arbitrary numbers."""
        shutil.copy(self.made, self.path("data.h5"))
        rng = np.random.default_rng(3)
        with h5py.File(self.path("data.h5"), "a") as handle:
            if not has_dense:
                del handle["dense"]
            values = handle["sparse/values"][()]
            if any_ids:
                values = values * 0x1234567890abcdf + rng.integers(-2**40, 2**40, len(values)) * (values % 2)
                handle["sparse"].attrs["num_embeddings"] = np.zeros(3, np.int64)
            else:
                values[rng.random(len(values)) < 0.05] = -1
                values[rng.random(len(values)) < 0.005] = 1000
            handle["sparse/values"][...] = values

    def model(self, name):
        options, *data = MODELS[name]
        self.data(*data)
        self.run_program(*ARCH.split(), *options.split(), "-data_train", "data.h5", "-steps", "6", "-checkpoint_final", "model.h5")
        self.run_program("-task", "predict", "-data_eval", "data.h5", "-init_from", "model.h5", "-output", "predictions.h5")
        with h5py.File(self.path("predictions.h5")) as handle:
            return handle["predictions"][()]

    def written(self):
        with trscheckpoint.opened(self.path("model.h5")) as checkpoint:
            trsonnx.write(self.path("model.onnx"), trsonnx.build(checkpoint), "model.onnx")
        return self.path("model.onnx")

    def compare(self, name, path, expected):
        for samples in (len(expected), 1, 7, 0):
            feeds = feeds_of(self.path("data.h5"), path, samples)
            found = {"numpy": onnx_numpy.run(path, feeds)}
            if HAS["onnxruntime"]:
                import onnxruntime
                session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
                found["onnxruntime"] = session.run(["predictions"], feeds)[0]
            for runner, predictions in found.items():
                self.assertEqual(predictions.shape, (samples,))
                worst = np.abs(predictions - expected[:samples]).max(initial=0)
                self.assertLess(worst, 1e-5, f"{name}, {samples} samples, {runner}")
                if samples > 7:
                    print(f"{name}: {runner}: greatest difference to /predictions {worst:.2g}", file=sys.stderr)
        if HAS["onnx"]:
            import onnx
            onnx.checker.check_model(path, full_check=True)


    def test_tasks(self):
        """One output for each task, which agrees with its part of /predictions."""
        for name, (options, labels) in TASKS.items():
            with self.subTest(name):
                command = [sys.executable, os.path.join(TOOLS, "generate_data.py"), "--output", self.path("data.h5"), "--num-samples", "200", "--features", "user,item,hist",
                           "--num-embeddings", "100,50,50", "--pooling", "1,1,0:5", "--labels", labels]
                subprocess.run(command, check=True, capture_output=True)
                self.run_program(*ARCH.split(), "-tables_embedding_dim", "8", *options.split(), "-data_train", "data.h5", "-epochs", "10", "-checkpoint_final", "model.h5")
                self.run_program("-task", "predict", "-data_eval", "data.h5", "-init_from", "model.h5", "-output", "predictions.h5")
                with h5py.File(self.path("predictions.h5")) as handle:
                    of = handle["predictions"]
                    expected = {f"predictions.{task}": numbers[()] for task, numbers in of.items()} if isinstance(of, h5py.Group) else {"predictions": of[()]}
                self.assertEqual(len(expected), len(options.split()[1].split(",")))
                self.compare_tasks(name, self.written(), expected)

    def compare_tasks(self, name, path, expected):
        for samples in (200, 1, 0):
            feeds = feeds_of(self.path("data.h5"), path, samples)
            found = {"numpy": onnx_numpy.run_all(path, feeds)}
            if HAS["onnxruntime"]:
                import onnxruntime
                session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
                outputs = [output.name for output in session.get_outputs()]
                found["onnxruntime"] = dict(zip(outputs, session.run(outputs, feeds)))
            for runner, predictions in found.items():
                self.assertEqual(set(predictions), set(expected))
                for task, numbers in expected.items():
                    self.assertEqual(predictions[task].shape, (samples, *numbers.shape[1:]))
                    self.assertGreater(np.ptp(numbers), 1e-4, "predictions that differ by more than the tolerance")
                    self.assertLess(np.abs(predictions[task] - numbers[:samples]).max(initial=0), 1e-5 * max(1, np.abs(numbers).max()), f"{name}, {task}, {samples} samples, {runner}")
        if HAS["onnx"]:
            import onnx
            onnx.checker.check_model(path, full_check=True)


def test_of(name):
    def test(self):
        expected = self.model(name)
        self.assertGreater(np.ptp(expected), 0.1, "predictions that differ, or the comparison says nothing")
        self.compare(name, self.written(), expected)
    return test


for _name in MODELS:
    setattr(Onnx, "test_" + _name, test_of(_name))


class Refused(scratch.Scratch):
    """Checkpoints made by hand. Each except the first has one error, and one message names it."""
    MODEL = {"-tables": "t", "-tables_num_embeddings": "5000", "-tables_embedding_dim": "2", "-table_t_features": "f", "-tables_pooling": "sum",
             "-tables_is_weighted": "false", "-tables_position_weighted": "false", "-tables_id_map": "none", "-num_dense": "0", "-interaction": "cat"}

    def make(self, options=(), leave=(), more=()):
        rng = np.random.default_rng(5)
        shapes = {"embedding/t/weight": (5000, 2), "dense/over_arch/0/weight": (3, 2), "dense/over_arch/0/bias": (3,),
                  "dense/over_arch/1/weight": (1, 3), "dense/over_arch/1/bias": (1,), **dict(more)}
        model = {**self.MODEL, **dict(options)}
        with h5py.File(self.path("model.h5"), "w") as handle:
            for name, shape in shapes.items():
                if name not in leave:
                    handle[name] = rng.standard_normal(shape).astype(np.float32)
            handle.attrs.update(format=trscheckpoint.FORMAT, version=trscheckpoint.VERSION)
            if model:
                handle.attrs["model"] = "".join(f"{name} {value}\n" for name, value in model.items() if value)
        return self.path("model.h5")

    def refused(self, status, words, *arguments, **more):
        result = convert(*arguments, **more)
        self.assertEqual((result.returncode, len(result.stderr.splitlines())), (status, 1), result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_models(self):
        layer = {"dense/strange/0/weight": (3, 2)}
        cases = [({"options": dict.fromkeys(self.MODEL)}, ["does not hold its model", "-checkpoint_final"]),
                 ({"options": {"-table_t_features": None}}, ["does not say", "features"]),
                 ({"options": {"-interaction": "strange"}}, ["-interaction strange", "deepfm"]),
                 ({"options": {"-over_arch_activation": "swish_layernorm"}}, ["-over_arch_activation swish_layernorm", "tanh"]),
                 ({"options": {"-over_arch_layer_norm": "true"}}, ["-over_arch_layer_norm true", "not known"]),
                 ({"options": {"-tasks": "click,buy"}}, ["no /dense/tasks/click/0/bias"]),
                 ({"options": {"-tasks": "click", "-tasks_loss": "strange"}}, ["-tasks_loss strange", "softmax"]),
                 ({"options": {"-tasks": "click", "-task_buy_loss": "mse"}}, ["-task_buy_loss mse", "not known"]),
                 ({"options": {"-tasks": "click", "-task_heads": "mmoe", "-heads_experts": "2"}}, ["no /dense/level_0/common/expert_0/0/weight"]),
                 ({"options": {"-interaction": "two_tower"}}, ["-interaction two_tower"]),
                 ({"options": {"-tables_pooling": "none", "-tables_sequence_pooling": "gru"}}, ["gru", "not exported"]),
                 ({"options": {"-interaction": "projection"}}, ["no /dense/projection_1/0/weight"]),
                 ({"options": {"-tables_num_embeddings": "many"}}, ["-tables_num_embeddings many", "a number"]),
                 ({"options": {"-tables_id_map": "strange"}}, ["-tables_id_map strange", "modulo"]),
                 ({"options": {"-strange_layers": "3"}}, ["-strange_layers", "not known"]),
                 ({"options": {"-tables_strange": "3"}}, ["-tables_strange", "not known"]),
                 ({"leave": ["embedding/t/weight"]}, ["no /embedding/t/weight"]),
                 ({"leave": ["dense/over_arch/1/bias"]}, ["no /dense/over_arch/1/bias"]),
                 ({"more": {"embedding/t/weight": (4, 2)}}, ["/embedding/t/weight", "[4, 2]", "[5000, 2]"]),
                 ({"more": layer}, ["/dense/strange/0/weight", "does not use"])]
        for made, words in cases:
            with self.subTest(words[0]):
                self.refused(65, ["model.h5", *words], self.make(**made), "--to", "onnx", self.path("out.onnx"))
                self.assertEqual(os.listdir(self.folder), ["model.h5"])
        # options of the data, not of the graph
        chosen = {"-data_dense": "1,0", "-data_label": "click"}
        self.assertEqual(convert(self.make(options=chosen), "--to", "onnx", self.path("out.onnx")).returncode, 0)
        self.assertEqual(convert(self.make(), "--to", "onnx", "--states", self.path("out.onnx")).returncode, 2)

    def test_quotient_and_remainder(self):
        """Two small tables, each pooled, and joined: computed by numpy from the tensors. An unknown
        option that is off is accepted."""
        tables = {"embedding/t_quotient/weight": (72, 2), "embedding/t_remainder/weight": (70, 2)}
        model = self.make(options={"-tables_id_map": "qr", "-tables_qr_operation": "mult", "-table_t_qr_collisions": "70", "-strange_layers": "none"},
                          leave=["embedding/t/weight"], more=tables)
        self.assertEqual(convert(model, "--to", "onnx", self.path("out.onnx")).returncode, 0)
        with h5py.File(model) as handle:
            of = {name: handle[name][()] for name in ("embedding/t_quotient/weight", "embedding/t_remainder/weight")}
            weights = [[handle[f"dense/over_arch/{i}/{part}"][()] for part in ("weight", "bias")] for i in (0, 1)]
        rows = np.array([7, -1, 4999, 123456789012]) % 5000
        quotient, remainder = (of[name][numbers] for name, numbers in zip(of, (rows // 70, rows % 70)))
        x = np.stack([quotient[:2].sum(0) * remainder[:2].sum(0), np.zeros(2), quotient[2:].sum(0) * remainder[2:].sum(0)])
        expected = 1 / (1 + np.exp(-(np.maximum(x @ weights[0][0].T + weights[0][1], 0) @ weights[1][0].T + weights[1][1])))
        feeds = {"f.ids": np.array([7, -1, 4999, 123456789012]), "f.offsets": np.array([0, 2, 2, 4])}
        np.testing.assert_allclose(onnx_numpy.run(self.path("out.onnx"), feeds), expected[:, 0], atol=1e-6)

    def test_data_file(self):
        """A model that is too large for one file becomes two files, with the same numbers."""
        model, out = self.make(), self.path("out.onnx")
        feeds = {"f.ids": np.array([7, -1, 4999, 5000]), "f.offsets": np.array([0, 2, 2, 4])}
        self.assertEqual(convert(model, "--to", "onnx", out).returncode, 0)
        expected = onnx_numpy.run(out, feeds)
        self.assertFalse(os.path.exists(out + ".data"))
        self.refused(73, [out + " exists"], model, "--to", "onnx", out)
        os.unlink(out)
        result = convert(model, "--to", "onnx", out, most_bytes=30000)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLess(os.path.getsize(out), 30000)
        self.assertEqual(os.path.getsize(out + ".data"), 40000)
        os.unlink(out)
        self.refused(73, [out + ".data exists"], model, "--to", "onnx", out, most_bytes=30000)
        self.assertEqual(convert(model, "--to", "onnx", "--force", out, most_bytes=30000).returncode, 0)
        np.testing.assert_array_equal(onnx_numpy.run(out, feeds), expected)
        if HAS["onnxruntime"]:
            import onnxruntime
            found = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"]).run(["predictions"], feeds)[0]
            np.testing.assert_allclose(found, expected, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
