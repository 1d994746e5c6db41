"""A small run that can be attacked, and attacks in processes of their own."""

import array
import dataclasses
import json
import multiprocessing
import operator
import os
import pathlib
import re
import resource
import socket
import struct
import subprocess
import time
import typing

from bench.attacks import attacks


@dataclasses.dataclass(frozen=True)
class Case:
    """Who attacks, how, and a run of which kind."""

    who: str
    attacks: tuple[str, ...]
    overrides: tuple[str, ...] = ()

    def run(self, folder):
        return Run(folder, is_tls=self.who != "plaintext", overrides=self.overrides)

    def require(self, attack, acts, got_through):
        """Raises AssertionError if the attack did not do what is said of it, and so says nothing
        of the run: if it was refused, or, of a stranger, was not."""
        if acts == 0:
            raise AssertionError(f"{self.who}: {attack}: there was no attack")
        is_refused = self.who == "stranger" and attack not in _BEFORE_CALLS
        if is_refused == (got_through > 0):
            raise AssertionError(
                f"{self.who}: {attack}: {got_through} got through of {acts}, "
                f"allowed: {'none' if is_refused else 'some'}"
            )


# What needs no right.
_BEFORE_CALLS = ("connections", "slow_handshakes", "handshakes")
_OF_CONNECTIONS = ("connections", "slow_handshakes")
# Those that take all places of connections need long for that otherwise.
_IN_HASTE = ("limits.strangers.handshakes_per_second=2000",)
CASES = (
    Case("plaintext", _OF_CONNECTIONS),
    Case("stranger", tuple(name for name in attacks.ATTACKS if name != "known_connections")),
    Case("reader", tuple(
        name for name in attacks.ATTACKS if name not in (*_OF_CONNECTIONS, "known_connections")
    )),
    Case("reader", ("known_connections",), _IN_HASTE),
    # The second of two workers, without which the first one goes on.
    Case("worker", ("half_open_streams", "small_messages", "never_reads"), (
        "workers=2", "update.policy=ASYNC",
    )),
)
_ATTACKING_RANK = 1

# By which the memory of a ps may grow.
MOST_BYTES = 64e6

# Every so many parameters are looked at.
_EACH = 400
_LEARNING_RATE = 0.01


class Parameters(typing.NamedTuple):
    """Some of a run's parameters, and how many updates each of them has had."""

    values: array.array
    least_updates: int
    most_updates: int


