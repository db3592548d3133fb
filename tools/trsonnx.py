# SPDX-License-Identifier: BSD-3-Clause
"""Writes a checkpoint's model as an ONNX file for servers: jagged bags and dense features in, probabilities out (src/RULES.md, A1 to A5a).

Inputs: if the model has dense features, dense float [batch, num_dense] (the columns of -data_dense, in its order). For each feature F, "F.ids"
int64 [ids] and "F.offsets" int64 [batch + 1], which begin with 0 and end with the number of ids. For a feature of a weighted table also
"F.weights" float [ids]. Outputs, as in results: "predictions" float [batch]; with several tasks or classes, "predictions.T" for each
task T, float [batch], or [batch, classes] if its loss is softmax. Ids are mapped as in training. A table that gives its rows to ids (id_map zch, dynamic) has their
ids in the graph, sorted, and a binary search of as many steps as their number has bits. Tables keep their type; sums are float32.

This module writes the few protobuf messages itself, block by block, so that memory does not grow with the tables. An ONNX file must be
smaller than 2 GiB. If it would be larger, large tensors are in a second file, OUT.data.
"""
import re

import numpy as np

import trscheckpoint
import trsids
import trsoptions
from trsformats import FormatError, NUMPY, Tensor

OPSET, IR_VERSION = 18, 8
TYPES = {"F32": 1, "I64": 7, "F16": 10, "U64": 13, "BF16": 16}  # TensorProto.DataType
MOST_BYTES = (1 << 31) - 1  # largest protobuf message
INLINE_BYTES = 4096  # larger tensors may be in OUT.data, at multiples of this
KEYS = {"num_embeddings", "embedding_dim", "features", "pooling", "sequence_pooling", "sequence_length", "gru_hidden_size", "din_target",
        "din_arch", "din_activation", "din_softmax", "transformer_layers", "transformer_heads", "transformer_dim_feedforward", "transformer_causal", "data_type", "is_weighted", "position_weighted", "max_feature_lengths", "id_map",
        "id_unsigned", "qr_operation", "qr_collisions", "zch_policy", "zch_buckets", "zch_input_hash_size", "unknown_row",
        *(f"dynamic_{key}" for key in ("cap", "cap_bytes", "policy", "ttl", "admit_after", "admit_probability", "candidates", "buckets"))}
OPTIONS = {"-tables", "-num_dense", "-dense_arch", "-over_arch", "-interaction", "-dcn_num_layers", "-dcn_low_rank_dim", "-dcn_num_experts", "-deepfm_arch",
           "-projection_arch1", "-projection_arch2", "-dense_arch_residual", "-over_arch_residual", "-dense_arch_activation", "-over_arch_activation", "-tasks", "-task_heads"}
TASK_KEYS = ("loss", "arch", "classes")
# What follows a task's last layer.
LOSSES = {"bce": lambda graph, z: graph("Sigmoid", z), "mse": lambda graph, z: z, "huber": lambda graph, z: z, "softmax": lambda graph, z: graph("Softmax", z, axis=1)}
ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}
INTERACTIONS = ("dot", "dcn", "dcn_full", "dcn_vector", "dcn_mixture", "cat", "none", "fm", "deepfm", "projection")
# Any other option of a model must be off or as in src/RULES.md, rule A5. Options of only the loss or the training's data are accepted,
# and options of experts or towers if the model has none.
OFF = {"", "none", "false", "0", "relu", "bce", "shared"}
OF_TRAINING = re.compile(r"-ema_decay|-data_(dense|label)|-(query|candidate)_.+|-tower_.+|-loss|-softmax_.+|-candidate_id|-tasks?(_.+)?_(weight|pos_weight|huber_delta)|-heads_(experts|task_experts|expert_arch|levels)")


# --- protobuf ---


def varint(number):
    """A varint; negative numbers as their 64 bits."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def head(number, size):
    """The bytes before the `size` bytes of a field."""
    return varint(number << 3 | 2) + varint(size)


def field(number, value):
    """An integer, text, or an encoded message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return head(number, len(data)) + data


