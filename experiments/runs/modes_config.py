"""Reads and checks a ModesConfig (proto/experiment.proto, docs/experiment.md), and makes the runs
of its grid."""

import dataclasses
import os
import re

from google.protobuf import text_format

from experiments.runs import config_file, topology
from proto import config_pb2, experiment_pb2

# Fields of `cluster` that the experiment sets.
_OWN = (
    "training.seed", "training.evaluate_every_epochs", "training.evaluate_every_iterations",
    "training.required_accuracy", "exchange.shared_memory", "topology", "ring", "colocated",
    "compute.pace.worker_slowdown", "recovery",
)
# What no mode changes, since the results are computed from the cluster's; of the last two a mode
# may set fields, but not replace them.
_PARTLY_A_MODES = ("training", "compute")
_NOT_A_MODES = (
    *_OWN, "model", "data", "workers", "shard", "training.batch_size", "compute.backend",
    *_PARTLY_A_MODES,
)
_FILES = ("images", "labels", "test_images", "test_labels")


@dataclasses.dataclass(frozen=True)
class Run:
    """One training."""

    mode: str
    situation: str
    link_gbps: float
    seed: int

    @property
    def cell(self):
        """The run without its seed. Results are compared by cell."""
        return dataclasses.replace(self, seed=0)

    @property
    def id(self):
        return "-".join([
            _slug(self.mode), _slug(self.situation), f"{self.link_gbps:g}gbps", f"seed{self.seed}"
        ])

    def __str__(self):
        return f"{self.mode}, {self.situation}, {self.link_gbps:g} Gb/s, seed {self.seed}"


class ModesExperiment(config_file.ConfigFile):
    """A checked ModesConfig."""

    def __init__(self, text, path):
        proto = experiment_pb2.ModesConfig()
        super().__init__(proto, text, path)
        # The caller fills these in: the bytes of the parameters in float32, and plans.Load by mode.
        self.model_bytes = 0
        self.loads = {}
        self.modes = {mode.name: mode for mode in proto.mode}
        self.situations = {each.name: each for each in proto.situation}

    def runs(self):
        """Returns all runs in the order to do them: everything once, then everything with the next
        seed, so that the machine's other load affects all modes alike."""
        return [
            Run(mode, situation, link, seed)
            for seed in range(1, self.proto.seeds + 1)
            for situation in self.situations
            for link in self.proto.link_gbps
            for mode in self.modes
        ]

    def topology(self, run):
        return experiment_pb2.Topology.Name(self.modes[run.mode].topology)

    def wiring(self, run):
        of_run = self.topology(run)
        workers = self.proto.cluster.workers
        return topology.Wiring(
            workers=workers,
            shards=topology.shard_count(of_run, workers, len(self.proto.cluster.shard)),
            colocated=topology.is_colocated(of_run),
            link_gbps=run.link_gbps / self.proto.time_dilation,
        )

    def cluster_config(self, run, addresses):
        """Returns the ClusterConfig of a run. `addresses` are the shards', or the workers' of a
        ring."""
        config = config_pb2.ClusterConfig()
        config.CopyFrom(self.proto.cluster)
        for change in self.modes[run.mode].set:
            _apply(change, config)
        of_run = self.topology(run)
        topology.place(config, of_run, addresses)
        if of_run == topology.RING:
            config.ClearField("partition")
        config.exchange.shared_memory = False
        config.training.seed = run.seed
        slowdown = self.situations[run.situation].slowdown
        if slowdown != 1:
            config.compute.pace.worker_slowdown.extend([1] * (config.workers - 1) + [slowdown])
        folder = os.path.dirname(os.path.abspath(self.path))
        for name in _FILES:
            setattr(config.data.idx, name, os.path.join(folder, getattr(config.data.idx, name)))
        return config

    def dilated_config(self, run, addresses):
        """Returns the ClusterConfig of a run with durations of this machine's clock."""
        config = self.cluster_config(run, addresses)
        if self.proto.time_dilation != 1:
            config.compute.pace.time_dilation *= self.proto.time_dilation
            if config.local.seconds:
                config.local.seconds *= self.proto.time_dilation
        return config


def _slug(name):
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _apply(change, config):
    """Makes a change "a.b=value" of a config. Raises ValueError, whose text says why not."""
    field, equals, value = change.partition("=")
    *outer, last = field.strip().split(".")
    message = config
    try:
        if not equals:
            raise ValueError('has no "="')
        for name in outer:
            message = getattr(message, name)
        message.ClearField(last)
        text_format.Merge(f"{last}: {value}", message)
    except (AttributeError, ValueError, text_format.ParseError) as error:
        raise ValueError(
            f'is "{change}", which cannot be applied ({error}), allowed: FIELD=VALUE, such as'
            ' "update={policy: ASYNC}"'
        ) from None


