# SPDX-License-Identifier: BSD-3-Clause
"""Whole runs on a GPU, or on its stand-in: results agree with the CPU, every run gives the same
bits, and every exchange ends.

regression/case/case.py runs this module. Environment variables that begin with NCCL_ON_CPU_ and
CUDA_ON_CPU_ belong to the stand-in.
"""
import json
import os
import re

import h5py
import numpy as np

import law_caches
import law_heads
import law_qr
import law_sequences
from law_plans import FEATURES, MIXED, MODEL, TABLES, make, train
from law_predict import TYPES, check_near, make_trained, predicted
from law_runs import check_same_evaluations, evaluations
from trsrun import check, check_close_losses, check_close_tensors, check_same_tensors, losses, run, same_bits, thin, write_dataset

SHARED = os.environ.get("TRS_GPU_OPTIONS")  # for a machine with fewer GPUs than ranks
NCCL, MPI = ([f"-device cuda {SHARED}"] * 2) if SHARED else ("-device cuda -comm_backend nccl", "-device cuda -comm_backend mpi")
TOLERANCE = 1e-5  # sums are in another order than on the CPU


def count(text, what):
    return [int(n) for n in re.findall(rf"(\d+) {what}", text)]


def options_of(ranks):
    return MIXED if ranks > 1 else ""


def test_cuda_as_cpu(binary, folder):
    """Losses and final checkpoints of NCCL and MPI runs agree with the CPU's. NCCL and MPI give the
    same bits."""
    make(folder)
    for ranks in thin((1, 2, 4), (2,)):
        shared = f"{options_of(ranks)} -epochs 2"
        wanted, state = train(binary, folder, "cpu", ranks, f"{shared} -device cpu", limit_s=240)
        found, nccl = train(binary, folder, "nccl", ranks, f"{shared} {NCCL}", limit_s=240)
        check_close_losses(found, wanted, TOLERANCE, f"nccl on {ranks} ranks")
        check_close_tensors(nccl, state, TOLERANCE, f"nccl on {ranks} ranks")
        again, mpi = train(binary, folder, "mpi", ranks, f"{shared} {MPI}", limit_s=240)
        check(same_bits(again, found), f"mpi on {ranks} ranks: other losses than nccl")
        check_same_tensors(mpi, nccl, f"mpi and nccl on {ranks} ranks")


def test_cuda_bad_ids(binary, folder):
    """The GPU assembles batches from the file's samples. Ids outside their tables are repaired,
    counted and reported as on the CPU, in any order of samples."""
    make(folder)
    path = os.path.join(folder, "train.h5")
    with h5py.File(path, "r+") as h:
        values = h["sparse/values"][()]
        values[7], values[11:300:13] = -2, 10**6
        h["sparse/values"][...] = values
    for more in ("", "-data_shuffle -reader_threads 2"):
        for mode, status in (("warning", 0), ("ignore", 0), ("fatal", 65)):
            shared = f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES} {MIXED} -epochs 2 {more} -bounds_check_mode {mode} -existing_outputs replace"
            on = {name: run(binary, 2, f"{shared} {options} -checkpoint_final {name}.h5", folder, status=status, limit_s=240).text
                  for name, options in (("cpu", "-device cpu"), ("cuda", NCCL))}
            told = {name: sorted(line for line in text.splitlines() if re.match("trshard: .*has id|trshard: .*became 0", line)) for name, text in on.items()}
            check((told["cpu"] != []) == (mode != "ignore"), f"{mode} {more}: {told['cpu']}")
            check(told["cuda"] == told["cpu"], f"{mode} {more}: {told['cuda']} for {told['cpu']}")
            if status == 0:
                check_close_tensors(os.path.join(folder, "cuda.h5"), os.path.join(folder, "cpu.h5"), TOLERANCE, f"{mode} {more}")


def test_cuda_not_finite(binary, folder):
    """A NaN in the data ends a run as on the CPU. No layer turns it into a number."""
    make(folder)
    with h5py.File(os.path.join(folder, "train.h5"), "r+") as h:
        h["dense"][40, 0] = np.nan
    for mode, status in (("fatal", 65), ("warning", 65), ("none", 78)):
        on = {name: run(binary, 2, f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES} {MIXED} -data_check {mode} {options}", folder, status=status, limit_s=240).text
              for name, options in (("cpu", "-device cpu"), ("cuda", NCCL))}
        told = {name: [line for line in text.splitlines() if line.startswith("trshard: error")] for name, text in on.items()}
        check(told["cuda"] == told["cpu"] != [], f"{mode}: {told['cuda']} for {told['cpu']}")


def test_cuda_growing_batches(binary, folder):
    """If batches are far larger than earlier ones, the reader's memory grows while it holds the
    first half of a batch. Weights of ids and of samples are included, in any order."""
    for name, samples, bag in (("short", 480, 1), ("long", 96, 200)):
        write_dataset(os.path.join(folder, f"{name}.h5"), samples, seed=bag, features=FEATURES, weighted=True, largest_bag=bag, sample_weights=0.5)
    for more in thin(("", "-data_shuffle", "-table_word_is_weighted -reader_threads 3", "-table_word_is_weighted -data_shuffle"), ("-data_shuffle", "-table_word_is_weighted -reader_threads 3")):
        shared = f"-data_train short.h5,long.h5 -batch_size 12 {MODEL} {TABLES} {MIXED} -epochs 2 {more} -existing_outputs replace"
        for name, options in (("cpu", "-device cpu"), ("cuda", NCCL)):
            run(binary, 2, f"{shared} {options} -output {name}.h5 -checkpoint_final {name}.final.h5", folder, limit_s=240)
        found, wanted = (losses(os.path.join(folder, f"{name}.h5")) for name in ("cuda", "cpu"))
        check_close_losses(found, wanted, TOLERANCE, more)
        check_close_tensors(os.path.join(folder, "cuda.final.h5"), os.path.join(folder, "cpu.final.h5"), TOLERANCE, more)


def test_cuda_repeat(binary, folder):
    """The bits do not depend on the order in which streams and warps run, nor on the pipeline."""
    make(folder)
    wanted, state = train(binary, folder, "first", 2, f"{MIXED} -epochs 2 {NCCL}", limit_s=240)
    every = (("third", "77", "base"), ("fourth", "5", "prefetch_sparse_dist"), ("second", "2", "sparse_dist"))
    for name, seed, pipeline in thin(every, every[:2]):
        found, other = train(binary, folder, name, 2, f"{MIXED} -epochs 2 {NCCL} -pipeline {pipeline}", limit_s=240,
                             environment={"CUDA_ON_CPU_SEED": seed})
        check(same_bits(found, wanted), f"{name}: other losses")
        check_same_tensors(other, state, name)


