/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares embedding lookup, the fused update, regrouping and the codecs of exchanges on a device
  with the device's copy bandwidth, in the same process.

    bench_embedding [-device cuda] [-dtype fp32] [-dim 128] [-tables 26] [-rows 2M] [-pooling 10]
                    [-batch_size 8192] [-rounds 9]

  Ids are uniform over tables that should be much larger than the caches. Prints a line for each
  measurement: name, ms, GB/s (1e9) and the ratio to the rate of the copy. The numbers are medians
  over rounds. Each round uses another batch. On a GPU, it also measures pooled rows and gradients
  in bf16.

  Counted bytes:
  - copy: reads and writes 1 GiB in total (or -copy_bytes), of which caches hold only a little
  - forward: reads a row and an id for each occurrence, and writes the pooled rows
  - backward (row-wise AdaGrad, or -optimizer): reads the pooled gradients once, and the ids. For
    each distinct row it reads and writes the row and its states; here they are counted once for
    each occurrence. The bytes of the sort and of the runs are not counted, so they reduce the rate.
  - update: like backward, but the ids were sorted before, so they are not counted. In a training, a
    GPU sorts the ids during the previous batch
  - sort: the sort before the update, with the bytes of the ids. If a device sorts within the
    backward pass, the line update is the difference of backward and sort.
  - regroup: copies every feature's pooled columns to other columns
  - permute: copies a batch's ids and lengths into another order of features
  - codecs: convert the pooled rows to the wire format or back

  Regroup, permute and codecs read and write each byte once.
*/
#include "bench.h"
#include "compute/compute_ops.h"
#include "core/options/options.h"
#include "core/random/random.h"
#include "optim/sparse_optimizer.h"

#include <string.h>

enum { MAX_ROUNDS = 101, N_BATCHES = 4, WARM = 2 };

static const TrsOptionSpec specs[] = {
    {"-rounds", TRS_OPTION_INT, "9", "[1,101]", NULL, NULL, "rounds, of which the median counts"},
    {"-tables", TRS_OPTION_INT, "26", "[1,]", NULL, NULL, "tables, each with one feature"},
    {"-rows", TRS_OPTION_INT, "2M", "[1,]", NULL, "rows", "rows of a table"},
    {"-dim", TRS_OPTION_INT, "128", "[1,]", NULL, NULL, "their width"},
    {"-pooling", TRS_OPTION_INT, "10", "[1,]", NULL, "ids", "ids of a bag"},
    {"-batch_size", TRS_OPTION_INT, "8192", "[1,]", NULL, "samples", "bags of a feature"},
    {"-copy_bytes", TRS_OPTION_BYTES, "1GiB", "[8,]", NULL, NULL, "that the copy reads and writes, at least"},
    {"-device", TRS_OPTION_ENUM, "cuda", NULL, "cpu,cuda", NULL, "where"},
    {"-optimizer", TRS_OPTION_ENUM, "rowwise_adagrad", NULL, TRS_CHOICES(TRS_EMBEDDING_OPTIMIZERS), NULL,
     "of the tables"},
    {"-dtype", TRS_OPTION_ENUM, "fp32", NULL, "fp32,fp16,bf16", NULL, "of the tables"},
    {"-stochastic_rounding", TRS_OPTION_BOOL, "true", NULL, NULL, NULL,
     "of rows that are fp16 or bf16, as in a training by default"},
};
static const TrsOptionGroup bench_options = TRS_OPTION_GROUP("Bench", specs);

