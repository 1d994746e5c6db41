"""What tests of the whole program have in common."""

import json
import os
import subprocess
import tempfile
import time
import unittest

CHAOS = os.path.abspath("tests/chaos/chaos")
PATIENCE_SECONDS = 60


def commands():
    """The command line of every process."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", encoding="utf-8", errors="replace") as file:
                found.append(file.read().replace("\0", " "))
        except OSError:
            pass  # it is gone
    return found


class ChaosTestCase(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.out = os.path.join(self.folder, "result.json")
        # Where the program makes its own folder.
        self.temporary = os.path.join(self.folder, "t")
        os.mkdir(self.temporary)
        self.environment = {**os.environ, "TMPDIR": self.temporary}

    def chaos(self, *arguments, exit_code=0):
        done = subprocess.run(
            [CHAOS, "--workers=3", "--shards=2", f"--out={self.out}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env=self.environment,
        )
        self.assertEqual(done.returncode, exit_code, done.stdout)
        self.check_nothing_is_left()
        with open(self.out, encoding="utf-8") as file:
            return json.load(file), done.stdout

    def check_nothing_is_left(self):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(self.temporary in command for command in commands()):
            self.assertLess(time.monotonic(), deadline, "a process is left")
            time.sleep(0.05)
        with open("/proc/mounts", encoding="utf-8") as file:
            self.assertNotIn(self.temporary, file.read())
