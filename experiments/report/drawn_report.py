"""The report of //experiments:drawn: every run beside its prediction, and a summary."""

import statistics

from experiments.report import report
from experiments.report.report import SIMULATOR_TOLERANCE
from experiments.runs import clusters, matrix, topology


def write(drawn, results, command):
    """Returns the text of the report. `results` has the Results of each cluster in `drawn`."""
    pairs = _pairs(drawn, results)
    sections = [
        "# Predictions on drawn clusters",
        f"{matrix.count(len(drawn), 'cluster')} drawn from a seed,"
        f" {matrix.count(len(pairs), 'run')} of"
        f" {clusters.LEAST_ITERATIONS} to {clusters.MOST_ITERATIONS} iterations after 1 of warm-up;"
        " none is left out."
        " Real processes, each behind a shaped link of its own; times are those of the emulated"
        " cluster.",
        f"- Machine: {report.machine()}.\n- Command: `{command}`",
        "## Summary\n\n" + "\n\n".join(_summary(pairs)),
        _runs(pairs),
        _clusters(drawn),
        "`results.csv` has more about each run, `runs/` its config, logs and result.",
    ]
    return "\n\n".join(sections) + "\n"


def _pairs(drawn, results):
    return [(c, m) for c, result in zip(drawn, results) for m in result.cells.values()]


def headlines(drawn, results):
    """Returns the summary in a sentence or two."""
    pairs = _pairs(drawn, results)
    errors = [abs(measured.simulation_error) for _, measured in pairs]
    lines = [
        f"simulated within {SIMULATOR_TOLERANCE:.0%} of the measurement in {_within(errors)} of"
        f" {matrix.count(len(errors), 'run')}; error: median {statistics.median(errors):.1%},"
        f" largest {max(errors):.1%}"
    ]
    ratios = _auto_over_best(pairs)
    if ratios:
        worst = max(ratios, key=ratios.get)
        lines.append(
            f"AUTO takes {statistics.median(ratios.values()):.2f} times as long as the best other"
            f" placement (median of {matrix.count(len(ratios), 'cluster')}), at worst"
            f" {ratios[worst]:.2f} times ({worst})"
        )
    return lines


def _within(errors):
    return sum(error <= SIMULATOR_TOLERANCE for error in errors)


def _auto_over_best(pairs):
    """Returns the measured time of AUTO over that of the best other placement, by cluster, for the
    clusters that have both."""
    by_cluster = {}
    for cluster, measured in pairs:
        by_cluster.setdefault(cluster.name, {})[measured.run.scheme] = measured.median
    return {
        name: times[matrix.AUTO] / min(t for scheme, t in times.items() if scheme != matrix.AUTO)
        for name, times in by_cluster.items()
        if matrix.AUTO in times and len(times) > 1
    }


def _groups(pairs):
    """Yields (name, condition on cluster and run) of what is summed up by itself."""
    yield "all", lambda cluster, run: True
    yield "even links", lambda cluster, run: cluster.even
    yield "uneven links", lambda cluster, run: not cluster.even
    yield "a slow worker", lambda cluster, run: cluster.worker_slowdown
    yield "the exchange alone", lambda cluster, run: cluster.device == "none"
    for schedule in dict.fromkeys(measured.run.schedule for _, measured in pairs):
        yield f"schedule {schedule.lower()}", lambda _, run, s=schedule: run.schedule == s
    modes = dict.fromkeys(cluster.mode.name for cluster, _ in pairs)
    for mode in modes if len(modes) > 1 else ():
        yield f"mode {mode}", lambda cluster, _, m=mode: cluster.mode.name == m
    for scheme in dict.fromkeys(measured.run.scheme_name for _, measured in pairs):
        yield scheme, lambda _, run, s=scheme: run.scheme_name == s


def _summary(pairs):
    rows = []
    for name, condition in _groups(pairs):
        group = [measured for cluster, measured in pairs if condition(cluster, measured.run)]
        if not group:
            continue
        errors = [abs(measured.simulation_error) for measured in group]
        rows.append([
            name,
            str(len(group)),
            str(_within(errors)),
            f"{statistics.median(errors):.1%}",
            f"{max(errors):.1%}",
            f"{statistics.median(m.median / m.bound for m in group):.2f}",
            f"{max(m.median / m.bound for m in group):.2f}",
        ])
    yield report.table(
        ["runs", ">number", f">simulated within {SIMULATOR_TOLERANCE:.0%}",
         ">median error", ">largest error", ">measured / bound, median", ">largest"],
        rows,
    )
    ratios = _auto_over_best(pairs)
    if ratios:
        yield (
            "AUTO over the best other placement of the same cluster, measured: median"
            f" {statistics.median(ratios.values()):.3f}, worst {max(ratios.values()):.3f}.\n\n"
            + report.table(
                ["cluster", ">AUTO over the best other"],
                [[name, f"{ratio:.3f}"] for name, ratio in ratios.items()],
            )
        )


def _runs(pairs):
    rows = []
    for cluster, m in pairs:
        use = "-" if m.processor_use is None else f"{m.processor_use:.0%}"
        rows.append([
            cluster.name,
            cluster.mode.name,
            m.run.scheme_name,
            m.run.schedule.lower(),
            f"{m.median:.3f} ({m.p10:.3f}-{m.p90:.3f})",
            f"{m.plan.simulated_seconds:.3f}",
            f"{m.simulation_error:+.1%}",
            f"{m.bound:.3f}",
            f"{m.median / m.bound:.2f}",
            use + (" !" if m.processor_bound else ""),
        ])
    text = "## Runs\n\n" + report.table(
        ["cluster", "mode", "placement", "schedule", ">measured, s: median (p10-p90)",
         ">simulated, s", ">error", ">bound, s", ">measured / bound", ">processor use"],
        rows,
    )
    if any(m.processor_bound for _, m in pairs):
        text += (
            "\n\n**!**: more of the machine's processors were in use than a measurement of the"
            " network allows."
        )
    return text


def _clusters(drawn):
    rows = []
    for cluster in drawn:
        slow = {i: factor for i, factor in enumerate(cluster.worker_slowdown) if factor != 1}
        shrink = clusters.MODELS[cluster.model].shrink
        rows.append([
            cluster.name,
            cluster.model + (f" shrunk {shrink} times" if shrink > 1 else ""),
            str(cluster.workers),
            str(topology.shard_count(cluster.topology, cluster.workers, cluster.shards)),
            f"{cluster.link_gbps:g}",
            # Otherwise there are none, or they have workers' links.
            " ".join(f"{rate:g}" for rate in cluster.shard_link_gbps)
            if cluster.topology == topology.APART else "-",
            ", ".join(f"worker {rank}: {factor:g} times" for rank, factor in slow.items()) or "-",
            matrix.device_name(cluster.device)
            + (f", batch {cluster.batch_size}" if cluster.device != "none" else ""),
            f"{cluster.time_dilation}",
        ])
    return "## Clusters\n\n" + report.table(
        ["cluster", "model", ">workers", ">shards", ">workers' links, Gb/s",
         "shards' links, Gb/s", "slow", "computing", ">time dilation"],
        rows,
    )
