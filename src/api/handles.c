/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The handles that are alive. A caller may keep a copy of a destroyed handle, and every function
  must return an error code for such a copy. Therefore a handle is looked up in the list of living
  handles before anything is read through it.

  The list is an array of atomics rather than a locked list: predictors look up handles on any
  thread, also in a child that was forked while another thread held the lock, where it would stay
  locked.
*/
#include "api/impl.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Most handles alive at a time, and most dead handles whose addresses are kept from reuse. */
enum { TRS_MOST_HANDLES = 4096, TRS_MOST_DEAD = 256 };

static _Atomic(void *) living[TRS_MOST_HANDLES];
static _Atomic int n_used; /* entries of `living` that were ever used */

/*
  A dead handle must not become alive again because a new object has its address. Therefore the
  newest dead objects keep their own memory; what they pointed to is freed.
*/
static _Atomic(void *) dead[TRS_MOST_DEAD];
static _Atomic unsigned n_dead;

static int find(const void *handle)
{
  const int n = atomic_load(&n_used);

  for (int i = 0; i < n; i++)
    if (atomic_load(&living[i]) == handle) return i;
  return -1;
}

PetscErrorCode TrsApiHandleCreate(size_t bytes, void *handle)
{
  void *object = calloc(1, bytes);

  PetscFunctionBegin;
  PetscCheck(object, PETSC_COMM_SELF, TRS_ERR_MEMORY, "out of memory: %zu bytes", bytes);
  for (int i = 0; i < TRS_MOST_HANDLES; i++) {
    void *none = NULL;
    int n = i;

    if (!atomic_compare_exchange_strong(&living[i], &none, object)) continue;
    while (n <= i && !atomic_compare_exchange_weak(&n_used, &n, i + 1)) {
    }
    *(void **)handle = object;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  free(object);
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_MEMORY, "%d objects of the library are alive, which are the most",
          TRS_MOST_HANDLES);
}

int TrsApiHandleIsAlive(const void *handle)
{
  return handle && find(handle) >= 0;
}

int TrsApiHandleTake(void *handle)
{
  const int i = handle ? find(handle) : -1;

  return i >= 0 && atomic_compare_exchange_strong(&living[i], &handle, NULL);
}

PetscErrorCode TrsApiAlive(const void *handle, const char *function, const char *what)
{
  PetscFunctionBegin;
  PetscCall(TrsApiGiven(handle, function, what));
  PetscCheck(TrsApiHandleIsAlive(handle), PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s: the %s is not alive: it was closed or destroyed, or never made", function, what);
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsApiHandleFree(void *handle)
{
  free(atomic_exchange(&dead[atomic_fetch_add(&n_dead, 1) % TRS_MOST_DEAD], handle));
}
