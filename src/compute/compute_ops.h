/* SPDX-License-Identifier: BSD-3-Clause */
/*
  All kernels that a step runs, behind one table of functions (cpu in src/cpu, cuda in gpu/).

  Each kernel has a function type Trs<Name>Fn, whose comment is its contract, and a line in
  TRS_KERNELS below. This line generates the table's member, and the prototypes and table rows of
  all backends, whose functions are Trs<Name>Cpu and Trs<Name>Cuda. A backend that lacks a kernel
  does not link. dense_layers.h and sequence_layers.h declare the kernels of layers.

  All calls are ordered on `stream`, and return without waiting for the device. Pointers are device
  pointers unless the comment says otherwise. Scratch memory is in a TrsWorkspace. The caller should
  use the same workspace again for calls with the same shapes, because it then allocates nothing.
  Results have the same bits for any number of threads, in every run. No kernel is collective.

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

/*
  Consecutive bags: their lengths, ids and optional weights. If weights is NULL, the bags are
  unweighted.
*/
typedef struct {
  int64_t n_bags;
  int64_t n_values;
  int32_t *lengths; /* [n_bags] */
  /* [n_bags + 1] exclusive prefix sum of lengths; may be NULL if a kernel's comment allows it */
  int64_t *offsets;
  int64_t *values; /* [n_values] */
  float *weights;  /* [n_values] or NULL */
} TrsJagged;

/*
  A list of samples for each feature. List i has the samples sample[i * batch + k] for k < n[i];
  each stands for the feature's bag in this sample.
*/
typedef struct {
  int64_t batch;   /* B */
  int32_t *sample; /* device [features, B]; if NULL, entry k is sample k */
  int64_t *n;      /* device [features], each at most B */
} TrsBagLists;

/*
  A copy of adjacent columns to another matrix. The values are converted to the type of `to`. `from`
  is only read.
*/
typedef struct {
  TrsMatrix from, to;
  int64_t cols;
} TrsColumnCopy;

/* Adjacent columns of floats that will be divided by the lengths of their rows' bags. */
typedef struct {
  TrsMatrix columns;
  const int32_t *lengths; /* length of each row's bag */
  int64_t cols;
} TrsMeanColumns;

/* A copy of n rows: row from_index[i] of `from` becomes row to_index[i] of `to`. */
typedef struct {
  int64_t n, row_bytes;
  const void *from;          /* device memory */
  int64_t from_stride;       /* bytes from one row to the next */
  const int64_t *from_index; /* if NULL, copy i reads row i */
  void *to;                  /* device memory */
  int64_t to_stride;         /* bytes from one row to the next */
  const int64_t *to_index;   /* if NULL, copy i writes row i */
} TrsRowsCopy;

/* The rule that maps the ids of one feature to n row buckets. */
typedef struct {
  /*
    bucket = id / bucket_rows, local id = id % bucket_rows. For ids >= bucket_rows * n: bucket = id
    % n, local id = id / n.
  */
  int64_t bucket_rows;
  /*
    host [n + 1] first rows of buckets with unequal sizes, or NULL. An id beyond the last bucket is
    mapped like an id >= bucket_rows * n.
  */
  const int64_t *bounds;
  /*
    If `keys` has buckets, the ids are keys instead of rows. A key is sent to the range that has the
    first row of the key's bucket, and its local id is the key itself. Every range must consist of
    whole buckets.
  */
  TrsIdBuckets keys;
} TrsBucketSpec;

/*
  The operation that turns the rows of a sequence feature's bag into the model's input
  (src/RULES.md, rule A26).
*/
typedef enum { TRS_SEQUENCE_MEAN, TRS_SEQUENCE_MAX, TRS_SEQUENCE_CONCAT } TrsSequencePooling;

/*
  Bags of rows. Id i of bag b has row (index ? index[i] : i) + shift, for offsets[b] <= i <
  offsets[b + 1]. An id below 0 is pruned: a mean counts it in the bag's length, a concatenation
  puts zeros at its position, and a maximum skips it.
*/
typedef struct {
  TrsSequencePooling pooling;
  int64_t batch;      /* number of bags B */
  int64_t dim;        /* number of columns D that are pooled */
  int64_t row_stride; /* floats from one row to the next */
  /* concat: number of ids that a bag's result has; shorter bags are padded with zeros */
  int64_t places;
  int64_t place_stride;   /* concat: floats from one id's row to the next id's row in the result */
  const int64_t *offsets; /* device [B + 1]; indices into ids and index */
  const int64_t *ids;     /* device; a negative id is pruned. If NULL, no id is pruned */
  const int64_t *index;   /* device, or NULL */
  int64_t shift;
} TrsSequenceBags;

