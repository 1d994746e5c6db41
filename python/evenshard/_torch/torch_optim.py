"""An optimizer of torch.optim as an OptimizerConfig (proto/config.proto)."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from evenshard import errors
from evenshard._torch.model import ModelTensor

# Options that decide how fast torch.optim computes, and not what.
SPEED = {"foreach", "fused", "capturable"}
# What else groups have: the parameters' names, and what schedulers add.
_OTHERS = {
    "param_names", "initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr",
}
_WILDCARDS = set("*?")


class _Rule(NamedTuple):
    """What of a class of torch.optim is taken over, and what must have one value."""

    fields: dict[str, str]  # by option
    fixed: dict[str, Any]


_FIXED = {"maximize": False, "differentiable": False}
_BETAS = {"eps": "epsilon", "weight_decay": "weight_decay", "betas": "", "amsgrad": ""}
_RULES = {
    "SGD": _Rule(
        {"momentum": "momentum", "weight_decay": "weight_decay", "nesterov": ""},
        {**_FIXED, "dampening": 0},
    ),
    "Adam": _Rule(_BETAS, {**_FIXED, "decoupled_weight_decay": False}),
    "AdamW": _Rule(_BETAS, {**_FIXED, "decoupled_weight_decay": True}),
    "Adagrad": _Rule(
        {"eps": "epsilon", "weight_decay": "weight_decay"},
        {**_FIXED, "lr_decay": 0, "initial_accumulator_value": 0},
    ),
    "RMSprop": _Rule(
        {"momentum": "momentum", "alpha": "beta2", "eps": "epsilon",
         "weight_decay": "weight_decay"},
        {**_FIXED, "centered": False},
    ),
}


def to_config(optimizer: torch.optim.Optimizer, tensors: list[ModelTensor]) -> str:
    """Returns the text of an OptimizerConfig with a rule for each parameter group that differs
    from the first.

    The optimizer must have each parameter in `tensors`. Errors: ConfigError, one
    line for each problem.
    """
    kind = type(optimizer).__name__
    if getattr(torch.optim, kind, None) is not type(optimizer) or kind not in _RULES:
        raise errors.ConfigError(
            f"optimizer: is {type(optimizer).__module__}.{kind}, allowed:"
            f" {', '.join('torch.optim.' + name for name in _RULES)}"
            + ("; Lion comes by the config: optimizer { kind: LION ... }" if kind == "Lion" else "")
        )
    groups = optimizer.param_groups
    problems = list(_problems(kind, optimizer, tensors))
    if problems:
        raise errors.ConfigError("\n".join(problems))
    names = {id(item.tensor): item.name for item in tensors if item.is_parameter}
    members = [[names[id(p)] for p in group["params"] if id(p) in names] for group in groups]
    settings = [_settings(kind, group) for group in groups]
    config_kind = _kind(kind, groups)
    if config_kind in ("SGD", "RMSPROP"):
        for setting in settings:
            del setting["momentum"]
    base = dict(settings[0])
    if "learning_rate" not in base:
        # Only what is pushed with each gradient counts. The config wants one above 0.
        base["learning_rate"] = next(
            (s["learning_rate"] for s in settings if "learning_rate" in s), 1.0
        )
    lines = [f"kind: {config_kind}", *_lines(base)]
    rules = []
    for setting, group_names in zip(settings, members):
        differing = {key: value for key, value in setting.items() if base[key] != value}
        if differing and group_names:
            rules.append((differing, group_names))
    problems = [
        f'optimizer: the parameter "{name}" is in a group of its own, but its name has a wildcard'
        " character, allowed: names without * and ?"
        for _, group_names in rules
        for name in group_names
        if _WILDCARDS & set(name)
    ]
    if problems:
        raise errors.ConfigError("\n".join(problems))
    for differing, group_names in rules:
        patterns = " ".join(
            f"tensors: {json.dumps(name, ensure_ascii=False)}" for name in group_names
        )
        lines.append(f"rule {{ {patterns} {' '.join(_lines(differing))} }}")
    return "\n".join(lines)


# What may change in a group while the run goes on: it goes with the gradients.
CHANGING = ("lr", "momentum", "betas", "alpha", "weight_decay", "eps")


def options_of(group: dict) -> dict:
    """Returns what must stay as it is in a parameter group while the run goes on."""
    fixed = {
        key: value
        for key, value in group.items()
        if key not in ("params", *CHANGING) and key not in _OTHERS
    }
    if "momentum" in group:
        # Without momentum torch.optim keeps its buffer as it is, and the shards do not.
        fixed["momentum != 0"] = group["momentum"] != 0
    return fixed


def options_of_kind(kind: str, group: dict) -> dict:
    """Returns what of options_of() a group must have that was made of a config. `kind` is
    OptimizerConfig.Kind. An option that the group has not is the config's."""
    has_momentum = kind in ("MOMENTUM", "NESTEROV", "DELAYED_NESTEROV", "RMSPROP_MOMENTUM")
    wanted = {
        "momentum != 0": has_momentum, "nesterov": kind == "NESTEROV",
        "amsgrad": kind.endswith("_AMSGRAD"), "maximize": False, "centered": False, "dampening": 0,
    }
    return {option: wanted[option] for option in options_of(group) if option in wanted}


