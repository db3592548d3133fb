/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compute: every kernel that a step runs, behind one table of functions (cpu here, cuda in gpu/).

  A kernel is a function type with its contract, Trs<Name>Fn, and one line of TRS_KERNELS below.
  From this line follow the table's member and the prototypes and table rows of all backends, whose
  functions are called Trs<Name>Cpu and Trs<Name>Cuda. A backend that lacks a kernel does not link.

  All calls are ordered on `stream` and never wait. Pointers are device pointers unless the comment
  says otherwise. Scratch memory belongs to a TrsWorkspace. The caller keeps the workspace as long
  as calls with the same shapes repeat; a workspace that has grown allocates nothing. Results are
  the same bits for any number of threads, run after run. No kernel is collective.

  B: bags or samples, D: row width, N: ids, F: features.
*/
#pragma once

#include "compute/cache.h"
#include "compute/gemm.h"
#include "compute/pair_softmax.h"
#include "compute/sequence_layers.h"
#include "compute/tbe.h"
#include "core/buffer.h"
#include "device/device.h"

/*
  Scratch memory of kernels. It grows, and never shrinks. Calls that may overlap on different
  streams need a workspace each.
*/
typedef struct TrsWorkspaceImpl *TrsWorkspace;

/* Lengths, values and optional weights of consecutive bags. weights NULL: unweighted. */
typedef struct {
  int64_t n_bags;
  int64_t n_values;
  int32_t *lengths; /* [n_bags] */
  int64_t *offsets; /* [n_bags + 1] exclusive prefix sum; may be NULL if a kernel says so */
  int64_t *values;  /* [n_values] */
  float *weights;   /* [n_values] or NULL */
} TrsJagged;

/* A list of bags for each of some features: the bags of samples sample[i * batch + k], k < n[i]. */
typedef struct {
  int64_t batch;   /* B */
  int32_t *sample; /* device [features, B]; NULL: sample k */
  int64_t *n;      /* device [features], none above B */
} TrsBagLists;

/* Adjacent columns of rows that are copied. The pointers are those of the first row. */
typedef struct {
  const float *from;
  float *to;
  int64_t from_stride, to_stride; /* floats from one row to the next */
  int64_t cols;
} TrsColumnCopy;

/* Adjacent columns of rows that become means. */
typedef struct {
  float *data;            /* the columns of the first row */
  const int32_t *lengths; /* lengths of the rows' bags */
  int64_t cols;
} TrsMeanColumns;

/*
  Rows to be copied: row from_index[i] of `from` becomes row to_index[i] of `to`, for i in [0, n).
*/
typedef struct {
  int64_t n, row_bytes;
  const void *from;          /* device memory */
  int64_t from_stride;       /* bytes from one row to the next */
  const int64_t *from_index; /* NULL: row i */
  void *to;                  /* device memory */
  int64_t to_stride;         /* bytes from one row to the next */
  const int64_t *to_index;   /* NULL: row i */
} TrsRowsCopy;

/* The rule that cuts ids of one feature into n row buckets. */
typedef struct {
  /*
    bucket = id / bucket_rows, local id = id % bucket_rows. From id bucket_rows * n on: bucket = id
    % n, local id = id / n.
  */
  int64_t bucket_rows;
  /* host [n + 1] row offsets of uneven buckets, or NULL. Ids beyond the last offset go as above. */
  const int64_t *bounds;
} TrsBucketSpec;

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

/*
  The operation that makes the model's input from the rows of a sequence feature's bag
  (src/RULES.md, rule A26).
*/
typedef enum { TRS_SEQUENCE_MEAN, TRS_SEQUENCE_MAX, TRS_SEQUENCE_CONCAT } TrsSequencePooling;

/*
  Bags of rows. Id i of bag b, offsets[b] <= i < offsets[b + 1], has row (index ? index[i] : i) +
  shift. An id below 0 is pruned: a mean counts it in the length, a concatenation keeps its place as
  zeros, a maximum skips it.
*/
typedef struct {
  TrsSequencePooling pooling;
  int64_t batch;          /* B bags */
  int64_t dim;            /* D columns of a row that are pooled */
  int64_t row_stride;     /* floats from one row to the next */
  int64_t places;         /* concat: number of ids of a bag that are taken, filled up with zeros */
  int64_t place_stride;   /* concat: floats from one place to the next in the result */
  const int64_t *offsets; /* device [B + 1]; indices into ids and index */
  const int64_t *ids;     /* device; negative: pruned. NULL: none is */
  const int64_t *index;   /* device, or NULL */
  int64_t shift;
} TrsSequenceBags;

