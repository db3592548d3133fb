# SPDX-License-Identifier: BSD-3-Clause
"""A report in a headless browser: a click on a column's head sorts its table, and the page's own
policy allows its pictures and script.

Ends with 77 if there is no Chromium or Chrome.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import handmade

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Runs after the page's own script: clicks, and writes the order of the rows and the pictures' sizes
# into the page.
PROBE = """<script>
function order(table, column) { return Array.from(document.getElementById(table).tBodies[0].rows).map(function (row) { return row.cells[column].textContent; }).join(","); }
function click(table, column) { document.querySelectorAll("#" + table + " thead button")[column].click(); return order(table, 0); }
window.addEventListener("load", function () {
  var told = [order("table-ranks", 0), click("table-ranks", 3), click("table-ranks", 3), click("table-tables", 0), click("table-tables", 0)];
  told.push(Array.from(document.images).every(function (image) { return image.complete && image.naturalWidth > 100; }));
  document.title = told.join("|");
});
</script></body>"""


class Browser(handmade.Scratch):
    def test_clicks(self):
        page = self.path("report.html")
        result = handmade.tool("report.py", self.plan_file(handmade.make_plan()), "-o", page)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(page, encoding="utf-8") as text:
            words = text.read()
        with open(page, "w", encoding="utf-8") as out:
            out.write(words.replace("</body>", PROBE))
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + self.path("profile"), "--virtual-time-budget=5000", "--dump-dom", "file://" + page]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        title = result.stdout.partition("<title>")[2].partition("</title>")[0]
        # The memory of ranks 0 to 3 is 1, 4, 1, 1 GiB. Numbers are sorted from the largest, then
        # from the smallest; equal numbers keep their order. Names are sorted from a.
        a = 'a &lt;b&gt;&amp;"$x$'
        self.assertEqual(title, f"0,1,2,3|1,0,2,3|0,2,3,1|{a},b|b,{a}|true", result.stderr[-2000:])


if __name__ == "__main__":
    if not BROWSER:
        print("no Chromium here")
        sys.exit(77)
    unittest.main()
