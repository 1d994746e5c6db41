"""A classifier whose training goes on wherever it was, whichever of its processes dies.

    python -m evenshard.run --workers 2 --shards 2 --replicas 1 --recovery \\
        "worker_loss: WAIT checkpoint { folder: '$PWD/checkpoints' every_iterations: 50 }" \\
        examples/elastic.py

The model and the optimizer's state live at the shards. What else the training has come to, the
schedule, the epoch and the place in the data, is registered: a process that is started again gets
it from the others, and after the death of everything `--resume` gets it from the newest checkpoint.
Kill what you like meanwhile; the last line is the same.
"""

import argparse
import os

import torch
from torch import nn

import evenshard


class ElasticSampler:
    """The batches of one process: each epoch's are drawn anew, and shared out by rank."""

    def __init__(self, examples, batch, rank, workers):
        self.epoch = 0
        self.position = 0  # batches of this epoch that have been trained on
        self._examples, self._batch = examples, batch
        self._rank, self._workers = rank, workers

    def __len__(self):
        return self._examples // (self._batch * self._workers)

    def next(self):
        """The numbers of the next batch's examples. The same until done() is called."""
        order = torch.randperm(
            self._examples, generator=torch.Generator().manual_seed(self.epoch)
        )
        begin = (self.position * self._workers + self._rank) * self._batch
        return order[begin:begin + self._batch]

    def done(self):
        self.position += 1
        if self.position == len(self):
            self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state):
        self.epoch, self.position = state["epoch"], state["position"]


def make_data(count):
    """Points in rings, a class each."""
    draw = torch.Generator().manual_seed(7)
    classes = torch.randint(3, (count,), generator=draw)
    angles = 6.2832 * torch.rand(count, generator=draw)
    radii = 1 + classes + 0.2 * torch.randn(count, generator=draw)
    return torch.stack([radii * angles.cos(), radii * angles.sin()], 1), classes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--examples", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=32, help="examples of one process in a step")
    options = parser.parse_args()
    rank, workers = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

    torch.manual_seed(1)
    points, classes = make_data(options.examples)
    model = nn.Sequential(
        nn.Linear(2, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
        nn.Linear(64, 3),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer = evenshard.Optimizer(model, optimizer=optimizer)
    sampler = ElasticSampler(options.examples, options.batch, rank, workers)
    steps = options.epochs * len(sampler)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps + 1)
    optimizer.register_state("scheduler", scheduler)
    optimizer.register_state("sampler", sampler)
    if optimizer.iteration > 0:
        print(f"goes on at step {optimizer.iteration}, epoch {sampler.epoch}", flush=True)

    while sampler.epoch < options.epochs:
        try:
            batch = sampler.next()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(points[batch]), classes[batch]).backward()
            optimizer.step()
            scheduler.step()
            sampler.done()
        except evenshard.WentBack:
            optimizer.resume()
            print(f"went back to step {optimizer.iteration}, epoch {sampler.epoch}", flush=True)

    optimizer.synchronize()
    model.eval()
    with torch.no_grad():
        found = model(points).argmax(1)
    accuracy = (found == classes).float().mean().item()
    total = sum(p.double().abs().sum().item() for p in model.parameters())
    if rank == 0:
        rate = optimizer.param_groups[0]["lr"]
        print(
            f"step {optimizer.iteration}: accuracy {accuracy:.3f}, rate {rate:.2e}, sum {total!r}"
        )


if __name__ == "__main__":
    main()
