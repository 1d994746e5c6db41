"""Arrays of any library as bytes, by the buffer protocol or DLPack, without a copy."""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Mapping
from typing import NamedTuple

from evenshard import errors

# Names of the struct module's types.
_TYPES = {
    "?": "bool", "b": "int8", "B": "uint8", "h": "int16", "H": "uint16", "i": "int32",
    "I": "uint32", "l": "int64", "L": "uint64", "q": "int64", "Q": "uint64", "e": "float16",
    "f": "float32", "d": "float64", "g": "longdouble", "F": "complex64", "D": "complex128",
}

# DLPack's numbers (dlpack.h).
_CPU = 1
_CUDA_HOST = 3
_DEVICES = {2: "a CUDA device", 7: "a Vulkan device", 8: "a Metal device", 10: "a ROCm device"}
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_FLOAT = 2
_READ_ONLY = 1


class Floats(NamedTuple):
    """The memory of a float32 array, C-contiguous and on the CPU."""

    bytes: memoryview  # one-dimensional, of format "B"
    shape: tuple
    owner: object  # keeps the memory alive

    def copy_to(self, other: Floats) -> None:
        """Copies the elements, unless both are the same memory."""
        if self.address() is None or self.address() != other.address():
            other.bytes[:] = self.bytes

    def address(self) -> int | None:
        """Returns where the memory begins, or None if it is read-only."""
        if self.bytes.readonly:
            return None
        return ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))


def of(array, what: str, *, writable: bool = False) -> Floats:
    """Returns the memory of an array. Errors: TensorError, which calls it `what`."""
    try:
        view = memoryview(array)
    except (TypeError, ValueError, BufferError):
        if not hasattr(array, "__dlpack__"):
            _refuse(
                what, f"a {type(array).__name__}",
                "an array with the buffer protocol or DLPack: numpy.ndarray, array.array('f'),"
                " torch.Tensor",
            )
        return _of_dlpack(array, what, writable)
    kind = view.format.lstrip("@=<")
    if kind != "f":
        _refuse_type(what, array, _TYPES.get(kind, view.format), view.shape)
    if not view.c_contiguous:
        _refuse_layout(what, array, view.shape)
    if writable and view.readonly:
        _refuse(what, "read-only", "an array that can be written to, such as a copy")
    _check_size(what, view.shape)
    return Floats(view.cast("B"), tuple(view.shape), array)


def check_apart(arrays: Mapping[str, Floats], what: str) -> None:
    """Errors: TensorError if two of the arrays have memory in common."""
    places = []
    for name, floats in arrays.items():
        if (begin := floats.address()) is not None:
            places.append((begin, begin + len(floats.bytes), name))
    places.sort()
    for (_, end, first), (begin, _, second) in zip(places, places[1:]):
        if begin < end:
            _refuse(
                f'{what}["{second}"]', f'on the memory of {what}["{first}"]',
                "memory of its own for each name",
            )


def as_array(memory: ctypes.Array, shape: tuple):
    """Returns memory of the library as a numpy array, or as a memoryview if there is no numpy."""
    numpy = _numpy()
    if numpy is not None:
        return numpy.frombuffer(memory, dtype=numpy.float32).reshape(shape)
    view = memoryview(memory).cast("B")
    return view.cast("f", list(shape)) if shape else view.cast("f")


def empty(shape: tuple):
    """Returns memory of its own: a numpy array, or a memoryview if there is no numpy."""
    numpy = _numpy()
    if numpy is not None:
        return numpy.empty(shape, numpy.float32)
    return memoryview(bytearray(4 * math.prod(shape))).cast("f", list(shape) or [1])


def _numpy():
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None


def _refuse(what, found, allowed):
    raise errors.TensorError(f"{what}: is {found}, allowed: {allowed}")


def _refuse_type(what, array, type_name, shape):
    advice = {"numpy": "; call .astype(numpy.float32)", "torch": "; call .float()"}
    _refuse(
        what, f"{type_name} of shape {tuple(shape)}",
        "float32" + advice.get(type(array).__module__.partition(".")[0], ""),
    )


def _refuse_layout(what, array, shape):
    advice = {"numpy": "; call numpy.ascontiguousarray", "torch": "; call .contiguous()"}
    _refuse(
        what, f"not contiguous, of shape {tuple(shape)}",
        "C-contiguous memory" + advice.get(type(array).__module__.partition(".")[0], ""),
    )


def _check_size(what, shape):
    if 0 in shape:
        _refuse(what, f"of shape {tuple(shape)}", "at least one element")


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_capsule_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is_valid.restype = ctypes.c_int
_capsule_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.restype = ctypes.py_object
_memory_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_WRITABLE = 0x200
_READABLE = 0x100


def _of_dlpack(array, what, writable):
    device, number = array.__dlpack_device__()
    if device not in (_CPU, _CUDA_HOST):
        name = _DEVICES.get(device, f"a device of DLPack's kind {device}")
        _refuse(what, f"on {name}, {int(number)}", "the CPU's memory; copy it there first")
    tensor, is_read_only, capsule = _dlpack_tensor(array, what)
    shape = tuple(tensor.shape[: tensor.dimensions])
    if (tensor.code, tensor.bits, tensor.lanes) != (_FLOAT, 32, 1):
        name = _CODES.get(tensor.code, f"DLPack's type {tensor.code} of bits ") + str(tensor.bits)
        _refuse_type(what, array, name, shape)
    _check_size(what, shape)
    stride = 1
    for i in reversed(range(len(shape))):
        if tensor.strides and shape[i] > 1 and tensor.strides[i] != stride:
            _refuse_layout(what, array, shape)
        stride *= shape[i]
    if writable and is_read_only:
        _refuse(what, "read-only", "an array that can be written to, such as a copy")
    flags = _READABLE if is_read_only else _WRITABLE
    view = _memory_view(tensor.data + tensor.byte_offset, 4 * stride, flags)
    # The capsule is not taken over, so that it gives the tensor back by itself.
    return Floats(view, shape, capsule)


def _dlpack_tensor(array, what):
    try:
        try:
            capsule = array.__dlpack__(max_version=(1, 0))
        except TypeError:  # of an older DLPack
            capsule = array.__dlpack__()
    except (BufferError, RuntimeError) as error:
        raise errors.TensorError(f"{what}: {error}") from None
    if _capsule_is_valid(capsule, b"dltensor_versioned"):
        pointer = _capsule_pointer(capsule, b"dltensor_versioned")
        managed = _ManagedVersioned.from_address(pointer)
        return managed.tensor, bool(managed.flags & _READ_ONLY), capsule
    unversioned = _Managed.from_address(_capsule_pointer(capsule, b"dltensor"))
    return unversioned.tensor, False, capsule
