/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/sparse.h"

#include "bench/timing.h"
#include "core/random/random.h"

enum {
  TRS_BENCH_DIM = 64,
  TRS_BENCH_POOLING = 16,
  TRS_BENCH_BAGS = 8192,
  /* 268 MB of rows. With so many, the launch of a kernel costs little and a GPU's cache is
     comparatively small. */
  TRS_BENCH_DEVICE_BAGS = 65536,
  /* one table for each feature; a sample's vectors are adjacent in a row */
  TRS_BENCH_FEATURES = 16,
  TRS_BENCH_BUCKET = 50000, /* number of rows of a table on a rank */
  TRS_BENCH_RANKS = 4,      /* number of ranks over which a table's rows are split */
  /* number of columns of the matrices that fill the cache before an update */
  TRS_BENCH_COLUMNS = 1024,
  TRS_BENCH_FLOATS = 1 << 24 /* number of floats per matrix, which must be larger than a cache */
};

/* --- lookups --- */

/*
  Draw the ids of a round in `host`, and copy them to `values`. Each round uses other rows, because
  the rows of the last round may still be cached.
*/
static PetscErrorCode draw_values(const TrsDeviceOps *device, int round, int64_t rows, int64_t n,
                                  int64_t *host, void *values)
{
  PetscFunctionBegin;
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits[4];
    TrsRandom(0, TRS_RANDOM_TEST, (uint64_t)round, (uint64_t)i, bits);
    host[i] = (int64_t)(((uint64_t)bits[1] << 32 | bits[0]) % (uint64_t)rows);
  }
  PetscCall(device->copy(values, host, n * (int64_t)sizeof(*host), NULL));
  PetscCall(device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsTbeTable table[TRS_BENCH_FEATURES]; /* a table for each feature; all are like the first */
  TrsTbeFeature feature[TRS_BENCH_FEATURES];
  TrsTbe tbe;
  TrsTbeInput input;
  void *offsets, *values, *out; /* out: the pooled rows, or their gradients */
  int64_t n_other;
  float *other; /* [n_other] data that fills the cache before an update */
  TrsWorkspace workspace;
  int64_t *host;
  int64_t step;
} TrsBenchLookup;

