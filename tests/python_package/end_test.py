"""Programs that end without close(), and what the other worker learns of it."""

import os
import signal
import subprocess
import sys
import unittest

from tests.python import fixture

torch = fixture.torch
import evenshard  # noqa: E402

_SCRIPT = """
import signal
import sys
import threading
import time
from sys import exit as leave
import torch
import evenshard
torch.manual_seed(1)
model = torch.nn.Linear(3, 2)
optimizer = evenshard.Optimizer(model)
for i in range(0 if sys.argv[1] == "never" else 3):
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    if sys.argv[1] == "between" and i == 2:
        sys.exit()
    if sys.argv[1].startswith("raises") and i == 2:
        if sys.argv[1] != "raises":
            sys.excepthook = lambda *_: print("my own hook", file=sys.stderr)
        raise ValueError("my own mistake")
    if sys.argv[1] == "shown" and i == 1:
        sys.last_value = ValueError("what a console has shown")
    if sys.argv[1] == "shown" and i == 2:
        optimizer.step()
        sys.excepthook = lambda *_: None
        break
    if sys.argv[1].startswith("exit") and i == 2:
        optimizer.step()
        {"exit 4": sys.exit, "exit 5": exit, "exit 6": leave}[sys.argv[1]](int(sys.argv[1][-1]))
    if sys.argv[1] == "caught" and i == 1:
        try:
            sys.exit(4)
        except SystemExit:
            pass
    optimizer.step()

def stop(*_):
    optimizer.close("told to stop")
    sys.exit(9)

def tell():
    while not optimizer._handle._calls.is_going_on:
        time.sleep(0.01)
    print("waits", flush=True)

handlers = {
    "stops": stop, "closes": lambda *_: optimizer.close("told to stop"),
    "goes on": lambda *_: optimizer.mean(1.0),
}
if sys.argv[1] in handlers:
    signal.signal(signal.SIGTERM, handlers[sys.argv[1]])
if sys.argv[1] in (*handlers, "waits at the end"):
    threading.Thread(target=tell, daemon=True).start()
if sys.argv[1] in handlers:
    optimizer.synchronize()
"""


def _train(steps, goes_on=None):
    """As worker 0. Before the last step it waits for `goes_on`."""
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 2)
    with evenshard.Optimizer(model) as optimizer:
        for step in range(steps):
            if goes_on is not None and step == steps - 1:
                goes_on.wait(fixture.PATIENCE_SECONDS)
            optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()


