"""Finds and loads libevenshard.so, and declares what client/evenshard.h does."""

from __future__ import annotations

import atexit
import ctypes
import functools
import math
import os

from evenshard import _interrupts, errors

ABI = 8

PARAMETER = 0
RUNNING_STATISTIC = 1
BUFFER = 2

# evenshard_type
FLOAT32 = 0
FLOAT16 = 1
BFLOAT16 = 2

IDLE = 0
PUSHING = 1
PUSHED = 2

# evenshard_topology
PARAMETER_SERVER = 0
RING = 1

# evenshard_contribution
ZEROS = 0
GRADIENT = 1
NOTHING = 2

_VARIABLE = "EVENSHARD_LIBRARY"
_NAME = "libevenshard.so"


class CTensor(ctypes.Structure):
    """evenshard_tensor"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("dimensions", ctypes.c_int),
        ("role", ctypes.c_int),
        ("layer", ctypes.c_char_p),
        ("type", ctypes.c_int),
    ]


class _ConfigOptions:
    """The first fields of both kinds of options."""

    FIELDS = [
        ("config_path", ctypes.c_char_p),
        ("config_text", ctypes.c_char_p),
        ("overrides", ctypes.POINTER(ctypes.c_char_p)),
        ("override_count", ctypes.c_int),
    ]

    def set_config(self, config: str, overrides: list[str]) -> None:
        """`config` is a path, or the text itself if it has a brace."""
        if "{" in config:
            self.config_text = encoded(config)
        else:
            self.config_path = encoded(config)
        changes = [encoded(line) for line in overrides]
        self.overrides = (ctypes.c_char_p * len(changes))(*changes)
        self.override_count = len(changes)


class CReaderOptions(ctypes.Structure, _ConfigOptions):
    """evenshard_reader_options"""

    _fields_ = _ConfigOptions.FIELDS


class COptions(ctypes.Structure, _ConfigOptions):
    """evenshard_options"""

    _fields_ = [
        *_ConfigOptions.FIELDS,
        ("rank", ctypes.c_int),
        ("coordinator", ctypes.c_char_p),
        ("tensors", ctypes.POINTER(CTensor)),
        ("tensor_count", ctypes.c_int),
        ("optimizer", ctypes.c_char_p),
        ("clip_global_norm", ctypes.c_float),
        ("clip_value", ctypes.c_float),
        ("local", ctypes.c_char_p),
    ]


class CCounts(ctypes.Structure):
    """evenshard_counts"""

    _fields_ = [
        ("iterations", ctypes.c_uint64),
        ("pushes", ctypes.c_uint64),
        ("bytes_out", ctypes.c_uint64),
        ("bytes_in", ctypes.c_uint64),
        ("wait_seconds", ctypes.c_double),
    ]


class CState(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.c_void_p),
        ("text_bytes", ctypes.c_int64),
        ("parts", ctypes.POINTER(ctypes.c_void_p)),
        ("bytes", ctypes.POINTER(ctypes.c_int64)),
        ("count", ctypes.c_int),
        ("refusal", ctypes.c_void_p),
    ]


# The library's type has a second argument, the context, which Python's callbacks do not need.
STATE_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.POINTER(CState))

_WORKER = ctypes.c_void_p
_READER = ctypes.c_void_p


class CHyperparameters(ctypes.Structure):
    """NaN: the config's."""

    _fields_ = [(name, ctypes.c_float) for name in (
        "learning_rate", "momentum", "beta2", "weight_decay", "epsilon"
    )]


def hyperparameters(*numbers: float | None) -> CHyperparameters:
    """In the order of the fields. None, and what is left out: the config's. Errors:
    InvalidArgument for NaN, which stands for that on the way."""
    for (field, _), number in zip(CHyperparameters._fields_, numbers):
        if number is not None and math.isnan(number):
            raise errors.InvalidArgument(f"{field}: is {number}, allowed: a number")
    given = [math.nan if number is None else number for number in numbers]
    return CHyperparameters(*given, *[math.nan] * (len(CHyperparameters._fields_) - len(given)))


_NUMBERS = ctypes.POINTER(CHyperparameters)
_TEXTS = ctypes.POINTER(ctypes.c_char_p)

