#!/usr/bin/env python3
"""Measures PyTorch's VGG-16 on one GPU in images per second, to compare with bench/compute.

Each line of standard input, "MODE PRECISION BATCH", is a request for one round, which is answered
by one line of JSON. So rounds can be taken in turn with those of another program. The program ends
with its input.

    printf 'compile tf32 64\\n%.0s' 1 2 3 | python3 bench/python/pytorch_vgg16.py

MODE is eager, channels_last or compile (which is channels-last too). PRECISION is tf32 (float32
with products in TF32) or bf16 (autocast). The first request for a variant takes long, because it
prepares the variant before its round.

A step consists of the forward pass, the loss and the backward pass. The steps of
images_per_second_with_sgd end with an update by SGD. The batch is on the GPU from the start, so
nothing is copied.
"""

import argparse
import json
import math
import signal
import sys
import time

try:
    import torch
    import torchvision
except ImportError as error:
    sys.exit(f"{sys.argv[0]}: needs PyTorch and torchvision: {error}")

MODES = ("eager", "channels_last", "compile")
PRECISIONS = ("tf32", "bf16")
CLASSES = 1000


class Model:
    """VGG-16 with random weights in one mode."""

    def __init__(self, mode):
        self.layout = torch.contiguous_format if mode == "eager" else torch.channels_last
        self.module = torchvision.models.vgg16(weights=None).cuda().to(memory_format=self.layout)
        self.module.train()
        self.call = self.module  # or what stands for it
        if mode == "compile":
            self.call = torch.compile(self.module, dynamic=False)
        # The learning rate does not change the time, and the parameters must stay finite.
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=1e-6)


class Variant:
    """A model with a precision and a batch."""

    def __init__(self, model, precision, batch):
        self._model = model
        self._bf16 = precision == "bf16"
        images = torch.randn(batch, 3, 224, 224, device="cuda")
        self._images = images.contiguous(memory_format=model.layout)
        self._labels = torch.randint(CLASSES, (batch,), device="cuda")

    def step(self, updates=False):
        """Makes one training step and returns the loss, which stays on the GPU."""
        self._model.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self._bf16):
            loss = torch.nn.functional.cross_entropy(
                self._model.call(self._images), self._labels
            )
        loss.backward()
        if updates:
            self._model.optimizer.step()
        return loss

    def verify(self):
        """Checks that the loss before training is about that of guessing, ln(1000)."""
        loss = self.step().item()
        if not 0.5 < loss / math.log(CLASSES) < 2:
            raise RuntimeError(f"a loss of {loss} before training, expected: about ln({CLASSES})")

    def images_per_second(self, iterations, updates):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(iterations):
            self.step(updates)
        torch.cuda.synchronize()
        return iterations * len(self._labels) / (time.perf_counter() - start)


def set_up():
    """Sets what all rounds have in common. Ends the program if there is no GPU."""
    if not torch.cuda.is_available():
        sys.exit(f"{sys.argv[0]}: PyTorch finds no GPU")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")  # TF32, which convolutions use by default


class Bench:
    def __init__(self, iterations, warmup):
        self._iterations = iterations
        self._warmup = warmup
        self._models = {}
        self._variants = {}

    def answer(self, request):
        mode, precision, batch = request.split()
        if mode not in MODES or precision not in PRECISIONS:
            raise ValueError(f"{request}, allowed: MODE of {MODES}, PRECISION of {PRECISIONS}")
        variant = self._variant(mode, precision, int(batch))
        return {
            "images_per_second": variant.images_per_second(self._iterations, updates=False),
            "images_per_second_with_sgd": variant.images_per_second(
                self._iterations, updates=True
            ),
        }

    def _variant(self, mode, precision, batch):
        key = (mode, precision, batch)
        if key not in self._variants:
            if mode not in self._models:
                self._models[mode] = Model(mode)
            variant = Variant(self._models[mode], precision, batch)
            variant.verify()
            variant.images_per_second(self._warmup, updates=True)
            self._variants[key] = variant
        return self._variants[key]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=20, help="iterations of a round")
    parser.add_argument("--warmup", type=int, default=5, help="iterations before the first round")
    parser.add_argument("--seconds", type=int, default=600, help="ends after this many seconds")
    arguments = parser.parse_args()
    signal.alarm(arguments.seconds)
    set_up()
    bench = Bench(arguments.iterations, arguments.warmup)
    for request in sys.stdin:
        try:
            answer = bench.answer(request.strip())
        except Exception as error:  # of any kind: the other variants go on
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
