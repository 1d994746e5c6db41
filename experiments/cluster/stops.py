"""Stops a process of a run now and then, as a machine that does something else for a while."""

import os
import random
import signal
import threading
import time


class Stops:
    """Sends SIGSTOP and SIGCONT to the program that a command of `hosts` runs on this machine."""

    def __init__(self, pid, program, seconds, seconds_between, seed):
        """`pid` is the command's process. The program is stopped for `seconds`, after it has run
        for half to one and a half times `seconds_between`, as drawn by the seed."""
        self.count = 0
        self._pid = pid
        self._program = os.path.realpath(program)
        self._seconds = seconds
        self._between = seconds_between
        self._dice = random.Random(seed)
        self._close = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self):
        while not self._close.wait(self._between * self._dice.uniform(0.5, 1.5)):
            descriptors = [_open(process) for process in self._find()]
            try:
                # The program may not have begun, or have ended.
                if descriptors and _signal(descriptors[0], signal.SIGSTOP):
                    self.count += 1
                    self._close.wait(self._seconds)
                    _go_on(descriptors)
            finally:
                for descriptor in descriptors:
                    if descriptor is not None:
                        os.close(descriptor)

    def _find(self):
        """Returns the program's process among those that the command has begun, and those above
        it up to the command's; none if it is not there."""
        lines = [[self._pid]]
        children = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            children.setdefault(_parent(name), []).append(int(name))
        while lines:
            line = lines.pop()
            if _runs(line[0], self._program):
                return line
            lines += [[child, *line] for child in children.get(line[0], [])]
        return []

    def close(self):
        self._close.set()
        self._thread.join()


def _go_on(descriptors):
    """Lets a program go on, and those above it: nsenter stops itself a little after its child has
    stopped, and would never notice that the child ends."""
    for _ in range(5):
        for descriptor in descriptors:
            _signal(descriptor, signal.SIGCONT)
        time.sleep(0.02)


def _open(pid):
    """Returns a descriptor of a process, by which a signal reaches no later one with its number;
    None if it is gone."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _signal(descriptor, number):
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False


def _parent(name):
    try:
        with open(f"/proc/{name}/stat", encoding="utf-8") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None  # it is gone


def _runs(pid, program):
    try:
        # A program that is built anew meanwhile is another file.
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)") == program
    except OSError:
        return False
