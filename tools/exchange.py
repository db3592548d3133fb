#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Exports a checkpoint's weights to files of other programs, and imports weights from them.

  exchange.py model.h5 --to safetensors model.safetensors
  exchange.py model.h5 --to onnx model.onnx
  exchange.py model.pt --from torch --output model.h5

Formats: safetensors, also in parts: the index (model.safetensors.index.json) or its folder; npz (numpy); torch (torch.save of a state_dict);
dcp (a folder of torch.distributed.checkpoint). torch and --to dcp need torch. Names are those of TorchRec's DLRM, DLRM_DCN and
DLRM_Projection, so that load_state_dict(strict=True) accepts them. The cross networks of torchrec.modules.crossnet are named
inter_arch.crossnet. For a DLRMTrain, whose names begin with "model.", use --prefix model. Without --prefix the tool finds a common prefix
(module., _orig_mod., state_dict. ...) and prints it. The training's steps and options are stored beside the tensors. For a DCP that TorchRec
wrote of {"model": ..., "optimizer": ...}, use --prefix model.model.

--states also transfers the optimizers' states. Their names are optimizer.state.<name>.<state>, with .<name>.<table>.<state> for a table. In a
DCP, <name> there lacks the prefix's first part, which is the key of "model". The number of updates is optimizer.state.<name>.step, as in
torch. TorchRec stores no such number for its optimizers of tables: set_optimizer_step(N) sets it after a load. --step N gives the number if
the source has none for a state with bias corrections, or if its numbers differ. The states of TorchRec's dense optimizer for a
data_parallel table are imported, too.

A training with -ema_decay has an average of each dense weight, and predictions use the averages. Without --states the averages take the place
of the weights in export and import, and the imported model has no -ema_decay. With --states the weights are exported unchanged, and the
averages beside them as states named ema. --to onnx writes the averages.

