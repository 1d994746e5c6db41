"""Clipping of the mean gradient: what one process gives with torch.nn.utils, or a refusal."""

import contextlib
import itertools
import logging
import re
import unittest

from tests.python import fixture
from tests.python.script import Script, outcomes_of, reference_of

torch = fixture.torch
if torch is not None:
    from torch import nn

_STEPS = 6
_SCHEDULES = ("BACKWARD", "FULL", "SEQUENTIAL")


def _model():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 130), nn.Tanh(), nn.Linear(130, 130), nn.Linear(130, 5))
    model.branches = nn.ModuleList(nn.Linear(5, 5) for _ in range(4))
    return model


def _clipped(rule=None, **limits):
    """A habit: a training loop that clips. No worker has a gradient of all parameters, and one
    branch is used by nobody."""
    def habit(script):
        model = _model()
        optimizer = script.optimizer(model, rule and rule(), **limits)
        for step in range(_STEPS):
            optimizer.zero_grad(set_to_none=True)
            losses = []
            for rank in script.ranks:
                inputs, targets = Script(rank, 4).batch(step)
                branch = model.branches[(rank + step) % 3]
                losses.append(nn.functional.mse_loss(branch(model[:4](inputs)), targets))
            (sum(losses) / len(losses)).backward()
            script.clip(model, **limits)
            optimizer.step()
        return model.state_dict()
    return habit


def _sgd():
    return lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01)


def _adamw():
    return lambda p: torch.optim.AdamW(p, 0.01, eps=1e-3)


_RIGHT = {
    "by norm": _clipped(clip_grad_norm=0.1),
    "by norm, with momentum and decay": _clipped(_sgd, clip_grad_norm=0.1),
    "by norm, AdamW": _clipped(_adamw, clip_grad_norm=0.1),
    "in some steps": _clipped(clip_grad_norm=0.7),
    "in no step": _clipped(clip_grad_norm=1000.0),
    "to a tiny norm": _clipped(clip_grad_norm=1e-7),
    "by value": _clipped(_sgd, clip_grad_value=0.01),
    "by norm, and then by value": _clipped(_sgd, clip_grad_norm=0.5, clip_grad_value=0.01),
}


def _of_rank(limits_of_rank):
    def habit(script):
        model = _model()
        optimizer = script.optimizer(model, None, **limits_of_rank(script.ranks[0]))
        model[:4](script.batch(0)[0]).sum().backward()
        optimizer.step()
    return habit


def _with_a_gradient_of(value):
    def habit(script):
        model = _model()
        optimizer = script.optimizer(model, None, clip_grad_norm=1.0)
        (model[:4](script.batch(0)[0]).sum() * value).backward()
        optimizer.step()
    return habit


