"""What the user is told while an experiment runs."""

import io
import unittest

from experiments.report.progress import Progress


class _Terminal(io.StringIO):
    def isatty(self):
        return True


class ProgressTest(unittest.TestCase):
    def setUp(self):
        self.now = 0.0

    def progress(self, weights, known=(), output=None):
        self.output = output or io.StringIO()
        return Progress(weights, list(known), self.output, lambda: self.now)

    def test_each_run_is_a_line_with_the_time_left(self):
        progress = self.progress({"a": 1, "b": 2, "c": 4})
        progress.begin("a")
        self.now = 10
        progress.tick()
        progress.end("good")
        progress.begin("b")
        self.now = 40  # the pace is now 40 s for a weight of 3
        progress.end("better")
        self.assertEqual(
            self.output.getvalue(),
            "[1/3] a: good; 0:01:00 left\n[2/3] b: better; 0:00:53 left\n",
        )

    def test_runs_done_before_count(self):
        progress = self.progress({"b": 1}, known=[(2, 60)])
        progress.begin("b")
        self.now = 30
        progress.end("good")
        self.assertEqual(self.output.getvalue(), "[2/2] b: good\n")

    def test_on_a_terminal_one_line_changes(self):
        progress = self.progress({"b": 1, "c": 1}, known=[(1, 60)], output=_Terminal())
        progress.begin("b")
        self.now = 20
        progress.tick()
        progress.end("good")
        self.assertEqual(
            self.output.getvalue(),
            "\r\033[K[2/3] b: 0:00:00; 0:02:00 left"
            "\r\033[K[2/3] b: 0:00:20; 0:01:40 left"
            "\r\033[K[2/3] b: good; 0:00:40 left\n",
        )


if __name__ == "__main__":
    unittest.main()
