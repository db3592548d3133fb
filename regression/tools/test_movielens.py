# SPDX-License-Identifier: BSD-3-Clause
"""tools/convert_movielens.py on the real data. Exit 77 (skipped) if PyPI cannot be reached.

The expected numbers come with the reference results of TorchRec on this data. The program that
prepared the data there counted them; it was written independently of the converter.
"""
import os
import subprocess
import sys
import tempfile

import h5py
import numpy as np

import convert_movielens

EXPECTED = {
    "train": (80367, 46025, 2071132, 957173544, [80367, 80367, 1269212, 172032, 80367, 80367, 80367, 228053],
              [-174.000, -20157.500, 79043.942, -15848.571, 24106.322, 103018.013, 103335.179]),
    "eval": (19633, 9350, 576611, 282825972, [19633, 19633, 381467, 40563, 19633, 19633, 19633, 56416],
             [-77.250, -2346.800, 22855.844, -2401.394, 6139.516, 32366.833, 24215.839]),
}

with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, convert_movielens.__file__, "--output-dir", folder, "--wheel-dir", os.environ["TRSHARD_DATA"]]
    code = subprocess.run(command, check=False).returncode
    if code == convert_movielens.EXIT_UNREACHABLE:
        sys.exit(77)
    assert code == 0, code
    for part, (samples, positive, ids, total, lengths, dense) in EXPECTED.items():
        with h5py.File(os.path.join(folder, f"ml100k_{part}.h5")) as h:
            assert h.attrs["format"] == "trshard-dataset" and h.attrs["version"] == 1
            assert h.attrs["num_samples"] == samples == h["labels"].shape[0]
            assert h["labels"][()].sum(dtype=np.float64) == positive
            values, found = h["sparse/values"][()], h["sparse/lengths"][()]
            assert len(values) == ids and values.sum(dtype=np.int64) == total
            assert found.sum(axis=0).tolist() == lengths
            assert np.array_equal(h["sparse/offsets"][()], np.concatenate([[0], np.cumsum(found.sum(axis=1, dtype=np.int64))]))
            sums = h["dense"][()].astype(np.float64).sum(axis=0)
            assert np.abs(sums - dense).max() <= 0.00051, sums
            assert list(h["sparse"].attrs["num_embeddings"]) == [944, 1683, 1683, 20, 22, 3, 1001, 3001]
    subprocess.run([sys.executable, os.path.join(os.path.dirname(convert_movielens.__file__), "inspect_file.py"), "--check",
                    os.path.join(folder, "ml100k_train.h5"), os.path.join(folder, "ml100k_eval.h5")], check=True)
