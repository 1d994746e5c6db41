"""A training beside DistributedDataParallel over gloo.

Three models: VGG-16's linear layers with momentum and a batch of 8; layers and a batch that are
drawn; and a GPT of 20.8 million parameters with AdamW and 16 tokens, of which the optimizer takes a
good part.
"""

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time

from goodput import VGG16_LINEAR
from measuring import (
    KEEPING_MEMORY, TIMEOUT_SECONDS, TRANSPORTS, config, in_role, report, ring_config, run,
    seed_option,
)

# Contents of parameters and gradients are compared in the first 10 iterations, and seldom then.
WARM_UP = 12


class Linear:
    """VGG-16's linear layers, or layers that are drawn."""

    def __init__(self, seed):
        self.shapes, self.batch = VGG16_LINEAR, 8
        if seed is not None:
            dice = random.Random(seed)
            widths = [64 * round(2 ** dice.uniform(4, 7.5)) for _ in range(dice.randint(3, 6))]
            self.shapes, self.batch = list(zip(widths[1:], widths)), dice.randint(4, 32)

    def __str__(self):
        weights = sum(a * b for a, b in self.shapes)
        return f"layers of {self.shapes}, {weights} weights, batch {self.batch}"

    def model(self, torch):
        layers = []
        for outputs, inputs in self.shapes:
            layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers[:-1])

    def rule(self, torch, parameters):
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)

    def data(self, torch):
        inputs = torch.rand(self.batch, self.shapes[0][1])
        return inputs, torch.randint(self.shapes[-1][0], (self.batch,))


