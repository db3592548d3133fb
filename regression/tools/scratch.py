# SPDX-License-Identifier: BSD-3-Clause
"""For tests of the tools: a folder for each test, which is removed after it; calls of a tool's
main() in the test's process, which are faster than a new process; and calls of it in a process that
is killed."""
import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

# A tool, killed when it is about to put its n-th file into place, or after it removed its first part.
KILLED_AT = """
import importlib, os, shutil, signal, sys
tool, left, replace = sys.argv.pop(1), int(sys.argv.pop(1)), os.replace
def replace_or_die(old, new):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(old, new)
os.replace = replace_or_die
def remove_and_die(folder):
    os.unlink(os.path.join(folder, "part-000000.h5"))
    os.kill(os.getpid(), signal.SIGKILL)
shutil.rmtree = remove_and_die
importlib.import_module(tool).main()
"""


def kill(tool, n, *words, python=sys.executable):
    """Call main() of a tool's module, and kill it at its n-th file."""
    result = subprocess.run([python, "-c", KILLED_AT, tool.__name__, str(n), *words], capture_output=True, text=True, check=False,
                            env={**os.environ, "PYTHONPATH": os.path.dirname(tool.__file__)})
    if result.returncode != -signal.SIGKILL:
        raise AssertionError(f"exit {result.returncode}: {result.stderr}")


def inside(tool, *words):
    """The status of a tool's module, and its output."""
    arguments = [tool.__file__, *map(str, words)]
    printed, said = io.StringIO(), io.StringIO()
    with unittest.mock.patch.object(sys, "argv", arguments), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        try:
            status = tool.main()
        except SystemExit as end:
            status = end.code
    return subprocess.CompletedProcess(arguments, status, printed.getvalue(), said.getvalue())


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)
