"""Measures what checkpoints cost on this machine; see docs/performance.md, "Recovery".

    bazel run -c opt //experiments:checkpoints -- --folder=DIR

Trains VGG-16 with ADAM by launch, without and with a checkpoint every 50 iterations in turn, with
workers that compute as an emulated device does. Every checkpoint is verified. Beside each one, the
same bytes are written to the same disk by one thread from one file's beginning to its end, past the
page cache, and synced. Exit code: 0 if all runs are done; 1 after a failure; 2 for a wrong command
line; 130 after Ctrl-C.
"""

import json
import mmap
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time

from experiments import program
from experiments.cluster import run

_CONFIG = """\
model {{ builtin: "vgg16" shrink: {shrink} }}
partition {{ scheme: MEMORY_BASED }}
{shards}
workers: {workers}
update {{ policy: SYNC }}
optimizer {{ kind: ADAM learning_rate: 0.001 }}
training {{ batch_size: {batch} iterations: {iterations} }}
compute {{ backend: EMULATED emulated {{ device: "rtx_2080_ti" }} }}
limits {{ startup_seconds: 120 }}
"""
_RECOVERY = """\
recovery {{
  silence_seconds: 30
  checkpoint {{
    folder: "{folder}"
    every_iterations: {every}
    keep: 2
    buffer_bytes: 536870912
  }}
}}
"""
_CHECKPOINTS = 2  # of a run
_WARMUP = 5
_BLOCK = 4 << 20


def add_flags(add):
    add("--folder", required=True, metavar="DIR", help="on the disk to measure")
    add("--workers", type=program.count, default=2, help="default: 2")
    add("--shards", type=program.count, default=2, help="default: 2")
    add("--batch", type=program.count, default=128, help="images per worker; default: 128")
    add("--every", type=program.count, default=50, help="iterations; default: 50")
    add("--repeats", type=program.count, default=3, help="default: 3")
    add("--shrink", type=program.count, default=1, metavar="N",
        help="a model of 1/N of the size, for a try")
    add("--out", metavar="FILE", help="writes the result there as JSON")


class _Writing(threading.Thread):
    """Watches how long each checkpoint takes, from its first file to its manifest: `seconds` by
    iteration."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.seconds = {}
        self._folder = folder
        self._ended = threading.Event()

    def run(self):
        began = {}
        done = set()
        is_last = False
        while not is_last:
            is_last = self._ended.wait(0.005)
            now = time.monotonic()
            for name in os.listdir(self._folder):
                if not name.startswith("generation-") or name in done:
                    continue
                began.setdefault(name, now)
                if os.path.exists(os.path.join(self._folder, name, "manifest.json")):
                    done.add(name)
                    self.seconds[int(name.rpartition("-")[2])] = now - began[name]

    def stop(self):
        self._ended.set()
        self.join()


def _train(arguments, programs, folder, with_checkpoints):
    """Returns the mean seconds of an iteration, those of each checkpoint, the bytes per second of
    each while there was something to write, and its bytes."""
    checkpoints = os.path.join(folder, "checkpoints")
    os.makedirs(checkpoints)
    # All checkpoints that are measured are written while the training goes on. One more follows it.
    iterations = arguments.every * (_CHECKPOINTS + 1) - 1
    text = _CONFIG.format(
        shrink=arguments.shrink, workers=arguments.workers, batch=arguments.batch,
        iterations=iterations,
        shards="\n".join(['shard { address: "127.0.0.1:0" }'] * arguments.shards),
    )
    if with_checkpoints:
        text += _RECOVERY.format(folder=checkpoints, every=arguments.every)
    config, summary = (os.path.join(folder, name) for name in ("run.textproto", "summary.json"))
    with open(config, "w", encoding="utf-8") as file:
        file.write(text)
    writing = _Writing(checkpoints)
    writing.start()
    try:
        done = subprocess.run(
            [programs.launch, f"--config={config}", f"--summary={summary}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
    finally:
        writing.stop()
    if done.returncode != 0:
        raise run.RunError(f"launch failed:\n{done.stdout[-2000:]}")
    with open(summary, encoding="utf-8") as file:
        seconds = json.load(file)["iteration_seconds"]
    size = 0
    if with_checkpoints:
        size = _verify(programs, checkpoints, iterations)
        due = {*range(arguments.every, iterations, arguments.every), iterations}
        if writing.seconds.keys() != due:
            raise run.RunError(f"there were checkpoints of {sorted(writing.seconds)}")
        del writing.seconds[iterations]
    rates = _rates(done.stdout, writing.seconds, size)
    return statistics.fmean(seconds[_WARMUP:]), list(writing.seconds.values()), rates, size


def _rates(output, measured, size):
    """Returns for each checkpoint that is `measured` the bytes per second while its shards had
    chunks to write. They write side by side, and wait for chunks that have not come to the cut."""
    seconds = {}
    for iteration, took in re.findall(
        r"wrote \S+ GB of the checkpoint of iteration (\d+) in (\S+) s", output
    ):
        seconds[iteration] = max(seconds.get(iteration, 0.0), float(took))
    return [size / each for iteration, each in seconds.items() if int(iteration) in measured]


def _verify(programs, folder, last):
    """Returns the bytes of the checkpoint of the last iteration. Raises RunError if it is not
    whole."""
    checked = subprocess.run(
        [programs.psctl, "checkpoints", f"--folder={folder}", "--verify"],
        capture_output=True, text=True, check=False,
    )
    newest = sorted(name for name in os.listdir(folder) if name.startswith("generation-"))[-1]
    if checked.returncode != 0 or not newest.endswith(f"{last:010}"):
        raise run.RunError(f"the last checkpoint is wrong: {checked.stdout}{checked.stderr}")
    place = os.path.join(folder, newest)
    return sum(os.path.getsize(os.path.join(place, name)) for name in os.listdir(place))


def _sequential(folder, size):
    """Returns the seconds in which a file of the size is written to the disk."""
    path = os.path.join(folder, "sequential")
    with mmap.mmap(-1, _BLOCK) as block:  # aligned, as O_DIRECT needs it
        block.write(os.urandom(_BLOCK))
        begin = time.monotonic()
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_DIRECT)
        try:
            os.posix_fallocate(file, 0, size)
            for offset in range(0, size // _BLOCK * _BLOCK, _BLOCK):
                if os.pwrite(file, block, offset) != _BLOCK:
                    raise run.RunError(f"{path}: a write was cut short")
            os.fsync(file)
            return time.monotonic() - begin
        finally:
            os.close(file)
            os.remove(path)


def work(arguments, programs):
    least = -(-(_WARMUP + 2) // (_CHECKPOINTS + 1))  # leaves an iteration to measure
    if arguments.every < least:
        raise program.UsageError(
            f"--every: is {arguments.every}, allowed: at least {least}, since the first {_WARMUP}"
            " iterations do not count"
        )
    if arguments.out:
        program.check_can_write("--out", arguments.out)
    where = program.from_user(arguments.folder)
    try:
        os.makedirs(where, exist_ok=True)
    except OSError as error:
        raise program.UsageError(f"--folder: {error}, allowed: a folder, or a new one") from None
    times = {False: [], True: []}
    rates = []  # while there was something to write, from first to last, and of the disk
    for _ in range(arguments.repeats):
        for with_checkpoints in (False, True):
            with tempfile.TemporaryDirectory(dir=where) as folder:
                mean, seconds, written, size = _train(
                    arguments, programs, folder, with_checkpoints
                )
                times[with_checkpoints].append(mean)
                print(
                    f"{'with' if with_checkpoints else 'without'} checkpoints: {mean:.4f} s per"
                    " iteration",
                    flush=True,
                )
                shutil.rmtree(os.path.join(folder, "checkpoints"))
                for each, rate in zip(seconds, written):
                    disk = size / _sequential(folder, size)
                    rates.append((rate, size / each, disk))
                    print(
                        f"  {size / 1e9:.3f} GB in {each:.2f} s, {rate / 1e6:.0f} MB/s while there"
                        f" was something to write; the disk beside it {disk / 1e6:.0f} MB/s:"
                        f" {rate / disk:.2f}",
                        flush=True,
                    )
    cost = [on / off - 1 for off, on in zip(times[False], times[True])]
    parts = [rate / disk for rate, _, disk in rates]
    spans = [span / disk for _, span, disk in rates]
    print(
        f"cost of a checkpoint every {arguments.every} iterations: {_spread(cost, '.2%')}\n"
        f"written at {_spread(parts, '.2f')} of the disk's sequential rate, with the waits for"
        f" chunks that had not come to the cut at {_spread(spans, '.2f')}"
    )
    if arguments.out:
        result = {"seconds_without": times[False], "seconds_with": times[True], "rates": rates}
        with open(program.from_user(arguments.out), "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


def _spread(values, style):
    return f"{statistics.median(values):{style}} ({min(values):{style}} to {max(values):{style}})"
