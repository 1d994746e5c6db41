"""The bound of an iteration, against figures worked out by hand."""

import unittest

from experiments import bound
from experiments.plans import Plan


class BoundTest(unittest.TestCase):
    def test_a_link_carries_its_rate_less_the_framing(self):
        # 1,448 of 1,514 bytes, as tbf counts them; of 1,538 on a cable.
        self.assertAlmostEqual(
            bound.payload_bytes_per_second(1, 1500, on_cable=False), 125e6 * 1448 / 1514
        )
        self.assertAlmostEqual(
            bound.payload_bytes_per_second(10, 1500, on_cable=True), 1250e6 * 1448 / 1538
        )

    def seconds(self, plan, schedule, compute=0.0, shard_rates=(100, 100)):
        return bound.iteration_seconds(plan, 4, schedule, compute, 100, shard_rates)

    def test_the_fullest_shard_decides_and_sequential_takes_twice_as_long(self):
        plan = Plan("m", [300, 100], [300, 100])  # 100 per worker
        self.assertEqual(self.seconds(plan, "FULL"), 3)
        self.assertEqual(self.seconds(plan, "BACKWARD"), 3)
        self.assertEqual(self.seconds(plan, "SEQUENTIAL"), 6)

    def test_a_worker_has_to_move_all_parameters(self):
        plan = Plan("m", [200, 200], [200, 200])
        self.assertEqual(bound.iteration_seconds(plan, 1, "FULL", 0, 100, [100, 100]), 4)

    def test_directions_count_each_for_itself(self):
        plan = Plan("m", [200, 200], [100, 100])  # gradients twice as long as parameters
        self.assertEqual(self.seconds(plan, "FULL"), 2)
        self.assertEqual(self.seconds(plan, "SEQUENTIAL"), 3)

    def test_a_slow_link_decides_where_it_takes_longer(self):
        plan = Plan("m", [200, 200], [200, 200])
        self.assertEqual(self.seconds(plan, "FULL", shard_rates=(100, 25)), 8)

    def test_computing_is_hidden_but_under_sequential(self):
        plan = Plan("m", [200, 200], [200, 200])
        self.assertEqual(self.seconds(plan, "FULL", compute=1), 2)
        self.assertEqual(self.seconds(plan, "FULL", compute=5), 5)
        self.assertEqual(self.seconds(plan, "SEQUENTIAL", compute=5), 9)


if __name__ == "__main__":
    unittest.main()
