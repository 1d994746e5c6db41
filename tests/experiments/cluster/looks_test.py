"""What is asked of psctl while a run trains."""

import os
import unittest

from experiments.cluster import looks


class _Started:
    def __init__(self):
        self.asked = []

    def psctl(self, *arguments):
        self.asked.append(arguments)


class LooksTest(unittest.TestCase):
    def test_a_file_is_named_for_a_program_that_starts_in_another_folder(self):
        started = _Started()
        taken = looks.Looks(started, os.path.join("results", "a"), seconds=600)
        taken.take()
        taken.close()
        path = os.path.join(os.getcwd(), "results", "a", "0.safetensors")
        self.assertEqual(started.asked, [("save", f"--out={path}")])
        self.assertEqual([path for _, path in taken.saved], [path])


if __name__ == "__main__":
    unittest.main()
