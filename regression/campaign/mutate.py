# SPDX-License-Identifier: BSD-3-Clause
"""Random mutations of input files, drawn from a random.Random: of bytes, of lines and words, of
JSON trees, and of the structure of HDF5 files."""
import json
import re

import h5py
import numpy as np

NUMBERS = ["0", "-1", "1", "2", "3", "7", "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e400", "-0",
           "nan", "inf", "1e-320", "0x10", "1.5", "1K", "10G", "1TiB", "1" * 400]
WORDS = NUMBERS + ["", "true", "none", "auto", "a,b", ",,,", "a,a", "é€", "\x1b[31m", "%n%s", "../../etc/passwd", "/dev/null", "user", "row_wise", "x" * 300, "'", '"', "#", "[1,]"]


def bytes_of(rng, data, dictionary=()):
    """One to four edits of bytes: change a bit or a byte; drop, repeat, zero or randomise a range;
    cut; insert a word."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, n = rng.randrange(len(data) + 1), rng.choice([1, 2, 4, 8, 16, 64, 512])
        edit = rng.randrange(8)
        if edit <= 1 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif edit == 2 and at < len(data):
            data[at] = rng.choice([0, 1, 127, 128, 255, 10, 32])
        elif edit == 3:
            del data[at:at + n]
        elif edit == 4:
            data[at:at] = data[at:at + n]
        elif edit == 5:
            data[at:at + n] = bytes(n)
        elif edit == 6:
            data[at:at + n] = rng.randbytes(n)
        elif dictionary:
            data[at:at] = rng.choice(dictionary).encode()
        elif rng.random() < 0.3:
            del data[at:]
    return bytes(data)


def text_of(rng, text):
    """Drop, repeat, swap or indent lines; replace words by unusual ones."""
    lines = text.splitlines()
    for _ in range(rng.randint(1, 3)):
        i = rng.randrange(len(lines)) if lines else 0
        edit = rng.randrange(8)
        if not lines:
            lines = [rng.choice(WORDS)]
        elif edit == 0:
            del lines[i]
        elif edit == 1:
            lines.insert(rng.randrange(len(lines) + 1), lines[i])
        elif edit == 2:
            j = rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
        elif edit == 3:
            lines[i] = rng.choice([" ", "\t", "- ", "? ", "&a ", "*a ", "<<: ", "!!int ", "{", "[", "| "]) + lines[i]
        else:
            parts = re.split(r"(\s+|[,:=])", lines[i])
            parts[rng.randrange(len(parts))] = rng.choice(WORDS)
            lines[i] = "".join(parts)
    return "\n".join(lines) + "\n"


def json_of(rng, text):
    """Change one to three places of a JSON tree: drop or repeat them, or change their value or
    type."""
    tree = {"root": json.loads(text)}
    for _ in range(rng.randint(1, 3)):
        places, waiting = [], [tree]
        while waiting:
            node = waiting.pop()
            for key in (list(node) if isinstance(node, dict) else range(len(node))):
                places.append((node, key))
                if isinstance(node[key], (dict, list)):
                    waiting.append(node[key])
        node, key = rng.choice(places)
        edit = rng.randrange(5)
        if edit == 0 and node is not tree:
            del node[key]
        elif edit == 1 and isinstance(node, list):
            node.insert(key, node[key])
        else:
            node[key] = rng.choice([None, True, -1, 0, 1, 3, 2**31, 2**63 - 1, 1e308, -1.5, "", "user", "row_wise", "x" * 300, "\x00", [], {}, [[[[]]]], [0, 0], [1, 2, 3]])
    return json.dumps(tree["root"])


def other_values(rng, values):
    """An array of the same shape and type with some unusual numbers."""
    values = np.array(values)
    if values.size == 0 or values.dtype.kind not in "iuf":
        return values
    flat = values.reshape(-1)
    odd = [0, 1, -1, 2**31 - 1, -2**31, 2**31, 2**62, -2**62] if values.dtype.kind in "iu" else [np.nan, np.inf, -np.inf, -1.0, 2.0, 1e38, 1e-42]
    for _ in range(rng.randint(1, 3)):
        at, n = rng.randrange(flat.size), rng.choice([1, 1, 1, flat.size])
        with np.errstate(all="ignore"):
            flat[at:at + n] = np.array(rng.choice(odd)).astype(values.dtype)
    return values


def other_shape(rng, values):
    """The same numbers in another shape, or with fewer or more of them."""
    values = np.array(values)
    edit = rng.randrange(6)
    if values.ndim == 0 or edit == 0:
        return values.reshape(-1)[:1].reshape(()) if values.size else np.zeros((), values.dtype)
    if edit == 1:
        return values[:rng.randrange(len(values) + 1)]
    if edit == 2:
        return np.concatenate([values, values[:rng.randint(1, 3)]])
    if edit == 3:
        return values.reshape(-1) if values.ndim > 1 else values[:, None]
    if edit == 4:
        return values[..., None] if rng.random() < 0.5 else values[None]
    return values[:0]


def other_type(rng, values):
    """The same numbers with another type, including another byte order; or strings, compounds, or
    lists of any length."""
    values = np.array(values)
    if values.dtype.kind not in "iufb" or rng.random() < 0.15:
        return rng.choice([np.array([b"text"] * max(1, min(values.size, 9))), np.zeros(3, [("a", "i4"), ("b", "f8")]), np.zeros(2, "V7")])
    name = rng.choice(["i1", "u1", "i2", "u4", "i8", "u8", "f2", "f4", "f8", ">f4", ">i4", ">i8", "?"])
    with np.errstate(all="ignore"):
        return np.nan_to_num(values.astype(np.float64)).astype(name) if values.dtype.kind == "f" else values.astype(name)


def replace(rng, h, name, values):
    """Write the dataset again, possibly chunked and filtered."""
    values, attributes, options = np.asarray(values), dict(h[name].attrs), {}
    if values.ndim and values.size and rng.random() < 0.4:
        options = rng.choice([{"chunks": tuple(max(1, n // 2) for n in values.shape)}, {"compression": "gzip"}, {"compression": "gzip", "shuffle": True},
                              {"fletcher32": True}, {"compression": "lzf"}, {"maxshape": tuple(None for _ in values.shape), "chunks": True},
                              {"scaleoffset": 0} if values.dtype.kind in "iu" else {"compression": "gzip"}])
    del h[name]
    h.create_dataset(name, data=values, **options)
    for key, value in attributes.items():
        h[name].attrs[key] = value


def other_object(rng, h, name):
    """Replace the object by nothing, a dangling or circular link, a group, a dataset that claims to
    be huge, or a dataset without extent."""
    edit = rng.randrange(8)
    del h[name]
    if edit == 1:
        h[name] = h5py.SoftLink("/nowhere")
    elif edit == 2:
        h[name] = h5py.ExternalLink("other.h5", "/labels")
    elif edit == 3:
        h[name] = h5py.SoftLink("/" + name)
    elif edit == 4:
        h.create_group(name)
    elif edit == 5:
        h.create_dataset(name, shape=(2**40, 4), chunks=(1024, 4), dtype="f4")
    elif edit == 6:
        h.create_dataset(name, data=h5py.Empty("f4"))
    elif edit == 7:
        h[name] = h["/"]


def other_attribute(rng, node):
    """Change one attribute of an object: remove it, or change its value, type or shape."""
    if not node.attrs:
        node.attrs["odd"] = 1
        return
    name = rng.choice(list(node.attrs))
    value, edit = node.attrs[name], rng.randrange(6)
    del node.attrs[name]
    if edit == 1:
        node.attrs[name] = rng.choice([0, -1, 2**62, np.nan, "text", b"\xff\xfe", "x" * 5000, [], h5py.Empty("i4"), np.zeros((2, 2)), ["", "\x01", "a/b"], ["user"] * 3])
    elif edit == 2:
        node.attrs[name] = [value] if isinstance(value, (str, int)) else list(value) * 2 if hasattr(value, "__len__") and len(value) < 999 else 0
    elif edit == 3 and isinstance(value, np.ndarray):
        node.attrs[name] = other_values(rng, value)
    elif edit == 4 and isinstance(value, np.ndarray):
        node.attrs[name] = other_type(rng, value)
    elif edit >= 3:
        node.attrs[name] = value[:-1] if isinstance(value, (str, bytes, np.ndarray)) and len(value) else -7


def hdf5_of(rng, path):
    """Change the structure of the file in one to three places."""
    with h5py.File(path, "r+") as h:
        if "checksums" in h and rng.random() < 0.6:
            del h["checksums"]  # otherwise every mutation would only fail its checksum
        for _ in range(rng.randint(1, 3)):
            names = []
            h.visit(names.append)
            datasets = [n for n in names if isinstance(h.get(n, getlink=False), h5py.Dataset) and h[n].shape is not None and h[n].size < 1 << 20]
            edit = rng.randrange(7)
            if not datasets or edit == 0:
                other_attribute(rng, h[rng.choice(["/"] + names)] if rng.random() < 0.5 else h)
                continue
            name = rng.choice(datasets)
            if edit == 1:
                other_object(rng, h, rng.choice([n for n in names if n in h]))
            else:
                change = {2: other_values, 3: other_values, 4: other_shape, 5: other_type, 6: lambda _, values: values}[edit]
                replace(rng, h, name, change(rng, h[name][()]))
