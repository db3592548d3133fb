# SPDX-License-Identifier: BSD-3-Clause
"""Quantised tables and a DLRM that uses them, written from the definitions in numpy. Tests compare
-task predict with it.

Rows: fp16 bias = least value, fp16 scale = (largest value - bias) / (2^b - 1), or 1 if that is 0; q
= clamp(rint((x - bias) / scale)); low bits first. The order is scale, bias, values, and zeros up to
a multiple of 16 bytes. The model follows src/RULES.md, rules A1 to A5, in double.
"""
import h5py
import numpy as np

BITS = {"int8": 8, "int4": 4, "int2": 2}


def bfloat16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def quantise(x, data_type):
    """Quantise whole rows. Returns (rows of bytes, the numbers that they stand for)."""
    x = np.asarray(x, np.float32)
    levels, bits = np.float32(2 ** BITS[data_type] - 1), BITS[data_type]
    bias = x.min(axis=1).astype(np.float16)
    scale = ((x.max(axis=1) - bias.astype(np.float32)) / levels).astype(np.float16)
    scale[scale == 0] = 1
    scale32, bias32 = scale.astype(np.float32)[:, None], bias.astype(np.float32)[:, None]
    q = np.clip(np.rint((x - bias32) * (np.float32(1) / scale32)), 0, levels).astype(np.uint8)
    packed = np.zeros((len(x), -(-x.shape[1] * bits // 8)), np.uint8)
    for i in range(x.shape[1]):
        packed[:, i * bits // 8] |= q[:, i] << (i * bits % 8)
    unpadded = np.hstack([scale[:, None].view(np.uint8), bias[:, None].view(np.uint8), packed])
    rows = np.zeros((len(x), -(-unpadded.shape[1] // 16) * 16), np.uint8)
    rows[:, :unpadded.shape[1]] = unpadded
    return rows, (q.astype(np.float64) * scale32 + bias32).astype(np.float32)


def rounded(x, data_type):
    """The numbers that a table of data_type stores for x."""
    if data_type in BITS:
        return quantise(x, data_type)[1]
    return {"fp32": np.float32, "fp16": lambda v: v.astype(np.float16).astype(np.float32), "bf16": bfloat16}[data_type](x)


def read_dataset(path):
    """Returns dense features, labels, and for each feature a list of (ids, weights) by sample."""
    with h5py.File(path) as h:
        sparse = h["sparse"]
        names = [n.decode() if isinstance(n, bytes) else n for n in sparse.attrs["features"]]
        lengths, values = sparse["lengths"][()], sparse["values"][()]
        weights = sparse["weights"][()] if "weights" in sparse else np.ones(len(values), np.float32)
        bags, at = {n: [] for n in names}, 0
        for sample in lengths:
            for name, n in zip(names, sample):
                bags[name].append((values[at:at + n], weights[at:at + n]))
                at += n
        return h["dense"][()], h["labels"][()] if "labels" in h else None, bags


def pool(table, bags, pooling, weighted, output_dtype="fp32", positions=None):
    out = np.zeros((len(bags), table.shape[1]))
    for b, (ids, weights) in enumerate(bags):
        if len(ids):
            weights = weights if positions is None else positions[:len(ids)]
            rows = table[ids].astype(np.float64) * (weights[:, None] if weighted else 1)
            out[b] = rows.max(axis=0) if pooling == "max" else rows.sum(axis=0) / (len(ids) if pooling == "mean" else 1)
    return rounded(out.astype(np.float32), output_dtype).astype(np.float64) if output_dtype != "fp32" else out


def mlp(layers, x, relu_last):
    for i, (weight, bias) in enumerate(layers):
        x = x @ weight.astype(np.float64).T + bias
        if i + 1 < len(layers) or relu_last:
            x = np.maximum(x, 0)
    return x


def predict(checkpoint, dataset, tables):
    """Probabilities in double. tables: name -> dict(features, data_type, pooling, weighted,
    output_dtype)."""
    dense, _, bags = read_dataset(dataset)
    with h5py.File(checkpoint) as h:
        layers = {m: [(h[f"dense/{m}/{i}/weight"][()], h[f"dense/{m}/{i}/bias"][()]) for i in range(len(h[f"dense/{m}"]))] for m in ("dense_arch", "over_arch")}
        vectors = [mlp(layers["dense_arch"], dense.astype(np.float64), True)]
        for name, table in tables.items():
            stored = h[f"embedding/{name}/weight"]
            weight = stored[()]
            if stored.attrs.get("dtype", b"") in (b"bf16", "bf16"):
                weight = (weight.astype(np.uint32) << 16).view(np.float32)
            values = rounded(weight.astype(np.float32), table["data_type"])
            for f in table.get("features", [name]):
                positions = h[f"dense/position_weights/{f}/weight"][()] if table.get("positions") else None
                vectors.append(pool(values, bags[f], table.get("pooling", "sum"), table.get("weighted", False) or positions is not None,
                                    table.get("output_dtype", "fp32"), positions))
    x = np.stack(vectors, axis=1)
    i, j = np.triu_indices(len(vectors), 1)
    products = np.einsum("bfd,bgd->bfg", x, x)[:, i, j]
    logits = mlp(layers["over_arch"], np.hstack([vectors[0], products]), False)
    return 1 / (1 + np.exp(-logits[:, 0]))
