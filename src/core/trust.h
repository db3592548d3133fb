/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Files that another user may have planted: an option file decides what a run writes and where, and
  a checkpoint holds its model's options. Like git and ssh, a run accepts such files only from
  trusted users, unless an option allows others.
*/
#pragma once

#include "core/error.h"

/*
  TrsFileTrust - Refuse a file of another user in a place that other users may write to.

  A file is trusted if this user or root owns it (for root, also the user who called sudo), or if
  only its owner could have put it there: neither the file nor a folder on its path is writable for
  all. A sticky folder such as /tmp counts as writable for the files in it, and for root also for
  the folders in it. A missing file passes, because its reader reports it. Not collective.

  Errors: OPTION, with the owner and -trust_other_users
*/
PetscErrorCode TrsFileTrust(const char *path);

/* Set the value of -trust_other_users for the process. Not collective. */
void TrsFileTrustOthers(PetscBool trust);
