"""Calls when a parameter's gradient is complete."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from evenshard import errors
from evenshard._torch.model import ModelTensor


def on_gradient(parameter: torch.Tensor, call: Callable[..., None]):
    """Calls `call` in each backward pass, when the gradient has been added to `parameter.grad`. Its
    arguments are up to the version of PyTorch. Returns a handle whose method remove() ends that."""
    if not parameter.requires_grad:  # frozen now, and perhaps not for ever
        parameter.requires_grad_(True)
        try:
            return on_gradient(parameter, call)
        finally:
            parameter.requires_grad_(False)
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(_Own(call))
    return _NodeHook(parameter, call)


def has_other_hooks(parameter: torch.Tensor) -> bool:
    """Whether a parameter has hooks besides those of on_gradient()."""
    after = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
    others = [hook for hook in after.values() if not isinstance(hook, _Own)]
    return bool(parameter._backward_hooks or others)


def require_gradient(item: ModelTensor) -> None:
    """In a call of on_gradient(). Errors: FailedPrecondition if the gradient is gone again."""
    if item.tensor.grad is None:
        raise errors.FailedPrecondition(
            f"{item.name}: a hook of the script has taken its gradient away, which nobody would"
            " exchange; allowed: hooks that leave it"
        )


class _Own(functools.partial):
    """One of on_gradient()."""


class _NodeHook:
    """Before PyTorch 2.1: a hook on the node that accumulates the gradient. The node lives as long
    as the hook keeps it."""

    def __init__(self, parameter, call):
        with torch.enable_grad():
            self._node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        self._handle = self._node.register_hook(
            # A function of the script's may give none.
            lambda *arguments: None if parameter.grad is None else call(*arguments)
        )

    def remove(self):
        self._handle.remove()
        self._node = None
