"""A model in bfloat16 beside the same one in float32: what a worker holds, and steps over a link.

The memory is that of a worker of linear layers with AdamW at the shards, and that of the shards,
beside a process of the same model in float32 with torch.optim.AdamW: the largest resident memory of
the whole process, and what of it each parameter takes. Steps are those of one worker and one shard,
each in a network namespace of its own, with links of 10 Gb/s between them. The model is as large as
ResNet-50 and computes nothing, so that the link is the limit.
"""

import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from beside_ddp import WARM_UP
from measuring import (
    INSECURE, ROOT, TIMEOUT_SECONDS, config, emulated_network, in_role, report, run, seed_option,
    start_on, worker_environment,
)
from overhead import layers_model, resnet50_layers

LINK_GBPS = 10
RATE = 1e-4


def widths(seed):
    """Of the layers whose memory is measured."""
    if seed is None:
        return [2048] * 33
    dice = random.Random(seed)
    return [64 * dice.randint(8, 64) for _ in range(dice.randint(12, 30))]


def layers_of(seed):
    """The shapes of the parameters that travel over the link."""
    if seed is None:
        return resnet50_layers()
    dice = random.Random(seed)
    return [[(round(2 ** dice.uniform(16, 23)),)] for _ in range(dice.randint(12, 24))]


def memory(arguments):
    more = seed_option(arguments.seed)
    ratios = {name: [] for name in ("bfloat16", "float32")}
    for _ in range(arguments.rounds):
        beside = alone(arguments.iterations, more)
        print(f"  {beside['parameters']:,} parameters; torch.optim.AdamW, float32: {_text(beside)}")
        for name, found in ratios.items():
            ours = run(config(1, 2, shared_memory="true"), f"memory_{name}",
                       arguments.iterations, *more)
            print(f"  evenshard.Optimizer, {name}: {_text(ours)}", flush=True)
            found.append(ours["peak"] / beside["peak"])
    for name, found in ratios.items():
        report(f"memory of a worker in {name} over torch.optim.AdamW in float32", found)


def _text(found):
    each = (found["peak"] - found["before"]) / found["parameters"]
    text = f"{found['peak'] / 1e6:.0f} MB at most, of which {each:.1f} bytes a parameter"
    if found["shards"] == 0:
        return text
    return f"{text}; all shards {found['shards'] / found['parameters']:.1f}"


def alone(iterations, more):
    done = subprocess.run(in_role("memory_torch", iterations, *more), capture_output=True,
                          text=True, timeout=TIMEOUT_SECONDS, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def memory_worker(arguments, dtype):
    """`dtype` None: trains with torch.optim alone."""
    import torch

    before = peak_bytes()
    torch.manual_seed(1)
    sizes = widths(arguments.seed)
    layers = [torch.nn.Linear(a, b, dtype=getattr(torch, dtype or "float32"))
              for a, b in zip(sizes, sizes[1:])]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    if dtype is not None:
        import evenshard

        optimizer = evenshard.Optimizer(model, optimizer=optimizer)
    inputs = torch.rand(4, sizes[0], dtype=layers[0].weight.dtype)
    for _ in range(arguments.iterations):
        optimizer.zero_grad(set_to_none=True)
        model(inputs).float().square().mean().backward()
        optimizer.step()
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"peak": peak_bytes(), "before": before, "parameters": parameters,
                      "shards": shards_bytes()}))
    if dtype is not None:
        optimizer.close()


def peak_bytes():
    return _status("self", "VmHWM:")


def shards_bytes():
    """The memory of the run's shards, without the worker's that they have mapped."""
    of_run = f"--config={os.environ.get('EVENSHARD_CONFIG')}"
    total = 0
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            arguments = pathlib.Path("/proc", number, "cmdline").read_text().split("\0")
            if of_run in arguments and any(each.startswith("--shard=") for each in arguments):
                total += _status(number, "RssAnon:")
    return total


def _status(process, field):
    with open(f"/proc/{process}/status", encoding="utf-8") as file:
        line = next(line for line in file if line.startswith(field))
    return 1024 * int(line.split()[1])


def link(arguments):
    more = seed_option(arguments.seed)
    ratios = []
    for _ in range(arguments.rounds):
        exact = over_link("link_float32", arguments.iterations, more)
        half = over_link("link_bfloat16", arguments.iterations, more)
        print(f"  {exact['parameters']:,} parameters; float32 {exact['seconds']:.3f} s, bfloat16"
              f" {half['seconds']:.3f} s a step; the link alone takes"
              f" {4 * exact['parameters'] * 8 / LINK_GBPS / 1e9:.3f} and"
              f" {2 * exact['parameters'] * 8 / LINK_GBPS / 1e9:.3f} s", flush=True)
        ratios.append(exact["seconds"] / half["seconds"])
    report(f"steps/s of bfloat16 over float32, links of {LINK_GBPS} Gb/s", ratios)


def over_link(role, iterations, more):
    """Runs a worker and a shard, which have a link each. Returns what the worker has printed."""
    with tempfile.TemporaryDirectory() as folder:
        with emulated_network(folder, workers=1, shards=1, link_gbps=LINK_GBPS) as made:
            path = pathlib.Path(folder, "cluster.textproto")
            text = config(1, 1, shared_memory="false")
            path.write_text(text.replace("127.0.0.1:0", made.addresses[0]) + INSECURE)
            shard = start_on(made.shard_hosts[0],
                             [str(ROOT / "bazel-bin/server/ps"), f"--config={path}", "--shard=0"],
                             stderr=subprocess.DEVNULL)
            worker = start_on(made.worker_hosts[0], in_role(role, iterations, *more),
                              env=worker_environment(path, 0, 1))
            try:
                output = worker.stdout.read()
                if worker.wait(TIMEOUT_SECONDS) != 0:
                    sys.exit(f"{role} failed:\n{output}")
            finally:
                for process in (worker, shard):
                    process.stdin.close()
                    process.wait(TIMEOUT_SECONDS)
    return json.loads(output.splitlines()[-1])


def link_worker(arguments, dtype):
    import torch

    import evenshard

    model = layers_model(layers_of(arguments.seed)).to(getattr(torch, dtype))
    before = [p.detach().float().clone() for p in model.parameters()]
    rule = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0)
    inputs = torch.zeros(1, requires_grad=True)
    steps = WARM_UP + arguments.iterations
    with evenshard.Optimizer(model, optimizer=rule) as optimizer:
        for step in range(steps):
            if step == WARM_UP:
                start = time.perf_counter()
            optimizer.zero_grad()
            model(inputs).sum().backward()
            optimizer.step()
        seconds = (time.perf_counter() - start) / arguments.iterations
        # All gradients are 1, of which each step of Adam makes one of the rate.
        for parameter, value in zip(model.parameters(), before):
            torch.testing.assert_close(parameter.float(), value - RATE * steps, rtol=2**-7,
                                       atol=1e-5)
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"seconds": seconds, "parameters": parameters}))
