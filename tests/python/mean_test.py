"""Means and barriers over the workers, beside the training, and when processes are killed."""

import os
import re
import signal
import tempfile
import time
import unittest

from tests.python import fixture
from tests.python.script import outcomes_of, small_training

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard


def _numbers_and_tensors(script):
    _, optimizer, step = small_training(script)
    rank, = script.ranks
    found = []
    for number in range(3):
        step(number)
        found.append(optimizer.mean(10 * number + rank))
        found.append(optimizer.mean(torch.tensor([[rank, 2**24 + 1], [3, 4 * number]])))
        found.append(optimizer.mean(torch.tensor(rank / 3, dtype=torch.float64)))
        found.append(optimizer.mean(torch.full((2,), rank, dtype=torch.float16)))
        optimizer.barrier()
    return found


def _between_backward_and_step(script):
    model, optimizer, step = small_training(script)
    step(0)
    inputs, targets = script.batch(1)
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    mean = optimizer.mean(loss.detach())
    optimizer.step()
    return mean


def _one_is_late(script):
    """The others have begun the iteration that it asks in, or the one before."""
    model, optimizer, _ = small_training(script)
    means = []
    for number in range(4):
        optimizer.zero_grad()
        if script.ranks[0] == number % script.workers:
            time.sleep(0.2)
        inputs, targets = script.batch(number)
        loss = nn.functional.mse_loss(model(inputs), targets)
        if is_empty := script.ranks[0] == 0 and number == 3:
            time.sleep(0.2)  # the others have begun, and this one will not
        else:
            loss.backward()
        means.append(optimizer.mean(loss.detach()))
        if is_empty:
            optimizer.abandon()
        else:
            optimizer.step()
    return means


def _one_asks_where_the_other_steps(script):
    model, optimizer, _ = small_training(script)
    model(script.batch(0)[0]).sum().backward()
    if script.ranks[0] == 0:
        optimizer.mean(1)
    optimizer.step()


def _the_mean_of_a_distributed_optimizer(script):
    model = nn.Linear(6, 5)
    optimizer = evenshard.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model)
    model(script.batch(0)[0]).sum().backward()
    optimizer.step()
    return optimizer.mean(script.ranks[0])


def _one_evaluates(script):
    """For longer than limits.exchange_seconds, which is 15."""
    _, optimizer, step = small_training(script)
    step(0)
    if script.ranks == [0]:
        time.sleep(16)
    optimizer.barrier()
    step(1)
    return optimizer.iteration


def _other_lines(script):
    _, optimizer, step = small_training(script)
    step(0)
    if script.ranks == [0]:
        optimizer.barrier()
    else:
        optimizer.barrier()


def _only_one_asks(script):
    _, optimizer, step = small_training(script)
    step(0)
    if script.ranks == [0]:
        optimizer.mean(1)
    else:
        optimizer.close()


def _in_join(script):
    _, optimizer, step = small_training(script)
    with optimizer.join():
        step(0)
        optimizer.mean(1)


def _too_large(script):
    _, optimizer, step = small_training(script)
    step(0)
    optimizer.mean(torch.zeros(5000))


def _no_number(script):
    _, optimizer, _step = small_training(script)
    optimizer.mean("0.5")


def _a_complex_number(script):
    _, optimizer, _step = small_training(script)
    optimizer.mean(torch.tensor(1j))


_SCHEDULES = ("BACKWARD", "FULL", "SEQUENTIAL")
_REFUSED = [
    (_other_lines, r"a mean of no value at mean_test.py:\d+, and worker \d of no val"),
    (_only_one_asks, "has finished, and takes no part"),
    (_in_join, r"mean\(\) and barrier\(\): in join\(\); allowed: before it"),
    (_too_large, "5000 values; allowed: at most 4096"),
    (_a_complex_number, r"mean\(\): is a Tensor that is no single number .*allowed: a number or"),
    (_no_number, r"mean\(\): is a str, allowed: a number"),
]


