"""//experiments:checkpoints with real processes, on a small model."""

import json
import os
import subprocess
import tempfile
import unittest

_CHECKPOINTS = os.path.abspath("experiments/checkpoints")


class CheckpointsTest(unittest.TestCase):
    def test_runs_without_and_with_checkpoints_are_measured_in_turn(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "result.json")
            done = subprocess.run(
                [_CHECKPOINTS, f"--folder={folder}", f"--out={out}", "--shrink=64", "--batch=8",
                 "--every=20", "--repeats=2"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )
            self.assertEqual(done.returncode, 0, done.stdout)
            with open(out, encoding="utf-8") as file:
                result = json.load(file)
            self.assertEqual(sorted(os.listdir(folder)), ["result.json"])
        for name in ("seconds_without", "seconds_with"):
            self.assertEqual(len(result[name]), 2)
        self.assertEqual([len(rates) for rates in result["rates"]], [3] * 4)
        self.assertTrue(all(rate > 0 for rates in result["rates"] for rate in rates))
        self.assertIn("cost of a checkpoint every 20 iterations: ", done.stdout)

    def test_what_is_no_folder_is_refused(self):
        done = subprocess.run(
            [_CHECKPOINTS, "--folder=/dev/null/none"], capture_output=True, text=True, check=False,
        )
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "^--folder: .*/dev/null/none.*, allowed: a folder")


if __name__ == "__main__":
    unittest.main()
