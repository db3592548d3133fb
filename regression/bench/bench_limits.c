/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The machine's limit for a training step of a DLRM: the time of each stage, if the stage does only
  what every implementation must do, each part as fast as this machine can do it.

    OMP_NUM_THREADS=1 mpirun -n 2 bench_limits [-rounds 5] [-tables 13] [-features 26]
        [-rows 100000] [-dim 64] [-pooling 10] [-alpha 0] [-batch_size 2048]
        [-dense_arch 512,256,64] [-over_arch 1024,1024,512,256,1] [-interaction dot]
        [-precision fp32]

  A rank owns -tables tables, one for each of as many features, and pools the bags of all ranks'
  samples. All ranks run each probe at the same time, in the order of a step. So caches contain what
  they would contain in a step. A probe is a simple loop of this file or of limits*.h, or a call of
  the library that multiplies matrices. No probe calls a kernel of the program. If a probe has
  several variants, rounds use the one that was the fastest before the first round.

  - lookup: reads the rows of all bags and writes the pooled rows.
  - places: reads the vectors of this rank's samples where they were pooled, in the memory of all
    ranks. In the backward, it also writes the gradients there.
  - products: the matrix products of all layers, with their own shapes. The products of the dot
    interaction are counted at the rate of a large square product. DCN also has its products of
    single elements.
  - grouping: groups the ids of each table by row.
  - update: reads the gradients of each distinct row, adds them up, and updates row and state with
    row-wise AdaGrad. The ids are grouped before.
  - optimizer: SGD on all dense parameters.
  - exchange: copies this rank's ids from other ranks, adds the dense gradients of all ranks and
    copies the sums.
  - reading: copies a batch twice: from the file's cache, and into the batch.

  Prints the lines "limit <stage> <part>,<ms>", averaged over ranks. Each number is a median over
  rounds. With one thread, time is processor time, which other programs disturb less.
*/
#include "bench.h"
#include "compute/compute_ops.h"
#include "core/options/options.h"
#include "core/random/random.h"
#include "core/shared_memory.h"
#include "limits_update.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
  MAX_ROUNDS = 101,
  MAX_RESULTS = 16,
  MAX_LAYERS = 32,
  N_BATCHES = 16,
  N_AHEAD = 3, /* distances of prefetches: 8, 16 and 32 rows */
  N_GATHERS = 8 * N_AHEAD,
  NUM_DENSE = 13,
  SQUARE = 1024,
  DCN_LAYERS = 3,
  DCN_RANK = 512
};

static const TrsOptionSpec specs[] = {
    {"-rounds", TRS_OPTION_INT, "5", "[1,101]", NULL, NULL, "rounds, of which the median counts"},
    {"-tables", TRS_OPTION_INT, "13", "[1,]", NULL, NULL, "tables of a rank, each with one feature"},
    {"-features", TRS_OPTION_INT, "26", "[1,]", NULL, NULL, "features of a sample"},
    {"-rows", TRS_OPTION_INT, "100000", "[1,4194304]", NULL, "rows", "rows of a table"},
    {"-dim", TRS_OPTION_INT, "64", "[32,256]", NULL, NULL, "their width: 32, 64, 128 or 256"},
    {"-pooling", TRS_OPTION_INT, "10", "[1,]", NULL, "ids", "ids of a bag"},
    {"-alpha", TRS_OPTION_REAL, "0", "[0,]", NULL, NULL, "exponent of the ids' power law; 0: uniform ids"},
    {"-batch_size", TRS_OPTION_INT, "2048", "[1,]", NULL, "samples", "samples of a rank"},
    {"-dense_arch", TRS_OPTION_INTS, "512,256,64", "[1,]", NULL, NULL, "outputs of its layers"},
    {"-over_arch", TRS_OPTION_INTS, "1024,1024,512,256,1", "[1,]", NULL, NULL, "outputs of its layers"},
    {"-interaction", TRS_OPTION_ENUM, "dot", NULL, "dot,dcn", NULL, "dcn: 3 layers of rank 512"},
    {"-precision", TRS_OPTION_ENUM, "fp32", NULL, "fp32,tf32,bf16", NULL, "of the products' operands"},
};
static const TrsOptionGroup bench_options = TRS_OPTION_GROUP("Bench", specs);

