"""The running processes of one system, each of which is the program of bench/wire/role.cc."""

import contextlib
import dataclasses
import os
import select
import socket
import subprocess

_ROLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "role")
_ANSWER_SECONDS = 300  # no step of the largest layout takes this long, even on a slow machine
_END_SECONDS = 10  # what an idle process may take to end
FLOAT_BYTES = 4
# By encoding: the bytes of an element, with its part of a block's scale.
_BYTES = {
    "float32": FLOAT_BYTES, "float16": 2, "bfloat16": 2, "int8": 258 / 256, "int4": 34 / 64,
    "e3m0": 34 / 64,
}


class WireError(Exception):
    """The measurement cannot go on. The text says why."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """A system and a layout of its processes, which are measured together."""

    model: str  # ModelSpec, text format
    # "tcp", "unix", "shared" for headers by TCP and data in shared memory, or "tls", which raw
    # sockets take for "tcp".
    transport: str
    workers: int = 1
    shards: int = 1
    system: str = "ps"  # or "raw"
    limits: tuple = ()  # fields of the config's `limits`, as in "connections: 4"
    encoding: str = "float32"  # of gradients, and one of 16 bits of parameters too; ps only
    error_feedback: bool = False  # ps only
    clips: bool = False  # by the norm of the gradient, which is below the limit; ps only
    socket_buffer_bytes: int = 0  # raw only; 0 leaves it to the kernel
    log_level: str = "warning"

    def __str__(self):
        clips = " with clipping" if self.clips else ""
        return f"{self.system}{clips} over {self.transport}, {self.workers} x {self.shards}"

    @property
    def parameter_encoding(self):
        return self.encoding if self.encoding in ("float16", "bfloat16") else "float32"

    def push_bytes(self, floats):
        """Returns the bytes of gradients as they are sent. Short blocks have more."""
        return round(floats * _BYTES[self.encoding])

    def pull_bytes(self, floats):
        return round(floats * _BYTES[self.parameter_encoding])

    def config(self, folder):
        """Returns the ClusterConfig in text format. A shard has a socket in `folder`, port 0 or,
        with clipping, where shards must find each other, a port that is free now."""
        addresses = ["127.0.0.1:0"] * self.shards
        if self.transport == "unix":
            name = "clips" if self.clips else self.system
            addresses = [f"unix:{folder}/{name}{i}.sock" for i in range(self.shards)]
        elif self.clips:
            addresses = _free_addresses(self.shards)
        shards = " ".join(f'shard {{ address: "{address}" }}' for address in addresses)
        shared = "true" if self.transport == "shared" and self.system != "raw" else "false"
        clipping = "clip_global_norm: 1e9" if self.clips else ""
        return (
            f"model {{ {self.model} }} partition {{ scheme: MEMORY_BASED }} workers: {self.workers}"
            f" update {{ policy: SYNC {clipping} }} optimizer {{ kind: SGD learning_rate: 0.01 }}"
            f" training {{ iterations: 1 }} compute {{ backend: EMULATED }} {shards} exchange {{"
            f" gradient_encoding: {self.encoding.upper()}"
            f" parameter_encoding: {self.parameter_encoding.upper()}"
            f" error_feedback: {str(self.error_feedback).lower()}"
            f" shared_memory: {shared} }} limits {{ {' '.join(self.limits)} }}"
            f" {_security(folder) if self.transport == 'tls' else ''}"
        )


def _security(folder):
    """Returns the `security` of all processes, which have one certificate: its own authority."""
    certificate, key = os.path.join(folder, "all.pem"), os.path.join(folder, "all.key")
    if not os.path.exists(certificate):
        names = ",".join(f"URI:evenshard://evenshard/{role}/0-999" for role in ("worker", "shard"))
        command = [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-keyout", key, "-out", certificate, "-days", "1", "-subj", "/CN=bench",
            "-addext", f"subjectAltName={names}",
        ]
        subprocess.run(command, check=True, capture_output=True)
    return f'security {{ certificate: "{certificate}" key: "{key}" authority: "{certificate}" }}'


def _free_addresses(count):
    with contextlib.ExitStack() as open_sockets:
        servers = [open_sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
                   for _ in range(count)]
        return [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a config makes of a model, in floats."""

    elements: int
    shard_floats: list


