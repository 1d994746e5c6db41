"""Evenshard for Python: training with a sharded parameter server.

    import evenshard
    optimizer = evenshard.Optimizer(model, "cluster.textproto")   # was torch.optim.SGD(...)

`Optimizer` stands in the place of an optimizer of torch.optim, `DistributedOptimizer` has the
script's own one step by the mean gradient of all workers, and with `LocalSteps` workers exchange
after several of its steps; all need PyTorch, 1.13 or newer.
`Worker` is for programs that compute gradients by themselves, on arrays of any library. `Reader`
reads the parameters of a run from outside. `launch` starts the shards and one copy of a script per
worker on this machine. Errors are in evenshard.errors, and all are an evenshard.Error.

The package needs libevenshard.so: next to the package, in the checkout that the package lies in
(`bazel build //client:libevenshard.so`), or where EVENSHARD_LIBRARY says.
"""

import importlib
import importlib.util

from evenshard import _environment
from evenshard._handle import Statistics
from evenshard.errors import (
    Aborted,
    ConfigError,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    Interrupted,
    InvalidArgument,
    RunOver,
    TensorError,
    Unavailable,
    WentBack,
)
from evenshard.launching import launch
from evenshard.reader import Reader, Snapshot
from evenshard.worker import Worker


def rank() -> int:
    """The number of this worker, from 0, by the environment that `evenshard run` or torchrun makes.
    Errors: ConfigError without one."""
    return _environment.rank(None)


def workers() -> int:
    """How many workers there are, by the same environment."""
    return _environment.workers()


# The modules of what needs PyTorch.
_NEED_TORCH = {
    "Optimizer": "evenshard.optimizer",
    "DistributedOptimizer": "evenshard.distributed_optimizer",
    "LocalSteps": "evenshard.local_steps",
}

__version__ = "0.1.0"

__all__ = [
    "Worker",
    "Reader",
    "Snapshot",
    "Statistics",
    "launch",
    "rank",
    "workers",
    "Error",
    "Aborted",
    "ConfigError",
    "DeadlineExceeded",
    "FailedPrecondition",
    "Interrupted",
    "InvalidArgument",
    "RunOver",
    "TensorError",
    "Unavailable",
    "WentBack",
]

if importlib.util.find_spec("torch") is not None:
    __all__ += _NEED_TORCH


def __getattr__(name):
    # PyTorch takes seconds to load, and Worker does not need it.
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(_NEED_TORCH[name])
    except ImportError as error:
        raise ImportError(
            f"evenshard.{name} needs PyTorch: {error}; evenshard.Worker does not"
        ) from error
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__():
    return sorted({*globals(), *__all__})
