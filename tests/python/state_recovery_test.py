"""register_state(): a training with a schedule and data that can be continued, whose processes are
killed, against one that is left alone."""

import os
import re
import signal
import tempfile
import unittest

from tests.python import fixture

_CONFIG = """\
model {{ from_workers {{}} }}
partition {{ scheme: STRIPED }}
shard {{ address: "unix:{folder}/0.sock" }}
shard {{ address: "unix:{folder}/1.sock" }}
workers: 2
update {{ policy: SYNC deterministic: true }}
exchange {{ schedule: {schedule} }}
limits {{ connections: 1 startup_seconds: 60 exchange_seconds: 60 }}
recovery {{
  worker_loss: {loss} silence_seconds: 5 replicas: {replicas}
  checkpoint {{ folder: "{folder}/checkpoints" every_iterations: 10 }}
}}
"""

# Nothing of it follows from `optimizer.iteration`: the rate and the momentum are the schedule's,
# what is trained on is the sampler's and the reader's, and each step has the gradients of two
# batches. At the place that the test names it waits for what the test does.
_SCRIPT = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tests.python import fixture, models
import torch
import evenshard
rank, place, struck, steps = int(os.environ["RANK"]), int(sys.argv[2]), sys.argv[3], 30
at, registers = int(sys.argv[4]), sys.argv[5] == "registers"
model = models.make("mlp", seed=1)
rule = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
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

def wait_at(here):
    if here != place or optimizer.iteration != at or os.path.exists(struck):
        return
    optimizer.synchronize()
    if rank == 1:
        print("process", os.getpid(), "waits", flush=True)
    while not os.path.exists(struck):
        time.sleep(0.01)
    time.sleep(0.5 if rank == 1 else 0)

def backward():
    drawn = reader.position
    reader.position += 1
    loss = models.loss_of(model, "mlp", drawn + 7 * sampler.position, rank)
    loss.backward()
    sampler.position += 1

def train():
    optimizer.zero_grad()
    wait_at(0)
    if {schedule!r} == "SEQUENTIAL":
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
    if optimizer.iteration == 15 and place == 4:
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


# Worker 1 kills itself once. When it is back, it says when training ends.
_CONTINUE_SCRIPT = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from tests.python import models
import torch
import evenshard
rank, end = int(os.environ["RANK"]), sys.argv[2]
model = models.make("mlp", seed=1)
rule = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = evenshard.Optimizer(model, optimizer=rule)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
optimizer.register_state("scheduler", scheduler)
assert scheduler.last_epoch == optimizer.iteration
print("begins at", optimizer.iteration, flush=True)
is_back = rank == 1 and optimizer.iteration > 0
if is_back:
    with open(end + ".new", "w") as file:
        file.write(str(optimizer.iteration + 20))
    os.rename(end + ".new", end)
while not os.path.exists(end) or optimizer.iteration < int(open(end).read()):
    optimizer.zero_grad()
    models.loss_of(model, "mlp", optimizer.iteration, rank).backward()
    optimizer.step()
    scheduler.step()
    if rank == 1 and not is_back and optimizer.iteration == 15:
        os.kill(os.getpid(), signal.SIGKILL)