@unittest.skipIf(torch is None, "PyTorch is not installed: clipping")
class ClippingTest(unittest.TestCase):
    def test_clipping_is_that_of_one_process(self):
        sizes = itertools.cycle((2, 1, 4))
        schedules = itertools.cycle(_SCHEDULES)
        for name, habit in _RIGHT.items():
            for workers, schedule in zip(sizes, (next(schedules), next(schedules))):
                with self.subTest(name, workers=workers, schedule=schedule):
                    expected = reference_of(habit, workers)
                    for end in outcomes_of(habit, schedule, workers):
                        self.assertIsNone(end.error, end.trace)
                        torch.testing.assert_close(end.value, expected, rtol=1e-4, atol=1e-6)

    def test_every_placement_gives_the_same_bits(self):
        habit = _RIGHT["by norm, AdamW"]
        first = None
        for schedule, scheme, shards in (
            ("BACKWARD", "STRIPED", 2),
            ("FULL", "MEMORY_BASED", 3),
            ("SEQUENTIAL", "LAYER_BASED", 4),
            ("BACKWARD", "LAYER_BASED", 1),
        ):
            with self.subTest(schedule=schedule, scheme=scheme, shards=shards):
                for end in outcomes_of(habit, schedule, 3, shards=shards, scheme=scheme):
                    self.assertIsNone(end.error, end.trace)
                    first = first or end.value
                    for name, value in end.value.items():
                        self.assertTrue(torch.equal(value, first[name]), name)

    def check_refused(self, habit, text, workers=2, **settings):
        settings = {"rule": "", "schedule": "BACKWARD", "workers": workers, **settings}
        with fixture.Cluster(2, exchange_seconds=15, startup_seconds=20, **settings) as cluster:
            ends = fixture.outcomes(
                fixture.start_workers(
                    cluster, lambda rank: habit(Script(rank, workers)), workers=workers
                )
            )
        self.assertNotIn("Timeout", {end.kind for end in ends})
        self.assertRegex("\n".join(str(end.error) for end in ends), text)

    def test_what_is_refused(self):
        self.check_refused(
            _of_rank(lambda rank: {"clip_grad_norm": 1.0 + rank}),
            r"update.clip_global_norm.*2.*1|update.clip_global_norm.*1.*2",
        )
        self.check_refused(
            _of_rank(lambda rank: {"clip_grad_norm": 1.0}),
            "update.clip_global_norm: is given, and the worker brings one too, allowed: one",
            update="policy: SYNC clip_global_norm: 2",
        )
        self.check_refused(
            _of_rank(lambda rank: {"clip_grad_norm": 1.0}),
            "allowed: 0 with ASYNC or SSP and model.from_workers: .* SEQUENTIAL",
            update="policy: ASYNC",
        )
        for limit in (0, -1.0, float("nan"), float("inf"), 1e-50, "1.0", [1.0]):
            for option in ("clip_grad_norm", "clip_grad_value"):
                self.check_refused(
                    _of_rank(lambda rank: {option: limit}),
                    f"{option}: is {re.escape(repr(limit))}, allowed: a number above 0", workers=1,
                )

    def test_a_limit_does_not_change(self):
        def habit(script):
            optimizer = script.optimizer(_model(), None, clip_grad_norm=1.0)
            self.assertEqual((optimizer.clip_grad_norm, optimizer.clip_grad_value), (1.0, None))
            optimizer.clip_grad_norm = 2.0

        self.check_refused(habit, "clip_grad_norm", workers=1)

    def test_a_gradient_that_is_not_finite_ends_the_run(self):
        self.check_refused(_with_a_gradient_of(float("inf")), "gradient that is not finite")

    def test_clipping_by_the_script_names_the_option(self):
        def habit(script):
            model = _model()
            optimizer = script.optimizer(model)
            model[:4](script.batch(0)[0]).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()

        self.check_refused(
            habit,
            "clip_grad_norm=.*clip the mean of all workers' gradients.*each worker's by itself",
        )

    def test_clipping_by_the_script_is_said_once_where_it_is_allowed(self):
        def in_step(model):
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)

        def in_hooks(model):
            for p in model.parameters():
                p.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))

        def habit(clips, hooks, accumulated=1):
            def steps(script):
                model = _model()
                optimizer = script.optimizer(model)
                hooks(model)
                said = []
                handler = logging.Handler()
                handler.emit = lambda record: said.append(record.getMessage())
                logging.getLogger("evenshard").addHandler(handler)
                for step in range(3):
                    optimizer.zero_grad(set_to_none=step > 1)
                    for part in range(2):
                        stays = part < accumulated
                        with optimizer.no_sync() if stays else contextlib.nullcontext():
                            model[:4](script.batch(step)[0]).sum().backward()
                    clips(model)
                    optimizer.step()
                return said
            return steps

        def nowhere(_):
            pass

        for habits, schedule, workers, texts in (
            ((in_step, nowhere), "SEQUENTIAL", 2, ["clip_grad_norm="]),
            ((in_step, nowhere), "SEQUENTIAL", 1, []),
            ((nowhere, nowhere), "SEQUENTIAL", 2, []),
            ((nowhere, nowhere), "FULL", 2, []),
            ((nowhere, in_hooks), "BACKWARD", 2, ["clip_grad_value="]),
            ((nowhere, in_hooks), "FULL", 1, []),
            ((in_step, in_hooks), "SEQUENTIAL", 2, ["clip_grad_value=", "clip_grad_norm="]),
            ((in_step, nowhere, 2), "BACKWARD", 2, ["clip_grad_norm="]),
            ((in_step, nowhere, 2), "FULL", 2, ["clip_grad_norm="]),
            ((nowhere, nowhere, 2), "BACKWARD", 2, []),
        ):
            for end in outcomes_of(habit(*habits), schedule, workers):
                self.assertIsNone(end.error, end.trace)
                self.assertEqual(len(end.value), len(texts), end.value)
                for text, expected in zip(end.value, texts):
                    self.assertIn(expected, text)

    def test_a_config_that_clips(self):
        limits = {"clip_grad_norm": 0.1, "clip_grad_value": 0.02}

        def habit(script):
            model = _model()
            optimizer = script.optimizer(model)  # of the config, in a run
            for step in range(3):
                optimizer.zero_grad(set_to_none=True)
                inputs, targets = script.batch(step)
                nn.functional.mse_loss(model[:4](inputs), targets).backward()
                script.clip(model, **limits)
                optimizer.step()
            return {name: value.clone() for name, value in model.state_dict().items()}

        expected = fixture.apart(lambda: habit(Script(None, 2)))
        update = "policy: SYNC clip_global_norm: 0.1 clip_value: 0.02"
        with fixture.Cluster(2, rule="", workers=2, update=update) as cluster:
            for found in fixture.run_workers(
                self, cluster, lambda rank: habit(Script(rank, 2)), workers=2
            ):
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
