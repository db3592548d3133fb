/* SPDX-License-Identifier: BSD-3-Clause */
/* dot: the output has the dense vector unchanged, then the dot products of all pairs of vectors. */
#include "model/interaction.h"

static int64_t width(const TrsInteraction *interaction)
{
  const int64_t n = interaction->n_vectors;

  return interaction->copied + n * (n - 1) / 2;
}

static double flops(const TrsInteraction *interaction)
{
  const double n = interaction->n_vectors;

  return n * (n - 1) * interaction->D;
}

static double products(const TrsInteraction *interaction)
{
  return interaction->n_vectors * (interaction->n_vectors - 1) / 2.0;
}

static PetscErrorCode forward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsMatrix out = TrsInteractionMatrix(interaction, interaction->out);
  const int n_zeros = (int)(interaction->filled - interaction->width);

  PetscFunctionBegin;
  if (interaction->x_at)
    PetscCall(compute->dot_places_forward(stream, n, interaction->n_vectors, interaction->D,
                                          interaction->copied, n_zeros, interaction->x.type,
                                          interaction->x_at, out));
  else
    PetscCall(compute->dot_forward(stream, n, interaction->n_vectors, interaction->D, interaction->copied,
                                   n_zeros, interaction->x, out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(const TrsInteraction *interaction, TrsStream stream, int64_t n)
{
  const TrsComputeOps *compute = interaction->context->compute;
  const TrsMatrix dout = TrsInteractionMatrix(interaction, interaction->dout);

  PetscFunctionBegin;
  if (interaction->x_at)
    PetscCall(compute->dot_places_backward(stream, n, interaction->n_vectors, interaction->D,
                                           interaction->copied, interaction->x.type, interaction->x_at, dout,
                                           interaction->dx_at));
  else
    PetscCall(compute->dot_backward(stream, n, interaction->n_vectors, interaction->D, interaction->copied,
                                    interaction->x, dout, interaction->dx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsInteractionOps trs_interaction_dot = {.word = "dot",
                                               .fewest = 2,
                                               .equal_dims = PETSC_TRUE,
                                               .padded = PETSC_TRUE,
                                               .typed = PETSC_TRUE,
                                               .scattered = PETSC_TRUE,
                                               .width = width,
                                               .flops = flops,
                                               .products = products,
                                               .forward = forward,
                                               .backward = backward};
