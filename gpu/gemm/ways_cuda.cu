/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/device/device_cuda.h"
#include "gpu/gemm/timing_cuda.h"
#include "gpu/gemm/ways_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRS_WAYS_CHOICES = 64 };

/* The ways' index in arrays. */
enum { APART, FUSED, N_WAYS };

struct Choice {
  const char *what;
  int64_t m, n, k;
  int gpu;
  int n_met; /* number of times that the sizes occurred, counted up to 2 */
  int way;
  bool timed;
  float ms[N_WAYS];
};

static struct {
  bool timed;
  int way; /* that the environment names, or N_WAYS */
  int n;
  Choice choice[TRS_WAYS_CHOICES];
} state = {false, N_WAYS, 0, {}};

void TrsWaysForget(bool timed)
{
  const char *way = getenv("TRSHARD_WAYS");

  state.way = !way ? N_WAYS : strcmp(way, "fused") == 0 ? FUSED : strcmp(way, "apart") == 0 ? APART : N_WAYS;
  state.n = 0;
  state.timed = timed && state.way == N_WAYS;
}

int TrsWaysFused()
{
  int n = 0;

  for (int i = 0; i < state.n; i++) n += state.choice[i].way == FUSED;
  return n;
}

void TrsWaysText(char *text, size_t size)
{
  size_t used = strlen(text);

  for (int i = 0; i < state.n; i++) {
    const Choice &c = state.choice[i];
    char line[256];
    int length;

    if (!c.timed) continue;
    length = snprintf(line, sizeof(line), "%s of %lld x %lld x %lld: %s, one kernel %.4g us, two %.4g us\n",
                      c.what, static_cast<long long>(c.m), static_cast<long long>(c.n),
                      static_cast<long long>(c.k), c.way == FUSED ? "one kernel" : "two kernels",
                      1e3 * static_cast<double>(c.ms[FUSED]), 1e3 * static_cast<double>(c.ms[APART]));
    if (length < 0 || used + static_cast<size_t>(length) >= size) break;
    memcpy(text + used, line, static_cast<size_t>(length) + 1);
    used += static_cast<size_t>(length);
  }
}

static PetscErrorCode run(TrsStream stream, const void *context, int way, bool *)
{
  const TrsWays *ways = static_cast<const TrsWays *>(context);

  PetscFunctionBegin;
  PetscCall((way == FUSED ? ways->run_fused : ways->run_apart)(stream, ways->layer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static Choice *choice_for(const TrsWays *ways, int gpu)
{
  Choice *choice;

  for (int i = 0; i < state.n; i++) {
    choice = &state.choice[i];
    if (choice->m == ways->m && choice->n == ways->n && choice->k == ways->k && choice->gpu == gpu &&
        strcmp(choice->what, ways->what) == 0)
      return choice;
  }
  if (state.n == TRS_WAYS_CHOICES) state.n = 0;
  choice = &state.choice[state.n++];
  *choice = {ways->what, ways->m, ways->n, ways->k, gpu, 0, state.way == FUSED ? FUSED : APART, false, {}};
  return choice;
}

PetscErrorCode TrsWaysRun(TrsStream stream, const TrsWays *ways)
{
  PetscBool capturing = PETSC_FALSE;
  Choice *choice;
  int gpu;

  PetscFunctionBegin;
  TrsCallCUDA(cudaGetDevice(&gpu));
  choice = choice_for(ways, gpu);
  if (state.timed && choice->n_met < 2) PetscCall(TrsCudaIsCapturing(stream, &capturing));
  if (state.timed && choice->n_met < 2 && !capturing && ++choice->n_met == 2) {
    PetscCall(TrsTimeCalls(stream, N_WAYS, run, ways, choice->ms));
    if (choice->ms[FUSED] < 0.97f * choice->ms[APART]) choice->way = FUSED;
    choice->timed = true;
  }
  PetscCall(run(stream, ways, choice->way, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}
