"""Recovery times, and what makes a result a failure."""

import unittest

from tests.chaos import report


def strike(seconds, group="kill ps"):
    return report.Strike(group + " 0", group, 1.0, 10, seconds)


def result(**changes):
    return {
        "exit_code": 0,
        "verdict": {"problems": []},
        "faults": [{"fault": "kill ps 0", "recovery_seconds": 0.5}],
        **changes,
    }


class ReportTest(unittest.TestCase):
    def test_what_a_run_retains_is_measured_by_its_own_rates(self):
        # 10 iterations/s, and 5 from 70 s on; nothing for 2 s at 20 s and for 4 s at 70 s.
        samples = [(0.0, 0), (20.0, 200), (22.0, 200), (70.0, 680), (74.0, 680), (100.0, 810)]
        strikes = [
            report.Strike("a", "a", 20.0, 200, 3.0),
            report.Strike("b", "b", 70.0, 680, 4.0),
        ]
        self.assertAlmostEqual(
            report.retained_within(samples, strikes), (480 + 130) / (10 * 50 + 5 * 30)
        )
        self.assertIsNone(report.retained_within(samples, [strike(None)]))
        self.assertIsNone(report.retained_within([], []))

    def test_percentiles_are_values_that_were_measured(self):
        values = [float(i) for i in range(1, 101)]
        self.assertEqual(report.percentile(values, 0.5), 50)
        self.assertEqual(report.percentile(values, 0.99), 99)
        self.assertEqual(report.percentile([3.0], 0.5), 3)
        self.assertEqual(report.percentile([2.0, 1.0], 0.99), 2)

    def test_each_kind_of_fault_has_a_row_and_all_have_one(self):
        rows = report.by_group([strike(1.0), strike(3.0), strike(2.0, "stop worker")])
        self.assertEqual(list(rows), ["kill ps", "stop worker", "all"])
        self.assertEqual(
            rows["kill ps"],
            {"faults": 2, "not_recovered": 0, "p50_seconds": 1.0, "p99_seconds": 3.0,
             "worst_seconds": 3.0},
        )
        self.assertEqual(rows["all"]["faults"], 3)
        self.assertEqual(report.by_group([]), {})

    def test_a_fault_without_recovery_has_no_time_and_is_counted(self):
        rows = report.by_group([strike(None), strike(2.0)])
        self.assertEqual(rows["kill ps"]["not_recovered"], 1)
        self.assertEqual(rows["kill ps"]["worst_seconds"], 2.0)
        text = report.table(report.by_group([strike(None)]))
        self.assertRegex(text, r"kill ps +1 +- +- +-  1 never")

    def test_a_good_result_has_no_problems(self):
        self.assertEqual(report.problems(result()), [])

    def test_whatever_goes_wrong_is_a_problem(self):
        for changes, problem in (
            ({"exit_code": 1}, "launch ended with exit code 1"),
            ({"verdict": {"problems": ["3 updates of chunks were lost"]}}, "3 updates"),
            ({"faults": [{"fault": "stop ps 1", "recovery_seconds": None}]}, "stop ps 1"),
            ({"missed": ["kill ps 1: ps 1 does not run"]}, "ps 1 does not run"),
        ):
            problems = report.problems(result(**changes))
            self.assertEqual(len(problems), 1)
            self.assertIn(problem, problems[0])


if __name__ == "__main__":
    unittest.main()
