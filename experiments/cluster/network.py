"""The network of one run: the hosts of its processes and the rates of its links.

    NamespaceNetwork  every host a network namespace of its own on this machine,
                      links shaped to the configured rate
    HostNetwork       all processes on this machine's own network, without shaping
    RemoteNetwork     processes on other hosts, over ssh

Each is a context manager, which removes what it has made when it ends.
"""

import contextlib
import ipaddress
import itertools
import os
import socket
import subprocess

from experiments.cluster import hosts

NAMESPACES = "namespaces"
HOST = "host"
REMOTE = "remote"

_PORT = 50051
_SUBNET = ipaddress.ip_network("10.0.0.0/16")
# Where the control of a NamespaceNetwork listens for every host's clients.
CONTROL_ENDPOINT = f"{_SUBNET[1]}:2379"
# tbf passes this many bytes at once. A burst must hold the largest packet that the kernel hands
# down whole (64 KiB, which the receiver cuts into segments); otherwise tbf cuts each packet. It
# should be little larger, so that a link does not exceed its rate for long.
_BURST_BYTES = 128 * 1024
# A packet that would wait longer in tbf is dropped.
_LATENCY = "50ms"
# The default differs between hosts, and this is the only one that every user may choose.
_CONGESTION_CONTROL = "reno"
# The kernel hands packets of at least this many segments down whole (64 KiB is its maximum).
# Otherwise a connection with a small part of a link would send one or a few segments at a time.
_SEGMENTS = 44

# The mounts have a namespace of their own. /proc is the host's, so that the printed number is
# the process's number as seen from outside.
_HOLD = """
mount -t tmpfs none /run && mkdir /run/netns && read process rest </proc/self/stat &&
echo $process && exec cat
"""

_INSTEAD = "run as root, or with --network=host, which uses this machine's network unshaped"


class NetworkError(Exception):
    """The network could not be made."""


def make(kind, wiring, folder):
    """Makes the network of a run, as a topology.Wiring says. `folder` is for the files of its
    processes."""
    if kind == REMOTE:
        return RemoteNetwork(wiring, folder)
    if kind == HOST:
        return HostNetwork(wiring, folder)
    return NamespaceNetwork(wiring, folder)


class _Network(contextlib.AbstractContextManager):
    """The base class of all networks.

    shard_hosts, worker_hosts: the host of each process.
    addresses: those of the shards, or of the workers if they are a ring.
    control: a host that reaches all of these, on which psctl runs.
    machines: the hosts whose processors are watched.
    """

    def __init__(self):
        self._stack = contextlib.ExitStack()

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)


class HostNetwork(_Network):
    def __init__(self, wiring, folder):
        super().__init__()
        host = hosts.LocalHost(folder)
        self.shard_hosts = [host] * wiring.shards
        self.worker_hosts = [host] * wiring.workers
        self.control = host
        self.machines = [host]
        with contextlib.ExitStack() as sockets:
            self.addresses = []
            for _ in range(wiring.shards or wiring.workers):
                # The port is free now, but another process may take it before the shard listens.
                listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
                self.addresses.append(f"127.0.0.1:{listener.getsockname()[1]}")


class RemoteNetwork(_Network):
    def __init__(self, wiring, folder):
        super().__init__()
        wanted = wiring.hosts
        opened = {}

        def host(name):
            if name not in opened:
                opened[name] = hosts.SshHost(wanted.ssh, name, wanted.programs)
                self._stack.callback(opened[name].close)
            return opened[name]

        with self._stack:  # closes the open ones if one fails
            workers = [wanted.worker[i % len(wanted.worker)] for i in range(wiring.workers)]
            of_shards = workers if wiring.colocated else wanted.shard
            shards = [of_shards[i % len(of_shards)] for i in range(wiring.shards)]
            self.shard_hosts = [host(shard.name) for shard in shards]
            self.worker_hosts = [host(worker.name) for worker in workers]
            self._stack = self._stack.pop_all()
        self.addresses = [
            f"{each.address or each.name.rpartition('@')[2]}:{wanted.port + i}"
            for i, each in enumerate(shards or workers)
        ]
        self.control = hosts.LocalHost(folder)
        self.machines = list(opened.values())


