"""Measures what recovery { replicas: 1 } costs on emulated links (docs/performance.md, Recovery).

    bazel run -c opt //experiments:replicas -- --out=DIR

VGG-16 with 8 workers and 4 shards comes first, and then clusters drawn from a seed. Each is
measured without and with replicas in turn, and compared with what the bytes on its links allow:
with W workers, a model of M bytes and links of B bytes per second,

    without replicas   max(M / B, W * max_shard / B)
    with replicas      max(M / B, (W + 1) * max_shard / B)

where max_shard is the largest shard's bytes. An etcd beside the network has the views. Exit code: 0
if all runs are done; 1 after a failure; 2 for a wrong command line; 3 if this machine allows no
emulated network; 130 after Ctrl-C.
"""

import dataclasses
import json
import os
import statistics

from experiments import program
from experiments.cluster import network, run
from experiments.report import output_folder
from experiments.runs import clusters, matrix

_REPLICA_COUNTS = (0, 1)


def add_flags(add):
    add("--out", required=True, metavar="DIR", help="the folder of the results")
    add("--drawn", type=program.count_or_none, default=3, metavar="N", help="default: 3")
    add("--seed", type=int, default=7, help="of the drawn clusters; default: 7")
    add("--shrink", type=program.count, metavar="N",
        help="models of about 1/N of the size, for a try")
    add("--repeats", type=program.count, default=3, metavar="N", help="default: 3")


def _clusters(arguments):
    """Returns VGG-16 on 8 workers and 4 shards, and the drawn clusters with two shards or more."""
    vgg16 = clusters.Cluster(
        name="vgg16",
        model="vgg16",
        workers=8,
        link_gbps=10,
        shard_link_gbps=(10,) * 4,
        worker_slowdown=(),
        device="none",
        batch_size=1,
        schedule="BACKWARD",
        schemes=(matrix.MEMORY_BASED,),
        time_dilation=20,
        shrink=1,
    )
    drawn = (
        clusters.draw(arguments.seed, i, even=True, exchange_alone=True) for i in range(10**6)
    )
    chosen = [vgg16]
    while len(chosen) <= arguments.drawn:
        cluster = next(drawn)
        # On a striped placement an even cluster has equal shards too.
        if cluster.shards > 1 and cluster.schemes[0] != matrix.AUTO:
            chosen.append(cluster)
    if not arguments.shrink:
        return chosen
    return [
        dataclasses.replace(
            cluster,
            shrink=arguments.shrink,
            time_dilation=max(1, cluster.time_dilation // arguments.shrink),
        )
        for cluster in chosen
    ]


def _experiment(cluster, replicas):
    experiment = clusters.experiment(cluster)
    if replicas:
        recovery = experiment.proto.cluster.recovery
        recovery.replicas = replicas
        # All processes share this machine's processors, so they may be late.
        recovery.silence_seconds = 30
        recovery.etcd.endpoint.append(network.CONTROL_ENDPOINT)
    return experiment


def work(arguments, programs):
    # Nobody else's, as long as this goes on.
    try:
        folder = output_folder.OutputFolder(
            program.from_user(arguments.out), {"experiment": "replicas"}
        )
    except output_folder.OutputFolderError as error:
        raise program.UsageError(error) from None
    folder.claim()
    rows = []
    for cluster in _clusters(arguments):
        times = {replicas: [] for replicas in _REPLICA_COUNTS}
        for repeat in range(arguments.repeats):
            for replicas in _REPLICA_COUNTS:
                experiment = _experiment(cluster, replicas)
                one = dataclasses.replace(matrix.runs(experiment)[0], repeat=repeat)
                place = folder.file(
                    os.path.join("runs", f"{cluster.name}-replicas{replicas}-r{repeat}")
                )
                result = run.execute(
                    network.NAMESPACES, experiment, one, programs, place, lambda: None
                )
                seconds = [each / cluster.time_dilation for each in result["iteration_seconds"]]
                times[replicas] += seconds
                shards = [moved / cluster.workers for moved in result["bytes_in"]]
                bound = _bound(cluster, shards, replicas)
                print(
                    f"{_describe(cluster)}, {replicas} replicas: {statistics.median(seconds):.3f} s"
                    f" per iteration, {statistics.median(seconds) / bound:.3f} of what the bytes"
                    f" need, processors {100 * result['processor_use']:.0f} % busy",
                    flush=True,
                )
        rows.append(
            {
                "cluster": dataclasses.asdict(cluster),
                "shard_bytes": shards,
                "iteration_seconds": times,
                "bound_seconds": {
                    replicas: _bound(cluster, shards, replicas) for replicas in _REPLICA_COUNTS
                },
            }
        )
        folder.write("results.json", json.dumps(rows, indent=1))
    print("", *map(_line, rows), sep="\n")


def _bound(cluster, shards, replicas):
    rate = 1e9 / 8 * clusters.PAYLOAD * cluster.link_gbps
    return max(sum(shards), (cluster.workers + replicas) * max(shards)) / rate


def _describe(cluster):
    shrink = cluster.shrink or clusters.MODELS[cluster.model].shrink
    return (
        f"{cluster.model}{f' / {shrink}' if shrink > 1 else ''}, {cluster.workers} workers,"
        f" {cluster.shards} shards, {cluster.link_gbps} Gb/s,"
        f" {matrix.scheme_name(cluster.schemes[0], '')}, {cluster.schedule.lower()}"
    )


def _line(row):
    parts = []
    for replicas in _REPLICA_COUNTS:
        seconds = row["iteration_seconds"][replicas]
        ratios = sorted(each / row["bound_seconds"][replicas] for each in seconds)
        parts.append(
            f"{replicas} replicas: {statistics.median(seconds):.3f} s ="
            f" {statistics.median(ratios):.3f} of the bound ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )
    return f"{_describe(clusters.Cluster(**row['cluster']))}: " + "; ".join(parts)
