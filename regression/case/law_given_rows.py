# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints whose tables have another id_map than the model: rows that are given to ids mean nothing
without these ids, and nothing with others."""
import os
import shutil

import h5py

from trsrun import check, run, tensors, thin, thinned, write_dataset

SHAPE = "-tables_embedding_dim 4 -dense_arch 8,4 -over_arch 8,1 -seed 5 -batch_size 20"
ROWS = 48
# id_map: the tensor that only its tables have
MAPS = {"none": None, "hash": None, "zch": "zch/raw", "dynamic": "dynamic/ids"}


def table(id_map, rows=ROWS):
    return f"-tables t -table_t_features seen,bought -table_t_num_embeddings {rows} -table_t_id_map {id_map} {SHAPE}"


def make(binary, folder):
    """<id_map>.h5 of each id_map, with as many rows in use; bare_<id_map>.h5 without the model's options."""
    write_dataset(os.path.join(folder, "raw.h5"), 400, features={"seen": ROWS, "bought": ROWS})
    for id_map in MAPS:
        run(binary, 1, f"-data_train raw.h5 {table(id_map)} -steps 18 -checkpoint_final {id_map}.h5", folder)
        path, bare = (os.path.join(folder, f"{name}{id_map}.h5") for name in ("", "bare_"))
        check(tensors(path)["embedding/t/weight"].shape == (ROWS, 4), f"{id_map}: another number of rows would be refused anyway")
        shutil.copy(path, bare)
        with h5py.File(bare, "r+", libver="latest") as file:
            del file.attrs["model"]
        os.mkdir(os.path.join(folder, id_map))
        shutil.copy(bare, os.path.join(folder, id_map, "step-000000018.h5"))


@thinned
def test_given_rows_changed(binary, folder):
    """A model refuses the rows of another id_map, in each kind of run. The message has the file, the tensor of
    ids, the option and the id_map to give."""
    make(binary, folder)
    for there, has in MAPS.items():
        for here, wants in MAPS.items():
            if has == wants:
                continue
            train = f"-data_train raw.h5 {table(here)}"
            runs = [(f"{train} -steps 20 -resume -checkpoint_dir {there} -checkpoint_every 50", os.path.join(there, "step-000000018.h5"))]
            runs += [(f"{train} -steps 3 -init_from {there}.h5 {more}", f"{there}.h5") for more in thin(("", "-init_from_missing initial", "-init_from_rows grow"), ("-init_from_missing initial",))]
            runs += [(f"-task {task} -data_eval raw.h5 {table(here)} -init_from bare_{there}.h5", f"bare_{there}.h5") for task in ("eval", "predict")]
            for ranks, (words, path) in zip((1, 2, 1, 1, 2, 1), runs):
                text = run(binary, ranks, words, folder, status=65).text
                names = [f"{path} has /embedding/t/{has}", f"give -table_t_id_map {there}"] if has else [f"{path} has no /embedding/t/{wants}", "-table_t_id_map of the file's model"]
                check(all(name in text for name in names + [f"id_map {here} here"]), f"{there} to {here}, {words}:\n{text[-900:]}")
                check(text.count("trshard: error") == 1 and ("-init_from_tables" in text) == ("-task" not in words and "-resume" not in words), text[-900:])
            # the model of the file says it first
            text = run(binary, 1, f"-task eval -data_eval raw.h5 {table(here)} -init_from {there}.h5", folder, status=64).text
            check(f'-table_t_id_map "{here}"' in text and f"{there}.h5 has -table" in text and f"id_map {there}" in text, text[-900:])


def test_given_rows_kept(binary, folder):
    """Tables that -init_from_tables leaves out may have another id_map. A table with id_map zch keeps its number
    of rows and buckets."""
    make(binary, folder)
    two = f"-data_train raw.h5 -tables t,u -table_t_features seen -table_u_features bought -tables_num_embeddings {ROWS} {SHAPE}"
    run(binary, 1, f"{two} -table_t_id_map zch -steps 5 -checkpoint_final two.h5", folder)
    run(binary, 1, f"{two} -table_t_id_map dynamic -steps 5 -init_from two.h5 -init_from_tables u", folder)
    text = run(binary, 1, f"{two} -table_t_id_map dynamic -steps 5 -init_from two.h5 -init_from_tables t", folder, status=65).text
    check("two.h5 has /embedding/t/zch/raw" in text, text[-900:])
    # a table that the file lacks altogether keeps its initial rows, and has no ids yet
    text = run(binary, 1, f"-data_train raw.h5 -tables t,v -table_t_features seen -table_v_features bought -tables_num_embeddings {ROWS} {SHAPE} -tables_id_map zch "
               "-steps 5 -init_from two.h5 -init_from_missing initial", folder).text
    check("/embedding/v/weight: the file has none" in text and "/embedding/u of the file: the model has no such table" in text, text[:3000])
    for words, tensor in ((table("zch", 2 * ROWS), "raw"), (f"{table('zch', 2 * ROWS)} -init_from_rows grow", "raw"), (f"{table('zch')} -table_t_zch_buckets 4", "numbers")):
        text = run(binary, 1, f"-data_train raw.h5 {words} -steps 5 -init_from zch.h5", folder, status=65).text
        check(f"zch.h5: /embedding/t/zch/{tensor} is int64" in text and "same num_embeddings and zch_buckets" in text and "-init_from_rows grow takes" not in text, text[-900:])
    text = run(binary, 1, f"-data_train raw.h5 {table('zch')} -table_t_zch_policy lru -steps 5 -init_from zch.h5", folder).text
    check("lacks /embedding/t/zch/last" in text and "optimizer state," not in text and "updates are counted on" not in text, text[:3000])
    text = run(binary, 1, "-data_train raw.h5 -tables t,t/zch -table_t_features seen -table_t/zch_features bought " + SHAPE, folder, status=64).text
    check('"t/zch" would lie where a checkpoint has numbers of table "t"' in text, text[-900:])
