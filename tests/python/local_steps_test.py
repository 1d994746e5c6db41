"""evenshard.LocalSteps against DiLoCo in one process, and what of a script it refuses."""

import unittest

from tests.python import fixture
from tests.python.script import outcomes_of

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard

_WORKERS = 3
_LOCAL = {"update": "policy: SYNC deterministic: true"}


def _model():
    torch.manual_seed(5)
    # A bias before the norm would have gradients of rounding alone, which AdamW makes large.
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))


def _inner(model):
    return torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)


def _backward(model, batch):
    inputs, targets = batch
    nn.functional.mse_loss(model(inputs), targets).backward()


def _batch(rank, step):
    draw = fixture.generator(100 * step + rank)
    return torch.randn(4, 6, generator=draw), torch.randn(4, 5, generator=draw)


def _trains(steps, length, **options):
    """A script with rounds of `steps` steps. Returns its values at the end."""
    def habit(script):
        rank = script.ranks[0]
        model = _model()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(rank)  # rank 0's count
        inner = _inner(model)
        optimizer = evenshard.LocalSteps(model, inner, steps=steps, **options)
        scheduler = torch.optim.lr_scheduler.StepLR(inner, 2, 0.9)
        for step in range(optimizer.iteration, length):
            optimizer.zero_grad()
            _backward(model, _batch(rank, step))
            optimizer.step()
            scheduler.step()
        optimizer.close()
        return model.state_dict(), optimizer.iteration
    return habit


def _reference(steps, length, outer):
    """DiLoCo (Douillard et al. 2023, algorithm 1), with all workers in one process."""
    shared = _model()
    workers = [_model() for _ in range(_WORKERS)]
    inner = [_inner(model) for model in workers]
    schedulers = [torch.optim.lr_scheduler.StepLR(each, 2, 0.9) for each in inner]
    outer = outer(shared.parameters())
    for step in range(length):
        for rank, model in enumerate(workers):
            inner[rank].zero_grad()
            _backward(model, _batch(rank, step))
            inner[rank].step()
            schedulers[rank].step()
        if (step + 1) % steps and step + 1 < length:
            continue
        with torch.no_grad():
            for i, parameter in enumerate(shared.parameters()):
                own = [list(model.parameters())[i] for model in workers]
                parameter.grad = torch.stack([parameter - each for each in own]).mean(0)
            outer.step()
            for name, value in shared.state_dict().items():
                own = [model.state_dict()[name] for model in workers]
                if "running" in name:
                    value.copy_(torch.stack(own).mean(0))
                elif "num_batches" in name:
                    value.copy_(own[0])
            for model in workers:
                model.load_state_dict(shared.state_dict())
    return shared.state_dict()


_BAD_END = """
import os, torch, evenshard
model = torch.nn.Linear(3, 2)
optimizer = evenshard.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=4)
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    if os.environ["RANK"] == "1" and step == 5:
        model.weight.grad.fill_(float("nan"))
    optimizer.step()
"""


def _refusals(calls):
    """Makes LocalSteps wrongly, and returns what it says."""
    def habit(script):
        said = []
        for call in calls:
            try:
                call(_model())
            except evenshard.Error as error:
                said.append(str(error))
        # The run ends in order.
        model = _model()
        optimizer = evenshard.LocalSteps(model, _inner(model), steps=1)
        _backward(model, _batch(0, 0))
        optimizer.step()
        optimizer.close()
        return said
    return habit


