"""What it costs to compare the contents of parameters and gradients with what was exchanged.

One worker trains 40 linear layers, 42 MB, on a batch whose passes take about as long as the
exchange. Contents are compared in every second iteration, so that both kinds are measured beside
each other; the figure is the share of a run of 1,000 iterations in which they are compared as often
as they are by default.
"""

import json
import statistics
import sys
import time

from measuring import config, report, run

STEPS = 1000


def checks(arguments):
    shares = []
    for _ in range(arguments.rounds):
        measured = run(config(1, 1, shared_memory="true"), "checks", arguments.iterations)
        cost = measured["comparing"] - measured["plain"]
        shares.append(100 * cost * measured["comparisons"] / (STEPS * measured["plain"]))
        print(f"  {1000 * measured['plain']:.2f} ms a step, with a comparison"
              f" {1000 * measured['comparing']:.2f} ms, which {measured['comparisons']} of {STEPS}"
              " steps have", flush=True)
    report(f"percent of a run of {STEPS} steps that comparisons of contents take", shares)


def checks_worker(arguments):
    import torch

    import evenshard
    from evenshard._torch import unchanged as _unchanged

    comparisons = sum(map(_unchanged.compares_in, range(STEPS)))
    _unchanged.compares_in = lambda iteration: iteration % 2 == 0
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(40)])
    inputs = torch.rand(64, 512)
    seconds = ([], [])
    with evenshard.Optimizer(model, optimizer=torch.optim.SGD(model.parameters(), 1e-3)) as ours:
        for i in range(2 * (arguments.iterations + 2)):
            start = time.perf_counter()
            ours.zero_grad()
            model(inputs).square().mean().backward()
            ours.step()
            if i >= 4:
                seconds[i % 2].append(time.perf_counter() - start)
        # What is compared is seen: otherwise its time would say nothing.
        model(inputs).square().mean().backward()
        gradient = model[0].weight.grad.data
        before = gradient.clone()
        gradient += 1
        try:
            ours.step()
            sys.exit("a change of contents was not seen")
        except evenshard.FailedPrecondition:
            gradient.copy_(before)
        ours.step()
    comparing, plain = map(statistics.median, seconds)
    print(json.dumps({"comparing": comparing, "plain": plain, "comparisons": comparisons}))