/* An encoding of values in quantised exchanges (src/RULES.md, section 11). */
typedef struct {
  TrsCodecKind kind;
  int row_dim;  /* fp8: n if n values are encoded as a row, 0 for plain 1-4-3. int8: 32 */
  int backward; /* true for gradients, for which row-wise fp8 uses 1-5-2 */
  /* fp16, bf16: values are multiplied by it before encoding, and divided by it after decoding */
  float loss_scale;
} TrsCodec;

typedef PetscErrorCode TrsWorkspaceCreateFn(TrsWorkspace *workspace);
typedef PetscErrorCode TrsWorkspaceDestroyFn(TrsWorkspace *workspace);

/* --- jagged tensors (units_kjt, units_dedup) --- */

/* Compute offsets[0..n], the 64-bit exclusive prefix sum of lengths[0..n). */
typedef PetscErrorCode TrsOffsetsFn(TrsStream stream, int64_t n, const int32_t *lengths, int64_t *offsets);

/*
  Copy bag block permutation[j] of `in` to bag block j of `out`. A bag block is a sequence of
  consecutive bags: bag block i of `in` has the bags [block_begin[i], block_begin[i + 1]).
  permutation [n_out] and block_begin [n_in + 1] are host arrays.

  Lengths and values are copied. Weights are copied if both tensors have weights. The caller must
  set in->offsets and allocate out's arrays large enough. The kernel writes out->offsets unless it
  is NULL, and sets out->n_bags. If the host can read in->offsets, the kernel sets out->n_values;
  otherwise the caller must set it. If in->values is NULL, each value of `out` becomes the position
  in `in` of the value that would be copied. If out->values is NULL, no values are written.
*/
typedef PetscErrorCode TrsPermuteBlocksFn(TrsStream stream, TrsWorkspace workspace, int n_in,
                                          const int64_t *block_begin, int n_out, const int *permutation,
                                          const TrsJagged *in, TrsJagged *out);

/*
  Divide every feature's ids into n_buckets ranges of rows. `out` has n_buckets * F * B bags of
  local ids, ordered by bucket, then feature, then bag. Within a bucket, the ids of a bag keep their
  order. Negative ids are put into bucket 0 unchanged. unbucketize [N] (or NULL) receives the
  position in `out` of each id of `in`. The caller must set in->offsets, and allocate `out` for
  n_buckets * F * B lengths and N values.

  Source: FBGEMM block_bucketize_sparse_features
*/
typedef PetscErrorCode TrsBucketizeFn(TrsStream stream, TrsWorkspace workspace, int n_buckets, int n_features,
                                      int64_t batch, const TrsBucketSpec *spec, const TrsJagged *in,
                                      TrsJagged *out, int64_t *unbucketize);

/*
  For each table, find the unique ids among its values, in ascending order, and the index of each
  value's id in this list. The values of table t begin at values_begin[t], host [T + 1].
  unique_values [<= N] receives the unique ids of all tables, and reverse [N] the index of each
  value's id among the unique ids of its table. unique_begin, host [T + 1], receives the index of
  each table's first unique id. All ids below 0 are treated as id -1, which comes first. The host
  waits for unique_begin.

  Source: FBGEMM jagged_unique_indices, whose reverse is an index into all tables' ids
*/
typedef PetscErrorCode TrsUniqueFn(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                   const int64_t *values_begin, const int64_t *values, int64_t *unique_begin,
                                   int64_t *unique_values, int64_t *reverse);

/*
  Make a batch of all samples, as TrsAssemble() does (compute/assemble.h), and convert ids to rows
  by the features' rules. The caller must allocate out's arrays large enough, and set out->n_values
  to the number of ids. *odd, in pinned host memory, becomes 1 if an id is bad or a bag is too long,
  and otherwise 0. Only backends with their own memory have this kernel.
*/
typedef PetscErrorCode TrsAssembleFn(TrsStream stream, TrsWorkspace workspace, const TrsSamples *samples,
                                     int n_features, const TrsSampleFeature *features, TrsJagged *out,
                                     int32_t *odd);

/*
  --- bags that samples share (variable batch per feature); a bag block has B consecutive bags ---
*/

