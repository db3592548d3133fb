/* SPDX-License-Identifier: BSD-3-Clause */
/*
  All kernels that a step runs, behind one table of functions (cpu in src/cpu, cuda in gpu/).

  A kernel is a function type Trs<Name>Fn, with its contract, and a line in TRS_KERNELS below. That
  line generates the table's member, and the prototypes and table rows of all backends, whose
  functions are called Trs<Name>Cpu and Trs<Name>Cuda. A backend that lacks a kernel does not link.
  dense_layers.h and sequence_layers.h declare the kernels of layers.

  All calls are ordered on `stream` and never wait. Pointers are device pointers unless the comment
  says otherwise. Scratch memory belongs to a TrsWorkspace, which the caller should keep while calls
  with the same shapes repeat: once grown, it allocates nothing. Results have the same bits for any
  number of threads, in every run. No kernel is collective.

  B: bags or samples, D: row width, N: ids, F: features.
*/
#pragma once

#include "compute/cache.h"
#include "compute/dense_layers.h"
#include "compute/id_map.h"
#include "compute/samples.h"
#include "compute/sequence_layers.h"
#include "compute/tbe.h"
#include "core/buffer.h"
#include "device/device.h"

/*
  Scratch memory of kernels. It grows and never shrinks. Calls that may overlap on different streams
  must use different workspaces.
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

/*
  A list of bags for each feature: list i has the bags of samples sample[i * batch + k], k < n[i].
*/
typedef struct {
  int64_t batch;   /* B */
  int32_t *sample; /* device [features, B]; NULL: sample k */
  int64_t *n;      /* device [features], each at most B */
} TrsBagLists;

/* A copy of adjacent columns, converted to the type of `to`. `from` is only read. */
typedef struct {
  TrsMatrix from, to;
  int64_t cols;
} TrsColumnCopy;