typedef struct {
  const char *name;
  double seconds[MAX_ROUNDS];
} Result;

/* A layer's weights [out, in]. dx is false if its input needs no gradient. */
typedef struct {
  int64_t in, out;
  PetscBool dx;
} Layer;

typedef struct {
  int64_t rounds, tables, features, rows, dim, pooling, batch;
  double alpha;
  int rank, size, dcn, position_bits;
  int64_t bags, n;              /* bags and ids of a table, of all ranks' samples */
  uint32_t *values;             /* [N_BATCHES, tables, n] */
  uint32_t *key, *other, *seen; /* [tables, n] grouped keys; for each thread [n] and [2 words] */
  int64_t words;                /* words of 32 bits, one bit for each row */
  float *weight, *state;        /* [tables, rows, dim], [tables, rows] */
  /* Pooled rows [bags, tables, dim], and later their gradients, in memory that all ranks read. */
  float *pooled;
  const char **peer;      /* [size] first byte of each rank's shared memory */
  int64_t *pooled_offset; /* [size] offsets of `pooled` and `shared` in it */
  int64_t *shared_offset;
  float *shared; /* [n_params] this rank's dense gradients */
  int n_layers;
  Layer layer[MAX_LAYERS];
  int64_t n_params, widest; /* widest: columns of the widest layer */
  float *params, *sums, *x, *y, *square;
  const TrsComputeOps *compute;
  double dot_flops;
  float *cross[6]; /* [batch, (1 + features) dim], of the DCN */
  char *file, *read;
  int64_t read_bytes, ids_bytes;
  Result results[MAX_RESULTS];
  int n_results;
  int64_t round;        /* round -1 is the warm-up */
  int64_t batch_number; /* number of batches of ids that probes have used */
  int gather, update;   /* the fastest variants */
} Limits;

/* Add the seconds of a part of this round. Parts of one name are added up. */
static void note(Limits *l, const char *name, double seconds)
{
  int i = 0;

  while (i < l->n_results && strcmp(l->results[i].name, name) != 0) i++;
  if (i == l->n_results) l->results[l->n_results++] = (Result){.name = name};
  if (l->round >= 0) l->results[i].seconds[l->round] += seconds;
}

static PetscErrorCode begin_together(double *start)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Barrier(MPI_COMM_WORLD));
  *start = bench_now();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const uint32_t *values_of(const Limits *l, int64_t table)
{
  return l->values + (l->batch_number % N_BATCHES * l->tables + table) * l->n;
}

/* Bring the caches to the state that the dense layers leave. */
static void disturb(const Limits *l)
{
  float *const arrays[] = {l->x, l->y, l->params, l->sums, l->shared};
  const int64_t matrix = l->batch * l->widest,
                n[] = {2 * matrix, matrix, l->n_params, l->n_params, l->n_params};

  for (int a = 0; a < 5; a++)
    for (int64_t i = 0; i < n[a]; i += LINE) arrays[a][i] *= 0.5f;
  for (int a = 0; l->dcn && a < 6; a++)
    for (int64_t i = 0; i < l->batch * (1 + l->features) * l->dim; i += LINE) l->cross[a][i] *= 0.5f;
}

