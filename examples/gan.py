"""A generator learns eight points on a circle from a critic that learns to tell them apart.

    python -m evenshard.run --workers 2 --shards 2 examples/gan.py

Two networks with an optimizer each, which step in turns: what the shards have no rule for.
They give back the mean gradient, and each process steps by itself. The lines that plain PyTorch has
not are marked. `--compare` trains the same once more in one process, with all processes' batches as
one, and prints both losses.

A process that was started again gets the networks and the optimizers' state from another one, and
goes on where that is, at the turn of either network: whose turn it is and which batch follow from
the number of iterations.

    python -m evenshard.run --workers 2 --shards 2 --recovery 'worker_loss: WAIT' examples/gan.py
"""

import argparse
import copy
import math
import os

import torch
from torch import nn

import evenshard  # 1

_NOISE = 8
_SPREAD = 0.05
_judge = nn.functional.binary_cross_entropy_with_logits


def make_networks(width=64):
    def network(inputs, outputs):
        return nn.Sequential(
            nn.Linear(inputs, width), nn.LeakyReLU(0.2),
            nn.Linear(width, width), nn.LeakyReLU(0.2),
            nn.Linear(width, outputs),
        )

    return nn.ModuleDict({"generator": network(_NOISE, 2), "critic": network(2, 1)})


def make_optimizers(both, rate):
    """Of the critic and of the generator."""
    return [
        torch.optim.RMSprop(both["critic"].parameters(), lr=rate),
        torch.optim.Adam(both["generator"].parameters(), lr=rate, betas=(0.5, 0.999)),
    ]


def centers():
    angles = torch.arange(8) * (2 * math.pi / 8)
    return torch.stack([angles.cos(), angles.sin()], 1)


def batch(size, step, rank):
    """The points and the noise of one process in a step."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    places = centers()[torch.randint(8, (size,), generator=draw)]
    points = places + _SPREAD * torch.randn(size, 2, generator=draw)
    return points, torch.randn(size, _NOISE, generator=draw)


def losses(both, real, noise):
    """Of the critic and of the generator."""
    fake = both["generator"](noise)
    critic = both["critic"]
    of_critic = (
        _judge(critic(real), torch.ones(len(real), 1))
        + _judge(critic(fake.detach()), torch.zeros(len(fake), 1))
    )
    return of_critic, _judge(critic(fake), torch.ones(len(fake), 1))


def train_step(both, optimizers, iteration, real, noise):
    """The critic's turn, and then the generator's with the same batch."""
    turn = iteration % 2
    optimizers[turn].zero_grad()
    losses(both, real, noise)[turn].backward()
    optimizers[turn].step()


@torch.no_grad()
def near(generator, count, rank):
    """The share of made points that are near one of the eight, and near each."""
    made = generator(batch(count, step=-1 - rank, rank=0)[1])
    distances = torch.cdist(made, centers())
    nearest = distances.argmin(1)
    is_near = distances.min(1).values < 4 * _SPREAD
    return torch.stack([(is_near & (nearest == i)).float().mean() for i in range(8)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=128, help="points of one process in a step")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--compare", action="store_true", help="trains in one process too")
    options = parser.parse_args()
    rank, workers = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

    torch.manual_seed(1)
    both = make_networks()
    single = copy.deepcopy(both) if options.compare and rank == 0 else None
    optimizers = [
        evenshard.DistributedOptimizer(each, both)  # 2
        for each in make_optimizers(both, options.rate)
    ]
    if optimizers[0].iteration > 0:
        print(f"goes on at iteration {optimizers[0].iteration}", flush=True)
    while (iteration := optimizers[0].iteration) < 2 * options.steps:  # 3
        train_step(both, optimizers, iteration, *batch(options.batch, iteration // 2, rank))
        if rank == 0 and (iteration + 1) % 1000 == 0:
            print(f"step {(iteration + 1) // 2}", flush=True)
    shares = optimizers[0].mean(near(both["generator"], 1000, rank))  # 4
    if rank == 0:
        print(f"near the points: {shares.sum():.0%}, of {int((shares > 0.02).sum())} of the 8")
        print(f"losses {of_all(both, options, workers)}, by {workers} processes")
    if single is not None:
        steps = make_optimizers(single, options.rate)
        for iteration in range(2 * options.steps):
            parts = [batch(options.batch, iteration // 2, other) for other in range(workers)]
            train_step(single, steps, iteration, *map(torch.cat, zip(*parts)))
        print(f"losses {of_all(single, options, workers)}, by one process")


@torch.no_grad()
def of_all(both, options, workers):
    """The losses of all processes' next batches."""
    parts = [batch(options.batch, options.steps, rank) for rank in range(workers)]
    return "{:.4f} and {:.4f}".format(*losses(both, *map(torch.cat, zip(*parts))))


if __name__ == "__main__":
    main()
