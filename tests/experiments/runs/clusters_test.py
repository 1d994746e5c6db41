"""Drawn clusters are a pure function, and in the ranges that docs/experiment.md states."""

import dataclasses
import unittest

from experiments.cluster import network, plans
from experiments.runs import clusters, matrix
from tests.experiments import fixture

_DRAWN = [clusters.draw(seed, index) for seed in range(5) for index in range(100)]


class ClustersTest(unittest.TestCase):
    def fraction(self, condition):
        return sum(bool(condition(cluster)) for cluster in _DRAWN) / len(_DRAWN)

    def test_the_same_seed_and_number_give_the_same_cluster(self):
        self.assertEqual(clusters.draw(7, 3), clusters.draw(7, 3))
        self.assertEqual(len({clusters.draw(7, index) for index in range(24)}), 24)
        self.assertNotEqual(clusters.draw(7, 3), clusters.draw(8, 3))

    def test_every_cluster_is_within_the_ranges(self):
        for cluster in _DRAWN:
            with self.subTest(cluster):
                self.assertIn(cluster.workers, range(2, 9))
                self.assertIn(cluster.shards, range(1, 7))
                for rate in (cluster.link_gbps, *cluster.shard_link_gbps):
                    self.assertTrue(3 <= rate <= 10)
                if not cluster.even:
                    self.assertIn(len(set(cluster.shard_link_gbps)), (2, 3))
                self.assertLessEqual(len(cluster.worker_slowdown), cluster.workers)
                slow = [factor for factor in cluster.worker_slowdown if factor != 1]
                self.assertLessEqual(len(slow), 1)
                self.assertTrue(all(1.3 <= factor <= 2 for factor in slow))
                exchange = clusters.exchange_seconds(cluster)
                model = clusters.MODELS[cluster.model]
                computing = cluster.batch_size * model.image_seconds / exchange
                self.assertTrue(0.2 <= computing <= 1)
                wall = exchange * cluster.time_dilation
                self.assertGreaterEqual(wall, 2 * cluster.workers * 4 * model.elements / 0.5e9)
                iterations = clusters.experiment(cluster).proto.iterations
                self.assertIn(iterations, range(3, 13))
                self.assertTrue(iterations == 12 or iterations * wall >= 10)

    def test_every_kind_of_cluster_is_drawn_as_often_as_stated(self):
        for expected, condition in (
            (1 / 2, lambda cluster: cluster.even),
            (1 / 3, lambda cluster: cluster.worker_slowdown),
            (1 / 3, lambda cluster: cluster.device == "none"),
            (1 / 2, lambda cluster: cluster.schedule == "FULL"),
            (1 / 4, lambda cluster: cluster.schedule == "BACKWARD"),
            (1 / 4, lambda cluster: cluster.schemes == (matrix.STRIPED,)),
            (1 / 5, lambda cluster: cluster.model == "resnet152"),
        ):
            # The standard deviation is 0.022.
            self.assertAlmostEqual(self.fraction(condition), expected, delta=0.08)
        drawn = [clusters.draw(0, index, modes=True) for index in range(100)]
        self.assertEqual({cluster.mode for cluster in drawn}, set(clusters.MODES))
        self.assertEqual(
            {cluster.local_steps for cluster in drawn if cluster.mode.has_local_steps}, {2, 4, 8}
        )
        self.assertLess(self.fraction(lambda c: c.workers == 2 * c.shards), 0.3)

    def test_options_leave_everything_else_as_it_is(self):
        for index in range(50):
            plain = clusters.draw(7, index)
            compared = clusters.draw(7, index, schemes=["AUTO", "STRIPED"])
            self.assertEqual(compared.schemes, ("AUTO", "STRIPED"))
            self.assertEqual(compared.batch_size, plain.batch_size)
            sequential = clusters.draw(7, index, schedule="SEQUENTIAL")
            self.assertEqual(
                dataclasses.replace(sequential, schedule=plain.schedule), plain)
            even = clusters.draw(7, index, even=True)
            self.assertTrue(even.even)
            alone = clusters.draw(7, index, exchange_alone=True)
            self.assertEqual((alone.device, alone.worker_slowdown), ("none", ()))
            mode = clusters.draw(7, index, modes=True)
            self.assertIn(mode.mode, clusters.MODES)
            for cluster in (compared, even, alone, mode):
                for field in ("model", "workers", "shards", "schedule"):
                    self.assertEqual(getattr(cluster, field), getattr(plain, field))

    def test_plans_agree_with_what_a_cluster_was_drawn_for(self):
        for index in range(12):
            cluster = clusters.draw(7, index, schemes=[matrix.MEMORY_BASED])
            experiment = clusters.experiment(cluster)
            [run] = matrix.runs(experiment)
            self.assertTrue(run.id.startswith(f"c{index:02}-w{cluster.workers}-"))
            [plan] = plans.load(
                network.NAMESPACES, experiment, [run], fixture.Programs
            ).values()
            model = clusters.MODELS[cluster.model]
            elements = sum(plan.bytes_in) / 4 / cluster.workers
            self.assertAlmostEqual(elements / model.elements, 1, delta=0.001)
            self.assertGreaterEqual(
                plan.bound_seconds, 0.999 * clusters.exchange_seconds(cluster)
            )
            if cluster.device != "none":
                slowest = max(cluster.worker_slowdown, default=1)
                computing = plan.compute_seconds / slowest / cluster.batch_size
                self.assertAlmostEqual(computing / model.image_seconds, 1, delta=0.01)

    def test_modes_are_planned_with_the_bytes_that_they_were_drawn_for(self):
        for mode in clusters.MODES:
            cluster = next(
                cluster for index in range(1000)
                if (cluster := clusters.draw(
                    7, index, schemes=[matrix.MEMORY_BASED], even=True, exchange_alone=True,
                    modes=True,
                )).mode == mode
            )
            with self.subTest(mode.name):
                experiment = clusters.experiment(cluster)
                self.assertEqual(experiment.batches, max(1, cluster.local_steps))
                [plan] = plans.load(
                    network.NAMESPACES, experiment, matrix.runs(experiment), fixture.Programs
                ).values()
                # Blocks of INT8 have a scale each, and latecomers of a quorum send something.
                self.assertAlmostEqual(
                    plan.bound_seconds / clusters.exchange_seconds(cluster), 1, delta=0.05
                )


if __name__ == "__main__":
    unittest.main()