def taken_over(group: dict, saved: dict, fixed: dict, place: str) -> dict:
    """Returns what a group has after it has taken over what was saved of one. Errors:
    InvalidArgument if what must stay as it is, options_of, would be another, or a number is
    missing."""
    for option in CHANGING:
        if option in group and option not in saved:
            raise errors.InvalidArgument(f'{place}["{option}"]: is missing, allowed: a number')
    taken = {
        **group,
        **{key: value for key, value in saved.items() if key != "params" and key not in SPEED},
    }
    now = options_of(taken)
    for option in {**fixed, **now}:
        if option == "decoupled_weight_decay" and option not in fixed:
            continue  # of a newer PyTorch, whose AdamW says so
        # What else only one version of PyTorch has is off.
        if now.get(option, False) != fixed.get(option, False):
            raise errors.InvalidArgument(
                f'{place}["{option}"]: is {now.get(option)!r}, allowed: {fixed.get(option)!r} as'
                " this optimizer has it"
            )
    return taken


def numbers_of(group: dict) -> tuple:
    """Returns what of a group goes with the gradients, in the order of
    _library.CHyperparameters. Errors: InvalidArgument for what is no number."""
    try:
        found = {
            option: float(group[option])
            for option in CHANGING
            if option in group and option != "betas"
        }
        betas: tuple = (found.get("momentum") or None, found.get("alpha"))
        if "betas" in group:
            beta1, beta2 = group["betas"]
            betas = float(beta1), float(beta2)
    except (TypeError, ValueError):
        raise errors.InvalidArgument(
            f"param_groups: has {text_of(group)}, allowed: numbers, and two of them as betas"
        ) from None
    return found["lr"], *betas, found.get("weight_decay"), found.get("eps")


def text_of(group: dict) -> str:
    """Returns what of a group goes with the gradients: "lr 0.1, momentum 0.9"."""
    return ", ".join(f"{option} {group[option]!r}" for option in CHANGING if option in group)


def strangers(
    optimizer: torch.optim.Optimizer, tensors: list[ModelTensor]
) -> Iterator[str]:
    """Yields a text for each parameter that requires a gradient and is none of the model's."""
    of_model = {id(item.tensor) for item in tensors}
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            if parameter.requires_grad and parameter.numel() and id(parameter) not in of_model:
                yield (
                    f'optimizer.param_groups[{number}]["params"][{index}]: of shape'
                    f" {tuple(parameter.shape)} is not a parameter of the model"
                )


def _problems(kind, optimizer, tensors):
    rule = _RULES[kind]
    known = {"params", "lr", *rule.fields, *SPEED, *_OTHERS}
    names = {id(item.tensor): item.name for item in tensors}
    for number, group in enumerate(optimizer.param_groups):
        place = f"optimizer.param_groups[{number}]"
        count = collections.Counter(id(parameter) for parameter in group["params"])
        for parameter, times in count.items():
            if times > 1 and parameter in names:
                yield (
                    f'{place}["params"]: has {names[parameter]} {times} times, and torch.optim'
                    " would step it as often; allowed: once, as model.parameters() has it"
                )
        for option, value in group.items():
            if option in rule.fixed:
                if value != rule.fixed[option]:
                    yield f'{place}["{option}"]: is {value!r}, allowed: {rule.fixed[option]!r}'
            elif option not in known and value:
                yield (
                    f'{place}["{option}"]: is {value!r}, allowed for torch.optim.{kind}: lr,'
                    f" {', '.join(rule.fields)}"
                )
    if _does_more(optimizer):
        yield (
            "optimizer: its step() has been replaced, or has hooks, which evenshard.Optimizer would"
            " not call; allowed: step() as torch.optim and its schedulers have it"
        )
    yield from _differing_problems(optimizer.param_groups)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    missing = [item.name for item in tensors if item.is_parameter and id(item.tensor) not in held]
    if missing:
        yield (
            f"optimizer: lacks {', '.join(missing)} of the model, allowed: all parameters that"
            " require a gradient; set requires_grad = False for the others"
        )
    yield from strangers(optimizer, tensors)


def _does_more(optimizer):
    """Whether the script has given step() something else to do."""
    step = vars(optimizer).get("step")
    # Schedulers wrap it, of PyTorch before 2.4 and since.
    is_plain = step is None or any(
        hasattr(step, mark) for mark in ("_with_counter", "_wrapped_by_lr_sched")
    )
    hooks = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    return not is_plain or any(getattr(optimizer, name, None) for name in hooks)


def _differing_problems(groups):
    # Without momentum, nesterov means nothing.
    nesterov = {bool(g["nesterov"]) for g in groups if "nesterov" in g and g["momentum"] != 0}
    if len(nesterov) > 1:
        yield "optimizer: nesterov differs between groups with momentum, allowed: one value for all"
    if len({bool(group.get("amsgrad")) for group in groups}) > 1:
        yield "optimizer: amsgrad differs between groups, allowed: one value for all"


def _kind(kind, groups):
    has_momentum = any(group.get("momentum", 0) != 0 for group in groups)
    if kind == "SGD" and has_momentum:
        is_nesterov = any(group["nesterov"] and group["momentum"] != 0 for group in groups)
        return "NESTEROV" if is_nesterov else "MOMENTUM"
    if kind == "RMSprop" and has_momentum:
        return "RMSPROP_MOMENTUM"
    if any(group.get("amsgrad") for group in groups):
        return f"{kind.upper()}_AMSGRAD"
    return kind.upper()


def _settings(kind, group):
    """The fields of the config by what a group has."""
    found = {}
    # A scheduler may have changed lr already. What the run agrees on must not depend on it.
    rate = float(group.get("initial_lr", group["lr"]))
    if rate > 0:
        found["learning_rate"] = rate
    for option, field in _RULES[kind].fields.items():
        if field:
            found[field] = float(group[option])
        elif option == "betas":
            found["beta1"], found["beta2"] = (float(beta) for beta in group["betas"])
    return found


def _lines(fields):
    return [f"{field}: {value!r}" for field, value in fields.items()]
