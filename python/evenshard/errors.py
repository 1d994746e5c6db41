"""What can go wrong, as exceptions.

Each message is the library's own, or has its form: what was wrong, where, and what is allowed.
"""

from __future__ import annotations


class Error(RuntimeError):
    """The base of all of Evenshard's errors. `status` is the name of gRPC's code for it.
    `run_has_failed`: the run is over for all its workers, and trying again cannot help.
    `differing_state`: the name of what was registered and is not the same in all workers, if that
    is the error."""

    status = "UNKNOWN"
    run_has_failed = False
    differing_state = ""

    def __init__(self, message: str, status: str | None = None):
        super().__init__(message)
        if status is not None:
            self.status = status


class InvalidArgument(Error):
    """An argument is wrong, or a value that a shard received is: a gradient that is not finite."""

    status = "INVALID_ARGUMENT"


class ConfigError(InvalidArgument):
    """The config, the model or the optimizer is wrong. One line for each problem."""


class TensorError(InvalidArgument):
    """A tensor cannot be exchanged as it is: its type, its shape, its device or its layout."""


class FailedPrecondition(Error):
    """A call at the wrong time, or a shard's refusal: another model or config, a rank that is
    taken."""

    status = "FAILED_PRECONDITION"


class DeadlineExceeded(Error):
    """A process did not come or answer in time. The message says which."""

    status = "DEADLINE_EXCEEDED"


class Unavailable(Error):
    """A shard, or under SYNC another worker, is gone."""

    status = "UNAVAILABLE"


class Interrupted(Error):
    """A call of interrupt() has ended the exchange."""

    status = "CANCELLED"


class RunOver(Error):
    """The run is over, and has no newer snapshot."""

    status = "OUT_OF_RANGE"


class Aborted(Error):
    """The run has ended: another worker gave up, for the reason in the message."""

    status = "ABORTED"


class WentBack(Aborted):
    """The run has gone back to a checkpoint. Call resume(), and train on from `iteration`."""


# By gRPC's numbers.
STATUSES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)

_CLASSES: dict[str, type[Error]] = {
    "ALREADY_EXISTS": FailedPrecondition,
    **{kind.status: kind for kind in (
        Interrupted, InvalidArgument, DeadlineExceeded, FailedPrecondition, Aborted, Unavailable
    )},
}


def of_config(error: Error) -> Error:
    """Returns what a config is refused with: a ConfigError if it is wrong or cannot be read."""
    kinds = ("INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED")
    return ConfigError(str(error)) if error.status in kinds else error


# evenshard_error_kind
OTHER = 0
RUN_FAILED = 1
WENT_BACK = 2


def from_status(
    code: int, message: str, kind: int = OTHER, differing_state: str = ""
) -> Error:
    """Returns the exception for a status of the library, its kind and the state that differs."""
    status = STATUSES[code] if 0 <= code < len(STATUSES) else "UNKNOWN"
    if kind == WENT_BACK:
        return WentBack(f"{message}; call resume(), and train on from `iteration`", status)
    error = _CLASSES.get(status, Error)(message or status, status)
    error.run_has_failed = kind == RUN_FAILED
    error.differing_state = differing_state
    return error