--key-map FILE changes names. It has lines "ours theirs"; # begins a comment. Ours is the path in the checkpoint. A * on both sides stands for
the same text. "-" for theirs leaves our tensor out, "-" for ours leaves their tensor out. The first matching line counts, and the default
lines follow the file's. Theirs is without the prefix; in an import it may also be the whole name. dense/over_arch/last is the last layer of
over_arch:

  embedding/t_*/weight         tables.*.weight
  dense/dense_arch/*/weight    bottom.*.weight

The line of a weight renames its states, too.

--to onnx writes the whole model for servers. It refuses models with -interaction two_tower, sequences pooled by gru, din or transformer,
layer norm, or an activation other than relu, sigmoid and tanh. The first input is dense float [batch, num_dense], with the training's
columns of -data_dense if it had this option. Each feature F has the inputs F.ids [ids] and F.offsets [batch + 1], int64, and F.weights
[ids] if its table is weighted. The output is predictions float [batch]; with several tasks or classes it is predictions.T for each task T,
[batch] or [batch, classes]. Tables of 2 GiB and more are in OUT.data.

A table with id_map zch keeps its ids: TorchRec's ManagedCollisionEmbeddingBagCollection has them as _mch_sorted_raw_ids, ..._mapping,
_mch_counts, _mch_last_access_iter, _output_segments_tensor and _current_iter_tensor. They go with the weights, and
/embedding/<t>/zch/weight is the weight of such a table in a key map. --states also transfers what TorchRec has not: the ids since the last
eviction, and how often a row was given. A table with id_map dynamic has dynamic_ids and dynamic_buckets beside its weight.

--to dynamic OUT writes a checkpoint whose tables grow (id_map dynamic): all tables with id_map zch, and those whose raw ids --ids gives. FILE
is HDF5, npy, Parquet or text with one id a line. FILE:NAME is a dataset of HDF5 or a column of Parquet; a dataset of trshard has the ids of
the table's features. Line i is the id of row i, and "rows" for FILE means that ids are the rows' numbers. A table of id_map hash or modulo
needs no order: the id tells its row, and ids that share one get a copy each. Rows without an id are left out. Ids without a row share zeros,
or the row that they had in a zch table. -init_from loads the result with -table_<t>_id_map dynamic:

  exchange.py model.h5 --to dynamic grown.h5 --ids item=ids.txt --ids user=data/train.h5

A source that has only a part of the model is refused unless --partial permits it: one part of several files, dense layers without tables or
over arch, or tensors that are in the source's description but not in the source.

A name that begins with embedding/ or dense/ is a path itself. Tables keep their type (fp32, fp16, bf16). All other tensors become float32,
which rounds only float64. Memory does not grow with the tables; dcp --from needs temporary space for the largest tensor.

Exit status: 0; 2 wrong usage; 64 a bad option or key map; 65 the source has wrong content; 66 the source cannot be read; 69 torch is missing;
73 the output exists already; 74 it cannot be written.
"""
import argparse
import json
import os
import re
import shutil
import sys
import tempfile

import trspython

NEEDS_TORCH = re.search(r"--(to|from)[ =]torch\b|--to[ =]dcp\b", " ".join(sys.argv[1:]))
trspython.require("h5py", "numpy", *(["torch"] if NEEDS_TORCH else []))

import numpy as np

import trscheckpoint
import trscrossnet
import trsdata
import trsdynamic
import trsformats
import trsids
import trsonnx
import trsread
from trsformats import FormatError

DEFAULT_MAP = """
embedding/*/zch/weight             sparse_arch.embedding_bag_collection._embedding_module.embedding_bags.*.weight
embedding/*/zch/raw                sparse_arch.embedding_bag_collection._managed_collision_collection._managed_collision_modules.*._mch_sorted_raw_ids
embedding/*/zch/slot               sparse_arch.embedding_bag_collection._managed_collision_collection._managed_collision_modules.*._mch_remapped_ids_mapping
embedding/*/zch/count              sparse_arch.embedding_bag_collection._managed_collision_collection._managed_collision_modules.*._mch_counts
embedding/*/zch/last               sparse_arch.embedding_bag_collection._managed_collision_collection._managed_collision_modules.*._mch_last_access_iter
embedding/*/zch/segments           sparse_arch.embedding_bag_collection._managed_collision_collection._managed_collision_modules.*._output_segments_tensor
embedding/*/zch/iteration          sparse_arch.embedding_bag_collection._managed_collision_collection._managed_collision_modules.*._current_iter_tensor
embedding/*/dynamic/ids            sparse_arch.embedding_bag_collection.embedding_bags.*.dynamic_ids
embedding/*/dynamic/buckets        sparse_arch.embedding_bag_collection.embedding_bags.*.dynamic_buckets
embedding/*/weight                 sparse_arch.embedding_bag_collection.embedding_bags.*.weight
dense/dense_arch/*/weight          dense_arch.model._mlp.*._linear.weight
dense/dense_arch/*/bias            dense_arch.model._mlp.*._linear.bias
dense/dense_arch/*/swish_weight    dense_arch.model._mlp.*._activation_fn.norm.0.weight
dense/dense_arch/*/swish_bias      dense_arch.model._mlp.*._activation_fn.norm.0.bias
dense/over_arch/last/weight        over_arch.model.1.weight
dense/over_arch/last/bias          over_arch.model.1.bias
dense/over_arch/*/weight           over_arch.model.0._mlp.*._linear.weight
dense/over_arch/*/bias             over_arch.model.0._mlp.*._linear.bias
dense/over_arch/*/swish_weight     over_arch.model.0._mlp.*._activation_fn.norm.0.weight
dense/over_arch/*/swish_bias       over_arch.model.0._mlp.*._activation_fn.norm.0.bias
dense/projection_1/*/weight        inter_arch.interaction_branch1.model._mlp.*._linear.weight
dense/projection_1/*/bias          inter_arch.interaction_branch1.model._mlp.*._linear.bias
dense/projection_2/*/weight        inter_arch.interaction_branch2.model._mlp.*._linear.weight
dense/projection_2/*/bias          inter_arch.interaction_branch2.model._mlp.*._linear.bias
dense/position_weights/*/weight    sparse_arch.embedding_bag_collection._feature_processors.position_weights.*
""" + trscrossnet.NAMES
OPTIMIZER = "optimizer.state."
STEP = "step"  # in the place of a path: a number of updates, which is an attribute of a checkpoint
COUNTS = {"step", "iter"}  # names of these numbers among the states of torch's and of FBGEMM's optimizers
COUNTED = {"sum", "exp_avg", "exp_avg_sq"}  # states with which torch's optimizers also have a step


OF_ZCH = "/zch/weight"  # in a key map: the weight of a table that has a directory zch


def weight_of(table, name):
    """True if TorchRec may use this name for a table's weight."""
    return f".{name}".endswith(f".{table}.weight")


