"""Arrays by DLPack, made by hand: of both versions of the protocol, of other types and devices."""

import array
import ctypes
import gc
import unittest

from tests.python import fixture  # noqa: F401

from evenshard import _arrays, errors

_CPU, _CUDA = 1, 2
_FLOAT, _BFLOAT = 2, 4


class _Exporter:
    """Six floats, 1 to 6, of shape (2, 3) if nothing else is said."""

    def __init__(
        self, shape=(2, 3), strides=None, code=_FLOAT, bits=32, device=_CPU, version=None, flags=0,
        offset=0,
    ):
        self.values = (ctypes.c_float * 8)(*range(1, 9))
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        self._version = version
        self._device = device
        tensor = _arrays._DLTensor(
            ctypes.addressof(self.values), device, 5, len(shape), code, bits, 1, self._shape,
            self._strides, offset,
        )
        if version is None:
            self._managed = _arrays._Managed(tensor)
        else:
            self._managed = _arrays._ManagedVersioned(version[0], version[1], None, None, flags,
                                                      tensor)

    def __dlpack_device__(self):
        return self._device, 5

    def _capsule(self):
        name = b"dltensor" if self._version is None else b"dltensor_versioned"
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        # The name must outlive the capsule.
        self._name = ctypes.create_string_buffer(name)
        return new(ctypes.addressof(self._managed), ctypes.cast(self._name, ctypes.c_char_p), None)


class _Old(_Exporter):
    def __dlpack__(self, stream=None):
        return self._capsule()


class _New(_Exporter):
    def __init__(self, **options):
        super().__init__(version=(1, 0), **options)

    def __dlpack__(self, *, stream=None, max_version=None):
        assert max_version == (1, 0)
        return self._capsule()


class DlpackTest(unittest.TestCase):
    def refused(self, exporter, *parts, **options):
        with self.assertRaises(errors.TensorError) as caught:
            _arrays.of(exporter, "x", **options)
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def test_both_versions(self):
        for kind in (_Old, _New):
            for strides in (None, (3, 1)):
                exporter = kind(strides=strides, offset=4)
                floats = _arrays.of(exporter, "x", writable=True)
                self.assertEqual(floats.shape, (2, 3))
                target = array.array("f", [0] * 6)
                floats.copy_to(_arrays.of(target, "y", writable=True)._replace(shape=(2, 3)))
                self.assertEqual(list(target), [2, 3, 4, 5, 6, 7])
                _arrays.of(array.array("f", range(10, 16)), "z").copy_to(floats)
                self.assertEqual(list(exporter.values)[:4], [1, 10, 11, 12])
                del floats
                gc.collect()

    def test_an_axis_of_one_may_have_any_stride(self):
        floats = _arrays.of(_Old(shape=(1, 3), strides=(77, 1)), "x")
        self.assertEqual(floats.shape, (1, 3))

    def test_a_number(self):
        self.assertEqual(_arrays.of(_New(shape=()), "x").shape, ())

    def test_refusals(self):
        for kind in (_Old, _New):
            self.refused(kind(strides=(1, 2)), "x: is not contiguous, of shape (2, 3)")
            self.refused(kind(bits=64), "x: is float64 of shape (2, 3), allowed: float32")
            self.refused(kind(code=_BFLOAT, bits=16), "x: is bfloat16")
            self.refused(kind(shape=(2, 0)), "of shape (2, 0), allowed: at least one element")
            self.refused(kind(device=_CUDA), "x: is on a CUDA device, 5, allowed: the CPU's memory")
            self.refused(kind(device=99), "DLPack's kind 99")

    def test_read_only(self):
        self.refused(_New(flags=1), "x: is read-only", writable=True)
        floats = _arrays.of(_New(flags=1), "x")
        self.assertTrue(floats.bytes.readonly)
        self.assertIsNone(floats.address())


class BufferTest(unittest.TestCase):
    def test_ctypes(self):
        floats = _arrays.of(((ctypes.c_float * 3) * 2)(), "x", writable=True)
        self.assertEqual(floats.shape, (2, 3))

    def test_the_same_memory_is_not_copied(self):
        own = (ctypes.c_float * 2)(1, 2)
        floats = _arrays.of(own, "x", writable=True)
        self.assertEqual(floats.address(), ctypes.addressof(own))
        floats.copy_to(_arrays.of(own, "y"))


if __name__ == "__main__":
    unittest.main()
