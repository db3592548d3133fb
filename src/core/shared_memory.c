/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* for memfd_create. NOLINT(bugprone-reserved-identifier) */
#include "core/shared_memory.h"

#include "core/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRS_SHARED_NAME "trshard"

enum { TRS_SHARED_PAGE = 4096 };

/*
  A sequence of consecutive pages, either used or free. Together the sequences cover the whole
  memory, in order. Two neighbours are never both free.
*/
typedef struct {
  int64_t begin, bytes;
  PetscBool used;
  TrsMemoryKind kind; /* purpose of the pages, if they are used */
} TrsExtent;

/* The memory of another process. */
typedef struct {
  uint64_t nonce;
  char *base;
  int64_t bytes;
  int n_attached;
} TrsSharedPeer;

/*
  The process has only one shared memory, like its malloc heap. So the folder comm can find a block,
  no matter which module allocated it.
*/
static PetscBool is_allowed = PETSC_TRUE;
static TrsSharedKey own_key;
static char *own_base;
static TrsBuffer extents, peers; /* arrays of TrsExtent and TrsSharedPeer */
static int n_extents, n_peers;

void TrsSharedAllow(PetscBool allow)
{
  is_allowed = allow;
}

PetscBool TrsSharedAllowed(void)
{
  return is_allowed;
}

/*
  Map a new file of `bytes` bytes that exists only in memory, without allocating pages. On failure
  returns NULL, and sets errno.
*/
static char *map_file(int64_t bytes, int *fd)
{
  char *base = MAP_FAILED;

  *fd = memfd_create(TRS_SHARED_NAME, MFD_CLOEXEC);
  if (*fd < 0) return NULL;
  if (ftruncate(*fd, bytes) == 0)
    base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *fd, 0);
  if (base != MAP_FAILED) {
    /* has an effect only if the kernel has huge pages for shared memory */
    (void)madvise(base, (size_t)bytes, MADV_HUGEPAGE);
    return base;
  }
  close(*fd);
  return NULL;
}

