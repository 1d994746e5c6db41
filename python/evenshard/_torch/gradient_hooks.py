"""Calls when a parameter's gradient is complete."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

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


def renew(hooks: Iterable[object]) -> list[torch.Tensor]:
    """Puts those of on_gradient() on again that are gone: before PyTorch 2.1, from a parameter that
    has had another type meanwhile, or was on another device. Returns the parameters."""
    lost = [hook for hook in hooks if isinstance(hook, _NodeHook) and hook.is_lost()]
    for hook in lost:
        hook.renew()
    return [hook.parameter for hook in lost]


class _NodeHook:
    """Before PyTorch 2.1: a hook on the node that accumulates the gradient. The node lives as long
    as the hook keeps it, and is the parameter's until that changes its type or device."""

    def __init__(self, parameter, call):
        self.parameter = parameter
        # A function of the script's may give no gradient.
        self._call = lambda *arguments: None if parameter.grad is None else call(*arguments)
        self.renew()

    def renew(self):
        self._node = _node_of(self.parameter)
        self._handle = self._node.register_hook(self._call)

    def is_lost(self):
        is_watched = self._node is not None and self.parameter.requires_grad
        return is_watched and _node_of(self.parameter) is not self._node

    def remove(self):
        self._handle.remove()
        self._node = None


def _node_of(parameter):
    with torch.inference_mode(False), torch.enable_grad():
        return parameter.expand_as(parameter).grad_fn.next_functions[0][0]
