"""What evenshard.DistributedOptimizer and evenshard.LocalSteps have in common: an optimizer of the
script, which steps in this process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from evenshard import errors
from evenshard._torch import state_parts as _state_parts
from evenshard._torch.group_options import require_same_parameters
from evenshard._torch.training import Training

# By which wrappers of an optimizer, such as SAM's, step it past this one.
_STEPPING = {"first_step", "second_step", "base_optimizer", "optimizer"}
# What GradScaler writes to whatever optimizer it is given, and takes away.
_OF_SCALERS = {"grad_scale", "found_inf"}
_OF_EACH = {"param_groups", "state", "defaults"}


class OfTheScript(Training, torch.optim.Optimizer):
    """Does as an optimizer of torch.optim by the one that was given, `_optimizer`. Its own step is
    `_step_given`."""

    # GradScaler leaves it to step() to look for infinities and to divide.
    _step_supports_amp_scaling = True
    _optimizer: torch.optim.Optimizer
    _step_given: Callable[..., Any]
    _parameters_at_start: list[list]  # by group
    _has_stepped = False

    def _check_parameters(self):
        require_same_parameters(self.param_groups, self._parameters_at_start)
        super()._check_parameters()

    def _step_scaled(self, is_infinite, scale, *arguments):
        """Steps by the gradients, divided by `scale` unless it is None, as GradScaler asks for.
        Returns what the step has returned."""
        if is_infinite:
            return None
        for i in self._trained if scale is not None else ():
            if (gradient := self._tensors[i].tensor.grad) is None:
                continue
            if gradient.dtype == torch.float16:
                raise errors.FailedPrecondition(
                    f"{self._tensors[i].name}: its gradient is torch.float16, in which what the"
                    " scale has kept from becoming zero would be zero without it; allowed with"
                    " GradScaler: parameters of torch.float32 and autocast, or evenshard.Optimizer,"
                    " which takes the scale out in float32; without it: torch.bfloat16"
                )
            gradient.div_(scale)
        self._note_step()
        result = self._step_given(*arguments)
        travels = self._handle.waits_for_workers and not self._handle.is_ring
        if not self._has_stepped and travels:
            _state_parts.warn_unless_it_travels(self._optimizer)
        self._has_stepped = True
        return result

    def __setstate__(self, state: Any) -> None:
        """Errors: FailedPrecondition, since a copy does not train. PyTorch's own would change the
        class before."""
        self.__dict__.update(state)
        _ = self.defaults  # of what a copy has in place of what trains

    @property
    def param_groups(self) -> list[dict]:  # type: ignore[override]
        return self._optimizer.param_groups

    @property
    def state(self) -> Any:
        return self._optimizer.state

    @property
    def defaults(self) -> dict:
        return self._optimizer.defaults

    def zero_grad(self, *arguments, **options) -> None:
        self._renew_hooks()
        self._optimizer.zero_grad(*arguments, **options)

    def state_dict(self) -> dict:
        """The given optimizer's."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state_dict: dict) -> None:
        """As with the given optimizer."""
        self._optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict) -> None:
        raise errors.FailedPrecondition(
            "add_param_group: the workers have agreed on their optimizers already; allowed: all"
            f" groups before evenshard.{type(self).__name__} is made"
        )

    def __getattr__(self, name: str) -> Any:
        """What the given optimizer has besides, such as methods of its own."""
        if not self._is_of_the_given(name):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        is_own = name in vars(self) or hasattr(type(self), name)
        if name in _OF_EACH or (not is_own and self._is_of_the_given(name)):
            setattr(self._optimizer, name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name not in vars(self) and self._is_of_the_given(name):
            delattr(self._optimizer, name)
        else:
            super().__delattr__(name)

    def _is_of_the_given(self, name):
        if name.startswith("_") or name in _STEPPING or name in _OF_SCALERS:
            return False
        return "_optimizer" in vars(self) and hasattr(self._optimizer, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {self._optimizer!r}"


def _of_the_given(name):
    """A method which the given optimizer has under the same name."""
    def call(self, *arguments, **options):
        return getattr(self._optimizer, name)(*arguments, **options)

    return functools.update_wrapper(call, getattr(torch.optim.Optimizer, name))


# Its step(), state_dict() and load_state_dict() call such hooks.
for _name in dir(torch.optim.Optimizer):
    if _name.startswith("register_") and _name.endswith("_hook"):
        setattr(OfTheScript, _name, _of_the_given(_name))
