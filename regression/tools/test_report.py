# SPDX-License-Identifier: BSD-3-Clause
"""Tests report.py and tensorboard_events.py on runs and plans made by hand: the page's tables
against the numbers in the HDF5 files, watched trainings, and event files with a separate
decoder."""
import base64
import contextlib
import gzip
import html.parser
import importlib.util
import io
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
import unittest
import urllib.error
import urllib.request

import h5py
import numpy as np

import handmade
import report
import scratch
import sweep
import tensorboard_events
import trsfigures
import trspage
import trsread
import trswatch


class Reader(html.parser.HTMLParser):
    """Elements that load something, tables as rows of (text, value), texts and ids, and whether
    elements are closed in order."""

    VOID = {"meta", "img"}

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.tables, self.ids, self.words, self.images, self.data, self.policy = [], [], {}, [], [], [], [], ""

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.sources += [attrs[name] for name in ("src", "srcset", "data", "action", "poster") if name in attrs] + ([attrs["href"]] if tag not in ("a",) and "href" in attrs else [])
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag == "table":
            self.rows = self.tables.setdefault(attrs["id"], [])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append(["", attrs.get("data-value")])
        elif tag == "img":
            self.images.append(attrs)
        elif tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
        elif tag == "a":
            self.words.append(attrs.get("href"))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script" and data.startswith("["):
            self.data.append(data)
        self.words.append(data.strip())
        if self.open and ({"td", "th"} & set(self.open)):
            self.rows[-1][-1][0] += data


class Reports(handmade.Scratch):
    def page(self, *arguments, output="report.html"):
        result = handmade.tool("report.py", *arguments, "-o", self.path(output))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open(self.path(output), encoding="utf-8") as text:
            return self.parse(text.read())

    def parse(self, words):
        page = Reader()
        page.feed(words)
        page.close()
        self.assertEqual(page.open, [])
        self.assertEqual(len(set(page.ids)), len(page.ids))
        self.assertTrue(all(source.startswith("data:image/") for source in page.sources), "nothing from elsewhere")
        self.assertIn("default-src 'none'", page.policy)
        self.assertNotRegex(words, r"(?i)https?://|url\(|@import")
        for image in page.images:
            self.assertTrue(image["alt"])
            data = base64.b64decode(image["src"].split(",", 1)[1])
            self.assertTrue(data.startswith((b"<?xml", b"\x89PNG")))
        return page

    def column(self, page, table, name):
        rows = page.tables["table-" + table]
        i = [text for text, _ in rows[0]].index(name)
        return [float(row[i][1]) if row[i][1] is not None else row[i][0] for row in rows[1:]]

    def test_run(self):
        path = self.run_file()
        with open(self.path("trace.json"), "w", encoding="ascii") as trace:
            trace.write("{}")
        page = self.page(path)
        with h5py.File(path) as h:
            self.assertEqual(self.column(page, "evaluations", "loss"), h["eval/loss"][()].tolist())
            self.assertEqual(self.column(page, "evaluations", "auc"), h["eval/auc"][()].tolist())
            self.assertEqual(self.column(page, "starts", "from step"), h["starts/first_step"][()].tolist())
            self.assertEqual(self.column(page, "stages", "measured, mean of ranks"), h["stages/measured_ms"][()].mean(axis=0).tolist())
            # no rates of dense layers
            self.assertEqual(self.column(page, "stages", "predicted, slowest"), [0.75, -np.inf])
            self.assertEqual(self.column(page, "memory", "peak"), h["memory/held_bytes"][()].sum(axis=1).tolist())
            self.assertIn(f"{h['train/loss'][-1]:.5f}", page.words)
        self.assertEqual(self.column(page, "tables", "memory, all ranks"), [3 * handmade.GIB, 4 * handmade.GIB])
        self.assertEqual(self.column(page, "tables", "table")[0], "a <b>&\"$x$")
        self.assertEqual(self.column(page, "options", "value")[0], "<b>a&b.h5</b>")
        self.assertAlmostEqual(sum(self.column(page, "critical-parts", "time")), 5.0)
        self.assertIn("./trace.json", page.words)
        self.assertEqual(len(page.images), 3)

    def test_so_far(self):
        """Before its end, a training has written only rank 0's memory, and its stages in the row of its start."""
        with h5py.File(self.run_file(starts=1), "a") as h:
            del h["stages"], h["memory"]
            h["starts/dense_forward_ms"], h["starts/i_o_ms"], h["starts/waiting_ms"], h["starts/peak_memory_bytes"] = [3.0], [1.0], [np.nan], [2.0 * handmade.GIB]
        page = self.page(self.path("run.h5"))
        self.assertEqual([self.column(page, "stages-so-far", name) for name in ("stage of a step, so far", "time", "share")], [["dense forward", "I/O"], [3, 1], [75, 25]])
        self.assertIn("2 GiB", page.words)

    def test_ids(self):
        """Sums over the rows of /ids, and the last state of each table."""
        page = self.page(self.ids_file())
        for name, wanted in (("table", ["item", "user"]), ("rows in use", [990, 990]), ("rows", [999, 999]), ("lookups unknown", [30, 15]), ("in the last interval", [30, 15]), ("rows taken", [216, 216]),
                             ("of ids in use", [2, 2]), ("youngest, batches", [1, 1]), ("ids dropped at a start", [40, 40]), ("directory", [24000, 24000])):
            self.assertEqual(self.column(page, "ids", name), wanted, name)
        with h5py.File(self.path("ids.h5"), "a") as h:
            h["ids/item_youngest"][...] = -1
        self.assertEqual(self.column(self.page(self.path("ids.h5")), "ids", "youngest, batches"), [-np.inf, 1])
        with h5py.File(self.path("ids.h5"), "a") as h:
            del h["ids/user_held"]
            h["ids/user_held"] = [1, 2]
        self.refuse("/ids differ in length", "report.py", self.path("ids.h5"), "-o", self.path("x.html"))

    def test_ahead(self):
        """Files that were evaluated before the training on them, in the page and in TensorBoard's events."""
        path = self.run_file()
        with h5py.File(path, "a") as h:
            h["ahead/file"] = ["day_1.h5", "<day_2>.h5"]
            for name, values in (("step", [0, 3]), ("position", [0, 40]), ("samples", [40, 50]), ("loss", [0.7, 0.6]), ("auc", [0.5, np.nan])):
                h["ahead/" + name] = values
        page = self.page(path)
        for name, wanted in (("file", ["day_1.h5", "<day_2>.h5"]), ("samples before it", [0, 40]), ("samples", [40, 50]), ("updates", [0, 3]), ("loss", [0.7, 0.6])):
            self.assertEqual(self.column(page, "ahead", name), wanted, name)
        found = {tag: (list(steps), list(values)) for tag, steps, values in tensorboard_events.series_of(trsread.read_run(path))["ahead"]}
        self.assertEqual(found["loss"], ([0, 3], [0.7, 0.6]))

    def test_without(self):
        """The page has no section for an evaluation, a trace file or a plan that does not exist."""
        page = self.page(self.run_file(starts=1, evaluations=False, plan=""))
        self.assertEqual([name for name in page.ids if "table" not in name], ["summary", "curves", "starts", "stages-and-memory", "configuration"])
        self.assertTrue(any("is not there now" in words for words in page.words if words))

    def test_runs(self):
        """Two runs side by side: their last numbers, the options that differ, and both curves in each panel."""
        one, other = self.run_file("one.h5"), self.run_file("other.h5", options="-batch_size 50 # run.opts\n-seed 7 # command line\n# defaults\n# -task train\n", peak_memory_bytes=3 * handmade.GIB)
        with h5py.File(other, "a") as h:
            h["train/loss"][-1] = 0.25
        page = self.page(one, other)
        self.assertEqual(self.column(page, "runs", "run"), ["one", "other"])
        self.assertEqual(self.column(page, "runs", "loss, last step"), [0.5, 0.25])
        self.assertEqual(self.column(page, "runs", "auc, last evaluation"), [0.8125, 0.8125])
        self.assertEqual(self.column(page, "runs", "steps"), [40, 40])
        self.assertEqual(self.column(page, "runs", "peak memory of a rank"), [-np.inf, 3 * handmade.GIB])
        self.assertEqual(self.column(page, "differences", "option"), ["-data_train", "-trace", "-seed"])
        self.assertEqual([self.column(page, "differences", name)[2] for name in ("one", "other")], ["", "7"])
        self.assertEqual([self.column(page, "stages", name) for name in ("one", "other")], [[1.0, 4.0]] * 2)
        loss = json.loads(page.data[0])[0]
        self.assertEqual([line["name"] for line in loss["lines"]], ["one: each step", "one: evaluation", "other: each step", "other: evaluation"])
        self.assertEqual((loss["lines"][2]["x"], loss["lines"][2]["y"][-1]), (list(range(1, 41)), 0.25))
        self.assertEqual(self.column(self.page(one, other, "--label", "a", "--label", "<b>"), "runs", "run"), ["a", "<b>"])
        self.assertIn("All options have the same values.", self.page(one, one).words)
        self.assertEqual(report.labels_of(["r/a/run.h5", "r/b/run.h5"], []), ["a", "b"])
        self.assertEqual(report.labels_of(["r/a/run.h5", "r/a/run.h5"], []), ["run (1)", "run (2)"])

    def test_curves(self):
        """A curve of many points keeps its first and last one, and a step without a number is null."""
        figure, axes = trsfigures.plt.subplots()
        values = np.arange(2500.0)
        values[-1] = np.nan
        axes.plot(np.arange(2500), values, gid="</script>")
        axes.plot([0, 1], [0, 1])
        text = trspage.picture(figure, "a figure")
        self.assertEqual(text.count("</script>"), 1)
        (panel,) = json.loads(text.partition('json">')[2].partition("</script>")[0])
        (line,) = panel["lines"]
        self.assertEqual((line["name"], line["x"][0], line["x"][1], line["x"][-1], line["y"][-1]), ("</script>", 0, 3, 2499, None))
        self.assertTrue(all(0 <= edge <= 1 for edge in panel["box"]) and panel["box"][0] < panel["box"][2] and panel["box"][1] < panel["box"][3])

    def sweep_folder(self):
        """Four trials and two rounds; trials 1 and 3 went on, and trial 3 has won."""
        folder = self.path("s")
        scratch.inside(sweep, "new", folder, "--try", "-seed 1,2", "--try", "-dense_arch 8,4 16,4", "--steps", 20, "--keep", "1/2", "--rounds", 2)
        for trial, scores in enumerate(((0.5,), (0.6, 0.62), (0.55,), (0.7, 0.75))):
            os.makedirs(os.path.join(folder, f"trial-{trial}"))
            with h5py.File(os.path.join(folder, f"trial-{trial}", "run.h5"), "w") as h:
                h.attrs["format"] = "trshard-run"
                h["eval/step"], h["eval/auc"] = [10, 20][:len(scores)], scores
        return folder

    def test_sweep(self):
        page = self.page(self.sweep_folder())
        self.assertEqual(self.column(page, "trials", "trial"), [3, 1, 2, 0])
        self.assertEqual(self.column(page, "trials", "-dense_arch"), ["16,4", "16,4", "8,4", "8,4"])
        self.assertEqual(self.column(page, "trials", "auc, step 10"), [0.7, 0.6, 0.55, 0.5])
        self.assertEqual(self.column(page, "trials", "auc, step 20"), [0.75, 0.62, -np.inf, -np.inf])
        self.assertEqual(self.column(page, "trials", "last value at step"), [20, 20, 10, 10])
        self.assertEqual(self.column(page, "trials", "state"), ["finished", "finished", "stopped after round 0", "stopped after round 0"])
        self.assertIn("trial 3, auc 0.75000", page.words)
        self.assertEqual([[cell[0] for cell in row[:3]] for row in page.tables["table-effects"][1:]], [["-seed", "1", "2"], ["-seed", "2", "2"], ["-dense_arch", "8,4", "2"], ["-dense_arch", "16,4", "2"]])
        self.assertEqual(self.column(page, "effects", "best of round 0"), [0.6, 0.7, 0.55, 0.7])
        np.testing.assert_allclose(self.column(page, "effects", "median of round 0"), [0.55, 0.625, 0.525, 0.65])
        self.assertEqual({line["name"] for line in json.loads(page.data[0])[0]["lines"]}, {f"trial {t}" for t in range(4)})
        scratch.inside(sweep, "new", self.path("empty"), "--try", "-seed 1,2", "--steps", 20)
        self.assertIn("No trial has results yet.", self.page(self.path("empty")).words)

    def test_scaling(self):
        """The median of a study's rows, and the stages of the runs beside them."""
        with open(self.path("scaling.csv"), "w", encoding="ascii") as out:
            out.write("study,ranks,threads,global_batch,steps,samples_per_s,job\n" + "".join(f"{study},{ranks},1,8,5,{speed},local\n" for study, ranks, speed in
                                                                                           (("strong", 1, 100), ("strong", 4, 200), ("strong", 4, 300), ("strong", 4, 290), ("weak", 1, 50), ("weak", 2, 90))))
        self.run_file("strong-1.h5")
        self.run_file("weak-1.h5")
        page = self.page(self.path("scaling.csv"))
        self.assertEqual(self.column(page, "scaling", "samples/s"), [100, 290, 50, 90])
        self.assertEqual(self.column(page, "scaling", "speed-up"), [1, 2.9, 1, 1.8])
        np.testing.assert_allclose(self.column(page, "scaling", "efficiency"), [1, 0.725, 1, 0.9])
        self.assertEqual(self.column(page, "stages", "weak, 1 rank"), [1.0, 4.0])
        self.assertEqual(self.column(page, "runs", "run"), ["strong, 1 rank", "weak, 1 rank"])
        speed = json.loads(page.data[0])[0]
        self.assertEqual([(line["name"], line["y"]) for line in speed["lines"]], [("strong", [1, 2.9]), ("weak", [1, 1.8])])
        self.assertEqual(speed["log"], [True, True])

    def test_plan(self):
        page = self.page(self.plan_file(handmade.make_plan()))
        self.assertEqual(self.column(page, "ranks", "device memory"), [handmade.GIB, 4 * handmade.GIB, handmade.GIB, handmade.GIB])
        self.assertEqual(len(self.page(self.plan_file(handmade.make_plan(1024, 8))).tables["table-ranks"]), 1025)

    def test_deterministic(self):
        path = self.plan_file(handmade.make_plan())
        self.page(path, output="a.html")
        self.page(path, output="b.html")
        with open(self.path("a.html"), "rb") as a, open(self.path("b.html"), "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_refusals(self):
        self.refuse("cannot be read", "report.py", self.path("none.h5"), "-o", self.path("x.html"), start=handmade.process)
        self.refuse("is not a plan", "report.py", self.plan_file("{}"), "-o", self.path("x.html"))
        self.refuse("is not JSON", "report.py", self.plan_file("x", "x.h5"), "-o", self.path("x.html"))
        self.refuse("cannot be written", "report.py", self.run_file(), "-o", self.folder)
        self.refuse("is no file", "report.py", self.run_file(), "--trace", self.path("no.json"), "-o", self.path("x.html"))
        with h5py.File(self.run_file("cut.h5"), "a") as h:
            h.attrs["plan"] = "{\"format\": \"trshard-plan\""
        self.refuse("the plan in", "report.py", self.path("cut.h5"), "-o", self.path("x.html"))
        self.assertFalse(os.path.exists(self.path("x.html")))
        with open(self.path("none.csv"), "w", encoding="ascii") as out:
            out.write("study,ranks\n")
        self.refuse("has no rows", "report.py", self.path("none.csv"), "-o", self.path("x.html"))
        self.refuse("sweep.json", "report.py", self.folder, "-o", self.path("x.html"), start=handmade.process)
        for arguments, words in ((("a.h5", "b.json"), "several files must be"), (("a.h5", "--log", "l"), "need --watch"), (("a.h5", "b.h5", "--watch", "--log", "l"), "for one run"),
                                 (("a.h5", "--label", "a", "--label", "b"), "2 times --label"), (("a.h5", "--watch", "--port", "70000"), "is no port")):
            result = handmade.tool("report.py", *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(words, result.stderr)


HEAD = "trshard 1.0.0 (abc), 2 ranks\n"


class Watching(handmade.Scratch):
    """A training that is watched: its log, its results, and the page about it, from a server or in a file."""

    def log_file(self, text, name="run.log"):
        with open(self.path(name), "w", encoding="utf-8") as out:
            out.write(text)
        return self.path(name)

    def state(self, log, run=None, changed=None):
        return trswatch.state_of(run, changed, trswatch.read_log(self.log_file(log)))

    def test_states(self):
        now = time.time()
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        step = f"step 30/120  {at}  epoch 0.25  loss 0.61250  NE 0.9  AUC 0.7  1234 samples/s  ETA 1:02:03\n"
        found = self.state(HEAD + step.replace("30/", "10/") + step)
        self.assertEqual((found.word, found.step, found.total, found.loss, found.speed), ("training", 30, 120, 0.6125, 1234))
        self.assertAlmostEqual(found.ends, int(now) + 3723)
        stream = self.state(HEAD + f"step 7  {at}  sample 100 of day_2.h5  loss 0.5  99 samples/s\n")
        self.assertEqual((stream.word, stream.step, stream.total, stream.ends), ("training", 7, None, None))
        for words, wanted in (("trshard: error: no space\n", "failed: no space"), ("kept       results: run.h5\n", "ended"), ("weights not kept: no -checkpoint_final\n", "ended"),
                              ("kept       results: run.h5\ntrshard: info: stopped on request after step 30 of 120: run again\n", "stopped; with -resume it goes on from its checkpoint")):
            found = self.state(HEAD + step + words)
            self.assertEqual((found.word, found.ends), (wanted, None))
        # the log of a requeued job has several starts
        found = self.state(HEAD + step + "trshard: info: stopped on request after step 30 of 120\n" + HEAD)
        self.assertEqual((found.word, found.step), ("starting", 0))
        os.utime(self.log_file(HEAD + step), (now - 1000, now - 1000))
        self.assertRegex(trswatch.state_of(None, None, trswatch.read_log(self.path("run.log"))).word, "^no news since ")

    def test_states_of_results(self):
        """Without a log: the last start made 15 steps in 40 s, and the run's length is that of -steps."""
        run = trsread.read_run(self.run_file(options="-steps 100 # run.opts\n"))
        found = trswatch.state_of(run, time.time(), None)
        self.assertEqual((found.word, found.step, found.total, found.loss), ("training", 40, 100, 0.5))
        self.assertAlmostEqual(found.ends - found.changed, 60 * 40 / 15)
        for options, attributes, total in (("-epochs 3 # x", {"steps_per_epoch": 20}, 60), ("# -task train", {"steps_per_epoch": 20}, 20), ("-steps 50 # x\n-epochs 3 # x", {"steps_per_epoch": 20}, 50), ("-steps 50 # x", {"steps_per_epoch": 20}, 50), ("-data_follow f # x", {}, None)):
            self.assertEqual(trswatch.total_steps(trsread.read_run(self.run_file(options=options + "\n", **attributes))), total, options)
        self.assertEqual(trswatch.state_of(trsread.read_run(self.run_file(options="-steps 40 # x\n")), time.time(), None).word, "ended")

    def test_find_log(self):
        """Beside the results; of a Slurm job, in the folder where it was submitted; the newest of several."""
        os.makedirs(self.path("results/job-7"))
        path = self.path("results/job-7/run.h5")
        self.assertIsNone(trswatch.find_log(path))
        self.log_file("", "job-7.out")
        self.assertEqual(trswatch.find_log(path), self.path("job-7.out"))
        self.log_file("", "results/job-7/run.log")
        os.utime(self.path("job-7.out"), (1, 1))
        self.assertEqual(trswatch.find_log(path), self.path("results/job-7/run.log"))

    def test_end_of_log(self):
        """A long log is read from its end, from a whole line on; of an overwritten line the last state is shown."""
        log = trswatch.read_log(self.log_file("first\n" + "x" * (1 << 17) + "\n0 %\r50 %\r100 %\nlast\n"))
        self.assertEqual(log.lines, ["100 %", "last"])
        self.assertIsNone(trswatch.read_log(self.path("none")))

    def get(self, server, path, **headers):
        address = f"http://127.0.0.1:{server.server_address[1]}{path}"
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(urllib.request.Request(address, headers=headers), timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def watch(self, *arguments):
        """A server of the page in this process."""
        args = types.SimpleNamespace(files=list(arguments), label=[], log=None, every=1, trace=None, output="report.html", watch=True)
        kind = "sweep" if os.path.isdir(arguments[0]) else "run"
        server = trswatch.open_server(0, report.Watch(kind, args).text)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        self.addCleanup(lambda: (server.shutdown(), thread.join(), server.server_close()))
        return server

    def sections(self, words):
        return re.findall(r'<section id="([^"]+)" data-hash="(\w+)"( data-same)?>', words)

    def test_server(self):
        """The page from before the first results on; it answers only to its secret address, and sends only what is new."""
        path = self.path("run.h5")
        self.log_file(HEAD + "<b>begins</b>\n")
        server = self.watch(path)
        self.assertEqual(server.server_address[0], "127.0.0.1")
        page = f"/{server.word}/"
        for wrong in ("/", "/run.h5", page + "run.h5", page[:-1], page + "../run.h5", "/" + "x" * len(server.word) + "/"):
            self.assertEqual(self.get(server, wrong)[0], 404, wrong)
        with contextlib.redirect_stderr(io.StringIO()) as said, socket.create_connection(server.server_address[:2], timeout=60) as odd:
            odd.sendall(b"GET http://[/ HTTP/1.0\r\n\r\n")
            self.assertIn(b" 404 ", odd.recv(1000))
        self.assertEqual(said.getvalue(), "")
        status, headers, body = self.get(server, page)
        self.assertEqual((status, headers["Cache-Control"], headers["Referrer-Policy"]), (200, "no-store", "no-referrer"))
        words = body.decode()
        self.assertEqual([name for name, *_ in self.sections(words)], ["now", "log"])
        self.assertIn("run.h5 is not there yet", words)
        self.assertIn("&lt;b&gt;begins&lt;/b&gt;", words)
        self.run_file()
        words = gzip.decompress(self.get(server, page, **{"Accept-Encoding": "gzip"})[2]).decode()
        first = self.sections(words)
        self.assertEqual([name for name, *_ in first][:4], ["now", "log", "summary", "curves"])
        Reports.parse(self, words)
        with h5py.File(path, "a") as h:  # a reader keeps what has not changed
            h["eval/auc"][0] = 0.65
        again = self.get(server, page + "?have=" + ",".join(code for _, code, _ in first))[2].decode()
        self.assertEqual([name for name, _, same in self.sections(again) if not same and name != "now"], ["curves", "evaluations"])
        self.assertLess(len(again), len(words))
        with open(path, "wb") as out:  # no results: the page says so, and stays with the last
            out.write(b"x")
        broken = self.get(server, page)[2].decode()
        self.assertIn("cannot be read", broken)
        self.assertEqual([name for name, *_ in self.sections(broken)][1:], [name for name, *_ in first][2:])

    def test_server_of_runs(self):
        """Several runs, of which one has not begun: both have their state and log, and the runs with results are compared."""
        os.makedirs(self.path("a"))
        os.makedirs(self.path("b"))
        self.run_file("a/run.h5")
        self.log_file(HEAD, "b/log")
        server = self.watch(self.path("a/run.h5"), self.path("b/run.h5"))
        words = self.get(server, f"/{server.word}/")[2].decode()
        self.assertEqual([name for name, *_ in self.sections(words)][:4], ["a", "b", "log-of-b", "runs"])

    def test_server_of_sweep(self):
        folder = Reports.sweep_folder(self)
        server = self.watch(folder)
        page = f"/{server.word}/"
        before = self.sections(self.get(server, page)[2].decode())
        with h5py.File(os.path.join(folder, "trial-1", "run.h5"), "a") as h:
            h["eval/auc"][1] = 0.9
        after = self.sections(self.get(server, page)[2].decode())
        self.assertEqual([name for (name, *_), (_, *_) in zip(before, after)], ["summary", "trials", "curves", "effect-of-each-option"])
        self.assertNotEqual(before[1], after[1])

    def start(self, *arguments):
        process = subprocess.Popen([sys.executable, os.path.join(handmade.TOOLS, "report.py"), "--watch", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def test_process(self):
        """The server is started as a user starts it. It prints its address, serves, and ends with 0 after Ctrl-C. Another server on the same
        port is refused."""
        path = self.run_file()
        process = self.start(path, "--port", "0")
        found = re.match(r"http://127\.0\.0\.1:(\d+)(/\S+/)\n", process.stdout.readline())
        self.assertRegex(process.stdout.readline(), f"ssh -L {found[1]}:127.0.0.1:{found[1]} ")
        server = types.SimpleNamespace(server_address=("127.0.0.1", int(found[1])))
        self.assertEqual(self.get(server, found[2])[0], 200)
        other = self.start(path, "--port", found[1])
        self.assertRegex(other.communicate(timeout=120)[1], f"--port {found[1]}: ")
        self.assertEqual(other.returncode, 1)
        process.send_signal(signal.SIGINT)
        self.assertEqual((process.wait(60), process.stderr.read()), (0, ""))

    def test_file(self):
        """With -o the file is written again after the results have changed, always as a whole."""
        path, page = self.run_file(), self.path("page.html")
        process = self.start(path, "-o", page, "--every", "1")
        self.assertIn("page.html", process.stdout.readline())

        def shown(words):
            for _ in range(1200):
                with contextlib.suppress(FileNotFoundError), open(page, encoding="utf-8") as text:
                    if words in text.read():
                        return True
                time.sleep(0.05)
            return False

        self.assertTrue(shown("0.81250"))
        with handmade.changed(path) as h:
            h["eval/auc"][1] = 0.98765
        self.assertTrue(shown("0.98765"))
        with open(page, encoding="utf-8") as text:
            Reports.parse(self, text.read())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 0)
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".tmp")], [])


def crc32c(data):
    """CRC-32C bit by bit, from the polynomial 0x1EDC6F41 of RFC 3720."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def message(data):
    """Fields of a protobuf message: [(number, bytes or int)]."""
    def varint(i):
        n = shift = 0
        while True:
            n |= (data[i] & 0x7F) << shift
            shift, i = shift + 7, i + 1
            if data[i - 1] < 0x80:
                return n, i

    fields, i = [], 0
    while i < len(data):
        key, i = varint(i)
        if key & 7 == 0:
            value, i = varint(i)
        elif key & 7 == 2:
            size, i = varint(i)
            value, i = data[i:i + size], i + size
        else:
            size = 8 if key & 7 == 1 else 4
            value, i = data[i:i + size], i + size
        fields.append((key >> 3, value))
    return fields


def events(path):
    """[(wall time, step, tag, number)] of a file with checked checksums, and its other events."""
    scalars, others = [], []
    with open(path, "rb") as handle:
        data = handle.read()
    i = 0
    while i < len(data):
        size, crc = struct.unpack_from("<QI", data, i)
        body, (end,) = data[i + 12:i + 12 + size], struct.unpack_from("<I", data, i + 12 + size)
        for part, stored in ((data[i:i + 8], crc), (body, end)):
            plain = crc32c(part)
            assert stored == ((plain >> 15 | plain << 17) + 0xA282EAD8) & 0xFFFFFFFF
        fields = dict(message(body))
        value = dict(message(dict(message(fields[5]))[1])) if 5 in fields else {}
        if 2 in value:
            scalars.append((struct.unpack("<d", fields[1])[0], fields.get(2, 0), value[1].decode(), struct.unpack("<f", value[2])[0]))
        else:
            others.append(fields)
        i += 16 + size
    return scalars, others


class TensorBoard(handmade.Scratch):
    def test_checksum(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)  # the check value of CRC-32C

    def write(self, path, folder="tb"):
        result = handmade.tool("tensorboard_events.py", path, self.path(folder))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return {os.path.basename(os.path.dirname(line.split()[1])): line.split()[1] for line in result.stdout.splitlines()}

    def test_events(self):
        path = self.run_file()
        files = self.write(path)
        self.assertEqual(set(files), {"train", "eval"})
        run = trsread.read_run(path)
        scalars, others = events(files["train"])
        self.assertEqual(others[0][3], b"brain.Event:2")
        loss = [s for s in scalars if s[2] == "loss"]
        self.assertEqual([s[1] for s in loss], list(range(1, 41)))
        self.assertEqual([s[3] for s in loss], np.float32(run["train/loss"]).tolist())
        self.assertEqual([s[0] for s in loss], run.wall_times().tolist())
        self.assertEqual({s[2] for s in scalars}, {"loss", "dense_learning_rate", "embedding_learning_rate", "samples_per_s"})
        self.assertIn(b"-batch_size", others[1][5])
        scalars, _ = events(files["eval"])
        self.assertEqual([(s[1], s[2], s[3]) for s in scalars], [(20, "loss", np.float32(0.61)), (20, "ne", np.float32(0.9)), (20, "auc", np.float32(0.7)),
                                                                 # a NaN is not written
                                                                 (40, "loss", np.float32(0.55)), (40, "auc", 0.8125)])
        before = scalars, os.listdir(self.path("tb/eval"))
        self.assertEqual(self.write(path), files)  # again: the same file, not a second one
        self.assertEqual((events(files["eval"])[0], os.listdir(self.path("tb/eval"))), before)

    def test_events_of_ids(self):
        """A folder has the tables' numbers. An age that is not known is no point."""
        files = self.write(self.ids_file())
        scalars, _ = events(files["ids"])
        for tag, wanted in (("user/unknown_share", [(10, 0.1), (20, 0.3), (25, 0.05), (40, 0.15)]), ("item/unknown_share", [(10, 0.2), (20, 0.6), (25, 0.1), (40, 0.3)]),
                            ("user/held", [(10, 500), (20, 999), (25, 999), (40, 990)]), ("user/taken", [(10, 0), (20, 101), (25, 100), (40, 15)]), ("item/youngest", [(20, 7), (25, 1), (40, 3)])):
            self.assertEqual([(s[1], s[3]) for s in scalars if s[2] == tag], [(step, np.float32(value)) for step, value in wanted], tag)

    def test_events_of_tasks(self):
        """Each task's metrics by its name, including those of groups, in the order of their K."""
        path = self.run_file()
        with h5py.File(path, "r+") as h:
            h.attrs["options"] = '-tasks "click , buy"\n'
            h["eval/buy_auc"], h["eval/buy_loss"] = h["eval/auc"][()], h["eval/loss"][()]
            h["metrics/step"], h["metrics/click_lifetime_ne"], h["metrics/buy_window_ne"] = [10], [0.25], [0.5]
            h["metrics/buy_window_gauc"] = [0.75]
            h["eval/buy_ndcg_at_3"], h["eval/buy_ndcg_at_10"], h["eval/buy_group_ne"] = [[0.25, 0.5]] * 3
        self.assertIn("ndcg_at_3 ndcg_at_10", " ".join(trsread.read_run(path).metrics()))
        files = self.write(path)
        for folder, wanted in (("eval", {"loss", "buy_auc", "buy_loss", "buy_ndcg_at_3", "buy_ndcg_at_10", "buy_group_ne"}), ("lifetime", {"click_ne"}),
                               ("train", {"buy_ne", "buy_gauc"})):
            self.assertLessEqual(wanted, {s[2] for s in events(files[folder])[0]})

    def test_events_of_retrieval(self):
        with h5py.File(self.path("towers.h5"), "w") as h:
            h.attrs.update(format="trshard-run", options="")
            h["eval/step"], h["eval/loss"], h["eval/retrieval_recall_at_5"] = [7], [2.5], [0.25]
        run = trsread.read_run(self.path("towers.h5"))
        self.assertEqual([tag for tag, *_ in tensorboard_events.series_of(run)["eval"]], ["loss", "retrieval_recall_at_5"])
        self.assertIn("retrieval_recall_at_5", report.evaluation_table(run))

    def test_one_class(self):
        """If all labels have one class, files contain TorchRec's values. Pages, pictures and events
        then show no number. Labels of a task that are numbers may have any mean."""
        with h5py.File(self.path("one.h5"), "w") as h:
            h.attrs.update(format="trshard-run", options="")
            h["eval/step"], h["eval/loss"], h["eval/ctr"] = [7, 9, 11], [0.4, 0.3, 0.2], [1 - 1e-16, 0.25, 0]
            h["eval/auc"], h["eval/ne"], h["eval/calibration"], h["eval/price_calibration"], h["eval/price_ctr"] = [0.5, 0.75, 0.5], [1e12, 0.5, 1e11], [0.9, 1, 0], [1, 1, 1], [3, 4, 5]
        run = trsread.read_run(self.path("one.h5"))
        for name, wanted in (("auc", [np.nan, 0.75, np.nan]), ("ne", [np.nan, 0.5, np.nan]), ("calibration", [0.9, 1, np.nan]), ("price_calibration", [1, 1, 1]), ("loss", [0.4, 0.3, 0.2])):
            np.testing.assert_array_equal(run["eval/" + name], wanted)
        self.assertNotIn("AUC, last evaluation", [name for name, _ in report.run_facts(run)])
        with h5py.File(self.path("one.h5"), "r+") as h:
            h["eval/ctr"][1] = 0
        files = self.write(self.path("one.h5"))
        self.assertEqual({s[2] for s in events(files["eval"])[0]}, {"loss", "calibration", "ctr"})

    @unittest.skipUnless(importlib.util.find_spec("tensorboard") or os.environ.get("TRSHARD_TENSORBOARD_PYTHON"), "no tensorboard here")
    def test_tensorboard_reads(self):
        files = self.write(self.run_file())
        code = ("import sys\nfrom tensorboard.backend.event_processing.event_accumulator import EventAccumulator as A\na = A(sys.argv[1]); a.Reload()\n"
                "print([(s.step, s.value) for s in a.Scalars('loss')], a.Tags()['tensors'])")
        result = subprocess.run([os.environ.get("TRSHARD_TENSORBOARD_PYTHON", sys.executable), "-c", code, os.path.dirname(files["train"])], capture_output=True, text=True, check=False)
        wanted = list(zip(range(1, 41), np.float32(np.linspace(0.7, 0.5, 40)).astype(float).tolist()))
        self.assertEqual(result.stdout.strip(), f"{wanted} ['configuration']", result.stderr)

    def test_refusals(self):
        self.refuse("cannot be read: No such file", "tensorboard_events.py", self.path("no.h5"), self.path("tb"), start=handmade.process)
        self.refuse("cannot be read", "tensorboard_events.py", self.plan_file("x"), self.path("tb"))
        self.refuse("cannot be written", "tensorboard_events.py", self.run_file(), self.plan_file("x"))
        with h5py.File(self.path("empty.h5"), "w") as h:
            h.attrs["format"] = "trshard-run"
        self.refuse("no series", "tensorboard_events.py", self.path("empty.h5"), self.path("tb"))


if __name__ == "__main__":
    unittest.main()
