/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compute: every kernel a step runs, behind one table of functions (cpu here, cuda in gpu/).

  All calls are ordered on `stream` and never wait; device pointers unless said otherwise. Scratch memory belongs to a TrsWorkspace that
  the caller keeps for as long as the calls with the same shapes repeat (nothing is allocated once it has grown). Results are the same bits for any
  number of threads, run after run. Not collective. B: bags or samples, D: row width, N: ids, F: features.
*/
#pragma once

#include "compute/cache.h"
#include "compute/tbe.h"
#include "core/buffer.h"
#include "device/device.h"

/* Scratch of the kernels called with it: grows, then stays. One for each call site that may overlap with another on a different stream. */
typedef struct TrsWorkspaceImpl *TrsWorkspace;

/* Lengths, values and optional weights of consecutive bags. Weights NULL: unweighted. */
typedef struct {
  int64_t n_bags;
  int64_t n_values;
  int32_t *lengths; /* [n_bags] */
  int64_t *offsets; /* [n_bags + 1] exclusive prefix sum; may be NULL where a call says so */
  int64_t *values;  /* [n_values] */
  float *weights;   /* [n_values] or NULL */
} TrsJagged;

/* A list of bags for each of some features: those of samples sample[i * batch + k], k < n[i]. Device arrays. */
typedef struct {
  int64_t batch;   /* B */
  int32_t *sample; /* [features, B]; NULL: sample k */
  int64_t *n;      /* [features], none above B */
} TrsBagLists;

/* Adjacent columns of rows that are copied: the first one's place in the first row, and floats from row to row. */
typedef struct {
  const float *from;
  float *to;
  int64_t from_stride, to_stride;
  int64_t cols;
} TrsColumnCopy;

/* Adjacent columns of rows that become means: the first one's place in the first row, and the lengths of the rows' bags. */
typedef struct {
  float *data;
  const int32_t *lengths;
  int64_t cols;
} TrsMeanColumns;

/* Rows to be copied: row to_index[i] of `to` becomes row from_index[i] of `from`, i in [0, n). Device memory, places in bytes. */
typedef struct {
  int64_t n, row_bytes;
  const void *from;
  int64_t from_stride;       /* from row to row, */
  const int64_t *from_index; /* NULL: row i */
  void *to;
  int64_t to_stride;
  const int64_t *to_index;
} TrsRowsCopy;

/* How ids of one feature are cut into row buckets. */
typedef struct {
  int64_t
      block_size; /* bucket = id / block_size, local id = id % block_size; ids >= block_size*n go to id % n, id / n */
  const int64_t *
      bounds; /* host [n_buckets + 1] explicit row offsets instead; NULL: even blocks. Ids beyond the last bound: as above */
} TrsBucketSpec;

typedef enum { TRS_ACTIVATION_NONE, TRS_ACTIVATION_RELU } TrsActivation;

/* Where in a backward a cross layer is: bits. */
enum { TRS_CROSS_FIRST = 1, TRS_CROSS_LAST = 2 };

/* Arrays of a cross layer's backward: [B, n] all, but bias and grad_bias, [n]. */
typedef struct {
  const float *x0, *u, *bias, *g;
  float *dx0, *h, *grad_bias;
} TrsCrossBackward;

typedef enum { TRS_DENSE_SGD, TRS_DENSE_ADAGRAD, TRS_DENSE_ADAM } TrsDenseOptimizerKind;

typedef struct {
  TrsDenseOptimizerKind kind;
  float learning_rate, eps, weight_decay;
  double beta1, beta2; /* 1 - beta is taken in double: 1 - 0.999f is off by 1e-5 */
  float grad_scale;    /* factor of the gradient; 1: none */
  const double *
      squares; /* as sum_of_squares made it of the whole gradient, which is scaled down to a 2-norm of max_norm where it is longer; NULL: no clipping */
  double max_norm;
  int64_t step; /* t, counted from 1 */
} TrsDenseOptimizerArgs;

/* How the rows of a bag of a sequence feature become what the model sees (spec: runtime section 8, rule A26). */
typedef enum { TRS_SEQUENCE_MEAN, TRS_SEQUENCE_MAX, TRS_SEQUENCE_CONCAT } TrsSequencePooling;

