# SPDX-License-Identifier: BSD-3-Clause
"""Optimizers of single tables, learning rates with a schedule, and the precision of dense
layers."""
import os

import h5py
import numpy as np

from law_plans import FEATURES, MIXED, MODEL, TABLES, TOLERANCE, make, train
from trsrun import check, check_close_losses, check_close_tensors, check_same_tensors, losses, optimizers, run, same_bits, tensors, thin, thinned, write_dataset

ASSIGNED = ({"user": "adam", "item": "rowwise_adagrad", "tag": "sgd", "word": "lars_sgd"},
            {"user": "lion", "item": "partial_rowwise_adam", "tag": "lamb", "word": "adagrad"},
            {"user": "partial_rowwise_lamb", "item": "adam", "tag": "rowwise_adagrad", "word": "sgd"})


def own(assigned):
    return " ".join(f"-table_{table}_optimizer {optimizer}" for table, optimizer in assigned.items())


@thinned
def test_table_optimizers(binary, folder):
    """After one step, each table of a model with mixed optimizers has the bits of the same table in
    a model with only its optimizer, under any plan."""
    make(folder)
    alone = {}
    few = ASSIGNED[:1]
    for optimizer in thin(optimizers(binary), few[0].values()):
        _, state = train(binary, folder, optimizer, 2, f"{MIXED} -steps 1 -embedding_optimizer {optimizer}")
        alone[optimizer] = tensors(state)
    for assigned in thin(ASSIGNED, few):
        _, state = train(binary, folder, "mixed", 2, f"{MIXED} -steps 1 {own(assigned)}")
        found = tensors(state)
        for table, optimizer in assigned.items():
            names = [name for name in alone[optimizer] if name.startswith(f"embedding/{table}/")]
            check(sorted(names) == sorted(n for n in found if n.startswith(f"embedding/{table}/")), f"{table} of {optimizer}: states {names}")
            for name in names:
                check(same_bits(found[name], alone[optimizer][name]), f"/{name} in {assigned} is not that of {optimizer}")


def test_table_optimizers_and_plans(binary, folder):
    """A model with mixed optimizers trains alike on one rank and on three, if row-wise statistics
    are not cut. A resumed run equals the uninterrupted one."""
    make(folder)
    rows = "-tables_sharding_types row_wise,table_wise,data_parallel"
    options = f"-epochs 2 {own(ASSIGNED[0])} -table_tag_learning_rate 0.5 -table_user_beta1 0.5 -table_item_max_gradient 0.001"
    wanted, state = train(binary, folder, "one", 1, options)
    for ranks, plan in ((3, rows), (2, f"{rows} -table_user_sharding_types row_wise -table_item_sharding_types data_parallel -table_word_sharding_types row_wise")):
        found, other = train(binary, folder, "other", ranks, f"{options} {plan}")
        check_close_losses(found, wanted, TOLERANCE, f"{ranks} ranks {plan}")
        check_close_tensors(other, state, TOLERANCE, f"{ranks} ranks {plan}")
    train(binary, folder, "half", 1, f"{options} -steps 7 -checkpoint_dir ckpt -checkpoint_every 7")
    found, other = train(binary, folder, "rest", 1, f"{options} -checkpoint_dir ckpt -resume")
    check(same_bits(found, wanted[7:]), "resumed: other losses")
    check_same_tensors(other, state, "resumed")


def ftrl(w, g, z, n, alpha, beta, l1, l2):
    """A round of algorithm 1 of McMahan et al., Ad Click Prediction: a View from the Trenches (KDD
    2013), for all coordinates."""
    sigma = (np.sqrt(n + g * g) - np.sqrt(n)) / alpha
    z = z + g - sigma * w
    n = n + g * g
    return np.where(np.abs(z) <= l1, 0.0, -(z - np.sign(z) * l1) / ((beta + np.sqrt(n)) / alpha + l2)), z, n


