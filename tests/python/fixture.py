"""What the tests of the Python package need: the package itself, shards, and workers as processes.

Import this module before `evenshard`. The tests' own process never calls the library, so that it
may fork workers as often as it likes.
"""

import contextlib
import ctypes
import io
import itertools
import multiprocessing
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def built(path):
    """Where something is that Bazel has built: where EVENSHARD_PROGRAMS says; beside this file's
    folder in a test."""
    beside = os.path.join(ROOT, path)
    default = ROOT if os.path.exists(beside) else os.path.join(ROOT, "bazel-bin")
    return os.path.join(os.environ.get("EVENSHARD_PROGRAMS", default), path)


PACKAGE = os.path.join(ROOT, "python")
# Before the folder of the whole repository, which has the package's name in a test.
sys.path.insert(0, PACKAGE)
os.environ.setdefault("EVENSHARD_LIBRARY", built("client/libevenshard.so"))
# The workers share few processors, and a process that forks must not have begun threads.
os.environ["OMP_NUM_THREADS"] = "1"

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None

import evenshard  # noqa: E402

# What is loaded when it is used would be loaded by each worker anew, a third of its time.
for name in evenshard.__all__:
    getattr(evenshard, name)
ctypes.CDLL(os.environ["EVENSHARD_LIBRARY"])

PATIENCE_SECONDS = 120
# Where workers and references make their tensors: "cpu", or "cuda" where there is a GPU.
DEVICE = os.environ.get("EVENSHARD_TEST_DEVICE", "cpu")

_CONFIG = """\
model {{ from_workers {{}} }}
{places}
workers: {workers}
update {{ {update} }}
{optimizer}
exchange {{ {schedule} {exchange} }}
limits {{
  connections: 1 startup_seconds: {startup_seconds} exchange_seconds: {exchange_seconds}
  shutdown_seconds: 5 {limits}
}}
"""


def config(
    addresses, *, workers=4, scheme="MEMORY_BASED", update="policy: SYNC deterministic: true",
    rule="kind: SGD learning_rate: 0.1", schedule="FULL", shared_memory=True, startup_seconds=60,
    exchange_seconds=60, exchange="", is_ring=False, ring="", limits="",
):
    """The text of a config. `rule` "": the workers bring the optimizer. `is_ring`: the addresses
    are the workers'."""
    if is_ring:
        places = " ".join(f'address: "{address}"' for address in addresses)
        places = f"topology: RING\nring {{ {places} {ring} }}"
    else:
        places = "\n".join(f'shard {{ address: "{address}" }}' for address in addresses)
        places = f"partition {{ scheme: {scheme} }}\n{places}"
        exchange = f"shared_memory: {str(shared_memory).lower()} {exchange}"
    return _CONFIG.format(
        places=places,
        workers=workers,
        update=update,
        optimizer=f"optimizer {{ {rule} }}" if rule else "",
        schedule=f"schedule: {schedule}" if schedule else "",
        startup_seconds=startup_seconds,
        exchange_seconds=exchange_seconds,
        exchange=exchange,
        limits=limits,
    )


