#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record units_crossnet.h5: forward and backward of TorchRec's CrossNet and LowRankCrossNet.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2 numpy h5py
    DIR/bin/pip install --force-reinstall --no-deps fbgemm-gpu-cpu==1.9.0
    DIR/bin/python record_crossnet.py units_crossnet.h5

Each group is a case: x [B, N], the vectors of a sample side by side; out and its gradient dout; dx; of layer l the parameters "weight<l>" (CrossNet) or
"W<l>" and "V<l>", and "bias<l>", with their gradients "dweight<l>" and so on. Attributes: interaction, vectors, copied (0), layers, rank. In double, then
rounded to float.
"""
import sys

import h5py
import torch
import torchrec
from torchrec.modules.crossnet import CrossNet, LowRankCrossNet

CASES = [("dcn_full", 1, 5, 1, 0), ("dcn_full", 3, 12, 3, 0), ("dcn_full", 5, 40, 2, 0), ("dcn", 3, 12, 1, 4), ("dcn", 4, 32, 3, 7)]
BATCH = 9


def record(group, kind, vectors, width, layers, rank):
    net = (CrossNet(width, layers) if kind == "dcn_full" else LowRankCrossNet(width, layers, rank)).double()
    for parameter in net.parameters():
        parameter.data = (parameter.data + 0.1 * torch.randn_like(parameter.data)).float().double()
    x = torch.randn(BATCH, width, dtype=torch.float64).float().double().requires_grad_()
    out = net(x)
    dout = torch.randn_like(out).float().double()
    out.backward(dout)
    group.attrs.update(interaction=kind, vectors=vectors, copied=0, layers=layers, rank=max(rank, 1))
    tensors = {"x": x, "out": out, "dout": dout, "dx": x.grad}
    parts = {"weight": net.kernels} if kind == "dcn_full" else {"W": net.W_kernels, "V": net.V_kernels}
    for part, parameters in (*parts.items(), ("bias", net.bias)):
        for l, parameter in enumerate(parameters):
            shape = (width,) if part == "bias" else parameter.shape
            tensors.update({f"{part}{l}": parameter.reshape(shape), f"d{part}{l}": parameter.grad.reshape(shape)})
    for name, tensor in tensors.items():
        group[name] = tensor.detach().float().numpy()


def main():
    torch.manual_seed(12)
    with h5py.File(sys.argv[1], "w") as file:
        file.attrs["torch"], file.attrs["torchrec"] = str(torch.__version__), str(torchrec.__version__)
        for i, case in enumerate(CASES):
            record(file.create_group(f"{i}_{case[0]}"), *case)


if __name__ == "__main__":
    main()
