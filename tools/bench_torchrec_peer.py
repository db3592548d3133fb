#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains a DLRM with the real TorchRec on CPUs (gloo): the peer's side of tools/bench_torchrec.sh. Prints one line of JSON.

The workload is described exactly, so that another program can repeat it. There are --tables tables with one feature each. Every bag has
--pooling ids, uniform over the rows or by the power law of tools/generate_data.py. --num-dense floats are uniform in [0, 1), and labels are
coin flips. --batches distinct batches per rank are made before the clock starts and used in turn. Row-wise AdaGrad is fused into the backward;
the dense optimizer is SGD, the loss BCE with logits. After a warm-up come --windows windows of --steps steps, with a barrier on both sides of
each, for each of --pipelines. samples_per_s is the best pipeline's.
Needs python3 with torch, torchrec and fbgemm_gpu (CPU build).

With --address, mpirun starts one rank on each host, and the ranks meet at this address of rank 0 (tools/bench_hosts.py).

With --own-tables, started by mpirun, the same DLRM uses libtrshard's tables (trshard.autograd), and its dense layers are in
DistributedDataParallel. The pipelines are then none, and sparse_dist, which sends the next batch's ids ahead.
"""
import argparse
import json
import multiprocessing
import os
import resource
import socket
import statistics
import sys
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="per rank")
    parser.add_argument("--batch", type=int, default=2048, help="per rank")
    parser.add_argument("--tables", type=int, default=26)
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--pooling", type=int, default=1)
    parser.add_argument("--num-dense", type=int, default=13)
    parser.add_argument("--dense-arch", default="512,256,64")
    parser.add_argument("--over-arch", default="1024,1024,512,256,1")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--interaction", choices=["dot", "dcn"], default="dot", help="dcn: 3 layers of rank 512")
    parser.add_argument("--autocast", action="store_true", help="the model's forward under torch.autocast in bfloat16")
    parser.add_argument("--ids", choices=["uniform", "zipf"], default="uniform")
    parser.add_argument("--alpha", type=float, default=1.05, help="exponent of zipf")
    parser.add_argument("--pipelines", default="none,sparse_dist", help="none, base or sparse_dist, in turn")
    parser.add_argument("--own-tables", action="store_true", help="the tables of libtrshard")
    parser.add_argument("--port", type=int, help="of rank 0, with --own-tables or --address")
    parser.add_argument("--address", help="of rank 0: each rank is a host, started by mpirun")
    parser.add_argument("--interface", default="lo", help="network device for gloo (default: %(default)s)")
    parser.add_argument("--sharding-type", help="of all tables, instead of the planner's choice")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--windows", type=int, default=3)
    return parser.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def local_ranks(args):
    return 1 if args.address else args.ranks


def start(rank, args, port):
    """Pins the rank to its cores and joins the process group. It runs before torch is imported, so that torch sees the settings."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(rank * args.threads + i) % len(cores)] for i in range(args.threads)})
    os.environ.update(OMP_NUM_THREADS=str(args.threads), MKL_NUM_THREADS=str(args.threads), MASTER_ADDR=args.address or "127.0.0.1", MASTER_PORT=str(port),
                      RANK=str(rank), LOCAL_RANK=str(rank % local_ranks(args)), WORLD_SIZE=str(args.ranks), LOCAL_WORLD_SIZE=str(local_ranks(args)), GLOO_SOCKET_IFNAME=args.interface)
    import logging
    import warnings
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=args.ranks)
    return torch


