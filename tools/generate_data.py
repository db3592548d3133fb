#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a synthetic trshard dataset with any number of features and samples, in constant memory. The same seed gives the same content.

  generate_data.py --output train.h5 --num-samples 1000000 --features 26 --num-embeddings 100000 --num-dense 13
  generate_data.py --output train.h5 --num-samples 1M --features user,item,hist --num-embeddings 1M,50k,50k --pooling 1,1,1:20 --ids zipf
  generate_data.py --output train.h5 --num-samples 80000 --output-eval eval.h5 --num-eval 20000 ...
  generate_data.py --output days.h5 --num-samples 1M --features user,item --num-embeddings 20k,5k --ids zipf --drift 0,200k --id-type int64

Lists have one entry per feature, or one entry for all features. Numbers take k, M, G. A pooling factor is a sample's
number of ids for a feature: 5 (fixed), 1:9 (uniform, both ends included), or geometric:5 (mean 5, 0 included).
Labels follow a planted signal: every id and every dense feature has a hidden weight, and the label is 1 with the probability
sigmoid(strength * their normalised sum). So a model that learns does better than a coin. The attribute planted_loss holds
the log loss of the true probabilities, which no model can beat on average.
"""
import argparse
import contextlib
import os
import sys

import trspython

trspython.require("h5py", "numpy")

import numpy as np

import trsdata
import trsfile

CHUNK = 16384  # samples that share a random stream; it determines the content, so it must never become an option
SCATTER = 2654435761  # a prime above every allowed number of rows: spreads the frequent ids of zipf over the table
UNITS = {"k": 10**3, "m": 10**6, "g": 10**9}


def number(word):
    """10, 10k, 10M, 10G."""
    scale = UNITS.get(word[-1:].lower(), 1)
    digits = word[:-1] if scale > 1 else word
    if not digits.lstrip("-").isdecimal():
        raise argparse.ArgumentTypeError(f"\"{word}\" is not a whole number, such as 500 or 10k")
    value = int(digits) * scale
    if value < 0:
        raise argparse.ArgumentTypeError(f"{word} is negative")
    return value


def interval(word):
    """0:2 as (0.0, 2.0)."""
    low, _, high = word.partition(":")
    low, high = float(low), float(high)
    if not 0 <= low <= high < np.inf:
        raise argparse.ArgumentTypeError(f"{word} is not LOW:HIGH with 0 <= LOW <= HIGH")
    return low, high


def per_feature(name, words, count, convert):
    words = words.split(",")
    if len(words) not in (1, count):
        trsdata.fail(f"--{name} has {len(words)} entries for {count} features")
    try:
        return [convert(word) for word in (words * count)[:count]]
    except (ValueError, argparse.ArgumentTypeError) as error:
        trsdata.fail(f"--{name}: {error}")


def pooling(word):
    """A function (rng, n) -> lengths."""
    if word.startswith("geometric:"):
        mean = float(word.split(":")[1])
        if not 0 <= mean < 1e9:
            raise ValueError(f"pooling {word} is not geometric:MEAN with a MEAN that is not negative")
        return lambda rng, n: rng.geometric(1 / (1 + mean), n) - 1
    low, _, high = word.partition(":")
    low, high = int(low), int(high or low)
    if not 0 <= low <= high < 2**31 - 1:
        raise ValueError(f"pooling {word} is not LOW:HIGH with 0 <= LOW <= HIGH")
    return lambda rng, n: rng.integers(low, high + 1, n)


def stream(seed, part, feature, chunk):
    """The random numbers of one feature and chunk, independent of all others."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, part, feature, chunk])))


def draw_ranks(rng, n, rows, alpha):
    """n ranks below rows. Without alpha they are uniform. With alpha the density is x^-alpha on [1, rows + 1), and the whole part of x is the
    rank: Zipf's law, except for the first ranks."""
    u = rng.random(n)
    if alpha is None:
        return (u * rows).astype(np.int64)
    power = 1.0 - alpha
    x = (1 + u * ((rows + 1.0) ** power - 1)) ** (1 / power) if abs(power) > 1e-9 else (rows + 1.0) ** u
    return np.clip(x.astype(np.int64) - 1, 0, rows - 1)


def draw_ids(rng, n, rows, alpha):
    """n ids below rows, spread as draw_ranks() says."""
    ranks = draw_ranks(rng, n, rows, alpha)
    return ranks if alpha is None else ranks * SCATTER % rows


def drifting_ids(ranks, samples, rows, life):
    """The ids of ranks at given samples, when each id is born as the most popular, loses a rank every life / rows samples, and dies after
    `life` samples: at sample s, rank r is the id rows - 1 - r + s * rows // life."""
    return rows - 1 - ranks + samples * rows // life


def hidden_weight(ids, feature, seed):
    """A number of mean 0 and variance 1 for each id, the same at each occurrence (splitmix64's finaliser)."""
    with np.errstate(over="ignore"):
        x = ids.astype(np.uint64) + np.uint64((feature + 1) * 0x9E3779B97F4A7C15 + seed * 0xD1B54A32D192ED03 & 0xFFFFFFFFFFFFFFFF)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return (x / 2.0**64 - 0.5) * np.sqrt(12.0)


