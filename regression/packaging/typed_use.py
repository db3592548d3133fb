# SPDX-License-Identifier: BSD-3-Clause
"""A program that mypy --strict accepts with the installed package. It is never run: test_wheel.py checks
its types."""
import numpy as np
import numpy.typing as npt

import trshard

tables = [trshard.EmbeddingBagConfig("u", 10, 4)]
with trshard.EmbeddingBagCollection(tables, 8, seed=1) as ebc:
    rows: npt.NDArray[np.float32] = ebc.forward(np.ones((1, 8), np.int32), np.arange(8))
    ebc.backward(rows)
    ebc.load_state_dict(ebc.state_dict())
    ebc.set_table("u", ebc.table("u"))
    with trshard.Reader(ebc, "data.h5", epochs=2) as reader:
        for samples in reader:
            step: int = samples.step
    ranks: int = ebc.plan["world_size"]
version: str = trshard.__version__
result: trshard.Result = trshard.run("-options_file run.opts", steps=10)
losses: npt.NDArray[np.float64] = result.losses
with trshard.Predictor("model.h5", {"tables_data_type": "int8"}) as predictor:
    out: npt.NDArray[np.float32] = predictor.predict(*predictor.encode([{"age": 31}]))
trshard.request_stop()
