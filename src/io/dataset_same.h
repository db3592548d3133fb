/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Check that all ranks read the same dataset, because hosts may have copies of its files. Internal
  to io/.
*/
#pragma once

#include "io/dataset_file.h"

/*
  TrsDatasetCheckSame - Compare this rank's files with rank 0's, before they are read.

  The check compares samples, ids, type of the ids and size of each file; columns, names and
  num_embeddings; and the contents of 64 samples each at the beginning, in the middle and at the end
  of the dataset. Differences elsewhere are not noticed. Times of files may differ, because copies
  have their own times.

  Collective on comm. A single rank compares nothing, and only computes the hash.

  In:     dataset  open on all ranks
          file     [n_files] its files
  Out:    sample_hash  as in TrsDatasetInfo
  Errors (agreed): DATA with the file, the rank, its host, and the difference; those of reading
*/
PetscErrorCode TrsDatasetCheckSame(MPI_Comm comm, TrsDataset dataset, const TrsDatasetFile *file,
                                   int64_t *sample_hash);
