/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The machine of a run or of a library's user: device, kernels and communicators, as options choose
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
  int device_number;       /* of the picked device, for device->use() */
  char device_reason[320]; /* why -device auto does not take a GPU; may be empty */
  /* The binding of threads to cores. It is "" with a device that has memory of its own. */
  char binding[TRS_CPU_TEXT];
  const TrsComputeOps *compute;
  const char *least_isa, *most_isa; /* the CPUs' instruction sets over all ranks */
  PetscBool isa_is_common;          /* ranks could do more than least_isa, which all of them use */
  int least_threads, most_threads;  /* threads that compute on a rank, over all ranks */
  const char *backend;              /* -comm_backend */
  TrsCommGroups groups;             /* all ranks */
  /*
    The ranks of one copy of the tables (-plan_replicas), as TrsMachineReplicate() sets them. With a
    single copy these are `groups` themselves, and there is no `owners`.
  */
  TrsCommGroups shards;
  int replicas;            /* number of copies */
  int shard_rank;          /* this rank's number in its copy: the rank that the plan knows */
  TrsComm owners;          /* the ranks that have this rank's number in the copies, by copy */
  TrsPlannedWorld planned; /* as TrsMachinePlan() sets it */
} TrsMachine;

extern const TrsOptionGroup trs_machine_options; /* -device, -cpu_isa, -gpu_share */

/*
  TrsMachineCreate - Choose the device and its kernels, bind threads, and make the communicators.

  Collective on comm. Errors: OPTION, UNAVAILABLE.
*/
PetscErrorCode TrsMachineCreate(MPI_Comm comm, TrsOptions options, TrsMachine *machine);
PetscErrorCode TrsMachineDestroy(TrsMachine *machine);

/* Messages of bulk data that this rank has sent so far, and their bytes. Not collective. */
void TrsMachineMessages(const TrsMachine *machine, int64_t *n_messages, int64_t *bytes);

/*
  TrsMachineReplicate - Make the communicators of the copies of the tables, in the ring of the
    others. A copy has consecutive ranks, so that its exchanges stay on few hosts.

  Collective on the machine's communicator, once, with the plan's number of copies.
*/
PetscErrorCode TrsMachineReplicate(TrsMachine *machine, int replicas);
