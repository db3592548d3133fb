# SPDX-License-Identifier: BSD-3-Clause
"""Vocabularies: ids of values by the frequency of the values, which a pass before the conversion counts. Also counts hashed words that share rows."""
import json
import os

import numpy as np

import trscolumns
import trsdata
import trsencode
import trsfile
import trsmapping
import trsread

MOST_WORDS = 100_000  # of a vocabulary without MAX, and of a column of text that gets one by default
MOST_DISTINCT = 1 << 17  # hashes of a feature that are remembered to count its words


class Wanted:
    """COLUMN[:MAX[:MIN_COUNT]]: the MAX most frequent values that occur MIN_COUNT times or more. by_default: nobody asked for it."""

    def __init__(self, word, by_default=False):
        parts = str(word).rsplit(":", 2)
        numbers = []
        while len(parts) > 1 and parts[-1].isdigit():
            numbers.insert(0, int(parts.pop()))
        self.column, self.by_default = ":".join(parts), by_default
        self.most, self.least = (numbers + [MOST_WORDS, 1][len(numbers):])[:2]
        if self.most < 1 or self.least < 1:
            trscolumns.fail(f"--vocabulary {word}: expected COLUMN:MAX:MIN_COUNT with numbers of 1 or more", 64)


def wanted(words, entries, matches, known):
    """{feature: Wanted} of the features whose values are to be counted.

    words    those of --vocabulary
    matches  function: is a name one of these names and patterns?
    known    {feature: ...} with vocabularies of an earlier conversion, or None
    """
    chosen = {}
    for word in words:
        if str(word) == "none":
            continue
        one = Wanted(word)
        found = [entry for entry in entries.sparse if matches(entry["column"], [one.column]) or matches(entry["name"], [one.column])]
        if not found:
            trscolumns.fail(f"--vocabulary {one.column}: no sparse feature has this column or name", 64)
        for entry in found:
            if entry["rows"]:
                trscolumns.fail(f"--vocabulary {one.column}: feature {entry['name']} has {entry['rows']:,} rows by --sparse; leave them out, the vocabulary has its own", 64)
            chosen[entry["name"]] = one
    if known is None and "none" not in map(str, words):
        for entry in entries.sparse:
            if entry["kind"] == "text" and not entry["rows"]:
                chosen.setdefault(entry["name"], Wanted(entry["column"], by_default=True))
    return {name: one for name, one in chosen.items() if not known or name not in known}


class Counter:
    """How often each value of a feature occurs."""

    def __init__(self, one, kind):
        self.wanted, self.kind = one, kind
        self.counts, self.words = {}, {}

    def given_up(self):
        return self.wanted.by_default and len(self.counts) > MOST_WORDS

    def add(self, value):
        """value: trsencode.Values of a block."""
        keys = value.integers(self.kind["kind"], self.kind["base"])
        places = np.flatnonzero(~value.missing)
        is_text = isinstance(value.values, trscolumns.Text) and self.kind["kind"] != "integer"
        unique, first, times = np.unique(keys[places], return_index=True, return_counts=True)
        for key, i, count in zip(unique.tolist(), places[first].tolist(), times.tolist()):
            if key in self.counts:
                self.counts[key] += count
            else:
                self.counts[key] = count
                if is_text:
                    self.words[key] = value.values.bytes(i)

    def values(self):
        """The vocabulary: by descending count, equal counts in the order of the values. None if there are too many values."""
        if self.given_up():
            return None
        name = lambda key: self.words.get(key, key)
        kept = sorted((-count, name(key)) for key, count in self.counts.items() if count >= self.wanted.least)[:self.wanted.most]
        return [json_of(value) for _, value in kept]


def json_of(word):
    """A word for JSON: text, or an object for bytes that are not UTF-8 or have a NUL byte."""
    if not isinstance(word, bytes):
        return word
    try:
        text = word.decode()
    except UnicodeDecodeError:
        return {"hex": word.hex()}
    return {"hex": word.hex()} if "\0" in text else text


def counted(pairs, chosen, nulls, bar):
    """{feature: vocabulary or None}. pairs: each table with the sparse entries that have its columns."""
    counters = {}
    for table, sparse in pairs:
        for entry in sparse:
            if entry["name"] in chosen:
                counters.setdefault(entry["name"], Counter(chosen[entry["name"]], entry))
        mine = [entry for entry in sparse if entry["name"] in counters and not counters[entry["name"]].given_up()]
        blocks = table.blocks(0, list(dict.fromkeys(entry["column"] for entry in mine))) if mine else ()
        for size, block in blocks:
            mine = [entry for entry in mine if not counters[entry["name"]].given_up()]
            if not mine:
                blocks.close()
                break
            for entry in mine:
                counters[entry["name"]].add(trsencode.Values(block, entry["column"], entry["place"], nulls, entry["separator"] if entry["bag"] else None))
            bar.update(size)
    return {name: counter.values() for name, counter in counters.items()}


def kept(work, chosen, count):
    """The result of count(), which a conversion that was killed keeps in its folder."""
    path = work.path("vocabulary.json")
    if not chosen:
        return {}
    if not work.state["counted"]:
        with trsfile.whole(path) as out:
            json.dump(count(), out)
        work.save(counted=True)
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def known(path):
    """{feature: entry with a vocabulary} of the mapping of a dataset, a checkpoint or a file of JSON."""
    try:
        if path.lower().endswith(".json"):
            with open(path, encoding="utf-8") as stream:
                text = stream.read()
        else:
            with trsdata.opened(path) as handle:
                text = trsdata.text(handle.attrs[trsmapping.ATTRIBUTE]) if trsmapping.ATTRIBUTE in handle.attrs else None
    except (OSError, UnicodeDecodeError) as problem:
        trscolumns.fail(f"--vocabulary-from {problem}", 66 if not os.path.exists(path) else 65)
    found = {entry["name"]: entry for entry in trsmapping.read(text, path).sparse if isinstance(entry.get("vocabulary"), list)} if text else {}
    if not found:
        trscolumns.fail(f"--vocabulary-from {path}: it has no vocabulary")
    return found


def check_known(entry, other, path):
    """Refuses a vocabulary of other kinds of values, and one for a feature that has rows."""
    if entry["rows"]:
        trscolumns.fail(f"--vocabulary-from {path}: feature {entry['name']} has a vocabulary there, and {entry['rows']:,} rows by --sparse; leave them out", 64)
    if "any" not in (entry["kind"], other["kind"]) and entry["kind"] != other["kind"]:
        trscolumns.fail(f"--vocabulary-from {path}: feature {entry['name']} is {other['kind']} there, and {entry['kind']} here")


def told(entry, unknown):
    """A line about a feature with a vocabulary."""
    words = trsread.counted(len(entry["vocabulary"]), "word")
    return f"{entry['name']}: a vocabulary of {words} in {trsread.counted(entry['rows'], 'row')}" + (f"; {unknown:,} others have row 0" if unknown else "; row 0 is for others")


def take(entry, values):
    """Give an entry this vocabulary."""
    entry.update(vocabulary=values, rows=len(values) + 1, modulo=False, unknown=0)


class Distinct:
    """The words of features whose text is hashed to a number of rows, as sorted hashes; None if a feature has more than MOST_DISTINCT."""

    def __init__(self, work):
        self.path, self.hashes = work.path("distinct.npz"), {}
        if work.state["converted"] and os.path.exists(self.path):
            with np.load(self.path) as found:
                self.hashes = {name: found[name] if found[name].ndim else None for name in found.files}
        self.changed = False

    def add(self, name, hashes):
        before = self.hashes.get(name, np.zeros(0, np.int64))
        if before is None:
            return
        after = np.union1d(before, hashes)
        if len(after) > len(before) or name not in self.hashes:
            self.hashes[name], self.changed = after if len(after) <= MOST_DISTINCT else None, True

    def save(self):
        """Must be called before the part of a block is published. If a block is converted again, it adds nothing new."""
        if self.changed:
            with trsfile.whole(self.path, "wb") as out:
                np.savez(out, **{name: np.array(0) if hashes is None else hashes for name, hashes in self.hashes.items()})
            self.changed = False

    def tell(self, entries):
        """Note in the entries how many words share rows, and yield a line for each feature."""
        for entry in entries:
            if entry["name"] not in self.hashes:
                continue
            hashes = self.hashes[entry["name"]]
            if hashes is None:
                yield f"{entry['name']}: more than {MOST_DISTINCT:,} words in {trsread.counted(entry['rows'], 'row')}"
                continue
            entry["words"], entry["words_rows"] = len(hashes), len(np.unique(hashes % entry["rows"]))
            yield f"{entry['name']}: {trsread.counted(entry['words'], 'word')} in {trsread.counted(entry['words_rows'], 'row')}"
