"""A training by DistributedOptimizer whose workers are killed, against one that is left alone."""

import tempfile
import unittest

from tests.python import fixture
from tests.python.recovery.struck import (
    StruckTraining, kill_all_workers, kill_slot_0_and_worker, kill_worker
)

# Adam's state of the first part, and of the second, with another optimizer, every fourth iteration.
# The rate is a scheduler's, and the batch is a sampler's, which are registered.
_SCRIPT = """
registers, steps = "registers" in arguments, 30
both = torch.nn.ModuleDict({"one": models.make("mlp", seed=1), "two": models.make("mlp", seed=2)})
made = torch.optim.Adam(both["one"].parameters(), lr=0.01)
optimizer = evenshard.DistributedOptimizer(made, both)
other = None
if "one optimizer only" not in arguments or optimizer.iteration == 0:
    other = evenshard.DistributedOptimizer(
        torch.optim.SGD(both["two"].parameters(), lr=0.1, momentum=0.9), both
    )
print("begins at", optimizer.iteration, flush=True)

class Counted:
    def __init__(self):
        self.position = 0
    def state_dict(self):
        return {"position": self.position}
    def load_state_dict(self, state):
        self.position = state["position"]

sampler = Counted()
if registers or "schedules" in arguments:
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=steps + 5)
if registers:
    optimizer.register_state("sampler", sampler)
    optimizer.register_state("scheduler", scheduler)

def step_of(part, stepped):
    stepped.zero_grad()
    wait_at(0, synchronize=False)
    drawn = sampler.position if registers else optimizer.iteration
    models.loss_of(both[part], "mlp", drawn, rank).backward()
    sampler.position += 1
    wait_at(1, synchronize=False)
    stepped.synchronize()
    torch.nn.utils.clip_grad_norm_(both[part].parameters(), 0.5)
    if place == 6 and optimizer.iteration == at:
        if rank == 1:
            wait_at(6, synchronize=False)
        optimizer.mean(1)
    stepped.step()
    if stepped is optimizer and (registers or "schedules" in arguments):
        scheduler.step()
    wait_at(2, synchronize=False)

while optimizer.iteration < steps:
    if optimizer.iteration == at and place == 4:
        if rank == 1:
            wait_at(4, synchronize=False)
        optimizer.mean(1)
    if optimizer.iteration % 4 == 3:
        step_of("two", other)
    else:
        step_of("one", optimizer)
wait_at(3, synchronize=False)
total = sum(p.double().sum().item() for p in both.parameters())
moments = sum(s["exp_avg_sq"].double().sum().item() for s in optimizer.state.values())
drawn = sampler.position if registers else 0
print("ends with", repr([total, moments, optimizer.param_groups[0]["lr"], drawn]), flush=True)
"""

_CONTINUE_SCRIPT = """
model = models.make("mlp", seed=1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
optimizer = evenshard.DistributedOptimizer(optimizer, model)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
optimizer.register_state("scheduler", scheduler)
assert scheduler.last_epoch == optimizer.iteration
begin = optimizer.iteration
print("begins at", begin, flush=True)
while goes_on(begin):
    optimizer.zero_grad()
    models.loss_of(model, "mlp", optimizer.iteration, rank).backward()
    optimizer.step()
    scheduler.step()
total = sum(p.double().sum().item() for p in model.parameters())
rate = optimizer.param_groups[0]["lr"]
print("ends with", repr([total, rate]), "at", optimizer.iteration, flush=True)
"""

_LOST = "nobody has the state that they need, and there are no checkpoints to go back to"