def sharded_model(args, torch):
    """(DistributedModelParallel, dense optimizer), planned by TorchRec for these ranks."""
    from torch.distributed.optim import _apply_optimizer_in_backward
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
    from torchrec.distributed.planner.types import ParameterConstraints
    from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRMTrain
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.embedding_modules import EmbeddingBagCollection
    from torchrec.optim.keyed import KeyedOptimizerWrapper
    from torchrec.optim.optimizers import in_backward_optimizer_filter
    from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

    device = torch.device("cpu")
    tables = [EmbeddingBagConfig(name=f"t{i}", embedding_dim=args.dim, num_embeddings=args.rows, feature_names=[f"f{i}"]) for i in range(args.tables)]
    kind, cross = (DLRM, {}) if args.interaction == "dot" else (DLRM_DCN, {"dcn_num_layers": 3, "dcn_low_rank_dim": 512})
    model = DLRMTrain(kind(embedding_bag_collection=EmbeddingBagCollection(device=torch.device("meta"), tables=tables), dense_in_features=args.num_dense,
                           dense_arch_layer_sizes=[int(n) for n in args.dense_arch.split(",")],
                           over_arch_layer_sizes=[int(n) for n in args.over_arch.split(",")], dense_device=device, **cross))
    _apply_optimizer_in_backward(RowWiseAdagrad, model.model.sparse_arch.parameters(), {"lr": args.learning_rate})
    sharders = [EmbeddingBagCollectionSharder()]
    constraints = {table.name: ParameterConstraints(pooling_factors=[float(args.pooling)], sharding_types=[args.sharding_type] if args.sharding_type else None) for table in tables}
    planner = EmbeddingShardingPlanner(topology=Topology(world_size=args.ranks, compute_device="cpu", local_world_size=local_ranks(args), ddr_cap=64 << 30),
                                       batch_size=args.batch, constraints=constraints)
    plan = planner.collective_plan(model, sharders, torch.distributed.GroupMember.WORLD)
    model = DistributedModelParallel(module=model, device=device, sharders=sharders, plan=plan)
    optimizer = KeyedOptimizerWrapper(dict(in_backward_optimizer_filter(model.named_parameters())), lambda p: torch.optim.SGD(p, lr=args.learning_rate))
    kinds = [shard.sharding_type for module in plan.plan.values() for shard in module.values()]
    return model, optimizer, {kind: kinds.count(kind) for kind in set(kinds)}


def draw_ids(n, args, torch, random):
    """Uniform, or like draw_ids() of tools/generate_data.py."""
    u = torch.rand(n, generator=random, dtype=torch.float64)
    if args.ids == "uniform":
        return (u * args.rows).long()
    power = 1.0 - args.alpha
    x = (1 + u * ((args.rows + 1.0) ** power - 1)) ** (1 / power) if abs(power) > 1e-9 else (args.rows + 1.0) ** u
    return (x.long() - 1).clamp_(0, args.rows - 1) * 2654435761 % args.rows


def batches(rank, args, torch):
    """Yields the same batches in turn without end, each time as a new KeyedJaggedTensor, so that no cached value is carried over."""
    from torchrec.datasets.utils import Batch
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    random = torch.Generator().manual_seed(1000 + rank)
    bags = args.tables * args.batch
    made = [(torch.rand(args.batch, args.num_dense, generator=random), draw_ids(bags * args.pooling, args, torch, random),
             torch.full((bags,), args.pooling, dtype=torch.int64), (torch.rand(args.batch, generator=random) < 0.5).long()) for _ in range(args.batches)]
    keys = [f"f{i}" for i in range(args.tables)]
    while True:
        for dense, ids, lengths, labels in made:
            yield Batch(dense, KeyedJaggedTensor(keys=keys, values=ids, lengths=lengths), labels)


def stepper(kind, model, optimizer, stream, torch):
    """A function that performs one step."""
    from torchrec.distributed.train_pipeline import TrainPipelineBase, TrainPipelineSparseDist

    if kind == "none":
        def step():
            optimizer.zero_grad()
            loss, _ = model(next(stream))
            loss.backward()
            optimizer.step()
        return step
    model.train()
    pipeline = (TrainPipelineBase if kind == "base" else TrainPipelineSparseDist)(model, optimizer, torch.device("cpu"))
    return lambda: pipeline.progress(stream)


def own_tables(args):
    import trshard

    tables = [trshard.EmbeddingBagConfig(f"t{i}", args.rows, args.dim, [f"f{i}"]) for i in range(args.tables)]
    return trshard.EmbeddingBagCollection(tables, args.batch, f"-device cpu -embedding_optimizer rowwise_adagrad -embedding_learning_rate {args.learning_rate}")


