"""How far the training of a run has come, from `psctl stats --watch`."""

import bisect
import contextlib
import json
import subprocess
import threading
import time

from experiments.cluster import hosts

_TIMEOUT_SECONDS = 0.5


def latest_iteration(report):
    """Returns the latest iteration that any worker has pushed to any shard, or None if no shard has
    answered. A worker pushes iteration i + 1 only when every chunk of iteration i is complete, so
    one shard that answers tells of all."""
    answers = [shard["stats"] for shard in report["shards"] if "stats" in shard]
    if not answers:
        return None
    workers = [worker for stats in answers for worker in stats.get("worker", [])]
    return max((int(worker.get("iteration", 0)) for worker in workers), default=0)


class Progress(contextlib.AbstractContextManager):
    """Follows a run until the end of the `with` block. Thread-safe."""

    def __init__(self, programs, ground, config, period):
        command = [programs.psctl, "stats", f"--config={config}", "--format=json"]
        self._watch = subprocess.Popen(
            ground.command([*command, f"--watch={period}", f"--timeout={_TIMEOUT_SECONDS}"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._condition = threading.Condition()
        self._reports = []  # (time, latest iteration) for each
        self._latest = 0  # an iteration; stays while the run goes back
        self._times = []  # (time, iteration) whenever the training had come further
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def __exit__(self, *exception):
        hosts.end(self._watch)
        self._thread.join()
        self._watch.stdout.close()

    def _read(self):
        for line in self._watch.stdout:
            with contextlib.suppress(ValueError):  # the last line may be torn
                self._take(latest_iteration(json.loads(line)))

    def _take(self, iteration):
        now = time.monotonic()
        with self._condition:
            if iteration and iteration > self._latest:
                self._latest = iteration
                self._times.append((now, iteration))
            self._reports.append((now, self._latest))
            self._condition.notify_all()

    def after(self, begin, seconds):
        """Waits for the first report that was asked for after a time of time.monotonic(). Returns
        the latest iteration by then."""
        # The first one that came after it may have been asked for before it.
        with self._condition:
            self._condition.wait_for(
                lambda: len(self._reports) > 1 and self._reports[-2][0] > begin, seconds
            )
            later = [iteration for time, iteration in self._reports if time > begin]
            return later[1] if len(later) > 1 else self._latest

    def wait_for(self, iteration, seconds):
        """Waits until a worker has pushed an iteration. Returns whether one has."""
        with self._condition:
            return self._condition.wait_for(lambda: self._latest >= iteration, seconds)

    def when(self, iteration):
        """Returns when an iteration that has been pushed was first seen, as time.monotonic() says
        it."""
        with self._condition:
            return self._times[bisect.bisect_left(self._times, iteration, key=lambda t: t[1])][0]

    def latest(self):
        with self._condition:
            return self._latest

    def samples(self):
        """Returns the seconds since the training was first seen and the iteration, whenever it had
        come further."""
        with self._condition:
            return [(time - self._times[0][0], iteration) for time, iteration in self._times]

    def trained(self):
        """Returns between when and when training was seen, and the iterations in between."""
        with self._condition:
            if not self._times:
                return 0.0, 0.0, 0
            (begin, first), (end, last) = self._times[0], self._times[-1]
            return begin, end, last - first
