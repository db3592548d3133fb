# SPDX-License-Identifier: BSD-3-Clause
"""Sums over the ranks of a collection, with the MPI that libtrshard uses; numpy arrays in and out."""
import ctypes
import hashlib

import numpy as np

import trshard

# Datatypes and operations are variables in Open MPI, and numbers in MPICH and its derivatives.
OPEN_MPI = {np.float32: "ompi_mpi_float", np.float64: "ompi_mpi_double", "sum": "ompi_mpi_op_sum"}
MPICH = {np.float32: 0x4c00040a, np.float64: 0x4c00080b, "sum": 0x58000003}


def _handle(key):
    try:
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(trshard._library, OPEN_MPI[key])))
    except ValueError:
        return ctypes.c_void_p(MPICH[key])


class Ranks:
    """The ranks of a collection's communicator. All calls are collective."""

    def __init__(self, ebc):
        library, size, rank = trshard._library, ctypes.c_int(), ctypes.c_int()
        library.MPI_Comm_f2c.restype = ctypes.c_void_p  # wide enough for an int, which MPICH uses
        self._comm = ctypes.c_void_p(library.MPI_Comm_f2c(ebc._comm))
        library.MPI_Comm_size(self._comm, ctypes.byref(size))
        library.MPI_Comm_rank(self._comm, ctypes.byref(rank))
        self.size, self.rank = size.value, rank.value

    def sum(self, array):
        """The sum of all ranks' arrays, which must be float32 or float64 and have the same shape."""
        array = np.ascontiguousarray(array)
        if self.size == 1:
            return array
        total = np.empty_like(array)
        status = trshard._library.MPI_Allreduce(ctypes.c_void_p(array.ctypes.data), ctypes.c_void_p(total.ctypes.data), ctypes.c_int(array.size),
                                                _handle(array.dtype.type), _handle("sum"), self._comm)
        if status:
            raise trshard.Error(70, f"MPI_Allreduce of {array.size} numbers failed with {status}")
        return total

    def same(self, *buffers):
        """True if the bytes of these buffers are the same on all ranks. All ranks get the same answer."""
        found = hashlib.blake2b(digest_size=8)
        for buffer in buffers:
            found.update(buffer)
        own = np.frombuffer(found.digest(), np.uint16).astype(np.float64)
        total = self.sum(np.concatenate([own, own * own]))  # whole numbers below 2^53 for up to 2^21 ranks
        sums, squares = np.split(total, 2)
        return bool((self.size * squares == sums * sums).all())  # equal only if the numbers are equal
