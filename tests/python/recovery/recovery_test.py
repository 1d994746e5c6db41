"""A training under launch whose processes are killed, against one that is left alone."""

import unittest

from tests.python import fixture
from tests.python.recovery.struck import StruckTraining, kill_shard, kill_worker

_SCRIPT = """
model = models.make("mlp", seed=1 + rank)
optimizer = evenshard.Optimizer(model)
print("begins at", optimizer.iteration, flush=True)
while optimizer.iteration < 30:
    try:
        models.loss_of(model, "mlp", optimizer.iteration, rank).backward()
        optimizer.step()
        optimizer.zero_grad()  # not where step() raises
        wait_at(0)
    except evenshard.WentBack as error:
        optimizer.resume()
        print("went back to", optimizer.iteration, flush=True)
        assert "resume" in str(error)
optimizer.synchronize()
total = sum(p.double().sum().item() for p in model.parameters())
print("ends with", repr(total), flush=True)
"""

# As GradScaler does since PyTorch 2.2.
_SCALED_SCRIPT = _SCRIPT.replace(".backward()", ".mul(8).backward()").replace(
    "        optimizer.step()\n", """
        optimizer.grad_scale = torch.tensor(8.0) * getattr(optimizer, "grad_scale", 1)
        optimizer.found_inf = torch.tensor(0.0)
        optimizer.step()
        del optimizer.grad_scale, optimizer.found_inf
"""
)

_CONTINUE_SCRIPT = """
model = models.make("mlp", seed=1 + rank)
optimizer = evenshard.Optimizer(model)
begin = optimizer.iteration
print("begins at", begin, flush=True)
while goes_on(begin):
    optimizer.zero_grad()
    models.loss_of(model, "mlp", optimizer.iteration, rank).backward()
    optimizer.step()
optimizer.synchronize()
total = sum(p.double().sum().item() for p in model.parameters())
print("ends with", repr(total), "at", optimizer.iteration, flush=True)
"""


@unittest.skipIf(fixture.torch is None, "PyTorch is not installed: recovery of a training")
class RecoveryTest(StruckTraining, unittest.TestCase):
    script = _SCRIPT
    scheme = "MEMORY_BASED"
    rule = "kind: MOMENTUM learning_rate: 0.05"
    every = "every_iterations: 10"

    def test_the_others_go_on_without_a_worker_which_may_come_back(self):
        self.check_others_go_on(_CONTINUE_SCRIPT, schedule="FULL")

    def test_a_worker_that_is_killed_goes_on(self):
        self.check(kill_worker, r"worker 1.*begins at 15", schedule="FULL")

    def test_a_scale_counts_once_after_going_back(self):
        self.script = _SCALED_SCRIPT
        self.check(
            kill_shard(1), r"worker 0.*went back to 10", r"worker 1.*went back to 10",
            schedule="SEQUENTIAL",
        )

    def test_a_run_whose_shard_is_killed_goes_back(self):
        for schedule in ("FULL", "SEQUENTIAL"):
            self.check(
                kill_shard(1), r"worker 0.*went back to 10", r"worker 1.*went back to 10",
                schedule=schedule,
            )
        # Before the first checkpoint.
        self.check(kill_shard(1), r"worker 0.*went back to 0", schedule="FULL", at=5)


if __name__ == "__main__":
    unittest.main()