class Gpt:
    """A transformer of 6 layers and 77 tensors."""

    WORDS, WIDTH, LAYERS, HEADS, TOKENS = 1800, 512, 6, 8, 16

    def __str__(self):
        return f"a GPT of {self.LAYERS} layers, {self.WIDTH} wide, {self.TOKENS} tokens"

    def model(self, torch):
        from torch import nn

        layers = self

        class Block(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
                self.heads, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.inner = nn.Sequential(
                    nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

            def forward(self, x):
                tokens, width = x.shape
                size = width // layers.HEADS
                parts = self.heads(self.before(x)).view(tokens, 3, layers.HEADS, size)
                queries, keys, values = parts.permute(1, 2, 0, 3)
                later = torch.full((tokens, tokens), float("-inf")).triu(1)
                weights = (queries @ keys.transpose(1, 2) / size**0.5 + later).softmax(-1)
                x = x + self.joined((weights @ values).transpose(0, 1).reshape(tokens, width))
                return x + self.inner(self.between(x))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(layers.WORDS, layers.WIDTH)
                self.places = nn.Embedding(4 * layers.TOKENS, layers.WIDTH)
                self.blocks = nn.Sequential(*[Block(layers.WIDTH) for _ in range(layers.LAYERS)])
                self.norm = nn.LayerNorm(layers.WIDTH)
                self.head = nn.Linear(layers.WIDTH, layers.WORDS, bias=False)

            def forward(self, words):
                x = self.words(words) + self.places(torch.arange(len(words)))
                return self.head(self.norm(self.blocks(x)))

        return Net()

    def rule(self, torch, parameters):
        return torch.optim.AdamW(parameters, lr=1e-4)

    def data(self, torch):
        text = torch.randint(self.WORDS, (self.TOKENS + 1,))
        return text[:-1], text[1:]


def case_of(name, seed):
    return Gpt() if name == "gpt" else Linear(seed)


def ddp(arguments):
    workers, iterations = arguments.workers, arguments.iterations
    more = [f"--model={arguments.model}", f"--device={arguments.device}",
            *seed_option(arguments.seed)]
    print(f"  {case_of(arguments.model, arguments.seed)}")
    cases = {
        transport: config(workers, workers, shared_memory=shared)
        for shared, transport in TRANSPORTS.items()
    }
    cases["ring"] = ring_config(workers)
    for transport, text in cases.items():
        if arguments.transport not in (None, transport):
            continue
        over_plain, over_keeping = [], []
        for _ in range(arguments.rounds):
            plain = run_gloo(workers, iterations, more, {})
            keeping = run_gloo(workers, iterations, more, KEEPING_MEMORY)
            ours = run(text, arguments.optimizer, iterations, *more)
            over_plain.append(plain["seconds"] / ours["seconds"])
            over_keeping.append(keeping["seconds"] / ours["seconds"])
            print(f"  gloo {plain['seconds']:.3f} s, keeping memory {keeping['seconds']:.3f} s, "
                  f"Evenshard {ours['seconds']:.3f} s a step", flush=True)
            for theirs in (plain, keeping):
                if abs(theirs["loss"] / ours["loss"] - 1) > 1e-3:
                    sys.exit(f"the losses differ: {theirs['loss']} and {ours['loss']}")
        report(f"steps/s over DDP with gloo, {workers} workers, {transport}", over_plain)
        report("the same, over DDP that keeps freed memory, as launch lets scripts do",
               over_keeping)


def run_gloo(workers, iterations, more, settings):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in range(workers):
        environment = {**os.environ, **settings,
                       "RANK": str(rank), "WORLD_SIZE": str(workers),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                       "GLOO_SOCKET_IFNAME": "lo"}
        processes.append(subprocess.Popen(in_role("gloo", iterations, *more), env=environment,
                                          stdout=subprocess.PIPE, text=True))
    try:
        await_all(processes)
        return json.loads(processes[0].stdout.read().splitlines()[-1])
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def await_all(processes):
    """Waits until all have ended well. They say little, so that no pipe is full."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            break  # the others would wait for it
        if time.monotonic() > deadline:
            sys.exit(f"DistributedDataParallel takes more than {TIMEOUT_SECONDS} s")
        time.sleep(0.02)
    if any(process.poll() for process in processes):
        sys.exit("DistributedDataParallel failed")


def train(case, model, optimizer, rank, iterations, settle):
    import torch

    torch.manual_seed(100 + rank)
    inputs, labels = case.data(torch)
    times = []
    for i in range(WARM_UP + iterations):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)  # the default from PyTorch 2.0 on, and the faster one
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        if i == WARM_UP - 1:
            settle()
        if i >= WARM_UP:
            times.append(time.perf_counter() - start)
    settle()
    if rank == 0:
        # A step may return before its exchange is over, so the mean counts.
        print(json.dumps({"seconds": statistics.fmean(times), "loss": loss.item()}))


def evenshard_worker(arguments):
    import torch

    import evenshard

    case, model = start(torch, arguments)
    rule = case.rule(torch, model.parameters())
    with evenshard.Optimizer(model, optimizer=rule) as optimizer:
        train(case, model, optimizer, evenshard.rank(), arguments.iterations,
              optimizer.synchronize)


def distributed_worker(arguments):
    import torch

    import evenshard

    case, model = start(torch, arguments)
    rule = case.rule(torch, model.parameters())
    with evenshard.DistributedOptimizer(rule, model) as optimizer:
        train(case, model, optimizer, evenshard.rank(), arguments.iterations, lambda: None)


def gloo_worker(arguments):
    import torch
    import torch.distributed

    case, model = start(torch, arguments)
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    train(case, model, case.rule(torch, model.parameters()), torch.distributed.get_rank(),
          arguments.iterations, torch.distributed.barrier)
    torch.distributed.destroy_process_group()


def start(torch, arguments):
    torch.set_num_threads(max(1, os.cpu_count() // int(os.environ["WORLD_SIZE"])))
    if arguments.device != "cpu":
        torch.set_default_device(arguments.device)
    torch.manual_seed(1)
    case = case_of(arguments.model, arguments.seed)
    return case, case.model(torch)
