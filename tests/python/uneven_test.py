"""Batches that are given up, and workers whose data ends at different times, against one process
that computes what each iteration is to give."""

import contextlib
import itertools
import unittest
import warnings

from tests.python import fixture
from tests.python.script import Script, outcomes_of

torch = fixture.torch
if torch is not None:
    from torch import nn

_SCHEDULES = ("BACKWARD", "FULL", "SEQUENTIAL")
_WIDE = 130  # a square of so many is pushed at once
_RATE = 0.1


class _Fails(torch.autograd.Function if torch is not None else object):
    """Nothing in the forward pass; the backward pass fails."""

    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(*_):
        raise ValueError("no memory")


class _Model(nn.Module if torch is not None else object):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(6, _WIDE)
        self.middle = nn.Linear(_WIDE, _WIDE)
        self.norm = nn.BatchNorm1d(_WIDE)
        self.last = nn.Linear(_WIDE, 5)

    def forward(self, x, fails=False):
        x = torch.tanh(self.first(x))
        x = _Fails.apply(x) if fails else x
        return self.last(torch.tanh(self.norm(self.middle(x))))


def _loss(model, rank, step, fails=False):
    inputs, targets = Script(rank, 4).batch(step)
    return nn.functional.mse_loss(model(inputs, fails), targets)


class _Reference:
    """The workers of a run in one process: each parameter's update is by the sum of gradients over
    a divisor of its own, and each running statistic is the mean over those that had a batch."""

    def __init__(self, rule=None):
        self.model = _Model()
        self.optimizer = (rule or _sgd)(self.model.parameters())

    def step(self, batches, divisors):
        """`batches`: (rank, the numbers of its parts, counts). Of each only the gradients count of
        which `counts(name)` says so."""
        sums, statistics = {}, []
        before = {k: v.clone() for k, v in self.model.state_dict().items()}
        for rank, parts, counts in batches:
            self.model.load_state_dict(before)
            self.model.zero_grad(set_to_none=True)
            for number in parts:
                (_loss(self.model, rank, number) / len(parts)).backward()
            for name, p in self.model.named_parameters():
                if counts(name):
                    sums[name] = sums.get(name, 0) + p.grad
            if counts("norm.running_mean"):
                statistics.append({k: v.clone() for k, v in self.model.state_dict().items()
                                   if "running" in k})
        self.model.load_state_dict(before)
        for name, p in self.model.named_parameters():
            p.grad = sums[name] / divisors(name) if name in sums else None
        self.optimizer.step()
        for name, value in self.model.state_dict().items():
            if statistics and "running" in name:
                value.copy_(sum(each[name] for each in statistics) / len(statistics))

    def values(self):
        return _values(self.model)


def _values(model):
    """Without what follows rank 0 alone."""
    return {k: v.clone() for k, v in model.state_dict().items() if "batches" not in k}


def _sgd(parameters):
    return torch.optim.SGD(parameters, lr=_RATE, momentum=0.9, weight_decay=0.01)


def _everything(_):
    return True


_STEPS = 5


def _leaves_before_the_failure(name):
    """The backward pass fails behind these. The large one leaves with those before it."""
    return name.startswith(("last", "norm.weight", "norm.bias", "middle"))


def _gives_up(rank, step):
    return (rank, step) in {(1, 1), (0, 3), (1, 3)} or (step == 2 and rank == 0)


def _giving_up(where):
    """Training in which batches fail `where`: in the "forward" or "backward" pass."""
    def train(script):
        model = _Model()
        optimizer = script.optimizer(model, _sgd)
        rank = script.ranks[0]
        for step in range(_STEPS):
            try:
                fails = _gives_up(rank, step)
                if fails and where == "forward":
                    raise ValueError("no memory")
                _loss(model, rank, step, fails).backward()
                optimizer.step()
                optimizer.zero_grad()
            except ValueError as error:
                assert "no memory" in str(error)
                optimizer.abandon()
                assert all(p.grad is None for p in model.parameters())
            assert optimizer.iteration == step + 1, optimizer.iteration
        optimizer.synchronize()  # under FULL an iteration is counted when all of it has come
        return _values(model), optimizer.statistics().iterations
    return train


def _reference_of_giving_up(workers, has_left):
    reference = _Reference()

    def counts_of(rank, step):
        return has_left if _gives_up(rank, step) else _everything

    for step in range(_STEPS):
        batches = [(rank, [step], counts_of(rank, step)) for rank in range(workers)]

        def divisor(name, batches=batches):
            return sum(counts(name) for _, _, counts in batches)
        reference.step(batches, divisor)
    return reference.values()


def _lengths(workers):
    """Rank 0 is the first to end."""
    return [1 + (3 * rank) % 5 for rank in range(workers)]


def _training_unevenly(script):
    """Two epochs of accumulated batches. All that have data give the batch up in the last step but
    one of the longest, when others have ended."""
    model = _Model()
    optimizer = script.optimizer(model, _sgd)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    rank = script.ranks[0]
    iterations = []
    for epoch in range(2):
        with optimizer.join():
            for step in range(_lengths(script.workers)[rank]):
                for part in range(2):
                    context = optimizer.no_sync() if part == 0 else contextlib.nullcontext()
                    with context:
                        (_loss(model, rank, 100 * epoch + 10 * step + part) / 2).backward()
                    if part == 0 and _is_given_up(script.workers, step):
                        optimizer.abandon()
                        break
                else:
                    optimizer.step()
                    optimizer.zero_grad()
                scheduler.step()
        iterations.append(optimizer.iteration)
        while scheduler.last_epoch < optimizer.iteration:  # it has made fewer steps than others
            scheduler.step()
    optimizer.synchronize()
    return _values(model), iterations, optimizer.statistics().iterations


