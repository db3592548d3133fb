# SPDX-License-Identifier: BSD-3-Clause
"""Initial weights: each init_fn has torch's distribution, and its bits do not depend on ranks or
plan."""
import math
import os

import numpy as np

from trsrun import check, check_same_tensors, run, tensors, thin, thinned, write_dataset

ROWS, DIM = 3000, 8
MODEL = (f"-data_train train.h5 -steps 1 -tables_num_embeddings {ROWS} -tables_embedding_dim {DIM} -tables_min_partition 4 -dense_arch 8 -over_arch 8,1 "
         # weights keep their initial values
         "-interaction cat -embedding_optimizer sgd -embedding_learning_rate 0 -dense_learning_rate 0 -seed 5")


def normal(std, mean=0.0):
    return "normal", mean, std


def uniform(low, high):
    return "uniform", low, high


# table -> options and distribution, from torch.nn.init's documentation: fan_in is the number of
# columns, fan_out the number of rows
FANS = math.sqrt(2 / (ROWS + DIM))
LAWS = {
    "default": ("", uniform(-1 / math.sqrt(ROWS), 1 / math.sqrt(ROWS))),
    "bounds": ("init_fn=uniform init_min=-0.25 init_max=1", uniform(-0.25, 1)),
    "plain": ("init_fn=normal", normal(1)),
    "normal": ("init_fn=normal init_mean=0.5 init_std=0.25", normal(0.25, 0.5)),
    "xu": ("init_fn=xavier_uniform", uniform(-math.sqrt(3) * FANS, math.sqrt(3) * FANS)),
    "xn": ("init_fn=xavier_normal init_gain=1.5", normal(1.5 * FANS)),
    "ku": ("init_fn=kaiming_uniform init_a=2", uniform(-math.sqrt(6 / 5 / DIM), math.sqrt(6 / 5 / DIM))),
    "kn": ("init_fn=kaiming_normal init_mode=fan_out init_nonlinearity=relu", normal(math.sqrt(2 / ROWS))),
    "tanh": ("init_fn=kaiming_normal init_nonlinearity=tanh", normal(5 / 3 / math.sqrt(DIM))),
}
FEATURES = {name: 50 for name in [*LAWS, "constant"]}


def distance(x, law):
    """The Kolmogorov-Smirnov distance: the largest difference of the sample's distribution from the
    law."""
    kind, a, b = law
    x = np.sort(x.ravel().astype(np.float64))
    wanted = np.clip((x - a) / (b - a), 0, 1) if kind == "uniform" else np.array([(1 + math.erf((v - a) / (b * math.sqrt(2)))) / 2 for v in x])
    places = np.arange(len(x) + 1) / len(x)
    return max(np.max(places[1:] - wanted), np.max(wanted - places[:-1]))


def check_law(x, law, what):
    kind, a, b = law
    n = x.size
    mean, variance = ((a + b) / 2, (b - a) ** 2 / 12) if kind == "uniform" else (a, b * b)
    fourth = 1.8 if kind == "uniform" else 3  # fourth moment of the standardised law
    x = x.astype(np.float64)
    # five standard errors
    check(abs(x.mean() - mean) < 5 * math.sqrt(variance / n), f"{what}: mean {x.mean()}, not {mean}")
    check(abs(x.var() / variance - 1) < 5 * math.sqrt((fourth - 1) / n), f"{what}: variance {x.var()}, not {variance}")
    # happens by chance in one of a thousand seeds
    check(distance(x, law) < 1.95 / math.sqrt(n), f"{what}: distance {distance(x, law)}")
    if kind == "uniform":
        check(np.float32(a) <= x.min() and x.max() <= np.float32(b), f"{what}: {x.min()} to {x.max()} leaves [{a}, {b}]")


@thinned
def test_init_functions(binary, folder):
    """Mean, variance, bounds and distance agree with the closed form. The bits are the same on 1 to
    4 ranks for any cut of the tables."""
    write_dataset(os.path.join(folder, "train.h5"), 48, features=FEATURES)
    options = "".join(f" -table_{name}_{word.replace('=', ' ')}" for name, (words, _) in LAWS.items() for word in words.split())
    options += " -table_constant_init_fn constant -table_constant_init_value -0.375"
    plans = [(1, "table_wise"), (2, "column_wise"), (3, "row_wise"), (4, "grid_shard -topology_local_world_size 2"), (4, "data_parallel"), (2, "row_wise")]
    first = None
    for ranks, plan in thin(plans, plans[:4]):
        name = f"{ranks}{plan.split()[0]}.h5"
        run(binary, ranks, f"{MODEL} -batch_size {24 // ranks} {options} -tables_sharding_types {plan} -checkpoint_final {name}", folder)
        if first:
            check_same_tensors(os.path.join(folder, name), first, f"{plan} on {ranks} ranks")
        first = first or os.path.join(folder, name)
    state = tensors(first)
    for name, (_, law) in LAWS.items():
        check_law(state[f"embedding/{name}/weight"], law, name)
    check(np.all(state["embedding/constant/weight"] == np.float32(-0.375)), "constant is not constant")


def test_init_half(binary, folder):
    """A table of 16 bits has the numbers of the fp32 table, rounded to nearest."""
    write_dataset(os.path.join(folder, "train.h5"), 48, features={"t": 50})
    found = {}
    for data_type in ("fp32", "fp16"):
        run(binary, 2, f"{MODEL} -batch_size 12 -tables_init_fn normal -tables_data_type {data_type} -tables_sharding_types row_wise "
            f"-checkpoint_final {data_type}.h5", folder)
        found[data_type] = tensors(os.path.join(folder, f"{data_type}.h5"))["embedding/t/weight"]
    check(np.array_equal(found["fp32"].astype(np.float16), found["fp16"].astype(np.float16)), "fp16 is not fp32, rounded")
