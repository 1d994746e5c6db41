"""A training that assigns parameters and an optimizer's state, and ends unevenly, whose processes
are killed, against one that is left alone."""

import os
import re
import shutil
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
  worker_loss: WAIT silence_seconds: 5 replicas: {replicas}
  checkpoint {{ folder: "{folder}/checkpoints" {every} }}
}}
"""

# In each iteration it assigns twice and trains. Then rank 0 has 3 batches more and rank 1 has 8. At
# the place of five that the test names it waits for what the test does.
_SCRIPT = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tests.python import fixture, models
import torch
import evenshard
rank, place, struck, steps = int(os.environ["RANK"]), int(sys.argv[2]), sys.argv[3], 30
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

def wait_at(here, iteration=15):
    if here != place or optimizer.iteration != iteration or os.path.exists(struck):
        return
    optimizer.synchronize()
    if rank == 1:
        print("process", os.getpid(), "waits", flush=True)
    while not os.path.exists(struck):
        time.sleep(0.01)
    time.sleep(0.5 if rank == 1 else 0)

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
                wait_at(4, steps + 5)
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
class AssignmentRecoveryTest(unittest.TestCase):
    def train(self, folder, *, strike=None, place=0, schedule="BACKWARD", replicas=0,
              every="every_iterations: 10", more=()):
        """Runs the training; `strike(worker's process, config)` comes at the place. Returns the
        exit code and all output."""
        struck = os.path.join(folder, "struck")
        if strike is None:
            with open(struck, "w", encoding="utf-8"):
                pass
        path = os.path.join(folder, "run.textproto")
        with open(path, "w", encoding="utf-8") as file:
            file.write(_CONFIG.format(
                folder=folder, schedule=schedule, replicas=replicas, every=every
            ))

        def strike_once(output):
            waits = re.search(r"process (\d+) waits", output)
            is_written = "checkpoint of iteration 10 is complete" in output
            may_strike = is_written or every != "every_iterations: 10"
            if waits and may_strike and not os.path.exists(struck):
                strike(int(waits[1]), path)
                with open(struck, "w", encoding="utf-8"):
                    pass

        launch = fixture.launch(
            path, _SCRIPT, fixture.ROOT, str(place), struck, options=more
        )
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
        return sorted(re.findall(r"(worker \d).*ends with (\S+)", output))

    def check(self, strike, *parts, **settings):
        with self.subTest(**settings), tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, strike=strike, **settings)
            self.assertEqual(code, 0, output)
            self.assertEqual(self.results(output), self.undisturbed(), output)
            for part in parts:
                self.assertRegex(output, part)

    def test_a_worker_that_is_killed_leaves_out_what_the_run_has(self):
        def strike(process, _):
            os.kill(process, signal.SIGKILL)

        for place, schedule in ((0, "BACKWARD"), (1, "FULL"), (2, "SEQUENTIAL"), (3, "BACKWARD")):
            self.check(strike, r"worker 1.*begins at 15", place=place, schedule=schedule)
        self.check(strike, r"worker 1.*begins at 35", place=4, schedule="FULL")

    def test_a_run_that_goes_back_has_the_assignments_of_its_checkpoint(self):
        def strike(_, config):
            fixture.kill_shard(config, 1)

        self.check(strike, r"worker 0.*went back to 10", place=1)
        self.check(strike, r"worker 0.*went back to 10", place=3)
        self.check(strike, r"worker 0.*went back to [123]0", place=4)
        # Cuts are where the clock says, also between assignments.
        self.check(strike, r"went back to", place=2, every="every_seconds: 0.1")
        # Only a script that is started again loads its state again.
        self.check(strike, r"(?s)(worker 0.*begins at 0.*){2}", place=2,
                   every="every_iterations: 100")

    def test_a_replica_takes_over(self):
        def strike(_, config):
            fixture.kill_shard(config, 1)

        for place, schedule in (
            (1, "BACKWARD"), (3, "FULL"), (4, "BACKWARD"), (4, "FULL"), (4, "SEQUENTIAL"),
        ):
            self.check(strike, r"took slot 1 over", place=place, schedule=schedule, replicas=1)

    def test_a_run_is_resumed_from_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, strike=lambda *_: None)
            self.assertEqual(code, 0, output)
            checkpoints = os.path.join(folder, "checkpoints")
            for name in os.listdir(checkpoints):
                if name.startswith("generation") and not name.endswith("-0000000010"):
                    shutil.rmtree(os.path.join(checkpoints, name))
            code, output = self.train(folder, more=["--resume"])
            self.assertEqual(code, 0, output)
            self.assertRegex(output, r"worker 0.*begins at 10")
            self.assertEqual(self.results(output), self.undisturbed(), output)


if __name__ == "__main__":
    unittest.main()
