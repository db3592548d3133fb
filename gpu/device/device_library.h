/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The places of NVIDIA's libraries that are opened at their first use: cuBLASLt, NCCL. Internal to
  gpu/.
*/
#pragma once

#include <petscsys.h>

/*
  TrsCudaLibraryOpen - dlopen(name) as the loader finds it, then in $CUDA_HOME/lib64,
  $CUDA_PATH/lib64, /usr/local/cuda/lib64 and the folder of the toolkit that built the program.

  Returns NULL if there is no such library; why_not is then the loader's first message with advice.
  Not collective.
*/
PETSC_EXTERN void *TrsCudaLibraryOpen(const char *name, char *why_not, size_t why_not_size);
