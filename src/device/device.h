/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Device: memory, copies, streams and events, behind one table of functions (cpu, cuda).

  Streams and events order all work of a step. On a CPU, the work of a call is done when the call
  returns. Recording and waiting then take no time, so the same pipeline serves both devices.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct TrsStreamImpl *TrsStream; /* NULL is the only stream of a CPU */
typedef struct TrsEventImpl *TrsEvent;
typedef struct TrsGraphImpl *TrsGraph; /* operations of a stream that can be launched together */

typedef struct {
  const char *name;      /* "cpu", "cuda" */
  PetscBool host_memory; /* true if the host can read and write the memory of alloc() */

  /*
    Count the devices that this process can use. If there are none, why_not receives the reason. Not
    collective.
  */
  PetscErrorCode (*available)(int *n_devices, char *why_not, size_t why_not_size);
  /*
    Choose the device of this process, which is process local_rank of local_size processes on this
    host. Errors: UNAVAILABLE. Not collective.
  */
  PetscErrorCode (*setup)(int local_rank, int local_size);
  /*
    Select device `number` for the calling thread; if -1, the thread keeps its device. *had becomes
    the number of the thread's previous device, or -1 if it had none. setup() selects a device only
    for its own thread, and a later setup() may choose another device. NULL if there is only one
    device. Not collective.
  */
  PetscErrorCode (*use)(int number, int *had);
  /*
    Write the name of the chosen device, which is the same for all processes that share the device.
    The name is "" if sharing does not matter. May be called after setup().
  */
  PetscErrorCode (*identity)(char *name, size_t size);
  /*
    Write a description of the chosen device for the banner and result files, such as "NVIDIA H100
    80GB HBM3 (compute capability ...)". NULL if the device is the host's CPU. May be called after
    setup().
  */
  PetscErrorCode (*about)(char *text, size_t size);
  /*
    Return the memory of the device. free_bytes is the memory that all processes that share the
    device can together allocate now. On the host it includes swap.
  */
  PetscErrorCode (*memory)(int64_t *free_bytes, int64_t *total_bytes);

  /* Allocate zeroed memory, aligned to 64 bytes. Errors: MEMORY */
  PetscErrorCode (*alloc)(int64_t bytes, void **pointer);
  /*
    Allocate memory like alloc(), for data that is sent to other ranks of this host, which may read
    the memory. NULL if the device has no such memory.
  */
  PetscErrorCode (*alloc_shared)(int64_t bytes, void **pointer);
  PetscErrorCode (*release)(void **pointer); /* frees memory of alloc() and alloc_shared() */
  /*
    Allocate zeroed (pinned) host memory, which the device can copy quickly and can also read
    directly. Errors: MEMORY.
  */
  PetscErrorCode (*alloc_host)(int64_t bytes, void **pointer);
  PetscErrorCode (*release_host)(void **pointer);

  /* Copy in the order of the stream. Both addresses may be in host or device memory. */
  PetscErrorCode (*copy)(void *to, const void *from, int64_t bytes, TrsStream stream);
  PetscErrorCode (*zero)(void *to, int64_t bytes, TrsStream stream);

  PetscErrorCode (*stream_create)(const char *name, TrsStream *stream);
  PetscErrorCode (*stream_destroy)(TrsStream *stream);
  PetscErrorCode (*stream_synchronize)(TrsStream stream); /* the host waits for the stream */
  PetscErrorCode (*event_create)(TrsEvent *event);
  PetscErrorCode (*event_destroy)(TrsEvent *event);
  PetscErrorCode (*event_record)(TrsEvent event, TrsStream stream);
  /* The stream waits for the event; the host does not wait. */
  PetscErrorCode (*stream_wait)(TrsStream stream, TrsEvent event);

  /*
    Timed events record the time at which their stream reached them, on the host's TrsClock().
    clock_align() compares the clocks of host and device. It must be called after the events are
    created and before they are recorded. A timed event is recorded and destroyed like other events.
    timed_event_read() sets `known` to PETSC_FALSE if `wait` is PETSC_FALSE and the event has not
    happened yet. timed_event_took() waits for the end, and returns the seconds between two events
    of a stream. A device has either all four functions or none (NULL, if the work of a call is done
    when the call returns).
  */
  PetscErrorCode (*timed_event_create)(TrsEvent *event);
  /* the host waits about 0.1 ms, on a separate idle stream */
  PetscErrorCode (*clock_align)(void);
  PetscErrorCode (*timed_event_read)(TrsEvent event, PetscBool wait, PetscBool *known, double *time_s);
  PetscErrorCode (*timed_event_took)(TrsEvent begin, TrsEvent end, double *seconds);

  /*
    Functions for graphs. Operations that are started on a stream between capture_start() and
    capture_end() do not run. They become a graph, which graph_launch() can run repeatedly, in the
    stream's order. A graph stores the arguments of its operations, including addresses, and reads
    memory when it runs. Between the two calls, this thread may only start copies, sets and kernels
    on the stream. It must not allocate, release, wait, or use an event or another stream. If there
    was no operation, the graph is NULL; graph_launch() and graph_destroy() accept NULL.
    capture_end(stream, NULL) drops the operations, and succeeds even if the capture has failed. The
    stream is then as before the capture.

    releases() counts how often memory was released. If the count has changed since a graph was
    captured, the graph may have addresses of released memory, and must be destroyed. A device has
    either all five functions or none (NULL).
  */
  PetscErrorCode (*capture_start)(TrsStream stream);
  PetscErrorCode (*capture_end)(TrsStream stream, TrsGraph *graph);
  PetscErrorCode (*graph_launch)(TrsGraph graph, TrsStream stream);
  PetscErrorCode (*graph_destroy)(TrsGraph *graph);
  int64_t (*releases)(void);

  /*
    Name a range of the host's work, for profiling tools. A name begins a range; NULL ends the
    innermost range. Any thread may call the function. The function is NULL if the device has no
    such tools.
  */
  void (*range)(const char *name);
} TrsDeviceOps;