/* Adjacent columns of floats to be divided by the lengths of their rows' bags. */
typedef struct {
  TrsMatrix columns;
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

/* The rule that maps the ids of one feature to n row buckets. */
typedef struct {
  /*
    bucket = id / bucket_rows, local id = id % bucket_rows. For ids >= bucket_rows * n: bucket = id
    % n, local id = id / n.
  */
  int64_t bucket_rows;
  /*
    host [n + 1] row offsets of uneven buckets, or NULL. Ids beyond the last offset follow the rule
    above.
  */
  const int64_t *bounds;
  /*
    If it has buckets, the ids are keys, not rows: a key goes where its bucket's first row goes, and
    its local id is the key itself. Every row range consists of whole buckets.
  */
  TrsIdBuckets keys;
} TrsBucketSpec;

/*
  The operation that turns the rows of a sequence feature's bag into the model's input
  (src/RULES.md, rule A26).
*/
typedef enum { TRS_SEQUENCE_MEAN, TRS_SEQUENCE_MAX, TRS_SEQUENCE_CONCAT } TrsSequencePooling;

/*
  Bags of rows. Id i of bag b, offsets[b] <= i < offsets[b + 1], has row (index ? index[i] : i) +
  shift. An id below 0 is pruned: a mean counts it in the length, a concatenation fills its place
  with zeros, a maximum skips it.
*/
typedef struct {
  TrsSequencePooling pooling;
  int64_t batch;          /* B bags */
  int64_t dim;            /* D columns of a row that are pooled */
  int64_t row_stride;     /* floats from one row to the next */
  int64_t places;         /* concat: ids taken from a bag, padded with zeros */
  int64_t place_stride;   /* concat: floats from one place to the next in the result */
  const int64_t *offsets; /* device [B + 1]; indices into ids and index */
  const int64_t *ids;     /* device; negative: pruned. NULL: no id is pruned */
  const int64_t *index;   /* device, or NULL */
  int64_t shift;
} TrsSequenceBags;

/* A wire format of quantised exchanges (src/RULES.md, section 11). */
typedef struct {
  TrsCodecKind kind;
  int row_dim;      /* fp8: 0 is plain 1-4-3, n is row-wise over n values; int8: 32 */
  int backward;     /* for gradients: row-wise fp8 then uses 1-5-2 */
  float loss_scale; /* fp16, bf16: multiplied before encoding, divided after decoding */
} TrsCodec;

typedef PetscErrorCode TrsWorkspaceCreateFn(TrsWorkspace *workspace);
typedef PetscErrorCode TrsWorkspaceDestroyFn(TrsWorkspace *workspace);

/* --- jagged tensors (units_kjt, units_dedup) --- */

/* Compute offsets[0..n], the 64-bit exclusive prefix sum of lengths[0..n). */
typedef PetscErrorCode TrsOffsetsFn(TrsStream stream, int64_t n, const int32_t *lengths, int64_t *offsets);

/*
  Copy bag block permutation[j] of `in` to bag block j of `out`. A bag block is a run of bags: bag
  block i of `in` is bags block_begin[i] .. block_begin[i+1). permutation [n_out] and block_begin
  [n_in + 1] are host arrays.

  Lengths and values are copied, and weights if both tensors have them. The caller must set
  in->offsets and give out's arrays enough room. The kernel fills out->offsets unless it is NULL,
  and sets out->n_bags. It sets out->n_values if the host can read in->offsets; else the caller
  must. If in->values is NULL, out's values are the positions in `in` that they would come from. If
  out->values is NULL, no values are written.
*/
typedef PetscErrorCode TrsPermuteBlocksFn(TrsStream stream, TrsWorkspace workspace, int n_in,
                                          const int64_t *block_begin, int n_out, const int *permutation,
                                          const TrsJagged *in, TrsJagged *out);

/*
  Cut every feature's ids into n_buckets row ranges. out is bucket-major, then feature, then bag:
  n_buckets*F*B bags of local ids. The order inside a bag and bucket is kept. Negative ids go to
  bucket 0 unchanged. unbucketize [N] (or NULL) receives the position in out of each id of `in`. The
  caller must set in->offsets and give out room for n_buckets*F*B lengths and N values.

  Source: FBGEMM block_bucketize_sparse_features
*/
typedef PetscErrorCode TrsBucketizeFn(TrsStream stream, TrsWorkspace workspace, int n_buckets, int n_features,
                                      int64_t batch, const TrsBucketSpec *spec, const TrsJagged *in,
                                      TrsJagged *out, int64_t *unbucketize);

/*
  For each table's run of values, find the unique ids in ascending order, and the position of each
  value among them. unique_values [<= N] receives the ids, reverse [N] the index into the table's
  unique ids, unique_begin, host [T+1], the beginning of each table's ids. values_begin is a host
  array [T+1]. All ids below 0 count as id -1, which comes first. The host waits for unique_begin.

  Source: FBGEMM jagged_unique_indices, whose reverse is an index into all tables' ids
*/
typedef PetscErrorCode TrsUniqueFn(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                   const int64_t *values_begin, const int64_t *values, int64_t *unique_begin,
                                   int64_t *unique_values, int64_t *reverse);

/*
  Make a batch of all samples, as TrsAssemble() does (compute/assemble.h), and turn ids into rows by
  the features' rules. The caller must give out's arrays enough room and set out->n_values to the
  number of ids. *odd, in pinned host memory, is set to 1 if an id is bad or a bag is too long, else
  to 0. Only backends with their own memory have this kernel.
*/
typedef PetscErrorCode TrsAssembleFn(TrsStream stream, TrsWorkspace workspace, const TrsSamples *samples,
                                     int n_features, const TrsSampleFeature *features, TrsJagged *out,
                                     int32_t *odd);

/* --- bags that samples share (variable batch per feature); a bag block is a run of B bags --- */

/*
  Find the distinct bags in bag block feature[i] (host array [n_features]) of `in`, with B =
  lists->batch. lists receives the first sample with each distinct bag, in sample order. inverse
  [n_features, B] receives the position of every sample's bag in this list. Bags are equal if they
  have the same ids in the same order, and the same weights bit for bit; hashes (compute/bag_hash.h)
  only save comparisons. The caller must set in->offsets. The time grows with the number of ids, and
  with the square of the number of a feature's distinct bags that share a hash.
*/
typedef PetscErrorCode TrsUniqueBagsFn(TrsStream stream, TrsWorkspace workspace, int n_features,
                                       const int *feature, const TrsJagged *in, const TrsBagLists *lists,
                                       int64_t *inverse);

/*
  Fill bag block j of out with the bags in list list[j], taken from bag block block[j] of `in` (host
  arrays [n_out]). If limits is NULL, each bag block is padded with empty bags to B. Otherwise the
  bag blocks are contiguous, and limits, device [2 * n_out + 1], receives the number of bags of each
  block, then the beginning of each block's ids, then the end of all ids.

  The caller must set in->offsets and give out room for n_out * B bags and their ids. The offset
  after out's last bag is the end of the ids. out->n_bags and out->n_values are set if the host can
  read them.
*/
typedef PetscErrorCode TrsTakeBagsFn(TrsStream stream, TrsWorkspace workspace, int n_out, const int *block,
                                     const int *list, const TrsBagLists *lists, const TrsJagged *in,
                                     TrsJagged *out, int64_t *limits);

/*
  For a batch whose features have strides[f] bags (host array), make `to`, the offsets [n_features *
  B + 1] that result if each feature is padded to B bags with empty ones.
*/
typedef PetscErrorCode TrsPadOffsetsFn(TrsStream stream, TrsWorkspace workspace, int n_features,
                                       const int64_t *strides, int64_t batch, const int64_t *offsets,
                                       int64_t *to);

/* --- sequences (src/RULES.md, section 8) --- */

/*
  Compute the mean or maximum [D] of bag b, or its concatenated rows, at out + b * out_stride. Empty
  bags give zeros.
*/
typedef PetscErrorCode TrsSequenceForwardFn(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                            float *out, int64_t out_stride);

/*
  Compute the gradient [D] of every id's row at to + r * row_stride. r is the row's index in `rows`,
  or i for id i if by_id is set. Without by_id all ids must have different rows, so that no row is
  written twice. The gradient of a maximum goes to the first row in the bag that has the maximum.
*/
typedef PetscErrorCode TrsSequenceBackwardFn(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                             const float *grad, int64_t grad_stride, PetscBool by_id,
                                             float *to);

/* --- position weights (src/RULES.md, section 10; units_pos); ids from offsets[0] on --- */

/* positions[i] = position of id i in its bag, from 0; exact up to 2^24. */
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
  --- cache of rows in host memory (compute/cache.h, units_cache) --- A cache's tables are the
  tables of tbe with table.lines == cache->lines.
*/

/*
  For the batch's ids in the cache's tables, bring their rows into the cache and locate them.

  locations [N] has the format of TrsTbeInput's field, which is not read here. It is written for ids
  of these tables and stays unchanged for other ids. cache->time is this call's time. The counters
  grow. held [N] (or NULL) is for LRU only: each line that now holds a row of the batch gets one
  more lock and is listed in held once, in any order; the other entries are -1.
*/
typedef PetscErrorCode TrsCachePrefetchFn(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                          const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations,
                                          int32_t *held);

/*
  Locate the rows again: locations as in cache_prefetch. The cache and its counters stay unchanged.
*/
typedef PetscErrorCode TrsCacheLocateFn(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                        const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations);

/* Remove one lock from each of the n lines listed (entries >= 0; no line may be listed twice). */
typedef PetscErrorCode TrsCacheReleaseFn(TrsStream stream, const TrsCache *cache, int64_t n,
                                         const int32_t *held);

/* Write all cached rows to their tables. The rows also stay in the cache. */
typedef PetscErrorCode TrsCacheWriteBackFn(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                           const TrsTbe *tbe);

/*
  --- table-batched embedding (units_optim) --- Rows of cached tables are read and updated at
  input->locations; if it is NULL, tables are read in place. The caller must not pass rows of a
  cached table to tbe_update_rows. Pooled rows and their gradients may have the operands' type; sums
  are in fp32.
*/

/*
  out[b, out_column .. + D) of feature f = pooled rows of bag (f, b). Empty bags give 0. out has B
  rows; only the features' columns are written.
*/
typedef PetscErrorCode TrsTbeForwardFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                       const TrsTbeInput *input, TrsMatrix out);

