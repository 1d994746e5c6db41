"""Whether a model still has the parameters that its run has agreed on."""

from __future__ import annotations

import torch

from evenshard import errors
from evenshard._torch.model import ModelTensor


class KeptParameters:
    """The parameters that are trained, in all the places where the model had them at the start."""

    def __init__(self, model: torch.nn.Module, tensors: list[ModelTensor]):
        trained = {id(item.tensor) for item in tensors if item.is_parameter}
        self._model = model
        self._places = [
            (f"{path}.{key}" if path else key, module, key, parameter)
            for path, module in model.named_modules()
            for key, parameter in module._parameters.items()
            if id(parameter) in trained
        ]

    def require(self, kind: str) -> None:
        """Errors: FailedPrecondition if another parameter is in one of these places, or one is
        nowhere in the model any more; `kind` is the class that trains them. One that has moved, as
        by torch.nn.utils.prune or parametrize, and one of a module that the model has no more are
        no errors."""
        for name, module, key, parameter in self._places:
            # Dictionaries are read past their own methods, which tell ParameterReads of it. Modules
            # of TorchScript have something else.
            owned = module._parameters
            owned = owned if isinstance(owned, dict) else dict(owned.items())
            found = dict.get(owned, key)
            if found is parameter:
                continue
            if found is not None or not any(each is parameter for each in self._model.parameters()):
                raise errors.FailedPrecondition(
                    f"{name}: was replaced since evenshard.{kind} was made, by something that is"
                    " not trained; allowed: changes of its values, as load_state_dict() makes them"
                    " without assign=True"
                )
