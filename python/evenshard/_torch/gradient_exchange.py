"""The exchange of a model whose optimizer steps in this process: what comes back is the mean of all
workers' gradients (optimizer.kind MEAN)."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterable

import torch

from evenshard import errors
from evenshard._handle import Handle
from evenshard._torch.model import ModelTensor, is_expanded, on_same_memory
from evenshard._torch.model_exchange import ModelExchange
from evenshard._torch.unchanged import checksum, compares_in

# What is compared between workers goes to the shards with what is registered, of which there is
# little room: by name, and of very many tensors several together.
_COMPARED = "the parameters "
_MOST_COMPARED = 256
_OPTIONS = "the options of the optimizers"


class GradientExchange(ModelExchange):
    """At the join parameters get rank 0's values, as with ModelExchange. From then on each has the
    mean in its `grad` when an iteration is over; None if no worker had a gradient. Whatever else
    changes parameters is up to the script, and is to be the same in all workers."""

    def __init__(
        self, handle: Handle, tensors: list[ModelTensor], options: Callable[[], list[str]]
    ):
        """options: returns those of the optimizers, a text each."""
        super().__init__(handle, tensors)
        self._options = options
        self.compares_each = 0  # whether contents are compared in each iteration, if above 0
        # How many updates lie behind each mean that was received last; None until the worker has
        # joined. Where a worker that was started again goes on, a shard may have the next mean
        # already, so that it gets these from another worker.
        self.updates: dict[int, int] | None = None

    def _watched(self):
        return []

    def join(self) -> None:
        super().join()
        self.updates = {i: self.handle.updates(i) for i in self._numbers.values()}

    def begin(self, contributes: bool, numbers: ctypes.Array | None) -> None:
        """Also errors: FailedPrecondition if the parameters that are trained, or the options of the
        optimizers, are not the same in all workers, in the iterations in which contents are
        compared."""
        try:
            super().begin(contributes, numbers)
        except errors.FailedPrecondition as error:
            if error.differing_state == _OPTIONS:
                raise errors.FailedPrecondition(
                    f"{_OPTIONS} are not the same in all workers, here"
                    f" {'; '.join(self._options())}; allowed: schedules that all follow alike; in"
                    " join() those of a worker without data too, by join(step=FUNCTION) with the"
                    " scheduler in it"
                ) from error
            if not error.differing_state.startswith(_COMPARED):
                raise
            raise errors.FailedPrecondition(
                f"{error.differing_state[len(_COMPARED):]}: is not the same in all workers;"
                " allowed: changes that all make alike, such as a checkpoint that all of them load,"
                " or that rank 0 loads before evenshard.DistributedOptimizer is made, and steps"
                " that come of nothing but the gradients that were exchanged, by optimizers that"
                " are each given to an evenshard.DistributedOptimizer"
            ) from error

    def _compared(self):
        # By the iterations of the run, so that a worker that was started again does it with the
        # others.
        if self.handle.workers == 1 or not (
            self.compares_each or compares_in(self.handle.iteration)
        ):
            return {}
        counted = sorted(self._numbers.values())
        size = -(-len(counted) // _MOST_COMPARED) or 1
        compared = {_OPTIONS: hashlib.sha256("\n".join(self._options()).encode()).hexdigest()[:16]}
        for begin in range(0, len(counted), size):
            tensors = [self._tensors[i] for i in counted[begin:begin + size]]
            name = tensors[0].name if size == 1 else f"{tensors[0].name} to {tensors[-1].name}"
            sums = ",".join(f"{checksum(item.tensor):x}" for item in tensors)
            compared[_COMPARED + name] = hashlib.sha256(sums.encode()).hexdigest()[:16]
        return compared

    def _received(self, numbers):
        if self.updates is None:
            super()._received(numbers)
            return
        numbers = list(numbers)
        super()._received([i for i in numbers if not self._tensors[i].is_parameter])
        trained = [i for i in numbers if self._tensors[i].is_parameter]
        for i in self.left_out.intersection(trained):
            if self.handle.updates(i) != self.updates[i]:
                raise errors.FailedPrecondition(
                    f"{self._tensors[i].name}: another worker has stepped another"
                    f" DistributedOptimizer of the model in iteration {self.iteration - 1};"
                    " allowed: the same order in all workers"
                )
        trained = [i for i in trained if i not in self.left_out]
        if trained:
            with torch.no_grad():
                self._placement.received(list(self._means(trained)))
        self._missing.difference_update(numbers)

    def _means(self, numbers: Iterable[int]):
        """Those that have come, with where they go."""
        assert self.updates is not None
        shared = self._with_shared_gradients()
        for i in numbers:
            updates = self.handle.updates(i)
            parameter = self._tensors[i].tensor
            if updates == self.updates[i]:
                parameter.grad = None
                continue
            self.updates[i] = updates
            gradient = parameter.grad
            if (
                gradient is None or i in shared or is_expanded(gradient)
                or gradient.is_inference()
            ):
                parameter.grad = torch.empty_like(parameter)
            yield i, parameter.grad

    def _with_shared_gradients(self):
        """Parameters with a gradient on the memory of another's, as torch.autograd.grad() returns
        for the operands of a sum."""
        gradients = (
            (gradient, i) for i in self._numbers.values()
            if (gradient := self._tensors[i].tensor.grad) is not None
            and gradient.layout == torch.strided
        )
        return {i for pair in on_same_memory(gradients) for i in pair}