class KeyMap:
    """Pairs of a checkpoint's paths and the other program's names."""

    def __init__(self, path, prefix, kind):
        """kind: the format. A DCP is of {"model": ..., "optimizer": ...}, so the prefix's first part is only before the names of weights."""
        self.rules, self.last, self.moments, self.zch, self.kind = [], None, set(), set(), kind
        self.set_prefix(prefix)
        if path:
            with open(path, encoding="utf-8") as file:
                self._read(file, path)
        self.own = len(self.rules)
        self._read(DEFAULT_MAP.splitlines(), "default map")

    def set_prefix(self, prefix):
        self.prefix, self.of_states = prefix, prefix.partition(".")[2] if self.kind == "dcp" else prefix

    def find_prefix(self, names):
        """Use the prefix that all names of weights have in common and that makes one of them known. Returns it, or None if
        none is needed or found.
        """
        weights = [name for name in names if not name.startswith(OPTIMIZER)]
        if self.prefix or not weights or any(map(self._of_name, weights)):
            return None
        common = os.path.commonprefix(weights)
        for end in [dot.end() for dot in re.finditer(r"\.", common)]:
            if any(self._of_name(name, common[:end]) for name in weights):
                self.set_prefix(common[:end])
                return self.prefix
        return None

    def _read(self, lines, where):
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if words and (len(words) != 2 or "-" not in words and words[0].count("*") != words[1].count("*") or words == ["-", "-"]):
                raise ValueError(f"{where}, line {number}: {line.strip()!r} is not \"ours theirs\" with the same number of * on both sides")
            if words:
                self.rules.append(tuple(words))

    def knows(self, paths):
        """From a checkpoint's paths: which layer of over_arch is the last, which tables have two moments, and which a directory zch."""
        self.zch = {table for table, kind in trsids.kinds(paths).items() if kind == "zch"}
        self.moments = {path.rpartition("/")[0] for path in paths if re.fullmatch("embedding/.+/exp_avg_sq", path)}
        numbers = [int(found[1]) for found in (re.match(r"dense/over_arch/(\d+)/", path) for path in paths) if found]
        self.last = max(numbers, default=None)

    @staticmethod
    def _rewrite(text, source, target):
        """The target for a text that matches source, perhaps "-"; None if it does not match."""
        found = re.fullmatch("(.+)".join(map(re.escape, source.split("*"))), text)
        if not found or source == "-":
            return None
        first, *others = target.split("*") if target != "-" else "-"
        return first + "".join(found[i] + word for i, word in enumerate(others, 1))

    def _of_rules(self, path, prefix):
        alias = re.sub(rf"^dense/over_arch/{self.last}/", "dense/over_arch/last/", path)
        table = path.removeprefix("embedding/").removesuffix("/weight")
        of_zch = f"embedding/{table}{OF_ZCH}" if path == f"embedding/{table}/weight" and table in self.zch else ""
        for ours, theirs in self.rules:
            name = self._rewrite(alias if "/last/" in ours else of_zch if ours.endswith(OF_ZCH) else path, ours, theirs)
            if name:
                return name if name == "-" else prefix + name
        return None

    def name(self, path, prefix=None):
        """The other program's name for a path; "-": the tensor is left out."""
        prefix = self.prefix if prefix is None else prefix
        name = self._of_rules(path, prefix)
        if name or trsids.part(path) or not trscheckpoint.STATES.fullmatch(path):
            return name or prefix + path
        folder, _, state = path.rpartition("/")
        table = folder.removeprefix("embedding/") if path.startswith("embedding/") else None
        base = self.name(f"embedding/{table}/weight" if table else folder.replace("dense_optimizer/", "dense/", 1), self.of_states)
        if state == "exp_avg" and folder in self.moments:
            state = "momentum1"  # TorchRec gives this name to a table's first state, whichever state it is
        return base if base == "-" else f"{OPTIMIZER}{base}.{self._their_table(base, table) + '.' if table else ''}{state}"

    @staticmethod
    def _their_table(weight, table):
        """The part of a state's name between a table's weight and the state. It is TorchRec's name of the table, the last
        part but one of its weight's name.
        """
        known = weight_of(table, weight) or not weight.endswith(".weight")
        return table if known else weight.removesuffix(".weight").rpartition(".")[2]

    def _of_name(self, name, prefix=None):
        prefix = self.prefix if prefix is None else prefix
        inner = name[len(prefix):] if name.startswith(prefix) else ""
        for i, (ours, theirs) in enumerate(self.rules):
            for text in (inner, name) if i < self.own else (inner,):
                path = self._rewrite(text, theirs, ours)
                if path:
                    return path.removesuffix(OF_ZCH) + "/weight" if ours.endswith(OF_ZCH) else path
        return inner if inner.startswith(("embedding/", "dense/", "dense_optimizer/")) else None

    def path(self, name):
        """Our path for a name; STEP: it is a number of updates; "-": it is left out; None: it is not known."""
        path = self._of_name(name)
        if path or not name.startswith(OPTIMIZER):
            return path
        # In {"model": ..., "optimizer": ...} only the weights begin with model., so states may lack the prefix's first
        # parts.
        parts = self.prefix.split(".")
        found = (self._state(name.removeprefix(OPTIMIZER), ".".join(parts[i:])) for i in range(len(parts)))
        return next(filter(None, found), None)

    def _state(self, name, prefix):
        """The path of a state, from its name without OPTIMIZER."""
        base, _, state = name.rpartition(".")
        weight = self._of_name(base, prefix)
        for dot in re.finditer(r"\.", base):
            part, table = base[:dot.start()], base[dot.end():]
            of_part = self._of_name(part, prefix)
            if of_part in ("-", f"embedding/{table}/weight") or of_part and weight_of(table, part):
                weight = of_part
        if weight == "-" or not (weight or "").startswith(("embedding/", "dense/")):
            return "-" if weight == "-" else None
        if state in COUNTS:
            return STEP
        if weight.startswith("dense/"):
            return f"dense_optimizer/{weight[len('dense/'):]}/{state}"
        return f"{weight.rpartition('/')[0]}/{'momentum1' if state == 'sum' else state}"  # torch's AdaGrad of a data_parallel table: sum


