/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The kernels of dense layers, interactions, losses and their optimizers: what compute_ops.h says of
  kernels holds for them.
*/
#pragma once

#include "compute/gemm.h"
#include "compute/pair_softmax.h"
#include "device/device.h"

/*
  Operands and sums of dense products are fp32. tf32 and bf16 round the operands before the product.
*/
typedef enum { TRS_PRECISION_FP32, TRS_PRECISION_TF32, TRS_PRECISION_BF16 } TrsDensePrecision;

/* The kernels of linear layers make NONE and RELU alone. */
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
  float *rows;     /* [B, 2] mean and 1 / sqrt(variance + eps), from a forward for the backward */
} TrsLayerNorm;

/*
  Numbers that differ from step to step, in memory that kernels read. A captured launch
  (device/device.h) keeps its arguments, and finds the numbers of the step that replays it here.
*/
typedef struct {
  int64_t step, first; /* those of TrsDropout */
  float loss_scale;    /* another factor of a loss' gradient */
} TrsBatchNumbers;

typedef struct {
  float learning_rate;
  float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
  float kept;                     /* factor of the weights under adamw */
} TrsUpdateNumbers;

/*
  Dropout. The number of column c of row b is word c % 4 of the Philox block of counter (b', step)
  under key, where b' = (first + b) * ceil(n / 4) + c / 4.
*/
typedef struct {
  uint64_t key, step;
  int64_t first;              /* the first row's place among all samples of the step */
  uint64_t kept;              /* numbers below it are kept, of 2^32 */
  float scale;                /* factor of what is kept */
  const TrsBatchNumbers *now; /* has step and first; NULL: they are above */
} TrsDropout;

/* Place of a cross layer in a backward, as bits. */
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
  TrsDType type; /* fp32, or that of operands */
  /*
    Of a LAST call, of `type`, which is that of operands: where it writes what it adds up, with g,
    in place of dx0. It may be g. NULL: to dx0.
  */
  void *total;
} TrsCrossBackward;

typedef struct {
  TrsDenseOptimizerKind kind;
  float learning_rate, eps, weight_decay;
  double beta1, beta2; /* 1 - beta is computed in double: 1 - 0.999f is off by 1e-5 */
  float grad_scale;    /* factor of the gradient */
  /*
    sum_of_squares() of the whole gradient, which is scaled to a norm of at most max_norm. NULL: no
    limit.
  */
  const double *squares;
  double max_norm;
  int64_t step;                /* t, counted from 1 */
  float max_value;             /* the scaled gradient is clamped to +- this; 0: no limit */
  const TrsUpdateNumbers *now; /* stands for learning_rate and step; NULL: they are above */
} TrsDenseOptimizerArgs;

/* The numbers of an update's step, from the arguments of its learning rate and step. */
PETSC_EXTERN TrsUpdateNumbers TrsUpdateNumbersOf(const TrsDenseOptimizerArgs *args);

/*
  Set the precision of all later products of this process. The default is fp32. Errors: UNAVAILABLE.
*/
typedef PetscErrorCode TrsDensePrecisionFn(TrsDensePrecision precision);

/*
  Let the algorithm of a product be chosen by time, among up to `most` that the library offers for
  its shape; 1: the library's own first choice. A choice holds until this process sets precision or
  number again. Bits may then differ from run to run. A library that offers one takes no notice.
*/
typedef PetscErrorCode TrsProductAlgorithmsFn(int most);

/* A line for each shape whose algorithm was chosen by time: which one, and how fast. Borrowed. */
typedef const char *TrsProductChoicesFn(void);

/*
  The name of the library of the products, "OpenBLAS 0.3.21 SkylakeX, 1 thread" or "cuBLASLt
  13.1.0", for the banner and result files. The text is borrowed.
*/
typedef const char *TrsProductLibraryFn(void);

/*
  The type in which products want their operands to be stored, at the precision that is set: bf16,
  or fp32. The layers keep matrices in it that products alone read. Products take fp32 as well, and
  round it as the precision says. Results may be of this type, too. Host function.
*/
typedef TrsDType TrsOperandTypeFn(void);

/* Copy a matrix [rows, cols] to one of another type, and zeros to its columns cols .. filled. */
typedef PetscErrorCode TrsConvertMatrixFn(TrsStream stream, int64_t rows, int64_t cols, int64_t filled,
                                          TrsMatrix from, TrsMatrix to);

/* Make a product. */
typedef PetscErrorCode TrsMultiplyFn(TrsStream stream, const TrsMatrixProduct *product);

