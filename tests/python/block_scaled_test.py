"""Gradients in INT8, INT4 and E3M0: a training comes to nearly the same, what must be exact is, and
the library refuses what makes no sense."""

import unittest

from tests.python import fixture

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard
    from tests.python import models

_STEPS = 30
_EXCHANGES = [
    "gradient_encoding: INT8",
    "gradient_encoding: INT4 error_feedback: true",
    "gradient_encoding: E3M0 error_feedback: true gradient_rounding: STOCHASTIC",
]


def _make(dtype):
    torch.manual_seed(1)
    return models.mlp().to(dtype)


def _loss_of(model, step, rank):
    inputs, targets = models.batch("mlp", step, rank)
    dtype = next(model.parameters()).dtype
    return nn.functional.cross_entropy(model(inputs.to(dtype)).float(), targets)


def _sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def _mean_loss(model):
    with torch.no_grad():
        return sum(_loss_of(model, step, rank).item() for step in range(8) for rank in (0, 1)) / 16


def _train(rank, dtype):
    model = _make(dtype)
    if rank == 1:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()  # rank 0's count
    with evenshard.Optimizer(model, optimizer=_sgd(model.parameters())) as optimizer:
        initial = {name: value.clone() for name, value in models.state(model).items()}
        while optimizer.iteration < _STEPS:
            optimizer.zero_grad()
            _loss_of(model, optimizer.iteration, rank).backward()
            optimizer.step()
        optimizer.synchronize()
        return initial, models.state(model), _mean_loss(model)


def _reference(dtype):
    """The loss of one process that trains with the mean gradient, in float32."""
    model = _make(dtype).float()
    optimizer = _sgd(model.parameters())
    first = _mean_loss(model)
    for step in range(_STEPS):
        optimizer.zero_grad()
        ((_loss_of(model, step, 0) + _loss_of(model, step, 1)) / 2).backward()
        optimizer.step()
    return first, _mean_loss(model)


def _refusal(config, override):
    try:
        evenshard.Worker(config, {"w": torch.zeros(3)}, rank=0, overrides=[override])
    except evenshard.InvalidArgument as error:
        return str(error)
    return "nothing"


@unittest.skipIf(torch is None, "PyTorch is not installed: gradients in fewer bits")
class BlockScaledTest(unittest.TestCase):
    def run_workers(self, function, *arguments, **settings):
        with fixture.Cluster(2, workers=2, **settings) as cluster:
            return fixture.run_workers(self, cluster, function, *arguments, workers=2)

    def test_a_training_comes_to_nearly_the_loss_of_one_process(self):
        for exchange in _EXCHANGES:
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(exchange, dtype=dtype):
                    found = self.run_workers(_train, dtype, rule="", exchange=exchange)
                    begun = models.state(_make(dtype))
                    for initial, trained, _ in found:
                        for name, value in begun.items():
                            self.assertTrue(torch.equal(initial[name], value), name)
                            self.assertTrue(torch.equal(trained[name], found[0][1][name]), name)
                    first, expected = fixture.apart(_reference, dtype)
                    self.assertLess(expected, 0.9 * first)
                    self.assertLess(abs(found[0][2] - expected), 0.05 * (first - expected))

    def test_running_statistics_stay_exact(self):
        def statistics_of(rank):
            model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 5))
            with evenshard.Optimizer(model, optimizer=_sgd(model.parameters())) as optimizer:
                _loss_of(model, 0, rank).backward()
                before = model[1].running_mean.clone()
                optimizer.step()
                optimizer.synchronize()
                return before, model[1].running_mean.clone()

        (own, mean), (other, _) = self.run_workers(
            statistics_of, rule="", schedule="SEQUENTIAL",
            exchange="gradient_encoding: INT4 error_feedback: true",
        )
        torch.testing.assert_close(mean, (own + other) / 2, rtol=1e-6, atol=1e-7)

    def test_the_mean_gradient_of_a_script_own_optimizer(self):
        def gradients_of(rank):
            model = _make(torch.float32)
            optimizer = evenshard.DistributedOptimizer(_sgd(model.parameters()), model)
            with optimizer:
                _loss_of(model, 0, rank).backward()
                own = [p.grad.clone() for p in model.parameters()]
                optimizer.step()
                return own, [p.grad.clone() for p in model.parameters()]

        found = self.run_workers(
            gradients_of, rule="", schedule="BACKWARD",
            exchange="gradient_encoding: INT8",
        )
        for own, other, mean in zip(found[0][0], found[1][0], found[0][1]):
            largest = max(own.abs().max(), other.abs().max())
            error = (mean - (own + other) / 2).abs().max()
            self.assertLess(error, 0.003969 * largest)
            self.assertGreater(error, 0)

    def test_what_makes_no_sense_is_refused(self):
        config = fixture.config(["localhost:1"], workers=1)
        for override, text in [
            ("exchange.parameter_encoding=INT4",
             "exchange.parameter_encoding: is INT4, allowed: FLOAT32, FLOAT16, BFLOAT16, because "),
            ("exchange.error_feedback=true",
             "exchange.error_feedback: has no effect with FLOAT32, allowed: only with INT8, "),
            ("exchange.gradient_rounding=STOCHASTIC",
             "exchange.gradient_rounding: has no effect with FLOAT32, allowed: only with INT8, "),
        ]:
            with self.subTest(override):
                self.assertIn(text, fixture.apart(_refusal, config, override))


if __name__ == "__main__":
    unittest.main()
