/* SPDX-License-Identifier: BSD-3-Clause */
/* What the planner asks of a model's dense layers. */
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  int64_t parameter_bytes; /* of parameters in float32 */
  /*
    The model reads whole pooled rows where they have arrived, and leaves gradients there: for the
    measured cost model.
  */
  PetscBool takes_vectors;
} TrsDenseFacts;
