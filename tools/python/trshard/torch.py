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

EmbeddingBagCollection has the signature of TorchRec's class: it takes TorchRec's configurations and KeyedJaggedTensors, returns
KeyedTensors, and its weights have TorchRec's names in state_dict(). apply_optimizer_in_backward() chooses its optimizer.
parallel.save() and parallel.load() write and read one checkpoint of the tables, the dense layers and their optimizers.
"""
import sys

import numpy as np
import torch

import trshard

from .autograd import Module

__all__ = ["EmbeddingBagCollection", "KeyedJaggedTensor", "KeyedTensor", "Module", "Parallel", "apply_optimizer_in_backward"]
# Classes of torch.optim and torchrec.optim, and options of the same meaning.
OPTIMIZERS = {"SGD": "sgd", "Adagrad": "adagrad", "RowWiseAdagrad": "rowwise_adagrad", "Adam": "adam", "PartialRowWiseAdam": "partial_rowwise_adam",
              "LAMB": "lamb", "PartialRowWiseLAMB": "partial_rowwise_lamb", "LarsSGD": "lars_sgd", "Lion": "lion", "Shampoo": "shampoo"}
NUMBERS = {"lr": "learning_rate", "eps": "eps", "beta1": "beta1", "beta2": "beta2", "weight_decay": "weight_decay", "momentum": "momentum", "eta": "eta"}


class KeyedJaggedTensor:
    """Ids of several features: all ids of the first key, then of the next (TorchRec's KeyedJaggedTensor, as far as a collection needs it).

    lengths: [keys * batch] or [keys, batch], the number of ids of each sample; weights: one for each id.
    """

    def __init__(self, keys, values, weights=None, lengths=None):
        self._keys, self._values, self._weights, self._lengths = list(keys), values, weights, lengths

    @classmethod
    def from_lengths_sync(cls, keys, values, lengths, weights=None):
        return cls(keys, values, weights, lengths)

    def keys(self):
        return self._keys

    def values(self):
        return self._values

    def lengths(self):
        return self._lengths.reshape(-1)

    def weights_or_none(self):
        return self._weights

    def stride(self):
        return self._lengths.numel() // max(1, len(self._keys))


class KeyedTensor:
    """The pooled embeddings [batch, width], with columns for each feature (TorchRec's KeyedTensor, as far as a model needs it)."""

    def __init__(self, keys, length_per_key, values, key_dim=1):
        self._keys, self._lengths, self._values = list(keys), list(length_per_key), values

    def keys(self):
        return self._keys

    def values(self):
        return self._values

    def length_per_key(self):
        return self._lengths

    def to_dict(self):
        return dict(zip(self._keys, self._values.split(self._lengths, dim=1)))

    def __getitem__(self, key):
        return self.to_dict()[key]


def apply_optimizer_in_backward(optimizer_class, params, optimizer_kwargs):
    """Choose the optimizer that updates the rows in the backward, before the first batch. The functions of this name in torchrec.optim and
    torch.distributed.optim do the same.

    optimizer_class: a class of torch.optim or torchrec.optim, or its name; params: parameters() of a module with an
    EmbeddingBagCollection, whose other parameters are not concerned; optimizer_kwargs: lr, eps, betas, weight_decay, momentum, eta.
    """
    options = _optimizer_options(optimizer_class, optimizer_kwargs)
    collections = [p._trshard_collection for p in params if hasattr(p, "_trshard_collection")]
    if not collections:
        raise ValueError("params has no parameter of a trshard.torch.EmbeddingBagCollection")
    for collection in collections:
        collection._choose(options)


def _optimizer_options(optimizer_class, numbers):
    name = optimizer_class if isinstance(optimizer_class, str) else optimizer_class.__name__
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer {name} cannot update rows in the backward, expected one of {', '.join(OPTIMIZERS)}")
    given = dict(numbers)
    if "betas" in given:
        given["beta1"], given["beta2"] = given.pop("betas")
    unknown = sorted(set(given) - set(NUMBERS))
    if unknown:
        raise ValueError(f"optimizer {name} has no number {', '.join(unknown)} here, expected some of {', '.join(NUMBERS)} and betas")
    return {"embedding_optimizer": OPTIMIZERS[name], **{f"embedding_{NUMBERS[key]}": value for key, value in given.items()}}


def _word(value):
    """The word of a TorchRec enumeration such as PoolingType.SUM, or of a text."""
    return str(getattr(value, "value", value)).lower()


class EmbeddingBagCollection(Module):
    """TorchRec's EmbeddingBagCollection, whose tables a plan distributes over the ranks.

    tables: trshard.EmbeddingBagConfig or torchrec's. An init_fn other than torchrec's default makes a table's first values on rank 0; without
    one, -tables_init_fn chooses them. is_weighted: ids have weights; device: None, cpu or meta; batch_size: samples of a rank's largest batch, by default of the first batch
    on any rank, which must then come before weights are read or set; options, more: trshard's options. The tables are made at the first use, which is collective.
    """

    def __init__(self, tables, is_weighted=False, device=None, *, batch_size=None, options=None, comm=None, check_every=100, **more):
        torch.nn.Module.__init__(self)
        if device is not None and torch.device(device).type not in ("cpu", "meta"):
            raise ValueError(f"device is {device}, expected cpu or meta: the module's embeddings are in the host's memory")
        self._tables, self._is_weighted = list(tables), bool(is_weighted)
        self._configs = [trshard.EmbeddingBagConfig(table.name, table.num_embeddings, table.embedding_dim, list(table.feature_names or [table.name]), _word(table.pooling),
                                                    self._is_weighted or bool(getattr(table, "weighted", False))) for table in self._tables]
        self._batch_size, self._options, self._more, self._comm = batch_size, options, dict(more), comm
        for table in self._tables:
            if getattr(table, "data_type", None) is not None:
                self._more.setdefault(f"table_{table.name}_data_type", _word(table.data_type))
        self.ebc = None
        self._begin(trshard._communicator(comm), check_every)
        self.anchor._trshard_collection = self

    def _choose(self, options):
        if self.ebc is not None:
            raise RuntimeError("the tables have their optimizer already: choose it before the first batch, and before weights are read or set")
        self._more.update(options)

    def collection(self, batch=None):
        """The trshard.EmbeddingBagCollection, which is made if this is the first use. Collective."""
        if self.ebc is None:
            if batch is None and self._batch_size is None:
                raise ValueError("weights are read or set before the first batch, whose size is not known yet: the EmbeddingBagCollection needs batch_size, the "
                                 "samples of a rank's largest batch")
            if getattr(self.anchor, "_optimizer_classes", None):
                self._more.update(_optimizer_options(self.anchor._optimizer_classes[-1], self.anchor._optimizer_kwargs[-1]))
            largest = self._batch_size or int(self.ranks.gather(np.array([float(batch)])).max())
            self.ebc = trshard.EmbeddingBagCollection(self._configs, max(1, largest), self._options, self._comm, **self._more)
            for table in self._tables:
                self._initialise(table)
        return self.ebc

    def _initialise(self, table):
        """Call a table's own init_fn."""
        call = getattr(table, "init_fn", None)
        if call is None or getattr(call, "func", None) is torch.nn.init.uniform_:
            return
        rows = None
        if self.ranks.rank == 0:
            weight = torch.empty(table.num_embeddings, table.embedding_dim)
            with torch.no_grad():
                call(weight)
            rows = weight.numpy()
        self.ebc.set_table(table.name, self.ranks.broadcast(rows))

    def embedding_bag_configs(self):
        return self._tables

    def is_weighted(self):
        return self._is_weighted

    def _ids(self, features):
        """The ids in the order of the tables' features."""
        keys, lengths, values, weights = list(features.keys()), features.lengths(), features.values(), features.weights_or_none()
        lengths = lengths.detach().cpu().numpy().reshape(len(keys), -1)
        values = values.detach().cpu().numpy()
        weights = weights.detach().cpu().numpy() if weights is not None and self._is_weighted else None
        wanted = self.ebc.feature_names
        if keys != wanted:
            missing = [name for name in wanted if name not in keys]
            if missing:
                raise KeyError(f"the batch has no feature {missing[0]!r}, expected {', '.join(wanted)}")
            order, ends = [keys.index(name) for name in wanted], np.cumsum(lengths.sum(1))[:-1]
            values = np.concatenate([part for parts in [np.split(values, ends)] for part in (parts[k] for k in order)])
            if weights is not None:
                weights = np.concatenate([part for parts in [np.split(weights, ends)] for part in (parts[k] for k in order)])
            lengths = lengths[order]
        return lengths, values, weights

    def forward(self, features):
        """The pooled embeddings of a KeyedJaggedTensor (TorchRec's or this module's), as a KeyedTensor of the same kind. Collective."""
        self.collection(features.stride())
        names = self.ebc.feature_names
        widths = [self.ebc.columns[name].stop - self.ebc.columns[name].start for name in names]
        kind = KeyedTensor
        if type(features).__module__.startswith("torchrec"):
            kind = sys.modules["torchrec.sparse.jagged_tensor"].KeyedTensor
        return kind(names, widths, super().forward(*self._ids(features)), key_dim=1)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, rows in self.collection().state_dict(prefix).items():
            destination[name] = torch.from_numpy(rows)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        names = [f"{prefix}embedding_bags.{config.name}.weight" for config in self._configs]
        found = {name: state_dict[name].detach().cpu().float().numpy() for name in names if name in state_dict}
        missing_keys.extend(name for name in names if name not in found)
        unexpected_keys.extend(name for name in state_dict if strict and name.startswith(prefix) and name not in names)
        try:
            self.collection().load_state_dict(found, strict=False, prefix=prefix)
        except ValueError as error:
            error_msgs.append(str(error))

    def extra_repr(self):
        return "not made yet" if self.ebc is None else repr(self.ebc)


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

    def _tensors(self, optimizer):
        """The dense tensors of a checkpoint by name: parameters, buffers and the optimizer's states."""
        anchors = {id(module.anchor) for module in self.embeddings}
        model = self.model.module if self.distributed else self.model
        named = {name: tensor for name, tensor in [*model.named_parameters(), *model.named_buffers()] if id(tensor) not in anchors}
        if optimizer is None:
            return named
        of = {id(tensor): name for name, tensor in named.items()}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                for state, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, torch.Tensor):
                        named[f"optimizer/{of[id(parameter)]}/{state}"] = value
        return named

    @staticmethod
    def _array(name, tensor):
        """A tensor as a float32 array of 1 or 2 dimensions."""
        array = tensor.detach().cpu().to(torch.float32).reshape(tensor.shape[0] if tensor.dim() > 1 else -1, *([-1] if tensor.dim() > 1 else [])).contiguous()
        if not torch.equal(array.reshape(-1).to(tensor.dtype), tensor.detach().cpu().reshape(-1)):
            raise ValueError(f"{name} is {tensor.dtype} with numbers that are not float32, which checkpoints have")
        return array.numpy().copy()

    def _one_collection(self):
        if len(self.embeddings) != 1:
            raise ValueError(f"the model has {len(self.embeddings)} collections of tables, expected one: save() and load() of each collection write the others")
        module = self.embeddings[0]
        return module.collection() if isinstance(module, EmbeddingBagCollection) else module.ebc

    def save(self, path, optimizer=None):
        """Write the tables with their optimizer's states, the dense layers, and the states of their optimizer to one checkpoint. Collective."""
        tensors = self._tensors(optimizer)
        self._one_collection().save(path, **{name: self._array(name, tensor) for name, tensor in tensors.items()})

    def load(self, path, optimizer=None):
        """Continue from a checkpoint of save(), of any plan and number of ranks. Collective."""
        if optimizer is not None and not all(optimizer.state.get(p) for group in optimizer.param_groups for p in group["params"]):
            before = [(p, p.grad, p.detach().clone()) for p in self.parameters()]
            for p, _, _ in before:
                p.grad = torch.zeros_like(p)
            optimizer.step()  # some optimizers make their states in their first step
            for p, grad, value in before:
                p.grad = grad
                with torch.no_grad():
                    p.copy_(value)
        tensors = self._tensors(optimizer)
        arrays = {name: self._array(name, tensor) for name, tensor in tensors.items()}
        self._one_collection().load(path, **arrays)
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(torch.from_numpy(arrays[name]).reshape(tensor.shape))

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
