#!/usr/bin/env python3
"""Measures the Python package beside what it stands in for. Each round runs both, one after the
other, and the result is the ratio within a round: its median, and the smallest and the largest.

    bazel build //client:libevenshard.so //server:ps //worker //tools/launch
    python3 bench/python/python_package.py goodput   push-pull of VGG-16's tensors, beside worker
    python3 bench/python/python_package.py overhead  a step of Optimizer beside torch.optim.SGD
    python3 bench/python/python_package.py ddp       VGG-16's linear layers, beside DDP over gloo
    python3 bench/python/python_package.py startup   from `import evenshard` to the first step
    python3 bench/python/python_package.py reader    a training of 100 MB, alone and beside a Reader

All but goodput and reader need PyTorch. Results are checked before anything is timed.
"""

import argparse
import functools
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LAUNCH = ROOT / "bazel-bin" / "tools" / "launch" / "launch"
TIMEOUT_SECONDS = 600
TRANSPORTS = {"true": "shared memory", "false": "TCP"}  # by exchange.shared_memory

VGG16 = [(64, 3), (64, 64), (128, 64), (128, 128), (256, 128), (256, 256), (256, 256), (512, 256)]
VGG16 += [(512, 512)] * 5
VGG16_LINEAR = [(4096, 25088), (4096, 4096), (1000, 4096)]

# The stages of ResNet-50: how many blocks each has, and how many channels are within them.
RESNET50 = [(3, 64), (4, 128), (6, 256), (3, 512)]
# As many as ResNet-50 has parameters that are tensors of their own.
RESNET50_TENSORS = 161


def vgg16_shapes():
    """The tensors of VGG-16 by name: 138,357,544 parameters."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (outputs, inputs) in enumerate(VGG16):
        shapes[f"conv{i}.weight"] = (outputs, inputs, 3, 3)
        shapes[f"conv{i}.bias"] = (outputs,)
    for i, (outputs, inputs) in enumerate(VGG16_LINEAR):
        shapes[f"fc{i}.weight"] = (outputs, inputs)
        shapes[f"fc{i}.bias"] = (outputs,)
    return shapes


def resnet50_layers():
    """The shapes of each layer's parameters in ResNet-50: 25,557,032 parameters."""
    layers: list[list[tuple[int, ...]]] = []

    def convolution(outputs, inputs, size):
        layers.extend([[(outputs, inputs, size, size)], [(outputs,), (outputs,)]])

    convolution(64, 3, 7)
    inputs = 64
    for blocks, channels in RESNET50:
        for block in range(blocks):
            convolution(channels, inputs, 1)
            convolution(channels, channels, 3)
            convolution(4 * channels, channels, 1)
            if block == 0:
                convolution(4 * channels, inputs, 1)
            inputs = 4 * channels
    layers.append([(1000, inputs), (1000,)])
    assert sum(map(len, layers)) == RESNET50_TENSORS
    return layers


def config(workers, shards, *, shared_memory, model="from_workers {}", more=""):
    """A config text with shards on loopback, at ports that launch chooses."""
    lines = [f"model {{ {model} }}", "partition { scheme: STRIPED }", f"workers: {workers}"]
    lines += ['shard { address: "127.0.0.1:0" }'] * shards
    lines.append("update { policy: SYNC }")
    lines.append("limits { chunk_bytes: 655360 }")
    return "\n".join(lines) + f"\nexchange {{ shared_memory: {shared_memory} {more} }}\n"


def in_role(role, iterations=0, seed=None):
    """The command of this program as a worker."""
    command = [sys.executable, __file__, "worker", role, f"--iterations={iterations}"]
    return command if seed is None else [*command, f"--seed={seed}"]


