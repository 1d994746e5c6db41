"""//experiments:replicas with real processes, on small models."""

import json
import os
import subprocess
import tempfile
import unittest

from tests.experiments import fixture

_REPLICAS = os.path.abspath("experiments/replicas")


class ReplicasTest(unittest.TestCase):
    def test_each_cluster_is_measured_without_and_with_replicas(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        fixture.require_namespaces(self, scratch.name)
        if not os.path.exists("/usr/bin/etcd"):
            self.skipTest("etcd is not installed")
        out = os.path.join(scratch.name, "out")
        done = subprocess.run(
            [_REPLICAS, f"--out={out}", "--drawn=1", "--repeats=1", "--shrink=64"],
            capture_output=True, text=True, check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(
            done.stdout,
            r"\nvgg16 / 64, 8 workers, 4 shards, 10 Gb/s, memory-based, backward: 0 replicas: .*; "
            r"1 replicas: \S+ s = \S+ of the bound",
        )
        with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
            rows = json.load(file)
        self.assertEqual(len(rows), 2)
        for row in rows:
            counts = [len(row["iteration_seconds"][replicas]) for replicas in "01"]
            self.assertEqual(counts, [12, 12])
        # Eight workers push an even placement's shards; with replicas it is as if there were nine.
        bounds = rows[0]["bound_seconds"]
        self.assertAlmostEqual(bounds["1"] / bounds["0"], 9 / 8, places=2)

    def test_wrong_usage_is_told(self):
        done = subprocess.run([_REPLICAS], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--out", done.stderr)
        done = subprocess.run(
            [_REPLICAS, "--out=/dev/null/none"], capture_output=True, text=True, check=False,
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot write to --out=/dev/null/none: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
