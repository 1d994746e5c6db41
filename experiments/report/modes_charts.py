"""The charts of the modes experiment, each as SVG and PNG."""

import itertools
import math
import statistics

import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullLocator

from experiments.report import drawing

# Curves that are many need line styles beside the colours.
_LINES = ("-", "--", ":", "-.")
_PANEL = 3.3  # inches


def draw(results, write):
    """Draws all charts and passes each to write(name, bytes). Returns their names without the
    extension."""
    drawn = []
    with plt.rc_context(drawing.STYLE):
        for situation in results.ordered("situation"):
            for what in (_over_time, _over_bytes):
                figure = _curves(results, situation, what)
                drawn.append(drawing.save(figure, write, f"accuracy{what.__name__}_{situation}"))
        drawn.append(drawing.save(_times(results), write, "time_to_accuracy"))
        for situation in results.ordered("situation"):
            figure = _parts(results, situation)
            drawn.append(drawing.save(figure, write, f"where_time_goes_{situation}"))
    return drawn


def _styles(results):
    """Returns how each mode's curve is drawn."""
    pairs = itertools.product(_LINES, [*drawing.COLORS, "black"])
    return {
        mode: {"linestyle": line, "color": color}
        for mode, (line, color) in zip(results.ordered("mode"), pairs)
    }


def _panels(results, height=_PANEL, **options):
    """Returns a figure and its axes, a panel for each rate of the links."""
    links = results.ordered("link_gbps")
    figure, panels = plt.subplots(
        1, len(links), figsize=(2.4 + _PANEL * 1.2 * len(links), height), layout="constrained",
        squeeze=False, sharey=True, **options,
    )
    for axes, link in zip(panels[0], links):
        axes.set_title(results.link_text(link), fontsize=10)
    return figure, list(zip(panels[0], links))


def _log_axis(axes):
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())


def _over_time(cell):
    return [seconds for seconds, _ in cell.results[0]["curve"]], "seconds of the training"


def _over_bytes(cell):
    # Bytes move at an even pace in all modes but that of fragments in few rounds.
    result = cell.results[0]
    whole = max(statistics.fmean(result["seconds"]), result["curve"][-1][0])
    return (
        [cell.link_bytes[0] / 1e6 * seconds / whole for seconds, _ in result["curve"]],
        "MB that have passed the busiest link each way",
    )


def _curves(results, situation, what):
    """Draws the accuracy over something, of the first seed of each mode."""
    figure, panels = _panels(results)
    figure.suptitle(f"Accuracy, {situation}", fontsize=10)
    styles = _styles(results)
    label = ""
    for axes, link in panels:
        for cell in results.find(situation=situation, link_gbps=link):
            x, label = what(cell)
            y = [accuracy for _, accuracy in cell.results[0]["curve"]]
            axes.plot(x, y, label=cell.run.mode, linewidth=1.2, **styles[cell.run.mode])
        axes.axhline(results.experiment.proto.accuracy, color=drawing.GREY, linewidth=0.8)
        _log_axis(axes)
        axes.set_xlabel(label)
    target = results.experiment.proto.accuracy
    panels[0][0].set_ylim(max(0, target - 8 * (100 - target)), 100)
    panels[0][0].set_ylabel("% of the test images")
    panels[-1][0].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1.05))
    return figure


def _times(results):
    """Draws the time to the accuracy of each mode and situation: median, smallest and largest. An
    arrow is for seeds that did not reach it."""
    modes, situations = results.ordered("mode"), results.ordered("situation")
    figure, panels = _panels(results, 1.3 + 0.3 * len(modes))
    figure.suptitle(
        f"Seconds to {results.experiment.proto.accuracy:g} % of the test images: median, smallest"
        " and largest (arrow: not all seeds reached it)", fontsize=10,
    )
    for axes, link in panels:
        for i, situation in enumerate(situations):
            color, marker = drawing.COLORS[i % 5], drawing.MARKERS[i % 5]
            for cell in results.find(situation=situation, link_gbps=link):
                y = modes.index(cell.run.mode) + 0.22 * (i - (len(situations) - 1) / 2)
                reached = [seconds for seconds in cell.times if math.isfinite(seconds)]
                if not reached:
                    continue
                axes.plot([min(reached), max(reached)], [y, y], color=color, linewidth=1.2)
                if len(reached) < len(cell.times):
                    axes.plot(max(reached), y, marker=">", color=color, fillstyle="none")
                if cell.is_reached:
                    axes.plot(cell.seconds, y, marker=marker, color=color, markersize=5)
            axes.plot([], [], marker=marker, color=color, label=situation)
        _log_axis(axes)
        axes.set_xlabel("seconds")
        axes.set_yticks(range(len(modes)), modes)
        axes.set_ylim(len(modes) - 0.4, -0.6)
    panels[-1][0].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1.05))
    return figure


def _parts(results, situation):
    """Draws how the workers of each mode spend their time, on average."""
    modes = results.ordered("mode")
    figure, panels = _panels(results, 1.3 + 0.24 * len(modes))
    figure.suptitle(f"Where the workers' time goes, {situation}", fontsize=10)
    for axes, link in panels:
        for cell in results.find(situation=situation, link_gbps=link):
            y, left = modes.index(cell.run.mode), 0.0
            computing, waiting = cell.part("compute"), cell.part("exchange_wait")
            for part, color in (
                (computing, drawing.COLORS[2]), (waiting, drawing.COLORS[1]),
                (max(0.0, 1 - computing - waiting), "#BBBBBB"),
            ):
                axes.barh(y, 100 * part, left=100 * left, color=color, height=0.7)
                left += part
        for label, color in (
            ("computing", drawing.COLORS[2]), ("waiting for the exchange", drawing.COLORS[1]),
            ("other", "#BBBBBB"),
        ):
            axes.bar([0], [0], color=color, label=label)
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of the time")
        axes.set_yticks(range(len(modes)), modes)
        axes.set_ylim(len(modes) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
    panels[-1][0].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1.05))
    return figure
