"""Whole experiments with real processes: small, shaped, killed, resumed, over ssh."""

import csv
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

from experiments.report.output_folder import OutputFolder
from tests.experiments import fixture

_SHARDING = os.path.abspath("experiments/sharding")
_PATIENCE_SECONDS = 60

# Tensors of many chunks, and a fullest shard that depends on the placement.
_CONFIG = """\
cluster {
  model {
    input { channels: 100 height: 1 width: 1 }
    layer { name: "fc1" linear { out_features: 200 } }
    layer { name: "fc2" linear { out_features: 500 } }
    layer { name: "fc3" linear { out_features: 10 } }
  }
  update { policy: SYNC }
  training { batch_size: 8 }
  compute { backend: EMULATED }
  limits { chunk_bytes: 65536 }
}
workers: 2
shards: 2
partition { scheme: LAYER_BASED placement: GREEDY }
partition { scheme: MEMORY_BASED }
schedule: FULL
link_gbps: 1
iterations: 3
"""

_FAKE_SSH = """#!/bin/sh
shift
exec sh -c "$*"
"""


class ShardingTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.out = os.path.join(self.folder, "out")

    def command(self, config, *arguments):
        path = os.path.join(self.folder, "e.textproto")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)
        return [_SHARDING, f"--config={path}", f"--out={self.out}", *arguments]

    def sharding(self, config, *arguments):
        """Runs to the end; the exit code, standard output and error."""
        done = subprocess.run(
            self.command(config, *arguments), capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def rows(self):
        with open(os.path.join(self.out, "results.csv"), encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def check_results(self):
        rows = self.rows()
        self.assertEqual([row["scheme"] for row in rows], ["LAYER_BASED", "MEMORY_BASED"])
        for row in rows:
            self.assertLess(float(row["bytes_error"]), 0.02)
            self.assertEqual(
                row["shard_bytes_in_predicted"].split(), row["shard_bytes_out_predicted"].split()
            )
            self.assertGreater(float(row["wall_iteration_seconds_median"]), 0)
        layer, memory = (
            [int(size) for size in row["shard_bytes_in_measured"].split()] for row in rows
        )
        parameters = 100 * 200 + 200 + 200 * 500 + 500 + 500 * 10 + 10
        self.assertEqual(sum(memory), 2 * 4 * parameters)
        self.assertEqual(max(layer), 2 * 4 * (200 * 500 + 500))
        self.assertLess(max(memory) - min(memory), 200)

    def test_a_small_experiment_over_namespaces_moves_the_bytes_that_the_plan_predicts(self):
        fixture.require_namespaces(self, self.folder)
        # Relative to this folder; programs begin elsewhere in their namespaces.
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.out = "out"
        code, output, complaints = self.sharding(_CONFIG)
        self.assertEqual(code, 0, complaints)
        self.assertRegex(output, r"(?m)^\[1/2\] 2 workers, 2 shards, layer-based \(greedy\), full,"
                                 r" communication only: .* s per iteration, .* of the bound")
        self.check_results()
        for row in self.rows():
            self.assertNotEqual(row["bound_seconds"], "")
        for name in ("shard_bytes", "link_use", "iteration_time"):
            xml.etree.ElementTree.parse(os.path.join(self.out, name + ".svg"))
            self.assertIn(os.path.join(self.out, name + ".svg"), output)
        with open(os.path.join(self.out, "report.md"), encoding="utf-8") as file:
            self.assertIn("## Bytes per shard", file.read())

    def test_runs_with_certificates_move_the_same_bytes(self):
        fixture.require_namespaces(self, self.folder)
        code, _, complaints = self.sharding(_CONFIG + "certificates: true")
        self.assertEqual(code, 0, complaints)
        self.check_results()
        logs = {
            name: pathlib.Path(folder, name).read_text()
            for folder, _, names in os.walk(self.out) for name in names if name.startswith("ps")
        }
        self.assertTrue(logs)
        for name, log in logs.items():
            self.assertNotIn("insecure", log, name)

    def test_an_iteration_with_local_steps_is_a_whole_round(self):
        local = "  local { steps: 4 optimizer { kind: SGD learning_rate: 0.01 } }\n"
        one = _CONFIG.replace("  limits", local + "  limits")
        code, _, complaints = self.sharding(one, "--network=host")
        self.assertEqual(code, 0, complaints)
        self.check_results()  # the model's bytes once in a round
        for row in self.rows():
            self.assertEqual(row["batches"], "4")
            images = float(row["images_per_second"]) * float(row["iteration_seconds_median"])
            self.assertAlmostEqual(images, 2 * 8 * 4, places=1)
        report = pathlib.Path(self.out, "report.md").read_text(encoding="utf-8")
        self.assertIn("batch 8 per worker, 4 in an iteration; runs of 3 iterations", report)

    def test_only_what_is_missing_is_run_again(self):
        self.assertEqual(self.sharding(_CONFIG, "--network=host")[0], 0)
        self.check_results()
        before = self.rows()
        shutil.rmtree(os.path.join(self.out, "runs", before[1]["run"]))
        code, output, complaints = self.sharding(_CONFIG, "--network=host")
        self.assertEqual(code, 0, complaints)
        self.assertIn("1 of 2 runs are done already", output)
        self.assertIn("[2/2] 2 workers, 2 shards, memory-based", output)
        self.assertNotIn("layer-based (greedy), full", output)
        self.assertEqual(self.rows()[0]["run_seconds"], before[0]["run_seconds"])
        self.check_results()

    def config_with_hosts(self, worker="worker/worker"):
        """_CONFIG on hosts that are this one, with a `worker` of the caller's choice."""
        ssh = os.path.join(self.folder, "ssh")
        with open(ssh, "w", encoding="utf-8") as file:
            file.write(_FAKE_SSH)
        os.chmod(ssh, 0o755)
        programs = os.path.join(self.folder, "programs")
        os.makedirs(programs)
        shutil.copy("server/ps", programs)
        shutil.copy(worker, os.path.join(programs, "worker"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        return _CONFIG.replace("shards: 2", "shards: 1") + f"""hosts {{
            shard {{ name: "me@localhost" address: "127.0.0.1" }}
            worker {{ name: "alpha" }} worker {{ name: "beta" }}
            programs: "{programs}" ssh: "{ssh}" port: {port}
        }}"""

    def test_other_hosts_are_used_over_ssh(self):
        code, _, complaints = self.sharding(self.config_with_hosts())
        self.assertEqual(code, 0, complaints)
        self.assertEqual([row["shards"] for row in self.rows()], ["1", "1"])
        for row in self.rows():
            self.assertLess(float(row["bytes_error"]), 0.02)

    def test_a_wrong_config_is_refused_before_anything_runs(self):
        for config, problem in (
            (_CONFIG.replace("workers: 2", "workers: 0"), "e.textproto:13: workers[0]: is 0"),
            (_CONFIG.replace("gbps: 1", "gbps: 0"), "e.textproto:18: link_gbps: is 0"),
            (_CONFIG.replace("batch_size: 8", "batch_size: 0"),
             "e.textproto:9: cluster.training.batch_size: is 0, allowed: "),
        ):
            code, output, complaints = self.sharding(config)
            self.assertEqual((code, output), (2, ""))
            self.assertIn(problem, complaints)
        self.assertFalse(os.path.exists(self.out))

    def test_a_folder_in_use_is_refused(self):
        folder = OutputFolder(self.out, {})
        code, _, complaints = self.sharding(_CONFIG)
        self.assertEqual(code, 2)
        self.assertIn(f"--out={folder.path} is in use by another run", complaints)

    def test_results_of_another_network_are_not_mixed_in(self):
        self.assertEqual(self.sharding(_CONFIG, "--network=host")[0], 0)
        code, _, complaints = self.sharding(_CONFIG, "--network=namespaces")
        self.assertEqual(code, 2)
        self.assertIn("holds the results of another config or network", complaints)

    def test_a_run_that_fails_says_why_and_leaves_the_rest(self):
        code, _, complaints = self.sharding(self.config_with_hosts(worker="/bin/false"))
        self.assertEqual(code, 1, complaints)
        self.assertRegex(complaints, r"worker \d failed with exit code 1; its log, .*log, ends:")
        self.assertIn("the same command goes on", complaints)

    def refused(self, code, pattern, environment=(), **options):
        """Runs into a failure that is to be told without a traceback."""
        done = subprocess.run(
            self.command(_CONFIG, "--network=host"),
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            # Otherwise matplotlib warns where the home folder is not writable.
            env={**os.environ, "MPLCONFIGDIR": self.folder, **dict(environment)},
            **options,
        )
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, pattern)

    def test_a_full_disk_is_one_line_and_leaves_no_part_of_a_file(self):
        self.assertEqual(self.sharding(_CONFIG, "--network=host")[0], 0)
        files = sorted(os.listdir(self.out))
        goes_on = "\nthe same command goes on\n$"
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.refused(1, r"^\[Errno 28\] No space left on device" + goes_on, stdout=full)
        # No file may be larger than this, which the charts are.
        limit = 20_000
        self.refused(
            1,
            r"^cannot write \S*/shard_bytes\.svg: File too large" + goes_on,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )
        self.assertEqual(sorted(os.listdir(self.out)), files)

    def test_damaged_files_of_earlier_runs_are_one_line_each(self):
        self.assertEqual(self.sharding(_CONFIG, "--network=host")[0], 0)
        run = self.rows()[0]["run"]
        for name in (os.path.join("runs", run, "result.json"), "experiment.json"):
            path = os.path.join(self.out, name)
            with open(path, "r+b") as file:
                content = file.read()
                file.truncate(len(content) // 2)
            self.refused(2, rf"^{path} is damaged \([^\n]*\), allowed: [^\n]*\n$")
            with open(path, "wb") as file:
                file.write(b'{"iteration_seconds": [1]}')
            self.refused(2, r"^[^\n]*(result.json is damaged|holds the results of)[^\n]*\n$")
            with open(path, "wb") as file:
                file.write(content)
        # results.csv is only written: damage to it is mended.
        with open(os.path.join(self.out, "results.csv"), "wb") as file:
            file.write(b"\0")
        self.assertEqual(self.sharding(_CONFIG, "--network=host")[0], 0)
        self.check_results()

    def test_ctrl_c_while_it_loads_is_one_line(self):
        # The first module that only the experiment loads interrupts it.
        with open(os.path.join(self.folder, "matplotlib.py"), "w", encoding="utf-8") as file:
            file.write("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
        self.refused(
            130,
            "^interrupted; the same command goes on\n$",
            environment={"PYTHONPATH": self.folder},
        )
        self.assertFalse(os.path.exists(self.out))

    def start_endless(self, *arguments):
        """Starts an experiment of very many iterations; returns it once all processes run,
        and the network namespaces of its shards and workers."""
        config = _CONFIG.replace("iterations: 3", "iterations: 1000000000")
        runner = subprocess.Popen(
            self.command(config, *arguments),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.addCleanup(runner.wait)
        self.addCleanup(runner.kill)
        program = re.compile(rf"\S*/(?:server/ps|worker/worker) --config={self.out}/.*")

        def programs():
            return [n for n, command in fixture.processes().items() if program.match(command)]

        self.wait_until(lambda: len(programs()) == 4, "2 shards and 2 workers")
        return runner, {os.readlink(f"/proc/{number}/ns/net") for number in programs()}

    def wait_until(self, condition, what):
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"waited for: {what}")
            time.sleep(0.05)

    def check_nothing_is_left(self, runner, namespaces, links):
        runner.wait()
        self.wait_until(
            lambda: not any(self.out in command for command in fixture.processes().values()),
            "no process of the experiment",
        )
        self.assertEqual(set(os.listdir("/sys/class/net")), links)
        for namespace in namespaces - {os.readlink("/proc/self/ns/net")}:
            self.wait_until(lambda: not fixture.in_network(namespace), "nobody in the network")

    def test_nothing_is_left_after_kill_9(self):
        fixture.require_namespaces(self, self.folder)
        links = set(os.listdir("/sys/class/net"))
        runner, namespaces = self.start_endless()
        self.assertEqual(len(namespaces), 4)
        runner.send_signal(signal.SIGKILL)
        self.check_nothing_is_left(runner, namespaces, links)
        # And the folder is free again.
        code, _, complaints = self.sharding(_CONFIG)
        self.assertEqual(code, 0, complaints)

    def test_nothing_is_left_after_ctrl_c(self):
        fixture.require_namespaces(self, self.folder)
        links = set(os.listdir("/sys/class/net"))
        runner, namespaces = self.start_endless()
        os.killpg(runner.pid, signal.SIGINT)
        self.check_nothing_is_left(runner, namespaces, links)
        self.assertEqual(runner.returncode, 130)

    def test_sigterm_ends_it_as_ctrl_c_does(self):
        links = set(os.listdir("/sys/class/net"))
        runner, namespaces = self.start_endless("--network=host")
        runner.send_signal(signal.SIGTERM)
        self.check_nothing_is_left(runner, namespaces, links)
        self.assertEqual(runner.returncode, 130)

    def test_nothing_is_left_on_the_hosts_own_network_either(self):
        links = set(os.listdir("/sys/class/net"))
        runner, namespaces = self.start_endless("--network=host")
        runner.send_signal(signal.SIGKILL)
        self.check_nothing_is_left(runner, namespaces, links)


if __name__ == "__main__":
    unittest.main()
