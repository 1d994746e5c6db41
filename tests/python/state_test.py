"""register_state() without deaths: what a text keeps, and what is refused."""

import collections
import enum
import functools
import unittest

from tests.python import fixture
from tests.python.script import outcomes_of, small_training

torch = fixture.torch
if torch is not None:
    import numpy
    from torch import nn

    import evenshard
    from evenshard._torch import state_text
    from evenshard._torch.registered_states import GroupState, RegisteredStates


class _LateHandle:
    """A worker that has just joined at iteration 3."""

    rank, iteration, waits_for_workers, is_ring = 1, 3, True, False

    def __init__(self, **taken):
        self.taken = {"param_groups": '{"dict":[["groups",[]]]}', **taken}

    def take_state(self):
        return self.taken


class _Held:
    """A state that is what it is given."""

    def __init__(self, state, loads=True):
        self.state = state
        self.loads = loads

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        if not self.loads:
            raise KeyError("milestones")
        self.state = state


@unittest.skipIf(torch is None, "PyTorch is not installed: registered states")
class StateTextTest(unittest.TestCase):
    def round_trip(self, state, own=None):
        return state_text.decode(state_text.encode(state, "state"), own)

    def test_a_text_keeps_what_a_state_has(self):
        state = {
            "none": None, "yes": True, "one": 1, "float": 1.0, "large": 2**70, "third": 1 / 3,
            "text": "ä\n\"", "bytes": b"\0\xff", "list": [1, [2.5]], "tuple": (1, (2, "x")),
            "set": {3, 1, 2}, 7: {(1, 2): "a key that is a tuple"}, "empty": {},
            "counter": collections.Counter({3: 2, 1: 1}),
            "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        }
        found = self.round_trip(state)
        self.assertEqual(found, state)
        for key, value in state.items():
            self.assertIs(type(found[key]), type(value), key)
        self.assertEqual(list(found["ordered"]), ["b", "a"])
        self.assertNotEqual(self.round_trip(float("nan")), self.round_trip(float("nan")))
        self.assertEqual(self.round_trip(float("-inf")), float("-inf"))

    def test_tensors_and_arrays_keep_type_shape_and_bits(self):
        tensors = [
            torch.randn(3, 4), torch.randn(3, 4).t(), torch.tensor(2.5, dtype=torch.float64),
            torch.zeros(0, 2), torch.arange(5, dtype=torch.uint8), torch.tensor([True, False]),
            torch.randn(4).to(torch.bfloat16), torch.get_rng_state(),
        ]
        for tensor in tensors:
            found = self.round_trip([tensor])[0]
            self.assertEqual((found.dtype, found.shape), (tensor.dtype, tensor.shape))
            self.assertTrue(torch.equal(found, tensor))
        for array in (numpy.arange(6.0).reshape(2, 3).T, numpy.array(["a", "bc"])):
            found = self.round_trip([array])[0]
            self.assertEqual(found.dtype, array.dtype)
            self.assertTrue((found == array).all())
        self.assertEqual(self.round_trip([numpy.float64(0.1)])[0], numpy.float64(0.1))

    def test_equal_states_have_equal_texts(self):
        def text(state):
            return state_text.encode(state, "state")

        self.assertEqual(text({"a": 1, "b": {2, 10, 1}}), text({"b": {10, 1, 2}, "a": 1}))
        self.assertNotEqual(text({"a": 1}), text({"a": 1.0}))
        self.assertNotEqual(text([1, 2]), text((1, 2)))

    def test_what_is_callable_stays_the_own(self):
        state = {"rate": 2, "function": max, "list": [min, 1], "more": {"method": "".join}}
        with self.assertRaisesRegex(ValueError, "has a function where this worker's own"):
            self.round_trip([max], [])
        own = {"rate": 1, "function": sum, "list": [abs, 0], "more": {}}
        self.assertEqual(
            self.round_trip(state, own),
            {"rate": 2, "function": sum, "list": [abs, 1], "more": {}},
        )

    def test_what_is_something_else_is_named(self):
        color = enum.Enum("Color", "RED")
        for state, place in (
            ({"a": [0, object()]}, r"state\['a'\]\[1\]: is a builtins.object, allowed: None"),
            ({"a": color.RED}, r"state\['a'\]: is a .*Color"),
            (collections.defaultdict(int), "state: is a collections.defaultdict"),
            ({"a": {1j}}, r"an item of state\['a'\]: is a builtins.complex"),
            ({"a": nn.Linear(1, 1)}, r"state\['a'\]: is a torch.nn.*Linear, allowed"),
            ([torch.zeros(1, dtype=torch.complex64)], r"state\[0\]: is a torch.Tensor"),
            ([numpy.array([object()])], r"state\[0\]: is a numpy.ndarray"),
        ):
            with self.assertRaisesRegex(evenshard.InvalidArgument, place):
                state_text.encode(state, "state")

    def test_schedulers_are_restored_whole(self):
        schedulers = torch.optim.lr_scheduler
        for make in (
            functools.partial(schedulers.MultiStepLR, milestones=[2, 2, 4]),
            functools.partial(schedulers.OneCycleLR, max_lr=0.1, total_steps=9),
            functools.partial(schedulers.CosineAnnealingWarmRestarts, T_0=3),
            functools.partial(schedulers.LambdaLR, lr_lambda=lambda step: 0.9**step),
            functools.partial(schedulers.CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=3),
            lambda optimizer: schedulers.SequentialLR(optimizer, [
                schedulers.LinearLR(optimizer), schedulers.ExponentialLR(optimizer, 0.9),
            ], [3]),
        ):
            first, second = (
                torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.2, momentum=0.5)
                for _ in range(2)
            )
            one, other = make(first), make(second)
            rates = []
            for step in range(8):
                if step == 3:
                    text = state_text.encode(one.state_dict(), "scheduler")
                    other.load_state_dict(state_text.decode(text, other.state_dict()))
                    self.assertEqual(text, state_text.encode(other.state_dict(), "scheduler"))
                    for group, saved in zip(second.param_groups, first.param_groups):
                        group.update({k: v for k, v in saved.items() if k != "params"})
                rates.append([first.param_groups[0]["lr"], second.param_groups[0]["lr"]])
                first.step()
                one.step()
                if step >= 3:
                    second.step()
                    other.step()
            for of_first, of_second in rates[4:]:
                self.assertEqual(of_first, of_second, make)


