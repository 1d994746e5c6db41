"""The measurements on a GPU. Programs that are compared take turns, round by round."""

import collections
import contextlib
import json
import os
import re
import statistics
import sys
import time

from tools.gpu.processes import ProgramError, Responder, launch
from tools.gpu.results import Figure

_PRECISIONS = {"tf32": "TF32", "bf16": "BFLOAT16"}  # names in PyTorch and in the config
_VARIANTS = [(precision, batch) for batch in (64, 32) for precision in _PRECISIONS]
# The slowest to prepare comes last, because it may not fit into the time.
_MODES = ("eager", "channels_last", "compile")
_ROUNDS = 5
_LEAST_ROUNDS = 3
_ROUNDS_SECONDS = 60  # about the time of the least number of rounds
_EXCHANGE_ROUNDS = 3
_EXCHANGE_BATCH = 64
# In a run with exchange the first iterations are slower, and the last one waits for two exchanges.
# None of these count.
_WARMUP_ITERATIONS = 3
_ITERATIONS = {1: 40, 4: 12}  # by workers
_TWO_SHARDS = 'shard=[{address: "unix:0.sock"}, {address: "unix:1.sock"}]'
# Workers that time engines on one GPU at the same time disturb each other.
_FOUR_WORKERS = (_TWO_SHARDS, "compute.cuda.timed_engines=1")
_LAYER_BASED = "partition.scheme=LAYER_BASED"
# The names of the measurements with exchange, and of those that they are compared with.
_BESIDE = "compute, tf32, batch 64, beside the exchange"
_ONE_WORKER = "1 worker, 1 shard"
_MEMORY = "4 workers, 2 shards, memory-based"
_LAYER = "4 workers, 2 shards, layer-based"
_GLOO = "PyTorch DDP over gloo, 4 ranks"
_ROUND = re.compile(r"round \d+: ([0-9.]+) images/s")


def _compute_name(precision, batch):
    return f"compute, {precision}, batch {batch}"


def _pytorch_name(mode, precision, batch):
    return f"PyTorch {mode}, {precision}, batch {batch}"


def _figures():
    """Yields every figure that is asked for, whether it can be measured or not."""
    for precision, batch in _VARIANTS:
        yield Figure(
            f"VGG-16 without exchange, {precision}, batch {batch}, over PyTorch's best", 1.0,
            _compute_name(precision, batch),
            *(_pytorch_name(mode, precision, batch) for mode in _MODES),
        )
    yield Figure(
        "1 worker and 1 shard, FULL, tf32, batch 64, over the same without exchange", 0.85,
        _ONE_WORKER, _BESIDE,
    )
    yield Figure(
        "4 workers and 2 shards, tf32, batch 64, over PyTorch DDP", 1.5, _MEMORY, _GLOO
    )
    yield Figure(
        "4 workers and 2 shards, memory-based over layer-based (greedy)", None, _MEMORY, _LAYER
    )


def _compute_ready(line):
    return True if line.startswith("verified") else None


def _compute_rate(line):
    match = _ROUND.match(line)
    return float(match.group(1)) if match else None


def _json_answer(line):
    try:
        answer = json.loads(line)
    except json.JSONDecodeError:
        return None  # a library printed something else
    return answer if isinstance(answer, dict) else None


def exchange_rate(summary, workers, batch):
    """Returns the images per second of all workers together, from worker 0's summary."""
    seconds = summary["iteration_seconds"][_WARMUP_ITERATIONS:-1]
    if not seconds:
        raise ProgramError("the run had too few iterations to measure")
    return workers * batch * len(seconds) / sum(seconds)


def longest_waits(events, count=3):
    """Describes what a traced worker's training thread waited for longest: the mean time of each
    wait, longest first, except those below 0.05 ms."""
    waits = collections.defaultdict(list)
    for event in events:
        name = event.get("name", "")
        if event.get("ph") == "X" and name.startswith("wait"):
            waits[name].append(event["dur"] * 1e-3)
    means = {name: statistics.mean(durations) for name, durations in waits.items()}
    longest = sorted(means, key=means.get, reverse=True)[:count]
    return ", ".join(f"{name} {means[name]:.1f} ms" for name in longest if means[name] >= 0.05)


