# SPDX-License-Identifier: BSD-3-Clause
"""Names and values from files and options cannot control a terminal that shows them."""
import os
import re

import h5py

from trsrun import check, run, write_dataset

# Clear the screen, set the title, change colours (ESC and C1), reorder a line, and imitate a line
# of the program.
HOSTILE = {"\x1b[2J\x1b]0;owned\x07u": 50, "x\ntrshard: info: all is well": 30, "\x9b31m\u202etag\r": 20}
MODEL = "-tables_embedding_dim 8 -dense_arch 16,8 -over_arch 16,1 -seed 3 -batch_size 8 -report_interval 0"
ALLOWED = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]*")


def check_shown(what, text):
    rest = text[ALLOWED.match(text).end():]
    check(not rest, f"{what}: {rest[:80]!r} is shown as it is")
    check(not re.search(r"^trshard: info: all is well", text, re.M), f"{what}: a line that the program did not write:\n{text[:2000]}")


def test_control_characters(binary, folder):
    """Every task, report and text file shows the names of features, tables, tasks, files and
    options without their control characters."""
    path = os.path.join(folder, "t\x1b[1m.h5")
    write_dataset(path, 80, features=HOSTILE)
    with open(os.path.join(folder, "o\x1b[3m.opts"), "w", encoding="utf-8") as out:
        out.write("-label_nothing \x9b4m\u202e\n")  # an option file refuses ESC
    words = f"-options_file 'o\x1b[3m.opts' -allow_unused_options -data_train 't\x1b[1m.h5' -data_eval 't\x1b[1m.h5' {MODEL}"
    texts = {
        "train": f"{words} -steps 4 -eval_every 2 -output 'run\x1b[4m.h5' -checkpoint_final 'final\x1b[5m.h5' -options_view -log_view -trace trace.json",
        "train, once more": f"{words} -steps 4 -output 'run\x1b[4m.h5' -checkpoint_dir 'c\x1b[6m'",
        "resume": f"{words} -steps 6 -resume -checkpoint_dir 'c\x1b[6m' -options_view",
        "plan": f"{words} -task plan -plan_report report.txt -plan_output plan.json -plan_search_space space.json -plan_explain '\x1b[2J\x1b]0;owned\x07u'",
        "plan to stdout": f"{words} -task plan -plan_report stdout",
        "eval": f"{words} -task eval -init_from 'final\x1b[5m.h5'",
        "predict": f"{words} -task predict -init_from 'final\x1b[5m.h5' -output predicted.h5",
        "unknown": f"{words} -no_such_\x1b[7moption 1 -steps 1",
    }
    for what, options in texts.items():
        check_shown(what, run(binary, 1, options, folder).text)
    for name in ("report.txt", "plan.json", "space.json", "trace.json"):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            check_shown(name, file.read())


def names_of(length, sizes=(50, 30)):
    """Names that differ only in their last letter."""
    return {"n" * (length - 1) + letter: rows for letter, rows in zip("ab", sizes)}


def test_long_names(binary, folder):
    """If names are too long for a file that a run writes at its end, the run fails at its start.
    Names that fit are kept in all files."""
    words = f"-data_train long.h5 -steps 4 -batch_size 8 {MODEL[MODEL.index('-dense_arch'):MODEL.index('-batch')]} -tables_embedding_dim 8 -report_interval 0"
    path = os.path.join(folder, "long.h5")
    for length in (1000, 12000):
        write_dataset(path, 80, features=names_of(length))
        for what in ("-checkpoint_final final.h5", "-checkpoint_dir ckpt", "-checkpoint_best best.h5 -data_eval long.h5 -eval_every 2"):
            result = run(binary, 1, f"{words} {what}", folder, status=64)
            check("no room for the name of the tensor embedding/nnn" in result.text and "step 4/4" not in result.text, f"{length}, {what}:\n{result.text[-2000:]}")
    run(binary, 1, f"{words} -output run.h5", folder)  # the results can hold these names
    # In sequence layers, a feature's name is part of the dense tensors' names.
    for length, more in ((950, ""), (300, "-tables_pooling none -tables_sequence_pooling gru")):
        write_dataset(path, 80, features=names_of(length))
        for name in ("final.h5", "quantised.h5", "predicted.h5"):
            if os.path.exists(os.path.join(folder, name)):
                os.remove(os.path.join(folder, name))
        run(binary, 2, f"{words} {more} -checkpoint_final final.h5 -checkpoint_dir ckpt{length}", folder)
        run(binary, 2, f"{words} -steps 6 {more} -resume -checkpoint_dir ckpt{length}", folder)
        text = run(binary, 1, f"-task predict -data_eval long.h5 -init_from final.h5 -batch_size 8 -output predicted.h5 -tables_data_type int8 -quant_checkpoint quantised.h5", folder).text
        check("trshard: warning" not in text, text[-2000:])
        run(binary, 1, "-task predict -data_eval long.h5 -init_from quantised.h5 -batch_size 8", folder)
        with h5py.File(os.path.join(folder, "final.h5")) as h:
            check(set(h["embedding"]) == set(names_of(length)), f"{length}: tables {[len(name) for name in h['embedding']]}")