class Cluster(contextlib.AbstractContextManager):
    """Shards that run until the end of the `with`, or none for a ring. `path` is the config's."""

    def __init__(self, shards=2, *, transport="unix", is_ring=False, workers=4, **settings):
        self._scratch = tempfile.TemporaryDirectory()
        self.folder = self._scratch.name
        self.path = os.path.join(self.folder, "run.textproto")
        self.addresses = _addresses(workers if is_ring else shards, transport, self.folder)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(config(self.addresses, workers=workers, is_ring=is_ring, **settings))
        self._log = os.path.join(self.folder, "shards.log")
        self._processes = [self._start(i) for i in range(0 if is_ring else shards)]

    def _start(self, shard):
        with open(self._log, "a", encoding="utf-8") as log:
            return subprocess.Popen(
                [built("server/ps"), f"--config={self.path}", f"--shard={shard}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )

    def stop(self):
        """Has the shards stand still, as on a host that answers no more, until the end."""
        for process in self._processes:
            process.send_signal(signal.SIGSTOP)

    def log(self):
        if not self._processes:
            return ""
        with open(self._log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def end(self):
        """Ends the shards."""
        for process in self._processes:
            process.terminate()
            process.send_signal(signal.SIGCONT)
        for process in self._processes:
            try:
                process.wait(PATIENCE_SECONDS)
            finally:
                process.kill()
                process.wait()

    def __exit__(self, *exception):
        self.end()
        self._scratch.cleanup()


def _addresses(count, transport, folder):
    if transport == "unix":
        return [f"unix:{folder}/{i}.sock" for i in range(count)]
    return free_addresses(count)


def free_addresses(count):
    """Addresses of this machine that are free at the moment."""
    with contextlib.ExitStack() as open_sockets:
        free = [
            open_sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(count)
        ]
        return [f"127.0.0.1:{server.getsockname()[1]}" for server in free]


def generator(seed):
    """Random numbers for tensors on the tests' device."""
    return torch.Generator(DEVICE).manual_seed(seed)


def shares():
    """Whether each next case of many is this process's, where several share them as Bazel says."""
    shards = int(os.environ.get("TEST_TOTAL_SHARDS", "1"))
    index = int(os.environ.get("TEST_SHARD_INDEX", "0"))
    return (number % shards == index for number in itertools.count())


class Outcome:
    """How a worker's process has ended."""

    def __init__(self, value=None, error=None, kind="", status="", trace=""):
        self.value = value
        self.error = error  # the text of an exception
        self.kind = kind  # the name of its class
        self.status = status  # of an evenshard.Error
        self.trace = trace


class Process:
    """A forked process that calls a function and gives its result or exception back."""

    def __init__(self, function, *arguments, environment=None):
        context = multiprocessing.get_context("fork")
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run, args=(sender, function, arguments, environment or {})
        )
        self._process.start()
        sender.close()

    @property
    def pid(self):
        return self._process.pid

    def signal(self, number):
        os.kill(self.pid, number)

    def outcome(self, deadline=None):
        """Waits for its end. A process that is not done in time is killed, and has failed."""
        deadline = deadline or time.monotonic() + PATIENCE_SECONDS
        try:
            if not self._receiver.poll(max(0.0, deadline - time.monotonic())):
                return Outcome(error="did not end in time", kind="Timeout")
            return pickle.loads(self._receiver.recv_bytes())
        except EOFError:
            self._process.join(PATIENCE_SECONDS)
            return Outcome(error=f"exit code {self._process.exitcode}", kind="Death")
        finally:
            self.kill()

    def kill(self):
        self._process.join(1)
        self._process.kill()
        self._process.join()


class _Pickler(pickle.Pickler):
    """Not the one of multiprocessing: tensors would go through shared files. They arrive on the
    host, so that the tests' own process never has a device."""

    def reducer_override(self, value):
        if torch is not None and isinstance(value, torch.Tensor) and value.is_cuda:
            return value.detach().cpu().__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


def _pickled(value):
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def _run(sender, function, arguments, environment):
    os.environ.update(environment)
    # A program in the background may have inherited that it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if torch is not None:
        # PyTorch replaces its pool of threads in a forked process at its first use, and is not
        # prepared for several threads that do that at once ("Invalid thread pool!").
        torch.set_num_threads(1)
    if DEVICE != "cpu":
        torch.set_default_device(DEVICE)
        # As exact as the processor, with which others are compared.
        torch.backends.cudnn.allow_tf32 = False
    try:
        outcome = Outcome(value=function(*arguments))
    except BaseException as error:  # pylint: disable=broad-except
        outcome = Outcome(
            error=str(error), kind=type(error).__name__, status=getattr(error, "status", ""),
            trace=traceback.format_exc(),
        )
    sender.send_bytes(_pickled(outcome))


def apart(function, *arguments):
    """Calls a function in a process of its own. What computes gradients must run in one: threads of
    PyTorch 2 that have begun here would be missing in processes that are forked later."""
    outcome = Process(function, *arguments).outcome()
    assert outcome.error is None, f"{outcome.kind}: {outcome.error}\n{outcome.trace}"
    return outcome.value


def start_workers(cluster, function, *arguments, workers=4):
    """Starts `function(rank, *arguments)` in a process for each worker, with the environment that
    torchrun and launch make."""
    return [
        Process(
            function, rank, *arguments,
            environment={
                "RANK": str(rank), "WORLD_SIZE": str(workers), "EVENSHARD_CONFIG": cluster.path,
            },
        )
        for rank in range(workers)
    ]


def outcomes(processes):
    """Waits for the end of all processes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    return [process.outcome(deadline) for process in processes]


def run_workers(test, cluster, function, *arguments, workers=4):
    """Runs the workers to their ends and returns the values. The test fails if one has failed."""
    ends = outcomes(start_workers(cluster, function, *arguments, workers=workers))
    for rank, end in enumerate(ends):
        if end.error is not None:
            test.fail(f"worker {rank}: {end.kind}: {end.error}\n{end.trace}\n{cluster.log()}")
    return [end.value for end in ends]


def launch(path, script, *arguments, options=()):
    """Starts `launch` with the config at `path`, with the text of a script as its workers."""
    return subprocess.Popen(
        [
            built("tools/launch/launch"), f"--config={path}", *options,
            f"--ps={built('server/ps')}", "--", sys.executable, "-c", script, *arguments,
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": PACKAGE},
    )


def follow(process, on_output):
    """Calls `on_output` with all output so far at each further line, until the process ends. It is
    killed after a limited time. Returns its exit code and all output."""
    timer = threading.Timer(PATIENCE_SECONDS, process.kill)
    timer.start()
    output = ""
    try:
        for line in process.stdout:
            output += line
            on_output(output)
        return process.wait(), output
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def until(condition, seconds=PATIENCE_SECONDS):
    """Waits until `condition()` holds, for a limited time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def run_script(text, *, environment=None, arguments=()):
    """Runs a Python program to its end: its exit code, its output and what it complains of."""
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env={**os.environ, "PYTHONPATH": PACKAGE, **(environment or {})},
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )
    return done.returncode, done.stdout, without_waits(done.stderr)


def without_waits(complaints):
    """Leaves out the library's warnings of a wait, which come on a machine that stalls."""
    return re.sub(r"^\S+ warning iteration \d+ has waited .*\n", "", complaints, flags=re.M)


def kill_shard(config, shard):
    """Kills the process of a shard that was started with this config."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{number}/cmdline", encoding="utf-8") as file:
                arguments = file.read().split("\0")
            if f"--config={config}" in arguments and f"--shard={shard}" in arguments:
                os.kill(int(number), signal.SIGKILL)


def kill_workers(launched):
    """Kills all workers of a `launch` at once."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{number}/stat", encoding="utf-8") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{number}/cmdline", encoding="utf-8") as file:
                program = file.read().split("\0")[0]
            if parent == launched.pid and program == sys.executable:
                os.kill(int(number), signal.SIGKILL)


# gRPC 1.51 keeps these idle for the next connection of the process.
_GRPC_THREADS = {"default-executo", "resolver-execut", "grpc_global_tim"}


def leftovers():
    """What this process has that an exchange needs: threads, memory and files."""
    threads = []
    for number in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            with open(f"/proc/self/task/{number}/comm", encoding="utf-8") as file:
                threads.append(file.read().strip())
    # PyTorch keeps one of these from the first backward pass on.
    threads = [name for name in threads if not name.startswith("pt_autograd")]
    with open("/proc/self/maps", encoding="utf-8") as file:
        maps = [line.split()[-1] for line in file if "memfd:ps-" in line]
    files = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            files.append(os.readlink(f"/proc/self/fd/{name}"))
    return {
        "threads": sorted(name for name in threads if name not in _GRPC_THREADS),
        "idle": sum(name in _GRPC_THREADS for name in threads),
        "maps": maps,
        "memory": [path for path in files if "memfd:ps-" in path],
        "sockets": sum(path.startswith("socket:") for path in files),
        "shm": [name for name in os.listdir("/dev/shm") if "ps-" in name],
    }
