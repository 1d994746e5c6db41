"""Reading a run's parameters from outside, for evaluation and serving."""

from __future__ import annotations

import ctypes
import importlib
import os
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evenshard import _arrays, _environment, _interrupts, _library, _local_runs, errors


class Snapshot(Mapping):
    """The parameters of a run after one and the same iteration: a mapping from the tensors' names
    to arrays, numpy arrays or memoryviews without numpy. Its memory is its own."""

    def __init__(self, iteration: int, tensors: Mapping[str, Any], shapes: Mapping[str, tuple]):
        self._iteration = iteration
        self._tensors = types.MappingProxyType(dict(tensors))
        self._shapes = shapes  # a memoryview of a scalar has one dimension

    @property
    def iteration(self) -> int:
        """How many iterations of training the parameters have. Under ASYNC, which has no iteration
        in common: the least number of updates that any chunk of them has had."""
        return self._iteration

    @property
    def tensors(self) -> Mapping[str, Any]:
        """The arrays by name, in the order of the model."""
        return self._tensors

    def __getitem__(self, name: str) -> Any:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"<Snapshot of iteration {self._iteration}, {len(self)} tensors>"

    def load_into(self, model: Any) -> None:
        """Copies the tensors into a PyTorch model: its parameters, and the running statistics of
        batch normalisations, by their names. The model may be on any device but meta.

        Errors: TensorError, one line for each tensor that the model does not have, that has another
        shape there, or that the snapshot lacks although it is a parameter, frozen or not, or a
        running statistic. Then nothing is copied.
        """
        # PyTorch takes seconds to load.
        torch = importlib.import_module("torch")
        tensors = importlib.import_module("evenshard._torch.model")
        targets = tensors.tensors_by_name(model)
        problems = [
            f"{name}: is not in the snapshot"
            for name in tensors.needed_names(model) if name not in self
        ]
        for name, shape in self._shapes.items():
            if name not in targets:
                problems.append(f"{name}: is not in the model")
            elif targets[name].is_meta:
                problems.append(f"{name}: is on the device meta; allowed: to_empty() before")
            elif tuple(targets[name].shape) != shape:
                problems.append(
                    f"{name}: is of shape {tuple(targets[name].shape)} in the model, allowed:"
                    f" {shape}, as in the snapshot"
                )
        if problems:
            raise errors.TensorError("\n".join(problems))
        with torch.no_grad():
            for name, array in self.items():
                source = torch.frombuffer(_arrays.of(array, name).bytes, dtype=torch.float32)
                targets[name].copy_(source.reshape(self._shapes[name]))


