#!/usr/bin/env python3
"""Measures PyTorch's DistributedDataParallel over gloo: VGG-16 on several ranks that share one GPU.

Each line of standard input is a request for one round of all ranks, which is answered by one line
of JSON. The program ends with its input. A step consists of the forward pass, the loss, the
backward pass with the all-reduce of all gradients, and an update by SGD on each rank.

    printf '\\n\\n\\n' | python3 bench/python/pytorch_ddp_gloo.py --ranks=4 --batch=64
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time

from pytorch_vgg16 import PRECISIONS, Model, Variant, set_up  # says so if there is no PyTorch

import torch
import torch.distributed
import torch.multiprocessing


class Rank:
    """The replica of one process."""

    def __init__(self, number, arguments):
        torch.manual_seed(number)
        model = Model("channels_last")
        model.call = torch.nn.parallel.DistributedDataParallel(
            model.module, device_ids=[0], gradient_as_bucket_view=True
        )
        self._variant = Variant(model, arguments.precision, arguments.batch)
        self._variant.verify()

    def seconds(self, iterations):
        torch.distributed.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(iterations):
            self._variant.step(updates=True)
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
    set_up()
    rank = Rank(number, arguments)
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
    parser.add_argument("--precision", choices=PRECISIONS, default="tf32")
    parser.add_argument("--iterations", type=int, default=5, help="iterations of a round")
    parser.add_argument("--warmup", type=int, default=2, help="iterations before the first round")
    parser.add_argument("--seconds", type=int, default=600, help="ends after this many seconds")
    arguments = parser.parse_args()
    set_up()
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