/*
  Operands and sums of dense products are fp32. tf32 and bf16 round the operands before the product.
*/
typedef enum { TRS_PRECISION_FP32, TRS_PRECISION_TF32, TRS_PRECISION_BF16 } TrsDensePrecision;

/* A wire format of quantised exchanges (src/RULES.md, section 11). */
typedef struct {
  TrsCodecKind kind;
  int row_dim;      /* fp8: 0 is plain 1-4-3, n is row-wise over n values; int8: 32 */
  int backward;     /* the gradients' direction, for which row-wise fp8 uses 1-5-2 */
  float loss_scale; /* fp16, bf16: multiplied before encoding, divided after decoding */
} TrsCodec;

typedef PetscErrorCode TrsWorkspaceCreateFn(TrsWorkspace *workspace);
typedef PetscErrorCode TrsWorkspaceDestroyFn(TrsWorkspace *workspace);

/* --- jagged tensors (units_kjt, units_dedup) --- */

/* Compute offsets[0..n], the 64-bit exclusive prefix sum of lengths[0..n). */
typedef PetscErrorCode TrsOffsetsFn(TrsStream stream, int64_t n, const int32_t *lengths, int64_t *offsets);

/*
  Copy bag block permutation[j] of in to bag block j of out. A bag block is a run of bags: bag block
  i of in is bags block_begin[i] .. block_begin[i+1). permutation [n_out] and block_begin [n_in + 1]
  are host arrays.

  Lengths and values are copied, and weights if both tensors have them. in->offsets must be set.
  out's arrays must have room. out->offsets is filled unless it is NULL. out->n_bags is set.
  out->n_values is set if the host can read in->offsets, and else stays as the caller set it.
  in->values NULL: out's values are the places in `in` that they would come from.
*/
typedef PetscErrorCode TrsPermuteBlocksFn(TrsStream stream, TrsWorkspace workspace, int n_in,
                                          const int64_t *block_begin, int n_out, const int *permutation,
                                          const TrsJagged *in, TrsJagged *out);

/*
  Cut every feature's ids into n_buckets row ranges. out is bucket-major, then feature, then bag:
  n_buckets*F*B bags of local ids. The order inside a bag and bucket is kept. Negative ids go to
  bucket 0 unchanged. unbucketize (or NULL) [N] gets the place to which id i of `in` went.
  in->offsets must be set; out has room for n_buckets*F*B lengths and N values.

  Source: FBGEMM block_bucketize_sparse_features
*/
typedef PetscErrorCode TrsBucketizeFn(TrsStream stream, TrsWorkspace workspace, int n_buckets, int n_features,
                                      int64_t batch, const TrsBucketSpec *spec, const TrsJagged *in,
                                      TrsJagged *out, int64_t *unbucketize);

/*
  Find the unique ids, ascending, of each table's run of values, and the place of each value among
  them: unique_values [<= N], reverse [N] (index into the table's unique ids), unique_begin host
  [T+1]. values_begin is a host array [T+1]. All ids below 0 are one id, -1, which comes first. The
  host waits for unique_begin.

  Source: FBGEMM jagged_unique_indices, whose reverse is an index into all tables' ids
*/
typedef PetscErrorCode TrsUniqueFn(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                   const int64_t *values_begin, const int64_t *values, int64_t *unique_begin,
                                   int64_t *unique_values, int64_t *reverse);

/* --- bags that samples share (variable batch per feature); a bag block is a run of B bags --- */

/*
  Find the distinct bags of bag block feature[i] (host array [n_features]) of in, with B =
  lists->batch. lists gets the first sample that has each bag, in order of samples. inverse
  [n_features, B] gets the place of every sample's bag in this list. Bags are equal if they have the
  same ids in the same order, and the same weights bit for bit; their hashes (compute/bag_hash.h)
  only save comparisons. in->offsets must be set. Time grows with the ids, and with the square of
  the distinct bags of a feature that share a hash.
*/
typedef PetscErrorCode TrsUniqueBagsFn(TrsStream stream, TrsWorkspace workspace, int n_features,
                                       const int *feature, const TrsJagged *in, const TrsBagLists *lists,
                                       int64_t *inverse);

