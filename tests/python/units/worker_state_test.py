"""What a worker keeps by itself, from one model and its optimizers to another's, without shards."""

import copy
import ctypes
import unittest
from types import SimpleNamespace

from tests.python import fixture

torch = fixture.torch
if torch is not None:
    from torch import nn

    from evenshard import _library, errors
    from evenshard._torch.unchanged import checksum, same
    from evenshard._torch.worker_state import WorkerState

    class _Factored(torch.optim.Optimizer):
        """With state of its own outside of the parameters', and types that torch would convert."""

        def __init__(self, parameters):
            # Options that are tensors and functions.
            options = {"lr": 0.1, "scales": torch.ones(3), "decay": len}
            super().__init__(parameters, options)
            self.steps = 0

        def step(self, closure=None):
            self.steps += 1
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    mean = state.setdefault("mean", torch.zeros(p.shape[:1], dtype=torch.float64))
                    mean += p.grad.double().reshape(p.shape[0], -1).mean(1)
                    state["seen"] = state.get("seen", ()) + (self.steps,)
                    state["none"] = torch.empty(0, 3)
                    p.data.sub_(p.grad * group["lr"])

        def state_dict(self):
            return {**super().state_dict(), "steps": self.steps}

        def load_state_dict(self, state_dict):
            self.steps = state_dict["steps"]
            numbers = [n for group in state_dict["param_groups"] for n in group["params"]]
            parameters = [p for group in self.param_groups for p in group["params"]]
            self.state.clear()
            for number, parameter in zip(numbers, parameters):
                self.state[parameter] = dict(state_dict["state"][number])
            for own, saved in zip(self.param_groups, state_dict["param_groups"]):
                own["lr"] = saved["lr"]

    class _Forgetful(_Factored):
        def load_state_dict(self, state_dict):
            pass


class _Wire:
    """Two handles: what one gives, the other one receives."""

    iteration, rank, phase = 7, 1, 0

    def give_state(self, make):
        self.make = make

    def receive_state(self, place):
        text, parts = self.make()
        places = place(text)
        assert [size for _, size in places] == [size for _, size in parts]
        for (to, size), (begin, _) in zip(places, parts):
            ctypes.memmove(to, begin, size)


def _optimizers(kind, model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": parameters[:1], "lr": 0.3}, {"params": parameters[1:]}]
    return {
        "SGD": lambda: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
        "Adam": lambda: torch.optim.Adam(groups, lr=0.1, amsgrad=True),
        "Adagrad": lambda: torch.optim.Adagrad(groups, lr=0.1, initial_accumulator_value=0.1),
        "RMSprop": lambda: torch.optim.RMSprop(groups, lr=0.1, centered=True, momentum=0.5),
        "NAdam": lambda: torch.optim.NAdam(groups, lr=0.1),
        "Factored": lambda: _Factored(parameters),
        "Forgetful": lambda: _Forgetful(parameters),
    }[kind]()


def _made(kind, dtype=None, seed=1):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 12), nn.Linear(12, 5), nn.Linear(5, 3))
    model[2].weight = nn.Parameter(model[1].weight.detach().t()[:5].t()[:3, :5].contiguous())
    model[1].weight = nn.Parameter(torch.randn(12, 5).t())  # not contiguous
    codes = torch.arange(9, dtype=torch.uint8).reshape(3, 3)
    model.codes = nn.Parameter(codes, requires_grad=False)
    model.none = nn.Parameter(torch.empty(0, 4), requires_grad=False)
    if dtype is not None:
        model.to(dtype)
    given = _optimizers(kind, model)
    wrapped = SimpleNamespace(
        _optimizer=given, _is_synchronized=False, state_dict=given.state_dict,
        param_groups=given.param_groups,
    )
    return model, given, wrapped


def _steps(model, given, count, seed):
    torch.manual_seed(seed)
    for _ in range(count):
        for p in filter(lambda p: p.requires_grad, model.parameters()):
            p.grad = torch.randn(p.shape).to(p.dtype)
        given.step()