def attribute(name, value):
    """An AttributeProto of an integer, text, a TensorProto's bytes, or a list of integers."""
    number, kind = {int: (3, 2), str: (4, 3), bytes: (5, 4), list: (8, 7)}[type(value)]
    return field(1, name) + b"".join(field(number, item) for item in (value if isinstance(value, list) else [value])) + field(20, kind)


def value_info(name, dtype, shape):
    dims = b"".join(field(1, field(2 if isinstance(size, str) else 1, size)) for size in shape)
    return field(1, name) + field(2, field(1, field(1, TYPES[dtype]) + field(2, dims)))


def tensor_head(name, tensor):
    return b"".join(field(1, size) for size in tensor.shape) + field(2, TYPES[tensor.dtype]) + field(8, name)


# --- the graph ---


class Graph:
    """Nodes, inputs and initial tensors. Each function of an operator returns the name of its output."""

    def __init__(self):
        self.nodes, self.inputs, self.outputs, self.tensors, self.constants = [], [], [], {}, {}

    def input(self, name, dtype, shape):
        self.inputs.append(value_info(name, dtype, shape))
        return name

    def output(self, operator, *inputs, name, shape):
        self.outputs.append(value_info(name, "F32", shape))
        return self(operator, *inputs, name=name)

    def tensor(self, name, tensor):
        self.tensors[name] = tensor
        return name

    def constant(self, values, dtype="I64"):
        numbers = np.array(values, NUMPY[dtype])
        name = self.constants.setdefault((dtype, numbers.shape, numbers.tobytes()), f"constant_{len(self.constants)}")
        return self.tensor(name, Tensor(dtype, numbers.shape, lambda: [numbers]))

    def __call__(self, operator, *inputs, name=None, **attributes):
        name = name or f"{operator}_{len(self.nodes)}"
        self.nodes.append(b"".join(field(1, word) for word in inputs) + field(2, name) + field(3, f"node_{len(self.nodes)}") + field(4, operator) +
                          b"".join(field(5, attribute(key, value)) for key, value in attributes.items()))
        return name

    def filled(self, shape, value, dtype):
        data = np.array([value], NUMPY[dtype])
        return self("ConstantOfShape", shape, value=field(1, 1) + field(2, TYPES[dtype]) + field(9, data.tobytes()))

    def layer(self, x, weight, bias):
        return self("Gemm", x, weight, *bias, transB=1)


# --- the model, from the options in a checkpoint ---


class Model:
    """The options of a checkpoint's model. One message lists the missing options and the options that this tool does not support."""

    def __init__(self, checkpoint):
        self.path = checkpoint.path
        text = checkpoint.attributes.get("model")
        if not isinstance(text, str) or not text.strip():
            raise FormatError(f"{self.path} does not hold its model, which ONNX needs: -init_from it in trshard, with the model's options, "
                              "and write it with -checkpoint_final")
        self.options = {name: value for name, value, *_ in trsoptions.options(text)}
        self.tables, self.tasks = trsoptions.entries(self.value("-tables")), trsoptions.entries(self.options.get("-tasks"))
        known = OPTIONS | {f"-{one}{name}_{key}" for one, names, keys in (("table", self.tables, KEYS), ("task", self.tasks, TASK_KEYS))
                           for name in ("s", *(f"_{name}" for name in names)) for key in keys}
        unknown = sorted(name for name, value in self.options.items() if name not in known and value not in OFF and not OF_TRAINING.fullmatch(name))
        if unknown:
            raise FormatError(f"{self.path}: its model has {unknown[0]} {self.options[unknown[0]]}, which is not known to the writer of ONNX")

    def value(self, name, choices=None, default=None):
        value = self.options.get(name, default)
        if value is None or choices and value not in choices:
            raise FormatError(f"{self.path}: its model has {name} {value}, expected {' or '.join(choices)}" if value is not None
                              else f"{self.path}: its model does not say {name}")
        return value

    def number(self, name):
        value = self.value(name)
        if not value.isdigit():
            raise FormatError(f"{self.path}: its model has {name} {value}, expected a number")
        return int(value)

    def key(self, name, key, kind="table"):
        """The option that holds the key of a table or task."""
        single, common = f"-{kind}_{name}_{key}", f"-{kind}s_{key}"
        return single if single in self.options or common not in self.options else common


