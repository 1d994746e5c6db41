"""A training that assigns parameters and an optimizer's state, and ends unevenly, whose processes
are killed, against one that is left alone."""

import os
import shutil
import tempfile
import unittest

from tests.python import fixture
from tests.python.recovery.struck import StruckTraining, kill_shard, kill_worker

# In each iteration it assigns twice and trains. Then rank 0 has 3 batches more and rank 1 has 8,
# which is where place 4 is.
_SCRIPT = """
steps = 30
model = models.make("mlp", seed=1)
rule = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(3):
    rule.zero_grad()
    models.loss_of(model, "mlp", 0, 0).backward()
    rule.step()
saved = rule.state_dict()
optimizer = evenshard.Optimizer(
    model, optimizer=torch.optim.Adam(model.parameters(), lr=0.01)
)
optimizer.load_state_dict(saved)
print("begins at", optimizer.iteration, flush=True)

def train():
    wait_at(0)
    with optimizer.assign():
        for p in model.parameters():
            p.add_(0.01)
        wait_at(3)
    wait_at(1)
    with optimizer.assign():
        for p in model.parameters():
            p.clamp_(-0.4, 0.4)
    wait_at(2)
    take_step()

def take_step():
    optimizer.zero_grad()
    models.loss_of(model, "mlp", optimizer.iteration, rank).backward()
    optimizer.step()

is_done = False
while not is_done:
    try:
        while optimizer.iteration < steps:
            train()
        with optimizer.join():
            while optimizer.iteration < steps + (3 if rank == 0 else 8):
                wait_at(4)
                take_step()
        is_done = True
    except evenshard.WentBack:
        optimizer.resume()
        print("went back to", optimizer.iteration, flush=True)
optimizer.synchronize()
moments = optimizer.state_dict()["state"]
total = sum(p.double().sum().item() for p in model.parameters())
total += sum(m["exp_avg"].double().sum().item() + m["step"].item() for m in moments.values())
print("ends with", repr(total), flush=True)
"""


@unittest.skipIf(fixture.torch is None, "PyTorch is not installed: recovery of a training")
class AssignmentRecoveryTest(StruckTraining, unittest.TestCase):
    script = _SCRIPT
    every = "every_iterations: 10 keep: 9"

    def test_a_worker_that_is_killed_leaves_out_what_the_run_has(self):
        for place, at, schedule in (
            (0, 15, "BACKWARD"), (1, 15, "FULL"), (2, 15, "SEQUENTIAL"), (3, 15, "BACKWARD"),
            (4, 35, "FULL"),
        ):
            self.check(
                kill_worker, rf"worker 1.*begins at {at}", place=place, at=at, schedule=schedule
            )

    def test_a_run_that_goes_back_has_the_assignments_of_its_checkpoint(self):
        strike = kill_shard(1)
        self.check(strike, r"worker 0.*went back to 10", place=1)
        self.check(strike, r"worker 0.*went back to 10", place=3)
        self.check(strike, r"worker 0.*went back to [123]0", place=4, at=35)
        # Cuts are where the clock says, also between assignments. Before the first one is complete
        # the script is started again.
        self.check(
            strike, r"(?s)worker 0\] went back to|(worker 0\] begins at 0.*){2}", place=2,
            every="every_seconds: 0.1",
        )
        # Only a script that is started again loads its state again.
        self.check(
            strike, r"(?s)(worker 0.*begins at 0.*){2}", place=2, every="every_iterations: 100"
        )

    def test_a_replica_takes_over(self):
        for place, at, schedule in (
            (1, 15, "BACKWARD"), (3, 15, "FULL"), (4, 35, "BACKWARD"), (4, 35, "FULL"),
            (4, 35, "SEQUENTIAL"),
        ):
            self.check(
                kill_shard(1), r"took slot 1 over", place=place, at=at, schedule=schedule,
                replicas=1,
            )

    def test_a_run_is_resumed_from_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, strike=lambda *_: None)
            self.assertEqual(code, 0, output)
            checkpoints = os.path.join(folder, "checkpoints")
            for name in os.listdir(checkpoints):
                if name.startswith("generation") and not name.endswith("-0000000010"):
                    shutil.rmtree(os.path.join(checkpoints, name))
            code, output = self.train(folder, options=["--resume"])
            self.assertEqual(code, 0, output)
            self.assertRegex(output, r"worker 0.*begins at 10")
            self.assertEqual(self.results(output), self.undisturbed(), output)


if __name__ == "__main__":
    unittest.main()
