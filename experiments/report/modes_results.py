"""The results of the modes experiment, and its results.csv."""

import csv
import io
import math
import statistics

from experiments.cluster import network, training


class Cell:
    """The trainings of a mode in a situation over links of a rate, one for each seed."""

    def __init__(self, run, results, experiment):
        batch_size = experiment.proto.cluster.training.batch_size
        accuracy = experiment.proto.accuracy
        self.run = run
        self.results = results
        self.load = experiment.loads[run.mode]
        self.link_bytes = [self.load.link_bytes(each) for each in results]
        # Infinite where the accuracy was not reached.
        self.times = [_or_infinite(training.seconds_to(accuracy, each)) for each in results]
        self.seconds = statistics.median(self.times)
        self.accuracies = [each["accuracy"] for each in results]
        self.accuracy = statistics.median(self.accuracies)
        self.megabytes = statistics.median(self.link_bytes) / 1e6  # of the busiest link each way
        self.images_per_second = statistics.median(
            _images_per_second(each, batch_size) for each in results
        )

    @property
    def is_reached(self):
        return math.isfinite(self.seconds)

    def part(self, name):
        """Returns the part of the workers' time that went into `name`_seconds."""
        return statistics.fmean(
            each[f"{name}_seconds"] / statistics.fmean(each["seconds"]) for each in self.results
        )


def _or_infinite(seconds):
    return math.inf if seconds is None else seconds


def _images_per_second(result, batch_size):
    """Adds up the rates of the workers, which may be apart."""
    return sum(
        batch_size * iterations / seconds
        for iterations, seconds in zip(result["iterations"], result["seconds"])
    )


class Results:
    """Everything measured so far. `kind` is that of the network, and `stored` has the results of
    training.execute by run."""

    def __init__(self, kind, experiment, stored):
        self.kind = kind
        self.experiment = experiment
        self._stored = {one: stored[one] for one in experiment.runs() if one in stored}
        by_cell = {}
        for one, result in self._stored.items():
            by_cell.setdefault(one.cell, []).append(result)
        self.cells = {
            cell: Cell(cell, results, experiment) for cell, results in by_cell.items()
        }

    @property
    def has_links(self):
        """Whether the network had links of the rates that the runs are named after."""
        return self.kind != network.HOST

    def link_text(self, link_gbps):
        return f"{link_gbps:g} Gb/s" if self.has_links else "links not shaped"

    def ordered(self, field):
        """Returns the values of a field of Run that have results, in the order of the grid."""
        return list(dict.fromkeys(getattr(cell, field) for cell in self.cells))

    def places(self):
        """Returns the (situation, link_gbps) that have results, in the order of the grid."""
        return list(dict.fromkeys((cell.situation, cell.link_gbps) for cell in self.cells))

    def find(self, **fields):
        """Returns the cells with these values of Run's fields, in the order of the grid."""
        return [
            cell for run, cell in self.cells.items()
            if all(getattr(run, name) == value for name, value in fields.items())
        ]

    def csv_text(self):
        """Returns results.csv, which has a row for each run; there is one at least."""
        text = io.StringIO()
        rows = [self._row(one, result) for one, result in self._stored.items()]
        writer = csv.DictWriter(text, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def _row(self, one, result):
        accuracy = self.experiment.proto.accuracy
        seconds = training.seconds_to(accuracy, result)
        batch_size = self.experiment.proto.cluster.training.batch_size
        return {
            "run": one.id,
            "mode": one.mode,
            "situation": one.situation,
            "link_gbps": f"{one.link_gbps:g}" if self.has_links else "",
            "seed": one.seed,
            "seconds_to_accuracy": "" if seconds is None else f"{seconds:.3f}",
            "final_accuracy": f"{result['accuracy']:.2f}",
            "busiest_link_bytes_each_way": round(
                self.experiment.loads[one.mode].link_bytes(result)
            ),
            "iterations": " ".join(map(str, result["iterations"])),
            "images_per_second": f"{_images_per_second(result, batch_size):.1f}",
            "train_seconds": f"{max(result['seconds']):.3f}",
            "compute_seconds": f"{result['compute_seconds']:.3f}",
            "exchange_wait_seconds": f"{result['exchange_wait_seconds']:.3f}",
            "stops": result["stops"],
            "run_seconds": f"{result['run_seconds']:.3f}",
            "time_dilation": f"{self.experiment.proto.time_dilation:g}",
        }
