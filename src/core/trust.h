/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Check that files come from a trusted user. An option file decides what a run writes and where, and
  a checkpoint has its model's options, so another user could use such a file to misuse a run. Like
  git and ssh, a run accepts these files only from trusted users, unless an option allows others.
*/
#pragma once

#include "core/error.h"

/*
  TrsFileTrust - Refuse a file of another user in a folder to which other users may write.

  A file is trusted if this user or root owns it (for root, also the user who called sudo), or if
  only its owner could have created it: neither the file nor a folder on its path is writable for
  all users. A sticky folder such as /tmp is treated as writable for the files in it; for root, also
  for the folders in it. A missing file is accepted here, because its reader will report it. Not
  collective.

  Errors: OPTION, with the owner and -trust_other_users
*/
PetscErrorCode TrsFileTrust(const char *path);

/* Set the value of -trust_other_users for the process. Not collective. */
void TrsFileTrustOthers(PetscBool trust);
