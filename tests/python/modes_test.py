"""PyTorch scripts under SSP and ASYNC: what they train, and what is refused."""

import unittest

from tests.python import fixture
from tests.python.script import outcomes_of

torch = fixture.torch
if torch is not None:
    from torch import nn

_STEPS = 60


def _trains(momentum):
    """A script that learns to add up."""
    def habit(script):
        torch.manual_seed(3)
        model = nn.Linear(4, 1)
        optimizer = script.optimizer(
            model, lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=momentum)
        )
        losses = []
        for step in range(_STEPS):
            optimizer.zero_grad()
            inputs = torch.linspace(-1, 1, 32).reshape(8, 4).roll(step, 0)
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, optimizer.iteration
    return habit


def _keeps_state(script):
    model = nn.Linear(4, 1)
    optimizer = script.optimizer(
        model, lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    )
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return len(optimizer.state_dict()["state"])


@unittest.skipIf(torch is None, "PyTorch is not installed: update modes")
class ModesTest(unittest.TestCase):
    def test_asynchronous_workers_train(self):
        for update in ("policy: SSP staleness: 2", "policy: ASYNC"):
            for momentum in (0, 0.9):
                with self.subTest(update, momentum=momentum):
                    for end in outcomes_of(_trains(momentum), "BACKWARD", 3, update=update):
                        self.assertIsNone(end.error, end.trace)
                        losses, iteration = end.value
                        self.assertLess(losses[-1], 0.5)  # of about 5
                        self.assertEqual(iteration, _STEPS)

    def test_ssp_with_staleness_0_is_sync(self):
        ends = [
            outcomes_of(_trains(0.9), "BACKWARD", 2, update=update)
            for update in ("policy: SSP staleness: 0 deterministic: true",
                           "policy: SYNC deterministic: true")
        ]
        self.assertEqual([end.value for end in ends[0]], [end.value for end in ends[1]])

    def test_a_velocity_for_each_worker_is_no_state_of_pytorch(self):
        for end in outcomes_of(_keeps_state, "BACKWARD", 2, update="policy: ASYNC"):
            self.assertIn("the optimizer's state is one velocity for each worker", end.error)
            self.assertIn("velocity: SHARED", end.error)
        update = "policy: ASYNC asynchrony { velocity: SHARED }"
        for end in outcomes_of(_keeps_state, "BACKWARD", 2, update=update):
            self.assertIsNone(end.error, end.trace)
            self.assertEqual(end.value, 2)


if __name__ == "__main__":
    unittest.main()