/*
  Bags of rows: id i, offsets[b] <= i < offsets[b + 1], of bag b has row (index ? index[i] : i) + shift. Device arrays. An id below 0 is
  pruned: its row counts in a mean's length and keeps its place in a concatenation, as zeros; a maximum passes it over.
*/
typedef struct {
  TrsSequencePooling pooling;
  int64_t batch;          /* B bags */
  int64_t dim;            /* D columns of a row that are pooled, */
  int64_t row_stride;     /* floats from row to row */
  int64_t places;         /* concat: the first `places` ids of a bag, zeros where it has fewer, */
  int64_t place_stride;   /* floats from one to the next in the result */
  const int64_t *offsets; /* [B + 1], counted from the beginning of ids and index */
  const int64_t *ids;
  const int64_t *index; /* or NULL */
  int64_t shift;
} TrsSequenceBags;

/* Arithmetic of dense products, whose operands and sums are fp32 in any case: tf32 and bf16 round the operands on their way into them. */
typedef enum { TRS_PRECISION_FP32, TRS_PRECISION_TF32, TRS_PRECISION_BF16 } TrsDensePrecision;

/* Wire formats of quantised exchanges (spec: runtime section 11). */
typedef enum { TRS_CODEC_FP32, TRS_CODEC_FP16, TRS_CODEC_BF16, TRS_CODEC_FP8, TRS_CODEC_INT8 } TrsCodecKind;
typedef struct {
  TrsCodecKind kind;
  int row_dim;      /* fp8: 0 plain 1-4-3, n: row-wise over n values; int8: 32 */
  int backward;     /* fp8 row-wise uses 1-5-2 then */
  float loss_scale; /* fp16, bf16: multiply before encoding, divide after decoding */
} TrsCodec;