extern const TrsDeviceOps trs_device_cuda; /* gpu/device/device_cuda.c, built with TRS_HAVE_CUDA */

/* All backends of this build. The first is the CPU, and the last entry is NULL. */
extern const TrsDeviceOps *const trs_device_backends[];

/* Check that a backend has all functions that it must have. Not collective. Errors: INTERNAL. */
PetscErrorCode TrsDeviceCheck(const TrsDeviceOps *ops);

/*
  Find a backend by its name. The error message lists the backends of this build. Not collective.
  Errors: UNAVAILABLE.
*/
PetscErrorCode TrsDeviceFind(const char *name, const TrsDeviceOps **device);

/*
  Return the device with pinned host memory instead of its own memory. Its buffers are then on the
  host, and the device can copy them quickly.
*/
TrsDeviceOps TrsDeviceStaging(const TrsDeviceOps *device);

/*
  Allocate memory for data that is sent to other ranks, with alloc_shared() if the device has it,
  and otherwise with alloc(). Not collective. Errors: MEMORY.
*/
PetscErrorCode TrsDeviceAllocShared(const TrsDeviceOps *device, int64_t bytes, void **pointer);

/*
  Device memory that only grows. When it grows, its contents are lost. After the largest batch, a
  step allocates nothing.
*/
typedef struct {
  void *data;
  int64_t capacity_bytes;
} TrsDeviceBuffer;

PetscErrorCode TrsDeviceBufferReserve(const TrsDeviceOps *device, TrsDeviceBuffer *buffer, int64_t bytes);
PetscErrorCode TrsDeviceBufferFree(const TrsDeviceOps *device, TrsDeviceBuffer *buffer);

/* Do the work of TrsDeviceBufferReserve() with memory of TrsDeviceAllocShared(). */
PetscErrorCode TrsDeviceBufferReserveShared(const TrsDeviceOps *device, TrsDeviceBuffer *buffer,
                                            int64_t bytes);

/*
  Host memory that only grows, and that the device can copy quickly. It is for data that the host
  reads, or sends to the device.
*/
typedef struct {
  void *data;
  int64_t capacity_bytes;
} TrsPinnedBuffer;

PetscErrorCode TrsPinnedBufferReserve(const TrsDeviceOps *device, TrsPinnedBuffer *buffer, int64_t bytes);
PetscErrorCode TrsPinnedBufferFree(const TrsDeviceOps *device, TrsPinnedBuffer *buffer);