def load(path):
    """Returns the ModesExperiment of a file. Raises ConfigError."""
    return parse(config_file.read(path), path)


def parse(text, path):
    """Returns the ModesExperiment of a text. Errors name `path`. Raises ConfigError."""
    experiment = ModesExperiment(text, path)
    experiment.check(_problems(experiment))
    return experiment


def _problems(experiment):
    """Yields (field, problem) for each problem."""
    proto = experiment.proto
    for field in ("cluster", "mode", "situation", "link_gbps"):
        if not (proto.HasField(field) if field == "cluster" else getattr(proto, field)):
            yield field, "is missing"
    yield from _cluster_problems(proto.cluster)
    for field in ("mode", "situation"):
        slugs = []
        for i, each in enumerate(getattr(proto, field)):
            slug = _slug(each.name)
            if not slug or slug in slugs:
                yield f"{field}[{i}].name", (
                    f'is "{each.name}", allowed: a name with letters or digits that no other has'
                )
            slugs.append(slug)
            if re.search(r"[$|\\`<>\x00-\x1f]", each.name) or each.name.startswith("_"):
                yield f"{field}[{i}].name", (
                    f"is {each.name!r}, which a chart or a table would show as something else,"
                    " allowed: a name without $, |, \\, `, <, > and control characters, and"
                    " without _ at its beginning"
                )
    for i, mode in enumerate(proto.mode):
        for k, change in enumerate(mode.set):
            config = config_pb2.ClusterConfig()
            try:
                _apply(change, config)
            except ValueError as error:
                yield f"mode[{i}].set[{k}]", str(error)
                continue
            field = change.partition("=")[0].strip()
            for own in _NOT_A_MODES:
                if field == own or config_file.is_set(config, own) and own not in _PARTLY_A_MODES:
                    yield f"mode[{i}].set[{k}]", (
                        f'is "{change}", but {own} is the experiment\'s, or the same for all modes,'
                        " allowed: other fields"
                    )
                    break
    for i, situation in enumerate(proto.situation):
        if not config_file.is_positive(situation.slowdown):
            yield f"situation[{i}].slowdown", (
                f"is {situation.slowdown:g}, allowed: a number above 0"
            )
        stops = situation.stop_seconds, situation.run_seconds_between
        if stops != (0, 0) and not all(map(config_file.is_positive, stops)):
            yield f"situation[{i}]", (
                f"has stop_seconds {stops[0]:g} and run_seconds_between {stops[1]:g}, allowed: both"
                " above 0, or neither"
            )
    rates = [f"{rate:g}" for rate in proto.link_gbps]  # as they stand in the name of a run
    for i, rate in enumerate(proto.link_gbps):
        if not config_file.is_positive(rate) or rates[i] in rates[:i]:
            yield f"link_gbps[{i}]", f"is {rate:g}, allowed: a number above 0, once"
    if proto.seeds < 1:
        yield "seeds", f"is {proto.seeds}, allowed: at least 1"
    if not 0 < proto.accuracy <= 100:
        yield "accuracy", f"is {proto.accuracy:g}, allowed: above 0, at most 100"
    for field in ("look_seconds", "run_seconds", "time_dilation"):
        if not config_file.is_positive(getattr(proto, field)):
            yield field, f"is {getattr(proto, field):g}, allowed: a number above 0"
    is_dilated = config_file.is_positive(proto.time_dilation) and proto.time_dilation != 1
    if is_dilated and not proto.cluster.compute.HasField("pace"):
        yield "time_dilation", (
            f"is {proto.time_dilation:g}, but workers without cluster.compute.pace take the time"
            " that they take, allowed: 1"
        )


def _cluster_problems(cluster):
    for field in _OWN:
        if config_file.is_set(cluster, field):
            yield f"cluster.{field}", "is set, but is the experiment's, allowed: not set"
    if not cluster.workers > 1:
        yield "cluster.workers", f"is {cluster.workers}, allowed: at least 2"
    if not cluster.shard:
        yield "cluster.shard", "is missing, allowed: an entry for each shard"
    for name in _FILES:
        if not getattr(cluster.data.idx, name):
            yield f"cluster.data.idx.{name}", "is missing, allowed: a file"
