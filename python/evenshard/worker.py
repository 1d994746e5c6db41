"""A worker for programs that compute gradients by themselves."""

from __future__ import annotations

import os
import types
from collections.abc import Iterable, Mapping
from typing import Any

from evenshard import _arrays, _exit, _library, errors
from evenshard._handle import Declared, Handle, Statistics


class Worker:
    """One worker of a run, with named float32 arrays.

        with evenshard.Worker("cluster.textproto", {"w": w, "b": b}) as worker:
            while worker.iteration < 1000:
                gradients = compute({"w": w, "b": b})   # by name
                worker.push_pull(gradients, out={"w": w, "b": b})

    Arrays are whatever has the buffer protocol or DLPack and is float32, C-contiguous and on the
    CPU: numpy.ndarray, torch.Tensor, array.array("f").

    A program that wants no copies computes from `parameters` and writes to `gradients`: arrays on
    the memory which is exchanged. Between push and wait the parameters of a tensor may change, and
    its gradient must not be written to until everything has been waited for.

    A worker is used by one thread at a time, but for interrupt() and close(). Ctrl-C ends every
    call that waits, and with it the exchange. A child process must not use its parent's worker.
    Close it: otherwise it leaves when the program ends, as one that has failed.
    """

    def __init__(
        self,
        config: str | os.PathLike | None = None,
        tensors: Mapping[str, Any] | None = None,
        *,
        rank: int | None = None,
        optimizer: str | None = None,
        overrides: Iterable[str] | None = None,
        coordinator: str | None = None,
        continues: bool | None = None,
        running_statistics: Iterable[str] = (),
    ):
        """Joins the run, and waits until its shards are up.

        config: the path of a ClusterConfig in text format, or its text. None: EVENSHARD_CONFIG.
        tensors: the model by name, in the order in which a forward pass needs it, if the config has
            model.from_workers. At the start of a run rank 0's values are its parameters. All arrays
            must be writable: they have the run's parameters when this returns. None: the model is
            the config's.
        rank: from 0. None: RANK, as torchrun sets it. WORLD_SIZE, if it is set, must then be the
            config's `workers`.
        optimizer: an OptimizerConfig in text format, if the config has none.
        overrides: "FIELD=VALUE" each, as the programs' --set. None: EVENSHARD_OVERRIDES, one each
            line. Without `config` they come after those, which belong to the environment's config.
        coordinator: the address of the run's coordinator. None: EVENSHARD_COORDINATOR, from launch.
        continues: whether to go on where shards are that have iterations behind them. None:
            EVENSHARD_CONTINUE is 1. In a run with a coordinator that is always so.
        running_statistics: names of tensors for which the old value minus the new one is pushed,
            and which go past the optimizer.

        Errors: ConfigError, TensorError, DeadlineExceeded, FailedPrecondition.
        """
        _exit.prepare()
        initial = {
            name: _arrays.of(array, f'tensors["{name}"]', writable=True)
            for name, array in (tensors or {}).items()
        }
        _arrays.check_apart(initial, "tensors")
        statistics = set(running_statistics)
        _check_names(statistics - set(initial), "running_statistics: has", "the names in tensors")
        self._handle = Handle(
            [
                Declared(
                    name, floats.shape,
                    _library.RUNNING_STATISTIC if name in statistics else _library.PARAMETER,
                )
                for name, floats in initial.items()
            ],
            config=config, rank=rank, optimizer=optimizer, overrides=overrides,
            coordinator=coordinator,
            continues=continues,
        )
        self._open(initial)

    def _open(self, initial):
        self._declared = {tensor.name: tensor for tensor in self._handle.tensors()}
        halves = [name for name, tensor in self._declared.items() if tensor.type]
        _check_names(halves, "the config has tensors of 16 bits,", "float32 in evenshard.Worker")
        self._numbers = {name: i for i, name in enumerate(self._declared)}
        self._parameters = self._arrays_of(self._handle.parameters)
        self._gradients = self._arrays_of(self._handle.gradients)
        for name, floats in initial.items():
            floats.copy_to(_arrays.of(self._parameters[name], name))
        try:
            self._handle.join()
        except BaseException as error:
            self._handle.close(_exit.text_of(error) or "the program ended while it joined")
            raise
        for name, floats in initial.items():
            _arrays.of(self._parameters[name], name).copy_to(floats)
        _exit.watch(self)

    def _arrays_of(self, memory_of):
        return types.MappingProxyType({
            name: _arrays.as_array(memory_of(number), self._declared[name].shape)
            for name, number in self._numbers.items()
        })

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters as they are received: numpy arrays, or memoryviews without numpy."""
        return self._parameters

    @property
    def gradients(self) -> Mapping[str, Any]:
        """Where gradients are pushed from: numpy arrays, or memoryviews without numpy."""
        return self._gradients

    @property
    def rank(self) -> int:
        """The number of this worker, from 0."""
        return self._handle.rank

    @property
    def workers(self) -> int:
        """How many workers the config has."""
        return self._handle.workers

    @property
    def shards(self) -> int:
        """How many shards the config has."""
        return self._handle.shards

    @property
    def iteration(self) -> int:
        """How many iterations of training lie behind this worker. Above 0 at the start if it, or
        the run, was started again."""
        return self._handle.iteration

    def statistics(self) -> Statistics:
        """Counters since the worker joined."""
        return self._handle.statistics()

    def push_pull(
        self,
        gradients: Mapping[str, Any] | None = None,
        out: Mapping[str, Any] | None = None,
        *,
        learning_rates: float | Mapping[str, float] | None = None,
    ) -> None:
        """One iteration: pushes every gradient, and receives the parameters that follow.

        gradients: an array for each tensor. None: what is in the worker's own `gradients`.
        out: arrays that receive parameters, for any of the tensors.
        learning_rates: in force for this iteration in place of the config's. One for all, or one
            for each tensor but the running statistics. Under SYNC all workers must give the same.

        Errors: TensorError; those of the exchange; WentBack, after which resume() goes on.
        """
        targets = self._targets(out)
        if gradients is not None:
            self._check_all(gradients, "gradients")
            for name, array in gradients.items():
                self._stage(name, array)
        self._handle.push_pull(self._c_rates(learning_rates))
        self._give(targets)

    def begin(
        self,
        contributes: bool = True,
        *,
        learning_rates: float | Mapping[str, float] | None = None,
    ) -> None:
        """Begins an iteration step by step: push() each tensor once, then wait() for each of them
        or wait_all(). Neither begin nor push waits.

        contributes: False takes part without counting in the mean of the workers. Each tensor
        must be pushed all the same.
        """
        self._handle.begin(contributes, self._c_rates(learning_rates))

    def push(self, name: str, gradient: Any = None, *, has_gradient: bool = True) -> None:
        """Pushes a tensor's gradient. None: what is in the worker's own `gradients`."""
        number = self._number(name)
        if gradient is not None:
            self._stage(name, gradient)
        self._handle.push(number, _library.GRADIENT if has_gradient else _library.ZEROS)

    def wait(self, name: str, out: Any = None) -> None:
        """Waits until the parameters of a tensor that was pushed are there."""
        targets = self._targets(None if out is None else {name: out})
        self._handle.wait(self._number(name))
        self._give(targets)

    def wait_all(self, out: Mapping[str, Any] | None = None) -> None:
        """Waits for all parameters."""
        targets = self._targets(out)
        self._handle.wait_all()
        self._give(targets)

    def pull(self, out: Mapping[str, Any] | None = None) -> None:
        """Receives all parameters without a push, for evaluation under ASYNC."""
        targets = self._targets(out)
        self._handle.pull()
        self._give(targets)

    def mean(self, values: Iterable[float]) -> list[float]:
        """Returns the mean of each of at most 4096 numbers over the workers, which all call it
        between the same two iterations, in the same order and at the same line of the program.
        Waits for them without a limit, as long as the run goes on. Errors: FailedPrecondition if
        another worker is at another line or has finished, and under ASYNC."""
        return self._handle.mean([float(value) for value in values])

    def barrier(self) -> None:
        """Waits until all workers are here. Otherwise as mean()."""
        self._handle.mean([])

    def resume(self, out: Mapping[str, Any] | None = None) -> None:
        """After WentBack: joins again where the run goes on, and receives the parameters of its
        checkpoint. `iteration` is then the checkpoint's."""
        targets = self._targets(out)
        self._handle.resume()
        self._give(targets)

    def interrupt(self) -> None:
        """Makes the call in progress, and all later ones but close(), raise Interrupted soon. May
        be called from any thread."""
        self._handle.interrupt()

    def close(self, error: str | None = None) -> None:
        """Leaves the run: this worker has finished, or failed for the reason that is given, which
        the others are told. One whose exchange has failed leaves with that reason. A call that goes
        on in another thread, or in which a signal handler calls this, raises Interrupted. Arrays of
        `parameters` and `gradients` may be used further. Does nothing when called again."""
        _exit.forget(self)
        self._parameters = self._gradients = types.MappingProxyType({})
        self._handle.close(error)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind, error, trace) -> None:
        if not _exit.stays(error):
            self.close(_exit.text_of(error))

    def _is_trained_by(self, _) -> bool:
        """For _exit.py, which asks for close() in any case."""
        return False

    def _end_of_program(self, reason: str | None) -> str | None:
        """For _exit.py."""
        if self._handle.is_own:
            reason = reason or "the program ended without close()"
            self.close(reason)
        return reason

    def _number(self, name):
        if name not in self._numbers:
            _check_names([name], "there is no tensor", ", ".join(self._numbers))
        return self._numbers[name]

    def _check_all(self, arrays, what):
        _check_names(set(arrays) - set(self._numbers), f"{what}: has", "the tensors' names")
        _check_names(set(self._numbers) - set(arrays), f"{what}: lacks", "all tensors' names")

    def _floats(self, array, what, name, writable=False):
        """The memory of an array for a tensor."""
        self._handle.require_open()
        floats = _arrays.of(array, what, writable=writable)
        shape = self._declared[name].shape
        if floats.shape != shape:
            raise errors.TensorError(f"{what}: is of shape {floats.shape}, allowed: {shape}")
        return floats

    def _stage(self, name, array):
        floats = self._floats(array, f'gradients["{name}"]', name)
        floats.copy_to(_arrays.of(self._gradients[name], name))

    def _targets(self, out):
        """Checks `out` before anything is sent."""
        targets = {
            name: self._floats(array, f'out["{name}"]', name, writable=True)
            for name, array in (out or {}).items()
            if self._number(name) >= 0
        }
        _arrays.check_apart(targets, "out")
        return targets

    def _give(self, targets):
        for name, floats in targets.items():
            _arrays.of(self._parameters[name], name).copy_to(floats)

    def _c_rates(self, learning_rates):
        if learning_rates is None:
            return None
        rates = learning_rates
        if not isinstance(rates, Mapping):
            rates = dict.fromkeys(self._numbers, learning_rates)
        wanted = {
            name for name, tensor in self._declared.items() if tensor.role == _library.PARAMETER
        }
        _check_names(set(rates) - set(self._numbers), "learning_rates: has", "the tensors' names")
        _check_names(wanted - set(rates), "learning_rates: lacks", "a rate for all of them")
        return (_library.CHyperparameters * len(self._numbers))(
            *(_library.hyperparameters(rates.get(name)) for name in self._numbers)
        )


def _check_names(names, problem, allowed):
    if names:
        raise errors.TensorError(f"{problem} {', '.join(sorted(names))}; allowed: {allowed}")
