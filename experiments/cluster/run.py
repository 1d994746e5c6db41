"""One run of a cluster, step by step:

1. Make the network, and write the run's config to every host.
2. Start the shards and the workers, each with a log of its own, and before them an etcd if the
   cluster wants one.
3. Wait for the workers. The first failure ends the run.
4. Ask the shards for their statistics, then end them.
5. Read the workers' summaries.
"""

import contextlib
import itertools
import json
import math
import os
import select
import statistics
import subprocess
import tempfile
import time

from experiments.cluster import hosts, network
from experiments.cluster.processor import ProcessorWatch
from experiments.runs import matrix
from proto import config_pb2

_CONFIG = "cluster.textproto"
_LOG_LINES = 8  # lines of a failed process's log that an error shows
_PSCTL_SECONDS = 60


class RunError(Exception):
    """A run failed. The text says why."""


class _Process:
    """A program of the run, which is killed in the end if it still runs."""

    def __init__(self, name, host, command, log):
        self.name = name
        self._log_path = log
        with open(log, "wb") as file:
            self._popen = subprocess.Popen(
                host.command(command), stdin=subprocess.PIPE, stdout=file, stderr=file
            )
        self.ended = None  # time.monotonic()

    @property
    def pid(self):
        """That of the command which runs the program; see hosts.watched."""
        return self._popen.pid

    def poll(self):
        """Returns the exit code, or None if the process still runs."""
        code = self._popen.poll()
        if code is not None and self.ended is None:
            self.ended = time.monotonic()
        return code

    def descriptor(self):
        """Returns a descriptor, readable when the process has ended. The caller closes it."""
        return os.pidfd_open(self._popen.pid)

    def wait(self, seconds):
        return self._popen.wait(seconds)

    def error(self, what):
        with open(self._log_path, encoding="utf-8", errors="replace") as file:
            lines = file.read().strip().splitlines()[-_LOG_LINES:]
        head = f"{self.name} {what}; its log, {self._log_path}, ends:"
        return RunError("\n  ".join([head, *lines]))

    def close(self):
        hosts.end(self._popen)


class Started:
    """The processes of a run. `psctl(verb, *arguments)` returns what that prints."""

    def __init__(self, net, config, programs, folder, stack):
        self.net = net
        self._programs = programs
        self._folder = folder
        self._stack = stack
        for host in {net.control, *net.shard_hosts, *net.worker_hosts}:
            host.write(_CONFIG, config)
        self.shards = []
        self.workers = []

    def start(self, name, host, command):
        log = os.path.join(self._folder, f"{name.replace(' ', '')}.log")
        process = _Process(name, host, command, log)
        self._stack.callback(process.close)
        return process

    def _begin(self, name, host, program, *arguments):
        command = [host.program(program), f"--config={host.path(_CONFIG)}", *arguments]
        return self.start(name, host, command)

    def start_shards(self):
        self.shards = [
            self._begin(f"ps {i}", host, self._programs.ps, f"--shard={i}")
            for i, host in enumerate(self.net.shard_hosts)
        ]

    def start_workers(self):
        self.workers = [
            self._begin(
                f"worker {i}", host, self._programs.worker, f"--rank={i}",
                f"--summary={host.path(f'worker{i}.json')}",
            )
            for i, host in enumerate(self.net.worker_hosts)
        ]

    def wait(self, deadline, on_tick):
        _wait(self.workers, self.shards, deadline, on_tick)

    def psctl(self, verb, *arguments):
        return _psctl(self.net.control, self._programs.psctl, verb, *arguments)

    def shut_down(self):
        """Ends the shards, and returns the workers' summaries."""
        if self.shards:
            self.psctl("shutdown")
        for shard in self.shards:
            try:
                code = shard.wait(_PSCTL_SECONDS)
            except subprocess.TimeoutExpired:
                raise shard.error("does not end") from None
            if code != 0:
                raise shard.error(f"ended with exit code {code}")
        return [
            _json(host.read(f"worker{i}.json"), f"the summary of worker {i}")
            for i, host in enumerate(self.net.worker_hosts)
        ]


def execute(kind, experiment, run, programs, folder, on_tick):
    """Does a run and returns its result (see `_result`). Files go to `folder`. `on_tick` is called
    about once a second. Raises RunError, HostError, NetworkError."""
    os.makedirs(folder, exist_ok=True)
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network.make(kind, experiment.wiring(run), folder))
        config = matrix.cluster_config(experiment, run, net.addresses)
        started = Started(net, config, programs, folder, stack)
        if experiment.proto.certificates:
            started.psctl("certificates", f"--out={net.control.path(matrix.CERTIFICATES)}")
        for endpoint in experiment.proto.cluster.recovery.etcd.endpoint:
            data = stack.enter_context(tempfile.TemporaryDirectory())
            started.start("etcd", net.control, _etcd(endpoint, data))
        started.start_shards()
        watches = []
        for machine in net.machines:
            watches.append(ProcessorWatch(machine))
            stack.callback(watches[-1].close)
        started.start_workers()
        started.wait(start + experiment.proto.run_seconds, on_tick)
        stats = []  # of each shard
        if started.shards:
            said = _json(started.psctl("stats", "--format=json"), "what psctl stats said")
            stats = [shard["stats"] for shard in said["shards"]]
        if experiment.proto.cluster.recovery.replicas:
            view = started.psctl("view", "--format=json")
            _check_replicas(_json(view, "what psctl view said")["view"])
        summaries = started.shut_down()
        seconds = iterations_of(experiment, summaries)
        result = _result(experiment, seconds, summaries, stats)
        # The last iteration is not measured.
        end = max(worker.ended for worker in started.workers) - seconds[-1]
        for watch in watches:
            watch.close()
        uses = [watch.use(end - sum(result["iteration_seconds"]), end) for watch in watches]
        result["processor_use"] = max((use for use in uses if use is not None), default=None)
        result["run_seconds"] = time.monotonic() - start
        return result


