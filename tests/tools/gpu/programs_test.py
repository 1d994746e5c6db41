"""Packing and unpacking of programs."""

import os
import tempfile
import unittest
from unittest import mock

from tools.gpu import programs


class ProgramsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name
        self.folder = os.path.join(self.scratch, "programs")
        os.makedirs(os.path.join(self.folder, "tests"))
        with open(os.path.join(self.folder, "gpu_tests.txt"), "w", encoding="utf-8") as file:
            file.write("tests/one_gpu\ntests/two_gpu\n")
        path = os.path.join(self.folder, "tests", "one_gpu")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
        os.chmod(path, 0o755)

    def test_files_keep_their_folders(self):
        root = os.path.join(self.scratch, "root")
        names = [*programs._FILES, *(f"{name}/deep/file" for name in programs._FOLDERS)]
        for name in names:
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(name)
        programs.copy_files(root, self.folder)
        for name in names:
            with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                self.assertEqual(file.read(), name)

    def test_what_was_packed_is_unpacked(self):
        where = os.path.join(self.scratch, "packed")
        path, size = programs.pack(self.folder, where)
        self.assertEqual(os.path.getsize(path), size)
        unpacked = os.path.join(self.scratch, "unpacked")
        programs.unpack(where, unpacked)
        self.assertTrue(programs.is_folder_of_programs(unpacked))
        self.assertEqual(programs.tests_of(unpacked), ["tests/one_gpu", "tests/two_gpu"])
        self.assertTrue(os.access(os.path.join(unpacked, "tests", "one_gpu"), os.X_OK))

    def test_an_archive_that_is_too_large_is_refused_and_removed(self):
        where = os.path.join(self.scratch, "packed")
        with mock.patch.object(programs, "_ARCHIVE_LIMIT_BYTES", 10):
            with self.assertRaisesRegex(programs.ProgramsError, "would have .* MiB, allowed"):
                programs.pack(self.folder, where)
        self.assertEqual(os.listdir(where), [])

    def test_a_folder_without_an_archive_is_a_clear_error(self):
        with self.assertRaisesRegex(programs.ProgramsError, "gpu_check.tar.xz: .*--pack makes one"):
            programs.unpack(self.scratch, os.path.join(self.scratch, "unpacked"))
        self.assertFalse(programs.is_folder_of_programs(self.scratch))


if __name__ == "__main__":
    unittest.main()
