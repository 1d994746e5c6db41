"""Reads and checks an ExperimentConfig (proto/experiment.proto, docs/experiment.md)."""

import shlex

from experiments.runs import config_file, topology
from proto import config_pb2, experiment_pb2

MAX_WORKERS = 1024  # the same as in common/config/config_validation.cc
MIN_MTU = 576  # every host must accept IP packets of this size
MAX_MTU = 65535

# Fields of `cluster` that the experiment sets, and the fields of the experiment that do so.
_VARIED = {
    "shard": "shards, hosts",
    "workers": "workers",
    "topology": "topology",
    "ring.address": "topology",
    "colocated": "topology",
    "worker_link_gbps": "link_gbps",
    "partition": "partition",
    "exchange.schedule": "schedule",
    "compute.emulated": "device, time_dilation, worker_slowdown",
    "training.epochs": "iterations",
    "training.iterations": "iterations",
}


class Experiment(config_file.ConfigFile):
    """A checked ExperimentConfig with its defaults filled in."""

    def __init__(self, text, path, cluster):
        proto = experiment_pb2.ExperimentConfig()
        super().__init__(proto, text, path)
        self.cluster = cluster  # the name of a drawn cluster; otherwise empty
        self.workers = list(proto.workers)
        self.shards = list(proto.shards) or [max(1, count // 2) for count in self.workers]
        self.devices = list(proto.device) or ["none"]
        self.topologies = [
            experiment_pb2.Topology.Name(each) for each in proto.topology
        ] or [topology.APART]
        # By the names that tell them apart in runs and results. The cluster's own model, with
        # which nothing is compared, needs none.
        self.models = {model_name(model): model for model in proto.model} or {
            "": proto.cluster.model
        }
        self.batch_size = proto.cluster.training.batch_size
        # The batches of an iteration, which is a round of local steps if there are any.
        self.batches = max(1, proto.cluster.local.steps)
        self.emulated = proto.cluster.compute.backend == config_pb2.Compute.EMULATED

    def shard_link_gbps(self, shard):
        rates = self.proto.shard_link_gbps
        return rates[shard] if shard < len(rates) else self.proto.link_gbps

    def wiring(self, run):
        """Returns the Wiring of a run of the matrix."""
        proto = self.proto
        return topology.Wiring(
            workers=run.workers,
            shards=run.shards,
            colocated=topology.is_colocated(run.topology),
            link_gbps=proto.link_gbps / proto.time_dilation,
            shard_link_gbps=tuple(rate / proto.time_dilation for rate in proto.shard_link_gbps),
            mtu=proto.mtu,
            hosts=proto.hosts if proto.HasField("hosts") else None,
        )


def model_name(model):
    """Returns a name for a ModelSpec of a list, which is a part of a file's name too."""
    name = model.builtin or "custom"
    return f"{name}-shrink{model.shrink}" if model.shrink > 1 else name


def load(path):
    """Returns the Experiment of a file. Raises ConfigError."""
    return parse(config_file.read(path), path)


def parse(text, path, cluster=""):
    """Returns the Experiment of a text. Errors name `path`. Raises ConfigError."""
    experiment = Experiment(text, path, cluster)
    experiment.check(_problems(experiment))
    return experiment


def _problems(experiment):
    """Yields (field, problem) for each problem."""
    proto = experiment.proto
    for field in ("cluster", "workers", "partition", "schedule"):
        if not (proto.HasField(field) if field == "cluster" else getattr(proto, field)):
            yield field, "is missing"
    yield from _varied_fields(proto.cluster)
    if proto.model and proto.cluster.HasField("model"):
        yield "cluster.model", "is set, but so is model, allowed: one of them"
    names = [model_name(model) for model in proto.model]
    for i, name in enumerate(names):
        if name in names[:i]:
            yield f"model[{i}]", f"is the second one called {name}, allowed: once"

    for i, count in enumerate(proto.workers):
        if not 1 <= count <= MAX_WORKERS:
            yield f"workers[{i}]", f"is {count}, allowed: 1 to {MAX_WORKERS}"
    for i, count in enumerate(proto.shards):
        if count < 1:
            yield f"shards[{i}]", f"is {count}, allowed: at least 1"
    if proto.shards and len(proto.shards) != len(proto.workers):
        yield "shards", (
            f"has {len(proto.shards)} entries for {len(proto.workers)} of workers,"
            " allowed: one for each, or none"
        )
    for field in ("partition", "schedule", "device", "topology"):
        entries = list(getattr(proto, field))
        for i, entry in enumerate(entries):
            if entry in entries[:i]:
                yield f"{field}[{i}]", "is there twice, allowed: once"
    shapes = list(zip(experiment.workers, experiment.shards))
    for i, shape in enumerate(shapes):
        if shape in shapes[:i]:
            yield f"workers[{i}]", f"is there twice with {shape[1]} shards, allowed: once"

    if proto.shard_link_gbps and experiment.topologies != [topology.APART]:
        yield "shard_link_gbps", (
            "is set, but topology has shards that are not on hosts of their own, allowed: with"
            " APART"
        )
    if topology.RING in experiment.topologies and 1 in experiment.workers:
        yield "topology", "has RING, but workers has 1, allowed: a ring of 2 workers or more"

    for field in ("link_gbps", "time_dilation", "run_seconds"):
        value = getattr(proto, field)
        if not config_file.is_positive(value):
            yield field, f"is {value:g}, allowed: a number above 0"
    for field, what, most in (
        ("shard_link_gbps", "shards", max(experiment.shards, default=0)),
        ("worker_slowdown", "workers", max(experiment.workers, default=0)),
    ):
        values = getattr(proto, field)
        for i, value in enumerate(values):
            if not config_file.is_positive(value):
                yield f"{field}[{i}]", f"is {value:g}, allowed: a number above 0"
        if len(values) > most:
            yield field, (
                f"has {len(values)} entries, allowed: at most one for each of {most} {what}"
            )
    for field, least in (("iterations", 1), ("warmup_iterations", 0), ("repeats", 1)):
        value = getattr(proto, field)
        if value < least:
            yield field, f"is {value}, allowed: at least {least}"
    if not 0 < proto.processor_bound_above <= 1:
        yield "processor_bound_above", (
            f"is {proto.processor_bound_above:g}, allowed: above 0, at most 1"
        )
    if not MIN_MTU <= proto.mtu <= MAX_MTU:
        yield "mtu", f"is {proto.mtu}, allowed: {MIN_MTU} to {MAX_MTU}"

    if not experiment.emulated:
        for field in ("device", "time_dilation", "worker_slowdown"):
            if proto.HasField(field) if field == "time_dilation" else getattr(proto, field):
                yield field, "has no effect with this backend, allowed: only with EMULATED"
    if proto.HasField("hosts"):
        yield from _host_problems(proto.hosts, topology.APART in experiment.topologies)
        if proto.certificates:
            yield "certificates", (
                "is set, allowed: without hosts, where cluster.security names files"
            )


def _varied_fields(cluster):
    for field, instead in _VARIED.items():
        if config_file.is_set(cluster, field):
            yield f"cluster.{field}", (
                f"is set, but it varies from run to run, allowed: the experiment's {instead}"
            )
    if cluster.exchange.HasField("shared_memory"):
        yield "cluster.exchange.shared_memory", "is set, but is always false: links are measured"
    if cluster.local.seconds:
        yield "cluster.local.seconds", (
            "is set, but then a round has any number of batches, allowed: local.steps alone, or"
            " //experiments:modes, which measures whole trainings"
        )


def _host_problems(hosts, are_apart):
    if hosts.shard and not are_apart:
        yield "hosts.shard", (
            "is given, but in no topology shards have hosts of their own, allowed: with APART"
        )
    for field in ("shard", "worker"):
        if not getattr(hosts, field) and (are_apart or field == "worker"):
            yield f"hosts.{field}", 'is missing, allowed: at least one { name: "host" }'
        for i, host in enumerate(getattr(hosts, field)):
            if not host.name or host.name.startswith("-"):
                yield f"hosts.{field}[{i}].name", (
                    f'is "{host.name}", allowed: host or user@host'
                )
    if not hosts.programs:
        yield "hosts.programs", "is missing, allowed: the folder of ps and worker on each host"
    try:
        if not shlex.split(hosts.ssh):
            yield "hosts.ssh", "is empty, allowed: a command"
    except ValueError as error:
        yield "hosts.ssh", f"is not a command: {error}"
    if not 1 <= hosts.port <= 65535:
        yield "hosts.port", f"is {hosts.port}, allowed: 1 to 65535"
