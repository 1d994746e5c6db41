"""What else a step of evenshard.Optimizer does: schedulers, mixed precision, saving, waiting."""

import copy
import enum
import inspect
import io
import logging
import unittest
import warnings

from tests.python import fixture

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard
    from tests.python import models


def _gradients(optimizer, model, rank=0, name="mlp"):
    optimizer.zero_grad()
    models.loss_of(model, name, optimizer.iteration, rank).backward()


def _by_attributes(optimizer, found_inf, scale):
    """As GradScaler.step does it."""
    assert optimizer._step_supports_amp_scaling
    assert "grad_scaler" not in inspect.signature(optimizer.step).parameters
    optimizer.grad_scale, optimizer.found_inf = scale, found_inf
    optimizer.step()
    del optimizer.grad_scale, optimizer.found_inf


def _by_an_argument(optimizer, found_inf, scale):
    """As GradScaler.step did it before PyTorch 2.0."""
    stage = enum.Enum("OptState", "READY UNSCALED")["UNSCALED" if scale is None else "READY"]
    found = {torch.device("cpu"): found_inf}

    class Scaler:
        _per_optimizer_states = {
            id(optimizer): {"stage": stage, "found_inf_per_device": found if scale is None else {}}
        }

        def _check_inf_per_device(self, of):
            assert of is optimizer and scale is not None
            return found

        def _get_scale_async(self):
            return scale

    optimizer.step(grad_scaler=Scaler())


