"""The exchange of a PyTorch model's tensors: what of an iteration has been pushed and received."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable

import torch

from evenshard import _library, errors
from evenshard._handle import Handle
from evenshard._torch import placement as _placement
from evenshard._torch.buffers import Buffers
from evenshard._torch.model import ModelTensor
from evenshard._torch.registered_states import RegisteredStates
from evenshard._torch.thread_use import ThreadUse
from evenshard._torch.unchanged import SEQUENTIAL_HINT, Unchanged, checksum, version_of

# Gradients are pushed when an eighth of the model has gathered, at least 64 KiB and at most 1 MiB.
# A push by itself costs more than a small gradient takes on its way. Larger gradients go at once,
# so that they travel beside the backward pass.
_LEAST_ELEMENTS = 16384
_MOST_ELEMENTS = 262144


class ModelExchange:
    """One worker's exchange of a model, tensor by tensor, by their numbers.

    An iteration: begin(), gradient_is_there() for each gradient that exists early, finish() for all
    others. From then on its parameters are waited for, by tensor or all at once, and begin() waits
    for those that are left.

    The library knows what of the iteration has been pushed and received. What is kept here is what
    the model has: gradients staged since begin(), and parameters not yet given to it. Until
    finish() the model keeps its parameters, as with torch.optim.

    Whatever begins and pushes is called with `threads.lock`, which wait_for() and
    wait_for_all() take by themselves: a parameter may be read anywhere.
    """

    def __init__(self, handle: Handle, tensors: list[ModelTensor]):
        self.handle = handle
        self.threads = ThreadUse()
        self.tensors = tensors
        self._tensors = tensors
        self._numbers = {id(item.tensor): i for i, item in enumerate(tensors) if item.is_parameter}
        self._sizes = [item.tensor.numel() for item in tensors]
        self._push_elements = min(max(sum(self._sizes) // 8, _LEAST_ELEMENTS), _MOST_ELEMENTS)
        self._placement = _placement.place(handle, tensors)
        self._unchanged = Unchanged(
            tensors, self._placement, self._watched(), handle.pushes_early
        )
        self._buffers = Buffers(handle, tensors, self._placement)
        # The tensors that are written to: those at the start, or which took the place of others.
        self._values = [item.tensor for item in tensors]
        # Of each parameter, where the model is given the new ones after finish(): autograd is to
        # notice at once that it must not use the old ones any more.
        self._raise_versions = [
            _raise_of(item.tensor) for item in tensors
            if item.is_parameter and handle.waits_in_forward
        ]
        self.left_out: set[int] = set()  # parameters that count as without a gradient
        self.registered = RegisteredStates(handle, tensors)
        self._reset()

    def _watched(self):
        """The parameters that nobody but the exchange may change."""
        return [i for i, item in enumerate(self._tensors) if item.is_parameter]

    def _compared(self) -> dict[str, str]:
        """What is to be the same in all workers before the exchange that begins, by name."""
        return {}

    def _reset(self):
        # By tensor, until finish(): its gradient, and the version and the checksum of that.
        self._staged = {}
        self._gathered = 0  # elements that were staged and not pushed
        # Since finish(): whose new parameters the model has not been given.
        self._missing = set()
        self._unread = set()  # of which this was so when the iteration began

    def join(self) -> None:
        """Joins the run with the model's values, and gives the model those of the run."""
        self._placement.initialize()
        self.handle.join()
        self._received(range(len(self._tensors)))

    @property
    def iteration(self) -> int:
        """How many iterations have been finished."""
        is_finished = self.handle.phase == _library.PUSHED and not self.has_pushed
        return self.handle.iteration + is_finished

    @property
    def is_begun(self) -> bool:
        """Whether an iteration has begun and is not finished."""
        return bool(self._staged) or self.handle.phase == _library.PUSHING

    @property
    def has_pushed(self) -> bool:
        """Whether a gradient of the iteration has been pushed, or will be, before finish()."""
        return bool(self._staged)

    def begin(self, contributes: bool, numbers: ctypes.Array | None) -> None:
        """Begins an iteration, with hyperparameters by tensor or None for the config's."""
        # The gradients' memory is free once everything of the last iteration has come.
        self.handle.require_open()
        self._unread = set(self._missing)
        self.wait_for_all()
        self._unchanged.begin(self.handle.iteration)
        self.registered.send(self._compared())
        self.handle.begin(contributes, numbers)
        self.threads.begin()

    def require_read(self, i: int) -> None:
        """Errors: FailedPrecondition if a gradient of this tensor was computed from parameters that
        nobody had waited for."""
        if (self._unread or self._missing) and i in (
            self._unread if self.is_begun else self._missing
        ):
            self.handle.require_open()
            if self.handle.failure is not None:  # the new value will not come
                self.handle.wait(i)
            raise errors.FailedPrecondition(
                f"{self._tensors[i].name}: was read before its new value had come, by a way that"
                " is not seen, such as a function compiled by torch.compile or a reference that the"
                " script keeps, or is of a part of the model that was first used after a backward()"
                " of the same step; allowed after synchronize(), or under the schedules BACKWARD"
                " and SEQUENTIAL: `evenshard run --schedule BACKWARD`, or in the config exchange {"
                " schedule: BACKWARD }"
            )

    def gradient_is_there(self, i: int) -> None:
        """Pushes a gradient that has just been computed, with those that have gathered. A small one
        waits for others, or for finish()."""
        self.threads.check()
        if i in self._staged:
            raise errors.FailedPrecondition(
                f"{self._tensors[i].name}: has a second gradient before step(), and the first one"
                " has been pushed; wrap all but the last backward() in `with optimizer.no_sync():`."
                " If one backward() has several, as of a parameter in two checkpoints: "
                + SEQUENTIAL_HINT
                + ". After a batch that has failed: abandon()"
            )
        self._stage(i, None)
        if self._gathered >= self._push_elements:
            self._push_staged(wait=False)

    def finish(self, contributes: bool, scale: torch.Tensor | None) -> None:
        """Pushes everything that has not been pushed. Gradients are divided by `scale`. A parameter
        without a gradient counts as zeros. Unless the worker contributes, nothing of it counts."""
        self.threads.check()
        self._unchanged.check(self._staged)
        absent = []
        for i, item in enumerate(self._tensors):
            if i in self._staged:
                continue
            if item.is_buffer:
                if not contributes or not self._stage_buffer(i):
                    absent.append(i)
            elif not contributes or (
                item.is_parameter and (item.tensor.grad is None or i in self.left_out)
            ):
                absent.append(i)
            elif item.is_parameter:
                self._stage(i, scale)
            else:
                self._placement.stage_change(i)
                self._gathered += self._sizes[i]
        self._push(absent, _library.ZEROS if contributes else _library.NOTHING)
        self._push_staged(wait=True)
        self._pushed()

    def abandon(self) -> None:
        """Pushes everything that has not been pushed, and nothing of it counts."""
        self.threads.check()
        self._placement.staged(wait=True)  # copies that may be under way
        self._gathered = 0
        numbers = range(len(self._tensors))
        rest = [i for i in numbers if not self.handle.is_pushed(i)]
        self._push(rest, _library.NOTHING)
        self._pushed()

    def take_part(self) -> bool:
        """An iteration, which has begun, of a worker that has no more data: its gradient counts as
        zeros. Returns whether that was so for all workers."""
        rest, statistics = [], []
        for i, item in enumerate(self._tensors):
            if item.is_parameter or item.is_buffer and not self._stage_buffer(i):
                rest.append(i)
            elif not item.is_buffer:
                statistics.append(i)
        self._push(rest, _library.ZEROS)
        self._push(statistics, _library.NOTHING)
        self._push_staged(wait=True)
        self._pushed()
        self.wait_for_all()
        return all(self.handle.all_absent(i) for i in rest if self._tensors[i].is_parameter)

    def _pushed(self):
        """Everything of the iteration has been pushed."""
        self._placement.pass_done()
        self._staged = {}
        self._missing.update(range(len(self._tensors)))
        if not self.handle.waits_in_forward:
            self.wait_for_all()
            return
        for raise_version in self._raise_versions:
            raise_version()
        self._unchanged.under_way()

    def wait_for(self, numbers: Iterable[int]) -> None:
        """Waits for the parameters of those of these tensors that finish() has pushed."""
        if not self._missing:
            return
        self.threads.require_free()
        with self.threads.lock:
            missing = self._missing_of(numbers)
            for i in missing:
                self.handle.wait(i)
            if missing and self._placement.takes_early:
                # What has come meanwhile need not be asked for one by one. The tensors are mostly
                # in the order in which a forward pass needs them.
                first = missing[0]
                come = range(first, first + self.handle.received(first))
                missing = {*missing, *self._missing_of(come)}
            self._unchanged.arrived(missing)
            self._received(missing)

    def wait_for_all(self) -> None:
        """Waits for all tensors that finish() has pushed."""
        with self.threads.lock:
            if self.is_begun:
                return
            if self.handle.phase != _library.IDLE:
                self.handle.wait_all()
            missing = self._missing_of(range(len(self._tensors)))
            self._unchanged.arrived(missing)
            self._received(missing)

    def resume(self) -> None:
        """After WentBack: gives the model the parameters of the run's checkpoint."""
        self.handle.resume()
        self._placement.staged(wait=True)
        self._placement.pass_done()
        self._reset()
        self._buffers.reset()
        self._received(range(len(self._tensors)))

    # Assignments, and the state that they assign.

    def number_of(self, parameter: torch.nn.Parameter) -> int | None:
        """The number of a parameter that is trained."""
        return self._numbers.get(id(parameter))

    def received_value(self, i: int) -> torch.Tensor:
        return self._placement.parameter(i)

    def require_between(self, what: str) -> None:
        """Errors: FailedPrecondition in the middle of an iteration."""
        self.handle.require_open()
        if self.is_begun:
            raise errors.FailedPrecondition(
                f"{what}: gradients of this iteration have been pushed; allowed: before backward(),"
                " or after step()"
            )

    def prepare_assignment(self) -> None:
        """Waits for everything under way. Errors: FailedPrecondition in the middle of an iteration,
        or if the script has changed a parameter."""
        self.require_between("assign() and load_state_dict()")
        self.wait_for_all()
        self._unchanged.require("before an assignment")

    def assign(
        self, array: int, values: dict[int, torch.Tensor], steps: list[int] | None = None
    ) -> None:
        """Has rank 0's `values`, by tensor, replace an array of the run's state: 0 for parameters,
        or the optimizer's from 1 on, with the updates behind it by tensor. Waits for it."""
        self.registered.send()
        self.handle.begin_assignment(array, steps)
        for i, value in values.items():
            self._placement.stage_assigned(i, value)
        self._push(self._placement.staged(wait=True), _library.GRADIENT)
        others = [i for i in range(len(self._tensors)) if i not in values]
        self._push(others, _library.ZEROS)
        self.handle.wait_all()
        self.registered.exchanged()

    def take_all(self) -> None:
        """Gives the model everything as it was received last."""
        self._placement.pass_done()  # what the script has begun with it comes first
        self._buffers.reset()
        self._received(range(len(self._tensors)))

    def pull_state(self, array: int) -> tuple[dict[int, torch.Tensor], list[int]]:
        """Returns an array of the run's state, by tensor, as the shards have it, and the updates
        behind the optimizer's state."""
        values = {
            i: torch.empty(item.shape, dtype=torch.float32, device="cpu")
            for i, item in enumerate(self._tensors)
            if array == 0 or item.is_parameter
        }
        addresses = {i: value.data_ptr() for i, value in values.items()}
        steps = self.handle.pull_state(array, addresses)
        return values, steps

    def release(self) -> None:
        """The worker has left."""
        self._placement.release()
        self.registered.release()
        self._reset()

    def _stage(self, i, scale):
        gradient = self._tensors[i].tensor.grad
        self._placement.stage(i, gradient, scale)
        # In a ring sums take the place of what was staged. A view's version does not say whether it
        # was written to.
        is_compared = self._unchanged.compares or gradient._base is not None
        is_noted = self.handle.is_ring and is_compared
        bits = checksum(gradient) if is_noted else None
        self._staged[i] = (gradient, version_of(gradient), bits)
        self._gathered += self._sizes[i]

    def _stage_buffer(self, i):
        """Stages a value that the run is to have from this worker. Returns whether it is one."""
        if not self._buffers.must_push(i, self._unchanged.compares):
            return False
        self._placement.stage_value(i, self._tensors[i].value.detach())
        self._gathered += self._sizes[i]
        self._buffers.agrees(i)
        return True

    def _push_staged(self, wait):
        numbers = self._placement.staged(wait)
        for i in numbers:
            self._gathered -= self._sizes[i]
        self._push(numbers, _library.GRADIENT)

    def _push(self, numbers, contribution):
        if not numbers:
            return
        if contribution != _library.GRADIENT:
            # Nothing of these was staged, and their parameters may still be on their way.
            self._placement.await_copies()
        self.handle.push_several(numbers, contribution)

    def _missing_of(self, numbers):
        return [i for i in numbers if i in self._missing]

    def _received(self, numbers):
        buffers = [i for i in numbers if self._tensors[i].is_buffer]
        compares = self._unchanged.compares
        kept = {i for i in buffers if not self._buffers.must_take(i, compares)}
        targets = [(i, self._own_value(i)) for i in numbers if i not in kept]
        with torch.no_grad():
            self._placement.received([each for each in targets if not each[1].is_inference()])
        if made_in_inference_mode := [each for each in targets if each[1].is_inference()]:
            with torch.inference_mode():
                self._placement.received(made_in_inference_mode)
        self._unchanged.received(numbers)
        for i in buffers:
            if i not in kept:
                self._buffers.agrees(i)
        self._missing.difference_update(numbers)

    def _own_value(self, i):
        """Where a received value goes. What the script has put in place of a buffer may be on the
        memory of others, as of a batch, which is not written to."""
        item = self._tensors[i]
        value = item.value
        if value is self._values[i] or isinstance(value, torch.nn.Parameter):
            return value
        with torch.inference_mode(False):  # what is made in that mode has no gradients later
            self._values[i] = torch.empty_like(value)
        item.replace(self._values[i])
        self._placement.has_new_memory()
        return self._values[i]


def _raise_of(parameter: torch.Tensor) -> Callable[[], object]:
    """A function that raises a parameter's version, which tells autograd that its value changes."""
    increment = getattr(torch.autograd.graph, "increment_version", None)
    if increment is not None:
        return functools.partial(increment, parameter)
    # Before PyTorch 2.0. What is detached shares the version, whatever becomes of the data of
    # either, and a write to it raises the version. It has no elements, and keeps no memory.
    alias = parameter.detach()
    alias.data = parameter.new_empty(0)
    return alias.zero_