@unittest.skipIf(torch is None, "PyTorch is not installed: means")
class MeanTest(unittest.TestCase):
    def values(self, habit, schedule="BACKWARD", workers=2, **more):
        ends = outcomes_of(habit, schedule, workers, **more)
        for end in ends:
            self.assertIsNone(end.error, end.trace)
        return [end.value for end in ends]

    def test_numbers_and_tensors(self):
        for schedule, workers in zip(_SCHEDULES, (1, 2, 4)):
            found = self.values(_numbers_and_tensors, schedule, workers)
            middle = (workers - 1) / 2
            for each in found:
                for number in range(3):
                    one, integers, doubles, halves = each[4 * number:4 * number + 4]
                    self.assertEqual(one, 10 * number + middle)
                    self.assertEqual(integers.dtype, torch.float32)
                    self.assertEqual(
                        integers.tolist(), [[middle, 2.0**24], [3, 4 * number]])
                    self.assertEqual(doubles.dtype, torch.float64)
                    self.assertAlmostEqual(float(doubles), middle / 3, 15)
                    self.assertEqual(halves.dtype, torch.float16)
                    self.assertEqual(halves.tolist(), [middle] * 2)

    def test_between_backward_and_step(self):
        for schedule in _SCHEDULES:
            first, second = self.values(_between_backward_and_step, schedule)
            self.assertEqual(first, second)

    def test_in_a_ring(self):
        for schedule in _SCHEDULES:
            for workers in (2, 3):
                means = self.values(_one_is_late, schedule, workers, scheme="RING")
                self.assertEqual(means, [means[0]] * workers)

    def test_one_that_steps_where_another_asks(self):
        """Neither would come."""
        texts = {
            "RING": r"worker 0 is in a mean\(\) or barrier\(\), and worker 1 has begun iteration 0",
            "STRIPED": r"waits in iteration 0, and worker 0 at mean_test.py:\d+ for its mean\(\)",
        }
        for schedule in _SCHEDULES:
            for scheme, text in texts.items():
                with self.subTest(schedule, scheme=scheme):
                    ends = outcomes_of(_one_asks_where_the_other_steps, schedule, 2, scheme=scheme)
                    self.assertRegex("\n".join(str(end.error) for end in ends), text)

    def test_a_distributed_optimizer_has_it_too(self):
        self.assertEqual(self.values(_the_mean_of_a_distributed_optimizer), [0.5, 0.5])

    def test_an_evaluation_holds_nobody_to_a_deadline(self):
        self.assertEqual(self.values(_one_evaluates), [2, 2])

    def test_what_is_refused(self):
        for habit, text in _REFUSED:
            with self.subTest(habit.__name__):
                ends = outcomes_of(habit, "BACKWARD", 2)
                self.assertRegex("\n".join(str(end.error) for end in ends), text)

    def test_asynchronous_workers_have_no_mean(self):
        ends = outcomes_of(_between_backward_and_step, "BACKWARD", 2, update="policy: ASYNC")
        for end in ends:
            self.assertIn("under ASYNC the workers have no iteration in common", end.error)


_CONFIG = """\
model {{ from_workers {{}} }}
partition {{ scheme: STRIPED }}
shard {{ address: "unix:{folder}/0.sock" }}
shard {{ address: "unix:{folder}/1.sock" }}
shard {{ address: "unix:{folder}/2.sock" }}
workers: 2
update {{ policy: SYNC deterministic: true }}
optimizer {{ kind: SGD learning_rate: 0.05 }}
limits {{ connections: 1 startup_seconds: 60 exchange_seconds: 60 shutdown_seconds: 60 }}
recovery {{ worker_loss: WAIT silence_seconds: 20 replicas: 1 }}
"""

# Asks for five means in each iteration. Each says what it must be.
_SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tests.python import models
import torch
import evenshard
rank, strike = int(os.environ["RANK"]), sys.argv[2]
model = models.make("mlp", seed=1)
optimizer = evenshard.Optimizer(model)
print("begins at", optimizer.iteration, flush=True)
while optimizer.iteration < 60:
    for number in range(5):
        found = optimizer.mean([1, 2][rank] * 1000 * number + optimizer.iteration)
        assert found == 1500 * number + optimizer.iteration, (found, number, optimizer.iteration)
        if rank == 1 and optimizer.iteration == 20 and number == 3 and not os.path.exists(strike):
            print("process", os.getpid(), "waits", flush=True)
            while not os.path.exists(strike):
                pass
    optimizer.zero_grad()
    models.loss_of(model, "mlp", optimizer.iteration, rank).backward()
    optimizer.step()
print("ends with", repr(sum(p.double().sum().item() for p in model.parameters())), flush=True)
"""


@unittest.skipIf(torch is None, "PyTorch is not installed: means when processes are killed")
class MeanRecoveryTest(unittest.TestCase):
    def train(self, strike):
        with tempfile.TemporaryDirectory() as folder:
            path, struck = os.path.join(folder, "run.textproto"), os.path.join(folder, "struck")
            with open(path, "w", encoding="utf-8") as file:
                file.write(_CONFIG.format(folder=folder))

            def strike_once(output):
                waits = re.search(r"process (\d+) waits", output)
                if waits and not os.path.exists(struck):
                    if strike is not None:
                        strike(int(waits[1]), path)
                    with open(struck, "w", encoding="utf-8"):
                        pass

            launch = fixture.launch(path, _SCRIPT, fixture.ROOT, struck)
            code, output = fixture.follow(launch, strike_once)
        self.assertEqual(code, 0, output)
        return output

    def test_a_process_of_slot_0_and_a_worker_that_are_killed_change_no_mean(self):
        def kill_shard_0(_, path):
            fixture.kill_shard(path, 0)

        def kill_worker(process, _):
            os.kill(process, signal.SIGKILL)

        ends = []
        for strike, seen in ((None, "ends with"), (kill_shard_0, "took slot 0 over"),
                             (kill_worker, r"begins at 20")):
            output = self.train(strike)
            self.assertRegex(output, seen)
            ends += re.findall(r"ends with (.*)", output)
        self.assertEqual(len(ends), 6)
        self.assertEqual(len(set(ends)), 1)


if __name__ == "__main__":
    unittest.main()
