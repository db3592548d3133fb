# SPDX-License-Identifier: BSD-3-Clause
"""What the scripts that record forwards and backwards of torch's modules share."""
import sys

import h5py
import torch
import torchrec

BATCH = 9


def single(tensor):
    """The doubles whose numbers are floats: what the file holds is then what was computed with."""
    return tensor.float().double()


def write(group, x, out, dx, parameters, **attributes):
    """A case: x, out, a random gradient dout of out, dx() after the backward; each parameter (name, tensor, shape) with its gradient, "d" and the name."""
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
