"""What a step of Optimizer costs beyond the bytes.

Two models whose passes cost little, so that what is measured is the optimizer:

- 161 tensors of 64 elements, in a module each. The figure is what a step takes beyond one with
  torch.optim.SGD.
- the 161 parameters of ResNet-50 in its 107 layers, 102 MB. The bytes cost time however they are
  exchanged, so the figure is what a step takes beyond one with torch.optim.SGD that also copies
  all gradients out and all parameters in, once each, in one piece.
"""

import copy
import json
import random
import statistics
import time

from measuring import config, report, run, seed_option

# The stages of ResNet-50: how many blocks each has, and how many channels are within them.
RESNET50 = [(3, 64), (4, 128), (6, 256), (3, 512)]
# As many as ResNet-50 has parameters that are tensors of their own.
RESNET50_TENSORS = 161


def resnet50_layers():
    """The shapes of each layer's parameters in ResNet-50: 25,557,032 parameters."""
    layers: list[list[tuple[int, ...]]] = []

    def convolution(outputs, inputs, size):
        layers.extend([[(outputs, inputs, size, size)], [(outputs,), (outputs,)]])

    convolution(64, 3, 7)
    inputs = 64
    for blocks, channels in RESNET50:
        for block in range(blocks):
            convolution(channels, inputs, 1)
            convolution(channels, channels, 3)
            convolution(4 * channels, channels, 1)
            if block == 0:
                convolution(4 * channels, inputs, 1)
            inputs = 4 * channels
    layers.append([(1000, inputs), (1000,)])
    assert sum(map(len, layers)) == RESNET50_TENSORS
    return layers


def small_model():
    """As many parameters as ResNet-50 has, of 64 elements each, in a module each."""
    import torch

    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(64))

        def forward(self, x):
            return x * self.weight

    torch.manual_seed(1)
    return torch.nn.Sequential(*[Scale() for _ in range(RESNET50_TENSORS)])


def layers_model(layers):
    """Layers with parameters of these shapes that compute nothing. All gradients are 1."""
    import torch

    class Touch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *parameters):
            ctx.kinds = [(parameter.shape, parameter.dtype) for parameter in parameters]
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            ones = (gradient.new_ones(shape, dtype=dtype) for shape, dtype in ctx.kinds)
            return (gradient, *ones)

    class Layer(torch.nn.Module):
        def __init__(self, shapes):
            super().__init__()
            for number, shape in enumerate(shapes):
                self.register_parameter(f"part{number}", torch.nn.Parameter(torch.rand(shape)))

        def forward(self, x):
            return Touch.apply(x, *self._parameters.values())

    torch.manual_seed(1)
    return torch.nn.Sequential(*map(Layer, layers))


def drawn_layers(seed):
    """20 to 200 layers of 1 to 3 tensors, of 1 to 65536 elements each."""
    dice = random.Random(seed)
    return [[(round(2 ** dice.uniform(0, 16)),) for _ in range(dice.randint(1, 3))]
            for _ in range(dice.randint(20, 200))]


def nothing():
    pass


def no_copies(model):
    """The bytes of small tensors cost nothing."""
    return nothing


def copies_each_way(model):
    """Copies as many bytes as a model has, there and back."""
    import torch

    size = sum(parameter.numel() for parameter in model.parameters())
    here, there = torch.zeros(size), torch.zeros(size)

    def exchange():
        there.copy_(here)
        here.copy_(there)

    return exchange


OVERHEAD = {
    "overhead_small": (
        lambda seed: small_model(), no_copies, "torch.optim.SGD, 161 tensors of 64 elements"),
    "overhead_resnet50": (
        lambda seed: layers_model(resnet50_layers()), copies_each_way,
        "torch.optim.SGD and a copy each way, ResNet-50's parameters"),
    "overhead_drawn": (
        lambda seed: layers_model(drawn_layers(seed)), copies_each_way,
        "torch.optim.SGD and a copy each way, a model that was drawn"),
    "overhead_registered": (
        lambda seed: small_model(), no_copies, "torch.optim.SGD, with a schedule registered"),
}


def overhead(arguments):
    seed = arguments.seed
    roles = ["overhead_small", "overhead_resnet50"]
    if seed is not None:
        roles = ["overhead_drawn"]
        sizes = [shape[0] for layer in drawn_layers(seed) for shape in layer]
        print(f"  {len(sizes)} tensors in {len(drawn_layers(seed))} layers, {sum(sizes)} elements")
    for role in roles:
        beside = OVERHEAD[role][-1]
        differences = []
        for _ in range(arguments.rounds):
            result = run(config(1, 1, shared_memory="true"), role, arguments.iterations,
                         *seed_option(seed))
            differences.append(1000 * (result["ours"] - result["torch"]))
            print(f"  torch.optim.SGD {1000 * result['torch']:.3f} ms, "
                  f"evenshard.Optimizer {1000 * result['ours']:.3f} ms", flush=True)
        report(f"milliseconds of a step beyond {beside}", differences)


def registered(arguments):
    """What register_state() adds to a step."""
    differences = []
    for _ in range(arguments.rounds):
        plain, with_state = (
            run(config(1, 1, shared_memory="true"), role, arguments.iterations)["ours"]
            for role in ("overhead_small", "overhead_registered"))
        differences.append(1000 * (with_state - plain))
    report("milliseconds that a registered schedule adds to a step, 161 tensors", differences)


def overhead_worker(arguments):
    import torch

    import evenshard

    torch.set_num_threads(1)
    make_model, make_copies, _ = OVERHEAD[arguments.role]
    ours = make_model(arguments.seed)
    theirs = copy.deepcopy(ours)
    inputs = torch.rand(4, 64)

    def steps(model, optimizer, exchange, settle, count):
        start = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            model(inputs).sum().backward()
            optimizer.step()
            exchange()
        settle()
        return (time.perf_counter() - start) / count

    theirs_optimizer = torch.optim.SGD(theirs.parameters(), lr=1e-3)
    with evenshard.Optimizer(
            ours, optimizer=torch.optim.SGD(ours.parameters(), lr=1e-3)) as ours_optimizer:
        if arguments.role == "overhead_registered":
            schedule = torch.optim.lr_scheduler.LambdaLR(ours_optimizer, lambda step: 1.0)
            ours_optimizer.register_state("schedule", schedule)
        runs = {"torch": (theirs, theirs_optimizer, make_copies(theirs), nothing),
                "ours": (ours, ours_optimizer, nothing, ours_optimizer.synchronize)}
        for each in runs.values():
            steps(*each, 20)
        for a, b in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(a, b)
        measured = {name: [] for name in runs}
        for _ in range(5):
            for name, each in runs.items():
                measured[name].append(steps(*each, arguments.iterations))
    print(json.dumps({name: statistics.median(times) for name, times in measured.items()}))