def test_cuda_interactions(binary, folder):
    """Interactions with special kernels or kernel orders agree with the CPU."""
    make(folder)
    for kind, numbers in (("dcn_vector", ""), ("dcn_mixture", "-dcn_low_rank_dim 4 -dcn_num_experts 3"), ("projection", "-projection_arch1 9,16 -projection_arch2 8")):
        shared = f"{MIXED} -steps 6 -interaction {kind} {numbers}"
        wanted, state = train(binary, folder, "cpu", 2, f"{shared} -device cpu", limit_s=240)
        found, other = train(binary, folder, "nccl", 2, f"{shared} {NCCL}", limit_s=240)
        check_close_losses(found, wanted, TOLERANCE, kind)
        check_close_tensors(other, state, TOLERANCE, kind)


def test_cuda_pairs(binary, folder):
    """Softmaxes of pairs: losses, weights and recall agree with the CPU, with corrections and drawn
    negatives. With -reproducible, they do not depend on the number of ranks."""
    make(folder)
    towers = "-interaction two_tower -query_features user -query_arch 16,8 -candidate_arch 8 -tower_normalize"
    drawn = "-loss sampled_softmax -softmax_negatives 17 -softmax_logq streaming"
    for ranks, loss in ((1, "-loss in_batch_softmax -softmax_temperature 0.3"), (3, drawn)):
        shared = f"{options_of(ranks)} -steps 6 {towers} {loss} -data_eval train.h5 -eval_every 3 -eval_recall_at 1,5"
        wanted, state = train(binary, folder, "cpu", ranks, f"{shared} -device cpu", limit_s=240)
        found, other = train(binary, folder, "nccl", ranks, f"{shared} {NCCL}", limit_s=240)
        check_close_losses(found, wanted, TOLERANCE, loss)
        check_close_tensors(other, state, TOLERANCE, loss)
        recall = [h5py.File(os.path.join(folder, f"{name}.h5"), "r")["retrieval/recall"][()] for name in ("cpu", "nccl")]
        check(np.array_equal(*recall), f"{loss}: recall {recall}")
    shared = f"-steps 3 -reproducible {towers} {drawn}"
    wanted, state = train(binary, folder, "one", 1, f"{shared} {NCCL}", global_batch=132, limit_s=240)
    found, other = train(binary, folder, "two", 2, f"{shared} {MPI} -tables_sharding_types row_wise", global_batch=132, limit_s=240)
    check(same_bits(found, wanted), "-reproducible: other losses")
    check_same_tensors(other, state, "-reproducible")


def test_cuda_sequence_layers(binary, folder):
    """din, gru and transformer: with -reproducible, losses and tensors have the same bits on any
    number of ranks and under any plan. Evaluation and prediction give the same result."""
    for case in thin(("sequence_din_history", "sequence_din_softmax", "sequence_gru", "sequence_transformer", "sequence_transformer_causal"),
                     ("sequence_din_history", "sequence_gru", "sequence_transformer_causal")):
        steps = 2 if "transformer" in case else 4
        options = f"{law_sequences.prepare(folder, case)} -steps {steps} -reproducible -embedding_max_gradient 0.01"
        run(binary, 1, f"{options} {NCCL} -batch_size 144 -output one.h5 -checkpoint_final one_final.h5", folder, limit_s=240)
        for ranks, backend, plan in thin(((3, NCCL, "-tables_sharding_types column_wise -tables_min_partition 4"), (2, MPI, "-tables_sharding_types row_wise")),
                                         ((2, MPI, "-tables_sharding_types row_wise"),)):
            run(binary, ranks, f"{options} {backend} {plan} -batch_size {144 // ranks} -output two.h5 -checkpoint_final two_final.h5", folder, limit_s=240)
            one, two = (losses(os.path.join(folder, f"{name}.h5")) for name in ("one", "two"))
            check(same_bits(one, two), f"{case}, {ranks} ranks, {plan}: other losses")
            check_same_tensors(os.path.join(folder, "one_final.h5"), os.path.join(folder, "two_final.h5"), f"{case}, {ranks} ranks, {plan}")
        for device in ("-device cpu", NCCL):
            run(binary, 2, f"-task predict -init_from one_final.h5 -data_eval train.h5 -batch_size 40 -output predicted.h5 {device}", folder, limit_s=240)
            with h5py.File(os.path.join(folder, "predicted.h5")) as h:
                found = h["predictions"][()]
            if device == "-device cpu":
                wanted = found
        check(np.abs(found - wanted).max() <= TOLERANCE, f"{case}: predictions differ by {np.abs(found - wanted).max()}")


def test_cuda_replicas(binary, folder):
    """Copies of tables: equal updates give the bits of one copy, also for sequences and uneven
    batches. Means agree with copies on CPUs."""
    make(folder, 83, weighted=True)
    sequences = "-table_item_pooling none -tables_sequence_pooling max"
    options = f"-steps 4 -embedding_optimizer adam -embedding_learning_rate 0.1 -table_user_is_weighted {sequences}"
    wanted, state = train(binary, folder, "one", 1, f"{options} -reproducible {NCCL}", limit_s=240)
    for ranks, copies, backend, plan in thin(((4, 2, NCCL, MIXED), (4, 4, MPI, ""), (6, 3, NCCL, "-tables_sharding_types row_wise")), ((4, 2, NCCL, MIXED),)):
        found, other = train(binary, folder, "other", ranks, f"{options} -reproducible {backend} {plan} -plan_replicas {copies} -replica_sync gradients", limit_s=240)
        check(same_bits(found, wanted), f"{copies} copies on {ranks} ranks {backend} {plan}: losses {list(found)}, of one copy {list(wanted)}")
        check_same_tensors(other, state, f"{copies} copies on {ranks} ranks {backend} {plan}")
    options = f"{options} -table_tag_data_type fp16 -plan_replicas 2 -replica_sync_every 2"
    wanted, state = train(binary, folder, "cpu", 4, f"{options} -device cpu")
    for backend in thin((NCCL, MPI), (NCCL,)):
        found, other = train(binary, folder, "other", 4, f"{options} {backend}", limit_s=240)
        check_close_losses(found, wanted, TOLERANCE, f"means, {backend}")
        # ties may round to either side
        check_close_tensors(other, state, 1e-3, f"means, {backend}")


def test_cuda_accumulate(binary, folder):
    """-accumulate_steps: four batches equal one batch of four times as many samples."""
    make(folder)
    wanted, state = train(binary, folder, "one", 2, f"{MIXED} {NCCL} -batch_size 12", limit_s=240)
    found, other = train(binary, folder, "four", 2, f"{MIXED} {NCCL} -batch_size 3 -accumulate_steps 4", limit_s=240)
    check_close_losses(found, wanted, TOLERANCE, "four batches")
    check_close_tensors(other, state, TOLERANCE, "four batches")


