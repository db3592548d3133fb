/* SPDX-License-Identifier: BSD-3-Clause */
/* A stack of linear layers with ReLU, forward and backward. Internal to model/. Source: torchrec.modules.mlp.MLP */
#pragma once

#include "model/parameters.h"

typedef struct {
  int64_t in, out;
  int64_t filled; /* columns of the input, and of the weight, with zeros behind the first `in`; else in */
  TrsActivation activation;
  int weight, bias; /* indices in the parameters */
  float *y;         /* output [max_batch, y_stride] */
  int64_t y_stride;
  float *dy; /* gradient of an inner output, [max_batch, out] */
} TrsMlpLayer;

typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsParameters *params;
  int n_layers;
  TrsMlpLayer *layer; /* [n_layers] */
} TrsMlp;

/*
  Declare the layers in -> out[0] -> ... -> out[n_layers - 1], the last first (its gradient comes first); all end in ReLU, the last if relu_last. The input's
  rows, and its gradient's, have `filled` >= in columns, those behind the first `in` zeros.
*/
PetscErrorCode TrsMlpDeclare(TrsMlp *mlp, const char *module, int n_layers, int64_t in, int64_t filled,
                             const int64_t *out, PetscBool relu_last);

/* Where a stack's inner outputs and their gradients lie, in floats from their memory's beginning, all of whole cache lines. */
typedef struct {
  int64_t
      first; /* the first output, with its gradient right behind it, from which the stack's input's is made */
  int64_t outputs; /* all outputs, in the order of layers */
  int64_t end;     /* and gradients */
} TrsMlpRoom;

/*
  Where declared layers write, all borrowed: the inner ones to `inner`, the last to y [max_batch, y_stride].

  A backward overwrites outputs by gradients: that of an output goes right behind it, where outputs of later layers were, or behind the gradient there that
  is made from it. `inner` (NULL: only ask) is free between a backward and the next forward, and behind the outputs but in a
  backward.
*/
TrsMlpRoom TrsMlpPlace(TrsMlp *mlp, int64_t max_batch, float *inner, float *y, int64_t y_stride);

/* n floats and those to the end of their last cache line. */
int64_t TrsWholeLines(int64_t n);

/* Where n floats have room, from `from` on, but not in [begin, end). */
int64_t TrsMlpBeside(int64_t from, int64_t n, int64_t begin, int64_t end);

/* n samples of x [n, x_stride]. */
PetscErrorCode TrsMlpForward(const TrsMlp *mlp, TrsStream stream, int64_t n, const float *x,
                             int64_t x_stride);

/* dy, the gradient of the last output, is overwritten; dx (or NULL) is written. Announces each layer's gradients as they become ready. */
PetscErrorCode TrsMlpBackward(const TrsMlp *mlp, TrsStream stream, int64_t n, const float *x,
                              int64_t x_stride, float *dy, int64_t dy_stride, float *dx, int64_t dx_stride);

PetscErrorCode TrsMlpFree(TrsMlp *mlp);
