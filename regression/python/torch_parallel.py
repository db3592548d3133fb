#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch models on 1, 2 and 3 ranks. The example has the same loss on any number of ranks, with
and without DistributedDataParallel. Two wrong ways are refused.

    torch_parallel.py "MPIRUN AND ITS OPTIONS" PYTHON      exit status 77: PYTHON has no torch
    mpirun -n 2 PYTHON torch_parallel.py alone|ddp         a wrong way
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLE = os.path.join(HERE, "..", "..", "tools", "examples", "train_torch.py")


def wrong_way(way):
    """Four steps with Tensor.backward(): the gradients of the dense layers are not summed (alone),
    or are divided (ddp)."""
    import numpy as np
    import torch
    import trshard
    import trshard.autograd
    torch.manual_seed(1)
    with trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig("u", 50, 4)], 8, "-seed 1") as ebc:
        embeddings = trshard.autograd.Module(ebc)
        rank, size = embeddings.ranks.rank, embeddings.ranks.size
        dense = torch.nn.Linear(4, 1)
        if way == "ddp":
            torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
            dense = torch.nn.parallel.DistributedDataParallel(dense)
        optimizer = torch.optim.SGD(dense.parameters(), lr=0.1)
        refused = ""
        try:
            for step in range(4):
                optimizer.zero_grad()
                out = dense(embeddings(np.ones((1, 8), np.int32), np.arange(8) + 8 * rank + step))
                (torch.nn.functional.softplus(out).sum() * (rank + 1) / (8 * size)).backward()
                optimizer.step()
        except RuntimeError as error:
            refused = str(error)
        wanted = {"alone": "weights of the dense layers differ", "ddp": "DistributedDataParallel divides"}[way]
        assert (wanted in refused and "trshard.torch.Parallel" in refused and step == 1) if size > 1 else not refused, (way, size, step, refused)


def run(launch, *words):
    done = subprocess.run([*launch, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def main(mpirun, python):
    if subprocess.run([python, "-c", "import torch, numpy"], stderr=subprocess.DEVNULL, check=False).returncode:
        print(f"skipped: {python} has no torch")
        return 77
    with tempfile.TemporaryDirectory(prefix="trshard_torch_") as folder:
        os.chdir(folder)
        expected = None
        for n, words in ((1, ()), (2, ()), (3, ()), (2, ("--ddp",)), (3, ("--ddp",))):
            text = run([*mpirun, "-n", str(n), python], EXAMPLE, "--steps", "100", *words)
            losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]
            print(n, words, losses, flush=True)
            expected = expected or losses
            assert len(losses) == 5 and losses[-1] < 0.1, losses
            assert all(abs(loss - other) <= 1e-4 + 2e-3 * other for loss, other in zip(losses, expected)), (losses, expected)
        for way in ("alone", "ddp"):
            for n in (1, 2, 3) if way == "alone" else (2,):
                run([*mpirun, "-n", str(n), python], os.path.abspath(os.path.join(HERE, "torch_parallel.py")), way)
    return 0


if len(sys.argv) == 2:
    wrong_way(sys.argv[1])
else:
    sys.exit(main(re.split("[; ]", sys.argv[1]), sys.argv[2]))
