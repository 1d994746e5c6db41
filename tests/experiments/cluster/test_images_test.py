"""The accuracy of saved parameters, against the same layers as modules of PyTorch."""

import os
import tempfile
import unittest

from google.protobuf import text_format

from experiments.cluster.test_images import TestImages
from experiments.runs.config_file import ConfigError
from proto import config_pb2

try:
    import torch
    from torch import nn
except ImportError:
    torch = None

_IMAGES, _SIDE = 50, 9


def _idx(values):
    """Returns the bytes of an IDX file."""
    head = bytes([0, 0, 8, values.dim()])
    return head + b"".join(n.to_bytes(4, "big") for n in values.shape) + values.numpy().tobytes()


def _write(folder, name, values):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(_idx(values))
    return path


def _config(layers, images, labels):
    config = config_pb2.ClusterConfig()
    text_format.Parse(layers, config.model)
    idx = config.data.idx
    idx.images = idx.test_images = images
    idx.labels = idx.test_labels = labels
    return config


@unittest.skipIf(torch is None, "PyTorch is not installed: test images")
class TestImagesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        draw = torch.Generator().manual_seed(1)
        self._pixels = torch.randint(
            256, (_IMAGES, _SIDE, _SIDE), generator=draw, dtype=torch.uint8)
        self._labels = torch.randint(3, (_IMAGES,), generator=draw, dtype=torch.uint8)
        self._images = _write(folder.name, "images", self._pixels)
        self._label_file = _write(folder.name, "labels", self._labels)

    def _check(self, layers, net):
        images = TestImages(_config(layers, self._images, self._label_file))
        x = self._pixels.double()
        x = ((x - x.mean()) / x.std(unbiased=False)).float().unsqueeze(1)
        with torch.no_grad():
            said = net(x).argmax(1)
        self.assertGreater(len(said.unique()), 1)
        expected = 100 * (said == self._labels).sum().item() / _IMAGES
        tensors = {name.replace(".", "/"): value for name, value in net.state_dict().items()}
        self.assertEqual(images.accuracy(tensors), expected)

    def test_layers_with_all_that_a_config_says_of_them(self):
        torch.manual_seed(2)
        self._check(
            """layer { name: "0" conv { out_channels: 4 kernel: 3 stride: 2 padding: 1 } }
               layer { name: "1" relu {} }
               layer { name: "2" max_pool { kernel: 3 stride: 1 padding: 1 } }
               layer { name: "3" conv { out_channels: 5 kernel: 2 bias: false } }
               layer { name: "4" max_pool { kernel: 2 } }
               layer { name: "6" linear { out_features: 3 bias: false } }""",
            nn.Sequential(
                nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(3, 1, 1),
                nn.Conv2d(4, 5, 2, bias=False), nn.MaxPool2d(2), nn.Flatten(),
                nn.Linear(20, 3, bias=False),
            ),
        )

    def test_other_layers_are_refused(self):
        layers = """layer { name: "0" dropout {} } layer { name: "1" linear { out_features: 3 } }"""
        with self.assertRaisesRegex(ConfigError, "has a layer of kind dropout, allowed: conv"):
            TestImages(_config(layers, self._images, self._label_file))


if __name__ == "__main__":
    unittest.main()
