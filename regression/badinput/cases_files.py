# SPDX-License-Identifier: BSD-3-Clause
"""Datasets that are invalid HDF5 files, or that refer to other files."""
import gzip
import os

import h5py
import numpy as np

import trsrun
from badinput import Case
from prepare import holds


def edit(change):
    """A prepare function: change(file) on the opened train.h5."""
    def prepare(folder):
        with h5py.File(os.path.join(folder, "train.h5"), "r+", libver="latest") as h:
            change(h)
    return prepare


def content(data):
    return holds("train.h5", data)


def shortened(share=None, drop=0):
    """A prepare function: only the first part of the file, or all except its last bytes."""
    def prepare(folder):
        path = os.path.join(folder, "train.h5")
        size = os.path.getsize(path)
        os.truncate(path, size - drop if share is None else int(size * share))
    return prepare


def instead(make):
    """A prepare function: something else has the dataset's name."""
    def prepare(folder):
        path = os.path.join(folder, "train.h5")
        os.unlink(path)
        make(path)
    return prepare


def replaced(name, make):
    """edit() that removes /name and calls make(file, old values)."""
    def change(h):
        values = h[name][()]
        del h[name]
        make(h, values)
    return edit(change)


def moved_out(h, name, make_link):
    with h5py.File(os.path.join(os.path.dirname(h.filename), "other.h5"), "w", libver="latest") as other:
        other["data"] = h[name][()]
    del h[name]
    h[name] = make_link


def virtual(h):
    values = h["labels"][()]
    h["real"] = values
    layout = h5py.VirtualLayout(shape=values.shape, dtype=values.dtype)
    layout[:] = h5py.VirtualSource(h["real"])
    del h["labels"]
    h.create_virtual_dataset("labels", layout)


def raw_storage(h, values):
    h.create_dataset("labels", shape=values.shape, dtype=values.dtype, external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])


def claims(h, values):
    h.create_dataset("sparse/values", shape=(1 << 40,), chunks=(1 << 20,), dtype=np.int32)


def huge_chunk(h, values):
    h.create_dataset("labels", shape=values.shape, maxshape=(None,), chunks=(1 << 28,), dtype=np.float32, compression="gzip")


def flip_compressed(folder):
    """A gzip-compressed, checksummed chunk with one flipped bit."""
    path = os.path.join(folder, "train.h5")
    with h5py.File(path, "r+", libver="latest") as h:
        values = h["labels"][()]
        del h["labels"]
        h.create_dataset("labels", data=values, chunks=values.shape, compression="gzip", shuffle=True, fletcher32=True)
    with h5py.File(path) as h:
        place = h["labels"].id.get_chunk_info(0).byte_offset + 4
    trsrun.flip_bit(path, place)


def named(name, contents):
    """A file of another format."""
    def prepare(folder):
        with open(os.path.join(folder, name), "wb") as out:
            out.write(contents)
    return prepare


TEXT = b"label,user,item\n1,2,3\n" * 100
CONVERTS = r" is not an HDF5 file .*tools/convert_table\.py makes a dataset .*trshard-convert"
LOCAL = r"only local paths are read and written: copy the files here"

