#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints which dataset files a run would read, and the options with which it reads copies of them in another folder.

  stage_data.py FOLDER -options_file run.opts [-data_train FILE ...]

jobs/train.sbatch copies the files to FOLDER on each node (STAGE). The arguments after FOLDER are those of trshard; only
-options_file, -data_train and -data_eval count. As in trshard, options of the command line have precedence over those of
files, and later files over earlier ones. Relative paths in an option file start at its folder. A pattern stands for the
files that it matches.

The output is two lines for a shell's eval, as arrays: the files and their copies in turn, and the options.
"""
import argparse
import glob
import os
import re
import shlex
import sys

import trsoptions
import trspython

NAMES = ("-data_train", "-data_eval")
# A word of a .opts file, which may be in quotes, in which "" is a quote; or a comment until the end of the line.
WORD = re.compile(r'("(?:[^"]|"")*"|[^\s"#]\S*)|#.*')


def fail(message, code=64):
    print(trspython.shown(f"stage_data.py: {message}"), file=sys.stderr)
    sys.exit(code)


def entries(text):
    """The entries of a list of files, without empty ones."""
    return [entry for entry in trsoptions.entries(text) if entry]


def of_yaml(path):
    """{option: entries} in a YAML file."""
    trspython.require("yaml")
    import yaml  # noqa: PLC0415 (only for YAML)

    try:
        with open(path, encoding="utf-8") as file:
            keys = yaml.safe_load(file) or {}
    except (ValueError, yaml.YAMLError) as error:
        fail(f"{path}: {' '.join(str(error).splitlines())}")
    flat = {}

    def add(prefix, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{prefix}_{key}" if prefix else str(key).lstrip("-"), inner)
        else:
            flat["-" + prefix] = list(map(str, value)) if isinstance(value, list) else entries(str(value))

    add("", keys)
    return flat


def of_opts(path):
    """{option: entries} in a .opts file."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        words = [match[1][1:-1].replace('""', '"') if match[1].startswith('"') else match[1] for line in file for match in WORD.finditer(line) if match[1]]
    return {option: entries(value) for option, value in zip(words, words[1:]) if option in NAMES}


def of_file(path):
    """The dataset files of an option file, as seen from here."""
    try:
        found = of_yaml(path) if path.lower().endswith((".yaml", ".yml")) else of_opts(path)
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror or error}", 66)
    return {name: [os.path.join(os.path.dirname(path), one) for one in found[name]] for name in NAMES if name in found}


def files_of(names):
    """The files for names and patterns, in trshard's order: a pattern's by their bytes."""
    found = []
    for name in names:
        matches = sorted(glob.glob(name), key=os.fsencode) if re.search(r"[*?[]", name) and not os.path.exists(name) else [name]
        if not matches:
            fail(f"{name}: no file matches this pattern", 66)
        found += matches
    for path in found:
        if not os.path.isfile(path):
            fail(f"{path} is no file", 66)
    return found


def quoted(path):
    """A path as an entry of a list."""
    return '"' + path.replace('"', '""') + '"' if re.search(r'[,"]|^\s|\s$', path) else path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...")
    args = parser.parse_args()
    given, files = {}, []
    for option, value in zip(args.options, args.options[1:]):
        option = option[1:] if option.startswith("--") else option  # trshard takes both
        if option in NAMES:
            given[option] = entries(value)
        elif option == "-options_file":
            files.append(value)
    of_files = {}
    for path in files:
        of_files.update(of_file(path))
    chosen = {name: files_of(names) for name, names in {**of_files, **given}.items()}
    if not any(chosen.values()):
        fail("there is no -data_train or -data_eval to copy")
    copies, options = {}, []
    for name in NAMES:
        for path in chosen.get(name, ()):  # two folders may have files of one name; a file of both options is copied once
            copies.setdefault(os.path.realpath(path), os.path.join(args.folder, f"{len(copies)}-{os.path.basename(path)}"))
        if chosen.get(name):
            options += [name, ",".join(quoted(copies[os.path.realpath(path)]) for path in chosen[name])]
    print(f"copies=({shlex.join(word for pair in copies.items() for word in pair)})\nstaged=({shlex.join(options)})")
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="surrogateescape")  # a file's name may be any bytes
    trspython.run(main)
