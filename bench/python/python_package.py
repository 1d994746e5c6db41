#!/usr/bin/env python3
"""Measures the Python package beside what it stands in for. Each round runs both, one after the
other, and the result is the ratio within a round: its median, and the smallest and the largest.

    bazel build //client:libevenshard.so //server:ps //worker //tools/launch
    python3 bench/python/python_package.py goodput   push-pull of VGG-16's tensors, beside worker
    python3 bench/python/python_package.py overhead  a step of Optimizer beside torch.optim.SGD
    python3 bench/python/python_package.py registered  the same with and without register_state()
    python3 bench/python/python_package.py ddp       VGG-16's linear layers, beside DDP over gloo
    python3 bench/python/python_package.py ddp --model=gpt   a GPT with AdamW, beside the same
    python3 bench/python/python_package.py ddp --optimizer=distributed   DistributedOptimizer
    python3 bench/python/python_package.py checks    comparing contents, of a run of 1,000 steps
    python3 bench/python/python_package.py startup   from `import evenshard` to the first step
    python3 bench/python/python_package.py reader    a training of 100 MB, alone and beside a Reader
    python3 bench/python/python_package.py memory    a bfloat16 worker beside torch.optim.AdamW
    python3 bench/python/python_package.py hand_over   state for a worker that comes back
    python3 bench/python/python_package.py link      bfloat16 beside float32, links of 10 Gb/s
    python3 bench/python/python_package.py order     modules registered in other orders, a ring

All but goodput and reader need PyTorch. What is timed is checked, before it or before it counts;
memory counts bytes and checks nothing else.
"""

import argparse
import functools
from collections.abc import Callable

from beside_ddp import ddp, distributed_worker, evenshard_worker, gloo_worker
from checks import checks, checks_worker
from goodput import goodput, push_pull_worker
from hand_over import hand_over, hand_over_worker
from half_width import link, link_worker, memory, memory_worker
from order import ORDERS, USED, order, order_worker
from overhead import OVERHEAD, overhead, overhead_worker, registered
from reading import read_worker, reader, train_worker
from startup import startup, startup_worker

COMMANDS: dict[str, Callable] = {
    "goodput": goodput,
    "overhead": overhead,
    "registered": registered,
    "ddp": ddp,
    "checks": checks,
    "startup": startup,
    "reader": reader,
    "memory": memory,
    "hand_over": hand_over,
    "link": link,
    "order": order,
}
ROLES: dict[str, Callable] = {
    "push_pull": push_pull_worker,
    **dict.fromkeys(OVERHEAD, overhead_worker),
    "evenshard": evenshard_worker,
    "distributed": distributed_worker,
    "gloo": gloo_worker,
    "checks": checks_worker,
    "startup": startup_worker,
    "train": functools.partial(train_worker, reads=False),
    "train_and_read": functools.partial(train_worker, reads=True),
    "read": read_worker,
    "hand_over": hand_over_worker,
    "order": order_worker,
    "memory_torch": functools.partial(memory_worker, dtype=None),
    **{
        f"{what}_{dtype}": functools.partial(worker, dtype=dtype)
        for what, worker in (("memory", memory_worker), ("link", link_worker))
        for dtype in ("float32", "bfloat16")
    },
}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*COMMANDS, "worker"])
    parser.add_argument("role", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=10, help="of a round")
    parser.add_argument("--workers", type=int, default=2, help="of ddp and hand_over")
    parser.add_argument("--model", choices=["linear", "gpt"], default="linear", help="of ddp")
    parser.add_argument("--optimizer", choices=["evenshard", "distributed"], default="evenshard",
                        help="of ddp: Optimizer, or DistributedOptimizer")
    parser.add_argument("--transport", choices=["shared memory", "TCP", "ring"],
                        help="of ddp: only this one; the ring is one over TCP, without shards")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu",
                        help="of ddp: where all workers have their model, with PyTorch 2")
    parser.add_argument("--seed", type=int,
                        help="a model that is drawn: of overhead, ddp, memory, hand_over and link;"
                             " of order: what is drawn at random")
    parser.add_argument("--order", choices=[USED, *ORDERS], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    (ROLES[arguments.role] if arguments.what == "worker" else COMMANDS[arguments.what])(arguments)


if __name__ == "__main__":
    main()
