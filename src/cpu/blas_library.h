/* SPDX-License-Identifier: BSD-3-Clause */
/* The BLAS with which the program is linked. Internal to cpu/, for gemm_cpu.c. */
#pragma once

#include <petscsys.h>

#include <stddef.h>

/*
  TrsBlasSetup - Choose the library's kernels.

  If the library is OpenBLAS, it is set to use the kernels for isa. Other libraries are used
  unchanged.

  Not collective. Must be called once per process, before the first product.

  In:     isa   "avx512", "avx2" or "portable", from TrsComputeIsa()
  Out:    text  the library's name, version and kernels in at most n bytes, for reports

  Returns PETSC_TRUE if a product may be divided by columns, because its parts then have the same
  bits as the whole product.
*/
PetscBool TrsBlasSetup(const char *isa, char *text, size_t n);

/*
  TrsBlasPrepare - Make products run only on the calling thread. Must be called before the first
    product.

  OpenBLAS, FlexiBLAS and MKL are set to one thread. With another library, the user must limit its
  threads.

  Not collective.

  In:     n_threads  number of our threads that will multiply at the same time
  Errors: MEMORY if a limit on the address space leaves too little space for OpenBLAS's buffers.
          Without this check, OpenBLAS would retry the mapping forever
*/
PetscErrorCode TrsBlasPrepare(int n_threads);
