"""Parameters that a script gives to the whole run, and an optimizer's state that goes from
torch.optim to the shards and back: each against the same script in one process."""

import copy
import itertools
import json
import os
import subprocess
import tempfile
import unittest

from tests.python import fixture
from tests.python.script import outcomes_of, reference_of

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard

_STEPS = 4
_SCHEDULES = ("BACKWARD", "FULL", "SEQUENTIAL")


def _model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 130), nn.Tanh(), nn.Linear(130, 5))


def _loss(script, model, step):
    inputs, targets = script.batch(step)
    return nn.functional.mse_loss(model(inputs), targets)


def _train(script, model, optimizer, *, steps=range(_STEPS), before=None, after=None):
    for step in steps:
        if before:
            before(model, optimizer)
        optimizer.zero_grad(set_to_none=True)
        _loss(script, model, step).backward()
        optimizer.step()
        if after:
            after(model, optimizer)
    return model.state_dict()


# Changed parameters.


def _clamp(script):
    def change(model, optimizer):
        with script.assign(optimizer):
            for parameter in model.parameters():
                parameter.clamp_(-0.1, 0.1)

    return change


def clamp_after(script):
    model = _model()
    return _train(script, model, script.optimizer(model), after=_clamp(script))


def clamp_before_with_momentum(script):
    model = _model()
    optimizer = script.optimizer(model, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    return _train(script, model, optimizer, before=_clamp(script))


def mask_through_data_with_adam(script):
    """No version counter shows it, and Adam's bias correction must not count it."""
    model = _model()
    mask = (torch.arange(130 * 6).view(130, 6) % 3 > 0).float()

    def change(_, optimizer):
        with script.assign(optimizer):
            model[0].weight.data *= mask

    optimizer = script.optimizer(model, lambda p: torch.optim.Adam(p, lr=0.01))
    return _train(script, model, optimizer, after=change)


def initialisation_by_hand(script):
    model = _model()
    optimizer = script.optimizer(model)
    with script.assign(optimizer):
        for parameter in model.parameters():
            parameter.uniform_(-0.3, 0.3, generator=fixture.generator(3))
    return _train(script, model, optimizer)


def values_of_rank_0(script):
    """Those of other ranks are dropped."""
    model = _model()
    optimizer = script.optimizer(model)
    with script.assign(optimizer):
        model[2].bias.fill_(script.ranks[0])
    return _train(script, model, optimizer)


def an_exception_in_the_middle(script):
    model = _model()
    optimizer = script.optimizer(model)

    def change(*_):
        before = [p.detach().clone() for p in model.parameters()]
        try:
            with script.assign(optimizer):
                for p in model.parameters():
                    p.zero_()
                raise ValueError("given up")
        except ValueError:
            with torch.no_grad():
                for p, value in zip(model.parameters(), before):
                    assert not script.is_worker or torch.equal(p, value)
                    p.copy_(value) if not script.is_worker else None

    return _train(script, model, optimizer, after=change)


def sharpness_aware(script):
    """Each worker perturbs by its own gradient. One process does that for one batch after another,
    and takes the mean."""
    model = _model()
    optimizer = script.optimizer(model)
    parameters = list(model.parameters())
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        sums = [torch.zeros_like(p) for p in parameters]
        for inputs, targets in zip(*(part.split(4) for part in script.batch(step))):
            with script.no_sync(optimizer):
                nn.functional.mse_loss(model(inputs), targets).backward()
                norm = sum(float((p.grad ** 2).sum()) for p in parameters) ** 0.5
                kept = [p.detach().clone() for p in parameters]
                with torch.no_grad():
                    for p in parameters:
                        p.add_(p.grad, alpha=0.05 / norm)
                optimizer.zero_grad(set_to_none=True)
                nn.functional.mse_loss(model(inputs), targets).backward()
                with torch.no_grad():
                    for p, value, total in zip(parameters, kept, sums):
                        p.copy_(value)
                        total += p.grad / len(script.ranks)
                optimizer.zero_grad(set_to_none=True)
        for p, total in zip(parameters, sums):
            p.grad = total
        optimizer.step()
        if script.is_worker:
            optimizer.synchronize()
    return model.state_dict()


def another_default_device(script):
    """What the package makes for itself lies in the host's memory, whatever the script wants."""
    model = _model()
    optimizer = script.optimizer(model, lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3))

    def reload(*_):
        torch.set_default_device("meta")
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        if script.is_worker:
            assert float(optimizer.mean(torch.full((), 3.0, device="cpu"))) == 3
        torch.set_default_device(fixture.DEVICE)

    _train(script, model, optimizer, after=reload)
    return model.state_dict()


