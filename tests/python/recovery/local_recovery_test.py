"""A training with local steps whose processes are killed."""

import ast
import re
import tempfile
import unittest

from tests.python import fixture
from tests.python.recovery.struck import StruckTraining, end_run, kill_shard, kill_worker

_STEPS = 40

# Rounds of 5 steps.
_SCRIPT = f"""
model = models.make("mlp", seed=1)
groups = [{{"params": []}}, {{"params": list(model.parameters())}}]
inner = torch.optim.Adam(groups, lr=0.01)
optimizer = evenshard.LocalSteps(model, inner, steps=5)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
optimizer.register_state("scheduler", scheduler)
print("begins at", optimizer.iteration, "with epoch", scheduler.last_epoch, flush=True)
def total():
    return sum(p.double().sum().item() for p in model.parameters())

def inner_state():
    states = [inner.state.get(p, dict()) for p in model.parameters()]
    return [sum(s["exp_avg_sq"].double().sum().item() for s in states if s),
            max((int(s["step"]) for s in states if s), default=0)]

moved, inner_states = [total()], dict()
while optimizer.iteration < {_STEPS}:
    wait_at(0, synchronize=False)
    optimizer.zero_grad()
    models.loss_of(model, "mlp", optimizer.iteration, rank).backward()
    optimizer.step()
    scheduler.step()
    if optimizer.iteration % 5 == 0:
        moved.append(total())
        inner_states[optimizer.iteration] = inner_state()
print("after rounds", repr(moved), flush=True)
print("inner states", repr(inner_states), flush=True)
print("ends with", repr([total(), scheduler.last_epoch]), flush=True)
"""


@unittest.skipIf(fixture.torch is None, "PyTorch is not installed: recovery of local steps")
class LocalRecoveryTest(StruckTraining, unittest.TestCase):
    script = _SCRIPT

    def _ends_alike(self, output):
        ends = self.results(output)
        self.assertEqual(len(ends), 2, output)
        self.assertEqual(ends[0][1], ends[1][1], output)

    def test_a_shard_that_is_killed_has_a_replica_with_the_outer_momentum(self):
        for shard in (0, 1):
            self.check(kill_shard(shard), at=22, replicas=1)

    def test_a_worker_that_is_killed_begins_its_round_anew(self):
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, strike=kill_worker, at=22)
        self.assertEqual(code, 0, output)
        self.assertRegex(output, "worker 1.*begins at 20 with epoch 20")
        self._ends_alike(output)
        # After its first round its optimizer has what the other one's has, and then goes its way.
        found = re.findall(r"(worker \d).*inner states (.*)", output)
        states = {worker: ast.literal_eval(text) for worker, text in found}
        one, other = states["worker 0"], states["worker 1"]
        self.assertEqual(sorted(other), [25, 30, 35, 40])
        self.assertEqual(one[25][1], 25)
        self.assertEqual(one[25], other[25])
        self.assertNotEqual(one[30], other[30])
        self.assertEqual(one[30][1], other[30][1])

    def test_all_start_again_from_a_checkpoint(self):
        every = "every_iterations: 2"  # rounds
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, strike=end_run, at=22, every=every)
            self.assertNotEqual(code, 0, output)
            code, output = self.train(folder, every=every, options=("--resume",))
        self.assertEqual(code, 0, output)
        # From the checkpoint of the second or of the fourth round.
        begins = re.findall(r"begins at (\d+) with epoch (\d+)", output)
        self.assertIn(begins, ([("10", "10")] * 2, [("20", "20")] * 2), output)
        # All optimizers begin anew, so that nobody contributes to the first round.
        for text in re.findall(r"after rounds \[(.*)\]", output):
            moved = text.split(", ")
            self.assertEqual(moved[0], moved[1], output)
            self.assertNotEqual(moved[1], moved[2], output)
        self._ends_alike(output)


if __name__ == "__main__":
    unittest.main()
