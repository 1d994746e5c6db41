"""Plans, and configs that psctl refuses."""

import dataclasses
import glob
import unittest

from experiments.cluster import network, plans
from experiments.runs import config_file, experiment_config, matrix, modes_config
from tests.experiments import fixture

_CLUSTER = """\
cluster {
  model {
    builtin: "mnist_mlp"
  }
  update { policy: SYNC }
  compute { backend: EMULATED }
}
"""
_REST = """\
workers: [2, 4]
partition { scheme: MEMORY_BASED }
schedule: FULL
"""


def _load(text, kind=network.NAMESPACES):
    experiment = experiment_config.parse(text, "e.textproto")
    return plans.load(kind, experiment, matrix.runs(experiment), fixture.Programs)


class PlansTest(unittest.TestCase):
    def refused(self, text):
        with self.assertRaises(config_file.ConfigError) as refusal:
            _load(text)
        return str(refusal.exception)

    def test_bytes_are_those_of_all_workers_in_an_iteration(self):
        loaded = {cell.workers: plan for cell, plan in _load(_CLUSTER + _REST).items()}
        self.assertEqual(loaded[2].bytes_in, [2 * 4 * 13002])
        self.assertEqual(sum(loaded[4].bytes_out), 4 * 4 * 13002)
        self.assertEqual(len(loaded[4].bytes_out), 2)
        self.assertEqual(loaded[4].model, "mnist_mlp")

    def test_the_bound_is_that_of_the_links_less_framing_whatever_the_dilation(self):
        text = _CLUSTER + _REST + "link_gbps: 10\nshard_link_gbps: 5\n"
        wall = {cell.workers: plan for cell, plan in _load(text).items()}
        rate = 5e9 / 8 * 1448 / 1514  # of the slow shard's link
        self.assertAlmostEqual(wall[2].bound_seconds, 2 * 4 * 13002 / rate)
        self.assertGreaterEqual(wall[2].simulated_seconds, wall[2].bound_seconds)
        dilated = _load(text + "time_dilation: 4\n").values()
        for plan, undilated in zip(dilated, wall.values()):
            self.assertAlmostEqual(plan.bound_seconds, undilated.bound_seconds)
        on_cable = {cell.workers: p for cell, p in _load(text, network.REMOTE).items()}
        self.assertAlmostEqual(
            on_cable[2].bound_seconds, wall[2].bound_seconds * 1538 / 1514
        )

    def test_without_links_there_is_no_bound(self):
        for plan in _load(_CLUSTER + _REST, network.HOST).values():
            self.assertIsNone(plan.bound_seconds)
            self.assertIsNone(plan.simulated_seconds)

    def test_a_wrong_field_of_the_cluster_is_named_at_its_line(self):
        text = _CLUSTER.replace("  update", "  limits { chunk_bytes: 7 }\n  update") + _REST
        self.assertRegex(
            self.refused(text), r"e\.textproto:5: cluster\.limits\.chunk_bytes: is 7, allowed: "
        )

    def test_a_missing_field_of_the_cluster_is_named_at_the_message(self):
        text = _CLUSTER.replace("{ policy: SYNC }", "{ }") + _REST
        self.assertIn("e.textproto:5: cluster.update.policy: is missing", self.refused(text))

    def test_more_shards_than_there_is_to_share_are_the_experiments_fault(self):
        text = _CLUSTER + _REST + "shards: [1, 1000]\n"
        self.assertIn("e.textproto:11: shards: ", self.refused(text))

    def test_a_model_shrunk_to_less_than_an_element_is_refused(self):
        text = _CLUSTER.replace('"mnist_mlp"', '"mnist_mlp"\n    shrink: 20') + _REST
        self.assertRegex(self.refused(text), r"e\.textproto:4: cluster\.model\.shrink: .*20")

    def test_an_unknown_device_is_refused(self):
        text = _CLUSTER + _REST + 'device: "abacus"\n'
        self.assertRegex(self.refused(text), r'e\.textproto:11: device: .*abacus.*allowed: ')

    def test_every_example_has_plans(self):
        paths = set(glob.glob("configs/*.textproto")) - set(glob.glob("configs/modes_*.textproto"))
        self.assertGreater(len(paths), 4)
        for path in paths:
            with self.subTest(path):
                experiment = experiment_config.load(path)
                runs = matrix.runs(experiment)
                loaded = plans.load(network.NAMESPACES, experiment, runs, fixture.Programs)
                self.assertEqual(set(loaded), {run.cell for run in runs})

    def test_every_mode_of_every_example_is_right_and_its_busiest_link_known(self):
        paths = glob.glob("configs/modes_*.textproto")
        self.assertGreater(len(paths), 1)
        loads = {}
        for path in paths:
            with self.subTest(path):
                experiment = modes_config.load(path)
                model_bytes, loads[path] = plans.check_modes(experiment, fixture.Programs)
                self.assertEqual(model_bytes, 4 * 105194)
        # A worker's bytes are those of both ways. Those to a shard on its own host pass no link.
        for mode, *expected in (
            ("SYNC", 8 / 2 / 2, 4 / ((8 + 2 * 4) / 10), 1 / 2),
            ("ring", 1 / 2, 1, 1 / 8),
            ("SYNC, one master", 7 / 2, 7 / ((7 + 7) / 8), 1),
            ("SYNC, colocated", 2 * 7 / 8 / 2, 1, 1 / 8),
            ("local steps, 64, INT4", 8 / 2 / 2, 4 / ((8 + 2 * 4) / 10), 1 / 2),
        ):
            of_mode = dataclasses.astuple(loads["configs/modes_mnist.textproto"][mode])
            for value, wanted in zip(of_mode, expected):
                self.assertAlmostEqual(value, wanted, delta=0.01, msg=mode)

    def test_in_a_ring_and_colocated_fewer_bytes_pass_each_host(self):
        text = _CLUSTER + _REST.replace("[2, 4]", "4") + "topology: [APART, ONE_MASTER, RING]\n"
        loaded = {cell.topology: plan for cell, plan in _load(text, network.HOST).items()}
        model = 4 * 13002
        self.assertEqual(loaded["ONE_MASTER"].bytes_in, [4 * model])
        self.assertEqual(len(loaded["RING"].bytes_in), 4)
        for moved in (*loaded["RING"].bytes_in, *loaded["RING"].bytes_out):
            self.assertAlmostEqual(moved / (2 * 3 / 4 * model), 1, delta=0.01)
        self.assertEqual(sum(loaded["RING"].bytes_in), sum(loaded["RING"].bytes_out))


if __name__ == "__main__":
    unittest.main()
