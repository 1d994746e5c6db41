"""What is measured on a GPU, and against what. Programs to compare take turns, round by round."""

import collections
import contextlib
import json
import os
import re
import statistics
import sys
import time

from tools.gpu.processes import ProgramError, Responder, run
from tools.gpu.results import Figure

_PRECISIONS = {"tf32": "TF32", "bf16": "BFLOAT16"}  # as PyTorch's programs and the config say
_VARIANTS = [(precision, batch) for batch in (64, 32) for precision in _PRECISIONS]
# The slowest to prepare comes last: it is what may not fit the time.
_MODES = ("eager", "channels_last", "compile")
_ROUNDS = 5
_LEAST_ROUNDS = 3
_ROUNDS_SECONDS = 60  # about what the least rounds take
_EXCHANGE_ROUNDS = 3
_EXCHANGE_BATCH = 64
# Of a run with exchange: the first iterations are slower, and the last one waits twice, for its own
# parameters and for those after.
_WARMUP_ITERATIONS = 3
_ITERATIONS = {1: 40, 4: 12}  # by workers
_TWO_SHARDS = 'shard=[{address: "unix:0.sock"}, {address: "unix:1.sock"}]'
# Workers that time engines on one GPU at once disturb one another.
_FOUR_WORKERS = ("workers=4", _TWO_SHARDS, "compute.cuda.timed_engines=1")
_LAYER_BASED = "partition.scheme=LAYER_BASED"
# Measurements with exchange, and beside it.
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
    """All that are asked for, measured or not."""
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
        return None  # something else that a library prints
    return answer if isinstance(answer, dict) else None


def exchange_rate(summary, workers, batch):
    """Images per second of all workers, of worker 0's summary."""
    seconds = summary["iteration_seconds"][_WARMUP_ITERATIONS:-1]
    if not seconds:
        raise ProgramError("the run had too few iterations to measure")
    return workers * batch * len(seconds) / sum(seconds)


def longest_waits(events, count=3):
    """What a traced worker's training thread waited for longest, as text: the mean time of each
    wait, longest first; none below 0.05 ms."""
    waits = collections.defaultdict(list)
    for event in events:
        name = event.get("name", "")
        if event.get("ph") == "X" and name.startswith("wait"):
            waits[name].append(event["dur"] * 1e-3)
    means = {name: statistics.mean(durations) for name, durations in waits.items()}
    longest = sorted(means, key=means.get, reverse=True)[:count]
    return ", ".join(f"{name} {means[name]:.1f} ms" for name in longest if means[name] >= 0.05)


class Measurer:
    """Starts the programs of `place` with the environment `options`; fills `results`."""

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
        """One worker against PyTorch, until so many seconds are left as `reserve`."""

        def left():
            return self._budget.left() - reserve

        problems = []
        with contextlib.ExitStack() as stack:
            # One process a mode, so that a compiler's trouble is that of its own mode.
            pytorch = {
                mode: stack.enter_context(self._pytorch("bench/pytorch_vgg16.py"))
                for mode in _MODES
            }
            askers = {}
            for precision, batch in _VARIANTS:
                name = _compute_name(precision, batch)
                with _gathered(problems, name):
                    askers[name] = self._compute(stack, precision, batch, max(1, left()))
            for mode in _MODES:
                longest = 0.0  # to prepare one: a variant that is cut short spoils the others'
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
                    del askers[name]  # it answers no more, or wrongly

    def with_exchange(self, seconds):
        """1 worker and 1 shard against the same without exchange, in turns."""
        problems = []
        with contextlib.ExitStack() as stack:
            ask = self._compute(stack, "tf32", _EXCHANGE_BATCH, seconds)
            for _ in range(_EXCHANGE_ROUNDS):
                self._results.add_round(_BESIDE, ask())
                self._launch_round(_ONE_WORKER, problems, workers=1)
        return _say(problems)

    def several_workers(self, seconds):
        """4 workers and 2 shards, memory-based and layer-based, against PyTorch over gloo."""
        problems = []
        flags = ["--ranks=4", f"--batch={_EXCHANGE_BATCH}", "--precision=tf32"]
        with self._pytorch("bench/pytorch_ddp_gloo.py", *flags) as torch:
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

    def trace(self, name, workers, *overrides):
        """A run that writes trace_NAME.json, and what worker 0 waits for into the notes."""
        path = os.path.join(self._place.out, f"trace_{name}.json")
        summary = self._launch(workers, *overrides, "training.iterations=10", trace=path)
        with open(path, encoding="utf-8") as file:
            waits = longest_waits(json.load(file))
        share = summary["exchange_wait_seconds"] / summary["seconds"]
        note = f"{share:.0%} of its time waiting on the exchange; on average: {waits or 'no wait'}"
        self._results.add_note(f"{name}: worker 0 spent {note} (trace_{name}.json)")
        return note

    def trace_of_several(self, seconds):
        del seconds  # a launch takes what is left
        return self.trace("4x2", 4, *_FOUR_WORKERS)

    def trace_of_one(self, seconds):
        del seconds
        return self.trace("1x1", 1)

    def _compute(self, stack, precision, batch, seconds):
        """Starts a bench/compute; returns what asks it for a round."""
        compute = stack.enter_context(
            Responder(
                [
                    self._place.program("bench/compute"),
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
        # With its own libraries.
        seconds = max(1, int(self._budget.left()))
        return Responder(
            [sys.executable, self._place.program(script), f"--seconds={seconds}", *flags], self._log
        )

    def _pytorch_asker(self, torch, name, request, seconds):
        """Has a variant prepared; returns what asks for a round of it."""

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
        """A run of the cluster; returns worker 0's summary. Raises ProgramError."""
        path = os.path.join(self._place.scratch, "summary.json")
        command = [
            self._place.program("tools/launch/launch"),
            f"--config={self._config}",
            f"--summary={path}",
            f"--set=training.batch_size={_EXCHANGE_BATCH}",
            *(f"--set={override}" for override in overrides),
        ]
        if trace is not None:
            command.append(f"--trace={trace}")
        options = {**self._options, "cwd": self._place.scratch}  # the sockets'
        problem = run(command, min(90, self._budget.left()), self._log, **options).problem()
        if problem:
            raise ProgramError(f"{workers} workers: {problem}")
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def _rate_of(answer):
    if "error" in answer:
        raise ProgramError(answer["error"])
    return answer["images_per_second"]


@contextlib.contextmanager
def _gathered(problems, name):
    """Keeps a problem of one program from the others."""
    try:
        yield
    except ProgramError as error:
        problems.append(f"{name}: {error}")


def _say(problems):
    """The end of a step: what went wrong in it makes it fail as a whole."""
    if problems:
        raise ProgramError("; ".join(dict.fromkeys(problems)))
    return ""
