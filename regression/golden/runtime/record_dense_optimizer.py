#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record units_dense_optimizer.h5: steps of torch's dense optimizers, clipped gradients, averages of weights and learning-rate schedules.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 numpy h5py
    DIR/bin/python record_dense_optimizer.py units_dense_optimizer.h5

An optimizer's group holds in/weight [n], in/grads [steps, n], in/first [tensors], the first element of each tensor, out/weight [steps, n], and
out/ema [n], torch's exponential average of the weights after each step, which is a copy of them after the first; the attribute options has trshard's options. A schedule's group holds out/factor [steps], with the attribute options likewise. All in double, from floats.
torch has no LAMB: `Lamb` below is algorithm 2 of You et al., Large Batch Optimization for Deep Learning (ICLR 2020), with phi the identity, written
from the paper; the ratio of a tensor whose weights or step are all zero is 1, as in the authors' code.
"""
import sys

import h5py
import numpy as np
import torch
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

TENSORS = (35, 7, 12, 1)
STEPS = 12
DECAY = 0.875


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                state["m"] = beta1 * state["m"] + (1 - beta1) * p.grad
                state["v"] = beta2 * state["v"] + (1 - beta2) * p.grad ** 2
                m, v = state["m"] / (1 - beta1 ** state["t"]), state["v"] / (1 - beta2 ** state["t"])
                update = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                weight_norm, update_norm = p.norm(), update.norm()
                ratio = weight_norm / update_norm if weight_norm > 0 and update_norm > 0 else 1.0
                p -= group["lr"] * ratio * update


O = torch.optim
OPTIMIZERS = {
    "adamw": (lambda p: O.AdamW(p, lr=0.01), {}, "-dense_optimizer adamw"),
    "adamw_numbers": (lambda p: O.AdamW(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3), {},
                      "-dense_optimizer adamw -dense_learning_rate 0.05 -dense_beta1 0.8 -dense_beta2 0.95 -dense_eps 1e-6 -dense_weight_decay 0.3"),
    "adamw_norm": (lambda p: O.AdamW(p, lr=0.01), {"norm": 1.5}, "-dense_optimizer adamw -dense_max_gradient_norm 1.5"),
    "adamw_value": (lambda p: O.AdamW(p, lr=0.01), {"value": 0.5}, "-dense_optimizer adamw -dense_max_gradient_value 0.5"),
    "lamb": (lambda p: Lamb(p, lr=0.01), {}, "-dense_optimizer lamb"),
    "lamb_decay": (lambda p: Lamb(p, lr=0.05, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1), {},
                   "-dense_optimizer lamb -dense_learning_rate 0.05 -dense_beta1 0.8 -dense_beta2 0.95 -dense_eps 1e-4 -dense_weight_decay 0.1"),
    "lamb_value": (lambda p: Lamb(p, lr=0.01), {"value": 0.25}, "-dense_optimizer lamb -dense_max_gradient_value 0.25"),
    "sgd_value": (lambda p: O.SGD(p, lr=0.1, weight_decay=0.1), {"value": 0.5},
                  "-dense_optimizer sgd -dense_learning_rate 0.1 -dense_weight_decay 0.1 -dense_max_gradient_value 0.5"),
    "adagrad_value": (lambda p: O.Adagrad(p, lr=0.1), {"value": 0.5}, "-dense_optimizer adagrad -dense_learning_rate 0.1 -dense_max_gradient_value 0.5"),
    "adam_value": (lambda p: O.Adam(p, lr=0.1, weight_decay=0.1), {"value": 0.5},
                   "-dense_optimizer adam -dense_learning_rate 0.1 -dense_weight_decay 0.1 -dense_max_gradient_value 0.5"),
}
SCHEDULES = {
    "restarts": ({"T_0": 10}, "-schedule_decay_steps 10 -schedule_values 0"),
    "restarts_longer": ({"T_0": 7, "T_mult": 2, "eta_min": 0.1}, "-schedule_decay_steps 7 -schedule_cycle_factors 2 -schedule_values 0.1"),
    "restarts_thrice": ({"T_0": 1, "T_mult": 3, "eta_min": 0.25}, "-schedule_decay_steps 1 -schedule_cycle_factors 3 -schedule_values 0.25"),
}


def record_optimizer(group, make, clip, options):
    weights = [torch.randn(n).double() for n in TENSORS]
    weights[2].zero_()  # such as new biases
    model = torch.nn.Module()
    model.params = torch.nn.ParameterList(w.clone() for w in weights)
    params = list(model.params)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    optimizer = make(params)
    grads = [[torch.randn(n).double() for n in TENSORS] for _ in range(STEPS)]
    found = []
    for step in grads:
        for p, g in zip(params, step):
            p.grad = g.clone()
        if "norm" in clip:
            torch.nn.utils.clip_grad_norm_(params, clip["norm"])
        if "value" in clip:
            torch.nn.utils.clip_grad_value_(params, clip["value"])
        optimizer.step()
        average.update_parameters(model)
        found.append(torch.cat([p.detach() for p in params]).numpy())
    group.attrs["options"] = f"{options} -ema_decay {DECAY}"
    group["out/ema"] = torch.cat([p.detach() for p in average.module.params]).float().numpy()
    group["in/weight"] = torch.cat(weights).float().numpy()
    group["in/grads"] = torch.stack([torch.cat(step) for step in grads]).float().numpy()
    group["in/first"] = np.cumsum((0,) + TENSORS[:-1])
    group["out/weight"] = np.stack(found).astype(np.float32)


def record_schedule(group, arguments, options):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = CosineAnnealingWarmRestarts(optimizer, **arguments)
    factors = []
    for _ in range(100):
        factors.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    group.attrs["options"] = f"-schedule_policies cosine_restarts -schedule_end_steps 1000 {options}"
    group["out/factor"] = np.array(factors)


def main():
    torch.manual_seed(16)
    with h5py.File(sys.argv[1], "w") as file:
        file.attrs["torch"] = str(torch.__version__)
        file.attrs["readme"] = __doc__
        for name, case in OPTIMIZERS.items():
            record_optimizer(file.create_group(f"optimizer_{name}"), *case)
        for name, case in SCHEDULES.items():
            record_schedule(file.create_group(f"schedule_{name}"), *case)


if __name__ == "__main__":
    main()
