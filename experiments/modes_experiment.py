"""Compares update modes by real training; docs/experiment.md explains it.

    bazel run -c opt //experiments:modes -- --config=configs/modes_mnist.textproto --out=DIR

Trains with every mode of the config in every situation, over links of every rate, on an emulated
network, and says how long each takes to an accuracy. Needs PyTorch. An interrupted experiment goes
on where it was. Exit code: 0 if all runs are done; 1 after a failure, such as a full disk; 2 for a
wrong command line or config; 3 if this machine allows no emulated network; 130 after Ctrl-C.
"""

import re
import shlex
import sys

from google.protobuf import text_format

from experiments import program
from experiments.cluster import network, outlook, plans, training
from experiments.cluster.test_images import TestImages
from experiments.report import modes_charts, modes_report, output_folder
from experiments.report.modes_results import Results
from experiments.report.progress import Progress
from experiments.runs import matrix, modes_config
from experiments.runs.config_file import ConfigError


def add_flags(add):
    add("--config", required=True, metavar="FILE", help="a ModesConfig")
    add("--out", required=True, metavar="DIR", help="the folder of the results")
    add("--only", metavar="PATTERN", default="",
        help="does only the trainings in whose name, such as\nssp_4-slow-10gbps-seed1, this regular"
             " expression is found; the report\nhas all that are done")
    add("--network", choices=[network.NAMESPACES, network.HOST], default=network.NAMESPACES,
        help="namespaces: an emulated network with shaped links (default);\n"
             "host: this machine's own, unshaped")


def _chosen(runs, pattern):
    try:
        found = [one for one in runs if re.search(pattern, one.id)]
    except re.error as error:
        raise program.UsageError(
            f'--only: is "{pattern}", which is no regular expression: {error}'
        ) from None
    if not found:
        raise program.UsageError(
            f'--only: is "{pattern}", which is in no training\'s name, allowed: part of one, such'
            f" as {runs[0].id}"
        )
    return found


def _check_links(kind, runs):
    if kind == network.HOST and len({one.link_gbps for one in runs}) > 1:
        raise program.UsageError(
            "--network=host: has no shaped links, so that trainings of several link_gbps are the"
            " same, allowed: with --only for one rate, such as 10gbps, or a config with one"
        )


def _train(arguments, experiment, runs, stored, images, programs, folder):
    """Does the runs that are not in `stored`, and keeps each result at once."""
    if stored:
        print(f"{len(stored)} of {matrix.count(len(experiment.runs()), 'run')} are done already",
              flush=True)
    known = [(1, result["run_seconds"]) for result in stored.values()]
    progress = Progress({one: 1 for one in runs if one not in stored}, known)
    for one in runs:
        if one in stored:
            continue
        progress.begin(one)
        try:
            result = training.execute(
                arguments.network, experiment, one, programs, images, folder.run_folder(one),
                progress.tick,
            )
        except BaseException:
            progress.leave_line()
            raise
        folder.store(one, result)
        stored[one] = result
        folder.write("results.csv", Results(arguments.network, experiment, stored).csv_text())
        seconds = training.seconds_to(experiment.proto.accuracy, result)
        outcome = f"{seconds:.1f} s to" if seconds is not None else "did not reach"
        progress.end(
            f"{outcome} {experiment.proto.accuracy:g} %, {result['accuracy']:.2f} % at the end,"
            f" {experiment.loads[one.mode].link_bytes(result) / 1e6:,.2f} MB each way"
        )


def work(arguments, programs):
    """Does the experiment. Raises UsageError for what is wrong with the command line or the config,
    and other errors if something could not be done though they are right."""
    try:
        experiment = modes_config.load(program.from_user(arguments.config))
        runs = _chosen(experiment.runs(), arguments.only)
        _check_links(arguments.network, runs)
        experiment.model_bytes, experiment.loads = plans.check_modes(experiment, programs)
        images = TestImages(experiment.cluster_config(runs[0], []))
        folder = output_folder.OutputFolder(
            program.from_user(arguments.out),
            {
                "network": arguments.network,
                "config": text_format.MessageToString(experiment.proto),
            },
            programs.build,
        )
        stored = folder.stored(experiment.runs(), training.is_result)
    except (ConfigError, OSError, output_folder.OutputFolderError) as error:
        raise program.UsageError(error) from None
    _train(arguments, experiment, runs, stored, images, programs, folder)
    results = Results(arguments.network, experiment, stored)
    folder.write("results.csv", results.csv_text())
    drawn = modes_charts.draw(results, folder.write)
    print("\nsimulating these modes on more workers", flush=True)
    outlooks = outlook.simulate(experiment, results.cells, programs)
    command = "bazel run -c opt //experiments:modes -- " + shlex.join(sys.argv[1:])
    folder.write_report(modes_report.write(results, outlooks, drawn, command))
    print(f"\nreport: {folder.file('report.md')}")
    print("charts: " + ", ".join(folder.file(f"{name}.svg") for name in drawn), flush=True)
