"""A bfloat16 training under launch whose worker is killed, or that goes on from a checkpoint,
against one that is left alone. What is saved is the masters."""

import json
import os
import re
import struct
import tempfile
import unittest

from tests.python import fixture
from tests.python.recovery.struck import StruckTraining

torch = fixture.torch

_STEPS = 20

# Worker 1 kills itself once, without wait_at(): an exchange may be under way. Worker 0 saves what
# it has at the end.
_SCRIPT = """
steps, end = int(arguments[0]), arguments[1]
model = models.make("mlp").to(torch.bfloat16)
optimizer = evenshard.Optimizer(model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.003))
print("begins at", optimizer.iteration, flush=True)
is_new = optimizer.iteration == 0
while optimizer.iteration < steps:
    inputs, targets = models.batch("mlp", optimizer.iteration, rank)
    optimizer.zero_grad()
    scores = model(inputs.to(torch.bfloat16)).float()
    torch.nn.functional.cross_entropy(scores, targets).backward()
    optimizer.step()
    if rank == 1 and is_new and optimizer.iteration == at:
        os.kill(os.getpid(), signal.SIGKILL)
if rank == 0:
    torch.save(models.state(model), end)
"""


def _safetensors(path):
    """The tensors of a file by name, each with its type."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        content = bytearray(file.read())
    header.pop("__metadata__", None)
    return {
        name: (
            entry["dtype"],
            torch.frombuffer(content, dtype=torch.float32).view(torch.uint8)[
                slice(*entry["data_offsets"])
            ].clone().view(torch.float32).reshape(entry["shape"]),
        )
        for name, entry in header.items()
    }


@unittest.skipIf(torch is None, "PyTorch is not installed: recovery of a bfloat16 training")
class RecoveryTest(StruckTraining, unittest.TestCase):
    script = _SCRIPT
    every = "every_iterations: 5 keep: 9"

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name

    def trained(self, name, steps=_STEPS, killed_at=-1, options=()):
        """Returns the model of worker 0, the masters that launch saves, and the output."""
        folder = os.path.join(self.scratch, name)
        os.makedirs(folder, exist_ok=True)
        model, masters = os.path.join(folder, "model"), os.path.join(folder, "masters")
        code, output = self.train(
            folder, at=killed_at, arguments=(str(steps), model),
            options=[f"--save={masters}", *options],
        )
        self.assertEqual(code, 0, output)
        return torch.load(model), _safetensors(masters), output

    def check_equal(self, found, expected):
        for name, value in expected[0].items():
            kind, master = found[1][name]
            self.assertEqual(kind, "F32")
            self.assertTrue(torch.equal(master, expected[1][name][1]), name)
            self.assertTrue(torch.equal(found[0][name], value), name)
            self.assertTrue(torch.equal(value, master.to(torch.bfloat16)), name)

    def test_a_worker_that_comes_back_and_a_run_that_goes_on(self):
        expected = self.trained("alone")
        self.assertFalse(
            torch.equal(
                expected[1]["0.weight"][1],
                expected[1]["0.weight"][1].to(torch.bfloat16).float(),
            )
        )
        killed = self.trained("killed", killed_at=12)
        self.assertEqual(len(re.findall(r"worker 1.*begins at", killed[2])), 2, killed[2])
        self.check_equal(killed, expected)
        self.trained("resumed", steps=10)
        resumed = self.trained("resumed", options=["--resume"])
        # Which checkpoint is complete at the end of a run is up to the disk.
        begins = re.findall(r"begins at (5|10)\n", resumed[2])
        self.assertEqual(len(begins), 2, resumed[2])
        self.assertEqual(begins[0], begins[1], resumed[2])
        self.check_equal(resumed, expected)


if __name__ == "__main__":
    unittest.main()
