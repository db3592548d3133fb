# SPDX-License-Identifier: BSD-3-Clause
"""Layers of the dense and the over arch, and full cross layers, in whole runs: activations, layer
norm and dropout."""
import os
import subprocess
import sys

import h5py
import numpy as np

from trsrun import attribute, check, check_close_losses, check_same_tensors, losses, run, same_bits, tensors, thin, thinned, write_dataset

EXCHANGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "exchange.py")
FEATURES = {"user": 50, "item": 30, "tag": 20}
MODEL = ("-tables_embedding_dim 8 -dense_arch 16,8 -over_arch 17,17,9,1 -over_arch_residual -dense_arch_activation swish_layernorm -dense_arch_layer_norm -over_arch_activation tanh "
         "-over_arch_layer_norm -interaction dcn_full -dcn_num_layers 2")
DROPOUT = "-dense_arch_dropout 0.2 -over_arch_dropout 0.4"
TRAIN = f"-data_train train.h5 {MODEL} -seed 5 -dense_optimizer adam"


def make(folder):
    for name, samples, seed in (("train.h5", 150, 7), ("eval.h5", 77, 8)):
        write_dataset(os.path.join(folder, name), samples, seed=seed, features=FEATURES)


def loss_of(folder, name="run.h5"):
    return losses(os.path.join(folder, name)).tolist()


def test_dropout_ranks(binary, folder):
    """The dropped numbers depend on the sample, not on the ranks. With -reproducible, the bits are
    equal, also in a smaller last batch. Otherwise the losses are close."""
    make(folder)
    for mode in ("-reproducible", ""):
        wanted = None
        for ranks in (1, 2, 3):
            run(binary, ranks, f"{TRAIN} {DROPOUT} {mode} -epochs 2 -data_shuffle -batch_size {48 // ranks} -output run.h5 -checkpoint_final final{ranks}.h5", folder)
            wanted = wanted or loss_of(folder)
            if mode:
                check(loss_of(folder) == wanted, f"{ranks} ranks: losses {loss_of(folder)} for {wanted}")
                check_same_tensors(os.path.join(folder, f"final{ranks}.h5"), os.path.join(folder, "final1.h5"), f"{ranks} ranks")
            else:
                check_close_losses(losses(os.path.join(folder, "run.h5")), np.array(wanted), 1e-5, f"{ranks} ranks")
    run(binary, 1, f"{TRAIN} -epochs 2 -data_shuffle -batch_size 48 -output run.h5", folder)
    check(loss_of(folder) != wanted, "nothing was dropped")


def test_dropout_resume(binary, folder):
    """A resumed training drops the same numbers as an uninterrupted one."""
    make(folder)
    shared = f"{TRAIN} {DROPOUT} -reproducible -batch_size 48 -data_shuffle"
    run(binary, 1, f"{shared} -steps 7 -output whole.h5 -checkpoint_final whole.final.h5", folder)
    run(binary, 1, f"{shared} -checkpoint_dir states -checkpoint_every 3 -steps 3 -output part.h5", folder)
    run(binary, 2, f"{shared.replace('48', '24')} -checkpoint_dir states -resume -steps 7 -output part.h5 -checkpoint_final part.final.h5", folder)
    check(loss_of(folder, "part.h5") == loss_of(folder, "whole.h5"), f"losses {loss_of(folder, 'part.h5')} for {loss_of(folder, 'whole.h5')}")
    check_same_tensors(os.path.join(folder, "part.final.h5"), os.path.join(folder, "whole.final.h5"), "resumed")


@thinned
def test_interactions(binary, folder):
    """Cross layers of vectors and of mixed experts, projections, and models with only embeddings
    train as on one rank: the same bits with -reproducible, otherwise close losses."""
    make(folder)
    words = {"dcn_vector": "-dcn_num_layers 2", "dcn_mixture": "-dcn_num_layers 2 -dcn_low_rank_dim 3 -dcn_num_experts 2", "none": "",
             "projection": "-projection_arch1 9,16 -projection_arch2 24"}
    for kind, numbers in words.items():
        shared = (f"-data_train train.h5 -seed 5 -tables_embedding_dim 8 -dense_arch 16,8 -over_arch 9,1 -dense_optimizer adam -embedding_learning_rate 0.3 "
                  f"-interaction {kind} {numbers} -output run.h5")
        run(binary, 1, f"{shared} -reproducible -batch_size 48 -checkpoint_final one.h5", folder)
        wanted = losses(os.path.join(folder, "run.h5"))
        check(len(set(wanted)) == 4, f"{kind}: losses {wanted}")
        for ranks in thin((2, 3), (3,)):
            run(binary, ranks, f"{shared} -reproducible -batch_size {48 // ranks} -checkpoint_final more.h5", folder)
            check(same_bits(losses(os.path.join(folder, "run.h5")), wanted), f"{kind} on {ranks} ranks: other losses")
            check_same_tensors(os.path.join(folder, "more.h5"), os.path.join(folder, "one.h5"), f"{kind} on {ranks} ranks")
        if kind not in thin(words, ("dcn_mixture",)):
            continue
        run(binary, 2, f"{shared} -batch_size 24", folder)
        check_close_losses(losses(os.path.join(folder, "run.h5")), wanted, 1e-5, f"{kind} on 2 ranks")


def test_layers_model(binary, folder):
    """A checkpoint has all layers. It gives the training's evaluation for any dropout option.
    Another activation is refused. The layers can be converted to npz and back."""
    make(folder)
    run(binary, 1, f"{TRAIN} {DROPOUT} -data_eval eval.h5 -epochs 2 -batch_size 48 -output run.h5 -checkpoint_final model.h5", folder)
    wanted = None
    for task, given in (("eval", ""), ("eval", DROPOUT), ("predict", "")):
        run(binary, 1, f"-task {task} -init_from model.h5 -data_eval eval.h5 -batch_size 48 -output again.h5 {given}", folder)
        with h5py.File(os.path.join(folder, "again.h5")) as h:
            found = h["predictions"][()]
        wanted = found if wanted is None else wanted
        check(same_bits(found, wanted), f"-task {task} {given}: other predictions")
        if task == "eval":
            check(losses(os.path.join(folder, "again.h5"), "eval")[-1] == losses(os.path.join(folder, "run.h5"), "eval")[-1], f"-task eval {given}: another loss")
    names = {name for name in tensors(os.path.join(folder, "model.h5")) if name.startswith("dense/dense_arch/0/")}
    wanted = {f"dense/dense_arch/0/{part}" for part in ("weight", "bias", "norm_weight", "norm_bias", "swish_weight", "swish_bias")}
    check(names == wanted, f"tensors {sorted(names)}")
    check("dense/crossnet_full/1/weight" in tensors(os.path.join(folder, "model.h5")), "no full cross layer")
    check(b"-over_arch_activation tanh" in attribute(os.path.join(folder, "model.h5"), "model"), "no activation in the model")
    result = run(binary, 1, "-task predict -init_from model.h5 -data_eval eval.h5 -batch_size 48 -over_arch_activation relu", folder, status=64)
    check("-over_arch_activation" in result.text and "tanh" in result.text, result.text)
    for words in (["model.h5", "--to", "npz", "--states", "model.npz"], ["model.npz", "--from", "npz", "--states", "--output", "back.h5"]):
        subprocess.run([sys.executable, EXCHANGE, *words], cwd=folder, check=True, capture_output=True)
    check_same_tensors(os.path.join(folder, "back.h5"), os.path.join(folder, "model.h5"), "there and back")
