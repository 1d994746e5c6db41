"""What the library calls for the state that a worker keeps by itself."""

from __future__ import annotations

import ctypes

from evenshard import _interrupts, _library


class StateCallback:
    """`call` is given the text that the library has, or none. `function` is a generator's, for the
    reason that _interrupts.py gives."""

    def __init__(self, call):
        self._call = call
        self._kept: tuple = ()  # what the library was given last
        self.error: Exception | None = None
        calls = self._calls()
        next(calls)
        self.function = _library.STATE_CALLBACK(calls.send)

    def _calls(self):
        while True:
            try:
                out = yield
                self._fill(out[0])
            except GeneratorExit:
                return
            except BaseException as error:  # pylint: disable=broad-except
                _interrupts.hold(error)

    def _fill(self, state):
        try:
            own, parts = self._call(ctypes.string_at(state.text or 0, state.text_bytes))
        except Exception as error:
            self.error = error
            refusal = ctypes.create_string_buffer(str(error).encode("utf-8", "replace"))
            self._kept = (refusal,)
            state.refusal = ctypes.addressof(refusal)
            return
        text = ctypes.create_string_buffer(own, max(len(own), 1))
        addresses = (ctypes.c_void_p * len(parts))(*(address for address, _ in parts))
        sizes = (ctypes.c_int64 * len(parts))(*(size for _, size in parts))
        self._kept = (text, addresses, sizes)
        state.parts, state.bytes, state.count = addresses, sizes, len(parts)
        state.text_bytes = len(own)
        state.text = ctypes.addressof(text)
