# SPDX-License-Identifier: BSD-3-Clause
"""A folder for each test, removed after it, and a call of a tool's main() in the test's process,
which is faster than a new process."""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock


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
