"""Push-pull of VGG-16's 553 MB, beside the C++ worker."""

import json
import statistics
import sys
import time

from measuring import TRANSPORTS, config, report, run

VGG16 = [(64, 3), (64, 64), (128, 64), (128, 128), (256, 128), (256, 256), (256, 256), (512, 256)]
VGG16 += [(512, 512)] * 5
VGG16_LINEAR = [(4096, 25088), (4096, 4096), (1000, 4096)]


def vgg16_shapes():
    """The tensors of VGG-16 by name: 138,357,544 parameters."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (outputs, inputs) in enumerate(VGG16):
        shapes[f"conv{i}.weight"] = (outputs, inputs, 3, 3)
        shapes[f"conv{i}.bias"] = (outputs,)
    for i, (outputs, inputs) in enumerate(VGG16_LINEAR):
        shapes[f"fc{i}.weight"] = (outputs, inputs)
        shapes[f"fc{i}.bias"] = (outputs,)
    return shapes


def goodput(arguments):
    iterations = arguments.iterations
    for shared, transport in TRANSPORTS.items():
        ratios = []
        for _ in range(arguments.rounds):
            native = run(
                config(1, 1, model='builtin: "vgg16"', shared_memory=shared,
                       more="schedule: SEQUENTIAL")
                + f"compute {{ backend: EMULATED }}\ntraining {{ iterations: {iterations + 2} }}\n")
            ours = run(config(1, 1, shared_memory=shared, more="schedule: SEQUENTIAL"),
                       "push_pull", iterations)
            native_seconds = statistics.median(native["iteration_seconds"][2:])
            ratios.append(native_seconds / ours["seconds"])
            print(f"  C++ {native_seconds:.4f} s, Python {ours['seconds']:.4f} s", flush=True)
        report(f"goodput of Python over C++, {transport}", ratios)


def push_pull_worker(arguments):
    import numpy

    import evenshard

    rate, value = 0.5, 0.25
    tensors = {name: numpy.zeros(shape, numpy.float32) for name, shape in vgg16_shapes().items()}
    with evenshard.Worker(None, tensors,
                          optimizer=f"kind: SGD learning_rate: {rate}") as worker:
        for gradient in worker.gradients.values():
            gradient[...] = value
        for _ in range(2):
            worker.push_pull()
        for name, parameters in worker.parameters.items():
            if not numpy.all(parameters == -2 * rate * value):
                sys.exit(f"{name} has wrong values")
        seconds = []
        for _ in range(arguments.iterations):
            start = time.perf_counter()
            worker.push_pull()
            seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": statistics.median(seconds)}))
