"""The state of the optimizer that evenshard.LocalSteps steps, which a worker that was started again
gets from another one."""

from __future__ import annotations

import torch

from evenshard import errors
from evenshard._handle import Handle
from evenshard._torch import state_parts as _state_parts
from evenshard._torch import state_text as _state_text


class InnerState:
    """Sends one worker's, and takes another one's. Each worker has a state of its own: what is sent
    is that at the end of the round after which the other one goes on."""

    def __init__(self, handle: Handle, optimizer: torch.optim.Optimizer):
        self._handle = handle
        self._optimizer = optimizer
        self._kept: list[torch.Tensor] = []  # what is being sent
        # What has arrived: its text, and its tensors in this process's memory with their kinds.
        self._arrived: tuple[str, list[torch.Tensor], list[list]] = ("", [], [])

    def give(self) -> None:
        """From now on others may take it."""
        if self._handle.waits_for_workers:
            self._handle.give_state(self._parts)

    def take(self) -> bool:
        """Gives the optimizer the state of another worker, if one has any; its options stay. Waits
        for that one to end its round. Returns False if the others have ended the round before, with
        what this worker had pushed before it was started again. Errors: FailedPrecondition if the
        state does not load."""
        if not self._handle.waits_for_workers:
            return True
        try:
            self._handle.receive_state(self._place)
        except errors.Error as error:
            if error.status in ("NOT_FOUND", "OUT_OF_RANGE"):
                return error.status == "NOT_FOUND"
            raise
        text, tensors, kinds = self._arrived
        self._arrived = ("", [], [])
        groups = self._optimizer.param_groups  # some may have no parameters
        model = next(tensor for group in groups for tensor in group["params"]).device
        tensors = [
            _state_parts.to_device(tensor, kind, model) for tensor, kind in zip(tensors, kinds)
        ]
        own = self._optimizer.state_dict()
        try:
            taken = _state_text.decode(text, own, tensors)
            taken["param_groups"] = own["param_groups"]
            _state_parts.load(self._optimizer, taken)
        except Exception as error:
            raise errors.FailedPrecondition(
                f"rank {self._handle.rank} cannot load the state of another worker's optimizer at"
                f" round {self._handle.iteration}: {type(error).__name__}: {error}"
            ) from error
        return True

    def _place(self, packed):
        _, kinds, text = _state_parts.unpack(packed)
        tensors = [_state_parts.room_for(kind) for kind in kinds]
        self._arrived = text, tensors, kinds
        return _state_parts.parts_of(tensors)

    def _parts(self):
        tensors: list[torch.Tensor] = []
        state = self._optimizer.state_dict()
        text = _state_text.encode(state, _state_parts.PLACE, apart=tensors)
        parts, self._kept = _state_parts.pack(None, text, tensors)
        return parts
