"""The command `evenshard`, as a module: the wheel's test runs it as it is installed."""

import unittest

from tests.python_package import running


def _run(*arguments, **more):
    return running.run("-m", "evenshard.command", *arguments, **more)


class CommandTest(unittest.TestCase):
    def test_help_names_the_commands(self):
        for flag in ("--help", "-h"):
            done = _run(flag)
            self.assertEqual(done.returncode, 0)
            for command in ("run", "ps", "worker", "launch", "psctl"):
                self.assertRegex(done.stdout, rf"(?m)^  {command} ")

    def test_the_version_is_that_of_the_package(self):
        self.assertRegex(_run("--version").stdout, r"^evenshard \d+\.\d+\.\d+\n$")

    def test_each_program_says_what_it_is(self):
        for program in ("ps", "worker", "launch", "psctl"):
            done = _run(program, "--help")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn(f"Evenshard's {program}", done.stdout)

    def test_a_program_ends_with_its_own_code(self):
        done = _run("launch", "--config=/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere", done.stdout)

    def test_run_is_the_module(self):
        done = _run("run", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stdout.startswith("usage: evenshard run "), done.stdout)
        self.assertIn('evenshard run: SCRIPT: is "nowhere.py"', _run("run", "nowhere.py").stdout)

    def test_a_wrong_command_is_named(self):
        self.assertEqual(_run().returncode, 2)
        done = _run("train")
        self.assertEqual(done.returncode, 2)
        self.assertIn('unknown command "train", allowed: run, ps, worker, launch', done.stdout)

    def test_a_program_that_is_not_there_is_named(self):
        done = _run("psctl", EVENSHARD_PROGRAMS="/nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertIn("looked for /nowhere/tools/psctl/psctl", done.stdout)


if __name__ == "__main__":
    unittest.main()
