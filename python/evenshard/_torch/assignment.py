"""What a script gives to the whole run: parameters, and the optimizer's state.

Each is an exchange of its own, in which rank 0's values replace what the shards have, and which is
no iteration of training. All ranks take part in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from evenshard import errors
from evenshard._torch.model import ModelTensor, is_exact, is_rounded
from evenshard._torch.model_exchange import ModelExchange
from evenshard._torch.unchanged import same


class Assignments:
    """Those of one worker.

    A worker that was started again, or has gone back to a checkpoint, begins after an iteration,
    and possibly after assignments that followed it. It leaves those out when its script comes to
    them. If the run goes back to its initial parameters, whatever was assigned before the first
    iteration is lost, and only a script that is started again comes to that again.
    """

    def __init__(self, exchange: ModelExchange, check: Callable[[], None]):
        """check: raises if what the script has left behind cannot be taken."""
        self._exchange = exchange
        self._check = check
        self._is_restarted = False  # iterations lie behind, and it has begun none
        self._done = 0  # assignments of the script that the run has behind it
        self._has_first = False  # before the first iteration
        self._is_open = False  # the script changes parameters now
        self.restart()

    def restart(self) -> None:
        """The worker has just joined. Errors: WentBack if the run is where it was before its first
        assignments."""
        self._is_restarted = self._exchange.iteration > 0
        self._done = self._exchange.handle.assignments
        if self._has_first and not self._is_restarted:
            raise errors.WentBack(
                "the run has gone back to its initial parameters, and the script has assigned"
                " others, or an optimizer's state, before the first iteration; allowed: to start"
                " the script again, as launch does after this error",
                "ABORTED",
            )

    def begin_iteration(self) -> None:
        self._require_closed("backward() or step()")
        self._is_restarted = False
        self._done = 0

    @contextlib.contextmanager
    def parameters(self) -> Iterator[None]:
        """A context after which rank 0's values are the run's. After an exception in it the model
        has what it had before."""
        exchange = self._exchange
        with exchange.threads.held():
            self._require_closed("assign()")
            exchange.prepare_assignment()
            self._is_open = True
            try:
                with torch.no_grad():
                    yield
                self._check()
                changed = self._changed() if exchange.handle.rank == 0 else {}
            except BaseException:
                exchange.take_all()
                raise
            finally:
                self._is_open = False
            self._assign(0, changed)
            exchange.take_all()

    def _require_closed(self, what):
        if self._is_open:
            raise errors.FailedPrecondition(
                f"{what}: in `with optimizer.assign():`, allowed: before and after it"
            )

    def check_load(self, replaces: bool) -> None:
        """Before load_state_dict() of the model, which `replaces` the parameters or only their
        values. Errors: FailedPrecondition out of the context, and if it replaces them."""
        if not self._is_open:
            raise errors.FailedPrecondition(
                "load_state_dict: the model's parameters live at the shards, and the next step"
                " would replace what is loaded; allowed: in `with optimizer.assign():`, before"
                " evenshard.Optimizer is made, and after close()"
            )
        if replaces:
            raise errors.FailedPrecondition(
                "load_state_dict: with assign=True, whose parameters nobody would train; allowed:"
                " without it"
            )

    def state(self, arrays: Sequence[Mapping[int, torch.Tensor]], steps: list[int]) -> None:
        """Rank 0's arrays, by tensor, become the optimizer's state. Does nothing in a run that has
        iterations behind it, at which this worker has just joined: its state counts."""
        exchange = self._exchange
        with exchange.threads.lock:
            self._require_closed("load_state_dict()")
            exchange.prepare_assignment()
            for number, values in enumerate(arrays, 1):
                self._assign(number, values if exchange.handle.rank == 0 else {}, steps)

    def _assign(self, array, values, steps=None):
        # State comes before the first iteration, whatever has been done since.
        is_behind = self._is_restarted and array > 0
        self._has_first |= is_behind or self._exchange.iteration == 0
        if is_behind:
            return
        if self._done > 0:
            self._done -= 1
        else:
            self._exchange.assign(array, values, steps)

    def _changed(self):
        """The new values, by tensor, of what differs from what was received."""
        exchange = self._exchange
        received = {}  # of what has changed, as the model had it
        for i, item in enumerate(exchange.tensors):
            before = exchange.received_value(i).to(item.value.dtype)
            if not same(item.value, before):
                received[i] = before
        changed = {i: _value_of(exchange.tensors[i]) for i in received}
        if not exchange.handle.parameters_are_exact or any(map(is_rounded, received.values())):
            # What was received is rounded. What the script has left as it was stays as the shards
            # have it.
            exact, _ = exchange.pull_state(0) if changed else ({}, [])
            for i, value in changed.items():
                changed[i] = torch.where(value.cpu() == received[i], exact[i], value.cpu())
        return changed


def _value_of(item: ModelTensor) -> torch.Tensor:
    value = item.value.detach()
    if not is_exact(value):
        raise errors.TensorError(
            f"{item.name}: has values now that float32 cannot hold; allowed: those that it can"
        )
    return value.to(torch.float32)