/* C = alpha op(A) op(B) + beta C, all in floats. op transposes if trans_a, trans_b is set. */
typedef PetscErrorCode TrsGemmFn(TrsStream stream, PetscBool trans_a, PetscBool trans_b, int64_t m, int64_t n,
                                 int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                                 int64_t ldb, float beta, float *c, int64_t ldc);

/*
  y [B, out] = activation(x [B, in] W^T + bias), W [out, in]. The bias has the type of y. Matrices
  of a linear layer may each have the type of operands, but y and dy have one. masks: NULL, or the
  mask of y is written, too.
*/
typedef PetscErrorCode TrsLinearForwardFn(TrsStream stream, int64_t batch, int64_t in, int64_t out,
                                          TrsMatrix x, TrsMatrix weight, const void *bias,
                                          TrsActivation activation, TrsMatrix y, const TrsReluMasks *masks);

/*
  dy [B, out] is overwritten by dy * activation'(y). grad_weight [out, in] and grad_bias [out] are
  overwritten. dx [B, in] (or no data) is overwritten. It is made last, and may share memory with y,
  or be x. Sums over the batch run in a fixed order.

  masks NULL: the order of the sums is that of this function. Else the library of the products may
  make the bias' gradient, too. With a mask of y nothing reads y, and the backward of the layer
  above got this mask as the one of its x.
*/
typedef PetscErrorCode TrsLinearBackwardFn(TrsStream stream, int64_t batch, int64_t in, int64_t out,
                                           TrsMatrix x, TrsMatrix weight, TrsMatrix y,
                                           TrsActivation activation, TrsMatrix dy, float *grad_weight,
                                           float *grad_bias, TrsMatrix dx, const TrsReluMasks *masks);

/*
  Bytes of a row of the mask that linear_forward writes for `out` columns. 0: this backend takes no
  masks, and linear_backward reads y. Host function.
*/
typedef int64_t TrsReluMaskBytesFn(int64_t out);

/*
  y = activation(y); dy *= activation'(y), where y is the output. Both may have the type of
  operands.
*/
typedef PetscErrorCode TrsActivateFn(TrsStream stream, int64_t batch, int64_t n, TrsActivation activation,
                                     TrsMatrix y);
typedef PetscErrorCode TrsActivateBackwardFn(TrsStream stream, int64_t batch, int64_t n,
                                             TrsActivation activation, TrsMatrix y, TrsMatrix dy);

/*
  Layer norm. The backward makes the gradient of x in dy, and overwrites grad_weight and grad_bias
  [n]. Its sums over the batch run in a fixed order.
*/
typedef PetscErrorCode TrsLayerNormForwardFn(TrsStream stream, int64_t batch, int64_t n,
                                             const TrsLayerNorm *norm, const float *x, int64_t x_stride,
                                             float *y, int64_t y_stride);
typedef PetscErrorCode TrsLayerNormBackwardFn(TrsStream stream, int64_t batch, int64_t n,
                                              const TrsLayerNorm *norm, const float *x, int64_t x_stride,
                                              float *dy, int64_t dy_stride, float *grad_weight,
                                              float *grad_bias);

/*
  Rows of length 1: y = x / max(|x|, 1e-12), of n columns. The backward makes the gradient of x in
  dy.
*/
typedef PetscErrorCode TrsUnitRowsFn(TrsStream stream, int64_t batch, int64_t n, const float *x,
                                     int64_t x_stride, float *y, int64_t y_stride);
typedef PetscErrorCode TrsUnitRowsBackwardFn(TrsStream stream, int64_t batch, int64_t n, const float *x,
                                             int64_t x_stride, float *dy, int64_t dy_stride);

/* y = scale * x, or 0 for numbers that are not kept. y may be x. */
typedef PetscErrorCode TrsDropOutFn(TrsStream stream, int64_t batch, int64_t n, const TrsDropout *dropout,
                                    const float *x, int64_t x_stride, float *y, int64_t y_stride);

/*
  Dot interaction (src/RULES.md, rule A1) of n vectors a sample, x [B, n*D]. out[b] is the first
  `copied` numbers of x, then x_i . x_j for i < j, row by row of the upper triangle, then n_zeros
  zeros. copied is D with a dense vector, else 0. out and dout may have the type of operands; then x
  and dx may have it, too. x and dout are only read.
*/
typedef PetscErrorCode TrsDotForwardFn(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                       TrsMatrix x, TrsMatrix out);
typedef PetscErrorCode TrsDotBackwardFn(TrsStream stream, int64_t batch, int n, int D, int copied,
                                        TrsMatrix x, TrsMatrix dout, TrsMatrix dx);

/* Where a vector of the first sample lies, and numbers from sample to sample. */
typedef struct {
  void *data;
  int64_t stride;
} TrsVectorPlace;

