"""evenshard.Reader beside a training under launch whose shard is killed."""

import os
import tempfile
import threading
import unittest

from tests.python import fixture

import evenshard  # noqa: E402

_CONFIG = """\
model {{ from_workers {{}} }}
partition {{ scheme: MEMORY_BASED }}
shard {{ address: "unix:{folder}/0.sock" }}
shard {{ address: "unix:{folder}/1.sock" }}
workers: 1
update {{ policy: SYNC }}
optimizer {{ kind: SGD learning_rate: 1 }}
limits {{ connections: 1 startup_seconds: 60 exchange_seconds: 60 shutdown_seconds: 60 }}
recovery {{ {recovery} silence_seconds: 20 }}
"""

_ELEMENTS = 4000
_KILL_AFTER = 15  # snapshots
_TIMEOUT = fixture.PATIENCE_SECONDS / 4

# All parameters are n after n iterations. Trains until a file is there.
_SCRIPT = """
import array, os, sys, time
import evenshard
tensors = {"w": array.array("f", [0] * int(sys.argv[2]))}
with evenshard.Worker(tensors=tensors) as worker:
    gradients = {"w": array.array("f", [-1] * int(sys.argv[2]))}
    while not os.path.exists(sys.argv[1]):
        try:
            worker.push_pull(gradients)
            time.sleep(0.005)
        except evenshard.WentBack:
            worker.resume()
            print("went back to", worker.iteration, flush=True)
"""


def _read(path, done):
    """Reads before, during and after the loss of a shard."""
    iterations = []
    try:
        with evenshard.Reader(path) as reader:
            while len(iterations) < 40:
                if len(iterations) == _KILL_AFTER:
                    fixture.kill_shard(path, 1)
                snapshot = reader.pull(timeout=_TIMEOUT)
                values = memoryview(snapshot["w"]).cast("B").cast("f").tolist()
                assert values == [snapshot.iteration] * _ELEMENTS, (snapshot, set(values))
                iterations.append(snapshot.iteration)
            last = reader.pull(newer_than=iterations[-1], timeout=_TIMEOUT)
            assert last.iteration > iterations[-1]
    finally:
        with open(done, "w", encoding="utf-8"):
            pass
    return iterations


class ReaderRecoveryTest(unittest.TestCase):
    def run_with(self, recovery):
        """Returns the iterations that were read, and the output of launch."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.textproto")
            done = os.path.join(folder, "done")
            with open(path, "w", encoding="utf-8") as file:
                file.write(_CONFIG.format(folder=folder, recovery=recovery.format(folder=folder)))
            launch = fixture.launch(path, _SCRIPT, done, str(_ELEMENTS))
            timer = threading.Timer(fixture.PATIENCE_SECONDS, launch.kill)
            try:
                end = fixture.Process(_read, path, done)
                timer.start()
                output, _ = launch.communicate()
                outcome = end.outcome()
                self.assertIsNone(outcome.error, f"{outcome.trace}\n{output}")
                self.assertEqual(launch.returncode, 0, output)
                return outcome.value, output
            finally:
                timer.cancel()
                launch.kill()
                launch.wait()

    def test_a_copy_takes_the_shard_over(self):
        iterations, output = self.run_with("replicas: 1")
        self.assertEqual(iterations, sorted(iterations), output)
        self.assertIn("survived 1 death", output)

    def test_the_run_goes_back_to_a_checkpoint(self):
        iterations, output = self.run_with(
            'worker_loss: WAIT checkpoint {{ folder: "{folder}/checkpoints" every_iterations: 20 }}'
        )
        self.assertRegex(output, "worker 0.*went back to")
        self.assertEqual(iterations[:_KILL_AFTER], sorted(iterations[:_KILL_AFTER]), output)


if __name__ == "__main__":
    unittest.main()