def test_cuda_reproducible(binary, folder):
    """-reproducible gives the same bits for every plan, backend and number of ranks. Cases:
    optimizers that need whole rows, caches, fp16, and sequences."""
    # batches of 132, 132 and 36 samples: two ranks share blocks of 128 samples, and there are
    # smaller blocks
    make(folder, 300)
    hosts, cached = "-topology_local_world_size 2", "-table_user_compute_kernels fused_uvm_caching -table_item_compute_kernels fused_uvm_caching"
    pooled = ("-embedding_optimizer partial_rowwise_adam -dense_optimizer adam -table_user_data_type fp16 -tables_stochastic_rounding "
              "-dense_max_gradient_norm 0.5 -embedding_max_gradient 0.01 -tables_min_partition 4")
    sequences = "-table_user_pooling none -table_item_pooling none -table_user_sequence_pooling max -interaction dcn -dcn_low_rank_dim 4"
    plans = ((2, NCCL, MIXED), (2, MPI, "-tables_sharding_types column_wise"), (4, NCCL, f"-tables_sharding_types grid_shard {hosts}"),
             (4, MPI, f"-tables_sharding_types table_row_wise {hosts} -table_tag_sharding_types data_parallel"),
             (2, NCCL, f"-tables_sharding_types column_wise {cached} -pipeline prefetch_sparse_dist"))
    ways = ((2, NCCL, "-tables_sharding_types row_wise"), (4, MPI, "-tables_sharding_types table_wise"), (3, NCCL, "-tables_sharding_types data_parallel"))
    for model, runs in ((pooled, thin(plans, plans[1:3])), (sequences, thin(ways, ways[:1]))):
        shared = f"-reproducible -epochs 1 {model}"
        wanted, state = train(binary, folder, "one", 1, f"{shared} {NCCL} -tables_sharding_types table_wise", global_batch=132, limit_s=240)
        for ranks, backend, plan in runs:
            found, other = train(binary, folder, "other", ranks, f"{shared} {backend} {plan}", global_batch=132, limit_s=240,
                                 environment={"CUDA_ON_CPU_SEED": str(ranks)})
            check(same_bits(found, wanted), f"{ranks} ranks {backend} {plan}: losses {list(found)}, on one rank {list(wanted)}")
            check_same_tensors(other, state, f"{ranks} ranks {backend} {plan}")
    make(folder, 3)  # all blocks lie on a rank without a sample
    wanted, state = train(binary, folder, "one", 1, f"-reproducible {NCCL}", global_batch=8)
    for backend in thin((NCCL, MPI), (NCCL,)):
        found, other = train(binary, folder, "other", 4, f"-reproducible {backend}", global_batch=8)
        check(same_bits(found, wanted), f"3 samples on 4 ranks {backend}: losses {list(found)}, on one rank {list(wanted)}")
        check_same_tensors(other, state, f"3 samples on 4 ranks {backend}")


def test_cuda_any_order(binary, folder):
    """-dense_allreduce_order any: NCCL's sums are close to those in rank order and are the same in
    every run. The option is refused if an order is required."""
    make(folder)
    shared = f"{MIXED} -epochs 2 -dense_bucket_bytes 400 -dense_optimizer sgd -dense_learning_rate 0.5 {NCCL}"
    wanted, state = train(binary, folder, "rank", 3, shared, global_batch=24, limit_s=240)
    found, other = train(binary, folder, "any", 3, f"{shared} -dense_allreduce_order any", global_batch=24, limit_s=240)
    check_close_losses(found, wanted, TOLERANCE, "any order")
    check_close_tensors(other, state, TOLERANCE, "any order")
    if not SHARED:
        check(not same_bits(found, wanted), "any order: the bits of the ranks' order, from sums in another one")
        again, other = train(binary, folder, "again", 3, f"{shared} -dense_allreduce_order any", global_batch=24, limit_s=240, environment={"CUDA_ON_CPU_SEED": "3"})
        check(same_bits(again, found), "any order: other losses in a second run")
    for more, what in (("-reproducible", "any order does not go with -reproducible"), ("-dense_allreduce_precision bf16", "-dense_allreduce_precision fp32 alone"),
                       ("-accumulate_steps 2", "any order does not go with -accumulate_steps")):
        words = f"-data_train train.h5 -batch_size 8 -tables_embedding_dim 8 -dense_arch 8 -over_arch 8,1 -dense_allreduce_order any {NCCL} {more}"
        check(what in run(binary, 1, words, folder, status=64).text, f"not refused: {more}")


def test_cuda_algorithms(binary, folder):
    """-dense_product_algorithms: the result file names the fastest algorithm, -log_view prints it, and
    the results equal the first algorithm's. The option is refused if bits are guaranteed."""
    make(folder)
    shared = f"{MIXED} -steps 6 {NCCL}"
    wanted, state = train(binary, folder, "first", 2, shared, limit_s=240)
    found, other = train(binary, folder, "timed", 2, f"{shared} -dense_product_algorithms 8", limit_s=240, environment={"CUBLASLT_ON_CPU_FASTEST": "3"})
    check_close_losses(found, wanted, TOLERANCE, "timed")
    check_close_tensors(other, state, TOLERANCE, "timed")
    with h5py.File(os.path.join(folder, "timed.h5")) as h:
        products = h.attrs["products"].splitlines()
    check(len(products) > 5 and any("bias relu" in line for line in products), f"products: {products}")
    check(SHARED or all(": algorithm 4 of 5, " in line for line in products), f"products: {products}")
    with h5py.File(os.path.join(folder, "first.h5")) as h:
        check("products" not in h.attrs, "timed without the option")
    words = f"-data_train train.h5 -batch_size 8 -tables_embedding_dim 8 -dense_arch 8 -over_arch 8,1 -dense_product_algorithms 2 {NCCL}"
    check("-dense_product_algorithms" in run(binary, 1, f"{words} -reproducible", folder, status=64).text, "not refused with -reproducible")
    text = run(binary, 1, f"{words} -steps 4 -log_view -output view.h5", folder).text
    with h5py.File(os.path.join(folder, "view.h5")) as h:
        products = h.attrs["products"].splitlines()
    printed = [line[11:] for line in text.splitlines() if line.startswith("choice     ")]
    check(printed == products and products, f"choices: {printed}, in the file {products}")


