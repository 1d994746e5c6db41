"""Evenshard's sharding experiment: runs it and writes its report; docs/experiment.md explains it.

    bazel run -c opt //experiments:sharding -- --config=FILE --out=DIR

An interrupted experiment goes on where it was. Exit code: 0 if all runs are done; 1 after a
failure, such as a full disk; 2 for a wrong command line or config; 3 if this machine allows no
emulated network; 130 after Ctrl-C.
"""

import argparse
import dataclasses
import os
import shlex
import sys

from google.protobuf import text_format

from experiments import charts, experiment_config, matrix, network, output_folder, paper
from experiments import plans, report, run
from experiments.experiment_config import ConfigError
from experiments.hosts import HostError
from experiments.progress import Progress
from experiments.results import Results

_FAILURE = 1
_USAGE = 2
_NO_NETWORK = 3


@dataclasses.dataclass(frozen=True)
class Programs:
    """The paths of the programs on this machine. Other hosts have their own ps and worker."""

    ps: str
    worker: str
    psctl: str
    simulate: str


def _runfile(path):
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), path)


def _arguments():
    parser = argparse.ArgumentParser(
        prog="sharding", description=__doc__, formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="an ExperimentConfig")
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder of the results")
    parser.add_argument(
        "--network",
        choices=[network.NAMESPACES, network.HOST],
        help="namespaces: an emulated network with shaped links (default);\n"
        "host: this machine's own, unshaped",
    )
    return parser.parse_args()


def _from_user(path):
    """Resolves a path against the user's working folder, which `bazel run` changes."""
    return os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), path)


def _network_kind(experiment, asked):
    if not experiment.proto.HasField("hosts"):
        return asked or network.NAMESPACES
    if asked is not None:
        raise experiment_config.ConfigError(
            experiment.problem("hosts", f"is set, allowed: without --network={asked}")
        )
    return network.REMOTE


def _weight(experiment, plan):
    """Returns the time that a run is expected to take, in seconds if the links' rate is known."""
    seconds = plan.simulated_seconds
    wall = seconds * experiment.proto.time_dilation if seconds else sum(plan.bytes_in)
    return wall * matrix.iterations(experiment)


def _measure(kind, experiment, all_runs, stored, predicted, programs, folder):
    """Does the runs that are not in `stored`. Writes each result, and results.csv, at once."""
    if stored:
        print(f"{len(stored)} of {matrix.count(len(all_runs), 'run')} are done already", flush=True)
    weights = {one: _weight(experiment, predicted[one.cell]) for one in all_runs}
    known = [(weights.pop(one), result["run_seconds"]) for one, result in stored.items()]
    progress = Progress(weights, known)
    for one in weights:
        progress.begin(one)
        try:
            result = run.execute(
                kind, experiment, one, programs, folder.run_folder(one), progress.tick
            )
        except BaseException:
            progress.leave_line()
            raise
        folder.store(one, result)
        stored[one] = result
        results = Results(kind, experiment, predicted, stored)
        folder.write("results.csv", results.csv())
        measured = results.cells[one.cell]
        outcome = f"{measured.median:.3f} s per iteration"
        if measured.bound:
            outcome += f", {measured.median / measured.bound:.2f} of the bound"
        progress.end(outcome + (", processor bound" if measured.processor_bound else ""))
    return Results(kind, experiment, predicted, stored)


def _report(results, programs, folder):
    folder.write("results.csv", results.csv())
    explained = None
    if results.experiment.proto.cluster.model.builtin == "vgg16":
        explained = paper.explain(programs)
    command = "bazel run -c opt //experiments:sharding -- " + shlex.join(sys.argv[1:])
    drawn = charts.draw(results, folder.write)
    folder.write("report.md", report.write(results, drawn, explained, command))
    print("", *results.headlines(), "", sep="\n")
    print(f"report: {folder.file('report.md')}")
    print("charts: " + ", ".join(folder.file(f"{name}.svg") for name in drawn), flush=True)


def main():
    arguments = _arguments()
    programs = Programs(
        _runfile("server/ps"),
        _runfile("worker/worker"),
        _runfile("tools/psctl/psctl"),
        _runfile("experiments/simulate"),
    )
    try:
        return _run(arguments, programs)
    except network.NetworkError as error:
        print(error, file=sys.stderr)
        return _NO_NETWORK
    except (
        ConfigError, HostError, OSError, output_folder.OutputFolderError, run.RunError
    ) as error:
        _discard_output()
        print(f"{error}\nwhat is done is kept; the same command goes on", file=sys.stderr)
        return _FAILURE


def _run(arguments, programs):
    """Does the whole experiment and returns the exit code. Raises an error if something could not
    be done though the command line and the config are right."""
    try:
        experiment = experiment_config.load(_from_user(arguments.config))
        kind = _network_kind(experiment, arguments.network)
        all_runs = matrix.runs(experiment)
        predicted = plans.load(kind, experiment, all_runs, programs)
        folder = output_folder.OutputFolder(
            _from_user(arguments.out),
            {"network": kind, "config": text_format.MessageToString(experiment.proto)},
        )
        stored = folder.stored(all_runs, run.is_result)
    except (ConfigError, output_folder.OutputFolderError) as error:
        print(error, file=sys.stderr)
        return _USAGE
    results = _measure(kind, experiment, all_runs, stored, predicted, programs, folder)
    _report(results, programs, folder)
    return 0


def _discard_output():
    """Discards what is left of standard output. If it was what failed, writing the rest would
    otherwise fail again, with a traceback, when the program ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
