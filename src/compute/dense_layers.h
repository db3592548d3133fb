/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The kernels of dense layers, interactions, losses and dense optimizers. The rules in compute_ops.h
  apply to them.
*/
#pragma once

#include "compute/gemm.h"
#include "compute/pair_softmax.h"
#include "compute/product_table.h"
#include "device/device.h"

/*
  Precision of matrix products. The operands and sums are fp32. With tf32 and bf16, the operands are
  rounded before the multiplication.
*/
typedef enum { TRS_PRECISION_FP32, TRS_PRECISION_TF32, TRS_PRECISION_BF16 } TrsDensePrecision;

/* The activation functions of layers. The kernels of linear layers support only NONE and RELU. */
typedef enum {
  TRS_ACTIVATION_NONE,
  TRS_ACTIVATION_RELU,
  TRS_ACTIVATION_SIGMOID,
  TRS_ACTIVATION_TANH
} TrsActivation;

/* Layer norm of a row x: z = (x - mean) / sqrt(variance + eps) * weight + bias. */
typedef struct {
  const float *weight, *bias; /* [n] */
  float eps;
  PetscBool swish; /* true: the output is x * sigmoid(z); false: the output is z */
  /* [B, 2] mean and 1 / sqrt(variance + eps) of each row, which a forward keeps for its backward */
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
  const void *bias; /* has the type of y; a backward does not read it */
  TrsActivation activation;
  TrsMatrix y;
  const TrsReluMasks *masks; /* NULL if there are no masks */
} TrsLinear;

typedef struct {
  TrsMatrix dy;                   /* overwritten by dy * activation'(y) */
  float *grad_weight, *grad_bias; /* [out, in] and [out], overwritten */
  /* overwritten after everything else, so it may share memory with y, or be x. If it has no
     data, it is not computed */
  TrsMatrix dx;
} TrsLinearGradients;

/*
  Factorization machine over the n numbers of each sample, x [B, n]. Its output has the first
  `copied` floats of x. Column `at` has the value ((sum x)^2 - sum x^2) / 2, and n_zeros zeros
  follow. Other columns stay unchanged.
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
  Numbers that change from step to step, in memory that kernels read. A captured launch
  (device/device.h) keeps its arguments, so each replay of it must read the step's numbers from
  memory.
*/
typedef struct {
  int64_t step, first; /* as in TrsDropout */
  float loss_scale;    /* a further factor of a loss' gradient */
} TrsBatchNumbers;

typedef struct {
  float learning_rate;
  float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
  float kept;                     /* adamw: factor of the weights */
} TrsUpdateNumbers;

/*
  Dropout. The random number for row b and column c is word c % 4 of a Philox block with this key.
  The block's counter is (b', step), where b' = (first + b) * ceil(n / 4) + c / 4.
*/
typedef struct {
  uint64_t key, step;
  int64_t first; /* index of the first row among all samples of the step */
  /* an element is kept if its random number, in [0, 2^32), is less than this */
  uint64_t kept;
  float scale;                /* factor of kept elements */
  const TrsBatchNumbers *now; /* if not NULL, step and first are read here instead of above */
} TrsDropout;

/*
  Bits of a cross layer's backward. FIRST and LAST: the layer is the first or last one for which a
  backward is done. KEPT: the LAST call computes this layer's part of dx0 from kept arrays.
*/
enum { TRS_CROSS_FIRST = 1, TRS_CROSS_LAST = 2, TRS_CROSS_KEPT = 4 };
enum { TRS_CROSS_MOST_KEPT = 3 };

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
    Used only in a LAST call with the operands' type. It receives the sum of dx0 and g, in `type`,
    instead of dx0. It may be g. If it is NULL, the sum is written to dx0.
  */
  void *total;
  /*
    Used only in a LAST call with `total`: the layers of the KEPT calls before it, in the order of
    these calls. Their parts of dx0 are computed here, in the order and with the bits of other
    calls, and dx0 is not used. So g and u of these layers must be kept unchanged until this call.
  */
  int n_kept; /* at most TRS_CROSS_MOST_KEPT; 0: dx0 has the parts of the other layers */
  struct {
    const void *g, *u; /* of `type` */
    const float *bias;
  } kept[TRS_CROSS_MOST_KEPT];
} TrsCrossBackward;