/*
  Find the distinct bags in bag block feature[i] (host array [n_features]) of `in`, with B =
  lists->batch. lists receives the first sample with each distinct bag, in sample order. inverse
  [n_features, B] receives the index in this list of every sample's bag. Bags are equal if they have
  the same ids in the same order, and weights with the same bits. Hashes (compute/bag_hash.h) reduce
  the number of comparisons. The caller must set in->offsets. The time grows with the number of ids,
  and with the square of the number of a feature's distinct bags that share a hash.
*/
typedef PetscErrorCode TrsUniqueBagsFn(TrsStream stream, TrsWorkspace workspace, int n_features,
                                       const int *feature, const TrsJagged *in, const TrsBagLists *lists,
                                       int64_t *inverse);

/*
  Copy lists of bags. Bag block j of `out` receives the bags that entry list[j] of `lists` names,
  from bag block block[j] of `in`. `block` and `list` are host arrays [n_out]. If limits is NULL,
  each bag block of `out` is padded with empty bags to B bags. Otherwise the bag blocks follow each
  other without padding, and limits, device [2 * n_out + 1], receives the number of bags of each
  block, then the index of each block's first id, then the end of all ids.

  The caller must set in->offsets, and allocate `out` for n_out * B bags and their ids. The offset
  after out's last bag is the end of the ids. If the host can read out->n_bags and out->n_values,
  they are set.
*/
typedef PetscErrorCode TrsTakeBagsFn(TrsStream stream, TrsWorkspace workspace, int n_out, const int *block,
                                     const int *list, const TrsBagLists *lists, const TrsJagged *in,
                                     TrsJagged *out, int64_t *limits);

/*
  Compute the offsets `to` [n_features * B + 1] of a batch after padding each feature with empty
  bags to B bags. Before padding, feature f has strides[f] bags (host array).
*/
typedef PetscErrorCode TrsPadOffsetsFn(TrsStream stream, TrsWorkspace workspace, int n_features,
                                       const int64_t *strides, int64_t batch, const int64_t *offsets,
                                       int64_t *to);

/* --- sequences (src/RULES.md, section 8) --- */

/*
  Compute for bag b the mean [D], the maximum [D] or the concatenated rows, at out + b * out_stride.
  Empty bags give zeros.
*/
typedef PetscErrorCode TrsSequenceForwardFn(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                            float *out, int64_t out_stride);

/*
  Compute the gradient [D] of every id's row, at to + r * row_stride. If by_id is set, r is i for id
  i; otherwise it is the row's index in `rows`. Without by_id all ids must have different rows, so
  that no row is written twice. The gradient of a maximum goes to the first row of the bag that has
  the maximum.
*/
typedef PetscErrorCode TrsSequenceBackwardFn(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                             const float *grad, int64_t grad_stride, PetscBool by_id,
                                             float *to);

/*
  --- position weights (src/RULES.md, section 10; units_pos); the ids begin at index offsets[0] ---
*/

/* Compute positions[i], the position of id i in its bag, counted from 0. Exact up to 2^24. */
typedef PetscErrorCode TrsPositionsFn(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                      float *positions);

/* Compute weights[i] = by_position[positions[i]], or 0 for a position outside [0, length). */
typedef PetscErrorCode TrsPositionWeightsFn(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                            const float *positions, int64_t length, const float *by_position,
                                            float *weights);

/* Add grad_weights[i] to by_position[positions[i]] for all ids, in their order. */
typedef PetscErrorCode TrsPositionGradientsFn(TrsStream stream, TrsWorkspace workspace, int64_t n_bags,
                                              const int64_t *offsets, const float *positions,
                                              const float *grad_weights, int64_t length, float *by_position);

/*
  --- cache of rows in host memory (compute/cache.h, units_cache) --- A cache's tables are the
  tables of tbe whose table.lines equals cache->lines.
*/

/*
  Load the rows of the batch's ids into the cache, for ids of the cache's tables, and find the rows'
  locations.

  locations [N] has the format of TrsTbeInput.locations, which is not read here. Only entries for
  ids of the cache's tables are written. cache->time must be the time of this call. The counters
  grow. held [N] (or NULL) is for LRU only: each line that now has a row of the batch gets one more
  lock, and held receives the line once. The lines are in any order, and the remaining entries are
  -1.
*/
typedef PetscErrorCode TrsCachePrefetchFn(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                          const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations,
                                          int32_t *held);