def own_stepper(kind, ebc, stream, args, torch):
    """Two functions: one performs a step of the DLRM with these tables, the other completes work that is under way.

    The loss is a rank's share of the mean over all ranks' samples, as the rows need it. DistributedDataParallel then divides the dense
    gradients by the number of ranks; the dense learning rate compensates for this.
    """
    import trshard.autograd
    from torchrec.models.dlrm import DLRM
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.embedding_modules import EmbeddingBagCollection

    class Dense(torch.nn.Module):
        def __init__(self):
            super().__init__()
            tables = [EmbeddingBagConfig(name=f"t{i}", embedding_dim=args.dim, num_embeddings=args.rows, feature_names=[f"f{i}"]) for i in range(args.tables)]
            dlrm = DLRM(EmbeddingBagCollection(device=torch.device("meta"), tables=tables), args.num_dense, [int(n) for n in args.dense_arch.split(",")],
                        [int(n) for n in args.over_arch.split(",")], dense_device=torch.device("cpu"))
            self.dense_arch, self.inter_arch, self.over_arch = dlrm.dense_arch, dlrm.inter_arch, dlrm.over_arch

        def forward(self, dense, pooled):
            return self.over_arch(self.inter_arch(self.dense_arch(dense), pooled.view(len(dense), args.tables, args.dim))).squeeze(1)

    # the same settings as in TorchRec's DistributedModelParallel
    model = torch.nn.parallel.DistributedDataParallel(Dense(), gradient_as_bucket_view=True, broadcast_buffers=False, static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate * args.ranks)
    embeddings, loss_of = trshard.autograd.Module(ebc), torch.nn.BCEWithLogitsLoss()

    def ids(batch):
        kjt = batch.sparse_features
        return kjt.lengths().view(args.tables, args.batch).numpy(), kjt.values().numpy()

    def train(batch, pooled):
        optimizer.zero_grad()
        (loss_of(model(batch.dense_features, pooled), batch.labels.float()) / args.ranks).backward()
        optimizer.step()

    if kind == "none":
        def step():
            batch = next(stream)
            train(batch, embeddings(*ids(batch)))
        return step, lambda: None
    ahead = [next(stream)]
    ebc.input_dist(*ids(ahead[0]))

    def step_ahead():
        batch, ahead[0] = ahead[0], next(stream)
        ebc.input_dist(*ids(ahead[0]))
        train(batch, embeddings())
    return step_ahead, lambda: train(ahead[0], embeddings())


def own_worker(args):
    """One rank of mpirun. Rank 0 prints the line of JSON."""
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    if args.interaction != "dot" or args.autocast:
        sys.exit("--own-tables: only the dot interaction in float32")
    torch = start(rank, args, args.port)
    ebc, speeds = own_tables(args), {}
    stream = batches(rank, args, torch)
    for kind in args.pipelines.split(","):
        step, finish = own_stepper(kind, ebc, stream, args, torch)
        speeds[kind] = speed_of(step, args, torch)
        finish()
    if rank == 0:
        print(json.dumps({"samples_per_s": max(speeds.values()), "of_pipeline": speeds}), flush=True)
    ebc.close()
    torch.distributed.destroy_process_group()


def speed_of(step, args, torch):
    """Median samples/s of its windows."""
    for _ in range(args.warmup):
        step()
    speeds = []
    for _ in range(args.windows):
        torch.distributed.barrier()
        begin = time.perf_counter()
        for _ in range(args.steps):
            step()
        torch.distributed.barrier()
        speeds.append(args.ranks * args.batch * args.steps / (time.perf_counter() - begin))
    return statistics.median(speeds)


def worker(rank, args, port, launched, put):
    """One rank. Rank 0 puts the line of JSON."""
    torch = start(rank, args, port)
    import torchrec

    model, optimizer, plan = sharded_model(args, torch)
    stream = batches(rank, args, torch)
    speeds, launch_s = {}, None
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.autocast):
        for kind in args.pipelines.split(","):  # the plain loop first: the pipeline rewrites the model
            step = stepper(kind, model, optimizer, stream, torch)
            step()
            launch_s = launch_s or time.time() - launched
            speeds[kind] = speed_of(step, args, torch)
    resident = [None] * args.ranks
    torch.distributed.all_gather_object(resident, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    if rank == 0:
        put(json.dumps({"samples_per_s": max(speeds.values()), "of_pipeline": speeds, "launch_s": launch_s, "resident_bytes": max(resident),
                                "plan": plan, "versions": {"torch": torch.__version__, "torchrec": torchrec.__version__}}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    args, launched = parse(), time.time()
    if args.own_tables:
        own_worker(args)
        return
    if args.address:
        worker(int(os.environ["OMPI_COMM_WORLD_RANK"]), args, args.port, launched, lambda text: print(text, flush=True))
        return
    context = multiprocessing.get_context("spawn")
    results, port = context.SimpleQueue(), free_port()
    processes = [context.Process(target=worker, args=(rank, args, port, launched, results.put)) for rank in range(args.ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        sys.exit(1)
    print(results.get())


if __name__ == "__main__":
    main()