/*
  Fill bag block j of out with the bags of list list[j], taken from bag block block[j] of in (host
  arrays [n_out]). limits NULL: each bag block is filled up with empty bags to B. Otherwise bag
  blocks follow one another without gaps, and limits, device [2 * n_out + 1], gets each one's number
  of bags, then where the ids of each begin, then where all ids end.

  in->offsets must be set. out has room for n_out * B bags and their ids. After its last bag its
  offsets say where the ids end, too. Its n_bags and n_values are set if the host can read them.
*/
typedef PetscErrorCode TrsTakeBagsFn(TrsStream stream, TrsWorkspace workspace, int n_out, const int *block,
                                     const int *list, const TrsBagLists *lists, const TrsJagged *in,
                                     TrsJagged *out, int64_t *limits);

/*
  Make offsets [n_features * B + 1], `to`, of a batch whose features have strides[f] bags (host
  array), as if each feature had B bags, the last ones empty.
*/
typedef PetscErrorCode TrsPadOffsetsFn(TrsStream stream, TrsWorkspace workspace, int n_features,
                                       const int64_t *strides, int64_t batch, const int64_t *offsets,
                                       int64_t *to);

/* --- sequences (src/RULES.md, section 8) --- */

/*
  Compute out + b * out_stride: the mean or maximum [D] of bag b, or its places. Empty bags give
  zeros.
*/
typedef PetscErrorCode TrsSequenceForwardFn(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                            float *out, int64_t out_stride);

/*
  Compute the gradient [D] of every id's row at to + r * row_stride. r is the row's number in
  `rows`, or i for id i if by_id is set. Without by_id the ids must have different rows, so that no
  row is written twice. The gradient of a maximum goes to the first row of the bag that has the
  maximum.
*/
typedef PetscErrorCode TrsSequenceBackwardFn(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                             const float *grad, int64_t grad_stride, PetscBool by_id,
                                             float *to);

/* --- position weights (src/RULES.md, section 10; units_pos); ids from offsets[0] on --- */

/* positions[i] = place of id i in its bag, from 0; exact up to 2^24. */
typedef PetscErrorCode TrsPositionsFn(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                      float *positions);

/* weights[i] = by_position[positions[i]], or 0 for a position outside [0, length). */
typedef PetscErrorCode TrsPositionWeightsFn(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                            const float *positions, int64_t length, const float *by_position,
                                            float *weights);

/* by_position[positions[i]] += grad_weights[i] for all ids, in their order. */
typedef PetscErrorCode TrsPositionGradientsFn(TrsStream stream, TrsWorkspace workspace, int64_t n_bags,
                                              const int64_t *offsets, const float *positions,
                                              const float *grad_weights, int64_t length, float *by_position);

/*
  --- cache of rows in host memory (compute/cache.h, units_cache) ---
  The tables of a cache are those of tbe with table.lines == cache->lines.
*/

/*
  Bring the rows of the batch's ids of the cache's tables into the cache, and find them.

  locations [N] (as in TrsTbeInput, whose own locations are not read) is written for ids of these
  tables; entries of other ids stay unchanged. cache->time is this call's time. The counters grow.
  held [N] or NULL is for LRU alone: each line that now has one of the batch's rows gets one lock
  (its locks + 1) and is listed in held, once, in any order; the other entries are -1.
*/
typedef PetscErrorCode TrsCachePrefetchFn(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                          const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations,
                                          int32_t *held);

/*
  Find the rows again: locations as in cache_prefetch. Nothing else changes, not even the counters.
*/
typedef PetscErrorCode TrsCacheLocateFn(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                        const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations);

/* Take a lock from each of the n lines listed (entries >= 0; no line is listed twice). */
typedef PetscErrorCode TrsCacheReleaseFn(TrsStream stream, const TrsCache *cache, int64_t n,
                                         const int32_t *held);

/* Write all cached rows to their tables. The rows also stay in the cache. */
typedef PetscErrorCode TrsCacheWriteBackFn(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                           const TrsTbe *tbe);

