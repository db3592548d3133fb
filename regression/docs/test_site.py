# SPDX-License-Identifier: BSD-3-Clause
"""Tests the site of all pages. It is built without a network, each link leads to a page and a
heading that exist, and no page loads anything from another machine. If Chromium is installed, a
browser uses the search, and sends requests only to this machine. `tools/site.sh serve` shows the
site."""
import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/site"))
import draw_pictures  # noqa: E402
import make_site  # noqa: E402

SITE = ROOT / "tools/site.sh"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def without_network():
    """The start of a command line that has no network, where this machine permits it."""
    words = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    allowed = shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    return words if allowed else []


class Copies(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="trshard-copy-")
        self.addCleanup(self.scratch.cleanup)
        self.tree, self.folder = pathlib.Path(self.scratch.name, "tree").resolve(), pathlib.Path(self.scratch.name, "docs")

    def copied(self, **files):
        for name, text in files.items():
            path = self.tree / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        make_site.Copy(self.tree, self.folder).page("a.md")
        return lambda name: (self.folder / name).read_text()

    def test_links(self):
        read = self.copied(a_md="[b](share/b.md#x), [c](share/c.c), [d](share/), [e](https://e.org), [f](#g)\n```\n[no](none.md)\n```\n",
                           share__b_md="![p](p.svg) [two\nlines](../a.md)\n", share__c_c="int c;\n", share__p_svg="<svg/>", share__README_md="# R\n")
        self.assertEqual(read("a.md"), "[b](share/b.md#x), [c](share/c.c.md), [d](share/README.md), [e](https://e.org), [f](#g)\n```\n[no](none.md)\n```\n")
        self.assertEqual(read("share/c.c.md"), "# share/c.c\n\n````c\nint c;\n````\n")
        self.assertTrue((self.folder / "share/p.svg").is_file())

    def test_missing(self):
        for link in ("none.md", "../outside.md"):
            with self.assertRaisesRegex(ValueError, "a.md: there is no"):
                self.copied(a_md=f"[x]({link})")

    def test_lists(self):
        self.assertEqual(make_site.for_mkdocs("text\n- a\n  more\n  - b\n- c\n\n| 1 |\n"), "text\n\n- a\n    more\n    - b\n- c\n\n| 1 |\n")

    def test_anchor(self):
        self.assertEqual(make_site.anchor("Tables: -tables_KEY for all, -table_NAME_KEY"), "tables--tables_key-for-all--table_name_key")


class Checks(unittest.TestCase):
    def findings(self, **pages):
        with tempfile.TemporaryDirectory(prefix="trshard-site-") as folder:
            for name, text in pages.items():
                pathlib.Path(folder, name.replace("_", ".")).write_text(text)
            done = subprocess.run([sys.executable, ROOT / "tools/site/make_site.py", "check", "--output", folder], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0 if done.stdout.endswith(" 0 findings\n") else 1)
            return done.stdout.splitlines()[:-1]

    def test_good(self):
        self.assertEqual(self.findings(a_html='<h1 id="x">a</h1><a href="b.html#y"></a><a href="#x"></a><a href="https://e.org">', b_html='<p id="y"><img src="data:x">'), [])

    def test_bad(self):
        found = self.findings(a_html='<a href="none.html"></a><a href="#x"></a><script src="https://cdn.org/x.js"></script><link rel="stylesheet" href="//cdn.org/x.css">',
                              b_css='p { background: url("https://cdn.org/x.png") }')
        self.assertEqual(found, ["a.html: loads https://cdn.org/x.js", "a.html: loads //cdn.org/x.css", "a.html: none.html is not there",
                                 "a.html: #x has no such heading", "b.css: loads https://cdn.org/x.png"])


