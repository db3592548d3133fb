# SPDX-License-Identifier: BSD-3-Clause
"""trsread, plot_plan and plot_run on plans and runs made by hand, and on invalid files."""
import os
import unittest

import h5py
import numpy as np

import handmade
import trscurves
import trsread


class Plans(handmade.Scratch):
    def test_numbers(self):
        plan = trsread.Plan(handmade.make_plan(), "plan")
        self.assertEqual((plan.memory("hbm") / handmade.GIB).tolist(), [1, 4, 1, 1])
        self.assertEqual(plan.slowest(5), [0, 1])
        self.assertEqual((plan.rows, plan.dims, plan.hosts), ([1000, 40], [16, 16], 2))
        self.assertTrue(np.allclose(plan.time(), [1.3, 5.0, 1.3, 1.3]))
        parts = plan.critical_parts()
        self.assertEqual([(p["name"], p["rank"]) for p in parts],
                         [("forward compute", 1), ("forward exchange row_wise", 0), ("forward exchange table_wise", 1), ("backward exchange row_wise", 0), ("backward exchange table_wise", 1),
                          ("backward compute", 1)])
        self.assertTrue(np.allclose([p["ms"] for p in parts], [1.5, 0.2, 0.4, 0.1, 0.3, 2.5]))
        self.assertEqual(parts[0]["tables"][0][0], "a <b>&\"$x$")
        # parts whose sum is wrong are not shown
        self.assertIsNone(trsread.Plan(handmade.make_plan(critical_path=6.0), "plan").critical_parts())
        self.assertEqual(plan.fullest("hbm"), (1, 4 / 60))
        old = trsread.Plan(handmade.make_plan(capacity=None), "plan")
        self.assertEqual((old.capacity, old.fullest("hbm")), (None, (1, None)))

    def test_texts(self):
        self.assertEqual([trsread.bytes_text(b) for b in (0, 12, 1024, 1.5 * handmade.GIB)], ["0 bytes", "12 bytes", "1 KiB", "1.5 GiB"])
        self.assertEqual([trsread.count_text(n) for n in (7, 1234, 999999, 2.5e9)], ["7", "1.23k", "1M", "2.5G"])
        self.assertEqual([trsread.ms_text(t) for t in (0, 0.0125, 3.25, 1500)], ["0 ms", "12.5 µs", "3.25 ms", "1.5 s"])
        self.assertEqual([trsread.ranks_text(r, 8) for r in ([3], [0, 1, 2, 5], range(8))], ["3", "0-2, 5", "all"])

    def test_pictures(self):
        self.draws("plot_plan.py", self.plan_file(handmade.make_plan()), start=handmade.process)
        self.draws("plot_plan.py", self.plan_file(handmade.make_plan()), "--order", "time", "--top", "1")
        self.draws("plot_plan.py", self.plan_file(handmade.make_plan(capacity=None)), output="old.png")
        self.draws("plot_plan.py", self.plan_file(handmade.make_plan(capacity=(3 << 40, 0))), output="new/far.svg", magic=b"<?xml")
        self.draws("plot_plan.py", self.plan_file(handmade.make_plan(1, 1, [("only", "table_wise", [handmade.shard(0, [0, 0], [1, 1], 0, ddr=5)])], None, 0)))
        self.draws("plot_plan.py", self.plan_file(handmade.make_plan(1024, 8)), output="1024.png")
        self.draws("plot_plan.py", self.plan_file(handmade.make_plan(100, 100)), output="100.png")
        # the last host has two ranks
        self.draws("plot_plan.py", self.plan_file(handmade.make_plan(66, 4)), output="66.png")

    def test_refusals(self):
        self.refuse("cannot be read", "plot_plan.py", self.path("none.json"), start=handmade.process)
        self.refuse("cannot be read", "plot_plan.py", self.folder)
        for text, words in (("", "is not JSON"), ("[", "is not JSON"), ("[" * 100000, "is not JSON"), ("[]", "is not a plan"), ("{\"format\": 3}", "is not a plan"),
                            ("{\"format\": \"trshard-plan-error\", \"error_type\": \"OTHER\", \"message\": \"why\"}", "no plan (OTHER): why")):
            self.refuse(words, "plot_plan.py", self.plan_file(text))
        self.refuse("is not JSON", "plot_plan.py", self.run_file())
        for words, change in (("devices", lambda p: p["devices"].pop()), ("rank is 9, of 4", lambda p: p["tables"][0]["shards"][0].update(rank=9)),
                              ("tables[1].shards[2].perf has no field \"bwd_comms\"", lambda p: p["tables"][1]["shards"][2]["perf"].pop("bwd_comms")),
                              ("no size or time", lambda p: p["tables"][0]["shards"][0]["storage"].update(hbm=10**400)),
                              ("no size or time", lambda p: p.update(critical_path=float("nan"))), ("is not a number", lambda p: p.update(world_size="4")),
                              ("has no field \"available\"", lambda p: p["devices"][2].pop("available")), ("neither memory nor time", lambda p: p.update(tables=[])),
                              ("is not [row, column]", lambda p: p["tables"][0]["shards"][0].update(size=[1]))):
            plan = handmade.make_plan()
            change(plan)
            self.refuse(words, "plot_plan.py", self.plan_file(plan))
        self.refuse("cannot be written", "plot_plan.py", self.plan_file(handmade.make_plan()), "-o", self.path("x.nonsense"))
        self.refuse("cannot be written", "plot_plan.py", self.plan_file(handmade.make_plan()), "-o", os.path.join(self.plan_file(handmade.make_plan()), "x.png"))