def buffers_too(script):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, affine=False)).eval()
    optimizer = script.optimizer(model)
    with script.assign(optimizer):
        model[1].running_mean.fill_(0.25 + script.ranks[0])
        model[1].num_batches_tracked.fill_(7 + script.ranks[0])
    first = {key: value.clone() for key, value in model.state_dict().items()}
    return first, _train(script, model, optimizer)


def weights_that_were_the_best(script):
    model = _model()
    optimizer = script.optimizer(model)
    best = copy.deepcopy(model.state_dict())

    def change(*_):
        with script.assign(optimizer):
            model.load_state_dict(best)

    return _train(script, model, optimizer, before=change)


_CHANGES = [
    clamp_after, clamp_before_with_momentum, mask_through_data_with_adam, initialisation_by_hand,
    values_of_rank_0, an_exception_in_the_middle, sharpness_aware, buffers_too,
    weights_that_were_the_best,
]
if hasattr(torch, "set_default_device"):
    _CHANGES.append(another_default_device)

# An optimizer's state.


def _rules():
    optim = torch.optim

    def groups(make):
        def of_groups(parameters):
            weights, biases = [], []
            for p in parameters:
                (weights if p.dim() > 1 else biases).append(p)
            return make([{"params": weights}, {"params": biases, "weight_decay": 0.0}])
        return of_groups

    def rmsprop_of_groups(parameters):
        """The biases without momentum."""
        made = groups(lambda of: optim.RMSprop(of, lr=0.01, eps=0.1, momentum=0.5))(parameters)
        made.param_groups[1]["momentum"] = 0.0
        return made

    return {
        "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
        "nesterov": groups(lambda p: optim.SGD(
            p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01
        )),
        "adam": lambda p: optim.Adam(p, lr=0.01),
        "adamw": groups(lambda p: optim.AdamW(p, lr=0.01)),
        "adagrad": lambda p: optim.Adagrad(p, lr=0.05),
        "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, eps=1e-3),
        "rmsprop with momentum": rmsprop_of_groups,
        "adam with amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
        "adamw with amsgrad": groups(
            lambda p: optim.AdamW(p, lr=0.01, betas=(0.9, 0.9), amsgrad=True)
        ),
    }


def first_half(rule):
    def habit(script):
        model = _model()
        optimizer = script.optimizer(model, _rules()[rule])
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        _train(script, model, optimizer, after=lambda *_: scheduler.step())
        return model.state_dict(), optimizer.state_dict()

    return habit


def second_half(rule, saved, *, handed_over=False):
    """Begins from what first_half returns."""
    def habit(script):
        model = _model()
        model.load_state_dict(saved[0])

        def make(parameters):
            given = _rules()[rule](parameters)
            if handed_over or not script.is_worker:
                given.load_state_dict(saved[1])
            return given

        optimizer = script.optimizer(model, make)
        if not handed_over and script.is_worker:
            optimizer.load_state_dict(saved[1])
        _train(script, model, optimizer, steps=range(_STEPS, 2 * _STEPS))
        return model.state_dict(), optimizer.state_dict()

    return habit


