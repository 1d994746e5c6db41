"""A small GPT learns to write a text, letter by letter.

    python -m evenshard.run --workers 2 --shards 2 examples/char_transformer.py

AdamW has no weight decay for biases and norms, and its rate warms up and then falls by a cosine.
`--compare` trains the same once more in one process, with all processes' batches as one, and prints
both losses. With `--local_steps` the processes exchange after so many steps (DiLoCo). The two lines
that plain PyTorch has not are marked.
"""

import argparse
import copy
import math
import os
import pathlib
import sys

import torch
from torch import nn

import evenshard  # the first line

_TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")  # which every Debian has


class Gpt(nn.Module):
    """Letters, and their places, through blocks that only look back."""

    def __init__(self, letters, context, width=64, heads=4, blocks=2):
        super().__init__()
        self.table = nn.Embedding(letters, width)
        self.places = nn.Parameter(0.02 * torch.randn(context, width))
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True,
            norm_first=True,
        )
        self.blocks = nn.TransformerEncoder(block, blocks, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters)
        ahead = torch.full((context, context), float("-inf")).triu(1)
        self.register_buffer("ahead", ahead, persistent=False)

    def forward(self, letters):
        length = letters.shape[1]
        x = self.table(letters) + self.places[:length]
        return self.head(self.norm(self.blocks(x, self.ahead[:length, :length])))


def loss_of(model, windows):
    scores = model(windows[:, :-1])
    return nn.functional.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten())


def batch(text, size, context, step, rank):
    """The windows of the text that a process trains on in a step."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    begins = torch.randint(len(text) - context, (size,), generator=draw)
    return torch.stack([text[i : i + context + 1] for i in begins])


def make_optimizer(model, rate):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))


def make_scheduler(optimizer, steps):
    warmup = max(1, steps // 10)

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.55 + 0.45 * math.cos(math.pi * (step - warmup) / max(1, steps - warmup))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def train(model, optimizer, options, windows_of, report):
    """Trains on what `windows_of(step)` returns."""
    scheduler = make_scheduler(optimizer, options.steps)
    for step in range(options.steps):
        optimizer.zero_grad()
        loss = loss_of(model, windows_of(step))
        loss.backward()
        optimizer.step()
        scheduler.step()
        if report and (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}")


@torch.no_grad()
def write(model, letters, context, count=120):
    """Returns text that goes on from a line break."""
    torch.manual_seed(1)
    found = torch.tensor([[letters.index("\n")]])
    for _ in range(count):
        scores = model(found[:, -context:])[0, -1]
        found = torch.cat([found, torch.multinomial(scores.softmax(0), 1)[None]], 1)
    return "".join(letters[i] for i in found[0].tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8, help="windows of one process in a step")
    parser.add_argument("--context", type=int, default=64, help="letters that are looked back at")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--text", type=pathlib.Path, default=_TEXT)
    parser.add_argument("--local_steps", type=int, help="steps between two exchanges")
    parser.add_argument("--outer_rate", type=float, help="of the shards, with --local_steps")
    parser.add_argument("--compare", action="store_true", help="trains in one process too")
    options = parser.parse_args()
    if not options.text.exists():
        sys.exit(f"there is no {options.text}; give a text of your own by --text")

    rank, workers = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    content = options.text.read_text(encoding="utf-8")
    letters = sorted(set(content))
    text = torch.tensor([letters.index(letter) for letter in content])
    held_out, text = text[: len(text) // 10], text[len(text) // 10 :]
    test = batch(held_out, 64, options.context, step=0, rank=0)

    def windows_of(step, rank=rank):
        return batch(text, options.batch, options.context, step, rank)

    torch.manual_seed(1)
    model = Gpt(len(letters), options.context)
    single = copy.deepcopy(model) if options.compare and rank == 0 else None
    optimizer = make_optimizer(model, options.rate)
    if options.local_steps:
        optimizer = evenshard.LocalSteps(
            model, optimizer, steps=options.local_steps, outer_learning_rate=options.outer_rate
        )
    else:
        optimizer = evenshard.Optimizer(model, optimizer=optimizer)  # the second line
    train(model, optimizer, options, windows_of, report=rank == 0)
    optimizer.close()
    if rank == 0:
        loss = loss_of(model, test).item()
        print(f"loss on held-out text: {loss:.4f}, by {workers} processes")
        print(write(model, letters, options.context))
    if single is not None:
        def all_windows_of(step):
            return torch.cat([windows_of(step, other) for other in range(workers)])

        optimizer = make_optimizer(single, options.rate)
        train(single, optimizer, options, all_windows_of, report=False)
        print(f"loss on held-out text: {loss_of(single, test).item():.4f}, by one process")


if __name__ == "__main__":
    main()