class Table:
    def __init__(self, model, name):
        word = lambda key, *choices: model.value(model.key(name, key), choices)
        number = lambda key: model.number(model.key(name, key))
        self.name, self.features, self.directory = name, trsoptions.entries(word("features")), None
        self.rows, self.dim = number("num_embeddings"), number("embedding_dim")
        self.pooling = word("pooling", "sum", "mean", "none")
        if self.pooling == "none":
            self.pooling = word("sequence_pooling")
            if self.pooling not in ("mean", "max", "concat"):
                raise FormatError(f"{model.path}: table {name} has sequence_pooling {self.pooling}, a layer that is not exported to ONNX")
        self.places = number("sequence_length") if self.pooling == "concat" else 1
        self.id_map = word("id_map", "none", "modulo", "hash", "qr", "zch", "dynamic")
        self.ttl = int(model.options.get(model.key(name, "dynamic_ttl"), 0)) if self.id_map == "dynamic" else 0
        self.unsigned = model.value(model.key(name, "id_unsigned"), ("true", "false"), "false") == "true"
        self.joined = {"mult": "Mul", "add": "Add"}[word("qr_operation", "mult", "add")] if self.id_map == "qr" else None
        self.collisions = number("qr_collisions") if self.joined else 0
        self.by_position = word("position_weighted", "true", "false") == "true"
        self.weighted = word("is_weighted", "true", "false") == "true" and not self.by_position

    def keep(self, checkpoint):
        """Read which id has which row."""
        if f"embedding/{self.name}/weight" not in checkpoint.tensors:
            raise FormatError(f"{checkpoint.path} has no /embedding/{self.name}/weight, which its model has")
        self.directory = trsids.directory(checkpoint.path, self.name, checkpoint.tensors, checkpoint.attributes)
        if self.directory.kind != self.id_map:
            raise FormatError(f"{checkpoint.path}: table {self.name} has a directory {self.directory.kind}, its model says id_map {self.id_map}")
        self.rows = self.directory.used
        if self.ttl:  # an id that is too old is unknown
            found, young = self.directory, self.directory.time - self.directory.last <= self.ttl
            found.id, found.row, found.last, found.count = found.id[young], found.row[young], found.last[young], found.count[young]


# --- ids to rows ---


def hashed(graph, ids):
    """MurmurHash3_x64_128 of (id, 0) with seed 0. Its halves are joined by exclusive or, as in src/data/id_map.c, with 64-bit operators."""
    unsigned = lambda a: graph("Cast", a, to=TYPES["U64"])
    signed = lambda a: graph("Cast", a, to=TYPES["I64"]) if isinstance(a, str) else graph.constant(a - (1 << 64) if a >> 63 else a)
    word = lambda a: a if isinstance(a, str) else unsigned(signed(a))
    xor = lambda a, b: graph("BitwiseXor", a, word(b))
    shift = lambda a, bits, direction: graph("BitShift", a, word(bits), direction=direction)
    times = lambda a, b: unsigned(graph("Mul", signed(a), signed(b)))  # runtimes multiply and add only int64, which gives the same bits
    plus = lambda a, b: unsigned(graph("Add", signed(a), signed(b)))
    rotate = lambda a, bits: graph("BitwiseOr", shift(a, bits, "LEFT"), shift(a, 64 - bits, "RIGHT"))

    def mix(x):
        for factor in (0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53):
            x = times(xor(x, shift(x, 33, "RIGHT")), factor)
        return xor(x, shift(x, 33, "RIGHT"))

    a = times(rotate(times(unsigned(ids), 0x87c37b91114253d5), 31), 0x4cf5ad432745937f)
    a = plus(times(rotate(a, 27), 5), 0x52dce729)
    b = plus(times(a, 5), 0x38495ab5)
    a, b = xor(a, 16), xor(b, 16)
    a = plus(a, b)
    b = plus(b, a)
    a, b = mix(a), mix(b)
    a = plus(a, b)
    return xor(a, plus(b, a))


