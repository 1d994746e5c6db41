"""The folder of an experiment's results: one user at a time, and resumable.

    experiment.json       what was asked for; another experiment is refused
    runs/ID/result.json   of each finished run, beside its config and logs
    results.csv, report.md, charts

Files appear whole or not at all, so that a run that was interrupted has no result.
"""

import fcntl
import json
import os

_IDENTITY = "experiment.json"


class OutputFolderError(Exception):
    """The folder cannot be used."""


class OutputFolder:
    """Locked from its making to the end of the process."""

    def __init__(self, path, identity):
        """`identity`: what makes results comparable, for JSON."""
        self.path = path
        try:
            os.makedirs(os.path.join(path, "runs"), exist_ok=True)
            self._lock = open(os.path.join(path, ".lock"), "a+", encoding="utf-8")
        except OSError as error:
            raise OutputFolderError(f"cannot write to --out={path}: {error}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.seek(0)
            raise OutputFolderError(
                f"--out={path} is in use by another run (process {self._lock.read().strip()}),"
                " allowed: a folder of its own for each"
            ) from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()
        self._identity = identity
        self._check_identity()

    def _check_identity(self):
        try:
            with open(self.file(_IDENTITY), encoding="utf-8") as file:
                earlier = json.load(file)
        except FileNotFoundError:
            return
        if earlier != self._identity:
            raise OutputFolderError(
                f"--out={self.path} holds the results of another config or network"
                f" (its {_IDENTITY}), allowed: the same ones, to go on, or an empty folder"
            )

    def file(self, name):
        return os.path.join(self.path, name)

    def run_folder(self, run):
        return self.file(os.path.join("runs", run.id))

    def write(self, name, text):
        """Where the file is a symbolic link, writes where it points."""
        path = os.path.realpath(self.file(name))
        temporary = path + ".part"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)

    def store(self, run, result):
        """From the first result on, the folder is of this experiment."""
        self.write(_IDENTITY, json.dumps(self._identity, indent=2))
        self.write(os.path.join("runs", run.id, "result.json"), json.dumps(result))

    def stored(self, runs):
        """The results of those runs that are done."""
        results = {}
        for run in runs:
            try:
                with open(
                    os.path.join(self.run_folder(run), "result.json"), encoding="utf-8"
                ) as file:
                    results[run] = json.load(file)
            except FileNotFoundError:
                pass
        return results
