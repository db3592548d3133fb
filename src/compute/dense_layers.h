/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The kernels of dense layers, interactions, losses and dense optimizers. The rules in compute_ops.h
  apply to them.
*/
#pragma once

#include "compute/gemm.h"
#include "compute/pair_softmax.h"
#include "device/device.h"

/*
  Operands and sums of dense products are fp32. tf32 and bf16 round the operands before the product.
*/
typedef enum { TRS_PRECISION_FP32, TRS_PRECISION_TF32, TRS_PRECISION_BF16 } TrsDensePrecision;

/* The kernels of linear layers support only NONE and RELU. */
typedef enum {
  TRS_ACTIVATION_NONE,
  TRS_ACTIVATION_RELU,
  TRS_ACTIVATION_SIGMOID,
  TRS_ACTIVATION_TANH
} TrsActivation;

/* Layer norm of a row, z = (x - mean) / sqrt(variance + eps) * weight + bias. */
typedef struct {
  const float *weight, *bias; /* [n] */
  float eps;
  PetscBool swish; /* the output is x * sigmoid(z), else z */
  /* [B, 2] mean and 1 / sqrt(variance + eps), kept by a forward for its backward */
  float *rows;
  float *grad_weight, *grad_bias; /* [n] written by a backward */
} TrsLayerNorm;

/*
  A linear layer, y [batch, out] = activation(x [batch, in] W^T + bias), W [out, in]. Each matrix
  may have the operands' type, but y and its gradient must have the same type.
*/
typedef struct {
  int64_t batch, in, out;
  TrsMatrix x, weight;
  const void *bias; /* of the type of y; a backward does not read it */
  TrsActivation activation;
  TrsMatrix y;
  const TrsReluMasks *masks; /* or NULL */
} TrsLinear;

typedef struct {
  TrsMatrix dy;                   /* overwritten by dy * activation'(y) */
  float *grad_weight, *grad_bias; /* [out, in] and [out], overwritten */
  TrsMatrix dx; /* overwritten last: may share memory with y, or be x. No data: not computed */
} TrsLinearGradients;

/*
  Factorization machine over the n numbers of each sample, x [B, n]. Its output has the first
  `copied` floats of x, then at column `at` the value ((sum x)^2 - sum x^2) / 2, followed by n_zeros
  zeros; other columns stay unchanged.
*/
typedef struct {
  int64_t n;
  int copied;
  int64_t at;
  int n_zeros;
  const float *x;
  int64_t x_stride;
} TrsFm;

/*
  Numbers that differ from step to step, in memory that kernels read. A captured launch
  (device/device.h) keeps its arguments, so each replay reads its step's numbers here.
*/
typedef struct {
  int64_t step, first; /* as in TrsDropout */
  float loss_scale;    /* extra factor of a loss' gradient */
} TrsBatchNumbers;

typedef struct {
  float learning_rate;
  float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
  float kept;                     /* adamw: factor of the weights */
} TrsUpdateNumbers;

/*
  Dropout. The random number for row b, column c is word c % 4 of the Philox block with counter (b',
  step) and this key, where b' = (first + b) * ceil(n / 4) + c / 4.
*/
typedef struct {
  uint64_t key, step;
  int64_t first;              /* index of the first row among all samples of the step */
  uint64_t kept;              /* an element is kept if its number, in [0, 2^32), is below */
  float scale;                /* factor of kept elements */
  const TrsBatchNumbers *now; /* has step and first; NULL: use the fields above */
} TrsDropout;

/* Position of a cross layer in a backward, as bits. */
enum { TRS_CROSS_FIRST = 1, TRS_CROSS_LAST = 2 };

