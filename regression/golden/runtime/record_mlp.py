#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record units_mlp.h5: forward and backward passes of stacks of perceptrons, by torch and by
TorchRec's MLP and SwishLayerNorm.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2 numpy h5py
    DIR/bin/pip install --force-reinstall --no-deps fbgemm-gpu-cpu==1.9.0
    DIR/bin/python record_mlp.py units_mlp.h5

Each group is a case: x [B, in]; out and its gradient dout; dx; and every parameter
"<perceptron>/<part>" with its gradient "d<perceptron>/<part>". Attributes: sizes, activation,
layer_norm, plain_last, residual. All are computed in double, then rounded to float. A stack without
layer norm and residuals is TorchRec's MLP.
"""
import sys

import h5py
import torch
import torchrec
from torchrec.modules.activation import SwishLayerNorm
from torchrec.modules.mlp import MLP

CASES = [(5, [4], "relu", False, False), (6, [7, 3], "sigmoid", False, False), (6, [7, 33], "tanh", False, True),
         (9, [20, 8, 5], "swish_layernorm", False, False), (9, [20, 20, 1], "swish_layernorm", True, True), (4, [6, 3], "relu", True, False),
         (4, [18, 9], "tanh", True, False), (3, [5, 1], "sigmoid", True, True), (12, [3, 50, 2], "relu", True, True),
         (6, [6, 6, 9, 9], "relu", False, False, True), (7, [20, 20, 20], "swish_layernorm", True, False, True), (5, [5, 8, 8, 1], "sigmoid", False, True, True)]
BATCH = 9
PARTS = {"linear": ("weight", "bias"), "norm": ("norm_weight", "norm_bias"), "swish": ("swish_weight", "swish_bias")}


class Perceptron(torch.nn.Module):
    """A linear layer, layer norm, the activation, and the sum with the input if the widths allow
    it. plain: only the linear layer."""

    def __init__(self, n_in, n_out, activation, layer_norm, plain, residual):
        super().__init__()
        self.residual = residual and n_in == n_out and not plain
        self.linear = torch.nn.Linear(n_in, n_out)
        self.norm = torch.nn.LayerNorm(n_out) if layer_norm and not plain else None
        self.swish = SwishLayerNorm(n_out) if activation == "swish_layernorm" and not plain else None
        self.activation = (lambda x: x) if plain else self.swish or getattr(torch, activation)

    def forward(self, x):
        y = self.linear(x)
        y = self.activation(self.norm(y) if self.norm else y)
        return y + x if self.residual else y

    def parts(self):
        for name, module in (("linear", self.linear), ("norm", self.norm), ("swish", self.swish.norm[0] if self.swish else None)):
            if module:
                yield from zip(PARTS[name], (module.weight, module.bias))


def same_as_torchrec(stack, n_in, sizes, activation, x, out):
    mlp = MLP(n_in, sizes, activation=activation if activation == "swish_layernorm" else getattr(torch, activation)).double()
    for own, theirs in zip(stack, mlp._mlp):
        theirs._linear.load_state_dict(own.linear.state_dict())
        if own.swish:
            theirs._activation_fn.load_state_dict(own.swish.state_dict())
    assert torch.allclose(mlp(x), out, rtol=1e-12, atol=1e-12)


def record(group, n_in, sizes, activation, layer_norm, plain_last, residual=False):
    stack = torch.nn.Sequential(*(Perceptron(a, b, activation, layer_norm, plain_last and i == len(sizes) - 1, residual)
                                  for i, (a, b) in enumerate(zip([n_in] + sizes, sizes)))).double()
    for parameter in stack.parameters():
        parameter.data = (parameter.data + 0.2 * torch.randn_like(parameter.data)).float().double()
    x = torch.randn(BATCH, n_in, dtype=torch.float64).float().double().requires_grad_()
    out = stack(x)
    if not layer_norm and not plain_last and not residual:
        same_as_torchrec(stack, n_in, sizes, activation, x, out)
    dout = torch.randn_like(out).float().double()
    out.backward(dout)
    group.attrs.update(sizes=sizes, activation=activation, layer_norm=int(layer_norm), plain_last=int(plain_last), residual=int(residual))
    tensors = {"x": x, "out": out, "dout": dout, "dx": x.grad}
    for i, perceptron in enumerate(stack):
        for part, tensor in perceptron.parts():
            tensors.update({f"{i}/{part}": tensor, f"d{i}/{part}": tensor.grad})
    for name, tensor in tensors.items():
        group[name] = tensor.detach().float().numpy()


def main():
    torch.manual_seed(5)
    with h5py.File(sys.argv[1], "w") as file:
        file.attrs["torch"], file.attrs["torchrec"] = str(torch.__version__), str(torchrec.__version__)
        for i, case in enumerate(CASES):
            record(file.create_group(f"{i}_{case[2]}"), *case)


if __name__ == "__main__":
    main()
