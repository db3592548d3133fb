# SPDX-License-Identifier: BSD-3-Clause
"""With -reproducible, losses and weights have the same bits for every plan and every number of
ranks at the same global batch."""
import os
import random
import re
import shutil

import h5py
import numpy as np

from trsrun import check, check_same_tensors, choices, losses, optimizers, run, same_bits, thin, thinned, write_dataset

TYPES = ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard")
ROWS = {"user": 50, "item": 3, "tag": 20, "word": 40}  # item has fewer rows than ranks


def draw_model(binary, rng):
    """Options of a random model for all its runs, and its sequence tables."""
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
    """A sharding type for each table, hosts, pipeline and threads, which must not affect the
    result."""
    words = [f"-table_{table}_sharding_types {rng.choice(TYPES[:4] if table in sequences else TYPES)}" for table in ROWS]
    words.append(f"-topology_local_world_size {rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0])}")
    words.append(f"-pipeline {rng.choice(('base', 'sparse_dist'))}")
    return " ".join(words), {"OMP_NUM_THREADS": str(rng.randint(1, 3 if ranks < 3 else 1)), "OMP_WAIT_POLICY": "passive"}


def compare_runs(binary, folder, seed, rank_counts):
    rng = random.Random(seed)
    model, sequences = draw_model(binary, rng)
    global_batch = rng.choice((24, 180, 420, 660))  # dense layers work on blocks of 128 samples
    samples = rng.randint(30, 900)
    # no order of addition is exact in floats
    weights = [rng.choice((0.0, 1e-30, 0.1, rng.random(), 1e20)) for _ in range(samples)] if seed % 2 else None
    write_dataset(os.path.join(folder, "train.h5"), samples, seed=seed, features=ROWS, weighted=True, sample_weights=weights)
    # nor in doubles
    weights = [rng.random() * 10.0 ** rng.randint(-9, 9) for _ in range(200)] if seed % 2 else None
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
    """Random models, each on 1 to 4 ranks with other plans, hosts, pipelines and threads. A failure
    names the model's seed."""
    for seed in thin(range(6), (0, 3)):
        compare_runs(binary, folder, seed, (1, 2, 3, 4))
        print(f"  seed {seed}", flush=True)


def test_reproducible_columns(binary, folder):
    """Wide rows that are cut into columns, at blocks of 32 and elsewhere, give the bits of whole
    rows. Cases: optimizers that need only the sum of squares and others, uncut tables, caches, half
    precision and two threads."""
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
    """A training that resumes a checkpoint twice, each time on other ranks and with another plan,
    equals an uninterrupted one."""
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


MEASURED = f"-tables_embedding_dim 8 -dense_arch 16,8 -over_arch 16,1 -tables_min_partition 4 -embedding_learning_rate 0.3"
TASKS = "-tasks click,price,kind -task_price_loss huber -task_kind_loss softmax -task_kind_classes 4"


def of_many_sizes(rng, samples):
    """Weights of samples for which no order of addition is exact in doubles."""
    return rng.random(samples) * 10.0 ** rng.integers(-9, 9, samples)


def numbers(path):
    """All measurements of a run, except times and values of a single attempt."""
    with h5py.File(path) as h:
        return {f"{part}/{name}": h[part][name][()] for part in ("train", "eval", "metrics") if part in h for name in h[part] if not any(word in name for word in ("samples_per_s", "throughput", "attempt"))}


def printed(text):
    """The lines of metrics that a run prints, and the reason why it stopped early."""
    return re.findall(r"^(?:eval|groups|window|lifetime|in groups|recall|stopped early| +@| +segment).*|loss [-0-9.]+ .*(?= +[0-9.]+ samples/s)", text, re.MULTILINE)


def check_numbers(found, wanted, what, rows=lambda name, steps: slice(None)):
    check(found.keys() == wanted.keys() and len(found) > 20, f"{what}: other columns: {sorted(found.keys() ^ wanted.keys())}")
    for name in wanted:
        a, b = (values[rows(name, of[name.split("/")[0] + "/step"])] for values, of in ((found[name], found), (wanted[name], wanted)))
        check(same_bits(a, b), f"{what}: another {name}: {a} for {b}")


