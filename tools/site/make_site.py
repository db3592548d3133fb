#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Make a site with search from the repository's pages, with MkDocs. It needs no network.

  make_site.py build [--output FOLDER] [--ref REF ...]    build/site/VERSION/ from the pages of this clone. --ref also makes
                                                          the site of a tag or commit, in FOLDER/REF/
  make_site.py serve [--port N] ...                       the same, and shows it on http://localhost:N/
  make_site.py check [--output FOLDER]                    check that each link of a built site leads to a page and a heading,
                                                          and that no page loads anything from elsewhere

The pages lie where they are in the repository. A copy for MkDocs has the same tree. A link to a source file leads to a page
with its text. All versions that FOLDER has are in the menu of each page.
"""
import argparse
import functools
import html.parser
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
import document_functions  # noqa: E402

LINK = re.compile(r"(!?\[[^\]]*\])\(([^()\s]+)\)")
FENCE = re.compile(r"(^```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)
PICTURES = {".png", ".svg"}
LANGUAGES = {".c": "c", ".h": "c", ".py": "python", ".sh": "bash", ".sbatch": "bash", ".yaml": "yaml"}
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data", "embed": "src"}
RELATIONS = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch", "prefetch", "manifest"}  # links that load


def anchor(title, _separator="-"):
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


# --- the copy for MkDocs ---


def for_mkdocs(text):
    """Python's Markdown wants four blanks before a part of a list item, and an empty line before a list."""
    parts = FENCE.split(text)
    for number in range(0, len(parts), 2):
        lines = []
        for line in parts[number].split("\n"):
            if re.match(r" {2,3}\S", line):
                line = "    " + line.lstrip(" ")
            paragraph = lines[len(lines) - lines[::-1].index("") :] if "" in lines else lines
            if line.startswith("- ") and paragraph and not paragraph[0].startswith(("- ", "    ")):
                lines.append("")
            lines.append(line)
        parts[number] = "\n".join(lines)
    return "".join(parts)


class Copy:
    """Pages of a tree, copied with everything they link to."""

    def __init__(self, tree, folder):
        self.tree, self.folder, self.made = tree, folder, set()

    def page(self, path):
        """Copy a page; path is relative to the tree."""
        if path in self.made:
            return
        self.made.add(path)
        text = (self.tree / path).read_text(encoding="utf-8")
        parts = FENCE.split(re.sub(r"\A<!--.*?-->\n", "", text))  # MkDocs takes the first line as the title
        for number in range(0, len(parts), 2):
            parts[number] = LINK.sub(lambda match: f"{match[1]}({self.target(path, match[2])})", parts[number])
        self.write(path, for_mkdocs("".join(parts)))

    def write(self, path, text):
        goal = self.folder / path
        goal.parent.mkdir(parents=True, exist_ok=True)
        goal.write_text(text, encoding="utf-8")

    def target(self, path, link):
        """A link's target in the copy. What it leads to is copied, too."""
        file, _, heading = link.partition("#")
        if not file or re.match(r"[a-z]+:", file):
            return link
        goal = pathlib.Path(os.path.normpath(self.tree / pathlib.PurePath(path).parent / file))
        goal = goal / "README.md" if goal.is_dir() else goal
        if not goal.is_file() or self.tree not in goal.parents:
            raise ValueError(f"{path}: there is no {link}")
        name = goal.relative_to(self.tree).as_posix()
        if goal.suffix == ".md":
            self.page(name)
        elif goal.suffix in PICTURES:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(goal, self.folder / name)
        else:
            text = goal.read_text(encoding="utf-8")
            self.write(name + ".md", f"# {name}\n\n````{LANGUAGES.get(goal.suffix, 'text')}\n{text.rstrip()}\n````\n")
            name += ".md"
        return os.path.relpath(name, pathlib.PurePath(path).parent).replace(os.sep, "/") + (f"#{heading}" if heading else "")


def pages_of(nav):
    """The pages of a navigation, in order."""
    for entry in nav:
        if isinstance(entry, dict):
            for value in entry.values():
                yield from [value] if isinstance(value, str) else pages_of(value)
        else:
            yield entry


def only(nav, there):
    """The navigation without pages that are not there."""
    found = []
    for entry in nav:
        if isinstance(entry, dict):
            entry = {title: value if isinstance(value, str) else only(value, there) for title, value in entry.items()}
            if all(value in there if isinstance(value, str) else value for value in entry.values()):
                found.append(entry)
        elif entry in there:
            found.append(entry)
    return found


def functions_page(tree):
    """The page of the library's functions, made from its header."""
    return document_functions.page((tree / "src/api/trshard.h").read_text(encoding="utf-8"))