/*
  Arrays of a cross layer's backward. All are dense [B, n], except bias and grad_bias, which are
  [n].
*/
typedef struct {
  const void *x0, *u; /* of `type` */
  const float *bias;
  const void *g; /* of `type` */
  float *dx0;
  void *h; /* of `type` */
  float *grad_bias;
  TrsDType type; /* fp32, or the operands' type */
  /*
    In a LAST call with the operands' type: receives the sum including g, instead of dx0. Has `type`
    and may be g. NULL: the sum goes to dx0.
  */
  void *total;
} TrsCrossBackward;

typedef struct {
  TrsDenseOptimizerKind kind;
  float learning_rate, eps, weight_decay;
  double beta1, beta2; /* 1 - beta is computed in double: 1 - 0.999f is off by 1e-5 */
  float grad_scale;    /* factor of the gradient */
  /*
    sum_of_squares() of the whole gradient, to scale it to a norm of at most max_norm. NULL: no
    limit.
  */
  const double *squares;
  double max_norm;
  int64_t step;                /* t, counted from 1 */
  float max_value;             /* the scaled gradient is clamped to +- this; 0: no limit */
  const TrsUpdateNumbers *now; /* replaces learning_rate and step; NULL: use the fields above */
} TrsDenseOptimizerArgs;

/* Compute the numbers of an update from its learning rate and step. */
PETSC_EXTERN TrsUpdateNumbers TrsUpdateNumbersOf(const TrsDenseOptimizerArgs *args);

/*
  Set the precision of all later products of this process. The default is fp32. Errors: UNAVAILABLE.
*/
typedef PetscErrorCode TrsDensePrecisionFn(TrsDensePrecision precision);

/*
  Choose the algorithm of each product by timing up to `most` algorithms that the library offers for
  its shape; 1: the library's own first choice. A choice holds until this process sets the precision
  or the number again. With timing, bits may differ from run to run. No effect if a library offers a
  single algorithm.
*/
typedef PetscErrorCode TrsProductAlgorithmsFn(int most);

/*
  A line for each shape whose algorithm was chosen by timing, with the algorithm and its speed. The
  text is borrowed.
*/
typedef const char *TrsProductChoicesFn(void);

/*
  The name of the library that makes the products, for example "OpenBLAS 0.3.21 SkylakeX, 1 thread"
  or "cuBLASLt 13.1.0", for the banner and result files. The text is borrowed.
*/
typedef const char *TrsProductLibraryFn(void);

/*
  The best type for stored operands of products at the current precision: bf16 or fp32. Layers use
  it for matrices that only products read. Products also accept fp32 and round it to the precision.
  Results may have this type, too. Host function.
*/
typedef TrsDType TrsOperandTypeFn(void);

/*
  Copy a matrix [rows, cols] to a matrix of another type, and fill columns [cols, filled) with
  zeros.
*/
typedef PetscErrorCode TrsConvertMatrixFn(TrsStream stream, int64_t rows, int64_t cols, int64_t filled,
                                          TrsMatrix from, TrsMatrix to);

/* Make a product. */
typedef PetscErrorCode TrsMultiplyFn(TrsStream stream, const TrsMatrixProduct *product);

/* Compute y. If there are masks, the mask of y is written. */
typedef PetscErrorCode TrsLinearForwardFn(TrsStream stream, const TrsLinear *linear);

/*
  Compute the gradients after a forward. Sums over the batch run in a fixed order.

  Without masks, this function determines the order of the sums. Otherwise the product library may
  compute the bias gradient. If there is a mask of y, y is not read, and the caller must have passed
  this mask as the x mask to the backward of the layer above.
*/
typedef PetscErrorCode TrsLinearBackwardFn(TrsStream stream, const TrsLinear *linear,
                                           const TrsLinearGradients *gradients);

/*
  Bytes of a row of the mask that linear_forward writes for `out` columns. 0: this backend has no
  masks, and linear_backward reads y. Host function.
*/
typedef int64_t TrsReluMaskBytesFn(int64_t out);

/*
  y = activation(y); dy *= activation'(y), where y is the output. Both may have the operands' type.
*/
typedef PetscErrorCode TrsActivateFn(TrsStream stream, int64_t batch, int64_t n, TrsActivation activation,
                                     TrsMatrix y);
