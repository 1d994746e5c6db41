"""Which module's forward pass waits for which parameters.

Each module has a hook that runs before all its others. While parameters are under way, the hook
waits for those that the module's forward pass reads:

- the module's own ones;
- those of modules below it whose forward is never called (nn.MultiheadAttention reads
  `out_proj.weight` and does not call `out_proj`);
- those that it reads before the module that owns them is called.

The last two are learned in the first forward pass of the whole model in training: which modules are
called, and which reads each parameter first. Everything is waited for before a pass that may be
another one: until then, and when a part of the model is called by itself. In evaluation a module
waits for all parameters below it, because PyTorch has other, fused passes then.
"""

from __future__ import annotations

import collections
import functools

import torch

from evenshard._model import ModelTensor, direct_tensors


def nothing(*_):
    """The hook of a copied module."""


def _make_nothing():
    return nothing


class Hook(functools.partial):
    """A hook on a module. A copy of the module, or a pickle of it, gets one that does nothing."""

    def __reduce__(self):
        return _make_nothing, ()


def first_pre_hook(module: torch.nn.Module, hook):
    """Registers a forward pre-hook that runs before all others, such as those of weight_norm, which
    read parameters."""
    handle = module.register_forward_pre_hook(hook)
    module._forward_pre_hooks.move_to_end(handle.id, last=False)
    return handle


class ForwardWaits:
    """The hooks of one model.

    `exchange` has `is_under_way` (whether parameters may be on their way), `is_begun` (whether
    gradients have been pushed, and step() has not been called), `wait_for(numbers)` and
    `wait_for_all()`.
    """

    def __init__(
        self, model: torch.nn.Module, tensors: list[ModelTensor], exchange, *, learns: bool
    ):
        """`learns` False: only the whole model waits, for all parameters."""
        self._model = model
        self._learns = learns
        self._numbers = {id(item.tensor): i for i, item in enumerate(tensors)}
        self._direct = direct_tensors(model, tensors)
        self._exchange = exchange
        self._below = {}  # for each module, all tensors of it and of those below it
        self._plan: dict | None = None  # for each module whose forward is called, what it waits for
        self._learning: _Learning | None = None
        self._is_inside = False  # a forward pass of the model, as it was learned, is under way
        self._handles = []
        for module in model.modules() if learns else [model]:
            self._handles.append(first_pre_hook(module, Hook(self._before)))
        self._handles.append(model.register_forward_hook(Hook(self._after)))

    def reset(self) -> None:
        """No forward pass is under way: one may have ended with an exception."""
        self._is_inside = False
        self._stop_learning()

    def remove(self) -> None:
        self._stop_learning()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before(self, module, _):
        if module is self._model:
            self._stop_learning()  # of a pass that ended with an exception
            if self._learns and self._plan is None and module.training:
                self._learning = _Learning(self._model, self._direct, self._numbers)
        if self._learning is not None:
            self._learning.enter(module)
        if self._exchange.is_under_way:
            self._wait_before(module)

    def _wait_before(self, module):
        if self._exchange.is_begun:
            # Activation checkpoints compute again within the backward pass: what they read has not
            # been pushed yet.
            self._exchange.wait_for(self._all_below(module))
            return
        if module is self._model:
            self._is_inside = self._plan is not None and module.training
        if not self._is_inside:
            self._exchange.wait_for_all()
        elif module.training and module in self._plan:
            self._exchange.wait_for(self._plan[module])
        else:
            self._exchange.wait_for(self._all_below(module))

    def _after(self, *_):
        self._is_inside = False
        if self._learning is not None:
            self._plan = self._learning.plan()
            self._stop_learning()

    def _stop_learning(self):
        if self._learning is not None:
            self._learning.stop()
            self._learning = None

    def _all_below(self, module):
        if module not in self._below:
            numbers = {i for part in module.modules() for i in self._direct.get(part, ())}
            self._below[module] = tuple(sorted(numbers))
        return self._below[module]


class _Learning:
    """Watches one forward pass of a model."""

    def __init__(self, model, direct, numbers):
        self._model = model
        self._direct = direct
        self._called = set()
        self._stack = []
        self._reads = collections.defaultdict(set)  # by the module that reads first
        self._was_read = set()
        self._originals = {}
        self._handles = []
        for module in model.modules():
            self._handles.append(module.register_forward_hook(Hook(self._leave)))
            if module._parameters:
                self._originals[module] = module._parameters
                module.__dict__["_parameters"] = _Watched(
                    module._parameters, lambda p: self._read(numbers.get(id(p)))
                )

    def enter(self, module):
        self._called.add(module)
        self._stack.append(module)

    def _leave(self, module, *_):
        # A pass that ended with an exception, which the model has caught, is still on the stack.
        while self._stack and self._stack.pop() is not module:
            pass

    def _read(self, number):
        if number is not None and number not in self._was_read and self._stack:
            self._was_read.add(number)
            self._reads[self._stack[-1]].add(number)

    def plan(self):
        found = {module: set(self._direct[module]) for module in self._called}
        for module, numbers in self._reads.items():
            found[module] |= numbers
        called_by_path = {}
        # A shared module has several paths, and whoever is above it may read its parameters.
        for path, module in self._model.named_modules(remove_duplicate=False):
            above = called_by_path.get(path.rpartition(".")[0], self._model) if path else module
            nearest = module if module in self._called else above
            called_by_path[path] = nearest
            found.setdefault(nearest, set()).update(self._direct.get(module, ()))
        return {module: tuple(sorted(numbers)) for module, numbers in found.items()}

    def stop(self):
        for handle in self._handles:
            handle.remove()
        for module, original in self._originals.items():
            watched = module._parameters
            if isinstance(watched, _Watched):
                original.clear()
                original.update(watched.plain())
                module.__dict__["_parameters"] = original
        self._handles.clear()


class _Watched(collections.OrderedDict):
    """The parameters of a module, which tell that they are read."""

    def __init__(self, parameters, tell):
        super().__init__(parameters)
        self._tell = tell

    def __getitem__(self, name):
        parameter = super().__getitem__(name)
        self._tell(parameter)
        return parameter

    def items(self):
        for parameter in super().values():
            self._tell(parameter)
        return super().items()

    def values(self):
        for parameter in super().values():
            self._tell(parameter)
        return super().values()

    def plain(self):
        return list(super().items())

    def __reduce__(self):
        return collections.OrderedDict, (self.plain(),)
