/* SPDX-License-Identifier: BSD-3-Clause */
/*
  dropout: in a training step, a number becomes 0 with probability `rate`. Otherwise it is
  divided by 1 - rate. Outside of a training step it is unchanged.

  Each random number is a function of seed, layer, step, the sample's position in the epoch's order,
  and column. A backward draws the same numbers as its forward.
  Source: torch.nn.Dropout; src/RULES.md, rule A5
*/
#include "core/random/philox.h"
#include "core/random/random.h"
#include "model/layer.h"

#include <math.h>

/*
  The layer has no parameters. The call only computes the key of its random numbers from its name.
*/
static PetscErrorCode declare(TrsLayer *layer, const char *module, int index)
{
  char name[256];

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(name, sizeof(name), "%s/%d/dropout", module, index));
  layer->name = TrsNameHash(name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double flops(const TrsLayer *layer)
{
  return (double)layer->out;
}

static PetscErrorCode drop(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix y)
{
  const TrsLayerDraw *draw = &layer->context->draw;
  const double all = 4294967296.0; /* 2^32 */
  const TrsDropout dropout = {.key = TrsPhiloxKey(draw->seed ^ layer->name, TRS_RANDOM_DROPOUT),
                              .step = (uint64_t)draw->step,
                              .first = draw->first,
                              .kept = (uint64_t)(draw->training ? rint((1.0 - layer->rate) * all) : all),
                              .scale = draw->training ? (float)(1.0 / (1.0 - layer->rate)) : 1.0F,
                              .now = layer->context->now};

  PetscFunctionBegin;
  PetscCall(layer->context->compute->drop_out(stream, n, layer->out, &dropout, (const float *)x.data,
                                              x.stride, (float *)y.data, y.stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x)
{
  PetscFunctionBegin;
  PetscCall(drop(layer, stream, n, x, layer->y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsLayer *layer, TrsStream stream, int64_t n, TrsMatrix x, TrsMatrix dy,
                               TrsMatrix dx)
{
  PetscFunctionBegin;
  (void)x;
  PetscCall(drop(layer, stream, n, dy, dx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsLayerOps trs_layer_dropout = {.word = "dropout",
                                       .same_width = PETSC_TRUE,
                                       .declare = declare,
                                       .flops = flops,
                                       .bytes = TrsLayerBytes,
                                       .forward = forward,
                                       .backward = backward};
