# SPDX-License-Identifier: BSD-3-Clause
"""A training's measurements: metrics during training, early stopping, the best weights, and all of
them after a resume."""
import os
import shutil

import h5py
import numpy as np

from law_plans import FEATURES, MIXED, MODEL, TABLES, TOLERANCE, make, train
from trsrun import attribute, check, check_close_losses, check_close_tensors, check_same_tensors, run, same_bits, tensors, write_dataset

STANDSTILL = "-embedding_learning_rate 0 -dense_learning_rate 0 -embedding_optimizer sgd"


def rows(path, group):
    with h5py.File(path) as h:
        return {name: h[group][name][()] for name in h[group]}


def by_hand(p, y):
    """TorchRec's formulas for these samples, in double."""
    p, y = p.astype(np.float64), y.astype(np.float64)
    q, m = np.clip(p, 1e-12, 1 - 1e-12), y.mean()
    entropy = -np.sum(y * np.log(q) + (1 - y) * np.log1p(-q))
    positive, negative = p[y == 1], p[y == 0]
    return {"ne": entropy / -(y.sum() * np.log(m) + (1 - y).sum() * np.log(1 - m)), "log_loss": entropy / len(y),
            "auc": np.mean((positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)),
            "accuracy": np.mean((p >= 0.5) == y), "calibration": p.sum() / y.sum(), "ctr": m, "mse": np.mean((p - y)**2),
            "rmse": np.sqrt(np.mean((p - y)**2)), "mae": np.mean(np.abs(p - y))}


def test_metrics_of_a_standstill(binary, folder):
    """A model that does not learn gives the same predictions in training and in evaluation. Its
    metrics follow from /predictions."""
    make(folder, 240)
    with h5py.File(os.path.join(folder, "train.h5")) as h:
        y = h["labels"][()]
    for ranks in (1, 2, 3):
        _, state = train(binary, folder, "still", ranks, f"{STANDSTILL} {MIXED} -epochs 1 -metrics_every 3 -metrics_window_samples 48")
        run(binary, 1, f"-task eval -data_eval train.h5 -init_from {state} -batch_size 50 -output eval.h5 {MODEL} {TABLES}", folder)
        with h5py.File(os.path.join(folder, "eval.h5")) as h:
            p = h["predictions"][()]
        found = rows(os.path.join(folder, "still.h5"), "metrics")
        check(found["step"].tolist() == [3, 6, 9, 10], f"{ranks} ranks: metrics/step is {found['step']}")
        check(found["total_examples"].tolist() == [72, 144, 216, 240], f"total_examples is {found['total_examples']}")
        for i, step in enumerate(found["step"]):
            for prefix, first in (("window_", max(0, 24 * step - 48)), ("lifetime_", 0)):
                for name, value in by_hand(p[first:24 * step], y[first:24 * step]).items():
                    if prefix + name == "lifetime_auc":
                        check(prefix + name not in found, "there is no lifetime AUC")
                        continue
                    wrong = abs(found[prefix + name][i] - value)
                    check(wrong <= 1e-5 * (1 + abs(value)), f"{ranks} ranks, step {step}: {prefix}{name} is {found[prefix + name][i]}, by hand {value}")


def test_labels(binary, folder):
    """A named label trains and evaluates like the only label of a plain dataset, to the bit. Other
    labels have no effect."""
    names, samples = ["click", "buy", "like"], 130
    options = (f"{MIXED} -epochs 3 -data_shuffle -data_eval eval.h5 -eval_every 3 -metrics_every 2 -metrics_window_samples 48 -embedding_learning_rate 0.3 "
               "-dense_learning_rate 0.1 -early_stopping_metric auc -early_stopping_patience 1")
    ends = set()
    for k, name in enumerate(names):
        for part, seed in (("train", 7), ("eval", 8)):
            path = os.path.join(folder, f"{part}.h5")
            write_dataset(path, samples, seed=seed, features=FEATURES, labels=names)
            with h5py.File(path, "r+") as h:
                labels = h["labels"][()]
                del h["labels"]
                h["labels"] = labels[:, k]
        shutil.copy(os.path.join(folder, "eval.h5"), os.path.join(folder, "plain_eval.h5"))
        wanted, state = train(binary, folder, "plain", 2, options)
        measured = {part: rows(os.path.join(folder, "plain.h5"), part) for part in ("eval", "metrics")}
        stopped = evaluated(folder, "plain.h5")[2]
        ends.add((len(measured["metrics"]["step"]), str(stopped)))
        write_dataset(os.path.join(folder, "train.h5"), samples, features=FEATURES, labels=names)
        write_dataset(os.path.join(folder, "eval.h5"), samples, seed=8, features=FEATURES, labels=names)
        with h5py.File(os.path.join(folder, "eval.h5"), "r+") as h:  # in another order
            labels = h["labels"][()][:, ::-1]
            h["labels"][...] = labels
            h["labels"].attrs["names"] = names[::-1]
        found, other = train(binary, folder, "named", 2, f"{options} {'' if k == 0 else '-data_label ' + name}")
        check(same_bits(found, wanted), f"{name}: other losses")
        check_same_tensors(other, state, name)
        for part, columns in measured.items():
            for column, values in rows(os.path.join(folder, "named.h5"), part).items():
                check("throughput" in column or same_bits(values, columns[column]), f"{name}: another {part}/{column}")
        found = evaluated(folder, "named.h5")[2]
        check(found == stopped, f"{name}: stopped because {found}, as a plain dataset because {stopped}")
        check(attribute(os.path.join(folder, "named.h5"), "label") == name, f"{name} is not the attribute label")
        # the checkpoint keeps the option, for data of several labels and data with one unnamed
        # label
        if k:
            for data in ("eval.h5", "plain_eval.h5"):
                run(binary, 2, f"-task eval -data_eval {data} -init_from {other} -batch_size 9 -output again.h5 {MODEL} {TABLES}", folder)
                check(rows(os.path.join(folder, "again.h5"), "eval")["auc"][-1] == rows(os.path.join(folder, "named.h5"), "eval")["auc"][-1], f"{name}: another AUC of {data}")
    check(len(ends) == 3 and any("auc" in why for _, why in ends), f"the labels do not differ in when they stop: {ends}")


