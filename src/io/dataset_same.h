/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Check that all ranks read the same dataset. Hosts may have different copies of its files. Internal
  to io/.
*/
#pragma once

#include "io/dataset_file.h"

/*
  TrsDatasetCheckSame - Compare this rank's files with rank 0's, before they are read.

  The check compares the number of samples, the number of ids, the type of ids and the size of each
  file. It also compares columns, names and num_embeddings, and the contents of 64 samples at the
  beginning, 64 in the middle and 64 at the end of the dataset. Differences elsewhere are not
  detected. The times of files may differ, because copies have their own times.

  Collective on comm. A single rank compares nothing, and only computes the hash.

  In:     dataset  must be open on all ranks
          file     [n_files] the files of the dataset
  Out:    sample_hash  as in TrsDatasetInfo
  Errors (agreed): DATA with the file, the rank, its host, and the difference; those of reading
*/
PetscErrorCode TrsDatasetCheckSame(MPI_Comm comm, TrsDataset dataset, const TrsDatasetFile *file,
                                   int64_t *sample_hash);
