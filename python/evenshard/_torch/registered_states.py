"""Optimizer.register_state(): what a worker that comes back needs beside the model.

Before each exchange every worker gives slot 0 what it has registered, as one text for each name,
and all texts must be the same. So a worker that was started again gets what the others have at the
iteration at which it goes on, and a checkpoint has what counted at its cut.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from evenshard import errors
from evenshard._handle import Handle
from evenshard._torch import state_text as _state_text
from evenshard._torch.gradient_hooks import on_gradient
from evenshard._torch.model import ModelTensor

BACKWARD, STEP = "backward", "step"

_GROUPS = "param_groups"
_MOST_BYTES = 262144  # RegisteredStates::kMaxBytes


class RegisteredStates:
    """Those of one worker."""

    def __init__(self, handle: Handle, tensors: list[ModelTensor]):
        self._handle = handle
        self._tensors = tensors
        self._hooks: list = []
        self._states: dict[str, tuple[Any, str]] = {}  # with the moment that counts
        # As they were when they were registered, before anything was restored.
        self._initial: dict[str, str] = {}
        self._has_begun = False  # an exchange since the worker has joined
        self._taken: dict[str, str] | None = None  # from where this worker goes on
        self._texts: dict[str, str] = {}  # what counts before the next exchange, as far as captured

    def __bool__(self) -> bool:
        """Whether anything is registered."""
        return bool(self._states)

    def add(self, name: str, state: Any, as_of: str, groups: GroupState) -> None:
        """Registers a state, and restores it if the worker goes on in a run with iterations behind
        it. The options of its optimizer's groups belong to it. Errors: InvalidArgument,
        FailedPrecondition."""
        self._check(name, state, as_of)
        before = dict(self._states), dict(self._initial), dict(self._texts)
        try:
            self._states[_GROUPS] = (groups, BACKWARD)
            self._states[name] = (state, as_of)
            self._initial[name] = _encode(name, state)
            if as_of == STEP:
                self._texts[name] = self._initial[name]
            # A scheduler that has just been made may have changed the groups.
            if _GROUPS not in self._initial or self._taken is None and not self._has_begun:
                self._initial[_GROUPS] = _encode(_GROUPS, groups)
            self._check_size(self._initial)
            if self._handle.iteration > 0 and not self._has_begun:
                if self._taken is None:
                    self._taken = self._handle.take_state()
                self._restore(name, self._taken)
                self._restore(_GROUPS, self._taken)
            if not self._hooks:
                self._hooks = [
                    on_gradient(item.tensor, self.begun)
                    for item in self._tensors if item.is_parameter
                ]
        except BaseException:
            self._states, self._initial, self._texts = before
            raise

    def begun(self, *_) -> None:
        """The script has begun its next iteration: what counts as of "backward" counts now."""
        if len(self._texts) < len(self._states):
            self._capture(BACKWARD)

    def _capture(self, as_of):
        for name, (state, moment) in self._states.items():
            if moment == as_of and name not in self._texts:
                self._texts[name] = _encode(name, state)

    def send(self, compared: dict[str, str] | None = None) -> None:
        """Before an exchange begins, with what else is to be the same in all workers. Errors:
        FailedPrecondition if another worker has something else."""
        is_first = not self._has_begun and self._handle.iteration == 0
        self._has_begun = True
        self._taken = None
        self._capture(BACKWARD)
        texts = {**self._texts, **(compared or {})}
        # At the beginning also that there is nothing: others may have registered something.
        if texts or is_first and self._handle.compares_states:
            self._check_size(texts)
            self._handle.keep_state(texts)

    def finish(self) -> None:
        """The worker has trained to the end. Another one that was started again may still need what
        there is, and a checkpoint at the end. What the script has changed since may differ between
        workers: the first one counts."""
        if self._states:
            with contextlib.suppress(errors.FailedPrecondition):
                self.send()

    def exchanged(self) -> None:
        """An exchange is over, and the script has not stepped."""
        for name, (_, moment) in self._states.items():
            if moment == BACKWARD:
                self._texts.pop(name, None)

    def stepped(self) -> None:
        """An iteration is over for the script."""
        self._texts.clear()
        self._capture(STEP)

    def restore(self) -> None:
        """The run has gone back. Errors: as those of add()."""
        self._has_begun = False
        self._taken = None
        self._texts.clear()
        if not self._states:
            return
        taken = self._handle.take_state() if self._handle.iteration > 0 else self._initial
        for name in self._states:
            self._restore(name, taken)
        self._capture(STEP)

    def release(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._states.clear()

    def _check(self, name, state, as_of):
        if not isinstance(name, str) or not name or "\0" in name or name == _GROUPS:
            raise errors.InvalidArgument(
                f"register_state: the name is {name!r}, allowed: a text that is not empty, the same"
                f' in all workers, and not "{_GROUPS}", which is registered with the first one'
            )
        if name in self._states:
            raise errors.InvalidArgument(
                f'register_state("{name}"): the name is taken; allowed: each once'
            )
        missing = [
            method for method in ("state_dict", "load_state_dict")
            if not callable(getattr(state, method, None))
        ]
        if missing:
            raise errors.InvalidArgument(
                f'register_state("{name}"): is a {type(state).__name__}, which has no'
                f" {' and no '.join(m + '()' for m in missing)}; allowed: what has both"
            )
        if as_of not in (BACKWARD, STEP):
            raise errors.InvalidArgument(
                f'register_state("{name}"): as_of is {as_of!r}, allowed: "{BACKWARD}", "{STEP}"'
            )
        if self._handle.is_ring:
            raise errors.FailedPrecondition(
                "register_state: no worker goes on in place of another in a ring, which ends with"
                " the loss of any; allowed: with shards"
            )
        if not self._handle.waits_for_workers:
            raise errors.FailedPrecondition(
                "register_state: under ASYNC the workers have no iteration in common at which one"
                " could go on in place of another; allowed: under SYNC"
            )

    def _check_size(self, texts):
        sizes = {name: len(name) + len(text.encode()) for name, text in texts.items()}
        if sum(sizes.values()) > _MOST_BYTES:
            largest = max(sizes, key=lambda name: sizes[name])
            raise errors.InvalidArgument(
                f'register_state("{largest}"): has {sizes[largest]} bytes as a text, and all that'
                f" is registered has {sum(sizes.values())}; allowed: {_MOST_BYTES} in all, since"
                " every worker sends it in each iteration"
            )

    def _restore(self, name, texts):
        if name not in texts:
            raise errors.FailedPrecondition(
                f'register_state("{name}"): the run has no such state at iteration'
                f" {self._handle.iteration}; it has {', '.join(sorted(texts)) or 'none'}"
            )
        state = self._states[name][0]
        try:
            state.load_state_dict(_state_text.decode(texts[name], state.state_dict()))
        except Exception as error:
            raise errors.FailedPrecondition(
                f'register_state("{name}"): rank {self._handle.rank} cannot load what the run has'
                f" at iteration {self._handle.iteration}: {type(error).__name__}: {error}"
            ) from error
        if self._states[name][1] == STEP:
            self._texts[name] = texts[name]


class GroupState:
    """The options of an optimizer's groups, which schedulers change, as a state."""

    def __init__(self, groups: Callable[[], list[dict]]):
        self._groups = groups

    def state_dict(self) -> dict:
        return {
            "groups": [
                {key: value for key, value in group.items() if key != "params"}
                for group in self._groups()
            ]
        }

    def load_state_dict(self, state_dict: dict) -> None:
        groups = self._groups()
        if len(groups) != len(state_dict["groups"]):
            raise ValueError(f"has {len(state_dict['groups'])} groups, not {len(groups)}")
        for group, saved in zip(groups, state_dict["groups"]):
            group.update(saved)


def _encode(name, state):
    return _state_text.encode(state.state_dict(), f'register_state("{name}")', _MOST_BYTES)