def test_groups_and_times(binary, folder):
    """/group and /time have no effect in a training. They are written beside /predictions, for
    several files and any ranks."""
    write_dataset(os.path.join(folder, "train.h5"), 130, features=FEATURES)
    wanted, state = train(binary, folder, "without", 2, f"{MIXED} -epochs 1")
    write_dataset(os.path.join(folder, "train.h5"), 130, features=FEATURES, group=range(130), time=range(130))
    found, other = train(binary, folder, "with", 2, f"{MIXED} -epochs 1")
    check(same_bits(found, wanted), "other losses with groups")
    check_same_tensors(other, state, "with groups")
    group, time = np.arange(130) * 7 % 11 - 5, (1 << 40) + np.arange(130)
    for name, part in (("a.h5", slice(0, 47)), ("b.h5", slice(47, 130))):
        write_dataset(os.path.join(folder, name), part.stop - part.start, features=FEATURES, group=group[part], time=time[part])
    for task, ranks in (("eval", 3), ("predict", 2)):
        run(binary, ranks, f"-task {task} -data_eval a.h5,b.h5 -init_from {other} -batch_size 9 -output out.h5 {MODEL} {TABLES}", folder)
        with h5py.File(os.path.join(folder, "out.h5")) as h:
            check(h["group"].dtype == np.int64 and h["time"].dtype == np.int64, f"{task}: group is {h['group'].dtype}, time {h['time'].dtype}")
            check((h["group"][()] == group).all() and (h["time"][()] == time).all(), f"{task}: other groups or times")
            check(len(h["predictions"]) == 130, f"{task}: {len(h['predictions'])} predictions")


def single_users(path):
    """Every sample of a dataset gets one id of the first feature, which is also its group. Returns
    the groups."""
    with h5py.File(path, "r+") as h:
        rng, lengths = np.random.default_rng(11), h["sparse/lengths"][()]
        lengths[:, 0] = 1
        user = rng.integers(0, 9, len(lengths))
        ids = [np.concatenate([[one], rng.integers(0, 11, n.sum() - 1)]) for one, n in zip(user, lengths)]
        for name, values in (("lengths", lengths), ("offsets", np.concatenate([[0], np.cumsum(lengths.sum(axis=1))])), ("values", np.concatenate(ids).astype(np.int32))):
            del h["sparse"][name]
            h["sparse"][name] = values
        h["group"] = user.astype(np.int64)
        return user


