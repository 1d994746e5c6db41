"""The folder of an experiment's results, which one process uses at a time and can resume.

    experiment.json       identifies the experiment, so that another one is refused
    runs/ID/result.json   the result of each finished run, beside its config and logs
    results.csv, report.md, charts

Files appear whole or not at all, so an interrupted run has no result.
"""

import contextlib
import fcntl
import json
import os

_IDENTITY = "experiment.json"
_BUILD = "build"  # in a result


class OutputFolderError(Exception):
    """The folder cannot be used. The text says why."""


class OutputFolder:
    """The folder, which is locked until the process ends."""

    def __init__(self, path, identity, build=None):
        """`identity` is a JSON value. Results are comparable if it is equal. `build` returns a text
        that tells the programs that are measured from those of another build, whose results are
        kept and named in the report."""
        self.path = path
        self._identity = identity
        self._ask_build = build or (lambda: None)
        self._build = self._ask_build()
        self._builds = {}  # by the IDs of runs that are done
        try:
            os.makedirs(os.path.join(path, "runs"), exist_ok=True)
            self._take_lock()
        except OSError as error:
            raise OutputFolderError(f"cannot write to --out={path}: {error}") from None
        self._check_identity()

    def _take_lock(self):
        # Without a buffer, close() does not repeat a write that failed.
        self._lock = open(self.file(".lock"), "ab+", buffering=0)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            user = self._lock.read().decode(errors="replace").strip()
            raise OutputFolderError(
                f"--out={self.path} is in use by another run (process {user}),"
                " allowed: a folder of its own for each"
            ) from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()).encode())

    def _check_identity(self):
        earlier = self._read_json(_IDENTITY, lambda value: isinstance(value, dict))
        if earlier is not None and earlier != self._identity:
            raise OutputFolderError(
                f"--out={self.path} holds the results of another config or network"
                f" (its {_IDENTITY}), allowed: the same ones, to go on, or an empty folder"
            )

    def file(self, name):
        return os.path.join(self.path, name)

    def run_folder(self, run):
        return self.file(os.path.join("runs", run.id))

    def write(self, name, content):
        """Writes a text or bytes to a file, or to where it points if it is a symbolic link.
        Raises OutputFolderError."""
        if isinstance(content, str):
            content = content.encode()
        path = os.path.realpath(self.file(name))
        temporary = path + ".part"
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
        except OSError as error:
            raise OutputFolderError(
                f"cannot write {self.file(name)}: {error.strerror}"
            ) from None
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def store(self, run, result):
        """Makes the folder this experiment's, when its first result is stored. Raises
        OutputFolderError, and stores nothing, if the programs are others than at the beginning."""
        if self._ask_build() != self._build:
            raise OutputFolderError(
                f"the programs were built anew meanwhile, and {run} is not stored, allowed: the"
                " same ones from beginning to end"
            )
        self.claim()
        if self._build is not None:
            result = {**result, _BUILD: self._build}
        self.write(os.path.join("runs", run.id, "result.json"), json.dumps(result))
        self._builds[run.id] = self._build

    def claim(self):
        """From now on the folder is no other experiment's."""
        self.write(_IDENTITY, json.dumps(self._identity, indent=2))

    def stored(self, runs, is_result):
        """Returns the results of the runs that are done. `is_result` tells whether a value is a
        result. Raises OutputFolderError if a file holds anything else."""
        results = {}
        for run in runs:
            result = self._read_json(
                os.path.join("runs", run.id, "result.json"), lambda v: is_result(_without_build(v))
            )
            if result is not None:
                self._builds[run.id] = result.get(_BUILD)
                results[run] = _without_build(result)
        return results

    def write_report(self, text):
        """Writes report.md, with the runs that other builds of the programs have done."""
        if len(set(self._builds.values())) > 1:
            # The latest one is this process's, or whichever has done the most.
            builds = list(self._builds.values())
            latest = self._build if self._build in builds else max(builds, key=builds.count)
            others = sorted(id for id, build in self._builds.items() if build != latest)
            text += (
                f"\n**By other builds of the programs** than the rest: {len(others)} of"
                f" {len(builds)} runs, {', '.join(others)}.\n"
            )
        self.write("report.md", text)

    def _read_json(self, name, is_valid):
        """Returns the JSON value of a file, or None if there is none. Raises OutputFolderError."""
        try:
            with open(self.file(name), encoding="utf-8") as file:
                value = json.load(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OutputFolderError(f"cannot read {self.file(name)}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise self._damaged(name, f"not JSON: {error}") from None
        if not is_valid(value):
            raise self._damaged(name, "JSON, but not what an experiment writes")
        return value

    def _damaged(self, name, how):
        return OutputFolderError(
            f"{self.file(name)} is damaged ({how}), allowed: as it was written; without"
            " runs/ID/result.json that run is done again, and another --out begins anew"
        )


def _without_build(value):
    if not isinstance(value, dict):
        return value
    return {key: each for key, each in value.items() if key != _BUILD}
