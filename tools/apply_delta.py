#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a checkpoint from a base and the deltas that a training has written after it (-delta_every).

  apply_delta.py model.h5 deltas/step-000000100.h5 deltas/step-000000200.h5 -o full.h5
  apply_delta.py full.h5 --forget user=17,4711 -o without.h5 --forget_delta forget.h5

The result has the weights that the training's own checkpoint has after the step of the last delta, bit for bit. For tables with id_map zch or
dynamic, it also says which id has which row. It has no optimizer states, so use it with -task eval, -task predict and -init_from; -resume
refuses it. With -delta_data_type fp16 or bf16, the changed rows have the precision of this type.

A delta does not tell in which of its steps an id was last seen, and the result takes the last of them. The training removes ids older than
dynamic_ttl every dynamic_ttl / 2 steps, and the next delta tells which. So the result of a step in between may still have ids that have just
become too old in the training.

BASE is the checkpoint with which the training began (-init_from), a checkpoint that the training wrote itself, or a result of this tool. Each
delta names the file before it. The tool refuses a chain with a missing delta, a file of another chain, and a damaged file. If the training
did not begin with exactly the weights of a file, give one of its own checkpoints as BASE, and the deltas after this checkpoint.

--forget TABLE=ID,ID,... removes ids from the model: their rows become zeros, and in tables that keep ids, these ids have no row any more. In a
table with id_map modulo or hash, ids may share a row, and the row becomes zeros for all of them. --forget FILE reads lines "TABLE ID". You can
give the option several times. --forget_delta OUT writes a delta that removes the same ids from a copy of the model to which the same deltas
were applied; it is not written if none of the ids has a row. The chain of deltas continues as if this delta were not there. A later delta may
bring back rows that the training still has, so the training must forget the ids, too.

