"""What //tools/simulate says of the modes of a ModesExperiment on more workers than one machine can
be."""

import dataclasses
import json
import os
import subprocess
import tempfile

from experiments.cluster import run
from experiments.runs import topology
from proto import config_pb2

WORKERS = (64, 512)
LATENCY_US = 100  # of a message, as psctl advise assumes
_WORKERS_OF_A_SHARD = 4  # where shards have hosts of their own
_REFUSED = 2  # the exit code of a simulation for a wrong config


@dataclasses.dataclass(frozen=True)
class Outlook:
    """A mode in a situation on simulated machines."""

    mode: str
    situation: str
    link_gbps: float
    workers: int
    images_per_second: float  # of all workers together


def simulate(experiment, cells, programs):
    """Returns an Outlook of each of these cells (Run.cell) that is in a situation without stops. A
    quorum is the same part of the workers. What cannot be on so many workers, such as a model that
    fills fewer shards, is told and left out. Raises RunError."""
    result = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cluster.textproto")
        for one in cells:
            if experiment.situations[one.situation].stop_seconds:
                continue
            for workers in WORKERS:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(str(_config(experiment, one, workers)))
                command = [
                    programs.simulate, f"--config={path}", f"--link_gbps={one.link_gbps!r}",
                    f"--latency_us={LATENCY_US}", "--format=json",
                ]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode == _REFUSED:
                    print(f"left out: {one.mode}, {workers} workers: {_reason(done.stderr, path)}")
                    continue
                if done.returncode != 0:
                    raise run.RunError(f"simulate failed for {one}: {done.stderr.strip()}")
                rate = json.loads(done.stdout)["images_per_second"]
                result.append(Outlook(one.mode, one.situation, one.link_gbps, workers, rate))
    return result


def _reason(text, path):
    return " ".join(text.split()).replace(f"{path}:", "")


def _config(experiment, one, workers):
    """Returns the ClusterConfig of a run with so many workers."""
    of_run = experiment.topology(one)
    shards = topology.shard_count(of_run, workers, workers // _WORKERS_OF_A_SHARD)
    addresses = [f"simulated-{i}:1" for i in range(shards or workers)]
    config = experiment.cluster_config(one, addresses)
    if config.update.policy == config_pb2.Update.QUORUM:
        config.update.quorum = round(config.update.quorum * workers / config.workers)
    config.workers = workers
    slowdown = list(config.compute.pace.worker_slowdown)
    if slowdown:  # of the last worker
        del config.compute.pace.worker_slowdown[:]
        config.compute.pace.worker_slowdown.extend([1] * (workers - 1) + slowdown[-1:])
    return config
