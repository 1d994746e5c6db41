"""What an optimizer that the workers step is, for all of them to agree on."""

from __future__ import annotations

import inspect

import torch

from evenshard import errors
from evenshard._torch.model import ModelTensor

# Options that decide how fast torch.optim computes, and not what; and what schedulers add.
_LEFT_OUT = {"params", "param_names", "foreach", "fused", "capturable", "initial_lr"}
_PLAIN = (bool, int, float, str, type(None))


def parameters_of(optimizer: torch.optim.Optimizer, tensors: list[ModelTensor]) -> set[int]:
    """Returns the numbers of the parameters that the optimizer has. Errors: InvalidArgument if it
    has one that is none of the model's, or cannot be stepped without a closure."""
    step = inspect.signature(optimizer.step).parameters.get("closure")
    is_lbfgs = isinstance(optimizer, torch.optim.LBFGS)
    if is_lbfgs or (step is not None and step.default is inspect.Parameter.empty):
        raise errors.InvalidArgument(
            f"optimizer: {type(optimizer).__name__} computes gradients several times in a step, by"
            " its closure, and they would be this worker's; allowed: one whose step() needs no"
            " closure"
        )
    numbers = {id(item.tensor): i for i, item in enumerate(tensors) if item.is_parameter}
    owned = set()
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            if id(parameter) in numbers:
                owned.add(numbers[id(parameter)])
            elif parameter.requires_grad and parameter.numel():
                raise errors.InvalidArgument(
                    f'optimizer.param_groups[{number}]["params"][{index}]: of shape'
                    f" {tuple(parameter.shape)} is not a parameter of the model; allowed: those of"
                    " the model that is given, such as an nn.ModuleDict of several"
                )
    if not owned:
        raise errors.InvalidArgument(
            "optimizer: has no parameter of the model that requires a gradient; allowed: one at"
            " least"
        )
    return owned


def text_of(optimizer: torch.optim.Optimizer) -> str:
    """Returns what all workers must have alike: "torch.optim.adam.Adam; 4 tensors, lr 0.1, ..."."""
    kind = type(optimizer)
    groups = [
        ", ".join([f"{len(group['params'])} tensors", *_options(group)])
        for group in optimizer.param_groups
    ]
    return "; ".join([f"{kind.__module__}.{kind.__qualname__}", *groups])


def _options(group):
    for key, value in sorted(group.items()):
        parts = value if isinstance(value, (tuple, list)) else [value]
        if key not in _LEFT_OUT and all(isinstance(part, _PLAIN) for part in parts):
            yield f"{key} {value!r}"
