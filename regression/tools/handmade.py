# SPDX-License-Identifier: BSD-3-Clause
"""A plan and a run made by hand, for the tests of the tools that show them."""
import contextlib
import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import types
import unittest
import unittest.mock

import h5py
import numpy as np

import scratch
import trsread

TOOLS = os.path.dirname(trsread.__file__)
PARTS = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "prefetch_compute")
GIB = 1 << 30


def process(name, *arguments):
    """Run the tool as a user would."""
    return subprocess.run([sys.executable, os.path.join(TOOLS, name), *arguments], capture_output=True, text=True, check=False)


def tool(name, *arguments):
    """Run the tool in this process, which avoids an interpreter's start: returncode, stdout,
    stderr."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with unittest.mock.patch.object(sys, "argv", [name, *arguments]), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            importlib.import_module(name[:-len(".py")]).main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
            err.write("" if isinstance(end.code, int) else f"{end.code}\n")
    return types.SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


@contextlib.contextmanager
def changed(path):
    """Change a file as a training does: a new one replaces it, so that a program may be reading it
    meanwhile."""
    copy = shutil.copy(path, path + ".new")
    with h5py.File(copy, "a") as h:
        yield h
    os.replace(copy, path)


def shard(rank, offset, size, hbm, *ms, ddr=0):
    return {"rank": rank, "offset": offset, "size": size, "storage": {"hbm": hbm, "ddr": ddr}, "perf": dict(zip(PARTS, (*ms, 0, 0, 0, 0, 0)))}


def make_plan(world=4, local=2, tables=None, capacity=(80 * GIB, 0), critical_path=None):
    """Table a is whole on rank 1, and b has rows on all ranks. The critical path is computed by
    hand: 1.5 + (0.4 + 0.2) + (0.3 + 0.1) + 2.5."""
    whole = shard(1, [0, 0], [1000, 16], 3 * GIB, 1.0, 0.4, 2.0, 0.3)
    rows = [shard(r, [10 * r, 0], [10, 16], GIB, 0.5, 0.2, 0.5, 0.1) for r in range(world)]
    tables = tables or [("a <b>&\"$x$", "table_wise", [whole]), ("b", "row_wise", rows)]
    devices = []
    for r in range(world):
        device = {"rank": r, "storage": {"hbm": 0, "ddr": 0}, "perf": dict.fromkeys(PARTS, 0.0)}
        if capacity:
            device.update(capacity={"hbm": capacity[0], "ddr": capacity[1]}, available={"hbm": capacity[0] * 3 // 4, "ddr": capacity[1]})
        devices.append(device)
    return {"format": "trshard-plan", "version": 1, "world_size": world, "local_world_size": local,
            "tables": [{"name": name, "module": "ebc", "sharding_type": kind, "compute_kernel": "fused", "ranks": [s["rank"] for s in shards], "shards": shards}
                       for name, kind, shards in tables],
            "devices": devices, "critical_path": 5.0 if critical_path is None else critical_path, "proposals": 1, "feasible": 1, "partitioned": 1}


class Scratch(scratch.Scratch):
    def plan_file(self, plan, name="plan.json"):
        with open(self.path(name), "w", encoding="utf-8") as out:
            out.write(plan if isinstance(plan, str) else json.dumps(plan))
        return self.path(name)

    def run_file(self, name="run.h5", starts=2, evaluations=True, **attributes):
        """40 steps of 100 samples at 50 samples/s: 2 s a step. The second start continues at step
        25, a day later."""
        with h5py.File(self.path(name), "w") as h:
            h.attrs["format"] = "trshard-run"
            h.attrs["world_size"] = 2
            h.attrs["run_id"] = "0123456789abcdef"
            h.attrs["options"] = "# trshard 1.0.0 (x)\n-data_train <b>a&b.h5</b> # command line\n-batch_size 50 # run.opts\n-trace " + self.path("trace.json") + " # command line\n# defaults\n# -task train\n"
            h.attrs["plan"] = json.dumps(make_plan())
            for key, value in attributes.items():
                h.attrs[key] = value
            h["train/step"] = np.arange(40)
            h["train/loss"] = np.linspace(0.7, 0.5, 40)
            h["train/samples_per_s"] = np.full(40, 50.0)
            h["train/dense_learning_rate"] = h["train/embedding_learning_rate"] = np.linspace(0.1, 0.01, 40)
            if evaluations:
                h["eval/step"], h["eval/loss"], h["eval/auc"], h["eval/ne"] = [20, 40], [0.61, 0.55], [0.7, 0.8125], [0.9, np.nan]
            for column, values in (("time", [1e9, 1e9 + 86400]), ("elapsed_s", [100.0, 40.0]), ("first_step", [0, 25]), ("steps", [25, 15]), ("ranks", [4, 2]), ("hosts", [1, 1]),
                                   ("global_batch", [100, 100])):
                h["starts/" + column] = np.array(values[:starts])
            h["starts/commit"] = np.array(["abc"] * starts, dtype=h5py.string_dtype())
            h.attrs["stage_names"], h.attrs["predicted_names"] = "lookup,dense forward", "fwd_compute,fwd_comms,bwd_compute,bwd_comms,prefetch_compute,dense_forward; hbm,ddr"
            h["stages/measured_ms"] = [[1.25, 3.0], [0.75, 5.0]]
            h["stages/predicted_ms"] = [[0.5, 0, 0, 0, 0, 0], [0.75, 0, 0, 0, 0, 0]]
            h.attrs["held_names"] = "tables,libraries_and_rest"
            h["memory/held_bytes"] = [[1024.0, 4096.0], [2048.0, 4096.0]]
            h["memory/predicted_bytes"] = [[0.0, 1000.0], [0.0, 2000.0]]
        return self.path(name)

    def ids_file(self, name="ids.h5", tables=("user", "item")):
        """A run with rows of ids after steps 10, 20, 25 and 40; the second start began at step 25.
        Table k has 1000 lookups in each row, and 100, 300, 50 and 150 of them had no row, k times."""
        with h5py.File(self.run_file(name), "a") as h:
            h["ids/step"] = [10, 20, 25, 40]
            for k, table in enumerate(tables, 1):
                for column, values in (("rows", [999] * 4), ("held", [500, 999, 999, 990]), ("given", [500, 600, 100, 6]), ("taken", [0, 101, 100, 15]), ("young", [0, 0, 2, 0]),
                                       ("youngest", [-1, 7, 1, 3]), ("lookups", [1000] * 4), ("unknown", [100 * k, 300 * k, 50 * k, 150 * k]), ("refused", [0] * 4), ("dropped", [0, 0, 0, 40]),
                                       ("bytes", [24000] * 4)):
                    h[f"ids/{table}_{column}"] = np.array(values, np.int64)
                h[f"ids/{table}_unknown_share"] = h[f"ids/{table}_unknown"][()] / 1000
        return self.path(name)

    def refuse(self, words, name, *arguments, start=tool):
        """The tool prints one line with this text, and ends with exit code 1."""
        result = start(name, *arguments)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        self.assertIn(words, result.stderr)
        self.assertTrue(result.stderr.startswith(name + ": "), result.stderr)

    def draws(self, name, *arguments, output="out.png", magic=b"\x89PNG\r\n\x1a\n", start=tool):
        result = start(name, *arguments, "-o", self.path(output))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open(self.path(output), "rb") as image:
            self.assertTrue(image.read(16).startswith(magic))
