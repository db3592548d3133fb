#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Records TorchRec's SegmentedNEMetric: the expected numbers of segments in unit/train/test_group_metrics.c.

  PEER_PYTHON tools/record_segmented_ne_peer.py regression/golden/train/units_segmented_ne.h5

It needs torch, torchrec and h5py. Each group holds in/predictions, labels, weights and group [samples], the attributes
num_groups and window, and out/lifetime and out/window [num_groups]: NE of all samples, and of the last `window`. A segment
without samples is NaN. A segment of a single class has a mean label of 1e-12 or 1 - 1e-12, and therefore a very large NE.
"""
import sys

import h5py
import numpy as np

from record_metrics_peer import NoFbgemm

BATCH = 24
# name: batches, segments, batches of the window, weights, and the segments that no sample has
CASES = {"few": (8, 3, 2, False, ()), "weighted": (10, 5, 4, True, ()), "with_empty": (6, 7, 3, True, (0, 4)), "many": (20, 40, 10, False, (39,)),
         "one": (3, 1, 1, False, ())}


def draw(seed, batches, segments, weighted, empty):
    """fp32 predictions without ties, matching labels, weights, groups; samples of group 1 are all negative."""
    rng, n = np.random.default_rng(seed), batches * BATCH
    p = ((rng.permutation(n) + 0.5) / n).astype(np.float32)
    group = rng.choice(np.setdiff1d(np.arange(segments), empty), n).astype(np.int64)
    y = ((rng.random(n) < 0.2 + 0.5 * p) & (group != 1)).astype(np.float32)
    return p, y, (rng.integers(1, 9, n) / 4 if weighted else np.ones(n)).astype(np.float32), group


def of_torchrec(p, y, w, group, segments, window):
    import torch
    from torchrec.metrics.metrics_config import RecTaskInfo
    from torchrec.metrics.rec_metric import RecComputeMode
    from torchrec.metrics.segmented_ne import SegmentedNEMetric

    task = RecTaskInfo(name="t", label_name="label", prediction_name="prediction", weight_name="weight")
    metric = SegmentedNEMetric(world_size=1, my_rank=0, batch_size=BATCH, tasks=[task], compute_mode=RecComputeMode.FUSED_TASKS_COMPUTATION,
                               window_size=window, num_groups=segments, grouping_keys="group")
    for first in range(0, len(p), BATCH):
        one = [torch.from_numpy(x[first:first + BATCH])[None] for x in (p, y, w)]
        metric.update(predictions=one[0], labels=one[1], weights=one[2], required_inputs={"group": torch.from_numpy(group[first:first + BATCH])})
    values = {key.split("|")[1]: float(value) for key, value in metric.compute().items()}
    return [np.array([values[f"{prefix}_segmented_ne_{i}"] for i in range(segments)]) for prefix in ("lifetime", "window")]


def main():
    sys.meta_path.insert(0, NoFbgemm())
    with h5py.File(sys.argv[1], "w") as out:
        for seed, (name, (batches, segments, window, weighted, empty)) in enumerate(CASES.items()):
            samples = draw(seed, batches, segments, weighted, empty)
            found = of_torchrec(*samples, segments, window * BATCH)
            for key, values in zip(("in/predictions", "in/labels", "in/weights", "in/group", "out/lifetime", "out/window"), (*samples, *found)):
                out[f"{name}/{key}"] = values
            out[name].attrs["num_groups"], out[name].attrs["window"] = np.int64(segments), np.int64(window * BATCH)


if __name__ == "__main__":
    main()
