/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Layers: functions from a matrix [B, in] to a matrix [B, out]. Internal to model/.

  Matrices are fp32, with one exception: a matrix that only linear layers and the activations after
  them read and write has the operands' type (operand_type in compute/compute_ops.h).

  A kind of layer is a const table of functions, trs_layer_<word>, in layer_<word>.c. A stack of
  layers is a TrsMlp (model/mlp.h), which provides memory for their outputs and gradients. A layer
  knows nothing of ranks: its gradients are sums over the given rows.
*/
#pragma once

#include "model/parameters.h"
#include "spec/vocabulary.h"

/* The state of the random numbers for the rows of a step. */
typedef struct {
  PetscBool training; /* false: layers draw no random numbers */
  uint64_t seed;
  int64_t step;
  int64_t first; /* position of this rank's first row in the epoch's order of samples */
} TrsLayerDraw;

/* Data that all layers of a model share. Every layer borrows it. */
typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsParameters *params;
  /* matrix multiplications may also make masks and sums (TrsReluMasks); not with -reproducible */
  PetscBool fused;
  TrsLayerDraw draw; /* state for the rows of the current forward and backward */
  /* The step's numbers on the device, which replace `draw` and the loss' scale. NULL: use `draw`
     and the scale. */
  const TrsBatchNumbers *now;
} TrsLayerContext;

typedef struct TrsLayerOps TrsLayerOps;

typedef struct TrsLayerImpl {
  const TrsLayerOps *ops;
  const TrsLayerContext *context;
  int64_t in, out; /* columns of input and output */
  /* columns of input and weight, including the zeros after the first `in`; equal to `in` without
     zeros */
  int64_t filled;
  TrsActivation activation; /* linear: the layer's kernel also applies this activation */
  double rate;              /* dropout: probability that a number becomes 0 */
  uint64_t name;            /* hash of the layer's name, the key of its random numbers */
  int weight, bias;         /* indices in the parameters; -1: there is none */
  TrsMatrix y;              /* output [max_batch, out] */
  TrsMatrix skipped;        /* residual: the input of the perceptron, set by the stack's forward */
  /* [max_batch, ops->kept] numbers that a forward keeps for the backward */
  float *kept;
  /*
    linear, if the input does not have the operands' type: the input's copy in this type. The
    forward keeps it for the backward. If x has no data, the layer reads the input itself.
  */
  TrsMatrix x;
  /*
    linear with ReLU whose output another linear layer reads: the mask of y. The reading layer's
    backward also gets it (TrsReluMasks).
  */
  TrsReluMask mask;
  /* the linear layer whose mask this layer's backward gets, or NULL */
  const struct TrsLayerImpl *below;
} TrsLayer;

/* TrsLayerCheck() refuses a table that lacks a function not marked as optional. */
struct TrsLayerOps {
  const char *word;
  /*
    The output is as wide as the input. A backward overwrites the output's gradient with the input's
    gradient.
  */
  PetscBool same_width;
  /* The output overwrites the input, because the backward needs only the output. */
  PetscBool in_place;
  /* number of floats per sample that a forward keeps besides the output */
  int kept;
  TrsActivation activation; /* the activation, for the layers in layer_activation.c */

  /*
    Declare the parameters "<module>/<index>/<part>", in the order in which their gradients become
    ready. Optional.
  */
  PetscErrorCode (*declare)(TrsLayer *layer, const char *module, int index);

  /* Count the operations of one sample's forward. A backward down to the input has twice as
     many. */
  double (*flops)(const TrsLayer *layer);

  /* Count the bytes that one sample's forward reads and writes, without parameters. */
  double (*bytes)(const TrsLayer *layer);

  /* Compute y from x [n, x_stride]. */
  PetscErrorCode (*forward)(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x);

  /*
    After a forward on the same samples, compute dx and the parameters' gradients from dy, which is
    overwritten. If same_width, dx is dy. Otherwise dx has no data if the caller does not need it.
  */
  PetscErrorCode (*backward)(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                             TrsMatrix dx);
};

#define TRS_LAYER_TABLE(KIND, word) extern const TrsLayerOps trs_layer_##word;
TRS_MLP_ACTIVATIONS(TRS_LAYER_TABLE)
extern const TrsLayerOps trs_layer_linear, trs_layer_layer_norm, trs_layer_dropout, trs_layer_residual,
    trs_layer_pair;

/* A `bytes` function for layers that read a row of the input and write a row of the output. */
double TrsLayerBytes(const TrsLayer *layer);

/*
  Check that the table has every function it needs. Not collective. Errors: INTERNAL, naming the
  missing function
*/
PetscErrorCode TrsLayerCheck(const TrsLayerOps *ops);

/* Compute C [m, n] = op(A) op(B) + beta C, with the sizes and matrices in `product`. */
PetscErrorCode TrsLayerMultiply(const TrsLayerContext *context, TrsStream stream, PetscBool trans_a,
                                PetscBool trans_b, TrsMatrixProduct product);

/*
  Set the sizes, weight and bias of a linear layer from its parameters, and drop the masks if the
  context is not fused. The other fields must be set.
*/
void TrsLayerLinearComplete(const TrsLayerContext *context, int weight, int bias, TrsLinear *linear);

/*
  Do all of a linear layer's forward on x [n, in] except the product. *linear, which borrows from
  the layer, is what remains to be computed. The layer must have no activation.
*/
PetscErrorCode TrsLayerLinearPrepare(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x,
                                     TrsLinear *linear);

/*
  Run a linear layer. `weight` and `bias` are indices in the parameters. The caller sets batch, x,
  activation and y of `linear`, and masks, which are used only if the context is fused.
*/
PetscErrorCode TrsLayerLinearForward(const TrsLayerContext *context, TrsStream stream, int weight, int bias,
                                     TrsLinear linear);

/*
  Run the backward of TrsLayerLinearForward(). It overwrites dy, and computes dx only if dx has
  data.
*/
PetscErrorCode TrsLayerLinearBackward(const TrsLayerContext *context, TrsStream stream, int weight, int bias,
                                      TrsLinear linear, TrsMatrix dy, TrsMatrix dx);
