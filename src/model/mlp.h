/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A stack of layers (model/layer.h), forward and backward. A stack consists of perceptrons. Each
  perceptron is a linear layer, followed by layers with the same width. Internal to model/.

  Any number of stacks can share a context. A stack's gradients are announced in the order in which
  its parameters were declared, so a model must declare its stacks in the order of its backward.

  Source: torchrec.modules.mlp.MLP
*/
#pragma once

#include "core/options/options.h"
#include "model/layer.h"

/* The description of a stack. A field that is 0 stands for the default. */
typedef struct {
  int n;                /* number of perceptrons */
  const int64_t *sizes; /* [n] widths of the perceptrons */
  PetscBool plain_last; /* the last perceptron is only a linear layer, as for logits */
  /*
    The layers after every linear layer of a complete perceptron, in this order: layer norm,
    activation, dropout, residual.
  */
  PetscBool layer_norm;
  TrsMlpActivation activation;
  double dropout; /* probability that dropout sets a number to 0; 0: no dropout layer */
  /* If a perceptron's output is as wide as its input, add the input to the output. */
  PetscBool residual;
  const char *option; /* name of the stack's option, for messages */
  PetscBool pair;     /* true: the stack is only one layer that multiplies the input's halves */
  TrsDType x_type;    /* type of the input: fp32 or the operands' type */
} TrsMlpSpec;

/*
  Read <option>_activation, <option>_layer_norm, <option>_dropout and <option>_residual, which are
  declared with TRS_MLP_OPTIONS(). `option` must live as long as the spec. Not collective.
  Errors: OPTION
*/
PetscErrorCode TrsMlpSpecRead(TrsOptions options, const char *option, TrsMlpSpec *spec);

/*
  True if the stack's output may have the operands' type. For this, a linear layer, or an in-place
  activation after a linear layer, must write the output.
*/
PetscBool TrsMlpSpecIsTyped(const TrsMlpSpec *spec);

/*
  The lines of an option group that declare a stack's options, without its sizes. `what` names the
  stack within a sentence.
*/
/* clang-format off */
#define TRS_MLP_OPTIONS(option, what) \
  {option "_activation", TRS_OPTION_ENUM, "relu", NULL, TRS_CHOICES(TRS_MLP_ACTIVATIONS), NULL, \
   "function after each layer of " what ". swish_layernorm: x * sigmoid(layer norm of x)"}, \
  {option "_layer_norm", TRS_OPTION_BOOL, "false", NULL, NULL, NULL, \
   "layer norm before the activation of each layer of " what}, \
  {option "_dropout", TRS_OPTION_REAL, "0", "[0,1)", NULL, NULL, \
   "probability that an output of a layer of " what " is 0 in a training step. The others are divided by " \
   "1 minus this probability"}, \
  {option "_residual", TRS_OPTION_BOOL, "false", NULL, NULL, NULL, \
   "add the input of each layer of " what " to its output if both have the same width"}
/* clang-format on */
/* Those options of a stack that belong to the model. */
#define TRS_MLP_MODEL_OPTIONS(option) "," option "_activation," option "_layer_norm," option "_residual"

typedef struct {
  int n_perceptrons;
  int n_layers;
  TrsLayer *layer; /* [n_layers] in forward order */
  int *end;        /* [n_perceptrons] index of the first layer after each perceptron */
  /*
    [n_perceptrons] gradient of each perceptron's output, in the output's layout; unused for the
    last
  */
  float **dy;
  /* residual perceptrons: the gradient of the sum [max_batch, n_saved], and its number of
     columns */
  float *saved;
  int64_t n_saved;
} TrsMlp;

/*
  TrsMlpDeclare - Declare a stack in -> sizes[0] -> ... -> sizes[n - 1].

  The last perceptron's parameters come first, because their gradients are ready first. Must be
  called before TrsParametersAllocate(). Not collective. Errors: OPTION if a residual stack has no
  perceptron whose output is as wide as its input.

  In:  context  borrowed until TrsMlpFree()
       module   the parameters are "<module>/<perceptron>/<part>"
       filled   columns of the input and of its gradient, >= in. The columns after the first `in`
                must be zeros. An input that is copied for matrix multiplications and has no
                gradient may lack them
*/
PetscErrorCode TrsMlpDeclare(TrsMlp *mlp, const TrsLayerContext *context, const char *module,
                             const TrsMlpSpec *spec, int64_t in, int64_t filled);

