"""The tensors of a PyTorch model that are exchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import torch

from evenshard import _library, errors

Key = TypeVar("Key", str, int)

_STATISTICS = ("running_mean", "running_var")
# What parameters may be, and what that is to the library.
TYPES = {
    torch.float32: _library.FLOAT32,
    torch.float16: _library.FLOAT16,
    torch.bfloat16: _library.BFLOAT16,
}
DTYPES = {kind: dtype for dtype, kind in TYPES.items()}


class ModelTensor(NamedTuple):
    """A parameter, a running statistic of a batch normalisation, or what is not trained: a frozen
    parameter or another buffer."""

    name: str  # as in model.state_dict()
    tensor: torch.Tensor
    shape: tuple  # at the start
    role: int  # _library.PARAMETER, RUNNING_STATISTIC or BUFFER
    layer: str | None  # the path of the module that owns it
    module: torch.nn.Module  # that module
    key: str  # its name there

    @property
    def value(self) -> torch.Tensor:
        """The tensor, or what the script has put in place of one that is not a parameter. Errors:
        TensorError if that has another shape."""
        for found in self._kept():
            if found is not None and found.shape == self.shape:
                return found
        raise errors.TensorError(
            f"{self.name}: was replaced by something else, allowed: a tensor of the shape"
            f" {self.shape}"
        )

    def replace(self, tensor: torch.Tensor) -> None:
        """Puts another tensor in place of a buffer."""
        kept = self.module._buffers
        if isinstance(kept, dict):
            dict.__setitem__(kept, self.key, tensor)
        else:
            setattr(self.module, self.key, tensor)

    def _kept(self):
        if self.is_parameter:
            return [self.tensor]
        # Dictionaries are read past their own methods, which tell ParameterReads of it. Modules of
        # TorchScript have something else.
        return [
            dict.get(kept, self.key) if isinstance(kept, dict) else dict(kept.items()).get(self.key)
            for kept in (self.module._buffers, self.module._parameters)
        ]

    @property
    def type(self) -> int:
        """As what it is exchanged. All but parameters travels as float32."""
        return TYPES[self.tensor.dtype] if self.is_parameter else _library.FLOAT32

    @property
    def is_parameter(self) -> bool:
        return self.role == _library.PARAMETER

    @property
    def is_buffer(self) -> bool:
        return self.role == _library.BUFFER


def tensors_of(model: torch.nn.Module, worker: str = "") -> list[ModelTensor]:
    """Returns the tensors in the order in which the model registers them: by module, first its
    parameters and then its buffers. A tensor that several modules share comes once.

    Left out are tensors without elements, and buffers that state_dict() leaves out too
    (persistent=False).

    Errors: TensorError, one line for each tensor that cannot be exchanged; `worker`, as in "worker
    1: ", begins each.
    """
    found, seen = [], set()
    for path, module in model.named_modules():
        for name, tensor, role in _own(module):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                full = f"{path}.{name}" if path else name
                shape = () if _is_lazy(tensor) else tuple(tensor.shape)
                found.append(ModelTensor(full, tensor, shape, role, path or None, module, name))
    problems = [f"{item.name}: {text}" for item in found for text in _problems(item)]
    if not problems:
        problems += _overlaps(found)
    devices = {str(item.tensor.device): item.name for item in found if not item.is_buffer}
    if not problems and len(devices) > 1:
        places = ", ".join(f"{name} on {device}" for device, name in devices.items())
        problems.append(f"the tensors are on several devices ({places}), allowed: one")
    if not any(item.is_parameter for item in found):
        problems.append("the model has no parameter that requires a gradient")
    if problems:
        raise errors.TensorError("\n".join(worker + problem for problem in problems))
    return found


def tensors_by_name(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns all parameters and persistent buffers themselves, under each of their names."""
    return {
        f"{path}.{name}" if path else name: tensor
        for path, module in model.named_modules(remove_duplicate=False)
        for name, tensor, _ in _own(module)
    }


def needed_names(model: torch.nn.Module) -> list[str]:
    """Returns a name of each parameter, frozen or not, and of each running statistic."""
    found: dict[int, str] = {}
    for path, module in model.named_modules():
        for name, tensor, role in _own(module):
            if role != _library.BUFFER or isinstance(tensor, torch.nn.Parameter):
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


