"""evenshard.Optimizer: in the place of an optimizer of torch.optim."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from evenshard import _exit, _library, _topology, errors
from evenshard._handle import Handle
from evenshard._torch import first_mistakes as _first_mistakes
from evenshard._torch import grad_scaler as _grad_scaler
from evenshard._torch import parameter_reads as _parameter_reads
from evenshard._torch import state_dict as _state_dict
from evenshard._torch import torch_optim as _torch_optim
from evenshard._torch.assignment import Assignments
from evenshard._torch.group_options import GroupOptions
from evenshard._torch.model_exchange import ModelExchange
from evenshard._torch.parameter_reads import ParameterReads
from evenshard._torch.training import OfACopy, Training
from evenshard._torch.unchanged import SEQUENTIAL_HINT

_log = logging.getLogger("evenshard")


class Optimizer(Training, torch.optim.Optimizer):
    """Trains a model with the shards of a run: step() pushes the gradients and receives parameters.

        optimizer = evenshard.Optimizer(model, "cluster.textproto")
        for batch, target in batches:
            optimizer.zero_grad()
            loss(model(batch), target).backward()
            optimizer.step()

    The rule comes from the config, or from an optimizer of torch.optim (SGD, Adam, AdamW, Adagrad,
    RMSprop, with parameter groups):

        optimizer = evenshard.Optimizer(
            model, "cluster.textproto", optimizer=torch.optim.AdamW(model.parameters(), lr=3e-4))

    The config has `model { from_workers {} }`. Each worker of the run does the same, on its share
    of the data. Under SYNC a step uses the mean of all workers' gradients, as one process does with
    all their batches at once.

    What is exchanged: parameters that require a gradient; of batch normalisations the running mean
    and variance, of which each iteration takes the mean over the workers; of frozen parameters and
    other persistent buffers rank 0's values. What is trained is float32, bfloat16 or float16,
    contiguous, and all on the CPU or on one CUDA device. A tensor that two modules share is
    exchanged once.

    At the start of a run its parameters are those of rank 0. Load a checkpoint into the model
    before you make the optimizer.

    Learning rates: schedulers of torch.optim.lr_scheduler work as ever, those that change momentum
    or betas too: `lr`, `momentum`, `betas`, `alpha`, `weight_decay` and `eps` of a group count in
    the next step. As long as nobody changes the rates of an optimizer that comes from the config,
    the config's schedule counts. Under SYNC all workers must have the same numbers.

    When gradients travel is up to exchange.schedule in the config:

    - BACKWARD (default): each as soon as backward() has computed it; small ones gather until they
      are an eighth of the model, from 64 KiB to 1 MiB, or until step(). step() waits for the
      parameters.
    - FULL: step() does not wait. Whoever reads a parameter of the model through one of its modules
      waits for it: a forward pass, model.parameters(), state_dict(), a copy. A reference that the
      script keeps is not seen: call synchronize() before it is used. Models that torch.compile or
      TorchScript have compiled are refused.
    - SEQUENTIAL: in step(). Gradients may be changed between backward() and step(), as by
      GradScaler.

    With BACKWARD and FULL, call backward() once for each step(), and accumulate gradients in
    no_sync(). The model keeps its parameters until step(). What a script changes behind the
    exchange raises: gradients after backward(), parameters outside assign(), a rate between
    backward() and step(). Contents, which show what no version counter does, are compared in the
    first 10 iterations and in every 32nd.

    State such as momentum lives at the shards, and in their checkpoints. state_dict() fetches it,
    in the layout of torch.optim, and load_state_dict() brings it there.

    A script needs no close(). When the program ends after a complete step, the worker has finished;
    after an exception that nobody caught, by exit() with a code, between backward() and step(), and
    without any step it has failed, and the others are told why. close() does it at once.
    """

    # GradScaler leaves it to step() to divide by the scale and to skip.
    _step_supports_amp_scaling = True

    _clips_the_mean = "evenshard.Optimizer(..., clip_grad_norm=) or clip_grad_value="

    state: Any
    _exchange: ModelExchange = OfACopy("Optimizer")  # type: ignore[assignment]
    _handle: Handle = OfACopy("Optimizer")  # type: ignore[assignment]

    @_first_mistakes.explained
    def __init__(
        self,
        model: torch.nn.Module,
        config: str | os.PathLike | None = None,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        clip_grad_norm: float | None = None,
        clip_grad_value: float | None = None,
        rank: int | None = None,
        overrides: Iterable[str] | None = None,
        coordinator: str | None = None,
        continues: bool | None = None,
        topology: str | None = None,
    ):
        """Joins the run, and waits until its shards are up, in a ring the other workers. Then the
        model has its parameters.

        config: the path of a ClusterConfig in text format, or its text. None: EVENSHARD_CONFIG.
        optimizer: the rule, if the config has no `optimizer`. Its groups become this one's.
        clip_grad_norm: under SYNC, scales the mean gradient of all workers to at most this L2 norm
            over all parameters, as torch.nn.utils.clip_grad_norm_ does in one process; if the
            config has no `update.clip_global_norm`.
        clip_grad_value: clips each element of the gradient to [-value, value], after
            clip_grad_norm; if the config has no `update.clip_value`.
        rank: from 0. None: RANK, as torchrun sets it. WORLD_SIZE, if it is set, must then be the
            config's `workers`.
        overrides: "FIELD=VALUE" each, as the programs' --set. None: EVENSHARD_OVERRIDES, one each
            line. Without `config` they come after those, which belong to the environment's config.
        coordinator: the address of the run's coordinator. None: EVENSHARD_COORDINATOR, from launch.
        continues: whether to go on where shards are that have iterations behind them. None:
            EVENSHARD_CONTINUE is 1. In a run with a coordinator that is always so.
        topology: "ring": the workers exchange among themselves, without shards, and each applies
            the rule to its part of the model. That of the config must be the same; without a config
            the workers that torchrun has started find each other. "parameter_server": with shards.
            None: that of the config.

        Errors: ConfigError, TensorError, DeadlineExceeded, FailedPrecondition.
        """
        _exit.prepare()
        self._is_ready = False  # to have no more groups added
        place = self._set_model(
            model, rank, lambda: _topology.find(topology, config, rank, overrides)
        )
        self._clip_grad_norm, self._clip_grad_value = clip_grad_norm, clip_grad_value
        rule = None if optimizer is None else _torch_optim.to_config(optimizer, self._tensors)
        self._handle = Handle(
            self._declared(), config=place.config, rank=rank, optimizer=rule,
            clip_grad_norm=clip_grad_norm, clip_grad_value=clip_grad_value,
            overrides=place.overrides, coordinator=coordinator, continues=continues,
        )
        if self._handle.local_steps > 0:
            raise errors.ConfigError(
                "local: is given, and evenshard.Optimizer exchanges in each step; allowed:"
                " evenshard.LocalSteps, or a config without `local`"
            )
        self._of_float16 = next(
            (t.name for t in self._tensors if t.type == _library.FLOAT16), None
        )
        if self._handle.pushes_early:
            self._require_scaler("and this schedule pushes them before step() could divide by it")
        if self._handle.waits_in_forward:
            _parameter_reads.check(model)
        if optimizer is None:
            groups = self._config_groups()
            super().__init__(groups, {"lr": groups[0]["lr"]})
        else:
            super().__init__(optimizer.param_groups, dict(optimizer.defaults))
        self.state = _state_dict.ShardState()
        self._is_ready = True
        self._options = GroupOptions(
            self.param_groups, self._tensors,
            (lambda: self._handle.optimizer) if optimizer is None else None,
        )
        self._skips_non_finite = self._handle.skips_non_finite
        self._skipped = 0
        self._reads: ParameterReads | None = None
        self._exchange = ModelExchange(self._handle, self._tensors)

        def assign_given_state():
            self._assignments = Assignments(self._exchange, self._check_parameters)
            if optimizer is not None and not _state_dict.is_trivial(optimizer):
                self._require_state("optimizer, which has stepped before")
                self._assign_state(optimizer.state_dict())

        self._join_run(assign_given_state)
        self._kind = self._handle.optimizer
        self._has_trained = self.iteration > 0  # or the run has
        if self._handle.waits_in_forward:
            self._reads = ParameterReads(self._model, self._tensors, self._exchange.wait_for)
        self._watch_gradients(self._handle.pushes_early)
        self._watch_loads(self._assignments.check_load)
        if optimizer is not None:
            self._take_over(optimizer, _REFUSED_OF_GIVEN, state=_state_dict.ShardState())
        _exit.watch(self)

    def _config_groups(self):
        """A group for each learning rate that the config gives."""
        groups = {}
        for i, item in enumerate(self._tensors):
            if item.is_parameter:
                rate = float(f"{self._handle.learning_rate(i):.7g}")  # of a float32
                groups.setdefault(rate, []).append(item.tensor)
        return [{"params": parameters, "lr": rate} for rate, parameters in groups.items()]

    # The iteration.

    @property
    def skipped(self) -> int:
        """In how many steps this worker left out a gradient that was not finite
        (update.non_finite: SKIP)."""
        return self._skipped

    @property
    def clip_grad_norm(self) -> float | None:
        """As it was given. The run has agreed on it, so that it cannot be set."""
        return self._clip_grad_norm

    @property
    def clip_grad_value(self) -> float | None:
        """As it was given. The run has agreed on it, so that it cannot be set."""
        return self._clip_grad_value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients. They become None by default, as from PyTorch 2.0 on, so that the
        next backward() need not clear and add them."""
        self._renew_hooks()
        super().zero_grad(set_to_none=set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable | None = None, **options):
        """Pushes what has not been pushed. Under FULL it returns at once, otherwise when the
        parameters are there. `options` are GradScaler's.

        A parameter without a gradient counts as one of zeros, if another worker has one; if none
        has, it is not updated.
        Errors: those of the exchange; WentBack, after which resume() goes on.
        """
        _exit.goes_on()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with self._exchange.threads.lock:
            contributes, scale = self._contribution(options.get("grad_scaler"))
            if contributes:
                self._uneven_ends.check_step(self._has_gradient())
            if self._own_changes is not None:
                self._own_changes.look()
            if self._exchange.is_begun:
                self._options.check(self.param_groups)
                self._check_parameters()
            else:
                self._begin(contributes)
            self._exchange.finish(contributes, scale)
            if self._reads is not None:
                self._reads.wait_for_moved()
        self._note_step()
        self._exchange.registered.stepped()
        return loss

    def abandon(self) -> None:
        """In place of step(), for a batch that was given up, as after an exception in the forward
        or backward pass: takes part in the iteration without a gradient, and forgets the gradients.
        This worker stays out of the divisor of the mean. What backward() has pushed already, under
        BACKWARD and FULL, counts: the mean of such a parameter includes it."""
        self._give_up()
        self._forget_pass()
        if self._reads is not None:
            with self._exchange.threads.lock:
                self._reads.wait_for_moved()

    def synchronize(self) -> None:
        """Waits until all parameters that are under way have come."""
        self._exchange.wait_for_all()

    def resume(self) -> None:
        """After WentBack, by step() or under FULL by a forward pass: joins again where the run goes
        on. The model then has the parameters of its checkpoint and no gradients, and `iteration` is
        the checkpoint's."""
        self._exchange.resume()
        self._forget_pass()
        self._assignments.restart()
        self._exchange.registered.restore()

    @contextlib.contextmanager
    def assign(self) -> Iterator[None]:
        """In this context the script may change parameters and buffers, in place:

            with optimizer.assign():
                for parameter in model.parameters():
                    parameter.clamp_(-1, 1)

        Afterwards rank 0's values are the run's, and every rank's model has them. All ranks enter
        it, as they all call step(); it is no iteration. Autograd records nothing in it. After an
        exception in it nothing is assigned, and the model has what it had before.

        A worker that was started again leaves out those that the run has behind it since its last
        iteration, so that with recovery they belong before the iteration's forward pass.

        Other threads wait for its end to use the optimizer, so that it must not wait for them.

        Errors: FailedPrecondition between backward() and step() unless the schedule is SEQUENTIAL,
        and under ASYNC; Aborted if another rank does something else.
        """
        with self._assignments.parameters():
            yield

    def _begin(self, contributes):
        numbers = self._options.begin(self.param_groups)
        self._check_parameters()
        self._assignments.begin_iteration()
        self._exchange.begin(contributes, numbers)
        self._has_trained = True

    def _contribution(self, grad_scaler):
        """Whether this worker has a gradient in this step, and the divisor of its gradient."""
        scaled = _grad_scaler.state_of(self, grad_scaler)
        scale = None
        if scaled is None:
            self._require_scaler("and step() was called without a GradScaler")
        else:
            if self._exchange.has_pushed:
                raise errors.FailedPrecondition(
                    "GradScaler: gradients have been pushed before step() could divide them by the"
                    " scale; " + SEQUENTIAL_HINT
                )
            is_infinite, scale = scaled
            if is_infinite:
                return False, None
        if self._skips_non_finite and not self._can_be_pushed(scale):
            self._skipped += 1
            if self._skipped & (self._skipped - 1) == 0:
                _log.warning(
                    "left out a gradient that is not finite at iteration %d, %dx by now",
                    self.iteration, self._skipped,
                )
            return False, None
        return True, scale

    def _require_scaler(self, why):
        """Errors: FailedPrecondition if a gradient needs a scale."""
        if self._of_float16 is not None:
            raise errors.FailedPrecondition(
                f"worker {self._handle.rank}: {self._of_float16}: is torch.float16, whose small"
                f" gradients are zero without a scale, {why}; allowed:"
                " scaler.scale(loss).backward() and scaler.step(optimizer) with GradScaler, under"
                " the schedule SEQUENTIAL; or a model of torch.bfloat16, which needs no scale"
            )

    def _can_be_pushed(self, scale):
        """Whether a shard would take all that this step pushes, after a division by `scale`."""
        limit = self._handle.gradient_limit * (1 if scale is None else float(scale))
        for item in self._tensors:
            value = item.tensor.grad if item.is_parameter else None
            if value is not None and value.dtype == torch.float32 and math.isfinite(limit):
                fits = value.abs() < limit  # which no NaN is
            elif value is not None:
                fits = torch.isfinite(value)
            elif item.role == _library.RUNNING_STATISTIC:
                fits = torch.isfinite(item.value)
            else:
                continue
            if not bool(fits.all()):
                return False
        return True

    # What else an optimizer of torch.optim does.

    def add_param_group(self, param_group: dict) -> None:
        """Only while the optimizer is made: the run's parameters are agreed on then."""
        if self._is_ready:
            raise errors.FailedPrecondition(
                "add_param_group: the run has agreed on its parameters already, allowed: give all"
                " groups at the start, by evenshard.Optimizer(model, optimizer=...)"
            )
        super().add_param_group(param_group)

    def state_dict(self) -> dict:
        """As the one of torch.optim, with momentum and moments from the shards, and with the
        iteration. Waits until all parameters are there. Other ranks need not call it. Under ASYNC
        others may train meanwhile, so that parameters may be some updates apart.

        Errors: FailedPrecondition between backward() and step() unless the schedule is
        SEQUENTIAL.
        """
        self._require_state("state_dict()")
        with self._exchange.threads.lock:
            self._exchange.require_between("state_dict()")
            fetched = _state_dict.fetch(self._exchange, self.param_groups)
        kept, self.state = self.state, fetched
        try:
            return {**super().state_dict(), "iteration": self.iteration}
        finally:
            self.state = kept

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes over what state_dict() or an optimizer of torch.optim has saved. All ranks call it,
        and rank 0's momentum and moments become the run's; the options of the groups are taken
        from each rank's own, and must agree. The iteration is the run's own. A worker that was
        started again, and calls it before its first step, takes over the options only.

        Errors: InvalidArgument, which names what cannot be taken over; those of assign().
        """
        for hook in _hooks_of(self, "_optimizer_load_state_dict_pre_hooks"):
            taken = hook(self, state_dict)
            state_dict = state_dict if taken is None else taken
        self._load_state_dict(state_dict)
        for hook in _hooks_of(self, "_optimizer_load_state_dict_post_hooks"):
            hook(self)

    def _load_state_dict(self, state_dict):
        _state_dict.check_layout(state_dict)
        groups = state_dict["param_groups"]
        sizes = [len(group["params"]) for group in groups]
        own = [len(group["params"]) for group in self.param_groups]
        if sizes != own:
            raise errors.InvalidArgument(
                f"load_state_dict: has groups of {sizes} parameters, allowed: {own}"
            )
        self._require_state("load_state_dict()")
        taken = self._options.taken_over(self.param_groups, groups)
        self._assign_state(state_dict)
        for group, options in zip(self.param_groups, taken):
            group.update(options)

    def _give_back(self):
        given = self._given
        super()._give_back()
        if given is not None and self._has_trained:
            _state_dict.leave_behind(given, self._kind)

    def _let_go(self):
        super()._let_go()
        if self._reads is not None:
            self._reads.remove()

    def _require_state(self, what):
        """Errors: FailedPrecondition in a ring."""
        if self._handle.is_ring:
            raise errors.FailedPrecondition(
                f"{what}: in a ring each worker has a part of the optimizer's state, and nobody all"
                " of it; allowed: evenshard.DistributedOptimizer, whose optimizer has all of its"
                " state in each worker, or a run with shards"
            )

    def _assign_state(self, saved):
        state = _state_dict.parse(self._exchange, self.param_groups, saved)
        self._assignments.state(state.arrays, state.steps)


def _hooks_of(optimizer, name):
    """Those that the script has registered, with a PyTorch that has them."""
    return list(getattr(optimizer, name, {}).values())


# What the optimizer that was handed over would do to itself alone, beside the run.
_REFUSED_OF_GIVEN = ("step", "state_dict", "load_state_dict", "add_param_group")
