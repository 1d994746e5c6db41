"""Does the runs of one or several experiments, and keeps what is done."""

from google.protobuf import text_format

from experiments import program
from experiments.cluster import network, plans, run
from experiments.report import output_folder
from experiments.report.progress import Progress
from experiments.report.results import Measured, Results, csv_text
from experiments.runs import matrix


def measure_drawn(experiments, name, out, programs):
    """Measures experiments that were drawn, in network namespaces. `out` is the folder that the
    user names; it remembers the experiments as `name`, and goes on with no others. Returns it, and
    the Results of each experiment. Raises UsageError if the folder is not theirs."""
    kind = network.NAMESPACES
    try:
        folder = output_folder.OutputFolder(
            program.from_user(out),
            {
                "network": kind,
                name: [text_format.MessageToString(each.proto) for each in experiments],
            },
            programs.build,
        )
        runs = [one for each in experiments for one in matrix.runs(each)]
        stored = folder.stored(runs, run.is_result)
    except output_folder.OutputFolderError as error:
        raise program.UsageError(error) from None
    predicted = {}
    for each in experiments:
        predicted.update(plans.load(kind, each, matrix.runs(each), programs))
    return folder, measure(kind, experiments, predicted, stored, programs, folder)


def measure(kind, experiments, predicted, stored, programs, folder):
    """Does the runs that are not in `stored`, and writes each result, and results.csv, at once.

    `stored` has results by run, of all experiments, and gains those of the other runs. Returns the
    Results of each experiment.
    """
    runs = {one: experiment for experiment in experiments for one in matrix.runs(experiment)}
    if stored:
        print(f"{len(stored)} of {matrix.count(len(runs), 'run')} are done already", flush=True)
    weights = {one: _weight(experiment, predicted[one.cell]) for one, experiment in runs.items()}
    known = [(weights.pop(one), result["run_seconds"]) for one, result in stored.items()]
    progress = Progress(weights, known)
    for one in weights:
        progress.begin(one)
        try:
            result = run.execute(
                kind, runs[one], one, programs, folder.run_folder(one), progress.tick
            )
        except BaseException:
            progress.leave_line()
            raise
        folder.store(one, result)
        stored[one] = result
        _write_csv(_results(kind, experiments, predicted, stored), folder)
        measured = Measured(runs[one], one, predicted[one.cell], [result])
        outcome = f"{measured.median:.3f} s per iteration"
        if measured.bound:
            outcome += f", {measured.median / measured.bound:.2f} of the bound"
        progress.end(outcome + (", processor bound" if measured.processor_bound else ""))
    results = _results(kind, experiments, predicted, stored)
    _write_csv(results, folder)
    return results


def _results(kind, experiments, predicted, stored):
    return [Results(kind, experiment, predicted, stored) for experiment in experiments]


def _write_csv(results, folder):
    folder.write("results.csv", csv_text(row for each in results for row in each.rows()))


def _weight(experiment, plan):
    """Returns the time that a run is expected to take, in seconds if the links' rate is known."""
    seconds = plan.simulated_seconds
    wall = seconds * experiment.proto.time_dilation if seconds else sum(plan.bytes_in)
    return wall * matrix.iterations(experiment)
