"""A chart of the simulated use of each shard's link over one iteration, with a row of panels for
each placement and a column for each model."""

import matplotlib.pyplot as plt

from experiments.runs import matrix

_IN = "#0072B2"
_OUT = "#E69F00"
_ROW_INCHES = 0.26


def draw(columns, link_gbps):
    """Returns the figure. `columns` has a pair for each model: its text, and cells with timelines,
    which differ only in their placement. The placements are the same in all columns. `link_gbps`
    has the rate of each shard's link."""
    cells = columns[0][1]
    run = cells[0].run
    heights = _ROW_INCHES * run.shards
    width = 8 if len(columns) == 1 else 4.4 * len(columns)
    figure, panels = plt.subplots(
        len(cells), len(columns), figsize=(width, 1.5 + (heights + 0.45) * len(cells)),
        layout="constrained", squeeze=False, sharex="col",
    )
    figure.suptitle(
        "Simulated use of each shard's link over one iteration\n"
        f"{', '.join(text for text, _ in columns)}: {matrix.count(run.workers, 'worker')},"
        f" {matrix.count(run.shards, 'shard')}, schedule {run.schedule.lower()},"
        f" {matrix.device_name(run.device)}",
        fontsize=10,
    )
    for column, (text, of_model) in enumerate(columns):
        for row, measured in enumerate(of_model):
            _panel(panels[row][column], measured, text if len(columns) > 1 else "", link_gbps)
        panels[-1][column].set_xlabel("seconds since the iteration began")
        panels[-1][column].set_xlim(0, 1.02 * max(_length(m.plan.timeline) for m in of_model))
    panels[0][-1].legend(
        loc="lower right", bbox_to_anchor=(1, 1.12 if len(columns) > 1 else 1), ncols=2,
        fontsize=8, borderaxespad=0.1,
    )
    return figure


def _length(timeline):
    return timeline.bin_seconds * len(timeline.used_in[0])


def _panel(axes, measured, model_text, link_gbps):
    """Draws a row for each shard: upwards what its link takes in, downwards what it gives out."""
    timeline = measured.plan.timeline
    edges = [i * timeline.bin_seconds for i in range(len(timeline.used_in[0]) + 1)]
    shards = len(timeline.used_in)
    for shard, (used_in, used_out) in enumerate(zip(timeline.used_in, timeline.used_out)):
        legend = shard == 0
        axes.stairs([shard - 0.45 * part for part in used_in], edges, baseline=shard,
                    fill=True, color=_IN, label="in: gradients" if legend else None)
        axes.stairs([shard + 0.45 * part for part in used_out], edges, baseline=shard,
                    fill=True, color=_OUT, label="out: parameters" if legend else None)
    end = _length(timeline)
    axes.vlines(end, -0.5, shards - 0.5, "black", linewidth=1.2)
    name = ", ".join(part for part in (model_text, measured.run.scheme_name) if part)
    axes.set_title(f"{name}: {end:.3f} s", fontsize=10, loc="left")
    names = [f"shard {shard}" for shard in range(shards)]
    if len(set(link_gbps)) > 1:
        names = [f"{name}, {rate:g} Gb/s" for name, rate in zip(names, link_gbps)]
    axes.set_yticks(range(shards), names, fontsize=7)
    axes.set_ylim(shards - 0.45, -0.55)  # shard 0 on top
    axes.grid(axis="y", visible=False)
