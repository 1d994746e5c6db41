"""Tables and JSON of what the wire benchmark measured."""

import datetime
import json
import os
import platform
import statistics
import sys


def origin():
    """Says where, when and how the results are measured: at this moment, by this command line."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(": ")[1].strip() for line in file if line.startswith("model name")]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    processor = names[0] if names else "unknown processor"
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "machine": f"{processor}, {os.cpu_count()} processors, {memory * 1e-9:.1f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "date": f"{now:%Y-%m-%d %H:%M} UTC",
        "command": " ".join(["bazel run -c opt //bench:wire --", *sys.argv[1:]]),
    }


def _median_ratio(over, under):
    """Returns the median of the ratios window by window, so that the machine's other load weighs
    equally on both sides."""
    return statistics.median(a / b for a, b in zip(over, under))


def _quantiles(seconds):
    """Returns the median and the 99th percentile."""
    percentiles = statistics.quantiles(seconds, n=100, method="inclusive")
    return percentiles[49], percentiles[98]


def _bytes_ratio(result):
    return result.ps.bytes_per_iteration / result.raw.bytes_per_iteration


def _latency_ratio(latency):
    return statistics.median(latency.push_pulls) / statistics.median(latency.calls)


def _headline(results):
    """Returns the figures for which the layouts were measured."""
    measured = [result for result in results.goodput if not result.skipped]

    def find(transport, workers):
        return next((result for result in measured if (
            result.layout.transport, result.layout.workers, result.layout.shards
        ) == (transport, workers, 1)), None)

    headline = {}
    tcp, local, shared, eight = find("tcp", 1), find("unix", 1), find("shared", 1), find("tcp", 8)
    tls = find("tls", 1)
    if one := tcp or local:
        headline["goodput_over_raw_socket"] = _median_ratio(one.ps.goodput, one.raw.goodput)
        headline["cpu_per_gb_over_raw_socket"] = _median_ratio(
            one.ps.cpu_per_gb, one.raw.cpu_per_gb)
        headline["bytes_over_raw_socket"] = _bytes_ratio(one)
        headline["iteration_seconds_over_raw_socket"] = _median_ratio(
            one.ps.iteration_seconds, one.raw.iteration_seconds)
    if tcp and local:
        headline["unix_over_tcp"] = _median_ratio(local.ps.goodput, tcp.ps.goodput)
    if tcp and shared:
        headline["shared_over_tcp"] = _median_ratio(shared.ps.goodput, tcp.ps.goodput)
    if tcp and tls:
        headline["tls_over_tcp"] = _median_ratio(tls.ps.goodput, tcp.ps.goodput)
        headline["cpu_per_gb_tls_over_tcp"] = _median_ratio(tls.ps.cpu_per_gb, tcp.ps.cpu_per_gb)
    if eight:
        headline["eight_workers_over_one"] = _median_ratio(
            eight.ps.goodput, results.one_beside_eight.goodput)
    headline["smallest_push_pull_over_empty_call"] = _latency_ratio(results.latency[0])
    if measured:
        # The figures of memory are those of the measured layout with the most workers.
        most = max(measured, key=lambda result: result.layout.workers)
        headline["shard_bytes_beyond_need"] = most.ps.memory.shard - most.shard_needs_bytes
        headline["worker_bytes_beyond_buffers"] = most.ps.memory.worker
        headline["exchange_bytes"] = most.ps.memory.exchange
    return headline


def _spread(values, unit=1):
    """Formats median, minimum and maximum as "3.21 (3.10-3.40)", in units of `unit`."""
    return (f"{statistics.median(values) / unit:.2f} "
            f"({min(values) / unit:.2f}-{max(values) / unit:.2f})")


def table(where, results):
    """Returns tables for people to read: medians, with the smallest and the largest window."""
    lines = [f"{name:8} {value}{' before the start' if name == 'load' else ''}"
             for name, value in where.items()]
    lines += ["", "Push-pull of all parameters: GB/s of gradients in and parameters out, and CPU "
                  "seconds per GB;",
              "median (smallest-largest window), ps and raw sockets in turn; the ratio window by "
              "window"]
    head = "{:6} {:>2} x {:<2}  "
    row = head + "{:19} {:19} {:5}   {:17} {:17} {:5}"
    lines.append(row.format("", "W", "S", "ps GB/s", "raw GB/s", "ratio", "ps CPU s/GB",
                            "raw CPU s/GB", "ratio"))
    measured = []
    for result in results.goodput:
        layout, ps, raw = result.layout, result.ps, result.raw
        start = layout.transport, layout.workers, layout.shards
        if result.skipped:
            lines.append(head.format(*start) + f"skipped: {result.skipped}")
            continue
        measured.append((start, result, ps, raw))
        lines.append(row.format(
            *start, _spread(ps.goodput, 1e9), _spread(raw.goodput, 1e9),
            f"{_median_ratio(ps.goodput, raw.goodput):.2f}",
            _spread(ps.cpu_per_gb), _spread(raw.cpu_per_gb),
            f"{_median_ratio(ps.cpu_per_gb, raw.cpu_per_gb):.2f}"))

    lines += ["", "An iteration: MB (10^6 bytes) moved by all workers, both directions as encoded, "
                  "and seconds"]
    row = head + "{:>10} {:>10} {:5}   {:19} {:19} {:5}"
    lines.append(row.format("", "W", "S", "ps MB", "raw MB", "ratio", "ps s", "raw s", "ratio"))
    for start, result, ps, raw in measured:
        lines.append(row.format(
            *start, f"{ps.bytes_per_iteration * 1e-6:.1f}", f"{raw.bytes_per_iteration * 1e-6:.1f}",
            f"{_bytes_ratio(result):.2f}", _spread(ps.iteration_seconds),
            _spread(raw.iteration_seconds),
            f"{_median_ratio(ps.iteration_seconds, raw.iteration_seconds):.2f}"))

    clipped = [(start, ps, result.clipped) for start, result, ps, _ in measured
               if result.clipped.iteration_seconds]
    if clipped:
        lines += ["", "Clipping by the norm of the gradient, in turn with ps without it: seconds "
                      "of an iteration, and",
                  "CPU seconds per GB"]
        row = head + "{:19} {:19} {:5}   {:17} {:5}"
        lines.append(row.format("", "W", "S", "with, s", "without, s", "ratio", "with, CPU s/GB",
                                "ratio"))
    for start, ps, samples in clipped:
        lines.append(row.format(
            *start, _spread(samples.iteration_seconds), _spread(ps.iteration_seconds),
            f"{_median_ratio(samples.iteration_seconds, ps.iteration_seconds):.3f}",
            _spread(samples.cpu_per_gb), f"{_median_ratio(samples.cpu_per_gb, ps.cpu_per_gb):.3f}"))

    lines += ["", "Resident memory in MB (10^6 bytes): the largest shard, what its parameters, "
                  "sums, optimizer state",
              "and shared memory need; the largest worker beyond its two buffers, and what "
              "connecting and", "exchanging added"]
    row = head + "{:>10} {:>10} {:>10} {:>10} {:>10}"
    lines.append(row.format("", "W", "S", "shard", "needs", "beyond", "worker", "exchange"))
    for start, result, ps, _ in measured:
        memory, needs = ps.memory, result.shard_needs_bytes
        figures = memory.shard, needs, memory.shard - needs, memory.worker, memory.exchange
        lines.append(row.format(*start, *(f"{size * 1e-6:.1f}" for size in figures)))

    lines += ["", "Latency in microseconds, one worker and one shard"]
    row = "{:6} {:>9}  {:>9} {:>9}   {:>10} {:>10}   {:>9}"
    lines.append(row.format("", "bytes", "p50", "p99", "call p50", "call p99", "p50 ratio"))
    for latency in results.latency:
        quantiles = *_quantiles(latency.push_pulls), *_quantiles(latency.calls)
        lines.append(row.format(latency.transport, latency.bytes,
                                *(f"{seconds * 1e6:.1f}" for seconds in quantiles),
                                f"{_latency_ratio(latency):.2f}"))

    if results.candidates:
        lines += ["", "Raw sockets, what was tried (1 worker, 1 shard; buffer 0: the kernel's "
                      "choice)"]
    for candidate in results.candidates:
        lines.append(f"{candidate.transport:6} chunk {candidate.chunk_bytes:8}  buffer "
                     f"{candidate.socket_buffer_bytes:8}  "
                     f"{candidate.bytes_per_second * 1e-9:.2f} GB/s")
    lines.append("")
    for name, value in _headline(results).items():
        lines.append(f"{name:36} {value if isinstance(value, int) else format(value, '.3f')}")
    return "\n".join(lines)


def to_json(where, results):
    """Returns one JSON object. Its `headline` has only the figures for which the layouts were
    measured."""
    def spread(values):
        return {"median": statistics.median(values), "min": min(values), "max": max(values),
                "windows": len(values)}

    def system(samples):
        return {"bytes_per_second": spread(samples.goodput),
                "cpu_seconds_per_gb": spread(samples.cpu_per_gb),
                "iteration_seconds": spread(samples.iteration_seconds),
                "bytes_per_iteration": samples.bytes_per_iteration,
                "shard_resident_bytes": samples.memory.shard,
                "worker_bytes_beyond_buffers": samples.memory.worker,
                "exchange_bytes": samples.memory.exchange}

    def goodput(result):
        layout, ps, raw = result.layout, result.ps, result.raw
        entry = {"transport": layout.transport, "workers": layout.workers, "shards": layout.shards}
        if result.skipped:
            return {**entry, "skipped": result.skipped}
        if result.clipped.iteration_seconds:
            entry["clipped"] = system(result.clipped)
            entry["clipped_iteration_ratio"] = _median_ratio(
                result.clipped.iteration_seconds, ps.iteration_seconds)
        return {**entry, "ps": system(ps), "raw": system(raw),
                "goodput_ratio": _median_ratio(ps.goodput, raw.goodput),
                "cpu_per_gb_ratio": _median_ratio(ps.cpu_per_gb, raw.cpu_per_gb),
                "shard_needs_bytes": result.shard_needs_bytes}

    def latency(result):
        p50, p99 = _quantiles(result.push_pulls)
        call_p50, call_p99 = _quantiles(result.calls)
        return {"transport": result.transport, "bytes": result.bytes,
                "p50_seconds": p50, "p99_seconds": p99,
                "empty_call_p50_seconds": call_p50, "empty_call_p99_seconds": call_p99}

    return json.dumps({
        "origin": where,
        "headline": _headline(results),
        "goodput": [goodput(result) for result in results.goodput],
        "latency": [latency(result) for result in results.latency],
        "raw_candidates": [vars(candidate) for candidate in results.candidates],
    }, indent=2)
