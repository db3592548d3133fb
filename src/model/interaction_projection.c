/* SPDX-License-Identifier: BSD-3-Clause */
/*
  projection: the output has the unchanged dense vector, then all dot products of Y's rows with Z's
  columns. Two branches of layers compute Y [F1, D] and Z [D, F2] from all numbers in a sample.
  Source: torchrec.models.dlrm (InteractionProjectionArch, DLRM_Projection); src/RULES.md, rule A3
*/
#include "model/interaction.h"
#include "model/mlp.h"

#include <inttypes.h>

enum { TRS_BRANCHES = 2 };

static const char *const options_of[TRS_BRANCHES] = {"-projection_arch1", "-projection_arch2"};
static const char *const modules[TRS_BRANCHES] = {"projection_1", "projection_2"};

typedef struct {
  TrsMlp mlp;
  TrsMlpSpec spec; /* the sizes are borrowed from the options */
  int64_t width;   /* columns of the branch's output */
  float *inner;    /* outputs of all layers except the last, and gradients */
  float *y, *dy;   /* output and its gradient [max_batch, width] */
} TrsBranch;

typedef struct {
  TrsOptions options; /* borrowed, for messages */
  TrsBranch branch[TRS_BRANCHES];
  float *other; /* [max_batch, N] scratch for a gradient that is added to another */
} TrsProjection;

