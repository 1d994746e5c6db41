"""Short runs in each update mode but SYNC, and whether they find what is planted."""

import subprocess
import unittest

from tests.chaos.chaos_fixture import CHAOS, ChaosTestCase


class ModesTest(ChaosTestCase):
    def test_no_mode_loses_or_doubles_an_update(self):
        for mode in ("LOCAL", "QUORUM", "SSP", "ASYNC"):
            with self.subTest(mode):
                result, _ = self.chaos(
                    f"--mode={mode}", "--iterations=1200", "--every=100", "--faults=3",
                    "--silence_seconds=3", "--seed=3",
                )
                self.assertEqual(result["problems"], [])
                self.assertEqual(len(result["faults"]), 3)

    def test_an_update_that_is_lost_or_doubled_is_found(self):
        for mode, plant, problem in (
            ("SYNC", "lost", "has other bits"), ("QUORUM", "doubled", "has +1.00 updates"),
            ("ASYNC", "lost", "lost pushes"), ("ASYNC", "doubled", "doubled pushes"),
        ):
            with self.subTest(mode):
                result, _ = self.chaos(
                    f"--mode={mode}", f"--plant={plant}", "--iterations=300", "--every=100",
                    "--faults=1", "--only=kill worker", exit_code=1,
                )
                self.assertIn(problem, " ".join(result["problems"]))

    def test_quorum_is_judged_within_bounds(self):
        done = subprocess.run(
            [CHAOS, "--mode=QUORUM", "--workers=17", "--iterations=10"], capture_output=True,
            text=True, check=False,
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("--workers: is 17 with --mode=QUORUM, allowed: up to 16", done.stderr)


if __name__ == "__main__":
    unittest.main()