typedef struct {
  TrsDenseOptimizerKind kind;
  float learning_rate, eps, weight_decay;
  /* doubles, because 1 - beta is computed in double: 1 - 0.999f has an error of 1e-5 */
  double beta1, beta2;
  float grad_scale; /* factor of the gradient */
  /*
    sum_of_squares() of the whole gradient, which is scaled so that its norm is at most max_norm.
    NULL if there is no limit.
  */
  const double *squares;
  double max_norm;
  int64_t step; /* t, counted from 1 */
  /* the scaled gradient is clamped to [-max_value, max_value]; 0 if there is no limit */
  float max_value;
  /* if not NULL, its numbers are used instead of learning_rate and step */
  const TrsUpdateNumbers *now;
  /*
    If not NULL, the new weights are also written here as bf16, so that products need no conversion.
    The bits are those of convert().
  */
  void *operands;
} TrsDenseOptimizerArgs;

/* Compute the numbers of an update from its learning rate and step. */
PETSC_EXTERN TrsUpdateNumbers TrsUpdateNumbersOf(const TrsDenseOptimizerArgs *args);

/*
  Set the precision of all later products of this process. The default is fp32. Errors: UNAVAILABLE.
*/
typedef PetscErrorCode TrsDensePrecisionFn(TrsDensePrecision precision);

/*
  Choose the algorithm of each matrix product by measuring the time of up to `most` algorithms that
  the library offers for the product's shape. 1: take the library's first choice. A choice holds
  until this process sets the precision or the number again. With measurements, bits may differ from
  run to run. If a library offers only one algorithm, this has no effect.
*/
typedef PetscErrorCode TrsProductAlgorithmsFn(int most);

/*
  Return text with a line for each shape whose algorithm was chosen by measurement: the algorithm
  and its speed. The text is borrowed.
*/
typedef const char *TrsProductChoicesFn(void);

/*
  Use the algorithms of a table for the shapes that it has, if the library still offers them with
  the same numbers for tile, parts and scheme. These shapes are not measured. The table is taken and
  left empty. It holds for later products of this process, until the next call. If a library offers
  only one algorithm, this has no effect. The precision must be set before.

  Out:    missing  the key of this process's products, if the table has entries but none for this
                   key; otherwise NULL. Borrowed until the next call
*/
typedef PetscErrorCode TrsProductTableFn(TrsProductTable *table, const char **missing);

/* The time of an algorithm for a product. */
typedef struct {
  const char *key;         /* GPU, library and precision, as in a table of products */
  const char *shape;       /* m x n x k, transpositions, types, and the epilogue that is used */
  const char *way;         /* "as used", "plain" or "sums" (epilogues), "own sum" (a kernel) */
  int algorithm, n;        /* number of the algorithm, from 1, of n; 0 for a kernel of ours */
  PetscBool used;          /* true: the run used it */
  double seconds;          /* of one product */
  double bytes, flops;     /* of its operands, and of its sums and products */
  int tile, split, scheme; /* the library's tile, parts of k, and scheme that adds them */
} TrsProductTime;

/*
  Time each shape of product that this process has used, with up to eight of the library's
  algorithms: with its epilogue, and plain. Calls `tell` for each. The operands are random. Waits
  for the stream. A library with one algorithm, as a CPU's, tells nothing. Errors: MEMORY.
*/
typedef PetscErrorCode TrsProductTimesFn(TrsStream stream,
                                         PetscErrorCode (*tell)(void *context, const TrsProductTime *time),
                                         void *context);