PetscErrorCode TrsSharedOpen(int64_t bytes, TrsSharedKey *key, char *why_not, size_t why_not_size)
{
  uint64_t nonce = 0;
  int fd = -1;

  PetscFunctionBegin;
  if (!own_base && is_allowed) {
    bytes = (bytes + TRS_SHARED_PAGE - 1) / TRS_SHARED_PAGE * TRS_SHARED_PAGE + TRS_SHARED_PAGE;
    own_base = getrandom(&nonce, sizeof(nonce), 0) == (ssize_t)sizeof(nonce) ? map_file(bytes, &fd) : NULL;
    if (!own_base)
      snprintf(why_not, why_not_size, "no memory to share, %" PRId64 " bytes: %s", bytes, strerror(errno));
  }
  if (own_base && !own_key.bytes) {
    own_key = (TrsSharedKey){.pid = getpid(), .fd = fd, .bytes = bytes, .nonce = nonce};
    memcpy(own_base, &nonce, sizeof(nonce)); /* the nonce has a page of its own */
    PetscCall(TrsBufferReserve(&extents, 64 * (int64_t)sizeof(TrsExtent), PETSC_FALSE));
    ((TrsExtent *)extents.data)[0] = (TrsExtent){.bytes = TRS_SHARED_PAGE, .used = PETSC_TRUE};
    ((TrsExtent *)extents.data)[1] = (TrsExtent){.begin = TRS_SHARED_PAGE, .bytes = bytes - TRS_SHARED_PAGE};
    n_extents = 2;
  }
  *key = is_allowed ? own_key : (TrsSharedKey){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSharedAlloc(int64_t bytes, void **pointer)
{
  const int64_t need = PetscMax(bytes + TRS_SHARED_PAGE - 1, 1) / TRS_SHARED_PAGE * TRS_SHARED_PAGE;
  TrsExtent *all;
  int i = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&extents, own_base ? (n_extents + 1) * (int64_t)sizeof(*all) : 0, PETSC_TRUE));
  all = (TrsExtent *)extents.data;
  while (i < n_extents && (all[i].used || all[i].bytes < need)) i++;
  if (i == n_extents || need == 0 || !is_allowed) {
    PetscCall(TrsAlloc(bytes, 1, pointer));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (all[i].bytes > need) {
    memmove(&all[i + 1], &all[i], (size_t)(n_extents++ - i) * sizeof(*all));
    all[i + 1].begin += need;
    all[i + 1].bytes -= need;
    all[i].bytes = need;
  }
  all[i].used = PETSC_TRUE;
  all[i].kind = TrsMemoryIsFor();
  *pointer = own_base + all[i].begin;
  TrsMemoryCount(all[i].kind, need);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsSharedRelease(void **pointer)
{
  const int64_t begin = TrsSharedOffset(*pointer, 1);
  TrsExtent *all = (TrsExtent *)extents.data;
  int i = 0;

  if (begin < 0) return PETSC_FALSE;
  while (i < n_extents && all[i].begin != begin) i++;
  if (i == n_extents) return PETSC_FALSE;
  /* return the pages to the system; at their next use they contain zeros */
  (void)madvise(*pointer, (size_t)all[i].bytes, MADV_REMOVE);
  TrsMemoryCount(all[i].kind, -all[i].bytes);
  *pointer = NULL;
  all[i].used = PETSC_FALSE;
  if (i + 1 < n_extents && !all[i + 1].used) {
    all[i].bytes += all[i + 1].bytes;
    memmove(&all[i + 1], &all[i + 2], (size_t)(--n_extents - i - 1) * sizeof(*all));
  }
  if (!all[i - 1].used) { /* the first sequence is always used */
    all[i - 1].bytes += all[i].bytes;
    memmove(&all[i], &all[i + 1], (size_t)(--n_extents - i) * sizeof(*all));
  }
  return PETSC_TRUE;
}

int64_t TrsSharedOffset(const void *pointer, int64_t bytes)
{
  const uintptr_t at = (uintptr_t)pointer, base = (uintptr_t)own_base;

  if (!own_base || at < base || at + (uintptr_t)bytes > base + (uintptr_t)own_key.bytes) return -1;
  return (int64_t)(at - base);
}

/* Open the file that a key describes. Returns -1 if the file does not match the key. */
static int open_peer(const TrsSharedKey *key)
{
  char path[64], target[64] = "";
  struct stat status;
  int fd;

  snprintf(path, sizeof(path), "/proc/%" PRId64 "/fd/%" PRId64, key->pid, key->fd);
  if (readlink(path, target, sizeof(target) - 1) < 0) return -1;
  errno = ENOENT;
  /* another process may have this PID now; do not open a pipe of another program */
  if (strncmp(target, "/memfd:" TRS_SHARED_NAME, strlen("/memfd:" TRS_SHARED_NAME)) != 0) return -1;
  fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd >= 0 && (fstat(fd, &status) != 0 || status.st_size != key->bytes)) {
    close(fd);
    errno = ENOENT;
    return -1;
  }
  return fd;
}

PetscErrorCode TrsSharedAttach(const TrsSharedKey *key, const char **base, char *why_not, size_t why_not_size)
{
  TrsSharedPeer *peer;
  int i = 0, fd;

  PetscFunctionBegin;
  *base = NULL;
  PetscCall(TrsBufferReserve(&peers, (n_peers + 1) * (int64_t)sizeof(*peer), PETSC_TRUE));
  peer = (TrsSharedPeer *)peers.data;
  while (i < n_peers && peer[i].nonce != key->nonce) i++;
  if (i == n_peers) {
    void *memory = MAP_FAILED;

    fd = open_peer(key);
    if (fd >= 0) {
      memory = mmap(NULL, (size_t)key->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
      close(fd);
    }
    if (memory != MAP_FAILED && memcmp(memory, &key->nonce, sizeof(key->nonce)) != 0) {
      munmap(memory, (size_t)key->bytes);
      memory = MAP_FAILED;
      errno = ENOENT;
    }
    if (memory == MAP_FAILED) {
      snprintf(why_not, why_not_size, "process %" PRId64 "'s memory cannot be mapped: %s", key->pid,
               strerror(errno));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    (void)madvise(memory, (size_t)key->bytes, MADV_DONTDUMP);
    peer[n_peers++] = (TrsSharedPeer){.nonce = key->nonce, .base = (char *)memory, .bytes = key->bytes};
  }
  peer[i].n_attached++;
  *base = peer[i].base;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSharedDetach(const char *base)
{
  TrsSharedPeer *peer = (TrsSharedPeer *)peers.data;
  int i = 0;

  PetscFunctionBegin;
  while (i < n_peers && peer[i].base != base) i++;
  if (i == n_peers || --peer[i].n_attached > 0) PetscFunctionReturn(PETSC_SUCCESS);
  munmap(peer[i].base, (size_t)peer[i].bytes);
  peer[i] = peer[--n_peers];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if an address is in a peer's memory. */
static PetscBool is_of_peer(uintptr_t at)
{
  const TrsSharedPeer *peer = (const TrsSharedPeer *)peers.data;

  for (int i = 0; i < n_peers; i++)
    if (at >= (uintptr_t)peer[i].base && at - (uintptr_t)peer[i].base < (uintptr_t)peer[i].bytes)
      return PETSC_TRUE;
  return PETSC_FALSE;
}

int64_t TrsSharedPeersResident(void)
{
  FILE *maps = fopen("/proc/self/smaps", "r");
  PetscBool of_peer = PETSC_FALSE;
  char line[512];
  int64_t kib = 0;

  if (!maps) return 0;
  while (fgets(line, (int)sizeof(line), maps)) {
    char *end;
    const uintptr_t begin = (uintptr_t)strtoull(line, &end, 16);

    if (end > line && *end == '-') {
      of_peer = is_of_peer(begin);
    } else if (of_peer && strncmp(line, "Rss:", 4) == 0) {
      kib += strtoll(line + 4, NULL, 10);
    }
  }
  fclose(maps);
  return kib * 1024;
}
