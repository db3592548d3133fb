# SPDX-License-Identifier: BSD-3-Clause
"""With -reproducible, losses and weights are the same bits for every plan and every number of ranks at the same global batch."""
import os
import random

import numpy as np

from trsrun import check, check_same_tensors, choices, losses, optimizers, run, same_bits, thin, thinned, write_dataset

TYPES = ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard")
ROWS = {"user": 50, "item": 3, "tag": 20, "word": 40}  # item: fewer rows than ranks


def draw_model(binary, rng):
    """Options of a random model, which all its runs share; and its sequence tables."""
    sequences = set()
    interaction = rng.choice(choices(binary, "-interaction"))
    dim = rng.choice((4, 8, 12))
    words = [f"-tables_embedding_dim {dim} -dense_arch 16,{dim} -over_arch 17,9,1 -interaction {interaction} -dcn_low_rank_dim 5 -projection_arch1 24 -projection_arch2 48",
             f"-embedding_optimizer {rng.choice(optimizers(binary))} -dense_optimizer {rng.choice(choices(binary, '-dense_optimizer'))}",
             f"-seed {rng.randrange(1000)} -epochs 2 -data_shuffle {rng.choice(('true', 'false'))} -tables_min_partition 4"]
    for table in ROWS:
        kind = rng.choice(("sum", "mean", "none", "weighted"))
        if kind == "none":
            sequences.add(table)
        words.append(f"-table_{table}_is_weighted" if kind == "weighted" else f"-table_{table}_pooling {kind}")
        words.append(f"-table_{table}_data_type {rng.choice(('fp32', 'fp32', 'fp16', 'bf16'))}")
    if rng.random() < 0.5:
        words.append("-embedding_max_gradient 0.01")
    for arch in ("-dense_arch", "-over_arch"):
        words.append(f"{arch}_activation {rng.choice(choices(binary, arch + '_activation'))} {arch}_layer_norm {rng.choice(('true', 'false'))}")
        words.append(f"{arch}_dropout {rng.choice((0, 0, 0.3))}")
    return " ".join(words), sequences


def draw_plan(rng, ranks, sequences):
    """A sharding type for each table, hosts, pipeline and threads: nothing of this may show."""
    words = [f"-table_{table}_sharding_types {rng.choice(TYPES[:4] if table in sequences else TYPES)}" for table in ROWS]
    words.append(f"-topology_local_world_size {rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0])}")
    words.append(f"-pipeline {rng.choice(('base', 'sparse_dist'))}")
    return " ".join(words), {"OMP_NUM_THREADS": str(rng.randint(1, 3 if ranks < 3 else 1)), "OMP_WAIT_POLICY": "passive"}


def compare_runs(binary, folder, seed, rank_counts):
    rng = random.Random(seed)
    model, sequences = draw_model(binary, rng)
    global_batch = rng.choice((24, 180, 420, 660))  # dense layers work on blocks of 128 samples
    samples = rng.randint(30, 900)
    weights = [rng.choice((0.0, 1e-30, 0.1, rng.random(), 1e20)) for _ in range(samples)] if seed % 2 else None  # no order of adding is exact in floats
    write_dataset(os.path.join(folder, "train.h5"), samples, seed=seed, features=ROWS, weighted=True, sample_weights=weights)
    weights = [rng.random() * 10.0 ** rng.randint(-9, 9) for _ in range(200)] if seed % 2 else None  # nor in doubles
    write_dataset(os.path.join(folder, "eval.h5"), 200, seed=seed + 100, features=ROWS, weighted=True, sample_weights=weights)
    wanted = None
    for ranks in rank_counts:
        plan, environment = draw_plan(rng, ranks, sequences)
        words = f"-reproducible -data_train train.h5 -data_eval eval.h5 -batch_size {global_batch // ranks} -output run.h5 -checkpoint_final final{ranks}.h5 {model} {plan}"
        what = f"seed {seed}, {ranks} ranks: {words}"
        result = run(binary, ranks, words, folder, environment=environment, status=None)
        check(result.status == 0, f"{what}: exit {result.status}: {result.text[-1000:]}")
        found = np.concatenate([losses(os.path.join(folder, "run.h5")), losses(os.path.join(folder, "run.h5"), "eval")])
        final = os.path.join(folder, f"final{ranks}.h5")
        if wanted is None:
            wanted, state = found, final
        check(same_bits(found, wanted), f"{what}: losses {list(found)}, on one rank {list(wanted)}")
        check_same_tensors(final, state, what)


