/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Device: memory, copies, streams and events, behind one table of functions (cpu, cuda).

  Streams and events order all work of a step. The CPU's streams run inline: when a call returns,
  its work is done. There recording and waiting cost nothing, and one pipeline serves both devices.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct TrsStreamImpl *TrsStream; /* NULL: the CPU's only stream */
typedef struct TrsEventImpl *TrsEvent;
typedef struct TrsGraphImpl *TrsGraph; /* operations of a stream that can be launched together */

typedef struct {
  const char *name;      /* "cpu", "cuda" */
  PetscBool host_memory; /* the host may read and write the memory of alloc() */

  /*
    Count the devices that this process can see. If there is none, why_not gives the reason. Not
    collective.
  */
  PetscErrorCode (*available)(int *n_devices, char *why_not, size_t why_not_size);
  /*
    Choose the device of this process, which is number local_rank of local_size processes on this
    host. Errors: UNAVAILABLE. Not collective.
  */
  PetscErrorCode (*setup)(int local_rank, int local_size);
  /*
    Select the device of this number for the calling thread; -1 keeps its device. *had is the number
    of its previous device, or -1 if it had none. setup() selects only for its own thread, and
    another setup() may choose another device. NULL: there is only one device. Not collective.
  */
  PetscErrorCode (*use)(int number, int *had);
  /*
    The name of the chosen device, the same for all processes that share it. It is "" if sharing
    does not matter. Call after setup().
  */
  PetscErrorCode (*identity)(char *name, size_t size);
  /*
    A description of the chosen device for the banner and result files, such as "NVIDIA H100 80GB
    HBM3 (compute capability ...)". NULL: the device is the host's CPU. Call after setup().
  */
  PetscErrorCode (*about)(char *text, size_t size);
  /*
    free_bytes is the memory that all processes sharing the device can together allocate now. On the
    host this includes swap.
  */
  PetscErrorCode (*memory)(int64_t *free_bytes, int64_t *total_bytes);

  /* 64-byte aligned, zeroed. Errors: MEMORY */
  PetscErrorCode (*alloc)(int64_t bytes, void **pointer);
  /*
    Like alloc(), but other ranks of this host may read the memory; for data that is sent to them.
    NULL: the device has no such memory.
  */
  PetscErrorCode (*alloc_shared)(int64_t bytes, void **pointer);
  PetscErrorCode (*release)(void **pointer); /* for memory of alloc() and alloc_shared() */
  /*
    Zeroed host memory (pinned), which the device can copy quickly and can read in place.
    Errors: MEMORY.
  */
  PetscErrorCode (*alloc_host)(int64_t bytes, void **pointer);
  PetscErrorCode (*release_host)(void **pointer);

  /* Copy in the stream's order. Either side may be host or device memory. */
  PetscErrorCode (*copy)(void *to, const void *from, int64_t bytes, TrsStream stream);
  PetscErrorCode (*zero)(void *to, int64_t bytes, TrsStream stream);

  PetscErrorCode (*stream_create)(const char *name, TrsStream *stream);
  PetscErrorCode (*stream_destroy)(TrsStream *stream);
  PetscErrorCode (*stream_synchronize)(TrsStream stream); /* the host waits */
  PetscErrorCode (*event_create)(TrsEvent *event);
  PetscErrorCode (*event_destroy)(TrsEvent *event);
  PetscErrorCode (*event_record)(TrsEvent event, TrsStream stream);
  /* the stream waits, the host does not */
  PetscErrorCode (*stream_wait)(TrsStream stream, TrsEvent event);

  /*
    Timed events record the time, on the host's TrsClock(), when their stream reached them.
    clock_align(), which compares the clocks, must be called after the events are created and before
    they are recorded. A timed event is recorded and destroyed like any other. timed_event_read()
    sets known to PETSC_FALSE if the event has not happened yet and `wait` is PETSC_FALSE. A device
    has all three functions or none of them (NULL: streams run inline).
  */
  PetscErrorCode (*timed_event_create)(TrsEvent *event);
  /* the host waits about 0.1 ms, on a separate idle stream */
  PetscErrorCode (*clock_align)(void);
  PetscErrorCode (*timed_event_read)(TrsEvent event, PetscBool wait, PetscBool *known, double *time_s);

  /*
    Graphs. Between capture_start() and capture_end(), operations on the stream do not run: they
    become a graph, which graph_launch() can run repeatedly in the stream's order. A graph stores
    its operations' arguments, including addresses; it reads memory when it runs. Between the two
    calls this thread may only start copies, sets and kernels on the stream: it must not allocate,
    release, wait, or use an event or another stream. The graph is NULL if there was no operation;
    graph_launch() and graph_destroy() accept NULL.

    releases() counts how often memory was released. If the count has changed since a graph's
    capture, the graph may hold addresses of released memory and must be destroyed. A device has all
    five functions or none (NULL).
  */
  PetscErrorCode (*capture_start)(TrsStream stream);
  PetscErrorCode (*capture_end)(TrsStream stream, TrsGraph *graph);
  PetscErrorCode (*graph_launch)(TrsGraph graph, TrsStream stream);
  PetscErrorCode (*graph_destroy)(TrsGraph *graph);
  int64_t (*releases)(void);

  /*
    Name a range of host work for profiling tools. A name begins a range, NULL ends the innermost
    range. Any thread may call it. NULL for the function: the device has no such tools.
  */
  void (*range)(const char *name);
} TrsDeviceOps;

