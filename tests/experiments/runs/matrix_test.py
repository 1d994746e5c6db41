"""The runs of an experiment and their configs."""

import unittest

from google.protobuf import text_format

from experiments.runs import experiment_config, matrix
from proto import config_pb2

_TEXT = """\
cluster { model { builtin: "vgg16" } compute { backend: EMULATED } }
workers: [1, 4]
partition { scheme: LAYER_BASED placement: GREEDY }
partition { scheme: AUTO }
schedule: [SEQUENTIAL, FULL]
device: ["none", "fast"]
shard_link_gbps: 5
worker_slowdown: [1, 1.5]
time_dilation: 10
warmup_iterations: 2
repeats: 2
"""


def _config(experiment, run):
    cluster = config_pb2.ClusterConfig()
    addresses = [f"h{i}:1" for i in range(run.shards)]
    return text_format.Parse(matrix.cluster_config(experiment, run, addresses), cluster)


class MatrixTest(unittest.TestCase):
    def setUp(self):
        self.experiment = experiment_config.parse(_TEXT, "/folder/e.textproto")
        self.runs = matrix.runs(self.experiment)

    def test_there_is_a_run_for_every_combination_and_repeats_come_last(self):
        self.assertEqual(len(set(self.runs)), 2 * 2 * 2 * 2 * 2)
        self.assertEqual([run.repeat for run in self.runs], [0] * 16 + [1] * 16)
        self.assertEqual(len({run.cell for run in self.runs}), 16)
        self.assertEqual(len({run.id for run in self.runs}), 32)

    def test_a_run_says_what_it_is(self):
        run = self.runs[-1]
        self.assertEqual(run.id, "w4-s2-auto-full-fast-r1")
        self.assertEqual(str(self.runs[0]),
                         "1 worker, 1 shard, layer-based (greedy), sequential, communication only")

    def test_its_config_has_what_varies(self):
        cluster = _config(self.experiment, self.runs[-1])
        self.assertEqual(cluster.workers, 4)
        self.assertEqual([shard.address for shard in cluster.shard], ["h0:1", "h1:1"])
        self.assertEqual(cluster.partition.scheme, config_pb2.Partition.AUTO)
        self.assertEqual(cluster.exchange.schedule, config_pb2.ExchangeConfig.FULL)
        self.assertEqual(cluster.compute.emulated.device, "fast")
        self.assertEqual(cluster.compute.emulated.time_dilation, 10)
        self.assertEqual(list(cluster.compute.emulated.worker_slowdown), [1, 1.5])
        self.assertEqual(cluster.training.iterations, 2 + 5 + 1)

    def test_a_run_has_only_as_many_slow_workers_as_workers(self):
        cluster = _config(self.experiment, self.runs[0])
        self.assertEqual(cluster.workers, 1)
        self.assertEqual(list(cluster.compute.emulated.worker_slowdown), [1])

    def test_topologies_are_one_more_list_and_a_ring_has_no_placements(self):
        text = _TEXT.replace("workers: [1, 4]", "workers: [4, 4] shards: [2, 4]")
        text = text.replace("shard_link_gbps: 5\n", "").replace("repeats: 2\n", "")
        text += "topology: [APART, COLOCATED, ONE_MASTER, RING]"
        experiment = experiment_config.parse(text, "/folder/e.textproto")
        runs = [
            run for run in matrix.runs(experiment)
            if run.schedule == "FULL" and run.device == "none"
        ]
        self.assertEqual(
            [(run.topology, run.shards, run.scheme) for run in runs],
            [
                ("APART", 2, "LAYER_BASED"), ("APART", 2, "AUTO"),
                ("COLOCATED", 4, "LAYER_BASED"), ("COLOCATED", 4, "AUTO"),
                ("ONE_MASTER", 1, ""), ("RING", 0, ""),
                ("APART", 4, "LAYER_BASED"), ("APART", 4, "AUTO"),
            ],
        )
        self.assertEqual(len({run.id for run in runs}), len(runs))
        self.assertEqual([str(run) for run in runs[3:6]], [
            "4 workers, 4 shards, auto, colocated, full, communication only",
            "4 workers, 1 shard, one master, full, communication only",
            "4 workers, ring, full, communication only",
        ])
        self.assertTrue(experiment.wiring(runs[2]).colocated)
        self.assertFalse(experiment.wiring(runs[0]).colocated)
        ring = text_format.Parse(
            matrix.cluster_config(experiment, runs[5], ["a:1", "b:1", "c:1", "d:1"]),
            config_pb2.ClusterConfig(),
        )
        self.assertEqual(ring.topology, config_pb2.ClusterConfig.RING)
        self.assertEqual(list(ring.ring.address), ["a:1", "b:1", "c:1", "d:1"])
        self.assertFalse(ring.HasField("partition"))
        master = _config(experiment, runs[4])
        self.assertEqual(master.partition.scheme, config_pb2.Partition.MEMORY_BASED)
        self.assertEqual(len(master.shard), 1)

    def test_models_are_one_more_list_to_combine(self):
        text = _TEXT.replace('model { builtin: "vgg16" }', "")
        text += 'model { builtin: "alexnet" }\nmodel { builtin: "resnet152" shrink: 8 }\n'
        experiment = experiment_config.parse(text, "/folder/e.textproto")
        runs = matrix.runs(experiment)
        self.assertEqual(len({run.id for run in runs}), 64)
        self.assertEqual(runs[-1].id, "resnet152-shrink8-w4-s2-auto-full-fast-r1")
        self.assertEqual(str(runs[-1]),
                         "resnet152-shrink8, 4 workers, 2 shards, auto, full, fast")
        model = _config(experiment, runs[-1]).model
        self.assertEqual((model.builtin, model.shrink), ("resnet152", 8))
        self.assertEqual(_config(experiment, runs[0]).model.builtin, "alexnet")

    def test_only_striped_and_auto_are_told_the_rates_of_the_links(self):
        cluster = _config(self.experiment, self.runs[-1])
        self.assertEqual([shard.link_gbps for shard in cluster.shard], [0.5, 1])
        self.assertEqual(cluster.worker_link_gbps, 1)
        text = _TEXT.replace("scheme: AUTO", "scheme: STRIPED")
        striped = experiment_config.parse(text, "e.textproto")
        cluster = _config(striped, matrix.runs(striped)[-1])
        self.assertEqual([shard.link_gbps for shard in cluster.shard], [0.5, 1])
        self.assertEqual(cluster.worker_link_gbps, 1)
        cluster = _config(self.experiment, self.runs[0])
        self.assertFalse(cluster.shard[0].HasField("link_gbps"))
        self.assertFalse(cluster.HasField("worker_link_gbps"))

    def test_paths_of_data_stay_relative_to_the_experiment(self):
        text = _TEXT.replace(
            "EMULATED }", 'EMULATED } data { idx { images: "a" labels: "/b" } }'
        )
        experiment = experiment_config.parse(text, "/folder/e.textproto")
        idx = _config(experiment, self.runs[0]).data.idx
        self.assertEqual((idx.images, idx.labels), ("/folder/a", "/b"))


if __name__ == "__main__":
    unittest.main()
