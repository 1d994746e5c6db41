"""The results of all runs, and results.csv.

Times are those of the emulated cluster. Times whose names begin with `wall_` are those of this
machine's clock, which are time_dilation times as long.
"""

import csv
import io
import statistics

import numpy

from experiments.cluster import network
from experiments.runs import matrix, topology


class Measured:
    """The result of one cell of the matrix, from one or all of its runs."""

    def __init__(self, experiment, run, plan, results):
        proto = experiment.proto
        dilation = proto.time_dilation
        self.run = run
        self.plan = plan
        self.seconds = [s / dilation for result in results for s in result["iteration_seconds"]]
        self.median, self.p10, self.p90 = numpy.percentile(self.seconds, [50, 10, 90])
        images = run.workers * experiment.batch_size * experiment.batches
        self.images_per_second = images / self.median
        self.mean = statistics.fmean(r["mean_seconds"] for r in results) / dilation
        self.compute = statistics.fmean(r["compute_seconds"] for r in results) / dilation
        self.wait = statistics.fmean(r["exchange_wait_seconds"] for r in results) / dilation
        # The parts of a median iteration. An emulated device keeps to its times. The means also
        # include the first and the last iteration, in which more is done.
        self.computing = self.compute if plan.compute_seconds is None else plan.compute_seconds
        self.other = max(0, self.mean - self.compute - self.wait)
        self.waiting = max(0, self.median - self.computing - self.other)
        self.bytes_in = _means(result["bytes_in"] for result in results)
        self.bytes_out = _means(result["bytes_out"] for result in results)
        # The largest relative error over all shards and both directions.
        self.bytes_error = max(
            abs(measured / predicted - 1)
            for measured, predicted in zip(
                self.bytes_in + self.bytes_out, plan.bytes_in + plan.bytes_out
            )
        )
        uses = [r["processor_use"] for r in results if r["processor_use"] is not None]
        self.processor_use = max(uses, default=None)
        self.processor_bound = (self.processor_use or 0) > proto.processor_bound_above
        self.bound = plan.bound_seconds
        self.efficiency = self.bound / self.median if self.bound else None

    @property
    def simulation_error(self):
        """The simulated time's error, as a part of the measured one."""
        return self.plan.simulated_seconds / self.median - 1


def _means(lists):
    return [statistics.fmean(values) for values in zip(*lists)]


