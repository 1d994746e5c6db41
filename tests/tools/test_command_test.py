"""The arguments of tools/test."""

import subprocess
import unittest


def _run(*arguments):
    return subprocess.run(
        ["tools/test", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


class TestCommandTest(unittest.TestCase):
    def test_help_is_printed_and_nothing_else_happens(self):
        for flag in ("--help", "-h"):
            done = _run(flag)
            self.assertEqual(done.returncode, 0)
            self.assertTrue(done.stdout.startswith("./tools/test [--gpu]\n"), done.stdout)
            self.assertEqual(done.stderr, "")

    def test_a_wrong_argument_is_named(self):
        for arguments in (["--gpus"], ["--gpu", "--gpus"]):
            done = _run(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn('tools/test: unknown argument "--gpus"', done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
