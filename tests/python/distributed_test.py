"""evenshard.DistributedOptimizer against one process that has all batches: the script's own
optimizer, with the mean gradient."""

import collections
import contextlib
import copy
import itertools
import unittest
import warnings

from tests.python import fixture
from tests.python.script import Script, outcomes_of, reference_of

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard

_STEPS = 5
_SCHEDULES = ("BACKWARD", "SEQUENTIAL")
_SCHEMES = ("STRIPED", "MEMORY_BASED", "LAYER_BASED")
_WIDE = 130  # a square of so many is pushed at once


class _Adafactor(torch.optim.Optimizer if torch is not None else object):
    """Shazeer and Stern 2018 with factored second moments, without momentum: a rule that is not
    element by element, so that no shard could have it."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad() if torch is not None else lambda step: step
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(group["lr"] * self._update(self.state[p], p.grad))

    @staticmethod
    def _update(state, gradient):
        squares = gradient.square() + 1e-6
        moments = [squares] if squares.dim() < 2 else [squares.mean(0), squares.mean(1)]
        kept = state.setdefault("moments", [torch.zeros_like(m) for m in moments])
        for old, new in zip(kept, moments):
            old.lerp_(new, 0.1)
        if len(kept) == 1:
            update = gradient / kept[0].sqrt()
        else:
            update = gradient / (torch.outer(kept[1], kept[0]) / kept[1].mean()).sqrt()
        return update / max(1.0, float(update.square().mean().sqrt()))


def _mlp():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(6, _WIDE), nn.Tanh(), nn.Linear(_WIDE, _WIDE), nn.Tanh(), nn.Linear(_WIDE, 5)
    )


def _distributed(script, optimizer, model):
    return evenshard.DistributedOptimizer(optimizer, model) if script.is_worker else optimizer


def _synchronize(script, optimizer):
    if script.is_worker:
        optimizer.synchronize()


def _loss(script, model, step):
    inputs, targets = script.batch(step)
    return nn.functional.mse_loss(model(inputs), targets)


def _sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def _train(script, rule=_sgd, *, model=None, between=None, after=None):
    """A loop that does something else between backward() and step(), and after it."""
    model = model or _mlp()
    optimizer = _distributed(script, rule(model.parameters()), model)
    seen = []
    for step in range(_STEPS):
        optimizer.zero_grad()
        _loss(script, model, step).backward()
        if between:
            seen.append(between(script, model, optimizer))
        optimizer.step()
        if after:
            seen.append(after(script, model, optimizer))
    return seen, model.state_dict()


def _with_rule(rule):
    def train(script):
        return _train(script, rule, after=lambda _, model, __: [
            p.detach().clone() for p in model.parameters()
        ])
    return train


def _rules():
    return {
        "SGD": _with_rule(_sgd),
        "Adam": _with_rule(lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3)),
        "RMSprop": _with_rule(lambda p: torch.optim.RMSprop(p, lr=1e-3, eps=1e-2, momentum=0.5)),
        "Adafactor": _with_rule(lambda p: _Adafactor(p, lr=1e-3)),
    }


# Habits that give what one process gives.


def clipping_by_norm(script):
    def clip(script, model, optimizer):
        _synchronize(script, optimizer)
        return torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    return _train(script, between=clip)


def clipping_by_value(script):
    def clip(script, model, optimizer):
        _synchronize(script, optimizer)
        torch.nn.utils.clip_grad_value_(model.parameters(), 1e-3)
    return _train(script, between=clip)


def logging_gradients(script):
    def norms(_, model, __):
        return [p.grad.norm() for p in model.parameters()]
    return _train(script, after=norms)


def synchronizing_twice(script):
    def twice(script, _, optimizer):
        _synchronize(script, optimizer)
        _synchronize(script, optimizer)
    return _train(script, between=twice)


def leaving_a_step_out(script):
    """The mean shows all workers the same, so that all do the same with it."""
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    for step in range(_STEPS):
        optimizer.zero_grad()
        _loss(script, model, step).backward()
        _synchronize(script, optimizer)
        if step != 2:
            optimizer.step()
    return model.state_dict()


def a_further_backward_after_synchronizing(script):
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    for step in range(_STEPS):
        optimizer.zero_grad()
        _loss(script, model, step).backward()
        _synchronize(script, optimizer)
        _loss(script, model, 10 + step).backward()
        optimizer.step()
    return model.state_dict()


def a_backward_of_its_own_after_synchronizing(script):
    """The gradient that no_sync() keeps here is exchanged with what is there."""
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    for step in range(_STEPS):
        optimizer.zero_grad()
        _loss(script, model, step).backward()
        _synchronize(script, optimizer)
        with script.no_sync(optimizer):
            _loss(script, model, 10 + step).backward()
        optimizer.step()
    return model.state_dict()


def _leaving_a_step_out_of(compute):
    """`compute(script, model, optimizer, loss)` sets the gradients, by ways that no hook sees."""
    def habit(script):
        model = _mlp()
        optimizer = _distributed(script, _sgd(model.parameters()), model)
        for step in range(2 * _STEPS):
            model.zero_grad(set_to_none=True)
            compute(script, model, optimizer, _loss(script, model, step))
            _synchronize(script, optimizer)
            if step != 2:
                optimizer.step()
        return model.state_dict()

    habit.__name__ = f"leaving_a_step_out_of_{compute.__name__}"
    return habit


def accumulation_alone(script, _, optimizer, loss):
    with script.no_sync(optimizer):
        loss.backward()


def gradients_set_by_hand(_, model, __, loss):
    parameters = list(model.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
        parameter.grad = gradient


class _WithoutARate(torch.optim.SGD if torch is not None else object):
    """Has its own idea of a rate, and methods of its own."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, 0.1)
        self.param_groups[0]["lr"] = lr
        self.is_training = False

    def train(self):
        self.is_training = True

    def step(self, closure=None):
        assert self.is_training
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter -= 0.1 * parameter.grad


