"""evenshard.launch: starts the shards and one copy of a script per worker on this machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator

from evenshard import _programs, errors

_MOST_PROCESSES = 1024  # of each kind
# The field of the config that each argument sets, and its values.
_CHOICES = {
    "topology": ("topology", ("PARAMETER_SERVER", "RING")),
    "policy": ("update.policy", ("SYNC", "ASYNC", "SSP")),
    "partition": ("partition.scheme", ("STRIPED", "MEMORY_BASED", "LAYER_BASED")),
    "schedule": ("exchange.schedule", ("BACKWARD", "FULL", "SEQUENTIAL")),
}

# What counts where the caller gives neither a config nor a value. Everything runs on one host,
# where processors limit the exchange and not links: fewer, larger messages take less of them
# (docs/configuration.md, "Sizes that are chosen").
_CONFIG = """\
model { from_workers {} }
partition { scheme: STRIPED }
shard { address: "127.0.0.1:0" }
update { policy: SYNC }
limits { chunk_bytes: 655360 }
"""

_RING_CONFIG = """\
model { from_workers {} }
update { policy: SYNC }
"""

# The folder of checkpoints, in the text of `recovery` or in an override.
_FOLDER = re.compile(r"""\bfolder\s*[:=]\s*["']?([^"'\s}]*)""")

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_prctl = ctypes.CDLL(None).prctl


def launch(
    script: str | os.PathLike,
    *,
    workers: int | None = None,
    shards: int | None = None,
    arguments: Iterable[str] = (),
    topology: str | None = None,
    policy: str | None = None,
    staleness: int | None = None,
    partition: str | None = None,
    schedule: str | None = None,
    optimizer: str | None = None,
    recovery: str | None = None,
    config: str | os.PathLike | None = None,
    overrides: Iterable[str] = (),
    is_module: bool = False,
    save: str | os.PathLike | None = None,
    stats: str | os.PathLike | None = None,
    resume: bool = False,
    max_restarts: int | None = None,
    name: str | None = None,
    log_level: str | None = None,
    log_dir: str | os.PathLike | None = None,
    stdin: int | None = None,
    programs: str | os.PathLike | None = None,
    named: Callable[[str], str] = str,
) -> int:
    """Runs a Python script once for each worker, with shards or as a ring, and waits until all have
    ended.

        evenshard.launch("train.py", workers=4, shards=2, arguments=["--epochs", "3"])

    Each script finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in
    its environment, and what evenshard.Optimizer and evenshard.Worker need there. All output goes
    to standard output, each line behind the name of its process. If a process fails, the others are
    ended.

    workers, shards: how many; 1 of each if not given.
    arguments: of the script.
    topology: PARAMETER_SERVER (if not given) or RING: the workers, at least 2, exchange among
        themselves, and there are no shards.
    policy: SYNC (if not given), ASYNC or SSP.
    staleness: of SSP, how many iterations a worker may be ahead of the slowest; 0 is SYNC.
    partition: STRIPED (if not given), MEMORY_BASED or LAYER_BASED.
    schedule: BACKWARD (if not given), FULL or SEQUENTIAL.
    optimizer: an OptimizerConfig in text format. None: the script brings its optimizer.
    recovery: what the run does when a process dies, in text format: "replicas: 1".
    config: the path of a ClusterConfig for one machine. What is given beside it takes the place of
        its fields. None: one is made, and removed in the end.
    overrides: "FIELD=VALUE" each, as the programs' --set.
    is_module: `script` is the name of a module, as with `python -m`.
    save, stats: files for the trained model (safetensors) and the shards' statistics (JSON).
    resume: goes on from the newest checkpoint of an earlier run.
    max_restarts: how often each worker is started again, after an exception too. Needs `recovery`
        with worker_loss WAIT or CONTINUE.
    name: by which `psctl --run` and Reader(run=...) find the run. None: the script's, and a number.
    log_level: of the shards: debug, info, warning (if not given) or error.
    log_dir: a folder, to which each process's output is written too, as worker_0.log.
    stdin: the rank of a worker that has this program's standard input and output, for a debugger.
    programs: the folder of the programs, with tools/launch/launch. None: EVENSHARD_PROGRAMS, or
        those that came with this package.
    named: what errors call an argument: "--workers" in the command `evenshard run`.

    Returns the exit code: 0 if the run has succeeded, otherwise that of the process that failed
    first, 128 + n if signal n has ended it or the run. Where they are not set, OMP_NUM_THREADS
    becomes each worker's share of the processors (but not with a config and without `workers`), and
    PYTHONUNBUFFERED 1.

    Errors: ConfigError for a wrong argument; FailedPrecondition if there is no program `launch`;
    KeyboardInterrupt after Ctrl-C, when everything has ended. SIGTERM and SIGHUP are forwarded too,
    if this is called in the main thread; then the handler of this program is called, or SystemExit
    raised if it has none. What a handler raises meanwhile, as of SIGALRM, ends the run too.
    """
    if not is_module:
        _check_file(named("script"), script)
    if isinstance(arguments, str):
        raise errors.ConfigError(
            f'{named("arguments")}: is the text "{arguments}", allowed: a list, such as'
            f" {arguments.split()}"
        )
    _check_counts(named, workers=workers, shards=shards)
    choices = {
        "topology": topology, "policy": policy, "partition": partition, "schedule": schedule
    }
    is_ring = config is None and topology is not None and topology.upper() == "RING"
    texts = {"optimizer": optimizer, "recovery": recovery}
    by_argument = {
        **_count_changes(workers, shards, staleness), **_choice_changes(named, choices),
        **_text_changes(named, texts),
    }
    if is_ring:
        by_argument["workers"] = f"workers={workers or 1}"
        addresses = " ".join(['address: "127.0.0.1:0"'] * (workers or 1))
        by_argument["ring"] = f"ring={{{addresses}}}"
    changes = [*by_argument.values(), *_own_overrides(named("overrides"), overrides)]
    if config is None:
        _check_folders(changes)
        workers = workers or 1
    else:
        _check_file(named("config"), config)
    program = _programs.path_of("launch", programs)
    with contextlib.ExitStack() as cleanup:
        if config is None:
            text = _RING_CONFIG if is_ring else _CONFIG
            config = cleanup.enter_context(_made_config(text))
        command = [program, f"--config={os.fspath(config)}"]
        command += [f"--set={change}" for change in changes]
        command += [f"--save={os.fspath(save)}"] if save else []
        command += [f"--stats={os.fspath(stats)}"] if stats else []
        command += ["--resume"] if resume else []
        given = {
            "max_restarts": max_restarts, "name": name, "log_level": log_level or "warning",
            "log_dir": log_dir, "stdin": stdin,
        }
        command += [f"--{flag}={value}" for flag, value in given.items() if value is not None]
        command += ["--", sys.executable, *(["-m"] if is_module else []), os.fspath(script)]
        command += map(str, arguments)
        # In what `launch` says of a wrong config.
        names = {f"--set {change}: ": f"{named(name)}: " for name, change in by_argument.items()}
        return _run(command, _environment(workers), None if stdin is None else sys.stdin, names)


def _check_file(what, path):
    if not os.path.isfile(path):
        raise errors.ConfigError(f'{what}: is "{os.fspath(path)}", allowed: a file that exists')


def _check_counts(named, **counts):
    for name, count in counts.items():
        if count is not None and not 1 <= count <= _MOST_PROCESSES:
            raise errors.ConfigError(f"{named(name)}: is {count}, allowed: 1 to {_MOST_PROCESSES}")


def _count_changes(workers, shards, staleness):
    """What the caller has given, as overrides of a config by argument, here and in the next two."""
    changes = {}
    if workers is not None:
        changes["workers"] = f"workers={workers}"
    if shards is not None:
        addresses = ", ".join(['{address: "127.0.0.1:0"}'] * shards)
        changes["shards"] = f"shard=[{addresses}]"
    if staleness is not None:
        changes["staleness"] = f"update.staleness={staleness}"
    return changes


def _choice_changes(named, choices):
    changes = {}
    for name, value in choices.items():
        if value is None:
            continue
        field, allowed = _CHOICES[name]
        if value.upper() not in allowed:
            raise errors.ConfigError(f"{named(name)}: is {value}, allowed: {', '.join(allowed)}")
        changes[name] = f"{field}={value.upper()}"
    return changes


def _text_changes(named, texts):
    return {
        name: f"{name}={{{_one_line(named(name), text)}}}"
        for name, text in texts.items() if text is not None
    }


def _one_line(name, text):
    """The workers get the overrides one a line."""
    lines = text.splitlines()
    if len(lines) > 1 and "#" in text:
        raise errors.ConfigError(f"{name}: has a comment, allowed: text of several lines without")
    return " ".join(lines)


def _own_overrides(name, overrides):
    overrides = [overrides] if isinstance(overrides, str) else list(overrides)
    for override in overrides:
        if "=" not in override or "\n" in override:
            raise errors.ConfigError(
                f'{name}: has "{override}", allowed: FIELD=VALUE, on one line'
            )
    return overrides


def _check_folders(changes):
    """A relative folder would lie beside the config, which is removed in the end."""
    for change in changes:
        if not change.startswith("recovery"):
            continue
        for folder in _FOLDER.findall(change):
            if not os.path.isabs(folder):
                raise errors.ConfigError(
                    f'recovery.checkpoint.folder: is "{folder}", allowed without a config of your'
                    f" own: an absolute path, such as {os.path.abspath(folder)}"
                )


@contextlib.contextmanager
def _made_config(text: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="evenshard-") as folder:
        path = os.path.join(folder, "run.textproto")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        yield path


def _environment(workers):
    environment = dict(os.environ)
    # What a script prints is to appear at once, though it goes through a pipe.
    environment.setdefault("PYTHONUNBUFFERED", "1")
    # For a process group beside the run, as for metrics. It is the script that listens there.
    environment.setdefault("MASTER_ADDR", "127.0.0.1")
    environment.setdefault("MASTER_PORT", str(_free_port()))
    if workers is not None:
        share = len(os.sched_getaffinity(0)) // workers
        environment.setdefault("OMP_NUM_THREADS", str(max(1, share)))
    # A package that is not installed is found where it was found this time.
    place = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.basename(place) not in ("site-packages", "dist-packages"):
        paths = [place, *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _run(command, environment, stdin, names):
    # In a session of its own, so that a Ctrl-C reaches `launch` once, from here: a second one would
    # end everything at once.
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL if stdin is None else stdin,
        # With the terminal a worker has what `launch` has, and nothing may come in between.
        stderr=subprocess.PIPE if stdin is None else None,
        start_new_session=True, preexec_fn=_end_with_parent, text=True, errors="replace",
    )
    try:
        with _forwarding(process) as received:
            # Not in a thread: a parent's death signal comes with the end of each of its threads.
            _tell(process.stderr, names)
            code = process.wait()
    except BaseException:
        _end(process)
        raise
    if signal.SIGINT in received:
        raise KeyboardInterrupt
    for number in dict.fromkeys(received):
        handler = signal.getsignal(number)
        if not callable(handler):
            raise SystemExit(128 + number)
        handler(number, None)
    return code if code >= 0 else 128 - code


def _end(process):
    """Ends a run that nobody waits for any more, by force if that is interrupted too."""
    process.terminate()
    try:
        for _ in process.stderr or ():
            pass
        process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise


def _tell(stderr, names):
    """Passes on what `launch` says of its arguments, by the names of the caller's, until it ends.
    """
    for line in stderr or ():
        for name, own in names.items():
            if line.startswith(name):
                line = own + line[len(name):]
        sys.stderr.write(line)
        sys.stderr.flush()


def _end_with_parent():
    """`launch` ends with everything it has started if this process is killed."""
    _prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)


@contextlib.contextmanager
def _forwarding(process) -> Iterator[list]:
    """Passes signals on to a process, and yields a list of those."""
    received = []

    def forward(number, _):
        received.append(number)
        process.send_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield received  # where Python handles no signals
        return
    # A signal that is ignored, as SIGHUP by nohup, stays so.
    before = {
        number: signal.signal(number, forward)
        for number in _FORWARDED
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
