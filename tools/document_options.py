#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the options of a program as documents: manual page, completions of bash and zsh, reference page.

  document_options.py build/trshard --output-dir build/documents
  document_options.py build/trshard --reference OPTIONS.md

The source of all documents is the output of the program's -help, which comes from its option table.
"""
import argparse
import dataclasses
import os
import re
import subprocess
import sys

OPTION = re.compile(r"^  (-\S+)(?<!_KEY)(?: (<[^>]*>))?(?:\s+(.*))?$")
BRACKETS = re.compile(r"^(.*?) \[((?:one of |any of |in |>|<|default |no default).*)\]$")
INDENT = 40


def sentence(text):
    return text.rstrip(".;") + "."


@dataclasses.dataclass
class Option:
    name: str
    kind: str
    text: str = ""

    def split(self):
        """The help text, and the text in brackets after it."""
        match = BRACKETS.match(self.text)
        return match.groups() if match else (self.text, "")

    def choices(self):
        match = re.match(r"(?:one|any) of ([^;]*)", self.split()[1])
        return match.group(1).split(", ") if match else ["true", "false"] if self.kind == "<bool>" else []

    def meanings(self):
        """The help text without the descriptions of single choices, and pairs of these choices and descriptions."""
        text, word = self.split()[0], "|".join(map(re.escape, self.choices())) or "(?!)"
        found = re.split(rf"(?:(?<=[.;])|^) ?((?:{word})(?:, (?:{word}))*): ", text)
        rest, pairs = [found[0]], []
        for words, meaning in zip(found[1::2], found[2::2]):
            meaning, *more = re.split(r"(?<=\.) (?=[A-Z])", meaning)
            pairs.append((words, sentence(meaning)))
            rest += more
        return " ".join(sentence(part) for part in rest), pairs


@dataclasses.dataclass
class Group:
    title: str
    notes: list
    options: list


def read_help(binary):
    """The program's version line and groups of options; None if the program cannot run, as on a login
    node of a site that bans MPI programs there."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    try:
        run = subprocess.run([binary, "-help"], capture_output=True, text=True, timeout=60, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if run.returncode:
        return None, run.stderr.strip()
    lines = run.stdout.splitlines()
    groups, group = [], None
    for line in lines[1:]:
        if not line.strip():
            group = None
        elif not line.startswith(" "):
            group = Group(line, [], [])
            groups.append(group)
        elif group and line.startswith(" " * INDENT) and group.options:
            group.options[-1].text = (group.options[-1].text + " " + line.strip()).strip()
        elif group and OPTION.match(line):
            name, kind, text = OPTION.match(line).groups()
            group.options.append(Option(name, kind or "", (text or "").strip()))
        elif group:
            group.notes.append(line.strip())
    return lines[0], [g for g in groups if g.options]


def roff(text):
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"), flags=re.MULTILINE)


EXIT_CODES = (("0", "done"), ("64", "bad option"), ("65", "bad data"), ("66", "input missing"), ("69", "device or MPI feature missing"),
              ("70", "internal error"), ("71", "out of memory"), ("72", "no feasible plan"), ("73", "output cannot be created"),
              ("74", "I/O error"), ("75", "stopped on request after a checkpoint: start again with -resume"), ("76", "a rank hangs"),
              ("78", "loss or weights are not finite"))


def manual(head, groups):
    name, version = head.split(":")[0].split()
    lines = [f'.TH TRSHARD 1 "" "{name} {version}"', ".SH NAME", f"{name} \\- {roff(head.split(': ')[1])}", ".SH SYNOPSIS",
             f".B mpirun \\-n 4 {name} \\-options_file run.opts", "[\\-option value ...]", ".br",
             f".B srun \\-\\-mpi=pmix {name} \\-options_file run.yaml", ".SH DESCRIPTION",
             "One program of all ranks reads datasets and an option file, plans how the embedding tables are sharded, trains, evaluates,",
             "predicts and writes checkpoints. The command line goes before option files.", ".SH OPTIONS"]
    for group in groups:
        lines += [".SS " + roff(group.title)] + [roff(note) for note in group.notes]
        for option in group.options:
            (text, pairs), brackets = option.meanings(), option.split()[1]
            lines += [".TP", f".BR {roff(option.name)} \" {roff(option.kind)}\"", roff(text)]
            for words, meaning in pairs:
                lines += [".br", f"{roff(words)}: {roff(meaning)}"]
            if brackets:
                lines += [".br", f"[{roff(brackets)}]"]
    lines += [".SH EXIT STATUS"]
    for code, meaning in EXIT_CODES:
        lines += [".TP", f".B {code}", roff(meaning)]
    return "\n".join(lines) + "\n"


def bash(groups):
    options = [o for g in groups for o in g.options]
    files = "|".join(o.name for o in options if o.kind.startswith("<file"))
    cases = "\n".join(f'    {o.name}) words="{" ".join(o.choices())}" ;;' for o in options if o.choices() and not o.kind.startswith("<file"))
    return f"""# SPDX-License-Identifier: BSD-3-Clause
# Completion of trshard's options and their values for bash; made by document_options.py.
_trshard() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} words=""
  case $previous in
    {files})
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
{cases}
  esac
  [ -n "$words" ] || words="{" ".join(o.name for o in options)}"
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o filenames -F _trshard trshard
"""


def zsh(groups):
    def entry(option):
        text = re.sub(r"[\[\]:'\\]", " ", option.split()[0])
        action = "_files" if option.kind.startswith("<file") else "(" + " ".join(option.choices()) + ")" if option.choices() else " "
        return f"  '{option.name}[{text[:80].strip()}]:{option.kind.strip('<>').split(',')[0] or 'value'}:{action}'"

    entries = " \\\n".join(entry(o) for g in groups for o in g.options)
    return f"#compdef trshard\n# SPDX-License-Identifier: BSD-3-Clause\n# Made by document_options.py.\n_arguments \\\n{entries}\n"


REFERENCE = """<!-- SPDX-License-Identifier: BSD-3-Clause -->
# Options

`tools/document_options.py build/trshard --reference input/OPTIONS.md` makes this page from what
`trshard -help` prints. A test fails if the page and the program differ.
[MODELS.md](MODELS.md#option-files) describes option files.

A `<bool>` is true, false, 1, 0, yes, no, on or off; the option alone is true. A comma, as in
`<int,..>`, means a list with commas between its values; a value with a comma is in double quotes,
as in `-data_train '"a,b.h5",c.h5'`. Counts take K, M, G and T, which are powers of 1000. Bytes also
take KB to TB and KiB to TiB. The parentheses contain the allowed values, the unit and the default."""


def anchor(title):
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def markdown(text):
    return text.replace("<", "&lt;").replace("*", "\\*")


def reference(groups):
    lines = [REFERENCE, ""] + [f"- [{markdown(g.title.split(': -')[0])}](#{anchor(g.title)})" for g in groups] + [""]
    for group in groups:
        lines += ["## " + markdown(group.title), ""] + [note + "\n" for note in group.notes]
        for option in group.options:
            text, pairs = option.meanings()
            facts = list(filter(None, option.split()[1].split("; ")))
            if pairs and set(option.choices()) <= {word for words, _ in pairs for word in words.split(", ")}:
                facts = facts[1:]  # all choices are listed below
            lines += wrap(f"- `{' '.join(filter(None, (option.name, option.kind)))}`" + (f" ({markdown('; '.join(facts))})" if facts else "") + f": {markdown(text)}")
            for words, meaning in pairs:
                lines += ["  " + line for line in wrap(f"- `{words.replace(', ', '`, `')}`: {markdown(meaning)}", width=98, indent=" ")]  # 4 blanks would mean code
        lines.append("")
    return "\n".join(lines)


def wrap(text, width=100, indent="  "):
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = indent + word
        else:
            line = f"{line} {word}" if line else word
    return lines + [line]


def write(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="the program")
    parser.add_argument("--output-dir", help="folder for trshard.1, trshard.bash and _trshard")
    parser.add_argument("--reference", help="file for the reference in Markdown")
    arguments = parser.parse_args()
    head, groups = read_help(arguments.binary)
    if head is None:
        print(f"{os.path.basename(sys.argv[0])}: {arguments.binary} -help does not run here, so there are no pages: {groups}", file=sys.stderr)
        return 0 if arguments.output_dir else 1
    if arguments.output_dir:
        for name, text in (("trshard.1", manual(head, groups)), ("trshard.bash", bash(groups)), ("_trshard", zsh(groups))):
            write(os.path.join(arguments.output_dir, name), text)
    if arguments.reference:
        write(arguments.reference, reference(groups))
    return 0


if __name__ == "__main__":
    sys.exit(main())