/* Sequences: out row i = row values[i] of its feature's table, [N, out_stride]. -1 gives zeros. */
typedef PetscErrorCode TrsTbeForwardRowsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                           const TrsTbeInput *input, float *out, int64_t out_stride);

/*
  Do the backward with the optimizer fused. Every row that occurs gets one update with the sum of
  its occurrences' gradients, in the order of feature, then bag, then position in the bag. grad is
  only read and has B rows, with a feature's columns at out_column; a mean divides by the bag's
  length. args is an array if tables have different optimizers: table t uses
  args[table[t].optimizer].
*/
typedef PetscErrorCode TrsTbeBackwardFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                        const TrsTbeInput *input, TrsMatrix grad,
                                        const TrsSparseOptimizerArgs *args);

/*
  Find the occurrences of a batch ahead of the call that uses them as TrsTbeInput.occurrences. That
  call must have the same tables, ids and weights (unless weights_later is set). *occurrences is
  created if it is NULL; its memory grows and never shrinks. It holds no pointers to tables or to
  the batch. The stream that uses it waits for this call; meanwhile other calls on this stream may
  use the workspace. Only backends that sort all tables at once have this kernel. Others sort table
  by table, so that the keys stay in the processor's caches until the update. If the tables'
  alignment differs in the later call, that call may have to sort again.
*/
typedef PetscErrorCode TrsTbeFindOccurrencesFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, TrsTbeUse use,
                                               TrsTbeOccurrences *occurrences);
