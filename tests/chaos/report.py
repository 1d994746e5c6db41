"""What a run under faults is judged by, and how it is told."""

import bisect
import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Strike:
    """A fault that has struck."""

    fault: str
    group: str
    at_seconds: float  # since the training began
    iteration: int  # the latest that any worker had pushed by then
    # From the fault until the training went on; None if it never did.
    recovery_seconds: float = None
    lasted_seconds: float = 0.0  # the part of it in which the cause lasted


def retained_within(samples, strikes):
    """Returns the part of the iterations that a run did from its first fault on, of those that it
    would have done at the rates that it had between the faults: in the second half of the time from
    when it went on until the next fault, or its end. Unlike the ratio to another run this does not
    depend on how fast the machine is at different times, but it leaves out what slows a run down
    for good. None if a fault had no end.

    samples: (seconds since the training began, iteration), ascending
    """
    done = expected = 0.0
    ends = [strike.at_seconds for strike in strikes[1:]] + [samples[-1][0] if samples else 0.0]
    for strike, end in zip(strikes, ends):
        if strike.recovery_seconds is None:
            return None
        begin = strike.at_seconds
        middle = (begin + strike.recovery_seconds + end) / 2
        quiet = _iteration_at(samples, end) - _iteration_at(samples, middle)
        if quiet <= 0:
            continue  # the next fault came at once
        done += _iteration_at(samples, end) - _iteration_at(samples, begin)
        expected += quiet / (end - middle) * (end - begin)
    return done / expected if expected else None


def _iteration_at(samples, seconds):
    """The iteration at a time, between samples in proportion."""
    after = bisect.bisect_left(samples, seconds, key=lambda sample: sample[0])
    if after == 0 or after == len(samples):
        return samples[min(after, len(samples) - 1)][1]
    (begin, first), (end, last) = samples[after - 1], samples[after]
    return first + (last - first) * (seconds - begin) / (end - begin)


def percentile(values, part):
    """The smallest value that is not exceeded by `part` of all values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def by_group(strikes):
    """Returns the recovery times of each kind of fault, and of all."""
    groups = {}
    for strike in strikes:
        groups.setdefault(strike.group, []).append(strike)
    rows = {name: _row(groups[name]) for name in sorted(groups)}
    if strikes:
        rows["all"] = _row(strikes)
    return rows


def _row(strikes):
    seconds = [s.recovery_seconds for s in strikes if s.recovery_seconds is not None]
    row = {"faults": len(strikes), "not_recovered": len(strikes) - len(seconds)}
    if seconds:
        row["p50_seconds"] = percentile(seconds, 0.5)
        row["p99_seconds"] = percentile(seconds, 0.99)
        row["worst_seconds"] = max(seconds)
    return row


def table(rows):
    lines = [f"{'recovery':20}{'faults':>8}{'p50':>10}{'p99':>10}{'worst':>10}"]
    for name, row in rows.items():
        times = "".join(
            f"{row[key]:>8.2f} s" if key in row else f"{'-':>10}"
            for key in ("p50_seconds", "p99_seconds", "worst_seconds")
        )
        missing = f"  {row['not_recovered']} never" if row["not_recovered"] else ""
        lines.append(f"{name:20}{row['faults']:>8}{times}{missing}")
    return "\n".join(lines)


def problems(result):
    """Returns why a result is a failure, as sentences; none if all is well."""
    found = []
    if result["exit_code"] != 0:
        found.append(f"launch ended with exit code {result['exit_code']}")
    found += result["verdict"]["problems"]
    found += [
        f"the training never went on after: {strike['fault']}"
        for strike in result.get("faults", [])
        if strike["recovery_seconds"] is None
    ]
    missed = result.get("missed", [])
    found += [f"could not be done: {fault}" for fault in missed]
    return found