class Runs(handmade.Scratch):
    def test_wall_times(self):
        """Steps of 2 s end when the start had run for 100 s, and for 40 s."""
        run = trsread.read_run(self.run_file())
        times = run.wall_times()
        np.testing.assert_allclose(times[:25], 1e9 + 100 - 2 * np.arange(24, -1, -1), rtol=0, atol=1e-3)
        np.testing.assert_allclose(times[25:], 1e9 + 86400 + 40 - 2 * np.arange(14, -1, -1), rtol=0, atol=1e-3)
        self.assertEqual(run.times_at([20, 40]).tolist(), times[[19, 39]].tolist())
        self.assertEqual(run.options()[0], ("-data_train", "<b>a&b.h5</b>", "command line"))
        self.assertEqual(run.options()[-1], ("-task", "train", "default"))

    def test_pictures(self):
        a, b = self.run_file("a.h5"), self.run_file("_b$.h5", starts=1, evaluations=False)
        self.draws("plot_run.py", a, start=handmade.process)
        self.draws("plot_run.py", b)
        self.draws("plot_run.py", a, a, b)
        self.draws("plot_run.py", a, "--panel", "loss")
        self.assertIn("--panel AUD: the runs have loss", handmade.tool("plot_run.py", a, "--panel", "AUD", "-o", self.path("no.png")).stderr)
        # an evaluation of several tasks: probabilities, numbers, and probabilities of three classes
        with h5py.File(self.path("tasks.h5"), "w") as h:
            h.attrs.update(format="trshard-run", options="-tasks click,price,kind\n")
            h["eval/step"], h["eval/loss"], h["eval/click_auc"] = [40], [1.5], [0.75]
            h["predictions/click"], h["predictions/price"], h["predictions/kind"] = np.linspace(0.1, 0.9, 50), np.linspace(-3, 40, 50), np.full((50, 3), 1 / 3)
        self.assertEqual(len(trscurves.curve_panels([trsread.read_run(self.path("tasks.h5"))], trscurves.styles_of(["tasks"]))), 3)
        with h5py.File(self.path("tasks.h5"), "a") as h:
            h["metrics/step"], h["metrics/click_window_gauc"], h["metrics/price_window_gauc"] = [20, 40], [0.5, 0.75], [np.nan, np.nan]
        # without a curve if there is no number
        self.assertEqual(len(trscurves.curve_panels([trsread.read_run(self.path("tasks.h5"))], trscurves.styles_of(["tasks"]))), 4)
        # of -metrics_at 5: NDCG and recall each have a picture, the hit rate has none
        with h5py.File(self.path("tasks.h5"), "a") as h:
            h["metrics/click_window_ndcg_at_5"] = h["metrics/price_window_recall_at_5"] = h["metrics/price_window_hit_rate_at_5"] = [0.25, 0.5]
        self.assertEqual(len(trscurves.curve_panels([trsread.read_run(self.path("tasks.h5"))], trscurves.styles_of(["tasks"]))), 6)
        # numbers have a calibration, and beside it their error
        with h5py.File(self.path("tasks.h5"), "a") as h:
            h["metrics/price_window_calibration"], h["metrics/price_window_mse"], h["metrics/price_window_ne"] = [0.9, 1.1], [2, 1], [np.nan, np.nan]
        self.assertEqual(len(trscurves.curve_panels([trsread.read_run(self.path("tasks.h5"))], trscurves.styles_of(["tasks"]))), 8)
        with h5py.File(self.path("tasks.h5"), "a") as h:  # a panel has all K
            for k in (1, 2, 10):
                h[f"metrics/click_window_ndcg_at_{k}"] = [0.25, 0.5]
        self.assertEqual(len(trscurves.curve_panels([trsread.read_run(self.path("tasks.h5"))], trscurves.styles_of(["tasks"]))), 8)
        self.draws("plot_run.py", self.path("tasks.h5"))
        self.draws("plot_run.py", a, self.path("tasks.h5"))

    def test_ids(self):
        """Four panels of tables that keep ids. Rows taken are those of a step, since the last row or the start."""
        run, styles = trsread.read_run(self.ids_file()), trscurves.styles_of(["run"])
        self.assertEqual(run.id_tables(), ["item", "user"])
        panels = {}
        for title, unit, curve in trscurves.OF_IDS:
            _, axes = trscurves.plt.subplots()
            trscurves.draw_ids(axes, [run], styles, title, unit, curve)
            panels[title] = [line.get_ydata().tolist() for line in axes.lines[:2]]
            self.assertEqual(axes.lines[0].get_xdata().tolist(), [10, 20, 25, 40])
            trscurves.plt.close()
        # item comes first: its last share is the larger one
        np.testing.assert_allclose(panels["lookups of ids without a row"], [[20, 60, 10, 30], [10, 30, 5, 15]])
        np.testing.assert_allclose(panels["rows in use"], np.array([[500, 999, 999, 990]] * 2) / 9.99)
        np.testing.assert_allclose(panels["rows taken from ids"], [[0, 10.1, 20, 1]] * 2)
        np.testing.assert_array_equal(panels["age of the youngest row taken"], [[np.nan, 7, 1, 3]] * 2)
        plain = len(trscurves.curve_panels([trsread.read_run(self.run_file())], styles))
        self.assertEqual(len(trscurves.curve_panels([run], styles)), plain + 4)
        many = trsread.read_run(self.ids_file("many.h5", [f"t{i}" for i in range(9)]))
        _, axes = trscurves.plt.subplots()
        trscurves.draw_ids(axes, [many], styles, *trscurves.OF_IDS[0])
        self.assertIn("and 3 tables more", [line.get_label() for line in axes.lines])
        self.draws("plot_run.py", self.path("ids.h5"), self.path("many.h5"), self.run_file())

    def test_many_runs(self):
        """Panels keep their size beside the legends of twelve runs. The legends are no wider than a
        panel."""
        runs, styles = [trsread.read_run(self.run_file())] * 12, trscurves.styles_of([f"a run with a name of many letters {i}" for i in range(12)])
        figure = trscurves.compose(trscurves.curve_panels(runs, styles) + trscurves.cost_panels(runs, styles))
        figure.canvas.draw()
        for panel in figure.axes:
            self.assertGreater(panel.get_window_extent().height / figure.dpi, 2.2, panel.get_title("left"))
            self.assertLess(panel.get_legend().get_window_extent().width / figure.dpi, 5.6, panel.get_title("left"))

    def test_steps(self):
        """A loss is drawn at its step's metrics, after the update."""
        _, axes = trscurves.plt.subplots()
        trscurves.draw_loss(axes, [trsread.read_run(self.run_file())], trscurves.styles_of(["run"]), None)
        self.assertEqual(axes.lines[0].get_xdata()[[0, -1]].tolist(), [1, 40])

    def test_one_rank(self):
        """The bar of a single rank is at 0, and no fraction of a rank has a label."""
        with h5py.File(self.run_file("one.h5"), "r+") as h:
            del h["memory/held_bytes"], h["memory/predicted_bytes"]
            h["memory/held_bytes"] = [[1024.0, 4096.0]]
        _, axes = trscurves.plt.subplots()
        trscurves.draw_memory(axes, [trsread.read_run(self.path("one.h5"))], trscurves.styles_of(["one"]))
        low, high = axes.get_xlim()
        self.assertEqual([tick for tick in axes.get_xticks() if low <= tick <= high], [0])

    def test_starts(self):
        """If several starts begin at one step, the last of them has a line, in panels where the run
        has a curve."""
        with h5py.File(self.run_file("a.h5"), "r+") as h:
            for name, values in {name: h["starts"][name][()][[0, 1, 1]] for name in h["starts"]}.items():
                del h["starts"][name]
                h["starts"][name] = [2, 2, 1] if name == "ranks" else values
        runs = [trsread.read_run(self.path("a.h5"))]
        _, axes = trscurves.plt.subplots()
        trscurves.draw_starts(axes, runs[0], trscurves.styles_of(["a"])[0], words=True)
        self.assertEqual([text.get_text() for text in axes.texts], ["start 3: 1 rank"])
        self.assertEqual([list(line.get_xdata()) for line in axes.lines], [[25, 25]])
        _, axes = trscurves.plt.subplots()
        trscurves.draw_metric(axes, runs, trscurves.styles_of(["a"]), "click_", "auc", "AUC")
        self.assertFalse(axes.lines)

    def test_steps_are_whole(self):
        """A short run has its metrics at one step, which is the axis' only label."""
        with h5py.File(self.path("short.h5"), "w") as h:
            h.attrs["format"] = "trshard-run"
            h["metrics/step"], h["metrics/window_auc"] = [14], [0.5]
        _, axes = trscurves.plt.subplots()
        trscurves.draw_metric(axes, [trsread.read_run(self.path("short.h5"))], trscurves.styles_of(["short"]), "", "auc", "AUC")
        low, high = axes.get_xlim()
        self.assertEqual([x for x in axes.get_xticks() if low <= x <= high], [14])

    def test_latency(self):
        """The curve rises from 0 to 100 %, also for a prediction of one batch."""
        with h5py.File(self.path("one.h5"), "w") as h:
            h.attrs.update(format="trshard-run", options="-task predict\n")
            h["predictions"], h["predict/latency_ms"] = np.linspace(0.1, 0.9, 50), [106.0]
            h["predict/percentiles"], h["predict/latency_percentiles_ms"] = [50.0], [106.0]
        _, axes = trscurves.plt.subplots()
        trscurves.draw_latency(axes, [trsread.read_run(self.path("one.h5"))], trscurves.styles_of(["one"]))
        self.assertEqual(axes.lines[0].get_xydata().tolist(), [[106, 0], [106, 100]])
        # p of 100 batches take at most the percentile p, which does not count the first batch
        with h5py.File(self.path("one.h5"), "a") as h:
            del h["predict/latency_ms"]
            h["predict/latency_ms"] = [5000.0, *np.arange(200.0, 0, -1)]
        trscurves.draw_latency(axes, [trsread.read_run(self.path("one.h5"))], trscurves.styles_of(["one"]))
        self.assertEqual(axes.lines[1].get_label(), "50 %: 100 ms, 90 %: 180 ms, 99 %: 198 ms")

    def test_refusals(self):
        self.refuse("cannot be read: No such file", "plot_run.py", self.path("none.h5"), start=handmade.process)
        self.refuse("cannot be read", "plot_run.py", self.plan_file(handmade.make_plan()))
        with h5py.File(self.path("empty.h5"), "w") as h:
            h.attrs["format"] = "trshard-run"
        self.refuse("no step, evaluation or prediction", "plot_run.py", self.path("empty.h5"))
        self.refuse("no results of a run", "plot_run.py", self.run_file(format="trshard-checkpoint"))
        with h5py.File(self.run_file(), "a") as h:
            h["train/more"] = [1.0]
        self.refuse("differ in length", "plot_run.py", self.path("run.h5"))


if __name__ == "__main__":
    unittest.main()
