"""Says it when a script changes its gradients by itself under the schedule SEQUENTIAL.

Nothing has left then, so that the change counts. But it is one worker's own: clipping by norm, the
usual one, is another rule than one process's if it is done before the mean.
"""

from __future__ import annotations

import logging

from evenshard._torch.gradient_hooks import on_gradient
from evenshard._torch.model import ModelTensor

_log = logging.getLogger("evenshard")


class OwnChanges:
    """Watches the gradients of some parameters of a model."""

    def __init__(self, parameters: list[ModelTensor]):
        self._versions = {}  # of gradients as backward() left them, by the parameter's number
        self.hooks = [
            on_gradient(item.tensor, self._noting(i, item)) for i, item in enumerate(parameters)
        ]
        self._parameters = parameters

    def _noting(self, i, item):
        def note(*_):
            self._versions[i] = item.tensor.grad._version

        return note

    def look(self) -> None:
        """In step(). Warns of the first change, and watches no longer."""
        for i, version in self._versions.items():
            gradient = self._parameters[i].tensor.grad
            if gradient is not None and gradient._version != version:
                _log.warning(
                    "%s: its gradient was changed between backward() and step(), in this worker and"
                    " before the mean. clip_grad_norm_ would clip each worker's gradient by itself:"
                    " evenshard.Optimizer(..., clip_grad_norm=) clips the mean",
                    self._parameters[i].name,
                )
                for hook in self.hooks:
                    hook.remove()
                break
        self._versions.clear()
