"""Shows the progress of the experiment and the time left, as one changing line on a terminal and
as a line for each run elsewhere."""

import datetime
import sys
import time


class Progress:
    """`weights` are the times that the runs are expected to take, in any unit. `known` are the
    (weight, seconds taken) of runs that were done before."""

    def __init__(self, weights, known, output=sys.stdout, now=time.monotonic):
        self._left = dict(weights)
        self._total = len(weights) + len(known)
        self._done_weight = sum(weight for weight, _ in known)
        self._done_seconds = sum(seconds for _, seconds in known)
        self._output = output
        self._now = now
        self._terminal = output.isatty()
        self._run = None
        self._start = 0.0

    def begin(self, run):
        self._run, self._start = run, self._now()
        self.tick()

    def tick(self):
        if self._terminal:
            elapsed = duration(self._now() - self._start)
            self._print(f"\r\033[K{self._label()} {self._run}: {elapsed}{self._remaining()}")

    def end(self, outcome):
        weight = self._left[self._run]
        label = self._label()
        del self._left[self._run]
        self._done_weight += weight
        self._done_seconds += self._now() - self._start
        clear = "\r\033[K" if self._terminal else ""
        self._run, run = None, self._run
        self._print(f"{clear}{label} {run}: {outcome}{self._remaining()}\n")

    def leave_line(self):
        """Clears the line. Must be called before other output."""
        if self._terminal and self._run is not None:
            self._print("\n")

    def _label(self):
        number = self._total - len(self._left) + 1
        return f"[{number:{len(str(self._total))}}/{self._total}]"

    def _remaining(self):
        if not self._left or self._done_weight == 0:
            return ""
        pace = self._done_seconds / self._done_weight
        seconds = pace * sum(self._left.values())
        if self._run is not None:
            # A run that takes longer than expected is assumed to end now.
            taken = self._now() - self._start
            seconds -= min(taken, pace * self._left[self._run])
        return f"; {duration(seconds)} left"

    def _print(self, text):
        self._output.write(text)
        self._output.flush()


def duration(seconds):
    return str(datetime.timedelta(seconds=round(seconds)))