def test_ftrl(binary, folder):
    """Steps of ftrl are the paper's. Their gradients are taken from sgd steps with the same
    weights. Two ranks with cut rows agree with one rank."""
    make(folder, 12)
    still = "-dense_learning_rate 0 -steps 1"  # all samples in each step
    numbers = {"alpha": 0.25, "beta": 0.01, "l1": 0.001, "l2": 0.5}
    options = (f"{still} -embedding_optimizer ftrl -embedding_learning_rate {numbers['alpha']} -embedding_beta {numbers['beta']} "
               f"-embedding_l1 {numbers['l1']} -embedding_l2 {numbers['l2']}")
    tables = [name for name in ("user", "item", "tag", "word")]
    _, state = train(binary, folder, "start", 1, f"{still} -embedding_optimizer sgd -embedding_learning_rate 0", global_batch=12)
    w = {t: tensors(state)[f"embedding/{t}/weight"].astype(float) for t in tables}
    z, n = ({t: np.zeros_like(w[t]) for t in tables} for _ in "zn")
    zeros = 0
    for step in range(4):
        _, down = train(binary, folder, "down", 1, f"{still} -embedding_optimizer sgd -embedding_learning_rate 1024 -init_from {state}", global_batch=12)
        start, found = (tensors(path) for path in (state, down))
        _, cut = train(binary, folder, f"cut{step}", 2, f"{options} -init_from {state} -tables_sharding_types row_wise", global_batch=12)
        _, state = train(binary, folder, f"step{step}", 1, f"{options} -init_from {state}", global_batch=12)
        after = tensors(state)
        check_close_tensors(cut, state, TOLERANCE, f"step {step}, rows cut")
        for t in tables:
            name = f"embedding/{t}/weight"
            g = (start[name].astype(float) - found[name]) / 1024
            touched = np.abs(g).max(axis=1) > 0
            moved = ftrl(start[name].astype(float), g, z[t], n[t], **numbers)
            w[t], z[t], n[t] = (np.where(touched[:, None], new, old) for new, old in zip(moved, (start[name], z[t], n[t])))
            for wanted, part in ((w[t], "weight"), (z[t], "z"), (n[t], "n")):
                off = np.abs(after[f"embedding/{t}/{part}"] - wanted).max()
                check(off <= 2e-5 * max(np.abs(wanted).max(), 1e-3), f"step {step}: {t}'s {part} is off by {off:.1e} of {np.abs(wanted).max():.1e}")
            zeros += int((after[name][touched] == 0).sum())
    check(zeros > 0, "l1 made no weight zero")


def test_ftrl_refused(binary, folder):
    """Options without learning rate, schedule and weight decay."""
    make(folder, 12)
    for options, words in (("-embedding_learning_rate 0", "above 0"), ("-embedding_weight_decay 0.1", "weight decay"),
                           ("-schedule_policies linear -schedule_end_steps 5", "-schedule_policies")):
        text = run(binary, 1, f"-data_train train.h5 -batch_size 12 {MIXED} -tables_embedding_dim 8 -embedding_optimizer ftrl {options}", folder, status=64).text
        check(words in text, f"{options}: {text[-600:]}")


def test_table_numbers(binary, folder):
    """A table with learning rate 0 does not change. A rate that is given to every table equals the
    same rate for all tables."""
    make(folder)
    wanted, state = train(binary, folder, "all", 2, f"{MIXED} -steps 6 -embedding_learning_rate 0.3 -embedding_eps 0.01")
    words = " ".join(f"-table_{t}_learning_rate 0.3 -table_{t}_eps 0.01" for t in ("user", "item", "tag", "word"))
    for options in (words, "-tables_learning_rate 0.3 -tables_eps 0.01"):
        found, other = train(binary, folder, "own", 2, f"{MIXED} -steps 6 {options}")
        check(same_bits(found, wanted), f"{options}: other losses")
        check_same_tensors(other, state, options)
    _, start = train(binary, folder, "start", 2, f"{MIXED} -steps 1 -embedding_learning_rate 0 -embedding_optimizer sgd")
    for options in ("-table_tag_learning_rate 0", "-table_tag_optimizer none"):
        _, still = train(binary, folder, "still", 2, f"{MIXED} -steps 6 -embedding_optimizer sgd {options}")
        before, after = tensors(start), tensors(still)
        check(same_bits(after["embedding/tag/weight"], before["embedding/tag/weight"]), f"{options}: tag moved")
        check(not same_bits(after["embedding/user/weight"], before["embedding/user/weight"]), f"{options}: user did not move")


