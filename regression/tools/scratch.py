# SPDX-License-Identifier: BSD-3-Clause
"""A folder for each test, removed after it."""
import os
import tempfile
import unittest


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)