def an_attribute_that_is_written(script):
    def switch(_, __, optimizer):
        optimizer.is_training = True
    return _train(script, lambda p: _WithoutARate(p, None), between=switch)


def a_state_that_begins_anew(script):
    def forget(_, __, optimizer):
        optimizer.state = collections.defaultdict(dict)
        return len(optimizer.state)
    return _train(script, after=forget)


def _with_the_rate(rate):
    def habit(script):
        def train(_, __, optimizer):
            optimizer.train()
        return _train(script, lambda p: _WithoutARate(p, rate), between=train)

    habit.__name__ = f"with_the_rate_{rate}"
    return habit


def accumulating(script):
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    for step in range(_STEPS):
        optimizer.zero_grad()
        with script.no_sync(optimizer):
            _loss(script, model, 2 * step).backward()
        _loss(script, model, 2 * step + 1).backward()
        optimizer.step()
    return model.state_dict()


def without_forgetting_gradients(script):
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    for step in range(_STEPS):
        _loss(script, model, step).backward()
        optimizer.step()
    return model.state_dict()


def a_closure(script):
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    for step in range(_STEPS):
        def closure(number=step):
            optimizer.zero_grad()
            loss = _loss(script, model, number)
            loss.backward()
            return loss
        assert float(optimizer.step(closure)) > 0
    return model.state_dict()


def a_scheduler_and_groups(script):
    model = _mlp()
    parameters = list(model.parameters())
    groups = [{"params": parameters[:2], "lr": 0.05}, {"params": parameters[2:]}]
    optimizer = _distributed(script, torch.optim.SGD(groups, lr=0.1, momentum=0.9), model)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=_STEPS + 1)
    for step in range(_STEPS):
        optimizer.zero_grad()
        _loss(script, model, step).backward()
        optimizer.step()
        scheduler.step()
    return model.state_dict(), scheduler.get_last_lr()


def clamped_weights(script):
    """As of the critic of a Wasserstein GAN."""
    def clamp(_, model, __):
        for p in model.parameters():
            p.data.clamp_(-0.05, 0.05)
    return _train(script, after=clamp)


