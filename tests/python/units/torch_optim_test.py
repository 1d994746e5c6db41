"""What the shards are told of an optimizer of torch.optim, and of a model."""

import copy
import unittest
import warnings

from tests.python import fixture

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard
    from evenshard import _library
    from evenshard._torch import model as _model
    from evenshard._torch import torch_optim as _torch_optim
    from tests.python import models


def _text(make, model=None):
    model = model or models.mlp()
    return _torch_optim.to_config(make(model.parameters()), _model.tensors_of(model))


@unittest.skipIf(torch is None, "PyTorch is not installed: its optimizers")
class RuleTest(unittest.TestCase):
    def check(self, make, *lines):
        self.assertEqual(_text(make).splitlines(), list(lines))

    def refused(self, make, *parts, model=None):
        with self.assertRaises(evenshard.ConfigError) as caught:
            _text(make, model)
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def test_defaults_are_those_of_pytorch(self):
        optim = torch.optim
        self.check(
            lambda p: optim.SGD(p, lr=0.5), "kind: SGD", "learning_rate: 0.5", "weight_decay: 0.0"
        )
        self.check(
            lambda p: optim.SGD(p, lr=0.5, momentum=0.25, nesterov=True), "kind: NESTEROV",
            "learning_rate: 0.5", "momentum: 0.25", "weight_decay: 0.0",
        )
        betas = ("beta1: 0.9", "beta2: 0.999")
        self.check(
            optim.Adam, "kind: ADAM", "learning_rate: 0.001", "epsilon: 1e-08",
            "weight_decay: 0.0", *betas,
        )
        self.check(
            optim.AdamW, "kind: ADAMW", "learning_rate: 0.001", "epsilon: 1e-08",
            "weight_decay: 0.01", *betas,
        )
        self.check(
            optim.Adagrad, "kind: ADAGRAD", "learning_rate: 0.01", "epsilon: 1e-10",
            "weight_decay: 0.0",
        )
        self.check(
            optim.RMSprop, "kind: RMSPROP", "learning_rate: 0.01", "beta2: 0.99", "epsilon: 1e-08",
            "weight_decay: 0.0",
        )

    def test_options_that_take_another_kind(self):
        optim = torch.optim
        self.check(
            lambda p: optim.RMSprop(p, momentum=0.5, alpha=0.75), "kind: RMSPROP_MOMENTUM",
            "learning_rate: 0.01", "momentum: 0.5", "beta2: 0.75", "epsilon: 1e-08",
            "weight_decay: 0.0",
        )
        for make, kind in ((optim.Adam, "ADAM"), (optim.AdamW, "ADAMW")):
            plain, amsgrad = (
                _text(lambda p: make(p, amsgrad=is_on)).splitlines() for is_on in (False, True)
            )
            self.assertEqual(amsgrad[0], f"kind: {kind}_AMSGRAD")
            self.assertEqual(amsgrad[1:], plain[1:])

    def test_a_step_that_does_more_is_refused(self):
        def replaced(parameters):
            optimizer = torch.optim.SGD(parameters, lr=0.5)
            step = optimizer.step
            optimizer.step = lambda: step()  # pylint: disable=unnecessary-lambda
            return optimizer

        def with_a_hook(parameters):
            optimizer = torch.optim.SGD(parameters, lr=0.5)
            optimizer.register_step_pre_hook(lambda *_: None)
            return optimizer

        def with_a_scheduler(parameters):
            optimizer = torch.optim.SGD(parameters, lr=0.5)
            torch.optim.lr_scheduler.StepLR(optimizer, 2)
            return optimizer

        self.refused(replaced, "its step() has been replaced, or has hooks")
        if hasattr(torch.optim.Optimizer, "register_step_pre_hook"):
            self.refused(with_a_hook, "its step() has been replaced, or has hooks")
        self.check(with_a_scheduler, "kind: SGD", "learning_rate: 0.5", "weight_decay: 0.0")

    def test_groups_become_rules(self):
        model = models.mlp()
        groups = [
            {"params": [model[0].weight, model[2].weight]},
            {"params": [model[0].bias, model[2].bias], "momentum": 0.0, "lr": 0.2},
        ]
        text = _text(lambda _: torch.optim.SGD(groups, lr=0.1, momentum=0.9), model)
        self.assertEqual(
            text.splitlines(),
            ["kind: MOMENTUM", "learning_rate: 0.1", "momentum: 0.9", "weight_decay: 0.0",
             'rule { tensors: "0.bias" tensors: "2.bias" learning_rate: 0.2 momentum: 0.0 }'],
        )
        # What a group without momentum says of Nesterov's means nothing, and of a frozen parameter
        # nobody asks.
        groups[1]["nesterov"] = True
        model[2].bias.requires_grad_(False)
        text = _text(lambda _: torch.optim.SGD(groups, lr=0.1, momentum=0.9), model)
        self.assertEqual(
            [text.splitlines()[i] for i in (0, 4)],
            ["kind: MOMENTUM", 'rule { tensors: "0.bias" learning_rate: 0.2 momentum: 0.0 }'],
        )
        del groups[1]["nesterov"]
        groups[1].update(alpha=0.5)
        text = _text(lambda _: torch.optim.RMSprop(groups, lr=0.1, momentum=0.9), model)
        self.assertEqual(text.splitlines()[0], "kind: RMSPROP_MOMENTUM")
        self.assertIn("learning_rate: 0.2 momentum: 0.0 beta2: 0.5 }", text)

    def test_a_rate_that_a_scheduler_has_changed_already(self):
        def make(parameters):
            optimizer = torch.optim.SGD(parameters, lr=0.25)
            torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 0.0)
            self.assertEqual(optimizer.param_groups[0]["lr"], 0)
            return optimizer

        self.check(make, "kind: SGD", "learning_rate: 0.25", "weight_decay: 0.0")

    def test_options_that_are_not_known(self):
        optim = torch.optim
        place = 'optimizer.param_groups[0]["'
        self.refused(
            lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
            place + 'dampening"]: is 0.5, allowed: 0',
        )
        self.refused(
            lambda p: optim.Adam(p, maximize=True), place + 'maximize"]: is True, allowed: False',
        )
        self.refused(lambda p: optim.Adagrad(p, lr_decay=0.1), place + 'lr_decay"]: is 0.1')
        self.refused(
            lambda p: optim.RMSprop(p, centered=True), place + 'centered"]: is True, allowed: False'
        )
        self.refused(optim.Adamax, "torch.optim.adamax.Adamax, allowed: torch.optim.SGD")

        class Mine(optim.SGD):
            pass

        class Lion(optim.SGD):
            pass

        self.refused(lambda p: Mine(p, lr=0.1), ".Mine, allowed: torch.optim.SGD")
        self.refused(
            lambda p: Lion(p, lr=0.1),
            ".Lion, allowed: torch.optim.SGD", "Lion comes by the config: optimizer { kind: LION",
        )

    def test_groups_that_do_not_fit_together(self):
        model = models.mlp()
        first, rest = model[0].parameters(), model[2].parameters()
        self.refused(
            lambda _: torch.optim.SGD(
                [{"params": first, "nesterov": True}, {"params": rest}], lr=0.1, momentum=0.9
            ),
            "nesterov differs between groups", model=model,
        )
        first, rest = model[0].parameters(), model[2].parameters()
        self.refused(
            lambda _: torch.optim.Adam([{"params": first, "amsgrad": True}, {"params": rest}]),
            "amsgrad differs between groups", model=model,
        )

    def test_parameters_that_differ_from_the_models(self):
        model = models.mlp()
        self.refused(
            lambda _: torch.optim.SGD(model[0].parameters(), lr=0.1),
            "optimizer: lacks 2.weight, 2.bias of the model", model=model,
        )
        self.refused(
            lambda p: torch.optim.SGD([*p, nn.Parameter(torch.ones(7))], lr=0.1),
            '["params"][4]: of shape (7,) is not a parameter of the model', model=model,
        )

        def twice(parameters):
            parameters = [*parameters]
            with warnings.catch_warnings():  # PyTorch's
                warnings.simplefilter("ignore")
                return torch.optim.SGD([*parameters, parameters[2]], lr=0.1)
        self.refused(twice, '["params"]: has 2.weight 2 times, and torch.optim would', model=model)

    def test_names_with_wildcards(self):
        model = nn.Module()
        model.register_parameter("a*", nn.Parameter(torch.ones(2)))
        model.register_parameter('b"', nn.Parameter(torch.ones(2)))
        quoted, starred = list(model.parameters())[::-1]
        self.refused(
            lambda _: torch.optim.SGD([{"params": [quoted]}, {"params": [starred], "lr": 1}],
                                      lr=0.1),
            'the parameter "a*"', model=model,
        )
        text = _text(
            lambda _: torch.optim.SGD([{"params": [starred]}, {"params": [quoted], "lr": 1}],
                                      lr=0.1), model,
        )
        self.assertIn('rule { tensors: "b\\"" learning_rate: 1.0 }', text)


