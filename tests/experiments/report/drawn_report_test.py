"""The report of drawn clusters, of fixed measurements."""

import dataclasses
import unittest

from experiments.cluster import network
from experiments.cluster.plans import Plan
from experiments.report import drawn_report
from experiments.report.results import Results
from experiments.runs import clusters, matrix

# Seconds of an iteration by scheme: measured on this machine over time_dilation, simulated.
_SECONDS = {
    "LAYER_BASED": (0.30, 0.30),
    "MEMORY_BASED": (0.20, 0.21),
    "AUTO": (0.22, 0.33),
}


def _measured(cluster):
    experiment = clusters.experiment(cluster)
    predicted, stored = {}, {}
    for run in matrix.runs(experiment):
        seconds, simulated = _SECONDS[run.scheme]
        sizes = [1e6] * run.shards
        predicted[run.cell] = Plan(cluster.model, sizes, sizes, 0.16, simulated, 0.1, None, None)
        wall = seconds * cluster.time_dilation
        stored[run] = {
            "iteration_seconds": [wall] * 3,
            "mean_seconds": wall,
            "compute_seconds": 0.1,
            "exchange_wait_seconds": 0.1,
            "bytes_in": sizes,
            "bytes_out": sizes,
            "processor_use": 0.95 if run.scheme == "AUTO" else 0.5,
            "run_seconds": 3.0,
        }
    return Results(network.NAMESPACES, experiment, predicted, stored)


def _cluster(index, *schemes):
    return dataclasses.replace(clusters.draw(7, index), schemes=schemes)


class DrawnReportTest(unittest.TestCase):
    def setUp(self):
        self.drawn = [
            _cluster(0, "LAYER_BASED", "MEMORY_BASED", "AUTO"),
            _cluster(1, "MEMORY_BASED"),
        ]
        self.results = [_measured(cluster) for cluster in self.drawn]
        self.text = drawn_report.write(self.drawn, self.results, "the command")

    def test_every_run_is_a_row_beside_its_prediction(self):
        schedule = self.drawn[0].schedule.lower()
        for row in (
            f"| c00 | SYNC | layer-based (greedy) | {schedule} | 0.300 (0.300-0.300) | 0.300"
            " | +0.0% | 0.160 | 1.88 | 50% |",
            f"| c00 | SYNC | memory-based | {schedule} | 0.200 (0.200-0.200) | 0.210 | +5.0%"
            " | 0.160 | 1.25 | 50% |",
            f"| c00 | SYNC | auto | {schedule} | 0.220 (0.220-0.220) | 0.330 | +50.0%"
            " | 0.160 | 1.38 | 95% ! |",
            f"| c01 | SYNC | memory-based | {self.drawn[1].schedule.lower()} |",
        ):
            self.assertIn(row, self.text)
        self.assertIn("2 clusters drawn from a seed, 4 runs", self.text)
        self.assertIn("`the command`", self.text)

    def test_the_summary_counts_the_runs_within_the_tolerance(self):
        self.assertIn("| all | 4 | 3 | 5.0% | 50.0% | 1.31 | 1.88 |", self.text)
        self.assertIn("| memory-based | 2 | 2 | 5.0% | 5.0% | 1.25 | 1.25 |", self.text)
        self.assertIn("within 10% of the measurement in 3 of 4 runs",
                      drawn_report.headlines(self.drawn, self.results)[0])

    def test_auto_is_compared_with_the_best_other_placement_of_the_same_cluster(self):
        self.assertIn("| c00 | 1.100 |", self.text)
        self.assertNotIn("| c01 | 1.", self.text)
        self.assertIn("at worst 1.10 times (c00)",
                      drawn_report.headlines(self.drawn, self.results)[1])
        alone = drawn_report.write(self.drawn[1:], self.results[1:], "")
        self.assertNotIn("AUTO over", alone)

    def test_a_cluster_is_described(self):
        drawn = dataclasses.replace(
            self.drawn[0], model="vgg16", workers=3, link_gbps=10.0, shard_link_gbps=(4.5, 10.0),
            worker_slowdown=(1.0, 1.5), device="rtx_2080_ti", batch_size=12, time_dilation=9,
        )
        text = drawn_report.write([drawn], [_measured(drawn)], "")
        self.assertIn(
            "| c00 | vgg16 shrunk 4 times | 3 | 2 | 10 | 4.5 10 | worker 1: 1.5 times"
            " | rtx_2080_ti, batch 12 | 9 |",
            text,
        )
        for mode, shards in (("colocated", 3), ("one master", 1), ("ring", 0)):
            of_mode = dataclasses.replace(
                drawn, mode=next(each for each in clusters.MODES if each.name == mode)
            )
            text = drawn_report.write([of_mode], [_measured(drawn)], "")
            self.assertIn(f"| c00 | vgg16 shrunk 4 times | 3 | {shards} | 10 | - |", text)


if __name__ == "__main__":
    unittest.main()
