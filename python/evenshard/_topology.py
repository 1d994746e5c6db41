"""Where a worker exchanges: with the shards of a config, or in a ring, whose workers may find each
other by what torchrun has told them."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import importlib
import ipaddress
import os
import re
import socket
from collections.abc import Iterable
from typing import NamedTuple

from evenshard import _environment, _library, errors

# By the argument `topology`, as it stands in the config.
_NAMES = {"ring": "RING", "parameter_server": "PARAMETER_SERVER"}

_MASTER = ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_STARTUP_SECONDS = 30.0  # limits.startup_seconds by default
_MOST_SECONDS = 1e7  # that a store can wait, and a person would
_STARTUP = re.compile(r"\bstartup_seconds\s*[:=]\s*([\d.eE+]+)")

_MADE = """\
model {{ from_workers {{}} }}
topology: RING
ring {{ {addresses} }}
workers: {workers}
update {{ policy: SYNC }}
"""

# The rings that this process has made so far, which all workers make in the same order. A store
# whose server is in this process stays, since others may still read from it.
_stores: list = []


class Place(NamedTuple):
    """What a worker joins: a config, as a path or a text, with what is changed in it."""

    config: str
    overrides: list[str]
    is_ring: bool


def find(
    topology: str | None,
    config: str | os.PathLike | None,
    rank: int | None,
    overrides: Iterable[str] | None,
) -> Place:
    """Returns the place that these arguments of an optimizer, and the environment, say.

    topology: None: that of the config. "ring" without a config: a ring of the processes that
    torchrun has started.

    Errors: ConfigError, also if the config has another topology.
    """
    if topology is not None and topology not in _NAMES:
        raise errors.ConfigError(
            f"topology: is {topology!r}, allowed: {', '.join(map(repr, _NAMES))}, or None for that"
            " of the config"
        )
    changes = _environment.overrides(overrides, config)
    if topology == "ring" and config is None and not os.environ.get("EVENSHARD_CONFIG"):
        return Place(_rendezvous(rank, _startup_seconds(changes)), changes, is_ring=True)
    text = _environment.config(config)
    is_ring = _is_ring(text, changes)
    if topology is not None and is_ring != (topology == "ring"):
        wanted, other = _NAMES[topology], "RING" if is_ring else "PARAMETER_SERVER"
        raise errors.ConfigError(
            f"topology: is {topology!r}, and the run has {other}; allowed: the same, by `evenshard"
            f" run --topology {wanted}` or by topology: {wanted} in the config"
        )
    return Place(text, changes, is_ring)


def _is_ring(text, changes):
    library = _library.load()
    options = _library.COptions()
    options.set_config(text, changes)
    topology = ctypes.c_int()
    code = library.topology_of(ctypes.byref(options), ctypes.byref(topology))
    if code != 0:
        raise errors.of_config(_library.error(library, code))
    return topology.value == _library.RING


def _startup_seconds(changes):
    """What the overrides say of limits.startup_seconds. What is no number, a config refuses."""
    for change in reversed(changes):
        found = _STARTUP.search(change) if change.startswith("limits") else None
        if found:
            with contextlib.suppress(ValueError):
                return float(found[1])
    return _STARTUP_SECONDS


def _rendezvous(rank, seconds):
    """Tells all workers this one's address, and returns the text of a config with everybody's."""
    needed = _MASTER if rank is not None else ("RANK", *_MASTER)
    missing = [name for name in needed if not os.environ.get(name)]
    if missing:
        raise errors.ConfigError(
            f"topology: is 'ring', there is no config, and the environment has no"
            f" {', '.join(missing)}; allowed: a start by `evenshard run --topology RING --workers N"
            " SCRIPT` or by torchrun, or a config with topology: RING and ring { address }"
        )
    own, workers = _environment.rank(rank), _environment.workers()
    limit = datetime.timedelta(seconds=min(seconds, _MOST_SECONDS))
    try:
        # As init_process_group does, beside which it works; also with a PyTorch 2 without libuv.
        rendezvous = importlib.import_module("torch.distributed.rendezvous").rendezvous
        url = f"env://?rank={own}&world_size={workers}&use_libuv=0"
        store, _, _ = next(rendezvous(url, timeout=limit))
        name = f"evenshard/ring/{len(_stores)}/"
        _stores.append(store)
        store.set_timeout(limit)
        addresses = addresses_by(store, name, own, workers)
    except (RuntimeError, ValueError, OSError) as error:
        raise errors.DeadlineExceeded(
            f"topology: is 'ring', and worker {own} did not learn the addresses of all {workers}"
            f" workers within {seconds:g} s (limits.startup_seconds) at MASTER_ADDR"
            f" {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: {error}",
            "DEADLINE_EXCEEDED",
        ) from error
    return _MADE.format(
        addresses=" ".join(f'address: "{address}"' for address in addresses), workers=workers
    )


def addresses_by(store, name: str, own: int, workers: int) -> list[str]:
    """Returns an address of each worker at which the others find it, with a port that was free.
    `store` is torch.distributed's, and `name` begins the keys."""
    def exchanged(kind, value):
        store.set(f"{name}{kind}/{own}", value)
        return [store.get(f"{name}{kind}/{other}").decode() for other in range(workers)]

    host = _host_towards(os.environ["MASTER_ADDR"])
    hosts = exchanged("host", host)
    elsewhere = [each for each in hosts if not _is_loopback(each)]
    if _is_loopback(host) and elsewhere:
        # MASTER_ADDR is this host, by a name that Debian gives 127.0.1.1 in /etc/hosts.
        host = _host_towards(elsewhere[0])
    is_wide = ":" in host
    with socket.create_server(
        (host, 0), family=socket.AF_INET6 if is_wide else socket.AF_INET
    ) as server:
        port = server.getsockname()[1]
    return exchanged("address", f"[{host}]:{port}" if is_wide else f"{host}:{port}")


def _host_towards(other):
    """The address of this host's interface by which it reaches another host."""
    family, _, _, _, target = socket.getaddrinfo(other, 1, type=socket.SOCK_DGRAM)[0]
    with contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
        probe.connect(target)  # sends nothing, and chooses the interface
        return probe.getsockname()[0]


def _is_loopback(host):
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback
