#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check comments: at most 100 columns, each comment beside code complete in itself, and natural sentences.

    check_comments.py [ROOT]

- In the folders of WIDTH, no comment goes beyond column 100.
- In the folders of WIDTH, no comment beside code ends in a comma, a semicolon or a colon. Such a comment would continue in the next one.
- In the paths of VOICE, no sentence begins with "Of ", and no sentence that begins with What, Which, How, Where or Whether ends in a full
  stop. "but for" and "its like" do not occur, and "alone" occurs at most twice in a file. check_documents.py checks pages by the same rules.
Prints one line per finding; exit 0 iff none.
"""
import argparse
import pathlib
import re
import sys

COLUMNS, ALONE = 100, 2
SOURCES = (".c", ".h", ".cu", ".cuh", ".inc", ".cpp")
TESTS = ("regression/bench",
         "regression/campaign",
         "regression/cuda_on_cpu",
         "regression/examples",
         "regression/fault",
         "regression/fuzz",
         "regression/harness",
         "regression/mpich",
         "regression/property",
         "regression/python",
         "regression/sanitize",
         "regression/unit")
WIDTH = ("src", "gpu") + TESTS
VOICE = ("src",
         "gpu",
         "README.md",
         "input/FORMAT.md",
         "input/CONCEPTS.md",
         "input/DATA.md",
         "input/INSTALL.md",
         "input/MIGRATION.md",
         "input/MODELS.md",
         "input/PYTORCH.md",
         "input/README.md",
         "input/SERVING.md",
         "input/SHARDING.md",
         "input/TROUBLESHOOTING.md",
         "input/TUTORIAL.md",
         "input/WEIGHTS.md",
         "jobs/README.md",
         "regression/README.md",
         "tools/README.md",
         "tools/examples") + TESTS
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|/\*.*?\*/|//[^\n]*', re.S)
SENTENCE = re.compile(r"(?<=[.!?])[*_)\"]*\s+(?=[A-Z*_(\"`])")
CLAUSE = re.compile(r"(?:\w+ - )?[*_(\"]*(What|Which|How|Where|Whether)\b.*\.[*_)\"]*$", re.S)


def listed(path, paths):
    """True if a path, relative to the root, is one of the paths or lies below one of them."""
    return any(path == name or path.startswith(name + "/") for name in paths)


def voice(parts):
    """(line, finding) for (line, paragraph) pairs: the countable rules of a natural voice."""
    alone = 0
    for line, paragraph in parts:
        for sentence in SENTENCE.split(" ".join(paragraph.split())):
            start = sentence[:50]
            if re.match(r"(?:\w+ - )?[*_(\"]*Of ", sentence):
                yield line, f"a sentence begins with 'Of': {start}"
            if CLAUSE.match(sentence):
                yield line, f"a clause stands as a sentence: {start}"
            for phrase in re.findall(r"\b(but for|its like)\b", sentence, re.I):
                yield line, f"'{phrase}': {start}"
            alone += len(re.findall(r"\balone\b", sentence, re.I))
            if alone > ALONE:
                yield line, f"'alone' more than {ALONE} times in a file: {start}"
                alone = 0


def paragraphs(first, comment):
    """(line, text) for each paragraph of a comment. Each entry of a contract's In, Out and Errors is a paragraph, too."""
    text = re.sub(r"^(/\*+|//)|\*+/$", "", comment)
    number, parts = first, []
    for count, line in enumerate(text.split("\n") + [""]):
        line = re.sub(r"^\s*\*\s?", "", line) if count else line
        if not line.strip() or re.match(r"\s*(?:-|\w+:)\s", line):
            if parts:
                yield number, " ".join(parts)
            number, parts = first + count, []
        if line.strip():
            parts.append(re.sub(r"^\s*(?:-|\w+:)\s+", "", line).strip())


def findings(text, natural=False, width=True):
    """(line, finding) for each finding in a source."""
    prose = []
    for token in TOKEN.finditer(text):
        comment = token.group()
        if not comment.startswith(("/*", "//")):
            continue
        begin = text.rfind("\n", 0, token.start()) + 1
        first = text.count("\n", 0, begin) + 1
        prose += paragraphs(first, comment)
        for number, line in enumerate((text[begin:token.start()] + comment).split("\n"), first):
            if width and len(line) > COLUMNS:
                yield number, f"a comment ends in column {len(line)}, at most {COLUMNS}"
        words = comment.removesuffix("*/").rstrip()
        if width and text[begin:token.start()].strip() and words.endswith((",", ";", ":")):
            yield first + comment.count("\n"), f"the comment beside code ends in '{words[-1]}': it runs on into the next one"
    if natural:
        yield from voice(prose)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent, type=pathlib.Path)
    root = parser.parse_args().root
    paths = {root / name for name in WIDTH + VOICE}
    files = {path for top in paths for path in ([top] if top.is_file() else top.rglob("*")) if path.suffix in SOURCES}
    found = [f"{name} is missing" for name in WIDTH + VOICE if not (root / name).exists()]
    for path in sorted(files):
        name = str(path.relative_to(root))
        for line, what in findings(path.read_text(errors="replace"), listed(name, VOICE), listed(name, WIDTH)):
            found.append(f"{name}:{line}: {what}")
    print("\n".join(found + [f"{len(files)} sources, {len(found)} findings"]))
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
