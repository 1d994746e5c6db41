"""What the programs that run experiments have in common: where they find the other programs, their
command lines and their exit codes."""

import argparse
import hashlib
import os
import sys

from experiments.cluster import network, run
from experiments.cluster.hosts import HostError
from experiments.report import output_folder
from experiments.runs.config_file import ConfigError

_FAILURE = 1
_USAGE = 2
_NO_NETWORK = 3


def _runfile(path):
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), path)


class Programs:
    """The paths of the programs on this machine. Other hosts have their own ps and worker."""

    ps = _runfile("server/ps")
    worker = _runfile("worker/worker")
    psctl = _runfile("tools/psctl/psctl")
    launch = _runfile("tools/launch/launch")
    simulate = _runfile("tools/simulate/simulate")

    @classmethod
    def build(cls):
        """Returns a text that is another one if those that are measured are."""
        found = hashlib.sha256()
        for path in (cls.ps, cls.worker):
            with open(path, "rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        return found.hexdigest()[:16]


class UsageError(Exception):
    """The command line or the config is wrong, and nothing was run. The text says why."""


def from_user(path):
    """Resolves a path against the user's working folder, which `bazel run` changes."""
    return os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), path)


def count(text):
    """The type of a flag that counts something."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"is {number}, allowed: at least 1")
    return number


def count_or_none(text):
    """The same, but it may be none."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"is {number}, allowed: at least 0")
    return number


def check_can_write(flag, path):
    """Before hours of work, whose result the file will have. Raises UsageError."""
    try:
        with open(from_user(path), "ab"):
            pass
    except OSError as error:
        raise UsageError(
            f"{flag}: is {path}, which cannot be written ({error.strerror}), allowed: a file in a"
            " folder that exists"
        ) from None


class _Once(argparse.Action):
    """Stores the value of a flag that is given once, and not empty."""

    def __call__(self, parser, namespace, values, option_string=None):
        if values == "":
            parser.error(f"{option_string} needs a value")
        given = parser.__dict__.setdefault("given", set())
        if self.dest in given:
            parser.error(f"{option_string} is given twice")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


def main(name, experiment, again):
    """Runs the module of an experiment and returns the exit code. Prints why it failed. `again` is
    what the same command does after a failure. The module has

        add_flags(add)               adds its flags, by argparse's add_argument
        work(arguments, programs)    does the experiment
    """
    parser = argparse.ArgumentParser(
        prog=name, description=experiment.__doc__, formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )

    def add(*names, **how):
        how.setdefault("action", _Once)
        parser.add_argument(*names, **how)

    experiment.add_flags(add)
    arguments = parser.parse_args()
    try:
        experiment.work(arguments, Programs)
        return 0
    except UsageError as error:
        print(error, file=sys.stderr)
        return _USAGE
    except network.NetworkError as error:
        print(error, file=sys.stderr)
        return _NO_NETWORK
    except (
        ConfigError, HostError, OSError, output_folder.OutputFolderError, run.RunError
    ) as error:
        _discard_output()
        print(f"{error}\nthe same command {again}", file=sys.stderr)
        return _FAILURE


def _discard_output():
    """Discards what is left of standard output. If it was what failed, writing the rest would
    otherwise fail again, with a traceback, when the program ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
