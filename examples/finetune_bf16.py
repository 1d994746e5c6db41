"""A GPT in bfloat16 is trained further on a text, with float32 masters and AdamW at the shards.

    python -m evenshard.run --workers 2 --shards 2 examples/finetune_bf16.py --save tuned.pt

Each process has 16 bits for a parameter and for its gradient. The shards add the gradients up,
clip their mean and keep masters and moments in float32; what they send back is the masters, rounded
once. The rate warms up and then falls by a cosine. `--model FILE` begins with what an earlier run
has saved.

With checkpoints a process that is killed is started again where the run is, and `--resume` goes on
after the end of all:

    python -m evenshard.run --workers 2 --shards 2 --recovery \
        'worker_loss: WAIT checkpoint { folder: "/tmp/tuning" every_iterations: 20 }' \
        examples/finetune_bf16.py

`--compare` trains the same once more in one process, which has the masters itself, and prints both
losses. The lines that plain PyTorch has not are marked.
"""

import argparse
import math
import os
import pathlib
import sys

import torch
from torch import nn

import evenshard  # 1

_TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")  # which every Debian has
_LETTERS = 256  # bytes, so that every text has the same
_MOST_NORM = 1.0


class Gpt(nn.Module):
    """Bytes, and their places, through blocks that only look back."""

    def __init__(self, context, width=64, heads=4, blocks=2):
        super().__init__()
        self.table = nn.Embedding(_LETTERS, width)
        self.places = nn.Parameter(0.02 * torch.randn(context, width))
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True,
            norm_first=True,
        )
        self.blocks = nn.TransformerEncoder(block, blocks, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _LETTERS)
        ahead = torch.full((context, context), float("-inf")).triu(1)
        self.register_buffer("ahead", ahead, persistent=False)

    def forward(self, letters):
        length = letters.shape[1]
        x = self.table(letters) + self.places[:length]
        return self.head(self.norm(self.blocks(x, self.ahead[:length, :length])))


def make_model(options):
    torch.manual_seed(1)
    model = Gpt(options.context).to(torch.bfloat16)
    if options.model is not None:
        model.load_state_dict(torch.load(options.model))
    return model


def loss_of(model, windows):
    scores = model(windows[:, :-1])
    return nn.functional.cross_entropy(scores.flatten(0, 1).float(), windows[:, 1:].flatten())


def batch(text, size, context, step, rank):
    """The windows of the text that a process trains on in a step."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    begins = torch.randint(len(text) - context, (size,), generator=draw)
    return torch.stack([text[i : i + context + 1] for i in begins])


def make_optimizer(parameters, rate):
    decayed = [p for p in parameters if p.dim() >= 2]
    others = [p for p in parameters if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))


def make_scheduler(optimizer, steps):
    warmup = max(1, steps // 10)

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.55 + 0.45 * math.cos(math.pi * (step - warmup) / max(1, steps - warmup))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def train(model, optimizer, options, windows_of, rank):
    scheduler = make_scheduler(optimizer, options.steps)
    done = optimizer.iteration  # 3: above 0 in a process that was started again
    for _ in range(done):
        scheduler.step()
    if done > 0:
        print(f"goes on at step {done}", flush=True)
    for step in range(done, options.steps):
        optimizer.zero_grad()
        loss = loss_of(model, windows_of(step, rank))
        loss.backward()
        optimizer.step()
        scheduler.step()
        if rank == 0 and (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)


def train_alone(model, options, windows_of, workers):
    """What processes and shards do together: each batch's gradient in bfloat16, the mean of them,
    the masters and their optimizer in float32."""
    parameters = list(model.parameters())
    masters = [nn.Parameter(p.detach().float()) for p in parameters]
    optimizer = make_optimizer(masters, options.rate)
    scheduler = make_scheduler(optimizer, options.steps)
    for step in range(options.steps):
        for master in masters:
            master.grad = torch.zeros_like(master)
        for rank in range(workers):
            model.zero_grad(set_to_none=True)
            loss_of(model, windows_of(step, rank)).backward()
            for master, parameter in zip(masters, parameters):
                master.grad += parameter.grad.float() / workers
        nn.utils.clip_grad_norm_(masters, _MOST_NORM)
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for master, parameter in zip(masters, parameters):
                parameter.copy_(master)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8, help="windows of one process in a step")
    parser.add_argument("--context", type=int, default=64, help="letters that are looked back at")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--text", type=pathlib.Path, default=_TEXT)
    parser.add_argument("--model", type=pathlib.Path, help="what the training begins with")
    parser.add_argument("--save", type=pathlib.Path, help="where the trained model is written")
    parser.add_argument("--compare", action="store_true", help="trains in one process too")
    options = parser.parse_args()
    if not options.text.exists():
        sys.exit(f"there is no {options.text}; give a text of your own by --text")

    rank, workers = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    text = torch.tensor(list(options.text.read_bytes()))
    held_out, text = text[: len(text) // 10], text[len(text) // 10 :]
    test = batch(held_out, 64, options.context, step=0, rank=0)

    def windows_of(step, rank):
        return batch(text, options.batch, options.context, step, rank)

    model = make_model(options)
    optimizer = make_optimizer(list(model.parameters()), options.rate)
    optimizer = evenshard.Optimizer(model, optimizer=optimizer, clip_grad_norm=_MOST_NORM)  # 2
    train(model, optimizer, options, windows_of, rank)
    if rank == 0:
        loss = loss_of(model, test).item()
        print(f"loss on held-out text: {loss:.4f}, by {workers} processes")
        if options.save is not None:
            torch.save(model.state_dict(), options.save)
        if options.compare:
            alone = make_model(options)
            train_alone(alone, options, windows_of, workers)
            loss = loss_of(alone, test).item()
            print(f"loss on held-out text: {loss:.4f}, by one process")


if __name__ == "__main__":
    main()
