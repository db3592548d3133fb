/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/device/device_cuda.h"
#include "gpu/gemm/timing_cuda.h"
#include "gpu/gemm/ways_cuda.h"
#include "gpu/wide_cuda.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  TRS_WAYS_CHOICES = 192,
  /* a result is compared in windows at equal distances, and a window in runs */
  TRS_WAYS_WINDOWS = 8,
  TRS_WAYS_WINDOW = 1 << 18,
  TRS_WAYS_RUN = 1 << 12
};

/*
  The largest norm of the difference of two runs, relative to the norm of the first way's run. bf16
  rounds by at most 2^-8.
*/
static const double most_difference = 0x1p-6;

/* The ways' index in arrays. */
enum { APART, FUSED, N_WAYS };

struct Choice {
  const char *what;
  int64_t m, n, k;
  int gpu;
  int n_met; /* number of times that the sizes occurred, counted up to 2 */
  int way;
  bool timed, differs;
  float ms[N_WAYS];
};

static struct {
  bool timed;
  int way; /* that the environment names, or N_WAYS */
  int n;
  Choice choice[TRS_WAYS_CHOICES];
} state = {false, N_WAYS, 0, {}};

void TrsWaysForget(PetscBool timed)
{
  const char *way = getenv("TRSHARD_WAYS");

  state.way = !way ? N_WAYS : strcmp(way, "fused") == 0 ? FUSED : strcmp(way, "apart") == 0 ? APART : N_WAYS;
  state.n = 0;
  state.timed = timed && state.way == N_WAYS;
}

int TrsWaysFused(void)
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
    length = snprintf(line, sizeof(line), "%s of %lld x %lld x %lld: %s, one kernel %.4g us%s, two %.4g us\n",
                      c.what, static_cast<long long>(c.m), static_cast<long long>(c.n),
                      static_cast<long long>(c.k), c.way == FUSED ? "one kernel" : "two kernels",
                      1e3 * static_cast<double>(c.ms[FUSED]), c.differs ? ", but with different results" : "",
                      1e3 * static_cast<double>(c.ms[APART]));
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

/* --- comparison of both ways --- */

/* Return the numbers in each window of result i. */
static int64_t window_of(const TrsWays *ways, int i)
{
  return PetscMin(ways->result[i].n, static_cast<int64_t>(TRS_WAYS_WINDOW));
}

/*
  Compute the results in one way, and copy the compared numbers to the host. First set all results
  to NaN, so that numbers of an earlier call cannot pass for this way's.
*/
static PetscErrorCode read_results(TrsStream stream, const TrsWays *ways, int way, char *to)
{
  PetscFunctionBegin;
  for (int i = 0; i < TRS_WAYS_RESULTS && ways->result[i].data; i++)
    TrsCallCUDA(cudaMemsetAsync(ways->result[i].data, 0xff,
                                static_cast<size_t>(ways->result[i].n * TrsDTypeBytes(ways->result[i].type)),
                                TrsCudaStream(stream)));
  PetscCall(run(stream, ways, way, NULL));
  for (int i = 0; i < TRS_WAYS_RESULTS && ways->result[i].data; i++) {
    const int64_t size = TrsDTypeBytes(ways->result[i].type), window = window_of(ways, i);

    for (int w = 0; w < TRS_WAYS_WINDOWS; w++) {
      const int64_t first = (ways->result[i].n - window) * w / (TRS_WAYS_WINDOWS - 1);

      TrsCallCUDA(cudaMemcpyAsync(to, static_cast<const char *>(ways->result[i].data) + first * size,
                                  static_cast<size_t>(window * size), cudaMemcpyDeviceToHost,
                                  TrsCudaStream(stream)));
      to += window * size;
    }
  }
  TrsCallCUDA(cudaStreamSynchronize(TrsCudaStream(stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double number_at(const char *from, int64_t i, TrsDType type)
{
  return static_cast<double>(type == TRS_BF16 ? TrsBf16ToFloat(reinterpret_cast<const uint16_t *>(from)[i])
                                              : reinterpret_cast<const float *>(from)[i]);
}

/* True if the runs differ little, relative to `wanted`. False if a number is NaN. */
static bool are_close(const char *found, const char *wanted, int64_t first, int64_t end, TrsDType type)
{
  double difference = 0, size = 0;

  for (int64_t i = first; i < end; i++) {
    const double one = number_at(wanted, i, type), apart = number_at(found, i, type) - one;

    difference += apart * apart;
    size += one * one;
  }
  return difference <= most_difference * most_difference * size && size <= DBL_MAX;
}

/* Compute the results in both ways, and compare them. */
static PetscErrorCode compare(TrsStream stream, const TrsWays *ways, bool *differs)
{
  int64_t bytes = 0, at = 0;
  char *numbers[N_WAYS];

  PetscFunctionBegin;
  for (int i = 0; i < TRS_WAYS_RESULTS && ways->result[i].data; i++)
    bytes += TRS_WAYS_WINDOWS * window_of(ways, i) * TrsDTypeBytes(ways->result[i].type);
  for (int way = 0; way < N_WAYS; way++) {
    PetscCall(PetscMalloc1(static_cast<size_t>(bytes), &numbers[way]));
    PetscCall(read_results(stream, ways, way, numbers[way]));
  }
  *differs = false;
  for (int i = 0; i < TRS_WAYS_RESULTS && ways->result[i].data; i++) {
    const int64_t n = TRS_WAYS_WINDOWS * window_of(ways, i);

    for (int64_t first = 0; first < n && !*differs; first += TRS_WAYS_RUN)
      *differs = !are_close(numbers[FUSED] + at, numbers[APART] + at, first,
                            PetscMin(n, first + TRS_WAYS_RUN), ways->result[i].type);
    at += n * TrsDTypeBytes(ways->result[i].type);
  }
  for (int way = 0; way < N_WAYS; way++) PetscCall(PetscFree(numbers[way]));
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
  *choice = {ways->what, ways->m, ways->n, ways->k, gpu, 0, state.way == FUSED ? FUSED : APART,
             false,      false,   {}};
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
    if (choice->ms[FUSED] < 0.97f * choice->ms[APART]) {
      PetscCall(compare(stream, ways, &choice->differs));
      if (!choice->differs) choice->way = FUSED;
    }
    choice->timed = true;
  }
  PetscCall(run(stream, ways, choice->way, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}
