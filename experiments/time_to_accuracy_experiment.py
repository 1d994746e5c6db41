"""Trains a config with several update modes, and says when each had an accuracy; see docs/modes.md.

    bazel run -c opt //experiments:time_to_accuracy -- --slow=4 \\
        --config=configs/modes_mnist.textproto

The parameters are taken from the shards meanwhile, with `psctl save`, and evaluated on the test
images afterwards, so that no worker stops for it. The time counts from the first update. Needs
PyTorch. Exit code: 0 if all runs are done; 1 after a failure; 2 for a wrong command line; 3 without
network namespaces; 130 after Ctrl-C.
"""

import contextlib
import dataclasses
import glob
import gzip
import json
import os
import statistics
import tempfile
import threading
import time

from google.protobuf import text_format

from experiments import program
from experiments.cluster import network, run
from proto import config_pb2

# A mode is changes of fields, as launch's --set, apart by ";".
_MODES = (
    "update={policy: SYNC}",
    "update={policy: SSP staleness: 4}",
    "update={policy: ASYNC}",
)
_SAVE_SECONDS = 0.5
_STRIDE = 4  # evaluating all takes longer than training
_RUN_SECONDS = 3600


def add_flags(add):
    add("--config", required=True, metavar="FILE", help="a ClusterConfig with MNIST's test images")
    add("--mode", action="append", default=[], metavar="CHANGES", dest="modes",
        help='changes of the config, apart by ";", to compare with the first one;\ndefault: '
        + "\n         ".join(_MODES))
    add("--accuracy", type=float, default=98.5, help="in percent; default: 98.5")
    add("--seeds", type=int, default=3, help="of each mode; default: 3")
    add("--slow", type=float, default=1, metavar="FACTOR",
        help="how many times longer a pass of the last worker takes; default: 1")
    add("--link_gbps", type=float, metavar="R",
        help="each process has a network namespace and a link of this rate;\ndefault: this"
        " machine's own network")
    add("--out", metavar="FILE", help="writes the result there as JSON")


@dataclasses.dataclass(frozen=True)
class _Links:
    """What network.make wants of an experiment and a run."""

    workers: int
    shards: int
    link_gbps: float = 10
    time_dilation: float = 1
    mtu: int = 1500

    @property
    def proto(self):
        return self

    def shard_link_gbps(self, _):
        return self.link_gbps


class _Saver:
    """Takes the parameters of a run at about equal times."""

    def __init__(self, started, folder):
        self._started = started
        self._folder = folder
        self.saved = []  # (seconds, path)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self):
        while not self._stop.wait(_SAVE_SECONDS):
            path = os.path.join(self._folder, f"{len(self.saved)}.safetensors")
            before = time.monotonic()
            with contextlib.suppress(run.RunError):  # until the shards are up
                self._started.psctl("save", f"--out={path}")
                self.saved.append((before, path))

    def close(self):
        self._stop.set()
        self._thread.join()


def _once(programs, config, links, kind):
    """Trains once. Returns when which parameters were saved, and the workers' summaries."""
    folder = tempfile.mkdtemp(prefix="time_to_accuracy.")
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network.make(kind, links, links, folder))
        for shard, address in zip(config.shard, net.addresses):
            shard.address = address
        text = text_format.MessageToString(config)
        started = run.Started(net, text, programs, folder, stack)
        started.start_shards()
        started.start_workers()
        saver = _Saver(started, folder)
        try:
            started.wait(time.monotonic() + _RUN_SECONDS, lambda: None)
        finally:
            saver.close()
        last = os.path.join(folder, "last.safetensors")
        started.psctl("save", f"--out={last}")
        summaries = started.shut_down()
    return [*saver.saved, (time.monotonic(), last)], summaries, folder


class _TestImages:
    """MNIST's, normalised as the workers do."""

    def __init__(self, config):
        import torch  # pylint: disable=import-outside-toplevel

        self._torch = torch
        idx = config.data.idx

        def read(path, head):
            with gzip.open(path) as file:
                return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)[head:]

        pixels = read(idx.images, 16).double()
        mean, deviation = pixels.mean(), pixels.std(unbiased=False)
        images = read(idx.test_images, 16).double().reshape(-1, 1, 28, 28)
        self._images = ((images - mean) / deviation).float()
        self._labels = read(idx.test_labels, 8).long()
        self._layers = list(config.model.layer)

    def tensors(self, path):
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

    def accuracy(self, path):
        """The percentage of test images that the saved parameters recognise."""
        functional = self._torch.nn.functional
        tensors = self.tensors(path)
        x = self._images
        with self._torch.no_grad():
            for layer in self._layers:
                kind = layer.WhichOneof("kind")
                if kind in ("conv", "linear"):
                    weight, bias = tensors[f"{layer.name}/weight"], tensors[f"{layer.name}/bias"]
                if kind == "conv":
                    x = functional.conv2d(x, weight, bias, padding=layer.conv.padding)
                elif kind == "linear":
                    x = functional.linear(x.flatten(1), weight, bias)
                elif kind == "relu":
                    x = x.relu()
                elif kind == "max_pool":
                    x = functional.max_pool2d(x, layer.max_pool.kernel)
                else:
                    raise program.UsageError(
                        f"--config: has a layer of kind {kind}, allowed: conv, linear, relu,"
                        " max_pool")
        return 100 * (x.argmax(1) == self._labels).double().mean().item()


