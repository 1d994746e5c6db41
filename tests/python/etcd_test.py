"""Python workers of a run whose views are made by what etcd has elected, and not by launch."""

import array
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

from tests.python import fixture

import evenshard  # noqa: E402

_CONFIG = """\
model {{ from_workers {{}} }}
partition {{ scheme: MEMORY_BASED }}
{shards}
workers: 2
update {{ policy: SYNC }}
optimizer {{ kind: SGD learning_rate: 1 }}
limits {{ connections: 1 startup_seconds: 60 exchange_seconds: 60 }}
recovery {{
  replicas: 1 silence_seconds: 10 worker_loss: WAIT
  etcd {{ endpoint: "{etcd}" }}
}}
"""

_ELEMENTS = 3000
_ITERATIONS = 30


def _train(rank, victim):
    """All parameters are n after n iterations. Kills a shard on the way."""
    tensors = {"w": array.array("f", [0] * _ELEMENTS)}
    gradients = {"w": array.array("f", [-1] * _ELEMENTS)}
    with evenshard.Worker(tensors=tensors) as worker:
        while worker.iteration < _ITERATIONS:
            if rank == 0 and worker.iteration == 10:
                os.kill(victim, signal.SIGKILL)
            worker.push_pull(gradients, out=tensors)
    return sorted(set(tensors["w"]))


@unittest.skipUnless(shutil.which("etcd"), "etcd is not installed: workers of a run with etcd")
class EtcdTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.log = os.path.join(self.folder, "log")

    def start(self, *command):
        with open(self.log, "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_a_shard_that_dies_is_replaced_by_its_copy(self):
        etcd, peer, *addresses = fixture.free_addresses(4)
        self.start(
            "etcd", f"--data-dir={self.folder}/etcd", "--name=one",
            f"--listen-client-urls=http://{etcd}", f"--advertise-client-urls=http://{etcd}",
            f"--listen-peer-urls=http://{peer}", f"--initial-advertise-peer-urls=http://{peer}",
            f"--initial-cluster=one=http://{peer}",
        )
        path = os.path.join(self.folder, "run.textproto")
        shards = "\n".join(f'shard {{ address: "{address}" }}' for address in addresses)
        with open(path, "w", encoding="utf-8") as file:
            file.write(_CONFIG.format(shards=shards, etcd=etcd))
        ps = [
            self.start(fixture.built("server/ps"), f"--config={path}", f"--shard={shard}")
            for shard in range(2)
        ]
        workers = [
            fixture.Process(
                _train, rank, ps[1].pid,
                environment={"RANK": str(rank), "WORLD_SIZE": "2", "EVENSHARD_CONFIG": path},
            )
            for rank in range(2)
        ]
        for rank, end in enumerate(fixture.outcomes(workers)):
            if end.error is not None:
                with open(self.log, encoding="utf-8", errors="replace") as log:
                    self.fail(f"worker {rank}: {end.kind}: {end.error}\n{end.trace}\n{log.read()}")
            self.assertEqual(end.value, [_ITERATIONS])
        self.assertEqual(ps[1].wait(), -signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
