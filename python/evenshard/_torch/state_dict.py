"""The optimizer's state, which lives at the shards, in the layout of torch.optim."""

from __future__ import annotations

import itertools
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from evenshard import errors
from evenshard._torch import replaced_attributes as _replaced
from evenshard._torch.model_exchange import ModelExchange


class _Layout(NamedTuple):
    """What torch.optim keeps of a parameter."""

    arrays: tuple[str, ...]  # in the order of the shards' arrays
    has_step: bool

    def kept_of(self, group: dict) -> tuple[str, ...]:
        """Returns the arrays of a parameter in this group."""
        has_momentum = group.get("momentum") != 0
        return tuple(name for name in self.arrays if has_momentum or name != "momentum_buffer")


_LAYOUTS = {
    "SGD": _Layout((), False),
    "MOMENTUM": _Layout(("momentum_buffer",), False),
    "NESTEROV": _Layout(("momentum_buffer",), False),
    "ADAM": _Layout(("exp_avg", "exp_avg_sq"), True),
    "ADAMW": _Layout(("exp_avg", "exp_avg_sq"), True),
    "ADAGRAD": _Layout(("sum",), True),
    "RMSPROP": _Layout(("square_avg",), True),
    "RMSPROP_MOMENTUM": _Layout(("square_avg", "momentum_buffer"), True),
    "ADAM_AMSGRAD": _Layout(("exp_avg", "exp_avg_sq", "max_exp_avg_sq"), True),
    "ADAMW_AMSGRAD": _Layout(("exp_avg", "exp_avg_sq", "max_exp_avg_sq"), True),
    # torch.optim has no Lion: the name is that of the paper's own implementation.
    "LION": _Layout(("exp_avg",), False),
}


_IS_AT_SHARDS = (
    "momentum and moments live at the shards; allowed: state_dict(), which fetches them, and"
    " load_state_dict()"
)
_IS_BEHIND = (
    "evenshard.Optimizer has trained in this optimizer's place, whose momentum and moments are"
    " those from before; allowed: load_state_dict() of what evenshard.Optimizer.state_dict() gave"
    " before close(), or a new optimizer"
)


class ShardState(Mapping):
    """In the place of torch.optim.Optimizer.state: says where the state is."""

    def __init__(self, why: str = _IS_AT_SHARDS):
        self._why = why

    def _refuse(self, *_):
        raise errors.FailedPrecondition(f"optimizer.state: {self._why}")

    __getitem__ = __setitem__ = __iter__ = __len__ = _refuse


def leave_behind(optimizer: torch.optim.Optimizer, kind: str) -> None:
    """Refuses what needs the state of an optimizer in whose place one of `kind` at the shards has
    trained, until it has loaded one."""
    if not _LAYOUTS[kind].arrays:
        return

    def load(_, *arguments, **options):
        _replaced.give_back(optimizer, kept)
        try:
            return optimizer.load_state_dict(*arguments, **options)
        except BaseException:
            _replaced.replace(optimizer, refused)
            raise

    refuse = _replaced.refusal(optimizer, f"optimizer: {_IS_BEHIND}")
    refused = {
        "state": ShardState(_IS_BEHIND), "state_dict": refuse, "step": refuse,
        "load_state_dict": types.MethodType(load, optimizer),
    }
    kept = _replaced.replace(optimizer, refused)


class State(NamedTuple):
    """The optimizer's state as the shards have it."""

    arrays: list[dict[int, torch.Tensor]]  # each by tensor
    steps: list[int]  # by tensor: the updates behind it


def fetch(exchange: ModelExchange, groups: list[dict]) -> dict[torch.nn.Parameter, dict]:
    """Returns what torch.optim would have as its `state`. Waits for parameters under way."""
    layout = _LAYOUTS[exchange.handle.optimizer]
    exchange.wait_for_all()
    arrays = []
    steps = [0] * len(exchange.tensors)
    for number in range(1, len(layout.arrays) + 1):
        values, steps = exchange.pull_state(number)
        arrays.append(values)
    found = {}
    for group in groups:
        kept = layout.kept_of(group)
        for parameter in group["params"]:
            i = exchange.number_of(parameter)
            # torch.optim has none before the first step, but for Adagrad.
            is_new = i is not None and steps[i] == 0 and exchange.handle.optimizer != "ADAGRAD"
            if i is None or not kept or is_new:
                continue
            entry = {"step": torch.tensor(float(steps[i]), device="cpu")} if layout.has_step else {}
            for name, values in zip(layout.arrays, arrays):
                if name in kept:
                    entry[name] = values[i].to(parameter.device)
            found[parameter] = entry
    return found


