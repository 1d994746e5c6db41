"""A training beside a reader that pulls without pause."""

import json
import os
import subprocess
import sys
import threading
import time

from measuring import TRANSPORTS, config, in_role, report, run

READER_TENSORS = {f"layer{i}.weight": (1024, 1024) for i in range(25)}


def reader(arguments):
    for shared, transport in TRANSPORTS.items():
        ratios, rates = [], []
        for _ in range(arguments.rounds):
            alone, beside = (
                run(config(2, 2, shared_memory=shared), role, arguments.iterations)
                for role in ("train", "train_and_read"))
            ratios.append(alone["seconds"] / beside["seconds"])
            rates.append(beside["gigabytes"] / beside["wall"])
            print(f"  alone {1 / alone['seconds']:.1f} steps/s, "
                  f"beside a reader {1 / beside['seconds']:.1f} steps/s, "
                  f"which pulled {beside['snapshots']} snapshots", flush=True)
        report(f"steps/s beside a reader over steps/s alone, workers by {transport}", ratios)
        report(f"GB/s pulled, workers by {transport}", rates)


def train_worker(arguments, reads):
    import numpy

    import evenshard

    rank = int(os.environ["RANK"])
    tensors = {name: numpy.zeros(shape, numpy.float32) for name, shape in READER_TENSORS.items()}
    # After n iterations every parameter is n.
    with evenshard.Worker(None, tensors, optimizer="kind: SGD learning_rate: 1") as worker:
        for gradient in worker.gradients.values():
            gradient[...] = -1
        for _ in range(3):
            worker.push_pull()
        process = None
        if reads and rank == 0:
            process = subprocess.Popen(in_role("read"), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
            # The other worker waits for this one's next push.
            if process.stdout.readline() != "verified\n":
                sys.exit("the reader has failed")
        start = time.perf_counter()
        for _ in range(arguments.iterations):
            worker.push_pull()
        wall = time.perf_counter() - start
        measured = {"seconds": wall / arguments.iterations, "wall": wall}
        if process is not None:
            read = process.communicate("stop\n")[0]
            measured.update(json.loads(read))
    print(json.dumps(measured))


def read_worker(_):
    import evenshard

    stopped = threading.Event()

    def stop():
        sys.stdin.readline()
        stopped.set()

    threading.Thread(target=stop, daemon=True).start()
    with evenshard.Reader() as source:
        snapshot = source.pull()
        for name, values in snapshot.items():
            if snapshot.iteration < 3 or (values != snapshot.iteration).any():
                sys.exit(f"{name} has wrong values")
        print("verified", flush=True)
        snapshots = 0
        while not stopped.is_set():
            snapshot = source.pull()
            snapshots += 1
    size = sum(values.nbytes for values in snapshot.values())
    print(json.dumps({"snapshots": snapshots, "gigabytes": snapshots * size / 1e9}))