typedef PetscErrorCode TrsActivateBackwardFn(TrsStream stream, int64_t batch, int64_t n,
                                             TrsActivation activation, TrsMatrix y, TrsMatrix dy);

/*
  Layer norm. The backward turns dy into the gradient of x, and writes the norm's gradients. Its
  sums over the batch run in a fixed order.
*/
typedef PetscErrorCode TrsLayerNormForwardFn(TrsStream stream, int64_t batch, int64_t n,
                                             const TrsLayerNorm *norm, const float *x, int64_t x_stride,
                                             float *y, int64_t y_stride);
typedef PetscErrorCode TrsLayerNormBackwardFn(TrsStream stream, int64_t batch, int64_t n,
                                              const TrsLayerNorm *norm, const float *x, int64_t x_stride,
                                              float *dy, int64_t dy_stride);

/*
  Scale rows of n columns to length 1: y = x / max(|x|, 1e-12). The backward turns dy into the
  gradient of x.
*/
typedef PetscErrorCode TrsUnitRowsFn(TrsStream stream, int64_t batch, int64_t n, const float *x,
                                     int64_t x_stride, float *y, int64_t y_stride);
typedef PetscErrorCode TrsUnitRowsBackwardFn(TrsStream stream, int64_t batch, int64_t n, const float *x,
                                             int64_t x_stride, float *dy, int64_t dy_stride);

/* y = scale * x, or 0 for dropped elements. y may be x. */
typedef PetscErrorCode TrsDropOutFn(TrsStream stream, int64_t batch, int64_t n, const TrsDropout *dropout,
                                    const float *x, int64_t x_stride, float *y, int64_t y_stride);

/*
  Dot interaction (src/RULES.md, rule A1) of n vectors a sample, x [B, n*D]. out[b] is the first
  `copied` numbers of x, then x_i . x_j for i < j, row by row of the upper triangle, then n_zeros
  zeros. copied is D if there is a dense vector, else 0. out and dout may have the operands' type;
  then x and dx may have it, too. x and dout are only read.
*/
typedef PetscErrorCode TrsDotForwardFn(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                       TrsMatrix x, TrsMatrix out);
typedef PetscErrorCode TrsDotBackwardFn(TrsStream stream, int64_t batch, int n, int D, int copied,
                                        TrsMatrix x, TrsMatrix dout, TrsMatrix dx);

/* A vector of the first sample, and the distance in elements from sample to sample. */
typedef struct {
  void *data;
  int64_t stride;
} TrsVectorPlace;

/*
  Returns true if dot_places_forward and its backward have room for n vectors of D numbers. Host
  function.
*/
typedef PetscBool TrsDotTakesPlacesFn(int n, int D);

/*
  Dot interaction of vectors at separate addresses, with the same bits. Requires dot_takes_places.
  Vector v is at x[v]; its gradient goes to dx[v], which may be x[v].
*/
typedef PetscErrorCode TrsDotPlacesForwardFn(TrsStream stream, int64_t batch, int n, int D, int copied,
                                             int n_zeros, TrsDType type, const TrsVectorPlace *x,
                                             TrsMatrix out);
typedef PetscErrorCode TrsDotPlacesBackwardFn(TrsStream stream, int64_t batch, int n, int D, int copied,
                                              TrsDType type, const TrsVectorPlace *x, TrsMatrix dout,
                                              const TrsVectorPlace *dx);

/* Factorization machine. The backward writes dx [B, n], or adds to it if `add` is set. */
typedef PetscErrorCode TrsFmForwardFn(TrsStream stream, int64_t batch, const TrsFm *fm, float *out,
                                      int64_t out_stride);
typedef PetscErrorCode TrsFmBackwardFn(TrsStream stream, int64_t batch, const TrsFm *fm, PetscBool add,
                                       const float *dout, int64_t dout_stride, float *dx, int64_t dx_stride);