def _registering(*registered, **options):
    """A script that registers a state by each of these names."""
    def script_of(script):
        _, optimizer, step = small_training(script)
        for name, state in registered:
            state = state(script.ranks[0]) if callable(state) else state
            optimizer.register_state(name, state, **options)
        step(0)
        step(1)
        return optimizer.iteration
    return script_of


def _in_the_middle(script):
    _, optimizer, _ = small_training(script)
    optimizer.zero_grad()
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.sum().backward()
    optimizer.register_state("x", _Held({}))


def _changing_in_one(script):
    _, optimizer, step = small_training(script)
    held = _Held({"position": 0})
    optimizer.register_state("sampler", held)
    for number in range(3):
        step(number)
        held.state["position"] += 1 if number < 1 else script.ranks[0]


def _when_all_is_frozen(script):
    """As while another network trains."""
    model, optimizer, step = small_training(script)
    model.requires_grad_(False)
    optimizer.register_state("sampler", _Held({"position": 0}))
    assert not any(p.requires_grad for p in model.parameters())
    model.requires_grad_(True)
    step(0)
    step(1)
    return optimizer.iteration


def _in_one_only(script):
    _, optimizer, step = small_training(script)
    if script.ranks == [0]:
        optimizer.register_state("x", _Held({}))
    step(0)


def _later_in_all(script):
    _, optimizer, step = small_training(script)
    step(0)
    held = _Held({"position": 5})
    optimizer.register_state("sampler", held)
    step(1)
    return held.state["position"], optimizer.iteration


