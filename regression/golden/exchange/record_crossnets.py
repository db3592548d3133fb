#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record crossnets.json: names and shapes of the state_dicts of TorchRec's DLRMs, by the value of
-interaction.

    python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2
    DIR/bin/pip install --force-reinstall --no-deps fbgemm-gpu-cpu==1.9.0
    DIR/bin/python record_crossnets.py crossnets.json

dcn is an unchanged DLRM_DCN. dcn_full, dcn_vector and dcn_mixture are DLRM_DCN with another module
of torchrec.modules.crossnet as inter_arch.crossnet. projection is DLRM_Projection. The sizes are
those of the test in regression/tools/test_exchange_program.py.
"""
import json
import sys

from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.models.dlrm import DLRM_DCN, DLRM_Projection
from torchrec.modules.crossnet import CrossNet, LowRankMixtureCrossNet, VectorCrossNet

NUM_DENSE, DENSE, OVER, D, LAYERS, RANK, EXPERTS = 13, [16, 8], [16, 8, 1], 8, 2, 3, 4
TABLES = {"user": 100, "item": 50, "hist": 50}
N = (len(TABLES) + 1) * D


def model(kind):
    tables = EmbeddingBagCollection(tables=[EmbeddingBagConfig(name=name, embedding_dim=D, num_embeddings=rows, feature_names=[name])
                                            for name, rows in TABLES.items()])
    if kind == "projection":
        return DLRM_Projection(tables, NUM_DENSE, DENSE, OVER, [16], [12, 24])
    dlrm = DLRM_DCN(tables, NUM_DENSE, DENSE, OVER, LAYERS, RANK)
    made = {"dcn_full": lambda: CrossNet(N, LAYERS), "dcn_vector": lambda: VectorCrossNet(N, LAYERS),
            "dcn_mixture": lambda: LowRankMixtureCrossNet(N, LAYERS, EXPERTS, RANK)}
    if kind in made:
        dlrm.inter_arch.crossnet = made[kind]()
    return dlrm


def main():
    found = {kind: {name: list(tensor.shape) for name, tensor in model(kind).state_dict().items()}
             for kind in ("dcn", "dcn_full", "dcn_vector", "dcn_mixture", "projection")}
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write("{\n" + ",\n".join(f' "{kind}": {json.dumps(names)}' for kind, names in found.items()) + "\n}\n")


if __name__ == "__main__":
    main()
