"""The program //bench:all_reduce: how fast a ring of workers exchanges a gradient."""

import argparse
import contextlib
import os
import platform
import select
import statistics
import subprocess
import sys
import tempfile

from experiments.cluster import network
from experiments.runs.clusters import PAYLOAD
from experiments.runs.topology import Wiring

_USAGE = """\
Exchanges the gradient of a whole model among workers on this machine, by Evenshard's ring over TCP,
which also applies SGD, and by all_reduce of PyTorch's gloo, in turn. Verifies what both compute,
then measures. Prints the seconds of an exchange: median, least and most of all windows, and the
median of the ratios of neighbouring windows. With --link_gbps each worker has a network namespace
with a link of that rate, and the times are compared with what a ring's bytes need there. Exit code:
0, 1 after a failure, 2 for a wrong command line, 3 without network namespaces."""

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_ANSWER_SECONDS = 300  # no step takes this long, even on a slow machine
_FLOATS = {"vgg16": 138357544, "alexnet": 61100840, "resnet152": 60344232, "mnist_mlp": 13002}


class RingError(Exception):
    """The measurement cannot go on. The text says why."""


_NO_NETWORK = 3


class _Ring:
    """The processes of one system. Each answers a command with a line."""

    def __init__(self, name, commands, environment=None):
        self._name = name
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             env=environment)
            for command in commands
        ]
        try:
            self._answers()
        except BaseException:
            self.close(0)  # some may wait for one that has ended
            raise

    def ask(self, command):
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError):  # it has ended, which its answer tells
                process.stdin.write(f"{command}\n".encode())
                process.stdin.flush()
        return self._answers()

    def _answers(self):
        return [self._answer(process) for process in self._processes]

    def _answer(self, process):
        if not select.select([process.stdout], [], [], _ANSWER_SECONDS)[0]:
            raise RingError(f"{self._name} has not answered for {_ANSWER_SECONDS} s")
        line = process.stdout.readline().decode()
        if not line:
            raise RingError(f"a process of {self._name} has ended; its reason is above")
        return line.split()

    def seconds(self, count):
        """Returns the seconds of an exchange, in a window of `count`."""
        windows = [tuple(map(int, answer)) for answer in self.ask(f"run {count}")]
        first, last = min(start for start, _ in windows), max(end for _, end in windows)
        return (last - first) * 1e-9 / count

    def close(self, seconds=20):
        """Ends the processes, which have so long to end by themselves."""
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


@contextlib.contextmanager
def _hosts(workers, link_gbps):
    """Yields the network of a system, on which nothing else runs."""
    with tempfile.TemporaryDirectory() as folder:
        kind = network.NAMESPACES if link_gbps else network.HOST
        wiring = Wiring(workers=workers, shards=0, link_gbps=link_gbps or 10)
        with network.make(kind, wiring, folder) as net:
            yield net


def _start_ours(model, net, limits):
    workers = len(net.worker_hosts)
    addresses = " ".join(f'address: "{address}"' for address in net.addresses)
    config = (
        f'model {{ builtin: "{model}" }} topology: RING ring {{ {addresses} }} workers: {workers}'
        " update { policy: SYNC } optimizer { kind: SGD learning_rate: 0.01 }"
        f" training {{ iterations: 1 }} compute {{ backend: EMULATED }} limits {{ {limits} }}"
        " security { insecure: true }"
    )
    role = os.path.join(_FOLDER, "ring_role")
    return _Ring("evenshard", [
        host.with_input([role, str(rank), config]) for rank, host in enumerate(net.worker_hosts)
    ])


def _start_gloo(model, net, python, link_gbps):
    script = os.path.join(_FOLDER, "gloo_role.py")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0" if link_gbps else "lo"}
    return _Ring("gloo", [
        host.with_input([
            python, script, str(rank), str(len(net.worker_hosts)), net.addresses[0],
            str(_FLOATS[model]),
        ])
        for rank, host in enumerate(net.worker_hosts)
    ], environment)


def _bound(model, workers, link_gbps):
    """The seconds that the bytes of a ring need on links of that rate."""
    moved = 2 * (workers - 1) / workers * 4 * _FLOATS[model]
    return moved / (link_gbps * 1e9 / 8 * PAYLOAD)


def _spread(name, seconds):
    return (f"  {name:10} median {statistics.median(seconds):.3f} s, "
            f"{min(seconds):.3f} to {max(seconds):.3f}")


def _measure(options, workers):
    with contextlib.ExitStack() as running:
        net = running.enter_context(_hosts(workers, options.link_gbps))
        systems = [("evenshard", _start_ours(options.model, net, " ".join(options.limit)))]
        running.callback(systems[0][1].close)
        if not options.alone:
            net = running.enter_context(_hosts(workers, options.link_gbps))
            gloo = _start_gloo(options.model, net, options.python, options.link_gbps)
            systems.append(("gloo", gloo))
            running.callback(gloo.close)
        for _, system in systems:
            system.ask("verify")
            system.seconds(1)
        seconds = {name: [] for name, _ in systems}
        for _ in range(options.repeat):
            for name, system in systems:
                seconds[name].append(system.seconds(options.count))
        for _, system in systems:
            system.ask("verify")
    print(f"{options.model}, {workers} workers, {options.repeat} windows of {options.count}:")
    bound = options.link_gbps and _bound(options.model, workers, options.link_gbps)
    for name, _ in systems:
        part = f"; {statistics.median(seconds[name]) / bound:.3f} of the bound" if bound else ""
        print(_spread(name, seconds[name]) + part)
    if not options.alone:
        ratios = [gloo / ours for ours, gloo in zip(seconds["evenshard"], seconds["gloo"])]
        print(f"  gloo's time over Evenshard's: median {statistics.median(ratios):.2f}, "
              f"{min(ratios):.2f} to {max(ratios):.2f}", flush=True)


def _options():
    parser = argparse.ArgumentParser(
        prog="all_reduce", description=_USAGE, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--workers", metavar="N", type=int, nargs="+", default=[2, 4],
        help="numbers of workers; default 2 4")
    add("--model", choices=sorted(_FLOATS), default="vgg16", help="default vgg16, 553 MB")
    add("--repeat", metavar="N", type=int, default=9, help="windows of each system; default 9")
    add("--count", metavar="N", type=int, default=2, help="exchanges in a window; default 2")
    add("--link_gbps", metavar="R", type=float,
        help="rate of each worker's link; default: this machine's loopback")
    add("--limit", metavar='"FIELD: VALUE"', action="append", default=[],
        help="sets a field of Evenshard's `limits`; repeatable")
    add("--python", metavar="FILE", default="/usr/bin/python3",
        help="a Python that has PyTorch; default /usr/bin/python3")
    add("--alone", action="store_true", help="measures only Evenshard")
    return parser.parse_args()


def main():
    options = _options()
    print(f"{platform.node()}, {os.cpu_count()} processors", flush=True)
    try:
        for workers in options.workers:
            _measure(options, workers)
    except network.NetworkError as error:
        print(error, file=sys.stderr)
        sys.exit(_NO_NETWORK)
    except (RingError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
