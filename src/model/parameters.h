/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A model's dense parameters in two flat arrays (values, gradients). Their order is the order in
  which the backward completes gradients, so that gradients can be summed over ranks in consecutive
  buckets. Internal to model/.

  The model's parts first declare their parameters (Add). Then the arrays are allocated and
  initialised (Allocate). After that the parts use param[index].
*/
#pragma once

#include "compute/compute_ops.h"
#include "model/model_data.h"

typedef enum {
  TRS_INIT_ZERO,
  TRS_INIT_ONE,
  TRS_INIT_UNIFORM,
  TRS_INIT_NORMAL
} TrsParameterInit; /* UNIFORM: between -scale and scale; NORMAL: scale is the standard deviation */

typedef struct {
  TrsDenseParameter *param; /* value and grad are set by Allocate */
  char **name;              /* the strings of param[].name */
  TrsParameterInit *init;
  float *scale;
  /* [n] index of the first element in the flat arrays; each parameter starts on a cache line */
  int64_t *offset;
  int n, capacity;
  PetscBool forward_only; /* no gradients: grads and every param[].grad are NULL */
  float *values, *grads;  /* [n_values] */
  int64_t n_values;
  /*
    The operands' type. If it is not fp32, `operands` [n_values] has the values in this type,
    written by the last Refresh or by the optimizer's step after it.
  */
  TrsDType type;
  void *operands;
  PetscErrorCode (*ready)(void *ctx, int64_t begin, int64_t end); /* or NULL */
  void *ready_ctx;
  int64_t n_ready;                      /* elements announced so far in this step */
  PetscErrorCode (*between)(void *ctx); /* called between layers; or NULL */
  void *between_ctx;
} TrsParameters;

/*
  Declare the next parameter, named "<module>/<layer>/<part>". With cols = 0 it is a vector of
  `rows` entries. Not collective.
*/
PetscErrorCode TrsParametersAdd(TrsParameters *params, const char *module, int layer, const char *part,
                                int64_t rows, int64_t cols, TrsParameterInit init, float scale, int *index);

/*
  Make the rows of the last declared parameter start `stride` floats apart. Zeros follow the
  columns, also in the gradient, where the backward must keep them.
*/
void TrsParametersFillUp(TrsParameters *params, int64_t stride);

/* Declare the next parameter with a full name, which is copied. */
PetscErrorCode TrsParametersAddNamed(TrsParameters *params, const char *name, int64_t rows, int64_t cols,
                                     TrsParameterInit init, float scale, int *index);

/*
  Allocate the arrays, fill the values (src/RULES.md, rule A21) and zero the gradients. Not
  collective.
  Errors: MEMORY.
*/
PetscErrorCode TrsParametersAllocate(TrsParameters *params, const TrsDeviceOps *device, uint64_t seed);

/* Convert the values to the operands' type, if it is not fp32. Not collective. */
PetscErrorCode TrsParametersRefresh(TrsParameters *params, const TrsComputeOps *compute, TrsStream stream);

/* A parameter as an operand of matrix multiplications. The caller must not write it. */
TrsMatrix TrsParametersMatrix(const TrsParameters *params, int index);

/* A parameter's numbers, in fp32 or in the operands' type. */
const void *TrsParametersVector(const TrsParameters *params, int index, TrsDType type);

/*
  Announce that the gradients of all parameters up to and including `index` are complete. Logically
  collective.
*/
PetscErrorCode TrsParametersReady(TrsParameters *params, int index);

/* Call the function of TrsDlrmSetBetweenLayers(), if there is one. Not collective. */
PetscErrorCode TrsParametersBetween(const TrsParameters *params);

PetscErrorCode TrsParametersFree(TrsParameters *params, const TrsDeviceOps *device);
