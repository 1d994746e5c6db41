"""What a state_dict() has, as a text: equal states give equal texts, and no text can do anything
but to become such a state again."""

from __future__ import annotations

import base64
import collections
import functools
import json
import types
import weakref
from typing import Any

import torch

from evenshard import errors

_ALLOWED = (
    "None, bools, numbers, strings, bytes, lists, tuples, sets, dicts, tensors and numpy's arrays"
)
# By name, the kinds of dicts. The entries of a plain one are in the order of their keys' texts.
_DICTS = {"dict": dict, "Counter": collections.Counter, "OrderedDict": collections.OrderedDict}
_SEQUENCES = {"tuple": tuple, "set": set, "frozenset": frozenset}


# What a scheduler may have been given, and keeps.
_FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial,
    weakref.ReferenceType,
)


def encode(
    state: Any, place: str, most_bytes: int = 2**62, apart: list[torch.Tensor] | None = None
) -> str:
    """Functions in it, such as a scheduler's, are left to whoever decodes it. Tensors are appended
    to `apart`, if that is given, and otherwise in the text. `place` is for errors. Errors:
    InvalidArgument, which names what is something else, or is larger by itself."""
    return json.dumps(_encoded(state, place, most_bytes, apart), separators=(",", ":"))


def decode(text: str, own: Any, apart: list[torch.Tensor] | None = None) -> Any:
    """The state of a text. Functions are those at the same place of `own`, if it has them."""
    return _decoded(json.loads(text), own, apart)


def _encoded(value, place, most, apart):
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_encoded(item, f"{place}[{i}]", most, apart) for i, item in enumerate(value)]
    name = kind.__name__
    if _DICTS.get(name) is kind:
        # In their order first, since tensors that stand apart are numbered as they come.
        keys = [[_encoded(k, f"a key of {place}", most, apart), k] for k in value]
        if kind is dict:
            keys.sort(key=_order)
        return {
            name: [[k, _encoded(value[own], f"{place}[{own!r}]", most, apart)] for k, own in keys]
        }
    if _SEQUENCES.get(name) is kind:
        items = [_encoded(item, f"an item of {place}", most, apart) for item in value]
        return {name: items if kind is tuple else sorted(items, key=json.dumps)}
    if kind in (bytes, bytearray):
        return {"bytes": _text(bytes(value))}
    if isinstance(value, torch.Tensor) and apart is not None and not value.is_sparse:
        apart.append(value.detach())
        return {"apart": len(apart) - 1}
    if isinstance(value, torch.Tensor) and not value.is_complex() and not value.is_sparse:
        _check_size(value.numel() * value.element_size(), place, most)
        plain = value.detach().cpu().contiguous()
        data = bytes(plain.reshape(-1).view(torch.uint8).tolist())
        return {"tensor": [str(plain.dtype).split(".")[1], list(plain.shape), _text(data)]}
    if kind.__module__ == "numpy" and getattr(value, "dtype", None) is not None:
        if value.dtype.kind in "biufcSU":
            _check_size(value.nbytes, place, most)
            return {"numpy": [value.dtype.str, list(value.shape), _text(value.tobytes())]}
    if isinstance(value, _FUNCTIONS):
        return {"own": []}
    raise errors.InvalidArgument(
        f"{place}: is a {kind.__module__}.{kind.__qualname__}, allowed: {_ALLOWED}"
    )


def _decoded(node, own, apart):
    if isinstance(node, list):
        owns = own if isinstance(own, list) and len(own) == len(node) else [None] * len(node)
        return [_decoded(item, each, apart) for item, each in zip(node, owns)]
    if not isinstance(node, dict):
        return node
    (kind, content), = node.items()
    if kind in _DICTS:
        result = _DICTS[kind]()
        for key_node, item in content:
            key = _decoded(key_node, None, apart)
            of_own = own.get(key) if isinstance(own, dict) else None
            if item != {"own": []} or of_own is not None:
                result[key] = _decoded(item, of_own, apart)
        return result
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](_decoded(item, None, apart) for item in content)
    if kind == "apart":
        return apart[content]
    if kind == "bytes":
        return _data(content)
    if kind == "tensor":
        dtype, shape, data = content
        flat = torch.tensor(list(_data(data)), dtype=torch.uint8, device="cpu")
        return flat.view(getattr(torch, dtype)).reshape(shape)
    if kind == "numpy":
        import numpy

        dtype, shape, data = content
        return numpy.frombuffer(_data(data), dtype).reshape(shape).copy()[()]
    if own is None:
        raise ValueError("has a function where this worker's own state has none")
    return own


def _check_size(size, place, most):
    if size > most:
        raise errors.InvalidArgument(f"{place}: has {size} bytes; allowed: {most} in all")


def _order(entry):
    is_number = isinstance(entry[0], (int, float))
    return (not is_number, entry[0] if is_number else 0, json.dumps(entry[0]))


def _text(data):
    return base64.b64encode(data).decode("ascii")


def _data(text):
    return base64.b64decode(text)
