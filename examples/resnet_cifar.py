"""torchvision's ResNet-18, with its batch normalisation, learns CIFAR-10.

    python -m evenshard.run --workers 2 --shards 2 examples/resnet_cifar.py --steps 200

The images are the binary version of CIFAR-10 in data/cifar-10-batches-bin
(https://www.cs.toronto.edu/~kriz/cifar.html). If it is not there, they are random ones with a
pattern for each class. The two lines that plain PyTorch has not are marked.
"""

import argparse
import os
import pathlib
import sys

import torch
from torch import nn

import evenshard  # the first line

try:
    from torchvision.models import resnet18
except ImportError as missing:
    sys.exit(f"this example needs torchvision: {missing}")

_DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "cifar-10-batches-bin"
_TRAIN = [f"data_batch_{number}.bin" for number in range(1, 6)]
_TEST = ["test_batch.bin"]
_RECORD = 1 + 3 * 32 * 32  # the label, then red, green and blue


def read_cifar(folder, names):
    """Returns images and labels of files of the binary version."""
    content = b"".join((folder / name).read_bytes() for name in names)
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, _RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()


def synthetic(count, seed):
    """Returns random images: the pattern of their class, and noise."""
    patterns = torch.randn(10, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=draw)
    images = 128 + 25 * patterns[labels] + 40 * torch.randn(count, 3, 32, 32, generator=draw)
    return images.clamp(0, 255).to(torch.uint8), labels


def load(folder, rank):
    """Returns images and labels to train on, and those to test on."""
    if all((folder / name).exists() for name in _TRAIN + _TEST):
        return *read_cifar(folder, _TRAIN), *read_cifar(folder, _TEST)
    if rank == 0:
        print(f"{folder} has no CIFAR-10: the images are synthetic")
    return *synthetic(5000, seed=1), *synthetic(500, seed=2)


def prepare(images, device):
    return (images.to(device).float() - 120) / 64


def augment(images, draw):
    """Mirrors half of the images, and shifts all by up to 4 pixels."""
    mirrored = torch.rand(len(images), 1, 1, 1, generator=draw) < 0.5
    images = torch.where(mirrored, images.flip(3), images)
    dy, dx = torch.randint(9, (2,), generator=draw).tolist()
    return nn.functional.pad(images, (4, 4, 4, 4))[:, :, dy : dy + 32, dx : dx + 32]


@torch.no_grad()
def accuracy(model, images, labels, device):
    model.eval()
    right = sum(
        (model(prepare(x, device)).argmax(1).cpu() == y).sum().item()
        for x, y in zip(images.split(250), labels.split(250))
    )
    model.train()
    return right / len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32, help="images of one process in a step")
    parser.add_argument("--data", type=pathlib.Path, default=_DATA, help="the folder of CIFAR-10")
    options = parser.parse_args()

    rank = int(os.environ.get("RANK", 0))
    device = "cpu"
    if torch.cuda.is_available():
        local_rank = int(os.environ.get("LOCAL_RANK", 0))
        device = f"cuda:{local_rank % torch.cuda.device_count()}"
    images, labels, test_images, test_labels = load(options.data, rank)

    torch.manual_seed(1)
    model = resnet18(num_classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    optimizer = evenshard.Optimizer(model, optimizer=optimizer)  # the second line
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)

    # Each process draws images of its own.
    draw = torch.Generator().manual_seed(100 + rank)
    for step in range(options.steps):
        numbers = torch.randint(len(images), (options.batch,), generator=draw)
        x = prepare(augment(images[numbers], draw), device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels[numbers].to(device))
        loss.backward()
        optimizer.step()
        scheduler.step()
        if rank == 0 and (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    if rank == 0:
        right = accuracy(model, test_images, test_labels, device)
        print(f"{right:.1%} of the test images right after {options.steps} steps")


if __name__ == "__main__":
    main()