def factor(policy, s, value, decay, end):
    """The schedule's formula at step s, counted from 0."""
    part = min(s / decay, 1)
    return {"none": 1, "linear": value + (1 - value) * s / end, "constant": value, "poly": (1 - part)**value, "step": value**(s // decay),
            "inv_sqrt": 1 / np.sqrt(max(s, 1)), "cosine": value + (1 - value) * 0.5 * (1 + np.cos(np.pi * part))}[policy]


def test_schedules(binary, folder):
    """Plain sgd on one repeated sample: every step moves a row by factor * gradient. The gradient
    is known from a run without a schedule.

    With a learning rate of 0 for all tables except the first, and a tiny rate for this table,
    gradients stay the same to first order. The row's path then shows the sum of the factors step by
    step.
    """
    make(folder, 12)
    still = "-steps 1 -dense_learning_rate 0 -embedding_optimizer sgd -tables_learning_rate 0"
    _, zero = train(binary, folder, "zero", 1, f"{still}", global_batch=12)
    weights = {0: tensors(zero)["embedding/user/weight"].astype(np.float64)}
    stages = "-schedule_policies linear,constant,poly,step,inv_sqrt,cosine -schedule_end_steps 3,5,8,12,15,20 " \
             "-schedule_values 0.25,0.5,2,0.5,1,0.1 -schedule_scales 1,1,1,2,1,1 -schedule_decay_steps 0,0,10,4,0,20"
    moving = "-dense_learning_rate 0 -embedding_optimizer sgd -tables_learning_rate 0 -table_user_learning_rate 0.001"
    train(binary, folder, "run", 1, f"{moving} {stages} -steps 24 -checkpoint_dir ckpt -checkpoint_every 1 -checkpoint_keep 30", global_batch=12)
    for step in range(1, 25):
        weights[step] = tensors(os.path.join(folder, "ckpt", f"step-{step:09d}.h5"))["embedding/user/weight"].astype(np.float64)
    policy = [("linear", 3, 0.25, 1, 3), ("constant", 5, 0.5, 1, 5), ("poly", 8, 2, 1, 10), ("step", 12, 0.5, 2, 4), ("inv_sqrt", 15, 1, 1, 15), ("cosine", 20, 0.1, 1, 20)]

    def wanted(s):
        for name, end, value, scale, decay in policy:
            if s <= end:
                return scale * factor(name, s, value, decay, end)
        return 1.0

    unit = np.abs(weights[23] - weights[24]).max()  # the factor of the last step is 1
    row = np.unravel_index(np.abs(weights[23] - weights[24]).argmax(), weights[0].shape)
    for s in range(24):
        found = abs(weights[s][row] - weights[s + 1][row]) / unit
        check(abs(found - wanted(s)) <= 2e-2 * (0.05 + wanted(s)), f"step {s}: factor {found:.4f}, by the formula {wanted(s):.4f}")
    with h5py.File(os.path.join(folder, "run.h5")) as h:
        # for tables without their own rate: 0.01 times the factor
        told = h["train/embedding_learning_rate"][()]
        check(np.allclose(told, [0.01 * wanted(s) for s in range(24)], rtol=1e-12), f"learning rates in the results: {told}")
        check(not h["train/dense_learning_rate"][()].any(), "the dense layers' learning rate is 0")


def test_schedule_resumes(binary, folder):
    """A schedule continues after a resume, also on other ranks. The same steps in several runs
    equal one run."""
    make(folder, 130)
    shared = f"{MIXED} -schedule_policies linear,cosine -schedule_end_steps 5,12 -schedule_values 0,0.1 -dense_optimizer adam -embedding_optimizer adam"
    wanted, state = train(binary, folder, "whole", 3, f"{shared} -steps 12")
    for first in (3, 6):
        train(binary, folder, "half", 3, f"{shared} -steps {first} -checkpoint_dir ckpt{first} -checkpoint_every {first}")
        found, other = train(binary, folder, "rest", 3, f"{shared} -steps 12 -checkpoint_dir ckpt{first} -resume")
        check(same_bits(found, wanted[first:]), f"resumed after {first}: losses {found} for {wanted[first:]}")
        check_same_tensors(other, state, f"resumed after {first}")
        with h5py.File(os.path.join(folder, "whole.h5")) as whole, h5py.File(os.path.join(folder, "rest.h5")) as rest:
            check(same_bits(rest["train/dense_learning_rate"][()], whole["train/dense_learning_rate"][first:]), "learning rates of the resumed run")


DENSE = {"adamw": "-dense_optimizer adamw -dense_max_gradient_norm 0.1",
         "lamb": "-dense_optimizer lamb -dense_weight_decay 0.01 -dense_max_gradient_value 0.001"}
RESTARTS = "-schedule_policies cosine_restarts -schedule_end_steps 100 -schedule_values 0.1 -schedule_decay_steps 3 -schedule_cycle_factors 2"


def test_dense_optimizers(binary, folder):
    """adamw and lamb, with clipped gradients and a schedule with restarts, have the same bits on 1,
    2 and 3 ranks under other plans, and after a resume within a cycle."""
    make(folder)
    for name, options in DENSE.items():
        shared = f"-reproducible {options} {RESTARTS} -steps 8"
        wanted, state = train(binary, folder, name, 1, shared)
        check("dense_optimizer/over_arch/0/weight/exp_avg_sq" in tensors(state), f"{name}: no states")
        for ranks, plan in ((2, "-tables_sharding_types row_wise"), (3, "-tables_sharding_types table_wise")):
            half = f"-steps 5 -checkpoint_dir {name}{ranks} -checkpoint_every 5"
            train(binary, folder, "half", ranks, f"{shared} {plan} {half}")
            found, other = train(binary, folder, "rest", ranks, f"{shared} {plan} -checkpoint_dir {name}{ranks} -resume")
            check(same_bits(found, wanted[5:]), f"{name} on {ranks} ranks, resumed: losses {found} for {wanted[5:]}")
            check_same_tensors(other, state, f"{name} on {ranks} ranks, resumed")
        text = run(binary, 2, f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES} -dense_optimizer adam -checkpoint_dir {name}2 -resume", folder,
                   status=64).text
        check(f"is of optimizer {name}, now it is adam" in text, f"{name} resumed as adam: {text[-600:]}")


