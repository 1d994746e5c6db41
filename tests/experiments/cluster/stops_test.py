"""Stopping a process of a run."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from experiments.cluster import hosts
from experiments.cluster.stops import Stops

_PATIENCE_SECONDS = 60

# Begins its arguments, stops itself when they stop, and ends when they end.
_LIKE_NSENTER = """
import os, signal, sys
child = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
while os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]):
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def _state(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


class StopsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.host = hosts.LocalHost(scratch.name)
        self.program = os.path.realpath("/usr/bin/sleep")

    def start(self, wrapper=()):
        command = self.host.command([*wrapper, self.program, "infinity"])
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.addCleanup(hosts.end, process)
        return process.pid

    def sleeper(self, command):
        """The program's own process, when it is there."""
        return self.until(lambda: next(
            (int(pid) for pid in filter(str.isdigit, os.listdir("/proc"))
             if self.is_below(int(pid), command)), None))

    def is_below(self, pid, command):
        try:
            if os.readlink(f"/proc/{pid}/exe") != self.program:
                return False
            while pid > 1:
                if pid == command:
                    return True
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    pid = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            pass  # it is gone
        return False

    def until(self, ask):
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            found = ask()
            if found:
                return found
            time.sleep(0.005)
        self.fail("it did not come to that")

    def test_a_command_that_stops_with_its_child_ends_with_it_too(self):
        command = self.start([sys.executable, "-c", _LIKE_NSENTER])
        pid = self.sleeper(command)
        stops = Stops(command, self.program, 0.1, 0.05, seed=1)
        self.addCleanup(stops.close)
        for _ in range(2):
            self.until(lambda: _state(pid) == "T")
            self.until(lambda: _state(pid) == "S")
        stops.close()
        os.kill(pid, signal.SIGTERM)
        self.until(lambda: os.waitpid(command, os.WNOHANG)[0] == command)

    def test_the_program_is_stopped_and_goes_on_and_its_neighbour_does_not_stop(self):
        command, neighbour = self.start(), self.start()
        pid, other = self.sleeper(command), self.sleeper(neighbour)
        stops = Stops(command, self.program, 0.05, 0.05, seed=1)
        self.addCleanup(stops.close)
        for _ in range(2):
            self.until(lambda: _state(pid) == "T")
            self.assertNotEqual(_state(other), "T")
            self.until(lambda: _state(pid) == "S")
        self.assertGreaterEqual(stops.count, 2)

    def test_it_goes_on_at_the_end(self):
        command = self.start()
        pid = self.sleeper(command)
        stops = Stops(command, self.program, 1000, 0.01, seed=1)
        self.addCleanup(stops.close)
        self.until(lambda: _state(pid) == "T")
        stops.close()
        self.assertEqual(self.until(lambda: _state(pid) != "T"), True)

    def test_a_program_that_is_gone_is_left_alone(self):
        command = self.start()
        pid = self.sleeper(command)
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: not self.is_below(pid, command))
        stops = Stops(command, self.program, 0.01, 0.01, seed=1)
        time.sleep(0.1)
        stops.close()
        self.assertEqual(stops.count, 0)


if __name__ == "__main__":
    unittest.main()