/*
  --- table-batched embedding (units_optim) ---
  Rows of cached tables are read and updated where input->locations says; tables are read in place
  if it is NULL. The rows of a cached table are never given to tbe_update_rows.
*/

/*
  out[b, out_column .. + D) of feature f = pooled rows of bag (f, b). Empty bags give 0. out is [B,
  out_stride]; only the features' columns are written.
*/
typedef PetscErrorCode TrsTbeForwardFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                       const TrsTbeInput *input, float *out, int64_t out_stride);

/* Sequences: out row i = row values[i] of its feature's table, [N, out_stride]. -1 gives zeros. */
typedef PetscErrorCode TrsTbeForwardRowsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                           const TrsTbeInput *input, float *out, int64_t out_stride);

/*
  Do the backward with the optimizer fused. Every row that occurs gets one update with the sum of
  its occurrences' gradients in order of feature, then bag, then place in the bag. grad is [B,
  grad_stride], with a feature's columns at out_column; a mean divides by the bag's length. args is
  an array if tables have different optimizers: table t has args[table[t].optimizer].
*/
typedef PetscErrorCode TrsTbeBackwardFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                        const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                        const TrsSparseOptimizerArgs *args);

/*
  Find the occurrences of a batch ahead of the call that gets them in TrsTbeInput.occurrences, with
  the same tables, ids and weights (but for weights_later). *occurrences is made if it is NULL; its
  memory grows, and never shrinks. It holds no pointers to tables or to the batch. The stream that
  uses it waits for this call; the workspace may serve other calls of this stream meanwhile. Only
  backends that sort all tables at once have this kernel. Others sort table by table, so that the
  keys stay in the processor's caches until the update. Of the tables' memory only the alignment
  matters: if it is another one in the later call, this call may have to sort again.
*/
typedef PetscErrorCode TrsTbeFindOccurrencesFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, TrsTbeUse use,
                                               TrsTbeOccurrences *occurrences);
typedef PetscErrorCode TrsTbeOccurrencesDestroyFn(TrsTbeOccurrences *occurrences);

/* Compute grad_weights [N], the gradients of the weights of ids, from the rows before an update. */
typedef PetscErrorCode TrsTbeWeightGradientsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, const float *grad,
                                               int64_t grad_stride, float *grad_weights);

/* tbe_backward for sequences: grad row i belongs to values[i], [N, grad_stride]. */
typedef PetscErrorCode TrsTbeBackwardRowsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                            const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                            const TrsSparseOptimizerArgs *args);

/* --- tables that every rank holds: only gradients of rows travel --- */

/*
  List the distinct rows that occur, ascending by table, then row: rows (capacity N), row_begin host
  [n_tables + 1]. The rows are known before there are gradients. The host waits for row_begin.
*/
typedef PetscErrorCode TrsTbeListRowsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                        const TrsTbeInput *input, int64_t *row_begin, int64_t *rows);

/*
  Merge lists of rows of n_tables tables. List q's rows of table t, ascending, begin at rows[begin[q
  * n_tables + t]]; begin is a host array [n_lists * n_tables + 1] that starts with 0.

  keys [n]: the rows in order, numbered over all tables (row r of table t has number r + the rows of
  the tables before). Equal rows are in order of lists. index [n]: their places in `rows`. Entries
  that are no row of their table come last, with the number of all rows.
*/
typedef PetscErrorCode TrsMergeRowsFn(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                      const TrsTbeTable *table, int n_lists, const int64_t *begin,
                                      const int64_t *rows, int64_t *keys, int64_t *index);

/*
  Sum the gradients of the rows of tbe_list_rows, in their order: row_grad [n_unique, row_stride],
  row_stride >= the widest D. rows (or NULL) [n_unique] and row_begin (or NULL) are filled as by
  tbe_list_rows; without row_begin nothing waits. With row_begin both arrays need room for N rows.
*/
typedef PetscErrorCode TrsTbeRowGradientsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                            const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                            int64_t *row_begin, int64_t *rows, float *row_grad,
                                            int64_t row_stride);

/*
  Sum the squares of the gradients of the rows that occur, by blocks of TRS_SQUARES_COLUMNS columns:
  squares[t] [ids of table t, blocks of its dim], or NULL for a table that is left out. A row's sums
  are at the place of its first id in the sorted list of the table's ids (TrsTbeInput.row_squares);
  the other entries are not written. For devices of host memory.
*/
typedef PetscErrorCode TrsTbeRowSquaresFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                          const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                          float *const *squares);

