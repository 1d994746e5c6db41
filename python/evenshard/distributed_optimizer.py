"""evenshard.DistributedOptimizer: the script's own optimizer, with all workers' mean gradient."""

from __future__ import annotations

import contextlib
import json
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from evenshard import _exit, _library, _topology, errors
from evenshard._handle import Handle
from evenshard._torch import first_mistakes as _first_mistakes
from evenshard._torch import grad_scaler as _grad_scaler
from evenshard._torch import stepped_by as _stepped_by
from evenshard._torch.gradient_exchange import GradientExchange
from evenshard._torch.gradient_hooks import on_gradient
from evenshard._torch.of_the_script import OfTheScript
from evenshard._torch.training import OfACopy
from evenshard._torch.worker_state import WorkerState

# By model, as long as its worker is open: the optimizers that share it, in their order.
_sharing: weakref.WeakKeyDictionary[torch.nn.Module, list] = weakref.WeakKeyDictionary()


class DistributedOptimizer(OfTheScript):
    """Steps an optimizer of the script by the mean of all workers' gradients, as one process does
    with all their batches at once.

        optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)
        optimizer = evenshard.DistributedOptimizer(optimizer, model)
        for batch, target in batches:
            optimizer.zero_grad()
            loss(model(batch), target).backward()
            optimizer.step()

    With shards, or in a ring of the workers, without any:

        optimizer = evenshard.DistributedOptimizer(optimizer, model, topology="ring")

    step() exchanges the gradients: afterwards each parameter's `grad` is the mean, and None if no
    worker had a gradient of it. Then the optimizer steps, in every worker alike: any optimizer of
    torch.optim or of one's own, whose step() needs no closure. The shards keep no parameters.

    synchronize() does the exchange alone. What lies between it and step() has the mean gradient:

        loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    GradScaler needs it too, before unscale_() and its step(). Infinities and NaN reach all workers,
    as in DistributedDataParallel.

    What of the model is exchanged, and when gradients travel, is as with evenshard.Optimizer, but
    for the schedule FULL, which is refused. At the start of a run parameters, frozen parameters and
    buffers are those of rank 0. After that the script may change parameters as it does in one
    process, the same way in all workers: they, and the options of the optimizers, are compared in
    the first 10 iterations, in every 32nd, and in each one in join(); learning rates, momentum or
    betas, weight decay and eps are in every one.

    Several optimizers share a run if each is given the same model, such as an nn.ModuleDict of a
    generator and a discriminator. Each step() exchanges the gradients of the parameters that its
    optimizer has, and all workers call them in the same order. Gradients then travel in step(),
    whatever the schedule.

    The options of the optimizers and their learning rates must be the same in all workers. Their
    state lives in the workers: one that was started again gets it, and the parameters, from another
    one, to the bit; what else the script needs to go on there is what register_state() is for.
    There are no checkpoints: if all workers are lost at once, the run ends. In a ring it ends with
    the loss of any worker.
    """

    _exchange: GradientExchange
    _optimizer: torch.optim.Optimizer = OfACopy(  # type: ignore[assignment]
        "DistributedOptimizer"
    )
    _clips_the_mean = "torch's own function after optimizer.synchronize()"

    @_first_mistakes.explained_distributed
    def __init__(  # pylint: disable=super-init-not-called
        self,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module,
        config: str | os.PathLike | None = None,
        *,
        rank: int | None = None,
        overrides: Iterable[str] | None = None,
        coordinator: str | None = None,
        topology: str | None = None,
    ):
        """Joins the run, and waits until its shards are up, in a ring the other workers. Then the
        model has rank 0's values. With a model that another DistributedOptimizer has: shares its
        worker.

        The other arguments are those of evenshard.Optimizer. The config has no `optimizer`.

        Errors: ConfigError, TensorError, DeadlineExceeded, FailedPrecondition, InvalidArgument.
        """
        _exit.prepare()
        self._given = None
        self._optimizer = optimizer
        self._parameters_at_start = [list(group["params"]) for group in optimizer.param_groups]
        place = self._set_model(
            model, rank, lambda: self._place_of(model, topology, config, rank, overrides)
        )
        _stepped_by.require_no_closure(optimizer)
        of_model = set(self._trained)
        self._trained = _stepped_by.parameters_of(optimizer, self._tensors)
        self._left_out = of_model.difference(self._trained)
        self._numbers = (_library.CHyperparameters * len(self._tensors))()
        for i in self._left_out:
            self._numbers[i] = _library.hyperparameters()
        self._is_synchronized = False
        self._exchanged: list[torch.Tensor | None] = []  # the gradients, since the exchange
        self._synchronizes = False  # the script has called synchronize()
        self._stepped_plainly = False  # abandon() has stepped without a function
        self._step_in_join: Callable[[], Any] | None = None
        self._sharing = _sharing.setdefault(model, [])
        if self._sharing:
            self._share(self._sharing[0])
        else:
            self._join(place, rank, coordinator)
        self._sharing.append(self)
        self._continue()
        for each in self._sharing:
            each._watch()
        self._step_given = optimizer.step
        self._take_over(optimizer, ["step"])
        _exit.watch(self)

    def _place_of(self, model, topology, *where):
        """That of the worker which the model has, if it has one: a ring is joined once."""
        sharing = _sharing.get(model)
        self._place = sharing[0]._place if sharing else _topology.find(topology, *where)
        return self._place

    def _join(self, place, rank, coordinator):
        rule = f"kind: MEAN stepped_by: {json.dumps(_stepped_by.text_of(self._optimizer))}"
        self._handle = Handle(
            self._declared(), config=place.config, rank=rank, optimizer=rule,
            overrides=place.overrides, coordinator=coordinator,
        )
        if self._handle.waits_in_forward:
            raise errors.ConfigError(
                "exchange.schedule: is FULL, by which gradients come back after step(), and"
                " DistributedOptimizer steps with them; allowed: BACKWARD, SEQUENTIAL"
            )
        self._exchange = GradientExchange(
            self._handle, self._tensors, lambda: self._worker_state.texts()
        )
        self._worker_state = WorkerState(self._handle, self._exchange, self._model)
        self._join_run(self._take_parameters)

    def _watch(self):
        """Anew whenever a further optimizer shares the worker."""
        self._remove_hooks()
        early = self._handle.pushes_early and len(self._sharing) == 1
        self._watch_gradients(early)
        if not early:
            for i in self._trained:
                self._hooks.append(on_gradient(self._tensors[i].tensor, self._has_new_gradient))

    def _has_new_gradient(self, *_):
        self._is_synchronized = False

    def _gradient_ready(self, i, *_):
        if self._is_accumulating:
            self._has_new_gradient()
        super()._gradient_ready(i)

    def _take_parameters(self):
        # Also in iteration 0: a shard may have its mean already, which is no parameters.
        if self._handle.joined_late:
            self._worker_state.take()

    def _continue(self):
        """With what the optimizer has in the other workers, in a run that is under way."""
        try:
            self._worker_state.add(self)
        except BaseException as error:
            self._sharing.clear()
            self._handle.close(_exit.text_of(error))
            self._exchange.release()
            raise

    def _share(self, first):
        """A further optimizer on the model of `first`."""
        for other in self._sharing:
            both = [self._tensors[i].name for i in self._trained if i in other._trained]
            if both:
                raise errors.InvalidArgument(
                    f"optimizer: has {', '.join(both)}, which another DistributedOptimizer of this"
                    " model has; allowed: each parameter in one"
                )
        first._exchange.require_between("DistributedOptimizer for a model that has one")
        self._handle, self._exchange = first._handle, first._exchange
        self._worker_state = first._worker_state
        self._uneven_ends = first._uneven_ends

    # The iteration.

    @torch.no_grad()
    def step(self, closure: Callable | None = None, **options) -> Any:
        """Exchanges the gradients, unless synchronize() has, and steps the optimizer. Returns what
        `closure`, which computes them, has returned. `options` are GradScaler's.

        Errors: those of the exchange; FailedPrecondition if GradScaler calls it without a
        synchronize() before.
        """
        _exit.goes_on()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scaled = None
        if "grad_scaler" in options or vars(self).get("found_inf") is not None:
            if not self._is_synchronized:
                raise errors.FailedPrecondition(
                    "GradScaler: looks for infinities in this worker's gradients only; allowed:"
                    " optimizer.synchronize() after backward(), before scaler.unscale_() and"
                    " scaler.step()"
                )
            scaled = _grad_scaler.state_of(self, options.get("grad_scaler"))
            # unscale_() may have looked before synchronize(), at this worker's gradients. The mean
            # is the same in all workers.
            if scaled is not None and scaled[1] is None:
                scaled = scaled[0] or not self._is_finite(), None
        if not self._is_synchronized:
            self._synchronize()
        self._step_scaled(*(scaled or (False, None)))
        self._is_synchronized = False
        self._exchanged.clear()
        self._exchange.registered.stepped()
        return loss

    def synchronize(self) -> None:
        """Exchanges the gradients: then each parameter's `grad` is the mean of all workers'. Does
        nothing if that has been done since the last backward() or step(). A gradient that was
        replaced since, and not changed in place, is exchanged in a further iteration."""
        if self._stepped_plainly or (self._uneven_ends.is_inside and self._step_in_join is None):
            raise errors.FailedPrecondition(
                "synchronize(): what lies between it and step() is left out where abandon() and"
                " join() step by the mean of the others; allowed: join(step=FUNCTION) and"
                " abandon(step=FUNCTION), with a function that does what the script does from"
                " synchronize() to step()"
            )
        self._synchronizes = True
        if not (self._is_synchronized and self._has_exchanged()):
            self._synchronize()

    def _is_finite(self):
        gradients = [self._tensors[i].tensor.grad for i in self._trained]
        return all(bool(torch.isfinite(g).all()) for g in gradients if g is not None)

    def _has_exchanged(self):
        return all(
            self._tensors[i].tensor.grad is gradient
            for i, gradient in zip(self._trained, self._exchanged)
        )

    def _synchronize(self):
        with self._exchange.threads.lock:
            self._uneven_ends.check_step(self._has_gradient())
            if self._own_changes is not None:
                self._own_changes.look()
            if self._exchange.is_begun:
                self._check_parameters()
            else:
                self._begin(True)
            self._exchange.finish(True, None)
            self._exchange.registered.exchanged()
            self._note_exchanged()

    def _note_exchanged(self):
        self._is_synchronized = True
        self._exchanged = [self._tensors[i].tensor.grad for i in self._trained]

    def zero_grad(self, *arguments, **options) -> None:
        self._is_synchronized = False
        self._exchanged.clear()
        super().zero_grad(*arguments, **options)

    def abandon(self, *, step: Callable[[], Any] | None = None) -> None:
        """In place of step(), for a batch that was given up, as after an exception in the forward
        or backward pass: takes part in the iteration without a gradient, and steps by the mean of
        the others. What backward() has pushed already, under BACKWARD, counts in it.

        step: as that of join(). Errors: FailedPrecondition without it, if the script has called
        synchronize(); with it too, if the gradients have been exchanged and not stepped by."""
        self._check_function(step)
        if self._is_synchronized and self._has_exchanged():
            raise errors.FailedPrecondition(
                "abandon(): the gradients of this iteration have been exchanged, and the others"
                " step by their mean; allowed: step(), or abandon() before synchronize() and step()"
            )
        if step is None and self._synchronizes:
            raise errors.FailedPrecondition(
                "abandon(): this script calls synchronize(), and what it does between that and"
                " step() belongs to this step too; allowed: abandon(step=FUNCTION), with a function"
                " that does what the script does from synchronize() to step()"
            )
        self._stepped_plainly |= step is None
        self.zero_grad()
        self._forget_pass()
        self._give_up()
        self._step_for_others(step)

    @contextlib.contextmanager
    def join(self, *, step: Callable[[], Any] | None = None) -> Iterator[None]:
        """As Optimizer.join(): a worker whose data has ended steps by the mean of the others. In
        the context parameters, and the options of the optimizer, are compared in each iteration.

        step: what the script does from synchronize() to step(), a scheduler after it included. A
        worker whose data has ended calls it in each iteration of the others, in place of the
        optimizer's step(), also in one in which nobody has a gradient. With GradScaler it scales
        something in each worker before. Without it a synchronize() in the context raises.

            def update():
                optimizer.synchronize()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()

            with optimizer.join(step=update):
                for batch, target in batches:
                    ...
                    update()
        """
        self._check_function(step)
        if len(self._sharing) > 1:
            raise errors.FailedPrecondition(
                "join(): several DistributedOptimizers share this run, and nobody knows which of"
                " them the others step; allowed: the same number of steps in all workers"
            )
        outer, self._step_in_join = self._step_in_join, step
        self._exchange.compares_each += 1
        try:
            with super().join():
                yield
        finally:
            self._exchange.compares_each -= 1
            self._step_in_join = outer

    def _check_function(self, step):
        if step is not None and not callable(step):
            raise errors.InvalidArgument(
                f"step: is a {type(step).__name__}, allowed: a function without arguments"
            )

    def _take_part(self):
        is_over = super()._take_part()
        if not is_over:
            self._step_for_others(self._step_in_join)
        return is_over

    def _step_for_others(self, step):
        if step is not None:
            self._note_exchanged()
            step()
        elif self._has_gradient():
            self._note_step()
            self._step_given()
        self.zero_grad()

    def _begin(self, contributes):
        self._check_parameters()
        self._worker_state.begin()
        self._is_synchronized = False
        for group in self._optimizer.param_groups:
            numbers = _library.hyperparameters(*_stepped_by.numbers_of(group))
            for parameter in group["params"]:
                if (i := self._exchange.number_of(parameter)) is not None:
                    self._numbers[i] = numbers
        self._exchange.left_out = self._left_out
        self._exchange.begin(contributes, self._numbers)

    def _groups(self):
        return self._worker_state.groups()

    # The end.

    def close(self, error: str | None = None) -> None:
        """As Optimizer.close(). A worker that several optimizers share leaves with the last one, or
        at once with an error."""
        if self in self._sharing and len(self._sharing) > 1 and error is None:
            self._sharing.remove(self)
            _exit.forget(self)
            self._give_back()
            return
        super().close(error)

    def _let_go(self):
        super()._let_go()
        for other in self._sharing:
            _exit.forget(other)
            other._give_back()
        self._sharing.clear()
