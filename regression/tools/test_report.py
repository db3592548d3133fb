# SPDX-License-Identifier: BSD-3-Clause
"""report and tensorboard_events on runs and plans made by hand: the page's tables against the
HDF5's numbers, and event files with a separate decoder."""
import base64
import html.parser
import importlib.util
import os
import struct
import subprocess
import sys
import unittest

import h5py
import numpy as np

import handmade
import report
import tensorboard_events
import trsread


class Reader(html.parser.HTMLParser):
    """Elements that load something, tables as rows of (text, value), texts and ids, and whether
    elements are closed in order."""

    VOID = {"meta", "img"}

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.tables, self.ids, self.words, self.images, self.policy = [], [], {}, [], [], [], ""

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
        self.words.append(data.strip())
        if self.open and ({"td", "th"} & set(self.open)):
            self.rows[-1][-1][0] += data


class Reports(handmade.Scratch):
    def page(self, *arguments, output="report.html"):
        result = handmade.tool("report.py", *arguments, "-o", self.path(output))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open(self.path(output), encoding="utf-8") as text:
            words = text.read()
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

    def test_without(self):
        """Without an evaluation, a trace file or a plan, there is no such section."""
        page = self.page(self.run_file(starts=1, evaluations=False, plan=""))
        self.assertEqual([name for name in page.ids if "table" not in name], ["summary", "curves", "starts", "stages-and-memory", "configuration"])
        self.assertTrue(any("is not there now" in words for words in page.words if words))

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
