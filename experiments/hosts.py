"""Where processes run: this machine, or another one over ssh.

A host has a folder for the files of a run, and runs commands that end when this process
ends, however it ends: each command reads from a pipe that only this process holds open.
"""

import os
import shlex
import subprocess

# Runs a command that ends at the end of standard input: the runner is gone then, or wants
# it gone. Background jobs of a shell read from /dev/null, hence the descriptor.
_WATCH = """
exec 3<&0
"$@" 3<&- </dev/null &
child=$!
(cat <&3; kill -9 $child) >/dev/null 2>&1 &
exec 3<&-
wait $child
"""

_END_SECONDS = 30


def watched(command):
    return ["sh", "-c", _WATCH, "sh", *command]


def end(process):
    """Of a process that ends with its standard input: ends it, should it still be there."""
    process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:  # an ssh that has lost its host
        process.kill()
        process.wait()


class HostError(Exception):
    """A host does not do what it was asked for."""


class LocalHost:
    """This machine. Its folder is the caller's and is kept."""

    def __init__(self, folder, enter=()):
        """`enter` is a command that runs a command, say in another namespace, where it may
        begin in another folder."""
        self.name = "this machine"
        self._folder = os.path.abspath(folder)
        self._enter = enter

    def command(self, command):
        """What to start here so that `command` runs there. Its standard input is to be a
        pipe that stays open."""
        return watched([*self._enter, *command])

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
    """Another machine. `close` removes its folder there."""

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
                [*self._ssh, self.name, shlex.join(command)],
                input=text,
                capture_output=True,
                text=True,
                timeout=self._SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(f"{self.name}: {error}") from None
        if done.returncode != 0:
            raise HostError(
                f"{self.name}: {shlex.join(command)} failed with exit code"
                f" {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout
