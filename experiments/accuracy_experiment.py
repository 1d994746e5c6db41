"""Compares what the update modes train, at the same number of images; see docs/modes.md.

    bazel run -c opt //experiments:accuracy -- --config=configs/mnist_mlp.textproto

Trains the config by launch with each mode, number of workers and seed, and prints the accuracy on
the test images. With --drawn it draws the optimizer, its numbers, the batch, the number of workers
and that of local steps, so that the comparison does not depend on one choice of them:

    ... --drawn=4 --mode='policy: SYNC' --mode='policy: SYNC | local={steps: STEPS optimizer
    {OPTIMIZER}} | optimizer={kind: NESTEROV learning_rate: 0.6 momentum: 0.9}'

Exit code: 0 if all runs are done; 1 after a failure; 2 for a wrong command line; 130 after Ctrl-C.
"""

import json
import os
import random
import statistics
import subprocess
import tempfile

from experiments import program
from experiments.cluster import run

_WORKERS = "2,4,8"
_MODES = (
    "policy: SYNC",
    "policy: SSP staleness: 4",
    "policy: ASYNC",
    "policy: ASYNC asynchrony { rate: CONSTANT velocity: SHARED }",
)


def add_flags(add):
    add("--config", required=True, metavar="FILE", help="a ClusterConfig with test images")
    add("--mode", action="append", default=[], metavar="TEXT", dest="modes",
        help="an Update in text format, to compare with the first one, and other overrides\n"
             "behind it, each after a vertical bar; with --drawn they may name what is drawn,\n"
             "the OPTIMIZER and the local STEPS;\ndefault: " + "\n         ".join(_MODES))
    add("--workers", help=f"numbers of workers, unless they are drawn; default: {_WORKERS}")
    add("--seeds", type=program.count, default=3, help="of each; default: 3")
    add("--epochs", type=program.count, default=3, help="default: 3")
    add("--drawn", type=program.count_or_none, default=0, metavar="N",
        help="draws N trainings instead")
    add("--draw_seed", type=int, default=1, help="of the draw; default: 1")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", dest="overrides",
        help="as launch's")
    add("--out", metavar="FILE", help="writes the result there as JSON")


def _accuracy(programs, arguments, workers, mode, seed, more):
    """Trains once, and returns the percentage of test images that are recognised in the end."""
    update, *others = (each.strip() for each in mode.split("|"))
    changes = [
        'shard=[{address: "127.0.0.1:0"}, {address: "127.0.0.1:0"}]', f"workers={workers}",
        f"update={{{update}}}", f"training.epochs={arguments.epochs}",
        f"training.evaluate_every_epochs={arguments.epochs}", "training.required_accuracy=0",
        f"training.seed={seed}", *more, *others, *arguments.overrides,
    ]
    with tempfile.TemporaryDirectory() as folder:
        summary = os.path.join(folder, "summary.json")
        command = [programs.launch, f"--config={program.from_user(arguments.config)}",
                   f"--summary={summary}", *(f"--set={change}" for change in changes)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        if done.returncode != 0:
            raise run.RunError(f"launch failed with {mode}:\n{done.stdout[-2000:]}")
        with open(summary, encoding="utf-8") as file:
            return 100 * json.load(file)["final_accuracy"]


def _for_drawn(mode, optimizer, steps):
    """A mode with what was drawn, and without what a drawn optimizer has not."""
    if not optimizer:
        return mode
    has_velocity = "MOMENTUM" in optimizer or "NESTEROV" in optimizer
    mode = mode if has_velocity else mode.replace(" velocity: SHARED", "")
    return mode.replace("OPTIMIZER", optimizer).replace("STEPS", str(steps))


def _trainings(arguments):
    """Yields a name, the workers, the overrides, the optimizer and the local steps of each."""
    if not arguments.drawn:
        for workers in arguments.workers.split(","):
            yield f"{workers} workers", int(workers), [], "", 0
        return
    dice = random.Random(arguments.draw_seed)
    dice_of_steps = random.Random(arguments.draw_seed)  # the others' numbers do not depend on it
    for _ in range(arguments.drawn):
        workers = dice.randint(2, 8)
        kind = dice.choice(("MOMENTUM", "NESTEROV", "ADAM", "SGD"))
        rate = {"SGD": 0.1, "ADAM": 0.004}.get(kind, 0.03) * 2 ** dice.uniform(-1, 1)
        has_velocity = kind in ("MOMENTUM", "NESTEROV")
        momentum = f" momentum: {dice.uniform(0.8, 0.95):.3f}" if has_velocity else ""
        batch = dice.choice((32, 64, 128))
        optimizer = f"kind: {kind} learning_rate: {rate:.4f}{momentum}"
        steps = dice_of_steps.randint(4, 64)
        yield (f"{workers} workers, batch {batch}, {optimizer}, STEPS {steps}", workers,
               [f"optimizer={{{optimizer}}}", f"training.batch_size={batch}"], optimizer, steps)


def work(arguments, programs):
    if not os.path.isfile(program.from_user(arguments.config)):
        raise program.UsageError(f"--config: is {arguments.config}, allowed: a file that exists")
    if arguments.workers is None:
        arguments.workers = _WORKERS
    elif arguments.drawn:
        raise program.UsageError("--workers: is given with --drawn, which draws them, allowed: one")
    if not all(each.isdecimal() and int(each) > 0 for each in arguments.workers.split(",")):
        raise program.UsageError(
            f"--workers: is {arguments.workers}, allowed: numbers above 0, separated by commas")
    modes = arguments.modes or list(_MODES)
    if not arguments.drawn and any("OPTIMIZER" in mode or "STEPS" in mode for mode in modes):
        raise program.UsageError("--mode: names OPTIMIZER or STEPS, allowed: only with --drawn")
    if arguments.out:
        program.check_can_write("--out", arguments.out)
    results = []
    for name, workers, more, optimizer, steps in _trainings(arguments):
        print(name, flush=True)
        least = None
        for mode in modes:
            accuracies = [
                _accuracy(programs, arguments, workers, _for_drawn(mode, optimizer, steps), seed,
                          more)
                for seed in range(1, arguments.seeds + 1)
            ]
            median = statistics.median(accuracies)
            least = median if least is None else least
            print(f"  {median:6.2f} %  ({min(accuracies):.2f} to {max(accuracies):.2f})"
                  f"  {median - least:+6.2f}  {mode}", flush=True)
            results.append({"training": name, "mode": mode, "accuracies": accuracies})
    if arguments.out:
        with open(program.from_user(arguments.out), "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
