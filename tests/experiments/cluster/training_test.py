"""What is made of the looks at a training, and of the workers' iterations."""

import unittest

from experiments.cluster import run, training
from proto import config_pb2
from tests.experiments import fixture


class _Images:
    """Parameters are the numbers of looks, which are the same until the first update."""

    def __init__(self, first_update, accuracies):
        self._first_update = first_update
        self._accuracies = accuracies

    def tensors(self, path):
        return max(int(path), self._first_update - 1)

    def are_equal(self, one, other):
        return one == other

    def accuracy(self, tensors):
        return self._accuracies.get(tensors, 90)


def _curve(images, looks, began=100):
    saved = [(100 + 0.5 * i, str(i)) for i in range(looks)]
    return training.curve_of(saved, began, images, 98.5, lambda: None)


class CurveTest(unittest.TestCase):
    def test_time_counts_from_the_start_of_the_training_and_not_from_the_first_update(self):
        curve = _curve(_Images(22, {}), 70, began=100.5)
        self.assertEqual(curve[0], [10.5, 90])
        self.assertEqual(curve[-1], [34, 90])

    def test_the_first_look_that_reaches_the_accuracy_is_among_those_of_its_step(self):
        curve = _curve(_Images(1, {i: 99 for i in range(33, 65)}), 65)
        self.assertEqual(next(seconds for seconds, value in curve if value >= 98.5), 16.5)


class IterationsTest(unittest.TestCase):
    def iterations(self, policy, *workers):
        experiment = fixture.experiment()
        experiment.proto.cluster.update.policy = config_pb2.Update.Policy.Value(policy)
        count = run.matrix.iterations(experiment) * experiment.batches
        return count, run.iterations_of(
            experiment,
            [{"iteration_seconds": [seconds] * (count - lacking)} for seconds, lacking in workers],
        )

    def test_workers_that_wait_for_each_other_share_their_iterations(self):
        count, seconds = self.iterations("SYNC", (1, 0), (2, 0))
        self.assertEqual(seconds, [1.5] * count)

    def test_who_falls_behind_a_quorum_is_left_out(self):
        count, seconds = self.iterations("QUORUM", (1, 0), (3, 2), (2, 0))
        self.assertEqual(seconds, [1.5] * count)
        with self.assertRaisesRegex(run.RunError, "a worker did not do"):
            self.iterations("QUORUM", (1, 1), (3, 2))

    def test_the_slowest_counts_where_nobody_waits(self):
        count, seconds = self.iterations("ASYNC", (1, 0), (2, 0))
        self.assertEqual(seconds, [2] * count)

    def test_a_worker_that_lacks_iterations_is_refused_elsewhere(self):
        for policy in ("SYNC", "ASYNC"):
            with self.assertRaisesRegex(run.RunError, "a worker did not do"):
                self.iterations(policy, (1, 0), (1, 1))


if __name__ == "__main__":
    unittest.main()
