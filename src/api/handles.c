/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The list of living handles. A caller may keep a copy of a destroyed handle, and every function
  must return an error code for such a copy. Therefore a function first looks the handle up in this
  list, and only then reads through it.

  The list is an array of atomics instead of a list with a lock, because predictors look up handles
  on any thread, and also in a forked child. If another thread had the lock during the fork, it
  would stay locked in the child.
*/
#include "api/impl.h"

#include <stdatomic.h>
#include <stdlib.h>

/*
  Largest number of living handles, and largest number of dead handles whose addresses are not used
  again.
*/
enum { TRS_MOST_HANDLES = 4096, TRS_MOST_DEAD = 256 };

static _Atomic(void *) living[TRS_MOST_HANDLES];
static _Atomic int n_used; /* number of entries of `living` that were ever used */

/*
  The newest dead objects. A copy of a dead handle must not become valid because a new object got
  the same address. Therefore the memory of these objects is not freed; only the memory to which
  they pointed is freed.
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