def test_cuda_bf16(binary, folder):
    """-dense_precision bf16: losses with matrices of 2 bytes are within 2e-3 of the CPU's, which
    rounds only operands and pooled rows. With a layer norm they are within 5e-3, because bf16
    itself changes them by this much. Master weights stay fp32. With -reproducible, the bits do not
    depend on the number of ranks."""
    make(folder)
    layers = "-dense_arch 16,8 -over_arch 24,16,1"
    every = ("", "-interaction dcn -dcn_low_rank_dim 4", "-interaction dcn_full", "-interaction cat -over_arch_layer_norm", "-over_arch_dropout 0.2 -dense_arch_activation sigmoid",
             "-interaction dcn_mixture -dcn_low_rank_dim 4 -dcn_num_experts 2", "-interaction dcn_mixture -dcn_low_rank_dim 3 -dcn_num_experts 1", "-interaction dcn_vector", "-interaction deepfm",
             "-tables_embedding_dim 16 -dense_arch 16,16")  # vectors for tensor cores
    for more in thin(every, (*every[:3], every[-1])):
        shared = f"{MIXED} -epochs 2 {layers} {more}"
        plain, _ = train(binary, folder, "plain", 2, f"{shared} {NCCL}", limit_s=240)
        # rounds like the GPU
        rows = "-qcomm_forward_precision bf16 -qcomm_backward_precision bf16" if "cat" in more or "deepfm" in more else "-tables_output_dtype bf16"
        wanted, _ = train(binary, folder, "cpu", 2, f"{shared} -device cpu -dense_precision bf16 {rows}", limit_s=240)
        found, state = train(binary, folder, "bf16", 2, f"{shared} {NCCL} -dense_precision bf16", limit_s=240)
        check_close_losses(found, wanted, 5e-3 if "layer_norm" in more else 2e-3, more)
        check(not same_bits(found, plain), f"{more}: fp32's losses")
        with h5py.File(state) as h:
            check((h["dense/over_arch/0/weight"][()].view("u4") & 0xFFFF).any(), f"{more}: the weights themselves are rounded")
    shared = f"-reproducible -epochs 1 -dense_precision bf16 -dense_optimizer adam {layers}"
    for more in thin(every[:3], every[:2]):
        wanted, state = train(binary, folder, "one", 1, f"{shared} {more} {NCCL} -tables_sharding_types table_wise", global_batch=132, limit_s=240)
        found, other = train(binary, folder, "other", 3, f"{shared} {more} {MPI} -tables_sharding_types row_wise", global_batch=132, limit_s=240)
        check(same_bits(found, wanted), f"-reproducible {more}: losses {list(found)}, on one rank {list(wanted)}")
        check_same_tensors(other, state, f"-reproducible {more}")


# Each table has its own sharding. The clamp never takes effect, but such tables keep the model's
# matrices in float.
FLOATS = "-embedding_max_gradient 1e30"
SPREAD = ("", MIXED.replace("table_wise", "table_column_wise").replace("data_parallel", "row_wise"),
          "-table_user_sharding_types grid_shard -table_item_sharding_types table_row_wise -comm_ranks_per_host 2")


def test_cuda_in_place(binary, folder):
    """A GPU's dot interaction can read pooled rows in their receive buffers, and leave gradients
    there. The result has the bits of a run with matrices. A gradient limit that no gradient reaches
    forces these matrices."""
    make(folder, weighted=True)
    every = ((1, "-tables_sharding_types table_wise"), (2, f"{MIXED} {NCCL}"), (3, f"-tables_sharding_types table_wise {NCCL} -embedding_optimizer adam"), (4, f"{MIXED} {MPI}"),
             (4, f"-tables_sharding_types table_row_wise -topology_local_world_size 2 {NCCL}"), (2, f"-tables_sharding_types table_wise {MPI} -comm_shared_memory false"))
    for ranks, more in thin(every, every[:3]):
        found = {}
        for name, words in (("place", ""), ("matrix", "-embedding_max_gradient 1e30")):
            found[name], _ = train(binary, folder, name, ranks, f"-device cuda -epochs 2 -data_eval train.h5 -eval_every 5 {more} {words}", limit_s=240)
        check(same_bits(found["place"], found["matrix"]), f"{more}: losses {list(found['place'])}, not {list(found['matrix'])}")
        check_same_tensors(os.path.join(folder, "place.final.h5"), os.path.join(folder, "matrix.final.h5"), more)


def test_cuda_bf16_rows(binary, folder):
    """-dense_precision bf16: pooled rows and gradients that are looked up, sent and updated in 2
    bytes have the bits of floats that are rounded as whole rows (output_dtype bf16)."""
    make(folder, weighted=True)
    every = ((1, "-tables_sharding_types table_wise"), (2, f"{MIXED} {NCCL}"), (4, f"{MIXED} {MPI} -table_word_is_weighted true"), (3, f"{SPREAD[1]} {NCCL}"), (4, f"{SPREAD[2]} {NCCL}"),
             (2, f"{MIXED} {NCCL} -embedding_optimizer adam -tables_data_type fp16"), (2, f"{MIXED} {NCCL} -table_item_compute_kernels fused_uvm_caching -table_item_cache_load_factor 0.3"))
    for ranks, more in thin(every, (*every[:2], every[3])):
        found = {}
        for name, words in (("bf16", ""), ("rounded", "-tables_output_dtype bf16"), ("floats", f"-tables_output_dtype bf16 {FLOATS}")):
            run(binary, ranks, f"-data_train train.h5 -data_eval train.h5 -data_dense none -batch_size {24 // ranks} -epochs 1 -output {name}.h5 -checkpoint_final {name}.final.h5 "
                f"{MODEL} {TABLES} -device cuda -dense_precision bf16 {more} {words}", folder, limit_s=240)
            found[name] = losses(os.path.join(folder, f"{name}.h5"))
            check(same_bits(found[name], found["bf16"]), f"{more} {words}: losses {list(found[name])}, not {list(found['bf16'])}")
            check_same_tensors(os.path.join(folder, f"{name}.final.h5"), os.path.join(folder, "bf16.final.h5"), f"{more} {words}")
    found = {}
    for name, words in (("bf16", ""), ("floats", f"-tables_output_dtype bf16 {FLOATS}")):
        run(binary, 2, f"-task predict -init_from bf16.final.h5 -data_eval train.h5 -data_dense none -tables_min_partition 4 -output {name}.h5 -predict_embeddings user,word {NCCL} -dense_precision bf16 {words}", folder)
        with h5py.File(os.path.join(folder, f"{name}.h5")) as h:
            found[name] = {feature: h[f"embeddings/{feature}"][()] for feature in ("user", "word")}
    for feature, rows in found["bf16"].items():
        check(rows.any() and same_bits(rows, found["floats"][feature]), f"-predict_embeddings {feature}: {rows[:2]} of floats {found['floats'][feature][:2]}")
    # Matrices are float, so rows travel as bf16 unless an option selects another format.
    found = {}
    for word in ("", "bf16", "fp32"):
        words = f"-qcomm_forward_precision {word} -qcomm_backward_precision {word}" if word else ""
        found[word], _ = train(binary, folder, "wire", 2, f"{MIXED} {NCCL} -dense_precision bf16 {FLOATS} -epochs 1 {words}", limit_s=240)
    check(same_bits(found[""], found["bf16"]), f"rows do not travel as bf16: {found}")
    check(not same_bits(found[""], found["fp32"]), f"-qcomm_forward_precision fp32 changes nothing: {found}")
    # The banner prints the types of matrices. Operations that need float keep it.
    floats = ("-table_user_pooling none -table_user_sequence_pooling mean", FLOATS, "-reproducible", "-accumulate_steps 2", "-ebc_variable_batch", "-tables_output_dtype fp16",
              "-interaction cat", "-dense_arch_layer_norm", "-tables_embedding_dim 12 -dense_arch 16,12", "-table_word_position_weighted true -table_word_max_feature_lengths 3")
    for more in thin(("", "-interaction dcn", *floats), ("", "-interaction dcn", *floats[:3], *floats[-2:])):
        text = run(binary, 2, f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES} {NCCL} -dense_precision bf16 -steps 2 {more}", folder, limit_s=240).text
        check((" of bf16, " in text) == (more not in floats), f"{more}: {text[:3000]}")


