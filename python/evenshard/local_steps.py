"""evenshard.LocalSteps: the script's own optimizer, and an exchange after several of its steps."""

from __future__ import annotations

import json
import operator
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from evenshard import _exit, _topology, errors
from evenshard._handle import Handle
from evenshard._torch import first_mistakes as _first_mistakes
from evenshard._torch import grad_scaler as _grad_scaler
from evenshard._torch import stepped_by as _stepped_by
from evenshard._torch.inner_state import InnerState
from evenshard._torch.of_the_script import OfTheScript
from evenshard._torch.round_exchange import RoundExchange
from evenshard._torch.training import OfACopy


class LocalSteps(OfTheScript):
    """Trains for several steps by itself with an optimizer of the script, and then exchanges: local
    SGD, and with the momentum of the shards DiLoCo (Douillard et al. 2023).

        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        optimizer = evenshard.LocalSteps(model, optimizer, steps=100)
        for batch, target in batches:
            optimizer.zero_grad()
            loss(model(batch), target).backward()
            optimizer.step()

    Each step() steps the optimizer, by this worker's gradients. Every `steps` of them end a round:
    step() then pushes the parameters that the model had at the beginning of the round minus those
    that it has now. The shards take the mean of that over the workers as the gradient of an
    optimizer of their own, the outer one, and the model goes on with their parameters. Running
    statistics become the mean of the workers', and rank 0's buffers those of all.

    The last round may be shorter: close() and the end of the program exchange it. All workers take
    the same number of steps.

    With `seconds` a round ends after so long even if it has not had all steps, so that workers of
    different speeds come back together; each then counts by its steps.

    Between two exchanges the models differ: evaluate after synchronize(), which ends the round, in
    all workers at the same step. The optimizer's state is each worker's own, and in no checkpoint;
    the outer optimizer's is at the shards, in their checkpoints and replicas.

    A worker that joins a run under way contributes nothing to its first round. Under SYNC its
    optimizer has the state of another worker's after that round; under ASYNC and SSP, and if all
    workers were started again, it begins anew. What else the script needs to go on there, such as a
    scheduler, is what register_state() is for; it has what counted at the beginning of the round.
    """

    _exchange: RoundExchange
    _optimizer: torch.optim.Optimizer = OfACopy("LocalSteps")  # type: ignore[assignment]

    @_first_mistakes.explained_local
    def __init__(  # pylint: disable=super-init-not-called
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        config: str | os.PathLike | None = None,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        outer_learning_rate: float | None = None,
        outer_momentum: float | None = None,
        rank: int | None = None,
        overrides: Iterable[str] | None = None,
        coordinator: str | None = None,
        topology: str | None = None,
    ):
        """Joins the run, and waits until its shards are up, in a ring the other workers. Then the
        model has rank 0's values, or those of the run.

        steps, seconds: of a round, if the config has no `local`. outer_learning_rate,
        outer_momentum: of the shards' optimizer, NESTEROV, if the config has no `optimizer`; by
        default 0.4, 0.6 or 0.8 for one, up to 7, and more workers, and 0.9; under ASYNC and SSP it
        is DELAYED_NESTEROV. A momentum of 0 is SGD. The other arguments are those of
        evenshard.Optimizer.

        Errors: ConfigError, TensorError, DeadlineExceeded, FailedPrecondition, InvalidArgument.
        """
        _exit.prepare()
        self._given = None
        self._optimizer = optimizer
        self._parameters_at_start = [list(group["params"]) for group in optimizer.param_groups]
        place = self._set_model(
            model, rank, lambda: _topology.find(topology, config, rank, overrides)
        )
        self._trained = _stepped_by.parameters_of(optimizer, self._tensors)
        self._handle = Handle(
            self._declared(), config=place.config, rank=rank,
            optimizer=_outer(outer_learning_rate, outer_momentum),
            local=_local(steps, seconds, optimizer), overrides=place.overrides,
            coordinator=coordinator,
        )
        if self._handle.local_steps == 0:
            raise errors.ConfigError(
                "steps: is not given, nor does the config have local { steps }; allowed: how many"
                " steps there are between two exchanges, as in evenshard.LocalSteps(model,"
                " optimizer, steps=100)"
            )
        if self._handle.skips_non_finite:
            raise errors.ConfigError(
                "update.non_finite: is SKIP, and LocalSteps leaves no step out by itself; allowed:"
                " REJECT, and abandon() for a batch whose gradient is not finite"
            )
        if self._handle.waits_in_forward:
            raise errors.ConfigError(
                "exchange.schedule: is FULL, by which parameters come back after step(), where"
                " LocalSteps goes on with them; allowed: BACKWARD, SEQUENTIAL"
            )
        self._steps, self._seconds = self._handle.local_steps, self._handle.local_seconds
        self._exchange = RoundExchange(self._handle, self._tensors)
        self._join_run(lambda: None)
        self._inner_state = InnerState(self._handle, optimizer)
        self._watch_loads(self._refuse_load)
        self._has_begun = False
        self._is_joining = self._handle.joined_late
        if not self._is_joining:
            self._inner_state.give()
        self._begin_round()
        self._step_given = optimizer.step
        self._take_over(optimizer, ["step"])
        _exit.watch(self)

    def _begin_round(self):
        self._done = 0  # steps of the round, also those that were left out
        self._taken = 0
        self._began: float | None = None  # with the first step

    @property
    def iteration(self) -> int:
        """How many steps lie behind this worker: `steps` for each round, and those since. Above 0
        at the start if it, or the run, was started again."""
        return self._exchange.iteration * self._steps + self._done

    def step(self, closure: Callable | None = None, **options) -> Any:
        """Steps the optimizer, with `closure` if it is given, and returns what that returns. Ends
        the round if it has had all its steps. `options` are GradScaler's; a step that it leaves out
        because of an infinity counts as one, and for nothing in the mean.

        Errors: those of the exchange; WentBack, after which resume() goes on.
        """
        self._begin_step()
        self._check_parameters()
        scaled = _grad_scaler.state_of(self, options.get("grad_scaler"))
        is_infinite, scale = scaled or (False, None)
        result = self._step_scaled(is_infinite, scale, *([] if closure is None else [closure]))
        self._count(0 if is_infinite else 1)
        return result

    def abandon(self) -> None:
        """In place of step(), for a batch that was given up, as after an exception in the forward
        or backward pass: counts as a step, and for nothing in the mean."""
        self._begin_step()
        self._forget_pass()
        self._note_step()
        self._count(0)

    def _refuse_load(self, _):
        raise errors.FailedPrecondition(
            "load_state_dict: the shards would take what is loaded for something that was trained;"
            " allowed: before evenshard.LocalSteps is made, and after close()"
        )

    def _check_parameters(self):
        super()._check_parameters()
        if not self._has_begun:
            self._exchange.require_received()
            self._has_begun = True

    def _begin_step(self):
        _exit.goes_on()
        self._handle.require_working()
        self._exchange.registered.begun()
        self._exchange.threads.begin()
        self._began = time.monotonic() if self._began is None else self._began

    def _count(self, taken):
        self._done += 1
        self._taken += taken
        assert self._began is not None
        if self._done == self._steps or (
            self._seconds > 0 and time.monotonic() - self._began >= self._seconds
        ):
            self.synchronize()

    def synchronize(self) -> None:
        """Ends the round now, if it has had a step: exchanges the model, which then has the shards'
        parameters. All workers call it at the same step."""
        if self._done == 0:
            return
        with self._exchange.threads.lock:
            weight = self._taken / self._steps
            if self._is_joining:
                weight = 0
                self._is_joining = not self._inner_state.take()
                if not self._is_joining:
                    self._inner_state.give()
            self._exchange.exchange(weight)
            self._begin_round()
        self._exchange.registered.stepped()

    def resume(self) -> None:
        """After WentBack: joins again where the run goes on. The model then has the parameters of
        its checkpoint and no gradients, the optimizer has the state that it has, and `iteration` is
        the checkpoint's."""
        self._exchange.resume()
        self._forget_pass()
        self._begin_round()
        self._exchange.registered.restore()

    def join(self) -> Iterator[None]:  # type: ignore[override]
        raise errors.FailedPrecondition(
            "join(): with local steps all workers take the same number of steps; allowed: that, or"
            " evenshard.DistributedOptimizer"
        )

    def _begin(self, contributes):
        raise AssertionError("rounds begin their exchange by themselves")

    def close(self, error: str | None = None) -> None:
        """As Optimizer.close(). Without an error it exchanges what there is of a round."""
        goes_on = self._handle.is_own and self._handle.failure is None
        if error is None and goes_on and not self._handle.is_in_call:
            try:
                self.synchronize()
            except BaseException as failure:
                super().close(_exit.text_of(failure))
                raise
        super().close(error)


def _local(steps, seconds, optimizer):
    """LocalSteps in text format, or None for the config's."""
    if steps is None and seconds is None:
        return None
    if steps is None:
        raise errors.InvalidArgument(
            "seconds: is given without steps, allowed: with steps, the most that a round has"
        )
    try:
        count = operator.index(steps)
    except TypeError:
        count = None
    if count is None or isinstance(steps, bool):
        raise errors.InvalidArgument(
            f"steps: is {steps!r}, allowed: a whole number of at least 1"
        )
    text = f"steps: {count} stepped_by: {json.dumps(_stepped_by.text_of(optimizer))}"
    return text if seconds is None else f"{text} seconds: {_number('seconds', seconds)!r}"


def _outer(rate, momentum):
    """An OptimizerConfig in text format, or None for the config's."""
    if rate is None and momentum is None:
        return None
    if momentum == 0:
        text = "kind: SGD"
    else:
        number = None if momentum is None else _number("outer_momentum", momentum)
        text = "" if number is None else f"momentum: {number!r}"
    if rate is None:
        return text
    return f"{text} learning_rate: {_number('outer_learning_rate', rate)!r}"


def _number(name, value):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise errors.InvalidArgument(f"{name}: is {value!r}, allowed: a number") from None
