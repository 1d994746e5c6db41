"""What scripts do besides plain training: each habit gives what one process gives, or raises.

A habit is a training loop, written once. It runs with an optimizer of torch.optim in one process
that has all batches, and as the workers of a run, each with its own.
"""

import contextlib
import copy
import io
import itertools
import signal
import unittest
import warnings

from tests.python import fixture
from tests.python.script import (
    SCHEDULES, WIDE, Script, loss_of, mlp, outcomes_of, reference_of, small_training,
)

torch = fixture.torch
if torch is not None:
    from torch import nn

    class _Remembers(nn.Module):
        """Keeps what it is given, and not a copy of that."""

        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(4, 6))

        def forward(self, x):
            self.last = x
            return x


_STEPS = 6
_EARLY = ("BACKWARD", "FULL")


def _train(script, *, model=None, rule=None, before=None, between=None, after=None, at=0):
    """A loop that does something else at three places, from step `at` on. Returns what those have
    returned, and the trained values."""
    model = model or mlp()
    optimizer = script.optimizer(model, rule)
    seen = []
    for step in range(_STEPS):
        does = [call if step >= at else None for call in (before, between, after)]
        optimizer.zero_grad(set_to_none=True)
        if does[0]:
            seen.append(does[0](model, optimizer))
        loss_of(script, model, step).backward()
        if does[1]:
            seen.append(does[1](model, optimizer))
        optimizer.step()
        if does[2]:
            seen.append(does[2](model, optimizer))
    return seen, model.state_dict()


# Habits that give what one process gives.


def plain(script):
    return _train(script)


def norms_of_parameters_between_backward_and_step(script):
    return _train(script, between=lambda model, _: [p.detach().norm() for p in model.parameters()])


def a_buffer_on_the_memory_of_the_batch(script):
    """What other workers receive in its place is not written into their batches."""
    model = nn.Sequential(_Remembers(), *mlp())
    optimizer = script.optimizer(model)
    batches = [script.batch(step) for step in range(2)]
    before = copy.deepcopy(batches)
    for inputs, targets in batches * 3:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    if script.is_worker:
        optimizer.synchronize()
    torch.testing.assert_close(batches, before, rtol=0, atol=0)
    return dict(model.named_parameters())


def norms_of_gradients(script):
    """Each worker has its own gradients: they are read, and not compared."""
    def read(model, _):
        for p in model.parameters():
            assert float(p.grad.norm()) > 0
    return _train(script, between=read)


def size_of_the_update(script):
    kept = []

    def keep(model, _):
        kept[:] = [p.detach().clone() for p in model.parameters()]

    def compare(model, _):
        return [(p.detach() - k).norm() for p, k in zip(model.parameters(), kept)]

    return _train(script, between=keep, after=compare)


def average_of_weights(script):
    model = mlp()
    average = [p.detach().clone() for p in model.parameters()]

    def update(model, _):
        with torch.no_grad():
            for a, p in zip(average, model.parameters()):
                a.mul_(0.9).add_(p, alpha=0.1)

    return _train(script, model=model, after=update)[1], average


def average_of_weights_by_references(script):
    model = mlp()
    parameters = list(model.parameters())
    average = [p.detach().clone() for p in parameters]

    def update(*_):
        with torch.no_grad():
            for a, p in zip(average, parameters):
                a.mul_(0.9).add_(p, alpha=0.1)

    return _train(script, model=model, after=update)[1], average


def views_of_parameters(script):
    """They see the updates, as torch.optim makes them in place."""
    model = mlp()
    views = [p.detach()[0] for p in model.parameters()]
    return _train(script, model=model, after=lambda *_: None)[1], views


def averaged_model(script):
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model)
    state = _train(script, model=model, after=lambda m, _: average.update_parameters(m))[1]
    return state, [p.detach() for p in average.module.parameters()]


def copies_and_files(script):
    def read(model, _):
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        options = {} if torch.__version__ < "2" else {"weights_only": False}
        loaded = torch.load(file, **options)
        return copy.deepcopy(model).state_dict(), loaded.state_dict()
    return _train(script, after=read)


def a_method_that_is_not_forward(script):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.inner = nn.Linear(6, WIDE)
            self.outer = nn.Linear(WIDE, 5)

        def encode(self, x):
            return x @ self.inner.weight.t()

        def forward(self, x):
            return self.outer(torch.tanh(self.inner(x)))

    x = torch.ones(2, 6)
    return _train(script, model=Model(), after=lambda model, _: model.encode(x).detach())