def counted(tensor, progress):
    def blocks():
        for block in tensor.blocks():
            yield block
            progress(block.nbytes)
    return trsformats.Tensor(tensor.dtype, tensor.shape, blocks, tensor.mapped)


# --- export ---


def publish(temporary, path):
    """Renames a file or folder to its name, and removes a folder that has this name."""
    for name in [os.path.join(temporary, entry) for entry in os.listdir(temporary)] if os.path.isdir(temporary) else []:
        trsdata.sync(name)
    trsdata.sync(temporary)
    old = None
    if os.path.isdir(path):
        old = tempfile.mkdtemp(prefix=f".{os.path.basename(path)}.", suffix=".old", dir=os.path.dirname(path))
        os.rename(path, os.path.join(old, "old"))
    os.rename(temporary, path)
    trsdata.sync(os.path.dirname(path))
    if old:
        shutil.rmtree(old)


def write_out(path, writer):
    """Calls writer(PATH) with a temporary name in the same folder, then renames the file. If it also writes PATH.data, this is renamed first."""
    path = os.path.abspath(path)
    work = tempfile.mkdtemp(prefix=f".{os.path.basename(path)}.", suffix=".tmp", dir=os.path.dirname(path))
    try:
        temporary = os.path.join(work, "out")
        writer(temporary)
        if os.path.exists(temporary + ".data"):
            publish(temporary + ".data", path + ".data")
        publish(temporary, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def export_onnx(args):
    """The model's tensors of which an ONNX file was written."""
    with trscheckpoint.opened(args.source) as checkpoint:
        graph = trsonnx.build(checkpoint)
        data = args.out + ".data"
        if trsonnx.needs_data_file(graph) and os.path.lexists(data) and not args.force:
            trsdata.fail(f"{data} exists: --force replaces it", 73)
        trscheckpoint.verify(checkpoint)
        tensors = {path: tensor for path, tensor in graph.tensors.items() if path in checkpoint.tensors}
        with trscheckpoint.bar("write", tensors) as progress:
            graph.tensors.update((path, counted(tensor, progress.update)) for path, tensor in tensors.items())
            write_out(args.out, lambda path: trsonnx.write(path, graph, os.path.basename(args.out)))
    return tensors


def named_tensors(checkpoint, names, states):
    """Tensors by the other program's names, and for each of our tensors its entry in the description."""
    names.knows(checkpoint.tensors)
    chosen, about, n_experts = {}, {}, trscrossnet.experts(checkpoint.tensors)
    step = np.float32(checkpoint.attributes.get("step", 0))
    steps = {}
    every = dict(checkpoint.tensors if states else checkpoint.predicting)
    for table in sorted(names.zch):
        every.update(trsids.outwards(checkpoint, table))
        note = trsids.hash_note(checkpoint, table)
        if note:
            print(f"{checkpoint.path}: {note}", file=sys.stderr)
    for path, tensor in every.items():
        name = names.name(path)
        if name == "-" or trsids.part(path) and not states and not trsids.is_model(path):
            continue
        if path in checkpoint.tensors:
            about[path] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "attributes": checkpoint.of_tensors[path]}
        for their_name, theirs in trscrossnet.outwards(path, name, tensor, n_experts):
            if their_name in chosen:
                raise FormatError(f"{checkpoint.path}: /{chosen[their_name][0]} and /{path} would both be {their_name}: see --key-map")
            chosen[their_name] = (path, theirs)
            if path.startswith("dense_optimizer/") and path.rpartition("/")[2] in COUNTED:
                steps[their_name.rpartition(".")[0] + ".step"] = trsformats.Tensor("F32", (), lambda: [step])
    if trsformats.DESCRIPTION in chosen:
        raise FormatError(f"{checkpoint.path}: /{chosen[trsformats.DESCRIPTION][0]} would be {trsformats.DESCRIPTION}, which is the description's name")
    return {name: tensor for name, (_, tensor) in chosen.items()} | steps, about


