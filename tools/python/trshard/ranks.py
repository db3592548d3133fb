# SPDX-License-Identifier: BSD-3-Clause
"""Sums over the ranks of a collection, with the MPI that libtrshard uses; numpy arrays in and out."""
import ctypes
import hashlib
import pickle

import numpy as np

import trshard

# Datatypes and operations are variables in Open MPI, and numbers in MPICH and its derivatives.
OPEN_MPI = {np.float32: "ompi_mpi_float", np.float64: "ompi_mpi_double", np.uint8: "ompi_mpi_byte", "sum": "ompi_mpi_op_sum"}
MPICH = {np.float32: 0x4c00040a, np.float64: 0x4c00080b, np.uint8: 0x4c00010d, "sum": 0x58000003}


def _handle(key):
    try:
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(trshard._library, OPEN_MPI[key])))
    except ValueError:
        return ctypes.c_void_p(MPICH[key])


class Ranks:
    """The ranks of a communicator, which its Fortran handle names. All calls are collective."""

    def __init__(self, comm):
        library, size, rank = trshard._library, ctypes.c_int(), ctypes.c_int()
        library.MPI_Comm_f2c.restype = ctypes.c_void_p  # wide enough for an int, which MPICH uses
        self._comm = ctypes.c_void_p(library.MPI_Comm_f2c(comm))
        library.MPI_Comm_size(self._comm, ctypes.byref(size))
        library.MPI_Comm_rank(self._comm, ctypes.byref(rank))
        self.size, self.rank = size.value, rank.value

    def sum(self, array):
        """The sum of all ranks' arrays, which must be float32 or float64 and have the same shape."""
        array = np.asarray(array, order="C")
        if self.size == 1:
            return array
        total = np.empty_like(array)
        status = trshard._library.MPI_Allreduce(ctypes.c_void_p(array.ctypes.data), ctypes.c_void_p(total.ctypes.data), ctypes.c_int(array.size),
                                                _handle(array.dtype.type), _handle("sum"), self._comm)
        if status:
            raise trshard.Error(70, f"MPI_Allreduce of {array.size} numbers failed with {status}")
        return total

    def gather(self, array):
        """All ranks' arrays float32 or float64 of one dimension, one after another. Their lengths may differ."""
        array = np.ascontiguousarray(array)
        lengths = np.zeros(self.size)
        lengths[self.rank] = len(array)
        ends = np.cumsum(self.sum(lengths)).astype(np.int64)
        whole = np.zeros(ends[-1], array.dtype)
        whole[ends[self.rank] - len(array):ends[self.rank]] = array
        return self.sum(whole)

    def broadcast(self, value):
        """Rank 0's value, which pickle must accept, on all ranks."""
        if self.size == 1:
            return value
        content = np.frombuffer(pickle.dumps(value), np.uint8).copy() if self.rank == 0 else None
        n = int(self.sum(np.array([float(len(content)) if self.rank == 0 else 0.0]))[0])
        buffer = content if self.rank == 0 else np.empty(n, np.uint8)
        for begin in range(0, n, 2**30):  # MPI counts with int
            part = buffer[begin:begin + 2**30]
            status = trshard._library.MPI_Bcast(ctypes.c_void_p(part.ctypes.data), ctypes.c_int(part.size), _handle(np.uint8), ctypes.c_int(0), self._comm)
            if status:
                raise trshard.Error(70, f"MPI_Bcast of {part.size} bytes failed with {status}")
        return pickle.loads(buffer.tobytes())

    def same(self, *buffers):
        """True if the bytes of these buffers are the same on all ranks. All ranks get the same answer."""
        found = hashlib.blake2b(digest_size=8)
        for buffer in buffers:
            found.update(buffer)
        own = np.frombuffer(found.digest(), np.uint16).astype(np.float64)
        total = self.sum(np.concatenate([own, own * own]))  # whole numbers below 2^53 for up to 2^21 ranks
        sums, squares = np.split(total, 2)
        return bool((self.size * squares == sums * sums).all())  # equal only if the numbers are equal