def is_trivial(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer of torch.optim has made no step."""
    return all(
        float(entry.get("step", 0)) == 0 and entry.get("momentum_buffer") is None
        for entry in optimizer.state.values()
    )


def check_layout(saved: Mapping[str, Any]) -> None:
    """Errors: InvalidArgument for what is no state_dict() of an optimizer."""
    lacking = {"state", "param_groups"} - set(saved)
    if lacking:
        raise errors.InvalidArgument(
            f"load_state_dict: lacks {' and '.join(sorted(lacking))}, allowed: what state_dict() of"
            " an optimizer has returned"
        )


def parse(exchange: ModelExchange, groups: list[dict], saved: Mapping[str, Any]) -> State:
    """Reads the state of a state_dict() of torch.optim. What it lacks is zero, as in torch.optim.
    Errors: InvalidArgument, which names what cannot be taken over."""
    layout = _LAYOUTS[exchange.handle.optimizer]
    state = State([{} for _ in layout.arrays], [0] * len(exchange.tensors))
    places = dict(
        zip(
            itertools.chain.from_iterable(group["params"] for group in saved["param_groups"]),
            ((p, group) for group in groups for p in group["params"]),
        )
    )
    for index, entry in saved["state"].items():
        if index not in places:
            raise errors.InvalidArgument(
                f'load_state_dict: state[{index!r}] is of no parameter, allowed: 0 to'
                f" {len(places) - 1}"
            )
        _take(exchange, layout, state, index, entry, *places[index])
    for i, item in enumerate(exchange.tensors):
        for values in state.arrays if item.is_parameter else ():
            values.setdefault(i, torch.zeros(item.shape, dtype=torch.float32, device="cpu"))
    return state


def _take(exchange, layout, state, index, entry, parameter, group):
    i = exchange.number_of(parameter)
    kept = layout.kept_of(group)
    lacking = [key for key in (*kept, "step") if key not in entry]
    if layout.has_step and entry and lacking:
        raise errors.InvalidArgument(
            f"load_state_dict: state[{index!r}] lacks {', '.join(lacking)}, allowed: all of the"
            " parameter's state, or none"
        )
    for key, value in entry.items():
        place = f'load_state_dict: state[{index!r}]["{key}"]'
        if value is None:
            continue
        if i is None or key not in (*kept, "step"):
            allowed = ", ".join((*kept, *["step"] * layout.has_step)) or "no state"
            raise errors.InvalidArgument(
                f"{place}: is of a parameter that is not trained; allowed: no state of it"
                if i is None
                else f"{place}: cannot be taken over, allowed for"
                f" {exchange.handle.optimizer}"
                f"{'' if kept == layout.arrays else ' with momentum 0'}: {allowed}"
            )
        if key == "step":
            if layout.has_step:
                state.steps[i] = _step(place, value)
            continue
        shape = exchange.tensors[i].shape
        if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape:
            raise errors.InvalidArgument(
                f"{place}: is {_text(value)}, allowed: a tensor of the shape {shape}"
            )
        state.arrays[layout.arrays.index(key)][i] = value.detach().to("cpu", torch.float32)
    if i is not None and not layout.has_step and any(i in values for values in state.arrays):
        state.steps[i] = 1  # what has no "step" is not counted


def _step(place, value):
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if not isinstance(value, (int, float)) or value < 0 or value % 1 != 0:
        raise errors.InvalidArgument(f"{place}: is {value}, allowed: a whole number from 0 on")
    return int(value)


def _text(value):
    if isinstance(value, torch.Tensor):
        return f"a tensor of the shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
