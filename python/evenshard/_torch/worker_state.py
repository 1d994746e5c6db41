"""What the workers of DistributedOptimizer keep by themselves: parameters and the optimizers'
state, as bytes that one of them sends and another one takes.

The bytes are a number, the length of the text after it, the text, and the tensors that it leaves
out, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import torch

from evenshard import _library, errors
from evenshard._handle import Handle
from evenshard._torch import state_text as _state_text

_ALIGNMENT = 64
_PLACE = "the optimizer's state"
_padding = ctypes.create_string_buffer(_ALIGNMENT)


class WorkerState:
    """Sends one worker's state, and takes another one's."""

    def __init__(self, handle: Handle, model: torch.nn.Module):
        self._handle = handle
        self._model = model
        # All DistributedOptimizers of the worker in the order in which they were made, also those
        # that have been closed: the others may need their state.
        self._optimizers: list[Any] = []
        self._kept: list = []  # what is being sent
        # Of the optimizers whose state was taken and that have not begun an iteration.
        self._taken: list[dict] | None = None
        self._is_of_iteration = False  # the sender had begun the iteration

    def take(self) -> None:
        """Gives the model the parameters of another worker. Errors: those of
        evenshard_receive_state; FailedPrecondition if they do not fit."""
        received = self._handle.receive_state()
        try:
            state = _unpacked(received, next(self._model.parameters()).device)
        finally:
            self._handle.free_state()
        self._taken, self._is_of_iteration = state["optimizers"], state["in_iteration"]
        own = dict(self._model.named_parameters())
        if own.keys() != state["parameters"].keys():
            names = sorted(own.keys() ^ state["parameters"].keys())
            self._refuse(f"the models have not the same parameters: {', '.join(names)}")
        with torch.no_grad():
            for name, value in state["parameters"].items():
                own[name].copy_(value)

    def add(self, optimizer: Any) -> None:
        """One more optimizer, which gets what was taken for it, if anything was. With the last one
        other workers may take this one's state. Errors: FailedPrecondition."""
        self._optimizers.append(optimizer)
        count = len(self._optimizers)
        if self._taken is not None:
            if count > len(self._taken):
                self._refuse(f"it has optimizers: {len(self._taken)}, and this is number {count}")
            self._load(optimizer, self._taken[count - 1])
        if self._taken is None or count == len(self._taken):
            self._handle.give_state(self._parts)

    def _load(self, optimizer, taken):
        try:
            _load(optimizer, taken)
        except Exception as error:
            raise self._refusal(f"{type(error).__name__}: {error}") from error
        text, tensors = _encoded(taken)
        now, own = _encoded(optimizer.state_dict())
        if now != text or not all(map(_same, own, tensors)):
            self._refuse("its state_dict() is another one after load_state_dict()")

    def groups(self) -> list[dict]:
        """Of all optimizers of the worker."""
        return [group for each in self._optimizers for group in each.param_groups]

    def begin(self) -> None:
        """Before an iteration. Errors: FailedPrecondition if the script has not continued with what
        was taken."""
        if self._taken is None:
            return
        if len(self._optimizers) < len(self._taken):
            self._refuse(
                f"it has optimizers: {len(self._taken)}, and this worker: {len(self._optimizers)}"
            )
        for optimizer, taken in zip(self._optimizers, self._taken):
            now, then = _options(optimizer.state_dict()), _options(taken)
            if self._is_of_iteration and now != then:
                self._refuse(
                    f"its optimizer has {_difference(then, now)}; allowed: what sets it, such as a"
                    ' scheduler, in optimizer.register_state("scheduler", scheduler)'
                )
        self._taken = None

    def _refuse(self, why):
        raise self._refusal(why)

    def _refusal(self, why):
        return errors.FailedPrecondition(
            f"rank {self._handle.rank} cannot go on with what the run has at iteration"
            f" {self._handle.iteration}: {why}"
        )

    def _parts(self):
        if any(optimizer._is_synchronized for optimizer in self._optimizers):
            raise errors.FailedPrecondition(
                "it waits in a mean() or barrier() between synchronize() and step(), and has not"
                " stepped; allowed: before synchronize(), or after step()"
            )
        text, tensors = _encoded({
            "in_iteration": self._handle.phase != _library.IDLE,
            "parameters": {n: p.detach() for n, p in self._model.named_parameters()},
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        })
        text_bytes = text.encode()
        header = ctypes.create_string_buffer(
            len(text_bytes).to_bytes(8, "little") + text_bytes, 8 + len(text_bytes)
        )
        plain = [tensor.cpu().contiguous() for tensor in tensors]
        self._kept = [header, plain]
        parts = [(ctypes.addressof(header), len(header))]
        parts += ((data.data_ptr(), data.numel()) for data in map(_bytes_of, plain))
        return list(_padded(parts))


def _padded(parts: Iterable[tuple[int, int]]):
    for address, size in parts:
        yield address, size
        if rest := -size % _ALIGNMENT:
            yield ctypes.addressof(_padding), rest


def _encoded(state) -> tuple[str, list[torch.Tensor]]:
    """As a text, with what is needed of each tensor to make it from bytes."""
    tensors: list[torch.Tensor] = []
    text = _state_text.encode(state, _PLACE, apart=tensors)
    kinds = [[str(t.dtype).split(".")[1], list(t.shape), t.device.type] for t in tensors]
    return _state_text.encode([text, kinds], _PLACE), tensors


def _unpacked(received: ctypes.Array, device: torch.device) -> dict:
    """A state whose tensors are in memory of their own. Those that were on a device are on
    `device`."""
    data = torch.frombuffer(received, dtype=torch.uint8)
    end = 8 + int.from_bytes(bytes(received[:8]), "little")
    text, kinds = _state_text.decode(bytes(received[8:end]).decode(), None)
    tensors = []
    for dtype, shape, device_type in kinds:
        tensor = torch.empty(shape, dtype=getattr(torch, dtype))
        plain = _bytes_of(tensor)
        end += -end % _ALIGNMENT
        plain.copy_(data[end:end + plain.numel()])
        end += plain.numel()
        where = device if device.type == device_type else torch.device(device_type)
        tensors.append(tensor.to(where))
    return _state_text.decode(text, None, tensors)


def _load(optimizer, taken):
    """As load_state_dict(), which would convert an optimizer's state to the types of the
    parameters. One that has its own does that by itself."""
    given = optimizer._optimizer
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
        group.update((key, value) for key, value in options.items() if key != "params")


def _options(state):
    return [
        {key: value for key, value in group.items() if key != "params"}
        for group in state.get("param_groups", ())
    ]


def _difference(then, now):
    for i, (there, here) in enumerate(zip(then, now)):
        for key in [*there, *here]:
            if there.get(key) != here.get(key):
                return f"{key} {here.get(key)} in group {i}, and the run has {there.get(key)}"
    return f"{len(now)} groups, and the run has {len(then)}"


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() == 0:
        return torch.empty(0, dtype=torch.uint8)
    return tensor.reshape(-1).view(torch.uint8)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """To the bit, so that NaN equals itself."""
    return torch.equal(*(_bytes_of(t.cpu().contiguous()) for t in (one, other)))