def measured_data(folder, tasks):
    """Write train.h5 and eval.h5 with weights and groups. Labels are soft, or of three tasks and
    partly missing."""
    for name, samples, seed in (("train.h5", 130, 7), ("eval.h5", 301, 8)):
        rng = np.random.default_rng(seed)
        path = os.path.join(folder, name)
        write_dataset(path, samples, seed=seed, features=ROWS, sample_weights=of_many_sizes(rng, samples), group=rng.integers(0, 11, samples), labels=["click", "price", "kind"] if tasks else None)
        with h5py.File(path, "r+", libver="latest") as h:
            y = h["labels"][()]
            if tasks:
                y[:, 1], y[:, 2] = rng.normal(size=samples), rng.integers(0, 4, samples)
                y[rng.random(y.shape) < 0.2] = np.nan
            else:
                y = np.where(rng.random(samples) < 0.3, rng.random(samples), y)
            h["labels"][...] = y


@thinned
def test_reproducible_metrics(binary, folder):
    """All metrics, printed and in files, have the same bits on 1 to 4 ranks, with other shardings,
    pipelines and accumulation. They cover windows that are no multiple of a batch, lifetimes,
    evaluations and groups, with weights and soft or missing labels. Training stops early at the
    same step. A resumed run has the same metrics."""
    shared = (f"-data_train train.h5 -data_eval eval.h5 -reproducible -epochs 4 -data_shuffle -eval_every 3 -metrics_every 2 -metrics_window_samples 50 "
              f"-metrics_group /group -metrics_at 2,5 -metrics_segments 11 -early_stopping_metric auc -early_stopping_patience 1 {MEASURED}")
    for tasks in (TASKS, ""):
        measured_data(folder, tasks)
        runs = [(1, ""), (2, "-pipeline base -tables_sharding_types row_wise"), (3, "-pipeline prefetch_sparse_dist -tables_sharding_types table_wise"),
                (4, "-tables_sharding_types column_wise"), (1, "-accumulate_steps 3 -batch_size 8"), (2, "-accumulate_steps 2 -batch_size 6 -tables_sharding_types data_parallel")]
        runs = thin(runs, [runs[0], runs[5], runs[2], runs[3]])
        wanted = None
        for ranks, plan in runs:
            what = f"{ranks} ranks {plan} {tasks}"
            text = run(binary, ranks, f"{shared} {tasks} -batch_size {24 // ranks} {plan} -output run.h5 -checkpoint_final final.h5", folder).text
            found = numbers(os.path.join(folder, "run.h5")), printed(text)
            if wanted is None:
                wanted = found
                check(3 < len(found[0]["train/loss"]) < 24 and "stopped early" in text, f"{what}: does not stop early: {text}")
                check(len(found[1]) > 12, f"prints {found[1]}: {text}")
            check_numbers(found[0], wanted[0], what)
            check(found[1] == wanted[1], f"{what}: prints {found[1]}, on one rank {wanted[1]}")
        last = {name: values[-1:] for name, values in wanted[0].items() if name.startswith("eval/")}
        for ranks, batch in thin([(1, 301), (2, 150), (3, 7), (4, 40)], [(3, 7)]):
            run(binary, ranks, f"-task eval -data_eval eval.h5 -init_from final.h5 -reproducible -metrics_group /group -metrics_at 2,5 -metrics_segments 11 {MEASURED} {tasks} -batch_size {batch} -output eval_out.h5", folder)
            check_numbers(numbers(os.path.join(folder, "eval_out.h5")), last, f"-task eval on {ranks} ranks, batches of {batch} {tasks}")
        words = f"{shared} {tasks} -early_stopping_patience 100 -checkpoint_dir kept"
        run(binary, 2, f"{shared} {tasks} -early_stopping_patience 100 -batch_size 12 -output whole.h5", folder)
        run(binary, 3, f"{words} -batch_size 8 -steps 7 -output part.h5", folder)
        run(binary, 1, f"{words} -batch_size 24 -resume -output part.h5", folder)
        wanted, found = (numbers(os.path.join(folder, name)) for name in ("whole.h5", "part.h5"))
        # the end of the first part has additional rows
        check_numbers(found, wanted, f"resumed {tasks}", lambda name, steps: np.flatnonzero(steps != 7))
        shutil.rmtree(os.path.join(folder, "kept"))
