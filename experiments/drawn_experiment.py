"""Checks Evenshard's predictions on clusters that were not used for tuning; see docs/experiment.md.

    bazel run -c opt //experiments:drawn -- --out=DIR

Draws clusters from a seed, measures each on an emulated network and compares the time of an
iteration with the simulated one. An interrupted experiment goes on where it was. Exit code: 0 if
all runs are done; 1 after a failure, such as a full disk; 2 for a wrong command line; 3 if this
machine allows no emulated network; 130 after Ctrl-C.
"""

import shlex
import sys

from experiments import measurement, program
from experiments.report import drawn_report
from experiments.runs import clusters


def add_flags(add):
    add("--out", required=True, metavar="DIR", help="the folder of the results")
    add("--clusters", type=program.count, default=24, metavar="N", help="default: 24")
    add("--seed", type=int, default=7, help="default: 7")
    add("--scheme", action="append", choices=clusters.SCHEMES, default=[],
        help="measures every cluster with it, instead of a drawn one; may be repeated,\n"
             "to compare placements. LAYER_BASED is placed GREEDY")
    add("--schedule", choices=["SEQUENTIAL", "BACKWARD", "FULL"],
        help="of every cluster, instead of a drawn one")
    add("--even", action="store_true", help="all links of a cluster are equal")
    add("--exchange_alone", action="store_true", help="workers compute nothing")
    add("--modes", action="store_true",
        help="each cluster has an update policy and a topology that are drawn too, instead of\n"
             "SYNC and shards on hosts of their own")


def work(arguments, programs):
    schemes = list(dict.fromkeys(arguments.scheme))
    drawn = [
        clusters.draw(
            arguments.seed, i, schemes, arguments.schedule, arguments.even,
            arguments.exchange_alone, arguments.modes,
        )
        for i in range(arguments.clusters)
    ]
    experiments = [clusters.experiment(cluster) for cluster in drawn]
    folder, results = measurement.measure_drawn(experiments, "clusters", arguments.out, programs)
    command = "bazel run -c opt //experiments:drawn -- " + shlex.join(sys.argv[1:])
    folder.write_report(drawn_report.write(drawn, results, command))
    print("", *drawn_report.headlines(drawn, results), "", sep="\n")
    print(f"report: {folder.file('report.md')}", flush=True)