/*
  Return the name of the library for matrix products, for example "OpenBLAS 0.3.21 SkylakeX, 1
  thread" or "cuBLASLt 13.1.0". The banner and result files show it. The text is borrowed.
*/
typedef const char *TrsProductLibraryFn(void);

/*
  Return the operands' type: the best type in which to store operands of matrix products at the
  current precision, bf16 or fp32. Layers use it for matrices that only products read. Products also
  accept fp32, and round it to the precision. Results may have this type, too. Host function.
*/
typedef TrsDType TrsOperandTypeFn(void);

/*
  Copy a matrix [rows, cols] to a matrix of another type, and fill columns [cols, filled) with
  zeros.
*/
typedef PetscErrorCode TrsConvertMatrixFn(TrsStream stream, int64_t rows, int64_t cols, int64_t filled,
                                          TrsMatrix from, TrsMatrix to);

/* Compute a matrix product. */
typedef PetscErrorCode TrsMultiplyFn(TrsStream stream, const TrsMatrixProduct *product);

/* Compute y. If there are masks, write the mask of y. */
typedef PetscErrorCode TrsLinearForwardFn(TrsStream stream, const TrsLinear *linear);

/*
  Compute the gradients after a forward. Sums over the batch are added in a fixed order.

  Without masks, this function itself fixes the order. With masks, the library for matrix products
  may compute the bias gradient. If there is a mask of y, y is not read. The caller must then have
  passed this mask as the x mask to the backward of the next layer.
*/
typedef PetscErrorCode TrsLinearBackwardFn(TrsStream stream, const TrsLinear *linear,
                                           const TrsLinearGradients *gradients);

/*
  Return the number of bytes in a row of the mask that linear_forward writes for `out` columns. 0 if
  this backend has no masks, so linear_backward reads y. Host function.
*/
typedef int64_t TrsReluMaskBytesFn(int64_t out);

/*
  Compute y = activation(y) in a forward, and dy *= activation'(y) in a backward, where y is the
  forward's output. Both may have the operands' type.
*/
typedef PetscErrorCode TrsActivateFn(TrsStream stream, int64_t batch, int64_t n, TrsActivation activation,
                                     TrsMatrix y);
typedef PetscErrorCode TrsActivateBackwardFn(TrsStream stream, int64_t batch, int64_t n,
                                             TrsActivation activation, TrsMatrix y, TrsMatrix dy);

/*
  Compute a layer norm. The backward replaces dy by the gradient of x, and writes the gradients of
  weight and bias. Its sums over the batch are added in a fixed order.
*/
typedef PetscErrorCode TrsLayerNormForwardFn(TrsStream stream, int64_t batch, int64_t n,
                                             const TrsLayerNorm *norm, const float *x, int64_t x_stride,
                                             float *y, int64_t y_stride);
typedef PetscErrorCode TrsLayerNormBackwardFn(TrsStream stream, int64_t batch, int64_t n,
                                              const TrsLayerNorm *norm, const float *x, int64_t x_stride,
                                              float *dy, int64_t dy_stride);

/*
  Scale rows of n columns to length 1: y = x / max(|x|, 1e-12). The backward replaces dy by the
  gradient of x.
*/
typedef PetscErrorCode TrsUnitRowsFn(TrsStream stream, int64_t batch, int64_t n, const float *x,
                                     int64_t x_stride, float *y, int64_t y_stride);
typedef PetscErrorCode TrsUnitRowsBackwardFn(TrsStream stream, int64_t batch, int64_t n, const float *x,
                                             int64_t x_stride, float *dy, int64_t dy_stride);

/* Compute y = scale * x, or 0 for dropped elements. y may be x. */
typedef PetscErrorCode TrsDropOutFn(TrsStream stream, int64_t batch, int64_t n, const TrsDropout *dropout,
                                    const float *x, int64_t x_stride, float *y, int64_t y_stride);

