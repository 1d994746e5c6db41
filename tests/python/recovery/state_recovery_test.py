"""register_state(): a training with a schedule and data that can be continued, whose processes are
killed, against one that is left alone."""

import json
import re
import subprocess
import tempfile
import time
import unittest

from tests.python import fixture
from tests.python.recovery.struck import (
    StruckTraining, end_run, kill_all_workers, kill_shard, kill_slot_0_and_worker, kill_worker
)

# Nothing of it follows from `optimizer.iteration`: the rate and the momentum are the schedule's,
# what is trained on is the sampler's and the reader's, and each step has the gradients of two
# batches.
_SCRIPT = """
registers, steps = "registers" in arguments, 30
model = models.make("mlp", seed=1)
rule = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
if place == 5 and rank == 1 and not os.path.exists(struck):
    print("process", os.getpid(), "waits", flush=True)
    while not os.path.exists(struck):
        time.sleep(0.01)
optimizer = evenshard.Optimizer(model, optimizer=rule)
print("begins at", optimizer.iteration, flush=True)
class Counted:
    # Counts what the script has done, or a reader has read ahead.
    def __init__(self):
        self.position = 0
    def state_dict(self):
        return {"position": self.position, "order": torch.arange(3) + self.position}
    def load_state_dict(self, state):
        assert int(state["order"][0]) == state["position"]
        self.position = state["position"]

sampler, reader = Counted(), Counted()
if registers:
    optimizer.register_state("sampler", sampler)
    optimizer.register_state("reader", reader, as_of="step")
# It changes the groups when it is made.
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps + 5)
if registers:
    optimizer.register_state("scheduler", scheduler)

def backward():
    drawn = reader.position
    reader.position += 1
    loss = models.loss_of(model, "mlp", drawn + 7 * sampler.position, rank)
    loss.backward()
    sampler.position += 1

def train():
    optimizer.zero_grad()
    wait_at(0)
    if schedule == "SEQUENTIAL":
        backward()
    else:
        with optimizer.no_sync():
            backward()
    wait_at(1)
    backward()
    wait_at(2)
    optimizer.step()
    scheduler.step()
    wait_at(3)
    if optimizer.iteration == at and place == 4:
        if rank == 1:
            wait_at(4)
        optimizer.mean(1)

is_done = False
while not is_done:
    try:
        while optimizer.iteration < steps:
            train()
        optimizer.synchronize()
        is_done = True
    except evenshard.WentBack:
        optimizer.resume()
        print("went back to", optimizer.iteration, flush=True)
total = sum(p.double().sum().item() for p in model.parameters())
rate = optimizer.param_groups[0]
print("ends with", repr([total, rate["lr"], rate["momentum"], sampler.position, reader.position]),
      flush=True)
"""

_CONTINUE_SCRIPT = """
model = models.make("mlp", seed=1)
rule = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = evenshard.Optimizer(model, optimizer=rule)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
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

# Ends by WentBack, which leaves a `with` block, or meets a close().
_ENDING_SCRIPT = """
model = models.make("mlp", seed=1)
rule = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = evenshard.Optimizer(model, optimizer=rule)
print("begins at", optimizer.iteration, flush=True)
def train():
    while optimizer.iteration < 30:
        optimizer.zero_grad()
        wait_at(1)
        models.loss_of(model, "mlp", optimizer.iteration, rank).backward()
        optimizer.step()
if "with" in arguments:
    with optimizer:
        train()
else:
    try:
        train()
    finally:
        optimizer.close()
