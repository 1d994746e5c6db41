"""A generator learns eight points on a circle from a critic that learns to tell them apart.

    python -m evenshard.run --workers 2 --shards 2 examples/gan.py

Two networks with an optimizer each, which step in turns: what the shards have no rule for.
They give back the mean gradient, and each process steps by itself. The lines that plain PyTorch has
not are marked. `--compare` trains the same once more in one process, with all processes' batches as
one, and prints both losses.
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
    """Of the generator and of the critic."""
    return [
        torch.optim.Adam(both["generator"].parameters(), lr=rate, betas=(0.5, 0.999)),
        torch.optim.RMSprop(both["critic"].parameters(), lr=rate),
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


def train_step(both, generator_steps, critic_steps, real, noise):
    """Returns the losses of the critic and of the generator."""
    generator, critic = both["generator"], both["critic"]
    fake = generator(noise)
    critic_steps.zero_grad()
    of_critic = (
        _judge(critic(real), torch.ones(len(real), 1))
        + _judge(critic(fake.detach()), torch.zeros(len(fake), 1))
    )
    of_critic.backward()
    critic_steps.step()
    generator_steps.zero_grad()
    of_generator = _judge(critic(fake), torch.ones(len(fake), 1))
    of_generator.backward()
    generator_steps.step()
    return of_critic.item(), of_generator.item()


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
    for step in range(options.steps):
        losses = train_step(both, *optimizers, *batch(options.batch, step, rank))
        if (step + 1) % 500 == 0:
            mean = optimizers[0].mean(torch.tensor(losses))  # 3
            if rank == 0:
                print(f"step {step + 1}: critic {mean[0]:.3f}, generator {mean[1]:.3f}")
    shares = optimizers[0].mean(near(both["generator"], 1000, rank))  # 4
    mean = optimizers[0].mean(torch.tensor(losses))  # 5
    if rank == 0:
        print(f"near the points: {shares.sum():.0%}, of {int((shares > 0.02).sum())} of the 8")
        print(f"losses {mean[0]:.4f} and {mean[1]:.4f}, by {workers} processes")
    if single is not None:
        steps = make_optimizers(single, options.rate)
        for step in range(options.steps):
            parts = [batch(options.batch, step, other) for other in range(workers)]
            losses = train_step(single, *steps, *map(torch.cat, zip(*parts)))
        print(f"losses {losses[0]:.4f} and {losses[1]:.4f}, by one process")


if __name__ == "__main__":
    main()
