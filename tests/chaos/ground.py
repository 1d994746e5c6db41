"""Where a run takes place, and what can be done there to its network and its disk.

    NamespaceGround  network and mounts of its own; the checkpoints are on a small tmpfs
    HostGround       this machine's own; neither links nor disks can be disturbed

Each is a context manager. All processes started there by `command` end with this process, even
after kill -9, and a NamespaceGround's network and mounts end with them.
"""

import contextlib
import os
import socket
import subprocess

from experiments.cluster import hosts

_PORT = 50051
_DISK_BYTES = 64 * 1024 * 1024
_FILLER = "filler"

# The rules for single shards must come before the one for local addresses.
_HOLD = """
PATH="$PATH:/usr/sbin" &&
mount -t tmpfs -o size=$2 none "$1" && mkdir "$1/folder" &&
ip link set lo up && ip rule add pref 100 lookup local && ip rule del pref 0 &&
read process rest </proc/self/stat && echo $process && exec cat
"""


class GroundError(Exception):
    """The ground could not be made."""


def make(folder, shards):
    """Makes the best ground that this machine allows. `folder` is for the files of a run."""
    try:
        return NamespaceGround(folder, shards)
    except GroundError as error:
        print(f"no namespaces ({error}): links and disks are not disturbed", flush=True)
        return HostGround(folder, shards)


class HostGround(contextlib.AbstractContextManager):
    has_network = False

    def __init__(self, folder, shards):
        self.checkpoints = os.path.join(folder, "disk", "folder")
        os.makedirs(self.checkpoints)
        self._host = hosts.LocalHost(folder)
        with contextlib.ExitStack() as sockets:
            listeners = [
                sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
                for _ in range(shards)
            ]
            # The ports are free now, but another process may take one before the shard listens.
            self.addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in listeners]

    def __exit__(self, *exception):
        pass

    def command(self, command):
        """Returns the command that runs `command` there. Its input must be a pipe that stays
        open."""
        return self._host.command(command)

    def call(self, *command):
        """Runs a small command there and returns what has become of it."""
        return subprocess.run(
            self._entered(command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False,
        )

    def _entered(self, command):
        return list(command)


class NamespaceGround(HostGround):
    has_network = True

    def __init__(self, folder, shards):
        disk = os.path.join(folder, "disk")
        os.makedirs(disk)
        self._disk = disk
        self._holder, self._enter = _hold(disk)
        self.checkpoints = os.path.join(disk, "folder")
        self.addresses = [f"127.0.1.{1 + i}:{_PORT}" for i in range(shards)]
        self._host = hosts.LocalHost(folder, self._enter)

    def __exit__(self, *exception):
        hosts.end(self._holder)
        self._holder.stdout.close()
        self._holder.stderr.close()

    def cut(self, shard):
        """Drops all packets to and from a shard's address."""
        for rule in self._rules(shard):
            self._must("ip", "rule", "add", *rule)

    def join(self, shard):
        for rule in self._rules(shard):
            self._must("ip", "rule", "del", *rule)

    def reset(self, ports):
        """Destroys the connections that have one of these ports at either end."""
        for port in ports:
            self._must("ss", "-K", "-tn", "sport", "=", f":{port}")

    def reset_shard(self, shard):
        host = self.addresses[shard].rpartition(":")[0]
        self._must("ss", "-K", "-tn", "dst", host)

    def connections(self, process):
        """Returns the local ports of a process's connections to shards."""
        listed = self._must("ss", "-Htnp", "dport", "=", f":{_PORT}").stdout.splitlines()
        return [
            line.split()[3].rpartition(":")[2] for line in listed if f"pid={process}," in line
        ]

    def fill_disk(self):
        # It ends with "No space left on device".
        self.call("dd", "if=/dev/zero", f"of={self._disk}/{_FILLER}", "bs=64k")

    def free_disk(self):
        self._must("rm", "-f", f"{self._disk}/{_FILLER}")

    def _rules(self, shard):
        host = self.addresses[shard].rpartition(":")[0]
        return [["pref", "10", way, host, "blackhole"] for way in ("to", "from")]

    def _must(self, *command):
        done = self.call(*command)
        if done.returncode != 0:
            raise GroundError(f"{' '.join(command)} failed: {done.stderr.strip()}")
        return done

    def _entered(self, command):
        return [*self._enter, "env", f"PATH={os.environ['PATH']}:/usr/sbin", *command]


def _hold(disk):
    """Starts the first process of the namespaces, which ends when its standard input does. Returns
    it and the command that enters them."""
    as_root, rootless = [], ["--user", "--map-root-user"]
    complaint = ""
    for user in [as_root, rootless] if os.geteuid() == 0 else [rootless]:
        holder = subprocess.Popen(
            ["unshare", *user, "--net", "--mount"]
            + ["sh", "-c", _HOLD, "sh", disk, str(_DISK_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process, which ends the others
        )
        process = holder.stdout.readline().strip()
        if process:
            enter = ["nsenter", "--target", process, "--net", "--mount"]
            return holder, enter + (["--user", "--preserve-credentials"] if user else [])
        complaint = holder.communicate()[1].strip()
    raise GroundError(complaint)
