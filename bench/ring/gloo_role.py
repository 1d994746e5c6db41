"""One process of PyTorch's gloo, which all_reduce.py starts beside others as

  gloo_role.py RANK PROCESSES ADDRESS FLOATS

It obeys the commands of ring_role.cc, over a tensor of FLOATS elements."""

import sys
import time

import torch
import torch.distributed as dist


def _verify(rank, processes, tensor):
    pattern = (torch.arange(tensor.numel(), dtype=torch.int64) % 251 - 125).to(torch.float32)
    tensor.copy_(pattern * (rank + 1))
    dist.all_reduce(tensor)
    if not torch.equal(tensor, pattern * (processes * (processes + 1) // 2)):
        sys.exit("gloo's sum is wrong")
    tensor.zero_()
    return "verified"


def _run(tensor, count):
    start = time.monotonic_ns()
    for _ in range(count):
        dist.all_reduce(tensor)
    return f"{start} {time.monotonic_ns()}"


def main():
    rank, processes, floats = (int(sys.argv[i]) for i in (1, 2, 4))
    dist.init_process_group("gloo", init_method=f"tcp://{sys.argv[3]}", rank=rank,
                            world_size=processes)
    tensor = torch.zeros(floats)
    dist.all_reduce(tensor)
    print("ready", flush=True)
    for line in sys.stdin:
        command, *count = line.split()
        if command == "verify":
            print(_verify(rank, processes, tensor), flush=True)
        else:
            print(_run(tensor, int(count[0])), flush=True)


if __name__ == "__main__":
    main()