@unittest.skipIf(torch is None, "PyTorch is not installed: local steps")
class LocalStepsTest(unittest.TestCase):
    def _values(self, habit, schedule="BACKWARD", **more):
        ends = outcomes_of(habit, schedule, _WORKERS, **{**_LOCAL, **more})
        for end in ends:
            self.assertIsNone(end.error, end.trace)
        return [end.value for end in ends]

    def _assert_close(self, values, expected):
        for name, value in expected.items():
            torch.testing.assert_close(values[name], value, rtol=1e-4, atol=1e-5, msg=name)

    def test_rounds_are_those_of_diloco(self):
        outer = lambda parameters: torch.optim.SGD(  # noqa: E731
            parameters, lr=0.6, momentum=0.9, nesterov=True
        )
        # The last round is a shorter one, which close() exchanges.
        expected = fixture.apart(_reference, 4, 14, outer)
        for schedule in ("BACKWARD", "SEQUENTIAL"):
            with self.subTest(schedule):
                values = self._values(_trains(4, 14), schedule)
                for state, iteration in values:
                    self._assert_close(state, expected)
                    self.assertEqual(iteration, 16)
                self.assertTrue(all(
                    torch.equal(value, values[0][0][name])
                    for state, _ in values for name, value in state.items()
                ))

    def test_the_outer_optimizer_is_given(self):
        outer = lambda parameters: torch.optim.SGD(parameters, lr=1)  # noqa: E731
        values = self._values(_trains(3, 6, outer_learning_rate=1, outer_momentum=0))
        self._assert_close(values[0][0], fixture.apart(_reference, 3, 6, outer))

    def test_asynchronous_workers_train(self):
        for update in ("policy: ASYNC", "policy: SSP staleness: 1"):
            with self.subTest(update):
                values = self._values(_trains(3, 12, outer_learning_rate=0.5), update=update)
                for state, _ in values:
                    self.assertTrue(all(value.isfinite().all() for value in state.values()))

    def test_running_statistics_of_asynchronous_workers(self):
        # After so many steps a worker's are its batches' and nothing of what they were.
        def habit(script):
            model = _model()
            inner = torch.optim.SGD(model.parameters(), lr=1e-6)
            optimizer = evenshard.LocalSteps(model, inner, steps=60)
            for step in range(60 * 8):
                optimizer.zero_grad()
                _backward(model, _batch(script.ranks[0], step))
                optimizer.step()
            optimizer.close()
            with torch.no_grad():
                inputs = torch.cat([_batch(0, step)[0] for step in range(99)])
                return model.state_dict(), model[0](inputs).var(0)
        for update in ("policy: ASYNC", "policy: SSP staleness: 1"):
            for state, variance in self._values(habit, update=update):
                ratio = state["1.running_var"] / variance
                self.assertTrue(((ratio > 0.6) & (ratio < 1.6)).all(), ratio)
                self.assertLess(state["1.running_mean"].abs().max(), 0.6)

    def test_a_round_ends_after_seconds(self):
        def habit(script):
            model = _model()
            optimizer = evenshard.LocalSteps(model, _inner(model), steps=50, seconds=0.001)
            behind = []
            for step in range(4):
                _backward(model, _batch(script.ranks[0], step))
                optimizer.step()
                behind.append(optimizer.iteration)
                while optimizer.iteration % 50:  # it was faster
                    _backward(model, _batch(script.ranks[0], step))
                    optimizer.step()
            return optimizer.iteration
        self.assertEqual(self._values(habit), [200] * _WORKERS)

    def test_a_batch_that_is_given_up_counts_for_nothing(self):
        def habit(script):
            model = nn.Linear(1, 1, bias=False)
            with torch.no_grad():
                model.weight.fill_(1)
            inner = torch.optim.SGD(model.parameters(), lr=1)
            optimizer = evenshard.LocalSteps(
                model, inner, steps=2, outer_learning_rate=1, outer_momentum=0
            )
            rank = script.ranks[0]
            for step in range(2):
                optimizer.zero_grad()
                (model.weight * (rank + 1)).sum().backward()
                if rank == 0 or (rank == 1 and step == 0):
                    optimizer.step()
                else:
                    optimizer.abandon()
            return model.weight.item()
        # Worker 0 has come to -1 by two steps and worker 1 to -1 by one; worker 2 has taken none.
        self.assertEqual(self._values(habit, shards=1), [-1] * _WORKERS)

    def test_what_makes_no_sense_is_refused(self):
        def optimizer(model):
            return torch.optim.SGD(model.parameters(), lr=0.1)

        calls = {
            "steps: is not given, nor does the config have local":
                lambda m: evenshard.LocalSteps(m, optimizer(m)),
            "local.steps: is 0, allowed: at least 1":
                lambda m: evenshard.LocalSteps(m, optimizer(m), steps=0),
            "steps: is 1.5, allowed: a whole number of at least 1":
                lambda m: evenshard.LocalSteps(m, optimizer(m), steps=1.5),
            "outer_learning_rate: is 'fast', allowed: a number":
                lambda m: evenshard.LocalSteps(
                    m, optimizer(m), steps=2, outer_learning_rate="fast"
                ),
            "local: is given, and evenshard.Optimizer exchanges in each step; allowed:":
                lambda m: evenshard.Optimizer(m, overrides=["local={steps: 2}"]),
            "update.non_finite: is SKIP, and LocalSteps leaves no step out":
                lambda m: evenshard.LocalSteps(
                    m, optimizer(m), steps=2,
                    overrides=["update.non_finite=SKIP", "exchange.schedule=SEQUENTIAL"],
                ),
            "seconds: is given without steps":
                lambda m: evenshard.LocalSteps(m, optimizer(m), seconds=1),
            "local.seconds: is -1, allowed: 0 to":
                lambda m: evenshard.LocalSteps(m, optimizer(m), steps=2, seconds=-1),
            "optimizer.learning_rate: is 0.001, allowed: 0.02 to 2 with local steps":
                lambda m: evenshard.LocalSteps(
                    m, optimizer(m), steps=2, outer_learning_rate=0.001
                ),
            "optimizer: is a Sequential, allowed: an optimizer of torch.optim":
                lambda m: evenshard.LocalSteps(optimizer(m), m, steps=2),
            "exchange.schedule: is FULL":
                lambda m: evenshard.LocalSteps(
                    m, optimizer(m), steps=2, overrides=["exchange.schedule=FULL"]
                ),
        }
        for said in self._values(_refusals(calls.values())):
            self.assertEqual(len(said), len(calls), said)
            for expected, text in zip(calls, said):
                self.assertIn(expected, text)

    def test_the_outer_momentum_is_given(self):
        outer = lambda parameters: torch.optim.SGD(  # noqa: E731
            parameters, lr=0.6, momentum=0.5, nesterov=True
        )
        values = self._values(_trains(3, 6, outer_momentum=0.5))
        self._assert_close(values[0][0], fixture.apart(_reference, 3, 6, outer))

    def test_a_failed_exchange_ends_the_training(self):
        def habit(script):
            """Worker 1 fails, and worker 0 gives its batch up as if it had been its own fault."""
            model = _model()
            optimizer = evenshard.LocalSteps(model, _inner(model), steps=2)
            said = []
            for step in range(6):
                if script.ranks[0] == 1 and step == 3:
                    raise ValueError("a bad batch")
                _backward(model, _batch(script.ranks[0], step))
                try:
                    optimizer.step()
                except evenshard.Error as error:
                    said.append(str(error))
            return said
        ends = outcomes_of(habit, "BACKWARD", 2, **_LOCAL)
        self.assertIn("a bad batch", ends[1].error)
        first, *others = ends[0].value
        self.assertIn("worker 1 gave up", first)
        self.assertTrue(others)
        for text in others:
            self.assertIn("the exchange has failed: ", text)

    def test_a_first_batch_of_a_round_that_is_given_up_before_backward(self):
        def habit(script):
            model = _model()
            optimizer = evenshard.LocalSteps(model, _inner(model), steps=2)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
            optimizer.register_state("scheduler", scheduler)
            for step in range(6):
                if script.ranks[0] == 1 and step == 2:
                    optimizer.abandon()
                else:
                    _backward(model, _batch(script.ranks[0], step))
                    optimizer.step()
                scheduler.step()
            return optimizer.iteration
        self.assertEqual(self._values(habit), [6] * _WORKERS)

    def test_a_last_round_that_fails_fails_the_program(self):
        def work(rank):
            return fixture.run_script(_BAD_END)

        with fixture.Cluster(1, workers=2, rule="", schedule="BACKWARD", **_LOCAL) as cluster:
            ends = fixture.run_workers(self, cluster, work, workers=2)
        self.assertEqual([end[0] for end in ends], [1, 1], ends)
        for end in ends:
            self.assertIn("that is not finite", end[2])
        # Worker 0 may hear of it while it waits for the round before.
        self.assertNotIn("Traceback", ends[1][2])

    def test_what_belongs_to_each_iteration_is_refused(self):
        def habit(script):
            model = _model()
            optimizer = evenshard.LocalSteps(model, _inner(model), steps=2)
            said = []
            for call in (optimizer.join, optimizer._given.step,
                         lambda: optimizer.add_param_group({"params": []})):
                try:
                    call()
                except evenshard.Error as error:
                    said.append(str(error))
            for step in range(2):
                _backward(model, _batch(0, step))
                optimizer.step()
            optimizer.close()
            for call in optimizer.step, optimizer.abandon:
                try:
                    call()
                except evenshard.Error as error:
                    said.append(str(error))
            return said
        for said in self._values(habit):
            self.assertEqual(said[3:], ["the worker is closed"] * 2)
            self.assertIn("join(): with local steps all workers take the same number", said[0])
            self.assertIn("was handed over to evenshard.LocalSteps", said[1])
            self.assertIn("all groups before evenshard.LocalSteps is made", said[2])

    def test_values_that_were_not_trained_are_refused(self):
        def fill(model):
            with torch.no_grad():
                model[0].weight.fill_(1)

        def load(model):
            model.load_state_dict({name: torch.ones_like(value)
                                   for name, value in model.state_dict().items()})

        def load_a_part(model):
            model[3].load_state_dict(nn.Linear(8, 5).state_dict())

        def habit(change, when):
            def steps(script):
                model = _model()
                optimizer = evenshard.LocalSteps(model, _inner(model), steps=2)
                for step in range(4):
                    if step == when:
                        change(model)
                    optimizer.zero_grad()
                    _backward(model, _batch(script.ranks[0], step))
                    optimizer.step()
                optimizer.close()
                load(model)
                return float(model[0].weight.mean())
            return steps

        loaded = "load_state_dict: the shards would take what is loaded for something that was"
        for change, when, text in (
            (fill, 0, "0.weight: was changed by the script before the first step, and the shards"),
            (load, 0, loaded), (load, 2, loaded), (load_a_part, 3, loaded),
        ):
            with self.subTest(f"{change.__name__} {when}"):
                for end in outcomes_of(habit(change, when), "BACKWARD", 2, **_LOCAL):
                    self.assertIn(text, end.error or "")
        # Between steps a script changes what it likes, and after the end too.
        for value in self._values(habit(fill, 1)):
            self.assertEqual(value, 1)

    def test_other_parameters_in_the_optimizer_are_refused(self):
        def habit(script):
            model = _model()
            inner = _inner(model)
            optimizer = evenshard.LocalSteps(model, inner, steps=2)
            inner.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3))]})
            _backward(model, _batch(0, 0))
            try:
                optimizer.step()
            except evenshard.FailedPrecondition as error:
                return str(error)
            finally:
                del inner.param_groups[-1]
                optimizer.step()
            return ""
        for said in self._values(habit):
            self.assertIn("param_groups: have other parameters than at the start", said)

    def test_other_numbers_of_steps_are_another_run(self):
        def habit(script):
            model = _model()
            evenshard.LocalSteps(model, _inner(model), steps=2 + script.ranks[0])
        ends = outcomes_of(habit, "BACKWARD", 2, **_LOCAL)
        self.assertTrue(any("local" in str(end.error) for end in ends), ends)


if __name__ == "__main__":
    unittest.main()