/*
  Dot interaction (src/RULES.md, rule A1) of n vectors a sample, x [B, n*D]. out[b] is the first
  `copied` numbers of x, then x_i . x_j for i < j, row by row of the upper triangle, then n_zeros
  zeros. `copied` is D if there is a dense vector, and otherwise 0. out and dout may have the
  operands' type; x and dx may then have it, too. x and dout are only read.
*/
typedef PetscErrorCode TrsDotForwardFn(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                       TrsMatrix x, TrsMatrix out);
typedef PetscErrorCode TrsDotBackwardFn(TrsStream stream, int64_t batch, int n, int D, int copied,
                                        TrsMatrix x, TrsMatrix dout, TrsMatrix dx);

/*
  A vector of each sample: the address for the first sample, and the distance in elements to the
  next sample.
*/
typedef struct {
  void *data;
  int64_t stride;
} TrsVectorPlace;

/*
  True if the scratch memory of dot_places_forward and its backward suffices for n vectors of D
  numbers. Host function.
*/
typedef PetscBool TrsDotTakesPlacesFn(int n, int D);

/*
  Compute the dot interaction of vectors at separate addresses, with the same bits as dot_forward.
  Only allowed if dot_takes_places returns true. Vector v is at x[v]. Its gradient is written to
  dx[v], which may be x[v].
*/
typedef PetscErrorCode TrsDotPlacesForwardFn(TrsStream stream, int64_t batch, int n, int D, int copied,
                                             int n_zeros, TrsDType type, const TrsVectorPlace *x,
                                             TrsMatrix out);
typedef PetscErrorCode TrsDotPlacesBackwardFn(TrsStream stream, int64_t batch, int n, int D, int copied,
                                              TrsDType type, const TrsVectorPlace *x, TrsMatrix dout,
                                              const TrsVectorPlace *dx);

/* Compute a factorization machine. The backward writes dx [B, n], or adds to dx if `add` is set. */
typedef PetscErrorCode TrsFmForwardFn(TrsStream stream, int64_t batch, const TrsFm *fm, float *out,
                                      int64_t out_stride);
typedef PetscErrorCode TrsFmBackwardFn(TrsStream stream, int64_t batch, const TrsFm *fm, PetscBool add,
                                       const float *dout, int64_t dout_stride, float *dx, int64_t dx_stride);

/*
  Compute the element-wise part of a DCN cross layer: y = x0 * (u + bias) + x. All arrays are dense
  [B, n] and have the same type, fp32 or the operands' type; bias is float.
*/
typedef PetscErrorCode TrsCrossForwardFn(TrsStream stream, int64_t batch, int64_t n, TrsDType type,
                                         const void *x0, const void *u, const float *bias, const void *x,
                                         void *y);

/*
  A cross layer's last product and its element-wise part. product.c is u, dense and of the type of
  x0, x and y.
*/
typedef struct {
  TrsMatrixProduct product; /* [batch, n] */
  const void *x0;
  const float *bias;
  const void *x;
  void *y;
  /* true if one kernel may compute both; false if the order of u's sums is that of `multiply` */
  PetscBool fused;
} TrsCrossProduct;

/*
  Do the same as `multiply` for the product and cross_forward for its result. u is written, because
  the backward reads it. y has the bits of cross_forward for this u.
*/
typedef PetscErrorCode TrsCrossProductFn(TrsStream stream, const TrsCrossProduct *layer);

/*
  Do the backward of cross_forward: h = g * x0; grad_bias [n] is the sum of h over the samples. g *
  (u + bias) is added to dx0; the FIRST call of a backward overwrites dx0 instead. The LAST call may
  also add g, for cross_input; see layer->total. A KEPT call, which needs the operands' type, does
  not use u, bias and dx0.
*/
typedef PetscErrorCode TrsCrossBackwardFn(TrsStream stream, int64_t batch, int64_t n, int place,
                                          const TrsCrossBackward *layer);

