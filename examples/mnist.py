"""A convolutional network learns MNIST: 97 % of the test images right after one epoch.

    tools/fetch_mnist                       # once: MNIST, 11.5 MB, into data/mnist
    python -m evenshard.run --workers 2 --shards 2 examples/mnist.py

Each process trains on its share of the images. The two lines that plain PyTorch has not are marked.
"""

import argparse
import gzip
import os
import pathlib
import struct
import sys
import time

import torch
from torch import nn

import evenshard  # the first line

_DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "mnist"


def read_idx(path):
    """Returns the bytes of an IDX file as a tensor."""
    with gzip.open(path) as file:
        content = file.read()
    dimensions = content[3]
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    pixels = torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=4 + 4 * dimensions)
    return pixels.reshape(shape)


def read_mnist(folder, part):
    """Returns images and labels. `part` is train or t10k."""
    try:
        images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")
        labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")
    except FileNotFoundError as error:
        sys.exit(f"there is no {error.filename}; ./tools/fetch_mnist puts MNIST into data/mnist")
    return images.unsqueeze(1), labels.long()


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
    )


def batches(images, labels, size, epoch, rank, workers):
    """Yields this process's share of the images, all processes as many batches."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
    share = order[: len(order) // workers * workers][rank::workers]
    for numbers in share.split(size):
        yield images[numbers], labels[numbers]


def prepare(images, device):
    return (images.to(device).float() / 255 - 0.1307) / 0.3081


@torch.no_grad()
def accuracy(model, images, labels, device):
    model.eval()
    right = sum(
        (model(prepare(x, device)).argmax(1).cpu() == y).sum().item()
        for x, y in zip(images.split(1000), labels.split(1000))
    )
    model.train()
    return right / len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="images of one process in a step")
    parser.add_argument("--data", type=pathlib.Path, default=_DATA, help="the folder of MNIST")
    options = parser.parse_args()

    rank, workers = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = "cpu"
    if torch.cuda.is_available():
        local_rank = int(os.environ.get("LOCAL_RANK", 0))
        device = f"cuda:{local_rank % torch.cuda.device_count()}"
    images, labels = read_mnist(options.data, "train")
    test_images, test_labels = read_mnist(options.data, "t10k")

    torch.manual_seed(1)
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = evenshard.Optimizer(model, optimizer=optimizer)  # the second line

    for epoch in range(options.epochs):
        begin = time.monotonic()
        for x, y in batches(images, labels, options.batch, epoch, rank, workers):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(prepare(x, device)), y.to(device))
            loss.backward()
            optimizer.step()
        seconds = time.monotonic() - begin
        if rank == 0:
            right = accuracy(model, test_images, test_labels, device)
            print(f"epoch {epoch + 1}: {right:.1%} of the test images right, {seconds:.1f} s")


if __name__ == "__main__":
    main()