extern const TrsDeviceOps trs_device_cuda; /* gpu/device/device_cuda.c, built with TRS_HAVE_CUDA */

/* All backends of this build. The CPU is the first, NULL ends the list. */
extern const TrsDeviceOps *const trs_device_backends[];

/* Check that a backend has every mandatory function. Not collective. Errors: INTERNAL. */
PetscErrorCode TrsDeviceCheck(const TrsDeviceOps *ops);

/*
  Find a backend by name. The error lists the backends of this build. Not collective. Errors:
  UNAVAILABLE.
*/
PetscErrorCode TrsDeviceFind(const char *name, const TrsDeviceOps **device);

/*
  The device with pinned host memory in place of its own memory: its buffers are on the host, and
  the device can copy them quickly.
*/
TrsDeviceOps TrsDeviceStaging(const TrsDeviceOps *device);

/*
  Allocate memory for data that is sent to other ranks: with alloc_shared() if the device has it,
  else with alloc(). Not collective. Errors: MEMORY.
*/
PetscErrorCode TrsDeviceAllocShared(const TrsDeviceOps *device, int64_t bytes, void **pointer);

/*
  Device memory that only grows, and loses its contents when it grows. After the largest batch, a
  step allocates nothing.
*/
typedef struct {
  void *data;
  int64_t capacity_bytes;
} TrsDeviceBuffer;

PetscErrorCode TrsDeviceBufferReserve(const TrsDeviceOps *device, TrsDeviceBuffer *buffer, int64_t bytes);
PetscErrorCode TrsDeviceBufferFree(const TrsDeviceOps *device, TrsDeviceBuffer *buffer);

/* Like TrsDeviceBufferReserve(), with memory of TrsDeviceAllocShared(). */
PetscErrorCode TrsDeviceBufferReserveShared(const TrsDeviceOps *device, TrsDeviceBuffer *buffer,
                                            int64_t bytes);

/*
  Host memory that only grows, and that the device can copy quickly. It is for data that the host
  must read or send to the device.
*/
typedef struct {
  void *data;
  int64_t capacity_bytes;
} TrsPinnedBuffer;

PetscErrorCode TrsPinnedBufferReserve(const TrsDeviceOps *device, TrsPinnedBuffer *buffer, int64_t bytes);
PetscErrorCode TrsPinnedBufferFree(const TrsDeviceOps *device, TrsPinnedBuffer *buffer);