def test_group_metrics(binary, folder):
    """Metrics of groups: the same bits on 1 to 4 ranks, by /group or by the feature with its ids.
    They agree with a computation from /predictions. Early stopping uses them."""
    for name, seed in (("train.h5", 7), ("eval.h5", 8)):
        # whole batches, so that the window is the same on any number of ranks
        group = single_users(write_dataset(os.path.join(folder, name), 120, seed=seed, features=FEATURES))
    shared = "-epochs 2 -metrics_at 2,5 -metrics_segments 9 -metrics_every 2 -metrics_window_samples 48 -data_shuffle -data_eval eval.h5 -eval_every 4 -reproducible"
    wanted = {}
    for ranks, name in ((1, "user"), (2, "/group"), (3, "user"), (4, "/group")):
        _, state = train(binary, folder, "run", ranks, f"{shared} -metrics_group {name}")
        for part in ("metrics", "eval"):
            found = {column: values for column, values in rows(os.path.join(folder, "run.h5"), part).items()
                     if any(word in column for word in ("gauc", "group", "_at_", "segment"))}
            check(len(found) == 3 + 4 + 2 * 4 + 2, f"{part} has {sorted(found)}")
            check(all(values.shape == (len(values), 9) for column, values in found.items() if "segment" in column), f"{part}: {found}")
            check(all(np.isfinite(values).all() for values in found.values()), f"{part}: {found}")
            for column, values in found.items():
                check(same_bits(values, wanted.setdefault((part, column), values)), f"{ranks} ranks, {name}: another {part}/{column}")
    run(binary, 3, f"-task eval -data_eval eval.h5 -init_from {state} -batch_size 9 -output eval_out.h5 -metrics_group user -metrics_segments 12 {MODEL} {TABLES}", folder)
    with h5py.File(os.path.join(folder, "eval_out.h5")) as h, h5py.File(os.path.join(folder, "eval.h5")) as data:
        p, y, found = h["predictions"][()], data["labels"][()], h["eval/gauc"][-1]
        check((h["group"][()] == group).all(), "other groups beside the predictions")
        segments, samples = h["eval/segment_ne"][-1], h["eval/segment_samples"][-1]
    areas = [by_hand(p[group == one], y[group == one])["auc"] for one in np.unique(group) if 0 < y[group == one].sum() < (group == one).sum()]
    check(abs(found - np.mean(areas)) < 1e-9, f"GAUC is {found}, by hand {np.mean(areas)}")
    check((samples == np.bincount(group, minlength=12)).all(), f"samples of the segments: {samples}")
    for one in range(12):
        wanted = by_hand(p[group == one], y[group == one])["ne"] if samples[one] else np.nan
        check(abs(segments[one] - wanted) < 1e-9 * wanted or np.isnan(segments[one]) and np.isnan(wanted), f"NE of segment {one} is {segments[one]}, by hand {wanted}")
    text = run(binary, 2, f"-data_train train.h5 -data_eval eval.h5 -batch_size 9 {MODEL} {TABLES} {STANDSTILL} -epochs 3 -eval_every 2 -metrics_group user "
               "-early_stopping_metric ndcg -early_stopping_patience 2", folder).text
    check("eval/ndcg has not risen above" in text, text[-900:])
    with h5py.File(os.path.join(folder, "eval.h5"), "r+") as h:
        h["labels"][:] = 1
    text = run(binary, 2, f"-task eval -data_eval eval.h5 -init_from {state} -batch_size 9 -metrics_group user {MODEL} {TABLES}", folder).text
    check("GAUC no number  NE no number (0 groups with both classes)" in text and "nan" not in text, text[-600:])
    text = run(binary, 2, f"-task eval -data_eval eval.h5 -init_from {state} -batch_size 9 -metrics_group user -metrics_segments 9 {MODEL} {TABLES}", folder).text
    check("NE of segments 0 ..: - - - - - - - - ...\n" in text, text[-600:])


def test_sample_weights(binary, folder):
    """/weights of samples: losses and metrics are weighted means, on any ranks and pipeline. Equal
    weights have no effect."""
    path, samples = os.path.join(folder, "train.h5"), 130
    wanted, state = None, None
    # a power of two gives the same bits
    for weight, options in ((None, ""), (1.0, ""), (4.0, ""), (np.arange(samples), "-data_weights false")):
        write_dataset(path, samples, features=FEATURES, sample_weights=weight)
        found, other = train(binary, folder, "equal", 2, f"{MIXED} -epochs 2 {options}")
        if wanted is None:
            wanted, state = found, os.path.join(folder, "first.h5")
            os.replace(other, state)
            continue
        check(same_bits(found, wanted), f"weights of {weight}: losses {found} for {wanted}")
        check_same_tensors(other, state, f"weights of {weight}")
    weights = np.random.default_rng(5).choice([0, 0.25, 1, 3.5], samples)
    weights[48:72] = 0  # a batch with total weight 0
    write_dataset(path, samples, features=FEATURES, sample_weights=weights)
    wanted = None
    for ranks, options in ((1, ""), (2, "-pipeline base"), (3, "-pipeline prefetch_sparse_dist"), (4, MIXED)):
        found, other = train(binary, folder, f"ranks{ranks}", ranks, f"{options} -epochs 2 -embedding_optimizer adagrad")
        if wanted is None:
            wanted, state = found, other
        check(found[2] == found[8] == 0.0, f"the loss of a batch without weight is {found[2]}")
        check_close_losses(np.delete(found, [2, 8]), np.delete(wanted, [2, 8]), TOLERANCE, f"{ranks} ranks {options}")
        check_close_tensors(other, state, TOLERANCE, f"{ranks} ranks {options}")
    run(binary, 2, f"-task eval -data_eval train.h5 -init_from {state} -batch_size 40 -output eval.h5 {MODEL} {TABLES}", folder)
    with h5py.File(path) as h, h5py.File(os.path.join(folder, "eval.h5")) as found:
        p, y = found["predictions"][()].astype(np.float64), h["labels"][()].astype(np.float64)
        entropy = -(y * np.log(p) + (1 - y) * np.log1p(-p))
        for name, value in (("loss", np.average(entropy, weights=weights)), ("ctr", np.average(y, weights=weights)), ("mse", np.average((p - y)**2, weights=weights))):
            check(abs(found[f"eval/{name}"][0] - value) < 1e-6, f"eval/{name} is {found[f'eval/{name}'][0]}, by hand {value}")


