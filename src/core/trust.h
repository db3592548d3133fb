/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Files that another user may have planted: an option file says what a run writes and where, and a
  checkpoint has the options of its model. Like git and ssh, a run does not take them from anybody
  without being told to.
*/
#pragma once

#include "core/error.h"

/*
  TrsFileTrust - Refuse a file of another user in a place that other users may write to.

  A file is trusted if this user or root owns it (for root, also the user who called sudo), or if no
  other user than its owner could have put it there: neither it nor a folder on the way is writable
  for all. A sticky folder such as /tmp counts for the files in it, and for root also for the
  folders in it. A file that is missing passes, as its reader reports it. Not collective.

  Errors: OPTION, with the owner and -trust_other_users
*/
PetscErrorCode TrsFileTrust(const char *path);

/* Set the value of -trust_other_users for the process. Not collective. */
void TrsFileTrustOthers(PetscBool trust);
