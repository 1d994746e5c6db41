"""The exchange of a PyTorch model's tensors: what of an iteration has been pushed and received."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import torch

from evenshard import _library, _placement, errors
from evenshard._handle import Handle
from evenshard._model import ModelTensor

SEQUENTIAL_HINT = "; the config needs exchange { schedule: SEQUENTIAL }"


class ModelExchange:
    """One worker's exchange of a model, tensor by tensor, by their numbers.

    An iteration: begin(), push_gradient() for each gradient that exists early, finish() for all
    others. Its parameters are then waited for, by tensor or all at once, and begin() waits for
    those that are left.
    """

    def __init__(self, handle: Handle, tensors: list[ModelTensor]):
        self.handle = handle
        self.schedule = handle.schedule
        self._tensors = tensors
        self._placement = _placement.place(handle, tensors)
        self._iteration = 0
        self._reset()

    def _reset(self):
        self._is_begun = False
        # Whether the library knows that everything of the last iteration was waited for.
        self._is_settled = True
        self._pushed = [None] * len(self._tensors)  # the gradient that was staged and its version
        self._under_way = bytearray(len(self._tensors))  # pushed, and not yet received

    def join(self) -> None:
        """Joins the run with the model's values, and gives the model those of the run."""
        self._placement.initialize()
        self.handle.join()
        self._placement.adopt()
        self._iteration = self.handle.iteration

    @property
    def iteration(self) -> int:
        """How many iterations have been finished."""
        return self._iteration

    @property
    def is_begun(self) -> bool:
        """Whether an iteration has begun and is not finished."""
        return self._is_begun

    @property
    def has_pushed(self) -> bool:
        """Whether a gradient of the iteration has been pushed."""
        return any(pushed is not None for pushed in self._pushed)

    @property
    def is_under_way(self) -> bool:
        """Whether there may be parameters that have not been received."""
        return any(self._under_way)

    def begin(self, contributes: bool, rates: ctypes.Array | None) -> None:
        """Begins an iteration, with learning rates by tensor or None for the config's."""
        # The gradients' memory is free once everything of the last iteration has come.
        self.wait_for_all()
        self.handle.begin(contributes, rates)
        self._is_begun = True
        self._is_settled = False

    def push_gradient(self, i: int) -> None:
        """Pushes a gradient that has just been computed."""
        item = self._tensors[i]
        if self._pushed[i] is not None:
            raise errors.FailedPrecondition(
                f"{item.name}: has a second gradient before step(), and the first one has been"
                " pushed; wrap all but the last backward() in `with optimizer.no_sync():`"
            )
        self._stage(i, None)
        self._push_staged(wait=False)

    def finish(self, contributes: bool, scale: torch.Tensor | None) -> None:
        """Pushes everything that has not been pushed. Gradients are divided by `scale`. A parameter
        without a gradient is pushed without one, and so is everything unless the worker
        contributes."""
        self._check_unchanged()
        for i, item in enumerate(self._tensors):
            if self._pushed[i] is not None:
                continue
            if not contributes or (item.is_parameter and item.tensor.grad is None):
                self._push(i, contributes=False)
            elif item.is_parameter:
                self._stage(i, scale)
            else:
                self._placement.stage_statistic(i)
        self._push_staged(wait=True)
        self._placement.pass_done()
        self._pushed = [None] * len(self._tensors)
        self._is_begun = False
        self._iteration += 1
        if self.schedule != _library.FULL:
            self.wait_for_all()

    def wait_for(self, numbers: Iterable[int]) -> None:
        """Waits for those of these tensors that have been pushed."""
        numbers = [i for i in numbers if self._under_way[i]]
        for i in numbers:
            self.handle.wait(i)
        self._received(numbers)

    def wait_for_all(self) -> None:
        """Waits for all tensors that have been pushed."""
        if self._is_begun:
            self.wait_for(range(len(self._tensors)))
            return
        if not self._is_settled:
            self.handle.wait_all()
            self._is_settled = True
        self._received([i for i, is_under_way in enumerate(self._under_way) if is_under_way])

    def resume(self) -> None:
        """After WentBack: gives the model the parameters of the run's checkpoint."""
        self.handle.resume()
        self._placement.staged(wait=True)
        self._reset()
        self._placement.received(range(len(self._tensors)))
        self._iteration = self.handle.iteration

    def release(self) -> None:
        """Gives the model memory of its own. The worker has left."""
        self._placement.release()
        self._reset()

    def _check_unchanged(self):
        for item, pushed in zip(self._tensors, self._pushed):
            if pushed is None:
                continue
            gradient, version = pushed
            if item.tensor.grad is not gradient or gradient._version != version:
                raise errors.FailedPrecondition(
                    f"{item.name}: its gradient was changed after it had been pushed, between"
                    " backward() and step(), as clip_grad_norm_ and GradScaler.unscale_ do"
                    + SEQUENTIAL_HINT
                )

    def _stage(self, i, scale):
        gradient = self._tensors[i].tensor.grad
        self._placement.stage(i, gradient, scale)
        self._pushed[i] = (gradient, gradient._version)

    def _push_staged(self, wait):
        for i in self._placement.staged(wait):
            self._push(i, contributes=True)

    def _push(self, i, contributes):
        item = self._tensors[i]
        if not self._placement.lies_right(i):
            raise errors.FailedPrecondition(
                f"{item.name}: no longer lies where its parameters are received; allowed:"
                " model.to(), .half() and new values for parameter.data before"
                " evenshard.Optimizer is made"
            )
        self.handle.push(i, contributes)
        self._under_way[i] = 1
        if item.is_parameter:
            _note_change(item.tensor)

    def _received(self, numbers):
        if numbers:
            with torch.no_grad():
                self._placement.received(numbers)
            for i in numbers:
                self._under_way[i] = 0


def _note_change(parameter: torch.Tensor) -> None:
    """Tells autograd that a parameter changes. It then says so if something still needs the value
    that it had."""
    increment = getattr(torch.autograd.graph, "increment_version", None)
    if increment is not None:
        increment(parameter)
    else:
        # Before PyTorch 2.0. All views share the version, and writing to an empty one raises it.
        parameter.detach().view(-1)[:0].zero_()