# The result and the arguments of each function.
_PROTOTYPES = {
    "message": (ctypes.c_char_p, []),
    "last_error_kind": (ctypes.c_int, []),
    "differing_state": (ctypes.c_char_p, []),
    "topology_of": (ctypes.c_int, [ctypes.POINTER(COptions), ctypes.POINTER(ctypes.c_int)]),
    "create": (ctypes.c_int, [ctypes.POINTER(COptions), ctypes.POINTER(_WORKER)]),
    "destroy": (None, [_WORKER]),
    "tensor_count": (ctypes.c_int, [_WORKER]),
    "tensor_at": (CTensor, [_WORKER, ctypes.c_int]),
    "elements": (ctypes.c_int64, [_WORKER, ctypes.c_int]),
    "parameters": (ctypes.c_void_p, [_WORKER, ctypes.c_int]),
    "gradients": (ctypes.c_void_p, [_WORKER, ctypes.c_int]),
    "assigned": (ctypes.c_void_p, [_WORKER, ctypes.c_int]),
    "rank": (ctypes.c_int, [_WORKER]),
    "workers": (ctypes.c_int, [_WORKER]),
    "shards": (ctypes.c_int, [_WORKER]),
    "pushes_early": (ctypes.c_int, [_WORKER]),
    "waits_in_forward": (ctypes.c_int, [_WORKER]),
    "skips_non_finite": (ctypes.c_int, [_WORKER]),
    "gradient_limit": (ctypes.c_double, [_WORKER]),
    "waits_for_workers": (ctypes.c_int, [_WORKER]),
    "follows_views": (ctypes.c_int, [_WORKER]),
    "optimizer": (ctypes.c_char_p, [_WORKER]),
    "local_steps": (ctypes.c_int, [_WORKER]),
    "local_seconds": (ctypes.c_double, [_WORKER]),
    "parameters_are_exact": (ctypes.c_int, [_WORKER]),
    "learning_rate": (ctypes.c_double, [_WORKER, ctypes.c_int]),
    "join": (ctypes.c_int, [_WORKER]),
    "iteration": (ctypes.c_int64, [_WORKER]),
    "joined_late": (ctypes.c_int, [_WORKER]),
    "assignments": (ctypes.c_int64, [_WORKER]),
    "current_phase": (ctypes.c_int, [_WORKER]),
    "is_pushed": (ctypes.c_int, [_WORKER, ctypes.c_int]),
    "has_failed": (ctypes.c_int, [_WORKER]),
    "set_weight": (ctypes.c_int, [_WORKER, ctypes.c_float]),
    "begin": (ctypes.c_int, [_WORKER, ctypes.c_int, _NUMBERS]),
    "begin_assignment": (
        ctypes.c_int, [_WORKER, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)]
    ),
    "push": (ctypes.c_int, [_WORKER, ctypes.c_int, ctypes.c_int]),
    "push_several": (
        ctypes.c_int, [_WORKER, ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int]
    ),
    "wait": (ctypes.c_int, [_WORKER, ctypes.c_int]),
    "received": (ctypes.c_int, [_WORKER, ctypes.c_int]),
    "all_absent": (ctypes.c_int, [_WORKER, ctypes.c_int]),
    "updates": (ctypes.c_uint64, [_WORKER, ctypes.c_int]),
    "wait_all": (ctypes.c_int, [_WORKER]),
    "mean": (
        ctypes.c_int,
        [_WORKER, ctypes.c_char_p, ctypes.POINTER(ctypes.c_double), ctypes.c_int],
    ),
    "keep_state": (ctypes.c_int, [_WORKER, _TEXTS, _TEXTS, ctypes.c_int]),
    "take_state": (ctypes.c_int, [_WORKER]),
    "taken_state": (ctypes.c_int, [_WORKER, ctypes.c_int, _TEXTS, _TEXTS]),
    "set_state_giver": (None, [_WORKER, STATE_CALLBACK, ctypes.c_void_p]),
    "receive_state": (ctypes.c_int, [_WORKER, STATE_CALLBACK, ctypes.c_void_p]),
    "push_pull": (ctypes.c_int, [_WORKER, _NUMBERS]),
    "pull": (ctypes.c_int, [_WORKER]),
    "pull_state": (
        ctypes.c_int,
        [
            _WORKER, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint64)
        ],
    ),
    "resume": (ctypes.c_int, [_WORKER]),
    "leave": (ctypes.c_int, [_WORKER, ctypes.c_char_p]),
    "interrupt": (None, [_WORKER]),
    "statistics": (CCounts, [_WORKER]),
    "set_interrupt_check": (None, [ctypes.c_void_p]),
    "reader_create": (ctypes.c_int, [ctypes.POINTER(CReaderOptions), ctypes.POINTER(_READER)]),
    "reader_destroy": (None, [_READER]),
    "reader_tensor_count": (ctypes.c_int, [_READER]),
    "reader_tensor_at": (CTensor, [_READER, ctypes.c_int]),
    "reader_pull": (
        ctypes.c_int,
        [
            _READER, ctypes.c_int64, ctypes.c_double, ctypes.POINTER(ctypes.c_void_p),
            ctypes.POINTER(ctypes.c_int64),
        ],
    ),
    "reader_interrupt": (None, [_READER]),
}


