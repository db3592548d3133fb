#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check that all citations in sources and documents exist: rules, sections and files of this repository.

    check_references.py [ROOT]

"src/RULES.md, rule A12" must be a rule of this page, and "src/RULES.md, section 13" and "src/plan/RULES.md, section 5" must be headings of these
pages. A path such as "compute/cache.h" must be the end of a tracked file's path. Prints one line per finding; exit 0 iff none.
"""
import argparse
import pathlib
import re
import subprocess
import sys

RULE = re.compile(r"(src/RULES\.md, )?\b[Rr]ules? (A\d+(?:(?:,? (?:and|to|or) |, )A\d+)*)")
SECTION = re.compile(r"\b(src/(?:plan/)?RULES\.md), sections? (\d+)")
PATH = re.compile(r"(?<![\w/.$<{*-])((?:[a-z_0-9]+/)+[\w-]+\.(?:cpp|cu|c|h|md|py|sh))\b(?![*/>])")
# documents that are not in the repository
ELSEWHERE = re.compile(r"\bspec: ?(?:runtime|planner)|\bINTERFACE(?:\.md| sections?\b)|\bshared/|\b(?:DESIGN|STYLE)\.md\b")
COMMENTS = {".c": r"/\*.*?\*/|//[^\n]*", ".h": r"/\*.*?\*/|//[^\n]*", ".cu": r"/\*.*?\*/|//[^\n]*", ".cpp": r"/\*.*?\*/|//[^\n]*",
            ".py": r"#[^\n]*|\"\"\".*?\"\"\"", ".sh": r"#[^\n]*", ".txt": r"#[^\n]*", ".md": r"[^\n]+(?:\n[^\n]+)*"}
FOREIGN = ("torchrec/", "torch/", "share/")  # paths of other projects, and of the bundle


def rules_of(text):
    """The numbers of all rules in a citation: "A7 to A9" has three."""
    for first, last in re.findall(r"A(\d+)(?: to A(\d+))?", text):
        yield from range(int(first), int(last or first) + 1)


def findings(root, name, text, defined, headings, tracked):
    for comment in re.finditer(COMMENTS[pathlib.Path(name).suffix], text, re.S):
        body, line = comment.group(), text[: comment.start()].count("\n") + 1
        flat = re.sub(r"\s+(?:[*#]\s+)?", " ", body)  # citations may continue on the next line
        for match in RULE.finditer(flat):
            if not match.group(1) and name != "src/RULES.md":
                yield line, f'"{match.group()}" does not say in which file: "src/RULES.md, {match.group()}"'
            for number in rules_of(match.group(2)):
                if number not in defined:
                    yield line, f"rule A{number} is not in src/RULES.md"
        for match in SECTION.finditer(flat):
            if int(match.group(2)) not in headings[match.group(1)]:
                yield line, f"{match.group(1)} has no section {match.group(2)}"
        for match in ELSEWHERE.finditer(flat):
            yield line, f'"{match.group()}" is not in this repository'
        for match in PATH.finditer(flat):
            path = match.group(1)
            if path.startswith(FOREIGN):
                continue
            if not any(file == path or file.endswith("/" + path) for file in tracked):
                yield line, f"there is no {path}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", default=".")
    root = pathlib.Path(parser.parse_args().root)
    tracked = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True,
                             text=True).stdout.split()
    tracked = [name for name in tracked if (root / name).is_file()]
    headings = {name: {int(n) for n in re.findall(r"^## (\d+)\.", (root / name).read_text(), re.M)}
                for name in ("src/RULES.md", "src/plan/RULES.md")}
    defined = {int(n) for n in re.findall(r"^\*\*A(\d+)\.", (root / "src/RULES.md").read_text(), re.M)}
    bad = 0
    for name in tracked:
        if pathlib.Path(name).suffix not in COMMENTS or pathlib.Path(name).name == "check_references.py":
            continue
        for line, what in findings(root, name, (root / name).read_text(errors="replace"), defined, headings, tracked):
            print(f"{name}:{line}: {what}")
            bad += 1
    print(f"check_references: {bad} findings" if bad else "check_references: everything cited is there")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