def a_parameter_that_some_batches_use(script):
    model = nn.ModuleDict({"body": _mlp(), "extra": nn.Linear(5, 5)})
    optimizer = _distributed(script, torch.optim.Adam(model.parameters(), eps=1e-3), model)
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        for rank in script.ranks:
            inputs, targets = Script(rank, 4).batch(step)
            result = model["body"](inputs)
            if rank == 0 and step in (1, 3):  # in the others nobody does
                result = model["extra"](result)
            loss = nn.functional.mse_loss(result, targets) / len(script.ranks)
            loss.backward()
        optimizer.step()
        assert (model["extra"].weight.grad is None) == (step not in (1, 3))
    return model.state_dict(), optimizer.state_dict()


def a_part_of_the_model(script):
    """The other parameters stay as they are, and their gradients the worker's own."""
    model = _mlp()
    return _train(script, lambda _: _sgd(model[4].parameters()), model=model)


def saved_and_loaded(script):
    def reload(_, __, optimizer):
        optimizer.load_state_dict(optimizer.state_dict())
    return _train(script, after=reload)


def two_networks(script):
    """Goodfellow et al. 2014, as PyTorch's DCGAN example trains."""
    torch.manual_seed(3)
    generator = nn.Sequential(nn.Linear(4, _WIDE), nn.Tanh(), nn.Linear(_WIDE, 6))
    critic = nn.Sequential(nn.Linear(6, _WIDE), nn.Tanh(), nn.Linear(_WIDE, 1))
    both = nn.ModuleDict({"generator": generator, "critic": critic})
    critic_steps = _distributed(
        script, torch.optim.Adam(critic.parameters(), 1e-3, betas=(0.5, 0.999), eps=1e-3), both)
    generator_steps = _distributed(
        script, torch.optim.RMSprop(generator.parameters(), 1e-3, eps=1e-2), both)
    judge = nn.functional.binary_cross_entropy_with_logits
    for step in range(_STEPS):
        real, noise = script.batch(step)
        fake = generator(noise[:, :4])
        critic_steps.zero_grad()
        judge(critic(real), torch.ones(len(real), 1)).backward()
        judge(critic(fake.detach()), torch.zeros(len(fake), 1)).backward()
        critic_steps.step()
        generator_steps.zero_grad()
        judge(critic(fake), torch.ones(len(fake), 1)).backward()
        generator_steps.step()
    return both.state_dict()


def own_gradients(script):
    """Without a backward pass: one element for all of a parameter, and what inference mode made."""
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    for step in range(_STEPS):
        value = torch.tensor(sum(script.ranks) / len(script.ranks) + step)
        with torch.inference_mode():
            made = [torch.full_like(p, float(value)) for p in model[0].parameters()]
        for p in model.parameters():
            p.grad = value.expand_as(p)
        for p, gradient in zip(model[0].parameters(), made):
            p.grad = gradient
        optimizer.step()
    return model.state_dict()


def gradients_on_shared_memory(script):
    """As torch.autograd.grad() returns them for both operands of a sum. In the end one worker does
    not use one of them."""
    model = torch.nn.ParameterDict({n: torch.nn.Parameter(torch.zeros(3)) for n in "abc"})
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    for step in range(14):
        a, b, c = model["a"], model["b"], model["c"]
        loss = 0
        for rank in script.ranks:
            total = 2 * b if step > 11 and rank == 1 else a + b
            loss = loss + ((total + c) * torch.tensor([1.0, 2.0, 3.0 + rank])).sum()
        gradients = torch.autograd.grad(loss / len(script.ranks), (a, b, c), allow_unused=True)
        a.grad, b.grad, c.grad = gradients
        optimizer.step()
    return model.state_dict()


_RIGHT = [
    own_gradients,
    clipping_by_norm, clipping_by_value, logging_gradients, synchronizing_twice, leaving_a_step_out,
    a_further_backward_after_synchronizing, accumulating, without_forgetting_gradients, a_closure,
    a_scheduler_and_groups, clamped_weights, a_parameter_that_some_batches_use,
    gradients_on_shared_memory,
    a_part_of_the_model, saved_and_loaded, two_networks, a_backward_of_its_own_after_synchronizing,
    _leaving_a_step_out_of(accumulation_alone), _leaving_a_step_out_of(gradients_set_by_hand),
    *map(_with_the_rate, (None, -0.1, lambda step: 0.1)),
    an_attribute_that_is_written, a_state_that_begins_anew,
]