class Pictures(unittest.TestCase):
    def test_drawn(self):
        """The pictures are those that the script draws."""
        for name, draw in draw_pictures.PICTURES.items():
            self.assertEqual((ROOT / f"input/pictures/{name}.svg").read_text(encoding="utf-8"), draw().svg(), f"draw {name}.svg again with tools/site/draw_pictures.py")


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="trshard-site-")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        has_git = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, check=False).returncode == 0
        cls.refs = ["HEAD"] if has_git else []
        done = subprocess.run([*without_network(), SITE, "build", "--output", cls.folder, *(word for ref in cls.refs for word in ("--ref", ref))],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode == 77:
            raise unittest.SkipTest(done.stdout)
        assert done.returncode == 0, done.stdout
        cls.warnings = [line for line in done.stdout.splitlines() if line.startswith(("WARNING", "ERROR"))]
        cls.version = make_site.version_of(ROOT)

    def test_warnings(self):
        self.assertEqual(self.warnings, [])

    def test_links(self):
        done = subprocess.run([SITE, "check", "--output", self.folder], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertGreater(int(re.search(r"(\d+) links", done.stdout)[1]), 1000)

    def test_contents(self):
        """The site has each page of the repository's guides, and its search finds each page."""
        here = self.folder / self.version
        pages = [page.relative_to(ROOT) for folder in ("input", "jobs", "tools", "src", "gpu", "regression") for page in (ROOT / folder).glob("*.md")]
        known = {entry["location"].split("#")[0] for entry in json.loads((here / "search/search_index.json").read_text(encoding="utf-8"))["docs"]}
        for page in pages:
            name = str(page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html"))
            self.assertTrue((here / name).is_file() and name in known, f"{page} is not in the site or its search")
        self.assertIn("src/api/FUNCTIONS.html", known)

    def test_versions(self):
        names = [entry["version"] for entry in json.loads((self.folder / "versions.json").read_text(encoding="utf-8"))]
        self.assertEqual(names, [self.version, *self.refs])
        self.assertIn(f"{self.version}/index.html", (self.folder / "index.html").read_text(encoding="utf-8"))

    def served(self):
        server = subprocess.Popen([SITE, "serve", "--no-build", "--port", "0", "--output", self.folder], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        return re.match(r"(http://\S+/) ", server.stdout.readline())[1]

    def test_serve(self):
        address = self.served()
        with urllib.request.urlopen(f"{address}{self.version}/input/TUTORIAL.html") as page:
            self.assertIn("from a table to predictions", page.read().decode())

    @unittest.skipUnless(BROWSER, "there is no browser")
    def test_browser(self):
        """The search finds a page, the menu has the versions, and all requests go to this machine."""
        (self.folder / "probe.html").write_text(PROBE.replace("PAGE", f"{self.version}/input/TUTORIAL.html?q=scatter"), encoding="utf-8")
        Reports.arrived.clear()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Reports, directory=str(self.folder)))
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        log = self.folder / "net.json"
        browser = subprocess.Popen([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run",
                                    f"--user-data-dir={self.folder / 'profile'}", f"--log-net-log={log}", f"http://localhost:{server.server_port}/probe.html"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.assertTrue(Reports.arrived.wait(180), "the search found nothing within three minutes")
        finally:
            browser.terminate()
            browser.wait()
        self.assertTrue(any("SHARDING.html" in link for link in Reports.report["links"]), Reports.report)
        self.assertEqual(Reports.report["versions"], [self.version, *self.refs])
        hosts = set(re.findall(r'"url":"https?://([^/:"]+)[^"]*\.(?:js|css|woff2?|png|svg|html|json)', log.read_text(encoding="utf-8", errors="replace")))
        self.assertEqual(hosts, {"localhost"})


PROBE = """<!doctype html><iframe id="site" src="PAGE" width="1200" height="800"></iframe><script>
const timer = setInterval(() => {
  const page = document.getElementById("site").contentDocument;
  const texts = (name, what) => [...page.querySelectorAll(name)].map(what);
  const links = texts(".md-search-result__link", e => e.href), versions = texts(".md-version__link", e => e.textContent.trim());
  if (links.length && versions.length) { clearInterval(timer); fetch("/report", {method: "POST", body: JSON.stringify({links, versions})}); }
}, 200);</script>
"""


class Reports(make_site.Quiet):
    """Serves the site, and takes the report of PROBE."""
    arrived, report = threading.Event(), {}

    def do_POST(self):  # noqa: N802
        Reports.report.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()
        self.arrived.set()


if __name__ == "__main__":
    program = unittest.main(exit=False)
    skipped = any("Site" in str(test) for test, _ in program.result.skipped)
    sys.exit(77 if program.result.wasSuccessful() and skipped else not program.result.wasSuccessful())
