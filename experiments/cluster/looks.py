"""Takes the parameters of a run at about equal times, while it trains."""

import contextlib
import os
import threading
import time

from experiments.cluster import run


class Looks:
    """Saves the parameters from the shards by psctl, so that no worker stops for it."""

    def __init__(self, started, folder, seconds):
        """`seconds` are those between two looks."""
        self.saved = []  # (time.monotonic(), path)
        self._started = started
        self._folder = os.path.abspath(folder)  # psctl may start in another one
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self):
        while not self._stop.wait(self._seconds):
            with contextlib.suppress(run.RunError):  # until the shards are up
                self.take()

    def take(self):
        path = os.path.join(self._folder, f"{len(self.saved)}.safetensors")
        now = time.monotonic()
        self._started.psctl("save", f"--out={path}")
        self.saved.append((now, path))

    def close(self):
        self._stop.set()
        self._thread.join()