# What is refused, with the words.


def a_closure_that_computes_several_times(script):
    model = _mlp()
    _distributed(script, torch.optim.LBFGS(model.parameters()), model)


def parameters_of_another_model(script):
    _distributed(script, _sgd(_mlp().parameters()), _mlp())


def arguments_the_other_way_round(script):
    model = _mlp()
    _distributed(script, model, _sgd(model.parameters()))


def a_step_of_the_optimizer_that_was_given(script):
    model = _mlp()
    given = _sgd(model.parameters())
    _distributed(script, given, model)
    _loss(script, model, 0).backward()
    given.step()


def clipping_what_has_left(script):
    def clip(_, model, __):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    _train(script, between=clip)


def another_optimizer_at_one_rank(script):
    rule = torch.optim.Adam if script.ranks == [1] else torch.optim.SGD
    _train(script, lambda p: rule(p, 0.1))


def another_rate_at_one_rank(script):
    def change(script, _, optimizer):
        if script.ranks == [1]:
            optimizer.param_groups[0]["lr"] = 0.5
    _train(script, after=change)


def _another_number_at_one_rank(option, number):
    """After the last iteration in which everything is compared, for a while."""
    def habit(script):
        model = _mlp()
        optimizer = _distributed(script, torch.optim.Adam(model.parameters(), lr=1e-3), model)
        for step in range(15):
            if step == 12 and script.ranks == [1]:
                optimizer.param_groups[0][option] = number
            optimizer.zero_grad()
            _loss(script, model, step % _STEPS).backward()
            optimizer.step()
    habit.__name__ = f"another_{option}_at_one_rank"
    return habit


def two_optimizers_of_one_parameter(script):
    model = _mlp()
    _distributed(script, _sgd(model.parameters()), model)
    _distributed(script, _sgd(model[0].parameters()), model)


def another_order_of_optimizers_at_one_rank(script):
    model = _mlp()
    optimizers = [
        _distributed(script, _sgd(part.parameters()), model) for part in (model[0], model[2])
    ]
    _loss(script, model, 0).backward()
    optimizers[script.ranks == [1]].step()


def another_model_in_the_same_run(script):
    for model in (_mlp(), _mlp()):
        _distributed(script, _sgd(model.parameters()), model)


def other_parameters_at_one_rank(script):
    def change(script, model, _):
        if script.ranks == [1]:
            model[2].weight.data[0, 0] += 1e-3
    _train(script, after=change)


def an_optimizer_that_is_not_given(script):
    model = _mlp()
    optimizer = _distributed(script, _sgd(model[0].parameters()), model)
    other = _sgd(model[2].parameters())
    for step in range(_STEPS):
        model.zero_grad()
        _loss(script, model, step).backward()
        optimizer.step()
        other.step()


def _other_parameters(change):
    """An optimizer of a part of the model gets more of it, or another one, while it trains."""
    def habit(script):
        def on_start(_, model, optimizer):
            change(model, optimizer)
        _train(script, lambda p: _sgd(list(p)[:2]), after=on_start)
    habit.__name__ = change.__name__
    return habit


def a_group_more(model, optimizer):
    optimizer._given.add_param_group({"params": list(model[2].parameters())})


def a_parameter_more_in_a_group(model, optimizer):
    optimizer.param_groups[0]["params"].append(model[2].weight)


def another_parameter_in_a_group(_, optimizer):
    optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.zeros(_WIDE, 6))


def a_copy_of_it(script):
    model = _mlp()
    copy.deepcopy(_distributed(script, _sgd(model.parameters()), model))


