/* SPDX-License-Identifier: BSD-3-Clause */
/*
  din: target attention. A stack of layers compares each row k of a bag with the sample's target q,
  which is another vector of the model. The stack computes the row's weight from [q, k, q - k, q *
  k]. The output is the sum of the weighted rows. With softmax the weights in a bag are positive and
  add up to 1.

  The stack works on all rows of the batch as one matrix, so no bag is padded.

  Source: Zhou et al. 2018, Deep Interest Network for Click-Through Rate Prediction, section 4.3,
          which has no softmax. The parts of the input are as in the authors' code
*/
#include "model/mlp.h"
#include "model/sequence_layer.h"

typedef struct {
  TrsMlp mlp;
  int64_t *sizes; /* the stack's sizes: those of din_arch, then 1 */
} TrsDin;

static PetscErrorCode declare(TrsSequenceLayer *layer)
{
  const TrsTableConfig *table = layer->table;
  char module[PETSC_MAX_PATH_LEN];
  TrsMlpSpec spec = {.n = table->n_din_arch + 1,
                     .plain_last = PETSC_TRUE,
                     .activation = table->din_activation,
                     .x_type = layer->context->params->type};
  TrsDin *din;

  PetscFunctionBegin;
  PetscCall(PetscNew(&din));
  layer->own = din;
  PetscCall(PetscMalloc1((size_t)spec.n, &din->sizes));
  PetscCall(PetscArraycpy(din->sizes, table->din_arch, (size_t)table->n_din_arch));
  din->sizes[spec.n - 1] = 1;
  spec.sizes = din->sizes;
  PetscCall(PetscSNPrintf(module, sizeof(module), "%s/mlp", layer->module));
  PetscCall(TrsMlpDeclare(&din->mlp, layer->context, module, &spec, 4 * layer->dim, 4 * layer->dim));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double flops(const TrsSequenceLayer *layer, double ids)
{
  double of_stack = 0.0, unused = 0.0;

  TrsMlpWork(&((const TrsDin *)layer->own)->mlp, &of_stack, &unused);
  return ids * (of_stack + 4.0 * (double)layer->dim);
}

static double bytes(const TrsSequenceLayer *layer, double ids)
{
  double unused = 0.0, of_stack = 0.0;

  TrsMlpWork(&((const TrsDin *)layer->own)->mlp, &unused, &of_stack);
  return ids * (of_stack + 6.0 * (double)sizeof(float) * (double)layer->dim) +
         2.0 * (double)sizeof(float) * (double)layer->dim;
}

/*
  Lay out the arrays for n bags, including parts and d_parts [rows, 4 D], and the stack's outputs.
  Only matrix multiplications read `parts`.
*/
static PetscErrorCode begin_batch(TrsSequenceLayer *layer, int64_t n, const TrsBagRows *bags,
                                  TrsSequenceMatrix x, TrsTargetAttention *attention, TrsMatrix *parts,
                                  float **d_parts)
{
  TrsDin *din = (TrsDin *)layer->own;
  const int64_t rows = bags->n_rows, D = layer->dim;
  const TrsMlpRoom room = TrsMlpPlace(&din->mlp, rows, NULL, TrsFloats(NULL, 1));
  const TrsDType type = layer->context->params->type;
  const int64_t most = 2 * TrsWholeLines(4 * rows * D) + 2 * TrsWholeLines(rows) + room.end;
  int64_t used = 0;
  float *memory;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(layer->context->device, &layer->memory, most * (int64_t)sizeof(float)));
  memory = (float *)layer->memory.data;
  *parts = TrsTakeMatrix(memory, &used, rows, 4 * D, type);
  *d_parts = TrsTakeFloats(memory, &used, 4 * rows * D);
  *attention = (TrsTargetAttention){.n_bags = n,
                                    .D = D,
                                    .first = bags->first,
                                    .softmax = layer->table->din_softmax,
                                    .offsets = bags->offsets,
                                    .rows = bags->rows,
                                    .grads = bags->grads,
                                    .q = x.data + layer->target_column,
                                    .out = x.data + layer->column,
                                    .q_stride = x.stride,
                                    .out_stride = x.stride,
                                    .parts = parts->data,
                                    .type = type,
                                    .score = TrsTakeFloats(memory, &used, rows),
                                    .weight = TrsTakeFloats(memory, &used, rows)};
  (void)TrsMlpPlace(&din->mlp, rows, memory + used, TrsFloats(attention->score, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                              TrsSequenceMatrix x)
{
  const TrsComputeOps *compute = layer->context->compute;
  const TrsDin *din = (const TrsDin *)layer->own;
  TrsTargetAttention attention;
  TrsMatrix parts;
  float *unused = NULL;

  PetscFunctionBegin;
  PetscCall(begin_batch(layer, n, bags, x, &attention, &parts, &unused));
  PetscCall(compute->target_parts(stream, &attention));
  PetscCall(TrsMlpForward(&din->mlp, stream, bags->n_rows, parts));
  PetscCall(compute->target_pool(stream, &attention));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(TrsSequenceLayer *layer, TrsStream stream, int64_t n, const TrsBagRows *bags,
                               TrsSequenceMatrix x, TrsSequenceMatrix dx)
{
  const TrsComputeOps *compute = layer->context->compute;
  const TrsDin *din = (const TrsDin *)layer->own;
  TrsTargetAttention attention;
  TrsMatrix parts;
  float *d_parts = NULL;

  PetscFunctionBegin;
  PetscCall(begin_batch(layer, n, bags, x, &attention, &parts, &d_parts));
  attention.dq = dx.data + layer->target_column;
  attention.out = dx.data + layer->column;
  attention.dq_stride = attention.out_stride = dx.stride;
  PetscCall(compute->target_pool_backward(stream, &attention));
  PetscCall(TrsMlpBackward(&din->mlp, stream, bags->n_rows, parts, TrsFloats(attention.score, 1),
                           TrsFloats(d_parts, 4 * layer->dim)));
  attention.parts = d_parts;
  attention.type = TRS_FP32;
  PetscCall(compute->target_parts_backward(stream, &attention));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsSequenceLayer *layer)
{
  TrsDin *din = (TrsDin *)layer->own;

  PetscFunctionBegin;
  if (!din) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsMlpFree(&din->mlp));
  PetscCall(PetscFree(din->sizes));
  PetscCall(PetscFree(layer->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsSequenceLayerOps trs_sequence_din = {.word = "din",
                                              .declare = declare,
                                              .flops = flops,
                                              .bytes = bytes,
                                              .forward = forward,
                                              .backward = backward,
                                              .free = release};
