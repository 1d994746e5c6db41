#!/usr/bin/env python3
"""Measures PyTorch's DistributedDataParallel over gloo: VGG-16 on several ranks that share one GPU.

Each line of standard input is a request for one round of all ranks, which is answered by one line
of JSON. The program ends with its input. A step consists of the forward pass, the loss, the
backward pass with the all-reduce of all gradients, and an update by SGD on each rank.

    printf '\\n\\n\\n' | python3 bench/python/pytorch_ddp_gloo.py --ranks=4 --batch=64
"""

import argparse
import json
import math
import os
import signal
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed
    import torch.multiprocessing
    import torchvision
except ImportError as error:
    sys.exit(f"pytorch_ddp_gloo: needs PyTorch and torchvision: {error}")

CLASSES = 1000


class Rank:
    """The replica of one process."""

    def __init__(self, number, arguments):
        self._batch = arguments.batch
        self._bf16 = arguments.precision == "bf16"
        torch.manual_seed(number)
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
        module = torchvision.models.vgg16(weights=None).cuda()
        module = module.to(memory_format=torch.channels_last)
        self._model = torch.nn.parallel.DistributedDataParallel(
            module, device_ids=[0], gradient_as_bucket_view=True
        )
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-6)
        images = torch.randn(arguments.batch, 3, 224, 224, device="cuda")
        self._images = images.contiguous(memory_format=torch.channels_last)
        self._labels = torch.randint(CLASSES, (arguments.batch,), device="cuda")

    def step(self):
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self._bf16):
            loss = torch.nn.functional.cross_entropy(self._model(self._images), self._labels)
        loss.backward()
        self._optimizer.step()
        return loss

    def seconds(self, iterations):
        torch.distributed.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(iterations):
            self.step()
        torch.cuda.synchronize()
        torch.distributed.barrier()
        return time.perf_counter() - start


def all_go_on(go_on):
    """Returns the argument of rank 0 on every rank."""
    flag = torch.tensor([1 if go_on else 0])
    torch.distributed.broadcast(flag, src=0)
    return bool(flag.item())


def run(number, arguments, store):
    """Runs one rank to its end. Rank 0 reads the requests and answers them."""
    signal.alarm(arguments.seconds)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=number, world_size=arguments.ranks
    )
    rank = Rank(number, arguments)
    loss = rank.step().item()
    if not 0.5 < loss / math.log(CLASSES) < 2:
        raise RuntimeError(f"a loss of {loss} before training, expected: about ln({CLASSES})")
    rank.seconds(arguments.warmup)
    while all_go_on(number == 0 and sys.stdin.readline() != ""):
        seconds = rank.seconds(arguments.iterations)
        if number == 0:
            images = arguments.iterations * arguments.ranks * arguments.batch
            print(json.dumps({"images_per_second": images / seconds}), flush=True)
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64, help="batch size of each rank")
    parser.add_argument("--precision", choices=["tf32", "bf16"], default="tf32")
    parser.add_argument("--iterations", type=int, default=5, help="iterations of a round")
    parser.add_argument("--warmup", type=int, default=2, help="iterations before the first round")
    parser.add_argument("--seconds", type=int, default=600, help="ends after this many seconds")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("pytorch_ddp_gloo: PyTorch finds no GPU")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, os.cpu_count() // arguments.ranks)))
    context = torch.multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        others = [
            context.Process(target=run, args=(number, arguments, store), daemon=True)
            for number in range(1, arguments.ranks)
        ]
        for process in others:
            process.start()
        run(0, arguments, store)
        for process in others:
            process.join()


if __name__ == "__main__":
    main()
