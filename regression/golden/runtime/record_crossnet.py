#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record units_crossnet.h5: forward and backward passes of TorchRec's four cross networks and of
its projection interaction.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2 numpy h5py
    DIR/bin/pip install --force-reinstall --no-deps fbgemm-gpu-cpu==1.9.0
    DIR/bin/python record_crossnet.py units_crossnet.h5

Each group is a case: x [B, N], the vectors of a sample side by side; out and its gradient dout; dx;
and the parameters with their gradients "d<name>". Layer l has "weight<l>", or "W<l>" and "V<l>", or
"U<l>", "C<l>" and "V<l>" with the experts below each other, and "bias<l>". The gates, and the
branches of the projection, have a checkpoint's names with dots. Attributes: interaction, vectors,
dim, copied, layers, rank, experts, arch1 and arch2. All are computed in double, then rounded to
float.
"""
import torch
from torchrec.models.dlrm import DenseArch, InteractionProjectionArch
from torchrec.modules.crossnet import CrossNet, LowRankCrossNet, LowRankMixtureCrossNet, VectorCrossNet

from recording import BATCH, main, single, write

# vectors, width, layers, rank, experts; for the projection: vectors, dim, sizes of the branches
CASES = [("dcn_full", 1, 5, 1, 0), ("dcn_full", 3, 12, 3, 0), ("dcn_full", 5, 40, 2, 0), ("dcn", 3, 12, 1, 4), ("dcn", 4, 32, 3, 7),
         ("dcn_vector", 1, 5, 1, 0), ("dcn_vector", 4, 33, 3, 0), ("dcn_mixture", 2, 12, 1, 3, 1), ("dcn_mixture", 3, 17, 3, 4, 3),
         ("dcn_mixture", 4, 32, 2, 8, 4), ("projection", 3, 4, [8], [12]), ("projection", 5, 8, [11, 16], [24, 9, 8])]


def near(module):
    module = module.double()
    for parameter in module.parameters():
        parameter.data = single(parameter.data + 0.1 * torch.randn_like(parameter.data))
    return module


def record(group, kind, vectors, width, *more):
    if kind == "projection":
        record_projection(group, vectors, width, *more)
        return
    layers, rank, experts = (*more, 1)[:3]
    net = near({"dcn_full": lambda: CrossNet(width, layers), "dcn": lambda: LowRankCrossNet(width, layers, rank),
                "dcn_vector": lambda: VectorCrossNet(width, layers),
                "dcn_mixture": lambda: LowRankMixtureCrossNet(width, layers, experts, rank)}[kind]())
    x = single(torch.randn(BATCH, width, dtype=torch.float64)).requires_grad_()
    out = net(x)
    if kind == "dcn_mixture":
        out = out.reshape(BATCH, width)  # with one expert, torchrec leaves a dimension of size 1
    parts = {"dcn_full": lambda: {"weight": net.kernels}, "dcn": lambda: {"W": net.W_kernels, "V": net.V_kernels}, "dcn_vector": lambda: {"weight": net.kernels},
             "dcn_mixture": lambda: {"U": net.U_kernels, "C": net.C_kernels, "V": net.V_kernels}}[kind]()
    parameters = []
    for part, tensors in (*parts.items(), ("bias", net.bias)):
        for l, parameter in enumerate(tensors):
            flat = part == "bias" or kind == "dcn_vector"
            parameters.append((f"{part}{l}", parameter, (width,) if flat else (-1, parameter.shape[-1])))
    if kind == "dcn_mixture" and experts > 1:
        gates = [gate.weight for gate in net.gates]
        stacked = torch.cat([gate.detach() for gate in gates])
        write(group, x, out, lambda: x.grad, parameters, interaction=kind, vectors=vectors, copied=0, layers=layers, rank=rank, experts=experts)
        group["crossnet_mixture.gate.weight"], group["dcrossnet_mixture.gate.weight"] = stacked.float().numpy(), torch.cat([gate.grad for gate in gates]).float().numpy()
        return
    write(group, x, out, lambda: x.grad, parameters, interaction=kind, vectors=vectors, copied=0, layers=layers, rank=max(rank, 1), experts=experts)


def record_projection(group, vectors, dim, *archs):
    branches = [near(DenseArch(vectors * dim, arch)) for arch in archs]
    net = InteractionProjectionArch(vectors - 1, *branches)
    x = single(torch.randn(BATCH, vectors, dim, dtype=torch.float64)).requires_grad_()
    out = net(x[:, 0], x[:, 1:])
    parameters = []
    for i, branch in enumerate(branches):
        linear = [module for module in branch.modules() if isinstance(module, torch.nn.Linear)]
        for l, layer in enumerate(linear):
            parameters += [(f"projection_{i + 1}.{l}.weight", layer.weight, layer.weight.shape), (f"projection_{i + 1}.{l}.bias", layer.bias, layer.bias.shape)]
    write(group, x.reshape(BATCH, -1), out, lambda: x.grad.reshape(BATCH, -1), parameters, interaction="projection", vectors=vectors, dim=dim, copied=dim,
          arch1=archs[0], arch2=archs[1])


if __name__ == "__main__":
    main(12, CASES, record)