typedef struct {
  const char *name;
  /*
    Floats: matrix products are fast where rows begin at multiples of this, and as many terms are added. Who lays a matrix out may fill it up with zeros.
    1: anything is as good.
  */
  int64_t product_unit;

  PetscErrorCode (*workspace_create)(TrsWorkspace *workspace);
  PetscErrorCode (*workspace_destroy)(TrsWorkspace *workspace);

  /* --- jagged tensors (units_kjt, units_bounds, units_dedup) --- */

  /* offsets[0..n] = exclusive prefix sum of lengths[0..n), 64-bit. */
  PetscErrorCode (*offsets)(TrsStream stream, int64_t n, const int32_t *lengths, int64_t *offsets);

  /*
    Block j of out is block permutation[j] of in. Blocks are runs of bags: block i of in is bags block_begin[i] .. block_begin[i+1).
    in->offsets must be set; out's arrays have room; lengths, values, weights (if both have them) move; out->offsets is filled unless NULL.
    permutation [n_out] and block_begin [n_in + 1] are host arrays; out->n_bags and n_values are set (n_values only when known to the host
    from in->offsets on a host_memory device; otherwise as the caller set it).
    in->values NULL: out's values are the places in `in` that they would come from.
  */
  PetscErrorCode (*permute_blocks)(TrsStream stream, TrsWorkspace workspace, int n_in,
                                   const int64_t *block_begin, int n_out, const int *permutation,
                                   const TrsJagged *in, TrsJagged *out);

  /*
    Cut every feature's ids into n_buckets row ranges: out is bucket-major, then feature, then bag (n_buckets*F*B bags); the order
    inside a bag and bucket is kept; values become local ids unless keep_ids. -1 and other negative ids go to bucket 0 unchanged.
    positions (or NULL) [N]: the id's place in its original bag, in out's order. unbucketize (or NULL) [N]: where original id i went.
    in->offsets must be set; out has room for n_buckets*F*B lengths and N values.
    Source: FBGEMM block_bucketize_sparse_features
  */
  PetscErrorCode (*bucketize)(TrsStream stream, TrsWorkspace workspace, int n_buckets, int n_features,
                              int64_t batch, const TrsBucketSpec *spec, PetscBool keep_ids,
                              const TrsJagged *in, TrsJagged *out, int64_t *positions, int64_t *unbucketize);

  /*
    Check ids against rows[f] (host array [F]) and repair by mode: warning and ignore set a bad id to 0; -1 passes; also repairs offsets
    (spec: runtime section 12). report[0] += violations; the first one's place is report[1] = feature, [2] = bag, [3] = id, [4] = position
    in values (host memory on a CPU; device memory else). Fatal and warning and ignore count alike; none does nothing.
  */
  PetscErrorCode (*bounds_check)(TrsStream stream, int mode, int n_features, int64_t batch,
                                 const int64_t *rows, int64_t *offsets, int64_t *values, int64_t n_values,
                                 int64_t report[5]);

  /*
    Unique ids, ascending, of each table's run of values, and where each value went: unique [<= N], reverse [N] (index into the table's
    unique ids), unique_begin [T+1] host array. values_begin host [T+1]. Ids below 0 are one id, -1, that comes first. A device's host waits for unique_begin.
    Source: FBGEMM jagged_unique_indices, whose reverse is an index into all tables' ids
  */
  PetscErrorCode (*unique)(TrsStream stream, TrsWorkspace workspace, int n_tables,
                           const int64_t *values_begin, const int64_t *values, int64_t *unique_begin,
                           int64_t *unique_values, int64_t *reverse);

  /* --- bags that samples share (variable batch per feature); blocks are runs of B = lists->batch bags --- */

  /*
    The distinct bags of block feature[i] (host array [n_features]) of in: lists gets the first sample that has each, in order of samples; inverse [n_features, B]
    the place in its list of every sample's. Bags are equal that have the same ids, and weights bit for bit, in the same order; their hashes
    (compute/bag_hash.h) only save comparisons. in->offsets must be set. Time grows with the ids, and with the square of the distinct bags of a feature that
    share a hash.
  */
  PetscErrorCode (*unique_bags)(TrsStream stream, TrsWorkspace workspace, int n_features, const int *feature,
                                const TrsJagged *in, const TrsBagLists *lists, int64_t *inverse);

  /*
    Block j of out has the bags of list list[j] out of block block[j] of in (host arrays [n_out]). limits NULL: they are followed by empty ones, up to B a block.
    Else blocks follow one another, and limits [2 * n_out + 1] (device) gets the numbers of bags of each, then where the ids of each begin and where they end.
    in->offsets must be set; out has room for n_out * B bags and its ids, and offsets that say where they end behind its last bag, too. Its n_bags
    and n_values are set where the host can read them.
  */
  PetscErrorCode (*take_bags)(TrsStream stream, TrsWorkspace workspace, int n_out, const int *block,
                              const int *list, const TrsBagLists *lists, const TrsJagged *in, TrsJagged *out,
                              int64_t *limits);

  /* Offsets of a batch whose features have strides[f] bags (host array) as if each had B, the last ones empty: to [n_features * B + 1]. */
  PetscErrorCode (*pad_offsets)(TrsStream stream, TrsWorkspace workspace, int n_features,
                                const int64_t *strides, int64_t batch, const int64_t *offsets, int64_t *to);

  /* --- sequences (spec: runtime section 8) --- */

  /* out + b * out_stride: bag b's mean or maximum [D], or its places; empty bags give zeros. */
  PetscErrorCode (*sequence_forward)(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                     float *out, int64_t out_stride);

  /*
    Gradient of every id's row: to + r * row_stride, [D], r the row as `rows` has it, or r = i where by_id is set. Ids have rows of their
    own then, so all that is written is written once. A maximum's gradient goes to the first row of the bag that has it.
  */
  PetscErrorCode (*sequence_backward)(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                      const float *grad, int64_t grad_stride, PetscBool by_id, float *to);

  /* --- position weights (spec: runtime section 10, units_pos); a feature's bags have ids offsets[0] .. offsets[n_bags) --- */

  /* positions[i] = place of id i in its bag, from 0: exact up to 2^24. */
  PetscErrorCode (*positions)(TrsStream stream, int64_t n_bags, const int64_t *offsets, float *positions);

  /* weights[i] = by_position[positions[i]]; 0 for a position outside [0, length). */
  PetscErrorCode (*position_weights)(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                     const float *positions, int64_t length, const float *by_position,
                                     float *weights);

  /* by_position[positions[i]] += grad_weights[i] over all ids, in their order. */
  PetscErrorCode (*position_gradients)(TrsStream stream, TrsWorkspace workspace, int64_t n_bags,
                                       const int64_t *offsets, const float *positions,
                                       const float *grad_weights, int64_t length, float *by_position);

  /* --- cache of rows in host memory (compute/cache.h, units_cache); the cache's tables are those of tbe with table.lines == cache->lines --- */

  /*
    Bring the rows of the batch's ids of the cache's tables into the cache, and find them: locations [N] (as TrsTbeInput's; input's own is not
    read) is written for ids of these tables, others' entries stay. cache->time is this call's. Counters grow.
    held [N] or NULL: LRU alone; each line that now has one of the batch's rows gets one lock (its locks + 1) and is listed in held, once, in any order;
    the other entries are -1.
  */
  PetscErrorCode (*cache_prefetch)(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                   const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations,
                                   int32_t *held);

  /* Find the rows again: locations as above. Nothing else changes; no counters. */
  PetscErrorCode (*cache_locate)(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                 const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations);

  /* Take a lock from each of the n lines listed (those >= 0; no line twice). */
  PetscErrorCode (*cache_release)(TrsStream stream, const TrsCache *cache, int64_t n, const int32_t *held);

  /* Write all cached rows to their tables; they stay in the cache. */
  PetscErrorCode (*cache_write_back)(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                     const TrsTbe *tbe);

  /* --- table-batched embedding (units_optim) --- */

  /*
    Where input->locations is given, rows of cached tables are read and updated where it says; else tables are read in place. A cached table's rows
    are never given to tbe_update_rows.
  */

  /* out[b, out_column .. + D) of feature f = pooled rows of bag (f, b); empty bags give 0. out is [B, out_stride]; only the features' columns are written. */
  PetscErrorCode (*tbe_forward)(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                const TrsTbeInput *input, float *out, int64_t out_stride);

  /* Sequence: out row i = row values[i] of its feature's table, [N, out_stride]; -1 gives zeros. */
  PetscErrorCode (*tbe_forward_rows)(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                     const TrsTbeInput *input, float *out, int64_t out_stride);

  /*
    Backward with the optimizer fused: every row that occurs gets one update with the sum of its occurrences' gradients in order of
    feature, then bag, then place in the bag. grad is [B, grad_stride], features' columns at out_column; mean divides by the bag's length.
    args: an array where tables have different optimizers, that of table t is args[table[t].optimizer].
    grad_weights (or NULL) [N]: gradient of per-id weights, from the rows before the update. max_gradient > 0 clamps grad's elements first.
  */
  PetscErrorCode (*tbe_backward)(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                 const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                 float max_gradient, const TrsSparseOptimizerArgs *args, float *grad_weights);

  /* grad_weights of tbe_backward alone. */
  PetscErrorCode (*tbe_weight_gradients)(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                         const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                         float *grad_weights);

  /* The same for sequences: grad row i belongs to values[i], [N, grad_stride]. */
  PetscErrorCode (*tbe_backward_rows)(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                      const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                      float max_gradient, const TrsSparseOptimizerArgs *args);

  /* --- tables that every rank holds: only gradients of rows travel --- */

  /*
    The distinct rows that occur, ascending by table, then row: rows (capacity N), row_begin [n_tables + 1] host array. Known before there are
    gradients. A device's host waits for row_begin.
  */
  PetscErrorCode (*tbe_list_rows)(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                  const TrsTbeInput *input, int64_t *row_begin, int64_t *rows);

  /*
    Lists of rows of n_tables tables become one: list q's rows of table t, ascending, are rows[begin[q * n_tables + t]] up to where the next ones begin;
    begin: host [n_lists * n_tables + 1] from 0. keys [n]: the rows as numbered over all tables - row r of table t is r more than there are rows before that
    table - in order, equal ones in order of lists; index [n] their places in `rows`. What is no row of its table comes last, with the number of all rows.
  */
  PetscErrorCode (*merge_rows)(TrsStream stream, TrsWorkspace workspace, int n_tables,
                               const TrsTbeTable *table, int n_lists, const int64_t *begin,
                               const int64_t *rows, int64_t *keys, int64_t *index);

  /*
    Summed gradients of the rows of tbe_list_rows, in their order: row_grad [n_unique, row_stride] (row_stride >= max D). rows (or NULL) [n_unique] and
    row_begin (or NULL) as there; without row_begin nothing waits. Capacity of both arrays where row_begin is asked for: N rows.
  */
  PetscErrorCode (*tbe_row_gradients)(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                      const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                      float max_gradient, int64_t *row_begin, int64_t *rows, float *row_grad,
                                      int64_t row_stride);

  /*
    One optimizer step on given rows of n_tables tables: n entries (key, gradient), keys as merge_rows has them, of one table its rows; entries of one row
    are summed in the order given. keys NULL: entry i is row i. index (or NULL): entry i's gradient is row index[i] of grad. args as in tbe_backward.
  */
  PetscErrorCode (*tbe_update_rows)(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                    const TrsTbeTable *table, int64_t n, const int64_t *keys,
                                    const int64_t *index, const float *grad, int64_t grad_stride,
                                    const TrsSparseOptimizerArgs *args);

  /* --- moving pooled rows --- */

  /* Copy n runs of columns of so many rows (host array), in one go; no two are written to the same place. */
  PetscErrorCode (*copy_columns)(TrsStream stream, int64_t rows, int n, const TrsColumnCopy *copy);
  /* n copies of rows (host array); no row is written twice, or written by one and read by another. */
  PetscErrorCode (*copy_rows)(TrsStream stream, TrsWorkspace workspace, int n, const TrsRowsCopy *copy);
  /* to = sum over parts p = 0..n-1, in that order, of from[p] ([rows, cols], all with from_stride); host array of pointers. `to` may be any of the
     first 64 of them, on the CPU of all. */
  PetscErrorCode (*sum_matrices)(TrsStream stream, int n_parts, const float *const *from, int64_t from_stride,
                                 int64_t rows, int64_t cols, float *to, int64_t to_stride);
  /* Row b of n runs of columns (host array) divided by the run's lengths[b], rows `stride` floats apart; where the length is 0 they stay. */
  PetscErrorCode (*divide_columns)(TrsStream stream, int64_t rows, int n, const TrsMeanColumns *mean,
                                   int64_t stride);
  /* Clamp to +-limit. */
  PetscErrorCode (*clamp_matrix)(TrsStream stream, int64_t rows, int64_t cols, float limit, float *matrix,
                                 int64_t stride);
  /* Round floats to the nearest (even) number of dtype, fp16 or bf16; they stay floats. */
  PetscErrorCode (*round_matrix)(TrsStream stream, int64_t rows, int64_t cols, TrsDType dtype, float *matrix,
                                 int64_t stride);

  /* --- dense layers --- */

  /* For all products of this process from now on; fp32 unless called. Errors: UNAVAILABLE. Host function. */
  PetscErrorCode (*dense_precision)(TrsDensePrecision precision);

  /* What makes the products, "OpenBLAS 0.3.21 SkylakeX, 1 thread" or "cuBLASLt 13.1.0": for the banner and result files. Borrowed. Host function. */
  const char *(*product_library)(void);

  /* C = alpha op(A) op(B) + beta C, row-major; op is transposition where asked. */
  PetscErrorCode (*gemm)(TrsStream stream, PetscBool trans_a, PetscBool trans_b, int64_t m, int64_t n,
                         int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                         float beta, float *c, int64_t ldc);
  /* y [B, out] = activation(x [B, in] W^T + bias), W [out, in]. */
  PetscErrorCode (*linear_forward)(TrsStream stream, int64_t batch, int64_t in, int64_t out, const float *x,
                                   int64_t x_stride, const float *weight, const float *bias,
                                   TrsActivation activation, float *y, int64_t y_stride);
  /*
    dy [B, out] is overwritten by dy * activation'(y); grad_weight [out, in] and grad_bias [out] are overwritten; dx (or NULL) [B, in] is overwritten,
    and may lie where y is.
    Sums over the batch run in a fixed order.
  */
  PetscErrorCode (*linear_backward)(TrsStream stream, int64_t batch, int64_t in, int64_t out, const float *x,
                                    int64_t x_stride, const float *weight, const float *y, int64_t y_stride,
                                    TrsActivation activation, float *dy, int64_t dy_stride,
                                    float *grad_weight, float *grad_bias, float *dx, int64_t dx_stride);

  /*
    Dot interaction (rule A1) of n vectors a sample, x [B, n*D] with x_stride: out[b] = [first `copied` floats of x | x_i . x_j, i < j,
    row by row of the upper triangle | n_zeros zeros]. copied is D with a dense vector, else 0.
  */
  PetscErrorCode (*dot_forward)(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                const float *x, int64_t x_stride, float *out, int64_t out_stride);
  PetscErrorCode (*dot_backward)(TrsStream stream, int64_t batch, int n, int D, int copied, const float *x,
                                 int64_t x_stride, const float *dout, int64_t dout_stride, float *dx,
                                 int64_t dx_stride);

  /* DCN cross layer, element-wise part: y = x0 * (u + bias) + x. All [B, n] dense. */
  PetscErrorCode (*cross_forward)(TrsStream stream, int64_t batch, int64_t n, const float *x0, const float *u,
                                  const float *bias, const float *x, float *y);
  /*
    A layer's backward: h = g * x0; grad_bias [n] = sum over samples of h; g * (u + bias) is added to dx0, or written there by the call that is the FIRST of a
    backward. The LAST one may add g, too, for cross_input.
  */
  PetscErrorCode (*cross_backward)(TrsStream stream, int64_t batch, int64_t n, int place,
                                   const TrsCrossBackward *layer);
  /* After the LAST cross_backward: dx [batch, n] = g + dx0 + q V, q [batch, rank], V [rank, n]. g is overwritten or not. */
  PetscErrorCode (*cross_input)(TrsStream stream, int64_t batch, int64_t n, int64_t rank, const float *q,
                                const float *V, float *g, const float *dx0, float *dx);

  /*
    Binary cross entropy with logits: loss (host double on a CPU, device double else) += sum over samples of w * (max(z,0) - z*y + log1p(exp(-|z|)));
    dz (or NULL) = (sigmoid(z) - y) * (scale * w); p (or NULL) = sigmoid(z). y may be NULL when only p is wanted, w for weights of 1.
    stride: floats from one z, and dz, to the next.
  */
  PetscErrorCode (*bce)(TrsStream stream, int64_t batch, int64_t stride, const float *z, const float *y,
                        const float *w, float scale, double *loss, float *dz, float *p);

  /* sum (host double on a CPU, device double else) = sum of squares of n floats, in double */
  PetscErrorCode (*sum_of_squares)(TrsStream stream, int64_t n, const float *x, double *sum);

  /* torch.optim's formulas on n elements; state1, state2: adagrad sum; adam exp_avg, exp_avg_sq. */
  PetscErrorCode (*dense_update)(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                 const float *grad, float *weight, float *state1, float *state2);

  /* --- codecs (units_quant) --- */

  /* Encoded bytes of n floats. Host function. */
  int64_t (*codec_bytes)(const TrsCodec *codec, int64_t n);
  PetscErrorCode (*encode)(TrsStream stream, const TrsCodec *codec, int64_t n, const float *from, void *to);
  PetscErrorCode (*decode)(TrsStream stream, const TrsCodec *codec, int64_t n, const void *from, float *to);

  /* Element-wise conversion between fp32 and fp16/bf16 (nearest even), strided rows. */
  PetscErrorCode (*convert)(TrsStream stream, int64_t n, TrsDType from_type, const void *from,
                            TrsDType to_type, void *to);
} TrsComputeOps;

extern const TrsComputeOps trs_compute_cuda; /* gpu/compute_cuda.c, where TRS_HAVE_CUDA */

extern const TrsComputeOps *const trs_compute_backends[];

/* The kernels for a device's name. Errors: UNAVAILABLE. Not collective. */
PetscErrorCode TrsComputeFind(const char *name, const TrsComputeOps **compute);

/*
  Instruction set in use ("avx512", "avx2", "portable"): the best that the processor has and TRSHARD_ISA in the environment, read once a process,
  allows. Not collective.
*/
const char *TrsComputeIsa(void);

/* Kernels called from now on use at most limit; NULL: what the environment allows. BLAS keeps what it began with. Not collective. */
void TrsComputeSetIsa(const char *limit);

/* OpenMP threads of a kernel. Not collective. */
int TrsComputeThreads(void);
