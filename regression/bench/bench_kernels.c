/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares embedding kernels, bucketize, permute, the dot interaction and codecs with the machine's
  limits. They take turns in the same process.

    OMP_NUM_THREADS=1 bench_kernels [-rounds 9] [-tables 26] [-rows 100000] [-dim 64] [-pooling 10]
                                    [-batch_size 2048]

  The limits are: a random gather of rows with the best of several prefetch distances and kinds of
  store, a random read-modify-write of rows, and memcpy. The gather and the read-modify-write use
  one table that is as large as all tables of the benchmark together. bench_limits.c measures the
  limit of a whole step.

  Prints one line for each kernel: name, M rows/s (ids, values or samples of the interaction), GB/s
  of rows or floats, and the ratio to the limit's rate. The numbers are medians over rounds. With
  one thread, time is processor time, which other programs disturb less.
*/
#include "bench.h"
#include "compute/compute_ops.h"
#include "compute/quant.h"
#include "core/options/options.h"
#include "core/random/random.h"
#include "limits.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/*
  Limits move LIMIT_BYTES of rows. Ids rotate over N_BATCHES batches. So no cache holds data that is
  used again.
*/
enum { MAX_ROUNDS = 101, MAX_RESULTS = 32, CODEC_VALUES = 1 << 22, N_BATCHES = 8, LIMIT_BYTES = 1 << 28 };

static const TrsOptionSpec specs[] = {
    {"-rounds", TRS_OPTION_INT, "9", "[1,101]", NULL, NULL, "rounds, of which the median counts"},
    {"-tables", TRS_OPTION_INT, "26", "[1,]", NULL, NULL, "tables, each with one feature"},
    {"-rows", TRS_OPTION_INT, "100000", "[1,]", NULL, "rows", "rows of a table"},
    {"-dim", TRS_OPTION_INT, "64", "[1,]", NULL, NULL, "their width"},
    {"-pooling", TRS_OPTION_INT, "10", "[1,]", NULL, "ids", "ids of a bag"},
    {"-batch_size", TRS_OPTION_INT, "2048", "[1,]", NULL, "samples", "bags of a feature"},
};
static const TrsOptionGroup bench_options = TRS_OPTION_GROUP("Bench", specs);

typedef struct {
  /* limit: name of the result with which this result is compared, or NULL */
  const char *name, *limit;
  double items, bytes; /* number of items and bytes of one call */
  double seconds[MAX_ROUNDS];
} result;

typedef struct {
  int64_t rounds, tables, rows, dim, pooling, batch, n; /* n is the number of ids */
  const TrsComputeOps *compute;
  TrsWorkspace workspace;
  TrsTbeTable *table;
  TrsTbeFeature *feature;
  TrsTbeInput input;
  int64_t *offsets, *values; /* values of all batches */
  int64_t n_limit;
  uint32_t *row; /* [n_limit] rows of the limits' table */
  float *weight, *state, *out, *grad, *limit_out;
  void *narrow; /* the table in the format under test */
  TrsJagged jagged, buckets;
  int32_t *lengths;
  TrsBucketSpec *spec;
  /* [tables + 1] first bag of each feature of the jagged tensor; permute reverses the features */
  int64_t *block_begin;
  int *reversed;
  /*
    for the interaction: [batch, (1 + tables) dim], [batch, n_products], and the shape of vectors
  */
  float *vectors, *products, *vectors_grad;
  float *floats, *decoded;
  uint8_t *bytes;
  result results[MAX_RESULTS];
  int n_results;
  int64_t round; /* round -1 is the warm-up */
} bench;

static void note(bench *b, const char *name, const char *limit, double items, double bytes, double seconds)
{
  int i = 0;

  while (i < b->n_results && strcmp(b->results[i].name, name) != 0) i++;
  if (i == b->n_results)
    b->results[b->n_results++] = (result){.name = name, .limit = limit, .items = items, .bytes = bytes};
  b->results[i].seconds[b->round < 0 ? 0 : b->round] = seconds;
}

/*
  Begin a measurement on all ranks at the same time, so that they share memory bandwidth and caches.
*/
static PetscErrorCode begin_together(double *start)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Barrier(MPI_COMM_WORLD));
  *start = bench_now();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- limits --- */

INLINE void modify_dim(const int D, float *table, const uint32_t *row, int64_t n, int64_t ahead, int pairs)
{
  for (int64_t i = 0; i < n; i++) {
    prefetch_rows(D, table, row, n, i, ahead, pairs);
    for (int v = 0; v < D / LANES; v++) *(Vec *)(table + (int64_t)row[i] * D + (int64_t)LANES * v) *= 0.9999f;
  }
}