def make_dynamic(args):
    """The tensors of a new checkpoint whose tables with known ids are dynamic."""
    with trscheckpoint.opened(args.source) as checkpoint:
        try:
            trsdynamic.tables_of(checkpoint, args.ids)
        except ValueError as error:
            trsdata.fail(f"{args.source}: {error}", 64)
        tensors, attributes = trsdynamic.convert(checkpoint, args.ids, lambda text: print(f"{args.source}: {text}", file=sys.stderr))
        trscheckpoint.verify(checkpoint)
        with trscheckpoint.bar("write", tensors) as progress:
            trscheckpoint.write(args.out, {path: tensors[path] for path in sorted(tensors)}, attributes, checkpoint.of_tensors, lambda path: "/" + path, progress.update)
    return tensors


def export(args, names):
    if args.to == "dynamic":
        return make_dynamic(args)
    if args.to == "onnx":
        return export_onnx(args)
    with trscheckpoint.opened(args.source) as checkpoint:
        tensors, about = named_tensors(checkpoint, names, args.states)
        trscheckpoint.verify(checkpoint)
        description = json.dumps({"attributes": checkpoint.attributes, "tensors": about})
        with trscheckpoint.bar("write", tensors) as progress:
            written = {name: counted(tensor, progress.update) for name, tensor in tensors.items()}
            write_out(os.path.realpath(args.out), lambda path: trsformats.WRITERS[args.to](path, written, description))
    return tensors


# --- import ---


def numbers_or_text(value):
    parts = value if isinstance(value, list) and value else [value]
    return all(isinstance(part, (int, float)) and not isinstance(part, bool) for part in parts) or isinstance(value, str)


