/* SPDX-License-Identifier: BSD-3-Clause */
/* The planner needs these facts about a model's dense layers. */
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  int64_t parameter_bytes; /* bytes of the parameters in float32 */
  /*
    True if the model reads whole pooled rows from the buffers in which they arrived, and writes
    their gradients there. The measured cost model uses this.
  */
  PetscBool takes_vectors;
} TrsDenseFacts;