_REFUSED = [
    *(
        (_other_parameters(change), _SCHEDULES, "param_groups: have other parameters than at")
        for change in (a_group_more, a_parameter_more_in_a_group, another_parameter_in_a_group)
    ),
    (a_copy_of_it, _SCHEDULES, "this is a copy of an evenshard.DistributedOptimizer"),
    (other_parameters_at_one_rank, _SCHEDULES, "2.weight: is not the same in all workers"),
    (an_optimizer_that_is_not_given, _SCHEDULES, r"2\.\w+: is not the same.* each given to an"),
    (a_closure_that_computes_several_times, _SCHEDULES, "LBFGS computes gradients several times"),
    (parameters_of_another_model, _SCHEDULES, r"\(130, 6\) is not a parameter of the model"),
    (arguments_the_other_way_round, _SCHEDULES, "optimizer: is a Sequential, allowed: an opt"),
    (a_step_of_the_optimizer_that_was_given, _SCHEDULES, "was handed over"),
    (clipping_what_has_left, ("BACKWARD",), "its gradient was changed"),
    (another_optimizer_at_one_rank, _SCHEDULES, r"optimizer.*Adam"),
    (another_rate_at_one_rank, _SCHEDULES, "the learning rate 0.5|the options of the optimizers"),
    *(
        (_another_number_at_one_rank(option, number), _SCHEDULES, text)
        for option, number, text in (
            ("weight_decay", 0.25, "weight_decay 0.25"), ("eps", 0.5, "epsilon 0.5"),
            ("betas", (0.9, 0.5), "beta2 0.5"),
        )
    ),
    (two_optimizers_of_one_parameter, _SCHEDULES, "0.weight, 0.bias, which another"),
    # In a ring the rates of one optimizer are those that the other worker does not give.
    (another_order_of_optimizers_at_one_rank, _SCHEDULES, "has stepped another|the config's rate"),
    (another_model_in_the_same_run, _SCHEDULES, "is worker . of the run already"),
    (_train, ("FULL",), "is FULL, by which gradients come back after step"),
]


def _uneven(script):
    """Rank r has r + 1 batches. The mean is over all workers all the same."""
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    with script.join(optimizer):
        for step in range(max(script.ranks) + 1):
            optimizer.zero_grad()
            for rank in script.ranks:
                if step <= rank:
                    (_loss(Script(rank, 4), model, step) / len(script.ranks)).backward()
            optimizer.step()
    return model.state_dict()


def _uneven_in_full(script):
    """Likewise, with all that lies between synchronize() and step(), and a schedule."""
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def update():
        _synchronize(script, optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        scheduler.step()

    with optimizer.join(step=update) if script.is_worker else contextlib.nullcontext():
        for step in range(max(script.ranks) + 1):
            optimizer.zero_grad()
            for rank in script.ranks:
                if step <= rank:
                    (_loss(Script(rank, 4), model, step) / len(script.ranks)).backward()
            update()
    return model.state_dict()


def _giving_up_in_full(script):
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)

    def update():
        _synchronize(script, optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()

    for step in range(_STEPS):
        optimizer.zero_grad()
        ranks = [rank for rank in script.ranks if step != 2 or rank != 0]
        if not ranks:
            optimizer.abandon(step=update)
            continue
        for rank in ranks:
            (_loss(Script(rank, 4), model, step) / len(ranks)).backward()
        update()
    return model.state_dict()


def synchronizing_in_join(script):
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    with script.join(optimizer):
        _loss(script, model, 0).backward()
        optimizer.synchronize()


def abandoning_what_has_been_exchanged(script):
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    _loss(script, model, 0).backward()
    optimizer.synchronize()
    optimizer.abandon(step=optimizer.step)


def _abandoning(after):
    """Where the script synchronizes, `after` it has given a batch up or before."""
    def abandoning_and_synchronizing(script):
        model = _mlp()
        optimizer = _distributed(script, _sgd(model.parameters()), model)
        for step in range(2):
            if (step == 0) == after:
                optimizer.abandon()
                continue
            _loss(script, model, step).backward()
            optimizer.synchronize()
            optimizer.step()
    return abandoning_and_synchronizing


def a_schedule_in_join(script):
    model = _mlp()
    optimizer = _distributed(
        script, torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1), model
    )
    with script.join(optimizer):
        for step in range(3 * script.ranks[0] + 1):
            _loss(script, model, step).backward()
            optimizer.step()
            optimizer.param_groups[0]["weight_decay"] *= 0.5


