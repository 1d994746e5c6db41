"""//experiments:accuracy with real processes, on the digits."""

import json
import os
import subprocess
import tempfile
import unittest

_ACCURACY = os.path.abspath("experiments/accuracy")
_CONFIG = "--config=configs/digits_sync.textproto"


def _run(*arguments):
    return subprocess.run(
        [_ACCURACY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )


class AccuracyTest(unittest.TestCase):
    def test_modes_are_compared_with_the_first_one(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "result.json")
            done = _run(
                _CONFIG, "--workers=2,3", "--seeds=1", "--epochs=6", "--mode=policy: SYNC",
                "--mode=policy: ASYNC", f"--out={out}",
            )
            self.assertEqual(done.returncode, 0, done.stdout)
            with open(out, encoding="utf-8") as file:
                results = json.load(file)
        self.assertEqual(
            [(each["training"], each["mode"]) for each in results],
            [("2 workers", "policy: SYNC"), ("2 workers", "policy: ASYNC"),
             ("3 workers", "policy: SYNC"), ("3 workers", "policy: ASYNC")],
        )
        for result in results:
            self.assertGreater(result["accuracies"][0], 80, result)
        self.assertIn(" +0.00  policy: SYNC", done.stdout)

    def test_equal_draws_are_equal(self):
        names = set()
        for _ in range(2):
            done = _run(_CONFIG, "--drawn=1", "--seeds=1", "--epochs=1", "--mode=policy: SYNC")
            self.assertEqual(done.returncode, 0, done.stdout)
            names.add(done.stdout.splitlines()[0])
        self.assertEqual(len(names), 1)

    def test_modes_name_what_is_drawn(self):
        mode = ("policy: SYNC | local={steps: STEPS optimizer {OPTIMIZER}} | "
                "optimizer={kind: NESTEROV learning_rate: 0.6 momentum: 0.9}")
        done = _run(_CONFIG, "--drawn=1", "--seeds=1", "--epochs=6", f"--mode={mode}")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout.splitlines()[0], r", kind: \w+ learning_rate: .*, STEPS \d+$")
        done = _run(_CONFIG, "--drawn=1", "--mode=policy: SYNC | local={steps: -STEPS}")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"local\.steps: is -\d+, allowed")
        done = _run(_CONFIG, f"--mode={mode}")
        self.assertEqual((done.returncode, done.stdout), (
            2, "--mode: names OPTIMIZER or STEPS, allowed: only with --drawn\n"))

    def test_a_wrong_command_line_is_refused(self):
        done = _run("--config=nowhere")
        self.assertEqual((done.returncode, done.stdout), (
            2, "--config: is nowhere, allowed: a file that exists\n"))
        done = _run(_CONFIG, "--workers=2,x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--workers: is 2,x, allowed: numbers above 0", done.stdout)
        self.assertEqual(_run(_CONFIG, "--workers=\u00b2").returncode, 2)
        done = _run(_CONFIG, "--workers=2", "--drawn=1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--workers: is given with --drawn", done.stdout)
        done = _run(_CONFIG, "--drawn=-2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--drawn: is -2, allowed: at least 0", done.stdout)

    def test_a_run_that_fails_is_told(self):
        done = _run(_CONFIG, "--workers=2", "--mode=policy: SSP staleness: -1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("update.staleness: is -1, allowed: at least 0", done.stdout)


if __name__ == "__main__":
    unittest.main()
