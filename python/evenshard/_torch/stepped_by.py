"""What an optimizer that the workers step is, for all of them to agree on."""

from __future__ import annotations

import inspect
import math

import torch

from evenshard import errors
from evenshard._torch import torch_optim as _torch_optim
from evenshard._torch.model import ModelTensor

_LEFT_OUT = {"params", "param_names", "initial_lr", *_torch_optim.SPEED}
_PLAIN = (bool, int, float, str, type(None))


def parameters_of(optimizer: torch.optim.Optimizer, tensors: list[ModelTensor]) -> list[int]:
    """Returns the numbers of the parameters that the optimizer has, in order. Errors:
    InvalidArgument if it has none, or one that is none of the model's."""
    for stranger in _torch_optim.strangers(optimizer, tensors):
        raise errors.InvalidArgument(
            f"{stranger}; allowed: those of the model that is given, such as an nn.ModuleDict of"
            " several"
        )
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    owned = [i for i, t in enumerate(tensors) if t.is_parameter and id(t.tensor) in held]
    if not owned:
        raise errors.InvalidArgument(
            "optimizer: has no parameter of the model that requires a gradient; allowed: one at"
            " least"
        )
    return owned


def require_no_closure(optimizer: torch.optim.Optimizer) -> None:
    """Errors: InvalidArgument if the optimizer cannot be stepped without a closure."""
    step = inspect.signature(optimizer.step).parameters.get("closure")
    is_lbfgs = isinstance(optimizer, torch.optim.LBFGS)
    if is_lbfgs or (step is not None and step.default is inspect.Parameter.empty):
        raise errors.InvalidArgument(
            f"optimizer: {type(optimizer).__name__} computes gradients several times in a step, by"
            " its closure, and they would be this worker's; allowed: one whose step() needs no"
            " closure"
        )


def text_of(optimizer: torch.optim.Optimizer) -> str:
    """Returns what all workers must have alike: "torch.optim.adam.Adam; 4 tensors, lr 0.1, ..."."""
    kind = type(optimizer)
    groups = [
        ", ".join([f"{len(group['params'])} tensors", *_options(group)])
        for group in optimizer.param_groups
    ]
    return "; ".join([f"{kind.__module__}.{kind.__qualname__}", *groups])


def numbers_of(group: dict) -> tuple:
    """Returns the numbers of a group as shards take them, in the order of
    _library.CHyperparameters, for all workers to have them alike: the learning rate, momentum or
    the betas, the weight decay and epsilon. One that it does not have is None, and one that only
    the optimizer understands, as a negative one, is 0."""
    betas = group.get("betas")
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        betas = group.get("momentum"), group.get("alpha")
    numbers = group.get("lr"), *betas, group.get("weight_decay"), group.get("eps")
    return tuple(_number_of(number) for number in numbers)


def _number_of(number):
    if number is None:
        return None
    try:
        number = float(number)
    except (TypeError, ValueError, RuntimeError):
        return 0.0
    return number if 0 <= number < math.inf else 0.0


def _options(group):
    for key, value in sorted(group.items()):
        parts = value if isinstance(value, (tuple, list)) else [value]
        if key not in _LEFT_OUT and all(isinstance(part, _PLAIN) for part in parts):
            yield f"{key} {value!r}"
