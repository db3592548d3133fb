/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Device: memory, copies, streams and events, behind one table of functions (cpu, cuda).

  Everything a step does is ordered by streams and events. The CPU's streams run inline: a call has happened when it returns, so
  recording and waiting cost nothing there, and the same pipeline serves both.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct TrsStreamImpl *TrsStream; /* NULL is the CPU's only stream */
typedef struct TrsEventImpl *TrsEvent;

typedef struct {
  const char *name;      /* "cpu", "cuda" */
  PetscBool host_memory; /* may the host read and write what alloc() returns? */

  /* Devices that this process can see; where there is none, why. Not collective. */
  PetscErrorCode (*available)(int *n_devices, char *why_not, size_t why_not_size);
  /* Pick the device of this process; local_rank of local_size processes on this host. Errors: UNAVAILABLE. Not collective. */
  PetscErrorCode (*setup)(int local_rank, int local_size);
  /* Name of the picked device, the same for processes that share it; "" where sharing is no matter. After setup(). */
  PetscErrorCode (*identity)(char *name, size_t size);
  /* What the picked device is, for the banner and result files: "NVIDIA H100 80GB HBM3 (compute capability ...)"; NULL: the host's CPU. After setup(). */
  PetscErrorCode (*about)(char *text, size_t size);
  /* free_bytes: what could be allocated now, by all processes that share the device together; a host's with its swap. */
  PetscErrorCode (*memory)(int64_t *free_bytes, int64_t *total_bytes);

  PetscErrorCode (*alloc)(int64_t bytes, void **pointer); /* 64-byte aligned, zeroed. Errors: MEMORY */
  /* The same where other ranks of this host may read it, for what is sent to them; NULL: the device has no such memory */
  PetscErrorCode (*alloc_shared)(int64_t bytes, void **pointer);
  PetscErrorCode (*release)(void **pointer); /* of either */
  /* Host memory, zeroed, that the device copies from and to quickly (pinned) and can read in place. Errors: MEMORY */
  PetscErrorCode (*alloc_host)(int64_t bytes, void **pointer);
  PetscErrorCode (*release_host)(void **pointer);

  /* Ordered on the stream; either side may be host or device memory. */
  PetscErrorCode (*copy)(void *to, const void *from, int64_t bytes, TrsStream stream);
  PetscErrorCode (*zero)(void *to, int64_t bytes, TrsStream stream);

  PetscErrorCode (*stream_create)(const char *name, TrsStream *stream);
  PetscErrorCode (*stream_destroy)(TrsStream *stream);
  PetscErrorCode (*stream_synchronize)(TrsStream stream); /* the host waits */
  PetscErrorCode (*event_create)(TrsEvent *event);
  PetscErrorCode (*event_destroy)(TrsEvent *event);
  PetscErrorCode (*event_record)(TrsEvent event, TrsStream stream);
  PetscErrorCode (*stream_wait)(TrsStream stream, TrsEvent event); /* the stream waits, not the host */

  /*
    Events that tell when their stream came to them, by the host's TrsTraceClock(), once clock_align() has compared the clocks after they were made and
    before they are recorded; all three or none (NULL: streams run inline). Read: known is false while the event has not happened and `wait` is.
    Record and destroy them like others.
  */
  PetscErrorCode (*timed_event_create)(TrsEvent *event);
  PetscErrorCode (*clock_align)(void); /* the host waits for an idle stream of its own, some 0.1 ms */
  PetscErrorCode (*timed_event_read)(TrsEvent event, PetscBool wait, PetscBool *known, double *time_s);

  /* To tools that watch the process: the host enters a range of this name, or with NULL leaves the innermost. NULL: there are none. From any thread. */
  void (*range)(const char *name);
} TrsDeviceOps;

extern const TrsDeviceOps trs_device_cuda; /* gpu/device_cuda.c, where TRS_HAVE_CUDA */

/* All backends built in, ended by NULL; the first is the CPU. */
extern const TrsDeviceOps *const trs_device_backends[];

/* The backend of that name. Errors: UNAVAILABLE, naming what this build has. Not collective. */
PetscErrorCode TrsDeviceFind(const char *name, const TrsDeviceOps **device);

/* Memory for what is sent to other ranks: alloc_shared()'s where the device has it, else alloc()'s. Not collective. Errors: MEMORY. */
PetscErrorCode TrsDeviceAllocShared(const TrsDeviceOps *device, int64_t bytes, void **pointer);

/* Device memory that only grows; contents are lost when it does. A step allocates nothing once the largest batch was seen. */
typedef struct {
  void *data;
  int64_t capacity_bytes;
} TrsDeviceBuffer;

PetscErrorCode TrsDeviceBufferReserve(const TrsDeviceOps *device, TrsDeviceBuffer *buffer, int64_t bytes);
PetscErrorCode TrsDeviceBufferFree(const TrsDeviceOps *device, TrsDeviceBuffer *buffer);

/* The same of TrsDeviceAllocShared()'s memory. */
PetscErrorCode TrsDeviceBufferReserveShared(const TrsDeviceOps *device, TrsDeviceBuffer *buffer,
                                            int64_t bytes);

/* The same of host memory that the device copies from and to quickly: for what the host must see, or put on the device. */
typedef struct {
  void *data;
  int64_t capacity_bytes;
} TrsPinnedBuffer;

PetscErrorCode TrsPinnedBufferReserve(const TrsDeviceOps *device, TrsPinnedBuffer *buffer, int64_t bytes);
PetscErrorCode TrsPinnedBufferFree(const TrsDeviceOps *device, TrsPinnedBuffer *buffer);
