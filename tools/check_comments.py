#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check the layout of comments in src/ and gpu/: at most 100 columns, and each comment beside code is whole in itself.

    check_comments.py [ROOT]

A comment beside code that ends in a comma, a semicolon or a colon runs on into the comment of the next line. Prints one line per finding; exit 0 iff none.
"""
import argparse
import pathlib
import re
import sys

COLUMNS = 100
SOURCES = (".c", ".h", ".cu", ".cuh", ".inc")
# texts and characters are matched so that what looks like a comment in them is passed over
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|/\*.*?\*/|//[^\n]*', re.S)


def findings(text):
    """(line, what) for each finding in a source."""
    for token in TOKEN.finditer(text):
        comment = token.group()
        if not comment.startswith(("/*", "//")):
            continue
        begin = text.rfind("\n", 0, token.start()) + 1
        first = text.count("\n", 0, begin) + 1
        for number, line in enumerate((text[begin:token.start()] + comment).split("\n"), first):
            if len(line) > COLUMNS:
                yield number, f"a comment ends in column {len(line)}, at most {COLUMNS}"
        words = comment.removesuffix("*/").rstrip()
        if text[begin:token.start()].strip() and words.endswith((",", ";", ":")):
            yield first + comment.count("\n"), f"the comment beside code ends in '{words[-1]}': it runs on into the next one"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent, type=pathlib.Path)
    root = parser.parse_args().root
    files = sorted(path for folder in ("src", "gpu") for path in (root / folder).rglob("*") if path.suffix in SOURCES)
    found = [f"{path.relative_to(root)}:{line}: {what}" for path in files for line, what in findings(path.read_text(errors="replace"))]
    print("\n".join(found + [f"{len(files)} sources, {len(found)} findings"]))
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
