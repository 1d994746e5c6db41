"""The results, charts and report of the modes experiment, from fixed curves."""

import csv
import io
import unittest
import xml.etree.ElementTree

from experiments.cluster import network, training
from experiments.cluster.outlook import Outlook
from experiments.cluster.plans import Load
from experiments.report import modes_charts, modes_report
from experiments.report.modes_results import Results
from experiments.runs import modes_config

_CONFIG = """\
cluster { workers: 2 shard {} partition { scheme: MEMORY_BASED } training { batch_size: 10 }
  data { idx { images: "a" labels: "b" test_images: "c" test_labels: "d" } }
  compute { pace { device: "rtx_2080_ti" time_dilation: 100 } } }
mode { name: "SYNC" }
mode { name: "fast" }
mode { name: "never" }
situation { name: "even" }
situation { name: "bad" slowdown: 4 stop_seconds: 5 run_seconds_between: 15 }
link_gbps: 10
seeds: 3
accuracy: 90
"""
# The seconds in which a mode gets from 80 to 90 %, by seed.
_SECONDS = {"SYNC": [20, 22, 30], "fast": [10, 12, 8], "never": [None, None, 11]}

_OUTLOOKS = [
    Outlook(mode, "even", 10, workers, rate)
    for mode, workers, rate in (
        ("SYNC", 64, 1000), ("SYNC", 512, 8000), ("fast", 64, 2000), ("fast", 512, 8100),
        ("never", 64, 500))
]


def _result(seconds, situation, mode="SYNC"):
    reached = [] if seconds is None else [[seconds, 90.0], [seconds + 1, 95.5]]
    return {
        "curve": [[0.0, 10.0], [1.0, 80.0], *reached],
        "accuracy": reached[-1][1] if reached else 80.0,
        "bytes": 4e6 if mode == "SYNC" else 5e6, "iterations": [100, 50], "seconds": [10.0, 10.0],
        "compute_seconds": 6.0, "exchange_wait_seconds": 3.0,
        "stops": 2 if situation == "bad" else 0, "run_seconds": 50.0,
    }


def _results(keep=lambda one: True, config=_CONFIG):
    experiment = modes_config.parse(config, "m.textproto")
    experiment.model_bytes = 4000
    experiment.loads = {
        "SYNC": Load(2, 4, 1), "fast": Load(0.5, 1, 0.125), "never": Load(1, 1.5, 0.5)
    }
    stored = {
        one: _result(_SECONDS[one.mode][one.seed - 1], one.situation, one.mode)
        for one in reversed(experiment.runs()) if keep(one)
    }
    return Results(network.NAMESPACES, experiment, stored)


class ModesReportTest(unittest.TestCase):
    def test_a_result_is_told_from_anything_else(self):
        result = _result(3, "even")
        self.assertTrue(training.is_result(result))
        for name, value in (
            ("curve", []), ("curve", [[1]]), ("curve", [[1, "x"]]), ("bytes", None),
            ("seconds", [float("nan")]), ("iterations", 3),
        ):
            self.assertFalse(training.is_result({**result, name: value}), name)
        self.assertFalse(training.is_result({**result, "more": 1}))
        self.assertFalse(training.is_result([]))

    def test_the_time_is_that_of_the_first_look_that_reaches_the_accuracy(self):
        self.assertEqual(training.seconds_to(90, _result(3, "even")), 3)
        self.assertEqual(training.seconds_to(91, _result(3, "even")), 4)
        self.assertIsNone(training.seconds_to(96, _result(3, "even")))

    def test_there_is_a_row_for_each_training_in_the_order_of_the_grid(self):
        rows = list(csv.DictReader(io.StringIO(_results().csv_text())))
        self.assertEqual(len(rows), 3 * 2 * 3)
        self.assertEqual(rows[0], {
            "run": "sync-even-10gbps-seed1", "mode": "SYNC", "situation": "even",
            "link_gbps": "10", "seed": "1", "seconds_to_accuracy": "20.000",
            "final_accuracy": "95.50", "busiest_link_bytes_each_way": "8000000",
            "iterations": "100 50", "images_per_second": "150.0", "train_seconds": "10.000",
            "compute_seconds": "6.000", "exchange_wait_seconds": "3.000", "stops": "0",
            "run_seconds": "50.000", "time_dilation": "1",
        })
        self.assertEqual(rows[2]["seconds_to_accuracy"], "")

    def test_the_report_says_that_its_times_are_not_those_of_the_machine(self):
        results = _results(config=_CONFIG + "time_dilation: 1.5")
        text = modes_report.write(results, [], [], "the command")
        self.assertIn("took 1.5 times as long on the machine (`time_dilation`)", text)
        self.assertIn(",1.5\n", results.csv_text())

    def test_the_report_has_medians_the_fastest_and_what_did_not_reach_it(self):
        text = modes_report.write(_results(), _OUTLOOKS, ["time_to_accuracy"], "the command")
        self.assertIn("18 of 18 trainings are done", text)
        self.assertIn("| SYNC | 22.0 (20.0-30.0) | 22.0 (20.0-30.0) |", text)
        self.assertIn("| fast | 10.0 (8.0-12.0) |", text)
        self.assertIn("| never | 1 of 3 reached it, in 11.0 |", text)
        self.assertIn("| even | 10 Gb/s | **fast** | 10.0 | - | fast: 2.5 MB, 10.0 s |", text)
        self.assertIn("- **even**: all workers are alike.", text)
        self.assertIn("- **bad**: the last worker takes 4 times as long for a pass and is stopped"
                      " for 5 s at a time, with about 15 s between.", text)
        self.assertIn("![time to accuracy](time_to_accuracy.svg)", text)
        self.assertIn("known to a 24th of the training", text)
        self.assertIn("`the command`", text)
        self.assertIn("| mode | 64, even, 10 Gb/s | 512, even, 10 Gb/s |", text)
        self.assertIn("100 us for each message", text)
        self.assertIn("| SYNC | 100.0% | 4.00 |\n| fast | 12.5% | 1.00 |", text)
        self.assertIn("| SYNC | 1,000 | **8,000** |", text)
        self.assertIn("| fast | **2,000** | **8,100** |", text)
        self.assertIn("| never | 500 | - |", text)

    def test_a_part_of_the_grid_has_a_report_too(self):
        results = _results(lambda one: one.mode == "never" and one.seed == 1)
        text = modes_report.write(results, [], [], "c")
        self.assertIn("2 of 18 trainings are done", text)
        self.assertNotIn("simulated", text)
        self.assertIn("| even | 10 Gb/s | none reached it | - | - | - |", text)
        self.assertIn("| never | not reached | not reached |", text)
        modes_charts.draw(results, lambda name, content: None)

    def test_charts_are_images(self):
        written = {}
        names = modes_charts.draw(_results(), written.__setitem__)
        self.assertEqual(names, [
            "accuracy_over_time_even", "accuracy_over_bytes_even", "accuracy_over_time_bad",
            "accuracy_over_bytes_bad", "time_to_accuracy", "where_time_goes_even",
            "where_time_goes_bad",
        ])
        for name in names:
            xml.etree.ElementTree.fromstring(written[f"{name}.svg"])
            self.assertTrue(written[f"{name}.png"].startswith(b"\x89PNG"))


if __name__ == "__main__":
    unittest.main()
