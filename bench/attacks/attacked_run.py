"""A small run that can be attacked, and attacks in processes of their own."""

import json
import multiprocessing
import pathlib
import resource
import socket
import subprocess
import time

from bench.attacks import attacks

# Who attacks, and how.
_ON_CONNECTIONS = ("connections", "slow_handshakes")
CASES = {
    "plaintext": _ON_CONNECTIONS,
    "stranger": tuple(attacks.ATTACKS),
    "reader": tuple(name for name in attacks.ATTACKS if name not in _ON_CONNECTIONS),
}
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
optimizer {{ kind: SGD learning_rate: 0.01 }}
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
        self.port = free_port()
        self.keys = folder / "keys"
        self._config = folder / "run.textproto"
        self._overrides = [f"--set={each}" for each in overrides]
        security = _SECURITY.format(keys=self.keys) if is_tls else ""
        self._config.write_text(_CONFIG.format(port=self.port, security=security))
        if is_tls:
            self.psctl("certificates", f"--out={self.keys}")
        self._log = open(folder / "log", "wb")
        self._processes = [self._start("server/ps", "--shard=0")]
        self._processes.append(self._start("worker/worker", "--rank=0"))

    def _start(self, program, argument):
        return subprocess.Popen(
            [program, f"--config={self._config}", argument, *self._overrides],
            stdout=self._log, stderr=subprocess.STDOUT,
        )

    @property
    def ps(self):
        return self._processes[0]

    def psctl(self, verb, *arguments):
        command = ["tools/psctl/psctl", verb, f"--config={self._config}", *arguments]
        if verb != "certificates":
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
        if who != "reader":
            return attacks.Target(self.port, seconds, self.is_tls)
        files = (str(self.keys / f"reader.{kind}") for kind in ("pem", "key"))
        return attacks.Target(self.port, seconds, self.is_tls, *files)

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


def _attack(name, target, sender):
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    acts = attacks.ATTACKS[name](target)
    used = resource.getrusage(resource.RUSAGE_SELF)
    sender.send((acts, used.ru_utime + used.ru_stime))


class Attack:
    """An attack in a process of its own."""

    def __init__(self, name, target):
        fork = multiprocessing.get_context("fork")
        self._receiver, sender = fork.Pipe(duplex=False)
        self._process = fork.Process(target=_attack, args=(name, target, sender), daemon=True)
        self._process.start()
        sender.close()

    def end(self):
        """Waits for its end. Returns how often it has done what it does, and its CPU seconds."""
        outcome = self._receiver.recv()
        self._process.join()
        return outcome
