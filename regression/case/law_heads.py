# SPDX-License-Identifier: BSD-3-Clause
"""Several tasks with their own losses and heads: they agree with torch and torchrec (golden/heads),
and have the same bits on any ranks. One task equals the model without tasks."""
import os
import subprocess
import sys

import h5py
import numpy as np

from trsrun import check, check_close_losses, check_same_tensors, losses, run, same_bits, tensors, thin, thinned, write_dataset

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "heads", "heads.h5")
TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
MODEL = "-tables_embedding_dim 8 -dense_arch 16,8 -over_arch 16,8,1 -tables_min_partition 4 -embedding_learning_rate 0.1"
TASKS = "-tasks click,price,kind -task_price_loss huber -task_kind_loss softmax -task_kind_classes 4 -task_price_weight 0.5 -task_click_pos_weight 2"
HEADS = ("", "-task_heads mmoe -heads_experts 3 -heads_expert_arch 12,10", "-task_heads ple -heads_levels 2 -heads_expert_arch 12")


def unpack(folder, case):
    """Write train.h5 and init.h5 of a golden case. Returns its group's options, tasks and
    arrays."""
    with h5py.File(GOLDEN, "r") as golden:
        group = golden[case]
        with h5py.File(os.path.join(folder, "train.h5"), "w", libver="latest") as h:
            for name in group["train"]:
                group.copy(f"train/{name}", h)
            h.attrs.update(group["train"].attrs)
        with h5py.File(os.path.join(folder, "init.h5"), "w", libver="latest") as h:
            for name in group["init"]:
                group.copy(f"init/{name}", h)
            h.attrs.update(format="trshard-checkpoint", version=np.int64(1), step=np.int64(0), samples_seen=np.int64(0), options="", plan="{}")
        arrays = {}
        group.visititems(lambda name, o: arrays.__setitem__(name, o[()]) if isinstance(o, h5py.Dataset) else None)
        return group.attrs["options"], list(group.attrs["tasks"]), int(group.attrs["batch"]), arrays


@thinned
def test_heads_reference(binary, folder):
    """60 steps with each kind of heads and each loss, with missing labels: losses, weights,
    predictions and metrics agree with torch and torchrec."""
    every = [(case, ranks) for case in ("shared", "mmoe", "ple") for ranks in (1, 2, 3)]
    for case, ranks in thin(every, [("shared", 2), ("mmoe", 1), ("ple", 3)]):
        options, tasks, batch, wanted = unpack(folder, case)
        what = f"{case} on {ranks} ranks"
        run(binary, ranks, f"-data_train train.h5 -data_eval train.h5 -init_from init.h5 -batch_size {batch // ranks} -tables_min_partition 4 "
            f"-output out.h5 -checkpoint_final final.h5 {options}", folder)
        final = {name[len("final/"):]: value for name, value in wanted.items() if name.startswith("final/")}
        for name, value in final.items():
            check(np.abs(value - wanted[f"init/{name}"]).max() > 1e-4, f"{case}: {name} has not moved, nothing is tested")
        check_close_losses(losses(os.path.join(folder, "out.h5")), wanted["loss"], 1e-5, what)
        found = tensors(os.path.join(folder, "final.h5"))
        for name, of in final.items():
            off = np.max(np.abs(found[name].astype(np.float64) - of) / (1 + np.abs(of)))
            check(found[name].shape == of.shape and off <= 1e-5, f"{what}: /{name} differs by {off:.1e}")
        run(binary, ranks, f"-task eval -data_eval train.h5 -init_from final.h5 -batch_size 50 -output eval.h5", folder)
        with h5py.File(os.path.join(folder, "eval.h5"), "r") as h:
            for task in tasks:
                found, of = h[f"predictions/{task}"][()], wanted[f"predictions/{task}"]
                check(found.shape == of.shape and np.abs(found - of).max() < 2e-5, f"{what}: predictions of {task}")
            for name, of in wanted.items():
                if name.startswith("metrics/"):
                    found = h["eval/" + name[len("metrics/"):].replace("/", "_")][-1]
                    check(abs(found - of) < 3e-5 * (1 + abs(of)), f"{what}: {name} is {found}, torchrec has {of}")