@unittest.skipIf(torch is None, "needs PyTorch")
class AssignmentTest(unittest.TestCase):
    def assertClose(self, found, expected, tolerance, path=""):
        if isinstance(expected, dict):
            # Groups of the torch.optim that was loaded have what was saved, and no more.
            more = {"iteration", "differentiable"}
            found = {key: value for key, value in found.items() if key not in more}
            self.assertEqual(set(found), set(expected) - more, path)
            for key, value in found.items():
                self.assertClose(value, expected[key], tolerance, f"{path}/{key}")
        elif isinstance(expected, list):
            self.assertEqual(len(found), len(expected), path)
            for i, value in enumerate(expected):
                self.assertClose(found[i], value, tolerance, f"{path}/{i}")
        elif isinstance(expected, torch.Tensor):
            self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape), path)
            error = (found.double() - expected.double()).abs().max() if found.numel() else 0
            self.assertLess(float(error), tolerance, path)
        elif isinstance(expected, float):
            self.assertAlmostEqual(found, expected, 6, path)
        else:
            self.assertEqual(found, expected, path)

    def values(self, habit, schedule, workers, **settings):
        ends = outcomes_of(habit, schedule, workers, **settings)
        for rank, end in enumerate(ends):
            self.assertIsNone(end.error, f"worker {rank}: {end.error}\n{end.trace}")
        return [end.value for end in ends]

    def test_changed_parameters(self):
        for habit, (schedule, workers) in itertools.product(
            _CHANGES, [("BACKWARD", 1), ("BACKWARD", 2), ("FULL", 2), ("SEQUENTIAL", 4)]
        ):
            with self.subTest(habit.__name__, schedule=schedule, workers=workers):
                expected = reference_of(habit, workers)
                for value in self.values(habit, schedule, workers):
                    self.assertClose(value, expected, 1e-5)

    def test_state_goes_from_torch_and_back(self):
        runs = itertools.cycle([
            ("BACKWARD", 1, True), ("FULL", 2, False), ("SEQUENTIAL", 4, True),
            ("BACKWARD", 4, False), ("FULL", 2, True),
        ])
        for rule, (schedule, workers, shared) in zip(_rules(), runs):
            settings = {"shared_memory": shared, "transport": "unix" if shared else "tcp"}
            with self.subTest(rule, schedule=schedule, workers=workers, shared=shared):
                first = reference_of(first_half(rule), workers)
                second = reference_of(second_half(rule, first), workers)
                for handed_over in (False, True):
                    habit = second_half(rule, first, handed_over=handed_over)
                    for value in self.values(habit, schedule, workers, **settings):
                        self.assertClose(value, second, 2e-5)
                halves = self.values(first_half(rule), schedule, workers, **settings)
                for half in halves:
                    self.assertClose(half, first, 2e-5)
                there = reference_of(second_half(rule, halves[-1]), workers)
                self.assertClose(there, second, 3e-5)

    def test_what_is_assigned_has_all_its_bits(self):
        """Also what the script leaves as it is, although the model has it rounded."""
        def habit(script):
            model = _model()
            optimizer = script.optimizer(model, _rules()["momentum"])
            optimizer.param_groups[0]["lr"] = 0.0
            _train(script, model, optimizer, steps=range(1))
            with script.assign(optimizer):
                model[0].bias.copy_(torch.linspace(0.1, 0.9, 130))
            state = optimizer.state_dict()
            for values in state["state"].values():
                values["momentum_buffer"].uniform_(generator=fixture.generator(5))
            optimizer.load_state_dict(state)
            for _ in range(3):
                with script.assign(optimizer):
                    model[0].bias[0] = 2.0
            exact, _ = optimizer._exchange.pull_state(0)
            names = [item.name for item in optimizer._exchange.tensors]
            return {names[i]: v for i, v in exact.items()}, optimizer.state_dict()["state"], state

        encodings = "gradient_encoding: BFLOAT16 parameter_encoding: BFLOAT16"
        for workers, shared in ((1, True), (2, False)):
            with self.subTest(workers=workers, shared=shared):
                found, state, given = self.values(
                    habit, "BACKWARD", workers, exchange=encodings, shared_memory=shared
                )[-1]
                expected = {k: v.detach() for k, v in _model().named_parameters()}
                expected["0.bias"] = torch.linspace(0.1, 0.9, 130)
                expected["0.bias"][0] = 2.0
                for name, value in expected.items():
                    self.assertTrue(torch.equal(found[name], value), name)
                self.assertClose(state, given["state"], 1e-12)

    def test_placements_have_the_same_bits(self):
        def habit(script):
            model = _model()
            optimizer = script.optimizer(model, _rules()["adamw"])
            _train(script, model, optimizer, before=_clamp(script))
            optimizer.load_state_dict(optimizer.state_dict())
            _train(script, model, optimizer, before=_clamp(script))
            return model.state_dict(), optimizer.state_dict()

        first, *others = [
            self.values(habit, "BACKWARD", 2, scheme=scheme, shards=shards)[0]
            for scheme, shards in (("STRIPED", 2), ("MEMORY_BASED", 1), ("LAYER_BASED", 2))
        ]
        for other in others:
            self.assertClose(other, first, 1e-38)

    def test_iterations_are_counted_alike(self):
        def psctl(verb, *arguments):
            done = subprocess.run(
                [fixture.built("tools/psctl/psctl"), verb, *arguments,
                 f"--config={os.environ['EVENSHARD_CONFIG']}"],
                capture_output=True, text=True, check=True,
            )
            return done.stdout

        def habit(script):
            model = _model()
            optimizer = script.optimizer(model, _rules()["adam"])
            optimizer.load_state_dict(optimizer.state_dict())
            _train(script, model, optimizer, before=_clamp(script), after=_clamp(script))
            optimizer.synchronize()
            if script.ranks != [0]:
                return None
            with evenshard.Reader() as reader:
                read = [reader.pull().iteration, reader.pull(newer_than=_STEPS - 1).iteration]
            with tempfile.TemporaryDirectory() as folder:
                saved = psctl("save", f"--out={folder}/model.safetensors")
            return optimizer.iteration, read, json.loads(psctl("stats", "--format=json")), saved

        steps, read, stats, saved = self.values(habit, "BACKWARD", 2)[0]
        self.assertEqual((steps, read), (_STEPS, [_STEPS, _STEPS]))
        self.assertIn(f"after {_STEPS} iterations", saved)
        self.assertEqual(len(stats["shards"]), 2)
        for shard in stats["shards"]:
            counts = shard["stats"]
            self.assertEqual(int(counts["worker"][0]["iteration"]), _STEPS)
            self.assertEqual(int(counts["progress"]["largest"]), _STEPS)
            self.assertEqual(int(counts["pushes"]), 2 * _STEPS * int(counts["chunks"]))

    def refused(self, habit, kinds, text, *, workers=2, **settings):
        ends = outcomes_of(habit, "BACKWARD", workers, **settings)
        self.assertLessEqual({end.kind for end in ends}, kinds, [end.error for end in ends])
        self.assertRegex("\n".join(end.error for end in ends), text)

    def test_workers_that_disagree_are_named(self):
        def only_one(script):
            model = _model()
            optimizer = script.optimizer(model)
            _train(script, model, optimizer)
            if script.ranks == [0]:
                with script.assign(optimizer):
                    pass
            _train(script, model, optimizer)

        def state_and_parameters(script):
            model = _model()
            optimizer = script.optimizer(model, _rules()["adam"])
            _train(script, model, optimizer)
            if script.ranks == [0]:
                optimizer.load_state_dict(optimizer.state_dict())
            else:
                with script.assign(optimizer):
                    pass

        self.refused(only_one, {"Aborted"},
                     r"workers . and . disagree at iteration 4 .*parameters, by assign\(\)")
        self.refused(state_and_parameters, {"Aborted"},
                     r"array 1 of the optimizer's state, by load_state_dict\(\)")

    def test_what_is_refused(self):
        def load(change, rule="adam"):
            def habit(script):
                model = _model()
                optimizer = script.optimizer(model, _rules()[rule])
                _train(script, model, optimizer)
                saved = optimizer.state_dict()
                change(saved)
                optimizer.load_state_dict(saved)
            return habit

        def in_the_middle(script):
            model = _model()
            optimizer = script.optimizer(model)
            _loss(script, model, 0).backward()
            with script.assign(optimizer):
                pass

        def by_data(script):
            model = _model()
            optimizer = script.optimizer(model)
            model[0].weight.data.mul_(0.5)
            with script.assign(optimizer):
                pass

        def by_a_reference(script):
            model = _model()
            optimizer = script.optimizer(model)
            return optimizer.state[model[0].weight]

        def not_finite(script):
            model = _model()
            optimizer = script.optimizer(model)
            with script.assign(optimizer):
                model[0].weight[0, 0] = float("nan")

        def within(does):
            """What is done to a model in assign()."""
            def habit(script):
                model = _model()
                optimizer = script.optimizer(model, _rules()["adam"])
                _train(script, model, optimizer)
                with script.assign(optimizer):
                    model[0].bias.mul_(0.5)
                    does(script, model, optimizer)
            return habit

        def nested(script, _, optimizer):
            with script.assign(optimizer):
                pass

        def a_step(script, model, optimizer):
            with torch.enable_grad():
                _loss(script, model, 0).backward()
                optimizer.step()

        def a_state(_, __, optimizer):
            optimizer.load_state_dict(optimizer.state_dict())

        def another_shape(_, model, __):
            model[0].bias.data = torch.zeros(1)

        def another_parameter(_, model, __):
            model[0].bias = nn.Parameter(torch.zeros(130))

        def loaded(_, model, __):
            saved = model.state_dict()
            # As by assign=True, which PyTorch has since 2.1.
            saved._metadata[""]["assign_to_params_buffers"] = True
            model.load_state_dict(saved)

        def plain_assign(script):
            with script.assign(script.optimizer(_model())):
                pass

        def amsgrad(saved):
            saved["state"][0]["max_exp_avg_sq"] = torch.zeros(130, 6)

        def velocity(saved):
            saved["state"][2]["momentum_buffer"] = torch.zeros(130)  # of a group without momentum

        def wrong_shape(saved):
            saved["state"][0]["exp_avg"] = torch.zeros(130)

        def without(*path):
            def change(saved):
                for key in path[:-1]:
                    saved = saved[key]
                del saved[path[-1]]
            return change

        def step_of(value):
            return lambda saved: saved["state"][0].update(step=value)

        def unknown(saved):
            saved["state"][9] = {"step": 1}

        def nesterov(saved):
            saved["param_groups"][0]["nesterov"] = True

        mistakes = {"InvalidArgument", "FailedPrecondition", "TensorError", "Aborted"}
        for habit, text in (
            (load(amsgrad), r'\["max_exp_avg_sq"\]: cannot be taken over, allowed for ADAM'),
            (load(velocity, "rmsprop with momentum"),
             "allowed for RMSPROP_MOMENTUM with momentum 0: square_avg, step"),
            (load(wrong_shape), r"a tensor of the shape \(130,\), allowed: .* \(130, 6\)"),
            (load(unknown), r"state\[9\] is of no parameter, allowed: 0 to 3"),
            (load(nesterov, "momentum"), r'\["nesterov"\]: is True, allowed: False'),
            (load(without("state")), "lacks state, allowed: what state_dict"),
            (load(without("param_groups")), "lacks param_groups, allowed: what state_dict"),
            (load(without("state", 0, "step")), r"state\[0\] lacks step, allowed: all"),
            (load(without("state", 0, "exp_avg_sq")), r"state\[0\] lacks exp_avg_sq, allowed: all"),
            (load(without("param_groups", 0, "lr")), r'\["lr"\]: is missing, allowed: a number'),
            (load(step_of(float("nan"))), "is nan, allowed: a whole number"),
            (load(step_of(torch.ones(2))), r"is tensor\(\[1., 1.\]\), allowed: a whole number"),
            (within(nested), r"\bassign\(\): in `with optimizer.assign"),
            (within(a_step), r"backward\(\) or step\(\): in `with optimizer.assign"),
            (within(a_state), r"load_state_dict\(\): in `with optimizer.assign"),
            (within(another_shape), r"0.bias: was replaced .* allowed: .* shape \(130,\)"),
            (within(another_parameter), "0.bias: was replaced since evenshard.Optimizer was made"),
            (within(loaded), "load_state_dict: with assign=True, whose parameters nobody"),
            (in_the_middle, "have been pushed; allowed: before backward"),
            (by_data, "0.weight: was changed by the script before an assignment"),
            (by_a_reference, r"live at the shards; allowed: state_dict\(\)"),
            (not_finite, "worker 0 assigned a value that is not finite at iteration 0: 0.weight"),
        ):
            with self.subTest(text):
                self.refused(habit, mistakes, text)
        self.refused(plain_assign, mistakes, "can be assigned under SYNC only",
                     update="policy: ASYNC")


if __name__ == "__main__":
    unittest.main()
