#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check the documents: lengths of lines and sentences, links, and that tools/README.md describes each tool.

    check_documents.py [ROOT] [DOCUMENT ...]

- README.md has at most 60 lines: one screen.
- input/TUTORIAL.md has at most 1000 words.
- The pages of PLAIN have at most 100 columns, except for rows of tables outside README.md, and no
  sentence over 30 words. A table cell and a list item end a sentence.
- In all documents, links inside the repository lead to files and headings that exist.
- tools/README.md names each file of tools/, and no file that does not exist.
- The pages among check_comments.py's VOICE follow its rules of a natural voice.
- README.md's citation, the newest entry of input/CHANGELOG.md and the Python package have
  CMakeLists.txt's version.
Prints one line per finding; exit 0 iff none.
"""
import argparse
import html
import pathlib
import re
import subprocess
import sys

import check_comments

LINES, COLUMNS, WORDS, TUTORIAL_WORDS = 60, 100, 30, 1000
PLAIN = ("README.md", "input/README.md", "input/TUTORIAL.md", "input/CONCEPTS.md", "input/PYTORCH.md",
         "input/INSTALL.md", "input/DATA.md", "input/MODELS.md", "input/SHARDING.md", "input/WEIGHTS.md",
         "input/SERVING.md",
         "input/FORMAT.md", "input/OPTIONS.md", "input/TROUBLESHOOTING.md", "input/MIGRATION.md",
         "input/CHANGELOG.md", "jobs/README.md", "tools/README.md",
         "src/README.md", "src/RULES.md", "src/plan/README.md", "gpu/README.md",
         "regression/README.md", "tools/python/README.md")
LINK = re.compile(r"!?\[([^\]]*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```.*?^```[^\n]*$", re.MULTILINE | re.DOTALL)
STARTS = re.compile(r"^\s*(?:[-*#>]+|\d+\.|\|)\s*")


def blank(match):
    """As many line ends as the match has."""
    return "\n" * match.group().count("\n")


def prose(text):
    """The text without code blocks and comments, with unchanged line numbers."""
    text = re.sub(r"<!--.*?-->", blank, FENCE.sub(blank, text), flags=re.DOTALL)
    return re.sub(r"^    .*$", "", text, flags=re.MULTILINE)


def anchors(path):
    """GitHub's anchors of a page's headings."""
    found = set()
    for line in FENCE.sub(blank, path.read_text(encoding="utf-8")).splitlines():
        if line.startswith("#"):
            text = html.unescape(LINK.sub(r"\1", line.lstrip("# ")))
            title = re.sub(r"[^\w\- ]", "", text.lower())
            found.add(title.replace(" ", "-"))
    return found


def sentences(text):
    """Pairs of a line number and the text of a sentence that begins there."""
    parts, begin = [], 1
    for number, line in enumerate(prose(text).splitlines() + [""], 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] \
            if line.lstrip().startswith("|") else None
        if cells or not line.strip() or STARTS.match(line):
            yield from split(begin, parts)
            parts, begin = [], number
        if cells:
            for cell in cells:
                yield from split(number, [cell])
        elif line.strip():
            parts.append(STARTS.sub("", line).strip())
    yield from split(begin, parts)


def split(number, parts):
    text = re.sub(r"`[^`]*`", "code", LINK.sub(r"\1", " ".join(parts)))
    for sentence in re.split(r"(?<=[.!?])[*_)\"]*\s+(?=[A-Z*_(\"]|code)", text):
        if sentence.strip():
            yield number, sentence.strip()


def check_plain(name, text, problems):
    lines = text.splitlines()
    if name == "README.md" and len(lines) > LINES:
        problems.append(f"{name}: {len(lines)} lines, at most {LINES}")
    if name == "input/TUTORIAL.md" and len(text.split()) > TUTORIAL_WORDS:
        problems.append(f"{name}: {len(text.split())} words, at most {TUTORIAL_WORDS}")
    for number, line in enumerate(lines, 1):
        table = line.startswith("|") and name != "README.md"
        if len(line) > COLUMNS and not table:
            problems.append(f"{name}:{number}: {len(line)} columns, at most {COLUMNS}")
    if check_comments.listed(name, check_comments.VOICE):
        problems += [f"{name}:{number}: {what}" for number, what in check_comments.voice(sentences(text))]
    for number, sentence in sentences(text):
        if len(sentence.split()) > WORDS:
            problems.append(f"{name}:{number}: {len(sentence.split())} words, at most {WORDS}: "
                            f"{sentence[:60]} ...")


def check_links(root, path, problems):
    name = path.relative_to(root)
    for number, line in enumerate(FENCE.sub(blank, path.read_text(encoding="utf-8")).splitlines(), 1):
        for _, target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            file, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            goal = (path.parent / file).resolve() if file else path
            if not goal.exists() or root not in [goal, *goal.parents]:
                problems.append(f"{name}:{number}: there is no {target}")
            elif anchor and (goal.suffix != ".md" or anchor not in anchors(goal)):
                problems.append(f"{name}:{number}: {target} has no such heading")


def check_tools(root, listed, problems):
    page = root / "tools/README.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    named = set(re.findall(r"`([\w/]+\.(?:py|sh))`", text))
    files = {name[len("tools/"):] for name in listed if re.match(r"tools/\w+\.(py|sh)$", name)}
    for name in sorted(files - named):
        problems.append(f"tools/README.md: says nothing of {name}")
    for name in sorted(named - files):
        if not (root / "tools" / name).exists() and not (root / name).exists():
            problems.append(f"tools/README.md: there is no {name}")


def check_version(root, problems):
    version = re.search(r"VERSION (\d+\.\d+\.\d+)", (root / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
    for name, pattern in (("README.md", r'cite "trshard (\S+),'), ("input/CHANGELOG.md", r"^## (\d\S*)"), ("tools/python/pyproject.toml", r'^version = "(\S+)"')):
        path = root / name
        found = re.search(pattern, path.read_text(encoding="utf-8") if path.exists() else "", re.MULTILINE)
        if not found or found[1] != version:
            problems.append(f"{name}: has version {found and found[1]}, CMakeLists.txt {version}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent,
                        type=pathlib.Path)
    root = parser.parse_args().root.resolve()
    git = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
                         capture_output=True, text=True, check=False)
    listed = git.stdout.splitlines() if git.returncode == 0 else [
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    pages = sorted(name for name in listed if name.endswith(".md") and (root / name).exists())
    problems = []
    for name in pages:
        check_links(root, root / name, problems)
        if name in PLAIN or check_comments.listed(name, check_comments.VOICE):
            check_plain(name, (root / name).read_text(encoding="utf-8"), problems)
    problems += [f"{name} is missing" for name in PLAIN if name not in pages]
    check_tools(root, listed, problems)
    check_version(root, problems)
    print("\n".join(problems + [f"{len(pages)} documents, {len(problems)} findings"]))
    return 1 if problems or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