class NamespaceNetwork(_Network):
    """Namespaces that belong to one process, which waits for the end of its standard input.

    The process is the first of a PID namespace, so the kernel kills all processes of the run
    with it. The network namespaces and links end too, because only these processes and the
    mount namespace hold them. The input ends with this process, even after kill -9. Nothing
    has to be cleaned up, and the host's network does not change.
    """

    def __init__(self, wiring, folder):
        super().__init__()
        enter = self._start()
        try:
            self._connect(wiring, folder, enter)
        except BaseException:
            self._stack.close()
            raise

    def _start(self):
        """Starts the first process and returns the command that enters its namespaces."""
        as_root, rootless = [], ["--user", "--map-root-user"]
        complaint = ""
        for user in [as_root, rootless] if os.geteuid() == 0 else [rootless]:
            try:
                holder = subprocess.Popen(
                    ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child"]
                    + ["sh", "-c", _HOLD],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            except OSError as error:
                raise NetworkError(
                    f"cannot start {error.filename} ({error.strerror}), which makes network"
                    f" namespaces: {_INSTEAD}"
                ) from None
            process = holder.stdout.readline().strip()
            if process:
                self._stack.callback(_end, holder)
                enter = ["nsenter", "--target", process, "--net", "--mount", "--pid"]
                return enter + (["--user", "--preserve-credentials"] if user else [])
            complaint = holder.communicate()[1].strip()
        raise NetworkError(f"this machine allows no network namespaces ({complaint}): {_INSTEAD}")

    def _connect(self, wiring, folder, enter):
        """Makes a network namespace for each host and joins them with a bridge."""
        rates = {f"worker{i}": wiring.link_gbps for i in range(wiring.workers)}
        shards = [f"{'worker' if wiring.colocated else 'ps'}{i}" for i in range(wiring.shards)]
        for name, gbps in itertools.zip_longest(shards, wiring.shard_link_gbps[: wiring.shards]):
            rates.setdefault(name, gbps or wiring.link_gbps)
        addresses = dict(zip(rates, (_SUBNET[2 + i] for i in range(len(rates)))))
        script = _bridge_commands(_SUBNET[1], wiring.mtu)
        for name, gbps in rates.items():
            script += _host_commands(name, addresses[name], gbps, wiring.mtu)
        done = subprocess.run(
            [*enter, "sh", "-e"], input="\n".join(script), capture_output=True, text=True,
            check=False,
        )
        if done.returncode != 0:
            complaint = done.stderr.strip()
            raise NetworkError(f"cannot make the emulated network ({complaint}): {_INSTEAD}")

        def host(name):
            return hosts.LocalHost(folder, [*enter, "nsenter", f"--net=/run/netns/{name}"])

        workers = [f"worker{i}" for i in range(wiring.workers)]
        self.shard_hosts = [host(name) for name in shards]
        self.worker_hosts = [host(name) for name in workers]
        self.addresses = [f"{addresses[name]}:{_PORT}" for name in shards or workers]
        self.control = hosts.LocalHost(folder, enter)
        self.machines = [hosts.LocalHost(folder)]


def _end(holder):
    hosts.end(holder)
    holder.stdout.close()
    holder.stderr.close()


def _bridge_commands(address, mtu):
    return [
        'PATH="$PATH:/usr/sbin"',  # an ordinary user's PATH lacks it
        f"ip link add bridge mtu {mtu} type bridge",
        f"ip address add {address}/{_SUBNET.prefixlen} dev bridge",
        "ip link set bridge up",
        "ip link set lo up",
    ]


def _host_commands(name, address, gbps, mtu):
    """Returns commands that make a namespace with one link to the bridge, shaped at both ends."""
    shape = f"root tbf rate {round(gbps * 1e9)}bit burst {_BURST_BYTES} latency {_LATENCY}"
    return [
        f"ip netns add {name}",
        f"ip link add {name} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {name}",
        f"tc qdisc add dev {name} {shape}",
        f"tc -n {name} qdisc add dev eth0 {shape}",
        f"ip link set {name} master bridge up",
        f"ip -n {name} address add {address}/{_SUBNET.prefixlen} dev eth0",
        f"ip -n {name} link set eth0 up",
        f"ip -n {name} link set lo up",
        f"nsenter --net=/run/netns/{name} sh -c '"
        f"cd /proc/sys/net/ipv4 && echo {_CONGESTION_CONTROL} >tcp_congestion_control"
        f" && echo {_SEGMENTS} >tcp_min_tso_segs'",
    ]
