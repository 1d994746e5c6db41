"""Which changes of a model leave its parameters trained."""

import unittest

from tests.python import fixture, models

torch = fixture.torch
if torch is not None:
    from torch import nn

    from evenshard import errors
    from evenshard._torch.kept_parameters import KeptParameters
    from evenshard._torch.model import tensors_of


@unittest.skipIf(torch is None, "PyTorch is not installed: kept parameters")
class KeptParametersTest(unittest.TestCase):
    def setUp(self):
        self.model = models.make("transformer")
        self.kept = KeptParameters(self.model, tensors_of(self.model))

    def refused(self, name):
        with self.assertRaisesRegex(errors.FailedPrecondition, f"^{name}: .* evenshard.LocalSteps"):
            self.kept.require("LocalSteps")

    def test_what_is_as_it_was(self):
        self.kept.require("LocalSteps")
        self.model.double()
        self.model.head.weight.data = torch.zeros(11, 16)
        self.model.wide.register_parameter("another", nn.Parameter(torch.zeros(2)))
        self.model.wide.bias.requires_grad_(False)
        self.model.wide.gone = self.model.wide.bias
        del self.model.wide.bias
        self.kept.require("LocalSteps")

    def test_each_of_two_places(self):
        weight = self.model.head.weight
        self.model.head.weight = nn.Parameter(weight.detach().clone())
        self.refused("head.weight")
        self.model.table.weight = self.model.head.weight
        self.refused("table.weight")
        self.model.table.weight = self.model.head.weight = self.model.place  # which is trained
        self.refused("table.weight")
        self.model.table.weight = self.model.head.weight = weight
        self.kept.require("LocalSteps")

    def test_what_is_nowhere(self):
        self.model.wide.bias = None
        self.refused("wide.bias")

    def test_a_module_that_is_not_used_any_more(self):
        self.model.wide = nn.Identity()
        self.kept.require("LocalSteps")

    def test_what_is_not_trained(self):
        model = models.make("mlp")
        model[0].weight.requires_grad_(False)
        kept = KeptParameters(model, tensors_of(model))
        model[0].weight = nn.Parameter(torch.ones(16, 6), requires_grad=False)
        kept.require("LocalSteps")

    def test_what_gets_elements_later(self):
        class Late(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.empty(0))
                self.register_buffer("least", torch.empty(0))
                self.register_buffer("own", torch.empty(0), persistent=False)

        for change, name in (
            (lambda late: setattr(late.weight, "data", torch.ones(2)), "1.weight"),
            (lambda late: setattr(late, "weight", nn.Parameter(torch.ones(2))), "1.weight"),
            (lambda late: setattr(late, "least", torch.ones(2)), "1.least"),
            (lambda late: setattr(late, "own", torch.ones(2)), None),
        ):
            model = nn.Sequential(nn.Linear(2, 2), Late())
            self.kept = KeptParameters(model, tensors_of(model))
            self.kept.require("LocalSteps")
            change(model[1])
            if name is None:
                self.kept.require("LocalSteps")
            else:
                self.refused(name)


if __name__ == "__main__":
    unittest.main()