_CONFIG = """
model {{
  input {{ channels: 1000 height: 1 width: 1 }}
  layer {{ name: "wide" linear {{ out_features: 1000 }} }}
  layer {{ name: "narrow" linear {{ out_features: 10 }} }}
}}
training {{ iterations: 1000000000 batch_size: 32 }}
compute {{ backend: EMULATED }}
workers: 1
partition {{ scheme: MEMORY_BASED }}
update {{ policy: SYNC }}
optimizer {{ kind: SGD learning_rate: {rate} }}
exchange {{ shared_memory: false }}
shard {{ address: "127.0.0.1:{port}" }}
{security}
"""
_SECURITY = """
security {{
  certificate: "{keys}/{{name}}.pem"
  key: "{keys}/{{name}}.key"
  authority: "{keys}/authority.pem"
}}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Run:
    """A ps and a worker of it, which end with this object."""

    def __init__(self, folder, is_tls, overrides=()):
        self.is_tls = is_tls
        self._folder = folder
        self.port = free_port()
        self.keys = folder / "keys"
        self._config = folder / "run.textproto"
        self._overrides = [f"--set={each}" for each in overrides]
        security = _SECURITY.format(keys=self.keys) if is_tls else ""
        self._config.write_text(
            _CONFIG.format(port=self.port, rate=_LEARNING_RATE, security=security)
        )
        if is_tls:
            self.psctl("certificates", f"--out={self.keys}")
        self._log = open(folder / "log", "wb")
        self._processes = [self._start("server/ps", "--shard=0")]
        self._processes.append(self._start("worker/worker", "--rank=0"))

    def _start(self, program, argument):
        # It ends with this process, however that ends.
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", program, f"--config={self._config}", argument,
             *self._overrides],
            stdout=self._log, stderr=subprocess.STDOUT,
        )

    @property
    def ps(self):
        return self._processes[0]

    def psctl(self, verb, *arguments):
        command = ["tools/psctl/psctl", verb, f"--config={self._config}", *arguments]
        command += self._overrides
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    def stats(self):
        return json.loads(self.psctl("stats", "--format=json"))["shards"][0]["stats"]

    def iterations(self):
        stats = self.stats()
        return int(stats["updates"]) / int(stats["chunks"])

    def resident_bytes(self):
        """Returns the memory of the ps now, and begins to look for the most (see peak_bytes)."""
        pathlib.Path(f"/proc/{self.ps.pid}/clear_refs").write_text("5")
        return self._memory("VmRSS:")

    def peak_bytes(self):
        """Returns the most memory of the ps since resident_bytes was called."""
        return self._memory("VmHWM:")

    def _memory(self, kind):
        status = pathlib.Path(f"/proc/{self.ps.pid}/status").read_text()
        return 1024 * int(status.partition(kind)[2].split()[0])

    def target(self, who, seconds):
        target = attacks.Target(self.port, seconds, self.is_tls, plan=self._plan())
        if who in ("reader", "worker"):
            name = "reader" if who == "reader" else f"worker-{_ATTACKING_RANK}"
            target.certificate, target.key = (
                str(self.keys / f"{name}.{kind}") for kind in ("pem", "key")
            )
            target.iteration = int(self.iterations()) + 1
        target.rank = _ATTACKING_RANK if who == "worker" else None
        return target

    def _plan(self):
        plan = json.loads(self.psctl("plan", "--format=json"))["plans"][0]
        fingerprints = {key: int(plan[key], 16) for key in plan if key.endswith("_fingerprint")}
        return fingerprints | {key: plan[key] for key in ("plan_version", "protocol_version")}

    def parameters(self):
        """Returns the Parameters as they are."""
        file = self._folder / "saved.safetensors"
        said = self.psctl("save", f"--out={file}")
        least = int(re.search(r"after ([\d,]+) (iterations|updates)", said)[1].replace(",", ""))
        most = least if "iterations" in said else int(self.iterations()) + 1
        with open(file, "rb") as saved:
            size = struct.unpack("<Q", saved.read(8))[0]
            begin, end = json.loads(saved.read(size))["wide/weight"]["data_offsets"]
            saved.seek(begin, os.SEEK_CUR)
            values = array.array("f", saved.read(end - begin))
        return Parameters(values[::_EACH], least, most)

    def require_right(self, before):
        """Raises AssertionError unless training has come from the Parameters that there were before
        to those that there are, by updates with the worker's gradient, which is always the same.
        """
        now = self.parameters()
        gradient = array.array("f", [i * _EACH % 17 - 8 for i in range(len(now.values))])
        for factor in array.array("f", [1e-3, _LEARNING_RATE]):
            gradient = array.array("f", [each * factor for each in gradient])
        values, is_right = before.values, [False] * len(now.values)
        for updates in range(now.most_updates - before.least_updates + 1):
            if updates >= now.least_updates - before.most_updates:
                is_right = [*map(_or_equal, is_right, values, now.values)]
            values = array.array("f", map(operator.sub, values, gradient))
        if not all(is_right):
            raise AssertionError(
                f"{is_right.count(False)} of {len(is_right)} parameters are wrong after "
                f"{now.least_updates} updates"
            )

    def rate(self, seconds):
        """Returns iterations a second over so many seconds."""
        begun, before = time.monotonic(), self.iterations()
        time.sleep(seconds)
        after, ended = self.iterations(), time.monotonic()
        return (after - before) / (ended - begun)

    def require_alive(self):
        for process in self._processes:
            if process.poll() is not None:
                self._log.flush()
                log = pathlib.Path(self._log.name).read_text(errors="replace")
                raise AssertionError(f"a process has ended:\n{log[-3000:]}")

    def await_start(self):
        for _ in range(200):
            self.require_alive()
            try:
                if self.iterations() > 10:
                    return
            except subprocess.CalledProcessError:
                pass  # it does not listen yet
            time.sleep(0.1)
        raise AssertionError("the run does not begin")

    def close(self):
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _or_equal(is_right, value, other):
    return is_right or value == other


def _attack(name, target, sender):
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))

    def begin():
        used = resource.getrusage(resource.RUSAGE_SELF)
        sender.send(used.ru_utime + used.ru_stime)

    target.on_begin = begin
    outcome = attacks.ATTACKS[name](target)
    begin()
    sender.send(outcome)


class Attack:
    """An attack in a process of its own."""

    def __init__(self, name, target):
        fork = multiprocessing.get_context("fork")
        self._receiver, sender = fork.Pipe(duplex=False)
        self._process = fork.Process(target=_attack, args=(name, target, sender), daemon=True)
        self._process.start()
        sender.close()
        self._cpu_before = self._receiver.recv()  # once it has begun

    def end(self):
        """Waits for its end. Returns how often it has done what it does, how much of that got
        through, and its CPU seconds."""
        cpu_seconds = self._receiver.recv() - self._cpu_before
        acts, got_through = self._receiver.recv()
        self._process.join()
        return acts, got_through, cpu_seconds