def searched(graph, name, found, ids):
    """The rows of a table that keeps its ids (trsids.Directory). Ids without a row have that of their bucket."""
    unknown = graph.tensor(f"{name}.unknown", trsids.constant(found.unknown))
    bucket = graph.constant(0)
    if found.buckets > 1 and found.block:
        bucket = graph("Min", graph("Div", graph("Max", ids, bucket), graph.constant(found.block)), graph.constant(found.buckets - 1))
    elif found.buckets > 1:
        n = graph("Cast", graph.constant(found.buckets), to=TYPES["U64"])
        bucket = graph("Cast", graph("Mod", hashed(graph, ids), n), to=TYPES["I64"])
    row = graph("Gather", unknown, bucket)
    if not len(found.id):
        return graph("Add", row, graph("Mul", ids, graph.constant(0)))  # one row for each id
    # The last of the sorted ids that is not above the id. They are repeated up to a power of two, so that no step leads out of them.
    bits = int(len(found.id) - 1).bit_length()
    filled = np.minimum(np.arange(1 << bits), len(found.id) - 1)
    held, rows = (graph.tensor(f"{name}.{what}", trsids.constant(numbers[filled])) for what, numbers in (("ids", found.id), ("rows", found.row)))
    at = graph("Mul", ids, graph.constant(0))
    for bit in reversed(range(bits)):
        further = graph("Add", at, graph.constant(1 << bit))
        at = graph("Where", graph("GreaterOrEqual", ids, graph("Gather", held, further)), further, at)
    return graph("Where", graph("Equal", ids, graph("Gather", held, at)), graph("Gather", rows, at), row)


def rows_of(graph, table, ids):
    """Rows, and for each id whether it is not pruned (None: no id is pruned). An id outside of its table has row 0, as in training."""
    if table.directory:
        return searched(graph, f"embedding/{table.name}/directory", table.directory, ids), None
    if table.id_map in ("modulo", "qr") and not table.unsigned:
        return graph("Mod", ids, graph.constant(table.rows)), None
    if table.id_map != "none":
        ids = hashed(graph, ids) if table.id_map == "hash" else graph("Cast", ids, to=TYPES["U64"])
        rows = graph("Cast", graph.constant(table.rows), to=TYPES["U64"])
        return graph("Cast", graph("Mod", ids, rows), to=TYPES["I64"]), None
    zero = graph.constant(0)
    inside = graph("And", graph("GreaterOrEqual", ids, zero), graph("Less", ids, graph.constant(table.rows)))
    return graph("Where", inside, ids, zero), graph("Not", graph("Equal", ids, graph.constant(-1)))


# --- bags to vectors ---


class Bags:
    """One feature's ids. n ids are in b bags (both are tensors of one number). Each id has its bag and its place in the bag."""

    def __init__(self, graph, feature):
        self.graph, one = graph, graph.constant([1])
        ranges = lambda a, first, last: graph("Slice", a, graph.constant([first]), last if isinstance(last, str) else graph.constant([last]))
        self.ids = graph.input(f"{feature}.ids", "I64", [f"{feature}.count"])
        self.offsets = graph.input(f"{feature}.offsets", "I64", ["batch + 1"])
        self.n = graph("Shape", self.ids)
        self.b = graph("Sub", graph("Shape", self.offsets), one)
        self.begins, self.ends = ranges(self.offsets, 0, -1), ranges(self.offsets, 1, (1 << 63) - 1)
        # The number of id i's bag is the number of bag ends up to i.
        marks = graph("ScatterElements", graph.filled(graph("Add", self.n, one), 0, "I64"), self.ends, graph.filled(self.b, 1, "I64"), axis=0, reduction="add")
        self.bag = ranges(graph("CumSum", marks, graph.constant(0)), 0, self.n)

    def places(self):
        graph = self.graph
        numbers = graph("Range", graph.constant(0), graph("Squeeze", self.n), graph.constant(1))
        return graph("Sub", numbers, graph("Gather", self.begins, self.bag))

    def scatter(self, targets, n_targets, vectors, dim, start, reduction):
        """Reduces vectors with the same target. ScatterND could do this, but some runtimes process duplicates at the same time."""
        graph = self.graph
        shape = lambda n: graph("Concat", n, graph.constant([dim]), axis=0)
        targets = graph("Expand", graph("Unsqueeze", targets, graph.constant([1])), shape(self.n))
        return graph("ScatterElements", graph.filled(shape(n_targets), start, "F32"), targets, vectors, axis=0, reduction=reduction)