class _Remembering(torch.optim.SGD if torch is not None else object):
    """Its state has what no text can have."""

    def step(self, closure=None):
        super().step(closure)
        self.state[self.param_groups[0]["params"][0]]["seen"] = object()


def _what_is_warned_of(rule):
    def habit(script):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            _train(script, rule)
        return [str(each.message) for each in found]
    return habit


def _a_second_one_after_close(script):
    for _ in range(2):
        model = _mlp()
        optimizer = _distributed(script, _sgd(model.parameters()), model)
        _loss(script, model, 0).backward()
        optimizer.step()
        optimizer.close()


def _giving_up(script):
    """Rank 0 gives a batch up: the mean is over the others."""
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    for step in range(_STEPS):
        optimizer.zero_grad()
        ranks = [rank for rank in script.ranks if step != 2 or rank != 0]
        if not ranks:
            optimizer.abandon()
            continue
        for rank in ranks:
            (_loss(Script(rank, 4), model, step) / len(ranks)).backward()
        optimizer.step()
    return model.state_dict()


def _infinite(script):
    """Reaches all workers: each sees it in its `grad`, and leaves the step out."""
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    finite = []
    for step in range(_STEPS):
        optimizer.zero_grad()
        loss = _loss(script, model, step)
        (loss * float("inf") if step == 2 and 0 in script.ranks else loss).backward()
        _synchronize(script, optimizer)
        finite.append(bool(torch.isfinite(model[0].bias.grad).all()))
        if finite[-1]:
            optimizer.step()
    assert finite == [True, True, False, True, True]
    return model.state_dict()


def _unscaled_before_synchronizing(script):
    """GradScaler.unscale_() has looked at this worker's gradients only."""
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    for step in range(_STEPS):
        optimizer.zero_grad()
        loss = _loss(script, model, step)
        (loss * float("inf") if step == 2 and 0 in script.ranks else loss).backward()
        finite = all(bool(torch.isfinite(p.grad).all()) for p in model.parameters())
        _synchronize(script, optimizer)
        if script.is_worker:
            optimizer.grad_scale, optimizer.found_inf = None, torch.tensor(float(not finite))
            optimizer.step()
            del optimizer.grad_scale, optimizer.found_inf
        elif finite:
            optimizer.step()
    return model.state_dict()


def _after_a_copy_that_is_refused(script):
    model = _mlp()
    optimizer = _distributed(script, _sgd(model.parameters()), model)
    try:
        copy.deepcopy(optimizer)
        assert not script.is_worker
    except evenshard.FailedPrecondition:
        pass
    for step in range(_STEPS):
        optimizer.zero_grad()
        _loss(script, model, step).backward()
        optimizer.step()
    return model.state_dict()