/*
  Compute the gradient of the first cross layer's input: dx [batch, n] = g + dx0 + q V, with q
  [batch, rank] and V [rank, n]. Must follow the LAST cross_backward. g may be overwritten. If dx
  has the operands' type, dx = g + q V, and g stays unchanged: for the first layer g must be the
  `total` that cross_backward wrote, and after a KEPT call dx is the gradient of this layer's input.
*/
typedef PetscErrorCode TrsCrossInputFn(TrsStream stream, int64_t batch, int64_t n, int64_t rank, TrsMatrix q,
                                       TrsMatrix V, TrsMatrix g, const float *dx0, TrsMatrix dx);

/*
  Two neighbouring layers, l and the lower layer l - 1, of a cross network whose gradients are kept
  (TRS_CROSS_KEPT).
*/
typedef struct {
  int64_t batch, n, rank;
  TrsMatrix q, V, g, dx;  /* arguments of cross_input for layer l, in the operands' type */
  int place;              /* argument of cross_backward for the lower layer */
  TrsCrossBackward lower; /* argument of cross_backward for the lower layer; lower.g is dx.data */
  PetscBool fused;        /* true if one kernel may compute both, as in TrsCrossProduct */
} TrsCrossInputBackward;

/*
  Do the same as cross_input for layer l, and then cross_backward for the lower layer. After a LAST
  call, dx's numbers are undefined, unless the total is dx. The results have the bits of
  cross_backward for the same dx. Only the sums in grad_bias may be added in a different order.
*/
typedef PetscErrorCode TrsCrossInputBackwardFn(TrsStream stream, const TrsCrossInputBackward *layers);

/*
  Compute a cross layer of a vector: y = x0 * s + bias + x. s [batch] has one number for each
  sample. x0, x and y have the given type; s and bias are float.
*/
typedef PetscErrorCode TrsVectorCrossForwardFn(TrsStream stream, int64_t batch, int64_t n, TrsDType type,
                                               const void *x0, const float *s, const float *bias,
                                               const void *x, void *y);

/*
  Do the backward of vector_cross_forward. layer->u is s. h [batch] = g . x0; grad_bias is the sum
  of g over the samples; g * s is added to dx0 as in TrsCrossBackwardFn. s and h are float; x0 and g
  have layer->type.
*/
typedef PetscErrorCode TrsVectorCrossBackwardFn(TrsStream stream, int64_t batch, int64_t n, int place,
                                                const TrsCrossBackward *layer);

/*
  Compute c [m, n] = op(a) op(b) for each sample of a batch. Row s of each matrix has the small
  matrix of sample s, row-major without gaps. All numbers are floats; alpha and beta are ignored.
  Sums over k are added in order.
*/
typedef PetscErrorCode TrsSampleGemmFn(TrsStream stream, int64_t batch, const TrsMatrixProduct *product);