def of_one_class(folder, name, label, **more):
    with h5py.File(write_dataset(os.path.join(folder, name), 40, features=FEATURES, **more), "r+") as h:
        if label is not None:
            h["labels"][:] = label


NO_WEIGHT, ONE_CLASS = "no number: no sample has a weight", "no number (one class)"


def test_metrics_without_a_number(binary, folder):
    """If the watched metric has no meaning in an evaluation, the log gives the reason, and one
    warning is printed. Early stopping ignores such evaluations, and -checkpoint_best has the last
    model. A later valid number is better than all of them."""
    make(folder, 240)
    of_one_class(folder, "nothing.h5", None, sample_weights=np.zeros(40))
    of_one_class(folder, "ones.h5", 1)
    of_one_class(folder, "zeros.h5", 0)
    of_one_class(folder, "eval.h5", None)
    steps = f"-data_train train.h5 -batch_size 12 -steps 8 -eval_every 2 -checkpoint_best best.h5 -output run.h5 -existing_outputs replace {MODEL} {TABLES}"
    stop = "-early_stopping_patience 1 -early_stopping_metric"
    for data, options, metric, why, columns in (("nothing.h5", "", "loss", "no sample has a weight", ("loss", "ne", "auc", "auprc", "calibration", "mse", "ctr")),
                                                ("nothing.h5", f"{stop} mse", "mse", "no sample has a weight", ("mse",)), ("ones.h5", f"{stop} auc", "auc", "all labels are of one class", ()),
                                                ("zeros.h5", f"{stop} ne", "ne", "all labels are of one class", ()), ("zeros.h5", f"{stop} auprc", "auprc", "all labels are of one class", ()),
                                                ("ones.h5", f"-metrics_group user {stop} gauc", "gauc", "no group counts", ("gauc",))):
        if "user" in options:
            for name in ("train.h5", data):
                single_users(os.path.join(folder, name))
        for ranks in (1, 3):
            text, what = run(binary, ranks, f"{steps} -data_eval {data} {options}", folder).text, f"{data} {options} on {ranks} ranks"
            warnings = [line for line in text.splitlines() if "warning" in line]
            check(len(warnings) == 1 and f"eval after step 2: eval/{metric} is no number: {why}. An evaluation without a number counts neither as better nor as worse" in warnings[0]
                  and "-checkpoint_best gets the weights of the last evaluation until one has a number" in warnings[0], f"{what}: {warnings}\n{text[-900:]}")
            check("stopped early" not in text and "nan" not in text and evaluated(folder, "run.h5")[0].tolist() == [2, 4, 6, 8], f"{what}: {text[-900:]}")
            check(attribute(os.path.join(folder, "best.h5"), "step") == 8, f"{what}: best.h5 is of step {attribute(os.path.join(folder, 'best.h5'), 'step')}")
            for line in (line for line in text.splitlines() if line.startswith("eval after step")):
                check(NO_WEIGHT in line if data == "nothing.h5" else line.count(f"AUC {ONE_CLASS}") == line.count(f"NE {ONE_CLASS}") == 1, f"{what}: {line}")
                check((f"calibration {ONE_CLASS}" in line) == (data == "zeros.h5"), f"{what}: {line}")
            with h5py.File(os.path.join(folder, "run.h5")) as h:
                check(all(np.isnan(h[f"eval/{name}"][()]).all() for name in columns), f"{what}: a number in {columns}")
                check(data == "nothing.h5" or (h["eval/auc"][()] == 0.5).all(), f"{what}: another AUC than TorchRec's")
    kept = f"{steps.replace('-steps 8', '')} -checkpoint_dir ckpt -checkpoint_every 2"
    # the same run with other evaluation data
    for data, last in (("nothing.h5", 4), ("eval.h5", 6), ("nothing.h5", 8)):
        run(binary, 2, f"{kept} -steps {last} -data_eval {data} -resume", folder)
        at, loss, _ = evaluated(folder, "run.h5")
        best, found = 4 if last == 4 else at[np.nanargmin(loss)], attribute(os.path.join(folder, "best.h5"), "step")
        check(found == best and np.isfinite(loss).any() == (last > 4), f"{data} to step {last}: best.h5 is of step {found}, losses {loss} after {at}")
    of_one_class(folder, "train.h5", 1)
    text = run(binary, 2, f"-data_train train.h5 -batch_size 10 -epochs 3 -metrics_every 1 -report_interval 0 {MODEL} {TABLES}", folder).text
    check("  NE, AUC no number (one class)  " in text and f"NE {ONE_CLASS}  AUC {ONE_CLASS}  AUPRC {ONE_CLASS}  accuracy" in text and "nan" not in text, text[-900:])


