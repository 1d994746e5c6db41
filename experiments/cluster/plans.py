"""The predictions for each run: bytes from `psctl plan`, and the bound and the time of an
iteration from //tools/simulate."""

import dataclasses
import json
import os
import re
import subprocess
import tempfile

from experiments.cluster import network
from experiments.runs import matrix
from experiments.runs.experiment_config import ConfigError

# The programs' errors are about the config made for a run. They are rewritten to name the place in
# the experiment's config, which the user can change.
_EXPERIMENT_FIELDS = {
    "workers": "workers",
    "shard": "shards",
    "worker_link_gbps": "link_gbps",
    "partition": "partition",
    "exchange.schedule": "schedule",
    "compute.emulated.device": "device",
    "compute.emulated.time_dilation": "time_dilation",
    "compute.emulated.worker_slowdown": "worker_slowdown",
    "training.iterations": "iterations",
}
_PROBLEM = re.compile(r"[^\n]*?:\d+: ([\w.\[\]]+): (.*)")


_TIMELINE_BINS = 160


@dataclasses.dataclass(frozen=True)
class Timeline:
    """How much of each shard's link is used over one iteration, as simulated."""

    bin_seconds: float
    # By shard and bin: the part of the link in use.
    used_in: list
    used_out: list


@dataclasses.dataclass(frozen=True)
class Plan:
    """The predictions for one iteration. Times are in seconds of the emulated cluster."""

    model: str
    # Bytes of all workers together, by shard.
    bytes_in: list
    bytes_out: list
    # None if the links' rate is not known.
    bound_seconds: float | None
    simulated_seconds: float | None
    # Computing on the emulated device; None if there is none.
    compute_seconds: float | None
    timeline: Timeline | None  # None if the links' rate is not known
    # The time that workers need if they keep in step; None if the schedule is not SEQUENTIAL.
    in_step_seconds: float | None


def load(kind, experiment, runs, programs):
    """Returns the Plan of every cell of `runs`. Raises ConfigError if a config is impossible."""
    cells = list({run.cell: None for run in runs})
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, cell.id) for cell in cells]
        for cell, path in zip(cells, paths):
            with open(path, "w", encoding="utf-8") as file:
                addresses = [f"127.0.0.1:{1 + shard}" for shard in range(cell.shards)]
                file.write(matrix.cluster_config(experiment, cell, addresses))
        configs = [f"--config={path}" for path in paths]
        planned = _call(experiment, [programs.psctl, "plan", "--format=json", *configs])["plans"]
        return {
            cell: Plan(
                plan["model"],
                [shard["bytes_in_per_iteration"] for shard in plan["shards"]],
                [shard["bytes_out_per_iteration"] for shard in plan["shards"]],
                *_simulate(kind, experiment, cell, config, programs.simulate),
            )
            for cell, plan, config in zip(cells, planned, configs)
        }


def _simulate(kind, experiment, cell, config, program):
    """Returns the fields of Plan from `bound_seconds` on."""
    if kind == network.HOST:
        return None, None, None, None, None
    proto = experiment.proto
    dilation = proto.time_dilation
    command = [
        program, config, f"--link_gbps={proto.link_gbps / dilation!r}", f"--mtu={proto.mtu}",
        f"--timeline={_TIMELINE_BINS}", "--format=json",
    ]
    if kind == network.REMOTE:
        command.append("--cable")
    for shard in range(min(cell.shards, len(proto.shard_link_gbps))):
        rate = experiment.shard_link_gbps(shard) / dilation
        command.append(f"--shard_link_gbps={shard}:{rate!r}")
    simulated = _call(experiment, command)
    compute = simulated["bound"]["compute_seconds"] / dilation
    timeline = simulated["timeline"]
    in_step = simulated.get("in_step_seconds")
    return (
        simulated["bound_seconds"] / dilation,
        simulated["iteration_seconds"] / dilation,
        compute if experiment.emulated else None,
        Timeline(
            timeline["bin_seconds"] / dilation,
            [shard["in"] for shard in timeline["shards"]],
            [shard["out"] for shard in timeline["shards"]],
        ),
        in_step and in_step / dilation,
    )


def _call(experiment, command):
    """Returns the JSON that a program prints. Raises ConfigError with its errors."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConfigError(_translate(experiment, done.stderr))
    return json.loads(done.stdout)


def _translate(experiment, text):
    """Rewrites a program's errors to name places in the experiment's config."""
    lines = []
    for line in text.strip().splitlines():
        problem = _PROBLEM.fullmatch(line)
        if problem is None:
            lines.append(line)
            continue
        field, what = problem.groups()
        lines.append(experiment.problem(_experiment_field(experiment, field), what))
    return "\n".join(lines)


def _experiment_field(experiment, field):
    if experiment.proto.model and field.split(".")[0] == "model":
        return "model"  # which of them is in what is wrong
    for own, ours in _EXPERIMENT_FIELDS.items():
        if field == own or field.startswith((own + ".", own + "[")):
            return ours
    return f"cluster.{field}"
