"""The arguments of tools/package."""

import subprocess
import unittest


def _run(*arguments):
    return subprocess.run(
        ["tools/package", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


class PackageCommandTest(unittest.TestCase):
    def test_help_is_printed_and_nothing_else_happens(self):
        for flag in ("--help", "-h"):
            done = _run(flag)
            self.assertEqual(done.returncode, 0)
            self.assertTrue(done.stdout.startswith("./tools/package [--out=FOLDER]\n"), done.stdout)
            self.assertEqual(done.stderr, "")

    def test_a_wrong_argument_is_named(self):
        for argument in ("--static", "--out", "--out=", "dist"):
            done = _run(argument)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f'package: unknown argument "{argument}"', done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