/*
  DCN cross layer, element-wise part: y = x0 * (u + bias) + x. All arrays are dense [B, n] and have
  one type, fp32 or the operands'; bias is float.
*/
typedef PetscErrorCode TrsCrossForwardFn(TrsStream stream, int64_t batch, int64_t n, TrsDType type,
                                         const void *x0, const void *u, const float *bias, const void *x,
                                         void *y);

/*
  Backward of a cross layer: h = g * x0; grad_bias [n] = sum of h over samples. g * (u + bias) is
  added to dx0, except that the FIRST call of a backward overwrites dx0. The LAST call may also add
  g, for cross_input; see layer->total.
*/
typedef PetscErrorCode TrsCrossBackwardFn(TrsStream stream, int64_t batch, int64_t n, int place,
                                          const TrsCrossBackward *layer);

/*
  Must follow the LAST cross_backward. dx [batch, n] = g + dx0 + q V, with q [batch, rank] and V
  [rank, n]. g may be overwritten. If dx has the operands' type, g must hold cross_backward's total.
*/
typedef PetscErrorCode TrsCrossInputFn(TrsStream stream, int64_t batch, int64_t n, int64_t rank, TrsMatrix q,
                                       TrsMatrix V, TrsMatrix g, const float *dx0, TrsMatrix dx);

/*
  A cross layer of a vector: y = x0 * s + bias + x. Each sample has one s, s [batch]. x0, x and y
  have the given type; s and bias are float.
*/
typedef PetscErrorCode TrsVectorCrossForwardFn(TrsStream stream, int64_t batch, int64_t n, TrsDType type,
                                               const void *x0, const float *s, const float *bias,
                                               const void *x, void *y);

/*
  The backward of vector_cross_forward, with s in layer->u: h [batch] = g . x0; grad_bias = sum of g
  over samples; dx0 receives g * s as in TrsCrossBackwardFn. s and h are float; x0 and g have
  layer->type.
*/
typedef PetscErrorCode TrsVectorCrossBackwardFn(TrsStream stream, int64_t batch, int64_t n, int place,
                                                const TrsCrossBackward *layer);

/*
  c [m, n] = op(a) op(b) for each sample of a batch. Row s of a matrix holds the small matrix of
  sample s, row-major without gaps. All are floats, and alpha and beta are ignored. Sums over k run
  in order.
*/
typedef PetscErrorCode TrsSampleGemmFn(TrsStream stream, int64_t batch, const TrsMatrixProduct *product);

/*
  A loss of the samples of a batch, with its gradient and predictions. Sums over samples are in
  double. loss += sum over samples of w * (the sample's loss); dz = w * scale * (the derivative of
  the sample's loss by z). If `missing` is set, a sample with label NaN adds no loss and gets
  gradient 0.
*/
typedef struct {
  int64_t batch;
  int classes;                /* outputs of a sample for softmax, else 1 */
  PetscBool missing;          /* NaN is no label */
  const float *z;             /* [batch, classes] outputs */
  int64_t z_stride;           /* floats from row to row of z and dz */
  const float *y;             /* [batch] labels; NULL: predictions only */
  int64_t y_stride;           /* floats from label to label */
  const float *w;             /* [batch] weights of samples; NULL: all 1 */
  float scale;                /* factor of the gradient */
  const TrsBatchNumbers *now; /* has an extra factor, loss_scale; NULL: no extra factor */
  float parameter;            /* bce: weight of positives; huber: delta */
  double *loss;               /* host double on a CPU, device double else */
  double *of_sample;          /* [batch] each sample's part of `loss`, or NULL */
  int64_t of_sample_stride;   /* doubles from sample to sample */
  float *dz;                  /* [batch, classes] or NULL */
  float *p;                   /* [batch, classes] predictions, or NULL */
  int64_t p_stride;           /* floats from row to row of p */
} TrsLossArgs;
typedef PetscErrorCode TrsLossFn(TrsStream stream, const TrsLossArgs *args);

