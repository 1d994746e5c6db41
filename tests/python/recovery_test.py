"""A training under launch whose processes are killed, against one that is left alone."""

import os
import re
import signal
import tempfile
import unittest

from tests.python import fixture

_STEPS = 30

_CONFIG = """\
model {{ from_workers {{}} }}
partition {{ scheme: MEMORY_BASED }}
shard {{ address: "unix:{folder}/0.sock" }}
shard {{ address: "unix:{folder}/1.sock" }}
workers: 2
update {{ policy: SYNC deterministic: true }}
optimizer {{ kind: MOMENTUM learning_rate: 0.05 }}
exchange {{ schedule: {schedule} }}
limits {{ connections: 1 startup_seconds: 60 exchange_seconds: 60 }}
recovery {{
  worker_loss: {loss} silence_seconds: 5
  checkpoint {{ folder: "{folder}/checkpoints" every_iterations: 10 }}
}}
"""

# Prints each iteration, and waits there for what the test does at it.
_SCRIPT = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tests.python import fixture, models
import evenshard
rank = int(os.environ["RANK"])
model = models.make("mlp", seed=1 + rank)
optimizer = evenshard.Optimizer(model)
print("begins at", optimizer.iteration, flush=True)
while optimizer.iteration < int(sys.argv[2]):
    try:
        optimizer.zero_grad()
        models.loss_of(model, "mlp", optimizer.iteration, rank).backward()
        optimizer.step()
        if optimizer.iteration == int(sys.argv[3]) and not os.path.exists(sys.argv[4]):
            optimizer.synchronize()
            if rank == 1:
                print("process", os.getpid(), "waits", flush=True)
            while not os.path.exists(sys.argv[4]):
                time.sleep(0.01)
            time.sleep(0.5 if rank == 1 else 0)
    except evenshard.WentBack as error:
        optimizer.resume()
        print("went back to", optimizer.iteration, flush=True)
        assert "resume" in str(error)
optimizer.synchronize()
total = sum(p.double().sum().item() for p in model.parameters())
print("ends with", repr(total), flush=True)
"""

# Worker 1 kills itself once. When it is back, it says when training ends.
_CONTINUE_SCRIPT = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from tests.python import models
import evenshard
rank, end = int(os.environ["RANK"]), sys.argv[2]
model = models.make("mlp", seed=1 + rank)
optimizer = evenshard.Optimizer(model)
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
    if rank == 1 and not is_back and optimizer.iteration == 15:
        os.kill(os.getpid(), signal.SIGKILL)
optimizer.synchronize()
total = sum(p.double().sum().item() for p in model.parameters())
print("ends with", repr(total), "at", optimizer.iteration, flush=True)
"""


def _launch(folder, config, script, *arguments):
    """Starts a training by `script`, with the config in a file of that folder."""
    path = os.path.join(folder, "run.textproto")
    with open(path, "w", encoding="utf-8") as file:
        file.write(config)
    return fixture.launch(path, script, fixture.ROOT, *arguments)


@unittest.skipIf(fixture.torch is None, "PyTorch is not installed: recovery of a training")
class ContinueTest(unittest.TestCase):
    def test_the_others_go_on_without_a_worker_which_may_come_back(self):
        with tempfile.TemporaryDirectory() as folder:
            launch = _launch(
                folder, _CONFIG.format(folder=folder, schedule="FULL", loss="CONTINUE"),
                _CONTINUE_SCRIPT, os.path.join(folder, "end"),
            )
            try:
                output = launch.communicate(timeout=fixture.PATIENCE_SECONDS)[0]
            finally:
                launch.kill()
                launch.wait()
        self.assertEqual(launch.returncode, 0, output)
        begins = [int(at) for at in re.findall(r"worker 1.*begins at (\d+)", output)]
        self.assertEqual(len(begins), 2, output)
        self.assertEqual(begins[0], 0, output)
        self.assertGreater(begins[1], 15, output)
        ends = re.findall(r"ends with (\S+) at (\d+)", output)
        self.assertEqual(len(ends), 2, output)
        self.assertEqual(ends[0], ends[1], output)
        self.assertEqual(int(ends[0][1]), begins[1] + 20, output)


@unittest.skipIf(fixture.torch is None, "PyTorch is not installed: recovery of a training")
class RecoveryTest(unittest.TestCase):
    expected = []

    def train(self, schedule, strike=None, at=15):
        """Runs the training; `strike(worker's process, config)` comes at iteration `at`, when the
        checkpoints before it are complete. Returns the exit code and all output."""
        with tempfile.TemporaryDirectory() as folder:
            struck = os.path.join(folder, "struck")
            if strike is None:
                with open(struck, "w", encoding="utf-8"):
                    pass
            launch = _launch(
                folder, _CONFIG.format(folder=folder, schedule=schedule, loss="WAIT"),
                _SCRIPT, str(_STEPS), str(at), struck,
            )
            path = os.path.join(folder, "run.textproto")

            def strike_once(output):
                waits = re.search(r"process (\d+) waits", output)
                is_written = at < 10 or "checkpoint of iteration 10 is complete" in output
                if waits and is_written and not os.path.exists(struck):
                    strike(int(waits[1]), path)
                    with open(struck, "w", encoding="utf-8"):
                        pass

            return fixture.follow(launch, strike_once)

    def undisturbed(self):
        cls = type(self)
        if not cls.expected:
            code, output = self.train("BACKWARD")
            self.assertEqual(code, 0, output)
            cls.expected = self.results(output)
            self.assertEqual(len(cls.expected), 2, output)
        return cls.expected

    def results(self, output):
        return sorted(re.findall(r"(worker \d).*ends with (\S+)", output))

    def check(self, schedule, strike, *parts, at=15):
        code, output = self.train(schedule, strike, at)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.results(output), self.undisturbed(), output)
        for part in parts:
            self.assertRegex(output, part)

    def test_a_worker_that_is_killed_goes_on(self):
        self.check(
            "FULL", lambda process, _: os.kill(process, signal.SIGKILL),
            r"worker 1.*begins at 15",
        )

    def test_a_run_whose_shard_is_killed_goes_back(self):
        def strike(_, config):
            fixture.kill_shard(config, 1)

        for schedule in ("FULL", "SEQUENTIAL"):
            with self.subTest(schedule):
                self.check(
                    schedule, strike, r"worker 0.*went back to 10", r"worker 1.*went back to 10"
                )
        with self.subTest("before the first checkpoint"):
            self.check("FULL", strike, r"worker 0.*went back to 0", at=5)


if __name__ == "__main__":
    unittest.main()
