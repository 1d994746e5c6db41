"""The results of a check: steps, measurements and figures, as JSON and as tables."""

import json
import os
import statistics

# The outcomes of a step. Only the first is good.
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"


class Figure:
    """A ratio of two measurements, round by round, and its target."""

    def __init__(self, what, target, over, *under):
        """`over` and `under` name measurements. The ratio is to the best of `under`. A `target` of
        None means that no value is asked for."""
        self.what = what
        self.target = target
        self.over = over
        self.under = under


class Results:
    """The results so far. They are written again after each step, so that nothing is lost."""

    def __init__(self, folder):
        self._folder = folder
        self.device = {}
        self._steps = []
        self._rounds = {}  # by measurement, images/s; None: a round that failed
        self._figures = []
        self._notes = []

    def add_step(self, name, outcome, seconds=0.0, detail=""):
        self._steps.append(
            {"name": name, "outcome": outcome, "seconds": round(seconds, 1), "detail": detail}
        )
        print(f"{outcome}: {name} ({seconds:.1f} s){': ' + detail if detail else ''}", flush=True)
        self.write()

    def add_round(self, measurement, rate):
        """Adds a round. `rate` is None if it failed, so that equal rounds can be compared."""
        self._rounds.setdefault(measurement, []).append(rate)

    def add_figure(self, figure):
        self._figures.append(figure)

    def add_note(self, note):
        self._notes.append(note)

    def _measured(self, measurement):
        return [rate for rate in self._rounds.get(measurement, []) if rate is not None]

    def good(self):
        """Returns whether everything ran and passed. A measured figure may miss its target."""
        return (
            bool(self._steps)
            and all(step["outcome"] == PASSED for step in self._steps)
            and all(figure["ratio"] is not None for figure in self._figure_rows())
        )

    def _best(self, measurements):
        """Returns the one with the highest median, or None if none was measured."""
        measured = [name for name in measurements if self._measured(name)]
        return max(measured, key=lambda name: statistics.median(self._measured(name)), default=None)

    def _figure_rows(self):
        rows = []
        for figure in self._figures:
            under = self._best(figure.under)
            pairs = zip(self._rounds.get(figure.over, []), self._rounds.get(under, []))
            ratio = _spread([over / under for over, under in pairs if over and under])
            missing = [name for name in figure.under if not self._measured(name)]
            reached = None
            if ratio is not None and figure.target is not None:
                reached = ratio["median"] >= figure.target
                if missing and reached:
                    reached = None  # one of them may have been better
            rows.append(
                {
                    **vars(figure), "under": under, "missing": missing, "ratio": ratio,
                    "reached": reached,
                }
            )
        return rows

    def to_json(self):
        return {
            "good": self.good(),
            "device": self.device,
            "steps": self._steps,
            "figures": self._figure_rows(),
            "images_per_second": {
                name: {"rounds": rounds, **(_spread(self._measured(name)) or {})}
                for name, rounds in self._rounds.items()
            },
            "notes": self._notes,
        }

    def to_markdown(self):
        lines = ["# GPU check", ""]
        lines += [f"- {name}: {value}" for name, value in self.device.items()]
        lines += ["", "## Figures", ""]
        lines += ["Ratios round by round: median (smallest to largest).", ""]
        lines += _table(
            ["figure", "target", "measured", "over", ""],
            [
                [
                    row["what"],
                    "" if row["target"] is None else f"at least {row['target']:.2f}",
                    _format(row["ratio"], "{:.2f}"),
                    row["under"] or "",
                    _verdict(row),
                ]
                for row in self._figure_rows()
            ],
        )
        lines += ["", "## Measurements", ""]
        lines += ["Images per second: median (smallest to largest).", ""]
        lines += _table(
            ["", "images/s", "rounds"],
            [
                [name, _format(_spread(rates), "{:.0f}"), str(len(rates))]
                for name, rates in ((name, self._measured(name)) for name in self._rounds)
            ],
        )
        lines += ["", "## Steps", ""]
        lines += _table(
            ["step", "outcome", "seconds", ""],
            [
                [step["name"], step["outcome"], f"{step['seconds']:.1f}", step["detail"]]
                for step in self._steps
            ],
        )
        if self._notes:
            lines += ["", "## Notes", ""] + [f"- {note}" for note in self._notes]
        return "\n".join(lines) + "\n"

    def write(self):
        for name, text in (
            ("results.json", json.dumps(self.to_json(), indent=2) + "\n"),
            ("results.md", self.to_markdown()),
        ):
            path = os.path.realpath(os.path.join(self._folder, name))
            with open(path + ".part", "w", encoding="utf-8") as file:
                file.write(text)
            os.rename(path + ".part", path)


def _spread(values):
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def _format(spread, number):
    if spread is None:
        return "not measured"
    median, low, high = (number.format(spread[key]) for key in ("median", "min", "max"))
    return f"{median} ({low}-{high})"


def _verdict(row):
    if row["ratio"] is None:
        return "not measured"
    if row["missing"] and row["reached"] is None and row["target"] is not None:
        return f"not known: without {', '.join(row['missing'])}"
    return {None: "reported", True: "reached", False: "missed"}[row["reached"]]


def _table(headings, rows):
    def line(cells):
        cells = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
        return "| " + " | ".join(cells) + " |"

    return [line(headings), "|" + "---|" * len(headings)] + [line(row) for row in rows]
