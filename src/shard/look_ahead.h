/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Rows that travel a batch ahead (-ebc_look_ahead), with the same bits as without.

  While batch i is computed, the ids of batch i + 1 are already at the owners of their rows. A bag
  of batch i + 1 is untouched if the update of batch i changes none of its rows. Its pooled row is
  the same before and after this update. So untouched bags of samples on other hosts are looked up
  and sent while the dense layers work on batch i. The forward of batch i + 1 then looks up and
  sends only the rest. Bags are never divided, so each sum is added in the same order.

    Tell, in the forward of batch i, before its rows arrive
      find untouched bags --a bit for each bag--> samples' ranks
    Send, when the rows of batch i have arrived
      look up untouched bags --[feature][sample], without gaps--> samples' ranks
    Rest, in the forward of batch i + 1
      look up the other bags --[feature][sample], without gaps--> samples' ranks
    Join
      copy the rows of both messages to their places, [B, columns of the owner]

  The owner knows from its mask which bags to look up later, and a sample's rank knows from the
  received masks which rows each message has. Bags of samples on the owner's host are not looked up
  ahead, because their rows are not sent in messages.

  These exchanges have a communicator of their own, so evaluations may run between the steps.
  Tables are changed only by updates, which is why rows stay valid until the next forward. Internal
  to shard/.
*/
#pragma once

#include "shard/sharding.h"

/*
  Create the communicator of all groups, in the ring of the world's communicators. It is NULL if no
  rank is on another host, or the host cannot read the device's memory. Collective.
*/
PetscErrorCode TrsLookAheadComm(const TrsCommGroups *groups, const TrsDeviceOps *device,
                                const TrsComputeOps *compute, TrsComm *comm);
/* Destroy it, after all groups. Collective. */
PetscErrorCode TrsLookAheadCommDestroy(const TrsCommGroups *groups, TrsComm *comm);

/*
  TrsLookAheadCreate - Prepare a group of TRS_GRID_RANKS, whose shards have all rows.

  Not collective, but the result is the same on all ranks.

  In:  dims   [W] number of columns of each rank, borrowed
  Out: ahead  NULL if the group's rows cannot travel ahead: a table has a cache or an id_map that
              gives rows, bags have weights that the model learns, there are copies of the tables,
              rows are not floats, or the codec encodes several values together
*/
PetscErrorCode TrsLookAheadCreate(TrsSharding sharding, const int64_t *dims, TrsLookAhead *ahead);

/* Complete the exchange in flight, and destroy the object. Accepts NULL. Collective. */
PetscErrorCode TrsLookAheadDestroy(TrsLookAhead *ahead);

/*
  TrsLookAheadTell - Find the untouched bags of a training batch, and start to tell their samples'
    ranks.

  Collective.

  In: written  the batch whose update comes next; its forward has begun
      next     the batch after it; its ids have arrived, and stay until its Join
*/
PetscErrorCode TrsLookAheadTell(TrsLookAhead ahead, const TrsShardingSlot *written,
                                const TrsShardingSlot *next, TrsStream stream);

/*
  Look up the untouched bags of Tell's batch, and start to send their rows. Must be called before
  the update of `written`, and after the Join of `written` if rows of this batch have travelled
  ahead. The next Rest and Join are for `next`. Collective.
*/
PetscErrorCode TrsLookAheadSend(TrsLookAhead ahead, TrsStream stream);

/* True if Send was called for the slot's batch, and Join was not. Accepts NULL. */
PetscBool TrsLookAheadIsFor(TrsLookAhead ahead, const TrsShardingSlot *slot);

/*
  Look up the rest of the batch's bags. Rows for samples on other hosts are sent. All other rows are
  in sharding->rows, for the exchange that also sends gradients. It must skip the ranks q with
  far[q] (TrsPooledAllToAllSkip()). far [W] is borrowed from `ahead`. Collective.
*/
PetscErrorCode TrsLookAheadRest(TrsLookAhead ahead, TrsStream stream, const PetscBool **far);

/*
  Wait for the rows from other hosts, and copy them to their ranks' blocks: block[q] is
  [B, dims[q]]. Ends the look-ahead for the batch. Collective.
*/
PetscErrorCode TrsLookAheadJoin(TrsLookAhead ahead, TrsStream stream, const float *const *block);

/*
  Complete the exchanges in flight, and forget their batch, because no forward follows. Collective.
*/
PetscErrorCode TrsLookAheadCancel(TrsLookAhead ahead, TrsStream stream);

/* The number of bags that this rank has sent to other hosts, and how many of them ahead. */
void TrsLookAheadCount(TrsLookAhead ahead, int64_t *n_bags, int64_t *n_ahead);
