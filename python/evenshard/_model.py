"""The tensors of a PyTorch model that are exchanged."""

from __future__ import annotations

from typing import NamedTuple

import torch

from evenshard import _library, errors

_STATISTICS = ("running_mean", "running_var")


class ModelTensor(NamedTuple):
    """A parameter, or a running statistic of a batch normalisation."""

    name: str  # as in model.state_dict()
    tensor: torch.Tensor
    role: int  # _library.PARAMETER or RUNNING_STATISTIC
    layer: str | None  # the path of the module that owns it

    @property
    def is_parameter(self) -> bool:
        return self.role == _library.PARAMETER


def tensors_of(model: torch.nn.Module) -> list[ModelTensor]:
    """Returns the tensors in the order in which the model registers them: by module, first its
    parameters and then its running statistics. A tensor that several modules share comes once.

    Left out are parameters that do not require a gradient, and those without elements. Of the
    buffers only `running_mean` and `running_var` of modules with `num_batches_tracked` are taken.

    Errors: TensorError, one line for each tensor that cannot be exchanged.
    """
    found, seen = [], set()
    for path, module in model.named_modules():
        for name, tensor, role in _own(module):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                full = f"{path}.{name}" if path else name
                found.append(ModelTensor(full, tensor, role, path or None))
    problems = [f"{item.name}: {text}" for item in found for text in _problems(item.tensor)]
    devices = {str(item.tensor.device): item.name for item in found}
    if not problems and len(devices) > 1:
        places = ", ".join(f"{name} on {device}" for device, name in devices.items())
        problems.append(f"the tensors are on several devices ({places}), allowed: one")
    if not found:
        problems.append("the model has no parameter that requires a gradient")
    if problems:
        raise errors.TensorError("\n".join(problems))
    return found


def trained_names(model: torch.nn.Module) -> list[str]:
    """Returns the names of the tensors that tensors_of would exchange, whatever their types."""
    found = {}
    for path, module in model.named_modules():
        for name, tensor, _ in _own(module):
            found.setdefault(id(tensor), f"{path}.{name}" if path else name)
    return list(found.values())


def direct_tensors(
    model: torch.nn.Module, tensors: list[ModelTensor]
) -> dict[torch.nn.Module, tuple]:
    """Returns for each module the numbers of the tensors that it owns itself, shared ones too."""
    numbers = {id(item.tensor): i for i, item in enumerate(tensors)}
    return {
        module: tuple(
            numbers[id(tensor)] for _, tensor, _ in _own(module) if id(tensor) in numbers
        )
        for module in model.modules()
    }


def _own(module):
    for name, parameter in module.named_parameters(recurse=False):
        if parameter.requires_grad and not _is_empty(parameter):
            yield name, parameter, _library.PARAMETER
    if isinstance(getattr(module, "num_batches_tracked", None), torch.Tensor):
        for name, buffer in module.named_buffers(recurse=False):
            if name in _STATISTICS and not _is_empty(buffer):
                yield name, buffer, _library.RUNNING_STATISTIC


def _is_lazy(tensor):
    return isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)


def _is_empty(tensor):
    return not _is_lazy(tensor) and tensor.numel() == 0


def _problems(tensor):
    if _is_lazy(tensor):
        yield "has no shape yet, allowed: a tensor with values; run one batch through the model"
        return
    if tensor.layout != torch.strided:
        yield f"is of layout {tensor.layout}, allowed: {torch.strided}"
        return
    if tensor.dtype != torch.float32:
        yield (
            f"is {tensor.dtype} of shape {tuple(tensor.shape)}, allowed: torch.float32; call"
            " model.float(), and compute in 16 bits by torch.autocast"
        )
    if tensor.device.type not in ("cpu", "cuda"):
        yield f"is on the device {tensor.device}, allowed: cpu, cuda"
    if not tensor.is_contiguous():
        yield (
            f"is not contiguous, with shape {tuple(tensor.shape)} and strides {tensor.stride()};"
            " allowed: contiguous; call model.to(memory_format=torch.contiguous_format), or"
            " parameter.data = parameter.data.contiguous()"
        )
