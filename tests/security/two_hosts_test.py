"""docs/security.md, "From nothing to a run with mTLS on two machines": its own commands and configs
on two hosts, of which each is a network namespace with a root file system of its own."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

_PATIENCE_SECONDS = 60
_HOSTS = ("10.0.0.1", "10.0.0.2")
_PROGRAMS = ("server/ps", "worker/worker", "tools/psctl/psctl")
_PAGE = pathlib.Path("docs/security.md")
_SECTION = "## From nothing to a run with mTLS on two machines\n"

# The first process of a PID namespace, with which all others end. It prints its number as seen from
# outside. The hosts' own /proc is for the memory that a worker shares with a shard beside it.
# Without /sys Abseil fails to count the processors there, and gRPC 1.51 takes that error for
# connect()'s (grpc/grpc#35064).
_HOLD = """
PATH="$PATH:/usr/sbin"
mount -t tmpfs none /run && mkdir /run/netns && ip netns add 10.0.0.1 && ip netns add 10.0.0.2 &&
ip -n 10.0.0.1 link add eth0 type veth peer name eth0 netns 10.0.0.2 || exit
for host in 10.0.0.1 10.0.0.2; do
  ip -n $host address add $host/24 dev eth0 && ip -n $host link set eth0 up &&
  ip -n $host link set lo up || exit
done
mount -t proc none /proc || exit
for host in 10.0.0.1 10.0.0.2; do
  for folder in usr etc dev proc sys; do mount --rbind /$folder $ROOTS/$host/$folder || exit; done
  for other in 10.0.0.1 10.0.0.2; do
    mount --bind $ROOTS/$other/home $ROOTS/$host/net/$other || exit
  done
done
umount -l /proc
read process rest </proc/self/stat && mount -t proc none /proc && echo $process && exec cat
"""

# In place of the real ones: the user's folder on each host is /net/HOST.
_SSH = """#!/bin/sh
cd "/net/$1" && shift && exec "$@"
"""
_SCP = """#!/usr/bin/python3
import subprocess, sys
*sources, target = sys.argv[1:]
host, _, path = target.partition(":")
subprocess.run(["cp", *sources, f"/net/{host}/{path}"], check=True)
"""


def _steps():
    """Returns the section's configs, joined, and its commands, each with its host."""
    section = _PAGE.read_text().partition(_SECTION)[2].partition("\n## ")[0]
    configs = re.findall(r"^```textproto\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^(10\.0\.0\.[12])\$ (.*)$", section, re.MULTILINE)
    return configs, commands


class Hosts:
    """The two hosts. Their processes end with this object."""

    def __init__(self, folder):
        self._folder = folder
        self._started = []
        for host in _HOSTS:
            self._make_root(folder / host)
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        self._holder = subprocess.Popen(
            ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child"]
            + ["sh", "-c", _HOLD],
            env={**os.environ, "ROOTS": str(folder)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        process = self._holder.stdout.readline().strip()
        if not process:
            complaint = self._holder.communicate()[1].strip()
            raise unittest.SkipTest(f"needs network namespaces: {complaint}")
        self._enter = ["nsenter", "--target", process, "--net", "--mount", "--pid"]
        self._enter += ["--user", "--preserve-credentials"] if user else []

    def _make_root(self, root):
        homes = [f"net/{host}" for host in _HOSTS]
        for name in ("usr", "etc", "dev", "proc", "sys", "tmp", "own", *homes):
            (root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            (root / name).symlink_to(f"usr/{name}")
        for name, script in (("ssh", _SSH), ("scp", _SCP)):
            (root / "own" / name).write_text(script)
            (root / "own" / name).chmod(0o755)
        for program in _PROGRAMS:
            built = root / "home/evenshard/bazel-bin" / program
            built.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(program, built)

    def close(self):
        self._holder.stdin.close()
        try:
            self._holder.wait(_PATIENCE_SECONDS)
        finally:
            self._holder.kill()
            self._holder.stdout.close()
            self._holder.stderr.close()
            for process in self._started:
                process.wait()
                process.stdout.close()

    def checkout(self, host):
        return self._folder / host / "home/evenshard"

    def start(self, host, command):
        process = subprocess.Popen(
            [*self._enter, "nsenter", f"--net=/run/netns/{host}"]
            + ["chroot", str(self._folder / host)]
            + ["sh", "-c", f"PATH=/own:/usr/bin && cd /home/evenshard && {command}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        self._started.append(process)
        return process

    def run(self, host, command):
        """Returns the exit code and the output."""
        return _finish(self.start(host, command))


def _finish(process):
    output = process.communicate(timeout=_PATIENCE_SECONDS)[0]
    return process.returncode, output


class TwoHostsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.hosts = Hosts(pathlib.Path(scratch.name))
        self.addCleanup(self.hosts.close)
        self.config = self.hosts.checkout(_HOSTS[0]) / "two_hosts/run.textproto"
        self.background = []

    def do(self, host, command):
        """Does what the page says. Returns the output of a command that is waited for."""
        if command.endswith(" &"):
            self.background.append((command, self.hosts.start(host, "exec " + command[:-2])))
            return ""
        code, output = self.hosts.run(host, command)
        self.assertEqual(code, 0, f"{host}$ {command}\n{output}")
        return output

    def train(self):
        """Does all that the page says. Returns the output of each command that is waited for."""
        (config, section), commands = _steps()
        outputs = {}
        for host, command in commands:
            output = outputs[command] = self.do(host, command)
            if command.startswith("mkdir"):
                self.config.write_text(config)
            if " certificates " in command:
                self.assertIn(section, output)
                self.config.write_text(config + section)
            if " stats " in command:
                self.check_files()
                self.check_strangers()
        for command, process in self.background:
            code, output = _finish(process)
            self.assertEqual(code, 0, f"{command}\n{output}")
        return outputs

    def check_files(self):
        """The second host has what it needs, and nothing else."""
        keys = self.hosts.checkout(_HOSTS[1]) / "two_hosts/keys"
        self.assertEqual(
            sorted(os.listdir(keys)),
            ["authority.pem", "shard-1.key", "shard-1.pem", "worker-1.key", "worker-1.pem"],
        )
        for key in keys.glob("*.key"):
            self.assertEqual(key.stat().st_mode & 0o777, 0o600)

    def check_strangers(self):
        """Nobody ends the run from the second host, which has no operator's files, nor in
        plaintext."""
        psctl = "bazel-bin/tools/psctl/psctl shutdown --config=two_hosts/"
        code, output = self.hosts.run(_HOSTS[1], psctl + "run.textproto")
        self.assertNotEqual(code, 0, output)
        self.assertIn("operator.pem", output)
        (config, _), _ = _steps()
        (self.hosts.checkout(_HOSTS[1]) / "two_hosts/plaintext.textproto").write_text(
            config + "security { insecure: true }"
        )
        code, output = self.hosts.run(_HOSTS[1], psctl + "plaintext.textproto")
        self.assertNotEqual(code, 0, output)
        for _, process in self.background:
            if "server/ps" in process.args[-1]:
                self.assertIsNone(process.poll(), "a shard has ended")

    def test_what_the_page_says_trains_a_model(self):
        outputs = self.train()
        stats = next(output for command, output in outputs.items() if " stats " in command)
        for address in ("10.0.0.1:50051", "10.0.0.2:50051"):
            self.assertIn(address, stats)
        self.assertTrue((self.config.parent / "model.safetensors").exists())


if __name__ == "__main__":
    unittest.main()
