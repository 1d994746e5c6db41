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
import statistics
import sys
import tempfile
import time

from bench.attacks import attacks
from bench.attacks.attacked_run import CASES, Attack, Run

_PROCESSORS = len(os.sched_getaffinity(0))


class Measured:
    """What a run did beside an attack of `seconds`."""

    def __init__(self, run, who, name, seconds):
        quiet = [run.rate(seconds / 2)]
        before = run.resident_bytes()
        attack = Attack(name, run.target(who, seconds + 1))
        time.sleep(0.5)
        attacked = run.rate(seconds)
        self.acts, cpu_seconds = attack.end()
        self.grown_bytes = run.peak_bytes() - before
        run.require_alive()
        quiet.append(run.rate(seconds / 2))
        self.ratio = attacked / statistics.mean(quiet)
        left = _PROCESSORS - cpu_seconds / (seconds + 1)
        self.ratio_per_processor = self.ratio * _PROCESSORS / left


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=4, help="of each attack")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--attack", choices=attacks.ATTACKS, help="only this one")
    arguments = parser.parse_args()
    print(f"{'':34}{'for one in quiet':>18}{'per processor left':>20}{'memory':>10}  connections")
    for who, names in CASES.items():
        for name in names:
            if arguments.attack in (None, name):
                _report(who, name, arguments)
    return 0


def _report(who, name, arguments):
    is_tls = who != "plaintext"
    with tempfile.TemporaryDirectory() as folder, Run(pathlib.Path(folder), is_tls) as run:
        run.await_start()
        rounds = [Measured(run, who, name, arguments.seconds) for _ in range(arguments.rounds)]
        counts = run.stats()["connections"]
    ratios = sorted(each.ratio_per_processor for each in rounds)
    label = f"{who}: {name.replace('_', ' ')}"
    print(
        f"{label:34}{statistics.median(each.ratio for each in rounds):18.2f}"
        f"{f'{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})':>20}"
        f"{max(each.grown_bytes for each in rounds) / 1e6:7.0f} MB  "
        + ", ".join(f"{key} {value}" for key, value in counts.items() if "most" not in key)
        + f"; {statistics.median(each.acts for each in rounds):.0f} times",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
