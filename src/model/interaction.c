/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/interaction.h"

#include "core/function_table.h"

#define ALIGNMENT 16 /* in floats: the output's padded rows start on a cache line */

PetscErrorCode TrsInteractionCheck(const TrsInteractionOps *ops)
{
  const TrsTableEntry entries[] = {TRS_TABLE_ENTRY(ops, word), TRS_TABLE_ENTRY(ops, width),
                                   TRS_TABLE_ENTRY(ops, flops), TRS_TABLE_ENTRY(ops, forward),
                                   TRS_TABLE_ENTRY(ops, backward)};

  PetscFunctionBegin;
  PetscCall(
      TrsFunctionTableCheck("-interaction", ops->word, entries, (int)(sizeof(entries) / sizeof(entries[0]))));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsInteractionFind(TrsInteractionKind kind, const TrsInteractionOps **ops)
{
#define TABLE_OF(KIND, word) &trs_interaction_##word,
  static const TrsInteractionOps *const tables[] = {TRS_INTERACTIONS(TABLE_OF)};

  PetscFunctionBegin;
  *ops = tables[kind];
  PetscCall(TrsInteractionCheck(*ops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsInteractionAll(const TrsInteraction *interaction)
{
  return interaction->N;
}

void TrsInteractionShape(TrsInteraction *interaction, int n_vectors, int D, int copied, int64_t N,
                         PetscBool products_alone, PetscBool typed_x)
{
  const int64_t unit = interaction->context->compute->product_unit;

  interaction->n_vectors = n_vectors;
  interaction->D = D;
  interaction->copied = copied;
  interaction->N = N;
  interaction->type = interaction->ops->typed && products_alone ? interaction->context->params->type
                                                                : TRS_FP32;
  interaction->x = (TrsMatrix){.type = typed_x ? interaction->type : TRS_FP32, .stride = N};
  interaction->dx = interaction->dense_x = interaction->dense_dx = interaction->x;
  interaction->width = interaction->filled = interaction->stride = interaction->ops->width(interaction);
  if (interaction->ops->padded) {
    interaction->filled = (interaction->width + unit - 1) / unit * unit;
    interaction->stride = (interaction->filled + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
}

PetscBool TrsInteractionCopiesX(const TrsInteraction *interaction)
{
  return (PetscBool)(interaction->x.type != interaction->type);
}

TrsCrossBackward TrsInteractionCross(const TrsInteraction *interaction, PetscBool lowest, TrsMatrix x0,
                                     const void *u, int bias, float *dx0, void *h)
{
  const TrsDenseParameter *param = &interaction->context->params->param[bias];

  return (TrsCrossBackward){.x0 = x0.data,
                            .u = u,
                            .bias = param->value,
                            .g = interaction->dout,
                            .dx0 = dx0,
                            .h = h,
                            .grad_bias = param->grad,
                            .type = interaction->type,
                            .total = lowest && interaction->dx.type != TRS_FP32 ? interaction->dout : NULL};
}

TrsMatrix TrsInteractionMatrix(const TrsInteraction *interaction, void *data)
{
  return (TrsMatrix){.type = interaction->type, .stride = interaction->stride, .data = data};
}

PetscBool TrsInteractionMayScatter(const TrsInteraction *interaction)
{
  return (PetscBool)(interaction->ops->scattered && !interaction->elsewhere &&
                     interaction->context->compute->dot_takes_places(interaction->n_vectors, interaction->D));
}

PetscErrorCode TrsInteractionMakeX(TrsInteraction *interaction, int64_t max_batch, int64_t width)
{
  const int64_t bytes = max_batch * width * TrsDTypeBytes(interaction->x.type);

  PetscFunctionBegin;
  PetscCall(interaction->context->device->alloc(bytes, &interaction->own_x));
  interaction->x.data = interaction->own_x;
  interaction->x.stride = width;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Allocate the matrices of the dense vector, and note their addresses. */
static PetscErrorCode allocate_dense_vector(TrsInteraction *interaction, int64_t max_batch)
{
  const int64_t bytes = max_batch * interaction->copied * TrsDTypeBytes(interaction->x.type);

  PetscFunctionBegin;
  if (!interaction->copied) PetscFunctionReturn(PETSC_SUCCESS);
  interaction->dense_x.stride = interaction->dense_dx.stride = interaction->copied;
  PetscCall(interaction->context->device->alloc(bytes, &interaction->dense_x.data));
  interaction->x_at[0] = (TrsVectorPlace){.data = (float *)interaction->dense_x.data,
                                          .stride = interaction->copied};
  if (interaction->context->params->forward_only) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(interaction->context->device->alloc(bytes, &interaction->dense_dx.data));
  interaction->dx_at[0] = (TrsVectorPlace){.data = (float *)interaction->dense_dx.data,
                                           .stride = interaction->copied};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsInteractionAllocate(TrsInteraction *interaction, int64_t max_batch, float *out, void *dx,
                                      float *dout)
{
  const TrsDeviceOps *device = interaction->context->device;
  const int64_t bytes = max_batch * interaction->N * TrsDTypeBytes(interaction->x.type);
  const PetscBool in_matrices = (PetscBool)(!interaction->elsewhere && !interaction->x_at);

  PetscFunctionBegin;
  if (in_matrices) PetscCall(device->alloc(bytes, &interaction->own_x));
  if (in_matrices && interaction->ops->in_place && !interaction->context->params->forward_only)
    PetscCall(device->alloc(bytes, &interaction->own_dx));
  interaction->out = out;
  interaction->dout = dout;
  if (interaction->ops->allocate) PetscCall(interaction->ops->allocate(interaction, max_batch));
  if (interaction->x_at)
    PetscCall(allocate_dense_vector(interaction, max_batch));
  else
    TrsInteractionPlace(interaction, interaction->own_x,
                        interaction->ops->in_place ? interaction->own_dx : dx);
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsInteractionPlace(TrsInteraction *interaction, void *x, void *dx)
{
  interaction->x.data = x;
  interaction->dx.data = dx;
  interaction->dense_x = interaction->x;
  interaction->dense_dx = interaction->dx;
  if (interaction->ops->in_place) {
    interaction->out = (float *)x;
    interaction->dout = (float *)dx;
  }
  if (interaction->ops->placed) interaction->ops->placed(interaction);
}

PetscErrorCode TrsInteractionFree(TrsInteraction *interaction)
{
  PetscFunctionBegin;
  if (interaction->ops && interaction->ops->free) PetscCall(interaction->ops->free(interaction));
  PetscCall(interaction->context->device->release(&interaction->own_x));
  PetscCall(interaction->context->device->release(&interaction->own_dx));
  if (interaction->x_at) PetscCall(interaction->context->device->release(&interaction->dense_x.data));
  if (interaction->x_at) PetscCall(interaction->context->device->release(&interaction->dense_dx.data));
  PetscCall(PetscFree2(interaction->x_at, interaction->dx_at));
  PetscFunctionReturn(PETSC_SUCCESS);
}