def _etcd(endpoint, data):
    url = f"http://{endpoint}"
    return [
        "etcd", f"--data-dir={data}", f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
    ]


def _wait(workers, shards, deadline, on_tick):
    """Waits for all workers. Raises RunError as soon as a worker fails or a shard ends."""
    poll = select.poll()
    with contextlib.ExitStack() as stack:
        for process in (*workers, *shards):
            descriptor = process.descriptor()
            stack.callback(os.close, descriptor)
            poll.register(descriptor, select.POLLIN)
        done = set()
        while len(done) < len(workers):
            for descriptor, _ in poll.poll(1000):
                poll.unregister(descriptor)
            failed = [worker for worker in workers if worker.poll() not in (None, 0)]
            if failed:
                # A worker's error says more than that of a shard that ended because of it.
                raise failed[0].error(f"failed with exit code {failed[0].poll()}")
            for shard in shards:
                if shard.poll() is not None:
                    raise shard.error(f"ended before the workers, with exit code {shard.poll()}")
            done = {worker for worker in workers if worker.poll() == 0}
            if len(done) < len(workers) and time.monotonic() > deadline:
                late = next(worker for worker in workers if worker not in done)
                raise late.error("is not done after run_seconds")
            on_tick()


def _json(text, what):
    try:
        return json.loads(text)
    except ValueError as error:
        raise RunError(f"{what} is not JSON: {error}") from None


def _psctl(host, psctl, verb, *arguments):
    command = [psctl, verb, f"--config={host.path(_CONFIG)}", *arguments]
    process = subprocess.Popen(
        host.command(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )
    # communicate() would close its standard input and so end it.
    with process.stdout, process.stderr, process.stdin:
        text = process.stdout.read()
        complaint = process.stderr.read()
        if process.wait(_PSCTL_SECONDS) != 0:
            # psctl reports a shard that does not answer among its results.
            raise RunError(f"psctl {verb} failed: {(complaint or text).strip()}")
        return text


def _check_replicas(view):
    """Raises RunError unless all slots have had whole replicas in all of the run."""
    lacking = [i for i, slot in enumerate(view["slot"]) if not slot["replica_is_complete"]]
    if lacking:
        raise RunError(f"slots {lacking} have no complete replica, allowed: one for each slot")
    if int(view["generation"]) != 1 or view["event"]:
        raise RunError(f"the run was disturbed: {view['event']}")


# The fields of a result that are lists of numbers, and those that are numbers.
_LISTS = {"iteration_seconds", "bytes_in", "bytes_out"}
_NUMBERS = {"mean_seconds", "compute_seconds", "exchange_wait_seconds", "run_seconds"}


def is_result(value):
    """Returns whether a value from a file has the form of a result of `execute`."""
    def is_number(item):
        return isinstance(item, (int, float)) and math.isfinite(item)

    return (
        isinstance(value, dict)
        and set(value) == {*_LISTS, *_NUMBERS, "processor_use"}
        and all(isinstance(value[name], list) and value[name] for name in _LISTS)
        and all(is_number(item) for name in _LISTS for item in value[name])
        and all(is_number(value[name]) for name in _NUMBERS)
        and (value["processor_use"] is None or is_number(value["processor_use"]))
    )


def iterations_of(experiment, summaries):
    """Returns the seconds of each iteration, by this machine's clock."""
    iterations = matrix.iterations(experiment)
    batches = experiment.batches
    policy = experiment.proto.cluster.update.policy
    times = [summary["iteration_seconds"] for summary in summaries]
    is_whole = [len(seconds) == iterations * batches for seconds in times]
    if policy == config_pb2.Update.QUORUM and any(is_whole):
        # Who falls behind a quorum leaves iterations out.
        times = list(itertools.compress(times, is_whole))
    elif not all(is_whole):
        raise RunError(f"a worker did not do {iterations * batches} batches")
    if policy == config_pb2.Update.ASYNC:
        # Nobody waits for the slowest, whose iterations end last, as those that are simulated.
        times = [max(times, key=sum)]
    # The workers' clock runs batch by batch.
    times = [
        [sum(seconds[first : first + batches]) for first in range(0, len(seconds), batches)]
        for seconds in times
    ]
    # Workers wait for each other, so what one gains in one iteration it loses in another.
    return [statistics.fmean(all_of) for all_of in zip(*times)]


def _result(experiment, seconds, summaries, stats):
    """Returns the result of a run: seconds of this machine's clock, bytes of one iteration by
    shard, or by worker of a ring. `seconds` are those of each iteration, `stats` those of each
    shard."""
    iterations = matrix.iterations(experiment)

    def mean(field):
        return statistics.fmean(summary[field] for summary in summaries) / iterations

    def moved(field):
        if not stats:
            return [summary[field] / iterations for summary in summaries]
        # The workers' counts are used, because the shard's also include the initial Pull.
        return [
            sum(int(worker[field]) for worker in shard["worker"]) / iterations for shard in stats
        ]

    return {
        "iteration_seconds": seconds[experiment.proto.warmup_iterations : -1],
        # All iterations count, because a schedule that overlaps them ends some in the next one.
        "mean_seconds": mean("seconds"),
        "compute_seconds": mean("compute_seconds"),
        "exchange_wait_seconds": mean("exchange_wait_seconds"),
        "bytes_in": moved("bytes_in"),
        "bytes_out": moved("bytes_out"),
    }
