"""Draws clusters on which nobody tuned anything. Each is a pure function of a seed and its number.
"""

import dataclasses
import math
import random

from google.protobuf import text_format

from experiments.runs import experiment_config, matrix, topology
from proto import config_pb2, experiment_pb2

SCHEMES = (matrix.LAYER_BASED, matrix.MEMORY_BASED, matrix.STRIPED, matrix.AUTO)
DEVICE = "rtx_2080_ti"
LEAST_GBPS, MOST_GBPS = 3, 10
SLOWEST = 2.0  # a slow worker takes at least 1.3 and at most this many times as long
# Computing takes this part of the exchange.
COMPUTE_PARTS = (0.2, 1.0)

_STALENESS = 2
_LOCAL_STEPS = (2, 4, 8)

# All processes share this machine's processors, which fewer and fuller connections occupy less.
MOST_CONNECTIONS = 2

# Iterations are measured for so long on this machine's clock, but not fewer or more than these.
_MEASURED_SECONDS = 10
LEAST_ITERATIONS, MOST_ITERATIONS = 3, 12

# Bytes per second that the processors of a small machine push and pull with ease, all processes
# together. No cluster asks for more.
_MACHINE_BYTES_PER_SECOND = 0.5e9
PAYLOAD = 1448 / 1514  # of what a shaped link carries


@dataclasses.dataclass(frozen=True)
class Values:
    """As what gradients and parameters are exchanged."""

    exchange: str = ""  # an ExchangeConfig's fields as text
    bytes: int = 4  # of each, about


@dataclasses.dataclass(frozen=True)
class Mode:
    """Who holds the parameters, when a push becomes an update, and as what values are exchanged."""

    name: str
    topology: str = topology.APART
    policy: str = "SYNC"
    has_local_steps: bool = False
    values: Values = Values()


SYNC = Mode("SYNC")
_BFLOAT16 = Values("gradient_encoding: BFLOAT16 parameter_encoding: BFLOAT16", bytes=2)
_INT8 = Values("gradient_encoding: INT8 error_feedback: true update_encoding: INT8", bytes=1)
MODES = (
    SYNC,
    Mode("ASYNC", policy="ASYNC"),
    Mode("SSP", policy="SSP"),
    Mode("QUORUM", policy="QUORUM"),
    Mode("colocated", topology.COLOCATED),
    Mode("one master", topology.ONE_MASTER),
    Mode("ring", topology.RING),
    Mode("local steps", has_local_steps=True),
    Mode("ring, local steps", topology.RING, has_local_steps=True),
    Mode("BFLOAT16", values=_BFLOAT16),
    Mode("ring, BFLOAT16", topology.RING, values=_BFLOAT16),
    Mode("INT8", values=_INT8),
    Mode("colocated, INT8", topology.COLOCATED, values=_INT8),
)


@dataclasses.dataclass(frozen=True)
class Model:
    elements: int  # that are exchanged, after shrinking
    image_seconds: float  # in which DEVICE computes one
    shrink: int = 1


