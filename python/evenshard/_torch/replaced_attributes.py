"""Attributes of an optimizer of the script that stand before its own for a while."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import torch

from evenshard import errors

# What a scheduler looks for at its optimizer's step(): of PyTorch before 2.4, and since.
_SCHEDULERS_MARKS = ("_with_counter", "_wrapped_by_lr_sched")


def replace(optimizer: torch.optim.Optimizer, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what give_back() needs."""
    kept = {name: vars(optimizer).get(name) for name in attributes}
    vars(optimizer).update(attributes)
    return kept


def give_back(optimizer: torch.optim.Optimizer, kept: Mapping[str, Any]) -> None:
    for name, before in kept.items():
        if before is None:
            delattr(optimizer, name)
        else:
            setattr(optimizer, name, before)


def refusal(optimizer: torch.optim.Optimizer, why: str) -> types.MethodType:
    """Returns a method of the optimizer that raises FailedPrecondition."""
    def refuse(*_, **__):
        raise errors.FailedPrecondition(why)

    # A scheduler, made before or after, takes it for the step() that it knows.
    for mark in _SCHEDULERS_MARKS:
        setattr(refuse, mark, True)
    return types.MethodType(refuse, optimizer)