total = sum(p.double().sum().item() for p in model.parameters())
print("ends with", repr([total, optimizer.param_groups[0]["lr"], optimizer.iteration]), flush=True)
"""


@unittest.skipIf(fixture.torch is None, "PyTorch is not installed: recovery of a training")
class StateRecoveryTest(unittest.TestCase):
    def train(self, folder, *, strike=None, place=0, at=15, registers=True, schedule="BACKWARD",
              replicas=0, options=()):
        """Runs the training; `strike(worker's process, config, launch)` comes at the place of that
        iteration."""
        struck = os.path.join(folder, "struck")
        if strike is None:
            with open(struck, "w", encoding="utf-8"):
                pass
        path = os.path.join(folder, "run.textproto")
        with open(path, "w", encoding="utf-8") as file:
            file.write(_CONFIG.format(
                folder=folder, schedule=schedule, replicas=replicas, loss="WAIT"
            ))
        launch = fixture.launch(
            path, _SCRIPT.replace("{schedule!r}", repr(schedule)), fixture.ROOT, str(place),
            struck, str(at), "registers" if registers else "", options=options,
        )

        def strike_once(output):
            waits = re.search(r"process (\d+) waits", output)
            is_written = at < 10 or "checkpoint of iteration 10 is complete" in output
            if waits and is_written and not os.path.exists(struck):
                strike(int(waits[1]), path, launch)
                with open(struck, "w", encoding="utf-8"):
                    pass

        return fixture.follow(launch, strike_once)

    expected = None

    def undisturbed(self):
        cls = type(self)
        if cls.expected is None:
            with tempfile.TemporaryDirectory() as folder:
                code, output = self.train(folder)
            self.assertEqual(code, 0, output)
            cls.expected = self.results(output)
            self.assertEqual(len(cls.expected), 2, output)
        return cls.expected

    def results(self, output):
        return sorted(re.findall(r"(worker \d).*ends with (.*)", output))

    def check(self, strike, *parts, **settings):
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, strike=strike, **settings)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.results(output), self.undisturbed(), output)
        for part in parts:
            self.assertRegex(output, part)

    def test_a_worker_that_is_killed_goes_on_where_the_others_are(self):
        def kill(worker, _, __):
            os.kill(worker, signal.SIGKILL)

        of_schedules = {"BACKWARD": (0, 1, 2, 3), "FULL": (1, 3), "SEQUENTIAL": (1,)}
        for schedule, places in of_schedules.items():
            for place in places:
                with self.subTest(schedule, place=place):
                    self.check(
                        kill, r"worker 1.*begins at 15", place=place, schedule=schedule
                    )

    def test_a_run_whose_shard_is_killed_goes_back(self):
        for shard in (0, 1):
            with self.subTest(shard=shard):
                self.check(
                    lambda _, path, __, shard=shard: fixture.kill_shard(path, shard),
                    r"worker 0.*went back to 10", r"worker 1.*went back to 10", place=1,
                )

    def test_a_run_that_goes_back_to_its_beginning_begins_with_what_was_registered(self):
        self.check(
            lambda _, path, __: fixture.kill_shard(path, 1),
            r"worker 0.*went back to 0", r"worker 1.*went back to 0", place=1, at=5,
        )

    def test_a_worker_that_is_killed_after_its_last_step_comes_to_the_end(self):
        self.check(
            lambda worker, _, __: os.kill(worker, signal.SIGKILL),
            r"worker 1.*begins at 30", place=3, at=30,
        )

    def test_a_worker_that_is_killed_before_a_mean_for_which_the_others_wait(self):
        self.check(
            lambda worker, _, __: os.kill(worker, signal.SIGKILL),
            r"worker 0.*went back to 10", r"worker 1.*begins at 10", place=4,
        )

    def test_a_checkpoint_without_anything_registered_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(
                folder, strike=lambda _, __, launch: launch.send_signal(signal.SIGTERM), place=2,
                registers=False,
            )
            self.assertNotEqual(code, 0, output)
            code, output = self.train(folder, options=("--resume",))
        self.assertEqual(code, 1, output)
        self.assertIn(
            '"sampler"): the run has no such state at iteration 10; it has none', output
        )

    def test_slot_0_passes_to_its_replica_while_a_worker_is_gone(self):
        def kill(worker, path, _):
            fixture.kill_shard(path, 0)
            os.kill(worker, signal.SIGKILL)

        for place in (0, 2):
            with self.subTest(place=place):
                self.check(kill, r"worker 1.*begins at 15", place=place, replicas=1)

    def test_a_run_all_of_whose_workers_are_killed_at_once_goes_back_if_it_must(self):
        for place, begins in ((0, 10), (2, 15)):
            with self.subTest(place=place):
                self.check(
                    lambda _, __, launch: fixture.kill_workers(launch),
                    rf"worker 0.*begins at {begins}", rf"worker 1.*begins at {begins}", place=place,
                )

    def test_a_worker_without_which_the_others_have_gone_on(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.textproto")
            with open(path, "w", encoding="utf-8") as file:
                file.write(_CONFIG.format(
                    folder=folder, schedule="BACKWARD", replicas=0, loss="CONTINUE"
                ))
            launch = fixture.launch(
                path, _CONTINUE_SCRIPT, fixture.ROOT, os.path.join(folder, "end")
            )
            code, output = fixture.follow(launch, lambda _: None)
        self.assertEqual(code, 0, output)
        begins = [int(at) for at in re.findall(r"worker 1.*begins at (\d+)", output)]
        self.assertEqual(len(begins), 2, output)
        self.assertGreater(begins[1], 15, output)
        ends = re.findall(r"ends with (.*)", output)
        self.assertEqual(len(ends), 2, output)
        self.assertEqual(ends[0], ends[1], output)

    def test_a_run_of_which_everything_is_killed_is_resumed(self):
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(
                folder, strike=lambda _, __, launch: launch.send_signal(signal.SIGTERM), place=2
            )
            self.assertNotEqual(code, 0, output)
            code, output = self.train(folder, options=("--resume",))
        self.assertEqual(code, 0, output)
        self.assertEqual(len(re.findall("begins at 10", output)), 2, output)
        self.assertEqual(self.results(output), self.undisturbed(), output)


if __name__ == "__main__":
    unittest.main()
