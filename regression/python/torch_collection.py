#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A torchrec DLRM with our tables on all ranks, against the same DLRM with torchrec's unsharded
tables on one rank. Needs torch and torchrec.

    mpirun -n 2 PYTHON torch_collection.py      exit status 77: torchrec is missing
"""
import os
import sys

import numpy as np

try:
    import torch
    from torchrec import EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.models.dlrm import DLRM
    from torchrec.modules.embedding_modules import EmbeddingBagCollection
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
import trshard
import trshard.autograd

RANK, SIZE = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)), int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
ROWS, DIM, DENSE, STEPS, RATE = [100, 37, 512], 8, 5, 20, 0.1
NAMES = [f"f{i}" for i in range(len(ROWS))]


def model(tables):
    torch.manual_seed(1)
    return DLRM(tables, DENSE, [16, DIM], [16, 1])


def make_batch(step, samples):
    random = np.random.default_rng(step)
    lengths = random.integers(0, 4, (len(ROWS), samples), dtype=np.int32)
    values = [random.integers(0, ROWS[f], lengths[f].sum()) for f in range(len(ROWS))]
    return random.random((samples, DENSE), dtype=np.float32), lengths, values, random.integers(0, 2, samples).astype(np.float32)


def part(batch, begin, end):
    dense, lengths, values, labels = batch
    mine = []
    for f, ids in enumerate(values):
        offsets = np.concatenate([[0], np.cumsum(lengths[f])])
        mine.append(ids[offsets[begin]:offsets[end]])
    return dense[begin:end], np.ascontiguousarray(lengths[:, begin:end]), np.concatenate(mine), labels[begin:end]


def forward(dlrm, dense, pooled):
    embedded_dense = dlrm.dense_arch(torch.from_numpy(dense))
    return dlrm.over_arch(dlrm.inter_arch(embedded_dense, pooled)).squeeze(1)


def unsharded_tables():
    ebc = EmbeddingBagCollection(tables=[EmbeddingBagConfig(name=f"t{i}", embedding_dim=DIM, num_embeddings=rows, feature_names=[NAMES[i]])
                                         for i, rows in enumerate(ROWS)])
    return ebc


def compare():
    samples = 12 * SIZE
    options = f"-device cpu -embedding_optimizer adagrad -embedding_learning_rate {RATE} -embedding_eps 1e-10 -tables_sharding_types row_wise"
    with trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig(f"t{i}", rows, DIM, [NAMES[i]]) for i, rows in enumerate(ROWS)], 12, options) as ours:
        reference, mine = model(unsharded_tables()), model(unsharded_tables())
        embeddings = trshard.autograd.Module(ours)
        with torch.no_grad():  # the reference starts from our rows
            for i, rows in enumerate(ROWS):
                table = reference.sparse_arch.embedding_bag_collection.embedding_bags[f"t{i}"].weight
                for begin in range(0, rows, 12):
                    ids = np.arange(begin, min(begin + 12, rows))
                    lengths = np.zeros((len(ROWS), len(ids)), np.int32)
                    lengths[i] = 1
                    table[begin:begin + len(ids)] = torch.from_numpy(ours.evaluate(lengths, ids)[:, i * DIM:(i + 1) * DIM])
        theirs = torch.optim.Adagrad(reference.parameters(), lr=RATE)
        dense = [p for name, p in mine.named_parameters() if "embedding" not in name]
        own = torch.optim.Adagrad(dense, lr=RATE)
        loss_of = torch.nn.BCEWithLogitsLoss(reduction="sum")
        for step in range(STEPS):
            batch = make_batch(step, samples)
            x, lengths, values, labels = batch
            kjt = KeyedJaggedTensor(keys=NAMES, values=torch.from_numpy(np.concatenate(values)), lengths=torch.from_numpy(lengths.reshape(-1)))
            pooled = torch.cat([reference.sparse_arch.embedding_bag_collection(kjt)[name] for name in NAMES], 1)
            theirs.zero_grad()
            expected = loss_of(forward(reference, x, pooled.view(samples, len(ROWS), DIM)), torch.from_numpy(labels)) / samples
            expected.backward()
            theirs.step()
            x, lengths, values, labels = part(batch, RANK * 12, (RANK + 1) * 12)
            own.zero_grad()
            pooled = embeddings(lengths, values)
            found = loss_of(forward(mine, x, pooled.view(12, len(ROWS), DIM)), torch.from_numpy(labels)) / samples
            found.backward()
            total = found.detach().clone()
            if SIZE > 1:
                torch.distributed.all_reduce(total)
                for p in dense:
                    torch.distributed.all_reduce(p.grad)
            own.step()
            assert abs(total.item() - expected.item()) < 1e-5, (step, total.item(), expected.item())
    print(f"rank {RANK}: {STEPS} steps of DLRM agree, loss {total.item():.6f}, TorchRec {expected.item():.6f}")


def compare_sums():
    """The gradient of a sum is one number for the whole matrix. The collection gets the full
    matrix."""
    tables = [trshard.EmbeddingBagConfig(f"t{i}", rows, DIM, [NAMES[i]]) for i, rows in enumerate(ROWS)]
    _, lengths, values, _ = part(make_batch(0, 12 * SIZE), RANK * 12, (RANK + 1) * 12)
    with trshard.EmbeddingBagCollection(tables, 12, "-device cpu -seed 2") as one, trshard.EmbeddingBagCollection(tables, 12, "-device cpu -seed 2") as other:
        before = one.evaluate(lengths, values)
        trshard.autograd.Module(one)(lengths, values).sum().backward()
        other.backward(np.ones_like(other.forward(lengths, values)))
        after = one.evaluate(lengths, values)
        assert (after == other.evaluate(lengths, values)).all() and (after != before).any()


def check_order():
    """A forward pass has one backward pass, before the next forward pass. Refused calls change
    nothing."""
    one, ids = np.ones((1, 4), np.int32), lambda k: np.full(4, k)
    with trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig("u", 50, 4)], 4, "-device cpu -embedding_optimizer sgd -embedding_learning_rate 0") as ebc:
        embeddings = trshard.autograd.Module(ebc)
        with torch.no_grad():
            rows = [embeddings(one, ids(k)) for k in range(6)]
        for k in range(1, 5):
            pooled = embeddings(one, ids(k))
            assert (pooled.detach() == rows[k]).all(), k
            refused("backward", lambda: embeddings(one, ids(k + 1)))
            pooled.sum().backward(retain_graph=True)
            refused("one backward", pooled.sum().backward)
        later = embeddings(one, ids(5))
        # it would have updated the later batch's rows
        refused("one backward", pooled.sum().backward)
        later.sum().backward()


def refused(text, call):
    try:
        call()
    except RuntimeError as error:  # trshard.Error is one
        assert text in str(error), error
    else:
        raise AssertionError(f"not refused: {text}")


torch.set_num_threads(1)
if SIZE > 1:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    torch.distributed.init_process_group("gloo", rank=RANK, world_size=SIZE)
compare()
compare_sums()
check_order()