/*
  Do one optimizer step on given rows of n_tables tables. There are n entries (key, gradient). Keys
  are those of merge_rows, or the rows themselves for one table. Entries of one row are summed in
  the order given. keys NULL: entry i is row i. index (or NULL): entry i's gradient is row index[i]
  of grad. args is as in tbe_backward.
*/
typedef PetscErrorCode TrsTbeUpdateRowsFn(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                          const TrsTbeTable *table, int64_t n, const int64_t *keys,
                                          const int64_t *index, const float *grad, int64_t grad_stride,
                                          const TrsSparseOptimizerArgs *args);

/*
  Can rows be updated by an optimizer? false: its step is missing in this backend. Host function.
*/
typedef PetscBool TrsTbeHasStepFn(TrsSparseOptimizerKind kind);

/* --- moving pooled rows --- */

/* Copy n runs of columns (host array) of `rows` rows, in one go. No place is written twice. */
typedef PetscErrorCode TrsCopyColumnsFn(TrsStream stream, int64_t rows, int n, const TrsColumnCopy *copy);

/*
  Do n copies of rows (host array). No row is written twice, or written by one copy and read by
  another.
*/
typedef PetscErrorCode TrsCopyRowsFn(TrsStream stream, TrsWorkspace workspace, int n,
                                     const TrsRowsCopy *copy);

/*
  to = sum over parts p = 0..n-1, in this order, of from[p] ([rows, cols], all with from_stride).
  from is a host array of pointers. `to` may be any of the first 64 parts, on the CPU any part.
*/
typedef PetscErrorCode TrsSumMatricesFn(TrsStream stream, int n_parts, const float *const *from,
                                        int64_t from_stride, int64_t rows, int64_t cols, float *to,
                                        int64_t to_stride);

/*
  Divide row b of n runs of columns (host array) by the run's lengths[b]. Rows are `stride` floats
  apart. Rows of length 0 stay unchanged.
*/
typedef PetscErrorCode TrsDivideColumnsFn(TrsStream stream, int64_t rows, int n, const TrsMeanColumns *mean,
                                          int64_t stride);

/* Clamp all elements to [-limit, limit]. */
typedef PetscErrorCode TrsClampMatrixFn(TrsStream stream, int64_t rows, int64_t cols, float limit,
                                        float *matrix, int64_t stride);

/* Multiply all elements by a factor. */
typedef PetscErrorCode TrsScaleMatrixFn(TrsStream stream, int64_t rows, int64_t cols, float factor,
                                        float *matrix, int64_t stride);

/* Round floats to the nearest (even) number of dtype, fp16 or bf16. They stay floats. */
typedef PetscErrorCode TrsRoundMatrixFn(TrsStream stream, int64_t rows, int64_t cols, TrsDType dtype,
                                        float *matrix, int64_t stride);

/*
  Join two matrices [rows, cols] element by element: x = a + b, or a * b with `product`. x may be a.
*/
typedef PetscErrorCode TrsJoinForwardFn(TrsStream stream, int64_t rows, int64_t cols, PetscBool product,
                                        const float *a, int64_t a_stride, const float *b, int64_t b_stride,
                                        float *x, int64_t x_stride);

/*
  The backward of join_forward, where a and b have one stride: their gradients take the places of a
  and b.
*/
typedef PetscErrorCode TrsJoinBackwardFn(TrsStream stream, int64_t rows, int64_t cols, PetscBool product,
                                         const float *dx, int64_t dx_stride, float *a, float *b,
                                         int64_t stride);

/* --- dense layers --- */

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
  overwritten. dx [B, in] (or no data) is overwritten, and may share memory with y. Sums over the
  batch run in a fixed order.

  masks NULL: the order of the sums is that of this function. Else the library of the products may
  make the bias' gradient, too. With a mask of y dy is the gradient of ReLU's input already, because
  the backward of the layer above got this mask as the one of its x.
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
  Dot interaction (src/RULES.md, rule A1) of n vectors a sample, x [B, n*D] with x_stride. out[b] is
  the first `copied` floats of x, then x_i . x_j for i < j, row by row of the upper triangle, then
  n_zeros zeros. copied is D with a dense vector, else 0. out and dout may have the type of
  operands.