@unittest.skipIf(torch is None, "PyTorch is not installed: state of an optimizer")
class WorkerStateTest(unittest.TestCase):
    def handed_over(self, kind, dtype=None):
        """A trained model and its optimizer, and another one that has taken their state."""
        wire = _Wire()
        model, given, wrapped = _made(kind, dtype)
        WorkerState(wire, SimpleNamespace(updates={0: 5}), model).add(wrapped)
        _steps(model, given, 3, seed=5)
        given.param_groups[0]["lr"] = 0.05
        other, other_given, other_wrapped = _made(kind, dtype, seed=2)
        exchange = SimpleNamespace(updates={0: 6})
        taken = WorkerState(wire, exchange, other)
        taken.take()
        self.assertEqual(exchange.updates, {0: 5})
        taken.add(other_wrapped)
        taken.begin()
        return model, given, other, other_given

    def test_a_checksum_is_of_values_and_of_their_order(self):
        values = torch.randn(1000)
        self.assertEqual(checksum(values), checksum(values.clone()))
        for changed in (values.flip(0), values.roll(1), values * -1):
            self.assertNotEqual(checksum(values), checksum(changed))

    def test_both_go_on_alike_to_the_bit(self):
        for kind in ("SGD", "Adam", "Adagrad", "RMSprop", "NAdam", "Factored"):
            for dtype in (None, torch.bfloat16):
                with self.subTest(kind, dtype=dtype):
                    model, given, other, other_given = self.handed_over(kind, dtype)
                    self.assertEqual(other_given.param_groups[0]["lr"], 0.05)
                    for steps in (0, 3):
                        _steps(model, given, steps, seed=6)
                        _steps(other, other_given, steps, seed=6)
                        for one, two in zip(model.parameters(), other.parameters()):
                            # By bits: an optimizer in bfloat16 may come to NaN.
                            self.assertTrue(same(one, two.detach().contiguous()))
                            self.assertEqual(one.stride(), two.stride())

    def test_the_state_keeps_its_types_and_is_not_shared(self):
        model, given, other, other_given = self.handed_over("Factored", torch.bfloat16)
        for one, two in zip(list(model.parameters())[2:], list(other.parameters())[2:]):
            self.assertEqual(other_given.state[two]["mean"].dtype, torch.float64)
            self.assertEqual(other_given.state[two]["seen"], (1, 2, 3))
            self.assertEqual(other_given.state[two]["none"].shape, (0, 3))
            before = given.state[one]["mean"].clone()
            other_given.state[two]["mean"].add_(1)
            self.assertTrue(torch.equal(given.state[one]["mean"], before))

    def test_what_does_not_fit_is_refused(self):
        with self.assertRaisesRegex(
            errors.FailedPrecondition,
            "rank 1 cannot go on with what the run has at iteration 7: its state_dict.. is another",
        ):
            self.handed_over("Forgetful")
        wire = _Wire()
        model, _, wrapped = _made("SGD")
        WorkerState(wire, SimpleNamespace(updates={0: 5}), model).add(wrapped)
        wider = copy.deepcopy(model)
        wider[0] = nn.Linear(4, 12)
        for other, message in (
            (nn.Sequential(nn.Linear(3, 12)), "the models have not the same parameters"),
            (wider, r"0.weight is torch.float32, \[12, 4\], there float32, \[12, 3\]"),
        ):
            with self.subTest(message), self.assertRaisesRegex(errors.FailedPrecondition, message):
                WorkerState(wire, SimpleNamespace(updates={0: 5}), other).take()
        taken = WorkerState(wire, SimpleNamespace(updates={0: 5}), _made("SGD")[0])
        taken.take()
        with self.assertRaisesRegex(errors.FailedPrecondition, "optimizers: 1, and this worker: 0"):
            taken.begin()
        taken.add(_made("SGD")[2])
        with self.assertRaisesRegex(errors.FailedPrecondition, "optimizers: 1, and this is number"):
            taken.add(_made("SGD")[2])

    def test_options_that_are_not_the_runs_are_refused_in_an_iteration(self):
        for phase in (_library.IDLE, _library.PUSHED):
            wire = _Wire()
            wire.phase = phase
            model, _, wrapped = _made("SGD")
            WorkerState(wire, SimpleNamespace(updates={0: 5}), model).add(wrapped)
            other, other_given, other_wrapped = _made("SGD")
            taken = WorkerState(wire, SimpleNamespace(updates={0: 5}), other)
            taken.take()
            taken.add(other_wrapped)
            other_given.param_groups[1]["momentum"] = 0.5
            if phase == _library.IDLE:
                taken.begin()  # the sender waits between iterations, and may not have set its own
                continue
            with self.assertRaisesRegex(
                errors.FailedPrecondition, "momentum 0.5 in group 1, and the run has 0.9; allowed"
            ):
                taken.begin()

    def test_a_parameter_that_was_changed_before_the_first_backward_is_refused(self):
        wire = _Wire()
        wire.phase = _library.PUSHED
        model, _, wrapped = _made("SGD")
        WorkerState(wire, SimpleNamespace(updates={0: 5}), model).add(wrapped)
        other, _, other_wrapped = _made("SGD")
        taken = WorkerState(wire, SimpleNamespace(updates={0: 5}), other)
        taken.take()
        taken.add(other_wrapped)
        with torch.no_grad():
            other[0].bias.mul_(0.5)
        with self.assertRaisesRegex(errors.FailedPrecondition, "0.bias was changed before the"):
            taken.begin()

    def test_nothing_is_given_between_synchronize_and_step(self):
        wire = _Wire()
        model, _, wrapped = _made("SGD")
        WorkerState(wire, SimpleNamespace(updates={0: 5}), model).add(wrapped)
        wrapped._is_synchronized = True
        with self.assertRaisesRegex(errors.FailedPrecondition, "has not stepped; allowed"):
            wire.make()


if __name__ == "__main__":
    unittest.main()