/*
  The losses of TRS_LOSSES; q is the parameter (arithmetic in compute/loss_sample.h):
    bce      q y log(1 + e^-z) + (1 - y) log(1 + e^z);  p = sigmoid(z)
    mse      (z - y)^2;  p = z
    huber    d^2 / 2 where |d| < q, else q (|d| - q/2), d = z - y;  p = z
    softmax  log sum_c e^z_c - z_y;  p_c = e^z_c / sum e^z. A sample has a loss only if y is a whole
             number in [0, classes)
*/
typedef TrsLossFn TrsBceFn, TrsMseFn, TrsHuberFn, TrsSoftmaxFn;

/*
  A sample's experts, weighted by a gate. Expert e of sample b begins at experts[b * stride + e *
  width]. The gate chooses among the experts [begin[0], end[0]) and then [begin[1], end[1]), n in
  all.
*/
typedef struct {
  int64_t batch, width, stride;
  int n, begin[2], end[2];
  /* of experts, their sums and the gradients of both: fp32, or operands' type */
  TrsDType type;
  const void *experts; /* [batch, stride] */
  void *dexperts;      /* [batch, stride] their gradients */
  float *gate;         /* [batch, n] */
} TrsMixture;

/* gate = softmax(gate) in each row; y [batch, width] = the experts' weighted sum. */
typedef PetscErrorCode TrsMixForwardFn(TrsStream stream, const TrsMixture *mixture, void *y);

/*
  Compute the gradients from dy [batch, width]. The experts' gradients are added to dexperts. The
  gate's weights, left by a forward, are overwritten by the gradients of its logits.
*/
typedef PetscErrorCode TrsMixBackwardFn(TrsStream stream, const TrsMixture *mixture, const void *dy);

/*
  Make the pairs of a batch, all as negatives and without frequency correction: the id is the first
  id of the sample's bag in the candidates' feature, the weight is label * weight. offsets [B + 1]
  belong to that feature. weights NULL: all 1.
*/
typedef PetscErrorCode TrsPairListFn(TrsStream stream, int64_t batch, const int64_t *offsets,
                                     const int64_t *values, const float *labels, const float *weights,
                                     TrsPair *pair);

/*
  Losses and gradients of a tile whose rows are queries and columns are candidates. Overwrites z,
  and writes log_sum [n] of these rows. loss (host double on a CPU, else device double) += the rows'
  weighted losses, added in order.
*/
typedef PetscErrorCode TrsPairQueriesFn(TrsStream stream, const TrsPairTile *tile, double *loss);

/*
  The gradients of the transposed scores: rows are candidates, and tile->log_sum is [m] for all
  queries.
*/
typedef PetscErrorCode TrsPairCandidatesFn(TrsStream stream, const TrsPairTile *tile);

/* sum (host double on a CPU, device double else) = sum of squares of n floats, in double. */
typedef PetscErrorCode TrsSumOfSquaresFn(TrsStream stream, int64_t n, const float *x, double *sum);

/*
  torch.optim's formulas on n elements. state1, state2: sum for adagrad; exp_avg, exp_avg_sq for
  adam, adamw and lamb. For lamb this only updates the states; lamb_apply() moves the weights.
*/
typedef PetscErrorCode TrsDenseUpdateFn(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                        const float *grad, float *weight, float *state1, float *state2);

/*
  Lamb's step on one layer's weights [n], after dense_update() of its states. With adam's direction
  r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w, w -= lr |w| / |r| r.
  The ratio |w| / |r| is 1 if either norm is 0 (You et al. 2020). squares [2] (host on a CPU, else
  device) receives |w|^2 and |r|^2, summed in an order that depends only on n.
*/
typedef PetscErrorCode TrsLambApplyFn(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                      const float *exp_avg, const float *exp_avg_sq, double *squares,
                                      float *weight);
