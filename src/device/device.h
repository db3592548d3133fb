/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Device: memory, copies, streams and events, behind one table of functions (cpu, cuda).

  All work of a step is ordered by streams and events. The streams of the CPU run inline: when a
  call returns, its work has been done. Recording and waiting cost nothing there, and one pipeline
  serves both devices.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct TrsStreamImpl *TrsStream; /* NULL: the only stream of the CPU */
typedef struct TrsEventImpl *TrsEvent;
typedef struct TrsGraphImpl *TrsGraph; /* operations of a stream that can be launched together */

typedef struct {
  const char *name;      /* "cpu", "cuda" */
  PetscBool host_memory; /* the host may read and write the memory of alloc() */

  /*
    Count the devices that this process can see. If there is none, why_not says why. Not collective.
  */
  PetscErrorCode (*available)(int *n_devices, char *why_not, size_t why_not_size);
  /*
    Pick the device of this process, the local_rank-th of local_size processes on this host. Errors:
    UNAVAILABLE. Not collective.
  */
  PetscErrorCode (*setup)(int local_rank, int local_size);
  /*
    Give the calling thread the device of this number, -1: leave it its device. *had is the number
    of the one that it had, or -1 if it had none. setup() picks for its own thread, and another pick
    may be another device. NULL: there is one device. Not collective.
  */
  PetscErrorCode (*use)(int number, int *had);
  /*
    The name of the picked device. Processes that share the device get the same name. It is "" if
    sharing does not matter. Call after setup().
  */
  PetscErrorCode (*identity)(char *name, size_t size);
  /*
    A description of the picked device for the banner and result files, such as "NVIDIA H100 80GB
    HBM3 (compute capability ...)". NULL: the device is the host's CPU. Call after setup().
  */
  PetscErrorCode (*about)(char *text, size_t size);
  /*
    free_bytes is what all processes that share the device could allocate now, together. The host
    counts its swap, too.
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
    Zeroed host memory that the device copies from and to quickly (pinned) and can read in place.
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
    Timed events tell when their stream reached them, by the host's TrsClock(). Call
    clock_align(), which compares the clocks, after the events are made and before they are
    recorded. A timed event is recorded and destroyed like any other. timed_event_read() sets known
    to PETSC_FALSE if the event has not happened yet and `wait` is PETSC_FALSE. A device has all
    three functions or none of them (NULL: streams run inline).
  */
  PetscErrorCode (*timed_event_create)(TrsEvent *event);
  /* the host waits about 0.1 ms for an idle stream of its own */
  PetscErrorCode (*clock_align)(void);
  PetscErrorCode (*timed_event_read)(TrsEvent event, PetscBool wait, PetscBool *known, double *time_s);

  /*
    Graphs. Between capture_start() and capture_end() operations of the stream do not run: they
    become a graph, which graph_launch() runs again and again in the stream's order. A graph keeps
    its operations' arguments, addresses among them; it reads memory when it runs. Between the two
    calls this thread may start copies, sets and kernels on the stream, and nothing else: it may not
    allocate, release, wait, use an event or another stream. The graph is NULL if there was no
    operation; graph_launch() and graph_destroy() accept NULL.

    releases() counts how often memory was released. A graph that was captured at another count may
    have addresses of memory that is gone: destroy it. A device has all five functions or none of
    them (NULL).
  */
  PetscErrorCode (*capture_start)(TrsStream stream);
  PetscErrorCode (*capture_end)(TrsStream stream, TrsGraph *graph);
  PetscErrorCode (*graph_launch)(TrsGraph graph, TrsStream stream);
  PetscErrorCode (*graph_destroy)(TrsGraph *graph);
  int64_t (*releases)(void);

  /*
    Name a range of host work for tools that watch the process. A name begins a range, NULL ends the
    innermost one. Any thread may call it. NULL for the function: the device has no such tools.
  */
  void (*range)(const char *name);
} TrsDeviceOps;

extern const TrsDeviceOps trs_device_cuda; /* gpu/device/device_cuda.c, built with TRS_HAVE_CUDA */

/* All backends of this build. The CPU is the first, NULL ends the list. */
extern const TrsDeviceOps *const trs_device_backends[];

/* Check that a backend has every function it needs. Not collective. Errors: INTERNAL. */
PetscErrorCode TrsDeviceCheck(const TrsDeviceOps *ops);

/*
  Find the backend with a name. The error says what this build has. Not collective. Errors:
  UNAVAILABLE.
*/
PetscErrorCode TrsDeviceFind(const char *name, const TrsDeviceOps **device);

/*
  The device with pinned host memory in place of its own: buffers that are made with it lie on the
  host, and the device copies them quickly.
*/
TrsDeviceOps TrsDeviceStaging(const TrsDeviceOps *device);

/*
  Allocate memory for data that is sent to other ranks: with alloc_shared() if the device has it,
  else with alloc(). Not collective. Errors: MEMORY.
*/
PetscErrorCode TrsDeviceAllocShared(const TrsDeviceOps *device, int64_t bytes, void **pointer);

/*
  Device memory that only grows, and loses its contents when it grows. A step allocates nothing once
  the largest batch was seen.
*/
typedef struct {
  void *data;
  int64_t capacity_bytes;
} TrsDeviceBuffer;

PetscErrorCode TrsDeviceBufferReserve(const TrsDeviceOps *device, TrsDeviceBuffer *buffer, int64_t bytes);
PetscErrorCode TrsDeviceBufferFree(const TrsDeviceOps *device, TrsDeviceBuffer *buffer);

/* TrsDeviceBufferReserve() for memory of TrsDeviceAllocShared(). */
PetscErrorCode TrsDeviceBufferReserveShared(const TrsDeviceOps *device, TrsDeviceBuffer *buffer,
                                            int64_t bytes);

/*
  Host memory that only grows, and that the device copies from and to quickly. It is for data that
  the host must see or put on the device.
*/
typedef struct {
  void *data;
  int64_t capacity_bytes;
} TrsPinnedBuffer;

PetscErrorCode TrsPinnedBufferReserve(const TrsDeviceOps *device, TrsPinnedBuffer *buffer, int64_t bytes);
PetscErrorCode TrsPinnedBufferFree(const TrsDeviceOps *device, TrsPinnedBuffer *buffer);
