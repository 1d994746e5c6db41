"""What //experiments:simulate says of the same runs."""

import json
import os
import subprocess
import tempfile

from experiments import matrix


class SimulatorError(Exception):
    """The simulator failed."""


def iteration_seconds(program, experiment, run):
    """The median, in seconds of the emulated cluster."""
    proto = experiment.proto
    dilation = proto.time_dilation
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cluster.textproto")
        addresses = [f"127.0.0.1:{1 + shard}" for shard in range(run.shards)]
        with open(path, "w", encoding="utf-8") as file:
            file.write(matrix.cluster_config(experiment, run, addresses))
        command = [
            program,
            f"--config={path}",
            f"--workers={run.workers}",
            f"--shards={run.shards}",
            f"--link_gbps={proto.link_gbps / dilation}",
            "--format=json",
        ]
        for shard in range(min(run.shards, len(proto.shard_link_gbps))):
            rate = experiment.shard_link_gbps(shard) / dilation
            command.append(f"--shard_link_gbps={shard}:{rate}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SimulatorError(f"{program} failed on {run}: {done.stderr.strip()}")
    return json.loads(done.stdout)["iteration_seconds"] / dilation