def sample_weights(args, chunk, n):
    """Numbers for the first n samples of a chunk, uniform in [low, high); None if samples have none."""
    if not args.weights:
        return None
    low, high = args.weights
    return (low + (high - low) * stream(args.seed, 2, 0, chunk).random(CHUNK)[:n]).astype(np.float32)


def groups_and_times(args, chunk, n):
    """Groups and times of the first n samples of a chunk: groups below --groups, of sizes uneven as ids of zipf, and times
    that never decrease; None if samples have none.
    """
    group = time = None
    if args.groups:
        group = draw_ids(stream(args.seed, 3, 0, chunk), CHUNK, args.groups, args.alpha if args.ids == "zipf" else None)[:n]
    if args.times:
        time = chunk * CHUNK + np.arange(n, dtype=np.int64)
    return group, time


def chunk_of(args, chunk, n):
    """dense, labels, lengths, values, weights, true probabilities of the first n samples of a chunk."""
    lengths = np.empty((CHUNK, len(args.names)), np.int32)
    values, weights = [], []
    score, terms = np.zeros(CHUNK), 0
    for f, rows in enumerate(args.rows):
        rng = stream(args.seed, 0, f, chunk)
        lengths[:, f] = args.poolings[f](rng, CHUNK)
        sample = np.repeat(np.arange(CHUNK), lengths[:, f])
        alpha = args.alpha if args.ids == "zipf" else None
        if args.lives[f]:
            ids = drifting_ids(draw_ranks(rng, len(sample), rows, alpha), chunk * CHUNK + sample, rows, args.lives[f])
        else:
            ids = draw_ids(rng, len(sample), rows, alpha)
        scale = rng.random(len(sample), np.float32) * 2 if f in args.weighted else np.ones(len(sample), np.float32)
        bag = np.bincount(sample, hidden_weight(ids, f, args.seed) * scale, CHUNK)
        score += bag / np.sqrt(np.maximum(lengths[:, f], 1))
        terms += 1
        values.append(ids[:lengths[:n, f].sum()])
        weights.append(scale[:lengths[:n, f].sum()])
    rng = stream(args.seed, 1, 0, chunk)
    dense = rng.random((CHUNK, args.num_dense), np.float32)
    score += ((dense - 0.5) * np.sqrt(12.0)) @ hidden_weight(np.arange(args.num_dense), -1, args.seed)
    probability = 1 / (1 + np.exp(-args.strength * score / np.sqrt(max(1, terms + args.num_dense))))
    labels = probability if args.soft_labels else rng.random(CHUNK) < probability
    if args.labels:  # the first label is the plain label; each further label has fewer positives, all of which are positives of the label before
        rare = np.stack([stream(args.seed, 4, t, chunk).random(CHUNK) < 0.5 for t in range(len(args.labels) - 1)] + [np.ones(CHUNK, bool)])
        labels = np.stack([labels * np.prod(rare[:t], axis=0) for t in range(len(args.labels))], axis=1)
    ids = trsdata.interleave(lengths[:n], values).astype(args.id_dtype)
    ids_weights = trsdata.interleave(lengths[:n], weights) if args.weighted else None
    return dense[:n], labels[:n].astype(np.float32), lengths[:n], ids, ids_weights, probability[:n]


def progress(path, samples):
    """A progress bar to update(), or None if it would not be seen or tqdm is missing, as on machines that run bundles."""
    if not sys.stderr.isatty():
        return contextlib.nullcontext()
    from tqdm import tqdm
    return tqdm(total=samples, desc=path, unit=" samples", unit_scale=True)