"""


def kill_shard_1_when_worker_0_joins(_, path, __):
    """Its initial values have come to both shards, which wait for worker 1."""
    command = [fixture.built("tools/psctl/psctl"), "stats", f"--config={path}", "--format=json"]
    for _ in range(10 * fixture.PATIENCE_SECONDS):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        shards = json.loads(done.stdout)["shards"]
        if all(int(shard.get("stats", {}).get("bytes_in", 0)) for shard in shards):
            return fixture.kill_shard(path, 1)
        time.sleep(0.1)
    raise AssertionError(f"no values: {done.stdout}")


@unittest.skipIf(fixture.torch is None, "PyTorch is not installed: recovery of a training")
class StateRecoveryTest(StruckTraining, unittest.TestCase):
    script = _SCRIPT
    every = "every_iterations: 10"

    def train(self, folder, *, arguments=("registers",), **settings):
        return super().train(folder, arguments=arguments, **settings)

    def test_a_worker_that_is_killed_goes_on_where_the_others_are(self):
        of_schedules = {"BACKWARD": (0, 1, 2, 3), "FULL": (1, 3), "SEQUENTIAL": (1,)}
        for schedule, places in of_schedules.items():
            for place in places:
                self.check(
                    kill_worker, r"worker 1.*begins at 15", place=place, schedule=schedule
                )

    def test_a_run_whose_shard_is_killed_goes_back(self):
        for shard in (0, 1):
            with self.subTest(shard=shard):
                self.check(
                    kill_shard(shard), r"worker 0.*went back to 10", r"worker 1.*went back to 10",
                    place=1,
                )

    def test_a_run_that_goes_back_to_its_beginning_begins_with_what_was_registered(self):
        self.check(
            kill_shard(1), r"worker 0.*went back to 0", r"worker 1.*went back to 0", place=1, at=5
        )

    def test_a_run_that_goes_back_while_workers_join_begins_anew(self):
        begins_once = r"(?s)\A(?!.*\[worker 0\] begins.*\[worker 0\] begins)"
        self.check(
            kill_shard_1_when_worker_0_joins, "ps 1 was killed by SIGKILL; starting it again",
            begins_once, place=5, at=0,
        )

    def test_a_run_that_goes_back_where_a_worker_ends_by_it(self):
        for how in ("with", "finally"):
            with self.subTest(how), tempfile.TemporaryDirectory() as folder:
                code, output = self.train(
                    folder, strike=kill_shard(1), place=1, script=_ENDING_SCRIPT, arguments=(how,)
                )
                self.assertEqual(code, 0, output)
                self.assertEqual(
                    output.count("WentBack: the run has gone back"), 2, output
                )
                self.assertEqual(len(re.findall("begins at 10", output)), 2, output)

    def test_a_worker_that_is_killed_after_its_last_step_comes_to_the_end(self):
        self.check(kill_worker, r"worker 1.*begins at 30", place=3, at=30)

    def test_a_worker_that_is_killed_before_a_mean_for_which_the_others_wait(self):
        self.check(
            kill_worker, r"worker 0.*went back to 10", r"worker 1.*begins at 10", place=4
        )

    def test_a_checkpoint_without_anything_registered_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, strike=end_run, place=2, arguments=())
            self.assertNotEqual(code, 0, output)
            code, output = self.train(folder, options=("--resume",))
        self.assertEqual(code, 1, output)
        self.assertIn(
            '"sampler"): the run has no such state at iteration 10; it has none', output
        )

    def test_slot_0_passes_to_its_replica_while_a_worker_is_gone(self):
        for place, at in ((0, 15), (2, 15), (3, 30)):
            self.check(
                kill_slot_0_and_worker, rf"worker 1.*begins at {at}", place=place, at=at,
                replicas=1,
            )

    def test_a_run_all_of_whose_workers_are_killed_at_once_goes_back_if_it_must(self):
        for place, begins in ((0, 10), (2, 15)):
            self.check(
                kill_all_workers, rf"worker 0.*begins at {begins}",
                rf"worker 1.*begins at {begins}", place=place,
            )

    def test_a_worker_without_which_the_others_have_gone_on(self):
        self.check_others_go_on(_CONTINUE_SCRIPT)

    def test_a_run_of_which_everything_is_killed_is_resumed(self):
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, strike=end_run, place=2)
            self.assertNotEqual(code, 0, output)
            code, output = self.train(folder, options=("--resume",))
        self.assertEqual(code, 0, output)
        self.assertEqual(len(re.findall("begins at 10", output)), 2, output)
        self.assertEqual(self.results(output), self.undisturbed(), output)


if __name__ == "__main__":
    unittest.main()