class Owned:
    """A worker or reader of the library. It is destroyed with the last reference to this, and an
    argument of a call is one until the call ends. In a child process it stays, as the library wants
    it."""

    def __init__(self, pointer: ctypes.c_void_p, destroy):
        self.pointer = self._as_parameter_ = pointer  # ctypes passes the latter
        self.process = os.getpid()
        self._destroy = destroy
        self._getpid = os.getpid  # modules may be gone when the program ends

    def __del__(self):
        if self._getpid() == self.process:
            self._destroy(self.pointer)


def _candidates() -> list[str]:
    given = os.environ.get(_VARIABLE)
    if given:
        return [given]
    package = os.path.dirname(os.path.abspath(__file__))
    checkout = os.path.dirname(os.path.dirname(package))
    return [
        os.path.join(package, _NAME),
        os.path.join(checkout, "bazel-bin", "client", _NAME),
    ]


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """Returns the library, whose functions are attributes without their prefix `evenshard_`.

    It is loaded at the first call. Errors: FailedPrecondition if there is no library, or if it is
    not the one that this package was written for.
    """
    candidates = _candidates()
    path = next((path for path in candidates if os.path.exists(path)), None)
    if path is None:
        raise errors.FailedPrecondition(
            f"there is no {_NAME}: looked for {' and '.join(candidates)}; build it with `bazel"
            f" build //client:{_NAME}`, or set {_VARIABLE} to its path"
        )
    try:
        library = ctypes.CDLL(path)
        abi = library.evenshard_abi
    except (OSError, AttributeError) as error:
        raise errors.FailedPrecondition(f"{path} is not Evenshard's library: {error}") from None
    if abi() != ABI:
        raise errors.FailedPrecondition(
            f"{path} has version {abi()} of the C interface, allowed: {ABI}, for which this package"
            " was written; take the package and the library from the same version of Evenshard"
        )
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, "evenshard_" + name)
        function.restype = result
        function.argtypes = arguments
        setattr(library, name, function)
    library.set_interrupt_check(ctypes.cast(_interrupts.CHECK, ctypes.c_void_p))
    return library


@atexit.register
def _forget_check() -> None:
    """Nothing calls into Python when it is about to end. What was registered later runs before
    this: the wait of a worker that leaves (_exit.py) may be interrupted."""
    if load.cache_info().currsize:
        load().set_interrupt_check(None)


def require_open(owned: Owned | None, what: str) -> Owned:
    """Errors: FailedPrecondition if `what`, "the worker" or "the reader", is closed, for which
    `owned` is None, or another process's."""
    if owned is None:
        raise errors.FailedPrecondition(f"{what} is closed")
    if os.getpid() != owned.process:
        raise errors.FailedPrecondition(
            f"{what} belongs to process {owned.process}, from which this process {os.getpid()} was"
            " forked; allowed: use in the process that made it"
        )
    return owned


def encoded(text: str | None) -> bytes | None:
    """Returns a text as the library takes it. It may be or hold a path. Errors: InvalidArgument if
    it has a NUL, where a text ends in C."""
    if text is None:
        return None
    if "\0" in text:
        raise errors.InvalidArgument(f"{text!r}: has a NUL, allowed: a text without")
    return text.encode("utf-8", "surrogateescape")


def told(text: str | None) -> bytes | None:
    """Returns a text for people as the library takes it. Others get it, in UTF-8."""
    return None if text is None else text.replace("\0", "\\0").encode("utf-8", "backslashreplace")


def error(library: ctypes.CDLL, code: int) -> errors.Error:
    """Returns the exception for the last call of this thread that failed, with this status."""
    message = (library.message() or b"").decode("utf-8", "replace")
    state = (library.differing_state() or b"").decode("utf-8", "replace")
    return errors.from_status(code, message, library.last_error_kind(), state)
