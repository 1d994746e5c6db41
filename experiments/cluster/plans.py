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
from experiments.runs.config_file import ConfigError

# The programs' errors are about the config made for a run. They are rewritten to name the place in
# the experiment's config, which the user can change.
_EXPERIMENT_FIELDS = {
    "workers": "workers",
    "shard": "shards",
    "topology": "topology",
    "ring": "topology",
    "colocated": "topology",
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
    # Bytes of all workers together, by shard; of a ring, by worker.
    bytes_in: list
    bytes_out: list
    # None if the links' rate is not known.
    bound_seconds: float | None
    simulated_seconds: float | None
    # Computing on the emulated device; None if there is none.
    compute_seconds: float | None
    timeline: Timeline | None  # None if the links' rate is not known, and in a ring
    # The time that workers need if they keep in step; None if the schedule is not SEQUENTIAL.
    in_step_seconds: float | None


@dataclasses.dataclass(frozen=True)
class Load:
    """How a mode loads the hosts."""

    # The bytes that pass the busiest host's link each way, for each that a worker sends or
    # receives.
    link_part: float
    # The same bytes over the mean of all hosts' links: 1 if they are alike.
    link_imbalance: float
    # The part of the parameters that is at the host with most of them, and so of the optimizer's
    # state.
    stored_part: float

    def link_bytes(self, result):
        """Returns the bytes that passed the busiest link each way in a run of training.execute."""
        return self.link_part * result["bytes"]


def load(kind, experiment, runs, programs):
    """Returns the Plan of every cell of `runs`. Raises ConfigError if a config is impossible."""
    cells = list({run.cell: None for run in runs})
    with tempfile.TemporaryDirectory() as folder:
        configs = {}
        for cell in cells:
            path = os.path.join(folder, cell.id)
            with open(path, "w", encoding="utf-8") as file:
                hosts = cell.shards or cell.workers
                addresses = [f"127.0.0.1:{1 + host}" for host in range(hosts)]
                file.write(matrix.cluster_config(experiment, cell, addresses))
            configs[cell] = f"--config={path}"
        planned = _plans(experiment, configs, programs)
        return {
            cell: Plan(
                planned[cell]["model"],
                *_bytes(planned[cell]),
                *_simulate(kind, experiment, cell, config, programs.simulate),
            )
            for cell, config in configs.items()
        }


def check_modes(experiment, programs):
    """Has `psctl plan` check the config of every mode of a ModesExperiment, in every situation.
    Returns the bytes of the parameters and the Load of each mode. Raises ConfigError, which names
    the mode."""
    loads = {}
    some = {(one.mode, one.situation): one for one in experiment.runs()}
    with tempfile.TemporaryDirectory() as folder:
        for (mode, _), one in some.items():
            wiring = experiment.wiring(one)
            addresses = [f"127.0.0.1:{1 + i}" for i in range(wiring.shards or wiring.workers)]
            path = os.path.join(folder, "cluster.textproto")
            with open(path, "w", encoding="utf-8") as file:
                file.write(str(experiment.cluster_config(one, addresses)))
            command = [programs.psctl, "plan", "--format=json", f"--config={path}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                index = list(experiment.modes).index(mode)
                problem = done.stderr.strip().replace(f"{path}:", "its config, line ")
                raise ConfigError(experiment.problem(f"mode[{index}]", f"{mode}: {problem}"))
            plan = json.loads(done.stdout)["plans"][0]
            loads[mode] = _load(plan, wiring)
    return 4 * plan["parameters"], loads


def _load(plan, wiring):
    of_workers = sum(map(sum, _bytes(plan)))
    hosts, passing = wiring.workers, float(of_workers)
    if not wiring.shards:
        passing /= 2  # what a worker sends is what another receives
        stored = [worker["part_bytes"] for worker in plan["ring"]]
    else:
        stored = [shard["bytes"] for shard in plan["shards"]]
        if wiring.colocated:
            passing *= 1 - 1 / hosts  # a shard and the worker beside it use no link
        else:
            hosts += wiring.shards
    busiest = plan["busiest_link_bytes_each_way"]
    # Each byte passes the links of two hosts, one way each.
    return Load(
        busiest * wiring.workers / of_workers, busiest * hosts / passing, max(stored) / sum(stored)
    )


def _plans(experiment, configs, programs):
    """Returns what `psctl plan` says of each cell. It compares those with shards at once."""
    together = [cell for cell in configs if cell.shards]
    groups = [[cell] for cell in configs if not cell.shards] + ([together] if together else [])
    found = {}
    for group in groups:
        command = [programs.psctl, "plan", "--format=json", *(configs[cell] for cell in group)]
        found.update(zip(group, _call(experiment, command)["plans"]))
    return found


def _bytes(plan):
    """Returns the bytes of an iteration, in and out."""
    if "ring" not in plan:
        return tuple(
            [shard[f"bytes_{way}_per_iteration"] for shard in plan["shards"]]
            for way in ("in", "out")
        )
    out = [
        worker["sum_bytes_out_per_iteration"] + worker["parameter_bytes_out_per_iteration"]
        for worker in plan["ring"]
    ]
    return [out[-1], *out[:-1]], out


def _simulate(kind, experiment, cell, config, program):
    """Returns the fields of Plan from `bound_seconds` on."""
    if kind == network.HOST:
        return None, None, None, None, None
    proto = experiment.proto
    dilation = proto.time_dilation
    command = [
        program, config, f"--link_gbps={proto.link_gbps / dilation!r}", f"--mtu={proto.mtu}",
        "--format=json",
    ]
    if cell.shards:
        command.append(f"--timeline={_TIMELINE_BINS}")
    if kind == network.REMOTE:
        command.append("--cable")
    for shard in range(min(cell.shards, len(proto.shard_link_gbps))):
        rate = experiment.shard_link_gbps(shard) / dilation
        command.append(f"--shard_link_gbps={shard}:{rate!r}")
    simulated = _call(experiment, command)
    compute = simulated["bound"]["compute_seconds"] / dilation
    in_step = simulated.get("in_step_seconds")
    return (
        simulated["bound_seconds"] / dilation,
        simulated["iteration_seconds"] / dilation,
        compute if experiment.emulated else None,
        _timeline(simulated["timeline"], dilation) if cell.shards else None,
        in_step and in_step / dilation,
    )


def _timeline(timeline, dilation):
    return Timeline(
        timeline["bin_seconds"] / dilation,
        [shard["in"] for shard in timeline["shards"]],
        [shard["out"] for shard in timeline["shards"]],
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
