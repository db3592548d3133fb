/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Layers: functions from a matrix [B, in] to a matrix [B, out]. Internal to model/.

  Matrices are fp32, but for those that linear layers and the activations behind them alone read and
  write: these have the type that products want (operand_type of compute/compute_ops.h).

  A kind of layer is a const table of functions, trs_layer_<word>, in layer_<word>.c. A stack of
  them is a TrsMlp (model/mlp.h), which says where their outputs and gradients lie. A layer knows
  its samples' rows and nothing of ranks: its gradients are sums over the rows that it is given.
*/
#pragma once

#include "model/parameters.h"
#include "spec/vocabulary.h"

/* What the random numbers of a step's rows belong to. */
typedef struct {
  PetscBool training; /* else layers draw no random numbers */
  uint64_t seed;
  int64_t step;
  int64_t first; /* the first row's place in the epoch's order, whatever rank has the row */
} TrsLayerDraw;

/* What the layers of a model have in common. Borrowed by all of them. */
typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsParameters *params;
  PetscBool fused;   /* products may make masks and sums (TrsReluMasks); not with -reproducible */
  TrsLayerDraw draw; /* of the rows of the forward and backward that run */
  /* Numbers of the step on the device, in place of `draw`'s and of the loss' scale; or NULL. */
  const TrsBatchNumbers *now;
} TrsLayerContext;

typedef struct TrsLayerOps TrsLayerOps;

typedef struct TrsLayerImpl {
  const TrsLayerOps *ops;
  const TrsLayerContext *context;
  int64_t in, out; /* columns of the input and of the output */
  /*
    Columns of the input and of the weight, with zeros after the first `in`; without zeros it is
    `in`.
  */
  int64_t filled;
  TrsActivation activation; /* of the linear kind, in the same kernel */
  double rate;              /* of dropout */
  uint64_t name;            /* hash of the layer's name, for its random numbers */
  int weight, bias;         /* indices in the parameters, or -1 */
  TrsMatrix y;              /* output [max_batch, out] */
  TrsMatrix skipped;        /* of residual: the perceptron's input, set by the stack's forward */
  float *kept;              /* [max_batch, ops->kept] what a forward keeps for the backward */
  /*
    Of the linear kind, where the input is not of the products' type: its copy in this type, from a
    forward for the backward. Without data the input is taken itself.
  */
  TrsMatrix x;
  /*
    Of the linear kind with ReLU, where the layer above is linear, too: the mask of y. The backward
    of the layer above is given it, too (TrsReluMasks).
  */
  TrsReluMask mask;
  const struct TrsLayerImpl *below; /* the layer whose mask this one is given, or NULL */
} TrsLayer;

/* TrsLayerCheck() refuses a table without a function that is not optional. */
struct TrsLayerOps {
  const char *word;
  /*
    The layer's output and input are as wide as each other, and a backward makes the gradient of
    the input in the place of the output's gradient.
  */
  PetscBool same_width;
  /* The output takes the input's place, because a backward needs the output alone. */
  PetscBool in_place;
  int kept;                 /* floats of a sample that a forward keeps beside the output */
  TrsActivation activation; /* of the kinds of layer_activation.c */

  /*
    Declare the parameters "<module>/<index>/<part>", the one whose gradient is ready first in
    front. Optional.
  */
  PetscErrorCode (*declare)(TrsLayer *layer, const char *module, int index);

  /* Operations of one sample forward; a backward to the input has twice as many. */
  double (*flops)(const TrsLayer *layer);

  /* Bytes of one sample that a forward reads and writes, without those of parameters. */
  double (*bytes)(const TrsLayer *layer);

  /* x [n, x_stride] to y. */
  PetscErrorCode (*forward)(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x);

  /*
    dy (overwritten) to dx, and the gradients of the parameters, after a forward of the same
    samples. dx is dy if same_width, else it has no data if it is not needed.
  */
  PetscErrorCode (*backward)(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                             TrsMatrix dx);
};

#define TRS_LAYER_TABLE(KIND, word) extern const TrsLayerOps trs_layer_##word;
TRS_MLP_ACTIVATIONS(TRS_LAYER_TABLE)
extern const TrsLayerOps trs_layer_linear, trs_layer_layer_norm, trs_layer_dropout, trs_layer_residual,
    trs_layer_pair;

/* The `bytes` of the tables: a row of the input and one of the output. */
double TrsLayerBytes(const TrsLayer *layer);

/* Has the table every function it needs? Not collective. Errors: INTERNAL naming the function */
PetscErrorCode TrsLayerCheck(const TrsLayerOps *ops);

/* C [m, n] = op(A) op(B) + beta C, of the product's sizes and matrices. */
PetscErrorCode TrsLayerMultiply(const TrsLayerContext *context, TrsStream stream, PetscBool trans_a,
                                PetscBool trans_b, TrsMatrixProduct product);
