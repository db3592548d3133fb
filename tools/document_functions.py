#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the library's functions as documents: manual pages and a page in Markdown.

  document_functions.py src/api/trshard.h --output-dir build/documents/man3
  document_functions.py src/api/trshard.h --page FUNCTIONS.md

The source of all documents is the header with its comments. A function's comment is sentences, or "NAME - Summary." and
paragraphs. "In:", "Out:" and "Errors:" begin lists of arguments and codes.
"""
import argparse
import dataclasses
import os
import re
import sys
import textwrap

from document_options import roff

# a comment, and the declarations that share it
DECLARATIONS = re.compile(r"/\*((?:(?!\*/).)*)\*/\s*((?:TRSHARD_API [^;]*;\s*)+)", re.S)
DECLARATION = re.compile(r"TRSHARD_API ([^;]*?(\w+)\([^;]*\));")
TYPE = re.compile(r"(/\*(?:(?!\*/).)*\*/\s*)?(typedef (?:(?:struct|enum) (?:\w+ )?\{(?:[^{}]|\{[^{}]*\})*\} |struct \w+ \*)(\w+);)", re.S)
CODE = re.compile(r"TRSHARD_(?:ERROR_)?(\w+) = (\d+)")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
SECTION = re.compile(r"(In|Out|InOut|Errors):\s+")


@dataclasses.dataclass
class Function:
    name: str
    declaration: str
    summary: str
    paragraphs: list
    arguments: list  # (In, Out or InOut, name, text)
    errors: str


@dataclasses.dataclass
class Header:
    introduction: list  # paragraphs; a text with line ends is a block of code
    codes: dict  # OPTION -> 64
    types: list  # (name, paragraphs of the comment, text)
    functions: list


def flat(text):
    return " ".join(text.split())


def blocks(comment):
    """The parts of a comment between empty lines, with their indentation beyond two blanks."""
    lines = [line[2:] if line.startswith("  ") else line.strip() for line in comment.strip("\n").split("\n")]
    return [block for block in re.split(r"\n\s*\n", "\n".join(line.rstrip() for line in lines)) if block.strip()]


def entries(first, lines):
    """(name, text) of a list of arguments: names begin in the column of the first one, and so do the texts."""
    column, found = len(first) - len(first.lstrip()), []
    text = column + re.match(r".*?\s{2,}|.*", first[column:]).end()
    for line in [first] + lines:
        if len(line) - len(line.lstrip()) == column:
            found.append([line[column:text].strip(), line[text:]])
        else:
            found[-1][1] += " " + line.strip()
    return [(name, flat(words)) for name, words in found]


def own_summary(block, name):
    """The first paragraph of a comment, which may have a summary for each of several functions: "NAME - Summary."."""
    parts = re.split(r"^(\w+) - ", block, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2])).get(name, parts[-1])


def parse_function(comment, declaration, name):
    paragraphs, arguments, errors = [], [], ""
    first_block, *rest = blocks(comment)
    for block in [own_summary(first_block, name)] + rest:
        lines, number = block.split("\n"), 0
        while number < len(lines):
            match = SECTION.match(lines[number])
            last = next((n for n in range(number + 1, len(lines)) if SECTION.match(lines[n])), len(lines))
            if not match:
                paragraphs.append(flat(" ".join(lines[number:last])))
            elif match[1] == "Errors":
                errors = flat(" ".join([lines[number][match.end() :]] + lines[number + 1 : last]))
            else:
                first = " " * match.end() + lines[number][match.end() :]
                arguments += [(match[1], *entry) for entry in entries(first, lines[number + 1 : last])]
            number = last
    for number, text in enumerate(paragraphs):  # errors in a sentence
        match = re.search(r"(?:^|\s)Errors( \([^)]*\))?: (.*)$", text)
        if match:
            paragraphs[number], errors = text[: match.start()], match[2] + (match[1] or "")
    first, *rest = SENTENCE.split(paragraphs[0], maxsplit=1)
    return Function(name, flat(declaration), first, [text for text in rest + paragraphs[1:] if text], arguments, errors)


def paragraphs_of(comment):
    """Paragraphs of a comment, and blocks of code as they are."""
    return [block if block.startswith("  ") else flat(block) for block in blocks(comment)]


def read(header):
    introduction = paragraphs_of(re.findall(r"/\*(.*?)\*/", header, re.S)[1])
    types = [(match[3], paragraphs_of(match[1].strip()[2:-2]) if match[1] else [], match[2]) for match in TYPE.finditer(header)]
    functions = [parse_function(match[1], *declared) for match in DECLARATIONS.finditer(header) for declared in DECLARATION.findall(match[2])]
    return Header(introduction, dict(CODE.findall(header)), types, functions)


def with_codes(text, codes):
    """Names of errors as the constants of the header."""
    return re.sub(r"\b[A-Z_]{2,}\b", lambda match: f"TRSHARD_ERROR_{match[0]}" if match[0] in codes and match[0] not in ("SUCCESS", "STOPPED") else match[0], text)


# --- manual pages ---


def synopsis(declaration):
    """The declaration in lines of a terminal, with a hanging indentation."""
    return textwrap.wrap(declaration + ";", 76, subsequent_indent=" " * (declaration.index("(") + 1))


def head(name, version):
    return [f'.TH {name} 3 "" "trshard {version}" "libtrshard"', ".SH NAME"]


def code(text):
    return [".PP", ".nf", ".RS 4"] + roff(text).split("\n") + [".RE", ".fi"]


def prose(paragraphs):
    lines = []
    for number, text in enumerate(paragraphs):
        lines += code(re.sub(r"^  ", "", text, flags=re.MULTILINE)) if text.startswith("  ") else ([".PP"] if number else []) + [roff(text)]
    return lines


def manual(function, header, version):
    lines = head(function.name, version) + [f"{function.name} \\- {roff(function.summary.rstrip('.'))}", ".SH SYNOPSIS", ".nf",
                                            ".B #include <trshard.h>", ".PP", ".ft B", *map(roff, synopsis(function.declaration)), ".ft", ".fi",
                                            ".PP", "Link with \\fI\\-ltrshard\\fP."]
    lines += [".SH DESCRIPTION"] + prose([function.summary] + function.paragraphs)
    if function.arguments:
        lines.append(".SH ARGUMENTS")
        for kind, name, text in function.arguments:
            lines += [".TP", f".BR \"{roff(name)}\" \" ({kind.lower()})\"", roff(text)]
    if function.declaration.startswith("int ") and function.name != "TrshardMain":
        lines += [".SH RETURN VALUE", "0, or an error code.", ".BR TrshardErrorMessage (3)", "then returns a message."]
    if function.errors:
        lines += [".SH ERRORS", roff(with_codes(function.errors, header.codes))]
    return "\n".join(lines + [".SH SEE ALSO", ".BR libtrshard (3),", ".BR trshard (1)"]) + "\n"


def overview(header, version):
    lines = head("libtrshard", version) + ["libtrshard \\- " + roff(header.introduction[0].split(": ", 1)[1].rstrip(".")), ".SH SYNOPSIS", ".nf", ".B #include <trshard.h>",
                                           ".PP", "\\fBcc\\fP $(pkg\\-config \\-\\-cflags \\-\\-libs trshard) ...", ".fi", ".SH DESCRIPTION"]
    lines += prose(header.introduction[1:]) + [".SH FUNCTIONS"]
    for function in header.functions:
        lines += [".TP", f".BR {function.name} (3)", roff(function.summary)]
    lines.append(".SH TYPES")
    for name, comment, text in header.types:
        lines += [f".SS {name}"] + prose(comment) + code(text)[0 if comment else 1 :]
    lines.append(".SH ERRORS")
    for name, number in header.codes.items():
        lines += [".TP", f".B {number}", roff(with_codes(name, header.codes) if name not in ("SUCCESS", "STOPPED") else f"TRSHARD_{name}")]
    return "\n".join(lines + [".SH SEE ALSO", ".BR trshard (1)"]) + "\n"


# --- a page in Markdown ---


def mark(text):
    """Names as code, and characters of Markdown as they are."""
    text = text.replace("*", "\\*").replace("<", "&lt;").replace("_", "\\_")
    return re.sub(r"(?<![\w`])(-[a-z][\w\\<>&;]*|Trshard\w+(?:\(\))?|TRSHARD(?:\\_\w+)+)", lambda match: f"`{match[0].replace(chr(92), '')}`", text)


def marked(paragraphs):
    lines = []
    for block in paragraphs:
        lines += ["```c", re.sub(r"^  ", "", block, flags=re.MULTILINE), "```", ""] if block.startswith("  ") else [mark(block), ""]
    return lines


def page(text):
    """The page of a header's functions."""
    header = read(text)
    lines = ["# Functions of the library", "", "`document_functions.py` makes this page and the manual pages (`man TrshardForward`) from", "`trshard.h`.", ""]
    lines += marked(header.introduction)
    lines += ["| function | |", "| --- | --- |"] + [f"| [{f.name}](#{f.name.lower()}) | {mark(f.summary)} |" for f in header.functions] + [""]
    lines += ["## Error codes", "", "| code | name |", "| --- | --- |"] + [f"| {number} | `{name}` |" for name, number in header.codes.items()] + [""]
    lines += ["## Types", ""]
    for name, comment, declaration in header.types:
        lines += [f"### {name}", ""] + marked(comment) + ["```c", declaration, "```", ""]
    for f in header.functions:
        lines += [f"## {f.name}", "", "```c", *synopsis(f.declaration), "```", ""] + [line for text in [f.summary] + f.paragraphs for line in (mark(text), "")]
        if f.arguments:
            lines += ["| argument | | |", "| --- | --- | --- |"] + [f"| `{name}` | {kind.lower()} | {mark(words)} |" for kind, name, words in f.arguments] + [""]
        if f.errors:
            lines += ["Errors: " + mark(with_codes(f.errors, header.codes)), ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("header", help="trshard.h")
    parser.add_argument("--output-dir", help="folder for the manual pages")
    parser.add_argument("--version", default="", help="version of the library, for the manual pages")
    parser.add_argument("--page", help="file for the page in Markdown")
    args = parser.parse_args()
    with open(args.header, encoding="utf-8") as file:
        text = file.read()
    header = read(text)
    documents = {}
    if args.output_dir:
        documents = {os.path.join(args.output_dir, f"{f.name}.3"): manual(f, header, args.version) for f in header.functions}
        documents[os.path.join(args.output_dir, "libtrshard.3")] = overview(header, args.version)
    if args.page:
        documents[args.page] = page(text)
    for path, content in documents.items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
