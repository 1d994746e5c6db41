"""The groups of an evenshard.Optimizer whose rule is the config's: they have a rate, and what the
script adds."""

import unittest

from tests.python import fixture
from tests.python.script import Script, outcomes_of

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard

_MOMENTUM = "kind: MOMENTUM learning_rate: 0.1 momentum: 0.9"
_NESTEROV = "kind: NESTEROV learning_rate: 0.1 momentum: 0.9"
_ADAM = "kind: ADAM learning_rate: 0.01"
_AMSGRAD = "kind: ADAM_AMSGRAD learning_rate: 0.01"
_STEPS = 4


def _training(change, make=None):
    """Trains by the config's rule, or in one process by `make`'s. `change(optimizer)` comes after
    the second step."""
    def habit(script):
        torch.manual_seed(1)
        model = nn.Linear(6, 5)
        optimizer = evenshard.Optimizer(model) if script.is_worker else make(model.parameters())
        for step in range(_STEPS):
            optimizer.zero_grad()
            inputs, targets = script.batch(step)
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            if step == 1:
                change(optimizer)
        return model.state_dict()
    return habit


def _set(**options):
    return lambda optimizer: optimizer.param_groups[0].update(options)


def _load(make):
    """Takes over what an optimizer of torch.optim saves that has not stepped."""
    def change(optimizer):
        if isinstance(optimizer, evenshard.Optimizer):
            own = [p for group in optimizer.param_groups for p in group["params"]]
            saved = make(own).state_dict()
            optimizer.load_state_dict({**optimizer.state_dict(), "param_groups": [
                {**saved["param_groups"][0], "params": list(range(len(own)))}
            ]})
        else:
            optimizer.param_groups[0].update(make([torch.zeros(1)]).defaults)
    return change


def _sgd(**options):
    return lambda parameters: torch.optim.SGD(parameters, **{"lr": 0.1, **options})


def _adam(**options):
    return lambda parameters: torch.optim.Adam(parameters, **{"lr": 0.01, **options})


@unittest.skipIf(torch is None, "PyTorch is not installed: groups of the config")
class ConfigGroupsTest(unittest.TestCase):
    def check(self, rule, change, make):
        for schedule in ("FULL", "BACKWARD"):
            with self.subTest(rule, schedule=schedule):
                expected = fixture.apart(lambda: _training(change, make)(Script(None, 1)))
                [end] = outcomes_of(_training(change), schedule, 1, rule=rule)
                self.assertIsNone(end.error, end.trace)
                torch.testing.assert_close(end.value, expected, rtol=1e-5, atol=1e-7)

    def check_refused(self, rule, change, text):
        [end] = outcomes_of(_training(change), "FULL", 1, rule=rule)
        self.assertRegex(str(end.error), text)

    def test_numbers_that_the_script_adds_count(self):
        self.check(_MOMENTUM, _set(momentum=0.5), _sgd(momentum=0.9))
        self.check(_ADAM, _set(betas=(0.5, 0.9), lr=0.02), _adam())

    def test_what_the_config_decides_stays(self):
        for rule, option, wrong, allowed in (
            (_MOMENTUM, "momentum", 0.0, "momentum not from 0 or to 0"),
            (_MOMENTUM, "nesterov", True, "allowed: False"),
            (_NESTEROV, "nesterov", False, "allowed: True"),
            ("kind: SGD", "momentum", 0.9, "momentum not from 0 or to 0"),
            (_ADAM, "momentum", 0.5, "momentum not from 0 or to 0"),
            (_ADAM, "amsgrad", True, "allowed: False"),
            (_ADAM, "maximize", True, "allowed: False"),
        ):
            with self.subTest(rule, option=option):
                change = _set(**{option: wrong})
                self.check_refused(rule, change, rf'param_groups\[0\]\["{option}.*{allowed}')

    def test_groups_of_torch_optim_are_taken_over(self):
        later = {"momentum": 0.5, "lr": 0.05}
        self.check(_MOMENTUM, _load(_sgd(**later)), _sgd(momentum=0.9))
        self.check(_AMSGRAD, _load(_adam(lr=0.02, amsgrad=True)), _adam(amsgrad=True))

    def test_groups_of_another_rule_are_refused(self):
        text = r'load_state_dict: param_groups\[0\]\["%s.*allowed: %s'
        for rule, make, option, allowed in (
            (_MOMENTUM, _sgd(), "momentum != 0", True),
            ("kind: SGD", _sgd(momentum=0.9), "momentum != 0", False),
            (_NESTEROV, _sgd(momentum=0.9), "nesterov", True),
            (_ADAM, _adam(amsgrad=True), "amsgrad", False),
        ):
            with self.subTest(rule, option=option):
                self.check_refused(rule, _load(make), text % (option, allowed))


if __name__ == "__main__":
    unittest.main()
