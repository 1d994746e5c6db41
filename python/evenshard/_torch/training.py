"""What evenshard.Optimizer and evenshard.DistributedOptimizer have in common: the place in a run,
and what a training loop does beside step()."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch

from evenshard import _environment, _exit, errors
from evenshard._handle import Declared, Handle, Statistics
from evenshard._torch import grad_scaler as _grad_scaler
from evenshard._torch import model as _model
from evenshard._torch import replaced_attributes as _replaced
from evenshard._torch import torch_optim as _torch_optim
from evenshard._torch.gradient_hooks import on_gradient, renew, require_gradient
from evenshard._torch.kept_parameters import KeptParameters
from evenshard._torch.model_exchange import ModelExchange
from evenshard._torch.own_changes import OwnChanges
from evenshard._torch.parameter_reads import Hook
from evenshard._torch.registered_states import GroupState
from evenshard._torch.uneven_ends import UnevenEnds


class OfACopy:
    """What a deepcopy, or an unpickled one, has in place of what trains."""

    def __init__(self, kind: str):
        self._kind = kind

    def __getattr__(self, name):
        if name.startswith("__"):  # as help() asks every object
            raise AttributeError(name)
        raise errors.FailedPrecondition(
            f"this is a copy of an evenshard.{self._kind}, and does not train; allowed: the"
            f" {self._kind} itself, and state_dict() to keep what it has"
        )


class Training:
    """One model's place in a run. Whoever derives from it has `_begin(contributes)`, which begins
    an iteration, and calls `_set_model`, `_join_run` and `_watch_gradients`."""

    _handle: Handle
    _exchange: ModelExchange
    param_groups: list[dict]
    _clips_the_mean: str  # what does, for a script whose own clipping does not

    def _set_model(self, model, rank, find):
        """Returns the place that `find()` says, once the model is known to be one to exchange."""
        self._model = model
        self._tensors = _model.tensors_of(model, _environment.worker(rank))
        place = find()
        if place.is_ring:
            # There tensors of different roles do not travel together.
            self._tensors.sort(key=lambda tensor: tensor.role)
        # The parameters that this optimizer trains, by their numbers.
        self._trained = [i for i, item in enumerate(self._tensors) if item.is_parameter]
        self._kinds = {i: _kind_of(self._tensors[i].tensor) for i in self._trained}
        self._kept = KeptParameters(model, self._tensors)
        self._frozen = [(n, p) for n, p in model.named_parameters() if not p.requires_grad]
        self._is_accumulating = False
        self._uneven_ends = UnevenEnds()
        self._own_changes: OwnChanges | None = None
        self._hooks = []
        self._given: torch.optim.Optimizer | None = None
        return place

    def _declared(self):
        return [
            Declared(t.name, tuple(t.tensor.shape), t.role, t.layer, t.type) for t in self._tensors
        ]

    def _join_run(self, then):
        """Joins, and calls `then`. If one of them fails, the others are told why."""
        try:
            self._exchange.join()
            then()
        except BaseException as error:
            self._handle.close(_exit.text_of(error) or "the program ended while it joined")
            self._exchange.release()
            raise

    def _watch_gradients(self, early):
        """Has gradients pushed early, or changes of them noticed."""
        if early:
            for i in self._trained:
                ready = functools.partial(self._gradient_ready, i)
                self._hooks.append(on_gradient(self._tensors[i].tensor, ready))
        if self._handle.waits_for_workers and self._handle.workers > 1:
            self._own_changes = OwnChanges(
                {i: self._tensors[i] for i in self._trained}, not early, self._clips_the_mean
            )
            self._hooks += self._own_changes.hooks

    def _renew_hooks(self):
        """Where the gradients are forgotten, so that the next ones are seen."""
        renew(self._hooks)

    def _watch_loads(self, check):
        """Has `check(replaces)` called before load_state_dict() of the model, or of a part of it:
        whether it replaces parameters (assign=True)."""
        for module in self._model.modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue  # has no such hooks; what it has loaded is seen later
            hook = Hook(_before_load, check)
            self._hooks.append(module._register_load_state_dict_pre_hook(hook))

    def _take_over(self, optimizer, refused, **replaced):
        """From now on this object does for the optimizer that was given what is `refused` of it,
        and it has attributes that are `replaced`."""
        self._given = optimizer
        taker = f"evenshard.{type(self).__name__}"
        for name in refused:
            replaced[name] = _replaced.refusal(
                optimizer,
                f"{name}(): this optimizer was handed over to {taker}, which trains in its place;"
                f" allowed: {taker}'s {name}()",
            )
        self._kept_of_given = _replaced.replace(optimizer, replaced)

    def _note_step(self):
        """Shows schedulers, those of the given optimizer too, that it has stepped."""
        for optimizer in (self, self._given):
            if optimizer is not None:
                count = getattr(optimizer, "_step_count", 0) + 1
                vars(optimizer).update(_step_count=count, _opt_called=True)

    def _begin(self, contributes):
        raise NotImplementedError

    def _gradient_ready(self, i, *_):
        """Called in the backward pass, when a parameter has its gradient."""
        exchange = self._exchange
        require_gradient(self._tensors[i])
        exchange.threads.require_free()
        with exchange.threads.lock:
            exchange.require_read(i)
            if self._own_changes is not None:
                self._own_changes.note(i, stays=self._is_accumulating)
            if not self._is_accumulating:
                if not exchange.is_begun:
                    self._begin(True)
                exchange.gradient_is_there(i)

    # The iteration.

    @property
    def iteration(self) -> int:
        """How many steps lie behind this worker. Above 0 at the start if it, or the run, was
        started again."""
        return self._exchange.iteration

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this context backward() pushes nothing, and gradients add up in the parameters'
        `grad`. The next backward() outside pushes the sums. With SEQUENTIAL it is not needed."""
        before, self._is_accumulating = self._is_accumulating, True
        try:
            yield
        finally:
            self._is_accumulating = before

    def _give_up(self):
        """Takes part in the iteration without a gradient."""
        _exit.goes_on()
        with self._exchange.threads.lock:
            if not self._exchange.is_begun:
                self._begin(False)
            self._exchange.abandon()
        self._note_step()
        self._exchange.registered.stepped()

    def _forget_pass(self):
        """What a forward and backward pass have left, which count for nothing."""
        for i in self._trained:
            self._tensors[i].tensor.grad = None
        _grad_scaler.forget(self)

    @contextlib.contextmanager
    def join(self) -> Iterator[None]:
        """A context for workers whose numbers of steps differ, as DistributedDataParallel's join():

            with optimizer.join():
                for batch, target in batches:
                    ...
                    optimizer.step()

        Under SYNC a worker that leaves it takes part in the others' iterations until all have left
        it. Its gradients count as zeros, so that the mean is still over all workers. At the end all
        workers have the same parameters, and one iteration more, which has changed nothing. In the
        context each step() needs a gradient; abandon() is for a batch without one.
        """
        if self._exchange.registered:
            raise errors.FailedPrecondition(
                "join(): states are registered, and a worker without data does not advance its own"
                " as the others do; allowed: the same number of steps in all workers, or nothing"
                " registered"
            )
        with self._uneven_ends.join(self._take_part):
            yield

    def _take_part(self):
        """An iteration without data. Returns whether no worker had any."""
        if not self._handle.waits_for_workers or self._handle.workers == 1:
            return True
        with self._exchange.threads.lock:
            if self._exchange.is_begun:
                raise errors.FailedPrecondition(
                    "join() ends between backward() and step(), allowed: a step() or abandon()"
                    " after each backward()"
                )
            self._begin(True)
            is_over = self._exchange.take_part()
        self._exchange.registered.stepped()
        return is_over

    def _has_gradient(self):
        return self._exchange.has_pushed or any(
            self._tensors[i].tensor.grad is not None for i in self._trained
        )

    # Beside the training.

    def register_state(self, name: str, state: Any, *, as_of: str = "backward") -> None:
        """Has a state restored wherever this worker goes on in place of another: after it was
        started again; with evenshard.Optimizer also after WentBack and resume(), and from a
        checkpoint:

            optimizer.register_state("scheduler", scheduler)

        `state` has state_dict() and load_state_dict(): a scheduler, a sampler. All workers register
        the same names, after this object is made and before their first iteration, and have the
        same in each iteration, since any of them may be where another goes on from. The options of
        the parameter groups, such as the rates, are registered with the first one. If the run has
        iterations behind it, the state is restored at once.

        as_of: which moment counts for an iteration. "backward": the first backward() after the last
        step(), which is right for what the script advances after step(). "step": the end of the
        last step(), for what advances when the next batch is drawn, such as a loader.

        What a state_dict() has are numbers, texts, bytes, tensors and arrays, and lists, tuples,
        sets and dicts of these, at most 256 KiB as text in all; functions in it stay each worker's
        own. Every worker sends it to slot 0 before each iteration.

        Errors: InvalidArgument for a state that has something else or is too large;
        FailedPrecondition if it is not the same in all workers, or does not load, under ASYNC and
        in join().
        """
        with self._exchange.threads.lock:
            self._exchange.require_between("register_state()")
            self._uneven_ends.require_outside("register_state()")
            self._exchange.registered.add(name, state, as_of, GroupState(self._groups))

    def _groups(self):
        """The groups whose options belong to what is registered."""
        return self.param_groups

    def mean(self, value: float | torch.Tensor) -> float | torch.Tensor:
        """Returns the mean of a number, or of each element of a small tensor, over the workers:

            accuracy = optimizer.mean(correct / seen)

        All workers call it between the same two iterations, in the same order and at the same line
        of the script; what is added is in double, in the order of ranks, so that all get the same.
        Waits for the others, without a limit as long as the run goes on. A tensor of integers gives
        one of floats. At most 4096 elements; in join() it is refused, and under ASYNC.

        Errors: FailedPrecondition if another worker calls it at another line, or has finished.
        """
        if isinstance(value, torch.Tensor) and not value.is_complex():
            flat = value.detach().to("cpu", torch.float64).reshape(-1)
            mean = torch.tensor(self._mean(flat.tolist()), dtype=torch.float64, device="cpu")
            dtype = value.dtype if value.is_floating_point() else torch.get_default_dtype()
            return mean.reshape(value.shape).to(value.device, dtype)
        if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
            raise errors.InvalidArgument(
                f"mean(): is a {type(value).__name__}, allowed: a number or a tensor of numbers"
            )
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise errors.InvalidArgument(
                f"mean(): is a {type(value).__name__} that is no single number ({error}), allowed:"
                " a number or a tensor of numbers"
            ) from None
        return self._mean([number])[0]

    def barrier(self) -> None:
        """Waits until all workers are here, without a limit as long as the run goes on: rank 0 may
        evaluate for hours meanwhile. Otherwise as mean()."""
        self._mean([])

    def _mean(self, values):
        with self._exchange.threads.lock:
            self._uneven_ends.require_outside("mean() and barrier()")
            self._exchange.wait_for_all()
            return self._handle.mean(values)

    def statistics(self) -> Statistics:
        """Counters of the exchange since the start."""
        return self._handle.statistics()

    def interrupt(self) -> None:
        """Makes the wait in progress, and all later calls but close(), raise Interrupted soon. May
        be called from any thread."""
        self._handle.interrupt()

    def _check_parameters(self):
        """Errors: FailedPrecondition if the run has not agreed on what is trained now, or the model
        was moved."""
        self._kept.require(type(self).__name__)
        for i in self._trained:
            item = self._tensors[i]
            if _kind_of(item.tensor) != self._kinds[i]:
                (now, place), (before, where) = _kind_of(item.tensor), self._kinds[i]
                raise errors.FailedPrecondition(
                    f"{item.name}: is {now} on {place} now, and was {before} on {where} when"
                    f" evenshard.{type(self).__name__} was made; allowed: model.to(...) before that"
                )
        for parameter in renew(self._hooks):
            if parameter.grad is None:
                continue
            item = next(item for item in self._tensors if item.tensor is parameter)
            raise errors.FailedPrecondition(
                f"{item.name}: has had another type or was on another device for a while, for which"
                " this PyTorch, before 2.1, has dropped the hook by which its gradient is seen;"
                " allowed: that before the optimizer's zero_grad(), or with a copy.deepcopy() of"
                " the model"
            )
        for stranger in _torch_optim.strangers(self, self._tensors):
            raise errors.FailedPrecondition(
                f"{stranger}, and requires a gradient now; allowed: a model that has it, such as an"
                " nn.ModuleDict of several"
            )
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise errors.FailedPrecondition(
                    f"{name}: requires a gradient now, and did not when the run agreed on its"
                    " parameters; allowed: the same ones as at the start. Let it require a gradient"
                    " from the start, and give it a learning rate of 0"
                )

    # The end.

    def close(self, error: str | None = None) -> None:
        """Leaves the run: this worker has finished, or failed for the reason that is given. It has
        failed too if its exchange has, or between backward() and step(). Waits for the parameters,
        which the model then has. Does nothing when called again.

        With an error, a call that goes on in another thread raises Interrupted. In a signal handler
        in the middle of a call the worker leaves once that has ended, which raises Interrupted
        too."""
        _exit.forget(self)
        if not self._handle.is_open:
            return
        try:
            if error is None and self._handle.failure is None and self._handle.is_own:
                error = self._unfinished("the worker was closed")
                if error is None:
                    self._exchange.wait_for_all()
                    self._exchange.registered.finish()
        except BaseException as failure:
            error = _exit.text_of(failure)
            raise
        finally:
            try:
                self._handle.close(error)
            finally:
                self._let_go()

    def _let_go(self):
        self._give_back()
        self._exchange.release()

    def _give_back(self):
        """Leaves the script's objects as they were."""
        if self._given is not None:
            _replaced.give_back(self._given, self._kept_of_given)
            self._given = None
        self._remove_hooks()

    def _remove_hooks(self):
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._own_changes = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace) -> None:
        if not _exit.stays(error):
            self.close(_exit.text_of(error))

    def _is_trained_by(self, thread: threading.Thread | None) -> bool:
        """For _exit.py."""
        return self._exchange.threads.is_owner(thread)

    def _end_of_program(self, reason: str | None) -> str | None:
        """For _exit.py."""
        if self._handle.is_own:
            reason = reason or self._unfinished("the program ended")
            self.close(reason)
        return reason

    def _unfinished(self, what):
        """Why this worker has not finished although nothing has failed, or None."""
        if self._handle.is_in_call:
            return f"{what} in the middle of a call, by a signal handler"
        if self._exchange.is_begun:
            return f"{what} between backward() and step()"
        return f"{what} without a step()" if self.iteration == 0 else None


def _before_load(check, _, __, metadata, *___):
    """A hook of load_state_dict(), which says in `metadata` whether it replaces parameters."""
    check(metadata.get("assign_to_params_buffers", False))


def _kind_of(tensor):
    return tensor.dtype, tensor.device
