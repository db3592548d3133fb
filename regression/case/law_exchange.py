# SPDX-License-Identifier: BSD-3-Clause
"""A run continues from another program's checkpoint: a distributed checkpoint that TorchRec wrote
on two ranks."""
import os
import subprocess
import sys

import h5py
import numpy as np

from trsrun import check, losses, run, tensors, thin, thinned

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden", "exchange")
EXCHANGE = os.path.join(HERE, "..", "..", "tools", "exchange.py")
STEPS, SAMPLES, TOLERANCE = 20, 12, 1e-5
MODEL = ("-tables t_a,t_b -table_t_a_features a -table_t_b_features b -tables_embedding_dim 8 -tables_min_partition 4 -dense_arch 6,8 -over_arch 5,1 "
         "-embedding_optimizer rowwise_adagrad -embedding_learning_rate 0.1 -dense_optimizer adagrad -dense_learning_rate 0.1")
CUT = ("column_wise", "table_column_wise", "grid_shard")
# (ranks, sharding type, more options): two shards of four columns as in TorchRec, or whole rows.
# -reproducible combines the shards' momenta.
EVERY = [(ranks, kind, "") for ranks in (1, 2, 3) for kind in ("column_wise", "table_wise", "row_wise", "data_parallel", "table_row_wise", "table_column_wise")]
EVERY += [(2, "grid_shard", " -topology_local_world_size 1"), (1, "grid_shard", ""), (2, "column_wise", " -reproducible")]
FEW = [(1, "column_wise", ""), (2, "column_wise", ""), (3, "column_wise", ""), (3, "row_wise", ""), (2, "table_wise", ""), (2, "column_wise", " -reproducible")]


def write_batches(path, golden):
    """Write the recorded samples as a dataset."""
    with h5py.File(path, "w") as out:
        names = ("a", "b")
        lengths = np.stack([golden[f"data/{name}/lengths"][()] for name in names], axis=1).astype(np.int32)
        offsets = {name: np.concatenate([[0], np.cumsum(lengths[:, f])]) for f, name in enumerate(names)}
        ids = {name: golden[f"data/{name}/ids"][()] for name in names}
        values = [ids[name][offsets[name][i]:offsets[name][i + 1]] for i in range(len(lengths)) for name in names]
        out.attrs.update(format="trshard-dataset", version=1, num_samples=len(lengths))
        out["labels"], out["dense"] = golden["data/labels"][()], golden["data/dense"][()]
        out["sparse/lengths"], out["sparse/values"] = lengths, np.concatenate(values).astype(np.int32)
        out["sparse/offsets"] = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))]).astype(np.int64)
        out["sparse"].attrs["features"] = np.array(names, dtype=h5py.string_dtype())
        out["sparse"].attrs["num_embeddings"] = np.array([20, 11], np.int64)


def theirs(golden, continuation):
    """Losses, and the last weights by their paths in trshard."""
    names = {"embedding/t_a/weight": "t_a", "embedding/t_b/weight": "t_b"}
    for module, layers in (("dense_arch", ("dense_arch.model._mlp.0._linear", "dense_arch.model._mlp.1._linear")),
                           ("over_arch", ("over_arch.model.0._mlp.0._linear", "over_arch.model.1"))):
        names.update((f"dense/{module}/{i}/{parameter}", f"{layer}.{parameter}") for i, layer in enumerate(layers) for parameter in ("weight", "bias"))
    return golden[continuation + "/losses"][()], {path: golden[f"{continuation}/{name}"][()] for path, name in names.items()}


