"""What parameter groups say: numbers that go with the gradients, and what must not change."""

from __future__ import annotations

import ctypes
import itertools
import operator
from collections.abc import Callable

from evenshard import _library, errors
from evenshard._torch import torch_optim as _torch_optim
from evenshard._torch.model import ModelTensor


class GroupOptions:
    """The options of an optimizer's groups, at the start and when the present iteration began."""

    def __init__(
        self,
        groups: list[dict],
        tensors: list[ModelTensor],
        kind_of_config: Callable[[], str] | None,
    ):
        """With `kind_of_config`, which returns OptimizerConfig.Kind, the groups are made of the
        config, whose schedule counts until somebody changes the rates."""
        self._kind_of_config = kind_of_config
        self._are_ours = kind_of_config is None
        self._first = self._numbers_of(groups)
        self._parameters = [list(group["params"]) for group in groups]
        self._fixed = [_torch_optim.options_of(group) for group in groups]
        self._begun = self._first  # when the iteration began
        self._last: list[tuple] | None = None  # as they are in _by_tensor
        self._by_tensor = (_library.CHyperparameters * len(tensors))()
        self._group_of = self._groups_by_tensor(groups, tensors)

    def begin(self, groups: list[dict]) -> ctypes.Array | None:
        """An iteration begins. Returns the hyperparameters of each tensor, or None for those of the
        config. Errors: those of check()."""
        self._begun = self._numbers_of(groups)
        self.check(groups)
        if not self._are_ours:
            has_scheduler = any("initial_lr" in group for group in groups)
            if self._begun == self._first and not has_scheduler:
                return None
            self._are_ours = True
        if self._begun != self._last:
            self._last = self._begun
            # What is as at the start is the config's, to the bit.
            of_groups = [
                _library.hyperparameters(
                    now[0], *(None if n == f else n for n, f in zip(now[1:], first[1:]))
                )
                for now, first in zip(self._begun, self._first)
            ]
            for i, group in enumerate(self._group_of):
                self._by_tensor[i] = of_groups[group]
        return self._by_tensor

    def check(self, groups: list[dict]) -> None:
        """Errors: FailedPrecondition unless the groups have what the iteration began with, and the
        parameters that they had at the start."""
        require_same_parameters(groups, self._parameters)
        for number, group in enumerate(groups):
            now = _torch_optim.options_of(group)
            for option, value in self._fixed_of(number, group).items():
                if now.get(option) != value:
                    raise errors.FailedPrecondition(
                        f'param_groups[{number}]["{option}"]: is {now.get(option)!r}, allowed:'
                        f" {value!r} as at the start; lr, momentum, betas, alpha, weight_decay and"
                        " eps may change, but momentum not from 0 or to 0"
                    )
            numbers = _torch_optim.numbers_of(group)
            if numbers != self._begun[number]:
                raise errors.FailedPrecondition(
                    f"param_groups[{number}]: has {_torch_optim.text_of(group)}, and other numbers"
                    " when backward() pushed gradients with them; allowed: changes after step() and"
                    " before backward(), or the schedule SEQUENTIAL"
                )

    def taken_over(self, groups: list[dict], saved: list[dict]) -> list[dict]:
        """Returns what each group has after it has taken over what was saved of it. Errors:
        InvalidArgument if what must not change would."""
        return [
            _torch_optim.taken_over(
                group, other, self._fixed_of(number, {**group, **other}),
                f"load_state_dict: param_groups[{number}]",
            )
            for number, (group, other) in enumerate(zip(groups, saved))
        ]

    def _fixed_of(self, number, group):
        """What must be in a group with these options."""
        if self._kind_of_config is None:
            return self._fixed[number]
        return _torch_optim.options_of_kind(self._kind_of_config(), group)

    @staticmethod
    def _numbers_of(groups):
        return [_torch_optim.numbers_of(group) for group in groups]

    @staticmethod
    def _groups_by_tensor(groups, tensors):
        numbers = {id(item.tensor): i for i, item in enumerate(tensors)}
        found = [0] * len(tensors)
        for number, group in enumerate(groups):
            for parameter in group["params"]:
                if id(parameter) in numbers:
                    found[numbers[id(parameter)]] = number
        return found


def require_same_parameters(groups: list[dict], at_start: list[list]) -> None:
    """Errors: FailedPrecondition unless the groups have the parameters that they had `at_start`."""
    parameters = [group["params"] for group in groups]
    if list(map(len, parameters)) != list(map(len, at_start)) or not all(
        map(operator.is_, itertools.chain(*parameters), itertools.chain(*at_start))
    ):
        raise errors.FailedPrecondition(
            "param_groups: have other parameters than at the start, allowed: the same ones in"
            " the same order; for a parameter that is to stay as it is, requires_grad_(False)"
        )
