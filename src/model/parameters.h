/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The dense parameters of a model in two flat arrays (values, gradients), in the order in which the backward completes gradients, so that they
  can be summed over ranks in consecutive buckets. Internal to model/.

  Parts of the model first declare their parameters (Add), then the arrays are made and initialised (Allocate), then parts use param[index].
*/
#pragma once

#include "model/dlrm.h"

typedef enum {
  TRS_INIT_ZERO,
  TRS_INIT_ONE,
  TRS_INIT_UNIFORM,
  TRS_INIT_NORMAL
} TrsParameterInit; /* uniform in +-scale; std = scale */

typedef struct {
  TrsDenseParameter *param; /* value and grad are set by Allocate */
  char **name;              /* what param's names point to */
  TrsParameterInit *init;
  float *scale;
  int64_t *offset; /* [n] in the flat arrays, elements; each starts a cache line */
  int n, capacity;
  PetscBool forward_only; /* no gradients: grads and the parameters' are NULL */
  float *values, *grads;  /* [n_values] */
  int64_t n_values;
  PetscErrorCode (*ready)(void *ctx, int64_t begin, int64_t end); /* or NULL */
  void *ready_ctx;
  int64_t n_ready; /* elements announced in this step */
} TrsParameters;

/* Declare the next parameter, named "<module>/<layer>/<part>"; cols 0: a vector of rows. Not collective. */
PetscErrorCode TrsParametersAdd(TrsParameters *params, const char *module, int layer, const char *part,
                                int64_t rows, int64_t cols, TrsParameterInit init, float scale, int *index);

/* Rows of the parameter declared last begin `stride` floats apart, zeros behind their columns; its gradient's, too, must stay zeros. */
void TrsParametersFillUp(TrsParameters *params, int64_t stride);

/* The same as Add with a name of its own, copied. */
PetscErrorCode TrsParametersAddNamed(TrsParameters *params, const char *name, int64_t rows, int64_t cols,
                                     TrsParameterInit init, float scale, int *index);

/*
  Make the arrays, fill values (src/RULES.md, rule A21), zero gradients. Not collective.
  Errors: MEMORY
*/
PetscErrorCode TrsParametersAllocate(TrsParameters *params, const TrsDeviceOps *device, uint64_t seed);

/* The gradients of all parameters up to and with `index` are complete: tell who wants to know. Logically collective. */
PetscErrorCode TrsParametersReady(TrsParameters *params, int index);

PetscErrorCode TrsParametersFree(TrsParameters *params, const TrsDeviceOps *device);