typedef struct {
  int64_t rounds, tables, rows, dim, pooling, batch, n; /* n is the number of ids in a batch */
  int dtype, device_index, optimizer;
  int64_t state_floats[TRS_OPTIMIZER_STATES]; /* number of floats in a row of each state */
  double state_bytes;                         /* bytes of a row's states */
  PetscBool stochastic;
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsStream stream;
  TrsWorkspace workspace;
  TrsTbe tbe;
  TrsTbeTable *table;
  TrsTbeFeature *feature;
  TrsTbeInput input[N_BATCHES];
  float *out, *grad;
  int32_t *lengths;
  TrsJagged permuted;
  int64_t *block_begin;     /* host [tables + 1] */
  int *reversed;            /* host [tables] */
  TrsColumnCopy *regrouped; /* host [tables] */
  TrsCodec codec;
  void *encoded;
  double copy_gbps;
  /* size of each of the two buffers of the copy, which are freed after this measurement */
  int64_t copy_bytes;
  void *from, *to;
  double last_s, find_rows_s; /* median of the last measurement, and of FIND_ROWS */
  /* distinct rows of a batch: begin is on the host [tables + 1], found on the device [n] */
  int64_t *row_begin, *found;
  TrsWorkspace sort_workspace;
  TrsTbeOccurrences sorted[N_BATCHES]; /* NULL if the device sorts within the update */
} bench;

typedef enum {
  COPY,
  FORWARD,
  FORWARD_BF16,
  FIND_ROWS,
  SORT,
  UPDATE,
  UPDATE_BF16,
  BACKWARD,
  REGROUP,
  PERMUTE,
  ENCODE,
  DECODE
} what;