def test_average_of_weights(binary, folder):
    """-ema_decay: the average of the weights after each step is torch's. Evaluations use it, a
    resume continues it, and the training is the same as without it."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 100, seed=9, features=FEATURES)
    shared = "-reproducible -data_eval eval.h5 -dense_optimizer adam -steps 6"
    plain, weights = train(binary, folder, "plain", 1, f"{shared} -checkpoint_dir each -checkpoint_every 1 -checkpoint_keep 9")
    found, state = train(binary, folder, "ema", 1, f"{shared} -ema_decay 0.75 -eval_every 4")
    check(same_bits(found, plain), "-ema_decay changes the training")
    whole, wanted = tensors(state), tensors(weights)
    for name in (n for n in wanted if n.startswith(("dense/", "embedding/"))):
        check(same_bits(whole[name], wanted[name]), f"-ema_decay changes {name}")
    steps = [tensors(os.path.join(folder, "each", f"step-{step:09d}.h5")) for step in range(1, 7)]
    for name in (n for n in wanted if n.startswith("dense/")):
        average = steps[0][name].astype(float)
        for step in steps[1:]:
            average += (1 - 0.75) * (step[name] - average)
        off = np.abs(whole[name.replace("dense/", "dense_optimizer/", 1) + "/ema"] - average).max()
        check(off <= 1e-6 * (1 + np.abs(average).max()), f"the average of {name} is off by {off:.1e}")
    for ranks, plan in ((2, "row_wise"), (3, "table_wise")):
        options = f"{shared} -ema_decay 0.75 -tables_sharding_types {plan}"
        train(binary, folder, "half", ranks, f"{options} -steps 4 -checkpoint_dir half{ranks} -checkpoint_every 4")
        rest, other = train(binary, folder, f"rest{ranks}", ranks, f"{options} -checkpoint_dir half{ranks} -resume")
        check(same_bits(rest, plain[4:]), f"{ranks} ranks, resumed: other losses")
        check_same_tensors(other, state, f"{ranks} ranks, resumed")
    told = {name: losses(os.path.join(folder, f"{name}.h5"), "eval")[-1] for name in ("plain", "ema", "rest2", "rest3")}
    check(told["ema"] == told["rest2"] == told["rest3"] != told["plain"], f"losses of evaluations: {told}")
    for task in ("eval", "predict"):
        for options, name in (("", "ema"), ("-ema_decay 0", "plain")):
            run(binary, 1, f"-task {task} -init_from {state} -data_eval eval.h5 -reproducible {options} -batch_size 24 -output of_{task}.h5", folder)
            loss = losses(os.path.join(folder, f"of_{task}.h5"), "eval")[-1]
            check(abs(loss - told[name]) <= 1e-6, f"-task {task} {options}: loss {loss}, in the training {told[name]}")
    _, still = train(binary, folder, "still", 2, f"-data_eval eval.h5 -steps 0 -init_from {weights} -ema_decay 0.75")
    run(binary, 1, f"-task eval -init_from {still} -data_eval eval.h5 -reproducible -batch_size 24 -output of_still.h5", folder)
    loss = losses(os.path.join(folder, "of_still.h5"), "eval")[-1]
    check(abs(loss - told["plain"]) <= 1e-6, f"no step with -ema_decay: loss {loss}, of the weights {told['plain']}")
    text = run(binary, 1, f"-task eval -init_from {weights} -data_eval eval.h5 -ema_decay 0.5 -batch_size 24", folder, status=65).text
    check("/ema" in text, text[-600:])
    run(binary, 1, f"-task predict -init_from {state} -data_eval eval.h5 -tables_data_type int8 -batch_size 24 -quant_checkpoint int8.h5", folder)
    text = run(binary, 1, "-task predict -init_from int8.h5 -data_eval eval.h5 -ema_decay 0 -batch_size 24", folder, status=65).text
    check("it has the averages alone" in text, text[-600:])


def test_dense_precision(binary, folder):
    """bf16 operands: losses are within 2e-3 of fp32's over two epochs, and not equal. Weights stay
    fp32. Any number of threads gives the same result."""
    make(folder)
    options = f"{MIXED} -epochs 2"
    wanted, _ = train(binary, folder, "fp32", 2, options)
    found, state = train(binary, folder, "bf16", 2, f"{options} -dense_precision bf16")
    check_close_losses(found, wanted, 2e-3, "-dense_precision bf16")
    check(not same_bits(found, wanted), "-dense_precision bf16: fp32's losses")
    weight = tensors(state)["dense/over_arch/0/weight"].view("u4")
    check((weight & 0xFFFF).any(), "-dense_precision bf16: the weights themselves are rounded")
    threads, other = train(binary, folder, "threads", 2, f"{options} -dense_precision bf16", environment={"OMP_NUM_THREADS": "3"})
    check(same_bits(threads, found), "-dense_precision bf16: other losses with 3 threads")
    check_same_tensors(other, state, "-dense_precision bf16 with 3 threads")
