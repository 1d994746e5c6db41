"""What DistributedOptimizer does with shards, and workers whose data ends at different times, in a
ring."""

import unittest

from tests.python import distributed_test, fixture, uneven_test
from tests.python.script import Script, outcomes_of, reference_of

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard


class DistributedInARingTest(distributed_test.DistributedTest):
    """All habits of scripts."""

    schemes = ("RING",)
    worker_counts = (2, 3, 4)


class _Distributed(Script):
    """A script whose own optimizer steps."""

    def optimizer(self, model, rule):
        return evenshard.DistributedOptimizer(rule(model.parameters()), model)


def _training_unevenly(script):
    return uneven_test._training_unevenly(_Distributed(script.ranks[0], script.workers))


def _ending_unevenly(script):
    """Rank r has 2 r + 2 batches. When the last one alone has some, it gives one up. The rule is
    at the workers, with one rate."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 130), nn.Tanh(), nn.Linear(130, 5))
    optimizer = script.optimizer(model, lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3))
    with script.join(optimizer):
        for step in range(2 * max(script.ranks) + 2):
            optimizer.zero_grad()
            if step == 2 * script.workers - 2:
                script.abandon(optimizer)
                continue
            for rank in script.ranks:
                if step < 2 * rank + 2:
                    inputs, targets = Script(rank, 4).batch(step)
                    loss = nn.functional.mse_loss(model(inputs), targets)
                    (loss / len(script.ranks)).backward()
            optimizer.step()
    return model.state_dict()


def _ending_unevenly_itself(script):
    return _ending_unevenly(_Distributed(script.ranks[0], script.workers))


@unittest.skipIf(torch is None, "PyTorch is not installed: uneven ends in a ring")
class JoinInARingTest(unittest.TestCase):
    def test_where_all_that_have_data_give_up(self):
        for schedule, workers, habit in (
            ("BACKWARD", 2, _ending_unevenly),
            ("FULL", 4, _ending_unevenly),
            ("SEQUENTIAL", 3, _ending_unevenly),
            ("BACKWARD", 3, _ending_unevenly_itself),
        ):
            with self.subTest(habit.__name__, schedule=schedule, workers=workers):
                expected = reference_of(_ending_unevenly, workers)
                for end in outcomes_of(habit, schedule, workers, scheme="RING"):
                    self.assertIsNone(end.error, end.trace)
                    torch.testing.assert_close(end.value, expected, rtol=1e-4, atol=1e-6)

    def test_where_one_without_data_would_use_an_old_rate(self):
        """Which tensor is compared first is left to the network, and some have no rate."""
        for habit in (uneven_test._training_unevenly, _training_unevenly):
            for end in outcomes_of(habit, "BACKWARD", 2, scheme="RING"):
                text = "learning rate.*allowed: the same in all|options of the optimizers"
                self.assertRegex(end.error, text)

    def test_what_has_left_of_a_batch_that_is_given_up(self):
        """The large tensor shares no chunk with those that have not left."""
        plan = {
            "ring": "bucket_bytes: 32768 first_bucket_bytes: 4096",
            "limits": "chunk_bytes: 4096",
        }
        for where, has_left in (
            ("forward", lambda name: False),
            ("backward", uneven_test._leaves_before_the_failure),
        ):
            expected = fixture.apart(uneven_test._reference_of_giving_up, 3, has_left)
            habit = uneven_test._giving_up(where)
            for end in outcomes_of(habit, "BACKWARD", 3, scheme="RING", **plan):
                self.assertIsNone(end.error, end.trace)
                torch.testing.assert_close(end.value[0], expected, rtol=1e-3, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