@thinned
def test_reproducible(binary, folder):
    """Random models, each on 1 to 4 ranks with other plans, hosts, pipelines and threads. A failure names the model's seed."""
    for seed in thin(range(6), (0, 3)):
        compare_runs(binary, folder, seed, (1, 2, 3, 4))
        print(f"  seed {seed}", flush=True)


def test_reproducible_columns(binary, folder):
    """Wide rows, cut into columns at whole blocks of 32 and elsewhere, give the bits of whole rows: for optimizers that need the sum of squares alone
    and for others, with tables that are not cut beside them, caches, half width and two threads."""
    write_dataset(os.path.join(folder, "train.h5"), 240, features=ROWS, weighted=True)
    for optimizer in ("rowwise_adagrad", "partial_rowwise_adam", "lamb"):
        shared = (f"-reproducible -data_train train.h5 -output run.h5 -tables_embedding_dim 96 -dense_arch 16,96 -over_arch 17,1 -embedding_optimizer {optimizer} "
                  "-table_tag_pooling mean -table_word_is_weighted -table_item_data_type bf16 -table_user_stochastic_rounding -table_user_data_type fp16")
        run(binary, 1, f"{shared} -batch_size 240 -steps 6 -checkpoint_final whole.h5", folder)
        wanted = losses(os.path.join(folder, "run.h5"))
        for ranks, plan in ((2, "-tables_sharding_types column_wise -table_word_sharding_types row_wise -tables_min_partition 32"),
                            (3, "-tables_sharding_types column_wise -tables_min_partition 32 -table_tag_compute_kernels fused_uvm_caching"),
                            (3, "-tables_sharding_types column_wise -tables_min_partition 24"),
                            (4, "-tables_sharding_types grid_shard -tables_min_partition 48 -topology_local_world_size 2")):
            what = f"{optimizer}, {ranks} ranks, {plan}"
            run(binary, ranks, f"{shared} -batch_size {240 // ranks} -steps 6 -checkpoint_final cut.h5 {plan}", folder,
                environment={"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"})
            check(same_bits(losses(os.path.join(folder, "run.h5")), wanted), f"{what}: other losses")
            check_same_tensors(os.path.join(folder, "cut.h5"), os.path.join(folder, "whole.h5"), what)


def test_reproducible_resume(binary, folder):
    """A training that goes on twice from a checkpoint, each time on other ranks and with another plan, ends as one that was not interrupted."""
    write_dataset(os.path.join(folder, "train.h5"), 300, features=ROWS)
    shared = ("-reproducible -data_train train.h5 -tables_embedding_dim 8 -dense_arch 16,8 -over_arch 17,1 -tables_min_partition 4 "
              "-embedding_optimizer partial_rowwise_adam -dense_optimizer adam -data_shuffle -checkpoint_dir states -checkpoint_every 4")
    run(binary, 1, f"{shared.replace('states', 'unbroken')} -batch_size 192 -steps 12 -output whole.h5 -checkpoint_final whole.final.h5", folder)
    for ranks, steps, kind in ((4, 4, "column_wise"), (3, 8, "row_wise"), (2, 12, "data_parallel")):
        run(binary, ranks, f"{shared} -resume -batch_size {192 // ranks} -steps {steps} -tables_sharding_types {kind} -output part.h5 "
            f"-checkpoint_final part.final.h5", folder)
    found, wanted = (losses(os.path.join(folder, name)).tolist() for name in ("part.h5", "whole.h5"))
    check(found == wanted, f"losses {found} for {wanted}")
    check_same_tensors(os.path.join(folder, "part.final.h5"), os.path.join(folder, "whole.final.h5"), "resumed")
