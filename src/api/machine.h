/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The machine of a run or a collection: device, kernels and communicators, as the options choose
  them. Every rank has the same kind of device.
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
  int device_number;       /* number of the chosen device, for device->use() */
  char device_reason[320]; /* why -device auto did not choose a GPU; may be empty */
  /* The binding of threads to cores; "" for a device with its own memory. */
  char binding[TRS_CPU_TEXT];
  const TrsComputeOps *compute;
  const char *least_isa, *most_isa; /* least and best instruction set among the ranks' CPUs */
  PetscBool isa_is_common;          /* all ranks use least_isa, though some ranks could do more */
  int least_threads, most_threads;  /* computing threads per rank, least and most over all ranks */
  const char *backend;              /* -comm_backend */
  TrsCommGroups groups;             /* all ranks */
  /*
    The ranks of one copy of the tables (-plan_replicas), set by TrsMachineReplicate(). With a
    single copy this equals `groups`, and `owners` is not set.
  */
  TrsCommGroups shards;
  int replicas;            /* number of copies */
  int shard_rank;          /* this rank's number in its copy, which the plan uses */
  TrsComm owners;          /* the ranks with the same shard_rank, in the order of copies */
  TrsPlannedWorld planned; /* set by TrsMachinePlan() */
} TrsMachine;

extern const TrsOptionGroup trs_machine_options; /* -device, -cpu_isa, -gpu_share */

/*
  TrsMachineCreate - Choose the device and its kernels, bind threads, and make the communicators.

  Collective on comm. Errors: OPTION, UNAVAILABLE.
*/
PetscErrorCode TrsMachineCreate(MPI_Comm comm, TrsOptions options, TrsMachine *machine);
PetscErrorCode TrsMachineDestroy(TrsMachine *machine);

/* Number and bytes of the bulk-data messages that this rank has sent so far. Not collective. */
void TrsMachineMessages(const TrsMachine *machine, int64_t *n_messages, int64_t *bytes);

/*
  TrsMachineReplicate - Make the communicators for the copies of the tables, in the same ring as the
    others. A copy has consecutive ranks, so that its exchanges stay on few hosts.

  Collective on the machine's communicator, once, with the plan's number of copies.
*/
PetscErrorCode TrsMachineReplicate(TrsMachine *machine, int replicas);