def make(folder, samples=200):
    """Write train.h5 with three labels, of which some are missing."""
    path = write_dataset(os.path.join(folder, "train.h5"), samples, labels=["click", "price", "kind"], sample_weights=np.linspace(0, 2, samples))
    rng = np.random.default_rng(3)
    with h5py.File(path, "r+", libver="latest") as h:
        y = h["labels"][()]
        y[:, 1], y[:, 2] = 2 * rng.normal(size=samples) + 1, rng.integers(0, 4, samples)
        y[rng.random(y.shape) < 0.2] = np.nan
        h["labels"][...] = y


@thinned
def test_heads_reproducible(binary, folder):
    """-reproducible: heads of every kind have the same bits on any number of ranks and with other
    shardings, also in a resumed run."""
    make(folder)
    for heads in thin(HEADS, HEADS[2:]):
        base = f"-data_train train.h5 -data_shuffle -epochs 2 -reproducible {MODEL} {TASKS} {heads}"
        run(binary, 1, f"{base} -batch_size 60 -output one.h5 -checkpoint_final one.final.h5", folder)
        run(binary, 3, f"{base} -batch_size 20 -output more.h5 -checkpoint_final more.final.h5 -tables_sharding_types row_wise", folder)
        check(same_bits(losses(os.path.join(folder, "one.h5")), losses(os.path.join(folder, "more.h5"))), f"{heads}: other losses")
        one = os.path.join(folder, "one.final.h5")
        check_same_tensors(one, os.path.join(folder, "more.final.h5"), heads)
    run(binary, 2, f"{base} -batch_size 30 -steps 5 -checkpoint_dir kept", folder)
    text = run(binary, 1, f"{base} -batch_size 60 -checkpoint_dir kept -resume -checkpoint_final again.h5", folder).text
    check_same_tensors(one, os.path.join(folder, "again.h5"), f"resumed: {text}")


@thinned
def test_heads_one(binary, folder):
    """A single named task with shared heads equals the model without -tasks, bit for bit, with the
    same names in its files."""
    write_dataset(os.path.join(folder, "train.h5"), 120)
    base = f"-data_train train.h5 -data_eval train.h5 -batch_size 16 {MODEL} -metrics_every 3"
    for ranks in thin((1, 2), (2,)):
        found = []
        for name, more in (("today", ""), ("named", "-tasks click -task_heads shared -task_click_loss bce -task_click_weight 1")):
            run(binary, ranks, f"{base} {more} -output {name}.h5 -checkpoint_final {name}.final.h5", folder)
            run(binary, 1, f"-task eval -data_eval train.h5 -init_from {name}.final.h5 -batch_size 50 -output {name}.eval.h5", folder)
            found.append([tensors(os.path.join(folder, f"{name}.{kind}h5")) for kind in ("", "eval.")])
        check_same_tensors(os.path.join(folder, "today.final.h5"), os.path.join(folder, "named.final.h5"), "weights")
        for a, b in zip(*found):
            check(set(a) == set(b), f"other columns: {set(a) ^ set(b)}")
            for name in a:
                if name.startswith(("train/loss", "eval/", "predictions", "metrics/window_ne", "metrics/lifetime_ne", "metrics/window_auc")):
                    check(np.array_equal(a[name], b[name], equal_nan=True), f"{name} differs")