def scaled(graph, vectors, factors):
    for factor in factors:
        vectors = graph("Mul", vectors, graph("Unsqueeze", factor, graph.constant([1])))
    return vectors


def concatenated(graph, bags, table, vectors):
    """The first places of each bag side by side. Other ids go to an extra last row, which is cut off."""
    place, width = bags.places(), graph.constant([table.places])
    total = graph("Mul", bags.b, width)
    target = graph("Where", graph("Less", place, width), graph("Add", graph("Mul", bags.bag, width), place), total)
    every = bags.scatter(target, graph("Add", total, graph.constant([1])), vectors, table.dim, 0, "add")
    shape = graph("Concat", bags.b, graph.constant([table.places * table.dim]), axis=0)
    return graph("Reshape", graph("Slice", every, graph.constant([0]), total), shape, allowzero=1)


def vectors_of(graph, checkpoint, name, shape, row):
    """The rows of a table as float32."""
    path = f"embedding/{name}/weight"
    vectors = graph("Gather", take(graph, checkpoint, path, shape), row)
    return vectors if checkpoint.tensors[path].dtype == "F32" else graph("Cast", vectors, to=TYPES["F32"])


def most(graph, bags, table, vectors, live):
    """The maximum of each bag; 0 if the bag is empty."""
    least = graph.constant(-np.inf, "F32")
    if live:
        vectors = graph("Where", graph("Unsqueeze", live, graph.constant([1])), vectors, least)
    found = bags.scatter(bags.bag, bags.b, vectors, table.dim, -np.inf, "max")
    return graph("Where", graph("Equal", found, least), graph.constant(0, "F32"), found)


def summed(graph, bags, table, vectors, factors):
    """The sum or the mean of each bag, or its first rows side by side."""
    vectors = scaled(graph, vectors, factors)
    if table.pooling == "concat":
        return concatenated(graph, bags, table, vectors)
    total = bags.scatter(bags.bag, bags.b, vectors, table.dim, 0, "add")
    if table.pooling == "sum":
        return total
    length = graph("Max", graph("Sub", bags.ends, bags.begins), graph.constant([1]))
    return graph("Div", total, graph("Unsqueeze", graph("Cast", length, to=TYPES["F32"]), graph.constant([1])))


