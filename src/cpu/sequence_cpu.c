/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sequences and position weights on the CPU: a bag's rows are converted to the model's input, and
  the input's gradients to gradients of the rows.

  A bag is processed by one thread, and every gradient row is written once. So the number of threads
  does not change results.

  Source: src/RULES.md, rule A26; TorchRec PositionWeightedModule
*/
#include "cpu/cpu_kernels.h"

#include <string.h>

static inline int64_t row_of(const TrsSequenceBags *bags, int64_t id)
{
  return ((bags->index ? bags->index[id] : id) + bags->shift) * bags->row_stride;
}

static inline PetscBool is_row(const TrsSequenceBags *bags, int64_t id)
{
  return (PetscBool)(!bags->ids || bags->ids[id] >= 0);
}

static void mean_forward(const TrsSequenceBags *bags, const float *rows, int64_t begin, int64_t end,
                         float *out)
{
  for (int64_t d = 0; d < bags->dim; d++) out[d] = 0.0F;
  for (int64_t i = begin; i < end; i++) {
    const float *row = rows + row_of(bags, i);

    if (!is_row(bags, i)) continue;
    for (int64_t d = 0; d < bags->dim; d++) out[d] += row[d];
  }
  if (end - begin > 1)
    for (int64_t d = 0; d < bags->dim; d++) out[d] /= (float)(end - begin);
}

/* Return the first id in [begin, end) that is not pruned, or end. */
static int64_t first_row(const TrsSequenceBags *bags, int64_t begin, int64_t end)
{
  while (begin < end && !is_row(bags, begin)) begin++;
  return begin;
}

static void max_forward(const TrsSequenceBags *bags, const float *rows, int64_t begin, int64_t end,
                        float *out)
{
  const int64_t first = first_row(bags, begin, end);

  if (first == end) {
    memset(out, 0, (size_t)bags->dim * sizeof(*out));
    return;
  }
  memcpy(out, rows + row_of(bags, first), (size_t)bags->dim * sizeof(*out));
  for (int64_t i = first + 1; i < end; i++) {
    const float *row = rows + row_of(bags, i);

    if (!is_row(bags, i)) continue;
    for (int64_t d = 0; d < bags->dim; d++) out[d] = row[d] > out[d] ? row[d] : out[d];
  }
}

static void concat_forward(const TrsSequenceBags *bags, const float *rows, int64_t begin, int64_t end,
                           float *out)
{
  for (int64_t place = 0; place < bags->places; place++) {
    float *to = out + place * bags->place_stride;

    if (begin + place < end && is_row(bags, begin + place))
      memcpy(to, rows + row_of(bags, begin + place), (size_t)bags->dim * sizeof(*to));
    else
      memset(to, 0, (size_t)bags->dim * sizeof(*to));
  }
}

PetscErrorCode TrsSequenceForwardCpu(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                     float *out, int64_t out_stride)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < bags->batch; b++) {
    const int64_t begin = bags->offsets[b], end = bags->offsets[b + 1];

    switch (bags->pooling) {
    case TRS_SEQUENCE_MEAN: mean_forward(bags, rows, begin, end, out + b * out_stride); break;
    case TRS_SEQUENCE_MAX: max_forward(bags, rows, begin, end, out + b * out_stride); break;
    case TRS_SEQUENCE_CONCAT: concat_forward(bags, rows, begin, end, out + b * out_stride); break;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write the gradient of one column to the first row that has the column's maximum. The gradient rows
  must be zero.
*/
static void max_backward(const TrsSequenceBags *bags, const float *rows, int64_t begin, int64_t end,
                         const float *grad, PetscBool by_id, float *to)
{
  const int64_t first = first_row(bags, begin, end);

  if (first == end) return;
  for (int64_t d = 0; d < bags->dim; d++) {
    int64_t at = first;

    for (int64_t i = first + 1; i < end; i++)
      if (is_row(bags, i) && rows[row_of(bags, i) + d] > rows[row_of(bags, at) + d]) at = i;
    to[(by_id ? at * bags->row_stride : row_of(bags, at)) + d] = grad[d];
  }
}

static void bag_backward(const TrsSequenceBags *bags, const float *rows, int64_t b, const float *grad,
                         PetscBool by_id, float *to)
{
  const int64_t begin = bags->offsets[b], end = bags->offsets[b + 1];
  const float length = (float)(end - begin);

  for (int64_t i = begin; i < end; i++) {
    float *row = to + (by_id ? i * bags->row_stride : row_of(bags, i));
    const int64_t place = i - begin;

    if (is_row(bags, i) && bags->pooling == TRS_SEQUENCE_MEAN)
      for (int64_t d = 0; d < bags->dim; d++) row[d] = grad[d] / length;
    else if (is_row(bags, i) && bags->pooling == TRS_SEQUENCE_CONCAT && place < bags->places)
      memcpy(row, grad + place * bags->place_stride, (size_t)bags->dim * sizeof(*row));
    else
      memset(row, 0, (size_t)bags->dim * sizeof(*row));
  }
  if (bags->pooling == TRS_SEQUENCE_MAX) max_backward(bags, rows, begin, end, grad, by_id, to);
}

PetscErrorCode TrsSequenceBackwardCpu(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                      const float *grad, int64_t grad_stride, PetscBool by_id, float *to)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < bags->batch; b++) bag_backward(bags, rows, b, grad + b * grad_stride, by_id, to);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- positions --- */

PetscErrorCode TrsPositionsCpu(TrsStream stream, int64_t n_bags, const int64_t *offsets, float *positions)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < n_bags; b++)
    for (int64_t i = offsets[b]; i < offsets[b + 1]; i++) positions[i] = (float)(i - offsets[b]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPositionWeightsCpu(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                     const float *positions, int64_t length, const float *by_position,
                                     float *weights)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static)
  for (int64_t i = offsets[0]; i < offsets[n_bags]; i++) {
    const int64_t position = (int64_t)positions[i];
    weights[i] = position >= 0 && position < length ? by_position[position] : 0.0F;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* sums are in double, because many thousands of bags add to one position */
PetscErrorCode TrsPositionGradientsCpu(TrsStream stream, TrsWorkspace workspace, int64_t n_bags,
                                       const int64_t *offsets, const float *positions,
                                       const float *grad_weights, int64_t length, float *by_position)
{
  double *sum;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(TrsBufferReserve(&workspace->scratch, length * (int64_t)sizeof(*sum), PETSC_FALSE));
  sum = (double *)workspace->scratch.data;
  memset(sum, 0, (size_t)length * sizeof(*sum));
  for (int64_t i = offsets[0]; i < offsets[n_bags]; i++) {
    const int64_t position = (int64_t)positions[i];
    if (position >= 0 && position < length) sum[position] += (double)grad_weights[i];
  }
  for (int64_t p = 0; p < length; p++) by_position[p] = (float)((double)by_position[p] + sum[p]);
  PetscFunctionReturn(PETSC_SUCCESS);
}