def recurrent(script):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.cell = nn.LSTM(6, 24, batch_first=True)
            self.head = nn.Linear(24, 5)

        def forward(self, x):
            return self.head(self.cell(x.unsqueeze(1))[0][:, 0])

    return _train(script, model=Model())


def tied_and_reused(script):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.inner = nn.Linear(6, 6)
            self.tied = nn.Linear(6, 6)
            self.tied.weight = self.inner.weight
            self.head = nn.Linear(6, 5)

        def forward(self, x):
            return self.head(torch.tanh(self.tied(torch.tanh(self.inner(self.inner(x))))))

    return _train(script, model=Model())


def unused_everywhere(script):
    model = mlp()
    model.unused = nn.Linear(3, 3)
    model.forward = lambda x: model[4](model[3](model[2](model[1](model[0](x)))))
    return _train(script, model=model, rule=lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.1))


def _one_branch_for_each_rank(script, rule=None):
    """Each rank uses its own branch, so that no worker has a gradient of all parameters."""
    model = mlp()
    model.branches = nn.ModuleList(nn.Linear(5, 5) for _ in range(4))
    optimizer = script.optimizer(model, rule)
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        losses = []
        for rank in script.ranks:
            inputs, targets = Script(rank, 4).batch(step)
            branch = model.branches[(rank + step) % 3]  # one is used by nobody
            losses.append(nn.functional.mse_loss(branch(model[:5](inputs)), targets))
        (sum(losses) / len(losses)).backward()
        optimizer.step()
    return model.state_dict()


def a_branch_that_some_workers_use(script):
    return _one_branch_for_each_rank(script)


def a_branch_that_some_workers_use_with_momentum(script):
    return _one_branch_for_each_rank(
        script, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01)
    )


def evaluation_in_between(script):
    def evaluate(model, _):
        model.eval()
        with torch.no_grad():
            found = model(torch.ones(2, 6))
        model.train()
        return found
    return _train(script, before=evaluate, after=evaluate)


def accumulation(script):
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        for part in range(3):
            context = contextlib.nullcontext() if part == 2 else script.no_sync(optimizer)
            with context:
                (loss_of(script, model, 3 * step + part) / 3).backward()
        optimizer.step()
    return model.state_dict()


def a_closure(script):
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        def closure(step=step):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(script, model, step)
            loss.backward()
            return loss
        optimizer.step(closure)
    return model.state_dict()


def gradients_that_stay(script):
    """zero_grad() is called in every second step only, so that they add up."""
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        if step % 2 == 0:
            model.zero_grad()
        loss_of(script, model, step).backward()
        optimizer.step()
    return model.state_dict()


def zero_grad_after_step(script):
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        loss_of(script, model, step).backward()
        optimizer.step()
        model.zero_grad(set_to_none=False)
    return model.state_dict()


def a_schedule_of_the_rate(script):
    model = mlp()
    optimizer = script.optimizer(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss_of(script, model, step).backward()
        optimizer.step()
        scheduler.step()
    return model.state_dict()


def _a_schedule_of_the_given(of, when):
    def habit(script):
        model = mlp()
        given = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = of(given) if when == "before" else None
        optimizer = script.optimizer(model, lambda _: given)
        scheduler = scheduler or of(given)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # of schedulers that see no step()
            for step in range(_STEPS):
                optimizer.zero_grad(set_to_none=True)
                loss_of(script, model, step).backward()
                optimizer.step()
                scheduler.step()
        return model.state_dict()

    habit.__name__ = f"a_schedule_of_the_given_made_{when}"
    return habit


def _one_cycle(rule):
    def one_cycle(script):
        model = mlp()
        optimizer = script.optimizer(model, rule)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=_STEPS + 1)
        for step in range(_STEPS):
            optimizer.zero_grad(set_to_none=True)
            loss_of(script, model, step).backward()
            optimizer.step()
            scheduler.step()
        return model.state_dict()
    return one_cycle


def numbers_that_change_by_group(script):
    """A warm-up of momentum and schedules of weight decay, each in a group of its own."""
    model = mlp()
    optimizer = script.optimizer(model, lambda p: torch.optim.SGD(
        [{"params": [q], "momentum": 0.5 + 0.1 * i} for i, q in enumerate(list(p)[:4])]
        + [{"params": list(model.parameters())[4:]}], lr=0.1))
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss_of(script, model, step).backward()
        optimizer.step()
        optimizer.param_groups[0]["momentum"] = 0.6 + 0.05 * step
        optimizer.param_groups[3]["weight_decay"] = 0.01 * step
        optimizer.param_groups[4]["weight_decay"] = 0.1
    return model.state_dict()


