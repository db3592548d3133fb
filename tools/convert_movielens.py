#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Converts MovieLens-100k to two trshard datasets, ml100k_train.h5 and ml100k_eval.h5.

The ratings are in the wheel recbole 1.2.1 (2.1 MB), which this tool fetches with pip unless it is there
already. They belong to GroupLens: free for research, not to be redistributed.

A sample is a rating. Its label is 1 if the rating is at least 4. Features do not use the sample's own rating
or later ratings. The last fifth of each user's ratings are the evaluation set, the others the training set;
both files are in time order. Dense (7): age, year of the film, days since the first rating, sine and cosine of
the hour, the number of earlier ratings of the user and of the item. Sparse (8): user, item, hist (the last 20 items that the user
liked before, newest first), genre, occupation, gender, zip (first three digits), title (hashed words).
"""
import argparse
import collections
import io
import os
import re
import subprocess
import sys
import tempfile
import zipfile

import trspython

trspython.require("h5py", "numpy")

import numpy as np
from trspython import tqdm

import trsdata
import trsmapping

PACKAGE = "recbole==1.2.1"
WHEEL = "recbole-1.2.1-py3-none-any.whl"
FOLDER = "recbole/dataset_example/ml-100k/ml-100k"
FEATURES = {"user": 944, "item": 1683, "hist": 1683, "genre": 20, "occupation": 22, "gender": 3, "zip": 1001, "title": 3001}
DENSE = ["age", "year", "days", "hour_sin", "hour_cos", "user_ratings", "item_ratings"]
NUM_DENSE = len(DENSE)
LIKED = 4.0
HISTORY = 20
LIMIT_S = 180  # time limit for fetching the ratings
EXIT_UNREACHABLE = 69  # PyPI is not reachable; a caller can tell this from bad data


def fetch(folder):
    """Path of the wheel, downloaded into folder unless it is there."""
    path = os.path.join(folder, WHEEL)
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as fresh:  # another process may fetch it into the same folder at the same time
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "1", "--timeout", "15",
                       "--dest", fresh, PACKAGE]
            try:
                result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                trsdata.fail(f"PyPI cannot be reached (nothing after {LIMIT_S} s)", EXIT_UNREACHABLE)
            if result.returncode != 0 or not os.path.exists(os.path.join(fresh, WHEEL)):
                reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
                trsdata.fail(f"PyPI cannot be reached ({reason})", EXIT_UNREACHABLE)
            os.replace(os.path.join(fresh, WHEEL), path)
    return path


def table(wheel, suffix):
    """Rows of one tab-separated file of the wheel, without its header line."""
    with io.TextIOWrapper(wheel.open(FOLDER + suffix), encoding="utf-8") as lines:
        next(lines)
        return [line.rstrip("\n").split("\t") for line in lines]


def fnv1a(word):
    """The 32-bit Fowler-Noll-Vo hash (1a) of a word."""
    value = 2166136261
    for byte in word.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def users(rows):
    """user -> (dense age, [occupation], [gender], [zip])"""
    occupations = {name: 1 + rank for rank, name in enumerate(sorted({row[3] for row in rows}))}
    out = {}
    for user, age, gender, occupation, code in rows:
        area = 1 + int(code[:3]) if code.isdigit() else 0
        out[int(user)] = ((float(age) - 33) / 12, [occupations[occupation]], [{"M": 1, "F": 2}.get(gender, 0)], [area])
    return out


def items(rows):
    """item -> (dense year, genres, title words)"""
    genres = {name: 1 + rank for rank, name in enumerate(sorted({g for row in rows for g in row[3].split()}))}
    out = {}
    for item, title, year, kinds in rows:
        dense_year = (float(year) - 1990) / 10 if year.isdigit() else 0.0
        words = [1 + fnv1a(word) % 3000 for word in re.findall("[a-z0-9]+", title.lower())]
        out[int(item)] = (dense_year, [genres[g] for g in kinds.split()], words)
    return out


def samples(wheel):
    """Yields (user, label, dense, ids by feature) for every rating in the order (timestamp, user, item)."""
    by_user, by_item = users(table(wheel, ".user")), items(table(wheel, ".item"))
    ratings = sorted((int(float(when)), int(user), int(item), float(stars)) for user, item, stars, when in table(wheel, ".inter"))
    begin = ratings[0][0]
    seen_user, seen_item = collections.Counter(), collections.Counter()
    liked = collections.defaultdict(lambda: collections.deque(maxlen=HISTORY))
    for when, user, item, stars in tqdm(ratings, desc="convert", unit=" ratings", disable=not sys.stderr.isatty()):
        age, occupation, gender, area = by_user[user]
        year, genre, title = by_item[item]
        hour = (when % 86400) / 86400 * 2 * np.pi
        dense = (age, year, (when - begin) / 86400 / 100, np.sin(hour), np.cos(hour), np.log1p(seen_user[user]) / 3, np.log1p(seen_item[item]) / 3)
        yield user, stars >= LIKED, dense, ([user], [item], list(liked[user]), genre, occupation, gender, area, title)
        seen_user[user] += 1
        seen_item[item] += 1
        if stars >= LIKED:
            liked[user].appendleft(item)


def write(path, rows):
    mapping = {"converter": "convert_movielens.py", "dense": [{"name": name} for name in DENSE],  # this tool computes all of them
               "sparse": [{"name": name, "rows": count} for name, count in FEATURES.items()], "labels": [{"name": "liked", "column": None}]}
    with trsdata.DatasetWriter(path, FEATURES.keys(), list(FEATURES.values()), NUM_DENSE) as out:
        out.attribute(trsmapping.ATTRIBUTE, trsmapping.Mapping(mapping).text())
        for first in range(0, len(rows), trsdata.SAMPLES_AT_ONCE):
            part = rows[first:first + trsdata.SAMPLES_AT_ONCE]
            lengths = np.array([[len(ids) for ids in row[3]] for row in part], np.int32)
            values = np.array([i for row in part for ids in row[3] for i in ids], np.int32)
            out.append(np.array([row[2] for row in part], np.float32), np.array([row[1] for row in part], np.float32), lengths, values)
    print("wrote", trsdata.describe(path))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", default="data", help="folder of the two files and of the wheel (default: %(default)s)")
    parser.add_argument("--wheel-dir", metavar="DIR", help="where the wheel is or goes to (default: the output folder)")
    args = parser.parse_args()
    path = fetch(args.wheel_dir or args.output_dir)
    try:
        with zipfile.ZipFile(path) as wheel:
            rows = list(samples(wheel))
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
        trsdata.fail(f"{path} is not the expected wheel: {error}")
    total = collections.Counter(row[0] for row in rows)
    seen = collections.Counter()
    train, evaluate = [], []
    for row in rows:
        user = row[0]
        (train if seen[user] < total[user] - total[user] // 5 else evaluate).append(row)
        seen[user] += 1
    write(os.path.join(args.output_dir, "ml100k_train.h5"), train)
    write(os.path.join(args.output_dir, "ml100k_eval.h5"), evaluate)


if __name__ == "__main__":
    trspython.run(main)