def test_weights_are_copies(binary, folder):
    """A sample of weight 3 equals three samples, in the loss and in the weights after one step with
    all samples."""
    path, whole, weights = os.path.join(folder, "train.h5"), 24, [3, 1, 0, 2] * 6
    write_dataset(path, whole, features=FEATURES, sample_weights=weights)
    wanted, state = train(binary, folder, "weights", 2, "-steps 1 -embedding_optimizer adagrad")
    with h5py.File(path, "r+") as h:
        lengths, offsets, values = h["sparse/lengths"][()], h["sparse/offsets"][()], h["sparse/values"][()]
        rows = np.repeat(np.arange(whole), weights)
        parts = {"labels": h["labels"][()][rows], "dense": h["dense"][()][rows], "sparse/lengths": lengths[rows],
                 "sparse/values": np.concatenate([values[offsets[r]:offsets[r + 1]] for r in rows]),
                 "sparse/offsets": np.concatenate([[0], np.cumsum(lengths[rows].sum(axis=1))])}
        del h["weights"]
        for name, data in parts.items():
            del h[name]
            h[name] = data
        h.attrs["num_samples"] = np.int64(len(rows))
    found, other = train(binary, folder, "copies", 2, "-steps 1 -embedding_optimizer adagrad", global_batch=len(rows))
    check_close_losses(found, wanted, TOLERANCE, "copies")
    check_close_tensors(other, state, TOLERANCE, "copies")


def test_metrics_leave_training_alone(binary, folder):
    """Measuring does not change the bits. A resumed run continues the lifetime's sums."""
    make(folder)
    wanted, state = train(binary, folder, "plain", 2, f"{MIXED} -steps 12 -metrics_every 0")
    found, other = train(binary, folder, "measured", 2, f"{MIXED} -steps 12 -metrics_every 1 -metrics_window_samples 7")
    check(same_bits(found, wanted), "other losses")
    check_same_tensors(other, state, "measured")
    with h5py.File(os.path.join(folder, "plain.h5")) as h:
        check("metrics" not in h, "metrics that nobody asked for")
    shared = f"{MIXED} -metrics_every 4 -checkpoint_dir ckpt"
    train(binary, folder, "half", 2, f"{shared} -steps 8 -checkpoint_every 8")
    train(binary, folder, "rest", 3, f"{shared} -steps 12 -resume")
    whole, rest = rows(os.path.join(folder, "measured.h5"), "metrics"), rows(os.path.join(folder, "rest.h5"), "metrics")
    check(rest["total_examples"][-1] == whole["total_examples"][-1], f"total_examples {rest['total_examples']}")
    check(rest["attempt_examples"][-1] < rest["total_examples"][-1], "attempt_examples of a resumed run")
    for name in whole:
        if name.startswith("lifetime_") and "throughput" not in name:
            check(abs(rest[name][-1] - whole[name][-1]) <= 1e-5 * abs(whole[name][-1]), f"{name}: {rest[name][-1]} for {whole[name][-1]}")


def test_metrics_of_any_labels(binary, folder):
    """-data_check accepts labels such as -1 and 1, and large numbers. A resume accepts the
    resulting checkpoint."""
    for labels, options, column in ((lambda y: 2 * y - 1, "-data_check warning", "lifetime_ctr"), (lambda y: 4e9 * y, "-tasks click -tasks_loss mse", "lifetime_mse")):
        make(folder)
        with h5py.File(os.path.join(folder, "train.h5"), "r+") as h:
            h["labels"][...] = labels(h["labels"][()])
        shared = f"{MIXED} {STANDSTILL} -metrics_every 4 {options}"
        train(binary, folder, "whole", 2, f"{shared} -steps 12")
        shutil.rmtree(os.path.join(folder, "ckpt"), ignore_errors=True)
        train(binary, folder, "half", 2, f"{shared} -steps 8 -checkpoint_dir ckpt -checkpoint_every 8")
        train(binary, folder, "rest", 2, f"{shared} -steps 12 -checkpoint_dir ckpt -resume")
        whole, rest = (rows(os.path.join(folder, f"{name}.h5"), "metrics")[column][-1] for name in ("whole", "rest"))
        check(abs(rest - whole) <= 1e-9 * abs(whole) and (whole < 0 or whole > 1e18), f"{options}: {column} of a resumed run is {rest}, of a whole one {whole}")


def evaluated(folder, name):
    with h5py.File(os.path.join(folder, name)) as h:
        return h["eval/step"][()], h["eval/loss"][()], h.attrs.get("stopped_early")


EARLY = f"{MIXED} -embedding_learning_rate 1 -dense_learning_rate 0.5 -data_eval eval.h5 -eval_every 2 -early_stopping_metric loss"


