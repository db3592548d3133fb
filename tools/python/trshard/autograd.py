# SPDX-License-Identifier: BSD-3-Clause
"""A collection as a part of a PyTorch model.

    ebc = trshard.EmbeddingBagCollection(...)
    embeddings = trshard.autograd.Module(ebc)
    pooled = embeddings(lengths, values)        # a tensor [batch, width]
    loss(model(pooled)).backward()              # updates the rows, too

The collection's own optimizer updates the rows in the backward, as in TorchRec's fused optimizers.

On several ranks, use trshard.torch.Parallel for the backward: it also sums the gradients of the dense layers. Without
it, the gradient that arrives here must be the gradient of the mean over all ranks' samples (the sum of the losses divided
by the global batch), and your program must sum the dense layers' gradients over the ranks. The module checks the result:
the weights that optimizers have updated must be the same on all ranks.

Each forward must have one backward before the next forward. torch.no_grad() gives embeddings without a backward.
"""
import gc
import weakref

import torch

try:
    from torch.optim.optimizer import register_optimizer_step_post_hook as call_after_steps
except ImportError:  # an older PyTorch
    call_after_steps = None

from . import ranks

_stepped = weakref.WeakSet()  # optimizers that have made a step
_watching = False


def _watch_optimizers():
    """Record every optimizer that makes a step."""
    global _watching
    if call_after_steps and not _watching:
        call_after_steps(lambda optimizer, *_: _stepped.add(optimizer))
        _watching = True


def _bytes(tensor):
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _distributed_models():
    """The models that DistributedDataParallel wraps."""
    kind = torch.nn.parallel.DistributedDataParallel
    return [found for found in gc.get_objects() if issubclass(type(found), kind)]


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, module, ids):
        pooled = torch.from_numpy(module.ebc.forward(*ids))
        ctx.module, ctx.forwarded = module, module.ebc._forwarded
        return pooled

    @staticmethod
    def backward(ctx, gradient):
        module = ctx.module
        if module.ebc._forwarded is not ctx.forwarded:
            raise RuntimeError("these embeddings had their backward, which updated the rows: a forward has one backward")
        gradient = gradient.detach().to(torch.float32)
        if module.scale != 1:
            gradient = gradient * module.scale
        if gradient.stride(1) != 1 or gradient.stride(0) < gradient.shape[1]:
            gradient = gradient.contiguous()  # such as the gradient of a sum; a part of a wider matrix is used in place
        module.ebc.backward(gradient.numpy())
        # An optimizer that torch applies in the backward must not see a gradient: the rows had their update.
        return None if hasattr(module.anchor, "_optimizer_classes") else torch.zeros(()), None, None


class Module(torch.nn.Module):
    """The collection's forward and backward. If input_dist() was called in advance, call it without ids.

    check_every: number of forwards between two checks that the ranks' dense weights are the same. The first check follows
    the first step of an optimizer. 0: no check.
    """

    def __init__(self, ebc, check_every=100):
        super().__init__()
        self.ebc = ebc
        self._begin(ebc._comm, check_every)

    def _begin(self, comm, check_every):
        self.anchor = torch.nn.Parameter(torch.zeros(()))  # autograd needs an input that requires a gradient
        self.scale = 1.0  # factor of the arriving gradients, for the rows; trshard.torch.Parallel sets it
        self.parallel = False  # True if trshard.torch.Parallel makes the backward
        self.ranks = ranks.Ranks(comm)
        self.check_every = check_every if self.ranks.size > 1 else 0
        self._forwards = 0
        if self.check_every:
            _watch_optimizers()

    def check(self):
        """Raise RuntimeError on all ranks if the weights that optimizers have updated differ between them. Collective."""
        if not self.parallel and self.ranks.sum([float(len(_distributed_models()))])[0]:
            raise RuntimeError("DistributedDataParallel divides the gradients of dense layers by the number of ranks, and those of the tables' rows "
                               "are not divided: make the backward with trshard.torch.Parallel(model, embeddings), which knows both")
        # Parts of a sharded model (FSDP) are tensors of other types, and differ between ranks.
        weights = {id(p): p for optimizer in _stepped for group in optimizer.param_groups for p in group["params"]
                   if type(p) is torch.nn.Parameter and p.requires_grad and p is not self.anchor}
        if not self.ranks.same(*sorted(_bytes(p).tobytes() for p in weights.values())):
            raise RuntimeError("the ranks' weights of the dense layers differ: the gradients of these layers were not summed over the ranks, or the "
                               "ranks began with different weights. trshard.torch.Parallel(model, embeddings) does both")

    def forward(self, lengths=None, values=None, weights=None):
        ids = [None if x is None else x.numpy() if isinstance(x, torch.Tensor) else x for x in (lengths, values, weights)]
        if torch.is_grad_enabled():
            if self.check_every and (self._forwards == 1 or (self._forwards and self._forwards % self.check_every == 0)):
                self.check()
            self._forwards += 1
            return _Pool.apply(self.anchor, self, ids)
        if lengths is None:
            raise ValueError("without gradients the ids must be given: what input_dist() sent is for a forward that has a backward")
        return torch.from_numpy(self.ebc.evaluate(*ids))
