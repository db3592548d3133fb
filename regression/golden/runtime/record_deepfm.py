#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record units_deepfm.h5: forward and backward passes of TorchRec's factorization machine and of
its DeepFM interaction.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2 numpy h5py
    DIR/bin/pip install --force-reinstall --no-deps fbgemm-gpu-cpu==1.9.0
    DIR/bin/python record_deepfm.py units_deepfm.h5

Each group is a case: x [B, N], the vectors of a sample side by side, the dense vector first; out
and its gradient dout; dx; and, for deepfm, the deep layers' weight and bias with their gradients.
Attributes: interaction, copied (width of the dense vector), vectors. All are computed in double,
then rounded to float.
"""
import torch
import torchrec
from torchrec.models.deepfm import FMInteractionArch
from torchrec.modules.deepfm import DeepFM, FactorizationMachine

from recording import BATCH, main, single, write

CASES = [("fm", 4, [4, 4, 4], []), ("fm", 0, [5, 5], []), ("fm", 0, [1], []), ("fm", 7, [3, 12, 1], []),
         ("deepfm", 8, [8, 8, 8], [5]), ("deepfm", 16, [16] * 26, [64]), ("deepfm", 0, [6, 6], [4]),
         ("deepfm", 5, [3, 9], [7, 6, 2])]


def record(group, kind, copied, dims, sizes):
    widths = ([copied] if copied else []) + dims
    vectors = [single(torch.randn(BATCH, w, dtype=torch.float64)).requires_grad_() for w in widths]
    layers = []
    for n_in, n_out in zip([sum(widths)] + sizes, sizes):
        layers += [torch.nn.Linear(n_in, n_out).double(), torch.nn.ReLU()]
        layers[-2].weight.data = single(layers[-2].weight.data)
        layers[-2].bias.data = single(layers[-2].bias.data)
    parts = [vectors[0]] if copied else []
    if sizes:
        parts.append(DeepFM(torch.nn.Sequential(*layers))(vectors))
    out = torch.cat(parts + [FactorizationMachine()(vectors)], dim=1)
    if copied and len(sizes) == 1:  # the whole arch gives the same
        names = [f"f{i}" for i in range(len(dims))]
        arch = FMInteractionArch(sum(widths), names, sizes[0]).double()
        arch.deep_fm.dense_module[0].load_state_dict(layers[0].state_dict())
        again = arch(vectors[0], torchrec.KeyedTensor(names, dims, torch.cat(vectors[1:], dim=1)))
        assert torch.equal(again, out)
    parameters = [(f"{part}{l}", parameter, parameter.shape) for l, layer in enumerate(layers[::2])
                  for part, parameter in (("weight", layer.weight), ("bias", layer.bias))]
    attributes = {"sizes": sizes} if sizes else {}
    write(group, torch.cat(vectors, dim=1), out, lambda: torch.cat([v.grad for v in vectors], dim=1), parameters, interaction=kind, copied=copied,
          vectors=len(widths), **attributes)


if __name__ == "__main__":
    main(11, CASES, record)
