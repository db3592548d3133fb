# SPDX-License-Identifier: BSD-3-Clause
"""The batches are the same for any number of reader threads, and if batches are read only once."""
import json
import os

import h5py
import numpy as np

from law_plans import MIXED, make, train
from trsrun import check, check_same_tensors, same_bits, thin, thinned

HASHED = ("-tables_id_map hash -tables_num_embeddings 40", "-tables_id_map modulo -tables_num_embeddings 40")


def write_part(folder, name, samples, compressed):
    """Write the first samples of train.h5 to another file, contiguous or in compressed chunks."""
    with h5py.File(os.path.join(folder, "train.h5")) as h, h5py.File(os.path.join(folder, name), "w", libver="latest") as out:
        ids = int(h["sparse/offsets"][samples])
        for key, value in h.attrs.items():
            out.attrs[key] = samples if key == "num_samples" else value
        sparse = out.create_group("sparse")
        for key, value in h["sparse"].attrs.items():
            sparse.attrs[key] = value

        def copy(path, item):
            if isinstance(item, h5py.Dataset):
                n = {"sparse/values": ids, "sparse/weights": ids, "sparse/offsets": samples + 1}.get(path, samples)
                out.create_dataset(path, data=item[:n], **({"compression": "gzip", "shuffle": True, "chunks": (7,) + item.shape[1:]} if compressed else {}))

        h.visititems(copy)


@thinned
def test_reader_threads(binary, folder):
    """-reader_threads 1, 2 and 4 give the same bits: for plain and compressed data, with and
    without id maps, shuffled, and in a run that is resumed with another number."""
    make(folder, 130)
    write_part(folder, "gzip.h5", 130, True)
    every = [(data, maps) for data in ("train.h5", "gzip.h5") for maps in ("",) + HASHED]
    for data, maps in thin(every, (every[1], every[3])):
        shared = f"{MIXED} -data_train {data} {maps} -data_shuffle"
        wanted, state = train(binary, folder, "one", 2, f"{shared} -steps 14 -reader_threads 1")
        for n in (2, 4):
            what = f"{n} threads, {data} {maps}"
            found, other = train(binary, folder, "more", 2, f"{shared} -steps 14 -reader_threads {n}")
            check(same_bits(found, wanted), f"{what}: losses {found} for {wanted}")
            check_same_tensors(other, state, what)
        name = f"{data}{HASHED.index(maps) if maps else ''}.ckpt"
        train(binary, folder, "half", 2, f"{shared} -steps 9 -reader_threads 4 -checkpoint_dir {name} -checkpoint_every 9")
        found, other = train(binary, folder, "rest", 2, f"{shared} -steps 14 -reader_threads 2 -checkpoint_dir {name} -resume")
        check(same_bits(found, wanted[9:]), f"{data} {maps}, resumed: losses {found} for {wanted[9:]}")
        check_same_tensors(other, state, f"{data} {maps}, resumed")


def test_reader_grows(binary, folder):
    """Every 7th batch has long bags. Several threads, whose batches take turns in the memory for
    long bags, give the bits of one thread."""
    make(folder, 1440)
    with h5py.File(os.path.join(folder, "train.h5"), "r+") as h:
        rows = h["sparse"].attrs["num_embeddings"]
        lengths = np.repeat(np.where(np.arange(1440) // 24 % 7 == 0, 300, 1)[:, None], len(rows), axis=1).astype(np.int32)
        values = np.random.default_rng(3).integers(0, rows.min(), lengths.sum()).astype(np.int32)
        for name, data in (("lengths", lengths), ("values", values), ("offsets", np.concatenate([[0], np.cumsum(lengths.sum(axis=1))]).astype(np.int64))):
            del h[f"sparse/{name}"]
            h[f"sparse/{name}"] = data
    for more in ("", HASHED[0]):
        wanted, state = train(binary, folder, "one", 1, f"{MIXED} {more} -steps 40 -reader_threads 1")
        for threads, ahead in ((3, 2), (2, 3)):
            found, other = train(binary, folder, "more", 1, f"{MIXED} {more} -steps 40 -reader_threads {threads} -data_read_ahead {ahead}")
            check(same_bits(found, wanted), f"{threads} threads, {ahead} ahead: losses {found} for {wanted}")
            check_same_tensors(other, state, f"{threads} threads, {ahead} ahead")


@thinned
def test_repeat_batches(binary, folder):
    """-data_repeat_batches n gives the bits of a training with only these batches. Each batch is
    read in the first rounds and then no more. A resumed run continues with them."""
    make(folder, 130)
    for batches, threads in thin(((1, 1), (3, 2), (5, 1), (20, 3)), ((3, 2),)):
        write_part(folder, "part.data.h5", min(24 * batches, 130), False)
        wanted, state = train(binary, folder, "part", 2, f"{MIXED} -data_train part.data.h5 -steps 40")
        kept = f"{MIXED} -data_repeat_batches {batches} -reader_threads {threads}"
        what = f"{batches} batches, {threads} threads"
        if batches <= 5:
            found, other = train(binary, folder, "kept", 2, f"{kept} -steps 40 -trace kept.json -trace_first_step 30 -trace_steps 8")
            check(same_bits(found, wanted), f"{what}: losses {found} for {wanted}")
            check_same_tensors(other, state, what)
            check(count_reads(folder) == 0, f"{what}: {count_reads(folder)} batches were read in steps 30 to 37")
        train(binary, folder, "half", 2, f"{kept} -steps 25 -checkpoint_dir {batches}.ckpt -checkpoint_every 25")
        found, _ = train(binary, folder, "rest", 2, f"{kept} -steps 40 -checkpoint_dir {batches}.ckpt -resume")
        whole, _ = train(binary, folder, "whole", 2, f"{kept} -steps 40")
        check(same_bits(found, whole[25:]), f"{what}, resumed: losses {found} for {whole[25:]}")
    train(binary, folder, "read", 2, f"{MIXED} -steps 40 -trace kept.json -trace_first_step 30 -trace_steps 8")
    check(count_reads(folder) > 0, "no batch was read in steps 30 to 37 of an ordinary training")


def count_reads(folder):
    with open(os.path.join(folder, "kept.json")) as file:
        return sum("read" in str(event.get("name", "")).split() for event in json.load(file)["traceEvents"] if event.get("ph") == "X")