Exit status: 0; 2 wrong usage; 64 a bad option; 65 a file is damaged, or not of this chain; 66 an input cannot be read; 69 libxxhash is missing; 73 an output
exists already; 74 an output cannot be written.
"""
import argparse
import contextlib
import os
import re

import trspython

trspython.require("h5py", "numpy")

import trscheckpoint
import trsdata
import trsdelta
from trsformats import FormatError


def is_file(word):
    """True if --forget names a file, and not TABLE=IDS."""
    return "=" not in word or os.path.exists(word)


def forget_list(words):
    """{table: ids} of all --forget options. Ids of uint64 are their 64 bits, as in a dataset."""
    found = {}
    for word in words:
        if not is_file(word):
            table, _, ids = word.rpartition("=")
            pairs = [(table, part) for part in ids.split(",")]
        else:
            with open(word, encoding="utf-8", errors="replace") as file:
                lines = [(number, line.split()) for number, line in enumerate(file, 1) if line.split()]
            for number, parts in lines:
                if len(parts) != 2:
                    raise ValueError(f"{word}, line {number}: expected \"TABLE ID\"")
            pairs = [tuple(parts) for _, parts in lines]
        for table, text in pairs:
            if not re.fullmatch(r"[+-]?\d{1,20}", text, re.ASCII) or not -(1 << 63) <= int(text) < 1 << 64:
                raise ValueError(f"--forget {word}: {text!r} is not an id, expected an integer of 64 bits")
            found.setdefault(table, []).append(int(text) - ((1 << 64) if int(text) >> 63 > 0 else 0))
    return found


def forget(tables, words):
    """Removes the ids, words {table: ids}, from the tables. Returns (Table, rows) pairs."""
    done = []
    for name, ids in words.items():
        table = next((table for table in tables if table.name == name), None)
        if table is None:
            raise ValueError(f"--forget: there is no table {name}, the tables are {', '.join(table.name for table in tables)}")
        rows, missing = table.forget(list(dict.fromkeys(ids)))
        print(f"table {name}: {len(rows)} row{'s' if len(rows) != 1 else ''} forgotten" + (f"; {len(missing)} of the ids have no row" if missing else ""))
        done.append((table, rows))
    return done


def run(args, words, stack):
    base = stack.enter_context(trscheckpoint.opened(args.base))
    trscheckpoint.verify(base)
    place = trsdelta.place_of(base)
    deltas = []
    for path in args.deltas:
        delta = stack.enter_context(trsdelta.opened(path))
        trscheckpoint.verify(delta)
        place = trsdelta.follow(place, delta, None if deltas else base)
        deltas.append(delta)
    for delta in deltas:
        for name in delta.tables():
            if name not in base.table_names:
                raise FormatError(f"{delta.path}: {base.path} has no table {name}: take a checkpoint of the deltas' own run as the base")
    tables = [trsdelta.Table(base, name, deltas) for name in base.table_names]
    forgotten = forget(tables, words)
    tensors, attributes, of_tensors = trsdelta.result(base, deltas, tables)
    chained = place.number or "delta_base" in base.attributes
    with trscheckpoint.bar("write", tensors) as progress:
        trscheckpoint.write(args.out, tensors, dict(attributes, **(place.attributes() if chained else {})), of_tensors, lambda path: f"/{path}", progress.update)
    print(f"{args.out}: the model after step {attributes.get('step', 0)}, from {base.path} and {len(deltas)} delta{'s' if len(deltas) != 1 else ''}")
    if args.forget_delta and not any(len(rows) for _, rows in forgotten):
        print(f"{args.forget_delta} is not written: none of the ids has a row, so there is nothing to forget")
    elif args.forget_delta:
        tensors, attributes, of_tensors = trsdelta.forgetting(place, deltas[-1] if deltas else base, forgotten)
        with trscheckpoint.bar("write", tensors) as progress:
            trscheckpoint.write(args.forget_delta, tensors, attributes, of_tensors, lambda path: f"/{path}", progress.update, (trsdelta.FORMAT, trsdelta.VERSION))
        print(f"{args.forget_delta}: a delta that forgets the same")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE", help="checkpoint")
    parser.add_argument("deltas", metavar="DELTA", nargs="*", help="the deltas after BASE, in order")
    parser.add_argument("-o", "--out", required=True, metavar="FULL", help="checkpoint to write")
    parser.add_argument("--forget", action="append", default=[], metavar="TABLE=IDS", help="ids to forget, or a file with lines \"TABLE ID\"")
    parser.add_argument("--forget_delta", metavar="OUT", help="also write a delta that forgets the same ids")
    parser.add_argument("--force", action="store_true", help="replace existing outputs")
    args = parser.parse_args()
    if args.forget_delta and not args.forget:
        parser.error("--forget_delta needs --forget")
    return args


def main():
    args = parsed()
    if not trscheckpoint.Hash.available():
        trsdata.fail("libxxhash is not installed, and the tool needs it to check a chain of deltas", 69)
    inputs, lists = [args.base, *args.deltas], [word for word in args.forget if is_file(word)]
    for path in inputs + lists:
        if not os.access(path, os.R_OK):
            trsdata.fail(f"{path} {'cannot be read' if os.path.exists(path) else 'does not exist'}", 66)
        if os.path.isdir(path):
            trsdata.fail(f"{path} is a folder, expected a file", 66 if path in lists else 65)
    if args.forget_delta and os.path.realpath(args.out) == os.path.realpath(args.forget_delta):
        trsdata.fail(f"-o and --forget_delta are both {args.out}: give the two outputs different names", 64)
    for path in filter(None, (args.out, args.forget_delta)):
        if any(os.path.exists(path) and os.path.samefile(path, other) for other in inputs + lists):
            trsdata.fail(f"{path} is an input: give the output another name", 64)
        problem = trscheckpoint.check_output(path, False, args.force)
        if problem:
            trsdata.fail(problem, 73)
    with trsdelta.ending(), contextlib.ExitStack() as stack:
        run(args, forget_list(args.forget), stack)
    return 0


if __name__ == "__main__":
    trspython.run(main)