static PetscErrorCode prepare_lookup(void *context, int round)
{
  const TrsBenchLookup *b = (const TrsBenchLookup *)context;

  PetscFunctionBegin;
  PetscCall(draw_values(b->device, round, b->table->rows, b->input.n_values, b->host, b->values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Set up the caches as they are in a step: rows and ids must come from memory. The gradients were
  written last, so they are in the cache if it is large enough.
*/
static PetscErrorCode prepare_update(void *context, int round)
{
  const TrsBenchLookup *b = (const TrsBenchLookup *)context;
  const int64_t half = b->n_other / 2, cols = TRS_BENCH_COLUMNS,
                width = (int64_t)b->tbe.n_features * b->table->dim;

  PetscFunctionBegin;
  PetscCall(b->compute->join_forward(NULL, half / cols, cols, PETSC_FALSE, TrsFloats(b->other, cols),
                                     TrsFloats(b->other + half, cols), TrsFloats(b->other, cols)));
  PetscCall(b->device->stream_synchronize(NULL));
  PetscCall(prepare_lookup(context, round));
  PetscCall(b->compute->scale_matrix(NULL, b->input.batch, width, 0.5F, (float *)b->out, width));
  PetscCall(b->device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_lookup(void *context)
{
  const TrsBenchLookup *b = (const TrsBenchLookup *)context;

  PetscFunctionBegin;
  PetscCall(b->compute->tbe_forward(NULL, b->workspace, &b->tbe, &b->input,
                                    TrsFloats((float *)b->out, (int64_t)b->tbe.n_features * b->table->dim)));
  PetscCall(b->device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The forward's output is used as the gradients. It has only zeros, which take as long as other
  numbers.
*/
static PetscErrorCode run_update(void *context)
{
  TrsBenchLookup *b = (TrsBenchLookup *)context;
  const TrsSparseOptimizerArgs args = {
      .kind = TRS_OPTIM_ROWWISE_ADAGRAD, .learning_rate = 0.01F, .eps = 1e-8F, .step = ++b->step};

  PetscFunctionBegin;
  PetscCall(b->compute->tbe_backward(
      NULL, b->workspace, &b->tbe, &b->input,
      TrsFloats((const float *)b->out, (int64_t)b->tbe.n_features * b->table->dim), &args));
  PetscCall(b->device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Make a table for each feature in one block of memory. All have the type and width of the first
  table.
*/
static PetscErrorCode open_tables(TrsBenchLookup *b, int64_t table_bytes, int n_features)
{
  const TrsDeviceOps *device = b->device;
  TrsTbeTable *first = &b->table[0];
  const int64_t row_bytes = first->dim * (int64_t)TrsDTypeBytes(first->dtype);
  int64_t state_bytes;

  PetscFunctionBegin;
  first->rows = table_bytes / row_bytes / n_features;
  first->stride = first->table_dim = first->dim;
  state_bytes = first->rows * (int64_t)sizeof(float);
  PetscCall(device->alloc(n_features * first->rows * row_bytes, &first->weight));
  PetscCall(device->alloc(n_features * state_bytes, (void **)&first->state[0]));
  /* Write zeros, so that the system provides memory for every page. */
  PetscCall(device->zero(first->weight, n_features * first->rows * row_bytes, NULL));
  PetscCall(device->zero(first->state[0], n_features * state_bytes, NULL));
  for (int f = 0; f < n_features; f++) {
    b->table[f] = *first;
    b->table[f].weight = (char *)first->weight + f * first->rows * row_bytes;
    b->table[f].state[0] = first->state[0] + f * first->rows;
    b->feature[f] = (TrsTbeFeature){.table = f, .out_column = (int64_t)f * first->dim};
  }
  b->tbe = (TrsTbe){
      .n_tables = n_features, .n_features = n_features, .table = b->table, .feature = b->feature};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Make tables with table_bytes in total, and a state for each row. Also allocate memory for bags of
  `pooling` ids. The bags belong to n_features features, and a sample's vectors are adjacent.
*/
static PetscErrorCode open_lookup(TrsBenchLookup *b, int64_t table_bytes, int n_features, int64_t bags,
                                  int64_t pooling)
{
  const TrsDeviceOps *device = b->device;
  const int64_t n = bags * pooling;

  PetscFunctionBegin;
  PetscCall(open_tables(b, table_bytes, n_features));
  PetscCall(device->alloc(bags * b->table->dim * (int64_t)sizeof(float), &b->out));
  PetscCall(device->alloc((bags + 1) * (int64_t)sizeof(*b->host), &b->offsets));
  PetscCall(device->alloc(n * (int64_t)sizeof(*b->host), &b->values));
  /* This memory first holds offsets to be copied, then ids. */
  PetscCall(TrsAlloc(n + 1, sizeof(*b->host), &b->host));
  PetscCall(b->compute->workspace_create(&b->workspace));
  for (int64_t i = 0; i <= bags; i++) b->host[i] = i * pooling;
  PetscCall(device->copy(b->offsets, b->host, (bags + 1) * (int64_t)sizeof(*b->host), NULL));
  /* Wait for the copy before `host` is used again. */
  PetscCall(device->stream_synchronize(NULL));
  b->input = (TrsTbeInput){.batch = bags / n_features,
                           .n_values = n,
                           .offsets = (const int64_t *)b->offsets,
                           .values = (const int64_t *)b->values};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode close_lookup(TrsBenchLookup *b)
{
  PetscFunctionBegin;
  PetscCall(b->compute->workspace_destroy(&b->workspace));
  PetscCall(TrsFree(&b->host));
  PetscCall(b->device->release(&b->values));
  PetscCall(b->device->release(&b->offsets));
  PetscCall(b->device->release(&b->out));
  PetscCall(b->device->release((void **)&b->table->state[0]));
  PetscCall(b->device->release(&b->table->weight));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Measure the bytes/ms at which a rank looks up rows, while all ranks do the same. */
static PetscErrorCode measure_memory(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates)
{
  const int64_t row_bytes = TRS_BENCH_DIM * (int64_t)sizeof(float);
  /* at most half of the rows, so that few rows of a small table are read twice */
  const int64_t half = table_bytes / row_bytes / 2 / TRS_BENCH_POOLING;
  const int64_t bags = machine->device->host_memory ? TRS_BENCH_BAGS
                                                    : PetscMin(half, (int64_t)TRS_BENCH_DEVICE_BAGS);
  TrsBenchLookup b = {.device = machine->device,
                      .compute = machine->compute,
                      .table = {{.dim = TRS_BENCH_DIM, .dtype = TRS_FP32}}};
  double median;

  PetscFunctionBegin;
  PetscCall(open_lookup(&b, table_bytes, 1, bags, TRS_BENCH_POOLING));
  PetscCall(
      TrsBenchTime(machine->comm, &(TrsBenchWork){prepare_lookup, run_lookup, &b}, &median, &rates->spread));
  rates->memory = (double)(bags * TRS_BENCH_POOLING * row_bytes) / (1e3 * median);
  PetscCall(close_lookup(&b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- rows by width and type --- */

/* Milliseconds per id for a lookup and for an update. */
typedef struct {
  double read_ms, update_ms;
} TrsBenchRow;

/*
  Measure rows of a given width and type, with one id per bag. On CPUs all widths have the same
  number of rows, so that a batch's rows are equally close together. On a GPU narrow tables have
  more rows, because otherwise the cache would hold them.
*/
static PetscErrorCode measure_row(const TrsMachine *machine, int64_t table_bytes, int32_t dim, TrsDType dtype,
                                  PetscBool stochastic, TrsBenchRates *rates, TrsBenchRow *row)
{
  const int64_t bags = TrsBenchAmount(TRS_BENCH_DEVICE_BAGS, table_bytes);
  TrsBenchLookup b = {.device = machine->device,
                      .compute = machine->compute,
                      .n_other = TrsBenchAmount(TRS_BENCH_FLOATS, table_bytes),
                      .table = {{.dim = dim, .dtype = dtype, .stochastic_rounding = (int32_t)stochastic}}};
  double median;

  PetscFunctionBegin;
  if (b.device->host_memory) table_bytes = table_bytes * dim * TrsDTypeBytes(dtype) / (4 * TRS_BENCH_WIDE);
  PetscCall(b.device->alloc(b.n_other * (int64_t)sizeof(float), (void **)&b.other));
  PetscCall(b.device->zero(b.other, b.n_other * (int64_t)sizeof(float), NULL));
  PetscCall(open_lookup(&b, table_bytes, TRS_BENCH_FEATURES, bags, 1));
  PetscCall(
      TrsBenchTime(machine->comm, &(TrsBenchWork){prepare_lookup, run_lookup, &b}, &median, &rates->spread));
  row->read_ms = 1e3 * median / (double)bags;
  PetscCall(
      TrsBenchTime(machine->comm, &(TrsBenchWork){prepare_update, run_update, &b}, &median, &rates->spread));
  row->update_ms = 1e3 * median / (double)bags;
  PetscCall(close_lookup(&b));
  PetscCall(b.device->release((void **)&b.other));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Measure the cost per id of lookups and updates, first for rows of two widths, then for other
  types.
*/
static PetscErrorCode measure_rows(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates)
{
  const double narrow_bytes = 4.0 * TRS_BENCH_NARROW, wide_bytes = 4.0 * TRS_BENCH_WIDE;
  TrsBenchRow narrow = {0}, wide = {0}, half = {0}, stochastic = {0};

  PetscFunctionBegin;
  PetscCall(measure_row(machine, table_bytes, TRS_BENCH_NARROW, TRS_FP32, PETSC_FALSE, rates, &narrow));
  PetscCall(measure_row(machine, table_bytes, TRS_BENCH_WIDE, TRS_FP32, PETSC_FALSE, rates, &wide));
  PetscCall(measure_row(machine, table_bytes, TRS_BENCH_WIDE, TRS_FP16, PETSC_FALSE, rates, &half));
  PetscCall(measure_row(machine, table_bytes, TRS_BENCH_WIDE, TRS_FP16, PETSC_TRUE, rates, &stochastic));
  /* A lookup reads the row and writes the bag's vector. */
  TrsBenchFit(2.0 * narrow_bytes, narrow.read_ms, 2.0 * wide_bytes, wide.read_ms, &rates->rows.read_bw,
              &rates->rows.read_overhead);
  /* An update reads the gradient, and reads and writes the row and the state. */
  TrsBenchFit(3.0 * narrow_bytes + 8.0, narrow.update_ms, 3.0 * wide_bytes + 8.0, wide.update_ms,
              &rates->rows.update_bw, &rates->rows.update_overhead);
  rates->rows.half_update = half.update_ms / wide.update_ms;
  rates->rows.stochastic_update = stochastic.update_ms / wide.update_ms;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- splitting ids by rank --- */

typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsBucketSpec cut_by[TRS_BENCH_FEATURES];
  TrsJagged in, out;
  TrsWorkspace workspace;
} TrsBenchCut;

static PetscErrorCode run_cut(void *context)
{
  TrsBenchCut *b = (TrsBenchCut *)context;

  PetscFunctionBegin;
  PetscCall(b->compute->bucketize(NULL, b->workspace, TRS_BENCH_RANKS, TRS_BENCH_FEATURES,
                                  b->in.n_bags / TRS_BENCH_FEATURES, b->cut_by, &b->in, &b->out, NULL));
  PetscCall(b->device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_jagged(const TrsDeviceOps *device, int64_t bags, int64_t n, TrsJagged *jagged)
{
  PetscFunctionBegin;
  *jagged = (TrsJagged){.n_bags = bags, .n_values = n};
  PetscCall(device->alloc(bags * (int64_t)sizeof(*jagged->lengths), (void **)&jagged->lengths));
  PetscCall(device->alloc((bags + 1) * (int64_t)sizeof(*jagged->offsets), (void **)&jagged->offsets));
  PetscCall(device->alloc(n * (int64_t)sizeof(*jagged->values), (void **)&jagged->values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode close_jagged(const TrsDeviceOps *device, TrsJagged *jagged)
{
  PetscFunctionBegin;
  PetscCall(device->release((void **)&jagged->values));
  PetscCall(device->release((void **)&jagged->offsets));
  PetscCall(device->release((void **)&jagged->lengths));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Measure the ms per bag for splitting `bags` bags of `pooling` ids. */
static PetscErrorCode measure_bag_cut(const TrsMachine *machine, int64_t bags, int64_t pooling,
                                      double *spread, double *ms)
{
  const TrsDeviceOps *device = machine->device;
  const int64_t n = bags * pooling;
  TrsBenchCut b = {.device = device, .compute = machine->compute};
  int64_t *host;
  double median;

  PetscFunctionBegin;
  for (int f = 0; f < TRS_BENCH_FEATURES; f++) b.cut_by[f] = (TrsBucketSpec){.bucket_rows = TRS_BENCH_BUCKET};
  PetscCall(TrsAlloc(n, sizeof(*host), &host));
  PetscCall(open_jagged(device, bags, n, &b.in));
  PetscCall(open_jagged(device, TRS_BENCH_RANKS * bags, n, &b.out));
  PetscCall(b.compute->workspace_create(&b.workspace));
  for (int64_t i = 0; i < bags; i++) ((int32_t *)host)[i] = (int32_t)pooling;
  PetscCall(device->copy(b.in.lengths, host, bags * (int64_t)sizeof(*b.in.lengths), NULL));
  PetscCall(b.compute->offsets(NULL, bags, b.in.lengths, b.in.offsets));
  PetscCall(device->stream_synchronize(NULL));
  PetscCall(draw_values(device, 0, TRS_BENCH_RANKS * (int64_t)TRS_BENCH_BUCKET, n, host, b.in.values));
  PetscCall(TrsBenchTime(machine->comm, &(TrsBenchWork){NULL, run_cut, &b}, &median, spread));
  *ms = 1e3 * median / (double)bags;
  PetscCall(b.compute->workspace_destroy(&b.workspace));
  PetscCall(close_jagged(device, &b.out));
  PetscCall(close_jagged(device, &b.in));
  PetscCall(TrsFree(&host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Measure the time to split bags with one id, and bags with many ids. */
static PetscErrorCode measure_cut(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates)
{
  const int64_t bags = TrsBenchAmount((int64_t)TRS_BENCH_BAGS * TRS_BENCH_RANKS, table_bytes);
  double one = 0.0, many = 0.0;

  PetscFunctionBegin;
  PetscCall(measure_bag_cut(machine, bags, 1, &rates->spread, &one));
  PetscCall(measure_bag_cut(machine, bags, TRS_BENCH_POOLING, &rates->spread, &many));
  TrsBenchFit(sizeof(int64_t), one, (double)TRS_BENCH_POOLING * sizeof(int64_t), many, &rates->rows.cut_bw,
              &rates->rows.cut_overhead);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBenchSparse(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates)
{
  PetscFunctionBegin;
  PetscCall(measure_memory(machine, table_bytes, rates));
  PetscCall(measure_rows(machine, table_bytes, rates));
  PetscCall(measure_cut(machine, table_bytes, rates));
  PetscFunctionReturn(PETSC_SUCCESS);
}
