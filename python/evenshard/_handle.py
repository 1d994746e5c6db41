"""A worker of libevenshard.so as an object, with its tensors by their number."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from evenshard import _environment, _exit, _interrupts, _library, errors
from evenshard._calls import Calls
from evenshard._library import encoded, told
from evenshard._state_callback import StateCallback

_handles: weakref.WeakSet[Handle] = weakref.WeakSet()


class Declared(NamedTuple):
    """A tensor as it is declared to the run. `layer` None: the name up to its last dot."""

    name: str
    shape: tuple
    role: int = _library.PARAMETER
    layer: str | None = None
    type: int = _library.FLOAT32  # of a parameter in this process

    @property
    def gradient_type(self) -> int:
        return self.type if self.type == _library.BFLOAT16 else _library.FLOAT32


class Statistics(NamedTuple):
    """Counters of a worker since it joined."""

    iterations: int
    pushes: int  # chunks
    bytes_out: int  # of gradients, as encoded
    bytes_in: int  # of parameters
    wait_seconds: float  # in which the worker waited for parameters


class Handle:
    """A worker of the library, used by one thread at a time.

    Every method raises what errors.py has. After fork a child must not use its parent's worker:
    each call says so.
    """

    def __init__(
        self,
        declared: Sequence[Declared],
        *,
        config: str | os.PathLike | None = None,
        rank: int | None = None,
        optimizer: str | None = None,
        local: str | None = None,
        clip_grad_norm: float | None = None,
        clip_grad_value: float | None = None,
        overrides: Iterable[str] | None = None,
        coordinator: str | None = None,
        continues: bool | None = None,
    ):
        """Checks everything and allocates the memory; does not connect yet. What is None comes from
        the environment (_environment.py). `config` is a path, or the text itself if it has a
        brace. `optimizer` is an OptimizerConfig and `local` are LocalSteps in text format."""
        self._library = _library.load()
        self._memory = None
        self._calls = Calls()
        self._leaves_for: tuple[str | None] | None = None  # once the call that goes on has ended
        self._is_leaving = False
        # Of the exchange, once a call has raised it.
        self._failure: str | None = None
        self._failed_as: tuple[type[errors.Error], str | None] = (errors.FailedPrecondition, None)
        # Iteration and statistics, and why it has failed, once the worker has left.
        self._last: tuple[int, Statistics] | None = None
        self._left_for: str | None = None
        self._continues = _environment.continues(continues)
        options = _library.COptions(
            rank=_environment.rank(rank),
            coordinator=encoded(_environment.coordinator(coordinator)),
            optimizer=encoded(optimizer),
            local=encoded(local),
            tensors=(_library.CTensor * len(declared))(*map(_c_tensor, declared)),
            tensor_count=len(declared),
            clip_global_norm=_limit("clip_grad_norm", clip_grad_norm),
            clip_value=_limit("clip_grad_value", clip_grad_value),
        )
        text, changes = _environment.config(config), _environment.overrides(overrides, config)
        options.set_config(text, changes)
        self._place = (text, tuple(changes), options.rank)
        if any(other.is_own and other._place == self._place for other in _handles):
            raise errors.FailedPrecondition(
                f"this process is worker {options.rank} of the run already; allowed: one"
                " evenshard.Optimizer or evenshard.Worker for each run, such as one for an"
                " nn.ModuleDict of several models, or a close() of the first one"
            )
        pointer = ctypes.c_void_p()
        code = self._library.create(ctypes.byref(options), ctypes.byref(pointer))
        if code != 0:
            raise errors.of_config(_library.error(self._library, code))
        # An array on the worker's memory refers to it as well.
        self._memory = _library.Owned(pointer, self._library.destroy)
        self._types = self.tensors()
        if rank is None:
            _environment.check_world_size(self.workers)

    def require_working(self) -> None:
        """Errors: FailedPrecondition if the worker has left; if its exchange has failed, that which
        it had then."""
        self._pointer()
        if self._failure is not None:
            kind, status = self._failed_as
            raise kind(f"the exchange has failed: {self._failure}", status)

    # What the config says.

    @property
    def rank(self) -> int:
        return self._library.rank(self._pointer())

    @property
    def workers(self) -> int:
        return self._library.workers(self._pointer())

    @property
    def shards(self) -> int:
        return self._library.shards(self._pointer())

    @property
    def is_ring(self) -> bool:
        """Whether workers exchange among themselves, without shards."""
        return self.shards == 0

    @property
    def pushes_early(self) -> bool:
        """Whether each gradient is to be pushed as soon as it is there."""
        return bool(self._library.pushes_early(self._pointer()))

    @property
    def waits_in_forward(self) -> bool:
        """Whether each tensor is to be waited for where the forward pass needs it."""
        return bool(self._library.waits_in_forward(self._pointer()))

    @property
    def waits_for_workers(self) -> bool:
        """Whether an iteration waits for all workers (SYNC)."""
        return bool(self._library.waits_for_workers(self._pointer()))

    @property
    def compares_states(self) -> bool:
        """Whether the workers' registered states are compared: with shards, under SYNC."""
        return self.waits_for_workers and self.workers > 1 and not self.is_ring

    @property
    def skips_non_finite(self) -> bool:
        return bool(self._library.skips_non_finite(self._pointer()))

    @property
    def gradient_limit(self) -> float:
        """The magnitude from which on exchange.gradient_encoding makes an infinity of a value."""
        return self._library.gradient_limit(self._pointer())

    @property
    def follows_views(self) -> bool:
        """Whether the run has a coordinator, so that it may go back."""
        return bool(self._library.follows_views(self._pointer()))

    @property
    def optimizer(self) -> str:
        """The kind in the config: "ADAM"."""
        return self._library.optimizer(self._pointer()).decode()

    @property
    def local_steps(self) -> int:
        """The steps between two exchanges; 0 if each iteration is one."""
        return self._library.local_steps(self._pointer())

    @property
    def local_seconds(self) -> float:
        """After so long an exchange comes anyway; 0: only after the steps."""
        return self._library.local_seconds(self._pointer())

    @property
    def parameters_are_exact(self) -> bool:
        """Whether all parameters are received as the shards have them, and none rounded to 16
        bits."""
        return bool(self._library.parameters_are_exact(self._pointer()))

    def learning_rate(self, tensor: int) -> float:
        """The rate of a tensor at the first iteration."""
        return self._library.learning_rate(self._pointer(), tensor)

    def tensors(self) -> list[Declared]:
        """The model's tensors, in model order."""
        pointer = self._pointer()
        found = []
        for i in range(self._library.tensor_count(pointer)):
            tensor = self._library.tensor_at(pointer, i)
            found.append(
                Declared(
                    tensor.name.decode("utf-8", "replace"),
                    tuple(tensor.shape[: tensor.dimensions]),
                    tensor.role,
                    tensor.layer and tensor.layer.decode("utf-8", "replace"),
                    tensor.type,
                )
            )
        return found

    # Memory. An array keeps the memory alive, also after close().

    def parameters(self, tensor: int) -> ctypes.Array:
        """Where a tensor's parameters are received, in its type: elements of 16 bits as numbers."""
        return self._array(self._library.parameters, tensor, self._types[tensor].type)

    def gradients(self, tensor: int) -> ctypes.Array:
        """Where a tensor's gradient is pushed from, in its type."""
        return self._array(self._library.gradients, tensor, self._types[tensor].gradient_type)

    def assigned(self, tensor: int) -> ctypes.Array:
        """Where what is assigned to a tensor is pushed from, as float32. It lies in the memory of
        all gradients."""
        return self._array(self._library.assigned, tensor, _library.FLOAT32)

    def _array(self, address_of, tensor, kind):
        pointer = self._pointer()
        elements = self._library.elements(pointer, tensor)
        element = ctypes.c_float if kind == _library.FLOAT32 else ctypes.c_uint16
        array = (element * elements).from_address(address_of(pointer, tensor))
        array.keeps = self._memory
        return array

    # The exchange, as in client/evenshard.h.

    def join(self) -> None:
        """Errors: FailedPrecondition if the run is not at its beginning, without being told to
        continue it and without a coordinator that has it continued."""
        self._wait(self._library.join)
        _handles.add(self)
        behind = self.iteration
        if behind + self.assignments > 0 and not self._continues and not self.follows_views:
            allowed = "shards that are started anew"
            if self.optimizer == "MEAN":
                allowed += ", since these have no parameters with which a closed run could go on"
            else:
                allowed += ", or, to go on with that run, continues=True (EVENSHARD_CONTINUE=1)"
            self.close()
            raise errors.FailedPrecondition(
                f"the shards have {behind} iterations of an earlier run behind them, and would"
                f" replace the parameters that this program brings; allowed: {allowed}"
            )

    @property
    def iteration(self) -> int:
        if self._memory is None and self._last:
            return self._last[0]
        return self._library.iteration(self._pointer())

    @property
    def phase(self) -> int:
        """_library.IDLE, PUSHING or PUSHED: where the worker is in its iteration."""
        if self._memory is None:
            return _library.IDLE
        return self._library.current_phase(self._pointer())

    def set_weight(self, weight: float) -> None:
        """How much what is pushed from now on counts in the mean."""
        self._check(self._library.set_weight(self._pointer(), weight))

    def begin(self, contributes: bool = True, numbers: ctypes.Array | None = None) -> None:
        self._check(self._library.begin(self._pointer(), contributes, numbers))

    def begin_assignment(self, array: int, steps: Sequence[int] | None = None) -> None:
        """`steps` by tensor."""
        counts = None if steps is None else (ctypes.c_uint64 * len(steps))(*steps)
        self._check(self._library.begin_assignment(self._pointer(), array, counts))

    @property
    def joined_late(self) -> bool:
        """Whether the run had begun when this worker joined."""
        return bool(self._library.joined_late(self._pointer()))

    @property
    def assignments(self) -> int:
        """How many have followed the latest iteration, or the initial parameters."""
        return self._library.assignments(self._pointer())

    def pull_state(self, array: int, addresses: dict[int, int]) -> list[int]:
        """Receives an array of the state at an address for each tensor, and returns the updates
        behind the optimizer's state by tensor."""
        count = self._library.tensor_count(self._pointer())
        out = (ctypes.c_void_p * count)(*(addresses.get(i) for i in range(count)))
        steps = (ctypes.c_uint64 * count)()
        self._wait(self._library.pull_state, array, out, steps)
        return list(steps)

    def is_pushed(self, tensor: int) -> bool:
        """Whether a tensor has been pushed in the iteration that has begun."""
        return bool(self._library.is_pushed(self._pointer(), tensor))

    def push(self, tensor: int, contribution: int = _library.GRADIENT) -> None:
        self._check(self._library.push(self._pointer(), tensor, contribution))

    def push_several(
        self, tensors: Sequence[int], contribution: int = _library.GRADIENT
    ) -> None:
        count = len(tensors)
        numbers = (ctypes.c_int * count)(*tensors)
        self._check(self._library.push_several(self._pointer(), numbers, count, contribution))

    def wait(self, tensor: int) -> None:
        self._wait(self._library.wait, tensor)

    def received(self, tensor: int) -> int:
        return self._library.received(self._pointer(), tensor)

    def updates(self, tensor: int) -> int:
        """How many updates lie behind what was received last of a tensor."""
        return self._library.updates(self._pointer(), tensor)

    def all_absent(self, tensor: int) -> bool:
        """Whether no worker had a gradient of a tensor in the iteration that was received last, and
        none left it out."""
        return bool(self._library.all_absent(self._pointer(), tensor))

    def wait_all(self) -> None:
        self._wait(self._library.wait_all)

    def mean(self, values: Sequence[float], place: str | None = None) -> list[float]:
        """The mean of each value over the workers. All call it at the same place, by default the
        line of their programs."""
        array = (ctypes.c_double * len(values))(*values)
        self._wait(self._library.mean, told(place or _place_of_caller()), array, len(values))
        return list(array)

    def keep_state(self, texts: dict[str, str]) -> None:
        """Gives what counts beside the model before the next exchange, by name."""
        names = (ctypes.c_char_p * len(texts))(*map(encoded, texts.keys()))
        values = (ctypes.c_char_p * len(texts))(*map(encoded, texts.values()))
        self._wait(self._library.keep_state, names, values, len(texts))

    def take_state(self) -> dict[str, str]:
        """What the workers had given before the exchange that comes next. Waits for it."""
        self._wait(self._library.take_state)
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        taken = {}
        while self._library.taken_state(
            self._pointer(), len(taken), ctypes.byref(name), ctypes.byref(text)
        ):
            assert name.value is not None and text.value is not None
            taken[name.value.decode()] = text.value.decode()
        return taken

    def give_state(self, make: Callable[[], tuple[bytes, list[tuple[int, int]]]]) -> None:
        """Has `make` called, in this program's thread while it waits, when another worker needs
        what this one keeps by itself. It returns a text, and the address and the bytes of each
        part, which stay as they are until the wait ends. What it raises refuses."""
        self._giver = StateCallback(lambda _: make())
        self._library.set_state_giver(self._pointer(), self._giver.function, None)

    def receive_state(self, place: Callable[[bytes], list[tuple[int, int]]]) -> None:
        """Receives what another worker keeps by itself, at the iteration that comes next. `place`
        gets its text and returns where each part goes; what it raises is raised."""
        callback = StateCallback(lambda text: (text, place(text)))
        try:
            self._wait(self._library.receive_state, callback.function, None)
        except errors.Error:
            if callback.error is not None:
                raise callback.error from None
            raise

    def push_pull(self, numbers: ctypes.Array | None = None) -> None:
        self._wait(self._library.push_pull, numbers)

    def pull(self) -> None:
        self._wait(self._library.pull)

    def resume(self) -> None:
        self._wait(self._library.resume)
        self._failure = None

    def interrupt(self) -> None:
        """May be called from any thread."""
        self._library.interrupt(self._pointer())

    def statistics(self) -> Statistics:
        if self._memory is None and self._last:
            return self._last[1]
        counts = self._library.statistics(self._pointer())
        return Statistics(*(getattr(counts, name) for name in Statistics._fields))

    # The end.

    @property
    def is_open(self) -> bool:
        return self._memory is not None

    @property
    def is_own(self) -> bool:
        """Whether this process made the worker, and did not inherit it by fork."""
        return self._memory is not None and self._memory.process == os.getpid()

    def require_open(self) -> None:
        """Errors: FailedPrecondition if it is closed, or another process's."""
        self._pointer()

    @property
    def is_in_call(self) -> bool:
        """Whether this is a signal handler, in the middle of a call of this thread that waits."""
        return self._calls.is_of_this_thread

    @property
    def failure(self) -> str | None:
        """What the exchange has failed with, as a call has raised it."""
        return self._failure

    def close(self, error: str | None = None) -> None:
        """Leaves the run: finished, or failed for the reason that is given or that the exchange has
        failed with. Does nothing when called again, or in a child process. A call that goes on in
        another thread raises Interrupted; so does one in which a signal handler calls this, and
        then the worker leaves."""
        if not self.is_own:
            self._memory = None
            return
        if self._calls.is_of_this_thread:
            self.interrupt()
            self._leaves_for = (error,)
            return
        self._calls.begin_last(lambda: None if self._is_leaving else self.interrupt())
        try:
            if self._memory is not None:  # another thread has not closed it meanwhile
                self._leave(error)
        finally:
            self._calls.end()

    def _leave(self, error):
        self._is_leaving = True
        reason = self._left_for = error if error is not None else self._failure
        try:
            self._call(self._library.leave, told(reason))
        except BaseException as failure:
            if reason is None and not isinstance(failure, errors.WentBack):
                # It has waited in vain, and has told nobody.
                self._left_for = _exit.text_of(failure) or "the program ended in close()"
                self._library.leave(self._pointer(), told(self._left_for))
            if reason is None or not isinstance(failure, errors.Error):
                raise
        finally:
            self._last = (self._library.iteration(self._pointer()), self.statistics())
            self._memory = None
            self._leaves_for = None

    def _pointer(self):
        if self._memory is None and self._left_for is not None:
            raise errors.FailedPrecondition(f"the worker has left the run: {self._left_for}")
        return _library.require_open(self._memory, "the worker")

    def _wait(self, function, *arguments) -> None:
        """Calls a function that may wait. Signal handlers run meanwhile."""
        self._calls.begin()
        try:
            self._call(function, *arguments)
        finally:
            self._calls.end()
            if self._leaves_for is not None:
                (error,) = self._leaves_for
                self.close(error)
        if self._memory is None:
            raise errors.Interrupted("the worker was closed in the middle of the call", "CANCELLED")

    def _call(self, function, *arguments):
        self.require_open()
        _interrupts.prepare()
        # No variable, which an exception would keep, and with it the worker's memory.
        code = function(self._pointer(), *arguments)
        try:
            _interrupts.raise_pending()
        except BaseException as error:
            self._note_failure(f"{type(error).__name__} while it waited")
            raise
        self._check(code)

    def _check(self, code: int) -> None:
        if code == 0:
            return
        error = _library.error(self._library, code)
        self._note_failure(str(error), (type(error), error.status))
        raise error

    def _note_failure(self, reason, kind=(errors.FailedPrecondition, None)):
        if self._library.has_failed(self._pointer()):
            self._failure, self._failed_as = reason, kind


def _place_of_caller() -> str:
    """Where the program has called this package: "train.py:40"."""
    frame = sys._getframe()
    while frame.f_back and os.path.abspath(frame.f_code.co_filename).startswith(_exit.PACKAGE):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _limit(option: str, value: float | None) -> float:
    """A limit of gradients as the library takes it: 0 for none."""
    if value is None:
        return 0.0
    try:
        limit = ctypes.c_float(value).value
    except TypeError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise errors.ConfigError(
            f"{option}: is {value!r}, allowed: a number above 0, or None for no clipping"
        )
    return limit


def _c_tensor(declared: Declared) -> _library.CTensor:
    return _library.CTensor(
        encoded(declared.name),
        (ctypes.c_int64 * len(declared.shape))(*declared.shape),
        len(declared.shape),
        declared.role,
        encoded(declared.layer),
        declared.type,
    )