/*
  Find the locations of the batch's rows again, as cache_prefetch does. The cache and its counters
  stay unchanged.
*/
typedef PetscErrorCode TrsCacheLocateFn(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                        const TrsTbe *tbe, const TrsTbeInput *input, int32_t *locations);

/*
  Remove one lock from each line in held [n]. Negative entries are skipped, and no line may occur
  twice.
*/
typedef PetscErrorCode TrsCacheReleaseFn(TrsStream stream, const TrsCache *cache, int64_t n,
                                         const int32_t *held);

/* Write all cached rows to their tables. The rows also stay in the cache. */
typedef PetscErrorCode TrsCacheWriteBackFn(TrsStream stream, TrsWorkspace workspace, const TrsCache *cache,
                                           const TrsTbe *tbe);

/*
  --- table-batched embedding (units_optim) --- Rows of cached tables are read and updated at
  input->locations. If it is NULL, rows are read in their tables. The caller must not pass rows of a
  cached table to tbe_update_rows. Pooled rows and their gradients may have the operands' type; they
  are summed in fp32.
*/

/*
  Pool the rows of each bag. Columns [out_column, out_column + D) of row b of `out` receive the
  pooled rows of bag b of feature f. Empty bags give 0. `out` has B rows; columns that belong to no
  feature stay unchanged.
*/
typedef PetscErrorCode TrsTbeForwardFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                       const TrsTbeInput *input, TrsMatrix out);

/*
  For sequences: row i of out [N, out_stride] becomes row values[i] of its feature's table. An id of
  -1 gives zeros.
*/
typedef PetscErrorCode TrsTbeForwardRowsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                           const TrsTbeInput *input, float *out, int64_t out_stride);

/*
  Update the rows with the optimizer. Every row that occurs gets one update with the sum of its
  occurrences' gradients, added in the order of features, bags, and positions in the bag. grad is
  only read. It has B rows, and a feature's gradient begins at column out_column. For a mean, the
  gradient is divided by the bag's length. If tables have different optimizers, args is an array,
  and table t uses args[table[t].optimizer].
*/
typedef PetscErrorCode TrsTbeBackwardFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                        const TrsTbeInput *input, TrsMatrix grad,
                                        const TrsSparseOptimizerArgs *args);

/*
  Find the occurrences of rows in a batch. A later call uses them as TrsTbeInput.occurrences. This
  later call must have the same tables, ids and, unless weights_later is set, weights. If
  *occurrences is NULL, it is created. Its memory grows and never shrinks, and it has no pointers to
  tables or to the batch. The stream of the later call waits for this call. Until then, other calls
  on this stream may use the workspace. Only backends that sort the ids of all tables together have
  this kernel. The CPU backend sorts one table after another, so that the keys are still in the
  processor's caches during the update. If the tables' alignment differs in the later call, that
  call may have to sort again.
*/
typedef PetscErrorCode TrsTbeFindOccurrencesFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, TrsTbeUse use,
                                               TrsTbeOccurrences *occurrences);
typedef PetscErrorCode TrsTbeOccurrencesDestroyFn(TrsTbeOccurrences *occurrences);

/*
  Compute grad_weights [N], the gradients of the ids' weights. This must run before the rows are
  updated.
*/
typedef PetscErrorCode TrsTbeWeightGradientsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                               const TrsTbeInput *input, const float *grad,
                                               int64_t grad_stride, float *grad_weights);

/*
  Do tbe_backward for sequences: row i of grad [N, grad_stride] is the gradient of the row of
  values[i].
*/
typedef PetscErrorCode TrsTbeBackwardRowsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                            const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                            const TrsSparseOptimizerArgs *args);

/* --- tables of which every rank has all rows: only gradients of rows are sent --- */

/*
  List the distinct rows that occur, in ascending order, first by table, then by row. `rows` must
  have space for N rows; row_begin, host [n_tables + 1], receives the index of each table's first
  row. Needs no gradients. The host waits for row_begin.
*/
typedef PetscErrorCode TrsTbeListRowsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                        const TrsTbeInput *input, int64_t *row_begin, int64_t *rows);