def _numbers_that_change(rule, **numbers):
    def change(_, optimizer):
        for group in optimizer.param_groups:
            group.update(numbers)
    return lambda script: _train(script, rule=rule, after=change, at=2)[1]


def a_penalty_on_parameters(script):
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        penalty = sum(p.square().sum() for p in model.parameters())
        (loss_of(script, model, step) + 0.01 * penalty).backward()
        optimizer.step()
    return model.state_dict()


class _Scaled(nn.Module if torch is not None else object):
    """Has a factor and an offset that are not trained, and counts its calls."""

    def __init__(self):
        super().__init__()
        self.net = mlp()
        self.register_buffer("factor", torch.tensor(1.0))
        self.offset = nn.Parameter(torch.zeros(5), requires_grad=False)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls = self.calls + 1
        return self.factor * self.net(x) + self.offset


def values_that_are_replaced_after_step(script):
    """The old ones are under way then."""
    def replace(model, _):
        model.factor = model.factor / 2
        model.offset = nn.Parameter(model.offset + 0.1, requires_grad=False)
        model.register_buffer("calls", model.calls + 10)
    return _train(script, model=_Scaled(), after=replace)


def evaluation_in_inference_mode(script):
    def evaluate(model, _):
        with torch.inference_mode():
            return model(torch.ones(3, 6)).clone()
    return _train(script, model=_Scaled(), between=evaluate)


def parameters_on_one_tensor(script):
    model = mlp()
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    begin = 0
    for module in (model[0], model[2], model[4]):
        for name in ("weight", "bias"):
            old = getattr(module, name)
            view = flat[begin:begin + old.numel()].view(old.shape)
            setattr(module, name, nn.Parameter(view))
            begin += old.numel()
    return _train(script, model=model)


def gradients_on_one_tensor(script):
    model = mlp()
    optimizer = script.optimizer(model)
    flat = torch.zeros(sum(p.numel() for p in model.parameters()))
    for step in range(_STEPS):
        flat.zero_()
        begin = 0
        for p in model.parameters():
            p.grad = flat[begin:begin + p.numel()].view(p.shape)
            begin += p.numel()
        loss_of(script, model, step).backward()
        optimizer.step()
    return model.state_dict()


class _Twice(torch.autograd.Function if torch is not None else object):
    @staticmethod
    def forward(ctx, value, _):
        return 2 * value

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient, None


def a_function_that_gives_a_parameter_no_gradient(script):
    class _Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = mlp()
            self.unused = nn.Parameter(torch.ones(3))

        def forward(self, inputs):
            return _Twice.apply(self.layers(inputs), self.unused)

    return _train(script, model=_Model())


def a_model_of_torchscript(script):
    # Debian 13's PyTorch 2.6 hangs in the optimized graph's backward pass, also by itself.
    with torch.jit.optimized_execution(False):
        return _train(script, model=torch.jit.script(mlp()))


