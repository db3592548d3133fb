/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/timed_ops.h"

#include "core/clock.h"
#include "core/random/random.h"
#include "device/kernel_times.h"

#include <string.h>

static const TrsComputeOps *base;
static TrsComputeOps timed;
static PetscBool by_events; /* the device has timed events, so products have rows of their own */

/* Call a kernel of `base`, with the bytes and operations of the call. */
#define TIMED(member, bytes, flops, ...) \
  do { \
    PetscErrorCode error_; \
\
    if (PetscUnlikely(trs_kernels_are_timed)) TrsKernelTimesCall(#member, (bytes), (flops)); \
    error_ = base->member(__VA_ARGS__); \
    if (PetscUnlikely(trs_kernels_are_timed)) TrsKernelTimesCallEnd(); \
    return error_; \
  } while (0)

static double size_of(TrsDType type)
{
  return (double)TrsDTypeBytes(type);
}

/* --- tables --- */

#define TRS_SHAPES_OF(KIND, word, first, first_name, second, ...) {TRS_STATE_##first, TRS_STATE_##second},
static const TrsStateShape shapes[][TRS_OPTIMIZER_STATES] = {TRS_EMBEDDING_OPTIMIZERS(TRS_SHAPES_OF)};

/* Mean bytes of a row that a feature looks up, and of its optimizer's states. */
static double bytes_of_row(const TrsTbe *tbe, const TrsSparseOptimizerArgs *args)
{
  double bytes = 0;

  for (int f = 0; f < tbe->n_features; f++) {
    const TrsTbeTable *table = &tbe->table[tbe->feature[f].table];

    bytes += (double)table->dim * size_of(table->dtype);
    for (int s = 0; args && s < TRS_OPTIMIZER_STATES; s++)
      if (table->state[s])
        bytes += shapes[args[table->optimizer].kind][s] == TRS_STATE_ROW ? 4.0 : 4.0 * (double)table->dim;
  }
  return tbe->n_features ? bytes / (double)tbe->n_features : 0;
}

/* Bytes of a batch's pooled vectors. */
static double bytes_of_vectors(const TrsTbe *tbe, int64_t batch, TrsDType type)
{
  double numbers = 0;

  for (int f = 0; f < tbe->n_features; f++) numbers += (double)tbe->table[tbe->feature[f].table].dim;
  return (double)batch * numbers * size_of(type);
}

static PetscErrorCode tbe_forward(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                  const TrsTbeInput *input, TrsMatrix out)
{
  TIMED(tbe_forward,
        (double)input->n_values * (8 + bytes_of_row(tbe, NULL)) +
            bytes_of_vectors(tbe, input->batch, out.type),
        0, stream, workspace, tbe, input, out);
}

static PetscErrorCode tbe_backward(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                   const TrsTbeInput *input, TrsMatrix grad,
                                   const TrsSparseOptimizerArgs *args)
{
  TIMED(tbe_backward,
        (double)input->n_values * (16 + 2 * bytes_of_row(tbe, args)) +
            bytes_of_vectors(tbe, input->batch, grad.type),
        0, stream, workspace, tbe, input, grad, args);
}

/* The bytes of the sort and of two passes that find the runs (gpu/README.md). */
static PetscErrorCode tbe_find_occurrences(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                           const TrsTbeInput *input, TrsTbeUse use,
                                           TrsTbeOccurrences *occurrences)
{
  TIMED(tbe_find_occurrences, 108 * (double)input->n_values, 0, stream, workspace, tbe, input, use,
        occurrences);
}

static PetscErrorCode copy_columns(TrsStream stream, int64_t rows, int n, const TrsColumnCopy *copy)
{
  double bytes = 0;

  for (int i = 0; i < n; i++)
    bytes += (double)copy[i].cols * (size_of(copy[i].from.type) + size_of(copy[i].to.type));
  TIMED(copy_columns, (double)rows * bytes, 0, stream, rows, n, copy);
}

static PetscErrorCode sum_matrices(TrsStream stream, int n_parts, const float *const *from,
                                   int64_t from_stride, int64_t rows, int64_t cols, float *to,
                                   int64_t to_stride)
{
  TIMED(sum_matrices, 4.0 * (double)(n_parts + 1) * (double)rows * (double)cols, 0, stream, n_parts, from,
        from_stride, rows, cols, to, to_stride);
}

static PetscErrorCode encode(TrsStream stream, const TrsCodec *codec, int64_t n, const float *from, void *to)
{
  TIMED(encode, 4.0 * (double)n + (double)base->codec_bytes(codec, n), 0, stream, codec, n, from, to);
}

static PetscErrorCode decode(TrsStream stream, const TrsCodec *codec, int64_t n, const void *from, float *to)
{
  TIMED(decode, 4.0 * (double)n + (double)base->codec_bytes(codec, n), 0, stream, codec, n, from, to);
}

/* --- dense layers --- */

static PetscErrorCode convert_matrix(TrsStream stream, int64_t rows, int64_t cols, int64_t filled,
                                     TrsMatrix from, TrsMatrix to)
{
  TIMED(convert_matrix,
        (double)rows * ((double)cols * size_of(from.type) + (double)filled * size_of(to.type)), 0, stream,
        rows, cols, filled, from, to);
}

/*
  With timed events, the products of a layer have rows of their own, and its other kernels have
  rows without bytes.
*/
static PetscErrorCode multiply(TrsStream stream, const TrsMatrixProduct *p)
{
  const double m = (double)p->m, n = (double)p->n, k = (double)p->k;

  if (by_events) return base->multiply(stream, p);
  TIMED(multiply, m * k * size_of(p->a.type) + k * n * size_of(p->b.type) + m * n * size_of(p->c.type),
        2 * m * n * k, stream, p);
}

static PetscErrorCode linear_forward(TrsStream stream, const TrsLinear *l)
{
  const double in = (double)l->in, out = (double)l->out, batch = (double)l->batch;

  if (by_events) return base->linear_forward(stream, l);
  TIMED(linear_forward,
        batch * in * size_of(l->x.type) + in * out * size_of(l->weight.type) +
            batch * out * size_of(l->y.type),
        2 * batch * in * out, stream, l);
}

static PetscErrorCode linear_backward(TrsStream stream, const TrsLinear *l, const TrsLinearGradients *g)
{
  const double in = (double)l->in, out = (double)l->out, batch = (double)l->batch;
  const double to_x = g->dx.data ? batch * in * size_of(g->dx.type) : 0;

  if (by_events) return base->linear_backward(stream, l, g);
  TIMED(linear_backward,
        batch * in * size_of(l->x.type) + batch * out * size_of(g->dy.type) + to_x +
            in * out * (size_of(l->weight.type) + 4),
        (g->dx.data ? 4 : 2) * batch * in * out, stream, l, g);
}

static double numbers_of_dot(int64_t batch, int n, int D)
{
  return (double)batch * (double)n * (double)D;
}

static double products_of_dot(int64_t batch, int n)
{
  return (double)batch * (double)n * (double)(n - 1) / 2;
}

static PetscErrorCode dot_forward(TrsStream stream, int64_t batch, int n, int D, int copied, int n_zeros,
                                  TrsMatrix x, TrsMatrix out)
{
  TIMED(dot_forward,
        numbers_of_dot(batch, n, D) * size_of(x.type) +
            (products_of_dot(batch, n) + (double)batch * (double)(copied + n_zeros)) * size_of(out.type),
        2 * products_of_dot(batch, n) * D, stream, batch, n, D, copied, n_zeros, x, out);
}

static PetscErrorCode dot_backward(TrsStream stream, int64_t batch, int n, int D, int copied, TrsMatrix x,
                                   TrsMatrix dout, TrsMatrix dx)
{
  TIMED(dot_backward,
        numbers_of_dot(batch, n, D) * (size_of(x.type) + size_of(dx.type)) +
            (products_of_dot(batch, n) + (double)batch * (double)copied) * size_of(dout.type),
        4 * products_of_dot(batch, n) * D, stream, batch, n, D, copied, x, dout, dx);
}

static PetscErrorCode dot_places_forward(TrsStream stream, int64_t batch, int n, int D, int copied,
                                         int n_zeros, TrsDType type, const TrsVectorPlace *x, TrsMatrix out)
{
  TIMED(dot_places_forward,
        numbers_of_dot(batch, n, D) * size_of(type) +
            (products_of_dot(batch, n) + (double)batch * (double)(copied + n_zeros)) * size_of(out.type),
        2 * products_of_dot(batch, n) * D, stream, batch, n, D, copied, n_zeros, type, x, out);
}

static PetscErrorCode dot_places_backward(TrsStream stream, int64_t batch, int n, int D, int copied,
                                          TrsDType type, const TrsVectorPlace *x, TrsMatrix dout,
                                          const TrsVectorPlace *dx)
{
  TIMED(dot_places_backward,
        2 * numbers_of_dot(batch, n, D) * size_of(type) +
            (products_of_dot(batch, n) + (double)batch * (double)copied) * size_of(dout.type),
        4 * products_of_dot(batch, n) * D, stream, batch, n, D, copied, type, x, dout, dx);
}

static PetscErrorCode cross_forward(TrsStream stream, int64_t batch, int64_t n, TrsDType type, const void *x0,
                                    const void *u, const float *bias, const void *x, void *y)
{
  TIMED(cross_forward, 4 * (double)batch * (double)n * size_of(type), 0, stream, batch, n, type, x0, u, bias,
        x, y);
}

/*
  With events the product has a row of its own, and the call counts the element-wise part. If one
  kernel computes both, its operations are not counted, because its bytes need more time.
*/
static PetscErrorCode cross_product(TrsStream stream, const TrsCrossProduct *layer)
{
  const TrsMatrixProduct *p = &layer->product;
  const double m = (double)p->m, n = (double)p->n, k = by_events ? 0 : (double)p->k;

  TIMED(cross_product, k * (m * size_of(p->a.type) + n * size_of(p->b.type)) + 4 * m * n * size_of(p->c.type),
        2 * m * n * k, stream, layer);
}

/*
  Return the bytes per number of a cross_backward. x0, u and g are read and h is written; dx0, in
  fp32, is written first and later added to. With kept layers, the last call also reads their u and
  g, and the other calls do not read u.
*/
static double bytes_of_cross(int place, const TrsCrossBackward *layer)
{
  const double size = size_of(layer->type), read = place & TRS_CROSS_FIRST ? 0 : 4,
               written = layer->total ? size : 4;

  if (place & TRS_CROSS_KEPT) return 3 * size;
  return layer->n_kept ? (5 + 2 * layer->n_kept) * size : 4 * size + read + written;
}

static PetscErrorCode cross_backward(TrsStream stream, int64_t batch, int64_t n, int place,
                                     const TrsCrossBackward *layer)
{
  TIMED(cross_backward, (double)batch * (double)n * bytes_of_cross(place, layer), 0, stream, batch, n, place,
        layer);
}

/*
  Products have rows of their own in the table, so this row counts only the element-wise part. The
  bytes are those of two kernels, even if one kernel computes both.
*/
static PetscErrorCode cross_input_backward(TrsStream stream, const TrsCrossInputBackward *layers)
{
  TIMED(cross_input_backward,
        (double)layers->batch * (double)layers->n * bytes_of_cross(layers->place, &layers->lower), 0, stream,
        layers);
}

static PetscErrorCode bce(TrsStream stream, const TrsLossArgs *args)
{
  const double numbers = 2.0 + (args->dz != NULL) + (args->p != NULL) + (args->w != NULL);
  const double in = args->layer ? (double)args->layer->in : 0,
               x_bytes = args->layer ? in * size_of(args->layer->x.type) : 0;

  TIMED(bce, (double)args->batch * (4.0 * numbers + x_bytes), 2 * (double)args->batch * in, stream, args);
}

static PetscErrorCode sum_of_squares(TrsStream stream, int64_t n, const float *x, double *sum)
{
  TIMED(sum_of_squares, 4.0 * (double)n, 0, stream, n, x, sum);
}

static PetscErrorCode dense_update(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                   const float *grad, float *weight, float *state1, float *state2)
{
  const double states = 2.0 * (state1 != NULL) + 2.0 * (state2 != NULL);

  TIMED(dense_update, (double)n * (4.0 * (3.0 + states) + 2.0 * (args->operands != NULL)), 0, stream, n, args,
        grad, weight, state1, state2);
}

const TrsComputeOps *TrsComputeTimed(const TrsComputeOps *ops, const TrsDeviceOps *device)
{
  base = ops;
  by_events = (PetscBool)(device->timed_event_create != NULL);
  timed = *ops;
#define TRS_TIMED(member) timed.member = member
  TRS_TIMED(tbe_forward);
  TRS_TIMED(tbe_backward);
  if (ops->tbe_find_occurrences) TRS_TIMED(tbe_find_occurrences);
  TRS_TIMED(copy_columns);
  TRS_TIMED(sum_matrices);
  TRS_TIMED(encode);
  TRS_TIMED(decode);
  TRS_TIMED(convert_matrix);
  TRS_TIMED(multiply);
  TRS_TIMED(linear_forward);
  TRS_TIMED(linear_backward);
  TRS_TIMED(dot_forward);
  TRS_TIMED(dot_backward);
  TRS_TIMED(dot_places_forward);
  TRS_TIMED(dot_places_backward);
  TRS_TIMED(cross_forward);
  TRS_TIMED(cross_product);
  TRS_TIMED(cross_backward);
  if (ops->cross_input_backward) TRS_TIMED(cross_input_backward);
  TRS_TIMED(bce);
  TRS_TIMED(sum_of_squares);
  TRS_TIMED(dense_update);
  return &timed;
}

/* --- rates --- */

enum { TRS_RATE_ROUNDS = 4, TRS_RATE_LEAST_ROWS = 64, TRS_RATE_MOST_ROWS = 8192 };
static const int64_t LEAST_BYTES = 1 << 16, MOST_BYTES = (int64_t)1 << 30, PATTERN_BYTES = 1 << 20;
/* a measurement of this length is not made with more work */
static const double LONG_ENOUGH_S = 1e-2;

/* The work that is timed: a copy, or a product with n rows. */
typedef struct {
  const TrsComputeOps *compute;
  const TrsDeviceOps *device;
  TrsStream stream;
  void *from, *to;
  TrsDType type;
} TrsRateBench;

static PetscErrorCode copy_once(const TrsRateBench *b, int64_t bytes)
{
  PetscFunctionBegin;
  PetscCall(b->device->copy(b->to, b->from, bytes, b->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode multiply_once(const TrsRateBench *b, int64_t n)
{
  const TrsMatrix in = {b->type, n, b->from}, out = {b->type, n, b->to};

  PetscFunctionBegin;
  PetscCall(b->compute->multiply(
      b->stream,
      &(TrsMatrixProduct){
          .trans_b = PETSC_TRUE, .m = n, .n = n, .k = n, .alpha = 1.0f, .a = in, .b = in, .c = out}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Fill the source with numbers in [1, 2). Zeros would need less power, and be faster. */
static PetscErrorCode fill(const TrsRateBench *b, int64_t bytes)
{
  uint32_t *pattern;

  PetscFunctionBegin;
  PetscCall(b->device->alloc_host(PATTERN_BYTES, (void **)&pattern));
  for (int64_t i = 0; i < PATTERN_BYTES / 4; i += 4) {
    TrsRandom(1, TRS_RANDOM_TEST, 0, (uint64_t)i, pattern + i);
    for (int j = 0; j < 4; j++)
      pattern[i + j] = b->type == TRS_BF16 ? (pattern[i + j] & 0x007F007FU) | 0x3F803F80U
                                           : (pattern[i + j] & 0x007FFFFFU) | 0x3F800000U;
  }
  for (int64_t at = 0; at < bytes; at += PATTERN_BYTES)
    PetscCall(b->device->copy((char *)b->from + at, pattern, PetscMin(PATTERN_BYTES, bytes - at), b->stream));
  PetscCall(b->device->stream_synchronize(b->stream));
  PetscCall(b->device->release_host((void **)&pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The shortest of some times, after one that does not count, with operands of this size. */
static PetscErrorCode time_work(TrsRateBench *b, PetscErrorCode (*work)(const TrsRateBench *, int64_t),
                                int64_t n, int64_t bytes, double *best_s)
{
  PetscFunctionBegin;
  PetscCall(b->device->alloc(bytes, &b->from));
  PetscCall(b->device->alloc(bytes, &b->to));
  PetscCall(fill(b, bytes));
  for (int round = 0; round < TRS_RATE_ROUNDS; round++) {
    const double start_s = TrsClock();
    double took_s;

    PetscCall(work(b, n));
    PetscCall(b->device->stream_synchronize(b->stream));
    took_s = TrsClock() - start_s;
    if (round == 1 || (round > 1 && took_s < *best_s)) *best_s = took_s;
  }
  PetscCall(b->device->release(&b->from));
  PetscCall(b->device->release(&b->to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsComputeRates(const TrsComputeOps *compute, const TrsDeviceOps *device,
                               TrsKernelRates *rates)
{
  TrsRateBench b = {.compute = compute, .device = device, .type = compute->operand_type()};
  int64_t free_bytes, total_bytes, room;
  double took_s = 0;

  PetscFunctionBegin;
  PetscCall(device->memory(&free_bytes, &total_bytes));
  room = PetscMax(PetscMin(MOST_BYTES, free_bytes / 8), LEAST_BYTES);
  PetscCall(device->stream_create("compute", &b.stream));
  for (int64_t bytes = LEAST_BYTES; bytes <= room && took_s < LONG_ENOUGH_S; bytes *= 4) {
    PetscCall(time_work(&b, copy_once, bytes, bytes, &took_s));
    rates->copy = 2 * (double)bytes / took_s;
  }
  took_s = 0;
  for (int64_t n = TRS_RATE_LEAST_ROWS;
       n <= TRS_RATE_MOST_ROWS && n * n * 4 <= room && took_s < LONG_ENOUGH_S; n *= 2) {
    PetscCall(time_work(&b, multiply_once, n, n * n * 4, &took_s));
    rates->products = 2 * (double)n * (double)n * (double)n / took_s;
  }
  PetscCall(device->stream_destroy(&b.stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