/*
  Merge n_lists lists of rows from n_tables tables. List q's rows of table t are in ascending order
  and begin at rows[begin[q * n_tables + t]]. begin is a host array [n_lists * n_tables + 1] that
  starts with 0.

  keys [n] receives the sorted rows, numbered over all tables: row r of table t has the number r
  plus the rows of the tables before t. Equal rows stay in the order of the lists. index [n]
  receives the index in `rows` of each key's row. Entries that are not rows of their table come
  last, with the total number of rows as their key.
*/
typedef PetscErrorCode TrsMergeRowsFn(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                      const TrsTbeTable *table, int n_lists, const int64_t *begin,
                                      const int64_t *rows, int64_t *keys, int64_t *index);

/*
  Sum the gradients of the rows that tbe_list_rows lists, in the same order: row_grad [n_unique,
  row_stride], where row_stride is at least the largest D. rows [n_unique] and row_begin may be
  NULL; otherwise they are filled as by tbe_list_rows. The host waits only if row_begin is set.
  row_grad and rows must then have space for N rows.
*/
typedef PetscErrorCode TrsTbeRowGradientsFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                            const TrsTbeInput *input, TrsMatrix grad, int64_t *row_begin,
                                            int64_t *rows, float *row_grad, int64_t row_stride);

/*
  Sum the squares of the gradients of the rows that occur, in blocks of TRS_SQUARES_COLUMNS columns.
  squares[t] is [ids of table t, blocks of the table's dim], or NULL to skip the table. If the ids
  of the table are sorted by row, a row's sums are at the index of the row's first id
  (TrsTbeInput.row_squares). Other entries are not written. Only for devices that use host memory.
*/
typedef PetscErrorCode TrsTbeRowSquaresFn(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                          const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                          float *const *squares);

/*
  Gradients of rows. The n keys come from merge_rows. If there is only one table, they may be the
  rows themselves. The entries of a row are summed in the given order.
*/
typedef struct {
  int64_t n;
  const int64_t *keys;  /* [n]; if NULL, entry i belongs to row i */
  const int64_t *index; /* [n] the row of grad that has entry i's gradient; if NULL, it is row i */
  const float *grad;
  int64_t stride;
} TrsRowGradients;

/* Do one optimizer step on the given rows of n_tables tables. args is as for tbe_backward. */
typedef PetscErrorCode TrsTbeUpdateRowsFn(TrsStream stream, TrsWorkspace workspace, int n_tables,
                                          const TrsTbeTable *table, const TrsRowGradients *gradients,
                                          const TrsSparseOptimizerArgs *args);

/* True if this backend can update rows with an optimizer of this kind. Host function. */
typedef PetscBool TrsTbeHasStepFn(TrsSparseOptimizerKind kind);

/* --- moving pooled rows --- */

/*
  Do n copies of adjacent columns (host array `copy`), each for `rows` rows. Their targets must not
  overlap.
*/
typedef PetscErrorCode TrsCopyColumnsFn(TrsStream stream, int64_t rows, int n, const TrsColumnCopy *copy);

/*
  Do n copies of rows (host array). No row may be written twice, and no copy may read a row that
  another copy writes.
*/
typedef PetscErrorCode TrsCopyRowsFn(TrsStream stream, TrsWorkspace workspace, int n,
                                     const TrsRowsCopy *copy);

/*
  Compute to = from[0] + from[1] + ... in this order. The parts are matrices [rows, cols] with row
  distance from_stride. `from` is a host array of pointers. `to` may be one of the first 64 parts;
  on the CPU it may be any part.
*/
typedef PetscErrorCode TrsSumMatricesFn(TrsStream stream, int n_parts, const float *const *from,
                                        int64_t from_stride, int64_t rows, int64_t cols, float *to,
                                        int64_t to_stride);

/*
  For n groups of columns (host array `mean`), divide row b by the group's lengths[b]. Rows of
  length 0 stay unchanged.
*/
typedef PetscErrorCode TrsDivideColumnsFn(TrsStream stream, int64_t rows, int n, const TrsMeanColumns *mean);

/* Clamp all elements to [-limit, limit]. */
typedef PetscErrorCode TrsClampMatrixFn(TrsStream stream, int64_t rows, int64_t cols, float limit,
                                        float *matrix, int64_t stride);

/* Multiply all elements by a factor. */
typedef PetscErrorCode TrsScaleMatrixFn(TrsStream stream, int64_t rows, int64_t cols, float factor,
                                        float *matrix, int64_t stride);

/*
  Round floats to the nearest (even) number that dtype, fp16 or bf16, can represent. They stay
  floats.
*/
typedef PetscErrorCode TrsRoundMatrixFn(TrsStream stream, int64_t rows, int64_t cols, TrsDType dtype,
                                        float *matrix, int64_t stride);

