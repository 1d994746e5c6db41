"""The arguments of tools/test and tools/sanitize."""

import subprocess
import unittest


def _run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


class TestCommandTest(unittest.TestCase):
    def test_help_is_printed_and_nothing_else_happens(self):
        for program in ("tools/test", "tools/sanitize"):
            for flag in ("--help", "-h"):
                done = _run(program, flag)
                self.assertEqual(done.returncode, 0)
                self.assertTrue(done.stdout.startswith(f"./{program} ["), done.stdout)
                self.assertEqual(done.stderr, "")

    def test_a_wrong_argument_is_named(self):
        for command in (
            ["tools/test", "--gpus"],
            ["tools/test", "--gpu", "--gpus"],
            ["tools/sanitize", "--all", "--gpus"],
        ):
            done = _run(*command)
            self.assertEqual(done.returncode, 2)
            self.assertIn(': unknown argument "--gpus"', done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
