"""Writes report.md: what was measured, beside what was predicted."""

import os
import platform

from experiments.cluster import network
from experiments.report import paper
from experiments.runs import matrix

NETWORKS = {
    network.NAMESPACES: "every process in a network namespace of its own on one machine, each"
    " link shaped both ways by `tc tbf`",
    network.HOST: "all processes on the network of one machine, **not shaped**: there is no"
    " link, and so no bound",
    network.REMOTE: "processes on other hosts, over their own network",
}

_NEAR_BOUND = 1.1
SIMULATOR_TOLERANCE = 0.1


def write(results, charts, explained, command):
    """Returns the text of the report. `charts` are names without extension. `explained` is a
    paper.Paper or None."""
    sections = [
        _head(results, command),
        _charts(charts, "speedup"),
        _iterations(results),
        _charts(charts, "placements"),
        _charts(charts, "iteration_time"),
        _link_use(results, charts),
        _bytes(results),
        _charts(charts, "shard_bytes"),
        _simulator(results),
        _paper(results, explained) if explained else "",
        _how(),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def machine():
    """Describes this machine."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (
        f"{model}, {matrix.count(os.cpu_count(), 'processor')}, {memory / 1e9:.0f} GB,"
        f" Linux {platform.release()}"
    )


def table(header, rows):
    """Formats a table in Markdown. A header that begins with '>' marks a column of numbers."""
    lines = [
        [cell.removeprefix(">") for cell in header],
        ["---:" if cell.startswith(">") else "---" for cell in header],
        *rows,
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _or_dash(value, form):
    return "-" if value is None else format(value, form)


def _charts(charts, prefix):
    return "\n\n".join(
        f"![{name.replace('_', ' ')}]({name}.svg)" for name in charts if name.startswith(prefix)
    )


def _head(results, command):
    proto = results.experiment.proto
    text = [
        "# Where the parameters are, and how fast the training is",
        ", ".join(results.model_text(model) for model in results.ordered("model"))
        + f"; batch {results.experiment.batch_size} per worker{_rounds(results.experiment)};"
        f" runs of {matrix.count(proto.iterations, 'iteration')} after"
        f" {proto.warmup_iterations} of warm-up, {matrix.count(proto.repeats, 'repeat')}.",
        f"- {'Started from' if results.kind == network.REMOTE else 'Machine'}: {machine()}.",
        f"- Network: {NETWORKS[results.kind]}.",
    ]
    if results.kind == network.REMOTE:
        names = [host.name for host in (*proto.hosts.shard, *proto.hosts.worker)]
        text.append(f"- Hosts: {', '.join(dict.fromkeys(names))}.")
    if results.kind != network.HOST:
        uneven = list(proto.shard_link_gbps)
        text.append(
            f"- Links: {proto.link_gbps:g} Gb/s each way"
            + (f"; those of the first shards: {', '.join(f'{r:g}' for r in uneven)} Gb/s"
               if uneven else "")
            + "."
        )
    if proto.worker_slowdown:
        factors = ", ".join(f"{factor:g}" for factor in proto.worker_slowdown)
        text.append(f"- The first workers compute {factors} times as long.")
    if proto.time_dilation != 1:
        text.append(
            f"- Time is dilated {proto.time_dilation:g} times: links had"
            f" {proto.link_gbps / proto.time_dilation:g} Gb/s and devices took"
            f" {proto.time_dilation:g} times as long. **All times and rates below are those of"
            " the cluster that is emulated**; results.csv has the machine's own as well, in the"
            " columns `wall_...`."
        )
    text.append(f"- Command: `{command}`")
    return text[0] + "\n\n" + text[1] + "\n\n" + "\n".join(text[2:])


def _rounds(experiment):
    return f", {experiment.batches} in an iteration" if experiment.batches > 1 else ""


def _model_header(results):
    """Returns the header of a table's column of models, which is there if there are several."""
    return ["model"] if len(results.ordered("model")) > 1 else []


def _model(results, measured):
    return [results.model_text(measured.run.model)] if _model_header(results) else []


def _iterations(results):
    rows = []
    in_step = any(m.plan.in_step_seconds for m in results.cells.values())
    for m in results.cells.values():
        rows.append([
            *_model(results, m),
            str(m.run.workers),
            str(m.run.shards),
            m.run.scheme_name,
            m.run.schedule.lower(),
            matrix.device_name(m.run.device),
            f"{m.median:.3f} ({m.p10:.3f}-{m.p90:.3f})",
            _or_dash(m.bound, ".3f"),
            *([_or_dash(m.plan.in_step_seconds, ".3f")] if in_step else []),
            _or_dash(m.bound and m.median / m.bound, ".2f"),
            _or_dash(m.efficiency, ".0%"),
            f"{m.images_per_second:,.1f}",
            _or_dash(results.speedup(m), ".2f"),
            _or_dash(results.over_layer_based(m), ".2f"),
            _or_dash(m.processor_use, ".0%") + (" !" if m.processor_bound else ""),
        ])
    text = "## Iterations\n\n" + table(
        [*_model_header(results), ">workers", ">shards", "placement", "schedule", "device",
         ">seconds per iteration, median (p10-p90)", ">bound, s",
         *([">in step, s"] if in_step else []), ">measured / bound", ">efficiency", ">images/s",
         ">speed-up over 1 worker", ">over layer-based", ">processor use"],
        rows,
    )
    text += (
        "\n\nThe bound is a time that the links and the device allow no iteration of this placement"
        " to beat: computing that no transfer can overlap, and then the transfer over the busiest"
        " link, at the link's rate less the framing of Ethernet, IP and TCP. Efficiency is"
        " bound / measured."
    )
    if in_step:
        text += (
            " Under `sequential`, workers in step compute, push and pull in turn, all at once, and"
            " take the time in step; those that fall out of step push while others pull."
        )
    bounded = [m for m in results.cells.values() if m.bound]
    if bounded:
        within = sum(m.median <= _NEAR_BOUND * m.bound for m in bounded)
        text += f" {within} of {len(bounded)} are at most {_NEAR_BOUND:.2f} times their bound."
    if any(m.processor_bound for m in results.cells.values()):
        text += (
            "\n\n**!**: more than"
            f" {results.experiment.proto.processor_bound_above:.0%} of the machine's processors"
            " were in use. Such a run measures the machine, not the network: dilate time more,"
            " or use more processors."
        )
    return text


def _bytes(results):
    rows = []
    seen = set()
    for m in results.cells.values():
        shape = (*_model(results, m), m.run.workers, m.run.shards, m.run.scheme_name)
        if shape in seen:
            continue
        seen.add(shape)
        for holder in range(len(m.bytes_in)):
            rows.append([
                *(str(part) for part in shape),
                str(holder) if m.run.shards else f"worker {holder}",
                *(
                    f"{sizes[holder] / 1e6:,.1f}"
                    for sizes in (m.plan.bytes_in, m.bytes_in, m.plan.bytes_out, m.bytes_out)
                ),
            ])
    worst = max(m.bytes_error for m in results.cells.values())
    return (
        "## Bytes per shard\n\n"
        + table(
            [*_model_header(results), ">workers", ">shards", "placement", ">shard",
             ">MB in, predicted", ">MB in, measured", ">MB out, predicted", ">MB out, measured"],
            rows,
        )
        + "\n\nPer iteration, of all workers together; the first schedule and device of each."
        f" Over all runs the largest difference is {worst:.2%}."
    )


def _link_use(results, charts):
    drawn = _charts(charts, "link_use")
    if not drawn:
        return ""
    return (
        "## When each shard's link is in use\n\n"
        "One iteration of the largest cluster, as `//tools/simulate --timeline` plays it."
        " Height is the part of the link in use: upwards what a shard takes in, downwards what it"
        " gives out. A placement that is even in bytes may still use one shard after another.\n\n"
        + drawn
    )


def _simulator(results):
    if results.kind == network.HOST:
        return ""
    rows = []
    within = 0
    for measured in results.cells.values():
        error = measured.simulation_error
        within += abs(error) <= SIMULATOR_TOLERANCE
        rows.append([
            str(measured.run), f"{measured.median:.3f}",
            f"{measured.plan.simulated_seconds:.3f}", f"{error:+.1%}",
        ])
    return (
        "## The simulator beside the measurement\n\n"
        + table(["run", ">measured, s", ">simulated, s", ">error"], rows)
        + f"\n\nWithin {SIMULATOR_TOLERANCE:.0%} in {within} of {len(rows)}. `bazel run"
        " //tools/simulate` plays clusters that no one machine can be."
    )


def _paper(results, explained):
    workers = list(paper.RATIOS)
    rows = [
        ["the paper, measured", *(f"{paper.RATIOS[w]:.2f}" for w in workers)],
        [
            f"its schedule with {explained.outside_seconds:.2f} s outside of communication,"
            " fitted on the first",
            *(f"{explained.ratios[w]:.2f}" for w in workers),
        ],
    ]
    for schedule in dict.fromkeys(cell.schedule for cell in results.cells):
        exchanges = {w: _exchange(results, explained, schedule, w) for w in workers}
        if any(exchanges.values()):
            ratios = [
                _or_dash(exchanges[w] and _with_compute(explained, schedule, *exchanges[w]), ".2f")
                for w in workers
            ]
            rows.append([
                f"this system, `{schedule.lower()}`, the same link rate and seconds of"
                " computing, with its measured exchange",
                *ratios,
            ])
        for device in dict.fromkeys(cell.device for cell in results.cells):
            ratios = [_measured_ratio(results, schedule, device, w) for w in workers]
            if any(ratios):
                rows.append([
                    f"this system, `{schedule.lower()}`, {matrix.device_name(device)}, measured",
                    *(_or_dash(ratio, ".2f") for ratio in ratios),
                ])
    return (
        "## The paper explained\n\n"
        "Choi, Ko and Kim report memory-based placement 20 % faster than layer-based with 4"
        " workers and 2 shards, and 66 % with 8 and 4. TensorFlow computed, pushed, then pulled,"
        f" one after the other; over links of {paper.GBPS} Gb/s the exchange is known from the"
        " bytes per shard (fc6 alone on its shard under layer-based placement), and what is left"
        " is one number, the seconds of an iteration outside of communication. Fitted on the"
        f" 4-worker figure it is {explained.outside_seconds:.2f} s, and the 8-worker figure"
        f" follows: {explained.ratios[workers[1]]:.2f}, where the paper measured"
        f" {paper.RATIOS[workers[1]]:.2f}.\n\n"
        + table(
            ["memory-based over layer-based", *(f">{w} workers, {w // 2} shards" for w in workers)],
            rows,
        )
        + "\n\nSeconds of computing beside the measured exchange: added to it under `sequential`,"
        " the larger of the two under the others, which overlap them. Exchanges of shrunk models"
        f" and other links are scaled to full size and {paper.GBPS} Gb/s."
    )


def _pair(results, schedule, device, workers):
    """Returns the layer-based and the memory-based result for the paper's cluster, or None."""
    for memory in results.find(
        schedule=schedule, device=device, workers=workers, shards=workers // 2,
        scheme=matrix.MEMORY_BASED,
    ):
        layer = results.layer_based(memory)
        if layer is not None:
            return layer, memory
    return None


def _measured_ratio(results, schedule, device, workers):
    pair = _pair(results, schedule, device, workers)
    return pair and pair[0].median / pair[1].median


def _exchange(results, explained, schedule, workers):
    """Returns the seconds of the exchange alone, layer-based and memory-based, at the paper's
    size and rate, or None."""
    pair = _pair(results, schedule, "none", workers)
    if pair is None or results.kind == network.HOST:
        return None
    model_bytes = sum(pair[1].plan.bytes_in) / workers
    scale = explained.model_bytes / model_bytes
    scale *= results.experiment.proto.link_gbps / paper.GBPS
    return pair[0].median * scale, pair[1].median * scale


def _with_compute(explained, schedule, layer, memory):
    outside = explained.outside_seconds
    if schedule == "SEQUENTIAL":
        return (outside + layer) / (outside + memory)
    return max(outside, layer) / max(outside, memory)


def _how():
    return (
        "## Files\n\n"
        "`results.csv` has a row for each run, `runs/` its config, logs and result, and every"
        " chart is there as SVG and PNG. docs/experiment.md explains the columns and the bound."
    )