/*
  Run one of a probe's n variants. Rounds run the fastest, which the warm-up finds. *seconds becomes
  the variant's time.
*/
static PetscErrorCode run_fastest(Limits *l, int n, PetscErrorCode (*run)(Limits *, int, double *),
                                  int *fastest, double *seconds)
{
  double best = 1e9;

  PetscFunctionBegin;
  for (int i = 0; l->round < 0 && i < n; i++) {
    double mine, all;

    l->batch_number++;
    disturb(l);
    PetscCall(run(l, i, &mine));
    PetscCallMPI(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    if (all >= best) continue;
    best = all;
    *fastest = i;
  }
  PetscCall(run(l, *fastest, seconds));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- lookup --- */

static PetscErrorCode look_up(Limits *l, int variant, double *seconds)
{
  const int64_t ahead = INT64_C(8) << variant / 8;
  double start;

  PetscFunctionBegin;
  PetscCall(begin_together(&start));
#pragma omp parallel for schedule(static) collapse(2)
  for (int64_t t = 0; t < l->tables; t++)
    for (int64_t part = 0; part < 16; part++) {
      const int64_t first = part * l->bags / 16, end = (part + 1) * l->bags / 16;

      gather(l->dim, l->weight + t * l->rows * l->dim, values_of(l, t) + first * l->pooling,
             (end - first) * l->pooling, l->pooling, ahead, variant % 8,
             l->pooled + (first * l->tables + t) * l->dim, l->tables * l->dim);
    }
  *seconds = bench_now() - start;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_lookup(Limits *l)
{
  double seconds;

  PetscFunctionBegin;
  PetscCall(run_fastest(l, N_GATHERS, look_up, &l->gather, &seconds));
  note(l, "lookup", seconds);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- places --- */

/* Copy the n floats of a vector, or write zeros over it, and prefetch the same vector of the next
   sample. n is a multiple of LANES. */
WIDE static void read_vector(int64_t n, const float *from, int64_t stride, float *to)
{
  for (int64_t d = 0; d < n; d += LANES) {
    if (d % LINE == 0) __builtin_prefetch(from + stride + d);
    *(Vec *)(to + d) = LOAD(from + d);
  }
}

WIDE static void write_vector(int64_t n, const float *from, float *to)
{
  for (int64_t d = 0; d < n; d += LANES) *(Vec *)(to + d) = LOAD(from + d);
}

static PetscErrorCode run_places(Limits *l, PetscBool backward)
{
  const int64_t stride = l->tables * l->dim;
  double start;

  PetscFunctionBegin;
  PetscCall(begin_together(&start));
#pragma omp parallel
  {
    _Alignas(64) float sample[1 << 15];

#pragma omp for schedule(static)
    for (int64_t b = 0; b < l->batch; b++) {
      for (int pass = 0; pass < 1 + (int)backward; pass++)
        for (int64_t f = 0; f < l->features; f++) {
          const int owner = (int)(f / l->tables);
          float *place = (float *)(void *)(uintptr_t)(l->peer[owner] + l->pooled_offset[owner]) +
                         (l->rank * l->batch + b) * stride + f % l->tables * l->dim;
          float *mine = sample + (f * l->dim) % ((1 << 15) - l->dim);

          if (pass)
            write_vector(l->dim, mine, place);
          else
            read_vector(l->dim, place, stride, mine);
        }
    }
  }
  note(l, backward ? "dense backward places" : "dense forward places", bench_now() - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- products --- */

/* Time C = op(A) op(B) with m x n numbers, and add the time to `part`. */
static PetscErrorCode product(Limits *l, const char *part, PetscBool trans_a, PetscBool trans_b, int64_t m,
                              int64_t n, int64_t k, const float *a, const float *b, float *c)
{
  const TrsMatrixProduct p = {
      trans_a, trans_b,        m, n, k, 1.0f, TrsFloats(a, trans_a ? m : k), TrsFloats(b, trans_b ? k : n),
      0.0f,    TrsFloats(c, n)};
  double start;

  PetscFunctionBegin;
  PetscCall(begin_together(&start));
  PetscCall(l->compute->multiply(NULL, &p));
  note(l, part, bench_now() - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_forward_products(Limits *l)
{
  const float *weight = l->params;

  PetscFunctionBegin;
  for (int i = 0; i < l->n_layers; weight += l->layer[i].in * l->layer[i].out, i++)
    PetscCall(product(l, "dense forward products", PETSC_FALSE, PETSC_TRUE, l->batch, l->layer[i].out,
                      l->layer[i].in, i % 2 ? l->y : l->x, weight, i % 2 ? l->x : l->y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_backward_products(Limits *l)
{
  const int64_t matrix = l->batch * l->widest;
  int64_t at = l->n_params;

  PetscFunctionBegin;
  for (int i = l->n_layers - 1; i >= 0; i--) {
    const int64_t in = l->layer[i].in, out = l->layer[i].out;

    at -= in * out;
    PetscCall(product(l, "dense backward products", PETSC_TRUE, PETSC_FALSE, out, in, l->batch, l->y, l->x,
                      l->shared + at));
    if (l->layer[i].dx)
      PetscCall(product(l, "dense backward products", PETSC_FALSE, PETSC_FALSE, l->batch, in, out, l->y,
                        l->params + at, l->x + matrix));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The dot interaction: multiply-adds of the triangle, and twice as many in the backward. */
static PetscErrorCode run_dot(Limits *l)
{
  const int64_t m = PetscMin(l->batch, SQUARE);
  double start, per_flop;

  PetscFunctionBegin;
  PetscCall(begin_together(&start));
  PetscCall(l->compute->multiply(
      NULL, &(TrsMatrixProduct){PETSC_FALSE, PETSC_TRUE, m, SQUARE, SQUARE, 1.0f,
                                TrsFloats(l->square, SQUARE), TrsFloats(l->square + SQUARE * SQUARE, SQUARE),
                                0.0f, TrsFloats(l->square + 2 * SQUARE * SQUARE, SQUARE)}));
  per_flop = (bench_now() - start) / (2.0 * (double)m * SQUARE * SQUARE);
  note(l, "dense forward products", per_flop * l->dot_flops);
  note(l, "dense backward products", 2.0 * per_flop * l->dot_flops);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = x0 * u + x */
FMA static void cross_forward(int64_t n, const float *x0, const float *u, const float *x, float *y)
{
  for (int64_t i = 0; i < n; i += LANES) *(Vec *)(y + i) = LOAD(x0 + i) * LOAD(u + i) + LOAD(x + i);
}

/* h = g * x0, dx0 += g * u */
FMA static void cross_backward(int64_t n, const float *g, const float *x0, const float *u, float *h,
                               float *dx0)
{
  for (int64_t i = 0; i < n; i += LANES) {
    *(Vec *)(h + i) = LOAD(g + i) * LOAD(x0 + i);
    *(Vec *)(dx0 + i) = LOAD(dx0 + i) + LOAD(g + i) * LOAD(u + i);
  }
}

static PetscErrorCode run_cross(Limits *l, PetscBool backward)
{
  const int64_t n = (1 + l->features) * l->dim;
  double start;

  PetscFunctionBegin;
  PetscCall(begin_together(&start));
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < l->batch; b++) {
    float *at[6];

    for (int i = 0; i < 6; i++) at[i] = l->cross[i] + b * n;
    if (backward)
      cross_backward(n, at[0], at[1], at[2], at[3], at[4]);
    else
      cross_forward(n, at[0], at[1], at[2], at[3]);
  }
  note(l, backward ? "dense backward elements" : "dense forward elements",
       DCN_LAYERS * (bench_now() - start));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- grouping --- */

/*
  Group one table's ids by row. If `apart` is set, rows with one id come first, and only the other
  ids are sorted.
*/
static void group_table(const Limits *l, const uint32_t *value, int apart, uint32_t *key, uint32_t *other,
                        uint32_t *seen)
{
  uint32_t *once = seen, *twice = seen + l->words;
  int64_t single = 0, more = 0;
  int bits = 1;

  while (((int64_t)1 << bits) < l->rows) bits++;
  if (!apart) {
    for (int64_t b = 0, i = 0; b < l->bags; b++)
      for (int64_t end = i + l->pooling; i < end; i++) key[i] = value[i] << l->position_bits | (uint32_t)b;
    sort_keys(l->n, l->position_bits, bits, key, other);
    return;
  }
  memset(seen, 0, 2 * (size_t)l->words * sizeof(*seen));
  for (int64_t i = 0; i < l->n; i++) {
    const uint32_t bit = (uint32_t)1 << value[i] % 32;

    twice[value[i] / 32] |= once[value[i] / 32] & bit;
    once[value[i] / 32] |= bit;
  }
  for (int64_t b = 0, i = 0; b < l->bags; b++)
    for (int64_t end = i + l->pooling; i < end; i++) {
      const uint32_t again = twice[value[i] / 32] >> value[i] % 32 & 1;

      key[single] = other[more] = value[i] << l->position_bits | (uint32_t)b;
      single += !again;
      more += again;
    }
  sort_keys(more, l->position_bits, bits, other, key + single);
  memcpy(key + single, other, (size_t)more * sizeof(*key));
}

/* --- update --- */

static void update_table(const Limits *l, int64_t t, int64_t ahead)
{
  const Update u = {.bits = l->position_bits,
                    .n = l->n,
                    .stride = l->tables * l->dim,
                    .key = l->key + t * l->n,
                    .grad = l->pooled + t * l->dim,
                    .weight = l->weight + t * l->rows * l->dim,
                    .state = l->state + t * l->rows};

  update(l->dim, &u, ahead);
}

/* Group and update in one of two orders of rows. */
static PetscErrorCode group_and_update(Limits *l, int variant, double *seconds)
{
  const int64_t ahead = INT64_C(8) << variant / 2;
  double start, grouping;

  PetscFunctionBegin;
  PetscCall(begin_together(&start));
#pragma omp parallel for schedule(dynamic)
  for (int64_t t = 0; t < l->tables; t++)
    group_table(l, values_of(l, t), variant % 2, l->key + t * l->n, l->other + t * l->n,
                l->seen + 2 * t * l->words);
  grouping = bench_now() - start;
  PetscCall(begin_together(&start));
#pragma omp parallel for schedule(dynamic)
  for (int64_t t = 0; t < l->tables; t++) update_table(l, t, ahead);
  *seconds = bench_now() - start;
  note(l, "embedding backward grouping", grouping);
  note(l, "embedding backward update", *seconds);
  *seconds += grouping;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_update(Limits *l)
{
  double seconds;

  PetscFunctionBegin;
  PetscCall(run_fastest(l, 2 * N_AHEAD, group_and_update, &l->update, &seconds));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the rest --- */

/* sum = a + b */
WIDE static void add(int64_t n, const float *a, const float *b, float *sum)
{
  for (int64_t i = 0; i < n; i++) sum[i] = a[i] + b[i];
}

/*
  Copy ids from the next rank, as if each rank had an equal part of them. Then add up this rank's
  part of the dense gradients, and copy the other parts.
*/
static PetscErrorCode run_exchange(Limits *l)
{
  const int next = (l->rank + 1) % l->size;
  const int64_t part = l->n_params / l->size;
  const float *theirs[1 << 10];
  double start;

  PetscFunctionBegin;
  for (int r = 0; r < l->size; r++)
    theirs[r] = (const float *)(const void *)(l->peer[r] + l->shared_offset[r]);
  PetscCall(begin_together(&start));
  if (l->size > 1) {
    for (int64_t at = 0, most = l->bags * l->tables * l->dim * 4; at < l->ids_bytes; at += most)
      memcpy(l->read + at, l->peer[next] + l->pooled_offset[next], (size_t)PetscMin(most, l->ids_bytes - at));
    add(part, l->shared + l->rank * part, theirs[next] + l->rank * part, l->sums + l->rank * part);
    for (int r = 2; r < l->size; r++)
      add(part, l->sums + l->rank * part, theirs[(l->rank + r) % l->size] + l->rank * part,
          l->sums + l->rank * part);
    for (int r = 0; r < l->size; r++)
      if (r != l->rank) memcpy(l->sums + r * part, theirs[r] + r * part, (size_t)part * sizeof(float));
  }
  note(l, "exchange", bench_now() - start);
  PetscCall(begin_together(&start));
  for (int copy = 0; copy < 2; copy++)
    memcpy(copy ? l->file : l->read, copy ? l->read : l->file, (size_t)l->read_bytes);
  note(l, "reading", bench_now() - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* w -= rate * g */
FMA static void sgd(int64_t n, float rate, const float *g, float *w)
{
  for (int64_t i = 0; i < n; i++) w[i] -= rate * g[i];
}

static PetscErrorCode run_optimizer(Limits *l)
{
  double start;

  PetscFunctionBegin;
  PetscCall(begin_together(&start));
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < 64; part++) {
    const int64_t first = part * l->n_params / 64, end = (part + 1) * l->n_params / 64;

    sgd(end - first, 1e-6f, l->sums + first, l->params + first);
  }
  note(l, "optimizer", bench_now() - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_round(Limits *l)
{
  PetscFunctionBegin;
  PetscCall(run_lookup(l));
  PetscCall(run_places(l, PETSC_FALSE));
  PetscCall(run_forward_products(l));
  if (l->dcn) PetscCall(run_cross(l, PETSC_FALSE));
  PetscCall(run_backward_products(l));
  if (l->dcn)
    PetscCall(run_cross(l, PETSC_TRUE));
  else
    PetscCall(run_dot(l));
  PetscCall(run_places(l, PETSC_TRUE));
  PetscCall(run_exchange(l));
  PetscCall(run_update(l));
  PetscCall(run_optimizer(l));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- main program --- */

static void add_layer(Limits *l, int64_t in, int64_t out, PetscBool dx)
{
  l->layer[l->n_layers++] = (Layer){in, out, dx};
  l->n_params += in * out;
  l->widest = PetscMax(l->widest, PetscMax(in, out));
}

static PetscErrorCode add_layers(Limits *l, TrsOptions options)
{
  const int64_t *sizes, width = (1 + l->features) * l->dim, pairs = l->features * (l->features + 1) / 2;
  int64_t in = NUM_DENSE;
  int n;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInts(options, "-dense_arch", &n, &sizes, NULL));
  PetscCheck(n < 8, PETSC_COMM_SELF, TRS_ERR_OPTION, "-dense_arch: at most 7 layers");
  for (int i = 0; i < n; in = sizes[i++]) add_layer(l, in, sizes[i], (PetscBool)(i > 0));
  for (int i = 0; l->dcn && i < DCN_LAYERS; i++) {
    add_layer(l, width, DCN_RANK, PETSC_TRUE);
    add_layer(l, DCN_RANK, width, PETSC_TRUE);
  }
  l->dot_flops = l->dcn ? 0.0 : 2.0 * (double)(l->batch * pairs * l->dim);
  in = l->dcn ? width : l->dim + pairs;
  PetscCall(TrsOptionsGetInts(options, "-over_arch", &n, &sizes, NULL));
  PetscCheck(n < 8, PETSC_COMM_SELF, TRS_ERR_OPTION, "-over_arch: at most 7 layers");
  for (int i = 0; i < n; in = sizes[i++]) add_layer(l, in, sizes[i], PETSC_TRUE);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Allocate memory that all ranks can read, and find the other ranks'. A single rank uses ordinary
  memory, as in a training, because it can have huge pages.
*/
static PetscErrorCode share(Limits *l)
{
  const int64_t pooled = l->bags * l->tables * l->dim * (int64_t)sizeof(float),
                shared = l->n_params * (int64_t)sizeof(float);
  TrsSharedKey mine = {0}, *keys;
  int64_t offsets[2], *all;
  char why_not[256] = "";

  PetscFunctionBegin;
  if (l->size > 1) PetscCall(TrsSharedOpen(pooled + shared + (1 << 20), &mine, why_not, sizeof(why_not)));
  PetscCheck(l->size == 1 || mine.bytes, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, "no shared memory: %s",
             why_not);
  PetscCall(TrsSharedAlloc(pooled, (void **)&l->pooled));
  PetscCall(TrsSharedAlloc(shared, (void **)&l->shared));
  offsets[0] = l->size > 1 ? TrsSharedOffset(l->pooled, pooled) : 0;
  offsets[1] = l->size > 1 ? TrsSharedOffset(l->shared, shared) : 0;
  PetscCall(PetscMalloc5((size_t)l->size, &keys, 2 * (size_t)l->size, &all, (size_t)l->size, &l->peer,
                         (size_t)l->size, &l->pooled_offset, (size_t)l->size, &l->shared_offset));
  PetscCallMPI(MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, keys, sizeof(mine), MPI_BYTE, MPI_COMM_WORLD));
  PetscCallMPI(MPI_Allgather(offsets, 2, MPI_INT64_T, all, 2, MPI_INT64_T, MPI_COMM_WORLD));
  for (int r = 0; r < l->size; r++) {
    l->pooled_offset[r] = all[2 * r];
    l->shared_offset[r] = all[2 * r + 1];
    if (r == l->rank)
      l->peer[r] = (const char *)l->pooled - offsets[0];
    else
      PetscCall(TrsSharedAttach(&keys[r], &l->peer[r], why_not, sizeof(why_not)));
    PetscCheck(l->peer[r], PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, "memory of rank %d: %s", r, why_not);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allocate(Limits *l)
{
  const int64_t matrix = l->batch * l->widest, cross = l->batch * (1 + l->features) * l->dim;

  PetscFunctionBegin;
  l->words = l->rows / 32 + 1;
  l->ids_bytes = l->batch * l->features * l->pooling * 8 * (l->size - 1) / l->size;
  l->read_bytes = l->batch * (l->features * (l->pooling * 8 + 4) + (NUM_DENSE + 1) * 4);
  PetscCall(TrsAlloc(N_BATCHES * l->tables * l->n, sizeof(uint32_t), &l->values));
  PetscCall(TrsAlloc(l->tables * l->n, sizeof(uint32_t), &l->key));
  PetscCall(TrsAlloc(l->tables * l->n, sizeof(uint32_t), &l->other));
  PetscCall(TrsAlloc(2 * l->tables * l->words, sizeof(uint32_t), &l->seen));
  PetscCall(TrsAlloc(l->tables * l->rows * l->dim, sizeof(float), &l->weight));
  PetscCall(TrsAlloc(l->tables * l->rows, sizeof(float), &l->state));
  PetscCall(TrsAlloc(l->n_params, sizeof(float), &l->params));
  PetscCall(TrsAlloc(l->n_params, sizeof(float), &l->sums));
  PetscCall(TrsAlloc(2 * matrix, sizeof(float), &l->x));
  PetscCall(TrsAlloc(matrix, sizeof(float), &l->y));
  PetscCall(TrsAlloc(3 * SQUARE * SQUARE, sizeof(float), &l->square));
  for (int i = 0; l->dcn && i < 6; i++) PetscCall(TrsAlloc(cross, sizeof(float), &l->cross[i]));
  PetscCall(TrsAlloc(l->read_bytes + l->ids_bytes, 1, &l->file));
  PetscCall(TrsAlloc(l->read_bytes + l->ids_bytes, 1, &l->read));
  PetscCall(share(l));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Draw ids as tools/generate_data.py does. */
static void draw_values(Limits *l)
{
  const double power = 1.0 - l->alpha, R = (double)l->rows;

  for (int64_t i = 0; i < N_BATCHES * l->tables * l->n; i++) {
    uint32_t bits[4];
    double u, x;

    TrsRandom(1, TRS_RANDOM_TEST, (uint64_t)l->rank, (uint64_t)i, bits);
    u = ((double)bits[0] + 0.5) / 4294967296.0;
    if (l->alpha == 0.0) {
      l->values[i] = (uint32_t)(u * R);
      continue;
    }
    x = fabs(power) > 1e-9 ? pow(1.0 + u * (pow(R + 1.0, power) - 1.0), 1.0 / power) : pow(R + 1.0, u);
    l->values[i] = (uint32_t)((uint64_t)PetscMin(x - 1.0, R - 1.0) * 2654435761U % (uint64_t)l->rows);
  }
}

static void fill(Limits *l)
{
  const float scale = 1.0f / sqrtf((float)l->rows);

  draw_values(l);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 1, 0, l->tables * l->rows * l->dim, -scale, scale, l->weight);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 2, 0, l->n_params, -0.05f, 0.05f, l->params);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 3, 0, 2 * l->batch * l->widest, -0.1f, 0.1f, l->x);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 4, 0, l->batch * l->widest, -0.1f, 0.1f, l->y);
  TrsRandomUniformFill(1, TRS_RANDOM_TEST, 5, 0, 3 * SQUARE * SQUARE, -0.1f, 0.1f, l->square);
}

static PetscErrorCode set_up(Limits *l, TrsOptions options)
{
  int64_t *const numbers[] = {&l->rounds, &l->tables, &l->features, &l->rows, &l->dim, &l->pooling};
  int precision, row_bits = 1;

  PetscFunctionBegin;
  for (int i = 0; i < 6; i++) PetscCall(TrsOptionsGetInt(options, specs[i].name, numbers[i], NULL));
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &l->batch, NULL));
  PetscCall(TrsOptionsGetReal(options, "-alpha", &l->alpha, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-interaction", &l->dcn, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-precision", &precision, NULL));
  PetscCheck(l->dim == 32 || l->dim == 64 || l->dim == 128 || l->dim == 256, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-dim %" PRId64 " is none of 32, 64, 128, 256", l->dim);
  PetscCallMPI(MPI_Comm_rank(MPI_COMM_WORLD, &l->rank));
  PetscCallMPI(MPI_Comm_size(MPI_COMM_WORLD, &l->size));
  PetscCheck(l->tables * l->size >= l->features && l->size <= 1 << 10, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%d ranks with -tables %" PRId64 " have too few tables for -features %" PRId64, l->size,
             l->tables, l->features);
  l->bags = l->batch * l->size;
  l->n = l->bags * l->pooling;
  while (((int64_t)1 << l->position_bits) < l->bags) l->position_bits++;
  while (((int64_t)1 << row_bits) < l->rows) row_bits++;
  PetscCheck(l->position_bits + row_bits <= 32, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "a key of 32 bits cannot have %" PRId64 " rows and %" PRId64 " bags", l->rows, l->bags);
  PetscCall(TrsComputeFind("cpu", &l->compute));
  PetscCall(l->compute->dense_precision((TrsDensePrecision)precision));
  PetscCall(add_layers(l, options));
  PetscCall(allocate(l));
  fill(l);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode report(Limits *l)
{
  PetscFunctionBegin;
  for (int i = 0; i < l->n_results; i++) {
    double mine = bench_median(l->rounds, l->results[i].seconds), sum;

    PetscCallMPI(MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "limit %s,%.5f\n", l->results[i].name, 1e3 * sum / l->size));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(Limits *l)
{
  void *const memory[] = {&l->values, &l->key, &l->other, &l->seen,   &l->weight, &l->state, &l->params,
                          &l->sums,   &l->x,   &l->y,     &l->square, &l->file,   &l->read};

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) PetscCall(TrsFree(memory[i]));
  for (int i = 0; i < 6; i++) PetscCall(TrsFree(&l->cross[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode bench_limits(int argc, char **argv)
{
  static const TrsOptionGroup *const groups[] = {&bench_options};
  TrsOptions options;
  Limits *l;

  PetscFunctionBegin;
  PetscCall(PetscNew(&l));
  PetscCall(TrsOptionsCreate(PETSC_COMM_WORLD, argc, argv, groups, 1, &options));
  PetscCall(set_up(l, options));
  for (l->round = -1; l->round < l->rounds; l->round++, l->batch_number++) PetscCall(run_round(l));
  PetscCall(report(l));
  PetscCallMPI(MPI_Barrier(MPI_COMM_WORLD)); /* other ranks may still read this rank's memory */
  PetscCall(release(l));
  PetscCall(PetscFree(l));
  PetscCall(TrsOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  return bench_main(argc, argv, bench_limits);
}
