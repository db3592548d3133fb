/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A stack of layers (model/layer.h), forward and backward. It is made of perceptrons: a linear
  layer, and behind it the layers that keep its width. Internal to model/.

  Any number of stacks may share a context. A stack's gradients are announced in the order in which
  its parameters were declared, so that a model declares its stacks in the order of its backward.

  Source: torchrec.modules.mlp.MLP
*/
#pragma once

#include "model/layer.h"

/* The description of a stack. Fields that are 0 have the default. */
typedef struct {
  int n;                /* perceptrons */
  const int64_t *sizes; /* [n] their widths */
  PetscBool plain_last; /* the last perceptron is a linear layer alone, as for logits */
  /*
    The layers behind each other linear layer, in this order: layer norm, activation, dropout,
    residual.
  */
  PetscBool layer_norm;
  TrsMlpActivation activation;
  double dropout; /* probability that a number is dropped; 0: no such layer */
  /* Perceptrons whose output is as wide as their input add the input to the output. */
  PetscBool residual;
  const char *option; /* the stack's option, for messages */
  PetscBool pair;     /* in place of all that: one layer, the product of the input's halves */
  TrsDType x_type;    /* of the input; fp32, or the type that products want */
} TrsMlpSpec;

/*
  Read <option>_activation, <option>_layer_norm, <option>_dropout and <option>_residual, which
  TRS_MLP_OPTIONS() has declared. option: borrowed for as long as the spec. Not collective. Errors:
  OPTION
*/
PetscErrorCode TrsMlpSpecRead(TrsOptions options, const char *option, TrsMlpSpec *spec);

/*
  May the stack's output have the type that products want? It may if a linear layer, or an
  activation in its place, writes it.
*/
PetscBool TrsMlpSpecIsTyped(const TrsMlpSpec *spec);

/* Lines of an option group: a stack's options beside its sizes. `what` names it in a sentence. */
/* clang-format off */
#define TRS_MLP_OPTIONS(option, what) \
  {option "_activation", TRS_OPTION_ENUM, "relu", NULL, TRS_CHOICES(TRS_MLP_ACTIVATIONS), NULL, \
   "function behind each layer of " what ". swish_layernorm: x * sigmoid(layer norm of x)"}, \
  {option "_layer_norm", TRS_OPTION_BOOL, "false", NULL, NULL, NULL, \
   "layer norm before the activation of each layer of " what}, \
  {option "_dropout", TRS_OPTION_REAL, "0", "[0,1)", NULL, NULL, \
   "probability that a number behind a layer of " what " is 0 in a training step. The others are divided " \
   "by 1 minus it"}, \
  {option "_residual", TRS_OPTION_BOOL, "false", NULL, NULL, NULL, \
   "add the input of each layer of " what " to its output where both have one width"}
/* clang-format on */
/* Those of them that a model consists of. */
#define TRS_MLP_MODEL_OPTIONS(option) "," option "_activation," option "_layer_norm," option "_residual"

typedef struct {
  int n_perceptrons;
  int n_layers;
  TrsLayer *layer; /* [n_layers] in the order of a forward */
  int *end;        /* [n_perceptrons] the layer behind each perceptron's last one */
  /*
    [n_perceptrons] gradient of each perceptron's output, which is such a matrix; not of the last.
  */
  float **dy;
  /* Of residual perceptrons: the gradient of the sum [max_batch, n_saved], and its columns. */
  float *saved;
  int64_t n_saved;
} TrsMlp;

/*
  TrsMlpDeclare - Declare a stack in -> sizes[0] -> ... -> sizes[n - 1].

  The last perceptron's parameters come first, because their gradients are ready first. Call it
  before TrsParametersAllocate(). Not collective. Errors: OPTION if a residual stack has no
  perceptron whose output is as wide as its input.

  In:  context  borrowed until TrsMlpFree()
       module   the parameters are "<module>/<perceptron>/<part>"
       filled   columns of the rows of the input and of its gradient, >= in; those after the
                first `in` are zeros. An input that is copied for products, and has no
                gradient, need not have them
*/
PetscErrorCode TrsMlpDeclare(TrsMlp *mlp, const TrsLayerContext *context, const char *module,
                             const TrsMlpSpec *spec, int64_t in, int64_t filled);

/*
  Places of a stack's inner outputs and their gradients, in floats from the beginning of the stack's
  memory. All sizes are whole cache lines.
*/
typedef struct {
  int64_t grad, grad_end; /* the gradient from which that of the stack's input is made */
  int64_t outputs;        /* all outputs, in the order of layers */
  int64_t end;            /* end of outputs and gradients */
} TrsMlpRoom;

/*
  TrsMlpPlace - Set where declared layers write: inner layers to `inner`, the last one to y
  [max_batch, y.stride].

  A backward overwrites outputs by gradients. The gradient of a perceptron's output takes its place
  where a mask is all that the backward wants of this output then. Else it lies right behind this
  output, in the place of later outputs, or behind the gradient there if it is made from that
  gradient.

  In: inner  borrowed; NULL: the call only computes the result. Between a backward and the next
             forward the caller may use all of it, and outside of a backward the part behind the
             outputs
      y      borrowed
*/
TrsMlpRoom TrsMlpPlace(TrsMlp *mlp, int64_t max_batch, float *inner, TrsMatrix y);

/* Let the last layer write to another y [max_batch, y.stride], borrowed. */
void TrsMlpPlaceOutput(TrsMlp *mlp, TrsMatrix y);

/* n, rounded up to whole cache lines of floats. */
int64_t TrsWholeLines(int64_t n);

/* Floats, in whole cache lines, that the rows of a matrix take. */
int64_t TrsMatrixFloats(int64_t rows, TrsMatrix matrix);

/*
  Take n floats of memory, whole cache lines behind the *used ones. Without memory they are only
  counted, and the result is NULL.
*/
float *TrsTakeFloats(float *memory, int64_t *used, int64_t n);

/* Numbers from row to row of a matrix of a type: rows of whole 16 bytes, unless they are floats. */
int64_t TrsOperandStride(TrsDType type, int64_t cols);

/* Take the rows of a dense matrix of a type, as TrsTakeFloats(). */
TrsMatrix TrsTakeMatrix(float *memory, int64_t *used, int64_t rows, int64_t cols, TrsDType type);

/* The first place at or after `from` where n floats do not overlap [begin, end). */
int64_t TrsMlpBeside(int64_t from, int64_t n, int64_t begin, int64_t end);

/* Run the layers on n samples of x, which is of the type declared. */
PetscErrorCode TrsMlpForward(const TrsMlp *mlp, TrsStream stream, int64_t n, TrsMatrix x);

/*
  Run the backward. dy, the gradient of the last output, is overwritten; dx is written, or has no
  data. It has the type of x, or is of floats. The gradients of each layer are announced when they
  become ready.
*/
PetscErrorCode TrsMlpBackward(const TrsMlp *mlp, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                              TrsMatrix dx);

/*
  Add what a forward of one sample computes and moves: operations, and bytes without those of
  parameters. Not collective.
*/
void TrsMlpWork(const TrsMlp *mlp, double *flops, double *bytes);

/* Print the sizes of the layers, "13-512-256-64", on rank 0 of comm. Logically collective. */
PetscErrorCode TrsMlpView(const TrsMlp *mlp, const char *module, MPI_Comm comm);

PetscErrorCode TrsMlpFree(TrsMlp *mlp);
