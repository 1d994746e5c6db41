"""Figures from rounds, and what the files say."""

import json
import os
import tempfile
import unittest

from tools.gpu.results import FAILED, NOT_RUN, PASSED, SKIPPED, Figure, Results


class ResultsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.results = Results(self.folder)

    def measure(self, name, *rates):
        for rate in rates:
            self.results.add_round(name, rate)

    def figure(self, target, *under):
        self.results.add_figure(Figure("a figure", target, "ours", *(under or ["theirs"])))
        return self.results.to_json()["figures"][-1]

    def test_a_figure_is_the_median_of_the_ratios_round_by_round(self):
        self.measure("ours", 100, 50, 90)
        self.measure("theirs", 100, 100, 100)
        figure = self.figure(0.9)
        self.assertEqual(figure["ratio"], {"median": 0.9, "min": 0.5, "max": 1.0})
        self.assertIs(figure["reached"], True)
        self.assertIs(self.figure(0.95)["reached"], False)
        self.assertIsNone(self.figure(None)["reached"])

    def test_a_rival_that_was_not_measured_may_have_been_better(self):
        self.measure("ours", 100)
        self.measure("theirs", 90)
        self.assertIsNone(self.figure(1, "theirs", "others")["reached"])
        self.assertIn("not known: without others", self.results.to_markdown())
        self.assertIs(self.figure(1.2, "theirs", "others")["reached"], False)

    def test_a_round_that_failed_leaves_the_others_in_pairs(self):
        self.measure("ours", 1, None, 30)
        self.measure("theirs", None, 2, 10)
        self.assertEqual(self.figure(1)["ratio"], {"median": 3, "min": 3, "max": 3})

    def test_a_figure_without_rounds_is_said_to_be_not_measured(self):
        self.measure("ours", 1)
        self.assertIsNone(self.figure(1)["ratio"])
        self.assertIn("| a figure | at least 1.00 | not measured |  | not measured |",
                      self.results.to_markdown())

    def test_of_several_the_figure_is_over_the_one_with_the_highest_median(self):
        self.measure("ours", 4, 4, 4)
        self.measure("a", 1, 9, 1)
        self.measure("b", 2, 2, 2)
        self.measure("c", None)
        figure = self.figure(2, "a", "b", "c", "d")
        self.assertEqual(figure["under"], "b")
        self.assertEqual(figure["ratio"]["median"], 2)
        self.assertIsNone(self.figure(2, "c", "d")["under"])

    def test_only_steps_that_all_passed_and_figures_that_were_measured_are_good(self):
        self.assertFalse(self.results.good())  # nothing was run
        self.results.add_step("one", PASSED)
        self.assertTrue(self.results.good())
        self.measure("ours", 1)
        self.measure("theirs", 2)
        self.figure(1)
        self.assertTrue(self.results.good())  # missed, but measured
        self.figure(1, "others")
        self.assertFalse(self.results.good())

    def test_no_other_outcome_of_a_step_is_good(self):
        for outcome in (FAILED, SKIPPED, NOT_RUN):
            results = Results(self.folder)
            results.add_step("one", PASSED)
            results.add_step("two", outcome, detail="why")
            self.assertFalse(results.good(), outcome)
            self.assertIn(f"| two | {outcome} | 0.0 | why |", results.to_markdown())

    def test_the_files_say_the_same(self):
        self.results.device = {"gpu": "NVIDIA H200"}
        self.measure("ours", 1000, 1100, 1050)
        self.measure("theirs", 1000, 1000, 1000)
        self.figure(1.0)
        self.results.add_note("a | note")
        self.results.add_step("tests", PASSED, 1.25, "2 | 3\nlines")
        with open(os.path.join(self.folder, "results.json"), encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual(found["images_per_second"]["ours"]["rounds"], [1000, 1100, 1050])
        self.assertEqual(found["figures"][0]["ratio"]["median"], 1.05)
        with open(os.path.join(self.folder, "results.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("- gpu: NVIDIA H200\n", text)
        self.assertIn("| a figure | at least 1.00 | 1.05 (1.00-1.10) | theirs | reached |", text)
        self.assertIn("| ours | 1050 (1000-1100) | 3 |", text)
        self.assertIn("| tests | passed | 1.2 | 2 \\| 3 lines |", text)
        self.assertEqual(sorted(os.listdir(self.folder)), ["results.json", "results.md"])


if __name__ == "__main__":
    unittest.main()
