"""Measures how busy the processors of a machine are, from /proc/stat."""

import bisect
import subprocess
import threading
import time

from experiments.cluster import hosts

_LOOP = "while head -n 1 /proc/stat; do sleep 0.25; done"


class ProcessorWatch:
    """Reads a host's counters repeatedly until `close`."""

    def __init__(self, host):
        self._process = subprocess.Popen(
            host.command(["sh", "-c", _LOOP]), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )
        self._samples = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self._process.stdout:
            self._samples.append((time.monotonic(), *busy_and_total(line)))

    def close(self):
        hosts.end(self._process)
        self._thread.join()
        self._process.stdout.close()

    def use(self, start, end):
        """Returns the fraction of all processors in use between two times of time.monotonic(), or
        between the samples nearest to them. Must be called after `close`."""
        return use(self._samples, start, end)


def busy_and_total(line):
    """Returns the busy ticks and all ticks of the first line of /proc/stat."""
    # The ninth and tenth are guests, which the first two include.
    ticks = [int(word) for word in line.split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def use(samples, start, end):
    if len(samples) < 2:
        return None
    times = [sample[0] for sample in samples]
    first = max(0, min(bisect.bisect_right(times, start) - 1, len(times) - 2))
    last = max(first + 1, min(bisect.bisect_left(times, end), len(times) - 1))
    busy = samples[last][1] - samples[first][1]
    total = samples[last][2] - samples[first][2]
    return busy / total if total > 0 else None
