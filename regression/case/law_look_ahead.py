# SPDX-License-Identifier: BSD-3-Clause
"""Rows that travel a batch ahead (-ebc_look_ahead) change no bit of a run."""
import os
import re
import signal

import h5py
import numpy as np

from law_faults import EVER, checkpoints, newest, wait_for
from law_plans import make as make_plain
from trsrun import Job, check, check_same_tensors, losses, run, same_bits, thin, thinned, write_dataset

# Few ids of user and tag are frequent, and most are rare. word has so few rows that each batch writes almost all.
FEATURES = {"user": 4000, "item": 300, "shop": 40, "tag": 1500, "word": 9}
ZIPF = {"user": 1.3, "tag": 1.1}
# item and shop share a table, so a bag of shop is compared with the ids of item, too
MODEL = ("-tables user,item,tag,word -table_item_features item,shop -table_tag_pooling mean -tables_embedding_dim 8 -tables_min_partition 4 "
         "-dense_arch 16,8 -over_arch 16,1 -seed 3 -embedding_optimizer rowwise_adagrad -embedding_learning_rate 0.1 -epochs 2 -data_shuffle")
APART = "-comm_ranks_per_host 1"
PAIRS = "-comm_ranks_per_host 2 -topology_local_world_size 2"
MIXED = ("-table_user_sharding_types table_wise -table_item_sharding_types row_wise -table_tag_sharding_types column_wise "
         "-table_word_sharding_types data_parallel")
# (ranks, options). 226 samples are steps of 48 samples, and the last step of a pass is smaller: some ranks have fewer samples.
EVERY = [(ranks, f"-tables_sharding_types {kind} {APART}") for ranks in (2, 3, 4) for kind in ("table_wise", "column_wise")]
EVERY += [(4, f"-tables_sharding_types table_wise {PAIRS}"), (4, f"-tables_sharding_types table_column_wise {PAIRS}"), (4, f"{MIXED} {PAIRS} -comm_relay_bytes 64"),
          (3, f"{MIXED} {APART}"), (3, f"-tables_sharding_types table_wise {APART} -comm_relay_bytes 0"), (3, "-tables_sharding_types table_wise -comm_shared_memory false"),
          (3, f"-tables_sharding_types table_wise -table_user_is_weighted {APART} -pipeline prefetch_sparse_dist"),
          (3, f"-tables_sharding_types table_wise {APART} -table_user_max_feature_lengths 4 -table_user_position_weighted true"),
          (2, f"-tables_sharding_types table_wise {APART} -qcomm_forward_precision bf16 -qcomm_backward_precision fp16"),
          (2, f"-tables_sharding_types table_wise {APART} -table_user_data_type bf16 -table_tag_output_dtype fp16 -embedding_optimizer adam"),
          (3, f"-tables_sharding_types table_wise {APART} -table_user_id_map qr -table_item_pooling none"),
          (4, f"-tables_sharding_types table_wise {APART} -interaction dcn"),
          (3, f"{MIXED} {APART} -reproducible"), (4, f"-tables_sharding_types table_wise {PAIRS} -reproducible -accumulate_steps 2"),
          (3, f"-tables_sharding_types table_wise {APART} -accumulate_steps 2")]
FEW = [EVERY[i] for i in (1, 2, 8, 12, 14, 17, 18)]
# Options with which rows do not travel ahead: all, or those of a group
WITHOUT = [(3, f"-tables_sharding_types table_wise {APART} -tables_compute_kernels fused_uvm_caching -tables_cache_load_factor 0.2 -pipeline prefetch_sparse_dist", False),
           (3, f"-tables_sharding_types table_wise {APART} -table_user_id_map zch -table_user_num_embeddings 500", False), (3, f"-tables_sharding_types table_wise {APART} -table_user_id_map dynamic -table_user_num_embeddings 500", False),
           (2, "-tables_sharding_types table_wise", False), (3, f"-tables_sharding_types row_wise {APART}", False),
           (4, f"-tables_sharding_types table_wise {APART} -plan_replicas 2 -replica_sync gradients", False),
           (3, f"-tables_sharding_types table_wise {APART} -qcomm_forward_precision fp8", False),
           (3, f"-tables_sharding_types table_wise {APART} -table_user_is_weighted -table_user_compute_kernels fused_uvm_caching -table_user_cache_load_factor 0.2", True)]


def make(folder):
    path = write_dataset(os.path.join(folder, "train.h5"), 226, features=FEATURES, weighted=True)
    rng = np.random.default_rng(5)
    with h5py.File(path, "r+") as h:
        feature = np.repeat(np.tile(np.arange(len(FEATURES)), 226), h["sparse/lengths"][()].ravel())
        values = h["sparse/values"][()]
        for name, exponent in ZIPF.items():
            mine = feature == list(FEATURES).index(name)
            values[mine] = (rng.zipf(exponent, mine.sum()) - 1) % FEATURES[name]
        h["sparse/values"][...] = values
    write_dataset(os.path.join(folder, "eval.h5"), 50, seed=8, features=FEATURES, weighted=True)


