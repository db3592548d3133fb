# SPDX-License-Identifier: BSD-3-Clause
"""Prepare functions and changes of files that several groups use."""
import os

import h5py


def holds(name, content):
    """A prepare function: the file with this name holds this text, or these bytes."""
    def prepare(folder):
        with open(os.path.join(folder, name), "wb") as out:
            out.write(content if isinstance(content, bytes) else content.encode())
    return prepare


def fifo(name):
    return lambda folder: os.mkfifo(os.path.join(folder, name))


def edit_checkpoint(path, change, sums=False):
    """change(file) on a checkpoint, which loses its checksums unless `sums`."""
    with h5py.File(path, "r+", libver="latest") as h:
        if not sums:
            del h["checksums"]
        change(h)


def attribute_of(where, name, value):
    """Change a file's object: the attribute gets this value; None removes it."""
    def change(h):
        if value is None:
            del h[where].attrs[name]
        else:
            h[where].attrs[name] = value
    return change
