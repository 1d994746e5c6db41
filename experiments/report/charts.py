"""The charts of a report, each as SVG and PNG."""

import itertools
import math

import matplotlib.pyplot as plt
from matplotlib.container import BarContainer
from matplotlib.ticker import NullLocator

from experiments.cluster import network
from experiments.report import drawing, link_use_chart, paper
from experiments.runs import matrix, topology

_BOUND = {"linestyle": "--", "linewidth": 1.2, "alpha": 0.8}
_IN_STEP = {"linestyle": ":", "linewidth": 1.2, "alpha": 0.8}


def draw(results, write):
    """Draws all charts that `results` has figures for and passes each to write(name, bytes).
    Returns their names without the extension."""
    drawn = []

    def add(figure, *name):
        drawn.append(drawing.save(figure, write, "_".join(part for part in name if part)))

    models = results.ordered("model")
    devices = results.ordered("device")
    with plt.rc_context(drawing.STYLE):
        if len(models) > 1:
            for device in devices:
                for schedule in results.ordered("schedule"):
                    add(_placements(results, schedule, device), "placements", schedule, device)
        columns = [(results.model_text(model), _in_time(results, model)) for model in models]
        if all(cells and cells[0].run.shards > 1 for _, cells in columns):
            links = [results.experiment.shard_link_gbps(s) for s in range(results.largest()[1])]
            add(link_use_chart.draw(columns, links), "link_use")
        for model in models:
            for device in devices:
                if any(cell.workers == 1 for cell in results.cells):
                    add(_speedup(results, model, device), "speedup", model, device)
            if any(cell.shards > 1 for cell in results.cells):
                add(_shard_bytes(results, model), "shard_bytes", model)
            add(_iteration_time(results, model), "iteration_time", model)
    return drawn


def _in_time(results, model):
    """Returns the cells whose timelines are shown: those of the largest cluster, under the
    config's last schedule and device."""
    workers, shards = results.largest()
    found = results.find(
        model=model, workers=workers, shards=shards, schedule=results.ordered("schedule")[-1],
        device=results.ordered("device")[-1], topology=topology.APART,
    )
    return [m for m in found if m.plan.timeline]


def _scheme_styles(results):
    schemes = results.ordered("scheme_name")
    return {
        scheme: {"color": color, "marker": marker}
        for scheme, color, marker in zip(
            schemes, itertools.cycle(drawing.COLORS), itertools.cycle(drawing.MARKERS)
        )
    }


def _by_workers(measured):
    """Sorts the cells by the axis rather than by the config, so that lines join neighbours."""
    return sorted(measured, key=lambda m: (m.run.workers, m.run.shards))


def _legend_bars_first(axes, **options):
    """Lists bars before lines, unlike matplotlib, because the lines are drawn over the bars."""
    entries = sorted(
        zip(*axes.get_legend_handles_labels()),
        key=lambda entry: not isinstance(entry[0], BarContainer),
    )
    axes.legend(*zip(*entries), fontsize=8, **options)


def _worker_axis(axes, workers):
    axes.set_xscale("log", base=2)
    axes.set_xticks(workers, [str(count) for count in workers])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("workers")


def _links(results):
    if results.kind == network.HOST:
        return "links not shaped"
    return f"links of {results.experiment.proto.link_gbps:g} Gb/s"


