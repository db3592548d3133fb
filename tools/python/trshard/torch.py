# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch models on several ranks, with tables of libtrshard.

    embeddings = trshard.torch.Module(ebc)              # as in trshard.autograd
    parallel = trshard.torch.Parallel(model, embeddings)
    optimizer = torch.optim.Adagrad(parallel.parameters(), lr=0.1)
    for lengths, values, dense, labels in batches:      # of this rank
        optimizer.zero_grad()
        losses = loss(model(dense, embeddings(lengths, values)), labels)    # reduction="none": a number for each sample
        mean = parallel.backward(losses)                # of all ranks' samples
        optimizer.step()

backward() makes the gradient of the mean over all ranks' samples, for tables and for dense layers, with any number of
samples per rank. If the model is wrapped in DistributedDataParallel, its average of gradients is taken into account.
Otherwise backward() sums the dense layers' gradients over the ranks itself. It uses torch.distributed if that is
initialised for the same ranks, else the library's MPI. A run then has the same loss on any number of ranks, up to rounding.

At the start all ranks get rank 0's weights and buffers. After every check_every steps (see Module) all ranks compare their
dense weights, and raise RuntimeError if they differ.
"""
import torch

from .autograd import Module

__all__ = ["Module", "Parallel"]


class Parallel:
    """The backward of a model on several ranks. embeddings: a Module, or a list of Modules; model: the dense layers, with
    or without these Modules inside.
    """

    def __init__(self, model, embeddings):
        self.embeddings = [embeddings] if isinstance(embeddings, Module) else list(embeddings)
        if not self.embeddings:
            raise ValueError("embeddings is empty, expected a Module or a list of them")
        self.model, self.ranks = model, self.embeddings[0].ranks
        self.distributed = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        if self.distributed and torch.distributed.get_world_size(model.process_group) != self.ranks.size:
            raise ValueError(f"the DistributedDataParallel model has {torch.distributed.get_world_size(model.process_group)} ranks, the tables have {self.ranks.size}")
        for module in self.embeddings:
            module.parallel = True
            module.scale = 1 / self.ranks.size if self.distributed else 1.0
        if not self.distributed:
            self._take_first_weights()

    def parameters(self):
        """The parameters of the dense layers, for their optimizer."""
        anchors = {id(module.anchor) for module in self.embeddings}
        return [p for p in self.model.parameters() if p.requires_grad and id(p) not in anchors]

    def _take_first_weights(self):
        if self.ranks.size == 1:
            return
        for tensor in [*self.model.parameters(), *self.model.buffers()]:
            if tensor.is_floating_point():
                with torch.no_grad():
                    tensor.copy_(self._sum(tensor.detach().double() if self.ranks.rank == 0 else torch.zeros_like(tensor, dtype=torch.float64)))

    def _sum(self, tensor):
        """The sum of a float32 or float64 tensor over the ranks."""
        if self.ranks.size == 1:
            return tensor
        if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() == self.ranks.size:
            nccl = torch.distributed.get_backend() == "nccl"
            total = tensor.cuda() if nccl else tensor.cpu().clone()
            torch.distributed.all_reduce(total)
        else:
            total = torch.from_numpy(self.ranks.sum(tensor.cpu().numpy()))
        return total.to(tensor.device)

    def backward(self, losses, count=None):
        """Make the gradients of the mean loss over all ranks' samples, and return this mean. Collective.

        losses: this rank's losses, one for each sample; count: the number of samples, or the sum of their weights, if it is not
        the number of losses. Gradients are added to the parameters' existing gradients, as with Tensor.backward().
        """
        total = self._sum(torch.tensor([float(losses.detach().sum(dtype=torch.float64)), float(losses.numel() if count is None else count)], dtype=torch.float64))
        if not total[1] > 0:
            raise ValueError(f"the samples of all ranks count {float(total[1])}, expected more than 0")
        loss = losses.sum() / float(total[1])
        if self.distributed:
            (loss * self.ranks.size).backward()  # DistributedDataParallel divides again, and so do the embeddings
        else:
            self._backward_and_sum(loss)
        return float(total[0] / total[1])

    def _backward_and_sum(self, loss):
        parameters = self.parameters()
        before = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None
        loss.backward()
        if self.ranks.size > 1 and parameters:
            # A parameter that has no gradient on any rank stays without; other parameters may have a gradient on some
            # ranks only.
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            flat = torch.cat([part.detach().reshape(-1).float() for part in parts] + [torch.tensor([float(p.grad is not None) for p in parameters], device=parts[0].device)])
            *sums, there = torch.split(self._sum(flat), [p.numel() for p in parameters] + [len(parameters)])
            for p, part, has in zip(parameters, sums, there):
                p.grad = part.view_as(p).to(p.dtype) if has else None
        for p, earlier in zip(parameters, before):
            if earlier is not None:
                p.grad = earlier if p.grad is None else earlier + p.grad
