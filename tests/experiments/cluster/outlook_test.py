"""The outlook on more workers."""

import contextlib
import io
import unittest

from experiments.cluster import outlook
from experiments.runs import modes_config
from tests.experiments import fixture

_CONFIG = """\
cluster {
  model { input { channels: 1 height: 1 width: 10 }
    layer { name: "fc" linear { out_features: 2 } } }
  workers: 2 shard {} partition { scheme: MEMORY_BASED } update { policy: SYNC }
  training { batch_size: 32 iterations: 10 }
  data { idx { images: "a" labels: "b" test_images: "c" test_labels: "d" } }
}
mode { name: "ring" topology: RING }
situation { name: "even" }
link_gbps: 10
"""


class OutlookTest(unittest.TestCase):
    def test_each_step_of_a_ring_takes_a_messages_time_to_arrive(self):
        experiment = modes_config.parse(_CONFIG, "m.textproto")
        cells = dict.fromkeys(one.cell for one in experiment.runs())
        found = outlook.simulate(experiment, cells, fixture.Programs)
        self.assertEqual([one.workers for one in found], list(outlook.WORKERS))
        for one in found:
            steps = 2 * (one.workers - 1)
            most = one.workers * 32 / (steps * outlook.LATENCY_US * 1e-6)
            self.assertLessEqual(one.images_per_second, most)
            self.assertGreater(one.images_per_second, most / 2)

    def test_what_cannot_be_on_more_workers_is_left_out(self):
        text = _CONFIG.replace("MEMORY_BASED", "LAYER_BASED placement: GREEDY").replace(
            "topology: RING", "")
        experiment = modes_config.parse(text, "m.textproto")
        cells = dict.fromkeys(one.cell for one in experiment.runs())
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(outlook.simulate(experiment, cells, fixture.Programs), [])
        self.assertRegex(said.getvalue(), r"^left out: ring, 64 workers: .*can fill 1 to 1 shards")

    def test_what_was_not_trained_is_not_simulated(self):
        text = _CONFIG + (
            'situation { name: "stopping" stop_seconds: 1 run_seconds_between: 1 }\n'
            'link_gbps: 1'
        )
        experiment = modes_config.parse(text, "m.textproto")
        cells = dict.fromkeys(one.cell for one in experiment.runs() if one.link_gbps == 1)
        found = outlook.simulate(experiment, cells, fixture.Programs)
        self.assertEqual(
            [(one.situation, one.link_gbps, one.workers) for one in found],
            [("even", 1, workers) for workers in outlook.WORKERS],
        )


if __name__ == "__main__":
    unittest.main()
