"""Runs of Python workers with mTLS, by the certificates that `psctl certificates` makes."""

import os
import subprocess
import tempfile
import unittest

from tests.python import fixture

_SCRIPT = """
import array, os, sys, time
import evenshard

struck = sys.argv[1]
values = {"w": array.array("f", [0] * 3000)}
with evenshard.Worker(tensors=values) as worker:
    gradients = {"w": array.array("f", [-1 - worker.rank] * 3000)}
    while worker.iteration < 30:
        if worker.rank == 0 and worker.iteration == 10 and struck:
            print("in the middle", flush=True)
            while not os.path.exists(struck):
                time.sleep(0.01)
        worker.push_pull(gradients, out=values)
print("values", sorted(set(values["w"])), flush=True)
"""
_CONFIG = """\
model {{ from_workers {{}} }}
{places}
workers: 2
update {{ policy: SYNC }}
optimizer {{ kind: SGD learning_rate: 1 }}
limits {{ connections: 1 startup_seconds: 60 exchange_seconds: 60 }}
"""
_SECURITY = """\
security {
  certificate: "keys/{name}.pem"
  key: "keys/{name}.key"
  authority: "keys/authority.pem"
}
"""


def _shards():
    first, second = (f'shard {{ address: "{each}" }}' for each in fixture.free_addresses(2))
    return f"partition {{ scheme: MEMORY_BASED }} {first} {second}"


def _ring():
    first, second = (f'address: "{each}"' for each in fixture.free_addresses(2))
    return f"topology: RING ring {{ {first} {second} }}"


class SecurityTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.config = os.path.join(scratch.name, "run.textproto")
        self.keys = os.path.join(scratch.name, "keys")
        self.struck = os.path.join(scratch.name, "struck")

    def write(self, places, security=_SECURITY):
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(_CONFIG.format(places=places) + security)

    def make(self, places):
        """A config with certificates."""
        self.write(places, security="")
        subprocess.run(
            [fixture.built("tools/psctl/psctl"), "certificates", f"--config={self.config}",
             f"--out={self.keys}"],
            check=True, capture_output=True, timeout=fixture.PATIENCE_SECONDS,
        )
        self.write(places)

    def train(self, struck, on_output):
        launch = fixture.launch(self.config, _SCRIPT, struck)
        code, output = fixture.follow(launch, on_output)
        self.assertEqual(code, 0, output)
        # 30 steps of the mean of 1 and 2.
        self.assertEqual(output.count("values [45.0]"), 2, output)
        return output

    def in_the_middle(self, act):
        """What a training has when it is told its output: acts once."""
        def on_output(output):
            if "in the middle" in output and not os.path.exists(self.struck):
                act()
                with open(self.struck, "w", encoding="utf-8"):
                    pass

        return on_output

    def test_with_shards_and_in_a_ring(self):
        for places in (_shards(), _ring()):
            with self.subTest(places):
                self.make(places)
                plaintext = self.config + "-plaintext"
                with open(plaintext, "w", encoding="utf-8") as file:
                    file.write(_CONFIG.format(places=places))
                codes = []

                def ask():
                    for config in (self.config, plaintext):
                        done = subprocess.run(
                            [fixture.built("tools/psctl/psctl"), "stats", f"--config={config}"],
                            capture_output=True, timeout=fixture.PATIENCE_SECONDS, check=False,
                        )
                        codes.append(done.returncode)

                self.train(self.struck, self.in_the_middle(ask))
                self.assertEqual(codes, [0, 1])
                os.remove(self.struck)

    def test_a_replica_takes_over(self):
        self.make(_shards() + " recovery { replicas: 1 silence_seconds: 20 }")
        kill = self.in_the_middle(lambda: fixture.kill_shard(self.config, 1))
        output = self.train(self.struck, kill)
        self.assertIn("it survived 1 death: ps 1 (1x)", output)

    def test_a_worker_with_the_certificate_of_another_ends(self):
        for places in (_shards(), _ring()):
            with self.subTest(places):
                self.make(places)
                for kind in ("pem", "key"):
                    os.replace(f"{self.keys}/worker-1.{kind}", f"{self.keys}/worker-0.{kind}")
                code, output = fixture.follow(
                    fixture.launch(self.config, _SCRIPT, ""), lambda _: None
                )
                self.assertNotEqual(code, 0, output)
                self.assertIn("is of worker 1 in run evenshard, and this is worker-0", output)


if __name__ == "__main__":
    unittest.main()