*/
typedef PetscErrorCode TrsDotForwardFn(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                       const float *x, int64_t x_stride, TrsMatrix out);
typedef PetscErrorCode TrsDotBackwardFn(TrsStream stream, int64_t batch, int n, int D, int copied,
                                        const float *x, int64_t x_stride, TrsMatrix dout, float *dx,
                                        int64_t dx_stride);

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
  cross_input.
*/
typedef PetscErrorCode TrsCrossBackwardFn(TrsStream stream, int64_t batch, int64_t n, int place,
                                          const TrsCrossBackward *layer);

/*
  Call it after the LAST cross_backward. dx [batch, n] = g + dx0 + q V, with q [batch, rank] and V
  [rank, n]. g may be overwritten.
*/
typedef PetscErrorCode TrsCrossInputFn(TrsStream stream, int64_t batch, int64_t n, int64_t rank, TrsMatrix q,
                                       TrsMatrix V, TrsMatrix g, const float *dx0, float *dx);

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

/* --- codecs (units_quant) --- */

/* Number of encoded bytes of n floats. Host function. */
typedef int64_t TrsCodecBytesFn(const TrsCodec *codec, int64_t n);
typedef PetscErrorCode TrsEncodeFn(TrsStream stream, const TrsCodec *codec, int64_t n, const float *from,
                                   void *to);
typedef PetscErrorCode TrsDecodeFn(TrsStream stream, const TrsCodec *codec, int64_t n, const void *from,
                                   float *to);

/* Element-wise conversion between fp32 and fp16 or bf16 (nearest even). */
typedef PetscErrorCode TrsConvertFn(TrsStream stream, int64_t n, TrsDType from_type, const void *from,
                                    TrsDType to_type, void *to);

/* All kernels: X(Name, member). */
#define TRS_KERNELS(X) \
  X(WorkspaceCreate, workspace_create) \
  X(WorkspaceDestroy, workspace_destroy) \
  X(Offsets, offsets) \
  X(PermuteBlocks, permute_blocks) \
  X(Bucketize, bucketize) \
  X(Unique, unique) \
  X(UniqueBags, unique_bags) \
  X(TakeBags, take_bags) \
  X(PadOffsets, pad_offsets) \
  X(SequenceForward, sequence_forward) \
  X(SequenceBackward, sequence_backward) \
  X(Positions, positions) \
  X(PositionWeights, position_weights) \
  X(PositionGradients, position_gradients) \
  X(CachePrefetch, cache_prefetch) \
  X(CacheLocate, cache_locate) \
  X(CacheRelease, cache_release) \
  X(CacheWriteBack, cache_write_back) \
  X(TbeForward, tbe_forward) \
  X(TbeForwardRows, tbe_forward_rows) \
  X(TbeBackward, tbe_backward) \
  X(TbeWeightGradients, tbe_weight_gradients) \
  X(TbeBackwardRows, tbe_backward_rows) \
  X(TbeListRows, tbe_list_rows) \
  X(MergeRows, merge_rows) \
  X(TbeRowGradients, tbe_row_gradients) \
  X(TbeUpdateRows, tbe_update_rows) \
  X(TbeHasStep, tbe_has_step) \
  X(CopyColumns, copy_columns) \
  X(CopyRows, copy_rows) \
  X(SumMatrices, sum_matrices) \
  X(DivideColumns, divide_columns) \
  X(ClampMatrix, clamp_matrix) \
  X(ScaleMatrix, scale_matrix) \
  X(RoundMatrix, round_matrix) \
  X(JoinForward, join_forward) \
  X(JoinBackward, join_backward) \
  X(DensePrecision, dense_precision) \
  X(ProductAlgorithms, product_algorithms) \
  X(ProductChoices, product_choices) \
  X(ProductLibrary, product_library) \
  X(OperandType, operand_type) \
  X(ConvertMatrix, convert_matrix) \
  X(Multiply, multiply) \
  X(Gemm, gemm) \
  X(LinearForward, linear_forward) \
  X(LinearBackward, linear_backward) \
  X(ReluMaskBytes, relu_mask_bytes) \
  X(Activate, activate) \
  X(ActivateBackward, activate_backward) \
  X(LayerNormForward, layer_norm_forward) \
  X(LayerNormBackward, layer_norm_backward) \
  X(UnitRows, unit_rows) \
  X(UnitRowsBackward, unit_rows_backward) \
  X(DropOut, drop_out) \
  X(DotForward, dot_forward) \
  X(DotBackward, dot_backward) \
  X(FmForward, fm_forward) \
  X(FmBackward, fm_backward) \
  X(CrossForward, cross_forward) \
  X(CrossBackward, cross_backward) \
  X(CrossInput, cross_input) \
  X(VectorCrossForward, vector_cross_forward) \
  X(VectorCrossBackward, vector_cross_backward) \
  X(SampleGemm, sample_gemm) \
  X(Bce, bce) \
  X(Mse, mse) \
  X(Huber, huber) \
  X(Softmax, softmax) \
  X(MixForward, mix_forward) \
  X(MixBackward, mix_backward) \
  X(GruForward, gru_forward) \
  X(GruBackward, gru_backward) \
  X(AttentionForward, attention_forward) \
  X(AttentionBackward, attention_backward) \
  X(TargetParts, target_parts) \
  X(TargetPool, target_pool) \
  X(TargetPoolBackward, target_pool_backward) \
  X(TargetPartsBackward, target_parts_backward) \
  X(PairList, pair_list) \
  X(PairQueries, pair_queries) \
  X(PairCandidates, pair_candidates) \
  X(SumOfSquares, sum_of_squares) \
  X(DenseUpdate, dense_update) \
  X(LambApply, lamb_apply) \
  X(CodecBytes, codec_bytes) \
  X(Encode, encode) \
  X(Decode, decode) \
  X(Convert, convert)

