# SPDX-License-Identifier: BSD-3-Clause
"""Names and values from files and options cannot do anything in a terminal that shows them."""
import os
import re

from trsrun import check, run, write_dataset

# Clear the screen, set the title, change colours (ESC and C1), reorder a line, begin a line of the program's own.
HOSTILE = {"\x1b[2J\x1b]0;owned\x07u": 50, "x\ntrshard: info: all is well": 30, "\x9b31m\u202etag\r": 20}
MODEL = "-tables_embedding_dim 8 -dense_arch 16,8 -over_arch 16,1 -seed 3 -batch_size 8 -report_interval 0"
ALLOWED = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]*")


def check_shown(what, text):
    rest = text[ALLOWED.match(text).end():]
    check(not rest, f"{what}: {rest[:80]!r} is shown as it is")
    check(not re.search(r"^trshard: info: all is well", text, re.M), f"{what}: a line that the program did not write:\n{text[:2000]}")


def test_control_characters(binary, folder):
    """Every task, report and file of text shows the names of features, tables, tasks, files and options without their control characters."""
    path = os.path.join(folder, "t\x1b[1m.h5")
    write_dataset(path, 80, features=HOSTILE)
    with open(os.path.join(folder, "o\x1b[3m.opts"), "w", encoding="utf-8") as out:
        out.write("-label_nothing \x9b4m\u202e\n")  # an option file refuses ESC itself
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