_RIGHT = [
    (values_that_are_replaced_after_step, SCHEDULES),
    (evaluation_in_inference_mode, SCHEDULES),
    (parameters_on_one_tensor, SCHEDULES),
    (gradients_on_one_tensor, SCHEDULES),
    (a_function_that_gives_a_parameter_no_gradient, SCHEDULES),
    (a_model_of_torchscript, ("BACKWARD", "SEQUENTIAL")),
    (plain, SCHEDULES),
    (a_buffer_on_the_memory_of_the_batch, SCHEDULES),
    (norms_of_parameters_between_backward_and_step, SCHEDULES),
    (norms_of_gradients, SCHEDULES),
    (size_of_the_update, SCHEDULES),
    (average_of_weights, SCHEDULES),
    (average_of_weights_by_references, ("BACKWARD", "SEQUENTIAL")),
    (views_of_parameters, ("BACKWARD", "SEQUENTIAL")),
    (averaged_model, SCHEDULES),
    (copies_and_files, SCHEDULES),
    (a_method_that_is_not_forward, SCHEDULES),
    (recurrent, SCHEDULES),
    (tied_and_reused, SCHEDULES),
    (unused_everywhere, SCHEDULES),
    (a_branch_that_some_workers_use, SCHEDULES),
    (a_branch_that_some_workers_use_with_momentum, SCHEDULES),
    (evaluation_in_between, SCHEDULES),
    (accumulation, SCHEDULES),
    (a_closure, SCHEDULES),
    (gradients_that_stay, SCHEDULES),
    (zero_grad_after_step, SCHEDULES),
    (a_schedule_of_the_rate, SCHEDULES),
    *(
        (_a_schedule_of_the_given(of, when), SCHEDULES)
        for when in ("before", "after")
        for of in (
            lambda given: torch.optim.lr_scheduler.StepLR(given, 2, gamma=0.5),
            lambda given: torch.optim.swa_utils.SWALR(given, swa_lr=0.05),
        )
    ),
    (a_penalty_on_parameters, SCHEDULES),
    (_one_cycle(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)), SCHEDULES),
    (_one_cycle(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True)), SCHEDULES),
    (_one_cycle(lambda p: torch.optim.AdamW(p, 0.01, eps=1e-3)), SCHEDULES),
    (numbers_that_change_by_group, SCHEDULES),
    (_numbers_that_change(lambda p: torch.optim.Adam(p, 0.01, eps=1e-3), betas=(0.8, 0.9), eps=0.01,
                          weight_decay=0.1), SCHEDULES),
    (_numbers_that_change(lambda p: torch.optim.Adagrad(p, 0.01, eps=1e-3), eps=0.01,
                          weight_decay=0.1),
     SCHEDULES),
    (_one_cycle(lambda p: torch.optim.RMSprop(p, 0.01, eps=0.1, momentum=0.9)), SCHEDULES),
    (_numbers_that_change(lambda p: torch.optim.RMSprop(p, 0.01, eps=0.1, momentum=0.9), eps=0.2,
                          weight_decay=0.1, momentum=0.5, alpha=0.8), SCHEDULES),
    (_numbers_that_change(lambda p: torch.optim.Adam(p, 0.01, eps=1e-3, amsgrad=True),
                          betas=(0.8, 0.9)), SCHEDULES),
]


# What changes a gradient before step(): right under SEQUENTIAL, where it is linear and therefore
# the same for the mean, and refused where the gradient has left.


def _each_gradient(change):
    def between(model, _):
        for p in model.parameters():
            change(p)
    return lambda script: _train(script, between=between)


def _halve(p):
    p.grad.mul_(0.5)


def _halve_data(p):
    p.grad.data.mul_(0.5)


def _halve_by_numpy(p):
    p.grad.numpy()[...] *= 0.5


def _replace(p):
    p.grad = p.grad * 0.5


def loss_scaling_by_hand(script):
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        (1024 * loss_of(script, model, step)).backward()
        for p in model.parameters():
            p.grad.data.div_(1024)
        optimizer.step()
    return model.state_dict()


def a_rate_that_changes_between_backward_and_step(script):
    def change(_, optimizer):
        optimizer.param_groups[0]["lr"] *= 0.5
    return _train(script, between=change)


_ONLY_SEQUENTIAL = [
    (_each_gradient(_halve), "its gradient was changed"),
    (_each_gradient(_halve_data), "its gradient was changed"),
    (_each_gradient(_halve_by_numpy), "its gradient was changed"),
    (_each_gradient(_replace), "its gradient was changed"),
    (loss_scaling_by_hand, "its gradient was changed"),
    (a_rate_that_changes_between_backward_and_step, "has lr 0.05, .* and other numbers when"),
]


# What is refused everywhere.


def _there_and_back(model, _):
    """As for an evaluation in float64."""
    model.double()
    model.float()


def another_type_between_steps(script):
    return _train(script, after=_there_and_back)


def another_type_and_a_changed_gradient(script):
    """What is noticed of gradients is noticed after it, too."""
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(script, model, step).backward()
        if step == 2:
            _halve(model[0].weight)
        optimizer.step()
        _there_and_back(model, optimizer)
    return model.state_dict()


def another_type_after_zero_grad(script):
    return _train(script, before=_there_and_back, at=2)


def _step_that_a_signal_ended(is_over):
    """As of a time limit for each batch, for which worker 0 lets worker 1 wait until that has set
    the event."""
    def stop(*_):
        raise TimeoutError("the batch took too long")

    def train(script):
        signal.signal(signal.SIGALRM, stop)
        model, optimizer, step = small_training(script)
        step(0)
        if script.ranks == [0]:
            is_over.wait(fixture.PATIENCE_SECONDS)
            return step(1)
        try:
            for number in itertools.count(1):
                with contextlib.suppress(TimeoutError):
                    signal.setitimer(signal.ITIMER_REAL, 1)
                    step(number)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            is_over.set()

    return train