def test_heads_tasks(binary, folder):
    """Predictions and evaluations from the checkpoint without other options, another dataset's
    labels, early stopping by a task's metric, and sums of the metrics in checkpoints."""
    make(folder)
    base = f"-data_train train.h5 -data_eval train.h5 -batch_size 50 {MODEL} {TASKS} {HEADS[1]} -metrics_every 2"
    text = run(binary, 2, f"{base} -eval_every 2 -early_stopping_metric auc -early_stopping_task click -early_stopping_patience 1 -early_stopping_min_delta 1 "
               "-epochs 9 -output out.h5 -checkpoint_dir kept -checkpoint_final final.h5", folder).text
    check("eval/click_auc has not risen above" in text, text)
    with h5py.File(os.path.join(folder, "out.h5"), "r") as h:
        weights = {"click": 1, "price": 0.5, "kind": 1}
        total = sum(w * h[f"eval/{t}_loss"][()] for t, w in weights.items())
        check(np.allclose(h["eval/loss"][()], total, rtol=1e-12), "eval/loss is not the sum of the tasks' by their weights")
        check(np.isfinite(h["metrics/click_window_auc"][()]).all() and np.isnan(h["metrics/price_window_auc"][()]).all(), "metrics of a kind that labels do not have")
        check(np.isfinite(h["metrics/price_lifetime_rmse"][()]).all() and np.isfinite(h["metrics/kind_lifetime_accuracy"][()]).all(), "metrics of numbers and classes")
    run(binary, 1, f"{base} -epochs 9 -resume -checkpoint_dir kept -early_stopping_metric auc -early_stopping_task click -eval_every 2", folder)
    found = []
    for task, ranks in (("eval", 1), ("predict", 2)):
        run(binary, ranks, f"-task {task} -init_from final.h5 -data_eval train.h5 -batch_size 33 -output {task}.h5", folder)
        with h5py.File(os.path.join(folder, f"{task}.h5"), "r") as h:
            found.append({t: h[f"predictions/{t}"][()] for t in weights})
            check(h["predictions/kind"].shape == (200, 4) and h["predictions/click"].shape == (200,), "shapes of predictions")
            check(np.allclose(h["predictions/kind"][()].sum(axis=1), 1, atol=1e-5), "probabilities of classes")
    for t in weights:
        check(np.allclose(found[0][t], found[1][t], atol=1e-5), f"{t}: eval and predict differ")
    with h5py.File(os.path.join(folder, "train.h5"), "r+") as h:
        h["labels"][:, 1] = np.nan
    run(binary, 2, "-task eval -init_from final.h5 -data_eval train.h5 -batch_size 33 -output unknown.h5", folder)
    with h5py.File(os.path.join(folder, "unknown.h5"), "r") as h:
        check(np.isnan([h[f"eval/{name}"][0] for name in ("loss", "price_loss", "price_rmse")]).all(), "a task without a label has a loss")
        check(np.isfinite([h["eval/click_loss"][0], h["eval/kind_accuracy"][0]]).all(), "metrics of the tasks with labels")


def test_heads_tools(binary, folder):
    """The tools show each task's metrics, predictions and missing labels. The ONNX model has an
    output for each task."""
    options, tasks, _, _ = unpack(folder, "mmoe")
    run(binary, 1, f"-data_train train.h5 -data_eval train.h5 -init_from init.h5 -batch_size 30 -output out.h5 -checkpoint_final final.h5 {options}", folder)
    run(binary, 1, "-task predict -data_eval train.h5 -init_from final.h5 -batch_size 50 -output predicted.h5", folder)
    tool = lambda name, *words: subprocess.run([sys.executable, os.path.join(TOOLS, name), *words], cwd=folder, capture_output=True, text=True, check=False)
    shown = [tool("inspect_file.py", name) for name in ("train.h5", "out.h5", "predicted.h5")]
    check(all(found.returncode == 0 for found in shown), "".join(found.stdout + found.stderr for found in shown))
    check("missing)" in shown[0].stdout and "nan" not in shown[0].stdout, shown[0].stdout)
    check("click_auc" in shown[1].stdout and "nan" not in shown[1].stdout, shown[1].stdout)
    check(all(f"120 predictions of {task}, mean " in shown[2].stdout for task in tasks), shown[2].stdout)
    made = tool("report.py", "out.h5")
    with open(os.path.join(folder, "report.html"), encoding="utf-8") as page:
        text = page.read()
    check(made.returncode == 0 and "NE of buy, last evaluation" in text and "click_auc" in text and "NE of kind" not in text, made.stderr)
    made = tool("exchange.py", "final.h5", "--to", "onnx", "model.onnx")
    check(made.returncode == 0, made.stderr)
    with open(os.path.join(folder, "model.onnx"), "rb") as file:
        model = file.read()
    check(all(f"predictions.{task}".encode() in model for task in tasks), "an output is missing")
