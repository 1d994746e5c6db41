"""Starts a program so that Ctrl-C ends it in the same way at any time."""

import importlib
import sys

_INTERRUPTED = 130


def run(module, again="goes on"):
    """Calls `main` of a module and ends with the exit code that it returns. `again` is what the
    same command does after Ctrl-C."""
    try:
        # Loading takes a second. Ctrl-C must end the program then as it does later.
        sys.exit(importlib.import_module(module).main())
    except KeyboardInterrupt:
        print(f"interrupted; the same command {again}", file=sys.stderr)
        sys.exit(_INTERRUPTED)
