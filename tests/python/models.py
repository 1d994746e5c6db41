"""Small models, their data, and training in one process to compare with."""

import torch
from torch import nn

from tests.python import fixture

WORKERS = 4
BATCH = 8  # of one worker
BATCHES = 5  # different ones


class Convolutional(nn.Module):
    """Convolutions, of which batch normalisation follows each."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(2, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
            nn.Conv2d(6, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        )
        self.head = nn.Linear(16, 5)

    def forward(self, images):
        return self.head(self.layers(images).flatten(1))


class Transformer(nn.Module):
    """One block with attention, and a table that is the first layer and the last.

    Attention has no biases: their gradient is zero but for rounding, of which Adam makes steps.
    """

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.place = nn.Parameter(0.1 * torch.randn(6, 16))
        self.norm1 = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, bias=False, batch_first=True)
        self.norm2 = nn.LayerNorm(16)
        self.wide = nn.Linear(16, 32)
        self.narrow = nn.Linear(32, 16)
        self.head = nn.Linear(16, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, words):
        x = self.table(words) + self.place
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.narrow(torch.tanh(self.wide(self.norm2(x))))
        return self.head(x).transpose(1, 2)


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5))


MODELS = {"mlp": mlp, "convolutional": Convolutional, "transformer": Transformer}


def make(name, seed=1):
    torch.manual_seed(seed)
    return MODELS[name]()


def batch(name, iteration, rank):
    """The inputs and targets of a worker."""
    draw = fixture.generator(1000 * (iteration % BATCHES) + rank)
    if name == "transformer":
        words = torch.randint(11, (BATCH, 7), generator=draw)
        return words[:, :-1], words[:, 1:]
    shape = {"mlp": (6,), "convolutional": (2, 6, 6)}[name]
    targets = torch.randint(5, (BATCH,), generator=draw)
    return torch.randn(BATCH, *shape, generator=draw) + 0.3 * targets.view(
        -1, *[1] * len(shape)
    ), targets


def loss_of(model, name, iteration, rank):
    inputs, targets = batch(name, iteration, rank)
    return nn.functional.cross_entropy(model(inputs), targets)


def reference(name, make_optimizer, make_scheduler=None, steps=100, workers=WORKERS):
    """Trains in one process, and returns the parameters and running statistics.

    Each worker's batch goes through the model by itself, as batch normalisation sees it, from the
    same statistics. The gradients and the new statistics are averaged.
    """
    return fixture.apart(_reference, name, make_optimizer, make_scheduler, steps, workers)


def _reference(name, make_optimizer, make_scheduler, steps, workers):
    model = make(name)
    optimizer = make_optimizer(model)
    scheduler = make_scheduler and make_scheduler(optimizer)
    statistics = [b for n, b in model.named_buffers() if "running" in n]
    for iteration in range(steps):
        optimizer.zero_grad()
        before = [b.clone() for b in statistics]
        sums = [torch.zeros_like(b) for b in statistics]
        for rank in range(workers):
            for buffer, value in zip(statistics, before):
                buffer.copy_(value)
            (loss_of(model, name, iteration, rank) / workers).backward()
            for total, buffer in zip(sums, statistics):
                total += buffer / workers
        for buffer, mean in zip(statistics, sums):
            buffer.copy_(mean)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return state(model)


def one_batch_reference(name, make_optimizer, steps=100, workers=WORKERS):
    """Trains in one process on the workers' batches as one."""
    return fixture.apart(_one_batch_reference, name, make_optimizer, steps, workers)


def _one_batch_reference(name, make_optimizer, steps, workers):
    model = make(name)
    optimizer = make_optimizer(model)
    for iteration in range(steps):
        parts = [batch(name, iteration, rank) for rank in range(workers)]
        inputs, targets = (torch.cat(part) for part in zip(*parts))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return state(model)


def state(model):
    """What is exchanged of a model: a copy."""
    return {
        name: value.detach().clone()
        for name, value in model.state_dict().items()
        if "num_batches" not in name
    }
