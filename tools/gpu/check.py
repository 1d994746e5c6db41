"""Evenshard's gpu_check does in one call what needs a GPU: tests, training, measurements.

For a machine without Bazel, run gpu_check --pack=DIR where the programs can be built, copy DIR,
and run gpu_check --packed=DIR --out=DIR there. Writes results.json, results.md, log.txt and traces.
"""

import argparse
import contextlib
import dataclasses
import datetime
import os
import signal
import sys
import tempfile

from tools.gpu import machine, programs, tests
from tools.gpu.measure import Measurer
from tools.gpu.processes import ProgramError
from tools.gpu.results import Results
from tools.gpu.steps import Budget, Steps

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_FAILURE, _NO_GPU = 1, 3
# The time that is kept for the measurements with exchange, which come last.
_EXCHANGE_SECONDS = 220


@dataclasses.dataclass(frozen=True)
class Place:
    """The folders of the programs, of the results and of temporary files."""

    folder: str
    out: str
    scratch: str

    def program(self, name):
        return os.path.join(self.folder, name)


def _environment(place, folders):
    """Returns the environment with the libraries of the built programs. PyTorch has its own."""
    paths = [place.program("lib"), *folders, *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(path for path in paths if path)}


def _check(place, minutes):
    """Does the whole check and returns the exit code."""
    budget = Budget(minutes * 60)
    results = Results(place.out)
    steps = Steps(results, budget)
    results.device = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        **machine.describe(),
    }
    folders = machine.library_folders()
    results.device["libraries"] = ", ".join(folders[:2])
    results.write()
    log_path = os.path.join(place.out, "log.txt")
    with contextlib.suppress(FileNotFoundError):
        os.remove(log_path)
    with open(log_path, "a+b") as log:
        options = {"env": _environment(place, folders), "cwd": place.folder}
        for test in programs.tests_of(place.folder):
            steps.run(
                test, 5, 100,
                lambda seconds, test=test: tests.run_test(
                    place.program(test), seconds, log, **options
                ),
            )
        steps.run(
            "digits to 95 %", 10, 60,
            lambda seconds: tests.train_digits(place, seconds, log, **options),
        )
        steps.run(
            "compute-sanitizer", 10, 75,
            lambda seconds: tests.sanitize(place, seconds, log, **options),
        )
        measurer = Measurer(place, results, budget, log, options)
        steps.run(
            "VGG-16 without exchange, beside PyTorch", 60 + _EXCHANGE_SECONDS, minutes * 60,
            lambda _: measurer.without_exchange(_EXCHANGE_SECONDS),
        )
        steps.run("1 worker and 1 shard, beside none", 40, 90, measurer.with_exchange)
        steps.run("trace of 1 worker and 1 shard", 20, 40, measurer.trace_of_one)
        steps.run("4 workers and 2 shards, beside PyTorch", 60, 150, measurer.several_workers)
        steps.run("trace of 4 workers and 2 shards", 30, 60, measurer.trace_of_several)
    results.write()
    with open(os.path.join(place.out, "results.md"), encoding="utf-8") as file:
        print(file.read())
    return 0 if results.good() else _FAILURE


def _place(arguments, scratch):
    """Makes the programs ready: they lie here already, or are unpacked or built."""
    os.makedirs(arguments.out, exist_ok=True)
    work = os.path.join(scratch, "work")
    os.makedirs(work)
    folder = _ROOT
    if arguments.packed is not None:
        folder = os.path.join(scratch, "programs")
        programs.unpack(arguments.packed, folder)
    elif not programs.is_folder_of_programs(_ROOT):
        folder = os.path.join(scratch, "programs")
        programs.build(_ROOT, folder)
    return Place(folder, os.path.abspath(arguments.out), work)


def _pack(arguments, scratch):
    folder = os.path.join(scratch, "programs")
    programs.build(_ROOT, folder)
    path, size = programs.pack(folder, arguments.pack)
    print(f"{path}: {size / 2**20:.1f} MiB")
    return 0


def _parse(arguments):
    parser = argparse.ArgumentParser(
        prog="gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit code: 0 everything ran and passed, though figures may miss their targets;"
        " 1 something failed, was skipped or did not fit into the time; 2 wrong command line;"
        " 3 this machine has no GPU, and nothing was run.",
    )
    parser.add_argument("--out", metavar="DIR", help="the folder for the results")
    parser.add_argument("--minutes", type=float, default=9,
                        help="the time limit of the whole check; default: 9")
    parser.add_argument("--packed", metavar="DIR",
                        help="runs the programs that --pack wrote to this folder")
    parser.add_argument("--pack", metavar="DIR",
                        help="only builds the programs and packs them into this folder")
    parsed = parser.parse_args(arguments)
    if (parsed.out is None) == (parsed.pack is None):
        parser.error("one of --out and --pack is needed")
    if parsed.minutes <= 0:
        parser.error(f"--minutes={parsed.minutes:g}, allowed: above 0")
    return parsed


def main(arguments):
    parsed = _parse(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):  # exiting ends the programs that run
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu_check."))
            if parsed.pack is not None:
                return _pack(parsed, scratch)
            machine.require_gpu()
            return _check(_place(parsed, scratch), parsed.minutes)
    except machine.MachineError as error:
        print(f"gpu_check: {error}; nothing was run", file=sys.stderr)
        return _NO_GPU
    except (programs.ProgramsError, ProgramError, OSError) as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return _FAILURE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