/*
  Combine two matrices of floats [rows, cols] element by element: x = a * b if `product` is true,
  and otherwise x = a + b. x may be a.
*/
typedef PetscErrorCode TrsJoinForwardFn(TrsStream stream, int64_t rows, int64_t cols, PetscBool product,
                                        TrsMatrix a, TrsMatrix b, TrsMatrix x);

/*
  Do the backward of join_forward. a and b have the same stride, and are overwritten by their
  gradients.
*/
typedef PetscErrorCode TrsJoinBackwardFn(TrsStream stream, int64_t rows, int64_t cols, PetscBool product,
                                         const float *dx, int64_t dx_stride, float *a, float *b,
                                         int64_t stride);

/* --- codecs (units_quant) --- */

/* Return the number of bytes that n floats have after encoding. Host function. */
typedef int64_t TrsCodecBytesFn(const TrsCodec *codec, int64_t n);
typedef PetscErrorCode TrsEncodeFn(TrsStream stream, const TrsCodec *codec, int64_t n, const float *from,
                                   void *to);
typedef PetscErrorCode TrsDecodeFn(TrsStream stream, const TrsCodec *codec, int64_t n, const void *from,
                                   float *to);

/*
  Convert element by element between fp32 and fp16 or bf16. Values are rounded to the nearest, ties
  to even.
*/
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
  X(ProductTable, product_table) \
  X(ProductChoices, product_choices) \
  X(ProductTimes, product_times) \
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
  X(CrossProduct, cross_product) \
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

/*
  Generators for each kernel: the member of the table, a backend's prototype, and a backend's table
  row.
*/
/* NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define TRS_KERNEL_MEMBER(Name, member)   Trs##Name##Fn *member;
#define TRS_KERNEL_CPU(Name, member)      PETSC_EXTERN Trs##Name##Fn Trs##Name##Cpu;
#define TRS_KERNEL_CPU_ROW(Name, member)  .member = Trs##Name##Cpu,
#define TRS_KERNEL_CUDA(Name, member)     PETSC_EXTERN Trs##Name##Fn Trs##Name##Cuda;
#define TRS_KERNEL_CUDA_ROW(Name, member) .member = Trs##Name##Cuda,

typedef struct {
  const char *name;
  /*
    Matrix products are fast if rows begin at multiples of this number of floats, and the inner
    dimension is a multiple of it. Callers may pad matrices with zeros for this. If 1, every layout
    is equally fast.
  */
  int64_t product_unit;
  TrsAssembleFn *assemble; /* NULL if readers make batches on the CPU */
  /* if NULL, whole rows of gradients are sent for an update instead of sums of squares */
  TrsTbeRowSquaresFn *tbe_row_squares;
  /* if both are NULL, a backward sorts the ids itself, and TrsTbeInput.occurrences must be NULL */
  TrsTbeFindOccurrencesFn *tbe_find_occurrences;
  TrsTbeOccurrencesDestroyFn *tbe_occurrences_destroy;
  /* NULL if this backend's operands are always fp32 */
  TrsCrossInputBackwardFn *cross_input_backward;
  TRS_KERNELS(TRS_KERNEL_MEMBER)
} TrsComputeOps;

extern const TrsComputeOps trs_compute_cpu;  /* cpu/compute_cpu.c */
extern const TrsComputeOps trs_compute_cuda; /* gpu/compute_cuda.c, built with TRS_HAVE_CUDA */

extern const TrsComputeOps *const trs_compute_backends[]; /* all backends; the last entry is NULL */

/* Find the kernels for the device with this name. Errors: UNAVAILABLE. Not collective. */
PetscErrorCode TrsComputeFind(const char *name, const TrsComputeOps **compute);

/*
  Return the instruction set in use ("avx512", "avx2", "portable"). It is the best that the
  processor has and that the environment variable TRSHARD_ISA allows. TRSHARD_ISA is read once per
  process. Not collective.
*/
const char *TrsComputeIsa(void);

/*
  Limit the instruction set of later kernel calls. If `limit` is NULL, the limit is that of the
  environment. BLAS keeps the instruction set with which it started. Not collective.
*/
void TrsComputeSetIsa(const char *limit);

/* Return the number of OpenMP threads that a kernel uses. Not collective. */
int TrsComputeThreads(void);