def described(text):
    """The attributes and tensors of a description."""
    if text is None:
        return {}, {}
    try:
        found = json.loads(text)
        attributes, tensors = found["attributes"], found["tensors"]
        good = all(map(numbers_or_text, attributes.values()))
        for about in tensors.values():
            good = good and isinstance(about["dtype"], str) and isinstance(about["shape"], list) and all(map(numbers_or_text, about["attributes"].values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        good = False
    if not good:
        raise FormatError("its description (trshard) is damaged")
    attributes = {name: value for name, value in attributes.items() if name not in ("format", "version")}
    return attributes, tensors


def chosen_tensors(source, names, states):
    """Tensors by path, the name of each path in the source, and the source's numbers of updates by their names. Without states a
    weight is its average if the source has one."""
    found, origin, steps = {}, {}, {}
    for name, tensor in source.tensors.items():
        path = names.path(name)
        if path is None and name.startswith(OPTIMIZER) and not states:
            continue
        if path is None:
            raise FormatError(f"tensor {name} is not known: --key-map says what it is, with \"- {name}\" it is left out"
                              + ("" if names.prefix else "; where all begin with model., --prefix model."))
        needed = states or trsids.is_model(path or "") or trsids.ONLY_THEIRS.fullmatch(path or "") or trscheckpoint.AVERAGE.fullmatch(path or "")
        if path == "-" or not needed and trscheckpoint.STATES.fullmatch(path):
            continue
        if path == STEP:
            steps[name] = tensor
            continue
        if not re.fullmatch(r"(embedding/|dense_optimizer/)([^/]+/)+[^/]+|dense(/[^/]+)+", path):
            raise FormatError(f"tensor {name} would be /{path}, which is not a path of a checkpoint")
        if path in origin:
            raise FormatError(f"tensors {origin[path]} and {name} are both /{path}")
        found[path], origin[path] = tensor, name
    as_of_tables(found, origin)
    trsids.inwards(found, origin)
    found, origin = trscrossnet.inwards(found, origin)
    explicit = [re.fullmatch(r"dense/over_arch/(\d+)/(\w+)", path) for path in found]
    behind = lambda parameter: max([int(layer[1]) for layer in explicit if layer and layer[2] == parameter], default=-1) + 1
    last = re.compile(r"(?<=/over_arch/)last(?=/(\w+))")
    renamed = {path: last.sub(lambda layer: str(behind(layer[1])), path) for path in found}
    names.knows(renamed.values())
    tensors = {renamed[path]: tensor for path, tensor in found.items()}
    origin = {renamed[path]: name for path, name in origin.items()}
    return (tensors, origin, steps) if states else (trscheckpoint.predicting(tensors), origin, {})


def as_of_tables(found, origin):
    """Corrects two differences. TorchRec calls the first state of FBGEMM's optimizers momentum1, although it is exp_avg if exp_avg_sq
    follows. Its row-wise AdaGrad of a data_parallel table has [rows, 1] instead of [rows]."""
    for path in [path for path in found if re.fullmatch("embedding/.+/momentum1", path)]:
        folder, tensor, weight = path.rpartition("/")[0], found[path], found.get(path.removesuffix("/momentum1") + "/weight")
        if f"{folder}/exp_avg_sq" in found and f"{folder}/exp_avg" not in found:
            found[f"{folder}/exp_avg"], origin[f"{folder}/exp_avg"] = found.pop(path), origin.pop(path)
        elif weight and tensor.shape == (weight.shape[0], 1) != weight.shape:
            found[path] = trsformats.Tensor(tensor.dtype, tensor.shape[:1], lambda tensor=tensor: (block.reshape(-1) for block in tensor.blocks()))


def updates_done(steps, tensors, origin, attributes):
    """The number of updates, from the optimizers' counts, or else from the description."""
    found = {}
    for name, tensor in steps.items():
        for block in tensor.blocks():
            numbers = trscheckpoint.as_float32(block, tensor.dtype) if tensor.dtype == "BF16" else block
            for value in np.ravel(numbers).tolist():
                if not 0 <= value < 1 << 62 or value != int(value):
                    raise FormatError(f"tensor {name} is {value}, expected a number of updates")
                found.setdefault(int(value), name)
    if len(found) > 1:
        (step, name), (other, other_name), *_ = found.items()
        raise FormatError(f"tensor {name} is {step}, {other_name} is {other}, expected one number of updates for all: --step N says which")
    moment = next((path for path in tensors if path.endswith("/exp_avg_sq")), None)
    if moment and not found and "step" not in attributes:
        raise FormatError(f"tensor {origin[moment]} needs the number of updates for its bias corrections, and no tensor named .step has it: --step N says it")
    said = attributes.get("step", trscheckpoint.DEFAULTS["step"])
    return said if isinstance(said, int) and int(np.float32(said)) in found else next(iter(found), said)  # counts are float32, a description is exact


def by_columns(source, tensors, origin):
    """For a table with cut columns, TorchRec has a state of rows for each shard, one after the other. The checkpoint has their mean [rows]
    and [rows, shards] (input/FORMAT.md). Returns the attributes of the latter."""
    cuts = {}
    for path in [path for path in tensors if re.fullmatch(r"embedding/.+/(?!weight$)[^/]+", path)]:
        weight = path.rpartition("/")[0] + "/weight"
        starts = getattr(source, "columns", {}).get(origin.get(weight), [])
        state = tensors[path]
        if len(starts) < 2 or len(tensors[weight].shape) != 2 or tuple(state.shape) != (tensors[weight].shape[0] * len(starts),):
            continue
        rows, columns = tensors[weight].shape
        joined = Joined(state, rows, np.diff([*starts, columns]))
        tensors[path] = trsformats.Tensor("F32", (rows,), joined.means)
        tensors[path + "_columns"] = trsformats.Tensor("F32", (rows, len(starts)), joined.shards)
        origin[path + "_columns"] = origin[path]
        cuts[path + "_columns"] = {"column_offsets": starts}
    return cuts


class Joined:
    """One state of rows for each of several column shards, one after the other in a tensor."""

    def __init__(self, state, rows, widths):
        self.state, self.rows, self.widths = state, rows, widths

    def shards(self):
        """[rows, shards], a part of the rows at a time."""
        with tempfile.TemporaryFile() as file:
            for block in self.state.blocks():
                file.write(np.ascontiguousarray(block, np.float32).data)
            file.flush()
            every = np.memmap(file, np.float32, "r", shape=(len(self.widths), self.rows))
            for first, n in trsformats.strips((self.rows, len(self.widths)), "F32"):
                yield np.ascontiguousarray(every[:, first:first + n].T)

    def means(self):
        """[rows], weighted by the shards' widths."""
        for block in self.shards():
            yield (block.astype(np.float64) @ self.widths / self.widths.sum()).astype(np.float32)


def as_floats(tensors, name):
    """float64 becomes float32; numbers that are too large for float32 are refused."""
    for path, tensor in tensors.items():
        if tensor.dtype != "F64":
            continue

        def blocks(path=path, tensor=tensor):
            for block in tensor.blocks():
                if np.any(np.isfinite(block) & (np.abs(block) > np.finfo(np.float32).max)):
                    raise FormatError(f"tensor {name(path)} has numbers that are too large for float32")
                yield block.astype(np.float32)
        tensors[path] = trsformats.Tensor("F32", tensor.shape, blocks)


def check_whole(args, tensors):
    """Refuse a source that looks like a part of a model unless --partial permits it. Returns a note about such a part, or None."""
    part = trsformats.PART.fullmatch(args.source) if args.from_ == "safetensors" else None
    dense = [path for path in tensors if path.startswith("dense/")]
    if part:
        what = f"it is part {int(part[1])} of {int(part[2])}: give the index (*{trsformats.INDEX}) or its folder"
    elif dense and not any(path.startswith("embedding/") for path in tensors):
        what = "it has dense layers and no table"
    elif dense and not any(path.startswith("dense/over_arch/") for path in dense) and any(path.startswith("dense/dense_arch/") for path in dense):
        what = "it has the dense arch and no over arch"
    else:
        return None if dense else "it has tables and no dense layers; -init_from starts those anew"
    if not args.partial:
        raise FormatError(f"{what}; --partial takes it as it is")
    return what.partition(":")[0]


def check_described(about, tensors, names, states, partial):
    """A source must have all tensors of its description."""
    for path, was in about.items():
        if trscheckpoint.STATES.fullmatch(path) and not states and not trsids.is_model(path):
            continue
        if path not in tensors and names.name(path) != "-" and not partial:
            raise FormatError(f"there is no tensor {names.name(path)} (/{path}); --partial does without it")
        if path in tensors and list(tensors[path].shape) != was["shape"]:
            raise FormatError(f"tensor {names.name(path)} (/{path}) has shape {list(tensors[path].shape)}, expected {was['shape']}")


def bring(args, names):
    with trsformats.source(args.from_, args.source) as source:
        try:
            attributes, about = described(source.description)
            prefix = names.find_prefix(source.tensors)
            if prefix:
                print(f"{args.source}: names begin with {prefix} (--prefix {prefix})", file=sys.stderr)
            tensors, origin, steps = chosen_tensors(source, names, args.states)
            attributes["step"] = updates_done(steps, tensors, origin, attributes) if args.step is None else args.step
            cuts = by_columns(source, tensors, origin)
            check_described(about, tensors, names, args.states, args.partial)
            part = check_whole(args, tensors)
            if isinstance(attributes.get("model"), str) and not any(map(trscheckpoint.AVERAGE.fullmatch, tensors)):
                attributes["model"] = trscheckpoint.without_averages(attributes["model"])
            name = lambda path: origin.get(path) or names.name(path)
            as_floats(tensors, name)
            trscheckpoint.check_model(tensors, name)
            ordered = {path: tensors[path] for path in sorted(tensors)}
            with trscheckpoint.bar("write", ordered) as progress:
                of_tensors = {path: was["attributes"] for path, was in about.items()} | cuts
                trscheckpoint.write(args.output, ordered, attributes, of_tensors, name, progress.update)
            if part:
                print(f"{args.source}: {part}", file=sys.stderr)
        except FormatError as error:
            text = str(error)
            raise FormatError(text if text.startswith(args.source) else f"{args.source}: {text}") from None
    return tensors


# --- the command ---


def number_of_updates(text):
    if not re.fullmatch(r"\d{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of updates")
    return int(text)


def ids_of_table(text):
    table, equals, path = text.partition("=")
    if not table or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not TABLE=FILE")
    return table, path


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", metavar="SOURCE [OUT]", nargs="+", help="a checkpoint and what is written with --to; another program's file or folder with --from")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--to", choices=sorted([*trsformats.WRITERS, "onnx", "dynamic"]))
    way.add_argument("--from", dest="from_", choices=sorted(trsformats.READERS))
    parser.add_argument("--output", metavar="CHECKPOINT", help="with --from: what is written")
    parser.add_argument("--states", action="store_true", help="the optimizers' states, too, and weights beside their averages")
    parser.add_argument("--step", metavar="N", type=number_of_updates, help="with --from: the number of updates done, in the place of what the source says")
    parser.add_argument("--key-map", metavar="FILE", help='lines "ours theirs"')
    parser.add_argument("--prefix", default="", help="what their names begin with, for example model.")
    parser.add_argument("--partial", action="store_true", help="with --from: the source has a part of the model alone")
    parser.add_argument("--ids", metavar="TABLE=FILE", type=ids_of_table, action="append", default=[], help="with --to dynamic: the raw ids of a table")
    parser.add_argument("--force", action="store_true", help="replace an output that is there")
    args = parser.parse_intermixed_args()
    args.source, args.out = (args.paths + [None])[:2]
    if len(args.paths) > 2 or bool(args.to) != bool(args.out) or bool(args.from_) != bool(args.output):
        parser.error("SOURCE --to FORMAT OUT, or SOURCE --from FORMAT --output CHECKPOINT")
    if args.to and args.step is not None:
        parser.error("--step is for --from: a checkpoint has its own step")
    if args.ids and args.to != "dynamic":
        parser.error("--ids is for --to dynamic")
    if len(dict(args.ids)) < len(args.ids):
        parser.error("--ids names a table twice")
    args.ids = dict(args.ids)
    for table, path in args.ids.items():
        plain = path if os.path.exists(path) or ":" not in path else path.rpartition(":")[0]
        if path != trsdynamic.ROWS and not os.access(plain, os.R_OK):
            trsdata.fail(f"--ids {table}: {plain} {'cannot be read' if os.path.exists(plain) else 'does not exist'}", 66)
    if args.to in ("onnx", "dynamic") and (args.states or args.key_map or args.prefix):
        parser.error(f"--to {args.to} writes the model as it is: --states, --key-map and --prefix are for tensors alone")
    return args


def main():
    args = parse()
    output = args.out or args.output
    try:
        names = KeyMap(args.key_map, args.prefix, args.to or args.from_)
    except (OSError, ValueError) as error:
        trsdata.fail(f"--key-map: {error}", 64)
    problem = trscheckpoint.check_output(output, args.to == "dcp", args.force)
    if problem:
        trsdata.fail(problem, 73)
    if not os.access(args.source, os.R_OK):
        trsdata.fail(f"{args.source} {'cannot be read' if os.path.exists(args.source) else 'does not exist'}", 66)
    folder = args.from_ == "dcp" or args.from_ == "safetensors" and trsformats.is_index(args.source) and os.path.isdir(args.source)
    if os.path.isdir(args.source) != folder:
        trsdata.fail(f"{args.source} is {'a folder, expected a file' if os.path.isdir(args.source) else 'a file, dcp is a folder'}", 65)
    if not trscheckpoint.Hash.available():
        print(f"exchange.py: {trscheckpoint.NO_CHECKSUMS}", file=sys.stderr)
    try:
        tensors = export(args, names) if args.to else bring(args, names)
    except FormatError as error:
        trsdata.fail(error, 65)
    except trsformats.NoModule as error:
        trsdata.fail(error, 69)
    except OSError as error:
        if args.to and error.errno is None:  # HDF5 reports damaged data in this way
            trsdata.fail(f"{args.source}: {str(error).splitlines()[0]}", 65)
        trsdata.fail(f"{output}: {error}", 74)
    print(f"{output}: {trsread.counted(len(tensors), 'tensor')}, {sum(tensor.bytes for tensor in tensors.values()) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    trspython.run(main)