def _in_join(script):
    _, optimizer, step = small_training(script)
    optimizer.register_state("x", _Held({}))
    with optimizer.join():
        step(0)


_REFUSED = [
    (_registering(("x", _Held({"rank": 0})), ("y", lambda rank: _Held({"rank": rank}))),
     r'"y" is not the same in worker \d and in worker \d before exchange 1; allowed: what is the'),
    (_registering(("x", lambda rank: _Held({}) if rank else _Held({"a": 1}))),
     r'"x" is not the same in worker \d'),
    (_in_one_only, "is registered by worker 0 and not by worker 1 before exchange 1"),
    (_changing_in_one,
     r'"sampler" is not the same in worker \d and in worker \d before exchange 3'),
    (_registering(("x", _Held({"a": object()}))),
     r"register_state\(\"x\"\)\['a'\]: is a builtins.object"),
    (_registering(("x", _Held({"a": "b" * 300000}))),
     r'register_state\("x"\): has 3000\d\d bytes as a text, .*allowed: 262144 in all'),
    (_registering(("x", lambda _: _Held({"ema": torch.zeros(100000)}))),
     r"register_state\(\"x\"\)\['ema'\]: has 400000 bytes; allowed: 262144 in all"),
    (_registering(("param_groups", _Held({}))), "the name is 'param_groups', allowed: a text that"),
    (_in_join, r"join\(\): states are registered, and a worker without data does not advance"),
    (_registering(("x", 5)),
     r'"x"\): is a int, which has no state_dict\(\) and no load_state_dict\(\); allowed'),
    (_registering(("x", _Held({})), ("x", _Held({}))), r'"x"\): the name is taken'),
    (_registering(("", _Held({}))), "the name is ''"),
    (_registering(("x", _Held({})), as_of="backwards"),
     'as_of is \'backwards\', allowed: "backward", "step"'),
    (_in_the_middle, r"register_state\(\): gradients of this iteration have been pushed"),
]


@unittest.skipIf(torch is None, "PyTorch is not installed: registered states")
class StateTest(unittest.TestCase):
    def test_what_is_refused(self):
        for habit, text in _REFUSED:
            with self.subTest(text):
                ends = outcomes_of(habit, "BACKWARD", 2)
                self.assertRegex("\n".join(str(end.error) for end in ends), text)

    def test_a_state_may_be_registered_under_way_by_all(self):
        for end in outcomes_of(_when_all_is_frozen, "BACKWARD", 2):
            self.assertEqual(end.value, 2, end.trace)
        for end in outcomes_of(_later_in_all, "BACKWARD", 2):
            self.assertIsNone(end.error, end.trace)
            self.assertEqual(end.value, [5, 2])

    def test_a_returning_worker_gets_it_or_is_told_why_not(self):
        def register(handle, state):
            RegisteredStates(handle, []).add("x", state, "step", GroupState(lambda: []))

        held = _Held({"a": 0})
        register(_LateHandle(x='{"dict":[["a",5]]}'), held)
        self.assertEqual(held.state, {"a": 5})
        with self.assertRaisesRegex(
            evenshard.FailedPrecondition,
            r'"x"\): the run has no such state at iteration 3; it has param_groups, y',
        ):
            register(_LateHandle(y="1"), _Held({}))
        with self.assertRaisesRegex(
            evenshard.FailedPrecondition,
            r'"x"\): rank 1 cannot load what the run has at iteration 3: KeyError: .milestones',
        ):
            register(_LateHandle(x='{"dict":[["a",5]]}'), _Held({}, loads=False))

    def test_asynchronous_workers_have_none(self):
        habit = _registering(("x", _Held({})))
        for end in outcomes_of(habit, "BACKWARD", 2, update="policy: ASYNC"):
            self.assertIn("under ASYNC the workers have no iteration in common", end.error)


if __name__ == "__main__":
    unittest.main()