def test_early_stopping(binary, folder):
    """The run ends, with 0, at the evaluation that the rule determines from the /eval/loss of a run
    that was not stopped."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 60, seed=8, features=FEATURES)
    train(binary, folder, "whole", 2, f"{EARLY} -steps 80 -early_stopping_patience 1000")
    steps, losses, why = evaluated(folder, "whole.h5")
    check(why is None, f"stopped early: {why}")
    for patience, delta in ((1, 0), (3, 0), (2, 0.01)):
        best, worse, end = np.inf, 0, None
        for step, loss in zip(steps, losses):
            best, worse = (loss, 0) if best - loss > delta else (best, worse + 1)
            if worse == patience:
                end = step
                break
        check(end is not None and end < 80, f"patience {patience}: this training never stops")
        _, state = train(binary, folder, "early", 2, f"{EARLY} -steps 80 -early_stopping_patience {patience} -early_stopping_min_delta {delta}")
        found, _, why = evaluated(folder, "early.h5")
        check(found[-1] == end == attribute(state, "step"), f"patience {patience}: stopped after {found[-1]}, checkpoint {attribute(state, 'step')}, not {end}")
        check(why is not None and "eval/loss has not fallen below" in why, f"stopped_early is {why}")


def test_early_stopping_resumes(binary, folder):
    """A resumed training keeps its count of evaluations: it stops where the uninterrupted training
    stops, and stays stopped."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 60, seed=8, features=FEATURES)
    early = f"{EARLY} -early_stopping_patience 3"
    _, state = train(binary, folder, "whole", 2, f"{early} -steps 80")
    end = attribute(state, "step")
    train(binary, folder, "half", 2, f"{early} -steps {end - 3} -checkpoint_dir ckpt -checkpoint_every {end - 3}")
    _, other = train(binary, folder, "rest", 2, f"{early} -steps 80 -checkpoint_dir ckpt -checkpoint_every 1 -resume")
    check(attribute(other, "step") == end, f"stopped after {attribute(other, 'step')} updates, not {end}")
    check_same_tensors(other, state, "resumed")
    text = run(binary, 2, f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES} {early} -steps 80 -checkpoint_dir ckpt -resume", folder).text
    check("stopped early" in text and "trained on 0 samples" in text and "nan%" not in text, f"a stopped training went on: {text[-400:]}")


