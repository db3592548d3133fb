#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""trshard.torch.EmbeddingBagCollection in a model on 1, 2 and 3 ranks: equal losses on any number of
ranks, the weights' names, one checkpoint for both parts, and messages. With torchrec also
tools/examples/migrate_torchrec.py: the losses of TorchRec, and only three changed lines.

    torch_module.py model|torchrec "MPIRUN AND ITS OPTIONS" PYTHON      77: PYTHON has no torch, no torchrec
    mpirun -n 2 PYTHON torch_module.py FOLDER                           on each rank
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLE = os.path.join(HERE, "..", "..", "tools", "examples", "migrate_torchrec.py")
GLOBAL_BATCH = 24


def on_each_rank(folder):
    import numpy as np
    import torch
    import torch.distributed.optim
    import trshard
    import trshard.torch as tt

    class Net(torch.nn.Module):
        def __init__(self, ebc):
            super().__init__()
            self.ebc, self.over = ebc, torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

        def forward(self, features):
            pooled = self.ebc(features)
            assert pooled.keys() == ["u", "x"] and pooled.length_per_key() == [4, 8] and pooled["x"].shape[1] == 8 and pooled.to_dict()["u"].shape[1] == 4
            return self.over(pooled.values()).squeeze(1)

    def make(seed, choose=tt.apply_optimizer_in_backward, optimizer="Adagrad", batch_size=GLOBAL_BATCH):
        torch.manual_seed(seed)
        tables = [trshard.EmbeddingBagConfig("t0", 50, 4, ["u"]), trshard.EmbeddingBagConfig("t1", 40, 8, ["x"], pooling="mean")]
        net = Net(tt.EmbeddingBagCollection(tables, device=torch.device("meta"), batch_size=batch_size, seed=seed))
        choose(getattr(torch.optim, optimizer), net.ebc.parameters(), {"lr": 0.1})
        parallel = tt.Parallel(net, net.ebc)
        return net, parallel, torch.optim.Adam(parallel.parameters(), lr=0.01)

    def batch(step, ranks):
        random = np.random.default_rng(step)
        lengths, mine = random.integers(0, 3, (2, GLOBAL_BATCH)), range(GLOBAL_BATCH * ranks.rank // ranks.size, GLOBAL_BATCH * (ranks.rank + 1) // ranks.size)
        ids = [[random.integers(0, 40, n) for n in row] for row in lengths]
        values = np.concatenate([ids[f][s] for f in range(2) for s in mine])
        labels = torch.tensor([float(s % 2) for s in mine])
        # the keys are in another order than the tables' features
        return tt.KeyedJaggedTensor.from_lengths_sync(["x", "u"], torch.from_numpy(values), torch.from_numpy(lengths[:, list(mine)].reshape(-1))), labels

    def steps(made, first, last):
        net, parallel, optimizer = made
        found = []
        for step in range(first, last):
            features, labels = batch(step, parallel.ranks)
            optimizer.zero_grad()
            found.append(parallel.backward(torch.nn.functional.binary_cross_entropy_with_logits(net(features), labels, reduction="none")))
            optimizer.step()
        return found

    one = make(3, batch_size=None)
    losses = steps(one, 0, 5)
    one[1].save(f"{folder}/model.h5", one[2])
    state = {name: tensor.clone() for name, tensor in one[0].state_dict().items()}
    assert list(state) == ["ebc.embedding_bags.t0.weight", "ebc.embedding_bags.t1.weight", "over.0.weight", "over.0.bias", "over.2.weight", "over.2.bias"], list(state)
    after = steps(one, 5, 9)
    # from the checkpoint: the same bits, also if this model began with other weights
    two = make(4)
    two[1].load(f"{folder}/model.h5", two[2])
    assert all(torch.equal(a, b) for a, b in zip(state.values(), two[0].state_dict().values()))
    assert steps(two, 5, 9) == after
    # torch's own way to choose the optimizer, and weights alone
    three = make(4, choose=torch.distributed.optim._apply_optimizer_in_backward)
    three[0].load_state_dict(state)
    with torch.no_grad():
        features, _ = batch(5, three[1].ranks)
        two[0].load_state_dict(state)
        assert torch.equal(three[0](features), two[0](features))
    assert all(torch.equal(a, b) for a, b in zip(state.values(), three[0].state_dict().values()))
    four = make(3, choose=torch.distributed.optim._apply_optimizer_in_backward)
    assert steps(four, 0, 5) == losses
    assert steps(make(3, optimizer="SGD"), 0, 5) != losses  # the choice has an effect

    def refused(call, error, text):
        try:
            call()
        except error as found:
            assert text in str(found), (text, found)
        else:
            raise AssertionError(f"no error, expected {text!r}")

    refused(lambda: tt.apply_optimizer_in_backward(torch.optim.RMSprop, four[0].parameters(), {}), ValueError, "RMSprop cannot")
    refused(lambda: tt.apply_optimizer_in_backward(torch.optim.SGD, four[0].parameters(), {"lr": 1, "nesterov": True}), ValueError, "no number nesterov")
    refused(lambda: tt.apply_optimizer_in_backward(torch.optim.SGD, four[0].over.parameters(), {}), ValueError, "no parameter of")
    refused(lambda: tt.apply_optimizer_in_backward(torch.optim.SGD, four[0].parameters(), {}), RuntimeError, "before the first batch")
    refused(lambda: tt.EmbeddingBagCollection([trshard.EmbeddingBagConfig("a", 5, 4)], device="cuda"), ValueError, "expected cpu or meta")
    refused(lambda: four[0](tt.KeyedJaggedTensor(["x"], torch.zeros(1, dtype=torch.int64), None, torch.ones(1, dtype=torch.int32))), KeyError, "no feature 'u'")
    refused(lambda: four[0].load_state_dict({name: tensor[:3] for name, tensor in state.items()}), RuntimeError, "has shape (3, 4)")
    refused(lambda: four[0].load_state_dict({name: tensor for name, tensor in state.items() if "t1" not in name}), RuntimeError, "ebc.embedding_bags.t1.weight")
    # first values of a table's own function, as TorchRec's configurations have it
    config = type("Config", (), {"name": "c", "num_embeddings": 6, "embedding_dim": 4, "feature_names": ["c"], "pooling": "SUM", "data_type": "FP32",
                                 "init_fn": staticmethod(lambda weight: weight.copy_(torch.arange(24.).view(6, 4)))})()
    refused(lambda: tt.EmbeddingBagCollection([config]).state_dict(), ValueError, "needs batch_size")
    own = tt.EmbeddingBagCollection([config], batch_size=4)
    assert torch.equal(own.state_dict()["embedding_bags.c.weight"], torch.arange(24.).view(6, 4))
    if one[1].ranks.rank == 0:
        print("losses", *losses, *after)


def run(launch, *words):
    done = subprocess.run([*launch, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def equal(one, other, tolerance):
    assert len(one) == len(other) > 2 and all(abs(a - b) <= tolerance * abs(a) for a, b in zip(one, other)), (one, other)


def model(mpirun, python):
    expected = None
    for n in (1, 2, 3):
        losses = [float(word) for word in run([*mpirun, "-n", str(n), python], os.path.abspath(__file__), os.getcwd()).split()[1:]]
        print(n, losses, flush=True)
        expected = expected or losses
        equal(expected, losses, 1e-5)


def migration(mpirun, python):
    with open(EXAMPLE, encoding="utf-8") as file:
        text = file.read()
    torchrec, changed = re.subn(r"^( *)[^ #].*  # TorchRec: (.*)$", r"\1\2", text, flags=re.MULTILINE)
    assert changed == 3, changed
    with open("torchrec_alone.py", "w", encoding="utf-8") as file:
        file.write(torchrec)
    losses = lambda printed: [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)]
    expected = losses(run([python], "torchrec_alone.py", "60"))
    for n in (1, 3):
        found = losses(run([*mpirun, "-n", str(n), python], EXAMPLE, "60"))
        print(n, found, expected, flush=True)
        equal(expected, found, 5e-6)


def main(form, mpirun, python):
    needed = "torch, numpy" if form == "model" else "torchrec, numpy"
    if subprocess.run([python, "-c", f"import {needed}"], stderr=subprocess.DEVNULL, check=False).returncode:
        print(f"skipped: {python} has not all of {needed}")
        return 77
    with tempfile.TemporaryDirectory(prefix="trshard_torch_") as folder:
        os.chdir(folder)
        (model if form == "model" else migration)(re.split("[; ]", mpirun), python)
    return 0


if len(sys.argv) == 2:
    on_each_rank(sys.argv[1])
else:
    sys.exit(main(*sys.argv[1:]))
