"""Says it when a script changes its gradients by itself, and the change counts.

It counts in a hook, and under the schedule SEQUENTIAL until step(). But it is one worker's own:
clipping, the usual one, is another rule than one process's if it is done before the mean.
"""

from __future__ import annotations

import logging

from evenshard._torch.gradient_hooks import has_other_hooks, on_gradient
from evenshard._torch.model import ModelTensor
from evenshard._torch.unchanged import version_of

_log = logging.getLogger("evenshard")


class OwnChanges:
    """Watches the gradients of some parameters of a model."""

    def __init__(self, parameters: list[ModelTensor], are_kept: bool, instead: str):
        """`are_kept`: whether gradients stay in the model until step(). `instead`: what clips the
        mean."""
        self._instead = instead
        self._versions = {}  # of gradients as backward() left them, by the parameter's number
        self.hooks = [
            on_gradient(item.tensor, self._noting(i, item))
            for i, item in enumerate(parameters)
            if are_kept
        ]
        self._parameters = parameters
        self._looks_for_hooks = True

    def _noting(self, i, item):
        def note(*_):
            self._versions[i] = version_of(item.tensor.grad)

        return note

    def look(self) -> None:
        """In step(). Warns of the first change, and of the first hook, and watches no longer."""
        self._look_for_hooks()
        for i, version in self._versions.items():
            gradient = self._parameters[i].tensor.grad
            if gradient is None or gradient._base is not None:
                continue  # a write to another view of the same tensor raises the version, too
            if version_of(gradient) != version:
                _log.warning(
                    "%s: its gradient was changed between backward() and step(), in this worker and"
                    " before the mean. clip_grad_norm_ would clip each worker's gradient by itself:"
                    " %s clips the mean",
                    self._parameters[i].name, self._instead,
                )
                for hook in self.hooks:
                    hook.remove()
                break
        self._versions.clear()

    def _look_for_hooks(self):
        if not self._looks_for_hooks:
            return
        for item in self._parameters:
            if has_other_hooks(item.tensor):
                _log.warning(
                    "%s: has a hook of the script, which is given this worker's own gradient,"
                    " before the mean. It may read it, or scale it by a factor; one that clips"
                    " would clip each worker's gradient by itself: %s clips the mean",
                    item.name, self._instead,
                )
                self._looks_for_hooks = False
                break
