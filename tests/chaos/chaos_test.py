"""Short runs with real processes, and what they leave behind."""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest

_CHAOS = os.path.abspath("tests/chaos/chaos")
_PATIENCE_SECONDS = 60


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


class ChaosTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.out = os.path.join(self.folder, "result.json")
        # Where the program makes its own folder.
        self.temporary = os.path.join(self.folder, "t")
        os.mkdir(self.temporary)
        self.environment = {**os.environ, "TMPDIR": self.temporary}

    def chaos(self, *arguments):
        done = subprocess.run(
            [_CHAOS, "--workers=3", "--shards=2", f"--out={self.out}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env=self.environment,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.check_nothing_is_left()
        with open(self.out, encoding="utf-8") as file:
            return json.load(file), done.stdout

    def check_nothing_is_left(self):
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while any(self.temporary in command for command in commands()):
            self.assertLess(time.monotonic(), deadline, "a process is left")
            time.sleep(0.05)
        with open("/proc/mounts", encoding="utf-8") as file:
            self.assertNotIn(self.temporary, file.read())

    def test_a_run_under_faults_ends_with_the_bits_of_the_undisturbed_one(self):
        result, output = self.chaos(
            "--iterations=3000", "--every=200", "--faults=8", "--silence_seconds=1", "--seed=101"
        )
        self.assertEqual(result["problems"], [])
        self.assertEqual(result["exit_code"], 0)
        self.assertEqual(len(result["faults"]), 8)
        self.assertEqual(result["recovery"]["all"]["faults"], 8)
        # The latter where a machine allows no namespaces.
        kinds = {fault["kind"] for fault in result["schedule"]}
        self.assertIn(kinds, ({"kill", "cut", "reset", "full disk"}, {"kill", "stop"}))
        self.assertGreater(result["recovery"]["all"]["worst_seconds"], 0)
        self.assertGreater(result["throughput_retained"], 0)
        self.assertTrue(result["verdict"]["state_is_equal"] and result["verdict"]["model_is_equal"])
        # The schedule comes before the first fault.
        self.assertLess(output.index("8 faults in 3000 iterations"), output.index("went on after"))
        self.assertEqual(os.listdir(self.temporary), [])

    def test_bits_are_the_same_whoever_counts(self):
        result, _ = self.chaos(
            "--iterations=3000", "--every=200", "--faults=4", "--only=kill worker", "--seed=7",
            "--worker_loss=CONTINUE",
        )
        self.assertEqual(result["problems"], [])
        self.assertTrue(result["verdict"]["state_is_equal"] and result["verdict"]["model_is_equal"])

    def test_a_run_that_is_killed_and_resumed_ends_with_the_same_bits(self):
        result, _ = self.chaos("--iterations=2000", "--every=50", "--kill_everything=4", "--seed=1")
        self.assertEqual(result["problems"], [])
        self.assertEqual(len(result["killings"]), 4)
        self.assertTrue(any(life["resumed"] for life in result["killings"]))
        self.assertTrue(result["verdict"]["state_is_equal"] and result["verdict"]["model_is_equal"])
        self.assertEqual(os.listdir(self.temporary), [])

    def start_endless(self):
        """Starts a very long run; returns its process once the run's processes are there."""
        runner = subprocess.Popen(
            [_CHAOS, "--workers=3", "--shards=2", "--iterations=1000000000", "--every=1000"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.environment,
            start_new_session=True,
        )
        self.addCleanup(runner.wait)
        self.addCleanup(runner.kill)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not any("/pusher " in c and self.temporary in c for c in commands()):
            self.assertLess(time.monotonic(), deadline, "no worker came")
            time.sleep(0.05)
        return runner

    def test_nothing_is_left_after_ctrl_c(self):
        runner = self.start_endless()
        os.killpg(runner.pid, signal.SIGINT)
        self.assertEqual(runner.wait(), 130)
        self.check_nothing_is_left()
        self.assertEqual(os.listdir(self.temporary), [])

    def test_no_process_and_no_mount_is_left_after_kill_9(self):
        runner = self.start_endless()
        runner.kill()
        runner.wait()
        self.check_nothing_is_left()

    def test_wrong_usage_is_told(self):
        done = subprocess.run(
            [_CHAOS, "--shards=1"], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("--shards: is 1, allowed: 2 or more", done.stderr)


if __name__ == "__main__":
    unittest.main()