MODELS = {
    "alexnet": Model(61_100_840, 0.26e-3),
    "resnet18": Model(11_699_112, 0.81e-3),
    "resnet50": Model(25_610_152, 2.26e-3),
    "resnet152": Model(60_344_232, 5.70e-3),
    "vgg16": Model(138_357_544 // 4, 5.68e-3, shrink=4),
}


@dataclasses.dataclass(frozen=True)
class Cluster:
    name: str
    model: str  # of MODELS
    workers: int
    link_gbps: float  # of workers
    shard_link_gbps: tuple  # by shard
    worker_slowdown: tuple  # empty unless one is slow
    device: str
    batch_size: int
    schedule: str
    schemes: tuple
    time_dilation: int
    mode: Mode = SYNC
    local_steps: int = 0  # in an iteration, which then is a round; 0: none
    shrink: int = 0  # of the model; 0: as in MODELS
    connections: int | None = MOST_CONNECTIONS  # from each worker to each shard; None: the default

    @property
    def shards(self):
        return len(self.shard_link_gbps)

    @property
    def topology(self):
        return self.mode.topology

    @property
    def even(self):
        """Whether all links have the same rate."""
        return set(self.shard_link_gbps) == {self.link_gbps}


def exchange_seconds(cluster):
    """Returns the least time in which the cluster's links pass the model, each way."""
    size = cluster.mode.values.bytes * MODELS[cluster.model].elements
    rate = 1e9 / 8 * PAYLOAD
    others = cluster.workers - 1
    if cluster.topology == topology.ONE_MASTER:
        return others * size / (rate * cluster.link_gbps)
    if cluster.topology != topology.APART:
        return 2 * others / cluster.workers * size / (rate * cluster.link_gbps)
    return max(
        size / (rate * cluster.link_gbps),
        cluster.workers * size / (rate * sum(cluster.shard_link_gbps)),
    )


def draw(
    seed, index, schemes=(), schedule=None, even=False, exchange_alone=False, modes=False
):
    """Returns a Cluster. Everything else is equal with and without the options: placements in
    place of a drawn one, one schedule, only even links, no computing, and one of MODES in place of
    SYNC. Only shards on hosts of their own may have uneven links."""
    chance = random.Random(f"{seed}/{index}")
    model = chance.choice(sorted(MODELS))
    workers = chance.randint(2, 8)
    uneven = chance.random() < 0.5
    shards = chance.randint(2 if uneven else 1, 6)
    rates = _rates(chance, shards, uneven)
    computes = chance.random() < 2 / 3
    # One in three of all clusters has a slow worker, and only one that computes can.
    slow = chance.random() < 1 / 2
    slowdown = [1.0] * chance.randrange(workers) + [round(chance.uniform(1.3, SLOWEST), 2)]
    batch_part = chance.random()
    drawn = "FULL" if chance.random() < 0.5 else chance.choice(["BACKWARD", "SEQUENTIAL"])
    scheme = chance.choice(SCHEMES)

    mode = chance.choice(MODES) if modes else SYNC

    computes = computes and not exchange_alone
    if even or mode.topology != topology.APART:
        rates = [rates[0]] * (shards + 1)
    cluster = Cluster(
        name=f"c{index:02}",
        model=model,
        workers=workers,
        link_gbps=rates[0],
        shard_link_gbps=tuple(rates[1:]),
        worker_slowdown=tuple(slowdown) if slow and computes else (),
        device=DEVICE if computes else "none",
        batch_size=1,
        schedule=schedule or drawn,
        schemes=tuple(schemes) or (scheme,),
        time_dilation=1,
        mode=mode,
        local_steps=chance.choice(_LOCAL_STEPS) if mode.has_local_steps else 0,
    )
    images = exchange_seconds(cluster) / MODELS[model].image_seconds
    images /= max(1, cluster.local_steps)  # all of a round
    return dilated(dataclasses.replace(cluster, batch_size=_batch_size(images, batch_part)))


def dilated(cluster):
    """Returns the cluster with the time_dilation that this machine needs for it."""
    # Fewer bits occupy the processors about as long as float32, and a local step as a push.
    pushes = 2 + cluster.local_steps
    moved = pushes * cluster.workers * 4 * MODELS[cluster.model].elements
    dilation = math.ceil(moved / _MACHINE_BYTES_PER_SECOND / exchange_seconds(cluster))
    return dataclasses.replace(cluster, time_dilation=max(1, dilation))


def _rates(chance, shards, uneven):
    """Returns the rate of the workers' links, and then that of each shard's."""
    rates = [tenths / 10 for tenths in range(10 * LEAST_GBPS, 10 * MOST_GBPS + 1, 5)]
    if not uneven:
        return [chance.choice(rates)] * (shards + 1)
    different = chance.sample(rates, min(shards, chance.choice([2, 3])))
    of_shards = different + chance.choices(different, k=shards - len(different))
    chance.shuffle(of_shards)
    return [MOST_GBPS, *of_shards]


def _batch_size(images, part):
    """Returns the batch size for a number from 0 to 1. `images` are computed in the time of the
    exchange."""
    least, most = (math.ceil(COMPUTE_PARTS[0] * images), math.floor(COMPUTE_PARTS[1] * images))
    return max(1, least + round(part * (most - least)))


def _iterations(cluster):
    """Returns how many are measured: short ones for some seconds."""
    seconds = exchange_seconds(cluster) * cluster.time_dilation
    return min(max(LEAST_ITERATIONS, math.ceil(_MEASURED_SECONDS / seconds)), MOST_ITERATIONS)


def experiment(cluster):
    """Returns the Experiment that measures a cluster."""
    proto = experiment_pb2.ExperimentConfig(
        workers=[cluster.workers],
        shards=[cluster.shards],
        topology=[experiment_pb2.Topology.Value(cluster.topology)],
        schedule=[config_pb2.ExchangeConfig.Schedule.Value(cluster.schedule)],
        device=[cluster.device],
        link_gbps=cluster.link_gbps,
        shard_link_gbps=() if cluster.topology != topology.APART else cluster.shard_link_gbps,
        worker_slowdown=cluster.worker_slowdown,
        time_dilation=cluster.time_dilation,
        iterations=_iterations(cluster),
        warmup_iterations=1,
    )
    for scheme in cluster.schemes:
        proto.partition.add(
            scheme=config_pb2.Partition.Scheme.Value(scheme),
            placement=config_pb2.Partition.GREEDY,
        )
    proto.cluster.model.builtin = cluster.model
    proto.cluster.model.shrink = cluster.shrink or MODELS[cluster.model].shrink
    mode = cluster.mode
    proto.cluster.update.policy = config_pb2.Update.Policy.Value(mode.policy)
    if mode.policy == "SSP":
        proto.cluster.update.staleness = _STALENESS
    if mode.policy == "QUORUM":
        proto.cluster.update.quorum = cluster.workers - 1
    if cluster.local_steps:
        proto.cluster.local.steps = cluster.local_steps
        proto.cluster.local.optimizer.kind = config_pb2.OptimizerConfig.SGD
    text_format.Merge(mode.values.exchange, proto.cluster.exchange)
    proto.cluster.training.batch_size = cluster.batch_size
    proto.cluster.compute.backend = config_pb2.Compute.EMULATED
    if cluster.connections:
        proto.cluster.limits.connections = cluster.connections
    text = text_format.MessageToString(proto)
    return experiment_config.parse(text, cluster.name, cluster.name)
