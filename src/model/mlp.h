/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A stack of linear layers with ReLU, forward and backward. Internal to model/.

  Source: torchrec.modules.mlp.MLP
*/
#pragma once

#include "model/parameters.h"

typedef struct {
  int64_t in, out;
  /*
    Columns of the input and of the weight, with zeros after the first `in`; without zeros it is
    `in`.
  */
  int64_t filled;
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
  Declare the layers in -> out[0] -> ... -> out[n_layers - 1], the last one first, because its
  gradient is ready first. All layers end in ReLU, the last one if relu_last. The rows of the input
  and of its gradient have `filled` >= in columns; the columns after the first `in` are zeros.
*/
PetscErrorCode TrsMlpDeclare(TrsMlp *mlp, const char *module, int n_layers, int64_t in, int64_t filled,
                             const int64_t *out, PetscBool relu_last);

/*
  Places of a stack's inner outputs and their gradients, in floats from the beginning of the stack's
  memory. All sizes are whole cache lines.
*/
typedef struct {
  /*
    The first output. Its gradient lies right behind it; the gradient of the stack's input is made
    from that gradient.
  */
  int64_t first;
  int64_t outputs; /* all outputs, in the order of layers */
  int64_t end;     /* end of outputs and gradients */
} TrsMlpRoom;

/*
  TrsMlpPlace - Set where declared layers write: inner layers to `inner`, the last one to y
  [max_batch, y_stride].

  A backward overwrites outputs by gradients. The gradient of an output lies right behind this
  output, in the place of later outputs, or behind the gradient there if it is made from that
  gradient.

  In: inner  borrowed; NULL: the call only computes the result. Between a backward and the next
             forward the caller may use all of it, and outside of a backward the part behind the
             outputs
      y      borrowed
*/
TrsMlpRoom TrsMlpPlace(TrsMlp *mlp, int64_t max_batch, float *inner, float *y, int64_t y_stride);

/* n, rounded up to whole cache lines of floats. */
int64_t TrsWholeLines(int64_t n);

/* The first place at or after `from` where n floats do not overlap [begin, end). */
int64_t TrsMlpBeside(int64_t from, int64_t n, int64_t begin, int64_t end);

/* Run the layers on n samples of x [n, x_stride]. */
PetscErrorCode TrsMlpForward(const TrsMlp *mlp, TrsStream stream, int64_t n, const float *x,
                             int64_t x_stride);

/*
  Run the backward. dy, the gradient of the last output, is overwritten; dx is written, or NULL. The
  gradients of each layer are announced when they become ready.
*/
PetscErrorCode TrsMlpBackward(const TrsMlp *mlp, TrsStream stream, int64_t n, const float *x,
                              int64_t x_stride, float *dy, int64_t dy_stride, float *dx, int64_t dx_stride);

/* Print the sizes of the layers, "13-512-256-64", on rank 0 of comm. Logically collective. */
PetscErrorCode TrsMlpView(const TrsMlp *mlp, const char *module, MPI_Comm comm);

PetscErrorCode TrsMlpFree(TrsMlp *mlp);
