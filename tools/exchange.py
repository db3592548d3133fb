#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint's weights out to and in from the files of other programs.

  exchange.py model.h5 --to safetensors model.safetensors
  exchange.py model.pt --from torch --output model.h5

Formats: safetensors; npz (numpy); torch (torch.save of a state_dict); dcp (a folder of torch.distributed.checkpoint). The
last two need torch. Names are those of TorchRec's DLRM and DLRM_DCN, so that load_state_dict(strict=True) takes them; of a
DLRMTrain they begin with "model.": --prefix model. does it. The steps of the training and its options travel beside the tensors.
--states takes the optimizers' states along, as optimizer.state.<name>.<state>, of a table .<name>.<table>.<state>.

--key-map FILE changes names: lines "ours theirs", # begins a comment. Ours is the path in the checkpoint. A * on both
sides stands for the same text; "-" for theirs leaves ours out, "-" for ours what is theirs. The first line that fits
counts, and the default ones follow. dense/over_arch/last is the last layer of over_arch:

  embedding/t_*/weight         tables.*.weight
  dense/dense_arch/*/weight    bottom.*.weight

A name that begins with embedding/ or dense/ is a path itself. Tables keep their type (fp32, fp16, bf16), all else becomes
float32, which is exact. Memory does not grow with the tables; dcp --from needs temporary space for the largest tensor.

Exit status: 0; 64 a bad option or key map; 65 what is wrong with the source; 66 it cannot be read; 69 torch is missing;
73 the output is there already; 74 it cannot be written.
"""
import argparse
import json
import os
import re
import shutil
import sys
import tempfile

import trspython

trspython.require("h5py", "numpy", "tqdm")

from tqdm import tqdm

import trscheckpoint
import trsdata
import trsformats
from trsformats import FormatError

DEFAULT_MAP = """
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
dense/crossnet/*/W                 inter_arch.crossnet.W_kernels.*
dense/crossnet/*/V                 inter_arch.crossnet.V_kernels.*
dense/crossnet/*/bias              inter_arch.crossnet.bias.*
dense/position_weights/*/weight    sparse_arch.embedding_bag_collection._feature_processors.position_weights.*
"""
OPTIMIZER = "optimizer.state."
NO_TENSOR = {"step"}  # of torch's optimizers: a count, and no state of a checkpoint


class KeyMap:
    """Paths of a checkpoint and names elsewhere."""

    def __init__(self, path, prefix):
        self.prefix, self.rules, self.last = prefix, [], None
        if path:
            with open(path, encoding="utf-8") as file:
                self._read(file, path)
        self._read(DEFAULT_MAP.splitlines(), "default map")

    def _read(self, lines, where):
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if words and (len(words) != 2 or "-" not in words and words[0].count("*") != words[1].count("*") or words == ["-", "-"]):
                raise ValueError(f"{where}, line {number}: {line.strip()!r} is not \"ours theirs\" with the same number of * on both sides")
            if words:
                self.rules.append(tuple(words))

    def knows_layers(self, paths):
        """Which layer of over_arch is the last? Of a checkpoint's paths."""
        numbers = [int(found[1]) for found in (re.match(r"dense/over_arch/(\d+)/", path) for path in paths) if found]
        self.last = max(numbers, default=None)

    @staticmethod
    def _rewrite(text, source, target, star):
        """text, which fits source, as target, maybe "-"; None: it does not fit."""
        found = re.fullmatch(star.join(map(re.escape, source.split("*"))), text)
        if not found or source == "-":
            return None
        first, *others = target.split("*") if target != "-" else "-"
        return first + "".join(found[i] + word for i, word in enumerate(others, 1))

    def _of_rules(self, path):
        alias = re.sub(rf"^dense/over_arch/{self.last}/", "dense/over_arch/last/", path)
        for ours, theirs in self.rules:
            name = self._rewrite(alias if "/last/" in ours else path, ours, theirs, "([^/]+)")
            if name:
                return name if name == "-" else self.prefix + name
        return None

    def name(self, path):
        """Their name of a path; "-": it is left out."""
        name = self._of_rules(path)
        if name or not trscheckpoint.STATES.fullmatch(path):
            return name or self.prefix + path
        folder, _, state = path.rpartition("/")
        table = folder.removeprefix("embedding/") if path.startswith("embedding/") else None
        base = self.name(f"embedding/{table}/weight" if table else folder.replace("dense_optimizer/", "dense/", 1))
        return base if base == "-" else f"{OPTIMIZER}{base}.{table + '.' if table else ''}{state}"

    def _of_name(self, name):
        if not name.startswith(self.prefix):
            return None
        name = name[len(self.prefix):]
        for ours, theirs in self.rules:
            path = self._rewrite(name, theirs, ours, "(.+)")
            if path:
                return path
        return name if name.startswith(("embedding/", "dense/", "dense_optimizer/")) else None

    def path(self, name):
        """Our path of a name; "-": it is left out; None: it is not known."""
        base, _, state = name.removeprefix(OPTIMIZER).rpartition(".")
        path = self._of_name(name)
        if path or not name.startswith(OPTIMIZER):
            return path
        weight = self._of_name(base)
        if state in NO_TENSOR or weight == "-":
            return "-"
        if weight and weight.startswith("dense/"):
            return f"dense_optimizer/{weight[len('dense/'):]}/{state}"
        for dot in re.finditer(r"\.", base):
            if self._of_name(base[:dot.start()]) == f"embedding/{base[dot.end():]}/weight":
                return f"embedding/{base[dot.end():]}/{state}"
        return None


def bar(tensors, what):
    return tqdm(total=sum(tensor.bytes for tensor in tensors.values()), desc=what, unit="B", unit_scale=True, disable=not sys.stderr.isatty())


def counted(tensor, progress):
    def blocks():
        for block in tensor.blocks():
            yield block
            progress(block.nbytes)
    return trsformats.Tensor(tensor.dtype, tensor.shape, blocks, tensor.mapped)


# --- out ---


def publish(temporary, path):
    """A file or folder takes its name; a folder that has it goes."""
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


def write_out(kind, path, tensors, description):
    """The file under a temporary name in the same folder, then under its own."""
    path = os.path.abspath(path)
    work = tempfile.mkdtemp(prefix=f".{os.path.basename(path)}.", suffix=".tmp", dir=os.path.dirname(path))
    try:
        temporary = os.path.join(work, "out")
        trsformats.WRITERS[kind](temporary, tensors, description)
        publish(temporary, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def export(args, names):
    with trscheckpoint.opened(args.source) as checkpoint:
        names.knows_layers(checkpoint.tensors)
        chosen = {}
        for path, tensor in checkpoint.tensors.items():
            name = "-" if trscheckpoint.STATES.fullmatch(path) and not args.states else names.name(path)
            if name in chosen:
                raise FormatError(f"{args.source}: /{chosen[name][0]} and /{path} would both be {name}: see --key-map")
            if name != "-":
                chosen[name] = (path, tensor)
        if trsformats.DESCRIPTION in chosen:
            raise FormatError(f"{args.source}: /{chosen[trsformats.DESCRIPTION][0]} would be {trsformats.DESCRIPTION}, which is the description's name")
        with bar(checkpoint.tensors, "verify") as progress:
            checkpoint.verify(progress.update)
        about = {path: {"dtype": tensor.dtype, "shape": list(tensor.shape), "attributes": checkpoint.of_tensors[path]} for path, tensor in chosen.values()}
        tensors = {name: tensor for name, (_, tensor) in chosen.items()}
        with bar(tensors, "write") as progress:
            write_out(args.to, args.out, {name: counted(tensor, progress.update) for name, tensor in tensors.items()},
                      json.dumps({"attributes": checkpoint.attributes, "tensors": about}))
    return tensors


# --- in ---


def numbers_or_text(value):
    parts = value if isinstance(value, list) and value else [value]
    return all(isinstance(part, (int, float)) and not isinstance(part, bool) for part in parts) or isinstance(value, str)


def described(text):
    """The attributes and tensors that a description tells of."""
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
    """Tensors by path, and the name of each path in the source."""
    found, origin = {}, {}
    for name, tensor in source.tensors.items():
        path = names.path(name)
        if path is None and name.startswith(OPTIMIZER) and not states:
            continue
        if path is None:
            raise FormatError(f"tensor {name} is not known: --key-map says what it is, with \"- {name}\" it is left out"
                              + ("" if names.prefix else "; where all begin with model., --prefix model."))
        if path == "-" or trscheckpoint.STATES.fullmatch(path) and not states:
            continue
        if not re.fullmatch(r"(embedding/[^/]+|(dense|dense_optimizer)(/[^/]+)+)/[^/]+", path):
            raise FormatError(f"tensor {name} would be /{path}, which is not a path of a checkpoint")
        if path in origin:
            raise FormatError(f"tensors {origin[path]} and {name} are both /{path}")
        found[path], origin[path] = tensor, name
    explicit = [re.fullmatch(r"dense/over_arch/(\d+)/(\w+)", path) for path in found]
    behind = lambda parameter: max([int(layer[1]) for layer in explicit if layer and layer[2] == parameter], default=-1) + 1
    last = re.compile(r"(?<=/over_arch/)last(?=/(\w+))")
    renamed = {path: last.sub(lambda layer: str(behind(layer[1])), path) for path in found}
    names.knows_layers(renamed.values())
    return {renamed[path]: tensor for path, tensor in found.items()}, {renamed[path]: name for path, name in origin.items()}


def check_described(about, tensors, names, states):
    """A source that says what it had must have it."""
    for path, was in about.items():
        if trscheckpoint.STATES.fullmatch(path) and not states:
            continue
        if path not in tensors and names.name(path) != "-":
            raise FormatError(f"there is no tensor {names.name(path)} (/{path})")
        if path in tensors and list(tensors[path].shape) != was["shape"]:
            raise FormatError(f"tensor {names.name(path)} (/{path}) has shape {list(tensors[path].shape)}, expected {was['shape']}")


def bring(args, names):
    with trsformats.source(args.from_, args.source) as source:
        try:
            attributes, about = described(source.description)
            tensors, origin = chosen_tensors(source, names, args.states)
            check_described(about, tensors, names, args.states)
            name = lambda path: origin.get(path) or names.name(path)
            trscheckpoint.check_model(tensors, name)
            ordered = {path: tensors[path] for path in sorted(tensors)}
            with bar(ordered, "write") as progress:
                trscheckpoint.write(args.output, ordered, attributes, {path: was["attributes"] for path, was in about.items()}, name, progress.update)
        except FormatError as error:
            text = str(error)
            raise FormatError(text if text.startswith(args.source) else f"{args.source}: {text}") from None
    return tensors


# --- the command ---


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", metavar="SOURCE [OUT]", nargs="+", help="a checkpoint and what is written with --to; another program's file or folder with --from")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--to", choices=sorted(trsformats.WRITERS))
    way.add_argument("--from", dest="from_", choices=sorted(trsformats.READERS))
    parser.add_argument("--output", metavar="CHECKPOINT", help="with --from: what is written")
    parser.add_argument("--states", action="store_true", help="the optimizers' states, too")
    parser.add_argument("--key-map", metavar="FILE", help='lines "ours theirs"')
    parser.add_argument("--prefix", default="", help="what their names begin with, for example model.")
    parser.add_argument("--force", action="store_true", help="replace an output that is there")
    args = parser.parse_intermixed_args()
    args.source, args.out = (args.paths + [None])[:2]
    if len(args.paths) > 2 or bool(args.to) != bool(args.out) or bool(args.from_) != bool(args.output):
        parser.error("SOURCE --to FORMAT OUT, or SOURCE --from FORMAT --output CHECKPOINT")
    return args


def main():
    args = parse()
    output = args.out or args.output
    try:
        names = KeyMap(args.key_map, args.prefix)
    except (OSError, ValueError) as error:
        trsdata.fail(f"--key-map: {error}", 64)
    problem = trscheckpoint.check_output(output, args.to == "dcp", args.force)
    if problem:
        trsdata.fail(problem, 73)
    if not os.path.exists(args.source):
        trsdata.fail(f"{args.source} does not exist", 66)
    if not trscheckpoint.Hash.available():
        print(f"exchange.py: {trscheckpoint.NO_CHECKSUMS}", file=sys.stderr)
    try:
        tensors = export(args, names) if args.to else bring(args, names)
    except FormatError as error:
        trsdata.fail(error, 65)
    except trsformats.NoModule as error:
        trsdata.fail(error, 69)
    except OSError as error:
        if args.to and isinstance(error, OSError) and error.errno is None:  # HDF5 of a file that is none
            trsdata.fail(f"{args.source}: {str(error).splitlines()[0]}", 65)
        readable = os.access(args.source, os.R_OK)
        trsdata.fail(f"{output if readable else args.source}: {error}", 74 if readable else 66)
    print(f"{output}: {len(tensors)} tensors, {sum(tensor.bytes for tensor in tensors.values()) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