WIDE static void modify(int64_t D, float *table, const uint32_t *row, int64_t n, int64_t ahead, int pairs)
{
  if (D == 32) modify_dim(32, table, row, n, ahead, pairs);
  if (D == 64) modify_dim(64, table, row, n, ahead, pairs);
  if (D == 128) modify_dim(128, table, row, n, ahead, pairs);
  if (D == 256) modify_dim(256, table, row, n, ahead, pairs);
}

/* Run the limits with threads that share the bags. The best setting counts. */
static PetscErrorCode run_limits(bench *b)
{
  const int64_t bytes = b->dim * (int64_t)sizeof(float), bags = b->n_limit / b->pooling,
                n = bags * b->pooling;
  double best_gather = 1e9, best_modify = 1e9, start;

  PetscFunctionBegin;
  for (int64_t ahead = 8; ahead <= 32; ahead *= 2) {
    for (int kind = 0; kind < 4; kind++) {
      PetscCall(begin_together(&start));
#pragma omp parallel for schedule(static)
      for (int64_t part = 0; part < 64; part++) {
        const int64_t first = part * bags / 64, end = (part + 1) * bags / 64;

        gather(b->dim, b->weight, b->row + first * b->pooling, (end - first) * b->pooling, b->pooling, ahead,
               kind, b->limit_out + first * b->dim, b->dim);
      }
      best_gather = PetscMin(best_gather, bench_now() - start);
    }
  }
  for (int64_t ahead = 8; ahead <= 32; ahead *= 2) {
    for (int pairs = 0; pairs < 2; pairs++) {
      PetscCall(begin_together(&start));
#pragma omp parallel for schedule(static)
      for (int64_t part = 0; part < 64; part++)
        modify(b->dim, b->weight, b->row + part * n / 64, (part + 1) * n / 64 - part * n / 64, ahead, pairs);
      best_modify = PetscMin(best_modify, bench_now() - start);
    }
  }
  note(b, "limit gather", NULL, (double)n, (double)(n * bytes), best_gather);
  note(b, "limit read-modify-write", NULL, (double)n, 2.0 * (double)(n * bytes), best_modify);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- kernels --- */

static PetscErrorCode run_forward(bench *b, const char *name, TrsDType dtype, int64_t row_bytes)
{
  double start;

  PetscFunctionBegin;
  for (int64_t t = 0; t < b->tables; t++) {
    const int element = TrsDTypeBits(dtype) > 8 ? TrsDTypeBytes(dtype) : 1;

    b->table[t].dtype = dtype;
    b->table[t].stride = row_bytes / element;
    b->table[t].weight = (char *)(dtype == TRS_FP32 ? (void *)b->weight : b->narrow) +
                         t * b->rows * row_bytes;
  }
  start = bench_now();
  PetscCall(b->compute->tbe_forward(NULL, b->workspace,
                                    &(TrsTbe){(int)b->tables, (int)b->tables, b->table, b->feature},
                                    &b->input, TrsFloats(b->out, b->tables * b->dim)));
  note(b, name, "limit gather", (double)b->n, (double)(b->n * row_bytes), bench_now() - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_narrow_forward(bench *b, const char *name, TrsDType dtype)
{
  const int64_t row_bytes = TrsQuantRowBytes(dtype, TRS_ROWS_TBE, (int)b->dim);

  PetscFunctionBegin;
  PetscCall(
      TrsQuantiseRows(dtype, TRS_ROWS_TBE, b->tables * b->rows, (int)b->dim, b->weight, b->dim, b->narrow));
  PetscCall(run_forward(b, name, dtype, row_bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_backward(bench *b, const char *name, TrsSparseOptimizerKind kind, TrsDType dtype,
                                   PetscBool stochastic)
{
  const TrsSparseOptimizerArgs args = {
      .kind = kind, .learning_rate = 1e-3f, .eps = 1e-8f, .step = b->round + 2};
  const int64_t table_bytes = b->rows * b->dim * TrsDTypeBytes(dtype);
  double start;

  PetscFunctionBegin;
  if (dtype != TRS_FP32)
    PetscCall(
        TrsQuantiseRows(dtype, TRS_ROWS_TBE, b->tables * b->rows, (int)b->dim, b->weight, b->dim, b->narrow));
  for (int64_t t = 0; t < b->tables; t++) {
    b->table[t].dtype = dtype;
    b->table[t].stochastic_rounding = stochastic;
    b->table[t].stride = b->dim;
    b->table[t].weight = (char *)(dtype == TRS_FP32 ? (void *)b->weight : b->narrow) + t * table_bytes;
    b->table[t].state[0] = b->state + t * b->rows;
  }
  start = bench_now();
  PetscCall(b->compute->tbe_backward(NULL, b->workspace,
                                     &(TrsTbe){(int)b->tables, (int)b->tables, b->table, b->feature},
                                     &b->input, TrsFloats(b->grad, b->tables * b->dim), &args));
  note(b, name, "limit read-modify-write", (double)b->n, 2.0 * (double)(b->n * b->dim) * TrsDTypeBytes(dtype),
       bench_now() - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_bucketize(bench *b, const char *name, int n_buckets)
{
  double start;

  PetscFunctionBegin;
  for (int64_t t = 0; t < b->tables; t++) b->spec[t].bucket_rows = (b->rows + n_buckets - 1) / n_buckets;
  start = bench_now();
  PetscCall(b->compute->bucketize(NULL, b->workspace, n_buckets, (int)b->tables, b->batch, b->spec,
                                  &b->jagged, &b->buckets, NULL));
  note(b, name, NULL, (double)b->n, 16.0 * (double)b->n, bench_now() - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_permute(bench *b)
{
  const double start = bench_now();

  PetscFunctionBegin;
  PetscCall(b->compute->permute_blocks(NULL, b->workspace, (int)b->tables, b->block_begin, (int)b->tables,
                                       b->reversed, &b->jagged, &b->buckets));
  note(b, "permute", NULL, (double)b->n, 16.0 * (double)b->n, bench_now() - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Number of floats in a sample's dot interaction: the dense vector and one number for each pair of
  vectors.
*/
static int64_t n_products(const bench *b)
{
  return b->dim + b->tables * (b->tables + 1) / 2;
}

static PetscErrorCode run_interaction(bench *b)
{
  const int n = (int)b->tables + 1, D = (int)b->dim;
  const int64_t width = (int64_t)n * b->dim;
  const double bytes = 4.0 * (double)(b->batch * (width + n_products(b)));
  double start = bench_now();

  PetscFunctionBegin;
  PetscCall(b->compute->dot_forward(NULL, b->batch, n, D, D, 0, TrsFloats(b->vectors, width),
                                    TrsFloats(b->products, n_products(b))));
  note(b, "interaction dot", NULL, (double)b->batch, bytes, bench_now() - start);
  start = bench_now();
  PetscCall(b->compute->dot_backward(NULL, b->batch, n, D, D, TrsFloats(b->vectors, width),
                                     TrsFloats(b->products, n_products(b)),
                                     TrsFloats(b->vectors_grad, width)));
  note(b, "interaction dot backward", NULL, (double)b->batch, 2.0 * bytes, bench_now() - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_codec(bench *b, const char *encode, const char *decode, const TrsCodec *codec)
{
  const double n = (double)CODEC_VALUES;
  double start = bench_now();

  PetscFunctionBegin;
  PetscCall(b->compute->encode(NULL, codec, CODEC_VALUES, b->floats, b->bytes));
  note(b, encode, "limit memcpy", n, 4.0 * n, bench_now() - start);
  start = bench_now();
  PetscCall(b->compute->decode(NULL, codec, CODEC_VALUES, b->bytes, b->decoded));
  note(b, decode, "limit memcpy", n, 4.0 * n, bench_now() - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_memcpy(bench *b)
{
  double start;

  PetscFunctionBegin;
  PetscCall(begin_together(&start));
  memcpy(b->decoded, b->floats, CODEC_VALUES * sizeof(float));
  note(b, "limit memcpy", NULL, CODEC_VALUES, 4.0 * CODEC_VALUES, bench_now() - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_round(bench *b)
{
  PetscFunctionBegin;
  b->input.values = b->jagged.values = b->values + (b->round + 1) % N_BATCHES * b->n;
  PetscCall(run_limits(b));
  PetscCall(run_memcpy(b));
  PetscCall(run_forward(b, "forward fp32", TRS_FP32, 4 * b->dim));
  PetscCall(run_backward(b, "backward rowwise_adagrad", TRS_OPTIM_ROWWISE_ADAGRAD, TRS_FP32, PETSC_FALSE));
  for (int i = 0; i < 4; i++) {
    static const char *const names[] = {"backward bf16", "backward fp16", "backward bf16 stochastic",
                                        "backward fp16 stochastic"};
    PetscCall(run_backward(b, names[i], TRS_OPTIM_ROWWISE_ADAGRAD, i % 2 ? TRS_FP16 : TRS_BF16,
                           (PetscBool)(i > 1)));
  }
  PetscCall(run_backward(b, "backward sgd", TRS_OPTIM_SGD, TRS_FP32, PETSC_FALSE));
  PetscCall(run_narrow_forward(b, "forward fp16", TRS_FP16));
  PetscCall(run_narrow_forward(b, "forward int8", TRS_INT8));
  PetscCall(run_narrow_forward(b, "forward int4", TRS_INT4));
  PetscCall(run_narrow_forward(b, "forward int2", TRS_INT2));
  PetscCall(run_bucketize(b, "bucketize 8", 8));
  PetscCall(run_bucketize(b, "bucketize 64", 64));
  PetscCall(run_permute(b));
  PetscCall(run_interaction(b));
  PetscCall(
      run_codec(b, "encode fp16", "decode fp16", &(TrsCodec){.kind = TRS_CODEC_FP16, .loss_scale = 1.0f}));
  PetscCall(
      run_codec(b, "encode bf16", "decode bf16", &(TrsCodec){.kind = TRS_CODEC_BF16, .loss_scale = 1.0f}));
  PetscCall(run_codec(b, "encode fp8", "decode fp8", &(TrsCodec){.kind = TRS_CODEC_FP8}));
  PetscCall(
      run_codec(b, "encode fp8 rows", "decode fp8 rows", &(TrsCodec){.kind = TRS_CODEC_FP8, .row_dim = 64}));
  PetscCall(run_codec(b, "encode int8", "decode int8", &(TrsCodec){.kind = TRS_CODEC_INT8, .row_dim = 32}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- main program --- */

static uint32_t draw(uint64_t a, uint64_t i, int64_t limit)
{
  uint32_t bits[4];

  TrsRandom(1, TRS_RANDOM_TEST, a, i, bits);
  return (uint32_t)(bits[0] % (uint64_t)limit);
}

static PetscErrorCode set_up(bench *b, TrsOptions options)
{
  int64_t *const numbers[] = {&b->rounds, &b->tables, &b->rows, &b->dim, &b->pooling, &b->batch};

  PetscFunctionBegin;
  for (int i = 0; i < 6; i++) PetscCall(TrsOptionsGetInt(options, specs[i].name, numbers[i], NULL));
  PetscCall(TrsComputeFind("cpu", &b->compute));
  PetscCall(b->compute->workspace_create(&b->workspace));
  b->n = b->tables * b->batch * b->pooling;
  b->n_limit = LIMIT_BYTES / 4 / b->dim;
  PetscCall(PetscCalloc3((size_t)b->tables, &b->table, (size_t)b->tables, &b->feature, (size_t)b->tables,
                         &b->spec));
  PetscCall(TrsAlloc(b->tables * b->batch + 1, sizeof(int64_t), &b->offsets));
  PetscCall(TrsAlloc(b->tables * b->batch, sizeof(int32_t), &b->lengths));
  PetscCall(TrsAlloc(N_BATCHES * b->n, sizeof(int64_t), &b->values));
  PetscCall(TrsAlloc(b->n_limit, sizeof(uint32_t), &b->row));
  PetscCall(TrsAlloc(b->n_limit / b->pooling * b->dim, sizeof(float), &b->limit_out));
  PetscCall(TrsAlloc(b->tables * b->rows * b->dim, sizeof(float), &b->weight));
  PetscCall(TrsAlloc(b->tables * b->rows * (b->dim + 8), 2, &b->narrow));
  PetscCall(TrsAlloc(b->tables * b->rows, sizeof(float), &b->state));
  PetscCall(TrsAlloc(b->tables * b->batch * b->dim, sizeof(float), &b->out));
  PetscCall(TrsAlloc(b->tables * b->batch * b->dim, sizeof(float), &b->grad));
  PetscCall(TrsAlloc(64 * b->tables * b->batch, sizeof(int32_t), &b->buckets.lengths));
  PetscCall(TrsAlloc(b->n, sizeof(int64_t), &b->buckets.values));
  PetscCall(TrsAlloc(b->tables + 1, sizeof(int64_t), &b->block_begin));
  PetscCall(TrsAlloc(b->tables, sizeof(int), &b->reversed));
  PetscCall(TrsAlloc(b->batch * (b->tables + 1) * b->dim, sizeof(float), &b->vectors));
  PetscCall(TrsAlloc(b->batch * (b->tables + 1) * b->dim, sizeof(float), &b->vectors_grad));
  PetscCall(TrsAlloc(b->batch * n_products(b), sizeof(float), &b->products));
  PetscCall(TrsAlloc(CODEC_VALUES, sizeof(float), &b->floats));
  PetscCall(TrsAlloc(CODEC_VALUES, sizeof(float), &b->decoded));
  PetscCall(TrsAlloc(CODEC_VALUES, 2 * sizeof(float), &b->bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void fill(bench *b)
{
  for (int64_t i = 0; i < b->tables * b->batch; i++) {
    b->lengths[i] = (int32_t)b->pooling;
    b->offsets[i + 1] = b->offsets[i] + b->pooling;
  }
  for (int64_t i = 0; i < N_BATCHES * b->n; i++) b->values[i] = draw(1, (uint64_t)i, b->rows);
  for (int64_t i = 0; i < b->n_limit; i++) b->row[i] = draw(2, (uint64_t)i, b->tables * b->rows);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 3, 0, b->tables * b->rows * b->dim, -1.0f / sqrtf((float)b->rows),
                       1.0f / sqrtf((float)b->rows), b->weight);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 4, 0, b->tables * b->batch * b->dim, -0.1f, 0.1f, b->grad);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 5, 0, CODEC_VALUES, -1.0f, 1.0f, b->floats);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 6, 0, b->batch * (b->tables + 1) * b->dim, -0.1f, 0.1f,
                       b->vectors);
  for (int64_t t = 0; t <= b->tables; t++) b->block_begin[t] = t * b->batch;
  for (int64_t t = 0; t < b->tables; t++) b->reversed[t] = (int)(b->tables - 1 - t);
  b->input = (TrsTbeInput){.batch = b->batch, .offsets = b->offsets, .values = b->values, .n_values = b->n};
  b->jagged = (TrsJagged){.n_bags = b->tables * b->batch,
                          .n_values = b->n,
                          .lengths = b->lengths,
                          .offsets = b->offsets,
                          .values = b->values};
  for (int64_t t = 0; t < b->tables; t++) {
    b->table[t] = (TrsTbeTable){.rows = b->rows, .dim = (int32_t)b->dim, .table_dim = b->dim};
    b->feature[t] = (TrsTbeFeature){.table = (int32_t)t, .out_column = t * b->dim};
  }
}

static PetscErrorCode report(bench *b)
{
  PetscFunctionBegin;
  PetscCall(PetscPrintf(PETSC_COMM_SELF,
                        "# %s, %d threads, %" PRId64 " tables of %" PRId64 " x %" PRId64 ", pooling %" PRId64
                        ", batch %" PRId64 "\nkernel,M/s,GB/s,of limit\n",
                        TrsComputeIsa(), TrsComputeThreads(), b->tables, b->rows, b->dim, b->pooling,
                        b->batch));
  for (int i = 0; i < b->n_results; i++) {
    result *r = &b->results[i];
    const double s = bench_median(b->rounds, r->seconds);
    double ratio = 1.0;

    for (int j = 0; j < b->n_results; j++)
      if (r->limit && strcmp(b->results[j].name, r->limit) == 0)
        ratio = r->items / s / (b->results[j].items / bench_median(b->rounds, b->results[j].seconds));
    PetscCall(PetscPrintf(PETSC_COMM_SELF, "%s,%.1f,%.2f,%.2f\n", r->name, 1e-6 * r->items / s,
                          1e-9 * r->bytes / s, ratio));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode bench_kernels(int argc, char **argv)
{
  static const TrsOptionGroup *const groups[] = {&bench_options};
  TrsOptions options;
  bench *b;

  PetscFunctionBegin;
  PetscCall(PetscNew(&b));
  PetscCall(TrsOptionsCreate(PETSC_COMM_SELF, argc, argv, groups, 1, &options));
  PetscCall(set_up(b, options));
  fill(b);
  for (b->round = -1; b->round < b->rounds; b->round++) PetscCall(run_round(b));
  PetscCall(report(b));
  PetscCall(b->compute->workspace_destroy(&b->workspace));
  void *const memory[] = {&b->offsets,        &b->lengths,
                          &b->values,         &b->row,
                          &b->weight,         &b->narrow,
                          &b->state,          &b->out,
                          &b->limit_out,      &b->grad,
                          &b->floats,         &b->decoded,
                          &b->bytes,          &b->buckets.lengths,
                          &b->buckets.values, &b->block_begin,
                          &b->reversed,       &b->vectors,
                          &b->products,       &b->vectors_grad};
  for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) PetscCall(TrsFree(memory[i]));
  PetscCall(PetscFree3(b->table, b->feature, b->spec));
  PetscCall(PetscFree(b));
  PetscCall(TrsOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  return bench_main(argc, argv, bench_kernels);
}