/*
  A loss of a batch's samples, with its gradient and predictions. Sums over samples are in double.
  The kernel adds w * (the sample's loss) of all samples to `loss`. dz = w * scale * (the derivative
  of the sample's loss by z). If `missing` is set and a sample's label is NaN, the sample adds no
  loss and gets gradient 0.
*/
typedef struct {
  int64_t batch;
  int classes;                /* number of outputs of a sample: more than 1 only for softmax */
  PetscBool missing;          /* true if a label of NaN means that the sample has no label */
  const float *z;             /* [batch, classes] outputs */
  int64_t z_stride;           /* floats from row to row of z and dz */
  const float *y;             /* [batch] labels; if NULL, only predictions are computed */
  int64_t y_stride;           /* floats from label to label */
  const float *w;             /* [batch] weights of the samples; if NULL, all weights are 1 */
  float scale;                /* factor of the gradient */
  const TrsBatchNumbers *now; /* if not NULL, its loss_scale is a further factor */
  float parameter;            /* bce: weight of positive labels; huber: delta */
  double *loss;               /* host double on a CPU, otherwise device double */
  double *of_sample;          /* [batch] the part of each sample in `loss`; may be NULL */
  int64_t of_sample_stride;   /* doubles from sample to sample */
  float *dz;                  /* [batch, classes] gradients; may be NULL */
  float *p;                   /* [batch, classes] predictions; may be NULL */
  int64_t p_stride;           /* floats from row to row of p */
  /*
    If not NULL, z is first computed by this linear layer, whose y is z. The layer has one unit and
    no activation. A device may do both in one kernel.
  */
  const TrsLinear *layer;
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
  Experts of a sample, with weights from a gate. Expert e of sample b begins at experts[b * stride +
  e * width]. The gate has n weights: for experts [begin[0], end[0]), then for experts [begin[1],
  end[1]).
*/
typedef struct {
  int64_t batch, width, stride;
  int n, begin[2], end[2];
  /* Type of the experts, their sums and the gradients of both: fp32 or the operands' type. */
  TrsDType type;
  const void *experts; /* [batch, stride] */
  void *dexperts;      /* [batch, stride] the experts' gradients */
  float *gate;         /* [batch, n] the gate's logits, later its weights */
} TrsMixture;

/*
  Replace each row of `gate` by its softmax, and compute y [batch, width], the sum of the experts
  times these weights.
*/
typedef PetscErrorCode TrsMixForwardFn(TrsStream stream, const TrsMixture *mixture, void *y);

/*
  Compute the gradients from dy [batch, width]. The experts' gradients are added to dexperts. The
  gate's weights, which a forward computed, are replaced by the gradients of the gate's logits.
*/
typedef PetscErrorCode TrsMixBackwardFn(TrsStream stream, const TrsMixture *mixture, const void *dy);

/*
  Make the pairs of a batch. All candidates are negatives, without a frequency correction. A pair's
  id is the first id of the sample's bag in the candidates' feature, whose offsets are offsets [B +
  1]. Its weight is label * weight; if weights is NULL, all weights are 1.
*/
typedef PetscErrorCode TrsPairListFn(TrsStream stream, int64_t batch, const int64_t *offsets,
                                     const int64_t *values, const float *labels, const float *weights,
                                     TrsPair *pair);

/*
  Compute losses and gradients of a tile whose rows are queries and whose columns are candidates.
  The scores z are replaced by their gradients, and log_sum [n] of these rows is written. The rows'
  weighted losses are added in order to loss (host double on a CPU, otherwise device double).
*/
typedef PetscErrorCode TrsPairQueriesFn(TrsStream stream, const TrsPairTile *tile, double *loss);

/*
  Compute the gradients of the transposed scores: rows are candidates, columns are queries, and
  tile->log_sum [m] has the sums of all queries.
*/
typedef PetscErrorCode TrsPairCandidatesFn(TrsStream stream, const TrsPairTile *tile);

/*
  Compute in double the sum of the squares of n floats (sum: host double on a CPU, otherwise device
  double).
*/
typedef PetscErrorCode TrsSumOfSquaresFn(TrsStream stream, int64_t n, const float *x, double *sum);

/*
  Update n elements by the formulas of torch.optim. state1 and state2 are sum for adagrad; exp_avg
  and exp_avg_sq for adam, adamw and lamb. For lamb only the states are updated; lamb_apply() then
  changes the weights, and writes args->operands.
*/
typedef PetscErrorCode TrsDenseUpdateFn(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                        const float *grad, float *weight, float *state1, float *state2);

/*
  Lamb's step on one layer's weights [n], after dense_update() of its states. With adam's direction
  r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w, w -= lr |w| / |r| r.
  The ratio |w| / |r| is 1 if either norm is 0 (You et al. 2020). squares [2] (host on a CPU,
  otherwise device) receives |w|^2 and |r|^2, summed in an order that depends only on n.
*/
typedef PetscErrorCode TrsLambApplyFn(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                      const float *exp_avg, const float *exp_avg_sq, double *squares,
                                      float *weight);