static PetscErrorCode upload(const bench *b, const void *host, int64_t bytes, void *device_pointer)
{
  PetscFunctionBegin;
  PetscCall(b->device->alloc(bytes, (void **)device_pointer));
  PetscCall(b->device->copy(*(void **)device_pointer, host, bytes, b->stream));
  PetscCall(b->device->stream_synchronize(b->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make batches of ids, with the same number of ids in every bag. */
static PetscErrorCode make_batches(bench *b)
{
  const int64_t bags = b->tables * b->batch;
  int64_t *offsets, *values;

  PetscFunctionBegin;
  b->n = bags * b->pooling;
  PetscCall(TrsAlloc(bags + 1, sizeof(*offsets), &offsets));
  PetscCall(TrsAlloc(b->n, sizeof(*values), &values));
  for (int64_t i = 0; i <= bags; i++) offsets[i] = i * b->pooling;
  for (int k = 0; k < N_BATCHES; k++) {
    TrsTbeInput *input = &b->input[k];

    for (int64_t i = 0; i < b->n; i++) {
      uint32_t word[4];
      TrsRandom(1, TRS_RANDOM_TEST, (uint64_t)k, (uint64_t)i, word);
      values[i] = (int64_t)(((uint64_t)word[0] << 32 | word[1]) % (uint64_t)b->rows);
    }
    *input = (TrsTbeInput){.batch = b->batch, .n_values = b->n};
    PetscCall(upload(b, offsets, (bags + 1) * (int64_t)sizeof(*offsets), &input->offsets));
    PetscCall(upload(b, values, b->n * (int64_t)sizeof(*values), &input->values));
  }
  PetscCall(TrsFree(&offsets));
  PetscCall(TrsFree(&values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode make_tables(bench *b)
{
  const int64_t bytes = b->rows * b->dim * TrsDTypeBytes((TrsDType)b->dtype);
  int64_t free_bytes, total_bytes;

  PetscFunctionBegin;
  PetscCall(b->device->memory(&free_bytes, &total_bytes));
  PetscCheck(b->tables * bytes < free_bytes, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "-tables %d of %.3g GB do not fit in the %.3g GB that are free: -rows, -dim or -tables",
             (int)b->tables, (double)bytes * 1e-9, (double)free_bytes * 1e-9);
  PetscCall(PetscCalloc2((size_t)b->tables, &b->table, (size_t)b->tables, &b->feature));
  for (int t = 0; t < b->tables; t++) {
    TrsTbeTable *table = &b->table[t];

    *table = (TrsTbeTable){.rows = b->rows,
                           .stride = b->dim,
                           .dim = (int32_t)b->dim,
                           .dtype = (TrsDType)b->dtype,
                           .stochastic_rounding = b->stochastic,
                           .key = (uint64_t)t,
                           .table_dim = b->dim};
    PetscCall(b->device->alloc(bytes, &table->weight));
    for (int s = 0; s < TRS_OPTIMIZER_STATES && b->state_floats[s]; s++)
      PetscCall(
          b->device->alloc(b->rows * b->state_floats[s] * (int64_t)sizeof(float), (void **)&table->state[s]));
    b->feature[t] = (TrsTbeFeature){.table = t, .out_column = t * b->dim};
  }
  b->tbe = (TrsTbe){(int)b->tables, (int)b->tables, b->table, b->feature};
  PetscCall(b->device->alloc(b->batch * b->tables * b->dim * (int64_t)sizeof(float), (void **)&b->out));
  PetscCall(b->device->alloc(b->batch * b->tables * b->dim * (int64_t)sizeof(float), (void **)&b->grad));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Allocate memory for regrouping, permuting and codecs. A codec's bytes are at most those of fp32
  plus a few for each row.
*/
static PetscErrorCode make_rest(bench *b)
{
  const int64_t bags = b->tables * b->batch;
  int32_t *lengths;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(bags, sizeof(*lengths), &lengths));
  for (int64_t i = 0; i < bags; i++) lengths[i] = (int32_t)b->pooling;
  PetscCall(upload(b, lengths, bags * (int64_t)sizeof(*lengths), &b->lengths));
  PetscCall(TrsFree(&lengths));
  b->permuted = (TrsJagged){.n_bags = bags, .n_values = b->n};
  PetscCall(b->device->alloc(bags * (int64_t)sizeof(int32_t), (void **)&b->permuted.lengths));
  PetscCall(b->device->alloc(b->n * (int64_t)sizeof(int64_t), (void **)&b->permuted.values));
  PetscCall(b->device->alloc(2 * bags * b->dim * (int64_t)sizeof(float), &b->encoded));
  PetscCall(PetscMalloc3((size_t)b->tables + 1, &b->block_begin, (size_t)b->tables, &b->reversed,
                         (size_t)b->tables, &b->regrouped));
  for (int t = 0; t <= b->tables; t++) b->block_begin[t] = t * b->batch;
  for (int t = 0; t < b->tables; t++) {
    b->reversed[t] = (int)b->tables - 1 - t;
    b->regrouped[t] = (TrsColumnCopy){.from = TrsFloats(b->out + t * b->dim, b->tables * b->dim),
                                      .to = TrsFloats(b->grad + b->reversed[t] * b->dim, b->tables * b->dim),
                                      .cols = b->dim};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_rest(bench *b)
{
  PetscFunctionBegin;
  PetscCall(b->device->release((void **)&b->lengths));
  PetscCall(b->device->release((void **)&b->permuted.lengths));
  PetscCall(b->device->release((void **)&b->permuted.values));
  PetscCall(b->device->release(&b->encoded));
  PetscCall(PetscFree3(b->block_begin, b->reversed, b->regrouped));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode permute(bench *b, const TrsTbeInput *input)
{
  const TrsJagged from = {.n_bags = b->tables * b->batch,
                          .n_values = b->n,
                          .lengths = b->lengths,
                          .offsets = (int64_t *)(uintptr_t)input->offsets,
                          .values = (int64_t *)(uintptr_t)input->values};

  PetscFunctionBegin;
  PetscCall(b->compute->permute_blocks(b->stream, b->workspace, (int)b->tables, b->block_begin,
                                       (int)b->tables, b->reversed, &from, &b->permuted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode regroup(bench *b)
{
  PetscFunctionBegin;
  PetscCall(b->compute->copy_columns(b->stream, b->batch, (int)b->tables, b->regrouped));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_all(bench *b)
{
  PetscFunctionBegin;
  PetscCall(release_rest(b));
  for (int t = 0; t < b->tables; t++) {
    PetscCall(b->device->release(&b->table[t].weight));
    for (int s = 0; s < TRS_OPTIMIZER_STATES; s++)
      PetscCall(b->device->release((void **)&b->table[t].state[s]));
  }
  for (int k = 0; k < N_BATCHES; k++) {
    void *offsets = (void *)(uintptr_t)b->input[k].offsets, *values = (void *)(uintptr_t)b->input[k].values;

    PetscCall(b->device->release(&offsets));
    PetscCall(b->device->release(&values));
  }
  PetscCall(b->device->release((void **)&b->out));
  PetscCall(b->device->release((void **)&b->grad));
  PetscCall(PetscFree2(b->table, b->feature));
  PetscCall(b->compute->workspace_destroy(&b->workspace));
  PetscCall(b->device->stream_destroy(&b->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Memory for pooled rows in bf16. */
static TrsMatrix bf16_rows(const bench *b)
{
  return (TrsMatrix){.type = TRS_BF16, .stride = b->tables * b->dim, .data = b->encoded};
}

static PetscErrorCode run_once(bench *b, what kind, int round)
{
  const TrsSparseOptimizerArgs args = {.kind = (TrsSparseOptimizerKind)b->optimizer,
                                       .learning_rate = 0.01F,
                                       .eps = 1e-8F,
                                       .beta1 = 0.9F,
                                       .beta2 = 0.999F,
                                       .beta = 1.0F,
                                       .step = round + 1};
  const TrsTbeInput *input = &b->input[round % N_BATCHES];
  TrsTbeInput sorted = *input;
  const int64_t stride = b->tables * b->dim;

  PetscFunctionBegin;
  switch (kind) {
  case COPY: PetscCall(b->device->copy(b->to, b->from, b->copy_bytes, b->stream)); break;
  case FORWARD:
    PetscCall(b->compute->tbe_forward(b->stream, b->workspace, &b->tbe, input, TrsFloats(b->out, stride)));
    break;
  case FORWARD_BF16:
    PetscCall(b->compute->tbe_forward(b->stream, b->workspace, &b->tbe, input, bf16_rows(b)));
    break;
  case FIND_ROWS:
    PetscCall(b->compute->tbe_list_rows(b->stream, b->workspace, &b->tbe, input, b->row_begin, b->found));
    break;
  case SORT:
    PetscCall(b->compute->tbe_find_occurrences(b->stream, b->sort_workspace, &b->tbe, input, TRS_TBE_BY_BAG,
                                               &b->sorted[round % N_BATCHES]));
    break;
  case UPDATE:
  case UPDATE_BF16:
    sorted.occurrences = b->sorted[round % N_BATCHES];
    PetscCall(b->compute->tbe_backward(b->stream, b->workspace, &b->tbe, &sorted,
                                       kind == UPDATE ? TrsFloats(b->grad, stride) : bf16_rows(b), &args));
    break;
  case BACKWARD:
    PetscCall(
        b->compute->tbe_backward(b->stream, b->workspace, &b->tbe, input, TrsFloats(b->grad, stride), &args));
    break;
  case REGROUP: PetscCall(regroup(b)); break;
  case PERMUTE: PetscCall(permute(b, input)); break;
  case ENCODE:
    PetscCall(b->compute->encode(b->stream, &b->codec, b->batch * stride, b->out, b->encoded));
    break;
  case DECODE:
    PetscCall(b->compute->decode(b->stream, &b->codec, b->batch * stride, b->encoded, b->grad));
    break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode measure(bench *b, what kind, const char *name, double bytes)
{
  double seconds[MAX_ROUNDS], median_s, gbps, once_s = 0;
  int repeats = 1; /* repeat often enough that starting and waiting are negligible */

  PetscFunctionBegin;
  for (int round = -WARM; round < (int)b->rounds; round++) {
    double start;

    PetscCall(b->device->stream_synchronize(b->stream));
    start = MPI_Wtime();
    for (int i = 0; i < repeats; i++) PetscCall(run_once(b, kind, (round + WARM) * repeats + i));
    PetscCall(b->device->stream_synchronize(b->stream));
    once_s = (MPI_Wtime() - start) / repeats;
    if (round >= 0) seconds[round] = once_s;
    if (round == -1) repeats = (int)PetscMin(200.0, PetscMax(1.0, 5e-3 / once_s));
  }
  median_s = bench_median(b->rounds, seconds);
  gbps = bytes / median_s * 1e-9;
  b->last_s = median_s;
  if (kind == COPY) b->copy_gbps = gbps;
  printf("%-24s %10.3f ms %9.1f GB/s %6.2f of copy\n", name, median_s * 1e3, gbps, gbps / b->copy_gbps);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Measure the sort before an update, and the update after it, with gradients in float and in bf16.
  gradients: bytes of the gradients in float.
*/
static PetscErrorCode measure_ahead(bench *b, double bytes, double gradients)
{
  const char *optimizer = TrsSparseOptimizerName((TrsSparseOptimizerKind)b->optimizer);
  char name[64];

  PetscFunctionBegin;
  PetscCall(b->compute->workspace_create(&b->sort_workspace));
  for (int k = 0; k < N_BATCHES; k++) PetscCall(run_once(b, SORT, k));
  PetscCall(measure(b, SORT, "sort", (double)b->n * 8.0));
  (void)snprintf(name, sizeof(name), "update+%s", optimizer);
  PetscCall(measure(b, UPDATE, name, bytes - (double)b->n * 8.0));
  PetscCall(
      b->compute->convert(b->stream, b->batch * b->tables * b->dim, TRS_FP32, b->grad, TRS_BF16, b->encoded));
  PetscCall(measure(b, UPDATE_BF16, "update from bf16", bytes - (double)b->n * 8.0 - gradients / 2.0));
  for (int k = 0; k < N_BATCHES; k++) PetscCall(b->compute->tbe_occurrences_destroy(&b->sorted[k]));
  PetscCall(b->compute->workspace_destroy(&b->sort_workspace));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Measure the update together with its sort, and both separately. If the device sorts within the
  update, the sort is measured by the call that finds a batch's rows, including the host's wait for
  their number. The update is then the difference.
*/
static PetscErrorCode measure_backward(bench *b, double bytes, double gradients)
{
  double update_s;
  char name[64];

  PetscFunctionBegin;
  if (b->compute->tbe_find_occurrences) PetscCall(measure_ahead(b, bytes, gradients));
  PetscCall(b->device->alloc(b->n * (int64_t)sizeof(*b->found), (void **)&b->found));
  PetscCall(TrsAlloc(b->tables + 1, sizeof(*b->row_begin), &b->row_begin));
  PetscCall(measure(b, FIND_ROWS, "find rows (sort)", (double)b->n * 8.0));
  b->find_rows_s = b->last_s;
  (void)snprintf(name, sizeof(name), "backward+%s",
                 TrsSparseOptimizerName((TrsSparseOptimizerKind)b->optimizer));
  PetscCall(measure(b, BACKWARD, name, bytes));
  update_s = b->last_s - b->find_rows_s;
  if (update_s > 0 && !b->compute->tbe_find_occurrences)
    printf("%-24s %10.3f ms %9.1f GB/s %6.2f of copy\n", "update without its sort", update_s * 1e3,
           bytes / update_s * 1e-9, bytes / update_s * 1e-9 / b->copy_gbps);
  PetscCall(b->device->release((void **)&b->found));
  PetscCall(TrsFree(&b->row_begin));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode measure_copy(bench *b)
{
  PetscFunctionBegin;
  PetscCall(b->device->alloc(b->copy_bytes, &b->from));
  PetscCall(b->device->alloc(b->copy_bytes, &b->to));
  PetscCall(measure(b, COPY, "copy", 2.0 * (double)b->copy_bytes));
  PetscCall(b->device->release(&b->from));
  PetscCall(b->device->release(&b->to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode measure_codecs(bench *b)
{
  static const TrsCodec codecs[] = {{.kind = TRS_CODEC_FP16, .loss_scale = 1},
                                    {.kind = TRS_CODEC_BF16, .loss_scale = 1},
                                    {.kind = TRS_CODEC_FP8, .loss_scale = 1},
                                    {.kind = TRS_CODEC_INT8, .row_dim = 32, .loss_scale = 1}};
  static const char *const names[] = {"fp16", "bf16", "fp8", "int8"};
  const int64_t n = b->batch * b->tables * b->dim;

  PetscFunctionBegin;
  for (int i = 0; i < 4; i++) {
    const double bytes = (double)n * 4.0 + (double)b->compute->codec_bytes(&codecs[i], n);
    char name[32];

    b->codec = codecs[i];
    snprintf(name, sizeof(name), "encode %s", names[i]);
    PetscCall(measure(b, ENCODE, name, bytes));
    snprintf(name, sizeof(name), "decode %s", names[i]);
    PetscCall(measure(b, DECODE, name, bytes));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_optimizer(TrsOptions options, bench *b)
{
  PetscBool rowwise[TRS_OPTIMIZER_STATES];
  const char *names[TRS_OPTIMIZER_STATES];
  int n;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-optimizer", &b->optimizer, NULL));
  TrsSparseOptimizerStates((TrsSparseOptimizerKind)b->optimizer, &n, names, rowwise);
  for (int s = 0; s < n; s++) {
    b->state_floats[s] = rowwise[s] ? 1 : b->dim;
    b->state_bytes += (double)b->state_floats[s] * 4.0;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_options(int argc, char **argv, bench *b)
{
  static const TrsOptionGroup *const groups[] = {&bench_options};
  static const char *const devices[] = {"cpu", "cuda"};
  int64_t *const numbers[] = {&b->rounds, &b->tables, &b->rows, &b->dim, &b->pooling, &b->batch};
  TrsOptions options;

  PetscFunctionBegin;
  PetscCall(TrsOptionsCreate(PETSC_COMM_SELF, argc, argv, groups, 1, &options));
  for (int i = 0; i < 6; i++) PetscCall(TrsOptionsGetInt(options, specs[i].name, numbers[i], NULL));
  PetscCall(TrsOptionsGetInt(options, "-copy_bytes", &b->copy_bytes, NULL));
  b->copy_bytes /= 2;
  PetscCall(TrsOptionsGetEnum(options, "-device", &b->device_index, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-dtype", &b->dtype, NULL)); /* in the order of TrsDType */
  PetscCall(read_optimizer(options, b));
  PetscCall(TrsOptionsGetBool(options, "-stochastic_rounding", &b->stochastic, NULL));
  PetscCall(TrsOptionsDestroy(&options));
  PetscCall(TrsDeviceFind(devices[b->device_index], &b->device));
  PetscCall(TrsComputeFind(devices[b->device_index], &b->compute));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode bench_embedding(int argc, char **argv)
{
  char identity[128] = "";
  bench b = {0};
  double pooled, row;

  PetscFunctionBegin;
  PetscCall(read_options(argc, argv, &b));
  PetscCall(b.device->setup(0, 1));
  PetscCall(b.device->identity(identity, sizeof(identity)));
  PetscCall(b.device->stream_create("default", &b.stream));
  PetscCall(b.compute->workspace_create(&b.workspace));
  PetscCall(make_tables(&b));
  PetscCall(make_batches(&b));
  PetscCall(make_rest(&b));
  pooled = (double)b.batch * (double)(b.tables * b.dim) * 4.0;
  row = (double)b.dim * TrsDTypeBytes((TrsDType)b.dtype);
  printf("# %s %s: %d tables of %.3g rows of %d %s, %d bags of %d ids a table\n", b.device->name, identity,
         (int)b.tables, (double)b.rows, (int)b.dim, TrsDTypeName((TrsDType)b.dtype), (int)b.batch,
         (int)b.pooling);
  PetscCall(measure_copy(&b));
  PetscCall(measure(&b, FORWARD, "forward", (double)b.n * (row + 8.0) + pooled));
  if (b.compute->tbe_find_occurrences) /* true for a GPU, which has kernels for bf16 */
    PetscCall(measure(&b, FORWARD_BF16, "forward to bf16", (double)b.n * (row + 8.0) + pooled / 2.0));
  PetscCall(measure_backward(&b, (double)b.n * (2.0 * (row + b.state_bytes) + 8.0) + pooled, pooled));
  PetscCall(measure(&b, REGROUP, "regroup", 2.0 * pooled));
  PetscCall(measure(&b, PERMUTE, "permute", 2.0 * (double)(b.n * 8 + b.tables * b.batch * 4)));
  PetscCall(measure_codecs(&b));
  PetscCall(release_all(&b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  return bench_main(argc, argv, bench_embedding);
}