@thinned
def test_torchrec_dcp(binary, folder):
    """20 steps on 1, 2 and 3 ranks agree with TorchRec's. With TorchRec's column shards, they agree
    with its own continuation. With whole rows, they agree with a continuation from the mean of the
    shards' momenta, which TorchRec cannot make itself. The two differ by 5e-3 in the losses."""
    command = [sys.executable, EXCHANGE, os.path.join(GOLDEN, "dcp"), "--from", "dcp", "--prefix", "model.model.", "--states", "--output", "dcp.h5"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    check(result.returncode == 0, result.stderr)
    with h5py.File(os.path.join(GOLDEN, "continued.h5")) as golden:
        write_batches(os.path.join(folder, "data.h5"), golden)
        wanted = {name: theirs(golden, name) for name in ("column_wise", "table_wise")}
    for ranks, kind, more in thin(EVERY, FEW):
        what = f"{kind}{more} on {ranks} ranks"
        run(binary, ranks, f"-data_train data.h5 -init_from dcp.h5 -batch_size {SAMPLES // ranks} -steps {STEPS} -output run.h5 -checkpoint_final end.h5 {MODEL} "
            f"-tables_sharding_types {kind}{more}", folder)
        their_losses, their_weights = wanted["column_wise" if kind in CUT and "-reproducible" not in more else "table_wise"]
        ours = np.array(losses(os.path.join(folder, "run.h5")))
        off = np.abs(ours - their_losses).max()
        check(len(ours) == STEPS and off <= TOLERANCE, f"{what}: losses differ by {off:.1e}, allowed {TOLERANCE:.0e}")
        found = tensors(os.path.join(folder, "end.h5"))
        for path, numbers in their_weights.items():
            off = np.abs(found[path] - numbers).max()
            check(off <= TOLERANCE, f"{what}: /{path} differs by {off:.1e}, allowed {TOLERANCE:.0e}")


ZCH = "sparse_arch.embedding_bag_collection."
OF_TABLE = "_managed_collision_collection._managed_collision_modules.t."


def exchange(folder, *words):
    result = subprocess.run([sys.executable, EXCHANGE, *words, "--force"], cwd=folder, capture_output=True, text=True, check=False)
    check(result.returncode == 0, result.stderr)


def whole_names(state):
    """A recorded state_dict by its whole names."""
    return {ZCH + (name if name.startswith("_embedding_module") else OF_TABLE + name): item[()] for name, item in _datasets(state)}


def _datasets(group):
    found = []
    group.visititems(lambda name, item: found.append((name, item)) if isinstance(item, h5py.Dataset) else None)
    return found


def rows_of(path, ids, buckets, block):
    """The rows that a checkpoint has for these ids."""
    found = tensors(path)
    row = dict(zip(found["embedding/t/zch/raw"].tolist(), found["embedding/t/zch/slot"].tolist()))
    last = len(found["embedding/t/weight"]) // buckets
    return [row.get(i, (min(i // block, buckets - 1) + 1) * last - 1) for i in ids.tolist()]


@thinned
def test_torchrec_zch(binary, folder):
    """An import of TorchRec's managed collision, and its export, have TorchRec's bits. After each of
    the next batches, ids have the rows that TorchRec gave them when it had loaded this export, and
    the state_dict is TorchRec's at the end."""
    with h5py.File(os.path.join(GOLDEN, "zch.h5")) as golden:
        ids, rows, dim, interval, most = golden["ids"][()], *(int(golden.attrs[name]) for name in ("rows", "dim", "interval", "input"))
        with h5py.File(os.path.join(folder, "data.h5"), "w") as out:
            n = ids.size
            out.attrs.update(format="trshard-dataset", version=1, num_samples=n)
            out["labels"], out["sparse/lengths"] = np.arange(n).astype(np.float32) % 2, np.ones((n, 1), np.int32)
            out["sparse/values"], out["sparse/offsets"] = ids.reshape(-1), np.arange(n + 1)
            out["sparse"].attrs.update(features=np.array(["seen"], dtype=h5py.string_dtype()), num_embeddings=np.zeros(1, np.int64))
        cases = [name for name, item in golden.items() if isinstance(item, h5py.Group)]
        check(len(cases) == 6, f"recorded: {cases}")
        for case in cases:
            policy, _, buckets = case.rpartition("_")
            begin, end = (whole_names(golden[f"{case}/{when}"]) for when in ("begin", "end"))
            np.savez(os.path.join(folder, "theirs.npz"), **begin)
            exchange(folder, "theirs.npz", "--from", "npz", "--output", "model.h5")
            exchange(folder, "model.h5", "--to", "npz", "back.npz")
            with np.load(os.path.join(folder, "back.npz")) as back:
                for name, numbers in begin.items():
                    check(back[name].dtype == numbers.dtype and np.array_equal(back[name], numbers), f"{case}: other {name} after the way there and back")
            words = (f"-tables t -table_t_features seen -table_t_id_map zch -table_t_num_embeddings {rows} -tables_embedding_dim {dim} -over_arch 4,1 -table_t_zch_policy {policy} "
                     f"-table_t_zch_interval {interval} -table_t_zch_buckets {buckets} -table_t_zch_input_hash_size {most} -interaction cat")
            for ranks, steps in [(1, steps) for steps in range(1, len(ids) + 1)] + thin([(3, len(ids))] if buckets == "3" else [], []):
                kind = "row_wise" if ranks > 1 else "table_wise"
                run(binary, ranks, f"-data_train data.h5 -batch_size {ids.shape[1] // ranks} -steps {steps} {words} -table_t_sharding_types {kind} -init_from model.h5 "
                    "-init_from_missing initial -checkpoint_final end.h5 -existing_outputs replace", folder)
                wanted = golden[case + "/slots"][steps - 1].tolist()
                found = rows_of(os.path.join(folder, "end.h5"), ids[steps - 1], int(buckets), -(-most // int(buckets)))
                check(found == wanted, f"{case}, batch {steps}, {ranks} ranks: rows {found}, TorchRec {wanted}")
            exchange(folder, "end.h5", "--to", "npz", "end.npz")
            with np.load(os.path.join(folder, "end.npz")) as found:
                for name, numbers in end.items():
                    if not name.endswith("weight"):
                        check(np.array_equal(found[name], numbers), f"{case}: other {name} at the end")
