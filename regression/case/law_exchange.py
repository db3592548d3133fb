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
