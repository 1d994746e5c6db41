"""Evenshard's sharding experiment: runs it and writes its report; docs/experiment.md explains it.

    bazel run -c opt //experiments:sharding -- --config=FILE --out=DIR

An interrupted experiment goes on where it was. Exit code: 0 if all runs are done; 1 after a
failure, such as a full disk; 2 for a wrong command line or config; 3 if this machine allows no
emulated network; 130 after Ctrl-C.
"""

import shlex
import sys

from google.protobuf import text_format

from experiments import measurement, program
from experiments.cluster import network, plans, run
from experiments.report import charts, output_folder, paper, report
from experiments.runs import experiment_config, matrix
from experiments.runs.config_file import ConfigError


def add_flags(add):
    add("--config", required=True, metavar="FILE", help="an ExperimentConfig")
    add("--out", required=True, metavar="DIR", help="the folder of the results")
    add("--network", choices=[network.NAMESPACES, network.HOST],
        help="namespaces: an emulated network with shaped links (default);\n"
             "host: this machine's own, unshaped")


def _network_kind(experiment, asked):
    if not experiment.proto.HasField("hosts"):
        return asked or network.NAMESPACES
    if asked is not None:
        raise ConfigError(
            experiment.problem("hosts", f"is set, allowed: without --network={asked}")
        )
    return network.REMOTE


def _report(results, programs, folder):
    explained = None
    proto = results.experiment.proto
    # The paper's links are alike.
    if proto.cluster.model.builtin == "vgg16" and not proto.shard_link_gbps:
        explained = paper.explain(programs)
    command = "bazel run -c opt //experiments:sharding -- " + shlex.join(sys.argv[1:])
    drawn = charts.draw(results, folder.write)
    folder.write_report(report.write(results, drawn, explained, command))
    print("", *results.headlines(), "", sep="\n")
    print(f"report: {folder.file('report.md')}")
    print("charts: " + ", ".join(folder.file(f"{name}.svg") for name in drawn), flush=True)


def work(arguments, programs):
    """Does the whole experiment. Raises UsageError for what is wrong with the command line or the
    config, and other errors if something could not be done though they are right."""
    try:
        experiment = experiment_config.load(program.from_user(arguments.config))
        kind = _network_kind(experiment, arguments.network)
        runs = matrix.runs(experiment)
        predicted = plans.load(kind, experiment, runs, programs)
        folder = output_folder.OutputFolder(
            program.from_user(arguments.out),
            {"network": kind, "config": text_format.MessageToString(experiment.proto)},
            # Other hosts have their own.
            None if kind == network.REMOTE else programs.build,
        )
        stored = folder.stored(runs, run.is_result)
    except (ConfigError, output_folder.OutputFolderError) as error:
        raise program.UsageError(error) from None
    [results] = measurement.measure(
        kind, [experiment], predicted, stored, programs, folder
    )
    _report(results, programs, folder)
