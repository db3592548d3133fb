/* SPDX-License-Identifier: BSD-3-Clause */
#include "serve/request.h"

#include <stdarg.h>
#include <stdio.h>

/* A buffer that is larger is freed when its request returns to the pool. */
enum { TRS_KEPT_BYTES = 1 << 20 };

struct TrsServePoolImpl {
  pthread_mutex_t lock; /* guards the list and the number */
  TrsServeRequest *request, *unused;
  int64_t n, n_used;
};

PetscErrorCode TrsServePoolCreate(int64_t n, TrsServePool *pool)
{
  TrsServePool p;

  PetscFunctionBegin;
  PetscCall(PetscNew(&p));
  *pool = p;
  PetscCheck(pthread_mutex_init(&p->lock, NULL) == 0, PETSC_COMM_SELF, TRS_ERR_MEMORY, "no lock can be made");
  PetscCall(TrsAlloc(n, sizeof(*p->request), &p->request));
  p->n = n;
  for (int64_t i = 0; i < n; i++) {
    p->request[i].next = p->unused;
    p->unused = &p->request[i];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsServeFreeBuffers(TrsServeRequest *r, int64_t kept_bytes)
{
  TrsBuffer *const buffers[] = {&r->lengths, &r->values,       &r->weights, &r->dense,      &r->columns,
                                &r->cells,   &r->cell_lengths, &r->texts,   &r->predictions};

  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
    if (buffers[i]->capacity_bytes > kept_bytes) (void)TrsBufferFree(buffers[i]);
}

PetscErrorCode TrsServePoolDestroy(TrsServePool *pool)
{
  TrsServePool p = *pool;

  PetscFunctionBegin;
  if (!p) PetscFunctionReturn(PETSC_SUCCESS);
  for (int64_t i = 0; i < p->n; i++) TrsServeFreeBuffers(&p->request[i], -1);
  PetscCall(TrsFree(&p->request));
  (void)pthread_mutex_destroy(&p->lock);
  PetscCall(PetscFree(*pool));
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsServeRequest *TrsServePoolTake(TrsServePool pool)
{
  TrsServeRequest *r;

  (void)pthread_mutex_lock(&pool->lock);
  r = pool->unused;
  if (r) {
    pool->unused = r->next;
    pool->n_used++;
  }
  (void)pthread_mutex_unlock(&pool->lock);
  if (!r) return NULL;
  r->next = NULL;
  r->n = r->n_values = 0;
  r->is_raw = PETSC_FALSE;
  r->outcome.status = 200;
  return r;
}

void TrsServePoolReturn(TrsServePool pool, TrsServeRequest *request)
{
  TrsServeFreeBuffers(request, TRS_KEPT_BYTES);
  (void)pthread_mutex_lock(&pool->lock);
  request->next = pool->unused;
  pool->unused = request;
  pool->n_used--;
  (void)pthread_mutex_unlock(&pool->lock);
}

int64_t TrsServePoolUsed(TrsServePool pool)
{
  int64_t n;

  (void)pthread_mutex_lock(&pool->lock);
  n = pool->n_used;
  (void)pthread_mutex_unlock(&pool->lock);
  return n;
}

int TrsServeRefuse(TrsServeOutcome *outcome, int status, const char *format, ...)
{
  va_list values;

  outcome->status = status;
  va_start(values, format);
  vsnprintf(outcome->message, sizeof(outcome->message), format, values);
  va_end(values);
  return status;
}

int TrsServeRefuseMemory(TrsServeOutcome *outcome)
{
  TrsErrorClear();
  return TrsServeRefuse(outcome, 503, "the server is out of memory");
}

PetscBool TrsServeReserve(TrsBuffer *buffer, int64_t n, size_t size)
{
  return (PetscBool)!TrsBufferReserve(buffer, PetscMax(n, 1) * (int64_t)size, PETSC_FALSE);
}

PetscBool TrsServeReserveSamples(const TrsServeShape *shape, int64_t n_values, TrsServeRequest *r)
{
  return (PetscBool)(TrsServeReserve(&r->lengths, r->n * shape->n_features, sizeof(int32_t)) &&
                     TrsServeReserve(&r->values, n_values, sizeof(int64_t)) &&
                     TrsServeReserve(&r->weights, n_values, sizeof(float)) &&
                     TrsServeReserve(&r->dense, r->n * shape->num_dense, sizeof(float)) &&
                     TrsServeReserve(&r->predictions, r->n * shape->n_outputs, sizeof(float)));
}
