/* SPDX-License-Identifier: BSD-3-Clause */
/*
  fm and deepfm: the output begins with the unchanged dense vector. deepfm then adds the outputs of
  deep layers on all vectors. Last comes the factorization machine on all numbers in the vectors,
  ((sum x)^2 - sum x^2) / 2.
  Source: torchrec.modules.deepfm (FactorizationMachine, DeepFM), torchrec.models.deepfm
  (FMInteractionArch); Guo et al. 2017; src/RULES.md, rule A3
*/
#include "model/interaction.h"
#include "model/mlp.h"

typedef struct {
  TrsMlp mlp;
  TrsMlpSpec spec; /* the sizes are borrowed from the options */
  float *inner;    /* outputs of all layers except the last, and gradients */
} TrsDeepLayers;

/* --- fm --- */

static int64_t fm_width(const TrsInteraction *interaction)
{
  return interaction->copied + 1;
}

static double fm_flops(const TrsInteraction *interaction)
{
  return 3.0 * (double)interaction->N;
}

/* The factorization machine writes the output's last column. */
static TrsFm fm_of(const TrsInteraction *interaction)
{
  return (TrsFm){.n = interaction->N,
                 .copied = interaction->copied,
                 .at = interaction->width - 1,
                 .n_zeros = (int)(interaction->filled - interaction->width),
                 .x = (const float *)interaction->x.data,
                 .x_stride = interaction->N};
}

static PetscErrorCode fm_forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsFm fm = fm_of(interaction);

  PetscFunctionBegin;
  PetscCall(interaction->context->compute->fm_forward(stream, n, &fm, interaction->out, interaction->stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode fm_gradient(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                  PetscBool add)
{
  const TrsFm fm = fm_of(interaction);

  PetscFunctionBegin;
  PetscCall(interaction->context->compute->fm_backward(stream, n, &fm, add, interaction->dout,
                                                       interaction->stride, (float *)interaction->dx.data,
                                                       interaction->N));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode fm_backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  PetscFunctionBegin;
  PetscCall(fm_gradient(interaction, stream, n, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsInteractionOps trs_interaction_fm = {.word = "fm",
                                              .fewest = 1,
                                              .padded = PETSC_TRUE,
                                              .width = fm_width,
                                              .flops = fm_flops,
                                              .forward = fm_forward,
                                              .backward = fm_backward};

/* --- deepfm --- */

static PetscErrorCode read(TrsInteraction *interaction, TrsOptions options)
{
  TrsDeepLayers *deep;

  PetscFunctionBegin;
  PetscCall(PetscNew(&deep));
  PetscCall(TrsOptionsGetInts(options, "-deepfm_arch", &deep->spec.n, &deep->spec.sizes, NULL));
  interaction->own = deep;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int64_t width(const TrsInteraction *interaction)
{
  const TrsDeepLayers *deep = (const TrsDeepLayers *)interaction->own;

  return interaction->copied + deep->spec.sizes[deep->spec.n - 1] + 1;
}

static PetscErrorCode declare(TrsInteraction *interaction)
{
  TrsDeepLayers *deep = (TrsDeepLayers *)interaction->own;

  PetscFunctionBegin;
  PetscCall(TrsMlpDeclare(&deep->mlp, interaction->context, "deep_fm", &deep->spec, interaction->N,
                          interaction->N));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allocate(TrsInteraction *interaction, int64_t max_batch)
{
  TrsDeepLayers *deep = (TrsDeepLayers *)interaction->own;
  const TrsMlpRoom room = TrsMlpPlace(&deep->mlp, max_batch, NULL, TrsFloats(NULL, 1));
  const int64_t floats = interaction->context->params->forward_only ? room.outputs : room.end;

  PetscFunctionBegin;
  if (floats > 0)
    PetscCall(interaction->context->device->alloc(floats * (int64_t)sizeof(float), (void **)&deep->inner));
  (void)TrsMlpPlace(&deep->mlp, max_batch, deep->inner,
                    TrsFloats(interaction->out + interaction->copied, interaction->stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsDeepLayers *deep = (const TrsDeepLayers *)interaction->own;

  PetscFunctionBegin;
  PetscCall(TrsMlpForward(&deep->mlp, stream, n, interaction->x));
  PetscCall(fm_forward(interaction, stream, n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsDeepLayers *deep = (const TrsDeepLayers *)interaction->own;

  PetscFunctionBegin;
  PetscCall(TrsMlpBackward(&deep->mlp, stream, n, interaction->x,
                           TrsFloats(interaction->dout + interaction->copied, interaction->stride),
                           interaction->dx));
  PetscCall(fm_gradient(interaction, stream, n, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void work(const TrsInteraction *interaction, double *n_flops, double *bytes)
{
  TrsMlpWork(&((const TrsDeepLayers *)interaction->own)->mlp, n_flops, bytes);
}

static PetscErrorCode view(const TrsInteraction *interaction, MPI_Comm comm)
{
  PetscFunctionBegin;
  PetscCall(TrsMlpView(&((const TrsDeepLayers *)interaction->own)->mlp, "deep_fm", comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsInteraction *interaction)
{
  TrsDeepLayers *deep = (TrsDeepLayers *)interaction->own;

  PetscFunctionBegin;
  if (!deep) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsMlpFree(&deep->mlp));
  PetscCall(interaction->context->device->release((void **)&deep->inner));
  PetscCall(PetscFree(interaction->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsInteractionOps trs_interaction_deepfm = {.word = "deepfm",
                                                  .fewest = 1,
                                                  .padded = PETSC_TRUE,
                                                  .read = read,
                                                  .width = width,
                                                  .flops = fm_flops,
                                                  .work = work,
                                                  .declare = declare,
                                                  .allocate = allocate,
                                                  .forward = forward,
                                                  .backward = backward,
                                                  .view = view,
                                                  .free = release};
