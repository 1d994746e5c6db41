"""One start of a run by launch, and its processes."""

import contextlib
import os
import signal
import subprocess
import time

from tests.chaos import modes

_CONFIG = """\
# Small enough that tens of workers share two processors.
{model}
partition {{ scheme: MEMORY_BASED }}
{shards}
workers: {workers}
update {{ {update} }}
{optimizer}
{more}
limits {{ chunk_bytes: 4096 connections: 1 startup_seconds: 120 }}
recovery {{
  replicas: 1
  worker_loss: {worker_loss}
  silence_seconds: {silence_seconds}
  checkpoint {{ folder: "{checkpoints}" {every} keep: 3 }}
}}
"""

_PATIENCE_SECONDS = 30


# This is for a mode in which chunks have no iteration in common.
_CHECKPOINT_SECONDS = 1


def config(options, ground, iterations, every):
    """Returns the text of a config for a run on the ground."""
    mode = modes.MODES[options.mode]
    training = f"\ntraining {{ iterations: {iterations} }}" if mode.trains else ""
    return _CONFIG.format(
        model=mode.model,
        update=mode.update.format(quorum=modes.quorum_of(options.workers)),
        optimizer=mode.optimizer,
        more=mode.more + training,
        shards="\n".join(f'shard {{ address: "{address}" }}' for address in ground.addresses),
        workers=options.workers,
        worker_loss=options.worker_loss,
        silence_seconds=options.silence_seconds,
        checkpoints=ground.checkpoints,
        every=f"every_iterations: {every}" if mode.has_iterations
        else f"every_seconds: {_CHECKPOINT_SECONDS}",
    )


class Cluster(contextlib.AbstractContextManager):
    """launch and all processes that it starts. Those that still run are killed at the end."""

    def __init__(self, programs, ground, folder, config_text, iterations, gradients, resume=False,
                 plant=""):
        """`gradients`, `plant`: arguments of the workers (pusher.c). Without `gradients` they are
        the worker program."""
        self.config = os.path.join(folder, "run.textproto")
        self.model = os.path.join(folder, "model.safetensors")
        self.log = os.path.join(folder, "launch.log")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(config_text)
        temporary = os.path.join(folder, "tmp")
        os.makedirs(temporary, exist_ok=True)
        self._logs = os.path.join(folder, "rank")
        worker = (
            f"exec {programs.pusher} --config=$EVENSHARD_CONFIG --rank=$RANK"
            f" {iterations} {gradients} {self._logs}.$RANK {plant}"
        )
        command = [programs.launch, f"--config={self.config}", f"--save={self.model}"]
        command += ["--resume"] * resume
        if gradients:
            command += ["--", "sh", "-c", worker]
        self.begin = time.monotonic()
        with open(self.log, "a", encoding="utf-8") as log:
            self._runner = subprocess.Popen(
                ground.command(command),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                # What launch leaves behind after kill -9 goes with the folder.
                env={**os.environ, "TMPDIR": temporary},
                start_new_session=True,
            )

    def __exit__(self, *exception):
        self.kill_everything()

    def told(self, workers):
        """Returns the log of each rank (ledger.py)."""
        texts = []
        for rank in range(workers):
            texts.append("")  # of a rank that never came
            with contextlib.suppress(FileNotFoundError):
                with open(f"{self._logs}.{rank}", encoding="utf-8") as file:
                    texts[-1] = file.read()
        return texts

    def exit_code(self):
        """Returns the exit code of launch, or None while it runs."""
        return self._runner.poll()

    def processes(self):
        """Returns the number of every process of the run by its name: "launch", "ps 0"."""
        found = {}
        for number in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{number}/cmdline", encoding="utf-8", errors="replace") as file:
                    name = self._name(file.read().split("\0"))
                if name:
                    found[name] = int(number)
        return found

    def _name(self, arguments):
        if f"--config={self.config}" not in arguments:
            return None
        program = os.path.basename(arguments[0])
        place = [a.partition("=")[2] for a in arguments if a.startswith(("--shard=", "--rank="))]
        if program == "launch":
            return program
        role = {"ps": "ps", "pusher": "worker", "worker": "worker"}.get(program)
        return f"{role} {place[0]}" if role and place else None

    def find(self, name):
        """Returns the number of a process, which may be about to start, or None."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.exit_code() is None and time.monotonic() < deadline:
            number = self.processes().get(name)
            if number is not None:
                return number
            time.sleep(0.02)
        return None

    def kill_everything(self):
        """Kills launch and all processes of the run, and waits for their end."""
        self._runner.stdin.close()  # ends launch too where it is about to start
        while numbers := self.processes().values():
            for number in numbers:
                send(number, signal.SIGKILL)
            time.sleep(0.02)
        self._runner.wait()


def send(number, a_signal):
    """Sends a signal to a process, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, a_signal)
