"""The hosts on which processes run: this machine, or another one over ssh.

A host has a folder for the files of a run. The commands that it runs end when this process
ends, for whatever reason, because each reads from a pipe that only this process holds open.
"""

import os
import shlex
import subprocess

# Runs a command until standard input ends, which means that the runner has ended or wants the
# command to end. A shell's background jobs read from /dev/null, so that what reads it needs a
# descriptor. It ends with the command, whose number may be another process's then.
_WATCH = """
exec 3<&0
"$@" 3<&- </dev/null &
child=$!
(read -r end <&3; kill -9 $child) >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait $child
code=$?
kill $watcher 2>/dev/null
exit $code
"""

_END_SECONDS = 30


def watched(command):
    return ["sh", "-c", _WATCH, "sh", *command]


def end(process):
    """Ends a process that ends with its standard input, if it still runs."""
    process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:  # ssh does not end if it has lost its host
        process.kill()
        process.wait()


class HostError(Exception):
    """A host could not do what it was asked to."""


class LocalHost:
    """This machine. Its folder belongs to the caller and is kept."""

    def __init__(self, folder, enter=()):
        """`enter` is a command that runs another command, for example in another namespace. The
        other command may start in another folder there."""
        self.name = "this machine"
        self._folder = os.path.abspath(folder)
        self._enter = enter

    def command(self, command):
        """Returns the command to start here so that `command` runs on the host. Its standard
        input must be a pipe that stays open."""
        return watched([*self._enter, *command])

    def with_input(self, command):
        """The same, but `command` gets this standard input, and has to end with it."""
        return [*self._enter, *command]

    def program(self, path):
        return path

    def path(self, name):
        return os.path.join(self._folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def close(self):
        pass


class SshHost:
    """Another machine. `close` removes the folder there."""

    _SECONDS = 60  # for a small command

    def __init__(self, ssh, name, programs):
        self.name = name
        self._ssh = shlex.split(ssh)
        self._programs = programs
        self._folder = self._call(["mktemp", "-d"]).strip()

    def command(self, command):
        return [*self._ssh, self.name, shlex.join(watched(command))]

    def program(self, path):
        return os.path.join(self._programs, os.path.basename(path))

    def path(self, name):
        return os.path.join(self._folder, name)

    def write(self, name, text):
        self._call(["sh", "-c", 'cat >"$1"', "sh", self.path(name)], text)

    def read(self, name):
        return self._call(["cat", self.path(name)])

    def close(self):
        self._call(["rm", "-rf", self._folder])

    def _call(self, command, text=""):
        try:
            done = subprocess.run(
                [*self._ssh, self.name, shlex.join(command)], input=text, capture_output=True,
                text=True, timeout=self._SECONDS, check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(f"{self.name}: {error}") from None
        if done.returncode != 0:
            raise HostError(
                f"{self.name}: {shlex.join(command)} failed with exit code"
                f" {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout
