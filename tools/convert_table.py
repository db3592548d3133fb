#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Converts tables to a trshard dataset: Parquet, CSV and TSV with a header (plain or .gz), npy and npz.

  convert_table.py --output train.h5 --labels click --dense age,price --sparse user,item:50k,words part-*.parquet
  convert_table.py --output train.h5 --labels click,buy --dense 'I*' --sparse 'C*' --text 'C*' --group session --time at log.csv
  convert_table.py --output train.h5 --mapping columns.yaml part-*.parquet
  convert_table.py --output train.h5 --layout dlrm kaggleAdDisplayChallenge_processed.npz
  convert_table.py --output day_0.h5 --layout mlperf day_0_labels.npy+day_0_dense.npy+day_0_sparse_multi_hot.npz

An INPUT is a file, or npy and npz files that have the same rows, joined by "+". The samples of all inputs are concatenated. A column may be a
pattern (C*); its columns come in the order of the file. A name that contains a comma must be in double quotes. --sparse takes
[NAME=]COLUMN[:ROWS], which is a feature with this name and with ids below ROWS (k, M, G). Without ROWS, text gets a vocabulary (see below), and
integers may be any 64-bit numbers, which the training's -tables_id_map maps to rows. ROWS may name an array of the npz that has a number for each column. An array with several
columns becomes several features, NAME_0, NAME_1, ..., or with --bags one feature with as many ids.

  --mapping FILE  .yaml or .json with the options below as keys (labels, dense, sparse, weights, group, time, dense_missing, ...).
                  An entry of sparse may be {column: C, name: N, rows: R, weights: W}: W holds a weight for each id.
                  An option of the command line replaces the file's
  ids             integers as they are (uint64 if all columns of ids are, else their 64 bits), or text, whose XXH64 is the id. Columns of CSV are
                  decimal integers, also as 7.0, unless --text or --hexadecimal names them. With ROWS an id must be below ROWS, or -1
                  (pruned). --modulo takes the remainder, which text always does. With --sparse-unknown ROW any other id becomes
                  this row: train with one row more than there are ids, and convert data for serving with the same ROWS
  vocabulary      of text without ROWS with up to 100,000 different words, and of the columns of --vocabulary COLUMN[:MAX[:MIN_COUNT]]: the id of a
                  value is 1 plus its place among the values by descending frequency. Values beyond MAX (100,000) or rarer than MIN_COUNT (1), and
                  values that later data brings, have id 0. It reads the input twice. The dataset keeps the vocabulary, and --vocabulary-from DATASET
                  converts other data with the same ids. Text with more words becomes its hash, as with --vocabulary none
  bags            lists of Parquet; in CSV --bags names columns whose cells have several ids, separated by --bag-separator
  labels          from 0 to 1, or true and false. With --task-labels any finite numbers, for the losses of -tasks, and NaN if a label is missing.
                  With several labels, or with --task-labels, the labels have the names of their columns. --no-labels makes a dataset without
                  labels, for predictions
  absent          --absent names columns that some inputs lack. The rows of these inputs get the VALUE (--absent device=7), which is read like
                  a cell of the file. Without =VALUE the value is missing in these rows. In a mapping file: absent: {device: 7}
  missing         nulls, NaN, empty cells, and the words of --nulls. A label, weight, group or time must not be missing. A missing dense feature
                  becomes --dense-missing (0; "refuse" ends with an error). A feature's missing id is left out, or becomes
                  --sparse-missing; inside a bag it is always left out
If the tool is killed and started again with the same arguments, it continues where it stopped, and the output has the same content. Work in
progress is in OUTPUT.parts/, which takes as much room as the output until the end. Memory grows only with the number of different words of
columns that may get a vocabulary.
"""
import argparse
import collections
import csv
import fnmatch
import json
import re
import sys

import trspython

NEEDS = ["h5py", "numpy"]
if any(word.lower().endswith((".parquet", ".pq")) for word in sys.argv[1:]):
    NEEDS.append("pyarrow")
if any(word.lower().endswith((".yaml", ".yml")) for word in sys.argv[1:]):
    NEEDS.append("yaml")
trspython.require(*NEEDS)

import numpy as np

import trscolumns
import trsconvert
import trsdata
import trsencode
import trsmapping
import trsread
import trstable
import trsvocabulary
from trsencode import Values

LISTS = ("labels", "dense", "sparse", "text", "hexadecimal", "bags", "nulls", "absent", "vocabulary")
ONE_COLUMN = ("weights", "group", "time")
DEFAULTS = {**{name: [] for name in LISTS}, **dict.fromkeys(ONE_COLUMN), "dense_missing": 0.0, "sparse_missing": "empty", "sparse_unknown": None, "log1p": False,
            "time_unit": None, "vocabulary_from": None, "task_labels": False, "no_labels": False, "modulo": False, "bag_separator": "|", "delimiter": None, "no_quotes": False, "layout": None}
LAYOUTS = {
    "dlrm": {"labels": ["y"], "dense": ["X_int"], "sparse": [{"column": "X_cat", "name": "cat", "rows": "counts"}], "log1p": True},
    "mlperf": {"labels": ["*labels"], "dense": ["*dense"], "sparse": [{"column": "[0-9]*", "name": "cat"}], "bags": ["[0-9]*"]},
}
KEYS = ("column", "name", "rows", "weights")
NO_INTEGER = "; a time or group of a text file must be an integer, such as seconds since 1970 (Parquet's timestamps are taken as they are)"


# --- the meaning of the columns ---


def is_rows(word):
    """True if the value is a number of rows."""
    try:
        return trsconvert.number_of_rows(word) >= 0
    except ValueError:
        return False


def sparse_entry(word):
    """[NAME=]COLUMN[:ROWS], or a mapping of KEYS, as a mapping of KEYS."""
    if isinstance(word, dict):
        if "column" not in word or any(key not in KEYS for key in word):
            trsdata.fail(f"sparse: {word}, expected {', '.join(KEYS)}, and column at least", 64)
        entry = {"name": None, "rows": 0, "weights": None, **word, "column": str(word["column"])}
        entry["name"] = None if entry["name"] is None else str(entry["name"])
    else:
        name, equals, column = str(word).rpartition("=")
        whole = column
        column, colon, rows = whole.rpartition(":") if is_rows(whole.rpartition(":")[2]) else whole.partition(":")
        if not column:
            column, rows = whole, 0
        entry = {"column": column, "name": name if equals else None, "rows": rows or 0, "weights": None, "whole": whole}
    try:
        entry["rows"] = trsconvert.number_of_rows(str(entry["rows"]))
        if not 0 <= entry["rows"] < 2**63:
            trsdata.fail(f"sparse: {entry['rows']} rows for {entry['column']}, expected a number that is not negative, of 64 bits", 64)
    except ValueError:
        pass  # the name of an array
    return entry


def absent_entry(word):
    """COLUMN[=VALUE] as a name and a word, or None."""
    name, equals, value = word.rpartition("=")
    return (name, value) if equals else (word, None)


def mapping_file(path):
    """The keys of a mapping file: JSON, which needs no package, or YAML."""
    if path.lower().endswith((".yaml", ".yml")):
        import yaml
        load, malformed = yaml.safe_load, yaml.YAMLError
    else:
        load, malformed = json.load, json.JSONDecodeError
    try:
        with open(path, encoding="utf-8") as stream:
            found = load(stream)
    except OSError as problem:
        trsdata.fail(f"{path}: {problem.strerror}", 66)
    except (malformed, UnicodeDecodeError) as problem:
        trsdata.fail(f"{path}: {' '.join(str(problem).split())}", 64)
    if not isinstance(found, dict):
        trsdata.fail(f"{path}: expected keys with values, such as labels: [click]", 64)
    for key in found:
        if key not in DEFAULTS:
            trsdata.fail(f"{path}: unknown key {key}, expected one of {', '.join(DEFAULTS)}", 64)
    return found


def mapping_of(args):
    """Merges the keys of the layout, the file and the command line. The command line has precedence, then the file."""
    given = {name: getattr(args, name) for name in DEFAULTS if getattr(args, name) is not None}
    found = {**(mapping_file(args.mapping) if args.mapping else {}), **given}
    layout = found.get("layout")
    if layout not in (None, *LAYOUTS):
        trsdata.fail(f"layout: {layout}, expected one of {', '.join(LAYOUTS)}", 64)
    mapping = {**DEFAULTS, **LAYOUTS.get(layout, {}), **found}
    for name in LISTS:
        value = mapping[name]
        if name == "absent" and isinstance(value, dict):
            value = [column if word is None else f"{column}={word}" for column, word in value.items()]
        mapping[name] = next(csv.reader([value])) if isinstance(value, str) else list(value) if isinstance(value, (list, tuple)) else [value]
        for i, word in enumerate(mapping[name]):
            if isinstance(word, bool) or word is None:  # YAML's yes, no and null
                trsdata.fail(f"{name}: {word}, expected text, in quotes where YAML takes it for something else", 64)
            if not isinstance(word, (str, dict)):
                mapping[name][i] = str(word)
    mapping["sparse"] = [sparse_entry(word) for word in mapping["sparse"]]
    mapping["absent"] = dict(absent_entry(word) for word in mapping["absent"])
    if mapping["no_labels"] and args.labels:
        trsdata.fail("--labels does not go with --no-labels", 64)
    if mapping["no_labels"]:
        mapping["labels"] = []
    if mapping["modulo"] and mapping["sparse_unknown"] is not None:
        trsdata.fail("--sparse-unknown does not go with --modulo, which has a row for every id", 64)
    for name, instead in (("labels", ", or --no-labels"), ("sparse", "")):
        if not mapping[name] and not (name == "labels" and mapping["no_labels"]):
            trsdata.fail(f"--{name} is missing: one column at least{instead}", 64)
    for name, other in (("dense_missing", "refuse"), ("sparse_missing", "empty"), ("sparse_unknown", None)):
        try:
            if mapping[name] != other:
                mapping[name] = float(mapping[name]) if name == "dense_missing" else int(mapping[name])
            if mapping[name] != other and not np.isfinite(mapping[name]):
                raise ValueError
        except (ValueError, TypeError):
            trsdata.fail(f"--{name.replace('_', '-')} {mapping[name]}: expected a number{'' if other is None else f', or {other}'}", 64)
    if mapping["delimiter"] == r"\t":
        mapping["delimiter"] = "\t"
    for name in ("bag_separator", "delimiter"):
        if mapping[name] is not None and len(str(mapping[name]).encode()) != 1:
            trsdata.fail(f"--{name.replace('_', '-')} {mapping[name]!r}: expected one ASCII character", 64)
    return mapping


def matches(name, patterns):
    return any(name == str(pattern) or fnmatch.fnmatchcase(name, str(pattern)) for pattern in patterns)


class Plan:
    """The meaning of a table's columns.

    labels, dense  (column, place in its row) of each
    features       a dictionary for each sparse feature: name, column, place, bag, rows, kind, weights
    wanted         all columns that are read
    meaning        pattern -> its columns
    as_integers    columns of ids, groups and times, which must have one kind in all tables
    first          the plan of the first table, or None. A pattern means the same columns in all tables, in the order of the first table.
                   A single column may have another name in each table, as the arrays of day_0_labels.npy and day_1_labels.npy do
    """

    def __init__(self, table, mapping, first=None):
        self.table, self.first, self.meaning = table, first, {}
        self.labels = [place for word in mapping["labels"] for place in self.places(word)]
        self.dense = [place for word in mapping["dense"] for place in self.places(word, lists=True)]
        self.dense_names = self.names_of_dense(mapping["dense"])
        self.single = {name: self.one_place(name, mapping[name]) for name in ONE_COLUMN if mapping[name] is not None}
        self.features = [feature for entry in mapping["sparse"] for feature in self.features_of(entry, mapping)]
        names = [feature["name"] for feature in self.features]
        if len(set(names)) < len(names):
            trsdata.fail(f"the feature {next(name for name in names if names.count(name) > 1)} is there twice", 64)
        self.as_integers = [feature["column"] for feature in self.features] + [self.single[name][0] for name in ("group", "time") if name in self.single]
        used = [column for column, _ in self.labels + self.dense + list(self.single.values())]
        used += [name for feature in self.features for name in (feature["column"], feature["weights"]) if name]
        self.wanted = list(dict.fromkeys(used))
        for name in ("text", "hexadecimal", "bags"):
            for word in mapping[name]:
                if not any(matches(column, [word]) for column in self.wanted):
                    trsdata.fail(f"--{name} {word}: no column of {table.path} that is used has this name", 65)
        self.label_names = [column if self.table.columns[column] == 1 else f"{column}_{i}" for column, i in self.labels]
        if len(set(self.label_names)) < len(self.label_names):
            trsdata.fail(f"the labels {', '.join(self.label_names)}: expected each once", 64)

    def named(self, word):
        """The columns that a name or a pattern means."""
        found = [str(word)] if str(word) in self.table.columns else fnmatch.filter(self.table.columns, str(word))
        if not found:
            known = ", ".join(self.table.columns)
            trsdata.fail(f"{self.table.path} has no column {word}; it has {known[:400] + (' ...' if len(known) > 400 else '')}", 65)
        expected = self.first.meaning[str(word)] if self.first else found
        if set(found) == set(expected):
            found = expected
        elif max(len(found), len(expected)) > 1:
            other = sorted(set(found) ^ set(expected))[0]
            trsdata.fail(f"{self.table.path} has other columns {word} than {self.first.table.path}: only one of them has {other}", 65)
        self.meaning[str(word)] = found
        return found

    def places(self, word, lists=False):
        """(column, place in its row) of the columns that a word means. For Parquet's lists also of each number in the list."""
        width = getattr(self.table, "width_of_lists", None) if lists else None
        return [(column, i) for column in self.named(word) for i in range(width(column) if width else self.table.columns[column])]

    def names_of_dense(self, words):
        """A name for each dense feature: its column's, with the place of a number in a list. A column that a pattern means by itself, such as *dense,
        has the pattern's text: its own name may differ from file to file."""
        own = {self.meaning[str(word)][0]: re.sub(r"[*?]|\[.*?\]", "", str(word)) for word in words if len(self.meaning[str(word)]) == 1 and str(word) not in self.table.columns}
        width = collections.Counter(column for column, _ in self.dense)
        names = [(own.get(column) or column) + (f"_{place}" if width[column] > 1 else "") for column, place in self.dense]
        return [name if names.index(name) == i else f"{name}_{i}" for i, name in enumerate(names)]

    def one_place(self, name, word):
        found = self.places(word)
        if len(found) != 1:
            trsdata.fail(f"{self.table.path}: --{name} {word} means {len(found)} columns, expected one", 65)
        return found[0]

    def kind_of(self, column, mapping):
        """The way in which text becomes a number: by its hash, or by its digits. typed: hash text if the file declares the column as text."""
        if matches(column, mapping["text"]):
            return "text"
        return "hexadecimal" if matches(column, mapping["hexadecimal"]) else "typed" if self.table.typed else "integer"

    def what_is(self, column, mapping):
        """The kind of a column's integers: the table's if it knows it, in CSV text or numbers."""
        return self.table.kinds[column] if self.table.typed else "text" if self.kind_of(column, mapping) == "text" else "numbers"

    def features_of(self, entry, mapping):
        if entry.get("whole") in self.table.columns:  # a name with a colon, such as RecBole's user_id:token
            entry = {**entry, "column": entry["whole"], "rows": 0}
        columns = self.named(entry["column"])
        cells = []
        for column in columns:
            bag = matches(column, mapping["bags"])
            cells += [(column, i, bag) for i in range(1 if bag else self.table.columns[column])]
        if not cells:
            trsdata.fail(f"{self.table.path}: {entry['column']} has no columns", 65)
        rows = self.rows_of(entry, len(cells), mapping)
        weights = self.named(entry["weights"]) if entry["weights"] else [None]
        if len(weights) > 1:
            trsdata.fail(f"{self.table.path}: the weights {entry['weights']} of {entry['column']} mean {len(weights)} columns, expected one", 65)
        for n, (column, place, bag) in enumerate(cells):
            name = entry["name"] or column
            if len(cells) > 1 and (entry["name"] or len(columns) == 1):
                name = f"{name}_{n}"
            elif self.table.columns[column] > 1 and not bag and not entry["name"]:
                name = f"{name}_{place}"
            missing = mapping["sparse_missing"]
            if rows[n] and missing != "empty" and not -1 <= missing < rows[n]:
                trsdata.fail(f"--sparse-missing {missing}: feature {name} has {rows[n]} rows", 64)
            unknown = mapping["sparse_unknown"]
            if rows[n] and unknown is not None and not 0 <= unknown < rows[n]:
                trsdata.fail(f"--sparse-unknown {unknown}: feature {name} has {rows[n]} rows", 64)
            yield {"name": name, "column": column, "place": place, "bag": bag, "rows": rows[n], "kind": self.kind_of(column, mapping), "weights": weights[0]}

    def rows_of(self, entry, count, mapping):
        """The number of rows of each column: one number for all, or the numbers of an array."""
        if isinstance(entry["rows"], int):
            return [entry["rows"]] * count
        array = getattr(self.table, "arrays", {}).get(entry["rows"])
        if array is None and mapping["layout"] == "dlrm" and entry["rows"] == "counts":  # a day of the Terabyte set has no counts
            return [0] * count
        if array is None or array.shape != (count,) or array.dtype.kind not in "iu":
            trsdata.fail(f"rows of {entry['column']}: {entry['rows']} is neither a number nor an array of {count} integers in {self.table.path}", 65)
        return [int(number) for number in array.rows(0, count)]


# --- the mapping that the dataset carries ---


def kind_of_column(plans, columns, mapping):
    """{kind, base, unit} of a column that is one name in each table. A table whose column holds only nulls tells nothing."""
    for plan, column in zip(plans, columns):
        kind = plan.kind_of(column, mapping)
        what = "text" if kind == "text" else plan.what_is(column, mapping) if kind == "typed" else "numbers"
        if what != "null":
            return {"kind": "text" if what == "text" else "integer", "base": 16 if kind == "hexadecimal" else 10,
                    "unit": None if what in ("text", "numbers") else trscolumns.unit_of(what)}
    return {"kind": "any", "base": 10, "unit": None}


def sparse_entries(plans, mapping):
    """An entry of the mapping for each sparse feature."""
    for same in zip(*(plan.features for plan in plans)):
        feature, rows = same[0], same[0]["rows"]
        kind = kind_of_column(plans, [other["column"] for other in same], mapping)
        modulo = bool(rows) and (mapping["modulo"] or kind["kind"] == "text")
        yield {"name": feature["name"], "column": feature["column"], "place": feature["place"], "width": plans[0].table.columns[feature["column"]], **kind,
               "bag": feature["bag"], "separator": mapping["bag_separator"], "rows": rows, "modulo": modulo,
               "unknown": None if modulo or not rows else mapping["sparse_unknown"], "missing": mapping["sparse_missing"], "weights": feature["weights"]}


def dense_entries(plans, mapping):
    first = plans[0]
    for d, ((column, place), name) in enumerate(zip(first.dense, first.dense_names)):
        what = first.table.kinds[column] if first.table.typed else "numbers"
        yield {"name": name, "column": column, "place": place, "width": sum(column == other for other, _ in first.dense),
               "unit": None if what in ("text", "numbers", "null") else trscolumns.unit_of(what), "log1p": bool(mapping["log1p"]), "missing": mapping["dense_missing"]}


def carried(plans, mapping):
    """The mapping that the dataset carries (input/FORMAT.md, "Mapping")."""
    first = plans[0]
    found = {"converter": "convert_table.py", "nulls": [str(word) for word in mapping["nulls"]], "absent": mapping["absent"],
             "dense": list(dense_entries(plans, mapping)), "sparse": list(sparse_entries(plans, mapping)),
             "labels": [{"name": name, "column": column, "place": place} for name, (column, place) in zip(first.label_names, first.labels)]}
    for name in ONE_COLUMN:
        if name in first.single:
            column, place = first.single[name]
            found[name] = {"column": column, "place": place}
            if name != "weights":
                found[name] |= kind_of_column(plans, [plan.single[name][0] for plan in plans], mapping)
    if "time" in found and mapping["time_unit"]:
        found["time"]["unit"] = mapping["time_unit"]
    return trsmapping.Mapping(found)


def of_table(mapping, plan):
    """The dense and sparse entries with this table's columns."""
    dense = [dict(entry, column=column, place=place) for entry, (column, place) in zip(mapping.dense, plan.dense)]
    sparse = [dict(entry, **{key: feature[key] for key in ("column", "place", "bag", "weights")}) for entry, feature in zip(mapping.sparse, plan.features)]
    return dense, sparse


# --- the samples of a block ---


def labels_of(block, plan, mapping):
    columns = []
    for column, place in plan.labels:
        value = Values(block, column, place, mapping["nulls"]).scalar()
        numbers = value.floats()
        if not mapping["task_labels"]:
            value.present().refuse((numbers < 0) | (numbers > 1), lambda i, value=value: f"{value.shown(i)}, expected a label from 0 to 1 (or --task-labels)")
        columns.append(numbers.astype(np.float32))
    if not columns:
        return np.empty((block.rows, 0), np.float32)
    return np.stack(columns, axis=1) if len(columns) > 1 or mapping["task_labels"] else columns[0]


def arrays_of(block, plan, mapping, entries, id_type, state, distinct):
    """The arrays of a block, as DatasetWriter.append() takes them. entries: the mapping that the dataset carries. distinct: notes words that share
    rows."""
    dense, sparse = of_table(entries, plan)
    columns = [trsencode.dense_of(block, entry, entries.nulls) for entry in dense]
    arrays = {"labels": labels_of(block, plan, mapping), "dense": np.stack([column for column, _ in columns], axis=1) if columns else None}
    features = [trsencode.ids_of(block, entry, entries.nulls, entries.vocabulary(entry["name"])) for entry in sparse]
    lengths = np.stack([part.lengths for part in features], axis=1).astype(np.int32)
    state["dense_missing"] += sum(missing for _, missing in columns)
    state["large_ids"] += sum(part.large for part in features)
    state["unknown_ids"] += sum(part.unknown for part, entry in zip(features, sparse) if "vocabulary" not in entry)
    for part, entry in zip(features, sparse):
        if "vocabulary" in entry:
            state["unknown_words"][entry["name"]] = state["unknown_words"].get(entry["name"], 0) + part.unknown
        elif part.hashes is not None and entry["rows"]:
            distinct.add(entry["name"], part.hashes)
    arrays.update(lengths=lengths, values=trsdata.interleave(lengths, [part.values for part in features]).astype(id_type))
    if any(entry["weights"] for entry in sparse):
        arrays["weights"] = trsdata.interleave(lengths, [np.ones(len(part.values), np.float32) if part.weights is None else part.weights for part in features])
    if "weights" in plan.single:
        value = Values(block, *plan.single["weights"], entries.nulls).scalar()
        numbers = value.floats()
        value.present().refuse(numbers < 0, lambda i: f"{value.shown(i)}, expected a weight that is not negative")
        arrays["sample_weights"] = numbers.astype(np.float32)
    for name in ("group", "time"):
        if name in plan.single:
            column, place = plan.single[name]
            kind = entries.root[name]
            value = Values(block, column, place, entries.nulls).scalar()
            arrays[name] = value.present().integers(kind["kind"], kind["base"], NO_INTEGER)
    return arrays


def parts(tables, plans, mapping, entries, id_type, work, distinct):
    """Converts all tables, one part per block."""
    done, number = work.state["converted"], 0
    for table, plan in zip(tables, plans):
        first = number
        for size, block in table.blocks(max(0, done - first), plan.wanted):
            if block is not None:
                arrays = arrays_of(block, plan, mapping, entries, id_type, work.state, distinct)
                distinct.save()
                yield number, size, arrays
            number += 1


def give_vocabularies(tables, plans, entries, mapping, known, work, files):
    """Count the values of features that get a vocabulary, and let their entries have it. Without the option, a feature with too many words keeps
    its hash. known: the entries of --vocabulary-from, or None."""
    chosen = trsvocabulary.wanted(mapping["vocabulary"], entries, matches, known)
    pairs = [(table, of_table(entries, plan)[1]) for table, plan in zip(tables, plans)]
    with trsconvert.progress("count", files) as bar:
        found = trsvocabulary.kept(work, chosen, lambda: trsvocabulary.counted(pairs, chosen, entries.nulls, bar))
    for f, entry in enumerate(entries.sparse):
        values = found.get(entry["name"])
        if known and entry["name"] in known:
            trsvocabulary.check_known(entry, known[entry["name"]], mapping["vocabulary_from"])
            values = known[entry["name"]]["vocabulary"]
        if values is None:
            if entry["name"] in chosen:
                print(f"{entry['name']}: more than {trsvocabulary.MOST_WORDS:,} words, so its ids are 64-bit hashes (--vocabulary {entry['column']}:MAX keeps the most frequent)")
            continue
        trsvocabulary.take(entry, values)
        if entry["missing"] != "empty" and not -1 <= entry["missing"] < entry["rows"]:
            trsdata.fail(f"--sparse-missing {entry['missing']}: feature {entry['name']} has {entry['rows']} rows", 64)
        for plan in plans:
            plan.features[f]["rows"] = entry["rows"]


def check_alike(plans, mapping):
    """Checks that all tables have the same features and as many labels and dense columns. The largest number of rows counts."""
    first = plans[0]
    for plan in plans[1:]:
        for what in (lambda p: [feature["name"] for feature in p.features], lambda p: len(p.labels), lambda p: len(p.dense)):
            if what(plan) != what(first):
                trsdata.fail(f"{plan.table.path} has other columns than {first.table.path}: {what(plan)}, expected {what(first)}", 65)
        for column, of_first in zip(plan.as_integers, first.as_integers):
            kinds = [p.what_is(name, mapping) for p, name in ((plan, column), (first, of_first))]
            if not (plan.table.typed and first.table.typed) and "text" not in kinds:
                continue  # the numbers of CSV may be times
            if kinds[0] != kinds[1] and "null" not in kinds:
                trsdata.fail(f"{plan.table.path}: column {column} is {kinds[0]}, in {first.table.path} it is {kinds[1]}: their ids would differ", 65)
    for word in ("--modulo",) * mapping["modulo"] + ("--sparse-unknown",) * (mapping["sparse_unknown"] is not None):
        if not any(feature["rows"] for feature in first.features):
            trsdata.fail(f"{word}: no feature has ROWS, expected --sparse COLUMN:ROWS", 64)
    for same in zip(*(plan.features for plan in plans)):
        rows = 0 if any(feature["rows"] == 0 for feature in same) else max(feature["rows"] for feature in same)
        for feature in same:
            feature["rows"] = rows


def id_type_of(plans):
    """The type of the dataset's ids: uint64 if all columns whose numbers are ids have this type."""
    rows = [feature["rows"] for feature in plans[0].features]
    if 0 < min(rows) and max(rows) <= np.iinfo(np.int32).max:
        return np.int32
    free = [feature["column"] in plan.table.unsigned for plan in plans for feature in plan.features if feature["rows"] == 0]
    return np.uint64 if free and all(free) else np.int64


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    trsconvert.add_arguments(parser, 4)
    parser.add_argument("--mapping", metavar="FILE", help="the options below in a file; see above")
    parser.add_argument("--layout", choices=sorted(LAYOUTS), help="the columns of a known kind of file")
    for name, words in (("labels", "columns of the labels, from 0 to 1"), ("dense", "columns of the dense features"),
                        ("sparse", "columns of the sparse features; see above"), ("text", "sparse columns, group or time whose text is hashed"),
                        ("hexadecimal", "sparse columns of CSV with numbers in base 16"), ("bags", "sparse columns whose rows have several ids"),
                        ("nulls", "words of CSV that stand for a missing value, beside the empty one"),
                        ("absent", "COLUMN[=VALUE]: columns that some inputs lack")):
        parser.add_argument("--" + name, metavar="LIST", help=words)
    for name, words in (("weights", "column of what each sample counts"), ("group", "column of the sample's group, an integer"), ("time", "column of its time, an integer")):
        parser.add_argument("--" + name, metavar="COLUMN", help=words)
    parser.add_argument("--dense-missing", metavar="NUMBER|refuse", help="(default: 0)")
    parser.add_argument("--sparse-missing", metavar="ID|empty", help="(default: empty)")
    parser.add_argument("--sparse-unknown", metavar="ROW", help="the row of ids that do not lie below ROWS (default: they are errors)")
    parser.add_argument("--vocabulary", metavar="LIST", help="COLUMN[:MAX[:MIN_COUNT]] of each column with a vocabulary, or none; see above")
    parser.add_argument("--vocabulary-from", metavar="FILE", help="a dataset or checkpoint whose vocabularies these data get")
    parser.add_argument("--time-unit", choices=trscolumns.UNITS, help="the unit of --time, for the mapping (default: that of the type of Parquet)")
    parser.add_argument("--task-labels", action="store_true", default=None, help="labels are those of -tasks: any numbers, or missing")
    parser.add_argument("--no-labels", action="store_true", default=None, help="no labels: for -task predict alone; those of a mapping file are left out")
    parser.add_argument("--log1p", action="store_true", default=None, help="dense features x become log(1 + max(x, 0)), as convert_criteo.py does")
    parser.add_argument("--modulo", action="store_true", default=None, help="ids become their remainder by ROWS that is not negative")
    parser.add_argument("--bag-separator", metavar="C", help="between the ids of a cell (default: |)")
    parser.add_argument("--delimiter", metavar="C", help="of fields (default: a tab in .tsv, else a comma)")
    parser.add_argument("--no-quotes", action="store_true", default=None, help="double quotes mean nothing in CSV")
    return parser, parser.parse_args()


@trsconvert.ending
def main():
    parser, args = arguments()
    files = [path for source in args.inputs for path in trstable.paths_of(source)]
    trsconvert.check_arguments(parser, args, files)
    mapping = mapping_of(args)
    tables = [trstable.table(source, args.block_bytes, mapping["delimiter"], not mapping["no_quotes"]) for source in args.inputs]
    tables = trstable.completed(tables, mapping["absent"], lambda column: matches(column, mapping["text"]))
    plan = Plan(tables[0], mapping)
    plans = [plan] + [Plan(table, mapping, plan) for table in tables[1:]]
    check_alike(plans, mapping)
    entries = carried(plans, mapping)
    known = trsvocabulary.known(mapping["vocabulary_from"]) if mapping["vocabulary_from"] else None
    settings = {"inputs": trsconvert.identity(files + [mapping["vocabulary_from"]] * (known is not None)), "mapping": mapping, "block_bytes": args.block_bytes}
    work = trsconvert.Work(args.output + ".parts", settings, dense_missing=0, large_ids=0, unknown_ids=0, unknown_words={}, counted=False)
    with work.removed_if_wrong():
        give_vocabularies(tables, plans, entries, mapping, known, work, files)
        id_type = id_type_of(plans)
        if id_type == np.uint64 and mapping["sparse_missing"] != "empty" and mapping["sparse_missing"] < 0:
            trsdata.fail(f"--sparse-missing {mapping['sparse_missing']}: the ids are uint64, expected a number that is not negative", 64)
    rows = [entry["rows"] for entry in entries.sparse]
    distinct = trsvocabulary.Distinct(work)
    with work.removed_if_wrong(), trsconvert.progress("convert", files) as progress:
        trsconvert.convert(parts(tables, plans, mapping, entries, id_type, work, distinct), work, progress)
    shared = list(distinct.tell(entries.sparse))

    named = len(plan.labels) != 1 or mapping["task_labels"]

    def writer(path):
        return trsdata.DatasetWriter(path, [feature["name"] for feature in plan.features], rows, len(plan.dense), any(feature["weights"] for feature in plan.features),
                                     id_type, args.compress, "weights" in plan.single, plan.label_names if named else None,
                                     "group" in plan.single, "time" in plan.single)

    with work.removed_if_wrong():
        trsconvert.join(work, args, writer, {"converted_by": "convert_table.py", trsmapping.ATTRIBUTE: entries.text()})
    if work.state["dense_missing"]:
        print(f"{work.state['dense_missing']:,} missing dense values became {mapping['dense_missing']:g}")
    for line in shared:
        print(line)
    for entry in entries.sparse:
        if "vocabulary" in entry:
            print(trsvocabulary.told(entry, work.state["unknown_words"].get(entry["name"], 0)))
    if work.state["unknown_ids"]:
        print(f"{trsread.counted(work.state['unknown_ids'], 'unknown id')} became {mapping['sparse_unknown']}")
    for name, word in mapping["absent"].items():
        count = sum(name in getattr(table, "lacking", ()) for table in tables)
        if count:
            print(f"{count} of {trsread.counted(len(tables), 'input')} {'has' if count == 1 else 'have'} no column {name}: {'a missing value' if word is None else word} in each row")
    if work.state["large_ids"] and id_type == np.int64:
        print(f"{trsread.counted(work.state['large_ids'], 'id')} of 2^63 and above became negative, since other columns of ids are signed or from text files; "
              "-tables_id_map hash gives them the rows of unsigned ids, modulo and qr do not", file=sys.stderr)
    work.remove()


if __name__ == "__main__":
    trspython.run(main)
