"""Writes the report.md of the modes experiment."""

import math
import statistics

from experiments.cluster import outlook, training
from experiments.report import report
from experiments.runs import matrix

# A mode that is so near to the fastest one is as good: seeds differ by more.
_AS_GOOD = 1.1


def write(results, outlooks, charts, command):
    """Returns the text of the report. `outlooks` are those of outlook.simulate, and `charts` names
    without extension."""
    sections = [
        _head(results, command),
        _advice(results),
        _charts(charts, "time_to_accuracy"),
        _times(results),
        _charts(charts, "accuracy_over_time"),
        _charts(charts, "accuracy_over_bytes"),
        _ends(results),
        _balance(results),
        _charts(charts, "where_time_goes"),
        _outlook(outlooks),
        "## Files\n\n`results.csv` has a row for each training, `runs/` its config, logs and curve,"
        " and every chart is there as SVG and PNG. docs/experiment.md explains the grid.",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _charts(charts, prefix):
    return "\n\n".join(
        f"![{name.replace('_', ' ')}]({name}.svg)" for name in charts if name.startswith(prefix)
    )


def _head(results, command):
    proto = results.experiment.proto
    cluster = proto.cluster
    done = sum(len(cell.results) for cell in results.cells.values())
    lines = [
        "# Which update mode is fastest, where",
        f"{matrix.count(cluster.workers, 'worker')} train a model of"
        f" {results.experiment.model_bytes // 4:,} parameters, batch"
        f" {cluster.training.batch_size} each, until it recognises {proto.accuracy:g} % of the test"
        f" images; every mode in every situation over links of every rate, with"
        f" {matrix.count(proto.seeds, 'seed')}. {done} of"
        f" {len(results.experiment.runs())} trainings are done.",
        f"- Machine: {report.machine()}.\n- Network: {report.NETWORKS[results.kind]}.",
    ]
    if cluster.compute.HasField("pace"):
        pace = cluster.compute.pace
        lines.append(
            f"- Workers compute for real, at the pace of a {pace.device} whose time is dilated"
            f" {pace.time_dilation:g} times."
        )
    if proto.time_dilation != 1:
        lines.append(
            f"- All of that, links, stops and looks took {proto.time_dilation:g} times as long on"
            " the machine (`time_dilation`). **All times below are not dilated**; of those in"
            " results.csv only `run_seconds` is the machine's."
        )
    for name, situation in results.experiment.situations.items():
        lines.append(f"- **{name}**: {_situation(situation)}.")
    lines.append(f"- Command: `{command}`")
    return "\n\n".join(lines[:2]) + "\n\n" + "\n".join(lines[2:])


def _situation(situation):
    said = []
    if situation.slowdown != 1:
        said.append(f"takes {situation.slowdown:g} times as long for a pass")
    if situation.stop_seconds:
        said.append(
            f"is stopped for {situation.stop_seconds:g} s at a time, with about"
            f" {situation.run_seconds_between:g} s between"
        )
    return "the last worker " + " and ".join(said) if said else "all workers are alike"


def _advice(results):
    """A table of the fastest modes in each place."""
    rows = []
    for situation, link in results.places():
        cells = [c for c in results.find(situation=situation, link_gbps=link) if c.is_reached]
        if not cells:
            rows.append([situation, results.link_text(link), "none reached it", "-", "-", "-"])
            continue
        cells.sort(key=lambda cell: cell.seconds)
        best = cells[0]
        as_good = [c.run.mode for c in cells[1:] if c.seconds <= _AS_GOOD * best.seconds]
        least = min(cells, key=lambda cell: cell.megabytes)
        rows.append([
            situation, results.link_text(link), f"**{best.run.mode}**", f"{best.seconds:.1f}",
            ", ".join(as_good) or "-",
            f"{least.run.mode}: {least.megabytes:,.1f} MB, {least.seconds:.1f} s",
        ])
    return "## Take this when\n\n" + report.table(
        ["situation", ">links", "fastest", ">median, s",
         f"within {_AS_GOOD - 1:.0%} of it",
         "least bytes of the busiest link of those that came there"],
        rows,
    )


def _table(results, cell_text):
    """A table with a row for each mode, and a column for each place."""
    places = results.places()
    rows = []
    for mode in results.ordered("mode"):
        row = [mode]
        for situation, link in places:
            found = results.find(mode=mode, situation=situation, link_gbps=link)
            row.append(cell_text(found[0]) if found else "")
        rows.append(row)
    return report.table(
        ["mode", *(f">{situation}, {results.link_text(link)}" for situation, link in places)], rows
    )


def _spread(values, style):
    if len(values) == 1:
        return f"{values[0]:{style}}"
    return f"{statistics.median(values):{style}} ({min(values):{style}}-{max(values):{style}})"


def _time_text(cell):
    reached = [seconds for seconds in cell.times if math.isfinite(seconds)]
    if len(reached) == len(cell.times):
        return _spread(cell.times, ".1f")
    if not reached:
        return "not reached"
    of_all = f"{len(reached)} of {len(cell.times)} reached it"
    if cell.is_reached:
        return f"{cell.seconds:.1f} ({min(reached):.1f}-), {of_all}"
    return f"{of_all}, in {_spread(reached, '.1f')}"


def _times(results):
    return (
        "## Seconds to the accuracy\n\n"
        + _table(results, _time_text)
        + "\n\nMedian (smallest to largest) of the seeds, from the start of the training; a seed"
        " that did not reach it took longest. The parameters are"
        f" looked at every {results.experiment.proto.look_seconds:g} s, less often over slow links;"
        f" about {training.POINTS} looks at equal distances are evaluated, and all between the"
        " first of these that reaches it and the one before;"
        " a ring has no shards to ask, so its worker 0 evaluates, in a time that does not count,"
        f" and the time is known to a {training.EVALUATIONS}th of the training. Of a ring all times"
        " are those of worker 0."
    )


def _outlook(outlooks):
    """A table of images per second by mode and place."""
    if not outlooks:
        return ""
    places = list(dict.fromkeys((o.workers, o.situation, o.link_gbps) for o in outlooks))
    rates = {
        (o.mode, o.workers, o.situation, o.link_gbps): o.images_per_second for o in outlooks
    }
    best = {place: max(rate for key, rate in rates.items() if key[1:] == place) for place in places}
    rows = []
    for mode in dict.fromkeys(o.mode for o in outlooks):
        row = [mode]
        for place in places:
            rate = rates.get((mode, *place))
            if rate is None:
                row.append("-")
                continue
            text = f"{rate:,.0f}"
            row.append(f"**{text}**" if rate * _AS_GOOD >= best[place] else text)
        rows.append(row)
    header = [f">{workers}, {situation}, {link:g} Gb/s" for workers, situation, link in places]
    return (
        "## On more workers, simulated\n\nImages per second of 64 and 512 workers, as"
        " `//tools/simulate` plays them, with a shard for four workers unless they are colocated,"
        f" and {outlook.LATENCY_US} us for each message to arrive."
        " In bold what is fast, within 10 %. An image may teach more or less in another mode: the"
        " tables above have what each learns.\n\n" + report.table(["mode", *header], rows)
    )


def _balance(results):
    """A table of how evenly the modes load the hosts."""
    loads = {cell.run.mode: cell.load for cell in results.cells.values()}
    return "## How evenly the hosts are loaded\n\n" + report.table(
        ["mode", ">updated at the host with most", ">busiest link over the mean of all links"],
        [[mode, f"{load.stored_part:.1%}", f"{load.link_imbalance:.2f}"]
         for mode, load in loads.items()],
    ) + (
        "\n\nBy `psctl plan`: the part of the parameters that one host updates, for which it keeps"
        " the optimizer's state too, and how much more passes the busiest host's link. Workers with"
        " local steps keep the state of their own optimizer as well."
    )


def _ends(results):
    parts = [
        ("## Accuracy at the end, %", lambda cell: _spread(cell.accuracies, ".2f")),
        ("## MB of the busiest link each way", lambda cell: f"{cell.megabytes:,.2f}"),
        ("## Images per second, all workers together",
         lambda cell: f"{cell.images_per_second:,.0f}"),
    ]
    return "\n\n".join(f"{title}\n\n{_table(results, text)}" for title, text in parts) + (
        "\n\nThe busiest link is that of the host that moves the most, a shard's or a worker's. Its"
        " bytes are those that the workers counted, times what `psctl plan` has it move for each of"
        " them."
    )
