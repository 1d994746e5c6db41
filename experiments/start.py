"""Starts a program so that Ctrl-C, and SIGTERM, end it in the same way at any time."""

import importlib
import signal
import sys

_INTERRUPTED = 130


def run(name, again="goes on"):
    """Runs the module experiments/NAME_experiment.py by experiments/program.py, and ends with its
    exit code. `again` is what the same command does after a failure or Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Loading takes a second. Ctrl-C must end the program then as it does later.
        experiment = importlib.import_module(f"experiments.{name}_experiment")
        sys.exit(importlib.import_module("experiments.program").main(name, experiment, again))
    except KeyboardInterrupt:
        print(f"interrupted; the same command {again}", file=sys.stderr)
        sys.exit(_INTERRUPTED)