class Measurer:
    """Runs the programs of `place` with the process options `options` and fills `results`."""

    def __init__(self, place, results, budget, log, options):
        self._place = place
        self._results = results
        self._budget = budget
        self._log = log
        self._options = options
        self._config = place.program("configs/vgg16_cuda.textproto")
        for figure in _figures():
            results.add_figure(figure)

    def without_exchange(self, reserve):
        """Measures one worker against PyTorch, until only `reserve` seconds are left."""

        def left():
            return self._budget.left() - reserve

        problems = []
        with contextlib.ExitStack() as stack:
            # Each mode has its own process, so that a failure affects only that mode.
            pytorch = {
                mode: stack.enter_context(self._pytorch("bench/python/pytorch_vgg16.py"))
                for mode in _MODES
            }
            askers = {}
            for precision, batch in _VARIANTS:
                name = _compute_name(precision, batch)
                with _gathered(problems, name):
                    askers[name] = self._compute(stack, precision, batch, max(1, left()))
            for mode in _MODES:
                longest = 0.0  # the longest preparation; interrupting one would spoil the others'
                for precision, batch in _VARIANTS:
                    name = _pytorch_name(mode, precision, batch)
                    with _gathered(problems, name):
                        seconds = left() - _ROUNDS_SECONDS
                        if seconds <= 1.3 * longest:
                            raise ProgramError("no time was left to prepare it")
                        start = time.monotonic()
                        askers[name] = self._pytorch_asker(
                            pytorch[mode], name, f"{mode} {precision} {batch}", seconds
                        )
                        longest = max(longest, time.monotonic() - start)
            self._take_turns(askers, problems, left)
        return _say(problems)

    def _take_turns(self, askers, problems, left):
        for number in range(_ROUNDS):
            if number >= _LEAST_ROUNDS and left() <= 0:
                break
            for name, ask in list(askers.items()):
                rate = None
                with _gathered(problems, name):
                    rate = ask()
                self._results.add_round(name, rate)
                if rate is None:
                    del askers[name]  # it no longer answers, or answers wrongly

    def with_exchange(self, seconds):
        """Measures 1 worker and 1 shard against the same without exchange, in turns."""
        problems = []
        with contextlib.ExitStack() as stack:
            ask = self._compute(stack, "tf32", _EXCHANGE_BATCH, seconds)
            for _ in range(_EXCHANGE_ROUNDS):
                self._results.add_round(_BESIDE, ask())
                self._launch_round(_ONE_WORKER, problems, workers=1)
        return _say(problems)

    def several_workers(self, seconds):
        """Measures 4 workers and 2 shards in both placements against PyTorch over gloo."""
        problems = []
        flags = ["--ranks=4", f"--batch={_EXCHANGE_BATCH}", "--precision=tf32"]
        with self._pytorch("bench/python/pytorch_ddp_gloo.py", *flags) as torch:
            for number in range(_EXCHANGE_ROUNDS):
                if number > 0 and self._budget.left() < seconds / _EXCHANGE_ROUNDS:
                    problems.append(f"{number} of {_EXCHANGE_ROUNDS} rounds fitted the time")
                    break
                rate = None
                with _gathered(problems, _GLOO):
                    limit = max(1, min(90, self._budget.left()))
                    rate = _rate_of(torch.ask("", _json_answer, limit))
                self._results.add_round(_GLOO, rate)
                self._launch_round(_MEMORY, problems, 4, *_FOUR_WORKERS)
                self._launch_round(_LAYER, problems, 4, *_FOUR_WORKERS, _LAYER_BASED)
        return _say(problems)

    def _trace(self, name, workers, *overrides):
        """Does a run that writes trace_NAME.json, and notes what worker 0 waits for."""
        path = os.path.join(self._place.out, f"trace_{name}.json")
        summary = self._launch(workers, *overrides, "training.iterations=10", trace=path)
        with open(path, encoding="utf-8") as file:
            waits = longest_waits(json.load(file))
        share = summary["exchange_wait_seconds"] / summary["seconds"]
        note = f"{share:.0%} of its time waiting on the exchange; on average: {waits or 'no wait'}"
        self._results.add_note(f"{name}: worker 0 spent {note} (trace_{name}.json)")
        return note

    def trace_of_several(self, _):  # a launch may take all the time that is left
        return self._trace("4x2", 4, *_FOUR_WORKERS)

    def trace_of_one(self, _):
        return self._trace("1x1", 1)

    def _compute(self, stack, precision, batch, seconds):
        """Starts bench/compute and returns a function that asks it for a round."""
        compute = stack.enter_context(
            Responder(
                [
                    self._place.program("bench/compute/compute"),
                    f"--config={self._config}",
                    f"--set=training.batch_size={batch}",
                    f"--set=compute.cuda.precision={_PRECISIONS[precision]}",
                    "--on-request",
                    "--rounds=1000",
                ],
                self._log,
                **self._options,
            )
        )
        compute.ask(None, _compute_ready, seconds)
        return lambda: compute.ask("", _compute_rate, max(1, self._budget.left()))

    def _pytorch(self, script, *flags):
        # PyTorch uses its own libraries.
        seconds = max(1, int(self._budget.left()))
        return Responder(
            [sys.executable, self._place.program(script), f"--seconds={seconds}", *flags], self._log
        )

    def _pytorch_asker(self, torch, name, request, seconds):
        """Prepares a variant and returns a function that asks for a round of it."""

        def ask(seconds):
            answer = torch.ask(request, _json_answer, max(1, seconds))
            return _rate_of(answer), answer["images_per_second_with_sgd"]

        def ask_round():
            rate, with_sgd = ask(min(30, self._budget.left()))
            self._results.add_round(f"{name}, with SGD", with_sgd)
            return rate

        ask(seconds)
        return ask_round

    def _launch_round(self, measurement, problems, workers, *overrides):
        rate = None
        with _gathered(problems, measurement):
            summary = self._launch(
                workers, f"training.iterations={_ITERATIONS[workers]}", *overrides
            )
            rate = exchange_rate(summary, workers, _EXCHANGE_BATCH)
        self._results.add_round(measurement, rate)

    def _launch(self, workers, *overrides, trace=None):
        """Runs a cluster and returns worker 0's summary. Raises ProgramError."""
        command = [
            self._place.program("tools/launch/launch"),
            f"--config={self._config}",
            f"--set=workers={workers}",
            f"--set=training.batch_size={_EXCHANGE_BATCH}",
            *(f"--set={override}" for override in overrides),
        ]
        if trace is not None:
            command.append(f"--trace={trace}")
        scratch = self._place.scratch  # the sockets are there, too
        path, seconds = os.path.join(scratch, "summary.json"), min(90, self._budget.left())
        return launch(command, path, seconds, self._log, **{**self._options, "cwd": scratch})


def _rate_of(answer):
    if "error" in answer:
        raise ProgramError(answer["error"])
    return answer["images_per_second"]


@contextlib.contextmanager
def _gathered(problems, name):
    """Collects the error of one program, so that the others go on."""
    try:
        yield
    except ProgramError as error:
        problems.append(f"{name}: {error}")


def _say(problems):
    """Ends a step, which fails if any problem was collected."""
    if problems:
        raise ProgramError("; ".join(dict.fromkeys(problems)))
    return ""
