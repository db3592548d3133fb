#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of runs and plans: the panels of plot_run.py, from results in memory and from files.

    plots.py FOLDER      exit status 77: this Python has no matplotlib
"""
import os
import shutil
import sys

FOLDER = os.path.abspath(sys.argv[1])
try:
    import h5py
    import matplotlib
except ImportError:
    print("skipped: matplotlib or h5py is missing")
    sys.exit(77)
matplotlib.use("svg")
import numpy as np

import trshard
import trshard.plots

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import trsdata

N = 400


def make_data():
    random = np.random.default_rng(5)
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    with trsdata.DatasetWriter(f"{FOLDER}/data.h5", ["user"], [30], 2) as data:
        data.append(random.random((N, 2), dtype=np.float32), random.integers(0, 2, N).astype(np.float32), np.ones((N, 1), np.int32), random.integers(0, 30, N))


def refused(call, text):
    try:
        call()
    except ValueError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no error, expected {text!r}")


make_data()
training = f"-device cpu -data_train {FOLDER}/data.h5 -data_eval {FOLDER}/data.h5 -tables_embedding_dim 4 -dense_arch 4 -over_arch 4,1 -batch_size 20 -eval_every 5"
own, named = trshard.run(training), trshard.run(training, output=f"{FOLDER}/run.h5")
one, other = trshard.plots.run(own), trshard.plots.run(named)
titles = [[axes.get_title(loc="left") for axes in picture.figure.axes] for picture in (one, other)]
assert titles[0] == titles[1] and "AUC" in titles[0] and len(titles[0]) > 4, titles
# the curve of the AUC has the numbers of the results
auc = next(axes for axes in one.figure.axes if axes.get_title(loc="left") == "AUC")
assert any(np.array_equal(line.get_ydata(), own.evaluations["auc"]) for line in auc.lines), [line.get_ydata() for line in auc.lines]
assert one._repr_png_().startswith(b"\x89PNG") and "AUC" in repr(one)
both = trshard.plots.run([own, f"{FOLDER}/run.h5"], labels=["first", "second"], panels=["AUC"])
assert [axes.get_title(loc="left") for axes in both.figure.axes] == ["AUC"]
assert {"first", "second"} <= {word.split(":")[0] for word in both.figure.axes[0].get_legend_handles_labels()[1]}, both.figure.axes[0].get_legend_handles_labels()
both.save(f"{FOLDER}/both.pdf")
assert os.path.getsize(f"{FOLDER}/both.pdf") > 1000
for plan in (own, own.plan):
    assert len(trshard.plots.plan(plan).figure.axes) > 2
refused(lambda: trshard.plots.run(own, panels=["no such"]), "there is no panel 'no such'")
refused(lambda: trshard.plots.run(f"{FOLDER}/absent.h5"), "absent.h5")
refused(lambda: trshard.plots.run(trshard.run("-task plan " + training)), "to draw")
own.save(f"{FOLDER}/copy.h5")
with h5py.File(f"{FOLDER}/copy.h5") as copy:
    assert np.array_equal(copy["train/loss"][()], own.losses) and copy["eval/auc"].shape == own["eval/auc"].shape
assert matplotlib.get_backend() == "svg"  # the program's choice
print("ok: pictures of runs and plans")
