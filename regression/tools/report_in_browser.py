# SPDX-License-Identifier: BSD-3-Clause
"""Reports in a headless browser: a click on a column's head sorts its table, the pointer shows the numbers of curves, colours
follow the system's, nothing is loaded from elsewhere, and a watched page follows a training.

Ends with 77 if there is no Chromium or Chrome. TRSHARD_PICTURES names a folder for pictures of the pages.
"""
import os
import sys
import threading
import types
import unittest

import numpy as np

import browser
import handmade
import report
import trswatch

PICTURES = os.environ.get("TRSHARD_PICTURES")


class Pages(handmade.Scratch):
    @classmethod
    def setUpClass(cls):
        import tempfile

        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.browser = browser.Browser(os.path.join(folder.name, "profile"))
        cls.addClassCleanup(cls.browser.close)

    def show(self, *arguments):
        page = self.path("report.html")
        result = handmade.tool("report.py", *arguments, "-o", page)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.browser.scheme("light")
        self.browser.open("file://" + page)
        return page

    def picture(self, name):
        if PICTURES:
            self.browser.picture(os.path.join(PICTURES, name + ".png"))

    def alone(self, page):
        """The page has asked for nothing but itself and the pictures in it, and has no error."""
        self.assertEqual([address for address in self.browser.requests if not address.startswith("data:image/") and address.split("?")[0] != page], [])
        self.assertEqual(self.browser.problems, [])

    def order(self, table, column=0):
        return self.browser.value(f"Array.from(document.getElementById('{table}').tBodies[0].rows).map(function (row) {{ return row.cells[{column}].textContent; }}).join(',')")

    def head(self, table, column):
        self.browser.click(f"#{table} th:nth-child({column + 1}) button")

    def test_sorting(self):
        """The memory of ranks 0 to 3 is 1, 4, 1, 1 GiB. Numbers are sorted from the largest, then from the smallest; equal numbers
        keep their order. Names are sorted from a."""
        page = self.show(self.plan_file(handmade.make_plan()))
        self.assertEqual(self.order("table-ranks"), "0,1,2,3")
        for wanted in ("1,0,2,3", "0,2,3,1"):
            self.head("table-ranks", 3)
            self.assertEqual(self.order("table-ranks"), wanted)
        a = 'a <b>&"$x$'
        for wanted in (f"{a},b", f"b,{a}"):
            self.head("table-tables", 0)
            self.assertEqual(self.order("table-tables"), wanted)
        self.assertTrue(self.browser.value("Array.from(document.images).every(function (image) { return image.complete && image.naturalWidth > 100; })"))
        self.alone("file://" + page)

    def point(self, panel, x, y):
        """Move the pointer to a place of a panel of the first picture, given in the panel's own numbers; returns the lines that are shown."""
        where = self.browser.value(f"""(function () {{
          var drawn = document.querySelector(".drawn"), image = drawn.querySelector("img"), one = JSON.parse(drawn.querySelector("script").textContent)[{panel}];
          image.scrollIntoView();
          var frame = image.getBoundingClientRect(), at = function (limits, value) {{ return (value - limits[0]) / (limits[1] - limits[0]); }};
          return [frame.x + frame.width * (one.box[0] + (one.box[2] - one.box[0]) * at(one.x, {x})), frame.y + frame.height * (one.box[3] - (one.box[3] - one.box[1]) * at(one.y, {y}))];
        }})()""")
        self.browser.move(*where)
        return self.browser.value("Array.from(document.querySelectorAll('.tip > *')).map(function (one) { return one.textContent; })"), where

    def test_pointer(self):
        """The numbers are those of the file: the loss of step s is 0.7 - 0.2 (s - 1) / 39, and evaluations are after steps 20 and 40."""
        page = self.show(self.run_file())
        for step in (1, 17, 40):
            (head, *rows), (x, y) = self.point(0, step, 0.6)
            loss = float(f"{0.7 - 0.2 * (step - 1) / 39:.5g}")
            evaluation = {1: "evaluation: 0.61 (step 20)", 17: "evaluation: 0.61 (step 20)", 40: "evaluation: 0.55"}[step]
            self.assertEqual(head, f"step {step}")
            self.assertEqual(sorted(rows), sorted([f"each step: {loss:g}", evaluation]))
            # The line through the step stands under the pointer, and each dot at the place of its number.
            self.assertAlmostEqual(self.browser.value("document.querySelector('.at').getBoundingClientRect().x"), x, delta=1.5)
        _, (_, wanted) = self.point(0, 40, 0.5)
        dots = self.browser.value("Array.from(document.querySelectorAll('.dot')).map(function (one) { var box = one.getBoundingClientRect(); return box.y + box.height / 2; })")
        self.assertLess(min(abs(dot - wanted) for dot in dots), 1.5)
        self.assertTrue(self.browser.value("(function () { var tip = document.querySelector('.tip').getBoundingClientRect(), image = document.querySelector('.drawn img').getBoundingClientRect(); return tip.left >= image.left && tip.right <= image.right + 1; })()"))
        self.picture("pointer")
        self.browser.move(2, 2)
        self.assertEqual(self.browser.value("document.querySelectorAll('.tip, .dot, .at').length"), 0)
        self.alone("file://" + page)

    def test_dark(self):
        """In the dark, the paper and the pictures' paper are dark, texts are light, and a curve keeps its hue."""
        self.show(self.run_file())
        brightness = "(function (name) { var c = getComputedStyle(document.body)[name].match(/\\d+/g); return (+c[0] + +c[1] + +c[2]) / 765; })"
        for scheme, paper, ink in (("light", 1, 0.13), ("dark", 0.09, 0.89)):
            self.browser.scheme(scheme)
            self.assertAlmostEqual(self.browser.value(brightness + "('backgroundColor')"), paper, delta=0.05)
            self.assertAlmostEqual(self.browser.value(brightness + "('color')"), ink, delta=0.05)
            self.assertEqual(self.browser.value("getComputedStyle(document.querySelector('.drawn img')).filter === 'none'"), scheme == "light")
            self.browser.value("document.querySelector('#curves').scrollIntoView()")
            self.browser.picture(self.path(scheme + ".png"))
            self.picture(scheme)
            import matplotlib.pyplot as plt

            pixels = plt.imread(self.path(scheme + ".png"))[:, :, :3].reshape(-1, 3)
            light, blue = pixels.mean(axis=1), pixels[:, 2] - pixels[:, 0]
            self.assertAlmostEqual(float(np.median(light)), paper, delta=0.06)
            self.assertGreater(int((blue > 0.4).sum()), 100, "the blue curve of the training")

    def test_no_network(self):
        """The page of two runs asks for nothing from elsewhere, and its policy forbids it."""
        page = self.show(self.run_file(), self.run_file("other.h5"))
        self.alone("file://" + page)
        self.assertTrue(all(address.startswith(("file://", "data:image/")) for address in self.browser.requests))
        self.assertEqual(self.order("table-runs"), "run,other")
        self.picture("runs")
        self.assertEqual(self.browser.value("""new Promise(function (done) {
          document.addEventListener("securitypolicyviolation", function (event) { done(event.effectiveDirective); });
          new Image().src = "http://127.0.0.1:9/x.png";
          setTimeout(done, 20000, "allowed");
        })"""), "img-src")

    def test_watched(self):
        """A page that is open shows what the training writes, keeps the order of a table, and says so when the watcher has ended."""
        path = self.path("run.h5")
        args = types.SimpleNamespace(files=[path], label=[], log=None, every=0.2, trace=None, output="report.html", watch=True)
        server = trswatch.open_server(0, report.Watch("run", args).text)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_address[1]}/{server.word}/"
            self.browser.scheme("light")
            self.browser.move(2, 2)
            self.browser.open(address)
            self.browser.wait("document.body.textContent.includes('is not there yet')")
            self.run_file(options="-steps 400 # run.opts\n")
            self.browser.wait("document.getElementById('curves')")
            self.assertEqual(self.browser.value("document.querySelector('progress').value / document.querySelector('progress').max"), 0.1)
            self.assertRegex(self.browser.value("document.querySelector('#now time[data-until]').textContent"), r"^\d+:\d\d:\d\d$")
            self.picture("watched")
            self.head("table-evaluations", 0)
            self.assertEqual(self.order("table-evaluations"), "40,20")
            self.browser.value("window.kept = document.getElementById('starts')")
            with handmade.changed(path) as h:
                h["eval/loss"][0] = 0.4321
            self.browser.wait("document.getElementById('evaluations').textContent.includes('0.43210')")
            self.assertEqual(self.order("table-evaluations"), "40,20")
            self.assertTrue(self.browser.value("window.kept === document.getElementById('starts')"), "a section that has not changed is replaced")
            self.assertEqual(self.point(0, 20, 0.6)[0][0], "step 20")
            self.browser.move(2, 2)
            self.alone(address)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
        self.browser.wait("document.getElementById('told').textContent.includes('has ended')")
        self.assertEqual(self.order("table-evaluations"), "40,20")


if __name__ == "__main__":
    if not browser.BROWSER:
        print("no Chromium here")
        sys.exit(77)
    unittest.main()