def _is_given_up(workers, step):
    return step == max(_lengths(workers)) - 2


def _reference_of_uneven_ends(workers):
    """The sum of the gradients that there are, over the number of all workers, as DDP's join()."""
    found = _Reference()
    scheduler = torch.optim.lr_scheduler.StepLR(found.optimizer, 2, gamma=0.5)
    for epoch in range(2):
        for step in range(max(_lengths(workers))):
            number = 100 * epoch + 10 * step
            batches = [(rank, [number, number + 1], _everything) for rank in range(workers)
                       if step < _lengths(workers)[rank]]
            found.step([] if _is_given_up(workers, step) else batches, lambda _: workers)
            scheduler.step()
        if workers > 1:
            scheduler.step()  # of the iteration in which all have ended
    return found.values()


def _a_step_without_a_gradient(script):
    optimizer = script.optimizer(_Model())
    with optimizer.join():
        optimizer.step()


def _an_end_between_backward_and_step(script):
    model = _Model()
    optimizer = script.optimizer(model)
    with optimizer.join():
        _loss(model, 0, 0).backward()


def _an_exception(script):
    model = _Model()
    optimizer = script.optimizer(model)
    with optimizer.join():
        _loss(model, 0, 0).backward()
        optimizer.step()
        raise ValueError("no data")


def _a_schedule_after_a_batch_that_was_given_up(script):
    model = _Model()
    optimizer = script.optimizer(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(3):
            if step == 0:
                optimizer.abandon()
            else:
                _loss(model, script.ranks[0], step).backward()
                optimizer.step()
            scheduler.step()


def _steps_of_its_own(script):
    """Under ASYNC nobody waits."""
    model = _Model()
    optimizer = script.optimizer(model)
    with optimizer.join():
        for step in range(script.ranks[0] + 1):
            optimizer.zero_grad()
            _loss(model, 0, step).backward()
            optimizer.step()
    return optimizer.iteration


@unittest.skipIf(torch is None, "PyTorch is not installed: batches that are given up")
class AbandonTest(unittest.TestCase):
    def check(self, where, schedule, workers, has_left):
        with self.subTest(where, schedule=schedule, workers=workers):
            expected = fixture.apart(_reference_of_giving_up, workers, has_left)
            for end in outcomes_of(_giving_up(where), schedule, workers):
                self.assertIsNone(end.error, end.trace)
                values, iterations = end.value
                torch.testing.assert_close(values, expected, rtol=1e-3, atol=1e-5)
                self.assertEqual(iterations, _STEPS)

    def test_before_anything_has_left(self):
        for schedule in _SCHEDULES:
            self.check("forward", schedule, 2, lambda name: False)
            self.check("forward", schedule, 4, lambda name: False)
        self.check("backward", "SEQUENTIAL", 2, lambda name: False)

    def test_what_has_left_counts(self):
        for schedule in ("BACKWARD", "FULL"):
            for workers in (1, 2, 4):
                self.check("backward", schedule, workers, _leaves_before_the_failure)


@unittest.skipIf(torch is None, "PyTorch is not installed: uneven ends")
class JoinTest(unittest.TestCase):
    def test_schedulers_see_a_step_that_was_given_up(self):
        for end in outcomes_of(_a_schedule_after_a_batch_that_was_given_up, "BACKWARD", 2):
            self.assertIsNone(end.error, end.trace)

    def test_what_ddp_computes(self):
        for schedule, workers in itertools.product(_SCHEDULES, (1, 2, 4)):
            with self.subTest(schedule=schedule, workers=workers):
                expected = fixture.apart(_reference_of_uneven_ends, workers)
                # One process needs no empty iteration.
                each = max(_lengths(workers)) + (workers > 1)
                for end in outcomes_of(_training_unevenly, schedule, workers):
                    self.assertIsNone(end.error, end.trace)
                    values, iterations, counted = end.value
                    torch.testing.assert_close(values, expected, rtol=1e-3, atol=1e-5)
                    self.assertEqual(iterations, [each, 2 * each])
                    self.assertEqual(counted, 2 * each)

    def test_what_is_refused(self):
        for habit, schedules, text in [
            (_a_step_without_a_gradient, _SCHEDULES, "no parameter has a gradient"),
            (_an_end_between_backward_and_step, ("BACKWARD", "FULL"), "between backward"),
            (_an_exception, _SCHEDULES, "no data"),
        ]:
            for schedule in schedules:
                with self.subTest(habit.__name__, schedule=schedule):
                    ends = outcomes_of(habit, schedule, 2)
                    self.assertIn(text, "\n".join(end.error for end in ends))

    def test_nobody_waits_under_async(self):
        for end, steps in zip(
            outcomes_of(_steps_of_its_own, "BACKWARD", 2, update="policy: ASYNC"), (1, 2)
        ):
            self.assertIsNone(end.error, end.trace)
            self.assertEqual(end.value, steps)


if __name__ == "__main__":
    unittest.main()