def test_checkpoint_best(binary, folder):
    """-checkpoint_best holds the weights of the best evaluation, by default by the loss, and not
    the last weights."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 60, seed=8, features=FEATURES)
    options = EARLY.replace("-early_stopping_metric loss", "")
    train(binary, folder, "run", 2, f"{options} -steps 20 -checkpoint_best best.h5")
    steps, losses, _ = evaluated(folder, "run.h5")
    best = int(np.argmin(losses))
    path = os.path.join(folder, "best.h5")
    check(attribute(path, "step") == steps[best] and best < len(losses) - 1, f"best.h5 is of step {attribute(path, 'step')}, losses {losses}")
    run(binary, 3, f"-task eval -data_eval eval.h5 -init_from best.h5 -batch_size 10 -output eval.h5.out {MODEL} {TABLES}", folder)
    _, again, _ = evaluated(folder, "eval.h5.out")
    check(abs(again[0] - losses[best]) <= 1e-5 * losses[best], f"the best weights' loss is {again[0]}, was {losses[best]}")
    # if a longer run continues a shorter one, it knows the shorter run's last evaluation
    for every in (2, 4):
        first = f"{options} -checkpoint_dir kept{every} -checkpoint_every {every} -eval_every 6 -checkpoint_best best{every}.h5"
        train(binary, folder, "part", 2, f"{first} -steps 6")
        train(binary, folder, "part", 2, f"{first} -steps 12 -resume -embedding_learning_rate 5 -dense_learning_rate 2")
        steps, losses, _ = evaluated(folder, "part.h5")
        check(steps.tolist() == [6, 12] and losses[1] > losses[0], f"evaluations after {steps}: {losses}")
        check(attribute(os.path.join(folder, f"best{every}.h5"), "step") == 6, "the best weights were replaced by worse ones")
    for data, wanted in (("-data_eval eval.h5", [6, 12]), ("", [6])):  # without -eval_every
        shutil.rmtree(os.path.join(folder, "longer"), ignore_errors=True)
        train(binary, folder, "long", 2, "-steps 6 -data_eval eval.h5 -checkpoint_dir longer -checkpoint_every 6 -existing_outputs replace")
        train(binary, folder, "long", 2, f"-steps 12 {data} -checkpoint_dir longer -checkpoint_every 6 -resume")
        check(evaluated(folder, "long.h5")[0].tolist() == wanted, f"evaluations after {evaluated(folder, 'long.h5')[0]}, expected {wanted}")
    text = run(binary, 1, f"-data_train train.h5 -batch_size 24 {MODEL} {TABLES} -steps 4 -data_eval eval.h5 -eval_every 2 -init_from longer/step-000000006.h5 -output other.h5", folder).text
    check(evaluated(folder, "other.h5")[0].tolist() == [14, 16] or "eval after step 0" not in text, f"an evaluation before the first step: {text}")


def test_data_types_convert(binary, folder):
    """A checkpoint of one data type can start tables of another type. Values are rounded to nearest
    as in numpy, and convert back without loss. One line reports it."""
    make(folder)
    still = "-steps 1 -dense_learning_rate 0 -embedding_learning_rate 0 -embedding_optimizer sgd -embedding_stochastic_rounding false"
    _, state = train(binary, folder, "wide", 2, f"{MIXED} -steps 5")
    before = {name: value for name, value in tensors(state).items() if name.endswith("/weight") and name.startswith("embedding/")}
    for ranks, plan in ((2, MIXED), (3, "-tables_sharding_types row_wise")):
        text = run(binary, ranks, f"-data_train train.h5 -batch_size 6 {MODEL} {TABLES} {still} {plan} -init_from wide.final.h5 -checkpoint_final half.h5 "
                   "-tables_data_type fp16 -table_word_data_type bf16", folder).text
        check("4 tables of another data type converted" in text, f"nothing said of the conversion:\n{text[-1500:]}")
        half = tensors(os.path.join(folder, "half.h5"))
        for name, value in before.items():
            found = half[name]
            if name == "embedding/word/weight":
                bits = value.view(np.uint32).astype(np.uint64)
                check(np.array_equal(found, ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)), f"/{name} is not the nearest bf16")
            else:
                check(same_bits(found, value.astype(np.float16)), f"/{name} is not the nearest fp16")
        train(binary, folder, "back", ranks, f"{plan} {still} -init_from half.h5")
        back = tensors(os.path.join(folder, "back.final.h5"))
        for name in before:
            wanted = half[name].astype(np.float32) if half[name].dtype == np.float16 else (half[name].astype(np.uint32) << 16).view(np.float32)
            check(same_bits(back[name], wanted), f"/{name} lost something on the way back")


def test_other_optimizer(binary, folder):
    """A resume with another optimizer's states is refused, even if names and shapes agree.
    -init_from takes only the weights and says so."""
    make(folder)
    train(binary, folder, "first", 2, f"{MIXED} -steps 4 -embedding_optimizer adagrad -checkpoint_dir ckpt -checkpoint_every 4")
    words = f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES} {MIXED} -steps 6"
    for optimizer in ("lars_sgd", "rowwise_adagrad"):
        text = run(binary, 2, f"{words} -embedding_optimizer {optimizer} -checkpoint_dir ckpt -resume", folder, status=64).text
        check(f"momentum1 is of optimizer adagrad, now it is {optimizer}" in text, text[-600:])
        text = run(binary, 2, f"{words} -embedding_optimizer {optimizer} -init_from first.final.h5 -checkpoint_final new.h5", folder).text
        check(f"is of optimizer adagrad, not {optimizer}: 4 states start at zero" in text, text[-1500:])
    _, state = train(binary, folder, "fresh", 2, f"{MIXED} -steps 1 -embedding_optimizer lars_sgd -embedding_learning_rate 0 -init_from first.final.h5")
    check(not any(np.any(value) for name, value in tensors(state).items() if name.endswith("momentum1")), "momentum of another optimizer was taken")
    text = run(binary, 2, f"{words} -embedding_optimizer adagrad -table_user_optimizer lion -checkpoint_dir ckpt -resume", folder, status=64).text
    check("ckpt/step-000000004.h5 lacks /embedding/user/exp_avg: its weights had another optimizer" in text, text[-1500:])
    text = run(binary, 2, f"{words} -embedding_optimizer sgd -checkpoint_dir ckpt -resume", folder, status=64).text
    check("ckpt/step-000000004.h5 holds /embedding/" in text and "/momentum1: its weights had another optimizer" in text, text[-1500:])
    text = run(binary, 2, f"{words} -embedding_optimizer adagrad -dense_optimizer adam -checkpoint_dir ckpt -resume", folder, status=64).text
    check(".h5 lacks /dense_optimizer/" in text and "exp_avg: its weights had another optimizer" in text, text[-1500:])
    train(binary, folder, "adam", 2, f"{MIXED} -steps 4 -dense_optimizer adam -checkpoint_dir dense -checkpoint_every 4")
    for optimizer, what in (("sgd", "holds /dense_optimizer/"), ("adagrad", "lacks /dense_optimizer/")):
        text = run(binary, 3, f"{words} -dense_optimizer {optimizer} -checkpoint_dir dense -resume", folder, status=64).text
        check(what in text and "had another optimizer" in text, text[-1500:])


def test_bad_ids_by_table(binary, folder):
    """Ids outside their tables are counted once for each table, in training, evaluation and
    prediction, beside bad numbers. Mode ignore prints no message, and fatal ends an evaluation."""
    make(folder, 48)
    path = os.path.join(folder, "train.h5")
    with h5py.File(path, "r+") as h:
        names = [name.decode() if isinstance(name, bytes) else name for name in h["sparse"].attrs["features"]]
        lengths, offsets, values = h["sparse/lengths"][()], h["sparse/offsets"][()], h["sparse/values"][()]
        wanted = {"user": [], "item": [], "tag": []}
        for feature, table, samples in (("user", "user", (11, 30)), ("shop", "item", (5, 6, 40)), ("tag", "tag", (2,))):
            f = names.index(feature)
            for sample in samples:
                at = offsets[sample] + lengths[sample, :f].sum()
                for i in range(at, at + lengths[sample, f]):
                    values[i] = 1000 + i
                    wanted[table].append((sample, feature, 1000 + i))
        h["sparse/values"][...] = values
    shared = f"-batch_size 8 {MODEL} {TABLES} -table_tag_bounds_check_mode ignore"
    words = f"-data_train train.h5 {shared} {MIXED} -epochs 2 -checkpoint_final final.h5"
    for what, ranks, options, passes in (("train", 2, words, 2), ("train", 3, words, 2), ("eval", 3, f"-task eval -data_eval train.h5 -init_from final.h5 {shared}", 1),
                                         ("predict", 2, f"-task predict -data_eval train.h5 -init_from final.h5 {shared}", 1)):
        text = run(binary, ranks, options, folder).text
        check(text.count("warning: step ") == (what == "train"), f"{what} on {ranks} ranks: {text.count('warning: step ')} steps warn, expected the first of a training")
        for table, found in wanted.items():
            lines = [line for line in text.splitlines() if f"warning: {what}: table {table}:" in line]
            check(len(lines) == (table != "tag" and len(found) > 0), f"{what} on {ranks} ranks: {len(lines)} lines on table {table}")
            for line in lines:
                sample, feature, number = min(found, key=lambda entry: entry[0])
                check(f" {passes * len(found)} ids outside" in line and f"the first is {number} of feature \"{feature}\" in sample {sample} " in line, f"{line}; expected {passes} * {found}")
    with h5py.File(path, "r+") as h:
        h["labels"][37] = 1.5
    warned = [line for line in run(binary, 2, f"{words} -data_check warning", folder).text.splitlines() if "warning: step " in line]
    check(len(warned) == 2 and " ids outside" in warned[0] and "step 2: 1 number of" in warned[1] and "a label that its loss cannot have" in warned[1], f"{warned}, expected the first step with bad ids, then that with a bad label")
    text = run(binary, 2, f"-task eval -data_eval train.h5 -init_from final.h5 {shared} -bounds_check_mode fatal", folder, status=65).text
    check('feature "shop" of sample 5 has id' in text or 'feature "user" of sample 11 has id' in text, text[-600:])


def test_bench_qcomm(binary, folder):
    """-bench_qcomm reports fewer bytes, and errors within the formats' limits. Runs in each
    precision have losses close to fp32's."""
    make(folder, 240)
    shared = f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES} {MIXED}"
    text = run(binary, 2, f"-task bench -bench_qcomm -bench_steps 5 {shared} -output bench.h5", folder).text
    with h5py.File(os.path.join(folder, "bench.h5")) as h:
        names = h.attrs["qcomm_precisions"].split(",")
        measured = {way: dict(zip(names, h[f"qcomm/{way}"][()])) for way in ("forward", "backward")}
    # bytes relative to fp32; half a step of the mantissa, relative to the mean and to the largest
    # number
    allowed = {"fp16": (0.5, 2**-11), "bf16": (0.5, 2**-8), "fp8 by 32": (0.3125, 2**-2), "int8": (0.3125, 1)}
    for way, rows in measured.items():
        for name, (size, half_step) in allowed.items():
            found, mean, most, zeroed = rows[name]
            check(abs(found - size) <= 0.01, f"{way} {name}: {found} of the bytes, expected {size}")
            check(0 < mean <= half_step and 0 < most <= half_step, f"{way} {name}: errors {mean}, {most}, the format allows {half_step}")
            check(zeroed < 0.05, f"{way} {name}: {zeroed:.1%} became 0")
            check(f"{way:<10} {name}" in text, f"no line of {way} {name}")
        check(abs(rows["fp8"][0] - 0.25) < 0.01, f"{way} fp8: {rows['fp8'][0]} of the bytes")
    wanted, _ = train(binary, folder, "fp32", 2, f"{MIXED} -epochs 2")
    for precision, tolerance in (("fp16", 1e-3), ("bf16", 5e-3), ("fp8 -qcomm_fp8_row_dim 32", 5e-2), ("int8", 5e-2)):
        found, _ = train(binary, folder, "other", 2, f"{MIXED} -epochs 2 -qcomm_forward_precision {precision} -qcomm_backward_precision {precision.split()[0]}")
        worst = np.max(np.abs(found - wanted) / wanted)
        check(0 < worst <= tolerance, f"{precision}: losses differ by {worst:.1e}, expected something up to {tolerance}")
