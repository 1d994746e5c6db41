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
    loss <mean softmax cross-entropy, in training>
    correct <images whose largest score is their label's>
    evaluation_loss, evaluation_correct    (the same, by the running statistics)
    labels <label> ...
    tensor <name> <dimension> ...       (any number, in the order of the data)
    end

followed by the tensors' elements, row-major, little-endian float32. The tensors are
images, scores, scores/gradient, and for each parameter NAME and NAME/gradient. For a running
statistic, NAME/gradient is what training on the batch takes from it.
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


def global_avg_pool():
    return None, 'layer { global_avg_pool {} }', lambda c: nn.AdaptiveAvgPool2d(1)


def batch_norm(name, epsilon=1e-5, momentum=0.1):
    spec = (f'layer {{ name: "{name}" batch_norm {{ epsilon: {epsilon} '
            f'momentum: {momentum} }} }}')

    def make_module(channels):
        norm = nn.BatchNorm2d(channels, epsilon, momentum)
        for tensor in (norm.weight.data, norm.running_var):
            tensor.uniform_(0.5, 1.5)
        for tensor in (norm.bias.data, norm.running_mean):
            tensor.normal_()
        return norm

    return name, spec, make_module


class Residual(nn.Module):
    def __init__(self, body, shortcut):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def residual(body, shortcut=()):
    """Named by its layers; they are made when it meets its input."""
    specs = [f'{field} {spec[len("layer "):]}' for field, layers in
             (('body', body), ('shortcut', shortcut)) for _, spec, _ in layers]
    return None, f'layer {{ residual {{ {" ".join(specs)} }} }}', (body, shortcut)


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
    # Channels that fill no vector and that do, an epsilon that is felt, and the pooling of all.
    'batch_norm': (4, (3, 7, 6), [
        conv('conv1', 5, 3, bias=False), batch_norm('bn1', epsilon=0.1, momentum=0.25), relu(),
        conv('conv2', 16, 2, bias=False), batch_norm('bn2'), relu(), global_avg_pool(),
        linear('fc', 6)]),
    # The two blocks of a ResNet: with a projection and a stride, and with the identity.
    'residual': (3, (3, 9, 9), [
        conv('conv1', 8, 3, stride=2, padding=1, bias=False), batch_norm('bn1'), relu(),
        residual([conv('a.conv1', 16, 3, stride=2, padding=1, bias=False), batch_norm('a.bn1'),
                  relu(), conv('a.conv2', 16, 3, padding=1, bias=False), batch_norm('a.bn2')],
                 [conv('a.down', 16, 1, stride=2, bias=False), batch_norm('a.down_bn')]),
        residual([conv('b.conv1', 4, 1, bias=False), batch_norm('b.bn1'), relu(),
                  conv('b.conv2', 16, 1, bias=False), batch_norm('b.bn2')]),
        global_avg_pool(), linear('fc', 5)]),
    # Blocks in blocks, the images read twice, and layers in place where a branch begins or ends.
    'branches': (2, (4, 5, 5), [
        residual([relu(), conv('a', 4, 3, padding=1)]),
        residual([residual([conv('b', 4, 1), relu()], [relu()]), relu()],
                 [conv('c', 4, 1), relu()]),
        residual([relu()]),
        linear('fc', 3)]),
}


def build(layers, activation, named):
    """The modules of `layers`, whose tensors go to `named`, and what they make of `activation`."""
    modules = nn.Sequential()
    for name, _, make_module in layers:
        if isinstance(make_module, tuple):
            module = Residual(*(build(branch, activation, named)[0] for branch in make_module))
        else:
            module = make_module(activation.shape[1]).double()
            module.eval()(activation)  # a lazy module makes its parameters
            for key, tensor in module.state_dict(keep_vars=True).items():
                if not tensor.is_floating_point():
                    continue  # the count of batches
                # Rounded to float32, which is what the file holds.
                tensor.data = tensor.data.float().double()
                named[f'{name}/{key.split(".")[-1]}'] = tensor
        activation = module.eval()(activation)
        modules.append(module)
    return modules, activation


def make(images, shape, layers):
    """The text lines and the tensors of one case."""
    value = torch.randn(images, *shape).float().double()
    named = {}
    net, activation = build(layers, value, named)
    labels = torch.randint(activation.flatten(1).shape[1], (images,))

    evaluated = net(value).flatten(1)
    evaluation_loss = nn.functional.cross_entropy(evaluated, labels)
    before = {name: tensor.detach().clone() for name, tensor in named.items()}
    scores = net.train()(value).flatten(1)
    scores.retain_grad()
    loss = nn.functional.cross_entropy(scores, labels)
    loss.backward()

    tensors = {'images': value, 'scores': scores, 'scores/gradient': scores.grad}
    for name, tensor in named.items():
        tensors[name] = before[name]
        tensors[f'{name}/gradient'] = (tensor.grad if tensor.requires_grad
                                       else before[name] - tensor)
    channels, height, width = shape
    spec = ' '.join([f'input {{ channels: {channels} height: {height} width: {width} }}'] +
                    [spec for _, spec, _ in layers])
    lines = [
        'golden 1', f'model {spec}', f'loss {loss.item():.17g}',
        f'correct {(scores.argmax(1) == labels).sum().item()}',
        f'evaluation_loss {evaluation_loss.item():.17g}',
        f'evaluation_correct {(evaluated.argmax(1) == labels).sum().item()}',
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
