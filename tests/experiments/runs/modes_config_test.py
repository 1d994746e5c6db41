"""Reading and refusing configs of the modes experiment, and the runs of its grid."""

import unittest

from experiments.runs import modes_config
from experiments.runs.config_file import ConfigError
from proto import config_pb2

_GOOD = """\
cluster { workers: 4 shard {} shard {} partition { scheme: MEMORY_BASED } \
training { batch_size: 8 } \
data { idx { images: "a" labels: "/b" test_images: "c" test_labels: "d" } } }
mode { name: "SYNC" }
mode { name: "SSP, 4" set: "update={policy: SSP staleness: 4}" set: "optimizer.kind=SGD" }
mode { name: "ring" topology: RING }
mode { name: "master" topology: ONE_MASTER }
mode { name: "together" topology: COLOCATED }
situation { name: "even" }
situation { name: "slow" slowdown: 4 }
link_gbps: [10, 0.1]
seeds: 2
"""


def _run(experiment, **fields):
    return next(
        one for one in experiment.runs()
        if all(getattr(one, name) == value for name, value in fields.items())
    )


class ModesConfigTest(unittest.TestCase):
    def setUp(self):
        self.experiment = modes_config.parse(_GOOD, "/folder/m.textproto")

    def config(self, addresses=(), **fields):
        return self.experiment.cluster_config(_run(self.experiment, **fields), list(addresses))

    def refused(self, text):
        with self.assertRaises(ConfigError) as refusal:
            modes_config.parse(text, "m.textproto")
        return str(refusal.exception)

    def test_every_mode_is_in_every_place_with_every_seed_and_seeds_come_last(self):
        runs = self.experiment.runs()
        self.assertEqual(len(set(runs)), 5 * 2 * 2 * 2)
        self.assertEqual([one.seed for one in runs], [1] * 20 + [2] * 20)
        self.assertEqual(len({one.id for one in runs}), 40)
        self.assertEqual(len({one.cell for one in runs}), 20)
        self.assertEqual(_run(self.experiment, mode="SSP, 4", link_gbps=0.1).id,
                         "ssp_4-even-0.1gbps-seed1")

    def test_a_mode_changes_the_cluster(self):
        config = self.config(["x:1", "y:1"], mode="SSP, 4", seed=2)
        self.assertEqual(config.update.policy, config_pb2.Update.SSP)
        self.assertEqual(config.update.staleness, 4)
        self.assertEqual(config.optimizer.kind, config_pb2.OptimizerConfig.SGD)
        self.assertEqual(config.training.seed, 2)
        self.assertEqual(config.training.batch_size, 8)
        self.assertEqual([shard.address for shard in config.shard], ["x:1", "y:1"])
        self.assertFalse(config.exchange.shared_memory)

    def test_a_situation_slows_the_last_worker(self):
        self.assertEqual(list(self.config(situation="even").compute.pace.worker_slowdown), [])
        self.assertEqual(
            list(self.config(situation="slow").compute.pace.worker_slowdown), [1, 1, 1, 4])

    def test_durations_are_dilated_for_the_machine_only(self):
        experiment = modes_config.parse(
            _GOOD.replace("training {", 'compute { pace { device: "none" time_dilation: 10 } }'
                          " training {", 1)
            + 'mode { name: "local" set: "local={steps: 8 seconds: 0.5}" } time_dilation: 1.5', "m")
        for mode, seconds in (("SYNC", 0), ("local", 0.75)):
            one = _run(experiment, mode=mode)
            dilated = experiment.dilated_config(one, [])
            self.assertEqual(dilated.compute.pace.time_dilation, 15)
            self.assertEqual(dilated.local.seconds, seconds)
            self.assertEqual(experiment.cluster_config(one, []).compute.pace.time_dilation, 10)
            self.assertEqual(experiment.wiring(one).link_gbps, one.link_gbps / 1.5)
        self.assertFalse(self.experiment.dilated_config(
            _run(self.experiment, mode="SYNC"), []).HasField("compute"))

    def test_paths_of_data_stay_relative_to_the_config(self):
        idx = self.config(mode="SYNC").data.idx
        self.assertEqual((idx.images, idx.labels), ("/folder/a", "/b"))

    def test_a_topology_says_who_has_shards_and_where(self):
        shapes = {}
        for mode in ("SYNC", "ring", "master", "together"):
            wiring = self.experiment.wiring(_run(self.experiment, mode=mode))
            shapes[mode] = (wiring.shards, wiring.colocated)
        self.assertEqual(shapes, {
            "SYNC": (2, False), "ring": (0, False), "master": (1, True), "together": (4, True)})
        self.assertTrue(self.config(mode="master").colocated)
        self.assertFalse(self.config(mode="SYNC").HasField("colocated"))
        ring = self.config(["a:1", "b:1", "c:1", "d:1"], mode="ring")
        self.assertEqual(ring.topology, config_pb2.ClusterConfig.RING)
        self.assertEqual(list(ring.ring.address), ["a:1", "b:1", "c:1", "d:1"])
        self.assertFalse(ring.HasField("partition"))
        self.assertEqual(len(ring.shard), 0)

    def test_each_wrong_field_is_named_with_its_line_and_what_is_allowed(self):
        applied = (
            'which cannot be applied ({}), allowed: FIELD=VALUE, such as "update={{policy: ASYNC}}"'
        )
        for line, problem in {
            'mode { name: "ssp 4" }': 'mode[5].name: is "ssp 4", allowed: a name with letters or'
            " digits that no other has",
            'mode { name: "-" }': 'mode[5].name: is "-", allowed: a name with letters or digits'
            " that no other has",
            'mode { name: "a|b" }': "mode[5].name: is 'a|b', which a chart or a table would show as"
            " something else, allowed: a name without $, |, \\, `, <, > and control characters, and"
            " without _ at its beginning",
            'mode { name: "x" set: "update" }': 'mode[5].set[0]: is "update", '
            + applied.format('has no "="'),
            'situation { name: "x" slowdown: 0 }': "situation[2].slowdown: is 0, allowed: a number"
            " above 0",
            'situation { name: "x" stop_seconds: 1 }': "situation[2]: has stop_seconds 1 and"
            " run_seconds_between 0, allowed: both above 0, or neither",
            "link_gbps: 10": "link_gbps[2]: is 10, allowed: a number above 0, once",
            "link_gbps: 10.0000001": "link_gbps[2]: is 10, allowed: a number above 0, once",
            "link_gbps: -1": "link_gbps[2]: is -1, allowed: a number above 0, once",
            "accuracy: 101": "accuracy: is 101, allowed: above 0, at most 100",
            "look_seconds: 0": "look_seconds: is 0, allowed: a number above 0",
            "run_seconds: nan": "run_seconds: is nan, allowed: a number above 0",
            "time_dilation: 0": "time_dilation: is 0, allowed: a number above 0",
            "time_dilation: 2": "time_dilation: is 2, but workers without cluster.compute.pace take"
            " the time that they take, allowed: 1",
        }.items():
            with self.subTest(line):
                self.assertEqual(self.refused(_GOOD + line), f"m.textproto:11: {problem}")
        for change, own in {
            "training.batch_size=64": "training.batch_size",
            "training={batch_size: 64}": "training.batch_size",
            "training={epochs: 1}": "training",
            "training.seed=7": "training.seed",
            "workers=4": "workers",
            "data.idx={images: 'x'}": "data",
            "recovery={worker_loss: WAIT}": "recovery",
        }.items():
            with self.subTest(change):
                self.assertIn(
                    f'is "{change}", but {own} is the experiment\'s, or the same for all modes',
                    self.refused(_GOOD + f'mode {{ name: "x" set: "{change}" }}'),
                )
        for name in ("costs $x", "_hidden", r"two\nlines", "<b>"):
            with self.subTest(name):
                self.assertIn("which a chart or a table would show as something else",
                              self.refused(_GOOD + f'situation {{ name: "{name}" }}'))
        self.assertEqual(self.refused(_GOOD.replace("seeds: 2", "seeds: 0")),
                         "m.textproto:10: seeds: is 0, allowed: at least 1")
        self.assertIn('mode[5].set[0]: is "update.nothing=1", which cannot be applied',
                      self.refused(_GOOD + 'mode { name: "x" set: "update.nothing=1" }'))

    def test_what_is_the_experiments_is_not_the_clusters(self):
        for old, new, problem in (
            ("workers: 4", "workers: 1", "cluster.workers: is 1, allowed: at least 2"),
            ("shard {} shard {}", "",
             "cluster.shard: is missing, allowed: an entry for each shard"),
            ('images: "a"', "", "cluster.data.idx.images: is missing, allowed: a file"),
            ("workers: 4", "workers: 4 recovery { worker_loss: WAIT }",
             "cluster.recovery: is set, but is the experiment's, allowed: not set"),
            ("batch_size: 8", "seed: 8",
             "cluster.training.seed: is set, but is the experiment's, allowed: not set"),
        ):
            with self.subTest(new):
                self.assertEqual(self.refused(_GOOD.replace(old, new)), f"m.textproto:1: {problem}")

    def test_what_is_missing_is_named(self):
        self.assertIn("m.textproto:1: mode: is missing", self.refused("seeds: 1"))


if __name__ == "__main__":
    unittest.main()
