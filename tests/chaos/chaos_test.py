"""Short runs with real processes, and what they leave behind."""

import os
import signal
import subprocess
import time
import unittest

from tests.chaos.chaos_fixture import CHAOS, PATIENCE_SECONDS, ChaosTestCase, commands


class ChaosTest(ChaosTestCase):
    def test_a_run_under_faults_ends_with_the_bits_of_the_undisturbed_one(self):
        result, output = self.chaos(
            "--iterations=3000", "--every=200", "--faults=8", "--silence_seconds=3", "--seed=101"
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
            [CHAOS, "--workers=3", "--shards=2", "--iterations=1000000000", "--every=1000"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.environment,
            start_new_session=True,
        )
        self.addCleanup(runner.wait)
        self.addCleanup(runner.kill)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any("/pusher " in c and self.temporary in c for c in commands()):
            self.assertLess(time.monotonic(), deadline, "no worker came")
            time.sleep(0.05)
        return runner

    def test_nothing_is_left_after_ctrl_c(self):
        runner = self.start_endless()
        os.killpg(runner.pid, signal.SIGINT)
        self.assertEqual(runner.wait(PATIENCE_SECONDS), 130)
        self.check_nothing_is_left()
        self.assertEqual(os.listdir(self.temporary), [])

    def test_no_process_and_no_mount_is_left_after_kill_9(self):
        runner = self.start_endless()
        runner.kill()
        runner.wait()
        self.check_nothing_is_left()

    def test_wrong_usage_is_told(self):
        done = subprocess.run(
            [CHAOS, "--shards=1"], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("--shards: is 1, allowed: 2 or more", done.stderr)


if __name__ == "__main__":
    unittest.main()
