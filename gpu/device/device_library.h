/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Find NVIDIA's libraries that are opened at their first use: cuBLASLt and NCCL. Internal to gpu/.
*/
#pragma once

#include <petscsys.h>

/*
  TrsCudaLibraryOpen - Open a library with dlopen. The function tries the loader's own search first,
  then $CUDA_HOME/lib64, $CUDA_PATH/lib64, /usr/local/cuda/lib64 and the folder of the toolkit that
  built the program.

  Returns NULL if the library is not found; why_not then has the loader's first message, and advice.
  Not collective.
*/
PETSC_EXTERN void *TrsCudaLibraryOpen(const char *name, char *why_not, size_t why_not_size);