@unittest.skipIf(torch is None, "PyTorch is not installed: the end of a program")
class EndTest(unittest.TestCase):
    """A script without close()."""

    def end(self, how, steps=10):
        """Runs it as rank 1, beside a worker 0 that makes `steps` steps."""
        with fixture.Cluster(1, workers=2) as cluster:
            environment = {
                "RANK": "1", "WORLD_SIZE": "2", "EVENSHARD_CONFIG": cluster.path
            }
            other = fixture.Process(
                lambda: _train(steps), environment={**environment, "RANK": "0"}
            )
            code, _, complaints = fixture.run_script(
                _SCRIPT, environment=environment, arguments=[how]
            )
            return code, complaints, other.outcome()

    def test_a_script_that_ends_has_finished(self):
        code, complaints, other = self.end("well", steps=3)
        self.assertEqual((code, complaints), (0, ""))
        self.assertIsNone(other.error)

    def test_a_script_that_raises_has_failed(self):
        code, complaints, other = self.end("raises")
        self.assertEqual(code, 1)
        self.assertIn("ValueError: my own mistake", complaints)
        self.assertIn("ValueError: my own mistake", other.error or "")

    def test_a_script_that_raises_into_a_hook_of_its_own_has_failed(self):
        code, complaints, other = self.end("raises into a hook")
        self.assertEqual((code, complaints), (1, "my own hook\n"))
        self.assertIn("ValueError: my own mistake", other.error or "")

    def test_a_script_that_goes_on_after_an_exception_was_shown_has_finished(self):
        code, complaints, other = self.end("shown", steps=3)
        self.assertEqual((code, complaints), (0, ""))
        self.assertIsNone(other.error)
        # Nor does it tell one that goes on that it has failed.
        self.assertNotIn("a console has shown", self.end("shown")[2].error or "")

    def test_a_script_that_ends_within_an_iteration_has_failed(self):
        code, complaints, other = self.end("between")
        self.assertEqual(code, 1)
        self.assertIn("between backward() and step()", complaints)
        self.assertIn("between backward() and step()", other.error or "")

    def test_a_script_that_ends_with_a_code_has_failed(self):
        for expected, how in ((4, "exit 4"), (5, "exit 5"), (6, "exit 6")):
            with self.subTest(how):
                code, _, other = self.end(how)
                self.assertEqual(code, expected)
                self.assertIn(f"SystemExit: {expected}", other.error or "")

    def test_a_script_that_goes_on_after_an_exit_has_finished(self):
        code, complaints, other = self.end("caught", steps=3)
        self.assertEqual((code, complaints), (0, ""))
        self.assertIsNone(other.error)

    def test_a_script_that_never_steps_has_failed(self):
        code, complaints, other = self.end("never")
        self.assertEqual((code, complaints), (1, "evenshard: the program ended without a step()\n"))
        self.assertIn("the program ended without a step()", other.error or "")

    def signalled(self, how, number):
        """Runs it beside a worker that makes two steps, and sends it a signal when it waits for the
        third one. Returns its exit code and complaints, and what the other's third step says."""
        goes_on = fixture.multiprocessing.get_context("fork").Event()

        with fixture.Cluster(1, workers=2) as cluster:
            environment = {"WORLD_SIZE": "2", "EVENSHARD_CONFIG": cluster.path}
            other = fixture.Process(
                lambda: _train(3, goes_on), environment={**environment, "RANK": "0"}
            )
            with subprocess.Popen(
                [sys.executable, "-c", _SCRIPT, how], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONPATH": fixture.PACKAGE, **environment, "RANK": "1"},
            ) as script:
                self.assertEqual(script.stdout.readline(), "waits\n")
                script.send_signal(number)
                _, complaints = script.communicate(timeout=fixture.PATIENCE_SECONDS / 2)
            goes_on.set()
            return (
                script.returncode, fixture.without_waits(complaints), other.outcome().error or ""
            )

    def test_ctrl_c_ends_the_wait_of_the_end(self):
        code, complaints, other = self.signalled("waits at the end", signal.SIGINT)
        self.assertEqual(code, 1)
        self.assertIn("KeyboardInterrupt", complaints)
        self.assertIn("KeyboardInterrupt", other)

    def test_a_signal_handler_may_close_in_the_middle_of_a_wait(self):
        code, complaints, other = self.signalled("stops", signal.SIGTERM)
        self.assertEqual((code, complaints), (9, ""))
        self.assertIn("told to stop", other)
        code, complaints, other = self.signalled("closes", signal.SIGTERM)
        self.assertEqual(code, 1)
        self.assertIn("errors.Interrupted: ", complaints)
        self.assertIn("told to stop", other)

    def test_a_signal_handler_uses_nothing_else(self):
        code, complaints, other = self.signalled("goes on", signal.SIGTERM)
        self.assertEqual(code, 1)
        for text in (complaints, other):
            self.assertIn("a signal handler uses the worker in the middle of a call", text)


_NEEDED_SCRIPT = """
from evenshard import _exit, errors

class NeededWorker:
    def _end_of_program(self, reason):
        raise errors.WentBack("the run has gone back")

worker = NeededWorker()
_exit.prepare()
_exit.watch(worker)
print("trained")
"""


class WentBackAtEndTest(unittest.TestCase):
    def test_a_program_whose_run_goes_back_as_it_ends_has_failed(self):
        code, output, complaints = fixture.run_script(_NEEDED_SCRIPT)
        self.assertEqual((code, output), (1, "trained\n"))
        self.assertIn("the run has gone back", complaints)


if __name__ == "__main__":
    unittest.main()
