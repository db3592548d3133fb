/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/rates.h"

#include "bench/layers.h"
#include "bench/sparse.h"
#include "bench/timing.h"

typedef struct {
  TrsComm group;
  int64_t *counts, *displs;
  void *send, *recv;
} TrsBenchExchange;

static PetscErrorCode run_exchange(void *context)
{
  const TrsBenchExchange *b = (const TrsBenchExchange *)context;
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsCommAlltoallv(b->group, NULL, (TrsSentBlocks){b->send, b->counts, b->displs},
                             (TrsReceivedBlocks){b->recv, b->counts, b->displs}, sizeof(float), &request));
  PetscCall(TrsRequestWait(&request, NULL));
  /* Synchronise, because the wait above may block only the stream instead of the host. */
  PetscCall(b->group->device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Measure the bytes/ms that a rank sends to the other ranks of its group, while all groups make the
  same exchange. The result is 0 for a group of one rank.
*/
static PetscErrorCode measure_exchange(MPI_Comm comm, TrsComm group, int64_t bytes, double *bytes_per_ms,
                                       double *spread)
{
  const int64_t each = bytes / PetscMax(group->size, 1) / (int64_t)sizeof(float);
  TrsBenchExchange b = {.group = group};
  double median;

  PetscFunctionBegin;
  *bytes_per_ms = 0;
  if (group->size == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc2((size_t)group->size, &b.counts, (size_t)group->size, &b.displs));
  for (int q = 0; q < group->size; q++) {
    b.counts[q] = each;
    b.displs[q] = q * each;
  }
  PetscCall(TrsDeviceAllocShared(group->device, group->size * each * (int64_t)sizeof(float), &b.send));
  PetscCall(group->device->alloc(group->size * each * (int64_t)sizeof(float), &b.recv));
  PetscCall(TrsBenchTime(comm, &(TrsBenchWork){NULL, run_exchange, &b}, &median, spread));
  *bytes_per_ms = (double)((group->size - 1) * each) * sizeof(float) / (1e3 * median);
  PetscCall(group->device->release(&b.send));
  PetscCall(group->device->release(&b.recv));
  PetscCall(PetscFree2(b.counts, b.displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBenchRatesMeasure(const TrsMachine *machine, int64_t bytes, int64_t table_bytes,
                                    TrsBenchRates *rates)
{
  PetscFunctionBegin;
  *rates = (TrsBenchRates){0};
  PetscCall(TrsBenchSparse(machine, table_bytes, rates));
  PetscCall(measure_exchange(machine->comm, machine->groups.host, bytes, &rates->intra_host, &rates->spread));
  PetscCall(
      measure_exchange(machine->comm, machine->groups.cross, bytes, &rates->inter_host, &rates->spread));
  PetscCall(TrsBenchLayers(machine, table_bytes, rates));
  PetscFunctionReturn(PETSC_SUCCESS);
}
