"""How a run goes on that others attack: bazel run -c opt //bench:attacks

Starts a ps and a worker without computing, so that the exchange takes all processors, and attacks
the ps, in turn with quiet times: with mTLS, by strangers without a certificate and by a reader of
the run, and in plaintext, where everybody may do everything, by connections only. A row tells how
many iterations a second the run did beside the attack for one in quiet before and after it, also
per processor that the attackers left, and by how much the ps's memory grew at most. Meanwhile psctl
asks the ps, and must be answered.
"""

import argparse
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

from bench.attacks import attacks
from bench.attacks.attacked_run import CASES, MOST_BYTES, Attack

_PROCESSORS = len(os.sched_getaffinity(0))


class Measured:
    """What a run did beside an attack of `seconds`."""

    def __init__(self, run, case, name, seconds):
        quiet = [run.rate(seconds / 2)]
        parameters = run.parameters()
        before = run.resident_bytes()
        attack = Attack(name, run.target(case.who, seconds + 1))
        time.sleep(0.5)
        attacked = run.rate(seconds)
        self.acts, self.got_through, cpu_seconds = attack.end()
        self.grown_bytes = run.peak_bytes() - before
        run.require_alive()
        run.require_right(parameters)
        case.require(name, self.acts, self.got_through)
        quiet.append(run.rate(seconds / 2))
        self.ratio = attacked / statistics.mean(quiet)
        left = _PROCESSORS - cpu_seconds / (seconds + 1)
        self.ratio_per_processor = self.ratio * _PROCESSORS / left


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes its folder
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=4, help="of each attack")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--attack", choices=attacks.ATTACKS, help="only this one")
    parser.add_argument("--who", choices={case.who for case in CASES}, help="only of these")
    arguments = parser.parse_args()
    print(f"{'':34}{'for one in quiet':>18}{'per processor left':>20}{'memory':>10}  connections")
    failures = []
    for case in CASES:
        for name in case.attacks:
            if arguments.attack not in (None, name) or arguments.who not in (None, case.who):
                continue
            try:
                _report(case, name, arguments)
            except AssertionError as failure:
                failures.append(failure)
                print(f"{case.who}: {name.replace('_', ' ')}: FAILED: {failure}", flush=True)
    return 1 if failures else 0


def _report(case, name, arguments):
    with tempfile.TemporaryDirectory() as folder, case.run(pathlib.Path(folder)) as run:
        run.await_start()
        rounds = [Measured(run, case, name, arguments.seconds) for _ in range(arguments.rounds)]
        counts = run.stats()["connections"]
    ratios = sorted(each.ratio_per_processor for each in rounds)
    label = f"{case.who}: {name.replace('_', ' ')}"
    grown_bytes = max(each.grown_bytes for each in rounds)
    print(
        f"{label:34}{statistics.median(each.ratio for each in rounds):18.2f}"
        f"{f'{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})':>20}"
        f"{grown_bytes / 1e6:7.0f} MB  "
        + ", ".join(f"{key} {value}" for key, value in counts.items() if key != "limits")
        + f"; {statistics.median(each.acts for each in rounds):.0f} times, "
        f"{statistics.median(each.got_through for each in rounds):.0f} got through at a time",
        flush=True,
    )
    if grown_bytes > MOST_BYTES:
        raise AssertionError(
            f"memory grew by {grown_bytes / 1e6:.0f} MB, allowed: {MOST_BYTES / 1e6:.0f}"
        )


if __name__ == "__main__":
    sys.exit(main())
