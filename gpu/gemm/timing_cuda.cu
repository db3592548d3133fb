/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/device/device_cuda.h"
#include "gpu/gemm/timing_cuda.h"

enum { TRS_TIMED_ROUNDS = 4, TRS_TIMED_REPEATS = 4 /* calls between two events */ };

PetscErrorCode TrsTimeCalls(TrsStream stream, int n, TrsTimedCallFn *call, const void *context, float *ms)
{
  const cudaStream_t s = TrsCudaStream(stream);
  cudaEvent_t event[TRS_TIMED_ROUNDS][TRS_TIMED_CALLS + 1];

  PetscFunctionBegin;
  PetscCheck(n <= TRS_TIMED_CALLS, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%d calls are timed", n);
  for (int i = 0; i < n; i++) ms[i] = 0.0f;
  for (int round = 0; round < TRS_TIMED_ROUNDS; round++) {
    for (int i = 0; i <= n; i++) TrsCallCUDA(cudaEventCreateWithFlags(&event[round][i], cudaEventDefault));
    TrsCallCUDA(cudaEventRecord(event[round][0], s));
    for (int i = 0; i < n; i++) {
      bool failed = ms[i] < 0.0f;

      for (int k = 0; k < TRS_TIMED_REPEATS && !failed; k++) PetscCall(call(stream, context, i, &failed));
      if (failed) ms[i] = -1.0f;
      TrsCallCUDA(cudaEventRecord(event[round][i + 1], s));
    }
    /* the other rounds are enqueued without a pause of the host, which an event would measure */
    if (round == 0) PetscCall(TrsCudaEventWait(event[round][n]));
  }
  PetscCall(TrsCudaEventWait(event[TRS_TIMED_ROUNDS - 1][n]));
  for (int round = 0; round < TRS_TIMED_ROUNDS; round++) {
    for (int i = 0; i < n && round > 0; i++) {
      float took;

      TrsCallCUDA(cudaEventElapsedTime(&took, event[round][i], event[round][i + 1]));
      took /= static_cast<float>(TRS_TIMED_REPEATS);
      if (ms[i] >= 0.0f && (round == 1 || took < ms[i])) ms[i] = took;
    }
    for (int i = 0; i <= n; i++) TrsCallCUDA(cudaEventDestroy(event[round][i]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
