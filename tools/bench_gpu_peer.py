#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A DLRM or DCN-v2 in plain PyTorch on one device: the peer's side of tools/bench_gpu.sh. Prints samples/s.

All tables are one EmbeddingBag, which is torch's fastest form, with sparse gradients and Adagrad. Dense layers use SGD. Batches are made in
advance and copied from pinned memory. The number is the median over windows of steps. Needs python3 with torch.
"""
import argparse
import statistics
import time

import torch
from torch import nn


def mlp(sizes, last_relu):
    layers = []
    for i, (n_in, n_out) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(n_in, n_out))
        if last_relu or i + 2 < len(sizes):
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class Cross(nn.Module):
    """x_{l+1} = x_0 * (W (V x_l) + b) + x_l"""

    def __init__(self, n, layers=3, rank=512):
        super().__init__()
        self.v = nn.ModuleList(nn.Linear(n, rank, bias=False) for _ in range(layers))
        self.w = nn.ModuleList(nn.Linear(rank, n) for _ in range(layers))

    def forward(self, x0):
        x = x0
        for v, w in zip(self.v, self.w):
            x = x0 * w(v(x)) + x
        return x


class Model(nn.Module):
    def __init__(self, args):
        super().__init__()
        n = 1 + args.tables
        self.dim, self.tables = args.dim, args.tables
        self.rows = nn.EmbeddingBag(args.tables * args.rows, args.dim, mode="sum", sparse=True)
        self.dense = mlp([args.num_dense, 512, 256, args.dim], True)
        self.cross = Cross(n * args.dim) if args.model == "DCN" else None
        self.register_buffer("pairs", torch.triu_indices(n, n, 1), persistent=False)
        self.over = mlp([n * args.dim if self.cross else args.dim + n * (n - 1) // 2, 1024, 1024, 512, 256, 1], False)

    def forward(self, dense, ids):
        x = self.dense(dense)
        vectors = torch.cat([x.unsqueeze(1), self.rows(ids.view(-1, 1)).view(-1, self.tables, self.dim)], 1)
        if self.cross:
            return self.over(self.cross(vectors.flatten(1))).squeeze(1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.over(torch.cat([x, products], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", choices=["DLRM", "DCN"], default="DLRM")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32", help="of the dense layers' products; bf16: torch.autocast")
    for name, value in (("tables", 26), ("rows", 1000000), ("dim", 128), ("batch", 8192), ("num-dense", 13), ("windows", 5), ("steps", 20), ("batches", 4)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    pinned = args.device == "cuda"
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high" if args.precision == "tf32" else "highest")
    with torch.device(args.device):
        model = Model(args)
    tables = torch.optim.Adagrad(model.rows.parameters(), lr=0.01)
    others = torch.optim.SGD([p for name, p in model.named_parameters() if not name.startswith("rows.")], lr=0.01)
    first = torch.arange(args.tables) * args.rows
    batches = [(torch.rand(args.batch, args.num_dense), torch.randint(args.rows, (args.batch, args.tables)) + first, torch.randint(2, (args.batch,)).float())
               for _ in range(args.batches)]
    batches = [tuple(tensor.pin_memory() if pinned else tensor for tensor in batch) for batch in batches]

    def step(i):
        dense, ids, labels = (tensor.to(args.device, non_blocking=True) for tensor in batches[i % args.batches])
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            logits = model(dense, ids)
        loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)
        tables.zero_grad(set_to_none=True)
        others.zero_grad(set_to_none=True)
        loss.backward()
        tables.step()
        others.step()

    def window(n):
        if pinned:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(n):
            step(i)
        if pinned:
            torch.cuda.synchronize()
        return n * args.batch / (time.perf_counter() - start)

    window(max(args.steps // 2, 1))
    print(f"{statistics.median(window(args.steps) for _ in range(args.windows)):.6g}")


if __name__ == "__main__":
    main()
