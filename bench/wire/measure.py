"""What the wire benchmark measures, and in which order."""

import contextlib
import dataclasses
import math
import statistics
import sys

from bench.wire.cluster import FLOAT_BYTES, Cluster, Layout, Memory, WireError, plan

# An estimate of the memory that a process takes besides its tensors: the most that was observed,
# with room for socket buffers.
_PROCESS_BYTES = 256 << 20
_LATENCY_WIDTHS = (16, 128, 512)


@dataclasses.dataclass
class Samples:
    """The results of one system in one layout, with one sample for each window."""

    goodput: list = dataclasses.field(default_factory=list)  # bytes of both directions per second
    cpu_per_gb: list = dataclasses.field(default_factory=list)  # of all processes per 10^9 bytes
    iteration_seconds: list = dataclasses.field(default_factory=list)
    bytes_per_iteration: int = 0  # all workers, both directions, as encoded
    memory: Memory | None = None


@dataclasses.dataclass
class RawCandidate:
    """One combination of settings that is tried for the raw baseline."""

    transport: str
    chunk_bytes: int
    socket_buffer_bytes: int
    bytes_per_second: float = 0.0  # median


@dataclasses.dataclass
class Goodput:
    """A layout, and the results of both systems."""

    layout: Layout
    best: RawCandidate  # the fastest settings of the raw baseline
    ps: Samples = dataclasses.field(default_factory=Samples)
    raw: Samples = dataclasses.field(default_factory=Samples)
    clipped: Samples = dataclasses.field(default_factory=Samples)  # of ps, with --clip
    # The memory that the largest shard cannot do without: its parameters and sums, and the workers'
    # memory that it shares.
    shard_needs_bytes: int = 0
    skipped: str = ""  # why there are no samples; empty if there are


@dataclasses.dataclass
class Latency:
    """The seconds of push-pulls, and of empty unary calls in turn with them."""

    transport: str
    bytes: int  # pushed, and as many pulled, as encoded
    push_pulls: list
    calls: list


@dataclasses.dataclass
class Results:
    candidates: list = dataclasses.field(default_factory=list)
    goodput: list = dataclasses.field(default_factory=list)
    # Of ps with 1 worker and 1 shard over TCP, taken in turn with 8 workers and 1 shard.
    one_beside_eight: Samples = dataclasses.field(default_factory=Samples)
    latency: list = dataclasses.field(default_factory=list)


def measure(options, folder):
    """Measures what `options`, those of wire.py, ask for, and reports its progress on standard
    error. Limits, encoding and log level are those of ps only. The results of each layout are
    verified in both systems before they are measured in turn: ps, raw, ps, raw, ... The transports
    take turns as well if memory permits, because the speed of a shared machine changes from minute
    to minute. Unix sockets are made in `folder`. Raises WireError at the first failure."""
    return _Measurement(options, folder).run()


def _tell(what):
    print(what, file=sys.stderr, flush=True)


def _available_bytes():
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))


