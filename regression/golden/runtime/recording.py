# SPDX-License-Identifier: BSD-3-Clause
"""Shared code of the scripts that record forward and backward passes of torch's modules."""
import sys

import h5py
import torch
import torchrec

BATCH = 9


def single(tensor):
    """Doubles whose values are floats, so that the file holds exactly the numbers that were
    used."""
    return tensor.float().double()


def write(group, x, out, dx, parameters, **attributes):
    """Write a case: x, out, a random gradient dout of out, and dx() after the backward pass. Each
    parameter (name, tensor, shape) is written with its gradient, named "d" and the name."""
    dout = single(torch.randn_like(out))
    out.backward(dout)
    group.attrs.update(attributes)
    tensors = {"x": x, "out": out, "dout": dout, "dx": dx()}
    for name, parameter, shape in parameters:
        tensors.update({name: parameter.reshape(shape), f"d{name}": parameter.grad.reshape(shape)})
    for name, tensor in tensors.items():
        group[name] = tensor.detach().float().numpy()


def main(seed, cases, record):
    torch.manual_seed(seed)
    with h5py.File(sys.argv[1], "w") as file:
        file.attrs["torch"], file.attrs["torchrec"] = str(torch.__version__), str(torchrec.__version__)
        for i, case in enumerate(cases):
            record(file.create_group(f"{i}_{case[0]}"), *case)
