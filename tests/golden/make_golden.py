#!/usr/bin/env python3
"""Makes the golden files of the compute backends' tests with PyTorch.

Run it again, from anywhere, to make the same files again:

    apt-get install -y --no-install-recommends python3-torch
    /usr/bin/python3 tests/golden/make_golden.py

Each CASE below becomes CASE.golden beside this script: a small network, its input and
parameters (random, rounded to float32), and what PyTorch computes from them in
float64. The file is a header of text lines

    golden 1
    model <ModelSpec in protobuf text format>
    loss <mean softmax cross-entropy>
    correct <images whose largest score is their label's>
    labels <label> ...
    tensor <name> <dimension> ...       (any number, in the order of the data)
    end

followed by the tensors' elements, row-major, little-endian float32. The tensors are
images, scores, scores/gradient, and for each parameter NAME and NAME/gradient.
"""

import pathlib
import struct

import torch
from torch import nn


def conv(name, out, kernel, stride=1, padding=0, bias=True):
    spec = (f'layer {{ name: "{name}" conv {{ out_channels: {out} kernel: {kernel} '
            f'stride: {stride} padding: {padding} bias: {str(bias).lower()} }} }}')
    return name, spec, lambda c: nn.Conv2d(c, out, kernel, stride, padding, bias=bias)


def linear(name, out, bias=True):
    spec = (f'layer {{ name: "{name}" linear {{ out_features: {out} '
            f'bias: {str(bias).lower()} }} }}')
    return name, spec, lambda c: nn.Sequential(nn.Flatten(), nn.LazyLinear(out, bias=bias))


def max_pool(kernel, stride, padding=0):
    spec = f'layer {{ max_pool {{ kernel: {kernel} stride: {stride} padding: {padding} }} }}'
    return None, spec, lambda c: nn.MaxPool2d(kernel, stride, padding)


def relu():
    return None, 'layer { relu {} }', lambda c: nn.ReLU()


# name: (images, (channels, height, width), layers)
CASES = {
    # Three fully connected layers; the middle one without a bias.
    'mlp': (5, (1, 8, 8), [
        linear('fc1', 16), relu(), linear('fc2', 16, bias=False), relu(), linear('fc3', 10)]),
    # Strides and paddings, an even kernel, no bias, an image that is not square.
    'convolution': (3, (3, 9, 8), [
        conv('conv1', 4, 3, stride=2, padding=1), relu(),
        conv('conv2', 5, 2, padding=1, bias=False), relu(),
        conv('conv3', 6, 3, stride=2, padding=2), linear('fc', 6)]),
    # Pooling that overlaps, that is padded, and that leaves a border out.
    'pooling': (2, (2, 13, 11), [
        conv('conv1', 6, 3, padding=1), max_pool(3, 2), relu(),
        conv('conv2', 5, 3, padding=1), max_pool(3, 2, padding=1),
        max_pool(2, 2), linear('fc', 5)]),
    # Channels that fill whole vectors, and a layer order as in LeNet and VGG.
    'vector_channels': (4, (1, 12, 12), [
        conv('conv1', 16, 3, padding=1), relu(), max_pool(2, 2),
        conv('conv2', 32, 3, padding=1), relu(), max_pool(2, 2),
        linear('fc1', 18), relu(), linear('fc2', 10)]),
    # The first layers of AlexNet, small.
    'large_kernel': (2, (3, 35, 35), [
        conv('conv1', 8, 11, stride=4, padding=2), relu(), max_pool(3, 2),
        linear('fc', 4)]),
    # No fully connected layer: the scores come out of a convolution.
    'fully_convolutional': (3, (2, 6, 6), [
        conv('conv1', 16, 3), relu(), conv('conv2', 7, 4)]),
}


def parameter_name(layer, parameter):
    return f'{layer}/{"weight" if parameter.dim() > 1 else "bias"}'


def make(images, shape, layers):
    """The text lines and the tensors of one case."""
    modules = []
    value = torch.randn(images, *shape).float().double()
    named = {}
    activation = value
    for name, _, make_module in layers:
        module = make_module(activation.shape[1]).double()
        activation = module(activation)
        for parameter in module.parameters():
            # Rounded to float32, which is what the file holds.
            parameter.data = parameter.data.float().double()
            named[parameter_name(name, parameter)] = parameter
        modules.append(module)
    labels = torch.randint(activation.flatten(1).shape[1], (images,))

    scores = nn.Sequential(*modules)(value).flatten(1)
    scores.retain_grad()
    loss = nn.functional.cross_entropy(scores, labels)
    loss.backward()

    tensors = {'images': value, 'scores': scores, 'scores/gradient': scores.grad}
    for name, parameter in named.items():
        tensors[name] = parameter
        tensors[f'{name}/gradient'] = parameter.grad
    channels, height, width = shape
    spec = ' '.join([f'input {{ channels: {channels} height: {height} width: {width} }}'] +
                    [spec for _, spec, _ in layers])
    lines = [
        'golden 1', f'model {spec}', f'loss {loss.item():.17g}',
        f'correct {(scores.argmax(1) == labels).sum().item()}',
        'labels ' + ' '.join(str(label.item()) for label in labels)
    ]
    return lines, tensors


def write(path, lines, tensors):
    with open(path, 'wb') as file:
        for name, tensor in tensors.items():
            lines.append(f'tensor {name} ' + ' '.join(map(str, tensor.shape)))
        file.write(('\n'.join(lines) + '\nend\n').encode())
        for tensor in tensors.values():
            elements = tensor.detach().flatten().tolist()
            file.write(struct.pack(f'<{len(elements)}f', *elements))


def main():
    folder = pathlib.Path(__file__).resolve().parent
    for index, (name, case) in enumerate(CASES.items()):
        torch.manual_seed(index + 1)
        path = folder / f'{name}.golden'
        write(path, *make(*case))
        print(f'{path.name}: {path.stat().st_size} bytes')


if __name__ == '__main__':
    main()