@unittest.skipIf(torch is None, "PyTorch is not installed: DistributedOptimizer")
class DistributedTest(unittest.TestCase):
    schemes = _SCHEMES
    worker_counts = (2, 1, 4)

    def setUp(self):
        self._sizes = itertools.cycle(self.worker_counts)

    def check_right(self, habit, schedule, workers=None, scheme=None):
        workers = workers or next(self._sizes)
        scheme = scheme or self.schemes[0]
        name = getattr(habit, "__name__", str(habit))
        with self.subTest(name, schedule=schedule, workers=workers, scheme=scheme):
            expected = reference_of(habit, workers)
            ends = outcomes_of(habit, schedule, workers, scheme=scheme)
            for end in ends:
                self.assertIsNone(end.error, end.trace)
                torch.testing.assert_close(end.value, expected, rtol=1e-4, atol=1e-6)
            return ends

    def test_any_optimizer(self):
        """Parameters are the same to the bit in all workers, after every step."""
        schemes = itertools.cycle(self.schemes)
        for name, habit in _rules().items():
            for schedule, workers in itertools.product(_SCHEDULES, self.worker_counts):
                with self.subTest(rule=name):
                    ends = self.check_right(habit, schedule, workers, next(schemes))
                    for end in ends:
                        torch.testing.assert_close(end.value, ends[0].value, rtol=0, atol=0)

    def test_habits_that_give_what_one_process_gives(self):
        for habit, schedule in itertools.product(_RIGHT, _SCHEDULES):
            self.check_right(habit, schedule)

    def test_what_is_refused(self):
        """A worker of a ring that refuses its neighbour waits for another one in its place."""
        settings = {"scheme": self.schemes[0], "startup_seconds": 15}
        for habit, schedules, text in _REFUSED:
            for schedule in schedules:
                with self.subTest(habit.__name__, schedule=schedule):
                    ends = outcomes_of(habit, schedule, 2, **settings)
                    self.assertRegex("\n".join(str(end.error) for end in ends), text)
                    self.assertNotIn(None, [end.error for end in ends])

    def test_workers_whose_data_ends_at_different_times(self):
        for schedule in _SCHEDULES:
            self.check_right(_uneven, schedule, workers=3)
            self.check_right(_uneven_in_full, schedule, workers=3)

    def test_what_workers_without_data_cannot_do_by_themselves(self):
        for habit, text in (
            (synchronizing_in_join, r"synchronize\(\): .*join\(step=FUNCTION\)"),
            (_abandoning(after=True), r"synchronize\(\): .*abandon\(step=FUNCTION\)"),
            (_abandoning(after=False), r"abandon\(\): .*abandon\(step=FUNCTION\)"),
            (abandoning_what_has_been_exchanged, r"abandon\(\): .* have been exchanged"),
            (a_schedule_in_join, "the options of the optimizers are not the same.*join"),
        ):
            for schedule in _SCHEDULES:
                with self.subTest(habit.__name__, schedule=schedule):
                    ends = outcomes_of(habit, schedule, 2, scheme=self.schemes[0])
                    self.assertRegex("\n".join(str(end.error) for end in ends), text)
                    self.assertNotIn(None, [end.error for end in ends])

    def test_what_is_not_finite_reaches_all_workers(self):
        for schedule, workers in itertools.product(_SCHEDULES, self.worker_counts[:2]):
            self.check_right(_infinite, schedule, workers)
            self.check_right(_unscaled_before_synchronizing, schedule, workers)

    def test_a_copy_that_is_refused_leaves_the_original(self):
        self.check_right(_after_a_copy_that_is_refused, "BACKWARD")

    def test_a_batch_that_is_given_up(self):
        for schedule in _SCHEDULES:
            self.check_right(_giving_up, schedule, workers=2)
            self.check_right(_giving_up_in_full, schedule, workers=2)

    def test_buffers_are_those_of_a_run(self):
        def habit(script):
            torch.manual_seed(5 + script.ranks[0])
            model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 5))
            model[0].bias.requires_grad_(False)
            return _train(script, model=model)[1]

        for schedule in _SCHEDULES:
            ends = outcomes_of(habit, schedule, 2, scheme=self.schemes[0])
            first, second = (end.value for end in ends)
            for name in first:  # rank 0's bias, and the mean of the statistics
                self.assertTrue(torch.equal(first[name], second[name]), name)
            self.assertNotEqual(float(first["1.running_mean"].abs().sum()), 0)


@unittest.skipIf(torch is None, "PyTorch is not installed: DistributedOptimizer beside shards")
class BesideShardsTest(unittest.TestCase):
    def test_a_state_that_cannot_travel_is_said_at_once(self):
        remembering = _what_is_warned_of(lambda parameters: _Remembering(parameters, lr=0.1))
        for end in outcomes_of(remembering, "BACKWARD", 2):
            (text,) = end.value
            self.assertIn("['seen']: is a builtins.object, allowed: None", text)
            self.assertIn("A worker that was started again could not go on", text)
        for end in outcomes_of(_what_is_warned_of(_sgd), "BACKWARD", 2):
            self.assertEqual(end.value, [])

    def test_a_second_training_beside_the_same_shards(self):
        for end in outcomes_of(_a_second_one_after_close, "BACKWARD", 2):
            self.assertIn("allowed: shards that are started anew, since these have no", end.error)


if __name__ == "__main__":
    unittest.main()