def write(args, path, begin, end):
    """Samples begin to end of the endless stream."""
    loss = 0.0
    ranges = [0 if life else rows for rows, life in zip(args.rows, args.lives)]  # 0: the ids have no range
    with trsdata.DatasetWriter(path, args.names, ranges, args.num_dense, bool(args.weighted), args.id_dtype, args.compress, bool(args.weights),
                               args.labels, bool(args.groups), args.times) as out:
        with progress(path, end - begin) as bar:
            for chunk in range(begin // CHUNK, -(-end // CHUNK)):
                first, last = max(begin - chunk * CHUNK, 0), min(end - chunk * CHUNK, CHUNK)
                dense, labels, lengths, values, weights, p = chunk_of(args, chunk, last)
                skip, samples = lengths[:first].sum(), sample_weights(args, chunk, last)
                group, time = groups_and_times(args, chunk, last)
                out.append(dense[first:], labels[first:], lengths[first:], values[skip:], None if weights is None else weights[skip:],
                           None if samples is None else samples[first:], None if group is None else group[first:],
                           None if time is None else time[first:])
                p = np.clip(p[first:], 1e-12, 1 - 1e-12)
                loss -= (p * np.log(p) + (1 - p) * np.log1p(-p)).sum()
                if bar is not None:
                    bar.update(last - first)
        out.attribute("generated_by", " ".join(["generate_data.py"] + sys.argv[1:]).encode("utf-8", "replace").decode())
        out.attribute("planted_loss", loss / max(1, end - begin))
    print("wrote", trsdata.describe(path) + f", best possible loss {loss / max(1, end - begin):.4f}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, metavar="FILE")
    parser.add_argument("--num-samples", type=number, required=True, metavar="N")
    parser.add_argument("--output-eval", metavar="FILE", help="a second file with the samples after those, so with the same signal")
    parser.add_argument("--num-eval", type=number, default=0, metavar="N")
    parser.add_argument("--features", default="26", metavar="N|LIST", help="how many (named f0, f1, ...), or their names (default: %(default)s)")
    parser.add_argument("--num-embeddings", default="100k", metavar="LIST", help="id range of each (default: %(default)s)")
    parser.add_argument("--pooling", default="1", metavar="LIST", help="ids per sample of each: 5, 1:9 or geometric:5 (default: %(default)s)")
    parser.add_argument("--ids", choices=["uniform", "zipf"], default="uniform", help="how ids are spread (default: %(default)s)")
    parser.add_argument("--alpha", type=float, default=1.05, help="exponent of zipf: the r-th id has the share of x^-ALPHA between r and r + 1, so the first are rarer than by r^-ALPHA (default: %(default)s)")
    parser.add_argument("--drift", default="0", metavar="LIST", help="samples that an id of each lives: it is born as the most popular, loses rank after rank and dies. There are --num-embeddings ids at a time (default: 0, ids stay)")
    parser.add_argument("--weights", type=interval, metavar="LOW:HIGH", help="weights of samples, uniform in [LOW, HIGH) (default: none, all count alike)")
    parser.add_argument("--labels", default="", metavar="LIST", help="names of several labels; each is positive at half of the places of the one before (default: one label without a name)")
    parser.add_argument("--groups", type=number, default=0, metavar="N", help="a group for each sample, below N, spread as --ids says (default: none)")
    parser.add_argument("--times", action="store_true", help="a time for each sample, its number")
    parser.add_argument("--weighted", default="", metavar="LIST|all", help="features whose ids carry weights, uniform in [0, 2); the others' are 1")
    parser.add_argument("--num-dense", type=int, default=13, metavar="N", help="dense features, uniform in [0, 1) (default: %(default)s)")
    parser.add_argument("--strength", type=float, default=2.0, help="of the planted signal; 0: labels are coin flips (default: %(default)s)")
    parser.add_argument("--soft-labels", action="store_true", help="the label is the probability itself")
    parser.add_argument("--id-type", choices=["int32", "int64"], default="int32", help="(default: %(default)s)")
    parser.add_argument("--compress", type=int, choices=range(1, 10), metavar="1-9", help="gzip, shuffle and fletcher32")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.names = [f"f{i}" for i in range(int(args.features))] if args.features.isdigit() else args.features.split(",")
    count = len(args.names)
    if not args.names or "" in args.names or len(set(args.names)) < count:
        parser.error("--features must be at least 1, or names, each once")
    if args.num_samples < 1 or args.num_dense < 0 or args.seed < 0 or not 0 < args.alpha < np.inf or not np.isfinite(args.strength) or bool(args.output_eval) != bool(args.num_eval):
        parser.error("--num-samples and --alpha must be positive, --strength finite, --num-dense and --seed not negative, --output-eval goes with --num-eval")
    trsfile.check(parser, {"--output": args.output, "--output-eval": args.output_eval})
    args.labels = args.labels.split(",") if args.labels else None
    if args.labels and (len(set(args.labels)) < len(args.labels) or "" in args.labels):
        parser.error("--labels needs names, each once")
    args.rows = per_feature("num-embeddings", args.num_embeddings, count, number)
    if not all(1 <= rows < SCATTER for rows in args.rows):
        parser.error(f"--num-embeddings must lie between 1 and {SCATTER - 1}")
    args.id_dtype = np.dtype(args.id_type)
    if max(args.rows) > np.iinfo(args.id_dtype).max:
        parser.error("--num-embeddings needs --id-type int64")
    args.lives = per_feature("drift", args.drift, count, number)
    if any(args.lives) and args.id_type == "int32" and max(rows + (args.num_samples + args.num_eval) * rows // life for rows, life in zip(args.rows, args.lives) if life) > 2**31 - 1:
        parser.error("--drift: these ids need --id-type int64")
    args.poolings = per_feature("pooling", args.pooling, count, pooling)
    chosen = args.names if args.weighted == "all" else [name for name in args.weighted.split(",") if name]
    if set(chosen) - set(args.names):
        parser.error(f"--weighted: no feature {sorted(set(chosen) - set(args.names))[0]}")
    args.weighted = {args.names.index(name) for name in chosen}
    return args


def main():
    args = parse()
    try:
        write(args, args.output, 0, args.num_samples)
        if args.output_eval:
            write(args, args.output_eval, args.num_samples, args.num_samples + args.num_eval)
    except BrokenPipeError:
        raise
    except OSError as error:
        trsdata.fail(f"{args.output} cannot be written: {os.strerror(error.errno) if error.errno else error}", 74)


if __name__ == "__main__":
    trspython.run(main)
