/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The machine of a run or a collection: the device, its kernels and the communicators that the
  options choose. All ranks have the same kind of device.
*/
#pragma once

#include "comm/comm.h"
#include "device/cpu_bind.h"
#include "plan/planner.h"

typedef struct {
  MPI_Comm comm; /* borrowed */
  int rank, size;
  TrsOptions options; /* borrowed */
  const TrsDeviceOps *device;
  int device_number; /* number of this rank's device, for device->use() */
  /* why -device auto did not choose a GPU; "" if there is nothing to explain */
  char device_reason[320];
  /* The binding of threads to cores, in words; "" if the device has its own memory. */
  char binding[TRS_CPU_TEXT];
  const TrsComputeOps *compute;
  const char *least_isa, *most_isa; /* least and best instruction set of all ranks' CPUs */
  /* all ranks use least_isa, although the CPUs of some ranks have a better set */
  PetscBool isa_is_common;
  int least_threads, most_threads; /* smallest and largest number of computing threads of a rank */
  const char *backend;             /* the value of -comm_backend */
  TrsCommGroups groups;            /* communicators of all ranks */
  /*
    The communicators of the ranks that together have one copy of the tables (-plan_replicas), set
    by TrsMachineReplicate(). If there is only one copy, they equal `groups`, and `owners` is not
    set.
  */
  TrsCommGroups shards;
  int replicas; /* number of copies of the tables */
  /* this rank's index among the ranks of its copy; the plan uses this index */
  int shard_rank;
  /* the ranks with this rank's shard_rank in all copies, in the order of the copies */
  TrsComm owners;
  TrsPlannedWorld planned; /* set by TrsMachinePlan() */
} TrsMachine;

extern const TrsOptionGroup trs_machine_options; /* -device, -cpu_isa, -gpu_share */

/*
  TrsMachineCreate - Choose the device and its kernels, bind threads, and create the communicators.

  Collective on comm. Errors: OPTION, UNAVAILABLE.
*/
PetscErrorCode TrsMachineCreate(MPI_Comm comm, TrsOptions options, TrsMachine *machine);
PetscErrorCode TrsMachineDestroy(TrsMachine *machine);

/*
  Return how many bulk-data messages this rank has sent so far, and how many bytes. Not collective.
*/
void TrsMachineMessages(const TrsMachine *machine, int64_t *n_messages, int64_t *bytes);

/*
  TrsMachineReplicate - Create the communicators for the copies of the tables. They join the ring of
    the machine's communicators, all of which make progress together. The ranks of a copy are
    consecutive, so that its exchanges stay on few hosts.

  Collective on the machine's communicator, once, with the plan's number of copies.
*/
PetscErrorCode TrsMachineReplicate(TrsMachine *machine, int replicas);
