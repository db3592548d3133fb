# SPDX-License-Identifier: BSD-3-Clause
"""Options as trshard writes them into checkpoints and results: the text of an option file, with one option per line (input/MODELS.md, "Option files")."""
import re

OPTION = re.compile(r'''("(?:[^"]|"")*"|[^\s"]\S*)(?:[ \t]+("(?:[^"]|"")*"|[^\s"#]\S*))?(?:[ \t]+# (.*))?''')
ENTRY = re.compile(r'[ \t]*(?:"((?:[^"]|"")*)"|([^,]*?))[ \t]*,')


def options(words):
    """[(-name, value, origin, the line without the origin)] of the options in a text that trshard wrote; the origin is
    "default" if nobody set the option.
    """
    plain = lambda word: word[1:-1].replace('""', '"') if word.startswith('"') else word
    found = []
    for line in words.splitlines():
        given = not line.startswith("# ")
        match = OPTION.match(line if given else line[2:])
        if match and plain(match[1]).startswith("-"):
            found.append((plain(match[1]), plain(match[2] or ""), (match[3] or "given") if given else "default", match.string[:match.end(2 if match[2] else 1)]))
    return found


def word(text):
    """A name or a value as in an option file, in quotes if it contains blanks."""
    return '"' + text.replace('"', '""') + '"' if " " in text or "\t" in text else text


def entries(value):
    """The entries of an option with a list: a,"b, c". As in trshard, blanks around an entry do not count."""
    return [quoted.replace('""', '"') or plain for quoted, plain in ENTRY.findall(value + ",")] if value else []
