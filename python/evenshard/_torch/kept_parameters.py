"""Whether a model still has the parameters that its run has agreed on."""

from __future__ import annotations

import torch

from evenshard import errors
from evenshard._torch.model import ModelTensor, empty_tensors


class KeptParameters:
    """The parameters that are trained, in all the places where the model had them at the start."""

    def __init__(self, model: torch.nn.Module, tensors: list[ModelTensor]):
        self._trained = {id(item.tensor) for item in tensors if item.is_parameter}
        self._model = model
        self._places = [
            (f"{path}.{key}" if path else key, module, key, id(parameter))
            for path, module in model.named_modules()
            for key, parameter in module._parameters.items()
            if id(parameter) in self._trained
        ]
        self._empty = empty_tensors(model)

    def require(self, kind: str) -> None:
        """Errors: FailedPrecondition if another parameter is in one of these places,
        or one is nowhere in the model any more, or a tensor that had no elements has some; `kind`
        is the class that trains them. One that has moved, as by torch.nn.utils.prune or
        parametrize, and one of a module that the model has no more are no errors."""
        for name, module, key in self._empty:
            tensor = _owned(module._parameters).get(key, _owned(module._buffers).get(key))
            if tensor is not None and tensor.numel() > 0:
                raise errors.FailedPrecondition(
                    f"{name}: had no elements when evenshard.{kind} was made, so that nobody"
                    " exchanges it, and has some now; allowed: with its shape from the start, or"
                    " register_buffer(..., persistent=False), which stays the worker's own"
                )
        in_model: set[int] | None = None
        for name, module, key, parameter in self._places:
            found = _owned(module._parameters).get(key)
            if id(found) == parameter:
                continue
            if id(found) in self._trained:
                raise errors.FailedPrecondition(
                    f"{name}: is another parameter of the model since evenshard.{kind} was made,"
                    " and what the run has under this name is the one that was here; allowed: tied"
                    " parameters from the start"
                )
            if found is None:
                if in_model is None:
                    in_model = {
                        id(p)
                        for module in self._model.modules()
                        for p in _owned(module._parameters).values()
                    }
                if parameter in in_model:
                    continue
            raise errors.FailedPrecondition(
                f"{name}: was replaced since evenshard.{kind} was made, by something that is not"
                " trained; allowed: changes of its values, as load_state_dict() makes them without"
                " assign=True"
            )


def _owned(owned):
    # A copy of the dictionary, whose own methods would tell ParameterReads of the reads. Modules of
    # TorchScript have something else.
    return dict(dict.items(owned) if isinstance(owned, dict) else owned.items())
