"""The runs of an experiment, and the cluster config of each."""

import dataclasses
import os

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from proto import config_pb2

LAYER_BASED = "LAYER_BASED"
MEMORY_BASED = "MEMORY_BASED"
AUTO = "AUTO"


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

    @property
    def cell(self):
        """The run without its repeat. Results are compared by cell."""
        return dataclasses.replace(self, repeat=0)

    @property
    def scheme_name(self):
        return scheme_name(self.scheme, self.placement)

    @property
    def id(self):
        parts = [f"w{self.workers}", f"s{self.shards}", self.scheme, self.placement]
        parts += [self.schedule, self.device, f"r{self.repeat}"]
        return "-".join(part.lower() for part in parts if part)

    def __str__(self):
        return (
            f"{count(self.workers, 'worker')}, {count(self.shards, 'shard')},"
            f" {self.scheme_name}, {self.schedule.lower()}, {device_name(self.device)}"
        )


def count(number, noun):
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def scheme_name(scheme, placement):
    name = scheme.lower().replace("_", "-")
    return f"{name} ({placement.lower().replace('_', ' ')})" if placement else name


def device_name(device):
    return "communication only" if device == "none" else device


def runs(experiment):
    """Returns all runs in the order to do them: every cell once, then every cell again, so that
    the machine's other load affects all cells alike."""
    proto = experiment.proto
    result = []
    for repeat in range(proto.repeats):
        for workers, shards in zip(experiment.workers, experiment.shards):
            for device in experiment.devices:
                for schedule in proto.schedule:
                    for partition in proto.partition:
                        scheme = config_pb2.Partition.Scheme.Name(partition.scheme)
                        placement = config_pb2.Partition.Placement.Name(partition.placement)
                        result.append(
                            Run(
                                workers,
                                shards,
                                scheme,
                                placement if scheme == LAYER_BASED else "",
                                config_pb2.ExchangeConfig.Schedule.Name(schedule),
                                device,
                                repeat,
                            )
                        )
    return result


def iterations(experiment):
    """Returns the iterations of each run. The last one is not measured, because it alone waits
    for two exchanges if the schedule overlaps iterations."""
    return experiment.proto.warmup_iterations + experiment.proto.iterations + 1


def cluster_config(experiment, run, addresses):
    """Returns the ClusterConfig of a run as text. `addresses` are the shards'."""
    proto = experiment.proto
    cluster = config_pb2.ClusterConfig()
    cluster.CopyFrom(proto.cluster)
    cluster.workers = run.workers
    cluster.partition.scheme = config_pb2.Partition.Scheme.Value(run.scheme)
    if run.placement:
        cluster.partition.placement = config_pb2.Partition.Placement.Value(run.placement)
    for index, address in enumerate(addresses):
        shard = cluster.shard.add(address=address)
        if run.scheme == AUTO:
            shard.link_gbps = experiment.shard_link_gbps(index) / proto.time_dilation
    cluster.exchange.shared_memory = False  # which would bypass the links
    cluster.exchange.schedule = config_pb2.ExchangeConfig.Schedule.Value(run.schedule)
    cluster.training.iterations = iterations(experiment)
    if experiment.emulated:
        cluster.compute.emulated.device = run.device
        cluster.compute.emulated.time_dilation = proto.time_dilation
    _make_absolute(cluster.data, os.path.dirname(os.path.abspath(experiment.path)))
    return text_format.MessageToString(cluster)


def _make_absolute(message, folder):
    """Makes the paths of Data relative to the run's config, which is in another folder."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, os.path.join(folder, value))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            _make_absolute(value, folder)