/* Is there room to work on n vectors of D numbers that lie anywhere? Host function. */
typedef PetscBool TrsDotTakesPlacesFn(int n, int D);

/*
  The same for vectors of a type that lie anywhere, where dot_takes_places: vector v of x is at
  x[v], its gradient goes to dx[v], which may be x[v]. The bits are the same.
*/
typedef PetscErrorCode TrsDotPlacesForwardFn(TrsStream stream, int64_t batch, int n, int D, int copied,
                                             int n_zeros, TrsDType type, const TrsVectorPlace *x,
                                             TrsMatrix out);
typedef PetscErrorCode TrsDotPlacesBackwardFn(TrsStream stream, int64_t batch, int n, int D, int copied,
                                              TrsDType type, const TrsVectorPlace *x, TrsMatrix dout,
                                              const TrsVectorPlace *dx);

/*
  Factorization machine of the n numbers of a sample, x [B, n]. out[b] is the first `copied` floats
  of x, in column `at` ((sum x)^2 - sum x^2) / 2, and n_zeros zeros behind; other columns are
  untouched. The backward writes dx [B, n], or with `add` adds to it.
*/
typedef PetscErrorCode TrsFmForwardFn(TrsStream stream, int64_t batch, int64_t n, int copied, int64_t at,
                                      int n_zeros, const float *x, int64_t x_stride, float *out,
                                      int64_t out_stride);
typedef PetscErrorCode TrsFmBackwardFn(TrsStream stream, int64_t batch, int64_t n, int copied, int64_t at,
                                       PetscBool add, const float *x, int64_t x_stride, const float *dout,
                                       int64_t dout_stride, float *dx, int64_t dx_stride);

/*
  DCN cross layer, element-wise part: y = x0 * (u + bias) + x. All arrays are dense [B, n], and of
  one type, fp32 or that of operands; bias is of floats.
*/
typedef PetscErrorCode TrsCrossForwardFn(TrsStream stream, int64_t batch, int64_t n, TrsDType type,
                                         const void *x0, const void *u, const float *bias, const void *x,
                                         void *y);

/*
  Backward of a cross layer: h = g * x0; grad_bias [n] = sum of h over samples. g * (u + bias) is
  added to dx0, but the FIRST call of a backward overwrites dx0. The LAST call may also add g, for
  cross_input; layer->total says where.
*/
typedef PetscErrorCode TrsCrossBackwardFn(TrsStream stream, int64_t batch, int64_t n, int place,
                                          const TrsCrossBackward *layer);

/*
  Call it after the LAST cross_backward. dx [batch, n] = g + dx0 + q V, with q [batch, rank] and V
  [rank, n]. g may be overwritten. Where dx has the type of operands, cross_backward's total is in
  g.
*/
typedef PetscErrorCode TrsCrossInputFn(TrsStream stream, int64_t batch, int64_t n, int64_t rank, TrsMatrix q,
                                       TrsMatrix V, TrsMatrix g, const float *dx0, TrsMatrix dx);

/*
  A cross layer of a vector: y = x0 * s + bias + x. A sample has one s, s [batch]. x0, x and y have
  the type; s and bias are of floats.
*/
typedef PetscErrorCode TrsVectorCrossForwardFn(TrsStream stream, int64_t batch, int64_t n, TrsDType type,
                                               const void *x0, const float *s, const float *bias,
                                               const void *x, void *y);

/*
  Its backward, with s in the place of u: h [batch] = g . x0; grad_bias = sum of g over samples; dx0
  has g * s as with TrsCrossBackwardFn. s and h are of floats, x0 and g of layer->type.
*/
typedef PetscErrorCode TrsVectorCrossBackwardFn(TrsStream stream, int64_t batch, int64_t n, int place,
                                                const TrsCrossBackward *layer);

/*
  c [m, n] = op(a) op(b) for each sample of a batch, row-major and without gaps, sums over k in
  order. A sample's matrices are a_stride, b_stride and c_stride floats behind those of the one
  before.
*/
typedef PetscErrorCode TrsSampleGemmFn(TrsStream stream, int64_t batch, PetscBool trans_a, PetscBool trans_b,
                                       int64_t m, int64_t n, int64_t k, const float *a, int64_t a_stride,
                                       const float *b, int64_t b_stride, float *c, int64_t c_stride);

