/* SPDX-License-Identifier: BSD-3-Clause */
/* The facts that the planner needs about a model's dense layers. */
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  int64_t parameter_bytes; /* bytes of the parameters in float32 */
  /*
    The model reads whole pooled rows where they arrived, and leaves gradients there. Used by the
    measured cost model.
  */
  PetscBool takes_vectors;
} TrsDenseFacts;
