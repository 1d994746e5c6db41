"""What of a model is not trained: frozen parameters and persistent buffers. Rank 0's values count.

It pushes a value when that has changed, and the others receive it. What another worker changes is
undone when it is seen. docs/python.md has the table of what is exchanged how.
"""

from __future__ import annotations

import torch

from evenshard import errors
from evenshard._handle import Handle
from evenshard._torch.model import ModelTensor, is_exact
from evenshard._torch.unchanged import same, state_of


class Buffers:
    """What the buffers of one model were when they were pushed or received."""

    def __init__(self, handle: Handle, tensors: list[ModelTensor], placement):
        self._handle = handle
        self._tensors = tensors
        self._placement = placement
        self.reset()

    def reset(self) -> None:
        """All are to be taken from the run, by rank 0 too."""
        self._states = {}  # by number
        self._values = {}  # by number, of these states: their memory is not used for others
        self._updates = {}  # by number, behind what was received last
        self._hidden = set()  # those that change and keep their state, as through `.data`

    def must_push(self, i: int, compares: bool) -> bool:
        """Whether this worker has a value that the run is to have. With `compares`, contents are
        looked at too. Errors: TensorError if it cannot be pushed."""
        if self._handle.rank != 0 or not self._has_changed(i, compares):
            return False
        item = self._tensors[i]
        if not is_exact(item.value):
            raise errors.TensorError(
                f"{item.name}: has values now that float32 cannot hold; allowed: those that it can"
            )
        return True

    def must_take(self, i: int, compares: bool) -> bool:
        """Whether what has been received replaces the model's value. `compares`: as above."""
        updates = self._handle.updates(i)
        before = self._updates.get(i)
        self._updates[i] = updates
        if self._handle.rank == 0:
            return before is None
        return updates != before or self._has_changed(i, compares)

    def _has_changed(self, i, compares):
        """Whether the script has changed a value since it was pushed or taken."""
        value = self._tensors[i].value
        if state_of(value) != self._states.get(i):
            return True
        if not compares and i not in self._hidden:
            return False
        if same(value.to(torch.float32), self._placement.parameter(i)):
            return False
        self._hidden.add(i)
        return True

    def agrees(self, i: int) -> None:
        """The value has just been pushed or taken."""
        self._values[i] = self._tensors[i].value
        self._states[i] = state_of(self._values[i])
