#!/usr/bin/env python3
"""Prints the results of tools/quickstart from what launch and psctl write as JSON.

    quickstart_report.py training NAME SUMMARY
    quickstart_report.py exchange PLAN SUMMARY SUMMARY STATS STATS

PLAN is of two configs; the summaries and statistics are of their runs, in that order.
"""

import json
import pathlib
import sys


def training(name, summary):
    print(
        f"  {name + ':':6} {summary['final_accuracy']:.1%} of the held-out images right after"
        f" {summary['iterations']:,} iterations in {summary['seconds']:.1f} s\n"
    )


def megabytes(count):
    return f"{count / 1e6:,.1f} MB"


def exchange(plans, summaries, stats):
    rows = [["per iteration"], ["seconds (median; plan: the least)"]]
    for plan, summary in zip(plans, summaries):
        rows[0] += ["measured", "plan"]
        rows[1] += [
            f"{summary['median_iteration_seconds']:.3f}",
            f"{plan['bound_seconds']:.3f}",
        ]
    for shard in range(len(plans[0]["shards"])):
        for direction in ("in", "out"):
            row = [f"shard {shard}, bytes {direction}"]
            for plan, summary, run in zip(plans, summaries, stats):
                workers = run["shards"][shard]["stats"]["worker"]
                total = sum(int(worker[f"bytes_{direction}"]) for worker in workers)
                row.append(megabytes(total / summary["iterations"]))
                row.append(
                    megabytes(plan["shards"][shard][f"bytes_{direction}_per_iteration"])
                )
            rows.append(row)

    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    line = " " * widths[0]
    for i, plan in enumerate(plans):
        measured, planned = 2 * i + 1, 2 * i + 2
        widths[measured] = max(widths[measured], len(plan["scheme"]) - 2 - widths[planned])
        line += "  |  " + plan["scheme"].center(widths[measured] + 2 + widths[planned])
    print(line.rstrip())
    for row in rows:
        line = row[0].ljust(widths[0])
        for i in range(1, len(row)):
            line += ("  |  " if i % 2 else "  ") + row[i].rjust(widths[i])
        print(line)
    print(
        f"\nThe plan's seconds are for links of {plans[0]['worker_link_gbps']:g} Gb/s."
        " Here all processes share the cores and the\nmemory of one machine and there is no link;"
        " between machines, the busiest one decides."
    )


def main():
    mode, *arguments = sys.argv[1:]
    if mode == "training":
        name, summary = arguments
        training(name, json.loads(pathlib.Path(summary).read_text()))
    else:
        plan, *runs = [json.loads(pathlib.Path(path).read_text()) for path in arguments]
        exchange(plan["plans"], runs[:2], runs[2:])


if __name__ == "__main__":
    main()
