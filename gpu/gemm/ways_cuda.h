/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The choice between two ways to compute a product and what follows it: a product of the library and
  then a kernel of ours, or one kernel of ours for both. The first way is used unless products are
  timed (-dense_product_algorithms). Then both ways are timed when the sizes occur for the second
  time. The second way is used if it takes less than 0.97 of the first one's time, and if samples of
  the results agree except for rounding. They are compared because no test may have run on this GPU.
  Choices belong to the process. Only the main thread may call these functions. Internal to gpu/.
*/
#pragma once

#include "core/dtype.h"
#include "device/device.h"

enum { TRS_WAYS_RESULTS = 3 };

typedef struct {
  const char *what; /* a name for messages, in static memory */
  int64_t m, n, k;  /* sizes of the product */
  /*
    Compute the result, which must not overwrite what is read: if ways are timed, it is computed
    several times. Each call gets `layer`.
  */
  PetscErrorCode (*run_apart)(TrsStream stream, const void *layer);
  PetscErrorCode (*run_fused)(TrsStream stream, const void *layer);
  const void *layer;
  /*
    arrays of n numbers, bf16 or fp32, that both ways write; the first one without data ends the
    list
  */
  struct {
    void *data;
    int64_t n;
    TrsDType type;
  } result[TRS_WAYS_RESULTS];
} TrsWays;

/* Compute the result in the way that is chosen for its sizes and for the current GPU. */
PETSC_EXTERN PetscErrorCode TrsWaysRun(TrsStream stream, const TrsWays *ways);

/*
  Forget all choices, and time both ways from now on if `timed` is set. If the environment now has
  TRSHARD_WAYS=fused or TRSHARD_WAYS=apart, which tests set, this way is used and nothing is timed.
*/
PETSC_EXTERN void TrsWaysForget(PetscBool timed);

/* Number of choices of one kernel for both. */
PETSC_EXTERN int TrsWaysFused(void);

/* Append a line for each choice that was made by time to `text` of `size` bytes. */
PETSC_EXTERN void TrsWaysText(char *text, size_t size);
