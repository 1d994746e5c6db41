"""Notices what a script changes behind the exchange: parameters, and gradients that have left.

A tensor's version counter and address show most changes at no cost. They do not show a write
through `.data` or through numpy, so that contents are compared too, in the first iterations and at
intervals after them. docs/performance.md says what that costs.
"""

from __future__ import annotations

import collections
import ctypes

import torch

from evenshard import errors
from evenshard._torch.model import ModelTensor

SEQUENTIAL_HINT = (
    "allowed under the schedule SEQUENTIAL: `evenshard run --schedule SEQUENTIAL`, or"
    " exchange { schedule: SEQUENTIAL } in the config"
)

# Contents are compared in so many iterations of this worker at first, and in every so many-th then.
_FIRST = 10
_INTERVAL = 32
_PIECE = 1 << 20  # elements

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Unchanged:
    """What the tensors of one model were when they were received or staged."""

    def __init__(
        self, tensors: list[ModelTensor], placement, parameters: list[int], is_early: bool
    ):
        """Of `parameters` nobody but the exchange may change the values. `is_early`: gradients
        leave before step(), so that the script comes between begin() and check()."""
        self._tensors = tensors
        self._placement = placement
        self._parameters = parameters
        self._watched = set(parameters)
        self._is_early = is_early
        # Since begin(), if contents are compared, until the next values come.
        self._checksums: dict[int, int] = {}
        self._states = [(0, 0)] * len(tensors)
        # Views of one tensor share its version.
        self._same_version = _on_one_storage([tensors[i].tensor for i in parameters], parameters)
        self._iterations = 0  # that have begun
        self.compares = False  # contents, in this iteration
        self._is_under_way = False

    def received(self, numbers) -> None:
        """These have just been given to the model."""
        for i in numbers:
            for each in self._same_version.get(i, (i,)):
                self._states[each] = state_of(self._tensors[each].tensor)

    def under_way(self) -> None:
        """The next parameters have been asked for, and the model has the old ones until then."""
        self.received(self._parameters)
        self._is_under_way = True

    def arrived(self, numbers) -> None:
        """Before these are given to the model. Errors: FailedPrecondition if the script has changed
        one since under_way(), by a reference that it keeps."""
        for i in numbers:
            if i not in self._watched:
                continue
            is_seen = self._tensors[i].tensor._version != self._states[i][0]
            if is_seen or (self._is_under_way and self._differs(i)):
                self._refuse(i, "while its next value was under way")

    def begin(self, iteration: int) -> None:
        """Nothing is under way, and nothing of this iteration has been pushed. Errors:
        FailedPrecondition if the script has changed a parameter since it was received."""
        self.compares = compares_in(self._iterations)
        self._iterations += 1
        self._is_under_way = False
        self._checksums.clear()
        for i in self._parameters:
            parameter = self._tensors[i].tensor
            state = state_of(parameter)
            if state != self._states[i] or self.compares:
                if not same(parameter, self._placement.parameter(i)):
                    self._refuse(i, f"before iteration {iteration}")
                self._states[i] = state
            if self.compares and self._is_early:
                self._checksums[i] = checksum(parameter)

    def require(self, when: str) -> None:
        """Errors: FailedPrecondition if the script has changed a parameter since it was received.
        Compares contents."""
        for i in self._parameters:
            if not same(self._tensors[i].tensor, self._placement.parameter(i)):
                self._refuse(i, when)

    def check(self, staged: dict) -> None:
        """Before the rest of the iteration is pushed. `staged` has the gradients that left early,
        each with its version then, and its checksum unless the exchanged memory still has it.
        Errors: FailedPrecondition if the script has changed one of them, or a parameter since
        begin()."""
        for i in self._parameters:
            if state_of(self._tensors[i].tensor) != self._states[i] or self._differs(i):
                self._refuse(i, "between backward() and step()")
        for i, (gradient, version, bits) in staged.items():
            item = self._tensors[i]
            is_seen = version_of(gradient) != version
            # Writes to other views of the same tensor raise a view's version.
            is_written = is_seen and gradient._base is None
            if (
                item.tensor.grad is not gradient
                or is_written
                or ((is_seen or self.compares) and not self._is_staged(i, gradient, bits))
            ):
                raise errors.FailedPrecondition(
                    f"{item.name}: its gradient was changed after it had been pushed, between"
                    " backward() and step(), as clip_grad_norm_, clip_grad_value_ and"
                    " GradScaler.unscale_ do. To clip, give evenshard.Optimizer clip_grad_norm= or"
                    " clip_grad_value=, which clip the mean of all workers' gradients, as one"
                    " process does; these functions would clip each worker's by itself. Other"
                    " changes are " + SEQUENTIAL_HINT
                )

    def _differs(self, i):
        return i in self._checksums and checksum(self._tensors[i].tensor) != self._checksums[i]

    def _is_staged(self, i, gradient, bits):
        if bits is not None:
            return checksum(gradient) == bits
        self._placement.await_copies()
        staged = self._placement.gradient(i)
        return same(gradient.to(staged.dtype), staged)

    def _refuse(self, i, when):
        raise errors.FailedPrecondition(
            f"{self._tensors[i].name}: was changed by the script {when}, and the next parameters"
            " from the shards would undo that; allowed: changes in `with optimizer.assign():`, and"
            " before evenshard.Optimizer is made"
        )


def compares_in(iteration: int) -> bool:
    """Whether contents are compared in this iteration, counted from the start of the process."""
    return iteration < _FIRST or iteration % _INTERVAL == 0


def _on_one_storage(tensors, numbers) -> dict[int, list[int]]:
    """By number, those that share their memory, where there are several."""
    found = collections.defaultdict(list)
    for tensor, number in zip(tensors, numbers):
        begin = tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()
        found[begin].append(number)
    return {i: group for group in found.values() if len(group) > 1 for i in group}


def version_of(tensor: torch.Tensor) -> int:
    """Tensors that were made in inference mode have none: what changes them is seen by contents."""
    return 0 if tensor.is_inference() else tensor._version


def state_of(tensor):
    return version_of(tensor), tensor.data_ptr()


def same(tensor: torch.Tensor, exchanged: torch.Tensor) -> bool:
    """Whether a tensor has the bits of what lies in the exchanged memory."""
    if tensor.dtype != exchanged.dtype or tensor.shape != exchanged.shape:
        return False
    plain = tensor.detach().cpu().contiguous()
    size = plain.element_size() * plain.numel()
    return _memcmp(plain.data_ptr(), exchanged.data_ptr(), size) == 0


def checksum(parameter: torch.Tensor) -> int:
    """A number for the bits of a tensor, and their order."""
    plain = parameter.detach().contiguous().reshape(-1)
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(plain.element_size(), torch.uint8)
    # PyTorch converts what it multiplies: so much at a time.
    total = 0
    for number, piece in enumerate(plain.view(words).split(_PIECE)):
        begin = 2 * number * _PIECE + 1
        odd = torch.arange(begin, begin + 2 * len(piece), 2, device=piece.device)
        total += int((odd * piece).sum())
    return total % 2**40
