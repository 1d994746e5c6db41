"""One training of the modes experiment: done once, and looked at meanwhile."""

import contextlib
import glob
import math
import os
import statistics
import time

from google.protobuf import text_format

from experiments.cluster import network, run
from experiments.cluster.looks import Looks
from experiments.cluster.stops import Stops
from proto import config_pb2

# Evaluating takes longer than training, so that not all that was saved is looked at: about so many
# looks at equal distances, and those among which the accuracy is reached.
POINTS = 16
# A look moves the parameters through the shards' links, for at most this part of the time.
_LINK_PART = 0.02
# In a ring worker 0 evaluates, while the others wait, so often in a training.
EVALUATIONS = 24
# What the worker and PyTorch may differ by in the accuracy of the same parameters, in points.
_TOLERANCE = 0.05


def execute(kind, experiment, one, programs, images, folder, on_tick):
    """Trains once and returns the result, see is_result; its times are not dilated, but for
    run_seconds. `images` are the experiment's TestImages. Files go to `folder`. `on_tick` is called
    about once a second. Raises RunError, HostError, NetworkError."""
    os.makedirs(folder, exist_ok=True)
    wiring = experiment.wiring(one)
    dilation = experiment.proto.time_dilation
    start = time.monotonic()
    clock_offset = time.time() - start
    looks = stops = None
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network.make(kind, wiring, folder))
        config = experiment.dilated_config(one, net.addresses)
        if not wiring.shards:
            config.training.evaluate_every_iterations = _every(config, images)
        text = text_format.MessageToString(config)
        started = run.Started(net, text, programs, folder, stack)
        started.start_shards()
        started.start_workers()
        if wiring.shards:
            looks = Looks(started, folder, dilation * _look_seconds(experiment, one, wiring))
            stack.callback(looks.close)
        situation = experiment.situations[one.situation]
        if situation.stop_seconds:
            stops = Stops(
                started.workers[-1].pid, programs.worker, dilation * situation.stop_seconds,
                dilation * situation.run_seconds_between, one.seed,
            )
            stack.callback(stops.close)
        started.wait(start + experiment.proto.run_seconds, on_tick)
        if looks:
            looks.close()
            looks.take()
        summaries = started.shut_down()
    told = next(each for each in summaries if "final_accuracy" in each)
    # In a ring all keep in step, and only the worker that evaluates leaves that out of its time.
    timed = summaries if wiring.shards else [told] * len(summaries)
    if looks:
        # Not the first update: the rounds of some modes are a third of the training.
        began = min(each["began"] for each in summaries) - clock_offset
        curve = curve_of(looks.saved, began, images, experiment.proto.accuracy, on_tick)
        _check(config, told, curve[-1][1])
    else:
        curve = [[each["seconds"], 100 * each["accuracy"]] for each in told["evaluations"]]
    seconds = [each["seconds"] for each in timed]
    if stops and not stops.count and max(seconds) > 2 * dilation * situation.run_seconds_between:
        raise run.RunError("the worker that is to be stopped was never stopped")
    for path in glob.glob(os.path.join(glob.escape(folder), "*.safetensors")):
        os.remove(path)
    return {
        "curve": [[seconds / dilation, accuracy] for seconds, accuracy in curve],
        # A worker that waits for nobody ends, and evaluates, before the others.
        "accuracy": curve[-1][1] if looks else 100 * told["final_accuracy"],
        "bytes": statistics.fmean(each["bytes_out"] + each["bytes_in"] for each in summaries),
        "iterations": [each["iterations"] for each in summaries],
        "seconds": [each / dilation for each in seconds],
        "compute_seconds": statistics.fmean(each["compute_seconds"] for each in timed) / dilation,
        "exchange_wait_seconds":
            statistics.fmean(each["exchange_wait_seconds"] for each in timed) / dilation,
        "stops": stops.count if stops else 0,
        "run_seconds": time.monotonic() - start,
    }


_LISTS = {"iterations", "seconds"}
_NUMBERS = {
    "accuracy", "bytes", "compute_seconds", "exchange_wait_seconds", "stops", "run_seconds",
}


def is_result(value):
    """Returns whether a value from a file has the form of a result of `execute`."""
    def is_number(item):
        return isinstance(item, (int, float)) and math.isfinite(item)

    return (
        isinstance(value, dict)
        and set(value) == {"curve", *_LISTS, *_NUMBERS}
        and all(is_number(value[name]) for name in _NUMBERS)
        and all(isinstance(value[name], list) and value[name] for name in (*_LISTS, "curve"))
        and all(is_number(item) for name in _LISTS for item in value[name])
        and all(
            isinstance(point, list) and len(point) == 2 and all(map(is_number, point))
            for point in value["curve"]
        )
    )


def seconds_to(accuracy, result):
    """Returns the seconds until a result's curve reached the percentage; None if it did not."""
    return next((seconds for seconds, value in result["curve"] if value >= accuracy), None)


def _every(config, images):
    training = config.training
    total = training.iterations
    if training.HasField("epochs"):
        total = training.epochs * images.training_images // config.workers // training.batch_size
    return max(1, round(total / EVALUATIONS))


def _look_seconds(experiment, one, wiring):
    link_seconds = experiment.model_bytes / wiring.shards / (one.link_gbps * 125e6)
    return max(experiment.proto.look_seconds, link_seconds / _LINK_PART)


def curve_of(saved, began, images, accuracy, on_tick):
    """Returns (seconds since `began`, accuracy) of looks in equal steps, from the first update on,
    and of those between the first of these that reaches the accuracy and the one before it, up to
    the first that does. One that reached it earlier is not seen if the next of the equal steps
    does not."""
    initial = images.tensors(saved[0][1])

    def has_begun(path):
        return not images.are_equal(images.tensors(path), initial)

    begin = next((i for i, (_, path) in enumerate(saved) if has_begun(path)), len(saved) - 1)
    found = {}

    def look(i):
        if i not in found:
            on_tick()
            found[i] = images.accuracy(images.tensors(saved[i][1]))
        return found[i]

    step = math.ceil((len(saved) - begin) / POINTS)
    is_reached = False
    before = begin
    for i in [*range(begin, len(saved), step), len(saved) - 1]:
        if look(i) >= accuracy and not is_reached:
            is_reached = any(look(k) >= accuracy for k in range(before, i + 1))
        before = i
    return [[saved[i][0] - began, found[i]] for i in sorted(found)]


def _check(config, told, accuracy):
    """Raises RunError if the worker and PyTorch saw different parameters at the end, where no other
    worker has trained on meanwhile."""
    is_same = config.update.policy in (config_pb2.Update.SYNC, config_pb2.Update.QUORUM)
    if is_same and abs(100 * told["final_accuracy"] - accuracy) > _TOLERANCE:
        raise run.RunError(
            f"the worker says {100 * told['final_accuracy']:.2f} %, and PyTorch {accuracy:.2f} % of"
            " the same parameters"
        )