def run(text, role=None, iterations=0, seed=None):
    """Runs a cluster to its end. Returns what worker 0 in the role has printed as JSON, or without
    a role the summary of the C++ worker."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    with tempfile.TemporaryDirectory() as folder:
        path, summary = pathlib.Path(folder, "cluster.textproto"), pathlib.Path(folder, "summary")
        path.write_text(text)
        command = [str(LAUNCH), f"--config={path}"]
        if role is None:
            command.append(f"--summary={summary}")
        else:
            command += ["--", *in_role(role, iterations, seed)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True,
                              timeout=TIMEOUT_SECONDS, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        if role is None:
            return json.loads(summary.read_text())
    lines = [line for line in done.stdout.splitlines() if line.startswith("[worker 0] {")]
    return json.loads(lines[-1].partition("] ")[2])


def report(what, ratios):
    print(f"{what}: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}, "
          f"{len(ratios)} rounds)", flush=True)


# Push-pull of 553 MB.

def goodput(rounds, iterations):
    for shared, transport in TRANSPORTS.items():
        ratios = []
        for _ in range(rounds):
            native = run(
                config(1, 1, model='builtin: "vgg16"', shared_memory=shared,
                       more="schedule: SEQUENTIAL")
                + f"compute {{ backend: EMULATED }}\ntraining {{ iterations: {iterations + 2} }}\n")
            ours = run(config(1, 1, shared_memory=shared, more="schedule: SEQUENTIAL"),
                       "push_pull", iterations)
            native_seconds = statistics.median(native["iteration_seconds"][2:])
            ratios.append(native_seconds / ours["seconds"])
            print(f"  C++ {native_seconds:.4f} s, Python {ours['seconds']:.4f} s", flush=True)
        report(f"goodput of Python over C++, {transport}", ratios)


def push_pull_worker(iterations):
    import numpy

    import evenshard

    rate, value = 0.5, 0.25
    tensors = {name: numpy.zeros(shape, numpy.float32) for name, shape in vgg16_shapes().items()}
    with evenshard.Worker(None, tensors,
                          optimizer=f"kind: SGD learning_rate: {rate}") as worker:
        for gradient in worker.gradients.values():
            gradient[...] = value
        for _ in range(2):
            worker.push_pull()
        for name, parameters in worker.parameters.items():
            if not numpy.all(parameters == -2 * rate * value):
                sys.exit(f"{name} has wrong values")
        seconds = []
        for _ in range(iterations):
            start = time.perf_counter()
            worker.push_pull()
            seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": statistics.median(seconds)}))


# What Optimizer costs beyond the bytes.
#
# Two models whose passes cost little, so that what is measured is the optimizer:
#
# - 161 tensors of 64 elements, in a module each. The figure is what a step takes beyond one with
#   torch.optim.SGD.
# - the 161 parameters of ResNet-50 in its 107 layers, 102 MB. The bytes cost time however they are
#   exchanged, so the figure is what a step takes beyond one with torch.optim.SGD that also copies
#   all gradients out and all parameters in, once each, in one piece.

def small_model():
    """As many parameters as ResNet-50 has, of 64 elements each, in a module each."""
    import torch

    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(64))

        def forward(self, x):
            return x * self.weight

    torch.manual_seed(1)
    return torch.nn.Sequential(*[Scale() for _ in range(RESNET50_TENSORS)])


def layers_model(layers):
    """Layers with parameters of these shapes that compute nothing. All gradients are 1."""
    import torch

    class Touch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *parameters):
            ctx.shapes = [parameter.shape for parameter in parameters]
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return (gradient, *(gradient.new_ones(shape) for shape in ctx.shapes))

    class Layer(torch.nn.Module):
        def __init__(self, shapes):
            super().__init__()
            for number, shape in enumerate(shapes):
                self.register_parameter(f"part{number}", torch.nn.Parameter(torch.rand(shape)))

        def forward(self, x):
            return Touch.apply(x, *self._parameters.values())

    torch.manual_seed(1)
    return torch.nn.Sequential(*map(Layer, layers))


def drawn_layers(seed):
    """20 to 200 layers of 1 to 3 tensors, of 1 to 65536 elements each."""
    dice = random.Random(seed)
    return [[(round(2 ** dice.uniform(0, 16)),) for _ in range(dice.randint(1, 3))]
            for _ in range(dice.randint(20, 200))]


def nothing():
    pass


def no_copies(model):
    """The bytes of small tensors cost nothing."""
    return nothing


def copies_each_way(model):
    """Copies as many bytes as a model has, there and back."""
    import torch

    size = sum(parameter.numel() for parameter in model.parameters())
    here, there = torch.zeros(size), torch.zeros(size)

    def exchange():
        there.copy_(here)
        here.copy_(there)

    return exchange


OVERHEAD = {
    "overhead_small": (
        lambda seed: small_model(), no_copies, "torch.optim.SGD, 161 tensors of 64 elements"),
    "overhead_resnet50": (
        lambda seed: layers_model(resnet50_layers()), copies_each_way,
        "torch.optim.SGD and a copy each way, ResNet-50's parameters"),
    "overhead_drawn": (
        lambda seed: layers_model(drawn_layers(seed)), copies_each_way,
        "torch.optim.SGD and a copy each way, a model that was drawn"),
}


def overhead(rounds, iterations, seed):
    roles = ["overhead_small", "overhead_resnet50"]
    if seed is not None:
        roles = ["overhead_drawn"]
        sizes = [shape[0] for layer in drawn_layers(seed) for shape in layer]
        print(f"  {len(sizes)} tensors in {len(drawn_layers(seed))} layers, {sum(sizes)} elements")
    for role in roles:
        beside = OVERHEAD[role][-1]
        differences = []
        for _ in range(rounds):
            result = run(config(1, 1, shared_memory="true"), role, iterations, seed)
            differences.append(1000 * (result["ours"] - result["torch"]))
            print(f"  torch.optim.SGD {1000 * result['torch']:.3f} ms, "
                  f"evenshard.Optimizer {1000 * result['ours']:.3f} ms", flush=True)
        report(f"milliseconds of a step beyond {beside}", differences)


def overhead_worker(role, iterations, seed):
    import copy

    import torch

    import evenshard

    torch.set_num_threads(1)
    make_model, make_copies, _ = OVERHEAD[role]
    ours = make_model(seed)
    theirs = copy.deepcopy(ours)
    inputs = torch.rand(4, 64)

    def steps(model, optimizer, exchange, settle, count):
        start = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            model(inputs).sum().backward()
            optimizer.step()
            exchange()
        settle()
        return (time.perf_counter() - start) / count

    theirs_optimizer = torch.optim.SGD(theirs.parameters(), lr=1e-3)
    with evenshard.Optimizer(
            ours, optimizer=torch.optim.SGD(ours.parameters(), lr=1e-3)) as ours_optimizer:
        runs = {"torch": (theirs, theirs_optimizer, make_copies(theirs), nothing),
                "ours": (ours, ours_optimizer, nothing, ours_optimizer.synchronize)}
        for each in runs.values():
            steps(*each, 20)
        for a, b in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(a, b)
        measured = {name: [] for name in runs}
        for _ in range(5):
            for name, each in runs.items():
                measured[name].append(steps(*each, iterations))
    print(json.dumps({name: statistics.median(times) for name, times in measured.items()}))


# Beside DistributedDataParallel.

# What launch sets for scripts.
KEEPING_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}


def linear_shapes(seed):
    """VGG-16's linear layers and a batch of 8, or layers and a batch that are drawn."""
    if seed is None:
        return VGG16_LINEAR, 8
    dice = random.Random(seed)
    widths = [64 * round(2 ** dice.uniform(4, 7.5)) for _ in range(dice.randint(3, 6))]
    return list(zip(widths[1:], widths)), dice.randint(4, 32)