def _change_parameters(change, **where):
    def all_of_them(model, _):
        with torch.no_grad():
            for p in model.parameters():
                change(p)
    return lambda script: _train(script, **{place: all_of_them for place in where}, at=1)


def _clamp(p):
    p.clamp_(-0.01, 0.01)


def _clamp_data(p):
    p.data.clamp_(-0.01, 0.01)


def _set_numbers(rule, **numbers):
    def change(_, optimizer):
        optimizer.param_groups[0].update(numbers)
    return lambda script, place="after": _train(script, rule=rule, at=1, **{place: change})


_WITH_MOMENTUM = _set_numbers(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), momentum=0.5)


def momentum_that_changes_before_step(script):
    return _WITH_MOMENTUM(script, "between")[1]


def a_change_of_what_is_under_way(script):
    model = mlp()
    optimizer = script.optimizer(model)
    kept = list(model.parameters())
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss_of(script, model, step).backward()
        optimizer.step()
        for parameter in kept:
            _clamp_data(parameter)


def own_initialisation(script):
    model = mlp()
    optimizer = script.optimizer(model)
    nn.init.zeros_(model[0].weight)
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss_of(script, model, step).backward()
        optimizer.step()


def _with_the_optimizer_that_was_handed_over(does):
    def habit(script):
        model = mlp()
        given = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        saved = given.state_dict()
        optimizer = script.optimizer(model, lambda _: given)
        torch.optim.lr_scheduler.StepLR(given, 2)
        loss_of(script, model, 0).backward()
        optimizer.step()
        does(given, saved)
    return habit


def a_copy_of_the_optimizer_that_trains(script):
    model = mlp()
    model, optimizer = copy.deepcopy((model, script.optimizer(model)))
    loss_of(script, model, 0).backward()
    optimizer.step()


def another_optimizer_of_the_same_parameters(script):
    model = mlp()
    optimizer, other = script.optimizer(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss_of(script, model, step).backward()
        optimizer.step()
        other.step()


def _other_parameters_in_groups(change):
    def groups(script):
        model = mlp()
        optimizer = script.optimizer(model, lambda p: torch.optim.SGD(
            [{"params": [q]} for q in p], lr=0.1
        ))
        change(optimizer.param_groups)
        loss_of(script, model, 0).backward()
        optimizer.step()
    return groups


def two_backward_passes(script):
    model = mlp()
    optimizer = script.optimizer(model)
    for part in range(2):
        loss_of(script, model, part).backward()
    optimizer.step()


_REFUSED = [
    (_change_parameters(_clamp, after=True), SCHEDULES, "was changed by the script"),
    (_change_parameters(_clamp, before=True), SCHEDULES, "was changed by the script"),
    (_change_parameters(_clamp, between=True), SCHEDULES, "was changed by the script"),
    (_change_parameters(_clamp_data, after=True), SCHEDULES, "was changed by the script"),
    (_change_parameters(_clamp_data, between=True), SCHEDULES, "was changed by the script"),
    (a_change_of_what_is_under_way, ("FULL",), "was changed by the script while its next value"),
    (momentum_that_changes_before_step, _EARLY, "and other numbers when"),
    (_set_numbers(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), momentum=0.0), SCHEDULES,
     "momentum not from 0 or to 0"),
    (_set_numbers(lambda p: torch.optim.SGD(p, 0.1), momentum=0.9), SCHEDULES,
     "momentum not from 0 or to 0"),
    (_set_numbers(lambda p: torch.optim.AdamW(p, 0.1), betas=(0.9, 1.0)), SCHEDULES,
     "beta2 is 1, allowed: a number of at least 0 and below 1"),
    (_set_numbers(lambda p: torch.optim.AdamW(p, 0.1), amsgrad=True), SCHEDULES,
     "amsgrad.*is True, allowed: False as at the start"),
    (own_initialisation, SCHEDULES, "0.weight: was changed by the script"),
    (_with_the_optimizer_that_was_handed_over(lambda given, _: given.step()), SCHEDULES,
     r"\bstep\(\): this optimizer was handed over"),
    (_with_the_optimizer_that_was_handed_over(lambda given, _: given.state_dict()), ("FULL",),
     r"\bstate_dict\(\): this optimizer was handed over"),
    (_with_the_optimizer_that_was_handed_over(lambda given, s: given.load_state_dict(s)),
     ("FULL",), r"\bload_state_dict\(\): this optimizer was handed over"),
    (_with_the_optimizer_that_was_handed_over(lambda given, _: given.add_param_group({})),
     ("FULL",), r"\badd_param_group\(\): this optimizer was handed over"),
    (_with_the_optimizer_that_was_handed_over(lambda given, _: list(given.state)), ("FULL",),
     "momentum and moments live at the shards"),
    (another_optimizer_of_the_same_parameters, SCHEDULES, "was changed by the script"),
    (a_copy_of_the_optimizer_that_trains, ("BACKWARD",), "a copy of an evenshard.Optimizer"),
    (_other_parameters_in_groups(lambda groups: groups.pop()), ("FULL",), "have other parameters"),
    (_other_parameters_in_groups(lambda groups: groups.reverse()), ("BACKWARD",),
     "have other parameters"),
    (_other_parameters_in_groups(lambda groups: groups[0]["params"].clear()), ("SEQUENTIAL",),
     "have other parameters"),
    (_set_numbers(lambda p: torch.optim.SGD(p, 0.1), lr=float("nan")), SCHEDULES,
     "learning_rate: is nan, allowed: a number"),
    (_set_numbers(lambda p: torch.optim.SGD(p, 0.1), lr=None), ("BACKWARD",),
     "has lr None, .* allowed: numbers"),
    (_set_numbers(lambda p: torch.optim.Adam(p, 0.1), betas=(0.9,)), ("BACKWARD",),
     r"betas \(0.9,\), .* allowed: numbers, and two"),
    (two_backward_passes, _EARLY, "has a second gradient"),
]
_RIGHT.append((another_type_between_steps, SCHEDULES))
_REFUSED.append((another_type_and_a_changed_gradient, _EARLY, "its gradient was changed"))
# Since 2.1 PyTorch keeps a parameter's hooks.
if hasattr(getattr(torch, "Tensor", None), "register_post_accumulate_grad_hook"):
    _RIGHT.append((another_type_after_zero_grad, _EARLY))
