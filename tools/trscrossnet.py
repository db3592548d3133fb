# SPDX-License-Identifier: BSD-3-Clause
"""The cross networks of checkpoints and of torchrec.modules.crossnet. Their tensors differ in shape, and some names belong to several kinds.

  ours                                        TorchRec's
  crossnet_full/L/weight [N, N], bias [N]     CrossNet: kernels.L [N, N], bias.L [N, 1]
  crossnet_vector/L/weight [N], bias [N]      VectorCrossNet: kernels.L [N, 1], bias.L [N, 1]
  crossnet_mixture/L/U [K N, r], C [K r, r],  LowRankMixtureCrossNet: U_kernels.L [K, N, r], C_kernels.L [K, r, r],
    V [K r, N], bias [N], gate/weight [K, N]    V_kernels.L [K, r, N], bias.L [N, 1], gates.K.weight [1, N]

LowRankCrossNet needs no change. States of optimizers are treated as their parameters. Used by exchange.py.
"""
import re

import numpy as np

from trsformats import FormatError, Tensor

# Lines "ours theirs" of exchange.py's map. A name of theirs uses its first line: inwards() then decides which kind a
# kernel, V or bias has.
NAMES = """
dense/crossnet/*/W                 inter_arch.crossnet.W_kernels.*
dense/crossnet/*/V                 inter_arch.crossnet.V_kernels.*
dense/crossnet/*/bias              inter_arch.crossnet.bias.*
dense/crossnet_full/*/weight       inter_arch.crossnet.kernels.*
dense/crossnet_full/*/bias         inter_arch.crossnet.bias.*
dense/crossnet_vector/*/weight     inter_arch.crossnet.kernels.*
dense/crossnet_vector/*/bias       inter_arch.crossnet.bias.*
dense/crossnet_mixture/*/U         inter_arch.crossnet.U_kernels.*
dense/crossnet_mixture/*/C         inter_arch.crossnet.C_kernels.*
dense/crossnet_mixture/*/V         inter_arch.crossnet.V_kernels.*
dense/crossnet_mixture/*/bias      inter_arch.crossnet.bias.*
dense/crossnet_mixture/gate/weight inter_arch.crossnet.gates
dense/crossnet_mixture/gates/*/weight inter_arch.crossnet.gates.*.weight
"""
PATH = re.compile(r"(dense|dense_optimizer)/crossnet(|_full|_vector|_mixture)/([^/]+)/(\w+)(/\w+)?(/\w+)?")


def _whole(tensor):
    return np.concatenate([np.asarray(block) for block in tensor.blocks()])


def _made(tensor, shape, numbers=_whole):
    return Tensor(tensor.dtype, shape, lambda: iter([numbers(tensor).reshape(shape)]))


def experts(tensors):
    """K of a checkpoint's dcn_mixture; 1 if it has no gate."""
    gate = tensors.get("dense/crossnet_mixture/gate/weight")
    return gate.shape[0] if gate else 1


def outwards(path, name, tensor, n_experts):
    """The (name, tensor) pairs that TorchRec has for a checkpoint's tensor, if the tensor has one of TorchRec's names."""
    found = PATH.fullmatch(path)
    if not found or not found[2] or "inter_arch.crossnet." not in name:
        return [(name, tensor)]
    if found[3] == "gate":
        before, _, state = name.partition(".gates")
        return [(f"{before}.gates.{k}.weight{state}", _made(tensor, (1, tensor.shape[1]), lambda whole, k=k: _whole(whole)[k]))
                for k in range(tensor.shape[0])]
    if found[4] in "UCV":
        return [(name, _made(tensor, (n_experts, tensor.shape[0] // n_experts, tensor.shape[1])))]
    return [(name, _made(tensor, (tensor.shape[0], 1)) if len(tensor.shape) == 1 else tensor)]


def _kind(tensors):
    """Our tensors, by path, for TorchRec's tensors."""
    parts = {(found[2], found[4]): tensors[path].shape for path, found in ((path, PATH.fullmatch(path)) for path in tensors) if found and found[1] == "dense"}
    if ("_mixture", "U") in parts:
        return "_mixture"
    kernel = parts.get(("_full", "weight"))
    return None if kernel is None else "_vector" if len(kernel) == 2 and kernel[1] == 1 else "_full"


def _joined(gates, origin):
    """The tensors gates/K/weight, which are stacked vertically in ours."""
    order = sorted(gates, key=lambda path: int(path.split("/")[3]) if path.split("/")[3].isdigit() else -1)
    for k, path in enumerate(order):
        if path.split("/")[3] != str(k) or tuple(gates[path].shape) != (1, gates[order[0]].shape[-1]):
            raise FormatError(f"tensor {origin[path]} is no gate of {len(order)} experts: its shape is {list(gates[path].shape)}")
    parts = [gates[path] for path in order]
    return _made(parts[0], (len(parts), parts[0].shape[1]), lambda _: np.concatenate([_whole(part) for part in parts]))


def inwards(tensors, origin):
    """Changes the paths and shapes of tensors that exchange.py has found to those of a checkpoint. origin: their names in the source."""
    kind = _kind(tensors)
    made, names, gates = {}, {}, {}
    for path, tensor in tensors.items():
        found = PATH.fullmatch(path)
        shape = tuple(tensor.shape)
        if kind is None or not found:
            made[path], names[path] = tensor, origin[path]
            continue
        if found[3] == "gates":
            gates.setdefault(f"{found[1]}/crossnet_mixture/gate/weight{found[6] or ''}", {})[path] = tensor
            continue
        to = f"{found[1]}/crossnet{kind}/{'/'.join(filter(None, path.split('/')[2:]))}"
        if found[4] in "UCV" and len(shape) == 3:
            tensor = _made(tensor, (shape[0] * shape[1], shape[2]))
        elif len(shape) == 2 and shape[1] == 1 and (found[4] == "bias" or kind == "_vector"):
            tensor = _made(tensor, shape[:1])
        if to in made:
            raise FormatError(f"tensors {names[to]} and {origin[path]} are both /{to}")
        made[to], names[to] = tensor, origin[path]
    for to, parts in gates.items():
        made[to], names[to] = _joined(parts, origin), origin[min(parts)]
    return made, names
