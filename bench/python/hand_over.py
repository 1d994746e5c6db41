"""State that a worker of DistributedOptimizer gets when it comes back, beside the exchange.

Workers exchange the gradients of linear layers and step Adam. Then worker 1 kills itself; when it
is started again it gets parameters and moments, three times the gradients' bytes. The figure is the
rate of that over the rate at which each worker pushed the model and received it: in bytes a second.
The time begins when the new worker asks and ends when the memory of its model and its optimizer has
the state; the other worker waits already.
"""

import json
import os
import random
import signal
import statistics
import sys
import time

from measuring import TRANSPORTS, config, report, run, seed_option


def hand_over(arguments):
    if arguments.iterations < 3:
        sys.exit(f"--iterations: is {arguments.iterations}, allowed with hand_over: at least 3")
    for shared_memory, transport in TRANSPORTS.items():
        text = config(arguments.workers, 2, shared_memory=shared_memory,
                      more="schedule: SEQUENTIAL")
        text += "recovery { worker_loss: WAIT silence_seconds: 30 }\n"
        ratios = []
        for _ in range(arguments.rounds):
            measured = run(text, "hand_over", arguments.iterations, *seed_option(arguments.seed))
            exchange = measured["model"] / measured["exchange_seconds"]
            received = measured["state"] / measured["seconds"]
            print(f"  {measured['model'] / 1e6:.0f} MB exchanged at {exchange / 1e9:.2f} GB/s,"
                  f" {measured['state'] / 1e6:.0f} MB of state handed over at"
                  f" {received / 1e9:.2f} GB/s in {measured['seconds']:.2f} s", flush=True)
            ratios.append(received / exchange)
        report(f"state over exchange, {arguments.workers} workers, {transport}", ratios)


def make_model(seed):
    import torch

    draw = random.Random(seed)
    layers, width = (16, 1024) if seed is None else (draw.randint(4, 40), draw.randint(300, 1500))
    torch.manual_seed(1)
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)])


def hand_over_worker(arguments):
    import torch

    import evenshard
    from evenshard._torch.worker_state import WorkerState

    rank, taking = int(os.environ["RANK"]), []

    def timed(name):
        method = getattr(WorkerState, name)

        def call(*arguments):
            start = time.perf_counter()
            method(*arguments)
            taking.append(time.perf_counter() - start)

        setattr(WorkerState, name, call)

    timed("take")
    timed("add")
    torch.set_num_threads(1)
    model = make_model(arguments.seed)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    optimizer = evenshard.DistributedOptimizer(adam, model)
    is_back = optimizer.iteration > 0
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1 + rank)
    seconds = []
    while optimizer.iteration < arguments.iterations + 2:
        if rank == 1 and not is_back and optimizer.iteration == arguments.iterations:
            os.kill(os.getpid(), signal.SIGKILL)
        start = time.perf_counter()
        optimizer.synchronize()
        if optimizer.iteration <= arguments.iterations:
            seconds.append(time.perf_counter() - start)
        optimizer.step()
    # Before a time counts: the new worker has what the others have.
    sums = [p.double().sum().item() for p in model.parameters()]
    states = [adam.state[p] for p in model.parameters()]
    moments = [state["exp_avg_sq"].double().sum().item() for state in states]
    for own in (sums, moments):
        numbers = torch.tensor(own, dtype=torch.float64)
        if not torch.equal(optimizer.mean(numbers), numbers):
            sys.exit("the workers do not have the same")
    taken = optimizer.mean(sum(taking) if is_back else 0) * int(os.environ["WORLD_SIZE"])
    size = sum(4 * p.numel() for p in model.parameters())
    optimizer.close()
    print(json.dumps({
        "model": size, "state": 3 * size, "seconds": taken,
        # The worker that came back has none. It is not rank 0, whose figures count.
        "exchange_seconds": None if is_back else statistics.median(seconds[2:]),
    }))
