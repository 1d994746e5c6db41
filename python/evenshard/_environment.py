"""What a program need not say because its environment does: torchrun's variables, and those that
`launch` sets."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable

from evenshard import errors

_LAUNCHER = "`evenshard run --workers N SCRIPT`, which starts the shards as well"


def config(given: str | os.PathLike | None) -> str:
    """Returns the path or the text of the config."""
    if given is not None:
        if not isinstance(given, (str, os.PathLike)):
            raise errors.ConfigError(
                f"config: is a {type(given).__name__}, allowed: the path or the text of a"
                " ClusterConfig"
            )
        return os.fspath(given)
    value = os.environ.get("EVENSHARD_CONFIG")
    if not value:
        raise errors.ConfigError(
            "config: is not given, and the environment has no EVENSHARD_CONFIG; allowed: the path"
            f" of a ClusterConfig in text format, or a start by {_LAUNCHER}"
        )
    return value


def rank(given: int | None) -> int:
    """Returns the rank of the worker."""
    if given is not None:
        return _number("rank", given)
    value = os.environ.get("RANK")
    if value is None:
        raise errors.ConfigError(
            "rank: is not given, and the environment has no RANK, which torchrun sets too; allowed:"
            f" a start by {_LAUNCHER}"
        )
    return _number("RANK", value)


def worker(given: int | None) -> str:
    """Returns the beginning of an error of one worker, "worker 1: ", or nothing where the rank is
    not known."""
    known = os.environ.get("RANK") if given is None else given
    return "" if known is None else f"worker {known}: "


def workers() -> int:
    """Returns how many workers torchrun or launch have started."""
    value = os.environ.get("WORLD_SIZE")
    if value is None:
        raise errors.ConfigError(
            "the environment has no WORLD_SIZE, which torchrun sets too; allowed: a start by"
            f" {_LAUNCHER}"
        )
    return _number("WORLD_SIZE", value)


def coordinator(given: str | None) -> str | None:
    """Returns the address of the run's coordinator, or None without one."""
    return os.environ.get("EVENSHARD_COORDINATOR") if given is None else given


def overrides(given: Iterable[str] | None, config_given: str | os.PathLike | None) -> list[str]:
    """Returns the fields of the config that are changed, each "FIELD=VALUE". The environment's
    belong to its config, and those that are given come after them."""
    own = [] if given is None else texts(given)
    if given is not None and config_given is not None:
        return own
    lines = os.environ.get("EVENSHARD_OVERRIDES", "").split("\n")
    return [line for line in lines if line.strip()] + own


def texts(given: Iterable[str]) -> list[str]:
    """Returns several texts, or the one that is given."""
    return [given] if isinstance(given, str) else list(given)


def continues(given: bool | None) -> bool:
    """Returns whether the program may go on with a run that has iterations behind it."""
    return os.environ.get("EVENSHARD_CONTINUE") == "1" if given is None else given


def check_world_size(configured: int) -> None:
    """Compares the config's number of workers with how many torchrun or launch have started."""
    value = os.environ.get("WORLD_SIZE")
    if value is not None and _number("WORLD_SIZE", value) != configured:
        raise errors.ConfigError(
            f"workers: is {configured} in the config, but WORLD_SIZE is {value}: the environment"
            " has started another number of workers; allowed: the same one"
        )


def _number(name: str, value: str | int) -> int:
    try:
        number = int(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        raise errors.ConfigError(f"{name}: is {value!r}, allowed: a number") from None
    if not 0 <= number < 2**31:
        raise errors.ConfigError(f"{name}: is {value!r}, allowed: 0 or more, below 2^31")
    return number
