"""How gradients and parameters come to and from the memory that is exchanged.

The model's tensors keep memory of their own, so that a parameter changes only when it is received.
Both classes have the same members, for the tensors of the model by their number:

  initialize()            copies the model's values into the exchanged memory, before the join
  stage(i, gradient, s)   copies gradient / s, or only begins to
  stage_change(i, w)      the same for w times what was received minus the value now: of a running
                          statistic, and with local steps of a parameter
  stage_value(i, value)   the same for a value as it is
  stage_assigned(i, v)    the same for what is assigned, in float32
  staged(wait)            returns those that have been copied since, in order; with `wait` all
  await_copies()          waits until no copy reads or writes the exchanged memory
  received(targets)       gives what has been received to tensors: (number, tensor) each
  gradient(i)             what was staged last, once copies are waited for
  parameter(i)            what was received last
  takes_early             whether it may as well take over parameters before they are needed
  has_new_memory()        what is received next goes to memory that work in the queue may have used
  pass_done()             no more work on the parameters is queued before they are received again
  release()               ends the use of the exchanged memory
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import warnings
from collections.abc import Iterable

import torch

from evenshard import _library, errors
from evenshard._handle import Handle
from evenshard._torch.model import DTYPES, ModelTensor

_PORTABLE = 1  # cudaHostRegisterPortable: locked for every device


def place(handle: Handle, tensors: list[ModelTensor]):
    """Returns the placement for the device that is trained on. Other tensors may be elsewhere."""
    device = next(item.tensor.device for item in tensors if item.is_parameter)
    if device.type == "cuda":
        return DevicePlacement(handle, tensors, device)
    return HostPlacement(handle, tensors)


class _Placement:
    """The exchanged memory as tensors."""

    def __init__(self, handle: Handle, tensors: list[ModelTensor]):
        self._tensors = tensors
        self._parameters = [
            _view(handle.parameters(i), t, DTYPES[t.type]) for i, t in enumerate(tensors)
        ]
        # With a FLOAT16 parameter it has room for what is left of a gradient without its scale.
        self._gradients = [
            _view(
                handle.gradients(i), t,
                torch.bfloat16 if t.type == _library.BFLOAT16 else torch.float32,
            )
            for i, t in enumerate(tensors)
        ]
        # Uses the same memory.
        self._assigned = [
            _view(handle.assigned(i), t, torch.float32) for i, t in enumerate(tensors)
        ]

    def initialize(self) -> None:
        for item, view in zip(self._tensors, self._parameters):
            view.copy_(item.value.detach())

    def gradient(self, i: int) -> torch.Tensor:
        return self._gradients[i]

    def parameter(self, i: int) -> torch.Tensor:
        return self._parameters[i]


def _view(memory: ctypes.Array, item: ModelTensor, dtype: torch.dtype) -> torch.Tensor:
    # The tensor keeps the array alive, and the array the worker's memory.
    return torch.frombuffer(memory, dtype=dtype).view(item.tensor.shape)


def _dense(item: ModelTensor, gradient: torch.Tensor) -> torch.Tensor:
    if gradient.layout != torch.strided:
        raise errors.TensorError(
            f"{item.name}: its gradient is of layout {gradient.layout}, allowed: a dense one; make"
            " the module with sparse=False"
        )
    # It does only after backward(create_graph=True).
    return gradient.detach() if gradient.requires_grad else gradient


class HostPlacement(_Placement):
    """On the CPU everything is copied once each way."""

    takes_early = True

    def __init__(self, handle: Handle, tensors: list[ModelTensor]):
        super().__init__(handle, tensors)
        self._staged = []

    def stage(self, i: int, gradient: torch.Tensor, scale: torch.Tensor | None) -> None:
        self._gradients[i].copy_(_dense(self._tensors[i], gradient))
        if scale is not None:
            # Here, where one of float16 is float32, since it may become too small for float16.
            self._gradients[i].div_(scale)
        self._staged.append(i)

    def stage_change(self, i: int, weight: float = 1) -> None:
        value = self._tensors[i].value.detach().cpu()  # a running statistic may be elsewhere
        torch.sub(self._parameters[i], value, out=self._gradients[i])
        if weight != 1:
            self._gradients[i].mul_(weight)
        self._staged.append(i)

    def stage_value(self, i: int, value: torch.Tensor) -> None:
        self._gradients[i].copy_(value)
        self._staged.append(i)

    def stage_assigned(self, i: int, value: torch.Tensor) -> None:
        self._assigned[i].copy_(value)
        self._staged.append(i)

    def staged(self, wait: bool) -> list[int]:
        done, self._staged = self._staged, []
        return done

    def await_copies(self) -> None:
        pass

    def received(self, targets: Iterable[tuple[int, torch.Tensor]]) -> None:
        for i, target in targets:
            target.copy_(self._parameters[i])

    def has_new_memory(self) -> None:
        pass

    def pass_done(self) -> None:
        pass

    def release(self) -> None:
        self._parameters = self._gradients = self._assigned = None


class DevicePlacement(_Placement):
    """On a CUDA device parameters stay where they are, and the exchanged memory is page-locked, so
    that copies run beside the computing, on a stream of their own.

        backward   gradient on the device, by the stream that computes
                     | the copies' stream waits for that stream, copies to the host, notes an event
        push       when the event has come: looked at when the next gradient is there and enough
                     have gathered, waited for in step()
        receive    the library writes to the host's memory
        forward    the copies' stream waits until step() was reached on the computing stream, copies
                     to the device; the computing stream waits for the copy

    A gradient's memory on the host is written to only in the next iteration, after all parameters
    have come. A parameter's is written to only after its next push, and that comes after the
    copies' stream has copied it to the device: a push of a gradient after its own copy, which
    follows on the same stream, and one without data after await_copies().

    `cuda` is torch.cuda, or what stands for it in a test.
    """

    # The computing stream waits for every copy that is queued: those of later modules would hold up
    # the first ones.
    takes_early = False

    def __init__(self, handle: Handle, tensors: list[ModelTensor], device, cuda=torch.cuda):
        super().__init__(handle, tensors)
        self._device = device
        self._cuda = cuda
        self._locked = []
        for views in (self._parameters, self._gradients):
            self._page_lock(views)
        self._stream = cuda.Stream(device)
        # (number, event, the weight of a change or None), in order
        self._copies: collections.deque = collections.deque()
        self._last_use: torch.cuda.Event | None = None

    def _page_lock(self, views):
        # All tensors of one kind lie in one block.
        begin = views[0].data_ptr()
        last = views[-1]
        size = last.data_ptr() + last.element_size() * last.numel() - begin
        # A context is made on the current device, if it has none.
        with self._cuda.device(self._device):
            code = int(self._cuda.cudart().cudaHostRegister(begin, size, _PORTABLE))
        if code == 0:
            self._locked.append(begin)
            return
        warnings.warn(
            f"cudaHostRegister of {size} bytes failed with CUDA's error {code}: copies between"
            " the host and the device will hold up the program"
        )
        # CUDA keeps the error, and whatever the script starts next would raise it. So does this.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=self._device).add_(1)

    def stage(self, i: int, gradient: torch.Tensor, scale: torch.Tensor | None) -> None:
        gradient = _dense(self._tensors[i], gradient)
        if scale is not None:
            # As on the CPU.
            gradient = gradient.to(self._gradients[i].dtype) / scale
        self._copy_to_host(i, gradient)

    def stage_change(self, i: int, weight: float = 1) -> None:
        value = self._tensors[i].value.detach().to(self._device)
        self._copy_to_host(i, value, change_weight=weight)

    def stage_value(self, i: int, value: torch.Tensor) -> None:
        # It may be on the host, and of any type.
        self._copy_to_host(i, value.to(self._device, torch.float32))

    def stage_assigned(self, i: int, value: torch.Tensor) -> None:
        # With a bfloat16 model this reaches beyond what gradients need and what is locked, and CUDA
        # copies nothing to memory that is locked in part.
        self._assigned[i].copy_(value.detach().cpu())
        event = self._cuda.Event()
        event.record(self._stream)
        self._copies.append((i, event, None))

    def _copy_to_host(self, i, source, change_weight=None):
        self._last_use = None
        self._stream.wait_stream(self._cuda.current_stream(self._device))
        with self._cuda.stream(self._stream):
            self._gradients[i].copy_(source, non_blocking=True)
            event = self._cuda.Event()
            event.record(self._stream)
        # Its memory is not given to another tensor before the copy is done.
        source.record_stream(self._stream)
        self._copies.append((i, event, change_weight))

    def staged(self, wait: bool) -> list[int]:
        done = []
        while self._copies:
            i, event, change_weight = self._copies[0]
            if wait:
                event.synchronize()
            elif not event.query():
                break
            self._copies.popleft()
            if change_weight is not None:
                gradient = self._gradients[i]  # the value now
                torch.sub(self._parameters[i], gradient, out=gradient)
                if change_weight != 1:
                    gradient.mul_(change_weight)
            done.append(i)
        return done

    def await_copies(self) -> None:
        self._stream.synchronize()

    def received(self, targets) -> None:
        computing = self._cuda.current_stream(self._device)
        if self._last_use is None:
            self._stream.wait_stream(computing)
        else:
            self._stream.wait_event(self._last_use)
        with self._cuda.stream(self._stream):
            for i, target in targets:
                target.copy_(self._parameters[i], non_blocking=True)
        computing.wait_stream(self._stream)

    def has_new_memory(self) -> None:
        self._last_use = None

    def pass_done(self) -> None:
        self._last_use = self._cuda.Event()
        self._last_use.record(self._cuda.current_stream(self._device))

    def release(self) -> None:
        self._stream.synchronize()
        with self._cuda.device(self._device):
            for begin in self._locked:
                self._cuda.cudart().cudaHostUnregister(begin)
        self._locked.clear()
        self._parameters = self._gradients = self._assigned = None