/* A member of the table, and a backend's prototype and table row of a kernel. */
/* NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define TRS_KERNEL_MEMBER(Name, member)   Trs##Name##Fn *member;
#define TRS_KERNEL_CPU(Name, member)      PETSC_EXTERN Trs##Name##Fn Trs##Name##Cpu;
#define TRS_KERNEL_CPU_ROW(Name, member)  .member = Trs##Name##Cpu,
#define TRS_KERNEL_CUDA(Name, member)     PETSC_EXTERN Trs##Name##Fn Trs##Name##Cuda;
#define TRS_KERNEL_CUDA_ROW(Name, member) .member = Trs##Name##Cuda,

typedef struct {
  const char *name;
  /*
    Matrix products are fast if rows begin at multiples of this number of floats, and if they add a
    multiple of as many terms. A matrix may be filled up with zeros for that. 1: every layout is
    equally fast.
  */
  int64_t product_unit;
  TrsTbeRowSquaresFn *tbe_row_squares; /* NULL: an update sends whole rows instead */
  /* NULL, both: a backward sorts the ids itself, and TrsTbeInput.occurrences is NULL */
  TrsTbeFindOccurrencesFn *tbe_find_occurrences;
  TrsTbeOccurrencesDestroyFn *tbe_occurrences_destroy;
  TRS_KERNELS(TRS_KERNEL_MEMBER)
} TrsComputeOps;

extern const TrsComputeOps trs_compute_cuda; /* gpu/compute_cuda.c, built with TRS_HAVE_CUDA */

extern const TrsComputeOps *const trs_compute_backends[]; /* the list ends with NULL */

/* Find the kernels for a device's name. Errors: UNAVAILABLE. Not collective. */
PetscErrorCode TrsComputeFind(const char *name, const TrsComputeOps **compute);

/* The numbers of an update's step, from the arguments of its learning rate and step. */
PETSC_EXTERN TrsUpdateNumbers TrsUpdateNumbersOf(const TrsDenseOptimizerArgs *args);

/*
  The instruction set in use ("avx512", "avx2", "portable"): the best one that the processor has and
  that TRSHARD_ISA in the environment allows. TRSHARD_ISA is read once a process. Not collective.
*/
const char *TrsComputeIsa(void);

/*
  Limit the instruction set of kernels that are called from now on. NULL: the environment's limit.
  BLAS keeps the instruction set it began with. Not collective.
*/
void TrsComputeSetIsa(const char *limit);

/* Number of OpenMP threads of a kernel. Not collective. */
int TrsComputeThreads(void);