def train(binary, folder, name, ranks, options):
    """Train. Returns losses, evaluations, the final checkpoint, and the share of bags that travelled ahead (None if none could)."""
    n = 2 if "-accumulate_steps 2" in options else 1
    text = run(binary, ranks, f"-data_train train.h5 -data_eval eval.h5 -eval_every 3 -batch_size {48 // ranks // n} -output {name}.h5 "
               f"-checkpoint_final {name}.final.h5 {MODEL} {options}", folder).text
    found = re.search(r"^look-ahead +([0-9.]+)% of the ([0-9]+) bags", text, re.M)
    with h5py.File(os.path.join(folder, f"{name}.h5")) as h:
        evaluations = h["eval/loss"][()]
    return losses(os.path.join(folder, f"{name}.h5")), evaluations, os.path.join(folder, f"{name}.final.h5"), found and float(found[1])


def check_same(binary, folder, ranks, options):
    """Returns the share of bags that travelled ahead."""
    what = f"{ranks} ranks {options}"
    wanted, wanted_evals, state, share = train(binary, folder, "without", ranks, options)
    check(share is None, f"{what}: bags travel ahead without the option")
    found, evals, other, share = train(binary, folder, "ahead", ranks, f"{options} -ebc_look_ahead true")
    check(len(wanted) == 10 and same_bits(found, wanted), f"{what}: other losses\n{found}\n{wanted}")
    check(len(wanted_evals) == 4 and same_bits(evals, wanted_evals), f"{what}: other evaluations")
    check_same_tensors(other, state, what)
    return share


@thinned
def test_look_ahead(binary, folder):
    """Losses, evaluations between steps, tables and states have the same bits with and without the
    option: for plans with whole rows, on hosts of one and of two ranks, with repeated ids, weights,
    rounded messages, sequences, blocks of samples, and batches that are smaller on some ranks. Some
    bags travel ahead, and some do not."""
    make(folder)
    for ranks, options in thin(EVERY, FEW):
        share = check_same(binary, folder, ranks, options)
        check(share is not None and 5 < share < 95, f"{ranks} ranks {options}: {share}% of the bags travelled ahead")


@thinned
def test_look_ahead_without(binary, folder):
    """Tables with caches, learned weights or cut rows stay as they are, also beside tables whose rows
    travel ahead. Tables that give rows to ids, copies of the tables, one host and codecs of several
    values switch the option off."""
    make(folder)
    for ranks, options, some in thin(WITHOUT, WITHOUT[:2] + WITHOUT[-1:]):
        share = check_same(binary, folder, ranks, options)
        check((share is not None) == some, f"{ranks} ranks {options}: {share}% of the bags travelled ahead")


def test_look_ahead_resume(binary, folder):
    """A training with look-ahead writes the same checkpoints, stops and resumes in the middle on
    another number of ranks, and ends with the bits of one training without look-ahead."""
    make(folder)
    shared = f"-tables_sharding_types table_wise {APART} -reproducible -checkpoint_every 2 -checkpoint_keep 9"
    wanted, _, state, _ = train(binary, folder, "one", 2, f"{shared} -checkpoint_dir one")
    first, _, _, _ = train(binary, folder, "first", 4, f"{shared} -checkpoint_dir two -steps 5 -ebc_look_ahead true")
    check_same_tensors(os.path.join(folder, "two", "step-000000004.h5"), os.path.join(folder, "one", "step-000000004.h5"), "a checkpoint of step 4")
    rest, _, other, share = train(binary, folder, "rest", 3, f"{shared} -checkpoint_dir two -resume -ebc_look_ahead true")
    check(share is not None, "no bags travelled ahead")
    check(same_bits(np.concatenate([first, rest])[-len(wanted):], wanted) or same_bits(rest, wanted[-len(rest):]), f"other losses\n{first} {rest}\n{wanted}")
    check_same_tensors(other, state, "after the resumed training")


def test_look_ahead_stop(binary, folder):
    """A training that is stopped while rows travel ahead writes the checkpoint of its last step and
    ends with 75."""
    make_plain(folder)
    job = Job(binary, 3, f"{EVER} -checkpoint_every 10 -data_eval train.h5 -ebc_look_ahead true {APART}", folder)
    wait_for(lambda: checkpoints(folder), job)
    os.kill(job.pid(1), signal.SIGTERM)
    result = job.wait(10)
    check(result.all_left_with(75, 3, patient=False), f"exit status {result.ranks}, mpirun {result.status}:\n{result.text[-2000:]}")
    done = re.search(r"stopped on request after step (\d+)", result.text)
    check(done and int(done[1]) == newest(folder), f"the newest checkpoint is of step {newest(folder)}:\n{result.text[-2000:]}")