static PetscErrorCode read(TrsInteraction *interaction, TrsOptions options)
{
  TrsProjection *projection;

  PetscFunctionBegin;
  PetscCall(PetscNew(&projection));
  projection->options = options;
  for (int i = 0; i < TRS_BRANCHES; i++) {
    TrsBranch *branch = &projection->branch[i];

    PetscCall(TrsOptionsGetInts(options, options_of[i], &branch->spec.n, &branch->spec.sizes, NULL));
    branch->width = branch->spec.sizes[branch->spec.n - 1];
  }
  interaction->own = projection;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check(const TrsInteraction *interaction)
{
  const TrsProjection *projection = (const TrsProjection *)interaction->own;

  PetscFunctionBegin;
  for (int i = 0; i < TRS_BRANCHES; i++)
    if (projection->branch[i].width % interaction->D != 0)
      PetscCall(TrsOptionError(projection->options, options_of[i],
                               "the last layer has size %" PRId64
                               ", it must be a multiple of the embeddings' dim, %d",
                               projection->branch[i].width, interaction->D));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The number of a branch's vectors: Y's rows, or Z's columns. */
static int64_t vectors(const TrsInteraction *interaction, int i)
{
  return ((const TrsProjection *)interaction->own)->branch[i].width / interaction->D;
}

static int64_t width(const TrsInteraction *interaction)
{
  return interaction->copied + vectors(interaction, 0) * vectors(interaction, 1);
}

static double flops(const TrsInteraction *interaction)
{
  return 2.0 * (double)vectors(interaction, 0) * (double)vectors(interaction, 1) * interaction->D;
}

static PetscErrorCode declare(TrsInteraction *interaction)
{
  TrsProjection *projection = (TrsProjection *)interaction->own;

  PetscFunctionBegin;
  for (int i = TRS_BRANCHES - 1; i >= 0; i--)
    PetscCall(TrsMlpDeclare(&projection->branch[i].mlp, interaction->context, modules[i],
                            &projection->branch[i].spec, interaction->N, interaction->N));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode allocate(TrsInteraction *interaction, int64_t max_batch)
{
  TrsProjection *projection = (TrsProjection *)interaction->own;
  const TrsDeviceOps *device = interaction->context->device;
  const PetscBool backward = (PetscBool)!interaction->context->params->forward_only;
  const int64_t bytes = max_batch * (int64_t)sizeof(float);

  PetscFunctionBegin;
  for (int i = 0; i < TRS_BRANCHES; i++) {
    TrsBranch *branch = &projection->branch[i];
    const TrsMlpRoom room = TrsMlpPlace(&branch->mlp, max_batch, NULL, TrsFloats(NULL, 1));
    const int64_t floats = backward ? room.end : room.outputs;

    if (floats) PetscCall(device->alloc(floats * (int64_t)sizeof(float), (void **)&branch->inner));
    PetscCall(device->alloc(branch->width * bytes, (void **)&branch->y));
    if (backward) PetscCall(device->alloc(branch->width * bytes, (void **)&branch->dy));
    (void)TrsMlpPlace(&branch->mlp, max_batch, branch->inner, TrsFloats(branch->y, branch->width));
  }
  if (backward) PetscCall(device->alloc(interaction->N * bytes, (void **)&projection->other));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy the dense vector's columns, which stay unchanged. */
static PetscErrorCode copy_dense(const TrsInteraction *interaction, TrsStream stream, int64_t n,
                                 const float *from, int64_t from_stride,
                                 float *to, /* NOLINT(readability-non-const-parameter): written */
                                 int64_t to_stride)
{
  const TrsColumnCopy copy = {
      .from = TrsFloats(from, from_stride), .to = TrsFloats(to, to_stride), .cols = interaction->copied};

  PetscFunctionBegin;
  if (interaction->copied) PetscCall(interaction->context->compute->copy_columns(stream, n, 1, &copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsProjection *projection = (const TrsProjection *)interaction->own;
  const TrsBranch *Y = &projection->branch[0], *Z = &projection->branch[1];

  PetscFunctionBegin;
  for (int i = 0; i < TRS_BRANCHES; i++)
    PetscCall(TrsMlpForward(&projection->branch[i].mlp, stream, n, interaction->x));
  PetscCall(copy_dense(interaction, stream, n, (float *)interaction->x.data, interaction->N, interaction->out,
                       interaction->stride));
  PetscCall(interaction->context->compute->sample_gemm(
      stream, n,
      &(TrsMatrixProduct){.m = vectors(interaction, 0),
                          .n = vectors(interaction, 1),
                          .k = interaction->D,
                          .a = TrsFloats(Y->y, Y->width),
                          .b = TrsFloats(Z->y, Z->width),
                          .c = TrsFloats(interaction->out + interaction->copied, interaction->stride)}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the first columns of the matrix `other` to dx. */
static PetscErrorCode add_other(const TrsInteraction *interaction, TrsStream stream, int64_t n, int64_t cols)
{
  const float *parts[2] = {(const float *)interaction->dx.data,
                           ((const TrsProjection *)interaction->own)->other};

  PetscFunctionBegin;
  PetscCall(interaction->context->compute->sum_matrices(stream, 2, parts, interaction->N, n, cols,
                                                        (float *)interaction->dx.data, interaction->N));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* With P = Y Z: dY = dP Z^T; dZ = Y^T dP; then each branch's backward adds to dx. */
static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsProjection *projection = (const TrsProjection *)interaction->own;
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsBranch *Y = &projection->branch[0], *Z = &projection->branch[1];
  const int64_t F1 = vectors(interaction, 0), F2 = vectors(interaction, 1), D = interaction->D,
                N = interaction->N;
  const TrsMatrix dP = TrsFloats(interaction->dout + interaction->copied, interaction->stride);

  PetscFunctionBegin;
  PetscCall(compute->sample_gemm(stream, n,
                                 &(TrsMatrixProduct){.trans_b = PETSC_TRUE,
                                                     .m = F1,
                                                     .n = D,
                                                     .k = F2,
                                                     .a = dP,
                                                     .b = TrsFloats(Z->y, Z->width),
                                                     .c = TrsFloats(Y->dy, Y->width)}));
  PetscCall(compute->sample_gemm(stream, n,
                                 &(TrsMatrixProduct){.trans_a = PETSC_TRUE,
                                                     .m = D,
                                                     .n = F2,
                                                     .k = F1,
                                                     .a = TrsFloats(Y->y, Y->width),
                                                     .b = dP,
                                                     .c = TrsFloats(Z->dy, Z->width)}));
  PetscCall(TrsMlpBackward(&Z->mlp, stream, n, interaction->x, TrsFloats(Z->dy, Z->width), interaction->dx));
  PetscCall(TrsMlpBackward(&Y->mlp, stream, n, interaction->x, TrsFloats(Y->dy, Y->width),
                           TrsFloats(projection->other, N)));
  PetscCall(add_other(interaction, stream, n, N));
  PetscCall(copy_dense(interaction, stream, n, interaction->dout, interaction->stride, projection->other, N));
  if (interaction->copied) PetscCall(add_other(interaction, stream, n, interaction->copied));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void work(const TrsInteraction *interaction, double *n_flops, double *bytes)
{
  for (int i = 0; i < TRS_BRANCHES; i++)
    TrsMlpWork(&((const TrsProjection *)interaction->own)->branch[i].mlp, n_flops, bytes);
}

static PetscErrorCode view(const TrsInteraction *interaction, MPI_Comm comm)
{
  const TrsProjection *projection = (const TrsProjection *)interaction->own;

  PetscFunctionBegin;
  for (int i = 0; i < TRS_BRANCHES; i++) PetscCall(TrsMlpView(&projection->branch[i].mlp, modules[i], comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release(TrsInteraction *interaction)
{
  const TrsDeviceOps *device = interaction->context->device;
  TrsProjection *projection = (TrsProjection *)interaction->own;

  PetscFunctionBegin;
  if (!projection) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < TRS_BRANCHES; i++) {
    TrsBranch *branch = &projection->branch[i];

    PetscCall(TrsMlpFree(&branch->mlp));
    PetscCall(device->release((void **)&branch->inner));
    PetscCall(device->release((void **)&branch->y));
    PetscCall(device->release((void **)&branch->dy));
  }
  PetscCall(device->release((void **)&projection->other));
  PetscCall(PetscFree(interaction->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsInteractionOps trs_interaction_projection = {.word = "projection",
                                                      .fewest = 1,
                                                      .equal_dims = PETSC_TRUE,
                                                      .read = read,
                                                      .check = check,
                                                      .width = width,
                                                      .flops = flops,
                                                      .work = work,
                                                      .declare = declare,
                                                      .allocate = allocate,
                                                      .forward = forward,
                                                      .backward = backward,
                                                      .view = view,
                                                      .free = release};
