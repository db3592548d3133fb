#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One rank ends with an exception while the others wait for it in a call. All ranks must end, as
the test's time limit and its expected text check. By mpirun."""
import os
import sys

import numpy as np

import trshard

RANK, SIZE = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
ebc = trshard.EmbeddingBagCollection([trshard.EmbeddingBagConfig("t", 10, 4)], 4, "-device cpu")
child = os.fork()
if child == 0:
    sys.excepthook(ValueError, ValueError("of a child, which ends no rank"), None)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
with ebc:
    ebc.evaluate(np.ones((1, 4), np.int32), [1, 2, 3, 4])
    if RANK == SIZE - 1:
        raise ValueError(f"of the last of {SIZE} ranks")
    ebc.evaluate(np.ones((1, 4), np.int32), [1, 2, 3, 4])
print("not reached")
sys.exit("the rank that raised an exception has not ended the others")
