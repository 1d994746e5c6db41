"""//experiments:drawn with real processes, on a small cluster."""

import csv
import os
import subprocess
import tempfile
import unittest

from experiments.runs import clusters
from tests.experiments import fixture

_DRAWN = os.path.abspath("experiments/drawn")


def _seed_of_a_small_cluster():
    def is_small(cluster):
        return cluster.model == "resnet18" and cluster.workers == 2 and cluster.shards == 2

    return next(seed for seed in range(10_000) if is_small(clusters.draw(seed, 0)))


class DrawnTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.out = os.path.join(self.folder, "out")

    def drawn(self, *arguments):
        """Runs to the end; the exit code, standard output and error."""
        done = subprocess.run(
            [_DRAWN, f"--out={self.out}", "--clusters=1", *arguments],
            capture_output=True, text=True, check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def test_each_placement_is_measured_beside_its_prediction_and_only_once(self):
        fixture.require_namespaces(self, self.folder)
        seed = _seed_of_a_small_cluster()
        arguments = [f"--seed={seed}", "--scheme=MEMORY_BASED", "--scheme=AUTO",
                     "--exchange_alone"]
        code, output, complaints = self.drawn(*arguments)
        self.assertEqual(code, 0, complaints)
        self.assertRegex(output, r"(?m)^\[2/2\] c00, 2 workers, 2 shards, auto, .*of the bound")
        self.assertRegex(output, r"(?m)^simulated within 10% of the measurement in \d of 2 runs")
        self.assertRegex(output, r"(?m)^AUTO takes \S+ times as long as the best other placement")
        with open(os.path.join(self.out, "results.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["scheme"] for row in rows], ["MEMORY_BASED", "AUTO"])
        for row in rows:
            self.assertLess(float(row["bytes_error"]), 0.02)
        with open(os.path.join(self.out, "report.md"), encoding="utf-8") as file:
            self.assertIn("\n| c00 | SYNC | memory-based |", file.read())

        code, output, _ = self.drawn(*arguments)
        self.assertEqual(code, 0)
        self.assertIn("2 of 2 runs are done already", output)
        code, _, complaints = self.drawn(f"--seed={seed + 1}")
        self.assertEqual(code, 2)
        self.assertIn("holds the results of another config or network", complaints)

    def test_a_wrong_command_line_is_refused(self):
        for argument in ("--scheme=FASTEST", "--clusters=0"):
            code, output, complaints = self.drawn(argument)
            self.assertEqual((code, output), (2, ""))
            self.assertIn("drawn: error: argument " + argument.partition("=")[0], complaints)
        for arguments, problem in (
            (["--out="], "--out needs a value"),
            (["--clusters=1"] * 2, "--clusters is given twice"),
        ):
            code, _, complaints = self.drawn(*arguments)
            self.assertEqual(code, 2)
            self.assertIn("drawn: error: " + problem, complaints)
        self.assertFalse(os.path.exists(self.out))


if __name__ == "__main__":
    unittest.main()