/*
  Positions of a stack's inner outputs and their gradients, in floats from the start of the stack's
  memory. All sizes are whole cache lines.
*/
typedef struct {
  /* start and end of the gradient from which the input's gradient is computed */
  int64_t grad, grad_end;
  int64_t outputs; /* end of all outputs, which come first, in layer order */
  int64_t end;     /* end of the outputs and gradients */
} TrsMlpRoom;

/*
  TrsMlpPlace - Choose the memory of the layers' outputs. Inner layers write to `inner`, the last
    layer writes to y [max_batch, y.stride].

  A backward overwrites outputs with gradients. If the backward needs only the mask of a
  perceptron's output, the output's gradient overwrites the output. Otherwise the gradient begins at
  the output's end, and overwrites later outputs. If this range holds the gradient from which it is
  computed, it begins at the end of that gradient instead.

  In: inner  borrowed; NULL: the call only computes the result. The caller may use all of it between
             a backward and the next forward, and the part after the outputs outside of a backward
      y      borrowed
*/
TrsMlpRoom TrsMlpPlace(TrsMlp *mlp, int64_t max_batch, float *inner, TrsMatrix y);

/* Make the last layer write to another y [max_batch, y.stride], borrowed. */
void TrsMlpPlaceOutput(TrsMlp *mlp, TrsMatrix y);

/* n rounded up to whole cache lines of floats. */
int64_t TrsWholeLines(int64_t n);

/* The number of floats that a matrix's rows need, in whole cache lines. */
int64_t TrsMatrixFloats(int64_t rows, TrsMatrix matrix);

/*
  Reserve n floats in `memory`, in whole cache lines after the first *used floats, and add them to
  *used. If `memory` is NULL, the call only counts the floats and returns NULL.
*/
float *TrsTakeFloats(float *memory, int64_t *used, int64_t n);

/*
  The number of elements from row to row of a matrix with a given type. Rows fill whole 16-byte
  units, unless the type is fp32.
*/
int64_t TrsOperandStride(TrsDType type, int64_t cols);

/* Reserve memory for the rows of a dense matrix with a given type, as TrsTakeFloats() does. */
TrsMatrix TrsTakeMatrix(float *memory, int64_t *used, int64_t rows, int64_t cols, TrsDType type);

/* The first position at or after `from` where n floats do not overlap [begin, end). */
int64_t TrsMlpBeside(int64_t from, int64_t n, int64_t begin, int64_t end);

/* Run the layers on n samples of x, which must have the declared type. */
PetscErrorCode TrsMlpForward(const TrsMlp *mlp, TrsStream stream, int64_t n, TrsMatrix x);

/*
  True if the stack ends in a linear layer of one unit without activation, as for a logit.
*/
PetscBool TrsMlpEndsInUnit(const TrsMlp *mlp);

/*
  Do the same as TrsMlpForward(), but leave the last layer's product to the caller, for example to a
  loss (TrsLossArgs). TrsMlpEndsInUnit() must be true. *last borrows from the stack.
*/
PetscErrorCode TrsMlpForwardToUnit(const TrsMlp *mlp, TrsStream stream, int64_t n, TrsMatrix x,
                                   TrsLinear *last);

/*
  Run the backward. It overwrites dy, the gradient of the last output. It writes dx if dx has data.
  dx has the type of x, or floats. Each layer's gradients are announced as soon as they are
  complete.
*/
PetscErrorCode TrsMlpBackward(const TrsMlp *mlp, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                              TrsMatrix dx);

/* Add the operations of one sample's forward, and its bytes without parameters. Not collective. */
void TrsMlpWork(const TrsMlp *mlp, double *flops, double *bytes);

/* Print the layer sizes, "13-512-256-64", on rank 0 of comm. Logically collective. */
PetscErrorCode TrsMlpView(const TrsMlp *mlp, const char *module, MPI_Comm comm);

PetscErrorCode TrsMlpFree(TrsMlp *mlp);