def test_cuda_bf16_layers(binary, folder):
    """-dense_precision bf16 with layers that keep copies for products: losses of sequences and
    heads are within 2e-3 of the CPU's, which rounds only operands."""
    every = ("sequence_gru", "sequence_din_history", "sequence_transformer_causal", "mmoe", "ple")
    for case in thin(every, every):
        if case.startswith("sequence"):
            options, batch = law_sequences.prepare(folder, case), 24
        else:
            options, _, batch, _ = law_heads.unpack(folder, case)
            options = f"-data_train train.h5 -init_from init.h5 -tables_min_partition 4 {options}"
        options += " -steps 8"
        found = {}
        for name, device in (("cpu", "-device cpu -dense_precision bf16"), ("bf16", f"{NCCL} -dense_precision bf16"), ("plain", NCCL)):
            run(binary, 2, f"{options} -batch_size {batch // 2} {device} -output {name}.h5", folder, limit_s=240)
            found[name] = losses(os.path.join(folder, f"{name}.h5"))
        check_close_losses(found["bf16"], found["cpu"], 2e-3, case)
        check(not same_bits(found["bf16"], found["plain"]), f"{case}: fp32's losses")


def test_cuda_caches(binary, folder):
    """Rows in host memory, without and with the LRU and LFU caches of one lookup, which are
    prefetched: the bits of tables on the GPU."""
    law_caches.make(folder, 144)
    law_caches.compare(binary, folder, 2, f"-tables_sharding_types table_wise {NCCL}", ("both",), ("prefetch_sparse_dist",), limit_s=240)


def test_cuda_variable_batch(binary, folder):
    """Equal bags that share a row, under every plan that supports them, weighted, averaged, with
    positions and without ids: results agree with the CPU. nccl and mpi give the same results, also
    with caches."""
    make_equal_bags(folder)
    kinds = "-table_word_position_weighted true -table_word_max_feature_lengths 2 -table_user_is_weighted -epochs 2 -ebc_variable_batch"
    every = ((1, ""), (2, MIXED), (4, "-tables_sharding_types row_wise"), (4, "-tables_sharding_types column_wise"))
    for ranks, plan in thin(every, every[3:]):
        what = f"{plan} on {ranks} ranks"
        wanted, state = train(binary, folder, "cpu", ranks, f"{kinds} {plan} -device cpu", limit_s=240)
        found, other = train(binary, folder, "nccl", ranks, f"{kinds} {plan} {NCCL}", limit_s=240)
        check_close_losses(found, wanted, TOLERANCE, what)
        check_close_tensors(other, state, TOLERANCE, what)
    for name, more in (("mpi", f"{MPI} -pipeline base"), ("caches", f"{NCCL} -pipeline prefetch_sparse_dist -tables_compute_kernels fused_uvm_caching")):
        again, state = train(binary, folder, name, 4, f"{kinds} {plan} {more}", limit_s=240, environment={"CUDA_ON_CPU_SEED": "7"})
        check(same_bits(again, found), f"{name}: other losses")
        check_same_tensors(state, other, name)


def make_equal_bags(folder):
    """Few ids, so that samples share bags, some empty bags, and a last batch of fewer samples than
    ranks."""
    write_dataset(os.path.join(folder, "train.h5"), 98, features={"user": 3, "item": 30, "tag": 2, "shop": 30, "word": 4}, largest_bag=2, weighted=True)


def test_cuda_evaluate(binary, folder):
    """Evaluations that start the next forward pass before the last results are read have the bits
    of -pipeline base, between steps and separately, also with -reproducible."""
    make(folder)
    write_dataset(os.path.join(folder, "eval.h5"), 101, seed=8, features=FEATURES)
    check_same_evaluations(binary, folder, 2, f"{MIXED} {NCCL} -table_item_compute_kernels fused_uvm_caching -table_item_cache_load_factor 0.3",
                           thin(("sparse_dist", "prefetch_sparse_dist"), ("prefetch_sparse_dist",)))
    for pipelines in thin((("sparse_dist",),), ()):
        check_same_evaluations(binary, folder, 1, f"{NCCL} -reproducible", pipelines)


def test_cuda_predict(binary, folder):
    """Quantised tables on the GPU give the CPU's predictions, and its bytes in -quant_checkpoint,
    under every plan."""
    state = make_trained(folder, binary)
    types = f"-init_from {state} {TYPES} -tables_output_dtype fp16"
    wanted = predicted(binary, folder, 1, f"{types} -device cpu -quant_checkpoint cpu.h5")
    for ranks, kind in ((1, "table_wise"), (3, "column_wise"), (4, "row_wise")):
        found = predicted(binary, folder, ranks, f"{types} {MPI} -tables_sharding_types {kind} -quant_checkpoint cuda.h5")
        # a sum at a tie may round to either side
        check_near(found, wanted, 2e-4, f"{kind} on {ranks} ranks")
        check_same_tensors(os.path.join(folder, "cuda.h5"), os.path.join(folder, "cpu.h5"), f"{kind} on {ranks} ranks")
        again = predicted(binary, folder, ranks, f"-init_from cuda.h5 -tables_output_dtype fp16 {MPI} -tables_sharding_types {kind}")
        check(same_bits(again, found), f"{kind} on {ranks} ranks: other predictions from its own file")


def test_cuda_qr(binary, folder):
    """Split tables agree with the CPU. With -reproducible they have the same bits under every plan,
    also with rows in prefetched caches."""
    law_qr.make(folder)
    shared = f"{law_qr.TRAINING.replace(f'-steps {law_qr.STEPS}', '-steps 6')} {law_qr.MODEL} -table_item_data_type fp16 -tables_output_dtype bf16"
    wanted, state = train(binary, folder, "cpu", 2, f"{shared} -device cpu")
    found, other = train(binary, folder, "cuda", 2, f"{shared} {NCCL} -tables_sharding_types row_wise", limit_s=240)
    # sums in another order may round to another bf16
    check_close_losses(found, wanted, 2e-3, "nccl on 2 ranks")
    check_close_tensors(other, state, 2e-2, "nccl on 2 ranks")
    cached = "-tables_compute_kernels fused_uvm_caching -pipeline prefetch_sparse_dist"
    wanted, state = train(binary, folder, "one", 1, f"{shared} -reproducible {NCCL} -tables_sharding_types table_wise", limit_s=240)
    for backend, plan in ((MPI, "-tables_sharding_types column_wise"), (NCCL, f"-tables_sharding_types row_wise {cached}")):
        found, other = train(binary, folder, "other", 2, f"{shared} -reproducible {backend} {plan}", limit_s=240, environment={"CUDA_ON_CPU_SEED": "7"})
        check(same_bits(found, wanted), f"{plan}: other losses")
        check_same_tensors(other, state, plan)