/*
  A loss of the samples of a batch, with its gradient and predictions. Every sum over samples is in
  double. loss += the sum over samples of w * (the sample's loss); dz = w * scale
  * (the derivative of the sample's loss by z). A sample whose label is NaN has no loss and no
  gradient if `missing` is set.
*/
typedef struct {
  int64_t batch;
  int classes;                /* outputs of a sample: of softmax, else 1 */
  PetscBool missing;          /* NaN is no label */
  const float *z;             /* [batch, classes] outputs */
  int64_t z_stride;           /* floats from row to row of z and dz */
  const float *y;             /* [batch] labels; NULL: predictions only */
  int64_t y_stride;           /* floats from label to label */
  const float *w;             /* [batch] weights of samples; NULL: all 1 */
  float scale;                /* factor of the gradient */
  const TrsBatchNumbers *now; /* has another factor, loss_scale; NULL: there is none */
  float parameter;            /* bce: weight of positives; huber: delta */
  double *loss;               /* host double on a CPU, device double else */
  float *dz;                  /* [batch, classes] or NULL */
  float *p;                   /* [batch, classes] predictions, or NULL */
  int64_t p_stride;           /* floats from row to row of p */
} TrsLossArgs;
typedef PetscErrorCode TrsLossFn(TrsStream stream, const TrsLossArgs *args);

/*
  The losses of TRS_LOSSES, q the parameter (compute/loss_sample.h has their arithmetic):
    bce      q y log(1 + e^-z) + (1 - y) log(1 + e^z);  p = sigmoid(z)
    mse      (z - y)^2;  p = z
    huber    d^2 / 2 where |d| < q, else q (|d| - q/2), d = z - y;  p = z
    softmax  log sum_c e^z_c - z_y;  p_c = e^z_c / sum e^z. y is a whole number; without one
             in [0, classes) a sample has no loss
*/
typedef TrsLossFn TrsBceFn, TrsMseFn, TrsHuberFn, TrsSoftmaxFn;

/*
  Experts of a sample, weighed by a gate. Expert e of sample b begins at
  experts[b * stride + e * width]. The gate chooses among the experts [begin[0], end[0]) and then
  [begin[1], end[1]), n in all.
*/
typedef struct {
  int64_t batch, width, stride;
  int n, begin[2], end[2];
  TrsDType type;       /* of experts, their sums, and the gradients of both: fp32, or operands' */
  const void *experts; /* [batch, stride] */
  void *dexperts;      /* [batch, stride] their gradients */
  float *gate;         /* [batch, n] */
} TrsMixture;

/* gate = softmax(gate) in each row; y [batch, width] = sum of the experts by these weights. */
typedef PetscErrorCode TrsMixForwardFn(TrsStream stream, const TrsMixture *mixture, void *y);

/*
  dy [batch, width] to the gradients: of experts, added to dexperts; of the logits of the gate,
  which take the place of the weights that a forward left there.
*/
typedef PetscErrorCode TrsMixBackwardFn(TrsStream stream, const TrsMixture *mixture, const void *dy);

/*
  The pairs of a batch, none of them corrected and all of them negatives: the first id of each bag
  of the candidates' feature, and the weight label * weight. offsets [B + 1], of that feature;
  weights NULL: all 1.
*/
typedef PetscErrorCode TrsPairListFn(TrsStream stream, int64_t batch, const int64_t *offsets,
                                     const int64_t *values, const float *labels, const float *weights,
                                     TrsPair *pair);

/*
  Losses and gradients where a row of the tile is a query and a column a candidate: z, and log_sum
  [n] of these rows. loss (host double on a CPU, device double else) += the rows' weighted losses,
  added in their order.
*/
typedef PetscErrorCode TrsPairQueriesFn(TrsStream stream, const TrsPairTile *tile, double *loss);

/*
  The gradients of the transposed scores: a row is a candidate, and tile->log_sum is [m] of all
  queries.
*/
typedef PetscErrorCode TrsPairCandidatesFn(TrsStream stream, const TrsPairTile *tile);

/* sum (host double on a CPU, device double else) = sum of squares of n floats, in double. */
typedef PetscErrorCode TrsSumOfSquaresFn(TrsStream stream, int64_t n, const float *x, double *sum);

/*
  torch.optim's formulas on n elements. state1, state2: sum for adagrad; exp_avg, exp_avg_sq for
  adam, adamw and lamb. Of lamb this is the states' part alone; lamb_apply() moves the weights.
*/
typedef PetscErrorCode TrsDenseUpdateFn(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                        const float *grad, float *weight, float *state1, float *state2);

/*
  Lamb's step of one layer's weights [n], after dense_update() of its states: with adam's direction
  r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w, w -= lr |w| / |r| r.
  The ratio |w| / |r| is 1 where one of the norms is 0 (You et al. 2020). squares [2] (host on a
  CPU, device else) receives |w|^2 and |r|^2, which are summed in an order that n alone defines.
*/
typedef PetscErrorCode TrsLambApplyFn(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                      const float *exp_avg, const float *exp_avg_sq, double *squares,
                                      float *weight);
