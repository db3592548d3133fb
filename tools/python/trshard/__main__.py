# SPDX-License-Identifier: BSD-3-Clause
"""The program trshard: mpirun -n 4 python -m trshard -options_file run.opts. A wheel also installs it as `trshard`."""
import ctypes
import os
import sys

from . import _library


def main() -> int:
    """Run the command line. Returns the program's exit status."""
    words = [b"trshard", *map(os.fsencode, sys.argv[1:])]
    return _library.TrshardMain(ctypes.c_int(len(words)), (ctypes.c_char_p * (len(words) + 1))(*words, None))


if __name__ == "__main__":
    sys.exit(main())
