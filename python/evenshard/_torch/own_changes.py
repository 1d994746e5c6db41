"""Says it when a script changes its gradients by itself, and the change counts.

It counts in a hook, and of a gradient that stays in the model until step(): under the schedule
SEQUENTIAL, and after no_sync(). But it is one worker's own: clipping, the usual one, is another
rule than one process's if it is done before the mean.
"""

from __future__ import annotations

import functools
import logging

from evenshard._torch.gradient_hooks import has_other_hooks, on_gradient, require_gradient
from evenshard._torch.model import ModelTensor
from evenshard._torch.unchanged import version_of

_log = logging.getLogger("evenshard")


class OwnChanges:
    """Watches the gradients of some parameters of a model."""

    def __init__(self, parameters: dict[int, ModelTensor], are_kept: bool, instead: str):
        """`are_kept`: whether all gradients stay in the model until step(); otherwise note() is
        called of each. `instead`: what clips the mean."""
        self._instead = instead
        self._parameters = parameters  # by their numbers
        self._versions = {}  # of gradients as backward() left them, likewise
        self._watches = self._looks_for_hooks = True
        self.hooks = [
            on_gradient(item.tensor, functools.partial(self._note_kept, i))
            for i, item in parameters.items()
            if are_kept
        ]

    def _note_kept(self, i, *_):
        require_gradient(self._parameters[i])
        self.note(i, stays=True)

    def note(self, i: int, stays: bool) -> None:
        """backward() has left a gradient, which stays in the model or is pushed now."""
        self._versions.pop(i, None)
        if stays and self._watches:
            self._versions[i] = version_of(self._parameters[i].tensor.grad)

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
                self._watches = False
                for hook in self.hooks:
                    hook.remove()
                break
        self._versions.clear()

    def _look_for_hooks(self):
        if not self._looks_for_hooks:
            return
        for item in self._parameters.values():
            if has_other_hooks(item.tensor):
                _log.warning(
                    "%s: has a hook of the script, which is given this worker's own gradient,"
                    " before the mean. It may read it, or scale it by a factor; one that clips"
                    " would clip each worker's gradient by itself: %s clips the mean",
                    item.name, self._instead,
                )
                self._looks_for_hooks = False
                break