class _Measurement:
    def __init__(self, options, folder):
        self._options = options
        self._folder = folder
        self._elements = plan(self._layout(options.transports[0]), folder).elements
        self._results = Results()

    def run(self):
        options, results = self._options, self._results
        for transport in options.transports:
            best = self._raw_best(transport)
            results.goodput += [
                self._planned(self._layout(transport, workers, shards), best)
                for workers in options.workers for shards in options.shards
            ]
        layouts = len(options.workers) * len(options.shards)
        for first in range(layouts):  # each over all transports
            self._measure_goodput([
                result for result in results.goodput[first::layouts] if not result.skipped
            ])
        for transport in options.transports:
            for width in _LATENCY_WIDTHS:
                self._measure_latency(transport, width)
        return results

    def _layout(self, transport, workers=1, shards=1):
        model = self._options.model
        text = model if "{" in model else f'builtin: "{model}"'
        return Layout(text, transport, workers, shards)

    def _of_ps(self, layout):
        options = self._options
        return dataclasses.replace(
            layout, limits=tuple(options.limit), encoding=options.encoding,
            error_feedback=options.error_feedback,
            log_level=options.log_level,
        )

    @staticmethod
    def _of_raw(layout, candidate):
        return dataclasses.replace(
            layout, system="raw", limits=(f"chunk_bytes: {candidate.chunk_bytes}",),
            socket_buffer_bytes=candidate.socket_buffer_bytes,
        )

    def _planned(self, layout, best):
        """Returns a result without samples, or with the reason to skip it."""
        result = Goodput(layout, best)
        try:
            shard_bytes = FLOAT_BYTES * max(plan(layout, self._folder).shard_floats)
        except WireError as error:
            result.skipped = str(error)
            return result
        # A shard that shares memory has mapped each worker's gradients and parameters.
        shared = 2 * layout.workers if layout.transport == "shared" else 0
        result.shard_needs_bytes = ((2 if layout.workers > 1 else 1) + shared) * shard_bytes
        needs, available = self._needs_bytes(layout), _available_bytes()
        if needs > available:
            result.skipped = (
                f"needs {needs * 1e-9:.1f} GB of memory, {available * 1e-9:.1f} GB are free"
            )
            _tell(f"{layout}: skipped, {result.skipped}")
        return result

    def _needs_bytes(self, layout):
        """Estimates the memory of all processes of a layout."""
        return (2 * (layout.workers + 1) * self._elements * FLOAT_BYTES
                + (layout.workers + layout.shards) * _PROCESS_BYTES)

    def _side_by_side(self, turns):
        return sum(self._needs_bytes(layout) for layout, _ in turns) < _available_bytes()

    def _measure_goodput(self, results):
        """Measures one layout, over one or more transports."""
        turns = []  # layouts of systems, and where the samples of their windows go
        for result in results:
            layout = result.layout
            turns += [(self._of_ps(layout), result.ps),
                      (self._of_raw(layout, result.best), result.raw)]
            if self._options.clip:
                turns.append((dataclasses.replace(self._of_ps(layout), clips=True), result.clipped))
            if (layout.transport, layout.workers, layout.shards) == ("tcp", 8, 1):
                turns.append((self._of_ps(self._layout("tcp")), self._results.one_beside_eight))
        if len(results) > 1 and not self._side_by_side(turns):
            for result in results:
                self._measure_goodput([result])
        elif results:
            self._sample_in_turn(turns, self._options.repeat)

    def _sample_in_turn(self, turns, windows):
        """Samples each system's windows in turn. All systems stay up if memory permits; otherwise
        each is started anew for each window."""
        side_by_side = self._side_by_side(turns)
        _tell(", ".join(str(layout) for layout, _ in turns)
              + ("" if side_by_side else " (one at a time)"))
        with contextlib.ExitStack() as running:
            prepared = {}
            for _ in range(windows):
                for turn, (layout, samples) in enumerate(turns):
                    if turn not in prepared:
                        cluster = running.enter_context(Cluster(layout, self._folder))
                        prepared[turn] = cluster, self._iterations(cluster)
                    self._sample(*prepared[turn], layout, samples)
                    if not side_by_side:
                        prepared.clear()
                        running.close()

    def _iterations(self, cluster):
        """Runs iterations that are not counted, verifies their result, and returns how many
        iterations fill a window."""
        cluster.run(1)  # warms memory and TCP up
        window = cluster.run(1)
        cluster.verify()
        return max(1, math.ceil(self._options.window_seconds / window.seconds))

    def _sample(self, cluster, iterations, layout, samples):
        window = cluster.run(iterations)
        samples.bytes_per_iteration = layout.workers * (
            layout.push_bytes(self._elements) + layout.pull_bytes(self._elements))
        size = samples.bytes_per_iteration * iterations
        samples.iteration_seconds.append(window.seconds / iterations)
        samples.goodput.append(size / window.seconds)
        samples.cpu_per_gb.append(window.cpu_seconds / (size * 1e-9))
        samples.memory = cluster.memory()

    def _raw_best(self, transport):
        """Tries all sizes of chunks and of the kernel's buffers in turn, with one worker and one
        shard."""
        options = self._options
        candidates = [
            RawCandidate(transport, chunk_bytes, buffer_bytes)
            for chunk_bytes in options.raw_chunk_bytes
            for buffer_bytes in options.raw_socket_buffer_bytes
        ]
        if len(candidates) == 1:
            return candidates[0]
        turns = [
            (self._of_raw(self._layout(transport), candidate), Samples())
            for candidate in candidates
        ]
        self._sample_in_turn(turns, (options.repeat + 1) // 2)
        for candidate, (_, samples) in zip(candidates, turns):
            candidate.bytes_per_second = statistics.median(samples.goodput)
        self._results.candidates += candidates
        return max(candidates, key=lambda candidate: candidate.bytes_per_second)

    def _measure_latency(self, transport, width):
        """Measures the latency of a model with one tensor of width x width parameters."""
        layout = self._of_ps(Layout(
            f"input {{ channels: {width} height: 1 width: 1 }} layer {{ name: \"only\" conv {{"
            f" out_channels: {width} kernel: 1 bias: false }} }}", transport))
        size = layout.push_bytes(width * width)
        _tell(f"{transport}: latency of {size} bytes")
        with Cluster(layout, self._folder) as cluster:
            push_pulls, calls = cluster.latencies(self._options.latency_count)
            self._results.latency.append(Latency(transport, size, push_pulls, calls))
            cluster.verify()