@unittest.skipIf(torch is None, "PyTorch is not installed: its models")
class ModelTest(unittest.TestCase):
    def test_names_and_layers_in_the_order_of_registration(self):
        tensors = _model.tensors_of(models.Convolutional())
        self.assertEqual(
            [(t.name, t.layer) for t in tensors[:5]],
            [("layers.0.weight", "layers.0"), ("layers.1.weight", "layers.1"),
             ("layers.1.bias", "layers.1"), ("layers.1.running_mean", "layers.1"),
             ("layers.1.running_var", "layers.1")],
        )
        self.assertEqual(
            [t.name for t in tensors if t.role == _library.RUNNING_STATISTIC],
            [f"layers.{i}.running_{kind}" for i in (1, 4) for kind in ("mean", "var")],
        )

    def test_names_are_those_of_the_state_dict(self):
        for name in models.MODELS:
            model = models.make(name)
            names = {t.name for t in _model.tensors_of(model)}
            self.assertLessEqual(names, set(model.state_dict()))

    def test_shared_and_frozen_parameters(self):
        model = models.Transformer()
        model.norm1.weight.requires_grad_(False)
        model.norm1.register_buffer("running_mean", torch.ones(2))  # of no batch normalisation
        tensors = _model.tensors_of(model)
        names = [t.name for t in tensors]
        self.assertEqual(names[:2], ["place", "table.weight"])
        self.assertEqual(tensors[0].layer, None)
        self.assertNotIn("head.weight", names)
        self.assertEqual(
            [t.name for t in tensors if t.is_buffer], ["norm1.weight", "norm1.running_mean"]
        )
        direct = _model.direct_tensors(model, tensors)
        self.assertEqual(direct[model.head], (1,))
        self.assertEqual(direct[model.table], (1,))
        self.assertEqual(direct[model], (0,))

    def test_a_copy_has_the_same(self):
        model = models.Convolutional()
        own, copied = (_model.tensors_of(m) for m in (model, copy.deepcopy(model)))
        self.assertEqual([t.name for t in own], [t.name for t in copied])


if __name__ == "__main__":
    unittest.main()
