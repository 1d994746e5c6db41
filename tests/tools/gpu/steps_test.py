"""Steps within a budget: none ends the check, none is dropped silently."""

import tempfile
import unittest

from tools.gpu.processes import ProgramError
from tools.gpu.results import Results
from tools.gpu.steps import Budget, Skipped, Steps


class StepsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.time = 0
        self.results = Results(scratch.name)
        self.steps = Steps(self.results, Budget(100, now=lambda: self.time))

    def outcome(self, work, least=10, most=60):
        self.steps.run("step", least, most, work)
        step = self.results.to_json()["steps"][-1]
        return step["outcome"], step["detail"]

    def test_a_step_gets_its_time_or_what_is_left(self):
        self.assertEqual(self.outcome(lambda seconds: f"{seconds:g}"), ("passed", "60"))
        self.time = 70
        self.assertEqual(self.outcome(lambda seconds: f"{seconds:g}"), ("passed", "30"))

    def test_a_step_that_does_not_fit_is_reported(self):
        self.time = 95
        self.assertEqual(
            self.outcome(lambda seconds: self.fail("was run")),
            ("not run", "5 s are left, it needs 10"),
        )

    def test_a_step_that_fails_or_is_skipped_is_reported_with_its_reason(self):
        def fails(_):
            raise ProgramError("exit code 1")

        def skips(_):
            raise Skipped("no tool")

        self.assertEqual(self.outcome(fails), ("failed", "exit code 1"))
        self.assertEqual(self.outcome(skips), ("skipped", "no tool"))
        self.assertEqual(self.outcome(lambda _: None), ("passed", ""))


if __name__ == "__main__":
    unittest.main()
