"""Where a machine's CUDA libraries are."""

import os
import site
import sysconfig
import tempfile
import unittest
from unittest import mock

from tools.gpu import machine


class LibraryFoldersTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.packages = scratch.name
        for module, name, value in (
            (sysconfig, "get_paths", {"purelib": self.packages}),
            (site, "getsitepackages", [self.packages]),
        ):
            patcher = mock.patch.object(module, name, return_value=value)
            patcher.start()
            self.addCleanup(patcher.stop)

    def add(self, package, *libraries):
        folder = os.path.join(self.packages, "nvidia", package, "lib")
        os.makedirs(folder)
        for library in libraries:
            with open(os.path.join(folder, library), "wb"):
                pass
        return folder

    def test_pytorchs_libraries_come_first_and_with_those_that_they_load(self):
        cudnn = self.add("cudnn", "libcudnn.so.9")
        cuda = self.add("cu13", "libcublas.so.13", "libcublasLt.so.13")
        nccl = self.add("nccl")
        self.assertEqual(machine.library_folders(), [cuda, cudnn, nccl])

    def test_a_library_that_is_nowhere_is_named(self):
        with mock.patch.object(machine, "_LIBRARIES", ("libnone.so.1",)):
            with self.assertRaisesRegex(machine.MachineError, "libnone.so.1 was not found, looked"):
                machine.library_folders()


if __name__ == "__main__":
    unittest.main()