def test_cuda_exchange(binary, folder):
    """Every exchange format, and optimizers with states for rows and for elements, agree with the
    CPU."""
    make(folder)
    for name, more in (("fp16", "-qcomm_forward_precision fp16 -qcomm_backward_precision bf16"),
                       ("int8", "-qcomm_forward_precision int8 -qcomm_backward_precision fp8"),
                       ("dense", "-dense_allreduce_precision bf16 -dense_bucket_bytes 1000"),
                       ("adam", "-embedding_optimizer adam -dense_optimizer adam -dense_max_gradient_norm 0.5"),
                       ("dcn", "-interaction dcn -dcn_low_rank_dim 4 -embedding_optimizer lamb -dense_optimizer adagrad"),
                       ("layers", "-dense_arch_activation swish_layernorm -dense_arch_dropout 0.3 -over_arch_layer_norm -over_arch_activation tanh "
                                  "-over_arch_dropout 0.2 -over_arch 9,9,1 -over_arch_residual -interaction dcn_full -dcn_num_layers 2")):
        wanted, state = train(binary, folder, "cpu", 2, f"{MIXED} -steps 10 {more} -device cpu", limit_s=240)
        found, other = train(binary, folder, "cuda", 2, f"{MIXED} -steps 10 {more} {NCCL}", limit_s=240)
        # sums in another order may round differently in few bits
        tolerance = TOLERANCE if name in ("adam", "dcn", "layers") else 2e-3
        check_close_losses(found, wanted, tolerance, name)
        check_close_tensors(other, state, tolerance, name)


def test_cuda_resume(binary, folder):
    """CPUs can read a GPU run's checkpoint, and GPUs a CPU run's, on other numbers of ranks."""
    make(folder)
    wanted, state = train(binary, folder, "whole", 2, f"{MIXED} -steps 12 -device cpu", limit_s=240)
    for first, then in ((NCCL, "-device cpu"), ("-device cpu", NCCL)):
        dirname = "half" + str(len(first))
        train(binary, folder, "half", 2, f"{MIXED} -steps 6 {first} -checkpoint_dir {dirname} -checkpoint_every 6", limit_s=240)
        found, other = train(binary, folder, "rest", 4, f"{MIXED} -steps 12 {then} -checkpoint_dir {dirname} -resume", limit_s=240)
        check_close_losses(found, wanted[6:], TOLERANCE, f"{first}, then {then}")
        check_close_tensors(other, state, TOLERANCE, f"{first}, then {then}")


# The numbers of every step differ: learning rate, bias corrections, dropout, and weights of
# samples. With 227 samples, an epoch's last batch is smaller and uses another slot each time.
CHANGING = ("-dense_optimizer adam -dense_learning_rate 0.02 -schedule_policies linear,cosine -schedule_end_steps 8,60 -schedule_values 0.1,0.2 "
            "-dense_arch_dropout 0.2 -over_arch 16,8,1 -over_arch_dropout 0.3 -data_eval eval.h5 -eval_every 9")


def make_changing(folder):
    make(folder, 227, sample_weights=0.5 + np.random.default_rng(5).random(227))
    write_dataset(os.path.join(folder, "eval.h5"), 203, seed=8, features=FEATURES)


def test_cuda_graphs(binary, folder):
    """-dense_graphs gives the bits of a run without it: with numbers that differ in every step,
    smaller last batches, and evaluations between steps; with every optimizer; and with buckets that
    start during the backward pass."""
    make_changing(folder)
    every = ((1, "", ""), (2, "-interaction dcn -dcn_low_rank_dim 4 -dense_bucket_bytes 400 -dense_max_gradient_norm 0.5", NCCL), (2, "-dense_bucket_bytes 1000", MPI),
             (1, "-dense_optimizer adamw -ema_decay 0.9 -interaction dcn_full", ""), (1, "-dense_optimizer lamb -over_arch_layer_norm", ""), (1, "-dense_optimizer adagrad", ""),
             (1, "-dense_precision bf16 -dense_product_algorithms 2", ""), (2, "-tasks click,buy -task_heads mmoe -heads_expert_arch 8 -task_click_loss huber -data_train tasks.h5 -data_eval tasks.h5", NCCL),
             (1, "-table_word_position_weighted true -table_word_max_feature_lengths 3", ""), (2, CACHES, NCCL))
    write_dataset(os.path.join(folder, "tasks.h5"), 227, features=FEATURES, labels=("click", "buy"))
    for ranks, more, backend in thin(every, every[:2] + every[4:5]):
        shared = f"{options_of(ranks)} -epochs 2 {CHANGING} {more} {backend or NCCL}"
        wanted, state = train(binary, folder, "plain", ranks, shared, limit_s=240)
        between = evaluations(folder, "plain")
        check(len(between["eval/step"]) >= 2, f"evaluations after {between['eval/step']}")
        found, other = train(binary, folder, "graphs", ranks, f"{shared} -dense_graphs", limit_s=240, environment={"CUDA_ON_CPU_SEED": "7"})
        check(same_bits(found, wanted), f"{more}: losses {list(found)}, without graphs {list(wanted)}")
        check_same_tensors(other, state, more)
        again = evaluations(folder, "graphs")
        check(sorted(again) == sorted(between), f"{more}: {sorted(again)} for {sorted(between)}")
        for part, numbers in between.items():
            check(same_bits(again[part], numbers), f"{more}: {part} {again[part]}, without graphs {numbers}")


STREAMS = {"compute stream": {"lookup", "output_dist", "dense forward", "dense backward", "embedding backward", "optimizer"},
           "data_dist stream": {"input_dist"}, "memcpy stream": {"copy batch"}, "prefetch stream": {"embedding backward"}, "exchanges": {"ids", "rows", "dense gradients"}}


def test_cuda_trace(binary, folder):
    """The trace shows the work of the device's streams on the host's clock, and the overlap is
    computed from it: with NCCL and with MPI, and also if only -log_view is given."""
    make(folder)
    for name, backend, cache in (("nccl", NCCL, set()), ("mpi", f"{MPI} {CACHES}", {"cache"})):
        shared = f"-data_train train.h5 -batch_size 12 -tables_embedding_dim 8 -dense_arch 8 -over_arch 8,1 {MIXED_DIM8} -steps 9 {backend}"
        text = run(binary, 2, f"{shared} -trace {name}.json -trace_first_step 3 -trace_steps 4", folder, limit_s=240).text
        for what in ("H2D copy", "input_dist", "output_dist"):
            found = re.search(rf"overlap +{what}: (\d+)% of ([\d.]+) ms a step", text)
            check(found and 0 <= int(found[1]) <= 100 and float(found[2]) > 0, f"{name}: overlap of {what}:\n{text}")
        found = re.search(r"exposed +([\d.]+)% of a step", text)
        check(found and 0 <= float(found[1]) <= 100, f"{name}: exposed communication:\n{text}")
        found = re.search(r"device +([\d.]+) ms a step in stages of the compute stream, a step took ([\d.]+) ms: [\d.]+ times", text)
        check(found and float(found[1]) > 0 and float(found[2]) > 0, f"{name}: compute stream's part of a step:\n{text}")
        found = re.search(r"idle +([\d.]+) ms a step in no stage of the compute stream; meanwhile on the host: (.*)", text)
        parts = [float(part.split()[-1]) for part in found[2].split(", ")] if found else []
        check(parts and abs(sum(parts) - float(found[1])) <= 0.001 * len(parts) + 0.001, f"{name}: idle time:\n{text}")
        check_device_rows(os.path.join(folder, f"{name}.json"), range(3, 7), name, {**STREAMS, "prefetch stream": {"embedding backward"} | cache})
        check(re.findall(r"(overlap|exposed) +[^:]*: ", run(binary, 2, f"{shared} -trace_first_step 3", folder, limit_s=240).text).count("overlap") == 3, f"{name}: not told without a file")


