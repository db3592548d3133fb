# SPDX-License-Identifier: BSD-3-Clause
"""The program's metrics, for a training loop of one's own.

    metrics = trshard.metrics.Metrics(ebc)
    for ...:
        metrics.update(probabilities, labels)       # of this rank's samples
    print(metrics.compute()["auc"])                 # over all ranks' samples
"""
from typing import Any, Dict, List, Optional

import numpy as np
import numpy.typing as npt

import trshard

from .ranks import Ranks

Doubles = npt.NDArray[np.float64]
LEAST = 1e-12  # probabilities are at least this far from 0 and 1 in logarithms, as in TorchRec


def _entropy(p: Any, labels: Doubles, weights: Doubles) -> float:
    p = np.clip(p, LEAST, 1 - LEAST)
    return float(-(weights * (labels * np.log(p) + (1 - labels) * np.log1p(-p))).sum())


def _curve(predictions: Doubles, labels: Doubles, weights: Doubles) -> Any:
    """Weights of positives and of negatives at or above each distinct prediction, from the largest on."""
    order = np.argsort(-predictions, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(predictions[order]) != 0, True))
    return np.cumsum((weights * labels)[order])[ends], np.cumsum((weights * (1 - labels))[order])[ends]


class Metrics:
    """Metrics of probabilities over all ranks' samples since the last reset(): the columns of /eval in input/FORMAT.md.

    of: a collection or an mpi4py communicator whose ranks take part; None: MPI_COMM_WORLD
    """

    def __init__(self, of: Any = None) -> None:
        self._ranks = Ranks(of._comm if isinstance(of, trshard.EmbeddingBagCollection) else trshard._communicator(of))
        self._parts: List[Any] = []

    def reset(self) -> None:
        """Forget all samples, for example at the begin of a window."""
        self._parts = []

    def update(self, predictions: Any, labels: Any, weights: Optional[Any] = None) -> None:
        """Add samples of this rank: probabilities, labels in [0, 1], and weights, which are 1 by default. Arrays or CPU tensors."""
        parts = [np.asarray(given.detach() if hasattr(given, "detach") else given, np.float64).reshape(-1) for given in (predictions, labels)]
        parts.append(np.ones(parts[0].size) if weights is None else np.asarray(weights.detach() if hasattr(weights, "detach") else weights, np.float64).reshape(-1))
        if len({part.size for part in parts}) > 1:
            raise ValueError(f"predictions, labels and weights have {', '.join(str(part.size) for part in parts)} elements, expected equal numbers")
        if parts[0].size and not (0 <= parts[0].min() and parts[0].max() <= 1 and 0 <= parts[1].min() and parts[1].max() <= 1):
            raise ValueError("predictions and labels must be between 0 and 1")
        self._parts.append(parts)

    def compute(self) -> Dict[str, float]:
        """loss (cross entropy), auc, auprc, ne, accuracy, calibration, ctr, mse, rmse, mae and samples. Collective."""
        own = [np.concatenate([part[i] for part in self._parts]) if self._parts else np.zeros(0) for i in range(3)]
        p, y, w = (self._ranks.gather(part) for part in own)
        total = w.sum()
        if not total > 0:
            return {name: float("nan") for name in ("loss", "auc", "auprc", "ne", "accuracy", "calibration", "ctr", "mse", "rmse", "mae")} | {"samples": float(len(p))}
        positive, negative = _curve(p, y, w)
        mean, entropy = float((w * y).sum() / total), _entropy(p, y, w)
        steps, before = np.diff(np.append(0, positive)), np.append(0, positive[:-1])
        area = float((np.diff(np.append(0, negative)) * (before + positive) / 2).sum())
        found = {"loss": entropy / total, "ctr": mean, "ne": entropy / _entropy(mean, y, w), "calibration": float((w * p).sum() / (w * y).sum()) if mean else float("nan"),
                 "auc": area / (positive[-1] * negative[-1]) if positive[-1] > 0 and negative[-1] > 0 else 0.5,
                 "auprc": float((steps * positive / np.maximum(positive + negative, 1e-300)).sum() / positive[-1]) if positive[-1] > 0 else 0.0,
                 "accuracy": float((w * ((p >= 0.5) == (y >= 0.5))).sum() / total), "mse": float((w * (p - y)**2).sum() / total), "mae": float((w * abs(p - y)).sum() / total)}
        return {name: float(value) for name, value in {**found, "rmse": found["mse"]**0.5, "samples": len(p)}.items()}
