# SPDX-License-Identifier: BSD-3-Clause
"""Steps of several batches (-accumulate_steps): N batches of B samples train like one batch of N B
samples."""
import os

from trsrun import check, check_close_losses, check_close_tensors, check_same_tensors, losses, run, same_bits, thin, thinned, write_dataset

FEATURES = {"user": 50, "item": 30, "tag": 20}
MODEL = ("-tables_embedding_dim 8 -dense_arch 16,8 -over_arch 17,1 -over_arch_dropout 0.3 -table_item_pooling mean -table_tag_pooling none -seed 5 "
         "-data_train train.h5 -data_eval eval.h5 -eval_every 3 -epochs 2 -data_shuffle -tables_min_partition 4")
# Ranks, a rank's batch, and other options. 190 samples are steps of at most 48 samples, and the
# last step of a pass is smaller.
CASES = ((1, 48, "-embedding_optimizer adam -dense_optimizer adam"),
         (2, 24, "-tables_sharding_types row_wise -embedding_optimizer sgd -dense_optimizer adagrad -pipeline base"),
         (3, 16, "-table_user_sharding_types column_wise -table_item_sharding_types data_parallel -embedding_optimizer rowwise_adagrad -interaction dcn -dcn_low_rank_dim 3"),
         (2, 24, "-tables_sharding_types table_wise -embedding_optimizer lamb -dense_optimizer lamb -table_user_id_map qr -pipeline prefetch_sparse_dist"),
         (3, 12, "-tables_sharding_types table_row_wise,row_wise -topology_local_world_size 3 -embedding_optimizer partial_rowwise_adam -ec_index_dedup"))


def make(folder):
    write_dataset(os.path.join(folder, "train.h5"), 190, seed=7, features=FEATURES, sample_weights=[1 + i % 3 for i in range(190)])
    write_dataset(os.path.join(folder, "eval.h5"), 50, seed=8, features=FEATURES)


def train(binary, folder, name, ranks, batch, n, options):
    run(binary, ranks, f"{MODEL} {options} -batch_size {batch // n} -accumulate_steps {n} -output {name}.h5 -checkpoint_final {name}.final.h5", folder)
    path = os.path.join(folder, f"{name}.h5")
    return (losses(path), losses(path, "eval")), os.path.join(folder, f"{name}.final.h5")


@thinned
def test_accumulate(binary, folder):
    """4 batches of B samples equal one batch of 4 B up to rounding: losses, evaluations, tables and
    states, under several plans and optimizers."""
    make(folder)
    for ranks, batch, options in thin(CASES, CASES[1:4:2]):
        (wanted, evals), state = train(binary, folder, "one", ranks, batch, 1, options)
        (found, found_evals), other = train(binary, folder, "four", ranks, batch, 4, options)
        check(len(wanted) == -(-190 // (ranks * batch)) * 2, f"{len(wanted)} steps")
        check_close_losses(found, wanted, 1e-6, f"{ranks} ranks {options}")
        check_close_losses(found_evals, evals, 1e-6, f"evaluations, {ranks} ranks {options}")
        check_close_tensors(other, state, 2e-6, f"{ranks} ranks {options}")


def test_accumulate_reproducible(binary, folder):
    """With -reproducible, the bits are those of one large batch on any number of ranks. A resume at
    the end of a step does not change them."""
    make(folder)
    options = "-reproducible -embedding_optimizer adam -dense_optimizer adam"
    (wanted, evals), state = train(binary, folder, "one", 1, 48, 1, options)
    for ranks, n in ((1, 3), (2, 4), (3, 2)):
        (found, found_evals), other = train(binary, folder, "more", ranks, 48 // ranks, n, options)
        check(same_bits(found, wanted), f"{n} batches on {ranks} ranks: losses {found} for {wanted}")
        check_close_losses(found_evals, evals, 1e-7, f"evaluations of {n} batches on {ranks} ranks, whose batches are smaller")
        check_same_tensors(other, state, f"{n} batches on {ranks} ranks")
    train(binary, folder, "half", 2, 24, 4, f"{options} -steps 5 -checkpoint_dir ckpt -checkpoint_every 5")
    (found, _), other = train(binary, folder, "rest", 1, 48, 2, f"{options} -checkpoint_dir ckpt -resume")
    check(same_bits(found, wanted[5:]), f"resumed: losses {found} for {wanted[5:]}")
    check_same_tensors(other, state, "resumed")