typedef PetscErrorCode TrsTbeOccurrencesDestroyFn(TrsTbeOccurrences *occurrences);

/*
  Compute grad_weights [N], the gradients of the ids' weights. Must run before the rows are updated.
*/
typedef PetscErrorCode TrsTbeWeightGradientsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, const float *grad,
                                               int64_t grad_stride, float *grad_weights);

/* tbe_backward for sequences: grad row i belongs to values[i], [N, grad_stride]. */
typedef PetscErrorCode TrsTbeBackwardRowsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                            const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                            const TrsSparseOptimizerArgs *args);

/* --- tables that every rank holds: only gradients of rows are sent --- */

/*
  List the distinct rows that occur, ascending by table, then row: rows (capacity N), row_begin host
  [n_tables + 1]. Needs no gradients. The host waits for row_begin.
*/
typedef PetscErrorCode TrsTbeListRowsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                        const TrsTbeInput *input, int64_t *row_begin, int64_t *rows);

/*
  Merge lists of rows from n_tables tables. List q's rows of table t, ascending, begin at
  rows[begin[q * n_tables + t]]; begin is a host array [n_lists * n_tables + 1] that starts with 0.

  keys [n] receives the sorted rows, numbered over all tables (row r of table t has number r + the
  rows of the tables before t). Equal rows stay in the order of the lists. index [n] receives their
  positions in `rows`. Entries that are not rows of their table come last, with the total number of
  rows as their key.
*/
typedef PetscErrorCode TrsMergeRowsFn(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                      const TrsTbeTable *table, int n_lists, const int64_t *begin,
                                      const int64_t *rows, int64_t *keys, int64_t *index);

/*
  Sum the gradients of the rows that tbe_list_rows lists, in its order: row_grad [n_unique,
  row_stride], row_stride >= the widest D. rows [n_unique] (or NULL) and row_begin (or NULL) are
  filled as by tbe_list_rows. The host waits only if row_begin is set; both arrays must then have
  room for N rows.
*/
typedef PetscErrorCode TrsTbeRowGradientsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                            const TrsTbeInput *input, TrsMatrix grad, int64_t *row_begin,
                                            int64_t *rows, float *row_grad, int64_t row_stride);

/*
  Sum the squares of the gradients of the rows that occur, in blocks of TRS_SQUARES_COLUMNS columns:
  squares[t] [ids of table t, blocks of its dim], or NULL to skip a table. A row's sums are at the
  position of its first id among the table's ids sorted by row (TrsTbeInput.row_squares); other
  entries are not written. Only for devices that use host memory.
*/
typedef PetscErrorCode TrsTbeRowSquaresFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                          const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                          float *const *squares);

/*
  Gradients of rows. The n keys come from merge_rows, or are the rows themselves if there is one
  table. Entries of a row are summed in the given order.
*/
typedef struct {
  int64_t n;
  const int64_t *keys;  /* [n]; NULL: entry i is row i */
  const int64_t *index; /* [n] entry i's gradient is row index[i] of grad; NULL: row i */
  const float *grad;
  int64_t stride;
} TrsRowGradients;

