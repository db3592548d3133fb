#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Records the output of TorchRec's RecMetrics during a training: the expected numbers of unit/train/test_running_metrics.c.

  PEER_PYTHON tools/record_metrics_peer.py record metrics.npz
  python3 tools/record_metrics_peer.py convert metrics.npz regression/golden/train/units_running_metrics.h5

The first command needs torch and torchrec, the second needs h5py, so they may run in different environments. Each group holds in/predictions
and in/labels [updates, global batch], the attributes window_size and compute_every, and out/<window_|lifetime_><metric> [rows]: the values
after every compute_every-th update.
"""
import argparse
import importlib.abc
import importlib.machinery
import sys
import types

import numpy as np

# name: updates, global batch, window, compute_every; the window holds whole batches, so TorchRec and trshard use the
# same samples
CASES = {"within": (6, 24, 240, 2), "slides": (30, 24, 96, 5), "one_batch": (9, 48, 48, 1), "wide": (12, 240, 720, 4), "rare": (16, 24, 72, 4)}


def draw(name, updates, batch, seed):
    """fp32 predictions without ties, and matching labels; `rare` has windows of one class."""
    rng = np.random.default_rng(seed)
    p = rng.permutation(updates * batch * 8)[:updates * batch].reshape(updates, batch)
    p = ((p + 0.5) / (updates * batch * 8)).astype(np.float32)
    y = (rng.random((updates, batch)) < (0.01 if name == "rare" else 0.15 + 0.6 * p)).astype(np.float32)
    return p, y


class Anything(type):
    """A class that has every attribute."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


class NoFbgemm(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Replaces fbgemm_gpu if it does not load, as with a build for another torch: metrics need no embedding kernels."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "fbgemm_gpu" else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: getattr(Anything("Anything", (), {}), name)
        return module

    def exec_module(self, module):
        pass


def metric_classes():
    from torchrec.metrics import accuracy, auc, auprc, calibration, ctr, mae, mse, ne

    return {"ne": ne.NEMetric, "auc": auc.AUCMetric, "auprc": auprc.AUPRCMetric, "accuracy": accuracy.AccuracyMetric,
            "calibration": calibration.CalibrationMetric, "ctr": ctr.CTRMetric, "mse": mse.MSEMetric, "mae": mae.MAEMetric}


def compute(p, y, window, every):
    import torch
    from torchrec.metrics.metrics_config import RecTaskInfo
    from torchrec.metrics.rec_metric import RecComputeMode

    task = RecTaskInfo(name="t", label_name="label", prediction_name="prediction", weight_name="weight")
    metrics = {name: kind(world_size=1, my_rank=0, batch_size=p.shape[1], tasks=[task], compute_mode=RecComputeMode.UNFUSED_TASKS_COMPUTATION,
                          window_size=window) for name, kind in metric_classes().items()}
    rows = {}
    for update in range(len(p)):
        for metric in metrics.values():
            metric.update(predictions={"t": torch.from_numpy(p[update])}, labels={"t": torch.from_numpy(y[update])},
                          weights={"t": torch.ones(p.shape[1])})
        if (update + 1) % every:
            continue
        for metric in metrics.values():
            for key, value in metric.compute().items():
                rows.setdefault(key.split("|")[1], []).append(float(value))
    return rows


def record(path):
    sys.meta_path.insert(0, NoFbgemm())
    arrays = {}
    for seed, (name, (updates, batch, window, every)) in enumerate(CASES.items()):
        p, y = draw(name, updates, batch, seed)
        arrays.update({f"{name}/in/predictions": p, f"{name}/in/labels": y})
        arrays.update({f"{name}/out/{key}": np.array(values) for key, values in compute(p, y, window, every).items()})
    np.savez(path, **arrays)


def convert(path, output):
    import h5py

    with np.load(path) as arrays, h5py.File(output, "w") as out:
        for key in arrays.files:
            out[key] = arrays[key]
        for name, (_, _, window, every) in CASES.items():
            out[name].attrs["window_size"], out[name].attrs["compute_every"] = window, every


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("record", "convert"))
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    (record if args.step == "record" else convert)(*args.files)


if __name__ == "__main__":
    main()
