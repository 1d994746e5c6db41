"""The exchange of a model whose optimizer steps in this process: what comes back is the mean of all
workers' gradients (optimizer.kind MEAN)."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from evenshard import errors
from evenshard._torch.model_exchange import ModelExchange

_MOST_VALUES = 4096  # that one mean takes (evenshard_mean)


class GradientExchange(ModelExchange):
    """At the join parameters get rank 0's values, as with ModelExchange. From then on each has the
    mean in its `grad` when an iteration is over; None if no worker had a gradient. Whatever else
    changes parameters is up to the script, and is to be the same in all workers."""

    def _watched(self):
        return []

    def join(self) -> None:
        self._updates: dict[int, int] | None = None  # behind each mean, from the join on
        super().join()
        self._updates = {i: self.handle.updates(i) for i in self._numbers.values()}

    def _pushed(self):
        super()._pushed()
        self._require_equal()

    def _require_equal(self):
        """In the iterations in which contents are compared: errors: FailedPrecondition if the
        parameters that count are not the same in all workers."""
        if self.handle.workers == 1 or not self._unchanged.compares:
            return
        counted = [i for i in self._numbers.values() if i not in self.left_out]
        for begin in range(0, len(counted), _MOST_VALUES):
            part = counted[begin:begin + _MOST_VALUES]
            sums = [_checksum(self._tensors[i].tensor) for i in part]
            means = self.handle.mean(sums, "the comparison of parameters between workers")
            for i, own, mean in zip(part, sums, means):
                if own != mean:
                    raise errors.FailedPrecondition(
                        f"{self._tensors[i].name}: is not the same in all workers; allowed: changes"
                        " that all make alike, such as a checkpoint that all of them load, or that"
                        " rank 0 loads before evenshard.DistributedOptimizer is made"
                    )

    def _received(self, numbers):
        if self._updates is None:
            super()._received(numbers)
            return
        numbers = list(numbers)
        super()._received([i for i in numbers if not self._tensors[i].is_parameter])
        trained = [i for i in numbers if self._tensors[i].is_parameter]
        for i in self.left_out.intersection(trained):
            if self.handle.updates(i) != self._updates[i]:
                raise errors.FailedPrecondition(
                    f"{self._tensors[i].name}: another worker has stepped another"
                    f" DistributedOptimizer of the model in iteration {self.iteration - 1};"
                    " allowed: the same order in all workers"
                )
        trained = [i for i in trained if i not in self.left_out]
        with torch.no_grad():
            self._placement.received(list(self._means(trained)))
        self._missing.difference_update(numbers)

    def _means(self, numbers: Iterable[int]):
        """Those that have come, with where they go."""
        assert self._updates is not None
        for i in numbers:
            updates = self.handle.updates(i)
            parameter = self._tensors[i].tensor
            if updates == self._updates[i]:
                parameter.grad = None
                continue
            self._updates[i] = updates
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            yield i, parameter.grad


def _checksum(parameter):
    """A number for the bits of a tensor; so many of them add up exactly in double."""
    plain = parameter.detach().contiguous()
    words = {4: torch.int32, 2: torch.int16, 8: torch.int64}[plain.element_size()]
    return int(plain.view(words).sum(dtype=torch.int64)) % 2**40