CASES = [
    Case("csv", 65, r"day\.csv" + CONVERTS, "-data_train day.csv", named("day.csv", TEXT)),
    Case("csv_gz_among_others", 65, r"day\.CSV\.gz" + CONVERTS, "-data_train train.h5,day.CSV.gz", named("day.CSV.gz", gzip.compress(TEXT))),
    Case("tsv_for_evaluation", 65, r"day\.tsv" + CONVERTS, "-data_eval day.tsv", named("day.tsv", TEXT)),
    Case("npz_for_prediction", 65, r"day\.npz" + CONVERTS, "-task predict -data_eval day.npz -init_from out/final.h5", named("day.npz", b"PK\x03\x04" * 100)),
    Case("parquet", 65, r"day\.parquet" + CONVERTS, "-data_train day.parquet", named("day.parquet", b"PAR1" * 100)),
    Case("parquet_of_another_name", 65, r"part-0" + CONVERTS, "-data_train part-0", named("part-0", b"PAR1" * 100)),
    Case("safetensors", 65, r"w\.safetensors is not an HDF5 file .*tools/exchange\.py makes a checkpoint", "-init_from w.safetensors", named("w.safetensors", b"\x10" * 100)),
    Case("s3", 64, r'-data_train "s3://bucket/train\.h5" \(command line\): .*' + LOCAL, "-data_train s3://bucket/train.h5"),
    Case("http_in_a_list", 64, r"-data_eval .*" + LOCAL, "-data_eval train.h5,https://example.org/eval.h5"),
    Case("hdfs_for_checkpoints", 64, r"-checkpoint_dir .*" + LOCAL, "-checkpoint_dir hdfs://name/ckpt"),
    Case("gs_for_results", 64, r"-output .*" + LOCAL, "-output gs://bucket/run.h5"),
    Case("missing", 66, r"none\.h5: cannot be opened: No such file", "-data_train none.h5"),
    Case("missing_three_ranks", 66, r"none\.h5", "-data_train none.h5", ranks=3),
    Case("missing_for_evaluation", 66, r"none\.h5", "-data_eval none.h5"),
    Case("directory", 66, r"train\.h5 is a directory", prepare=instead(os.mkdir)),
    Case("fifo", 66, r"train\.h5 is not a regular file", prepare=instead(os.mkfifo)),
    Case("device", 66, r"/dev/zero is not a regular file", "-data_train /dev/zero"),
    Case("link_to_nothing", 66, r"train\.h5: cannot be opened", prepare=instead(lambda path: os.symlink("gone.h5", path))),
    Case("empty", 65, r"train\.h5 is empty \(0 bytes\)", prepare=content(b"")),
    Case("text", 65, r"train\.h5 is not an HDF5 file", prepare=content(b"label,user,item\n1,2,3\n" * 100)),
    Case("one_byte", 65, r"train\.h5 is not an HDF5 file", prepare=content(b"\x89")),
    Case("signature_only", 65, r"train\.h5 .*truncated, damaged", prepare=content(b"\x89HDF\r\n\x1a\n")),
    Case("signature_and_rubbish", 65, r"train\.h5 .*truncated, damaged", prepare=content(b"\x89HDF\r\n\x1a\n" + bytes(range(256)) * 20)),
    Case("truncated_in_superblock", 65, r"train\.h5 .*truncated, damaged", prepare=shortened(0.004)),
    Case("truncated_in_the_middle", 65, r"train\.h5 .*truncated, damaged", prepare=shortened(0.5)),
    Case("truncated_by_one_byte", 65, r"train\.h5 .*truncated, damaged", prepare=shortened(drop=1)),
    Case("external_link", 65, r"train\.h5: /labels is a external link|/labels is an external link",
         prepare=edit(lambda h: moved_out(h, "labels", h5py.ExternalLink("other.h5", "/data")))),
    Case("soft_link", 65, r"train\.h5: /labels is a soft link", prepare=edit(lambda h: (h.move("labels", "old"), h.__setitem__("labels", h5py.SoftLink("/old"))))),
    Case("soft_link_in_a_circle", 65, r"train\.h5: /sparse is a soft link",
         prepare=edit(lambda h: (h.move("sparse", "old"), h.__setitem__("sparse", h5py.SoftLink("/sparse"))))),
    Case("group_by_external_link", 65, r"train\.h5: /sparse is an? external link",
         prepare=edit(lambda h: (h.move("sparse", "old"), h.__setitem__("sparse", h5py.ExternalLink("train.h5", "/old"))))),
    Case("virtual_dataset", 65, r"train\.h5: /labels is a virtual dataset", prepare=edit(virtual)),
    Case("external_storage", 65, r"train\.h5: /labels keeps its data in another file", prepare=replaced("labels", raw_storage)),
    Case("unknown_filter", 65, r"train\.h5: /labels has filter 32000",
         prepare=replaced("labels", lambda h, values: h.create_dataset("labels", data=values, chunks=values.shape, compression="lzf"))),
    Case("plugin_variable_is_not_used", 65, r"train\.h5: /labels has filter 32000", environment={"HDF5_PLUGIN_PATH": "/usr/lib"},
         prepare=replaced("labels", lambda h, values: h.create_dataset("labels", data=values, chunks=values.shape, compression="lzf"))),
    Case("claims_more_than_the_file_holds", 65, r"train\.h5: /sparse/values claims \d+ chunks", prepare=replaced("sparse/values", claims)),
    Case("never_written", 65, r"train\.h5: /labels claims 160 bytes",
         prepare=replaced("labels", lambda h, values: h.create_dataset("labels", shape=values.shape, dtype=np.float32))),
    Case("huge_chunk", 65, r"train\.h5: a chunk of /labels is larger", prepare=replaced("labels", huge_chunk)),
    Case("damaged_chunk", 65, r"train\.h5: rows \d+ to \d+ of /labels cannot be read", prepare=flip_compressed),
    Case("dataset_for_group", 65, r"train\.h5: /sparse is not a group", prepare=edit(lambda h: (h.move("sparse", "old"), h.__setitem__("sparse", [1])))),
    Case("group_for_dataset", 65, r"train\.h5: /labels is not a dataset", prepare=edit(lambda h: (h.move("labels", "old"), h.create_group("labels")))),
]
