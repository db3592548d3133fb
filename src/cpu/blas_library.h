/* SPDX-License-Identifier: BSD-3-Clause */
/* The BLAS that the program is linked with. Internal to cpu/, for gemm_cpu.c. */
#pragma once

#include <petscsys.h>

#include <stddef.h>

/*
  TrsBlasSetup - Choose the library's kernels.

  OpenBLAS is set to the kernels for isa. Other libraries are used unchanged.

  Not collective. Must be called once per process, before the first product.

  In:     isa   "avx512", "avx2" or "portable", from TrsComputeIsa()
  Out:    text  the library's name, version and kernels in at most n bytes, for reports
  Returns PETSC_TRUE if a product may be cut by columns: its parts then have the bits of the whole
  product.
*/
PetscBool TrsBlasSetup(const char *isa, char *text, size_t n);

/*
  TrsBlasPrepare - Make products run on the calling thread. Must be called before the first product.

  OpenBLAS, FlexiBLAS and MKL are set to one thread. With another library, the user must limit its
  threads.

  Not collective.

  In:     n_threads  number of our threads that will multiply at once
  Errors: MEMORY if a limit on the address space leaves too little room for OpenBLAS's buffers.
          Without this check OpenBLAS would retry the mapping for ever.
*/
PetscErrorCode TrsBlasPrepare(int n_threads);
