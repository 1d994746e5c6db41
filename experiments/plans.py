"""What the plan of each run predicts, as `psctl plan` says."""

import dataclasses
import json
import os
import re
import subprocess
import tempfile

from experiments import matrix
from experiments.experiment_config import ConfigError

# psctl speaks of the config made for a run; what the user can change is the experiment's.
_EXPERIMENT_FIELDS = {
    "workers": "workers",
    "shard": "shards",
    "partition": "partition",
    "exchange.schedule": "schedule",
    "compute.emulated.device": "device",
    "compute.emulated.time_dilation": "time_dilation",
    "training.iterations": "iterations",
}
_PROBLEM = re.compile(r"[^\n]*?:\d+: ([\w.\[\]]+): (.*)")


@dataclasses.dataclass(frozen=True)
class Plan:
    model: str
    # Of all workers together, in one iteration; one entry for each shard.
    bytes_in: list
    bytes_out: list


def load(experiment, runs, psctl):
    """The Plan of every cell of `runs`; raises ConfigError for a config that no run can have."""
    cells = list({run.cell: None for run in runs})
    with tempfile.TemporaryDirectory() as folder:
        command = [psctl, "plan", "--format=json"]
        for cell in cells:
            path = os.path.join(folder, cell.id)
            with open(path, "w", encoding="utf-8") as file:
                addresses = [f"127.0.0.1:{1 + shard}" for shard in range(cell.shards)]
                file.write(matrix.cluster_config(experiment, cell, addresses))
            command.append(f"--config={path}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConfigError(_translate(experiment, done.stderr))
    return {
        cell: Plan(
            plan["model"],
            [shard["bytes_in_per_iteration"] for shard in plan["shards"]],
            [shard["bytes_out_per_iteration"] for shard in plan["shards"]],
        )
        for cell, plan in zip(cells, json.loads(done.stdout)["plans"])
    }


def _translate(experiment, text):
    """psctl's problems, with the places of the experiment's config."""
    lines = []
    for line in text.strip().splitlines():
        problem = _PROBLEM.fullmatch(line)
        if problem is None:
            lines.append(line)
            continue
        field, what = problem.groups()
        lines.append(experiment.problem(_experiment_field(field), what))
    return "\n".join(lines)


def _experiment_field(field):
    for own, ours in _EXPERIMENT_FIELDS.items():
        if field == own or field.startswith((own + ".", own + "[")):
            return ours
    return f"cluster.{field}"
