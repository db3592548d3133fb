# SPDX-License-Identifier: BSD-3-Clause
"""Exchanges in few bits: dense gradients, and each embedding exchange with its own precision."""
import os

from law_plans import MIXED, make, train
from law_trace import load
from trsrun import check, check_close_losses, check_close_tensors, check_same_tensors, same_bits, tensors, thin, thinned


def traced_bytes(folder, name, ranks):
    """Bytes that each rank passed to the dense gradients' exchanges in a step. The number is equal
    in all traced steps."""
    found = set()
    for rows in load(os.path.join(folder, f"{name}.json"), ranks).values():
        steps = {}
        for span in (span for spans in rows.values() for span in spans if span["name"] == "dense gradients"):
            steps[span["args"]["step"]] = steps.get(span["args"]["step"], 0) + span["args"]["bytes"]
        found |= set(steps.values())
    check(len(found) == 1, f"{name}: bytes of a step {found}")
    return found.pop()


@thinned
def test_dense_allreduce_precision(binary, folder):
    """Losses are close to fp32's, with half its bytes. All transports and bucket sizes give the
    same bits. On one rank, no number is rounded."""
    make(folder)
    messages, hosts, buckets = {"options": "-comm_shared_memory false"}, {"options": "-comm_ranks_per_host 2 -comm_relay_bytes 64"}, {"options": "-dense_bucket_bytes 100 -pipeline base"}
    every = ((1, "fp16", 0, ()), (2, "bf16", 1e-3, (messages, buckets)), (4, "fp16", 1e-4, (messages, hosts)), (4, "bf16", 1e-3, ()))
    for ranks, precision, tolerance, ways in thin(every, every[:3]):
        what = f"{precision} on {ranks} ranks"
        shared = f"{MIXED if ranks > 1 else ''} -steps 8"
        options = f"{shared} -dense_allreduce_precision {precision}"
        wanted, state = train(binary, folder, "fp32", ranks, f"{shared} -trace fp32.json -trace_first_step 2")
        found, other = train(binary, folder, "few", ranks, f"{options} -trace few.json -trace_first_step 2")
        if ranks == 1:
            check(same_bits(found, wanted), f"{what}: other losses")
            check_same_tensors(other, state, what)
            continue
        check(not same_bits(found, wanted), f"{what}: nothing is rounded")
        check_close_losses(found, wanted, tolerance, what)
        check_close_tensors(other, state, tolerance, what)
        n_parameters = sum(value.size for name, value in tensors(state).items() if name.startswith("dense/"))
        whole, half = (traced_bytes(folder, name, ranks) for name in ("fp32", "few"))
        check(4 * n_parameters <= whole < 5 * n_parameters and 2 * half == whole, f"{what}: {whole} and {half} bytes for {n_parameters} parameters")
        for way in ways:
            again, same = train(binary, folder, "way", ranks, f"{options} {way.get('options', '')}")
            # MPI adds in double, in its own order
            check_close_losses(again, found, 1e-12, f"{what}, {way}")
            check_same_tensors(same, other, f"{what}, {way}")


def precisions(ops, forward="bf16", backward="fp16"):
    return " ".join(f"-qcomm_{op}forward_precision {forward} -qcomm_{op}backward_precision {backward}" for op in ops)


@thinned
def test_qcomm_operations(binary, folder):
    """A single exchange's precision has the effect that the common precision has on this exchange,
    and no effect on others. If a plan has two such exchanges, it affects both."""
    make(folder)
    every = ["all_to_all_", "reduce_scatter_", "sequence_"]
    # tag is pooled
    plans = ((2, "column_wise -tables_pooling none -table_tag_sharding_types data_parallel", every[2:]),
             (4, "table_row_wise -topology_local_world_size 2", every[:2]),
             (2, "table_wise", every[:1]), (2, "row_wise -ebc_variable_batch", every[1:2]))
    for ranks, plan, own in thin(plans, plans[:2]):  # these have all three exchanges
        shared = f"-tables_sharding_types {plan} -steps 5"
        others = [op for op in every if op not in own]
        plain, wanted, found, untouched = (train(binary, folder, "run", ranks, f"{shared} {more}")[0]
                                           for more in ("", precisions([""]), precisions(own), precisions(others)))
        check(not same_bits(wanted, plain), f"{plan}: nothing is rounded")
        check(same_bits(found, wanted), f"{plan}: precisions of {own} are not those of all")
        check(same_bits(untouched, plain), f"{plan}: precisions of {others} change something")
        if len(own) > 1:
            found = train(binary, folder, "run", ranks, f"{shared} {precisions(own[:1])}")[0]
            check(not same_bits(found, plain) and not same_bits(found, wanted), f"{plan}: {own[0]} is nothing or all")
    plain, one_way, other_way = (train(binary, folder, "run", 2, f"-tables_sharding_types table_wise -steps 3 {precisions(every[:1], *ways)}")[0]
                                 for ways in (("fp32", "fp32"), ("bf16", "fp32"), ("fp32", "fp16")))
    check(one_way[0] != plain[0] and other_way[0] == plain[0] and other_way[2] != plain[2], "forward and backward are taken for each other")
