"""Reading and refusing experiment configs."""

import unittest

from experiments.runs import config_file, experiment_config
from proto import experiment_pb2

_GOOD = """\
cluster { model { builtin: "vgg16" } compute { backend: EMULATED } }
workers: [1, 2, 8]
partition { scheme: MEMORY_BASED }
schedule: FULL
"""


class ExperimentConfigTest(unittest.TestCase):
    def refused(self, text):
        with self.assertRaises(config_file.ConfigError) as refusal:
            experiment_config.parse(text, "e.textproto")
        return str(refusal.exception)

    def test_defaults_are_half_as_many_shards_as_workers_and_no_device(self):
        experiment = experiment_config.parse(_GOOD, "e.textproto")
        self.assertEqual(experiment.shards, [1, 1, 4])
        self.assertEqual(experiment.devices, ["none"])

    def test_each_wrong_field_is_named_with_its_line_and_what_is_allowed(self):
        for line, problem in {
            "workers: 0": "workers[3]: is 0, allowed: 1 to 1024",
            "workers: 1": "workers[3]: is there twice with 1 shards, allowed: once",
            "shards: [1, 1, 0]": "shards[2]: is 0, allowed: at least 1",
            "shards: [1, 1]": "shards: has 2 entries for 3 of workers, allowed: one for each,"
            " or none",
            "link_gbps: 0": "link_gbps: is 0, allowed: a number above 0",
            "link_gbps: inf": "link_gbps: is inf, allowed: a number above 0",
            "shard_link_gbps: [1, -1]": "shard_link_gbps[1]: is -1, allowed: a number above 0",
            "shard_link_gbps: [1, 1, 1, 1, 1]": "shard_link_gbps: has 5 entries,"
            " allowed: at most one for each of 4 shards",
            "worker_slowdown: [1, 0]": "worker_slowdown[1]: is 0, allowed: a number above 0",
            "worker_slowdown: [1, 1, 1, 1, 1, 1, 1, 1, 1]": "worker_slowdown: has 9 entries,"
            " allowed: at most one for each of 8 workers",
            "time_dilation: 0": "time_dilation: is 0, allowed: a number above 0",
            "time_dilation: nan": "time_dilation: is nan, allowed: a number above 0",
            "run_seconds: -1": "run_seconds: is -1, allowed: a number above 0",
            "iterations: 0": "iterations: is 0, allowed: at least 1",
            "warmup_iterations: -1": "warmup_iterations: is -1, allowed: at least 0",
            "repeats: 0": "repeats: is 0, allowed: at least 1",
            "mtu: 100": "mtu: is 100, allowed: 576 to 65535",
            "processor_bound_above: 2": "processor_bound_above: is 2,"
            " allowed: above 0, at most 1",
            "schedule: FULL": "schedule[1]: is there twice, allowed: once",
            "topology: [APART, APART]": "topology[1]: is there twice, allowed: once",
            "device: ['none', 'none']": "device[1]: is there twice, allowed: once",
            "partition { scheme: MEMORY_BASED }": "partition[1]: is there twice, allowed: once",
        }.items():
            with self.subTest(line):
                self.assertEqual(self.refused(_GOOD + line), f"e.textproto:5: {problem}")

    def test_an_iteration_with_local_steps_is_a_round_of_so_many_batches(self):
        local = _GOOD.replace("compute {", "local { steps: 5 } compute {")
        self.assertEqual(experiment_config.parse(local, "e.textproto").batches, 5)
        self.assertEqual(experiment_config.parse(_GOOD, "e.textproto").batches, 1)
        self.assertEqual(
            self.refused(local.replace("steps: 5", "steps: 5 seconds: 1")),
            "e.textproto:1: cluster.local.seconds: is set, but then a round has any number of"
            " batches, allowed: local.steps alone, or //experiments:modes, which measures whole"
            " trainings",
        )

    def test_a_ring_has_two_workers_and_uneven_links_are_of_shards_on_their_own(self):
        self.assertEqual(
            self.refused(_GOOD + "topology: [APART, RING]"),
            "e.textproto:5: topology: has RING, but workers has 1, allowed: a ring of 2 workers or"
            " more",
        )
        self.assertEqual(
            self.refused(_GOOD + "topology: COLOCATED shard_link_gbps: 1"),
            "e.textproto:5: shard_link_gbps: is set, but topology has shards that are not on hosts"
            " of their own, allowed: with APART",
        )
        hosts = 'hosts { shard { name: "a" } worker { name: "b" } programs: "p" }'
        experiment_config.parse(_GOOD + "topology: [APART, COLOCATED]" + hosts, "e.textproto")
        self.assertEqual(
            self.refused(_GOOD + "topology: COLOCATED " + hosts),
            "e.textproto:5: hosts.shard: is given, but in no topology shards have hosts of their"
            " own, allowed: with APART",
        )
        experiment_config.parse(
            _GOOD + "topology: COLOCATED " + hosts.replace('shard { name: "a" }', ""), "e.textproto"
        )
        self.assertIn(
            "cluster.topology: is set, but it varies from run to run, allowed: the experiment's"
            " topology", self.refused(_GOOD.replace("cluster {", "cluster { topology: RING")),
        )

    def test_certificates_are_made_in_an_emulated_network_only(self):
        experiment_config.parse(_GOOD + "certificates: true", "e.textproto")
        hosts = 'hosts { shard { name: "a" } worker { name: "b" } programs: "p" }'
        self.assertIn(
            "certificates: is set, allowed: without hosts",
            self.refused(_GOOD + "certificates: true " + hosts),
        )

    def test_models_stand_in_the_cluster_or_in_the_list_and_each_once(self):
        self.assertEqual(
            self.refused(_GOOD + 'model { builtin: "alexnet" }'),
            "e.textproto:1: cluster.model: is set, but so is model, allowed: one of them",
        )
        listed = _GOOD.replace('model { builtin: "vgg16" }', "") + (
            'model { builtin: "alexnet" }\nmodel { builtin: "alexnet" shrink: 2 }\n'
        )
        experiment = experiment_config.parse(listed, "e.textproto")
        self.assertEqual(list(experiment.models), ["alexnet", "alexnet-shrink2"])
        self.assertEqual(
            self.refused(listed + 'model { builtin: "alexnet" }'),
            "e.textproto:7: model[2]: is the second one called alexnet, allowed: once",
        )

    def test_all_problems_are_told_at_once(self):
        self.assertEqual(len(self.refused(_GOOD + "repeats: 0\nlink_gbps: 0").splitlines()), 2)

    def test_what_is_missing_is_named(self):
        self.assertEqual(
            self.refused("repeats: 1").splitlines(),
            [
                f"e.textproto:1: {field}: is missing"
                for field in ("cluster", "workers", "partition", "schedule")
            ],
        )

    def test_text_that_cannot_be_read_is_refused_with_its_line(self):
        self.assertIn(
            'e.textproto:5: Message type "evenshard.v1.ExperimentConfig" has no field named'
            ' "wrokers"',
            self.refused(_GOOD + "wrokers: 3"),
        )
        self.assertRegex(self.refused(_GOOD + "schedule: FAST"), "^e.textproto:5: .*FAST")

    def test_a_text_that_nests_without_end_is_refused(self):
        depth = 20_000
        nested = "residual { body { " * depth + "} }" * depth
        self.assertEqual(
            self.refused("cluster { model { layer { " + nested + "} } }"),
            "e.textproto:1: messages are nested too deep, allowed: 64 within one another",
        )

    def test_fields_that_vary_from_run_to_run_are_not_for_the_cluster(self):
        for field, text in {
            "workers": "workers: 2",
            "worker_link_gbps": "worker_link_gbps: 10",
            "shard": 'shard { address: "a:1" }',
            "partition": "partition { scheme: AUTO }",
            "exchange.schedule": "exchange { schedule: FULL }",
            "training.iterations": "training { iterations: 5 }",
            "training.epochs": "training { epochs: 5 }",
        }.items():
            with self.subTest(field):
                config = _GOOD.replace("cluster {", "cluster {\n" + text + "\n", 1)
                self.assertIn(f"cluster.{field}: is set, but it varies", self.refused(config))
        config = _GOOD.replace("EMULATED", 'EMULATED emulated { device: "none" }')
        self.assertIn("cluster.compute.emulated: is set, but it varies", self.refused(config))

    def test_a_device_without_the_emulated_backend_is_refused(self):
        text = _GOOD.replace("EMULATED", "CPU") + "device: 'none'\ntime_dilation: 2"
        self.assertEqual(
            self.refused(text),
            "e.textproto:5: device: has no effect with this backend, allowed: only with EMULATED\n"
            "e.textproto:6: time_dilation: has no effect with this backend,"
            " allowed: only with EMULATED",
        )

    def test_hosts_need_names_and_programs(self):
        problems = self.refused(_GOOD + 'hosts { shard { name: "-oProxyCommand=x" } port: 0 }')
        for problem in (
            'hosts.shard[0].name: is "-oProxyCommand=x", allowed: host or user@host',
            "hosts.worker: is missing",
            "hosts.programs: is missing",
            "hosts.port: is 0, allowed: 1 to 65535",
        ):
            self.assertIn(problem, problems)

    def test_a_missing_file_is_refused(self):
        with self.assertRaisesRegex(config_file.ConfigError, "cannot read --config=none"):
            experiment_config.load("none")

    def test_the_documentation_names_every_field(self):
        with open("docs/experiment.md", encoding="utf-8") as file:
            text = file.read()
        for message in (
            experiment_pb2.ExperimentConfig,
            experiment_pb2.Hosts,
            experiment_pb2.Host,
            experiment_pb2.ModesConfig,
            experiment_pb2.Mode,
            experiment_pb2.Situation,
        ):
            for field in message.DESCRIPTOR.fields:
                with self.subTest(f"{message.DESCRIPTOR.name}.{field.name}"):
                    self.assertIn(f"`{field.name}`", text)


if __name__ == "__main__":
    unittest.main()
