"""Under FULL, parameters are received while the script goes on: whoever reads one waits for it.

A module finds its parameters and buffers in two dictionaries. The modules of the model get
dictionaries that wait, so that it does not matter who reads: a forward pass, another method, an
average of weights, `torch.save(model)`. A hook waits before the forward pass of each module for
its own tensors, because some modules (nn.LSTM) have references to them elsewhere, too. A reference
that the script itself keeps is not seen.

A tensor that the script moves to a module of its own, as register_parametrization() does, is read
there unseen. step() waits for it.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Iterable

import torch

from evenshard import errors
from evenshard._torch.model import ModelTensor, direct_tensors

_DICTIONARIES = ("_parameters", "_buffers")


class Hook(functools.partial):
    """A hook on a module. A copy of the module, or a pickle of it, gets one that does nothing, and
    that can be unpickled without this package."""

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")

    @property
    def __name__(self) -> str:
        # TorchScript asks for it before it compiles the hook.
        raise AttributeError(
            "torch.jit.script() cannot compile the hooks by which evenshard.Optimizer waits for"
            " parameters under FULL; allowed: after the optimizer's close(), torch.jit.trace(), or"
            " the schedules BACKWARD and SEQUENTIAL"
        )


def check(model: torch.nn.Module) -> None:
    """Errors: FailedPrecondition if reads cannot be seen in a part of the model."""
    for path, module in model.named_modules():
        what = None
        if isinstance(module, torch.jit.ScriptModule):
            what = "a module of TorchScript"
        elif type(module).__name__ == "OptimizedModule" or getattr(
            module, "_compiled_call_impl", None
        ):
            what = "compiled by torch.compile"
        if what is not None:
            raise errors.FailedPrecondition(
                f'model: "{path}" is {what}, in which nobody sees that a parameter is read;'
                " allowed under the schedules BACKWARD and SEQUENTIAL: `evenshard run --schedule"
                " BACKWARD`, or exchange { schedule: BACKWARD } in the config"
            )


class ParameterReads:
    """Calls `wait(numbers)` before tensors of the model are read, with their numbers in `tensors`,
    whether they are under way or not. REQUIRES: check(model)."""

    def __init__(
        self,
        model: torch.nn.Module,
        tensors: list[ModelTensor],
        wait: Callable[[Iterable[int]], None],
    ):
        self._wait = wait
        self._numbers = {id(item.tensor): i for i, item in enumerate(tensors)}
        self._moved: dict[int, torch.Tensor] = {}  # by number: what left a dictionary
        self._hooks = []
        self._modules = []
        for module, own in direct_tensors(model, tensors).items():
            if own:
                hook = module.register_forward_pre_hook(Hook(lambda *_, own=own: wait(own)))
                # Before all others, such as those of weight_norm, which read parameters.
                module._forward_pre_hooks.move_to_end(hook.id, last=False)
                self._hooks.append(hook)
                self._modules.append(module)
                for name in _DICTIONARIES:
                    module.__dict__[name] = _Waiting(module.__dict__[name], self)

    def replace(self, old: torch.Tensor, new: torch.Tensor | None) -> None:
        """Before the script puts another tensor in the place of one: what is on its way to that
        must not replace the new one."""
        number = self._numbers.get(id(old))
        if number is not None:
            self._wait((number,))
            if new is None:
                self._moved[number] = old
            else:
                self._numbers[id(new)] = number

    def wait_for_moved(self) -> None:
        """At the end of a step: waits for the tensors that are in none of the dictionaries any
        more, whose reads nobody sees."""
        if self._moved:
            seen = {id(t) for module in self._modules for name in _DICTIONARIES
                    for t in collections.OrderedDict.values(module.__dict__[name])}
            self._wait([i for i, tensor in self._moved.items() if id(tensor) not in seen])

    def read(self, found: Iterable[torch.Tensor]) -> None:
        """Before the script gets tensors."""
        numbers = [self._numbers[id(t)] for t in found if id(t) in self._numbers]
        if numbers:
            self._wait(numbers)

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
        for module in self._modules:
            for name in _DICTIONARIES:
                if isinstance(module.__dict__[name], _Waiting):
                    module.__dict__[name] = module.__dict__[name].plain()
        self._hooks.clear()
        self._modules.clear()


class _Waiting(collections.OrderedDict):
    """The parameters or buffers of a module, which say what is read of them."""

    def __init__(self, content, reads):
        self._reads = reads
        self._kind = type(content)  # another one in PyTorch 2
        super().__init__(content)

    def __getitem__(self, name):
        found = super().__getitem__(name)
        self._reads.read((found,))
        return found

    def __setitem__(self, name, value):
        if name in self:
            self._reads.replace(super().__getitem__(name), value)
        super().__setitem__(name, value)

    def __delitem__(self, name):
        if name in self:
            self._reads.replace(super().__getitem__(name), None)
        super().__delitem__(name)

    def get(self, name, default=None):
        return self[name] if name in self else default

    def items(self):
        self._reads.read(list(super().values()))
        return super().items()

    def values(self):
        self._reads.read(list(super().values()))
        return super().values()

    def pop(self, name, *default):
        if name in self:
            self._reads.replace(super().__getitem__(name), None)
        return super().pop(name, *default)

    def copy(self):
        return self._kind(self.items())

    def plain(self):
        return self._kind(super().items())

    def __reduce__(self):
        return self._kind, (list(self.items()),)
