"""What the workers of DistributedOptimizer keep by themselves: parameters and the optimizers'
state, which one of them sends and another one takes."""

from __future__ import annotations

from typing import Any

import torch

from evenshard import _library, errors
from evenshard._handle import Handle
from evenshard._torch import state_parts as _state_parts
from evenshard._torch import state_text as _state_text
from evenshard._torch import stepped_by as _stepped_by
from evenshard._torch.gradient_exchange import GradientExchange
from evenshard._torch.unchanged import checksum, same


class WorkerState:
    """Sends one worker's state, and takes another one's."""

    def __init__(self, handle: Handle, exchange: GradientExchange, model: torch.nn.Module):
        self._handle = handle
        self._exchange = exchange
        self._model = model
        # All DistributedOptimizers of the worker in the order in which they were made, also those
        # that have been closed: the others may need their state.
        self._optimizers: list[Any] = []
        self._kept: list[torch.Tensor] = []  # what is being sent
        # The text of what has arrived, its tensors in this process's memory, and the kind of each.
        self._arrived: tuple[str, list[torch.Tensor], list[list]] = ("", [], [])
        # Until an iteration begins: the texts of the optimizers' states that were taken, with their
        # tensors, and those that an optimizer has.
        self._texts: list[str] = []
        self._tensors: list[torch.Tensor] = []
        self._taken: list[dict] | None = None
        self._sums: list[int] = []  # of the parameters that were taken
        self._is_of_iteration = False  # the sender had begun the iteration

    def take(self) -> None:
        """Gives the model the parameters of another worker. Errors: those of
        evenshard_receive_state; FailedPrecondition if they do not fit."""
        self._handle.receive_state(self._place)
        text, tensors, kinds = self._arrived
        self._arrived = ("", [], [])
        own = [parameter for _, parameter in self._model.named_parameters()]
        with torch.no_grad():
            for parameter, value in zip(own, tensors):
                if parameter.data_ptr() != value.data_ptr():
                    parameter.copy_(value)
        for i in range(len(own), len(tensors)):
            tensors[i] = _state_parts.to_device(tensors[i], kinds[i], own[0].device)
        self._sums = [checksum(parameter) for parameter in own]
        state = _state_text.decode(text, None)
        self._texts, self._tensors = state["optimizers"], tensors
        self._taken, self._is_of_iteration = [], state["in_iteration"]
        self._exchange.updates = state["updates"]

    def _place(self, text_bytes):
        """Where the state goes that this text describes: parameters to the model, if they lie there
        as they are sent."""
        names, kinds, text = _state_parts.unpack(text_bytes)
        own = dict(self._model.named_parameters())
        if list(own) != names:
            self._refuse("the models have not the same parameters")
        tensors = []
        for i, kind in enumerate(kinds):
            dtype, shape, strides, _ = kind
            target = own[names[i]].detach() if i < len(names) else None
            if target is not None and _state_parts.kind_of(target)[:2] != [dtype, shape]:
                self._refuse(
                    f"{names[i]} is {target.dtype}, {list(target.shape)}, there {dtype}, {shape}"
                )
            is_there = target is not None and list(target.stride()) == strides
            if not is_there or target.device.type != "cpu":
                target = _state_parts.room_for(kind)
            tensors.append(target)
        self._arrived = text, tensors, kinds
        return _state_parts.parts_of(tensors)

    def add(self, optimizer: Any) -> None:
        """One more optimizer, which gets what was taken for it, if anything was. With the last one
        other workers may take this one's state. Errors: FailedPrecondition."""
        self._optimizers.append(optimizer)
        count = len(self._optimizers)
        if self._taken is not None:
            if count > len(self._texts):
                self._refuse(f"it has optimizers: {len(self._texts)}, and this is number {count}")
            self._taken.append(self._load(optimizer, self._texts[count - 1]))
        if self._taken is None or count == len(self._texts):
            self._handle.give_state(self._parts)

    def _load(self, optimizer, text_of_state):
        try:
            taken = _state_text.decode(text_of_state, optimizer.state_dict(), self._tensors)
            _state_parts.load(optimizer._optimizer, taken)
        except Exception as error:
            raise self._refusal(f"{type(error).__name__}: {error}") from error
        if not _are_same(taken, optimizer.state_dict()):
            self._refuse("its state_dict() is another one after load_state_dict()")
        return taken

    def texts(self) -> list[str]:
        """What all optimizers of the worker are."""
        return [_stepped_by.text_of(each._optimizer) for each in self._optimizers]

    def groups(self) -> list[dict]:
        """Of all optimizers of the worker."""
        return [group for each in self._optimizers for group in each.param_groups]

    def begin(self) -> None:
        """Before an iteration. Errors: FailedPrecondition if the script has not continued with what
        was taken."""
        self._kept = []
        if self._taken is None:
            return
        if len(self._optimizers) < len(self._texts):
            self._refuse(
                f"it has optimizers: {len(self._texts)}, and this worker: {len(self._optimizers)}"
            )
        for optimizer, taken in zip(self._optimizers, self._taken):
            now, then = _options(optimizer.state_dict()), _options(taken)
            if self._is_of_iteration and not _are_same(now, then):
                self._refuse(
                    f"its optimizer has {_difference(then, now)}; allowed: what sets it, such as a"
                    ' scheduler, in optimizer.register_state("scheduler", scheduler)'
                )
        for (name, parameter), taken_sum in zip(self._model.named_parameters(), self._sums):
            if self._is_of_iteration and checksum(parameter) != taken_sum:
                self._refuse(
                    f"{name} was changed before the first backward(), and the sender had done that"
                    " already; allowed: changes right after step()"
                )
        self._taken, self._texts, self._tensors = None, [], []

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
        names, parameters = zip(*self._model.named_parameters())
        tensors = [parameter.detach() for parameter in parameters]
        texts = [
            _state_text.encode(optimizer.state_dict(), _state_parts.PLACE, apart=tensors)
            for optimizer in self._optimizers
        ]
        text = _state_text.encode(
            {
                "in_iteration": self._handle.phase != _library.IDLE,
                "updates": self._exchange.updates, "optimizers": texts,
            },
            _state_parts.PLACE,
        )
        parts, self._kept = _state_parts.pack(list(names), text, tensors)
        return parts


def _are_same(one, other) -> bool:
    """Whether two states are, to the bit."""
    (text, tensors), (other_text, others) = _encoded(one), _encoded(other)
    return text == other_text and all(map(_same, tensors, others))


def _encoded(state) -> tuple[str, list[torch.Tensor]]:
    tensors: list[torch.Tensor] = []
    text = _state_text.encode(state, _state_parts.PLACE, apart=tensors)
    kinds = [_state_parts.kind_of(tensor) for tensor in tensors]
    return _state_text.encode([text, kinds], _state_parts.PLACE), tensors


def _options(state):
    return [
        {key: value for key, value in group.items() if key != "params"}
        for group in state.get("param_groups", ())
    ]


def _difference(then, now):
    for i, (there, here) in enumerate(zip(then, now)):
        for key in [*there, *here]:
            if not _are_same(there.get(key), here.get(key)):
                return f"{key} {here.get(key)} in group {i}, and the run has {there.get(key)}"
    return f"{len(now)} groups, and the run has {len(then)}"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() or same(one, other.cpu().contiguous())
