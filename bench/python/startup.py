"""From the import to the first step."""

import json
import sys
import time

from measuring import config, report, run


def startup(arguments):
    text = config(2, 2, shared_memory="true")
    seconds = [run(text, "startup")["seconds"] for _ in range(arguments.rounds)]
    report("seconds from `import evenshard` to the end of the first step", seconds)


def startup_worker(_):
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
    # Before the time counts: a step was done, and all have what it gave.
    sums = torch.tensor([p.detach().double().sum() for p in model.parameters()],
                        dtype=torch.float64)
    if optimizer.iteration != 1 or not torch.equal(optimizer.mean(sums), sums):
        sys.exit("the workers do not have the same parameters after a step")
    optimizer.close()
    print(json.dumps({"seconds": seconds}))