def pooled(graph, checkpoint, table, feature):
    """The vector, or vectors side by side, that a feature contributes to the interaction."""
    bags = Bags(graph, feature)
    row, live = rows_of(graph, table, bags.ids)
    if table.pooling == "max":
        return most(graph, bags, table, vectors_of(graph, checkpoint, table.name, (table.rows, table.dim), row), live)
    factors = [graph("Cast", live, to=TYPES["F32"])] if live else []
    if table.weighted:
        factors.append(graph.input(f"{feature}.weights", "F32", [f"{feature}.count"]))
    if table.by_position:
        factors.append(graph("Gather", take(graph, checkpoint, f"dense/position_weights/{feature}/weight"), bags.places()))
    parts = [(table.name, table.rows, row)]
    if table.joined:  # two small tables, whose pooled vectors are joined
        m = graph.constant(table.collisions)
        parts = [(table.name + "_quotient", -(-table.rows // table.collisions), graph("Div", row, m)),
                 (table.name + "_remainder", table.collisions, graph("Mod", row, m))]
    found = [summed(graph, bags, table, vectors_of(graph, checkpoint, name, (rows, table.dim), rows_of_part), factors) for name, rows, rows_of_part in parts]
    return graph(table.joined, *found) if table.joined else found[0]


# --- layers ---


def take(graph, checkpoint, path, shape=None):
    """A tensor of the checkpoint by its path, as used in predictions."""
    tensor = checkpoint.predicting.get(path)
    if tensor is None:
        raise FormatError(f"{checkpoint.path} has no /{path}, which its model has")
    if shape and tuple(tensor.shape) != shape:
        raise FormatError(f"{checkpoint.path}: /{path} has shape {list(tensor.shape)}, its model says {list(shape)}")
    return graph.tensor(path, tensor)


def layers(checkpoint, module):
    return sum(re.fullmatch(rf"dense/{re.escape(module)}/\d+/(weight|W|U)", path) is not None for path in checkpoint.tensors)


def perceptron(graph, checkpoint, module, x, last_too, activation="Relu", residual=False):
    """The layers of a module with their activation; with `last_too` also the last layer has it."""
    n = layers(checkpoint, module)
    for i in range(max(n, 1)):
        path, before = f"dense/{module}/{i}", x
        x = graph.layer(x, take(graph, checkpoint, f"{path}/weight"), [take(graph, checkpoint, f"{path}/bias")])
        if i < n - 1 or last_too:
            n_out, n_in = checkpoint.tensors[f"{path}/weight"].shape
            x = graph(activation, x)
            x = graph("Add", x, before) if residual and n_in == n_out else x
    return x


def width(graph, checkpoint, module):
    """The number of outputs of a module's last layer. A shape needs it, because -1 cannot be derived from a batch without samples."""
    path = f"dense/{module}/{max(layers(checkpoint, module) - 1, 0)}/bias"
    take(graph, checkpoint, path)
    return checkpoint.tensors[path].shape[0]


def machine(graph, x):
    """The factorization machine over single numbers."""
    total = lambda a: graph("ReduceSum", a, graph.constant([1]), keepdims=1)
    sum_of = total(x)
    return graph("Mul", graph("Sub", graph("Mul", sum_of, sum_of), total(graph("Mul", x, x))), graph.constant(0.5, "F32"))


def products(graph, x, n_vectors, dim):
    """Products of all pairs of vectors: the upper triangle, row by row."""
    vectors = graph("Reshape", x, graph.constant([0, n_vectors, dim]))
    every = graph("Reshape", graph("MatMul", vectors, graph("Transpose", vectors, perm=[0, 2, 1])), graph.constant([0, n_vectors * n_vectors]))
    return graph("Gather", every, graph.constant([i * n_vectors + j for i in range(n_vectors) for j in range(i + 1, n_vectors)]), axis=1)


def gated(graph, checkpoint, module, x, made):
    """The sum of what experts made of x, weighted by the module's gate."""
    gates = graph("Softmax", graph.layer(x, take(graph, checkpoint, f"dense/{module}/gate/weight"), []), axis=1)
    column = lambda i: graph("Slice", gates, graph.constant([i]), graph.constant([i + 1]), graph.constant([1]))
    total = None
    for i, expert in enumerate(made):
        weighed = graph("Mul", expert, column(i))
        total = graph("Add", total, weighed) if total else weighed
    return total


def experts(graph, checkpoint, x, of, n_experts, rank):
    """The sum of a cross layer's experts, weighted by the gates. An expert's matrices are rows of U, C and V."""
    part = lambda name, i, rows: graph("Slice", of(name), graph.constant([i * rows]), graph.constant([(i + 1) * rows]), graph.constant([0]))
    made, width = [], of.width
    for i in range(n_experts):
        p = graph("Relu", graph.layer(x, part("V", i, rank), []))
        made.append(graph.layer(graph("Relu", graph.layer(p, part("C", i, rank), [])), part("U", i, width), []))
    if n_experts == 1:
        return made[0]
    return gated(graph, checkpoint, "crossnet_mixture", x, made)


class CrossLayer:
    """The parameters of a cross layer, by name."""

    def __init__(self, graph, checkpoint, module, i):
        self.graph, self.checkpoint, self.path = graph, checkpoint, f"dense/{module}/{i}"
        self.width = checkpoint.tensors[f"{self.path}/bias"].shape[0]

    def __call__(self, parameter, shape=None):
        return take(self.graph, self.checkpoint, f"{self.path}/{parameter}", shape)


def crossed(graph, checkpoint, kind, x, model):
    first, module = x, {"dcn": "crossnet", "dcn_full": "crossnet_full", "dcn_vector": "crossnet_vector", "dcn_mixture": "crossnet_mixture"}[kind]
    for i in range(layers(checkpoint, module)):
        of = CrossLayer(graph, checkpoint, module, i)
        if kind == "dcn_vector":  # the bias is not multiplied
            factor = graph("MatMul", x, graph("Unsqueeze", of("weight"), graph.constant([1])))
            x = graph("Add", graph("Add", graph("Mul", first, factor), of("bias")), x)
            continue
        if kind == "dcn":
            inner = graph.layer(graph.layer(x, of("V"), []), of("W"), [of("bias")])
        elif kind == "dcn_full":
            inner = graph.layer(x, of("weight"), [of("bias")])
        else:
            n_experts, rank = model.number("-dcn_num_experts"), model.number("-dcn_low_rank_dim")
            inner = graph("Add", experts(graph, checkpoint, x, of, n_experts, rank), of("bias"))
        x = graph("Add", graph("Mul", first, inner), x)
    return x


def projected(graph, checkpoint, x, dim):
    """The products of one branch's rows with the other branch's columns."""
    one, other = (perceptron(graph, checkpoint, f"projection_{i}", x, True) for i in (1, 2))
    n_one, n_other = (width(graph, checkpoint, f"projection_{i}") // dim for i in (1, 2))
    shaped = lambda y, *shape: graph("Reshape", y, graph.constant([0, *shape]))
    return shaped(graph("MatMul", shaped(one, n_one, dim), shaped(other, dim, n_other)), n_one * n_other)


def interaction(graph, checkpoint, kind, dense, x, vectors, model):
    """vectors: (number, width) of x; dense: None, or the first vector."""
    copied = [dense] if dense else []
    if kind == "dot":
        out = copied + [products(graph, x, *vectors)]
    elif kind.startswith("dcn"):
        out = [crossed(graph, checkpoint, kind, x, model)]
    elif kind in ("cat", "none"):
        out = [x]
    elif kind == "projection":
        out = copied + [projected(graph, checkpoint, x, vectors[1])]
    else:
        out = copied + ([perceptron(graph, checkpoint, "deep_fm", x, True)] if kind == "deepfm" else []) + [machine(graph, x)]
    return graph("Concat", *out, axis=1) if len(out) > 1 else out[0]


def inputs_of_tasks(graph, checkpoint, x, model):
    """{task: the input of its layers} behind the experts of -task_heads."""
    kind = model.value("-task_heads", ("shared", "mmoe", "ple"), "shared")
    of = dict.fromkeys(model.tasks, x)
    if kind == "shared":
        return of
    n_shared, n_own, n_levels = model.number("-heads_experts"), *((model.number("-heads_task_experts"), model.number("-heads_levels")) if kind == "ple" else (0, 1))
    for level in range(n_levels):
        module = lambda task: f"level_{level}/tasks/{task}"
        make = lambda place, n, y: [perceptron(graph, checkpoint, f"{place}/expert_{e}", y, True) for e in range(n)]
        own = {task: make(module(task), n_own, y) for task, y in of.items()}
        shared = make(f"level_{level}/common", n_shared, x)
        of = {task: gated(graph, checkpoint, module(task), y, own[task] + shared) for task, y in of.items()}
        if level < n_levels - 1:
            x = gated(graph, checkpoint, f"level_{level}/common", x, [expert for made in own.values() for expert in made] + shared)
    return of


def heads(graph, checkpoint, x, model, *behind):
    """The outputs, from the output of the interaction."""
    if not model.tasks:
        logit = perceptron(graph, checkpoint, "over_arch", x, False, *behind)
        graph.output("Squeeze", LOSSES["bce"](graph, logit), graph.constant([1]), name="predictions", shape=["batch"])
    single = len(model.tasks) == 1
    alone = single and model.options.get("-task_heads", "shared") == "shared"
    for task, y in inputs_of_tasks(graph, checkpoint, x, model).items():
        loss = model.value(model.key(task, "loss", "task"), LOSSES, "bce")
        name = "predictions" if single and loss != "softmax" else f"predictions.{task}"
        module = "over_arch" if alone else f"tasks/{task}"
        n = width(graph, checkpoint, module)
        found = LOSSES[loss](graph, perceptron(graph, checkpoint, module, y, False, *behind))
        if loss == "softmax":
            graph.output("Identity", found, name=name, shape=["batch", n])
        else:
            graph.output("Squeeze", found, graph.constant([1]), name=name, shape=["batch"])


def build(checkpoint):
    """The graph of a checkpoint's model."""
    model, graph = Model(checkpoint), Graph()
    kind, num_dense = model.value("-interaction", INTERACTIONS), model.number("-num_dense")
    if kind == "none":
        num_dense = 0  # dense features are not used
    behind = lambda module: (ACTIVATIONS[model.value(f"-{module}_activation", ACTIVATIONS, "relu")], model.options.get(f"-{module}_residual") == "true")
    dense = graph.input("dense", "F32", ["batch", num_dense]) if num_dense else None
    if dense:
        dense = perceptron(graph, checkpoint, "dense_arch", dense, True, *behind("dense_arch"))
    parts, n_vectors = [dense] if dense else [], 1 if dense else 0
    for table in (Table(model, name) for name in model.tables):
        if table.id_map in ("zch", "dynamic"):
            table.keep(checkpoint)
        for feature in table.features:
            parts.append(pooled(graph, checkpoint, table, feature))
            n_vectors += table.places
    x = graph("Concat", *parts, axis=1)
    heads(graph, checkpoint, interaction(graph, checkpoint, kind, dense, x, (n_vectors, table.dim), model), model, *behind("over_arch"))
    left = [path for path in checkpoint.tensors if path not in graph.tensors and not trscheckpoint.STATES.fullmatch(path)]
    if left:
        raise FormatError(f"{checkpoint.path} has /{left[0]}, which its model does not use")
    return graph


# --- the file ---


def _message(name, tensor, place):
    """A TensorProto: its bytes, and the tensor if its numbers follow them. place: (file, offset) of numbers in another file."""
    start = tensor_head(name, tensor)
    if not place:
        return start + head(9, tensor.bytes), tensor
    entries = {"location": place[0], "offset": str(place[1]), "length": str(tensor.bytes)}
    return start + b"".join(field(13, field(1, key) + field(2, value)) for key, value in entries.items()) + field(14, 1), None


def _parts(graph, places):
    """The fields of a GraphProto in pieces: bytes, or tensors whose numbers are inserted there."""
    for node in graph.nodes:
        yield field(1, node)
    yield field(2, "trshard")
    for name, tensor in graph.tensors.items():
        start, numbers = _message(name, tensor, places.get(name))
        yield head(5, len(start) + (numbers.bytes if numbers else 0)) + start
        if numbers:
            yield numbers
    for info in graph.inputs:
        yield field(11, info)
    for info in graph.outputs:
        yield field(12, info)


def _size(parts):
    return sum(len(part) if isinstance(part, bytes) else part.bytes for part in parts)


def needs_data_file(graph):
    return _size(_parts(graph, {})) + INLINE_BYTES > MOST_BYTES


def _places(graph, name):
    found, end = {}, 0
    for path, tensor in graph.tensors.items():
        if tensor.bytes > INLINE_BYTES:
            found[path] = (name, end)
            end += -(-tensor.bytes // INLINE_BYTES) * INLINE_BYTES
    return found


def write(path, graph, name):
    """Writes the file. If it would be too large, also writes path.data, whose final name is `name`.data."""
    places = _places(graph, name + ".data") if needs_data_file(graph) else {}
    if places:
        with open(path + ".data", "wb") as file:
            for key, (_, offset) in places.items():
                file.seek(offset)
                for block in graph.tensors[key].blocks():
                    file.write(np.ascontiguousarray(block).data)
    with open(path, "wb") as file:
        file.write(field(1, IR_VERSION) + field(2, "trshard") + field(8, field(2, OPSET)))
        file.write(head(7, _size(_parts(graph, places))))
        for part in _parts(graph, places):
            if isinstance(part, bytes):
                file.write(part)
                continue
            for block in part.blocks():
                file.write(np.ascontiguousarray(block).data)