def linear_layers(seed):
    import torch

    torch.manual_seed(1)
    layers = []
    for outputs, inputs in linear_shapes(seed)[0]:
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def ddp(rounds, iterations, workers, seed):
    if seed is not None:
        shapes, batch = linear_shapes(seed)
        print(f"  layers of {shapes}, {sum(a * b for a, b in shapes)} weights, batch {batch}")
    for shared, transport in TRANSPORTS.items():
        over_plain, over_keeping = [], []
        for _ in range(rounds):
            plain = run_gloo(workers, iterations, seed, {})
            keeping = run_gloo(workers, iterations, seed, KEEPING_MEMORY)
            ours = run(config(workers, workers, shared_memory=shared), "linear", iterations, seed)
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


def run_gloo(workers, iterations, seed, settings):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in range(workers):
        environment = {**os.environ, **settings,
                       "RANK": str(rank), "WORLD_SIZE": str(workers),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                       "GLOO_SOCKET_IFNAME": "lo"}
        processes.append(subprocess.Popen(in_role("gloo", iterations, seed), env=environment,
                                          stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate(timeout=TIMEOUT_SECONDS)[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        sys.exit("DistributedDataParallel failed")
    return json.loads(outputs[0].splitlines()[-1])


def train_linear(model, optimizer, rank, iterations, settle, seed):
    import torch

    torch.manual_seed(100 + rank)
    shapes, batch = linear_shapes(seed)
    inputs = torch.rand(batch, shapes[0][1])
    labels = torch.randint(shapes[-1][0], (batch,))
    times = []
    for i in range(iterations + 3):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)  # the default from PyTorch 2.0 on, and the faster one
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        if i == 2:
            settle()
        if i > 2:
            times.append(time.perf_counter() - start)
    settle()
    if rank == 0:
        # A step may return before its exchange is over, so the mean counts.
        print(json.dumps({"seconds": statistics.fmean(times), "loss": loss.item()}))


def linear_worker(iterations, seed):
    import torch

    import evenshard

    set_threads(torch)
    model = linear_layers(seed)
    rule = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    with evenshard.Optimizer(model, optimizer=rule) as optimizer:
        train_linear(model, optimizer, int(os.environ["RANK"]), iterations,
                     optimizer.synchronize, seed)


def gloo_worker(iterations, seed):
    import torch
    import torch.distributed

    set_threads(torch)
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(linear_layers(seed),
                                                      gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    train_linear(model, optimizer, torch.distributed.get_rank(), iterations,
                 torch.distributed.barrier, seed)
    torch.distributed.destroy_process_group()


def set_threads(torch):
    torch.set_num_threads(max(1, os.cpu_count() // int(os.environ["WORLD_SIZE"])))


# A training beside a reader that pulls without pause.

READER_TENSORS = {f"layer{i}.weight": (1024, 1024) for i in range(25)}


def reader(rounds, iterations):
    for shared, transport in TRANSPORTS.items():
        ratios, rates = [], []
        for _ in range(rounds):
            alone, beside = (
                run(config(2, 2, shared_memory=shared), role, iterations)
                for role in ("train", "train_and_read"))
            ratios.append(alone["seconds"] / beside["seconds"])
            rates.append(beside["gigabytes"] / beside["wall"])
            print(f"  alone {1 / alone['seconds']:.1f} steps/s, "
                  f"beside a reader {1 / beside['seconds']:.1f} steps/s, "
                  f"which pulled {beside['snapshots']} snapshots", flush=True)
        report(f"steps/s beside a reader over steps/s alone, workers by {transport}", ratios)
        report(f"GB/s pulled, workers by {transport}", rates)


def train_worker(iterations, reads):
    import numpy

    import evenshard

    rank = int(os.environ["RANK"])
    tensors = {name: numpy.zeros(shape, numpy.float32) for name, shape in READER_TENSORS.items()}
    # After n iterations every parameter is n.
    with evenshard.Worker(None, tensors, optimizer="kind: SGD learning_rate: 1") as worker:
        for gradient in worker.gradients.values():
            gradient[...] = -1
        for _ in range(3):
            worker.push_pull()
        process = None
        if reads and rank == 0:
            process = subprocess.Popen(in_role("read"), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
            # The other worker waits for this one's next push.
            if process.stdout.readline() != "verified\n":
                sys.exit("the reader has failed")
        start = time.perf_counter()
        for _ in range(iterations):
            worker.push_pull()
        wall = time.perf_counter() - start
        measured = {"seconds": wall / iterations, "wall": wall}
        if process is not None:
            read = process.communicate("stop\n")[0]
            measured.update(json.loads(read))
    print(json.dumps(measured))


def read_worker():
    import threading

    import evenshard

    stopped = threading.Event()

    def stop():
        sys.stdin.readline()
        stopped.set()

    threading.Thread(target=stop, daemon=True).start()
    with evenshard.Reader() as source:
        snapshot = source.pull()
        for name, values in snapshot.items():
            if snapshot.iteration < 3 or (values != snapshot.iteration).any():
                sys.exit(f"{name} has wrong values")
        print("verified", flush=True)
        snapshots = 0
        while not stopped.is_set():
            snapshot = source.pull()
            snapshots += 1
    size = sum(values.nbytes for values in snapshot.values())
    print(json.dumps({"snapshots": snapshots, "gigabytes": snapshots * size / 1e9}))


# From the import to the first step.

def startup(rounds):
    text = config(2, 2, shared_memory="true")
    seconds = [run(text, "startup")["seconds"] for _ in range(rounds)]
    report("seconds from `import evenshard` to the end of the first step", seconds)


def startup_worker():
    start = time.perf_counter()
    import evenshard
    import torch

    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(800, 10))
    optimizer = evenshard.Optimizer(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    torch.nn.functional.cross_entropy(
        model(torch.rand(32, 1, 28, 28)), torch.randint(10, (32,))).backward()
    optimizer.step()
    optimizer.synchronize()
    seconds = time.perf_counter() - start
    optimizer.close()
    print(json.dumps({"seconds": seconds}))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", choices=["goodput", "overhead", "ddp", "startup", "reader", "worker"])
    parser.add_argument("role", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=10, help="of a round")
    parser.add_argument("--workers", type=int, default=2, help="of ddp")
    parser.add_argument("--seed", type=int,
                        help="of overhead and ddp: a model that is drawn, in place of theirs")
    arguments = parser.parse_args()
    iterations, seed = arguments.iterations, arguments.seed
    roles = {
        "push_pull": lambda: push_pull_worker(iterations),
        **{role: functools.partial(overhead_worker, role, iterations, seed) for role in OVERHEAD},
        "linear": lambda: linear_worker(iterations, seed),
        "gloo": lambda: gloo_worker(iterations, seed),
        "startup": startup_worker,
        "train": lambda: train_worker(iterations, reads=False),
        "train_and_read": lambda: train_worker(iterations, reads=True),
        "read": read_worker,
    }
    commands = {
        "goodput": lambda: goodput(arguments.rounds, iterations),
        "overhead": lambda: overhead(arguments.rounds, iterations, seed),
        "ddp": lambda: ddp(arguments.rounds, iterations, arguments.workers, seed),
        "startup": lambda: startup(arguments.rounds),
        "reader": lambda: reader(arguments.rounds, iterations),
    }
    (roles[arguments.role] if arguments.what == "worker" else commands[arguments.what])()


if __name__ == "__main__":
    main()
