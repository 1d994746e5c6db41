"""Checks the advice of `psctl advise` on clusters that were not used for tuning; see
docs/experiment.md.

    bazel run -c opt //experiments:advised -- --out=DIR

Draws clusters from a seed, asks psctl how to train on each, and measures on an emulated network
what it advises, the next ones of its list and one more that is drawn. An interrupted experiment
goes on where it was. The exit codes are those of //experiments:drawn.
"""

import dataclasses
import json
import random
import re
import statistics
import subprocess
import tempfile

from experiments import measurement, program
from experiments.report import report
from experiments.runs import clusters, matrix, topology

_ALONE = "one worker alone"
_WITHIN = 0.05
_SCHEMES = {
    "layer-based": matrix.LAYER_BASED,
    "memory-based": matrix.MEMORY_BASED,
    "striped": matrix.STRIPED,
}


def add_flags(add):
    add("--out", required=True, metavar="DIR", help="the folder of the results")
    add("--clusters", type=program.count, default=10, metavar="N", help="default: 10")
    add("--seed", type=int, default=7, help="default: 7")
    add("--ways", type=program.count, default=4, metavar="N",
        help="measures what psctl says to take, and the best of the others: so many in all;"
        " default: 4")


@dataclasses.dataclass(frozen=True)
class Way:
    """One of the ways to train that psctl has named, with what is needed to measure it."""

    name: str
    predicted: float  # images per second
    cluster: clusters.Cluster
    experiment: object


def _drawn(seed, index):
    """Returns a cluster with equal links, and workers that compute and are alike."""
    cluster = clusters.draw(seed, index, even=True)
    return dataclasses.replace(cluster, device=clusters.DEVICE, worker_slowdown=())


def _ask(cluster, programs):
    """Returns the ways that compute the same: the one that psctl says to take, and then the others,
    the fastest first."""
    # psctl says how many connections are the best only if the config does not.
    experiment = clusters.experiment(
        dataclasses.replace(cluster, time_dilation=1, connections=None)
    )
    [one] = matrix.runs(experiment)
    addresses = [f"127.0.0.1:{1 + shard}" for shard in range(cluster.shards)]
    with tempfile.NamedTemporaryFile("w", suffix=".textproto") as config:
        config.write(matrix.cluster_config(experiment, one, addresses))
        config.flush()
        command = [
            programs.psctl, "advise", f"--config={config.name}",
            f"--link_gbps={cluster.link_gbps}", "--format=json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise program.UsageError(f"psctl advise: {done.stderr.strip()}")
    advice = json.loads(done.stdout)
    ways = advice["same"]
    return [ways.pop(advice["chosen"]), *ways]


def placed(cluster, name, schedule):
    """Returns the cluster as a way uses it, or None if an experiment cannot measure that: some of
    the workers' hosts with shards, and others without."""
    where, shards, scheme = topology.APART, 1, matrix.MEMORY_BASED
    on_servers = re.fullmatch(r"(\S+) on (\d+) servers", name)
    on_all = re.fullmatch(r"(\S+) on all workers", name)
    if on_servers:
        scheme, shards = _SCHEMES[on_servers[1]], int(on_servers[2])
    elif on_all:
        where, scheme, shards = topology.COLOCATED, _SCHEMES[on_all[1]], cluster.workers
    elif name.startswith("one master"):
        where = topology.ONE_MASTER
    elif name == "ring":
        where = topology.RING
    elif name != "one server":
        return None
    return clusters.dilated(
        dataclasses.replace(
            cluster, mode=clusters.Mode(name, where), schemes=(scheme,), schedule=schedule,
            shard_link_gbps=(cluster.link_gbps,) * shards,
        )
    )


def _ways(cluster, advised, most, chance):
    """Returns the Ways to measure: the first ones of the advice, and one of the others."""
    ways = []
    for index, each in enumerate(advised):
        at = placed(cluster, each["name"], each["schedule"])
        if at is not None:
            at = dataclasses.replace(
                at, name=f"{cluster.name}-{index:02}",
                connections=min(each["connections"], clusters.MOST_CONNECTIONS),
            )
            experiment = clusters.experiment(at)
            ways.append(Way(each["name"], each["images_per_second"], at, experiment))
    rest = ways[most:]
    return ways[:most] + ([chance.choice(rest)] if rest else [])


def work(arguments, programs):
    drawn = [_drawn(arguments.seed, index) for index in range(arguments.clusters)]
    advised = [_ask(cluster, programs) for cluster in drawn]
    ways = [
        _ways(cluster, each, arguments.ways, random.Random(f"{arguments.seed}/{cluster.name}"))
        for cluster, each in zip(drawn, advised)
    ]
    experiments = [way.experiment for each in ways for way in each]
    folder, results = measurement.measure_drawn(experiments, "ways", arguments.out, programs)
    left = iter(results)
    measured = [
        {way.name: _images_per_second(way.cluster, next(left)) for way in each} for each in ways
    ]
    for each, of_cluster in zip(advised, measured):
        # Its time is the emulated device's, and there is nothing to measure.
        alone = next(way for way in each if way["name"] == _ALONE)
        of_cluster[_ALONE] = alone["images_per_second"]
    text, headline = _report(drawn, advised, measured)
    folder.write_report(text)
    print("", headline, "", f"report: {folder.file('report.md')}", sep="\n", flush=True)


def _images_per_second(cluster, results):
    [cell] = results.cells.values()
    return cluster.workers * cluster.batch_size / cell.median


def _report(drawn, advised, measured):
    """Returns the text of the report, and its headline."""
    rows = []
    parts = []
    second = []  # clusters whose first choice no experiment can measure
    for cluster, ways, of_cluster in zip(drawn, advised, measured):
        names = [way["name"] for way in ways]
        # The first that an experiment can measure.
        first = next(name for name in names if name in of_cluster)
        if first != names[0]:
            second.append(f"{cluster.name} ({names[0]})")
        best = max(of_cluster, key=of_cluster.get)
        parts.append(of_cluster[first] / of_cluster[best])
        for way in ways:
            if way["name"] in of_cluster:
                rows.append([
                    cluster.name, way["name"], f"{way['images_per_second']:,.0f}",
                    f"{of_cluster[way['name']]:,.0f}",
                    f"{of_cluster[way['name']] / of_cluster[best]:.2f}",
                ])
    good = sum(part >= 1 - _WITHIN for part in parts)
    headline = (
        f"what psctl advises is within {_WITHIN:.0%} of the best that was measured on {good} of"
        f" {matrix.count(len(parts), 'cluster')}; median {statistics.median(parts):.3f} of it,"
        f" least {min(parts):.3f}"
    )
    if second:
        headline += (
            "; where its first choice cannot be measured here, the first one that can is meant: "
            + ", ".join(second)
        )
    of_clusters = [
        [
            cluster.name, cluster.model, str(cluster.workers), str(cluster.shards),
            f"{cluster.link_gbps:g}", str(cluster.batch_size),
        ]
        for cluster in drawn
    ]
    sections = [
        "# Advice on drawn clusters",
        headline + ".",
        report.table(
            ["cluster", "way", ">predicted, images/s", ">measured", ">of the best"], rows
        ),
        report.table(
            ["cluster", "model", ">workers", ">hosts for servers", ">links, Gb/s", ">batch"],
            of_clusters,
        ),
        f"- Machine: {report.machine()}.",
    ]
    return "\n\n".join(sections) + "\n", headline