def _placements(results, schedule, device):
    """Draws the iteration time of each scheme, with a panel for each model."""
    models, styles = results.ordered("model"), _scheme_styles(results)
    shapes = list(dict.fromkeys((c.workers, c.shards) for c in results.cells))
    figure, panels = plt.subplots(
        len(models), 1, figsize=(1.5 + 2.4 * len(shapes), 0.8 + 2.4 * len(models)),
        layout="constrained", squeeze=False,
    )
    figure.suptitle(
        f"Seconds per iteration, {schedule.lower()}, {matrix.device_name(device)},"
        f" {_links(results)}\n(above each bar: times its bound)",
        fontsize=10,
    )
    width = 0.8 / len(styles)
    for axes, model in zip(panels[:, 0], models):
        for i, (scheme, style) in enumerate(styles.items()):
            cells = [
                (shapes.index((m.run.workers, m.run.shards)) + (i + 0.5) * width - 0.4, m)
                for m in results.find(
                    model=model, schedule=schedule, device=device, scheme_name=scheme)
            ]
            axes.bar([x for x, _ in cells], [m.median for _, m in cells], width * 0.9,
                     color=style["color"], label=scheme)
            for x, m in cells:
                if m.bound:
                    axes.hlines(m.bound, x - width / 2, x + width / 2, "black", linewidth=1.6)
                    axes.text(x, m.median, f"{m.median / m.bound:.2f}", fontsize=7,
                              ha="center", va="bottom")
        axes.hlines([], [], [], colors="black", label="bound")
        axes.set_title(results.model_text(model), fontsize=10)
        axes.set_xticks(
            range(len(shapes)),
            [f"{matrix.count(w, 'worker')}, {matrix.count(s, 'shard')}" for w, s in shapes],
        )
        axes.grid(axis="x", visible=False)
        axes.margins(y=0.12)
    _legend_bars_first(panels[0][0], loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _speedup(results, model, device):
    """Draws a panel for each schedule, and one with the ratio of memory-based to layer-based."""
    schedules = results.ordered("schedule")
    styles = _scheme_styles(results)
    rows = math.ceil((len(schedules) + 1) / 2)
    figure, grid = plt.subplots(rows, 2, figsize=(8, 3.2 * rows + 0.4), layout="constrained")
    panels = grid.flat[: len(schedules) + 1]
    for unused in grid.flat[len(panels) :]:
        unused.set_axis_off()
    figure.suptitle(
        f"{results.model_text(model)}, {matrix.device_name(device)}, {_links(results)}"
    )
    for axes in panels[1:-1]:
        axes.sharey(panels[0])
    for axes, schedule in zip(panels, schedules):
        for scheme, style in styles.items():
            found = results.find(
                model=model, schedule=schedule, device=device, scheme_name=scheme)
            cells = _by_workers(m for m in found if results.speedup(m))
            if not cells:
                continue
            workers = [m.run.workers for m in cells]
            axes.plot(workers, [results.speedup(m) for m in cells], label=scheme, **style)
            for seconds, line in (
                ([m.bound for m in cells], _BOUND),
                ([m.plan.in_step_seconds for m in cells], _IN_STEP),
            ):
                if all(seconds):
                    speedups = [_speedup_in(results, m, s) for m, s in zip(cells, seconds)]
                    axes.plot(workers, speedups, color=style["color"], **line)
        axes.plot([], [], color=drawing.GREY, label="bound", **_BOUND)
        if "SEQUENTIAL" in schedules:
            axes.plot([], [], color=drawing.GREY, label="workers in step", **_IN_STEP)
        axes.set_title(f"schedule: {schedule.lower()}", fontsize=10)
        axes.set_ylabel("speed-up over 1 worker, images/s")
        _worker_axis(axes, sorted(results.ordered("workers")))
    panels[0].set_ylim(bottom=0)  # the panels share the axis, whose top is the highest value of all
    panels[0].legend(fontsize=8)
    _ratio_panel(panels[-1], results, model, device, schedules)
    return figure


def _speedup_in(results, measured, seconds):
    """Returns the speed-up over the same one worker if each iteration took `seconds`."""
    return results.speedup(measured) * measured.median / seconds


def _ratio_panel(axes, results, model, device, schedules):
    for schedule, color, marker in zip(schedules, drawing.COLORS[::-1], drawing.MARKERS[::-1]):
        found = results.find(
            model=model, schedule=schedule, device=device, scheme=matrix.MEMORY_BASED,
            topology=topology.APART)
        pairs = [(m, results.layer_based(m)) for m in _by_workers(found) if results.layer_based(m)]
        workers = [m.run.workers for m, _ in pairs]
        ratios = [layer.median / m.median for m, layer in pairs]
        axes.plot(workers, ratios, color=color, marker=marker, label=schedule.lower())
        if pairs and all(m.bound for m, _ in pairs):
            bounds = [layer.bound / m.bound for m, layer in pairs]
            axes.plot(workers, bounds, color=color, **_BOUND)
    axes.plot([], [], color=drawing.GREY, label="ratio of the bounds", **_BOUND)
    of_paper = paper.RATIOS if results.find(model=model)[0].plan.model == "vgg16" else {}
    if of_paper:
        axes.plot(list(of_paper), list(of_paper.values()), "k*", markersize=11, label="the paper")
    axes.set_title("memory-based over layer-based", fontsize=10)
    axes.set_ylabel("times as fast")
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    _worker_axis(axes, sorted({*results.ordered("workers"), *of_paper}))


def _shard_bytes(results, model):
    """Draws the bytes of the first schedule and device, because they are the same under all."""
    shapes = sorted({(c.workers, c.shards) for c in results.cells if c.shards > 1})
    styles = _scheme_styles(results)
    figure, panels = plt.subplots(
        1, len(shapes), figsize=(3 + 3.2 * len(shapes), 3.4), layout="constrained", squeeze=False
    )
    figure.suptitle(
        f"{results.model_text(model)}: what each shard receives in an iteration, and sends"
    )
    for axes, (workers, shards) in zip(panels[0], shapes):
        width = 0.8 / len(styles)
        for i, (scheme, style) in enumerate(styles.items()):
            found = results.find(model=model, workers=workers, shards=shards, scheme_name=scheme)
            if not found:
                continue
            at = [shard + (i - (len(styles) - 1) / 2) * width for shard in range(shards)]
            measured = [size / 1e6 for size in found[0].bytes_in]
            planned = [size / 1e6 for size in found[0].plan.bytes_in]
            axes.bar(at, measured, width * 0.9, color=style["color"], label=scheme)
            axes.hlines(planned, [x - width / 2 for x in at], [x + width / 2 for x in at],
                        colors="black", linewidth=1.6)
        axes.hlines([], [], [], colors="black", label="predicted")
        axes.set_title(f"{matrix.count(workers, 'worker')}, {matrix.count(shards, 'shard')}",
                       fontsize=10)
        axes.set_xticks(range(shards))
        axes.set_xlabel("shard")
        axes.grid(axis="x", visible=False)
    panels[0][0].set_ylabel("MB per iteration, each way")
    # Beside the bars, which are as high as the panel if all shards have the same.
    _legend_bars_first(panels[0][-1], loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _iteration_time(results, model):
    """Draws how a worker of the largest cluster spends an iteration."""
    workers, shards = results.largest()
    cells = results.of_largest(model=model)
    figure, axes = plt.subplots(figsize=(9, 1.4 + 0.32 * len(cells)), layout="constrained")
    at = range(len(cells))
    parts = [
        ("computing", [m.computing for m in cells], drawing.COLORS[2]),
        ("waiting for the exchange", [m.waiting for m in cells], drawing.COLORS[1]),
        ("other", [m.other for m in cells], "#BBBBBB"),
    ]
    left = [0.0] * len(cells)
    for label, values, color in parts:
        axes.barh(at, values, left=left, color=color, label=label, height=0.7)
        left = [a + b for a, b in zip(left, values)]
    bounds = [(i, m.bound) for i, m in zip(at, cells) if m.bound]
    if bounds:
        axes.vlines([b for _, b in bounds], [i - 0.42 for i, _ in bounds],
                    [i + 0.42 for i, _ in bounds], colors="black", linewidth=1.8, label="bound")
    axes.set_yticks(at, [
        f"{m.run.scheme_name}, {m.run.schedule.lower()}, {matrix.device_name(m.run.device)}"
        for m in cells
    ])
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("seconds per iteration")
    axes.set_title(
        f"{results.model_text(model)}, {matrix.shape(workers, shards)}: where an iteration's time"
        " goes",
        fontsize=10,
    )
    _legend_bars_first(axes, loc="upper left", bbox_to_anchor=(1, 1))
    axes.set_ylim(len(cells) - 0.4, -0.6)
    return figure
