"""results.csv from fixed measurements."""

import csv
import dataclasses
import io
import unittest

from experiments.cluster import network
from experiments.report import results
from tests.experiments import fixture


def _rows(kind=network.NAMESPACES, keep=lambda run: True):
    experiment = fixture.experiment()
    plans, stored = fixture.measured(experiment)
    if kind == network.HOST:
        plans = {
            cell: dataclasses.replace(plan, bound_seconds=None, simulated_seconds=None)
            for cell, plan in plans.items()
        }
    stored = {run: result for run, result in stored.items() if keep(run)}
    text = results.csv_text(results.Results(kind, experiment, plans, stored).rows())
    return {row["run"]: row for row in csv.DictReader(io.StringIO(text))}


class ResultsTest(unittest.TestCase):
    def test_there_is_a_row_for_each_run(self):
        self.assertEqual(
            list(_rows()),
            [
                "w1-s1-layer_based-greedy-full-none-r0",
                "w1-s1-memory_based-full-none-r0",
                "w4-s2-layer_based-greedy-full-none-r0",
                "w4-s2-memory_based-full-none-r0",
            ],
        )

    def test_values_are_those_of_the_emulated_cluster_and_wall_values_of_this_machine(self):
        row = _rows()["w4-s2-memory_based-full-none-r0"]
        expected = {
            "scheme": "MEMORY_BASED",
            "placement": "",
            "topology": "APART",
            "schedule": "FULL",
            "device": "none",
            "model": "vgg16",
            "shrink": "1",
            "batch_size": "10",
            "batches": "1",
            "workers": "4",
            "shards": "2",
            "repeat": "0",
            "link_gbps": "1",
            "wall_link_gbps": "0.5",
            "shard_link_gbps": "",
            "worker_slowdown": "",
            "time_dilation": "2",
            "iteration_seconds_median": "0.02",
            "iteration_seconds_p10": "0.0188",
            "iteration_seconds_p90": "0.0224",
            "wall_iteration_seconds_median": "0.04",
            "wall_iteration_seconds_p10": "0.0376",
            "wall_iteration_seconds_p90": "0.0448",
            "images_per_second": "2000",
            "speedup_over_1_worker": "2",
            "speedup_over_layer_based": "1.5",
            "bound_seconds": "0.02",
            "wall_bound_seconds": "0.04",
            "in_step_seconds": "",
            "efficiency": "1",
            "simulated_seconds": "0.025",
            "compute_seconds": "0.002",
            "exchange_wait_seconds": "0.0175",
            "shard_bytes_in_predicted": "2000000 2000000",
            "shard_bytes_in_measured": "2020000 2020000",
            "shard_bytes_out_predicted": "2000000 2000000",
            "shard_bytes_out_measured": "2000000 2000000",
            "bytes_error": "0.01",
            "processor_use": "0.95",
            "processor_bound": "yes",
            "run_seconds": "3",
        }
        del row["run"]
        self.assertEqual(row, expected)

    def test_layer_based_is_compared_with_nothing(self):
        row = _rows()["w4-s2-layer_based-greedy-full-none-r0"]
        self.assertEqual(row["placement"], "GREEDY")
        self.assertEqual(row["speedup_over_layer_based"], "")
        self.assertEqual(row["processor_bound"], "yes")
        self.assertEqual(_rows()["w1-s1-memory_based-full-none-r0"]["processor_bound"], "no")

    def test_what_was_not_measured_is_empty(self):
        row = _rows(keep=lambda run: run.workers == 4 and run.scheme == "MEMORY_BASED")[
            "w4-s2-memory_based-full-none-r0"
        ]
        self.assertEqual(row["speedup_over_1_worker"], "")
        self.assertEqual(row["speedup_over_layer_based"], "")

    def test_without_shaped_links_there_is_no_rate_and_no_bound(self):
        row = _rows(network.HOST)["w4-s2-memory_based-full-none-r0"]
        for column in ("link_gbps", "wall_link_gbps", "bound_seconds", "wall_bound_seconds",
                       "efficiency", "simulated_seconds"):
            self.assertEqual(row[column], "", column)


if __name__ == "__main__":
    unittest.main()
