"""Commands on hosts: here, and over an ssh that is a script."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

from experiments.cluster.hosts import HostError, LocalHost, SshHost, watched

# As ssh: the rest of the command line, put together, is a command for a shell.
_FAKE_SSH = """#!/bin/sh
echo "$1" >>"$(dirname "$0")/hosts"
shift
exec sh -c "$*"
"""


def _command_of(name):
    try:
        with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # it is no process, or gone


class HostsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.ssh = os.path.join(self.folder, "fake ssh")
        with open(self.ssh, "w", encoding="utf-8") as file:
            file.write(_FAKE_SSH)
        os.chmod(self.ssh, 0o755)

    def run_on(self, host, *command):
        """The exit code and output of a command that is let run to its end."""
        with subprocess.Popen(
            host.command(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            return process.stdout.read(), process.wait()

    def test_a_command_gives_its_output_and_its_exit_code(self):
        for host in (LocalHost(self.folder), SshHost(f"'{self.ssh}'", "alpha", "/programs")):
            with self.subTest(type(host).__name__):
                self.assertEqual(
                    self.run_on(host, "sh", "-c", 'echo "$1"; exit 3', "sh", "a  'b' $c"),
                    ("a  'b' $c\n", 3),
                )

    def test_nothing_waits_for_the_end_of_a_command_that_has_ended(self):
        marker = os.path.join(self.folder, "marker")
        with subprocess.Popen(watched(["true", marker]), stdin=subprocess.PIPE) as process:
            self.assertEqual(process.wait(), 0)
            deadline = time.monotonic() + 60
            while left := [pid for pid in os.listdir("/proc") if marker in _command_of(pid)]:
                self.assertLess(time.monotonic(), deadline, left)
                time.sleep(0.01)

    def test_files_are_written_and_read_on_the_host(self):
        for host in (LocalHost(self.folder), SshHost(f"'{self.ssh}'", "alpha", "/programs")):
            with self.subTest(type(host).__name__):
                host.write("x.textproto", "workers: 1\n")
                self.assertEqual(host.read("x.textproto"), "workers: 1\n")
                self.assertEqual(self.run_on(host, "cat", host.path("x.textproto"))[0],
                                 "workers: 1\n")

    def test_a_remote_host_is_asked_by_name_has_its_own_programs_and_is_left_clean(self):
        host = SshHost(f"'{self.ssh}'", "me@alpha", "/opt/ps")
        self.assertEqual(host.program("worker/worker"), "/opt/ps/worker")
        host.write("x", "")
        path = host.path("x")
        self.assertTrue(os.path.exists(path))
        host.close()
        self.assertFalse(os.path.exists(os.path.dirname(path)))
        with open(os.path.join(self.folder, "hosts"), encoding="utf-8") as file:
            self.assertEqual(set(file.read().split()), {"me@alpha"})

    def test_a_host_that_cannot_be_reached_is_named(self):
        with self.assertRaisesRegex(HostError, "alpha: .*exit code 255: no route"):
            SshHost("sh -c 'echo no route >&2; exit 255'", "alpha", "/")
        with self.assertRaisesRegex(HostError, "alpha: .*no_such_command"):
            SshHost("no_such_command", "alpha", "/")

    def test_a_command_ends_when_the_runner_is_killed(self):
        # The command holds the pipe open; it is at its end only when the command is gone.
        runner = (
            "import os, signal, subprocess, sys\n"
            "subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", runner, *watched(["sleep", "infinity"])],
            stdout=subprocess.PIPE,
        ) as process:
            self.assertEqual(process.stdout.read(), b"")


if __name__ == "__main__":
    unittest.main()