def check_device_rows(path, steps, name, streams):
    with open(path, encoding="ascii") as file:
        events = json.load(file)["traceEvents"]
    rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    for rank in (0, 1):
        whole = [span for span in spans if span["name"] == "step" and span["pid"] == rank]
        begin, end = min(span["ts"] for span in whole), max(span["ts"] + span["dur"] for span in whole)
        for row, wanted in streams.items():
            mine = [span for span in spans if span["pid"] == rank and rows[rank, span["tid"]] == row]
            check({span["name"] for span in mine} == wanted, f"{name}: rank {rank}'s {row} has {sorted({span['name'] for span in mine})}")
            for step in steps:
                found = {span["name"] for span in mine if span["args"]["step"] == step}
                check(row == "memcpy stream" or found == wanted, f"{name}: rank {rank}'s {row} has only {sorted(found)} of step {step}")
            check(all(span["ts"] >= begin - 10000 for span in mine), f"{name}: rank {rank}'s {row} begins before its step")
            check(min((span["ts"] for span in mine), default=begin) <= end, f"{name}: rank {rank}'s {row} is on another clock than the steps")
            last = -1e300
            for span in mine if row != "exchanges" else ():
                check(span["ts"] >= last - 0.01, f"{name}: rank {rank}'s {row} does two things at once")
                last = span["ts"] + span["dur"]


CACHES = ("-pipeline prefetch_sparse_dist -table_user_compute_kernels fused_uvm_caching -table_item_compute_kernels fused_uvm_caching "
          "-table_item_cache_algorithm lfu -table_word_compute_kernels fused_uvm")
MIXED_DIM8 = MIXED + (" -tables user,item,tag,word -table_item_features item,shop -table_item_num_embeddings 30 -tables_min_partition 4")


def check_ends_with_69(binary, folder, fault, limits, words):
    make(folder)
    result = run(binary, 3, f"-data_train train.h5 -batch_size 8 -tables_embedding_dim 8 -dense_arch 8 -over_arch 8,1 -epochs 50 {NCCL} {limits}",
                 folder, status=None, limit_s=120, environment={"NCCL_ON_CPU_FAULT": fault})
    check(result.status == 69, f"{fault}: exit {result.status}, expected 69:\n{result.text[-1500:]}")
    for word in words:
        check(word in result.text, f"{fault}: no '{word}' in:\n{result.text[-1500:]}")


def test_nccl_error(binary, folder):
    """If a communicator reports an error on one rank, the job ends with 69 and one message."""
    check_ends_with_69(binary, folder, "1,40,error", "-comm_wait_seconds 60", ["NCCL failed", "remote error"])


def test_nccl_hang(binary, folder):
    """If an exchange never ends, the job ends at the deadline."""
    check_ends_with_69(binary, folder, "2,40,hang", "-comm_wait_seconds 5", ["did not end in 5", "(-comm_wait_seconds)"])


def test_nccl_stuck(binary, folder):
    """If a call to NCCL does not return, the thread that watches it aborts it."""
    check_ends_with_69(binary, folder, "1,40,stuck", "-comm_wait_seconds 3", ["did not end in 3", "(-comm_wait_seconds)"])


def test_nccl_stuck_init(binary, folder):
    """If a communicator's set-up does not return, nothing can abort it. The job ends at the
    deadline, and no message tells of an abort."""
    check_ends_with_69(binary, folder, "1,0,stuck_init", "-comm_wait_seconds 3", ["the set-up of a communicator did not end in 3 s (-comm_wait_seconds); a rank"])


def test_nccl_finalize(binary, folder):
    """If a communicator's end fails, the message is NCCL's, and no freed communicator is used."""
    check_ends_with_69(binary, folder, "1,0,finalize", "-comm_wait_seconds 60 -steps 3", ["NCCL failed in the end of a communicator: system error (the stand-in's fault)"])


def test_nccl_init(binary, folder):
    """If a communicator cannot be set up, the job ends in the same way."""
    check_ends_with_69(binary, folder, "0,0,init", "-comm_wait_seconds 60", ["NCCL failed", "system error"])


def test_gpu_memory(binary, folder):
    """If a plan does not fit the free memory, this is reported before training: once, with numbers
    and remedies, and with 71 on all ranks. The memory of ranks that share a GPU is added up."""
    make(folder)
    options = "-data_train train.h5 -batch_size 8 -tables_embedding_dim 16 -dense_arch 16 -over_arch 8,1 -comm_backend mpi -steps 2 -device cuda " \
              "-table_user_num_embeddings 200000 -topology_hbm_cap 1GiB"  # 12.2 MiB
    for name, ranks, more, small, large in (("one", 1, "-tables_sharding_types table_wise", "8000000", "64000000"), ("shared", 2, "-gpu_share -tables_sharding_types row_wise", "10000000", "64000000")):
        sharing = {"CUDA_ON_CPU_DEVICES": "1"}
        result = run(binary, ranks, f"{options} {more}", folder, status=71, environment={"CUDA_ON_CPU_BYTES": small, **sharing})
        check(re.search(r"the plan gives rank \d on .* of tables and [\d.]+ [KM]iB of their optimizer states and [\d.]+ \S+ of batches, but [\d.]+ MiB of the GPU's memory are free.*-topology_hbm_cap", result.text),
              f"{name}: no message in {result.text[-600:]}")
        check(result.text.count("trshard: error") == 1, f"{name}: {result.text.count('trshard: error')} messages")
        check(("that share its memory" in result.text) == (ranks > 1), f"{name}: {result.text[-600:]}")
        run(binary, ranks, f"{options} {more}", folder, limit_s=240, environment={"CUDA_ON_CPU_BYTES": large, **sharing})
    # NCCL's memory for its peers is known before tables are filled, not only in step 1
    if not SHARED:
        words = options.replace("-comm_backend mpi", "-comm_backend nccl").replace("200000", "600000") + " -tables_sharding_types row_wise"
        for each, status in (("1000", 0), ("12000000", 71)):
            result = run(binary, 2, words, folder, status=status, limit_s=240, environment={"CUDA_ON_CPU_BYTES": "64000000", "NCCL_ON_CPU_BYTES": each})
            check(bool(status) == ("the plan gives rank" in result.text), f"NCCL takes {each} bytes: {result.text[-600:]}")
    # Rows are in host memory. Their optimizer's states are there too (the run succeeds), or on the
    # GPU as enforce_hbm requires: 73.2 MiB for user's.
    options = options.replace("200000", "600000") + " -embedding_optimizer adam -tables_compute_kernels fused_uvm -tables_sharding_types table_wise"
    for name, more, status in (("states on the host", "", 0), ("states on the GPU", "-tables_enforce_hbm", 71)):
        result = run(binary, 1, f"{options} {more}", folder, status=status, limit_s=240, environment={"CUDA_ON_CPU_BYTES": "64000000"})
        check(bool(status) == bool(re.search(r"the plan gives rank 0 on .* 0 B of tables and 73\.\d+ MiB of their optimizer states", result.text)),
              f"{name}: {result.text[-600:]}")