def empty_tensors(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module, str]]:
    """Returns the name of each tensor that tensors_of leaves out because it has no elements, the
    module that has it, and its name there."""
    return [
        (f"{path}.{name}" if path else name, module, name)
        for path, module in model.named_modules()
        for found in (module.named_parameters, module.named_buffers)
        for name, tensor in found(recurse=False)
        if name not in module._non_persistent_buffers_set and _is_empty(tensor)
    ]


def _own(module):
    for name, parameter in module.named_parameters(recurse=False):
        if not _is_empty(parameter):
            trained = parameter.requires_grad
            yield name, parameter, _library.PARAMETER if trained else _library.BUFFER
    has_statistics = isinstance(getattr(module, "num_batches_tracked", None), torch.Tensor)
    for name, buffer in module.named_buffers(recurse=False):
        if name not in module._non_persistent_buffers_set and not _is_empty(buffer):
            is_statistic = has_statistics and name in _STATISTICS
            yield name, buffer, _library.RUNNING_STATISTIC if is_statistic else _library.BUFFER


def _is_lazy(tensor):
    return isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)


def _is_empty(tensor):
    return not _is_lazy(tensor) and tensor.numel() == 0


def _problems(item):
    tensor = item.tensor
    if _is_lazy(tensor):
        yield "has no shape yet, allowed: a tensor with values; run one batch through the model"
        return
    if tensor.layout != torch.strided:
        yield f"is of layout {tensor.layout}, allowed: {torch.strided}"
        return
    if item.is_buffer:
        yield from _problems_of_buffer(tensor)
        return
    if tensor.dtype not in TYPES:
        yield (
            f"is {tensor.dtype} of shape {tuple(tensor.shape)}, allowed:"
            f" {', '.join(map(str, TYPES))}; call model.float() or model.to(torch.bfloat16)"
        )
    if tensor.device.type not in ("cpu", "cuda"):
        yield f"is on the device {tensor.device}, allowed: cpu, cuda"
    if not tensor.is_contiguous():
        yield (
            f"is not contiguous, with shape {tuple(tensor.shape)} and strides {tensor.stride()};"
            " allowed: contiguous; call model.to(memory_format=torch.contiguous_format), or"
            " parameter.data = parameter.data.contiguous()"
        )


def _problems_of_buffer(tensor):
    """It travels in float32, whatever it is."""
    if tensor.is_meta:
        yield "is on the device meta, allowed: one with values; call to_empty()"
        return
    if tensor.is_complex() or tensor.is_quantized or not is_exact(tensor):
        yield (
            f"is not trained, of {tensor.dtype}, and has values that float32 cannot hold; allowed:"
            " those that it can, or register_buffer(..., persistent=False), which stays the"
            " worker's own"
        )
    if is_expanded(tensor):
        yield "is not trained, and expanded from fewer elements; allowed: its clone()"


def is_rounded(tensor: torch.Tensor) -> bool:
    """Whether a tensor may have less of a value than the shards, whose values are float32."""
    return tensor.dtype in (torch.float16, torch.bfloat16)


def is_expanded(tensor: torch.Tensor) -> bool:
    """Whether elements share their memory, as after expand()."""
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride()))


def extent_of(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's memory: from the first element to behind the last one."""
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.element_size() if tensor.numel() else begin


def on_same_memory(tensors: Iterable[tuple[torch.Tensor, Key]]) -> Iterator[tuple[Key, Key]]:
    """Pairs of keys of tensors that share memory: each tensor's, and that of the one before it in
    memory that reaches furthest. `tensors`: each with its key."""
    furthest = None
    for (begin, end), key in sorted((extent_of(tensor), key) for tensor, key in tensors):
        if furthest is not None and begin < furthest[0]:
            yield furthest[1], key
        if furthest is None or end > furthest[0]:
            furthest = end, key


def is_exact(tensor: torch.Tensor) -> bool:
    """Whether float32 holds all values."""
    back = tensor.detach().to(torch.float32).to(tensor.dtype)
    return bool(((back == tensor) | (back != back)).all())


def _overlaps(found):
    """Tensors that are different objects on the same memory, of which one is exchanged twice."""
    for name, other in on_same_memory((item.tensor, item.name) for item in found):
        yield (
            f"{other}: is on the memory of {name} and is another tensor; allowed: the same"
            " parameter in both places, as in `decoder.weight = encoder.weight`"
        )
