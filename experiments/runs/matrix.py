"""The runs of an experiment, and the cluster config of each."""

import dataclasses
import itertools
import os

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from experiments.runs import topology as topologies
from proto import config_pb2

LAYER_BASED = "LAYER_BASED"
MEMORY_BASED = "MEMORY_BASED"
STRIPED = "STRIPED"
AUTO = "AUTO"
# The folder with the certificates of a run, beside its config.
CERTIFICATES = "certificates"


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of one cell of the matrix. Names are those of the protobuf enums."""

    workers: int
    shards: int
    scheme: str
    placement: str  # empty unless the scheme is LAYER_BASED
    schedule: str
    device: str
    repeat: int
    model: str  # empty if the experiment has only one
    cluster: str  # the name of a drawn cluster; otherwise empty
    topology: str = topologies.APART

    @property
    def cell(self):
        """The run without its repeat. Results are compared by cell."""
        return dataclasses.replace(self, repeat=0)

    @property
    def scheme_name(self):
        """What tells the run apart from others of the same shape: where the parameters are."""
        name = scheme_name(self.scheme, self.placement)
        if self.topology == topologies.APART:
            return name
        of_hosts = topologies.title(self.topology)
        return f"{name}, {of_hosts}" if name else of_hosts

    @property
    def id(self):
        parts = [self.cluster, self.model, f"w{self.workers}", f"s{self.shards}"]
        if self.topology != topologies.APART:
            parts.append(self.topology)
        parts += [self.scheme, self.placement, self.schedule, self.device, f"r{self.repeat}"]
        return "-".join(part.lower() for part in parts if part)

    def __str__(self):
        machines = shape(self.workers, self.shards)
        parts = [self.cluster, self.model, machines, self.scheme_name, self.schedule.lower()]
        return ", ".join(part for part in [*parts, device_name(self.device)] if part)


def count(number, noun):
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def shape(workers, shards):
    return count(workers, "worker") + (f", {count(shards, 'shard')}" if shards else "")


def scheme_name(scheme, placement):
    name = scheme.lower().replace("_", "-")
    return f"{name} ({placement.lower().replace('_', ' ')})" if placement else name


def device_name(device):
    return "communication only" if device == "none" else device


def runs(experiment):
    """Returns all runs in the order to do them: every cell once, then every cell again, so that
    the machine's other load affects all cells alike."""
    proto = experiment.proto
    combinations = itertools.product(
        range(proto.repeats),
        experiment.models,
        zip(experiment.workers, experiment.shards),
        experiment.devices,
        proto.schedule,
        _placements(experiment),
    )
    result = []
    for repeat, model, (workers, shards), device, schedule, (scheme, placement, topology) in (
        combinations
    ):
        result.append(
            Run(
                workers,
                topologies.shard_count(topology, workers, shards),
                scheme,
                placement,
                config_pb2.ExchangeConfig.Schedule.Name(schedule),
                device,
                repeat,
                model,
                experiment.cluster,
                topology,
            )
        )
    # Two entries of `shards` may be for as many workers, which one shard or none does not heed.
    return list(dict.fromkeys(result))


def _placements(experiment):
    """Yields the scheme, placement and topology of each."""
    for topology in experiment.topologies:
        if topology in (topologies.ONE_MASTER, topologies.RING):
            yield "", "", topology
            continue
        for partition in experiment.proto.partition:
            scheme = config_pb2.Partition.Scheme.Name(partition.scheme)
            placement = config_pb2.Partition.Placement.Name(partition.placement)
            yield scheme, placement if scheme == LAYER_BASED else "", topology


def iterations(experiment):
    """Returns the iterations of each run. The last one is not measured, because it alone waits
    for two exchanges if the schedule overlaps iterations."""
    return experiment.proto.warmup_iterations + experiment.proto.iterations + 1


def cluster_config(experiment, run, addresses):
    """Returns the ClusterConfig of a run as text. `addresses` are the shards', or the workers' of a
    ring."""
    proto = experiment.proto
    cluster = config_pb2.ClusterConfig()
    cluster.CopyFrom(proto.cluster)
    if run.model:
        cluster.model.CopyFrom(experiment.models[run.model])
    cluster.workers = run.workers
    if run.topology != topologies.RING:
        # One shard has the same parameters under any.
        scheme = run.scheme or MEMORY_BASED
        cluster.partition.scheme = config_pb2.Partition.Scheme.Value(scheme)
    if run.placement:
        cluster.partition.placement = config_pb2.Partition.Placement.Value(run.placement)
    topologies.place(
        cluster, run.topology, addresses, is_private=not proto.HasField("hosts"),
        certificates=CERTIFICATES if proto.certificates else "",
    )
    if run.scheme in (STRIPED, AUTO):
        for index, shard in enumerate(cluster.shard):
            shard.link_gbps = experiment.shard_link_gbps(index) / proto.time_dilation
        cluster.worker_link_gbps = proto.link_gbps / proto.time_dilation
    cluster.exchange.shared_memory = False  # which would bypass the links
    cluster.exchange.schedule = config_pb2.ExchangeConfig.Schedule.Value(run.schedule)
    cluster.training.iterations = iterations(experiment) * experiment.batches
    if experiment.emulated:
        cluster.compute.emulated.device = run.device
        cluster.compute.emulated.time_dilation = proto.time_dilation
        slowdown = proto.worker_slowdown[: run.workers]
        cluster.compute.emulated.worker_slowdown.extend(slowdown)
    _make_absolute(cluster.data, os.path.dirname(os.path.abspath(experiment.path)))
    return text_format.MessageToString(cluster)


def _make_absolute(message, folder):
    """Makes the paths of Data relative to the run's config, which is in another folder."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, os.path.join(folder, value))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            _make_absolute(value, folder)
