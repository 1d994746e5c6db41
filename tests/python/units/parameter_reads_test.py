"""Whoever reads a parameter that is under way waits for it."""

import copy
import io
import pickle
import unittest
import warnings

from tests.python import fixture

torch = fixture.torch
if torch is not None:
    import torch.nn.utils.parametrize
    import torch.nn.utils.prune
    from torch import nn

    from evenshard import errors
    from evenshard._torch import model as _model
    from evenshard._torch import parameter_reads as _parameter_reads
    from tests.python import models


@unittest.skipIf(torch is None, "PyTorch is not installed: waits for parameters")
class ParameterReadsTest(unittest.TestCase):
    def make(self, model):
        tensors = _model.tensors_of(model)
        self.names = [t.name for t in tensors]
        self.missing = set()
        self.log = []
        return _parameter_reads.ParameterReads(model, tensors, self.wait)

    def wait(self, numbers):
        names = sorted(self.missing & {self.names[i] for i in numbers})
        self.missing -= set(names)
        if names:
            self.log.append(names)

    def waited(self, call):
        """What is waited for, in order, while everything is under way."""
        self.missing = set(self.names)
        self.log = []
        call()
        return self.log

    def test_each_module_waits_for_its_own(self):
        model = models.mlp()
        self.make(model)
        own = [["0.bias", "0.weight"], ["2.bias", "2.weight"]]
        for mode in (True, False):
            model.train(mode)
            self.assertEqual(self.waited(lambda: model(torch.ones(2, 6))), own)
        self.assertEqual(self.waited(lambda: model[2](torch.ones(2, 16))), own[1:])

    def test_parameters_of_modules_that_are_not_called(self):
        model = models.Transformer()
        self.make(model)
        words = torch.zeros(2, 6, dtype=torch.int64)
        log = self.waited(lambda: model(words))
        self.assertEqual(log[0], ["place"])
        self.assertEqual(log[1], ["table.weight"])
        self.assertIn(["attention.out_proj.weight"], log)
        self.assertEqual(log[-1], ["narrow.bias", "narrow.weight"])
        self.assertFalse(self.missing)

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
        self.make(model)
        self.assertEqual(
            self.waited(lambda: model(torch.ones(1, 3))),
            [["last.bias", "last.weight"], ["first.bias", "first.weight"]],
        )

    def test_a_step_waits_for_what_is_read_elsewhere(self):
        model = models.mlp()
        reads = self.make(model)
        self.assertEqual(self.waited(reads.wait_for_moved), [])
        # To a name of the same module, whose reads are seen, and to another module.
        nn.utils.prune.identity(model[0], "weight")
        nn.utils.parametrize.register_parametrization(model[2], "weight", nn.Tanh())
        self.assertEqual(self.waited(reads.wait_for_moved), [["2.weight"]])
        self.assertIn("0.weight", sum(self.waited(lambda: list(model.parameters())), []))

    def test_a_module_with_references_to_its_parameters(self):
        model = nn.LSTM(3, 4)
        self.make(model)
        self.waited(lambda: model(torch.ones(2, 1, 3)))
        self.assertFalse(self.missing)

    def test_reads_outside_of_a_forward_pass(self):
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        self.make(model)
        self.assertEqual(self.waited(lambda: model[0].weight.norm()), [["0.weight"]])
        self.assertEqual(self.waited(lambda: model[1].running_mean.sum()), [["1.running_mean"]])
        everything = {
            "parameters and buffers": lambda: [*model.parameters(), *model.buffers()],
            "state_dict": model.state_dict,
            "copy": lambda: copy.deepcopy(model),
            "save": lambda: torch.save(model, io.BytesIO()),
            "children": lambda: [dict(m.named_parameters()) for m in model] + [model.state_dict()],
            "average": lambda: torch.optim.swa_utils.AveragedModel(model).update_parameters(model),
        }
        for name, read in everything.items():
            with self.subTest(name):
                self.waited(read)
                self.assertFalse(self.missing)

    def test_a_copy_has_the_values_that_were_waited_for(self):
        model = nn.Linear(2, 2)
        tensors = _model.tensors_of(model)

        def come(numbers):
            for i in numbers:
                tensors[i].tensor.data.fill_(7)

        _parameter_reads.ParameterReads(model, tensors, come)
        self.assertEqual(copy.deepcopy(model).weight.tolist(), [[7.0, 7.0], [7.0, 7.0]])
        self.assertEqual(copy.deepcopy(nn.Sequential(model))[0].bias.tolist(), [7.0, 7.0])

    def test_hooks_that_read_parameters_come_later(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            layer = nn.utils.weight_norm(nn.Linear(3, 3))
        seen = []
        layer.register_forward_pre_hook(lambda *_: seen.append(sorted(self.missing)))
        model = nn.Sequential(nn.Linear(3, 3), layer)
        self.make(model)
        self.waited(lambda: model(torch.ones(1, 3)))
        self.assertEqual(seen, [[]])

    def test_copies_and_pickles_do_not_wait(self):
        model = models.mlp()
        self.make(model)
        copied = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        options = {} if torch.__version__ < "2" else {"weights_only": False}
        loaded = torch.load(file, **options)
        for other in (copied, loaded):
            self.assertEqual(self.waited(lambda: other(torch.ones(2, 6))), [])
            self.assertEqual(self.waited(lambda: list(other.parameters())), [])
            for module in other.modules():
                for hook in module._forward_pre_hooks.values():
                    self.assertIsNone(hook(module, (torch.ones(2, 6),)))

    def test_a_pickle_needs_no_module_of_this_package(self):
        model = nn.Sequential(nn.Linear(2, 2))
        self.make(model)
        stored = pickle.dumps(model)
        self.assertNotIn(b"evenshard", stored)
        self.assertEqual(pickle.loads(stored)(torch.ones(1, 2)).shape, (1, 2))

    def test_what_is_replaced_is_waited_for(self):
        model = nn.BatchNorm1d(3)
        self.make(model)

        def replace():
            model.running_mean = torch.zeros(3)
        self.assertEqual(self.waited(replace), [["running_mean"]])
        self.assertEqual(self.waited(lambda: model.running_mean), [["running_mean"]])
        self.assertEqual(self.waited(lambda: delattr(model, "running_var")), [["running_var"]])

    def test_a_parameter_that_is_added_or_taken_away(self):
        model = nn.Linear(2, 2)
        reads = self.make(model)
        model.register_parameter("scale", nn.Parameter(torch.ones(1)))
        del model.bias
        self.assertEqual([name for name, _ in model.named_parameters()], ["weight", "scale"])
        reads.remove()
        self.assertEqual([name for name, _ in model.named_parameters()], ["weight", "scale"])

    def test_what_is_removed_leaves_nothing(self):
        model = models.mlp()
        before = [type(module._parameters) for module in model.modules()]
        self.make(model).remove()
        self.assertEqual([type(module._parameters) for module in model.modules()], before)
        for module in model.modules():
            self.assertFalse(module._forward_pre_hooks)

    def test_models_whose_reads_cannot_be_seen_are_refused(self):
        class OptimizedModule(nn.Module):  # as torch.compile makes it
            pass

        scripted = torch.jit.script(nn.Linear(2, 2))
        cases = {
            "compiled by torch.compile": OptimizedModule(), "a module of TorchScript": scripted,
        }
        for what, module in cases.items():
            model = nn.Sequential(nn.Linear(2, 2), module)
            with self.assertRaisesRegex(errors.FailedPrecondition, f'"1" is {what}'):
                _parameter_reads.check(model)

    def test_torchscript_says_why_it_cannot_compile_the_model(self):
        model = models.mlp()
        reads = self.make(model)
        with self.assertRaisesRegex(AttributeError, r"torch\.jit\.script\(\) cannot .* close\(\)"):
            torch.jit.script(model)
        reads.remove()
        torch.jit.script(model)


if __name__ == "__main__":
    unittest.main()
