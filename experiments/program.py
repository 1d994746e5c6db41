"""What the programs that run experiments have in common: where they find the other programs, and
their exit codes."""

import dataclasses
import os
import sys

from experiments.cluster import network, run
from experiments.cluster.hosts import HostError
from experiments.report import output_folder
from experiments.runs.experiment_config import ConfigError

_FAILURE = 1
_USAGE = 2
_NO_NETWORK = 3


@dataclasses.dataclass(frozen=True)
class Programs:
    """The paths of the programs on this machine. Other hosts have their own ps and worker."""

    ps: str
    worker: str
    psctl: str
    launch: str
    simulate: str


class UsageError(Exception):
    """The command line or the config is wrong, and nothing was run. The text says why."""


def programs():
    def runfile(path):
        return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), path)

    return Programs(
        runfile("server/ps"),
        runfile("worker/worker"),
        runfile("tools/psctl/psctl"),
        runfile("tools/launch/launch"),
        runfile("tools/simulate/simulate"),
    )


def from_user(path):
    """Resolves a path against the user's working folder, which `bazel run` changes."""
    return os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), path)


def exit_code(work, again="goes on"):
    """Calls `work` and returns the exit code of the program. Prints why it failed. `again` is what
    the same command does after a failure."""
    try:
        work()
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
