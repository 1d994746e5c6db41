"""Models that torch.compile compiles, and workers that torchrun starts: with PyTorch 2 only."""

import itertools
import os
import subprocess
import sys
import unittest

from tests.python import fixture
from tests.python.script import outcomes_of, reference_of

torch = fixture.torch
if torch is not None:
    from torch import nn

_STEPS = 4


def _model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 130), nn.Tanh(), nn.Linear(130, 130), nn.Linear(130, 5))


def _train(script, model, forward, optimizer):
    for step in range(_STEPS):
        inputs, targets = script.batch(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(forward(inputs), targets).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def compiled_before_the_optimizer(script):
    model = _model()
    forward = torch.compile(model)
    return _train(script, model, forward, script.optimizer(model))


def compiled_after_the_optimizer(script):
    model = _model()
    optimizer = script.optimizer(model)
    return _train(script, model, torch.compile(model), optimizer)


def the_compiled_module_has_the_optimizer(script):
    model = torch.compile(_model())
    return _train(script, model, model, script.optimizer(model))


def compiled_in_place(script):
    model = _model()
    model.compile()
    return _train(script, model, model, script.optimizer(model))


def a_part_is_compiled(script):
    model = _model()
    model[2] = torch.compile(model[2])
    return _train(script, model, model, script.optimizer(model))


def a_compiled_function_of_the_model(script):
    model = _model()
    optimizer = script.optimizer(model)
    return _train(script, model, torch.compile(lambda inputs: model(inputs)), optimizer)


def run_before_the_optimizer(script):
    model = _model()
    forward = torch.compile(model)
    forward(script.batch(0)[0]).sum().backward()
    return _train(script, model, forward, script.optimizer(model))


# Of these the optimizer is given what is compiled.
_SEEN = [the_compiled_module_has_the_optimizer, compiled_in_place, a_part_is_compiled]
_UNSEEN = [
    compiled_before_the_optimizer,
    compiled_after_the_optimizer,
    a_compiled_function_of_the_model,
    run_before_the_optimizer,
]

_TORCHRUN_SCRIPT = """\
import evenshard, torch
model = torch.nn.Linear(3, 5)
with evenshard.Optimizer(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)) as optimizer:
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    print(f"iterations {optimizer.iteration}\\n", end="")
"""


@unittest.skipUnless(
    torch is not None and hasattr(torch, "compile"), "PyTorch 2 is not installed: torch.compile"
)
class CompileTest(unittest.TestCase):
    def check_right(self, ends, expected):
        for end in ends:
            self.assertIsNone(end.error, end.trace)
            torch.testing.assert_close(end.value, expected, rtol=1e-4, atol=1e-6)

    def check_refused(self, ends):
        self.assertRegex(
            "\n".join(end.error or "no error" for end in ends),
            "torch.compile.*allowed under the schedules BACKWARD and SEQUENTIAL",
        )

    def test_compiled_models_give_what_one_process_gives(self):
        for habit, schedule in itertools.product(_SEEN + _UNSEEN, ("BACKWARD", "SEQUENTIAL")):
            with self.subTest(habit.__name__, schedule=schedule):
                self.check_right(outcomes_of(habit, schedule, 2), reference_of(habit, 2))

    def test_compiled_models_are_refused_under_full(self):
        for habit in _SEEN:
            with self.subTest(habit.__name__):
                self.check_refused(outcomes_of(habit, "FULL", 2))

    def test_what_compiles_a_model_from_outside_is_right_or_refused_under_full(self):
        for habit in _UNSEEN:
            with self.subTest(habit.__name__):
                ends = outcomes_of(habit, "FULL", 2)
                if any(end.error for end in ends):
                    self.check_refused(ends)
                else:
                    self.check_right(ends, reference_of(habit, 2))

    def test_workers_that_torchrun_starts(self):
        with fixture.Cluster(2, rule="", schedule="BACKWARD", workers=2) as cluster:
            script = os.path.join(cluster.folder, "train.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write(_TORCHRUN_SCRIPT)
            done = subprocess.run(
                # A rendezvous by a file, since the sockets of Debian's PyTorch lack a library.
                [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2",
                 "--rdzv_backend=c10d", "--rdzv_conf=store_type=file",
                 f"--rdzv_endpoint={cluster.folder}/rendezvous", script],
                env={**os.environ, "PYTHONPATH": fixture.PACKAGE, "EVENSHARD_CONFIG": cluster.path,
                     "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, timeout=fixture.PATIENCE_SECONDS, check=False,
            )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("iterations 3"), 2, done.stdout)


if __name__ == "__main__":
    unittest.main()
