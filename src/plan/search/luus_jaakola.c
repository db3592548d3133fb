/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/search/luus_jaakola.h"

#include <math.h>

enum { TRS_MERSENNE_N = 624, TRS_MERSENNE_M = 397, TRS_MAX_REDRAWS = 10000 };

void TrsMersenneSeed(TrsMersenne *g, uint32_t seed)
{
  g->state[0] = seed;
  for (uint32_t i = 1; i < TRS_MERSENNE_N; i++)
    g->state[i] = UINT32_C(1812433253) * (g->state[i - 1] ^ (g->state[i - 1] >> 30)) + i;
  g->next = TRS_MERSENNE_N;
}

static void twist(TrsMersenne *g)
{
  for (int i = 0; i < TRS_MERSENNE_N; i++) {
    uint32_t y = (g->state[i] & UINT32_C(0x80000000)) |
                 (g->state[(i + 1) % TRS_MERSENNE_N] & UINT32_C(0x7fffffff));

    g->state[i] = g->state[(i + TRS_MERSENNE_M) % TRS_MERSENNE_N] ^ (y >> 1) ^
                  (y & 1 ? UINT32_C(0x9908b0df) : 0);
  }
  g->next = 0;
}

float TrsMersenneUniform(TrsMersenne *g)
{
  uint32_t y;

  if (g->next == TRS_MERSENNE_N) twist(g);
  y = g->state[g->next++];
  y ^= y >> 11;
  y ^= (y << 7) & UINT32_C(0x9d2c5680);
  y ^= (y << 15) & UINT32_C(0xefc60000);
  y ^= y >> 18;
  return (float)(y & 0xffffff) * 0x1p-24f;
}

static double uniform(TrsLuusJaakola *s, double a, double b)
{
  return a + (b - a) * (double)TrsMersenneUniform(&s->random);
}

static double clamp(const TrsLuusJaakola *s, double x)
{
  if (x < s->left) return s->left;
  return x > s->right ? s->right : x;
}

void TrsLuusJaakolaStart(TrsLuusJaakola *s, double left, double right, int max_iterations, uint32_t seed,
                         PetscBool left_known)
{
  *s = (TrsLuusJaakola){.left = left,
                        .right = right,
                        .step = right - left,
                        .y = (double)NAN,
                        .iteration = -1,
                        .max_iterations = max_iterations,
                        .left_known = left_known};
  TrsMersenneSeed(&s->random, seed);
  s->x = uniform(s, left, right);
}

PetscBool TrsLuusJaakolaNext(TrsLuusJaakola *s, double cost, double *probe)
{
  s->iteration++;
  if (s->iteration == 0) {
    *probe = s->x;
    return PETSC_TRUE;
  }
  if (s->iteration == s->max_iterations) return PETSC_FALSE;
  if (s->iteration == 1) {
    s->fx = cost;
  } else if (cost <= s->fx) {
    s->x = s->y;
    s->fx = cost;
    s->step *= 0.95;
  }
  if (s->y == s->left) { /* y is NaN before the second probe */
    s->left_known = PETSC_TRUE;
  } else if (s->y == s->right) {
    s->right_known = PETSC_TRUE;
  }
  for (int i = 0; i < TRS_MAX_REDRAWS; i++) {
    s->y = clamp(s, s->x + uniform(s, -s->step, s->step));
    if ((s->left_known && s->y == s->left) || (s->right_known && s->y == s->right)) continue;
    *probe = s->y;
    return PETSC_TRUE;
  }
  return PETSC_FALSE; /* TorchRec would draw forever here, because it redraws known ends */
}

void TrsLuusJaakolaShrinkRight(TrsLuusJaakola *s, double right)
{
  s->right = right;
  s->right_known = PETSC_TRUE;
  s->step = s->right - s->left;
  s->x = clamp(s, s->x);
}