@unittest.skipIf(fixture.torch is None, "PyTorch is not installed: recovery of a training")
class DistributedRecoveryTest(StruckTraining, unittest.TestCase):
    script = _SCRIPT

    def train(self, folder, *, arguments=("registers",), **settings):
        return super().train(folder, arguments=arguments, **settings)

    def test_a_worker_that_is_killed_gets_everything_from_another(self):
        # At 15 the second optimizer's turn has come, and at 16 the first one's.
        for schedule in ("BACKWARD", "SEQUENTIAL"):
            for place, at in ((0, 15), (1, 15), (1, 16), (2, 16)):
                self.check(
                    kill_worker, rf"worker 1.*begins at {at}", place=place, at=at, schedule=schedule
                )

    def test_a_worker_that_is_killed_after_its_last_step_comes_to_the_end(self):
        self.check(kill_worker, r"worker 1.*begins at 30", place=3, at=30)

    def test_a_worker_that_is_killed_before_a_mean_for_which_the_others_wait(self):
        # What is registered counts at the next backward(), which nobody has come to.
        self.refuse(kill_worker, _LOST, place=4)

    def test_without_anything_registered_one_that_waits_in_a_mean_gives_what_it_has(self):
        with tempfile.TemporaryDirectory() as folder:
            code, expected = self.train(folder, arguments=())
            self.assertEqual(code, 0, expected)
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, strike=kill_worker, place=4, arguments=())
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"worker 1.*begins at 15")
        self.assertEqual(self.results(output), self.results(expected), output)

    def test_slot_0_passes_to_its_replica_while_a_worker_is_gone(self):
        for place, at in ((0, 15), (1, 15), (3, 30)):
            self.check(
                kill_slot_0_and_worker, rf"worker 1.*begins at {at}", place=place, at=at,
                replicas=1,
            )

    def test_what_cannot_go_on_ends_with_a_sentence(self):
        self.refuse(kill_all_workers, _LOST, place=1)
        # One that was killed before its step, while the other waits in a mean before it.
        self.refuse(
            kill_worker,
            r"worker 0 cannot send what it keeps by itself: it waits in a mean\(\) or barrier\(\)",
            place=6,
        )
        self.refuse(
            kill_worker, "it has optimizers: 2, and this worker: 1", place=0, at=16,
            arguments=("one optimizer only",),
        )
        self.refuse(
            kill_worker,
            r"its optimizer has betas .* in group 0, and the run has .*; allowed: what sets it,"
            r" such as a scheduler", place=0, arguments=("schedules",),
        )

    def refuse(self, strike, part, **settings):
        with self.subTest(part), tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, strike=strike, **settings)
            self.assertEqual(code, 1, output)
            self.assertRegex(output, part)

    def test_a_worker_without_which_the_others_have_gone_on(self):
        self.check_others_go_on(_CONTINUE_SCRIPT)


# Worker 1 dies when shard 0 has the mean of an iteration, and shard 1 lacks its gradient.
_HALF_SCRIPT = """
model = models.make("mlp", seed=1)
adam = torch.optim.Adam(model.parameters(), lr=0.01)
optimizer = evenshard.DistributedOptimizer(adam, model)
print("begins at", optimizer.iteration, flush=True)

def die_in_the_middle():
    exchange = optimizer._exchange
    first = [i for i, item in enumerate(exchange.tensors) if item.name.startswith("0.")]
    exchange._placement.staged(wait=True)
    exchange.handle.push_several(first)
    for i in first:
        exchange.handle.wait(i)
    os.kill(os.getpid(), signal.SIGKILL)

begins = optimizer.iteration
while optimizer.iteration < 25:
    optimizer.zero_grad()
    models.loss_of(model, "mlp", optimizer.iteration, rank).backward()
    if rank == 1 and begins == 0 and optimizer.iteration == at and "dies" in arguments:
        die_in_the_middle()
    optimizer.step()
total = sum(p.double().sum().item() for p in model.parameters())
print("ends with", repr(total), flush=True)
"""


@unittest.skipIf(fixture.torch is None, "PyTorch is not installed: recovery of a training")
class HalfCountedTest(StruckTraining, unittest.TestCase):
    script = _HALF_SCRIPT
    scheme = "LAYER_BASED"

    def test_a_mean_that_one_shard_has_already_counts_in_the_new_workers_step(self):
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, arguments=("dies",))
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"worker 1.*begins at 15")
        self.assertEqual(self.results(output), self.undisturbed(), output)


if __name__ == "__main__":
    unittest.main()