else:
    _REFUSED.append((another_type_after_zero_grad, _EARLY, "has dropped the hook"))


def _name(habit):
    return getattr(habit, "__name__", str(habit))


@unittest.skipIf(torch is None, "PyTorch is not installed: habits of scripts")
class ScriptsTest(unittest.TestCase):
    def setUp(self):
        self._sizes = itertools.cycle((2, 1, 4))
        self._shares = fixture.shares()

    def check_right(self, habit, schedule):
        workers = next(self._sizes)
        if not next(self._shares):
            return
        with self.subTest(_name(habit), schedule=schedule, workers=workers):
            expected = reference_of(habit, workers)
            for end in outcomes_of(habit, schedule, workers):
                self.assertIsNone(end.error, end.trace)
                torch.testing.assert_close(end.value, expected, rtol=1e-4, atol=1e-6)

    def check_refused(self, habit, schedule, text):
        workers = next(self._sizes)
        if not next(self._shares):
            return
        with self.subTest(_name(habit), schedule=schedule, workers=workers, text=text):
            ends = outcomes_of(habit, schedule, workers)
            # The others may hear of it before they do the same.
            kinds = {end.kind for end in ends}
            allowed = {"FailedPrecondition", "InvalidArgument", "Aborted"}
            self.assertLessEqual(kinds, allowed, [e.error for e in ends])
            self.assertRegex("\n".join(end.error for end in ends), text)

    def test_habits_that_give_what_one_process_gives(self):
        for habit, schedules in _RIGHT:
            for schedule in schedules:
                self.check_right(habit, schedule)

    def test_gradients_and_rates_that_change_before_step(self):
        for habit, text in _ONLY_SEQUENTIAL:
            self.check_right(habit, "SEQUENTIAL")
            for schedule in _EARLY:
                self.check_refused(habit, schedule, text)

    def test_a_step_that_a_signal_ended(self):
        for schedule in SCHEDULES:
            with self.subTest(schedule):
                is_over = fixture.multiprocessing.get_context("fork").Event()
                ends = outcomes_of(_step_that_a_signal_ended(is_over), schedule, 2)
                self.assertEqual(ends[1].kind, "Interrupted", ends[1].trace)

    def test_what_is_refused(self):
        for habit, schedules, text in _REFUSED:
            for schedule in schedules:
                self.check_refused(habit, schedule, text)


if __name__ == "__main__":
    unittest.main()
