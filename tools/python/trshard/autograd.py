# SPDX-License-Identifier: BSD-3-Clause
"""A collection as a part of a PyTorch model.

    ebc = trshard.EmbeddingBagCollection(...)
    embeddings = trshard.autograd.Module(ebc)
    pooled = embeddings(lengths, values)        # a tensor [batch, width]
    loss(model(pooled)).backward()              # updates the rows, too

The rows are updated in the backward by the collection's own optimizer, as in TorchRec's fused optimizers. The gradient
that arrives must be that of the loss of all ranks' samples: divide the sum of the losses by the global batch size.

Each forward has one backward, which comes before the next forward. torch.no_grad() gives embeddings without one.
"""
import torch


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, ebc, ids):
        pooled = torch.from_numpy(ebc.forward(*ids))
        ctx.ebc, ctx.forwarded = ebc, ebc._forwarded
        return pooled

    @staticmethod
    def backward(ctx, gradient):
        if ctx.ebc._forwarded is not ctx.forwarded:
            raise RuntimeError("these embeddings had their backward, which updated the rows: a forward has one backward")
        gradient = gradient.detach().to(torch.float32)
        if gradient.stride(1) != 1 or gradient.stride(0) < gradient.shape[1]:
            gradient = gradient.contiguous()  # such as that of a sum; a part of a wider matrix is taken where it is
        ctx.ebc.backward(gradient.numpy())
        return torch.zeros(()), None, None


class Module(torch.nn.Module):
    """The collection's forward and backward. With input_dist() called ahead, call it without ids."""

    def __init__(self, ebc):
        super().__init__()
        self.ebc = ebc
        self.anchor = torch.nn.Parameter(torch.zeros(()))  # autograd needs an input that wants a gradient

    def forward(self, lengths=None, values=None, weights=None):
        ids = [None if x is None else x.numpy() if isinstance(x, torch.Tensor) else x for x in (lengths, values, weights)]
        if torch.is_grad_enabled():
            return _Pool.apply(self.anchor, self.ebc, ids)
        if lengths is None:
            raise ValueError("without gradients the ids must be given: what input_dist() sent is for a forward that has a backward")
        return torch.from_numpy(self.ebc.evaluate(*ids))
