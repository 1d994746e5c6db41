"""A training whose processes are killed at a place of its script, against one that is left
alone."""

import os
import re
import signal
import tempfile

from tests.python import fixture

_CONFIG = """\
model {{ from_workers {{}} }}
partition {{ scheme: {scheme} }}
shard {{ address: "unix:{folder}/0.sock" }}
shard {{ address: "unix:{folder}/1.sock" }}
workers: 2
update {{ policy: SYNC deterministic: true }}
{optimizer}
exchange {{ schedule: {schedule} }}
limits {{ connections: 1 startup_seconds: 60 exchange_seconds: 60 shutdown_seconds: 60 }}
recovery {{ worker_loss: {loss} silence_seconds: 20 replicas: {replicas} {checkpoint} }}
"""

# Before the script's own lines, which make `optimizer`. At the place of an iteration that the test
# names, wait_at() waits for what the test does. goes_on() is for a training that loses worker 1 and
# does not wait for it: the worker kills itself once. When it is back, it says when training ends.
_PRELUDE = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from tests.python import fixture, models
import torch
import evenshard
rank, schedule = int(os.environ["RANK"]), sys.argv[5]
place, at, struck, arguments = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[6:]

def wait_at(here, synchronize=True):
    if here != place or optimizer.iteration != at or os.path.exists(struck):
        return
    if synchronize:
        optimizer.synchronize()
    if rank == 1:
        print("process", os.getpid(), "waits", flush=True)
    while not os.path.exists(struck):
        time.sleep(0.01)
    time.sleep(0.5 if rank == 1 else 0)

def goes_on(begin):
    end = struck + ".end"
    if rank == 1 and begin == 0 and optimizer.iteration == at:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and begin > 0 and not os.path.exists(end):
        with open(end + ".new", "w") as file:
            file.write(str(begin + 20))
        os.rename(end + ".new", end)
    return not os.path.exists(end) or optimizer.iteration < int(open(end).read())
"""


def kill_worker(worker, *_):
    os.kill(worker, signal.SIGKILL)


def kill_all_workers(_, __, launch):
    fixture.kill_workers(launch)


def kill_shard(shard):
    return lambda _, path, __: fixture.kill_shard(path, shard)


def kill_slot_0_and_worker(worker, path, _):
    fixture.kill_shard(path, 0)
    os.kill(worker, signal.SIGKILL)


def end_run(_, __, launch):
    launch.send_signal(signal.SIGTERM)


class StruckTraining:
    """Of a unittest.TestCase. The script prints "begins at ITERATION", and "ends with RESULT" if it
    comes to its end."""

    script: str
    # In the config. Without a rule the workers bring the optimizer.
    scheme = "STRIPED"
    rule = ""
    # When checkpoints are written. Where that is every N iterations, a test strikes when the first
    # one before its place is complete.
    every = ""

    def train(
        self, folder, *, strike=None, place=0, at=15, schedule="BACKWARD", replicas=0, loss="WAIT",
        every=None, script=None, arguments=(), options=(),
    ):
        """Runs the training; `strike(worker's process, config, launch)` comes at the place of that
        iteration. Returns the exit code and all output."""
        struck = os.path.join(folder, "struck")
        if strike is None:
            with open(struck, "w", encoding="utf-8"):
                pass
        path = os.path.join(folder, "run.textproto")
        every = self.every if every is None else every
        with open(path, "w", encoding="utf-8") as file:
            file.write(_CONFIG.format(
                folder=folder, scheme=self.scheme, schedule=schedule, replicas=replicas, loss=loss,
                optimizer=f"optimizer {{ {self.rule} }}" if self.rule else "",
                checkpoint=(
                    f'checkpoint {{ folder: "{folder}/checkpoints" {every} }}' if every else ""
                ),
            ))
        launch = fixture.launch(
            path, _PRELUDE + (script or self.script), fixture.ROOT, str(place), str(at), struck,
            schedule, *arguments, options=options,
        )
        first = re.match(r"every_iterations: (\d+)", every)
        awaited = ""
        if first and int(first[1]) <= at:
            awaited = f"checkpoint of iteration {first[1]} is complete"

        strikes = [] if strike is None else [strike]

        def strike_once(output):
            waits = re.search(r"process (\d+) waits", output)
            if waits and awaited in output and strikes:
                strikes.pop()(int(waits[1]), path, launch)
                if strike is end_run:
                    return  # the workers end where they wait
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

    def check_others_go_on(self, script, **settings):
        """Whether worker 1 comes back to where the others have gone on without it, and all end
        alike. The script goes on while goes_on(), and prints "ends with RESULT at ITERATION"."""
        with tempfile.TemporaryDirectory() as folder:
            code, output = self.train(folder, loss="CONTINUE", script=script, **settings)
        self.assertEqual(code, 0, output)
        begins = [int(at) for at in re.findall(r"worker 1.*begins at (\d+)", output)]
        self.assertEqual(len(begins), 2, output)
        self.assertEqual(begins[0], 0, output)
        self.assertGreater(begins[1], 15, output)
        ends = re.findall(r"ends with (.*) at (\d+)", output)
        self.assertEqual(len(ends), 2, output)
        self.assertEqual(ends[0], ends[1], output)
        self.assertEqual(int(ends[0][1]), begins[1] + 20, output)