def build(tree, goal):
    """The site of a tree's pages, in the folder goal."""
    from mkdocs.commands import build as mkdocs_build
    from mkdocs.config import load_config
    with tempfile.TemporaryDirectory(prefix="trshard-site-") as scratch:
        copy = Copy(tree, pathlib.Path(scratch))
        config = load_config(str(HERE / "mkdocs.yml"), docs_dir=scratch, site_dir=str(goal))
        listed = set(pages_of(config["nav"]))
        use = next(entry["Use"] for entry in config["nav"] if isinstance(entry, dict) and "Use" in entry)
        use += [page for page in sorted(path.relative_to(tree).as_posix() for path in tree.glob("input/*.md")) if page not in listed]
        for page in pages_of(config["nav"]):
            if (tree / page).is_file():
                copy.page(page)
        if (tree / "src/api/trshard.h").is_file():
            copy.write("src/api/FUNCTIONS.md", functions_page(tree))
            copy.made.add("src/api/FUNCTIONS.md")
        shutil.copyfile(HERE / "site.css", copy.folder / "site.css")
        config["nav"] = only(config["nav"], copy.made)
        mkdocs_build.build(config)


def version_of(tree):
    return re.search(r"VERSION (\d+\.\d+\.\d+)", (tree / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def build_all(output, refs):
    """The site of this clone and of each ref, with the list of versions and a first page that leads to the newest."""
    newest = version_of(ROOT)
    build(ROOT, output / newest)
    for ref in refs:
        with tempfile.TemporaryDirectory(prefix="trshard-ref-") as scratch:
            archive = subprocess.run(["git", "-C", str(ROOT), "archive", "--format=tar", ref], check=True, capture_output=True).stdout
            subprocess.run(["tar", "-x", "-C", scratch], input=archive, check=True)
            build(pathlib.Path(scratch).resolve(), output / ref.replace("/", "-"))
    others = sorted((path.name for path in output.iterdir() if (path / "index.html").is_file() and path.name != newest), reverse=True)
    versions = [{"version": name, "title": name, "aliases": ["latest"] if name == newest else []} for name in [newest, *others]]
    (output / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
    (output / "index.html").write_text(f'<!doctype html><meta charset="utf-8"><title>trshard</title><meta http-equiv="refresh" content="0; url={newest}/index.html">'
                                       f'<a href="{newest}/index.html">trshard {newest}</a>\n', encoding="utf-8")


# --- checks of a built site ---


class Links(html.parser.HTMLParser):
    """The links, headings and loaded files of a page."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids.update(filter(None, (found.get("id"), found.get("name") if tag == "a" else None)))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in LOADED and found.get(LOADED[tag]) and (tag != "link" or RELATIONS & set(found.get("rel", "").split())):
            self.loaded.append(found[LOADED[tag]])


@functools.lru_cache(maxsize=None)
def read_page(path):
    links = Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


def broken(site, page, link):
    """The reason why a link of a page leads nowhere, or None."""
    parts = urllib.parse.urlsplit(link)
    goal = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
    goal = goal / "index.html" if goal.is_dir() else goal
    if site not in goal.parents or not goal.is_file():
        return "is not there"
    if parts.fragment and goal.suffix == ".html" and urllib.parse.unquote(parts.fragment) not in read_page(goal).ids:
        return "has no such heading"
    return None


def check(output):
    site, findings, n_links = output.resolve(), [], 0
    pages = sorted(site.rglob("*.html"))
    for page in pages:
        found, name = read_page(page), page.relative_to(site)
        elsewhere = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
        findings += [f"{name}: loads {link}" for link in found.loaded if elsewhere.match(link) and not link.startswith("data:")]
        if page.name == "404.html":  # its links begin at the site's root
            continue
        inside = [link for link in found.links + found.loaded if not elsewhere.match(link)]
        n_links += len(inside)
        findings += [f"{name}: {link} {why}" for link in inside for why in [broken(site, page, link)] if why]
    for sheet in site.rglob("*.css"):
        findings += [f"{sheet.relative_to(site)}: loads {link}" for link in re.findall(r"""(?:url\(|@import )["']?((?:https?:)?//[^"')]+)""", sheet.read_text(encoding="utf-8"))]
    print("\n".join(findings + [f"{len(pages)} pages, {n_links} links, {len(findings)} findings"]))
    return 1 if findings or not pages else 0


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server without a line for each request."""

    def log_message(self, *_):
        pass


def serve(output, port):
    handler = functools.partial(Quiet, directory=str(output))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://localhost:{server.server_port}/    Ctrl-C ends it", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "serve", "check"))
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/site", help="folder of the site (default: build/site)")
    parser.add_argument("--ref", action="append", default=[], help="a tag or commit whose pages become a version, too; may be repeated")
    parser.add_argument("--no-build", action="store_true", help="serve the site that is in the folder")
    parser.add_argument("--port", type=int, default=8000, help="of serve; 0: any free one (default: 8000)")
    args = parser.parse_args()
    if args.what == "build" or (args.what == "serve" and not args.no_build):
        args.output.mkdir(parents=True, exist_ok=True)
        build_all(args.output, args.ref)
        print(f"{args.output / version_of(ROOT) / 'index.html'}", flush=True)
    if args.what == "serve":
        serve(args.output, args.port)
    return check(args.output) if args.what == "check" else 0


if __name__ == "__main__":
    sys.exit(main())