/* Do one optimizer step on given rows of n_tables tables. args is as in tbe_backward. */
typedef PetscErrorCode TrsTbeUpdateRowsFn(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                          const TrsTbeTable *table, const TrsRowGradients *gradients,
                                          const TrsSparseOptimizerArgs *args);

/* Returns true if this backend can update rows with an optimizer of this kind. Host function. */
typedef PetscBool TrsTbeHasStepFn(TrsSparseOptimizerKind kind);

/* --- moving pooled rows --- */

/* Copy n runs of columns (host array) for `rows` rows. The targets must not overlap. */
typedef PetscErrorCode TrsCopyColumnsFn(TrsStream stream, int64_t rows, int n, const TrsColumnCopy *copy);

/*
  Do n copies of rows (host array). No row may be written twice, or written by one copy and read by
  another.
*/
typedef PetscErrorCode TrsCopyRowsFn(TrsStream stream, TrsWorkspace workspace, int n,
                                     const TrsRowsCopy *copy);

/*
  to = from[0] + from[1] + ... in this order. The parts are [rows, cols], all with from_stride.
  `from` is a host array of pointers. `to` may be one of the first 64 parts, on the CPU any part.
*/
typedef PetscErrorCode TrsSumMatricesFn(TrsStream stream, int n_parts, const float *const *from,
                                        int64_t from_stride, int64_t rows, int64_t cols, float *to,
                                        int64_t to_stride);

/*
  Divide row b of n runs of columns (host array) by the run's lengths[b]. Rows of length 0 stay
  unchanged.
*/
typedef PetscErrorCode TrsDivideColumnsFn(TrsStream stream, int64_t rows, int n, const TrsMeanColumns *mean);

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
  Combine two matrices of floats [rows, cols] element by element: x = a + b, or a * b if `product`.
  x may be a.
*/
typedef PetscErrorCode TrsJoinForwardFn(TrsStream stream, int64_t rows, int64_t cols, PetscBool product,
                                        TrsMatrix a, TrsMatrix b, TrsMatrix x);

/*
  The backward of join_forward. a and b have the same stride and are overwritten by their gradients.
*/
typedef PetscErrorCode TrsJoinBackwardFn(TrsStream stream, int64_t rows, int64_t cols, PetscBool product,
                                         const float *dx, int64_t dx_stride, float *a, float *b,
                                         int64_t stride);

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
  X(DotTakesPlaces, dot_takes_places) \
  X(DotPlacesForward, dot_places_forward) \
  X(DotPlacesBackward, dot_places_backward) \
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
    Matrix products are fast if rows begin at multiples of this many floats and the inner dimension
    is a multiple of it. Callers may pad matrices with zeros to that end. 1: every layout is equally
    fast.
  */
  int64_t product_unit;
  TrsAssembleFn *assemble;             /* NULL: readers make batches */
  TrsTbeRowSquaresFn *tbe_row_squares; /* NULL: updates send whole rows instead */
  /* both NULL: a backward sorts the ids itself, and TrsTbeInput.occurrences must be NULL */
  TrsTbeFindOccurrencesFn *tbe_find_occurrences;
  TrsTbeOccurrencesDestroyFn *tbe_occurrences_destroy;
  TRS_KERNELS(TRS_KERNEL_MEMBER)
} TrsComputeOps;

extern const TrsComputeOps trs_compute_cpu;  /* cpu/compute_cpu.c */
extern const TrsComputeOps trs_compute_cuda; /* gpu/compute_cuda.c, built with TRS_HAVE_CUDA */

extern const TrsComputeOps *const trs_compute_backends[]; /* the list ends with NULL */

/* Find the kernels for a device's name. Errors: UNAVAILABLE. Not collective. */
PetscErrorCode TrsComputeFind(const char *name, const TrsComputeOps **compute);

/*
  The instruction set in use ("avx512", "avx2", "portable"): the best that the processor has and the
  environment variable TRSHARD_ISA allows. TRSHARD_ISA is read once per process. Not collective.
*/
const char *TrsComputeIsa(void);

/*
  Limit the instruction set of later kernel calls. NULL: the environment's limit. BLAS keeps the
  instruction set that it started with. Not collective.
*/
void TrsComputeSetIsa(const char *limit);

/* Number of OpenMP threads that a kernel uses. Not collective. */
int TrsComputeThreads(void);
