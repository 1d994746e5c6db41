"""A training whose processes are killed at a place of its script, against one that is left alone."""

import os
import re
import tempfile

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
recovery {{ worker_loss: {loss} silence_seconds: 5 replicas: {replicas} {checkpoint} }}
"""

# Before the script's own lines. At the place of an iteration that the test names, wait_at() waits
# for what the test does. `optimizer` is the script's.
_PRELUDE = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tests.python import fixture, models
import torch
import evenshard
rank, schedule = int(os.environ["RANK"]), sys.argv[5]
place, at, struck, arguments = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[6:]

def wait_at(here, iteration=at, synchronize=True):
    if here != place or optimizer.iteration != iteration or os.path.exists(struck):
        return
    if synchronize:
        optimizer.synchronize()
    if rank == 1:
        print("process", os.getpid(), "waits", flush=True)
    while not os.path.exists(struck):
        time.sleep(0.01)
    time.sleep(0.5 if rank == 1 else 0)
"""


class StruckTraining:
    """Of a unittest.TestCase. The script prints "begins at ITERATION", and "ends with RESULT" if it
    comes to its end."""

    script: str
    # In the config, and after which output a test may strike.
    checkpoint = ""
    is_ready = staticmethod(lambda output, at: True)

    def train(
        self, folder, *, strike=None, place=0, at=15, schedule="BACKWARD", replicas=0, loss="WAIT",
        checkpoint=None, arguments=(), options=(),
    ):
        """Runs the training; `strike(worker's process, config, launch)` comes at the place of that
        iteration. Returns the exit code and all output."""
        struck = os.path.join(folder, "struck")
        if strike is None:
            with open(struck, "w", encoding="utf-8"):
                pass
        path = os.path.join(folder, "run.textproto")
        checkpoint = self.checkpoint if checkpoint is None else checkpoint
        with open(path, "w", encoding="utf-8") as file:
            file.write(_CONFIG.format(
                folder=folder, schedule=schedule, replicas=replicas, loss=loss,
                checkpoint=checkpoint.format(folder=folder),
            ))
        launch = fixture.launch(
            path, _PRELUDE + self.script, fixture.ROOT, str(place), str(at), struck, schedule,
            *arguments, options=options,
        )

        def strike_once(output):
            waits = re.search(r"process (\d+) waits", output)
            if waits and self.is_ready(output, at) and not os.path.exists(struck):
                strike(int(waits[1]), path, launch)
                with open(struck, "w", encoding="utf-8"):
                    pass

        return fixture.follow(launch, strike_once)

    _expected = None

    def undisturbed(self):
        cls = type(self)
        if cls._expected is None:
            with tempfile.TemporaryDirectory() as folder:
                code, output = self.train(folder)
            self.assertEqual(code, 0, output)
            cls._expected = self.results(output)
            self.assertEqual(len(cls._expected), 2, output)
        return cls._expected

    def results(self, output):
        return sorted(re.findall(r"(worker \d).*ends with (.*)", output))

    def check(self, strike, *parts, **settings):
        """Whether a training that is struck ends as the one that is left alone."""
        with self.subTest(**settings), tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, strike=strike, **settings)
            self.assertEqual(code, 0, output)
            self.assertEqual(self.results(output), self.undisturbed(), output)
            for part in parts:
                self.assertRegex(output, part)