def _first(saved, is_good):
    """The index of the first that is good, looking at few of them; None if none of these is."""
    for i in range(0, len(saved), _STRIDE):
        if is_good(i):
            return next(k for k in range(max(i - _STRIDE + 1, 0), i + 1) if is_good(k))
    return None


def _measure(arguments, programs, images, config, links, kind):
    """Returns the seconds until the accuracy, None if it was not reached, and other figures."""
    saved, summaries, folder = _once(programs, config, links, kind)
    initial = images.tensors(saved[0][1])

    def has_changed(i):
        now = images.tensors(saved[i][1])
        return not all(now[name].equal(value) for name, value in initial.items())

    accuracies = {}

    def accuracy(i):
        if i not in accuracies:
            accuracies[i] = images.accuracy(saved[i][1])
        return accuracies[i]

    begin = next(i for i in range(len(saved)) if has_changed(i))
    reached = _first(saved, lambda i: accuracy(i) >= arguments.accuracy)
    told = 100 * next(each["final_accuracy"] for each in summaries if "final_accuracy" in each)
    # Otherwise others have trained on while that worker evaluated.
    is_same = config.update.policy in (config_pb2.Update.SYNC, config_pb2.Update.QUORUM)
    if is_same and abs(told - accuracy(len(saved) - 1)) > 0.05:
        raise run.RunError(
            f"the worker says {told:.2f} %, and PyTorch {accuracy(len(saved) - 1):.2f} % of the"
            f" same parameters; see {folder}")
    for path in glob.glob(os.path.join(folder, "*")):
        os.remove(path)
    os.rmdir(folder)
    return {
        "seconds": None if reached is None else saved[reached][0] - saved[begin][0],
        "accuracy": told,
        "bytes": sum(each["bytes_out"] + each["bytes_in"] for each in summaries) / len(summaries),
        "iterations": [each["iterations"] for each in summaries],
        "curve": [(saved[i][0] - saved[begin][0], value) for i, value in accuracies.items()],
    }


def _config(arguments, mode, seed):
    """The config of a run, with the paths of its data made whole."""
    path = program.from_user(arguments.config)
    with open(path, encoding="utf-8") as file:
        config = text_format.Parse(file.read(), config_pb2.ClusterConfig())
    for change in [*mode.split(";"), f"training.seed={seed}"]:
        field, _, value = change.strip().partition("=")
        *outer, last = field.split(".")
        message = config
        for name in outer:
            message = getattr(message, name)
        message.ClearField(last)
        text_format.Merge(f"{last}: {value}", message)
    if arguments.slow != 1:
        config.compute.pace.worker_slowdown.extend([1] * (config.workers - 1) + [arguments.slow])
    folder = os.path.dirname(os.path.abspath(path))
    for name in ("images", "labels", "test_images", "test_labels"):
        setattr(config.data.idx, name, os.path.join(folder, getattr(config.data.idx, name)))
    config.training.evaluate_every_epochs = 0
    return config


def work(arguments, programs):
    if not os.path.isfile(program.from_user(arguments.config)):
        raise program.UsageError(f"--config: is {arguments.config}, allowed: a file that exists")
    modes = arguments.modes or list(_MODES)
    kind = network.HOST if arguments.link_gbps is None else network.NAMESPACES
    images = None
    results = []
    for mode in modes:
        runs = []
        for seed in range(1, arguments.seeds + 1):
            try:
                config = _config(arguments, mode, seed)
            except (AttributeError, ValueError, text_format.ParseError) as error:
                raise program.UsageError(
                    f"--mode: is {mode}, which cannot be applied: {error}; allowed: changes of the"
                    " config's fields, such as update={policy: ASYNC}") from None
            images = images or _TestImages(config)
            links = _Links(config.workers, len(config.shard), arguments.link_gbps or 10)
            runs.append(_measure(arguments, programs, images, config, links, kind))
        results.append({"mode": mode, "runs": runs})
        print(_line(mode, runs), flush=True)
    if arguments.out:
        with open(program.from_user(arguments.out), "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


def _line(mode, runs):
    times = [each["seconds"] for each in runs]
    accuracies = [each["accuracy"] for each in runs]
    if None in times:
        text = "not reached by all"
    else:
        text = f"{statistics.median(times):6.1f} s ({min(times):.1f} to {max(times):.1f})"
    moved = statistics.median(each["bytes"] for each in runs)
    return (f"{text}  {statistics.median(accuracies):6.2f} % at the end"
            f" ({min(accuracies):.2f} to {max(accuracies):.2f})  {moved / 1e6:.2f} MB per worker"
            f"  {mode}")