@unittest.skipIf(torch is None, "PyTorch is not installed: steps of evenshard.Optimizer")
class StepTest(unittest.TestCase):
    def run_one(self, work, *arguments, **settings):
        """Runs `work(rank)` as the only worker."""
        with fixture.Cluster(2, workers=1, **settings) as cluster:
            return fixture.run_workers(self, cluster, work, *arguments, workers=1)[0]

    def reference(self, steps, **options):
        return models.reference(
            "mlp", lambda m: torch.optim.SGD(m.parameters(), lr=0.1, **options), steps=steps,
            workers=1,
        )

    def check(self, found, expected):
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, msg=key)

    def test_a_closure(self):
        def work(rank):
            model = models.make("mlp")
            with evenshard.Optimizer(model) as optimizer:
                def closure():
                    optimizer.zero_grad()
                    loss = models.loss_of(model, "mlp", optimizer.iteration, rank)
                    loss.backward()
                    return loss

                losses = [float(optimizer.step(closure)) for _ in range(20)]
                return losses, models.state(model)

        for schedule in ("SEQUENTIAL", "FULL"):
            with self.subTest(schedule):
                losses, found = self.run_one(work, schedule=schedule)
                self.assertLess(losses[-1], losses[0])
                self.check(found, self.reference(20))

    def test_a_scale_of_gradients_of_float16_is_refused_where_pytorch_would_divide_them(self):
        def work(rank, local):
            model = models.make("mlp").half()
            own = torch.optim.SGD(model.parameters(), lr=0.1)
            with (
                evenshard.LocalSteps(model, own, steps=2) if local
                else evenshard.DistributedOptimizer(own, model)
            ) as optimizer:
                for parameter in model.parameters():
                    parameter.grad = torch.full_like(parameter, 2.0**-20)
                if not local:
                    optimizer.synchronize()
                try:
                    _by_attributes(optimizer, torch.tensor(0.0), torch.tensor(2.0**16))
                except evenshard.FailedPrecondition as error:
                    said = str(error)
                del optimizer.grad_scale, optimizer.found_inf
                optimizer.step()
                return said

        for local in False, True:
            said = self.run_one(work, local, rule="", schedule="SEQUENTIAL")
            self.assertIn("its gradient is torch.float16, in which what the scale", said)

    @unittest.skipUnless(
        torch and hasattr(torch.optim.Optimizer, "register_load_state_dict_pre_hook"),
        "this PyTorch has no hooks of optimizers",
    )
    def test_hooks_of_the_optimizer(self):
        def work(rank, kind):
            model = models.make("mlp")
            own = torch.optim.SGD(model.parameters(), lr=0.1)
            called = []
            with (
                evenshard.DistributedOptimizer(own, model) if kind == "distributed"
                else evenshard.LocalSteps(model, own, steps=2) if kind == "local"
                else evenshard.Optimizer(model, optimizer=own)
            ) as optimizer:
                for name in ("step_pre", "step_post", "load_state_dict_pre",
                             "load_state_dict_post"):
                    register = getattr(optimizer, f"register_{name}_hook")
                    register(lambda *_, name=name: called.append(name))
                optimizer.load_state_dict(optimizer.state_dict())
                _gradients(optimizer, model)
                optimizer.step()
            return called

        for kind in "distributed", "local", "shards":
            with self.subTest(kind):
                called = self.run_one(work, kind, rule="", schedule="SEQUENTIAL")
                self.assertEqual(called, ["load_state_dict_pre", "load_state_dict_post",
                                          "step_pre", "step_post"])

    def test_the_schedule_of_the_config_counts_until_somebody_changes_the_rates(self):
        def work(rank, changes):
            model = nn.Linear(40, 1, bias=False)
            nn.init.zeros_(model.weight)
            with evenshard.Optimizer(model) as optimizer:
                assert optimizer.param_groups[0]["lr"] == 0.1
                found = []
                for i in range(4):
                    if changes and i == 2:
                        optimizer.param_groups[0]["lr"] = 0.5
                    optimizer.zero_grad()
                    model(torch.ones(1, 40)).sum().backward()
                    optimizer.step()
                    optimizer.synchronize()
                    found.append(round(float(model.weight[0, 39]), 5))
                return found

        rule = "kind: SGD learning_rate: 0.1 schedule { kind: STEP step_iterations: 1 gamma: 0.5 }"
        self.assertEqual(self.run_one(work, False, rule=rule), [-0.1, -0.15, -0.175, -0.1875])
        self.assertEqual(self.run_one(work, True, rule=rule), [-0.1, -0.15, -0.65, -1.15])

    def test_rules_of_the_config_are_groups(self):
        def work(rank):
            model = models.make("mlp")
            with evenshard.Optimizer(model) as optimizer:
                groups = [(g["lr"], len(g["params"])) for g in optimizer.param_groups]
                torch.optim.lr_scheduler.StepLR(optimizer, 1)
                _gradients(optimizer, model)
                optimizer.step()
            return groups

        rule = 'kind: SGD learning_rate: 0.1 rule { tensors: "*.bias" learning_rate: 0.3 }'
        self.assertEqual(self.run_one(work, rule=rule), [(0.1, 2), (0.3, 2)])

    def test_a_scheduler_of_the_optimizer_that_was_given(self):
        def work(rank):
            model = models.make("mlp")
            given = torch.optim.SGD(model.parameters(), lr=0.2)
            scheduler = torch.optim.lr_scheduler.LambdaLR(given, lambda i: 0.5 ** i)
            with evenshard.Optimizer(model, optimizer=given) as optimizer:
                for _ in range(3):
                    _gradients(optimizer, model)
                    optimizer.step()
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")  # as of a scheduler that sees no steps
                        scheduler.step()
                return models.state(model)

        def reference():
            model = models.make("mlp")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
            for iteration in range(3):
                optimizer.param_groups[0]["lr"] = 0.2 * 0.5 ** iteration
                optimizer.zero_grad()
                models.loss_of(model, "mlp", iteration, 0).backward()
                optimizer.step()
            return models.state(model)

        self.check(self.run_one(work, rule=""), fixture.apart(reference))

    def test_mixed_precision(self):
        def work(rank, scaler_step):
            model = models.make("mlp")
            with evenshard.Optimizer(model) as optimizer:
                for i in range(4):
                    optimizer.zero_grad()
                    loss = models.loss_of(model, "mlp", [0, 1, 1, 2][i], rank)
                    scale = None if i == 3 else torch.tensor(1024.0)  # 3: after unscale_()
                    (loss * (float("inf") if i == 1 else 1 if i == 3 else 1024)).backward()
                    scaler_step(optimizer, torch.tensor(float(i == 1)), scale)
                return models.state(model)

        for scaler_step in (_by_attributes, _by_an_argument):
            with self.subTest(scaler_step.__name__):
                self.check(
                    self.run_one(work, scaler_step, schedule="SEQUENTIAL"), self.reference(3)
                )
                with fixture.Cluster(1, workers=1) as cluster:
                    end = fixture.outcomes(
                        fixture.start_workers(cluster, work, scaler_step, workers=1)
                    )[0]
                self.assertEqual(end.kind, "FailedPrecondition")
                self.assertIn("exchange { schedule: SEQUENTIAL }", end.error)

    def test_state_dicts_wait(self):
        def work(rank):
            model = models.make("convolutional")
            with evenshard.Optimizer(model) as optimizer:
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
                for _ in range(5):
                    _gradients(optimizer, model, name="convolutional")
                    optimizer.step()
                    scheduler.step()
                found = {
                    key: value.clone() for key, value in model.state_dict().items()
                    if "num_batches" not in key
                }
                assert not optimizer._exchange._missing
                optimizer.synchronize()
                for key, value in models.state(model).items():
                    assert torch.equal(found[key], value), key
                saved = optimizer.state_dict()
                file = io.BytesIO()
                torch.save(saved, file)
                optimizer.param_groups[0]["lr"] = 7.0
                optimizer.load_state_dict(saved)
                return saved["iteration"], saved["state"], optimizer.param_groups[0]["lr"]

        iteration, state, rate = self.run_one(work)
        self.assertEqual((iteration, state), (5, {}))
        self.assertAlmostEqual(rate, 0.001, 9)

    def test_evaluation_between_steps(self):
        def work(rank):
            model = models.make("convolutional")
            losses = []
            with evenshard.Optimizer(model) as optimizer:
                for _ in range(5):
                    _gradients(optimizer, model, name="convolutional")
                    optimizer.step()
                    model.eval()
                    with torch.no_grad():
                        losses.append(float(models.loss_of(model, "convolutional", 0, 3)))
                    model.train()
            return losses

        def reference():
            model = models.make("convolutional")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            losses = []
            for iteration in range(5):
                optimizer.zero_grad()
                models.loss_of(model, "convolutional", iteration, 0).backward()
                optimizer.step()
                model.eval()
                with torch.no_grad():
                    losses.append(float(models.loss_of(model, "convolutional", 0, 3)))
                model.train()
            return losses

        expected = fixture.apart(reference)
        for schedule in ("FULL", "BACKWARD"):
            with self.subTest(schedule):
                found = self.run_one(work, schedule=schedule)
                torch.testing.assert_close(torch.tensor(found), torch.tensor(expected))

    def test_a_copy_of_the_model_is_its_own(self):
        def work(rank):
            model = models.make("mlp")
            with evenshard.Optimizer(model) as optimizer:
                copied = copy.deepcopy(model)
                first = models.state(copied)
                for _ in range(3):
                    _gradients(optimizer, model)
                    optimizer.step()
                models.loss_of(copied, "mlp", 0, 0).backward()
                return first, models.state(copied)

        first, last = self.run_one(work)
        for key, value in first.items():
            self.assertTrue(torch.equal(value, last[key]))

    def test_a_value_that_is_needed_until_the_end_of_the_backward_pass(self):
        class Model(nn.Module):
            def __init__(self, width):
                super().__init__()
                torch.manual_seed(1)
                self.first = nn.Linear(3, width)
                self.last = nn.Linear(width, width, bias=False)

            def forward(self, x):
                x = self.first(x)
                # Needs the value of last.weight in the backward pass, and gives it no gradient.
                x = x @ self.last.weight.detach()
                return self.last(x)

        def steps(model, optimizer):
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(2, 3)).sum().backward()
                optimizer.step()
            return model.state_dict()

        def work(rank, width):
            model = Model(width)
            with evenshard.Optimizer(model) as optimizer:
                return {key: value.clone() for key, value in steps(model, optimizer).items()}

        def reference(width):
            model = Model(width)
            return steps(model, torch.optim.SGD(model.parameters(), lr=0.1))

        for schedule, width in (("FULL", 130), ("BACKWARD", 130), ("SEQUENTIAL", 130), ("FULL", 3)):
            with self.subTest(schedule, width=width):
                found = self.run_one(work, width, schedule=schedule)
                self.check(found, fixture.apart(reference, width))

    def test_a_graph_of_before_the_step_is_stale(self):
        def work(rank):
            model = models.make("mlp")
            with evenshard.Optimizer(model) as optimizer:
                loss = models.loss_of(model, "mlp", 0, rank)
                loss.backward(retain_graph=True)
                optimizer.step()
                try:
                    loss.backward()
                except RuntimeError as error:
                    optimizer.close()
                    return str(error)

        for schedule in ("FULL", "BACKWARD"):
            with self.subTest(schedule):
                self.assertIn(
                    "modified by an inplace operation", self.run_one(work, schedule=schedule)
                )

    def test_activation_checkpoints(self):
        from torch.utils import checkpoint

        class Model(nn.Sequential):
            def forward(self, x):
                for layer in self:
                    x = checkpoint.checkpoint(layer, x, use_reentrant=False)
                return x

        def work(rank):
            model = Model(*models.make("mlp"))
            with evenshard.Optimizer(model) as optimizer:
                for _ in range(5):
                    _gradients(optimizer, model)
                    optimizer.step()
                return models.state(model)

        self.check(self.run_one(work), self.reference(5))

    def test_sparse_gradients_are_refused(self):
        def work(rank):
            model = nn.Embedding(4, 2, sparse=True)
            with evenshard.Optimizer(model) as optimizer:
                model(torch.tensor([1])).sum().backward()
                optimizer.step()

        with fixture.Cluster(1, workers=1) as cluster:
            end = fixture.outcomes(fixture.start_workers(cluster, work, workers=1))[0]
        self.assertEqual(end.kind, "TensorError")
        self.assertIn("weight: its gradient is of layout torch.sparse_coo", end.error)

    def test_skipped_steps_are_logged(self):
        def work(rank):
            messages = []

            class Handler(logging.Handler):
                def emit(self, record):
                    messages.append(record.getMessage())

            logging.getLogger("evenshard").addHandler(Handler())
            model = models.make("mlp")
            with evenshard.Optimizer(model) as optimizer:
                for i in range(8):
                    optimizer.zero_grad()
                    loss = models.loss_of(model, "mlp", i, rank)
                    (loss * (float("nan") if i < 3 else 1)).backward()
                    optimizer.step()
            return messages

        messages = self.run_one(
            work, update="policy: SYNC non_finite: SKIP", schedule="SEQUENTIAL"
        )
        self.assertEqual(len(messages), 2)
        self.assertIn("at iteration 1, 2x by now", messages[1])

    def test_what_the_encoding_overflows_is_skipped(self):
        def work(rank):
            model = models.make("mlp")
            norm = torch.nn.BatchNorm1d(1)
            whole = torch.nn.ModuleList([model, norm])
            with evenshard.Optimizer(whole) as optimizer:
                for i in range(4):
                    optimizer.zero_grad()
                    seen = torch.tensor([[1.0], [float("inf") if i == 2 else 2.0]])
                    loss = models.loss_of(model, "mlp", i, rank)
                    if i == 1:
                        loss = loss + 70000 * sum(p.sum() for p in model.parameters())
                    loss.backward()
                    norm(seen).detach()
                    optimizer.step()
                return optimizer.skipped, bool(torch.isfinite(norm.running_mean))

        skipped, is_finite = self.run_one(
            work, update="policy: SYNC non_finite: SKIP", schedule="SEQUENTIAL",
            exchange="gradient_encoding: FLOAT16",
        )
        self.assertEqual(skipped, 2)
        self.assertTrue(is_finite)


if __name__ == "__main__":
    unittest.main()