def plan(layout, folder):
    """Raises WireError if there is no such model, or the layout does not fit it."""
    done = subprocess.run(
        [_ROLE, "plan", layout.config(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise WireError(done.stderr.strip())
    elements, *shard_floats = map(int, done.stdout.split())
    return Plan(elements, shard_floats)


@dataclasses.dataclass(frozen=True)
class Window:
    """The cost of a number of consecutive iterations."""

    seconds: float  # from the first worker's start to the last one's end
    cpu_seconds: float  # user and system, of all processes together


@dataclasses.dataclass(frozen=True)
class Memory:
    """Resident memory in bytes. Each figure is the largest of all shards or all workers."""

    shard: int
    worker: int  # without the two buffers for gradients and parameters
    exchange: int  # the growth of a worker since just before it connected


class _Process:
    """A process, which answers each command with a line. Its log goes to standard error."""

    def __init__(self, name, popen):
        self._name = name
        self._popen = popen

    def send(self, command):
        with contextlib.suppress(OSError):  # it has ended, as the missing answer will tell
            self._popen.stdin.write(f"{command}\n".encode())

    def answer(self):
        """Waits for the next line and returns its words."""
        if not select.select([self._popen.stdout], [], [], _ANSWER_SECONDS)[0]:
            raise WireError(f"{self._name} has not answered for {_ANSWER_SECONDS} s")
        line = self._popen.stdout.readline().decode()
        if not line:
            raise WireError(f"{self._name} has ended; its reason is above")
        return line.split()

    def close(self, seconds):
        """Asks the process to end, and kills it if it does not within `seconds`."""
        with self._popen:
            self._popen.stdin.close()
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._popen.wait(seconds)
            finally:
                self._popen.kill()


class Cluster:
    """A running system. All methods raise WireError if a process fails. Use it in a `with`."""

    def __init__(self, layout, folder):
        """Starts all processes and returns when every worker is connected. Unix sockets are made in
        `folder`."""
        self._layout = layout
        self._config = layout.config(folder)
        self._processes = []
        try:
            self._shards = [self._start("shard", i, []) for i in range(layout.shards)]
            addresses = [shard.answer()[0] for shard in self._shards]
            self._workers = [self._start("worker", i, addresses) for i in range(layout.workers)]
            # By rank: resident bytes before connecting, and those of both buffers among them.
            self._before = [list(map(int, worker.answer())) for worker in self._workers]
        except BaseException:
            self._close(0)
            raise

    def _start(self, role, index, addresses):
        layout = self._layout
        popen = subprocess.Popen(
            [_ROLE, role, layout.system, str(index), layout.log_level,
             str(layout.socket_buffer_bytes), self._config, *addresses],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        )
        self._processes.append(_Process(f"{role} {index} of {layout.system}", popen))
        return self._processes[-1]

    def _close(self, seconds):
        for process in reversed(self._processes):
            process.close(seconds)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self._close(_END_SECONDS if kind is None else 0)  # after an error some may be at work

    def run(self, iterations):
        """Has all workers do that many push-pulls at the same time."""
        before = self._usage(self._shards + self._workers)
        answers = _ask(self._workers, f"run {iterations}")
        after = self._usage(self._shards + self._workers)
        starts, ends = zip(*((int(start), int(end)) for start, end in answers))
        return Window(
            1e-9 * (max(ends) - min(starts)),
            1e-9 * sum(cpu_after - cpu for (cpu, _), (cpu_after, _) in zip(before, after)),
        )

    def verify(self):
        """Has every worker check its parameters against what the iterations so far must give."""
        _ask(self._workers, "verify")

    def latencies(self, count):
        """Has the first worker time `count` push-pulls and as many empty calls to the first shard,
        and returns the seconds of both."""
        seconds = [1e-9 * int(word) for word in _ask(self._workers[:1], f"latency {count}")[0]]
        return seconds[:count], seconds[count:]

    def memory(self):
        workers = [
            (resident - buffers, resident - before)
            for (_, resident), (before, buffers) in zip(self._usage(self._workers), self._before)
        ]
        return Memory(
            max(resident for _, resident in self._usage(self._shards)),
            max(beyond for beyond, _ in workers),
            max(growth for _, growth in workers),
        )

    @staticmethod
    def _usage(processes):
        return [(int(cpu), int(resident)) for cpu, resident in _ask(processes, "usage")]


def _ask(processes, command):
    """Gives all processes a command at the same time, and returns their answers."""
    for process in processes:
        process.send(command)
    return [process.answer() for process in processes]
