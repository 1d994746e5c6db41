"""The checks that must pass on a GPU: the tests, a training run, and the memory checks."""

import os
import re

from tools.gpu import machine
from tools.gpu.processes import ProgramError, launch, run
from tools.gpu.steps import Skipped

_SKIPPED = re.compile(r"^SKIPPED: (.*)$", re.MULTILINE)
_PASSED = re.compile(r"^All tests passed \(.*\)$", re.MULTILINE)
_SANITIZED = "tests/worker/compute/cuda/layers_test_gpu"
_SANITIZED_CASES = "Every layer gives what the CPU backend gives*"


def run_test(program, seconds, log, **options):
    """Runs a Catch2 program and returns its summary. Raises ProgramError if it fails, Skipped if
    it finds no device."""
    if passed := _PASSED.search(_run_unskipped([program], seconds, log, options)):
        return passed.group(0)
    raise ProgramError("it printed no summary of its test cases")


def _run_unskipped(command, seconds, log, options):
    """Returns the output. Raises Skipped if the tests were skipped."""
    output = run(command, seconds, log, **options)
    if skipped := _SKIPPED.search(output):
        raise Skipped(skipped.group(1))
    return output


def train_digits(place, seconds, log, **options):
    """Trains to 95 % and returns the accuracy. Raises ProgramError if it is lower."""
    command = [
        place.program("tools/launch/launch"),
        f"--config={place.program('configs/digits_cuda.textproto')}",
        "--set=shard[0].address=127.0.0.1:0",
        "--set=shard[1].address=127.0.0.1:0",
    ]
    summary = launch(command, os.path.join(place.scratch, "digits.json"), seconds, log, **options)
    return f"{summary['final_accuracy']:.1%} of the held-out images right"


def sanitize(place, seconds, log, **options):
    """Runs one test under compute-sanitizer. Raises Skipped if that is not installed."""
    sanitizer = machine.compute_sanitizer()
    if sanitizer is None:
        raise Skipped("this machine has no compute-sanitizer")
    command = [
        # Libraries make calls that may fail.
        sanitizer, "--tool=memcheck", "--leak-check=full", "--report-api-errors=no",
        "--error-exitcode=9",
        place.program(_SANITIZED), _SANITIZED_CASES, "-w", "NoTests",
    ]
    output = _run_unskipped(command, seconds, log, options)
    summaries = [line for line in output.splitlines() if "SUMMARY" in line]
    return "; ".join(line.strip("= ") for line in summaries)
