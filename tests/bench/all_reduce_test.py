"""//bench:all_reduce, small: both systems give the right sums, on loopback and on shaped links."""

import os
import subprocess
import unittest

_BENCH = os.path.abspath("bench/ring/all_reduce")
_NO_NETWORK = 3


def _run(*arguments):
    return subprocess.run(
        [_BENCH, "--model=mnist_mlp", "--repeat=1", "--count=1", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )


class AllReduceTest(unittest.TestCase):
    def test_both_systems_are_verified_and_compared(self):
        done = _run("--workers", "2", "3")
        self.assertEqual(done.returncode, 0, done.stdout)
        for workers in (2, 3):
            self.assertIn(f"mnist_mlp, {workers} workers, 1 windows of 1:", done.stdout)
        self.assertEqual(done.stdout.count("gloo's time over Evenshard's: median "), 2)
        self.assertNotIn("of the bound", done.stdout)

    def test_on_shaped_links_the_times_are_parts_of_the_bound(self):
        done = _run("--workers", "3", "--link_gbps=0.1")
        if done.returncode == _NO_NETWORK:
            self.skipTest(f"needs network namespaces: {done.stdout}")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count(" of the bound"), 2)

    def test_a_wrong_command_line_is_refused(self):
        self.assertEqual(_run("--model=none").returncode, 2)


if __name__ == "__main__":
    unittest.main()
