"""//experiments:advised with real processes, on a small cluster."""

import os
import subprocess
import tempfile
import unittest

from experiments import advised_experiment
from experiments.runs import clusters, topology
from tests.experiments import fixture

_ADVISED = os.path.abspath("experiments/advised")


def _seed_of_a_small_cluster():
    def is_small(cluster):
        return cluster.model == "resnet18" and cluster.workers == 2 and cluster.shards == 2

    return next(seed for seed in range(10_000) if is_small(clusters.draw(seed, 0, even=True)))


class AdvisedTest(unittest.TestCase):
    def test_what_is_advised_is_measured_beside_others(self):
        with tempfile.TemporaryDirectory() as folder:
            fixture.require_namespaces(self, folder)
            out = os.path.join(folder, "out")
            command = [_ADVISED, f"--out={out}", f"--seed={_seed_of_a_small_cluster()}"]
            done = subprocess.run(
                [*command, "--clusters=1", "--ways=2"], capture_output=True, text=True, check=False
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(
                done.stdout, r"what psctl advises is within 5% of the best that was measured on"
                " [01] of 1 cluster;",
            )
            with open(os.path.join(out, "report.md"), encoding="utf-8") as file:
                rows = [line for line in file if line.startswith("| c00 |")]
        # Two of the best, another one, and one worker alone; and the cluster itself.
        self.assertEqual(len(rows), 5, rows)
        self.assertIn(" 1.00 |", "".join(rows))
        self.assertIn("| one worker alone |", "".join(rows))

    def test_ways_are_placed_as_they_are_called(self):
        cluster = clusters.draw(7, 0, even=True)
        for name, where, shards, schemes in (
            ("striped on 3 servers", topology.APART, 3, ("STRIPED",)),
            ("layer-based on all workers", topology.COLOCATED, cluster.workers, ("LAYER_BASED",)),
            ("one server", topology.APART, 1, ("MEMORY_BASED",)),
            ("one master, worker 0", topology.ONE_MASTER, 1, ("MEMORY_BASED",)),
            ("ring", topology.RING, 1, ("MEMORY_BASED",)),
        ):
            with self.subTest(name):
                placed = advised_experiment.placed(cluster, name, "BACKWARD")
                self.assertEqual(
                    (placed.topology, placed.shards, placed.schemes, placed.schedule),
                    (where, shards, schemes, "BACKWARD"),
                )
        for name in ("one worker alone", "striped on 2 of the workers"):
            self.assertIsNone(advised_experiment.placed(cluster, name, "FULL"), name)


if __name__ == "__main__":
    unittest.main()
