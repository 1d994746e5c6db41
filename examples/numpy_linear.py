"""Linear regression with numpy alone, by evenshard.Worker.

    python -m evenshard.run --workers 2 --shards 2 examples/numpy_linear.py --steps 200

Each process has points of its own and computes the gradients itself. Arrays of other libraries will
do as well, if they have the buffer protocol or DLPack.
"""

import argparse

import numpy

import evenshard

_WEIGHTS = numpy.linspace(-2, 2, 8)
_OFFSET = 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--points", type=int, default=64, help="of one process in a step")
    options = parser.parse_args()

    weights = numpy.zeros(len(_WEIGHTS), numpy.float32)
    offset = numpy.zeros(1, numpy.float32)
    model = {"weights": weights, "offset": offset}
    rule = "kind: MOMENTUM learning_rate: 0.05 momentum: 0.9"
    with evenshard.Worker(tensors=model, optimizer=rule) as worker:
        draw = numpy.random.default_rng(worker.rank)
        while worker.iteration < options.steps:
            x = draw.standard_normal((options.points, len(weights)), numpy.float32)
            noise = 0.01 * draw.standard_normal(options.points, numpy.float32)
            error = x @ weights + offset - (x @ _WEIGHTS + _OFFSET + noise)
            gradients = {
                "weights": (x * error[:, None]).mean(0).astype(numpy.float32),
                "offset": error.mean(keepdims=True).astype(numpy.float32),
            }
            worker.push_pull(gradients, out=model)
        if worker.rank == 0:
            farthest = max(abs(weights - _WEIGHTS).max(), abs(offset[0] - _OFFSET))
            print(f"after {worker.iteration} steps no weight is off by more than {farthest:.4f}")


if __name__ == "__main__":
    main()
