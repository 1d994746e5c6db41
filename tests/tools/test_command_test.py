"""The arguments of tools/test, tools/sanitize and tools/fuzz."""

import subprocess
import unittest


def _run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


class TestCommandTest(unittest.TestCase):
    def test_help_is_printed_and_nothing_else_happens(self):
        for program in ("tools/test", "tools/sanitize", "tools/fuzz"):
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
            ["tools/fuzz", "config", "--gpus"],
        ):
            done = _run(*command)
            self.assertEqual(done.returncode, 2)
            self.assertIn(': unknown argument "--gpus"', done.stderr)
            self.assertEqual(done.stdout, "")

    def test_a_fuzzer_that_does_not_exist_and_a_time_that_is_none_are_named(self):
        for argument, error in (
            ("conifg", 'fuzz: no fuzzer "conifg", allowed: block_scaled '),
            ("--minutes=0", 'fuzz: "0" minutes or jobs, allowed: a number from 1 on'),
        ):
            done = _run("tools/fuzz", argument)
            self.assertEqual(done.returncode, 2)
            self.assertIn(error, done.stderr)


if __name__ == "__main__":
    unittest.main()
