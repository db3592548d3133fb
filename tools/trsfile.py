# SPDX-License-Identifier: BSD-3-Clause
"""Writes files completely or not at all: whole() for texts and pictures, as trsdata.AtomicFile for HDF5. check() checks paths of outputs."""
import contextlib
import os
import sys


@contextlib.contextmanager
def whole(path, mode="w"):
    """A file to write to. It appears under its name when the block ends without an error. A link stays; its target is the file. A path that is no
    regular file is written to directly. So is this process's output (/dev/stdout), because a shell may hold its file open."""
    encoding = None if "b" in mode else "utf-8"
    path = os.path.realpath(path) if os.path.islink(path) else path
    output = path == os.path.realpath("/proc/self/fd/1")
    if output or (os.path.exists(path) and not os.path.isfile(path)):
        sys.stdout.flush()
        with open(os.dup(1) if output else path, mode, encoding=encoding) as out:
            yield out
        return
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, mode, encoding=encoding) as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def picture(figure, path, **more):
    """Writes a figure of matplotlib as a complete file, in the format of the name's suffix."""
    with whole(path, "wb") as out:
        figure.savefig(out, format=os.path.splitext(path)[1][1:] or None, **more)


def check(parser, outputs, inputs=()):
    """Calls parser.error() if an output would replace an input or another output. outputs: option -> path or None."""
    seen = {os.path.realpath(path): f"the input {path}" for path in inputs}
    for option, path in outputs.items():
        if path is None or (os.path.exists(path) and not os.path.isfile(path)):  # several outputs may go to /dev/null
            continue
        if os.path.realpath(path) in seen:
            parser.error(f"{option} {path} would replace {seen[os.path.realpath(path)]}")
        seen[os.path.realpath(path)] = f"that of {option}"
