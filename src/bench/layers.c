/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/layers.h"

#include "bench/timing.h"
#include "compute/gemm.h"

enum {
  TRS_BENCH_SAMPLES = 2048, /* number of samples in the measurement of dot products */
  TRS_BENCH_VECTORS = 27,
  TRS_BENCH_LAYER = 1024, /* number of columns of a layer, and of samples in its batch */
  /* number of floats per streamed matrix, which must be larger than a cache */
  TRS_BENCH_FLOATS = 1 << 24
};

/* --- matrix multiplications and streams --- */

typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  int64_t n;        /* number of floats that are streamed */
  float *a, *b, *c; /* [n] streamed matrices, and memory for the matrices that are multiplied */
} TrsBenchDense;

static PetscErrorCode run_products(void *context)
{
  const TrsBenchDense *d = (const TrsBenchDense *)context;
  const int64_t n = TRS_BENCH_LAYER;
  const TrsMatrixProduct product = {.trans_b = PETSC_TRUE,
                                    .m = n,
                                    .n = n,
                                    .k = n,
                                    .alpha = 1.0F,
                                    .a = TrsFloats(d->a, n),
                                    .b = TrsFloats(d->b, n),
                                    .c = TrsFloats(d->c, n)};

  PetscFunctionBegin;
  PetscCall(d->compute->multiply(NULL, &product));
  PetscCall(d->device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_stream(void *context)
{
  const TrsBenchDense *d = (const TrsBenchDense *)context;
  const int64_t cols = TRS_BENCH_LAYER;

  PetscFunctionBegin;
  PetscCall(d->compute->join_forward(NULL, d->n / cols, cols, PETSC_FALSE, TrsFloats(d->a, cols),
                                     TrsFloats(d->b, cols), TrsFloats(d->c, cols)));
  PetscCall(d->device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Measure two rates of a rank: operations/ms of matrix multiplications, and bytes/ms of a sum of
  matrices that are larger than the caches.
*/
static PetscErrorCode measure_dense(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates)
{
  const TrsDeviceOps *device = machine->device;
  const MPI_Comm comm = machine->comm;
  const int64_t layer = (int64_t)TRS_BENCH_LAYER * TRS_BENCH_LAYER;
  TrsBenchDense d = {
      .device = device, .compute = machine->compute, .n = TrsBenchAmount(TRS_BENCH_FLOATS, table_bytes)};
  const int64_t bytes = PetscMax(d.n, layer) * (int64_t)sizeof(float);
  double median;

  PetscFunctionBegin;
  PetscCall(device->alloc(bytes, (void **)&d.a));
  PetscCall(device->alloc(bytes, (void **)&d.b));
  PetscCall(device->alloc(bytes, (void **)&d.c));
  PetscCall(device->zero(d.a, bytes, NULL));
  PetscCall(device->zero(d.b, bytes, NULL));
  PetscCall(TrsBenchTime(comm, &(TrsBenchWork){NULL, run_products, &d}, &median, &rates->spread));
  rates->products = 2.0 * (double)TRS_BENCH_LAYER * TRS_BENCH_LAYER * TRS_BENCH_LAYER / (1e3 * median);
  PetscCall(TrsBenchTime(comm, &(TrsBenchWork){NULL, run_stream, &d}, &median, &rates->spread));
  rates->stream = 3.0 * (double)d.n * sizeof(float) / (1e3 * median);
  PetscCall(device->release((void **)&d.a));
  PetscCall(device->release((void **)&d.b));
  PetscCall(device->release((void **)&d.c));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- dot products of a sample's vectors --- */

typedef struct {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  int64_t n; /* number of samples */
  int dim;
  float *x, *dx, *out; /* vectors, gradients and dot products for n samples */
} TrsBenchPairs;

enum { TRS_BENCH_PAIRS = TRS_BENCH_VECTORS * (TRS_BENCH_VECTORS - 1) / 2 };

static PetscErrorCode run_pairs(void *context)
{
  const TrsBenchPairs *b = (const TrsBenchPairs *)context;
  const int width = TRS_BENCH_PAIRS + b->dim;

  PetscFunctionBegin;
  PetscCall(b->compute->dot_forward(NULL, b->n, TRS_BENCH_VECTORS, b->dim, b->dim, 0,
                                    TrsFloats(b->x, (int64_t)TRS_BENCH_VECTORS * b->dim),
                                    TrsFloats(b->out, width)));
  PetscCall(b->device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_pair_gradients(void *context)
{
  const TrsBenchPairs *b = (const TrsBenchPairs *)context;
  const int width = TRS_BENCH_PAIRS + b->dim;

  PetscFunctionBegin;
  PetscCall(b->compute->dot_backward(
      NULL, b->n, TRS_BENCH_VECTORS, b->dim, b->dim, TrsFloats(b->x, (int64_t)TRS_BENCH_VECTORS * b->dim),
      TrsFloats(b->out, width), TrsFloats(b->dx, (int64_t)TRS_BENCH_VECTORS * b->dim)));
  PetscCall(b->device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Measure the ms for one dot product of vectors with `dim` numbers, and for its gradients. */
static PetscErrorCode measure_pair(const TrsMachine *machine, int64_t samples, int dim, double *spread,
                                   double *forward_ms, double *backward_ms)
{
  const int64_t x_bytes = samples * TRS_BENCH_VECTORS * dim * (int64_t)sizeof(float);
  const int64_t out_bytes = samples * (TRS_BENCH_PAIRS + dim) * (int64_t)sizeof(float);
  const double n = (double)samples * TRS_BENCH_PAIRS;
  const TrsDeviceOps *device = machine->device;
  const MPI_Comm comm = machine->comm;
  TrsBenchPairs b = {.device = device, .compute = machine->compute, .n = samples, .dim = dim};
  double median;

  PetscFunctionBegin;
  PetscCall(device->alloc(x_bytes, (void **)&b.x));
  PetscCall(device->alloc(x_bytes, (void **)&b.dx));
  PetscCall(device->alloc(out_bytes, (void **)&b.out));
  PetscCall(device->zero(b.x, x_bytes, NULL));
  PetscCall(TrsBenchTime(comm, &(TrsBenchWork){NULL, run_pairs, &b}, &median, spread));
  *forward_ms = 1e3 * median / n;
  PetscCall(TrsBenchTime(comm, &(TrsBenchWork){NULL, run_pair_gradients, &b}, &median, spread));
  *backward_ms = 1e3 * median / n;
  PetscCall(device->release((void **)&b.x));
  PetscCall(device->release((void **)&b.dx));
  PetscCall(device->release((void **)&b.out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Measure the dot products of narrow and of wide vectors. */
static PetscErrorCode measure_pairs(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates)
{
  const int64_t samples = TrsBenchAmount(TRS_BENCH_SAMPLES, table_bytes);
  const double narrow = 2.0 * TRS_BENCH_NARROW, wide = 2.0 * TRS_BENCH_WIDE;
  double forward[2] = {0.0}, backward[2] = {0.0};

  PetscFunctionBegin;
  PetscCall(measure_pair(machine, samples, TRS_BENCH_NARROW, &rates->spread, &forward[0], &backward[0]));
  PetscCall(measure_pair(machine, samples, TRS_BENCH_WIDE, &rates->spread, &forward[1], &backward[1]));
  TrsBenchFit(narrow, forward[0], wide, forward[1], &rates->pairs.rate, &rates->pairs.overhead);
  /* The gradients of a dot product need twice as many operations. */
  TrsBenchFit(2.0 * narrow, backward[0], 2.0 * wide, backward[1], &rates->pairs.back_rate,
              &rates->pairs.back_overhead);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBenchLayers(const TrsMachine *machine, int64_t table_bytes, TrsBenchRates *rates)
{
  PetscFunctionBegin;
  PetscCall(measure_dense(machine, table_bytes, rates));
  PetscCall(measure_pairs(machine, table_bytes, rates));
  PetscFunctionReturn(PETSC_SUCCESS);
}