def make_even_bags(folder, samples, bag, rows=512):
    """Four features with `bag` ids in every sample, so that every batch is as large as the
    dataset's means predict."""
    path = write_dataset(os.path.join(folder, "train.h5"), samples, features={f"f{i}": rows for i in range(4)}, num_dense=2)
    n = samples * 4
    with h5py.File(path, "r+") as h:
        for name, values in (("lengths", np.full((samples, 4), bag, np.int32)), ("offsets", np.arange(samples + 1) * 4 * bag),
                             ("values", (np.random.default_rng(3).permutation(n * bag) % rows).astype(np.int32)), ("weights", np.ones(n * bag, np.float32))):
            if name in h["sparse"]:
                del h["sparse"][name]
            h["sparse"][name] = values


UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def test_gpu_batch_memory(binary, folder):
    """The memory need that a refused run reports equals the memory of a run to within 15 %, if
    batches are large in comparison to the rest. With 5 % less memory, the run is refused before
    tables are filled. With the memory that the run used, it succeeds. Bags have one size. Buffers
    grow by half, so other data may need 1.5 times as much."""
    make_even_bags(folder, 768, 128)
    own = {"TRSHARD_GEMM": "own"}  # without cuBLASLt's 32 MiB
    options = f"-data_train train.h5 -batch_size 128 -tables_embedding_dim 8 -dense_arch 8 -over_arch 4,1 -steps 4 -topology_hbm_cap 1GiB {NCCL}"
    every = [(1, "-tables_sharding_types table_wise"), (2, "-tables_sharding_types table_wise"), (2, "-tables_sharding_types table_wise -tables_is_weighted"),
             (2, "-tables_sharding_types table_wise -tables_pooling mean"), (2, "-tables_sharding_types data_parallel"), (2, "-tables_sharding_types column_wise -tables_min_partition 4"),
             (2, "-tables_sharding_types table_wise -tables_position_weighted -tables_max_feature_lengths 128"), (2, "-tables_sharding_types table_wise -reproducible"),
             (2, "-tables_sharding_types table_wise -data_eval train.h5 -eval_every 2"), (2, "-plan_replicas 2 -replica_sync gradients"),
             (2, "-tables_sharding_types row_wise -tables_pooling none -tables_sequence_pooling max -ec_index_dedup")]
    for ranks, more in thin(every, every[2:3]):
        refused = run(binary, ranks, f"{options} {more}", folder, status=71, environment={"CUDA_ON_CPU_BYTES": "300000", **own}).text
        told = re.search(r"the plan gives rank \d on \S+ ([\d.]+) (\w+) of tables and ([\d.]+) (\w+) of their optimizer states and ([\d.]+) (\w+) of batches", refused)
        check(told, f"{more}: no message in {refused[-600:]}")
        need = sum(float(told[i]) * UNITS[told[i + 1]] for i in (1, 3, 5))
        held = max(count(run(binary, ranks, f"{options} {more}", folder, limit_s=240, environment={"CUDA_ON_CPU_REPORT": "1", **own}).text, "bytes held at most"))
        check(0.85 * held <= need <= 1.15 * held, f"{more} on {ranks} ranks: {need:.0f} bytes told, {held} held: {need / held:.2f}")
        for limit, status in ((0.95 * need, 71), (max(held, need) * 1.01, 0)):
            result = run(binary, ranks, f"{options} {more}", folder, status=status, limit_s=240, environment={"CUDA_ON_CPU_BYTES": f"{limit:.0f}", **own})
            check(bool(status) == ("the plan gives rank" in result.text), f"{more}, {limit:.0f} bytes: {result.text[-600:]}")


def test_gpu_choice(binary, folder):
    """The program reports fewer GPUs than ranks, no GPU, and an old driver. Ranks share a GPU if
    this is allowed. auto falls back to the CPU."""
    make(folder)
    options = "-data_train train.h5 -batch_size 8 -tables_embedding_dim 8 -dense_arch 8 -over_arch 8,1 -device cuda -comm_backend mpi -steps 2"
    for name, environment, words in (
        ("one_gpu", {"CUDA_ON_CPU_DEVICES": "1"}, r"2 ranks on this host, 1 GPU for them.*-gpu_share"),
        ("no_gpu", {"CUDA_ON_CPU_DEVICES": "0"}, r"-device cuda: .*-device cpu needs none"),
        ("old_driver", {"CUDA_ON_CPU_ERROR": "driver"}, r"driver is too old: it supports CUDA 11\.4, this program needs 13\.0"),
    ):
        result = run(binary, 2, options, folder, status=69, environment=environment)
        check(re.search(words, result.text), f"{name}: no message like '{words}' in {result.text[-400:]}")
        check(result.text.count("trshard: error") == 1, f"{name}: {result.text.count('trshard: error')} messages")
    alone, state = train(binary, folder, "alone", 2, "-device cuda -comm_backend mpi -epochs 1")
    shared, other = train(binary, folder, "shared", 2, "-device cuda -comm_backend mpi -epochs 1 -gpu_share",
                          environment={"CUDA_ON_CPU_DEVICES": "1"})
    check(same_bits(shared, alone), "a shared GPU gives other losses")
    check_same_tensors(other, state, "shared and alone")
    for name, environment, words in (("auto", {"CUDA_ON_CPU_DEVICES": "0"}, "-device auto: "), ("old_gpus", {"CUDA_ON_CPU_OLD_DEVICES": "8"}, "-device auto: .*7.0, .*needs 8.0"),
                                     ("two_of_three", {"CUDA_ON_CPU_OLD_DEVICES": "1", "CUDA_ON_CPU_DEVICES": "3"}, r"cuda on CPU standing in for a GPU \(compute capability 9.0"),
                                     ("no_cublaslt", {"TRSHARD_GEMM": "own"}, "own kernel for matrix products"), ("refused", {"CUBLASLT_ON_CPU_REFUSE": "all"}, "cuBLASLt has no kernel for")):
        text = run(binary, 2, options.replace("-device cuda", ""), folder, environment=environment).text
        check(re.search(words, text), f"{name}: no '{words}' in {text[-1500:]}")