class Reader:
    """Reads the parameters of a run, all at one iteration, while its workers train.

        with evenshard.Reader("cluster.textproto") as reader:
            snapshot = reader.pull()
            while True:
                evaluate(snapshot["fc.weight"], snapshot.iteration)
                snapshot = reader.pull(newer_than=snapshot.iteration)   # RunOver at the end

    A reader takes no part in the run: it has no rank, and no worker waits for it. A snapshot is the
    run's state after `iteration` iterations, to the bit, however long it takes to arrive.

    A reader is used by one thread at a time, but for interrupt() and close(). Ctrl-C ends every
    call that waits. A child process must not use its parent's reader.
    """

    def __init__(
        self,
        config: str | os.PathLike | None = None,
        *,
        overrides: Iterable[str] | None = None,
        run: str | None = None,
    ):
        """Checks the config. If the workers bring the model (model.from_workers), waits until the
        run has it, at most for limits.startup_seconds; otherwise does not connect yet.

        config: the path of the run's ClusterConfig in text format, or its text. None:
            EVENSHARD_CONFIG, or the run that was started last on this machine.
        overrides: "FIELD=VALUE" each, as the programs' --set. None: EVENSHARD_OVERRIDES, one each
            line. Without `config` they come after those, which belong to the environment's config.
        run: in place of both, the name of a run on this machine (`evenshard run --name`).

        Errors: ConfigError, DeadlineExceeded.
        """
        self._memory = None
        self._library = _library.load()
        options = _library.CReaderOptions()
        if run is not None or (config is None and not os.environ.get("EVENSHARD_CONFIG")):
            if run is not None and config is not None:
                raise errors.ConfigError("run: is given beside config, allowed: one of the two")
            local = _local_runs.find(run)
            options.set_config(
                local.config, [*local.overrides, *_environment.texts(overrides or ())]
            )
        else:
            options.set_config(
                _environment.config(config), _environment.overrides(overrides, config)
            )
        pointer = ctypes.c_void_p()
        try:
            self._wait(
                self._library.reader_create, ctypes.byref(options), ctypes.byref(pointer)
            )
        except errors.Error as error:
            raise errors.of_config(error) from None
        finally:
            if pointer:
                self._memory = _library.Owned(pointer, self._library.reader_destroy)
        self._shapes = {}
        for i in range(self._library.reader_tensor_count(pointer)):
            tensor = self._library.reader_tensor_at(pointer, i)
            name = tensor.name.decode("utf-8", "replace")
            self._shapes[name] = tuple(tensor.shape[: tensor.dimensions])

    @property
    def shapes(self) -> Mapping[str, tuple]:
        """The shapes of the model's tensors by name, in the order of the model."""
        return types.MappingProxyType(self._shapes)

    def pull(
        self,
        newer_than: int | None = None,
        out: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Snapshot:
        """Receives all parameters as they are after one iteration, usually the latest.

        newer_than: an iteration. Waits for a later one. None: any.
        out: arrays that receive parameters too, for any of the tensors. After an error they are as
            before.
        timeout: seconds. None: as long as the run trains.

        A shard that cannot be reached is tried again for limits.startup_seconds, or for
        limits.exchange_seconds if the reader has had a snapshot.

        Errors: RunOver if the run is over and has nothing newer; FailedPrecondition if the run has
        failed, or has another model than the config; DeadlineExceeded after the timeout, or if a
        shard was not up in limits.startup_seconds; Unavailable; TensorError; Interrupted. A shard
        that has no memory for a reader this slow (limits.snapshot_bytes) is an Error with the
        status RESOURCE_EXHAUSTED.
        """
        owned = self._owned()  # which keeps it, if another thread calls close() meanwhile
        targets = {name: self._target(name, array) for name, array in (out or {}).items()}
        _arrays.check_apart(targets, "out")
        if newer_than is not None and not 0 <= newer_than < 2**63:
            raise errors.InvalidArgument(
                f"newer_than: is {newer_than}, allowed: an iteration, at least 0, or None"
            )
        if timeout is not None and not timeout >= 0:
            raise errors.InvalidArgument(f"timeout: is {timeout}, allowed: at least 0, or None")
        tensors = {name: _arrays.empty(shape) for name, shape in self._shapes.items()}
        places = (ctypes.c_void_p * len(tensors))(
            *(_arrays.of(array, name).address() for name, array in tensors.items())
        )
        iteration = ctypes.c_int64()
        self._wait(
            self._library.reader_pull, owned.pointer, -1 if newer_than is None else newer_than,
            -1.0 if timeout is None else timeout, places, ctypes.byref(iteration),
        )
        for name, floats in targets.items():
            _arrays.of(tensors[name], name).copy_to(floats)
        return Snapshot(iteration.value, tensors, self._shapes)

    def interrupt(self) -> None:
        """Makes the call in progress, and all later ones but close(), raise Interrupted soon. May
        be called from any thread."""
        owned = self._owned()
        self._library.reader_interrupt(owned.pointer)

    def close(self) -> None:
        """Ends the connections. Snapshots may be used further. A pull() in another thread raises
        Interrupted. Does nothing when called again."""
        owned, self._memory = self._memory, None
        if owned is not None and owned.process == os.getpid():
            self._library.reader_interrupt(owned.pointer)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.close()

    def _owned(self):
        return _library.require_open(self._memory, "the reader")

    def _target(self, name, array):
        if name not in self._shapes:
            raise errors.TensorError(
                f"out: has {name}; allowed: the tensors' names, {', '.join(self._shapes)}"
            )
        floats = _arrays.of(array, f'out["{name}"]', writable=True)
        if floats.shape != self._shapes[name]:
            raise errors.TensorError(
                f'out["{name}"]: is of shape {floats.shape}, allowed: {self._shapes[name]}'
            )
        return floats

    def _wait(self, function, *arguments):
        """Calls a function that may wait. Signal handlers run meanwhile."""
        _interrupts.prepare()
        code = function(*arguments)
        _interrupts.raise_pending()
        if code == 0:
            return
        error = _library.error(self._library, code)
        raise errors.RunOver(str(error)) if error.status == "OUT_OF_RANGE" else error
