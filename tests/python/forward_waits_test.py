"""Which module waits for which parameters before its forward pass."""

import copy
import io
import unittest
import warnings

from tests.python import fixture

torch = fixture.torch
if torch is not None:
    from torch import nn

    from evenshard import _forward_waits, _model
    from tests.python import models


class _Exchange:
    """Notes what is waited for, by name."""

    def __init__(self, tensors):
        self._names = [t.name for t in tensors]
        self.is_begun = False
        self.missing = set()
        self.log = []

    def start(self):
        self.missing = set(self._names)
        self.log = []

    @property
    def is_under_way(self):
        return bool(self.missing)

    def wait_for(self, numbers):
        names = sorted(self.missing & {self._names[i] for i in numbers})
        self.missing -= set(names)
        if names:
            self.log.append(names)

    def wait_for_all(self):
        self.wait_for(range(len(self._names)))


@unittest.skipIf(torch is None, "PyTorch is not installed: waits before forward passes")
class ForwardWaitsTest(unittest.TestCase):
    def make(self, model, learns=True):
        tensors = _model.tensors_of(model)
        exchange = _Exchange(tensors)
        waits = _forward_waits.ForwardWaits(model, tensors, exchange, learns=learns)
        return exchange, waits

    def waited(self, exchange, call):
        exchange.start()
        call()
        return exchange.log

    def test_each_module_waits_for_its_own(self):
        model = models.mlp()
        exchange, _ = self.make(model)
        x = torch.ones(2, 6)
        every = [["0.bias", "0.weight", "2.bias", "2.weight"]]
        self.assertEqual(self.waited(exchange, lambda: model(x)), every)
        own = [["0.bias", "0.weight"], ["2.bias", "2.weight"]]
        self.assertEqual(self.waited(exchange, lambda: model(x)), own)
        # A part by itself: other passes may follow.
        self.assertEqual(self.waited(exchange, lambda: model[2](torch.ones(2, 16))), every)
        model.eval()
        self.assertEqual(self.waited(exchange, lambda: model(x)), every)
        model.train()
        self.assertEqual(self.waited(exchange, lambda: model(x)), own)

    def test_nothing_is_learned_in_evaluation(self):
        model = models.mlp().eval()
        exchange, _ = self.make(model)
        for _ in range(2):
            log = self.waited(exchange, lambda: model(torch.ones(2, 6)))
            self.assertEqual(len(log), 1)

    def test_parameters_of_modules_that_are_not_called(self):
        model = models.Transformer()
        exchange, _ = self.make(model)
        words = torch.zeros(2, 6, dtype=torch.int64)
        model(words)
        log = self.waited(exchange, lambda: model(words))
        self.assertEqual(log[0], ["place"])
        self.assertEqual(log[1], ["table.weight"])
        self.assertEqual(log[3], ["attention.in_proj_weight", "attention.out_proj.weight"])
        self.assertEqual(log[-1], ["narrow.bias", "narrow.weight"])
        self.assertFalse(exchange.missing)

    def test_parameters_that_are_read_before_their_module_is_called(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(3, 3)
                self.last = nn.Linear(3, 3)

            def forward(self, x):
                decay = sum(p.sum() for p in self.last.parameters(recurse=False))
                return self.last(self.first(x)) + decay

        model = Model()
        exchange, _ = self.make(model)
        x = torch.ones(1, 3)
        model(x)
        self.assertEqual(
            self.waited(exchange, lambda: model(x)),
            [["last.bias", "last.weight"], ["first.bias", "first.weight"]],
        )

    def test_hooks_that_read_parameters_come_later(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            layer = nn.utils.weight_norm(nn.Linear(3, 3))
        seen = []
        model = nn.Sequential(nn.Linear(3, 3), layer)
        exchange, _ = self.make(model)
        layer.register_forward_pre_hook(lambda *_: seen.append(sorted(exchange.missing)))
        first = next(iter(layer._forward_pre_hooks.values()))
        self.assertIsInstance(first, _forward_waits.Hook)
        model(torch.ones(1, 3))
        exchange.start()
        model(torch.ones(1, 3))
        self.assertEqual(seen[-1], [])

    def test_a_pass_that_ends_with_an_exception(self):
        model = models.mlp()
        exchange, waits = self.make(model)
        parameters = model[0]._parameters
        with self.assertRaises(RuntimeError):
            model(torch.ones(2, 7))
        waits.reset()
        self.assertIs(model[0]._parameters, parameters)
        model(torch.ones(2, 6))
        self.assertIs(model[0]._parameters, parameters)
        self.assertEqual(len(self.waited(exchange, lambda: model(torch.ones(2, 6)))), 2)

    def test_a_checkpoint_within_the_backward_pass_waits_for_what_was_pushed(self):
        model = models.mlp()
        exchange, _ = self.make(model)
        model(torch.ones(2, 6))
        exchange.start()
        exchange.is_begun = True
        exchange.missing = {"2.weight"}
        model[0](torch.ones(2, 6))
        self.assertEqual(exchange.log, [])
        model(torch.ones(2, 6))
        self.assertEqual(exchange.log, [["2.weight"]])

    def test_without_learning_everything_below_is_waited_for(self):
        model = models.mlp()
        exchange, _ = self.make(model, learns=False)
        for _ in range(2):
            self.assertEqual(len(self.waited(exchange, lambda: model(torch.ones(2, 6)))), 1)

    def test_copies_and_pickles_do_not_wait(self):
        model = models.mlp()
        exchange, _ = self.make(model)
        copied = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        options = {} if torch.__version__ < "2" else {"weights_only": False}
        loaded = torch.load(file, **options)
        for other in (copied, loaded):
            self.assertEqual(self.waited(exchange, lambda: other(torch.ones(2, 6))), [])
            for module in other.modules():
                hooks = module._forward_pre_hooks.values()
                self.assertEqual(list(hooks), [_forward_waits.nothing])

    def test_removed_hooks_leave_nothing(self):
        model = models.mlp()
        _, waits = self.make(model)
        waits.remove()
        for module in model.modules():
            self.assertFalse(module._forward_pre_hooks)
            self.assertFalse(module._forward_hooks)


if __name__ == "__main__":
    unittest.main()
