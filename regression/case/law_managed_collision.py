# SPDX-License-Identifier: BSD-3-Clause
"""A training with rows that are given to ids and taken back equals TorchRec's own."""
import os

import h5py
import numpy as np

from trsrun import check, losses, run, tensors, thin, thinned

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "managed_collision")
# Allowed differences from TorchRec, in losses and weights, and in states. A difference in a state is
# relative to the state, or to SMALL if the state is smaller.
TOLERANCE, STATE_TOLERANCE, SMALL = 1e-6, 2e-6, 1e-3
# Ranks and plans with one bucket, and with two: as many buckets as TorchRec had shards.
EVERY = {1: [(1, "table_wise"), (2, "table_wise"), (2, "column_wise -reproducible"), (2, "table_wise -pipeline prefetch_sparse_dist")],
         2: [(1, "table_wise"), (2, "row_wise"), (2, "row_wise -reproducible"), (2, "row_wise -pipeline prefetch_sparse_dist")]}
FEW = {1: EVERY[1][:1], 2: EVERY[2][1:2]}


def options(attrs, optimizer, policy, shards, rate):
    """The model and the training of a recorded case. Adagrad's states stay with a row that changes
    hands only in TorchRec, and with zch_torchrec."""
    return (f"-data_train {GOLDEN}/train.h5 -init_from {GOLDEN}/init.h5 -init_from_missing initial -steps {attrs['steps']} -tables t -table_t_features seen,bought "
            f"-table_t_num_embeddings {attrs['rows']} -tables_embedding_dim {attrs['dim']} -tables_min_partition 2 -table_t_init_fn constant -table_t_init_value {attrs['init']} "
            f"-table_t_id_map zch -table_t_zch_policy {policy} -table_t_zch_interval {attrs['interval']} -table_t_zch_decay_exponent {attrs['exponent']} "
            f"-table_t_zch_buckets {shards} -table_t_zch_input_hash_size {attrs['ids']} {'' if optimizer == 'rowwise_adagrad' else '-table_t_zch_torchrec'} "
            f"-interaction cat -over_arch 4,1 -embedding_optimizer {optimizer} -embedding_learning_rate {rate} -embedding_eps {attrs['eps']} "
            f"-dense_optimizer sgd -dense_learning_rate {attrs['dense_rate']} -checkpoint_every {attrs['at'][0]} -checkpoint_keep 9 -existing_outputs replace")


def recorded(golden, place):
    """The tensors of a case at one of its steps, by their paths in trshard."""
    found = {f"embedding/t/{name}": golden[name][place] for name in ("weight", "momentum1") if name in golden}
    found.update({f"dense/over_arch/{i}/{name}": golden[f"over_arch/{i}/{name}"][place] for i in range(2) for name in ("weight", "bias")})
    return found


def rows_of(found, ids, shards):
    """The row of each id in a checkpoint."""
    row, block, rows = dict(zip(found["embedding/t/zch/raw"].tolist(), found["embedding/t/zch/slot"].tolist())), ids // shards, len(found["embedding/t/weight"])
    return np.array([row.get(i, (i // block + 1) * rows // shards - 1) for i in range(ids)])


def compare(what, golden, attrs, shards, output, checkpoints):
    """Returns the largest difference."""
    ours, theirs = losses(output), golden["loss"][()]
    check(len(ours) == len(theirs), f"{what}: {len(ours)} steps, TorchRec {len(theirs)}")
    off = np.abs(ours - theirs).max()
    check(off <= TOLERANCE, f"{what}: losses differ by {off:.1e}, allowed {TOLERANCE:.0e}")
    for place, step in enumerate(attrs["at"]):
        found = tensors(os.path.join(checkpoints, f"step-{step:09d}.h5"))
        other = np.flatnonzero(rows_of(found, attrs["ids"], shards) != golden["row"][place])
        check(len(other) == 0, f"{what}, step {step}: {len(other)} ids have another row than in TorchRec, the first is {other[:1]}")
        given = found["embedding/t/zch/times"].sum()
        check(given == golden["given"][place], f"{what}, step {step}: {given} rows given to ids, TorchRec {golden['given'][place]}")
        for path, numbers in recorded(golden, place).items():
            check(found[path].shape == numbers.shape, f"{what}, step {step}: /{path} has shape {found[path].shape} for {numbers.shape}")
            allowed, scale = (STATE_TOLERANCE, np.maximum(np.abs(numbers), SMALL)) if path.endswith("momentum1") else (TOLERANCE, 1)
            differs = (np.abs(found[path] - numbers) / scale).max()
            check(differs <= allowed, f"{what}, step {step}: /{path} differs by {differs:.1e}, allowed {allowed:.0e}")
            off = max(off, differs)
    return off


@thinned
def test_torchrec_managed_collision(binary, folder):
    """Losses, weights, states, and the rows of ids equal those of TorchRec's sharded module, on one
    rank and on two."""
    with h5py.File(os.path.join(GOLDEN, "reference.h5")) as golden:
        attrs, cases = golden.attrs, [name for name, item in golden.items() if isinstance(item, h5py.Group)]
        check(len(cases) == 9, f"recorded: {cases}")
        for case in cases:
            optimizer, policy, shards, rate = (golden[case].attrs[name] for name in ("optimizer", "policy", "shards", "rate"))
            for number, (ranks, plan) in enumerate(thin(EVERY, FEW)[shards]):
                what, name = f"{case}, {plan} on {ranks} ranks", f"{case}_{number}"
                run(binary, ranks, f"{options(attrs, optimizer, policy, shards, rate)} -batch_size {attrs['batch'] // ranks} -table_t_sharding_types {plan} "
                    f"-output {name}.h5 -checkpoint_dir {name}", folder)
                off = compare(what, golden[case], attrs, shards, os.path.join(folder, f"{name}.h5"), os.path.join(folder, name))
                print(f"{what}: largest difference {off:.1e}")
