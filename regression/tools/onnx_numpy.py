# SPDX-License-Identifier: BSD-3-Clause
"""ONNX files with only numpy: a reader of protobuf, and the operators that tools/trsonnx.py uses,
as the ONNX specification defines them.

This module is for machines without onnxruntime. A file whose graph has another operator gives a
KeyError.
"""
import os

import numpy as np

TYPES = {1: "<f4", 7: "<i8", 10: "<f2", 13: "<u8", 16: "<u2"}  # 16: bfloat16, which numpy lacks
BF16 = 16


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """{number: the values of a message's fields in order}"""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            raise ValueError(f"wire type {key & 7}")
        found.setdefault(key >> 3, []).append(value)
    return found


def text(value):
    return bytes(value).decode()


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def array(message, folder):
    """(numbers, is bfloat16) of a TensorProto"""
    kind = message[2][0]
    if 13 in message:
        entry = {text(fields(item)[1][0]): text(fields(item)[2][0]) for item in message[13]}
        with open(os.path.join(folder, entry["location"]), "rb") as file:
            file.seek(int(entry["offset"]))
            data = file.read(int(entry["length"]))
    else:
        data = bytes(message[9][0])
    return np.frombuffer(data, TYPES[kind]).reshape(message.get(1, [])), kind == BF16


def attributes(node, folder):
    out = {}
    for item in map(fields, node.get(5, [])):
        kind = item[20][0]
        value = signed(item[3][0]) if kind == 2 else text(item[4][0]) if kind == 3 else [signed(i) for i in item[8]] if kind == 7 else array(fields(item[5][0]), folder)[0]
        out[text(item[1][0])] = value
    return out


def scatter(data, indices, updates, axis, reduction):
    out = data.copy()
    places = [np.arange(size).reshape([-1 if i == d else 1 for i in range(out.ndim)]) for d, size in enumerate(indices.shape)]
    places[axis] = indices
    assert indices.size == 0 or 0 <= indices.min() and indices.max() < data.shape[axis], "an index is out of range"
    {"add": np.add, "max": np.maximum}[reduction].at(out, tuple(np.broadcast_arrays(*places)), updates)
    return out


def reshape(data, shape, allowzero=0):
    return data.reshape([data.shape[i] if size == 0 and not allowzero else size for i, size in enumerate(shape)])


def cut(data, first, last, axes=None):
    """The numbers of data between first and last, in its first dimensions or in the dimensions that
    axes names."""
    places = [slice(None)] * data.ndim
    for axis, a, b in zip(range(len(first)) if axes is None else axes, first, last):
        places[int(axis)] = slice(int(a), int(b))
    return data[tuple(places)]


def softmax(data, axis):
    powers = np.exp(data - data.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def gather(data, indices, axis=0):
    assert indices.size == 0 or -data.shape[axis] <= indices.min() and indices.max() < data.shape[axis], "an index is out of range"
    return np.take(data, indices, axis)


OPERATORS = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": lambda a, b: a // b if a.dtype.kind == "i" else a / b, "Max": np.maximum, "Min": np.minimum, "Equal": np.equal, "Less": np.less,
    "GreaterOrEqual": np.greater_equal, "And": np.logical_and, "Not": np.logical_not, "Where": np.where, "MatMul": np.matmul,
    "BitwiseXor": np.bitwise_xor, "BitwiseOr": np.bitwise_or, "Mod": np.mod,
    "BitShift": lambda a, b, direction: np.left_shift(a, b) if direction == "LEFT" else np.right_shift(a, b),
    "Cast": lambda a, to: a.astype(TYPES[to]), "Relu": lambda a: np.maximum(a, 0), "Sigmoid": lambda a: 1 / (1 + np.exp(-a)), "Tanh": np.tanh,
    "Shape": lambda a: np.array(a.shape, np.int64), "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "ConstantOfShape": lambda shape, value: np.full(shape, value[0]), "CumSum": lambda a, axis: np.cumsum(a, int(axis)),
    "Range": lambda a, b, step: np.arange(a, b, step), "Slice": cut, "Gather": gather, "Reshape": reshape, "ScatterElements": scatter,
    "Expand": lambda a, shape: np.broadcast_to(a, np.broadcast_shapes(a.shape, tuple(shape))),
    "Unsqueeze": lambda a, axes: np.expand_dims(a, tuple(axes)), "Squeeze": lambda a, axes=None: np.squeeze(a, None if axes is None else tuple(axes)),
    "Softmax": softmax, "Identity": lambda a: a,
    "Transpose": lambda a, perm: np.transpose(a, perm),
    "ReduceSum": lambda a, axes, keepdims: a.sum(axis=tuple(axes), keepdims=bool(keepdims)),
    "Gemm": lambda a, b, c=0, transB=0: a @ (b.T if transB else b) + c,
}


def run(path, feeds):
    """The predictions of a file that has one output, for inputs by name."""
    (predictions,) = run_all(path, feeds).values()
    return predictions


def run_all(path, feeds):
    """{name: numbers} of a file's outputs, for inputs by name."""
    with open(path, "rb") as file:
        graph = fields(fields(memoryview(file.read()))[7][0])
    folder, values, bf16 = os.path.dirname(path), dict(feeds), set()
    inputs = {text(fields(item)[1][0]) for item in graph.get(11, [])}
    assert inputs == set(feeds), f"inputs {sorted(inputs)}, expected {sorted(feeds)}"
    for item in map(fields, graph[5]):
        name = text(item[8][0])
        values[name], is_bf16 = array(item, folder)
        bf16.update([name] if is_bf16 else [])
    for node in map(fields, graph[1]):
        names, kind = [text(name) for name in node.get(1, [])], text(node[4][0])
        found, options = [values[name] for name in names], attributes(node, folder)
        out = text(node[2][0])
        if kind == "Cast" and names[0] in bf16:
            values[out] = (found[0].astype(np.uint32) << 16).view(np.float32)
            continue
        bf16.update([out] if kind == "Gather" and names[0] in bf16 else [])
        values[out] = OPERATORS[kind](*found, **options)
    return {name: values[name] for name in (text(fields(item)[1][0]) for item in graph[12])}
