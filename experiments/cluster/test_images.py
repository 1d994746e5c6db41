"""The accuracy of saved parameters on test images, in PyTorch."""

import gzip
import json

from experiments.runs.config_file import ConfigError

_BATCH = 250  # whose activations fit a processor's cache


class TestImages:
    """Those of a ClusterConfig with IDX files, normalised as the workers do."""

    def __init__(self, config):
        """Raises ConfigError without PyTorch, and if the model has a layer that is not played here.
        """
        try:
            import torch  # pylint: disable=import-outside-toplevel
        except ImportError:
            raise ConfigError(
                "PyTorch is missing, which evaluates what is trained, allowed: with it"
                " (./tools/setup --python)"
            ) from None
        torch.set_num_threads(1)  # several that wait for each other crawl on a busy machine
        self._torch = torch
        idx = config.data.idx
        pixels = self._read(idx.images).double()
        mean, deviation = pixels.mean(), pixels.std(unbiased=False)
        images = self._read(idx.test_images).double().unsqueeze(1)
        self._images = ((images - mean) / deviation).float()
        self._labels = self._read(idx.test_labels).long()
        self._layers = list(config.model.layer)
        self.training_images = len(pixels)
        if not self._layers:
            raise ConfigError(
                "cluster.model: has no layers to evaluate, allowed: a model whose layers the config"
                " has"
            )
        for layer in self._layers:
            kind = layer.WhichOneof("kind")
            if kind not in ("conv", "linear", "relu", "max_pool"):
                raise ConfigError(
                    f"cluster.model: has a layer of kind {kind}, allowed: conv, linear, relu,"
                    " max_pool"
                )

    def _read(self, path):
        """Returns the bytes of an IDX file in their shape."""
        with open(path, "rb") as file:
            content = file.read()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        head = 4 + 4 * content[3]
        shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, head, 4)]
        data = bytearray(content[head:])
        return self._torch.frombuffer(data, dtype=self._torch.uint8).reshape(shape)

    def tensors(self, path):
        """Returns the tensors of a safetensors file by name."""
        with open(path, "rb") as file:
            content = file.read()
        begin = 8 + int.from_bytes(content[:8], "little")
        found = {}
        for name, item in json.loads(content[8:begin]).items():
            if name != "__metadata__":
                first, last = (begin + offset for offset in item["data_offsets"])
                data = bytearray(content[first:last])
                found[name] = self._torch.frombuffer(data, dtype=self._torch.float32).reshape(
                    item["shape"])
        return found

    def are_equal(self, tensors, others):
        return all(tensors[name].equal(value) for name, value in others.items())

    def accuracy(self, tensors):
        """Returns the percentage of the test images that these parameters recognise."""
        right = 0
        with self._torch.no_grad():
            for images, labels in zip(self._images.split(_BATCH), self._labels.split(_BATCH)):
                right += (self._forward(images, tensors).argmax(1) == labels).sum().item()
        return 100 * right / len(self._labels)

    def _forward(self, x, tensors):
        """Linear layers are convolutions of one pixel, and channels are innermost: both have fast
        code in oneDNN where PyTorch itself was built without a fast BLAS, as Debian's is."""
        functional = self._torch.nn.functional
        x = x.contiguous(memory_format=self._torch.channels_last)
        for layer in self._layers:
            kind = layer.WhichOneof("kind")
            if kind in ("conv", "linear"):
                weight, bias = tensors[f"{layer.name}/weight"], tensors.get(f"{layer.name}/bias")
            if kind == "conv":
                conv = layer.conv
                x = functional.conv2d(x, weight, bias, stride=conv.stride, padding=conv.padding)
            elif kind == "linear":
                pixels = x.flatten(1)[:, :, None, None]
                x = functional.conv2d(pixels, weight[:, :, None, None], bias)
            elif kind == "relu":
                x = x.relu()
            else:
                pool = layer.max_pool
                stride = pool.stride if pool.HasField("stride") else pool.kernel
                x = functional.max_pool2d(x, pool.kernel, stride, pool.padding)
        return x.flatten(1)