class Results:
    """Everything measured so far. `stored` has the results of run.execute by run."""

    def __init__(self, kind, experiment, plans, stored):
        self.kind = kind
        self.experiment = experiment
        # In a resumed experiment, `stored` has the runs in the order in which they were done.
        self._stored = {run: stored[run] for run in matrix.runs(experiment) if run in stored}
        by_cell = {}
        for run, result in self._stored.items():
            by_cell.setdefault(run.cell, []).append(result)
        self.cells = {
            cell: Measured(experiment, cell, plans[cell], results)
            for cell, results in by_cell.items()
        }
        self._plans = plans

    def find(self, **fields):
        """Returns the cells with these values of Run's fields and properties, in the order of the
        matrix."""
        return [
            measured
            for cell, measured in self.cells.items()
            if all(getattr(cell, name) == value for name, value in fields.items())
        ]

    def like(self, run, **changes):
        """Finds the cells that differ from `run` only in `changes`, where None stands for any
        value."""
        fields = {**vars(run.cell), **changes}
        return self.find(**{name: value for name, value in fields.items() if value is not None})

    def speedup(self, measured):
        """Returns the speed-up in images per second over one worker, or None if that is unknown."""
        changes = {"workers": 1, "shards": None, "topology": topology.APART}
        if not measured.run.scheme:  # with one worker all placements are alike
            changes |= {"scheme": None, "placement": None}
        single = self.like(measured.run, **changes)
        return measured.images_per_second / single[0].images_per_second if single else None

    def layer_based(self, measured):
        """Returns the same cell with the config's first layer-based placement on hosts of their
        own, or None."""
        changes = {
            "scheme": matrix.LAYER_BASED, "placement": None, "topology": topology.APART
        }
        if measured.run.topology != topology.APART:
            changes["shards"] = None
        found = self.like(measured.run, **changes)
        return found[0] if found else None

    def over_layer_based(self, measured):
        """Returns how many times as fast as layer-based it is, or None for layer-based itself."""
        layer = self.layer_based(measured)
        if layer is None or measured.run.scheme == matrix.LAYER_BASED:
            return None
        return layer.median / measured.median

    def ordered(self, field):
        """Returns the values of a field of Run, in the order of the matrix."""
        return list(dict.fromkeys(getattr(cell, field) for cell in self.cells))

    def largest(self):
        """Returns the workers and shards of the largest cluster. Its shards have hosts of their
        own, if there are any that have."""
        return max(
            (cell.topology == topology.APART, cell.workers, cell.shards) for cell in self.cells
        )[1:]

    def of_largest(self, **fields):
        """Finds the cells of the largest cluster, in all topologies."""
        workers, shards = self.largest()
        return [
            measured
            for measured in self.find(workers=workers, **fields)
            if measured.run.topology != topology.APART or measured.run.shards == shards
        ]

    def model_text(self, model):
        """Returns a title for a value of Run.model."""
        shrink = self.experiment.models[model].shrink
        name = self.find(model=model)[0].plan.model
        name = "custom model" if name == "custom" else name
        return name + (f" shrunk {shrink} times" if shrink > 1 else "")

    def headlines(self):
        """Returns a sentence for each comparison with layer-based in the largest cluster."""
        for measured in self.of_largest():
            ratio = self.over_layer_based(measured)
            if ratio is None:
                continue
            layer = self.layer_based(measured)
            ceiling = f" (the bound: {layer.bound / measured.bound:.2f})" if measured.bound else ""
            yield f"{measured.run}: {ratio:.2f} times as fast as {layer.run.scheme_name}{ceiling}"

    def rows(self):
        for run, result in self._stored.items():
            measured = Measured(self.experiment, run, self._plans[run.cell], [result])
            yield self._row(measured, result["run_seconds"])

    def _row(self, measured, run_seconds):
        proto, run = self.experiment.proto, measured.run
        dilation = proto.time_dilation
        has_links = self.kind != network.HOST
        return {
            "run": run.id,
            "model": measured.plan.model,
            "shrink": self.experiment.models[run.model].shrink,
            "scheme": run.scheme,
            "placement": run.placement,
            "topology": run.topology,
            "schedule": run.schedule,
            "device": run.device,
            "batch_size": self.experiment.batch_size,
            "batches": self.experiment.batches,
            "workers": run.workers,
            "shards": run.shards,
            "repeat": run.repeat,
            "link_gbps": proto.link_gbps if has_links else None,
            "wall_link_gbps": proto.link_gbps / dilation if has_links else None,
            "shard_link_gbps": (
                _numbers(self.experiment.shard_link_gbps(i) for i in range(run.shards))
                if proto.shard_link_gbps and has_links else None
            ),
            "worker_slowdown": _numbers(proto.worker_slowdown[: run.workers]),
            "time_dilation": dilation,
            "iteration_seconds_median": measured.median,
            "iteration_seconds_p10": measured.p10,
            "iteration_seconds_p90": measured.p90,
            "wall_iteration_seconds_median": measured.median * dilation,
            "wall_iteration_seconds_p10": measured.p10 * dilation,
            "wall_iteration_seconds_p90": measured.p90 * dilation,
            "images_per_second": measured.images_per_second,
            "speedup_over_1_worker": self.speedup(measured),
            "speedup_over_layer_based": self.over_layer_based(measured),
            "bound_seconds": measured.bound,
            "wall_bound_seconds": measured.bound and measured.bound * dilation,
            "in_step_seconds": measured.plan.in_step_seconds,
            "efficiency": measured.efficiency,
            "simulated_seconds": measured.plan.simulated_seconds,
            "compute_seconds": measured.compute,
            "exchange_wait_seconds": measured.wait,
            "shard_bytes_in_predicted": measured.plan.bytes_in,
            "shard_bytes_in_measured": measured.bytes_in,
            "shard_bytes_out_predicted": measured.plan.bytes_out,
            "shard_bytes_out_measured": measured.bytes_out,
            "bytes_error": measured.bytes_error,
            "processor_use": measured.processor_use,
            "processor_bound": measured.processor_bound,
            "run_seconds": run_seconds,
        }


def csv_text(rows):
    """Returns results.csv of the rows of one or several Results, which have a run at least."""
    rows = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _text(value) for name, value in row.items()})
    return text.getvalue()


def _numbers(values):
    return " ".join(f"{value:g}" for value in values)


def _text(value):
    """Formats a field of the CSV. A list has a value for each shard, separated by spaces."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(f"{round(item)}" for item in value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
