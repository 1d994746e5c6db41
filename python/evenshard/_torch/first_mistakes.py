"""Calls of evenshard.Optimizer that come from habits, and what to write instead."""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any, TypeVar

import torch

from evenshard import errors

_Init = TypeVar("_Init")
_PARALLEL = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"}
_AN_OPTIMIZER = "optimizer=torch.optim.SGD(model.parameters(), lr=0.1)"
_DISTRIBUTED_CALL = "evenshard.DistributedOptimizer(optimizer, model)"
_LOCAL_CALL = "evenshard.LocalSteps(model, optimizer, steps=100)"
_CALL = f"evenshard.Optimizer(model, {_AN_OPTIMIZER})"


def explained(init: _Init) -> _Init:
    """Wraps an __init__ with the arguments model, config and optimizer: raises InvalidArgument,
    with a sentence, for arguments that it does not have or that are of another kind."""
    signature = inspect.signature(init)  # type: ignore[arg-type]

    @functools.wraps(init)  # type: ignore[arg-type]
    def check(self, *arguments, **options):
        parameters = list(signature.parameters.values())[1:]
        names = [p.name for p in parameters]
        places = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        given = {**dict(zip(places, arguments)), **options}
        if "model" not in given:
            raise errors.InvalidArgument(f"model: is not given, allowed: {_CALL}")
        _check_model(given["model"])
        for name in options:
            if name not in names:
                raise errors.InvalidArgument(
                    f"{name}: is no argument of evenshard.Optimizer, allowed: {', '.join(names)};"
                    f" the rule and its numbers come with {_AN_OPTIMIZER}"
                )
        _check_config(given.get("config"))
        _check_optimizer(given.get("optimizer"))
        if len(arguments) > len(places):
            raise errors.InvalidArgument(
                f"{len(arguments)} arguments without a name, allowed: {' and '.join(places)}; give"
                f" the others by name, as in {_CALL}"
            )
        return init(self, *arguments, **options)  # type: ignore[operator]

    return check  # type: ignore[return-value]


def explained_distributed(init: _Init) -> _Init:
    """The same for an __init__ with the arguments optimizer, model and config."""
    return _explained(init, "DistributedOptimizer", _DISTRIBUTED_CALL)


def explained_local(init: _Init) -> _Init:
    """The same for an __init__ with the arguments model, optimizer and config."""
    return _explained(init, "LocalSteps", _LOCAL_CALL)


def _explained(init: _Init, kind: str, call: str) -> _Init:
    signature = inspect.signature(init)  # type: ignore[arg-type]

    @functools.wraps(init)  # type: ignore[arg-type]
    def check(self, *arguments, **options):
        try:
            given = signature.bind(self, *arguments, **options).arguments
        except TypeError as error:
            raise errors.InvalidArgument(
                f"{kind}: {error}, allowed: {call}, and by name"
                f" {', '.join(list(signature.parameters)[3:])}"
            ) from None
        if not isinstance(given["optimizer"], torch.optim.Optimizer):
            raise errors.InvalidArgument(
                f"optimizer: is {_named(given['optimizer'])}, allowed: an optimizer of torch.optim"
                f" or of your own: {call}"
            )
        if given["optimizer"].__class__.__module__.startswith("evenshard."):
            raise errors.InvalidArgument(
                f"optimizer: is {_named(given['optimizer'])}, allowed: one that Evenshard does not"
                " have yet"
            )
        _check_model(given["model"])
        _check_config(given.get("config"))
        return init(self, *arguments, **options)  # type: ignore[operator]

    return check  # type: ignore[return-value]


def _check_model(model: Any) -> None:
    if isinstance(model, type):
        raise errors.InvalidArgument(
            f"model: is the class {model.__name__}, allowed: an object of it, {model.__name__}(...)"
        )
    if not isinstance(model, torch.nn.Module):
        raise errors.InvalidArgument(
            f"model: is a {type(model).__name__}, allowed: a torch.nn.Module; the parameters are"
            f" those of it that require a gradient: {_CALL}"
        )
    if type(model).__name__ in _PARALLEL:
        raise errors.InvalidArgument(
            f"model: is a {type(model).__name__}, which exchanges gradients by itself; allowed: the"
            " model in it, without it (model.module)"
        )


def _check_config(config: Any) -> None:
    if config is None or isinstance(config, (str, os.PathLike)):
        return
    text = f"config: is {_named(config)}, allowed: the path or the text of a ClusterConfig"
    if isinstance(config, torch.optim.Optimizer) or inspect.isclass(config):
        text += f"; give the rule by its name: {_CALL}"
    raise errors.InvalidArgument(text)


def _check_optimizer(optimizer: Any) -> None:
    if optimizer is None or isinstance(optimizer, torch.optim.Optimizer):
        return
    raise errors.InvalidArgument(
        f"optimizer: is {_named(optimizer)}, allowed: an optimizer of torch.optim, {_AN_OPTIMIZER};"
        " a rule in text format goes into the config, or into `evenshard run --optimizer`"
    )


def _named(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__module__}.{value.__qualname__}"
    return f"a {type(value).__name__}"
