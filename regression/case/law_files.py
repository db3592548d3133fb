# SPDX-License-Identifier: BSD-3-Clause
"""What runs do with files that are special: on a file system without locks, of another user, with numbers out of range."""
import fcntl
import os
import shutil
import subprocess

from trsrun import Skipped, check, check_same_tensors, run, thin, thinned, write_dataset

MODEL = "-tables_embedding_dim 8 -dense_arch 16,8 -over_arch 16,1 -seed 3 -batch_size 8 -data_train train.h5"
NO_LOCKS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
static int refuse(void) { errno = atoi(getenv("NO_LOCKS")); return -1; }
int flock(int fd, int operation) { (void)fd; (void)operation; return refuse(); }
static int control(const char *name, int fd, int command, void *argument)
{
  int (*next)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, name);
  if (command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_OFD_GETLK)
    return refuse();
  return next(fd, command, argument);
}
#define CONTROL(name) int name(int fd, int command, ...) { va_list a; void *x; va_start(a, command); x = va_arg(a, void *); va_end(a); return control(#name, fd, command, x); }
CONTROL(fcntl)
CONTROL(fcntl64)
"""


def without_locks(folder, error):
    """The environment of a program on a file system whose locks fail with this error."""
    if not shutil.which("cc"):
        raise Skipped("no compiler")
    with open(os.path.join(folder, "no_locks.c"), "w", encoding="ascii") as out:
        out.write(NO_LOCKS)
    path = os.path.join(folder, "no_locks.so")
    subprocess.run(["cc", "-shared", "-fPIC", "no_locks.c", "-o", path, "-ldl"], cwd=folder, check=True)
    return {"LD_PRELOAD": path, "NO_LOCKS": str(error)}


@thinned
def test_no_locks(binary, folder):
    """Where a file system has no locks, every task does what it does elsewhere; that nothing keeps another job out is said once."""
    write_dataset(os.path.join(folder, "train.h5"), 80)
    words = f"{MODEL} -data_eval train.h5 -steps 6 -output run.h5 -checkpoint_every 2 -checkpoint_keep 2"
    run(binary, 2, f"{words} -checkpoint_dir with -checkpoint_final with.h5", folder)
    for error in thin((37, 95, 524, 5), (37, 524)):  # ENOLCK, EOPNOTSUPP, the kernel's ENOTSUPP, EIO
        environment = without_locks(folder, error)
        for more, ranks in ((f"-checkpoint_dir c{error} -checkpoint_final without.h5", 2), (f"-checkpoint_dir c{error} -resume -steps 8", 1)):
            text = run(binary, ranks, f"{words} {more}", folder, environment=environment).text
            said = [line for line in text.splitlines() if "no locks" in line]
            check(len(said) == 1 and f"c{error}" in said[0] and "another job" in said[0] and "nknown error" not in said[0], f"errno {error}: {said}\n{text[-1500:]}")
        check_same_tensors(os.path.join(folder, "with.h5"), os.path.join(folder, "without.h5"), f"errno {error}")
        for task in ("-task eval -init_from without.h5", "-task predict -init_from without.h5 -output predicted.h5"):
            text = run(binary, 2, f"{MODEL} -data_eval train.h5 {task}", folder, environment=environment).text
            check("no locks" not in text, f"reading needs no lock:\n{text}")


def test_locked_by_a_writer(binary, folder):
    """A dataset that another program is writing is not read, and the message says so."""
    path = os.path.join(folder, "train.h5")
    write_dataset(path, 80)
    with open(path, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for ranks in (1, 2):
            text = run(binary, ranks, f"{MODEL} -steps 1", folder, status=65).text
            check("still being written" in text and "lock" in text and "damaged" not in text, text)
    run(binary, 1, f"{MODEL} -steps 1", folder)
