/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Layers: functions from a matrix [B, in] to a matrix [B, out]. Internal to model/.

  Matrices are fp32. Matrices that only linear layers and the activations behind them read and write
  have the operands' type (operand_type in compute/compute_ops.h).

  A kind of layer is a const table of functions, trs_layer_<word>, in layer_<word>.c. A stack of
  layers is a TrsMlp (model/mlp.h), which sets the places of their outputs and gradients. A layer
  sees only its rows, not the ranks: its gradients are sums over the given rows.
*/
#pragma once

#include "model/parameters.h"
#include "spec/vocabulary.h"

/* The state of the random numbers for the rows of a step. */
typedef struct {
  PetscBool training; /* if false, layers draw no random numbers */
  uint64_t seed;
  int64_t step;
  int64_t first; /* the first row's place in the epoch's order, on whichever rank it is */
} TrsLayerDraw;

/* Data that a model's layers share. Borrowed by every layer. */
typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsParameters *params;
  PetscBool fused;   /* products may make masks and sums (TrsReluMasks); not with -reproducible */
  TrsLayerDraw draw; /* for the rows of the current forward and backward */
  /* Numbers of the step on the device, used instead of `draw` and the loss' scale; or NULL. */
  const TrsBatchNumbers *now;
} TrsLayerContext;

typedef struct TrsLayerOps TrsLayerOps;

typedef struct TrsLayerImpl {
  const TrsLayerOps *ops;
  const TrsLayerContext *context;
  int64_t in, out; /* columns of input and output */
  /* columns of input and weight, including the zeros after the first `in`; `in` without zeros */
  int64_t filled;
  TrsActivation activation; /* linear: applied in the same kernel */
  double rate;              /* dropout */
  uint64_t name;            /* hash of the layer's name, which keys its random numbers */
  int weight, bias;         /* indices in the parameters, or -1 */
  TrsMatrix y;              /* output [max_batch, out] */
  TrsMatrix skipped;        /* residual: the perceptron's input, set by the stack's forward */
  /* [max_batch, ops->kept] numbers that a forward keeps for the backward */
  float *kept;
  /*
    linear, if the input does not have the operands' type: its copy in this type, kept from the
    forward for the backward. Without data the layer reads the input itself.
  */
  TrsMatrix x;
  /*
    linear with ReLU, below another linear layer: the mask of y. The backward of the layer above
    also gets it (TrsReluMasks).
  */
  TrsReluMask mask;
  const struct TrsLayerImpl *below; /* the layer whose mask this layer gets, or NULL */
} TrsLayer;

/* TrsLayerCheck() refuses a table that lacks a function not marked as optional. */
struct TrsLayerOps {
  const char *word;
  /*
    The output is as wide as the input, and a backward overwrites the output's gradient with the
    input's.
  */
  PetscBool same_width;
  /* The output overwrites the input, because a backward only needs the output. */
  PetscBool in_place;
  int kept;                 /* floats per sample that a forward keeps besides the output */
  TrsActivation activation; /* the kinds in layer_activation.c */

  /*
    Declare the parameters "<module>/<index>/<part>", in the order in which their gradients become
    ready. Optional.
  */
  PetscErrorCode (*declare)(TrsLayer *layer, const char *module, int index);

  /* Operations of one sample's forward; a backward to the input has twice as many. */
  double (*flops)(const TrsLayer *layer);

  /* Bytes that one sample's forward reads and writes, without parameters. */
  double (*bytes)(const TrsLayer *layer);

  /* Compute y from x [n, x_stride]. */
  PetscErrorCode (*forward)(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x);

  /*
    After a forward on the same samples, compute dx and the parameters' gradients from dy, which is
    overwritten. dx is dy if same_width. Otherwise dx has no data if it is not needed.
  */
  PetscErrorCode (*backward)(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                             TrsMatrix dx);
};

#define TRS_LAYER_TABLE(KIND, word) extern const TrsLayerOps trs_layer_##word;
TRS_MLP_ACTIVATIONS(TRS_LAYER_TABLE)
extern const TrsLayerOps trs_layer_linear, trs_layer_layer_norm, trs_layer_dropout, trs_layer_residual,
    trs_layer_pair;

/* A `bytes` for tables that read a row of the input and write a row of the output. */
double TrsLayerBytes(const TrsLayer *layer);

/*
  Check that the table has every function it needs. Not collective. Errors: INTERNAL naming the
  function
*/
PetscErrorCode TrsLayerCheck(const TrsLayerOps *ops);

/* Compute C [m, n] = op(A) op(B) + beta C with the product's sizes and matrices. */
PetscErrorCode TrsLayerMultiply(const TrsLayerContext *context, TrsStream stream, PetscBool trans_a,
                                PetscBool trans_b, TrsMatrixProduct product);

/*
  Run a linear layer whose weight and bias are the parameters of these numbers. The caller sets
  batch, x, activation and y of `linear`, and masks, which are only used if the context is fused.
*/
PetscErrorCode TrsLayerLinearForward(const TrsLayerContext *context, TrsStream stream, int weight, int bias,
                                     TrsLinear linear);

/* The backward of TrsLayerLinearForward(). Overwrites dy. dx is only computed if it has data. */
PetscErrorCode TrsLayerLinearBackward(const TrsLayerContext *context, TrsStream stream, int weight, int bias,
                                      TrsLinear linear, TrsMatrix dy, TrsMatrix dx);
