#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Records metrics of groups from TorchRec and scikit-learn: the expected numbers of unit/train/test_group_metrics.c.

  PEER_PYTHON tools/record_group_metrics_peer.py regression/golden/train/units_group_metrics.h5

It needs torch, torchrec, scikit-learn and h5py. Without ties the numbers are TorchRec's. With ties TorchRec's numbers depend on the order of the
samples. There the numbers are scikit-learn's (GAUC, NDCG), and means over every order of the ties (recall, hit rate, precision). TorchRec counts
groups without a positive as 0 in NDCG, and so do these numbers; the test divides by all groups to compare.
"""
import itertools
import sys
import warnings

import h5py
import numpy as np

from record_metrics_peer import NoFbgemm

AT = (1, 3, 10)


def draw(rng, groups, longest, ties, weighted):
    """Samples in a random order: fp32 predictions, labels 0 and 1, weights, groups of odd numbers."""
    names = rng.permutation(10 * groups)[:groups] * 1_000_003 - 3_000_000
    group = np.repeat(names, rng.integers(1, longest + 1, groups))
    group = group[rng.permutation(len(group))]
    n = len(group)
    p = (rng.integers(1, 4, n) / 4 if ties else (rng.permutation(n) + 0.5) / n).astype(np.float32)
    y = (rng.random(n) < 0.2 + 0.5 * p).astype(np.float32)
    w = (rng.integers(1, 9, n) / 4 if weighted else np.ones(n)).astype(np.float32)
    return p, y, w, group


def of_torchrec(p, y, w, group):
    import torch
    from torchrec.metrics import gauc, ndcg, precision_session, recall_session

    p, y, w, ids = (torch.from_numpy(x.astype(np.float64 if x.dtype == np.float32 else np.int64))[None] for x in (p, y, w, group))
    out, sums = {}, np.zeros(2)
    for one in np.unique(group):
        state = gauc.compute_gauc_3d(*(x[:, ids[0] == one][:, None] for x in (p, y, w)))
        sums += [float(state["auc_sum"]), float(state["num_samples"])]
    out["gauc"] = sums[0] / sums[1]
    for k in AT:
        if (w == 1).all():  # with weights TorchRec scales a group's NDCG by its largest weight
            state = ndcg._get_ndcg_states(labels=y, predictions=p, weights=w, session_ids=ids, exponential_gain=False, k=k, report_ndcg_as_decreasing_curve=False)
            out[f"ndcg_at_{k}"] = float(state["sum_ndcg"]) / float(state["num_sessions"][0])
        first = (recall_session.ranking_within_session(p, ids) < k).int()
        positive, other = recall_session._calc_num_true_pos(y, first, w), recall_session._calc_num_false_neg(y, first, w)
        out[f"recall_at_{k}"] = float(recall_session._calc_recall(positive, other))
        out[f"precision_at_{k}"] = float(precision_session._calc_precision(positive, precision_session._calc_num_false_pos(y, first, w)))
    return out


def of_orders(p, y, w, k):
    """For one group, means over every order of equal predictions: positive weight and weight of the first k, and whether they contain a positive."""
    blocks = [np.flatnonzero(p == value) for value in np.unique(p)[::-1]]
    sums, orders = np.zeros(3), 0
    for choice in itertools.product(*(itertools.permutations(block) for block in blocks)):
        first = np.concatenate([np.array(block) for block in choice])[:k]
        sums += [(w * y)[first].sum(), w[first].sum(), (w * y)[first].any()]
        orders += 1
    return sums / orders


def by_definition(p, y, w, group):
    from sklearn.metrics import log_loss, ndcg_score, roc_auc_score

    p, y, w = (x.astype(np.float64) for x in (p, y, w))
    rows = {"gauc": [], "group_ne": [], "group_mse": [], "group_mae": []}
    sums = {k: [] for k in AT}
    for one in np.unique(group):
        a, b, c = p[group == one], y[group == one], w[group == one]
        rows["group_mse"].append(np.average((a - b)**2, weights=c))
        rows["group_mae"].append(np.average(np.abs(a - b), weights=c))
        if 0 < b.sum() < len(b):
            rows["gauc"].append(roc_auc_score(b, a, sample_weight=c))
            rows["group_ne"].append(log_loss(b, a, sample_weight=c) / log_loss(b, np.full(len(b), np.average(b, weights=c)), sample_weight=c))
        for k in AT:
            ndcg = ndcg_score([b], [a], k=k) if b.any() and len(b) > 1 else float(b.any())
            sums[k].append(np.append(of_orders(a, b, c, k), [ndcg, b.any()]))
    out = {name: np.mean(values) for name, values in rows.items()}
    for k in AT:
        true, taken, hit, ndcg, positive = np.sum(sums[k], axis=0)
        out.update({f"recall_at_{k}": true / (w * y).sum(), f"precision_at_{k}": true / taken, f"hit_rate_at_{k}": hit / positive})
        if (w == 1).all():
            out[f"ndcg_at_{k}"] = ndcg / len(sums[k])
    return out


def main():
    sys.meta_path.insert(0, NoFbgemm())
    warnings.simplefilter("ignore")
    cases = {"plain": (40, 7, False, False), "weighted": (40, 7, False, True), "ties": (40, 5, True, False), "weighted_ties": (30, 5, True, True),
             "long": (6, 30, False, False)}
    with h5py.File(sys.argv[1], "w") as out:
        for seed, (name, shape) in enumerate(cases.items()):
            p, y, w, group = draw(np.random.default_rng(seed), *shape)
            expected = by_definition(p, y, w, group)
            if not shape[2]:
                theirs = of_torchrec(p, y, w, group)
                assert all(abs(expected[key] - value) < 1e-7 for key, value in theirs.items()), (name, expected, theirs)
                expected.update(theirs)
            for key, values in {"in/predictions": p, "in/labels": y, "in/weights": w, "in/group": group}.items():
                out[f"{name}/{key}"] = values
            for key, value in expected.items():
                out[f"{name}/out/{key}"] = np.array([value])


if __name__ == "__main__":
    main()
