"""A state on its way from one worker to another: a text, and tensors of any size beside it."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from evenshard._torch import state_text as _state_text

PLACE = "the optimizer's state"  # for errors


def pack(
    head: Any, text: str, tensors: list[torch.Tensor]
) -> tuple[tuple[bytes, list[tuple[int, int]]], list[torch.Tensor]]:
    """What Handle.give_state takes, and the tensors that hold it."""
    tensors = [tensor if _is_dense(tensor) else tensor.contiguous() for tensor in tensors]
    kept = [tensor.cpu() for tensor in tensors]
    packed = _state_text.encode([head, [kind_of(tensor) for tensor in tensors], text], PLACE)
    return (packed.encode(), parts_of(kept)), kept


def unpack(packed: bytes) -> tuple[Any, list[list], str]:
    """The head, the kind of each tensor, and the text."""
    head, kinds, text = _state_text.decode(packed.decode(), None)
    return head, kinds, text


def room_for(kind: list) -> torch.Tensor:
    """In this process's memory."""
    dtype, shape, strides, _ = kind
    return torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device="cpu")


def to_device(tensor: torch.Tensor, kind: list, model: torch.device) -> torch.Tensor:
    """Where it was at the sender; what was on a device is on that of the model."""
    return tensor.to(model if model.type == kind[3] else kind[3])


def parts_of(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    """Where each of them is, and its bytes."""
    return [(tensor.data_ptr(), tensor.numel() * tensor.element_size()) for tensor in tensors]


def warn_unless_it_travels(optimizer: torch.optim.Optimizer) -> None:
    """Says once what would end a run only after a worker was lost."""
    try:
        _state_text.encode(optimizer.state_dict(), PLACE, apart=[])
    except Exception as error:  # pylint: disable=broad-except
        warnings.warn(
            f"{error}. A worker that was started again could not go on, since it gets the"
            " optimizer's state from another one; the training itself needs nothing of that"
        )


def kind_of(tensor: torch.Tensor) -> list:
    """What it takes to make one like it. Its strides too: torch rounds bfloat16 in another way at
    the end of a run of elements than within."""
    dtype = str(tensor.dtype).split(".")[1]
    return [dtype, list(tensor.shape), list(tensor.stride()), tensor.device.type]


def load(given: torch.optim.Optimizer, taken: dict) -> None:
    """As load_state_dict(), which would convert an optimizer's state to the types of the
    parameters. One that has its own does that by itself."""
    if type(given).load_state_dict is not torch.optim.Optimizer.load_state_dict:
        given.load_state_dict(taken)
        return
    groups = given.param_groups
    if [len(g["params"]) for g in groups] != [len(g["params"]) for g in taken["param_groups"]]:
        raise ValueError("its groups have not the same numbers of parameters")
    parameters = [p for group in groups for p in group["params"]]
    numbers = [number for group in taken["param_groups"] for number in group["params"]]
    by_number = dict(zip(numbers, parameters))
    given.state.clear()
    for key, value in taken["state"].items():
        given.state[by_number.get(key, key)] = value
    for group, options in zip(groups, taken["param_groups"]):
        for key, value in options.items():
            if isinstance(value, torch.Tensor) and isinstance(group.get(key), torch.Tensor):
                group[key].detach().copy_(value)  # the script may keep it, and fill it
            elif key != "params":
                group[key] = value


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a piece of memory, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1 and stride != expected:
            return tensor.numel() == 0
        expected *= size
    return True
