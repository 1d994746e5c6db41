"""The order in which a script registers its modules, in a ring whose gradients leave during the
backward pass: each of four orders beside that in which the modules are used.

Two workers in network namespaces of their own train 24 layers of 1 MB, which compute nothing, but
take 15 ms forward and 30 ms backward each by sleeping, so that others on the machine hardly count.
Their links carry 0.4 Gb/s, and buckets have six layers.
"""

import json
import pathlib
import random
import sys
import tempfile
import time

from beside_ddp import WARM_UP
from measuring import (
    INSECURE, TIMEOUT_SECONDS, emulated_network, in_role, report, ring_config, seed_option,
    start_on, worker_environment,
)

LAYERS = 24
ELEMENTS = 1 << 18  # of a layer
FORWARD_SECONDS, BACKWARD_SECONDS = 0.015, 0.03
WORKERS = 2
LINK_GBPS = 0.4
BUCKET_BYTES = 6 * 4 * ELEMENTS
RATE = 0.1
USED = "use"


def registered(order, seed):
    """The layers, by their place in the forward pass, in the order in which they are registered."""
    used = list(range(LAYERS))
    half = LAYERS // 2
    if order == "random":
        return random.Random(1 if seed is None else seed).sample(used, LAYERS)
    return {
        USED: used,
        "reverse": used[::-1],
        "interleaved": [layer for pair in zip(used[:half], used[half:]) for layer in pair],
        # Each bucket has one of the first layers, whose gradients come last.
        "spread": [layer for first in range(4) for layer in used[first::4]],
    }[order]


ORDERS = ("reverse", "interleaved", "random", "spread")


def order(arguments):
    ratios = {name: [] for name in ORDERS}
    for _ in range(arguments.rounds):
        used = over_links(USED, arguments)
        print(f"  in the order of use {used:.3f} s a step", flush=True)
        for name, found in ratios.items():
            seconds = over_links(name, arguments)
            print(f"  {name} {seconds:.3f} s a step", flush=True)
            found.append(seconds / used)
    for name, found in ratios.items():
        report(f"a step of layers that are registered in the order '{name}', over that of use",
               found)


def over_links(name, arguments):
    """The seconds of a step."""
    command = in_role("order", arguments.iterations, f"--order={name}",
                      *seed_option(arguments.seed))
    with tempfile.TemporaryDirectory() as folder:
        with emulated_network(folder, workers=WORKERS, shards=0, link_gbps=LINK_GBPS) as made:
            text = ring_config(WORKERS, bucket_bytes=BUCKET_BYTES, addresses=made.addresses)
            path = pathlib.Path(folder, "cluster.textproto")
            path.write_text(f"{text}exchange {{ schedule: BACKWARD }}\n{INSECURE}")
            workers = [start_on(host, command, env=worker_environment(path, rank, WORKERS))
                       for rank, host in enumerate(made.worker_hosts)]
            try:
                outputs = [worker.stdout.read() for worker in workers]
                if any(worker.wait(TIMEOUT_SECONDS) != 0 for worker in workers):
                    sys.exit("a worker failed:\n" + "\n".join(outputs))
            finally:
                for process in workers:
                    process.stdin.close()
                    process.wait(TIMEOUT_SECONDS)
    return json.loads(outputs[0].splitlines()[-1])["seconds"]


def order_worker(arguments):
    import torch

    import evenshard

    class Sleeping(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.shape = weight.shape
            time.sleep(FORWARD_SECONDS)
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            time.sleep(BACKWARD_SECONDS)
            return gradient, gradient.new_ones(ctx.shape)

    model = torch.nn.ParameterDict()
    for layer in registered(arguments.order, arguments.seed):
        model[f"layer{layer}"] = torch.nn.Parameter(torch.rand(ELEMENTS))
    rule = torch.optim.SGD(model.parameters(), lr=RATE)
    optimizer = evenshard.DistributedOptimizer(rule, model)
    before = [p.detach().clone() for p in model.parameters()]
    steps = WARM_UP + arguments.iterations
    for step in range(steps):
        if step == WARM_UP:
            start = time.perf_counter()
        optimizer.zero_grad()
        x = torch.zeros(1, requires_grad=True)
        for layer in range(LAYERS):
            x = Sleeping.apply(x, model[f"layer{layer}"])
        x.sum().backward()
        optimizer.step()
    seconds = (time.perf_counter() - start) / arguments.iterations
    for parameter, value in zip(model.parameters(), before):
        torch.testing.assert_close(parameter.detach(), value - RATE * steps)
    print(json.dumps({"seconds": seconds}))
    optimizer.close()
