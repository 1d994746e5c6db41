"""The whole check, with scripts in place of the programs, PyTorch's among them."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from tools.gpu import check, machine
from tools.gpu.measure import exchange_rate, longest_waits
from tools.gpu.processes import ProgramError

_TEST = "echo 'All tests passed (1 assertion in 1 test case)'"
_LAYERS_TEST = "tests/worker/compute/cuda/layers_test_gpu"
# 100 images/s in TF32, 200 in bf16.
_COMPUTE = r"""
case "$*" in *BFLOAT16*) rate=200 ;; *) rate=100 ;; esac
echo "verified: a lot"
while read -r request; do echo "round 1: $rate images/s"; done
"""
_PYTORCH = """
import json, sys
for request in sys.stdin:
    mode, precision, batch = request.split()
    rates = {"eager": 80, "channels_last": 125, "compile": 50}
    print("a warning of a library")
    print(json.dumps({"images_per_second": rates[mode],
                      "images_per_second_with_sgd": rates[mode] / 2}), flush=True)
"""
_GLOO = """
import sys
for request in sys.stdin:
    print('{"images_per_second": 10}', flush=True)
"""
# 1 s an iteration, 2 s layer-based; a worker waits for fc6.
_LAUNCH = """
import json, sys
flags = dict(flag[2:].split("=", 1) for flag in sys.argv[1:] if not flag.startswith("--set"))
seconds = 2 if any("LAYER_BASED" in flag for flag in sys.argv) else 1
summary = {"iteration_seconds": [9, 9, 9] + [seconds] * 5 + [9], "seconds": 4.0,
           "exchange_wait_seconds": 1.0, "final_accuracy": 0.97}
with open(flags["summary"], "w") as file:
    json.dump(summary, file)
if "trace" in flags:
    with open(flags["trace"], "w") as file:
        json.dump([{"ph": "X", "name": "wait fc6", "dur": 3000}], file)
"""


class CheckTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.join(scratch.name, "programs")
        self.out = os.path.join(scratch.name, "out")
        self.write("gpu_tests.txt", f"{_LAYERS_TEST}\ntests/other_gpu\n")
        for test in (_LAYERS_TEST, "tests/other_gpu"):
            self.write_shell(test, _TEST)
        self.write_shell("bench/compute/compute", _COMPUTE)
        self.write_shell("sanitizer", 'exec "$5"')
        self.write("tools/launch/launch", f"#!{sys.executable}\n{_LAUNCH}")
        self.write("bench/python/pytorch_vgg16.py", _PYTORCH)
        self.write("bench/python/pytorch_ddp_gloo.py", _GLOO)
        self.patch("require_gpu", lambda: None)
        self.patch("library_folders", lambda: ["/lib"])
        self.patch("describe", lambda: {"gpu": "a fake"})
        self.patch("compute_sanitizer", lambda: os.path.join(self.folder, "sanitizer"))

    def patch(self, name, value):
        patcher = mock.patch.object(machine, name, value)
        patcher.start()
        self.addCleanup(patcher.stop)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def write_shell(self, name, text):
        self.write(name, f"#!/bin/sh\n{text}\n")

    def pack(self):
        archive = os.path.join(self.folder, "..", "packed")
        os.makedirs(archive, exist_ok=True)
        subprocess.run(
            ["tar", "-cJf", os.path.join(archive, "gpu_check.tar.xz"), "-C", self.folder, "."],
            check=True,
        )
        return f"--packed={archive}"

    def check(self, *flags):
        """The exit code, and what is found in results.json."""
        self.said = io.StringIO()
        with contextlib.redirect_stdout(self.said):
            code = check.main([self.pack(), f"--out={self.out}", *flags])
        with open(os.path.join(self.out, "results.json"), encoding="utf-8") as file:
            return code, json.load(file)

    def outcomes(self, found):
        return {step["name"]: (step["outcome"], step["detail"]) for step in found["steps"]}

    def test_everything_is_run_and_measured(self):
        code, found = self.check()
        self.assertEqual(
            {outcome for outcome, _ in self.outcomes(found).values()}, {"passed"}, found["steps"]
        )
        self.assertEqual(code, 0)
        figures = {figure["what"]: figure for figure in found["figures"]}
        tf32 = figures["VGG-16 without exchange, tf32, batch 64, over PyTorch's best"]
        self.assertEqual(tf32["under"], "PyTorch channels_last, tf32, batch 64")
        self.assertEqual(tf32["ratio"]["median"], 0.8)
        self.assertIs(tf32["reached"], False)
        bf16 = figures["VGG-16 without exchange, bf16, batch 32, over PyTorch's best"]
        self.assertIs(bf16["reached"], True)
        one = figures["1 worker and 1 shard, FULL, tf32, batch 64, over the same without exchange"]
        self.assertEqual(one["ratio"]["median"], 0.64)
        gloo = figures["4 workers and 2 shards, tf32, batch 64, over PyTorch DDP"]
        self.assertEqual(gloo["ratio"]["median"], 25.6)
        self.assertIs(gloo["reached"], True)
        shards = figures["4 workers and 2 shards, memory-based over layer-based (greedy)"]
        self.assertEqual(shards["ratio"]["median"], 2)
        self.assertIsNone(shards["reached"])
        self.assertEqual(len(found["images_per_second"]["compute, tf32, batch 64"]["rounds"]), 5)
        with_sgd = found["images_per_second"]["PyTorch eager, bf16, batch 32, with SGD"]
        self.assertEqual(with_sgd["median"], 40)
        self.assertIn("1x1: worker 0 spent 25% of its time waiting on the exchange; on average: "
                      "wait fc6 3.0 ms (trace_1x1.json)", found["notes"])
        self.assertEqual(
            sorted(os.listdir(self.out)),
            ["log.txt", "results.json", "results.md", "trace_1x1.json", "trace_4x2.json"],
        )
        self.assertIn("| reached", self.said.getvalue())

    def test_what_fails_or_is_skipped_is_said_and_the_rest_goes_on(self):
        self.write_shell("tests/other_gpu", "echo 'SKIPPED: no device'")
        self.write_shell(_LAYERS_TEST, "echo CUDA broke; exit 1")
        self.write("bench/python/pytorch_vgg16.py", "import sys; sys.exit('no PyTorch')")
        self.patch("compute_sanitizer", lambda: None)
        code, found = self.check()
        self.assertEqual(code, 1)
        outcomes = self.outcomes(found)
        self.assertEqual(outcomes[_LAYERS_TEST], ("failed", "exit code 1: CUDA broke"))
        self.assertEqual(outcomes["tests/other_gpu"], ("skipped", "no device"))
        self.assertEqual(
            outcomes["compute-sanitizer"], ("skipped", "this machine has no compute-sanitizer")
        )
        outcome, detail = outcomes["VGG-16 without exchange, beside PyTorch"]
        self.assertEqual(outcome, "failed")
        self.assertIn("PyTorch eager, tf32, batch 64: pytorch_vgg16.py ended with exit code 1",
                      detail)
        self.assertEqual(found["images_per_second"]["compute, tf32, batch 64"]["median"], 100)
        self.assertIsNone(found["figures"][0]["ratio"])
        self.assertEqual(outcomes["4 workers and 2 shards, beside PyTorch"][0], "passed")

    def test_what_does_not_fit_the_time_is_said(self):
        code, found = self.check("--minutes=1.5")
        self.assertEqual(code, 1)
        outcome, detail = self.outcomes(found)["VGG-16 without exchange, beside PyTorch"]
        self.assertEqual(outcome, "not run")
        self.assertRegex(detail, r"^\d+ s are left, it needs 280$")
        self.assertEqual(self.outcomes(found)["1 worker and 1 shard, beside none"][0], "passed")
        ratios = [figure["ratio"] for figure in found["figures"]]
        self.assertEqual(ratios[:4], [None] * 4)
        self.assertNotIn(None, ratios[4:])

    def test_nothing_is_left_of_a_check_that_is_ended(self):
        fifo = os.path.join(self.folder, "..", "fifo")
        os.mkfifo(fifo)
        # It holds the pipe open, which is at its end when the last of it is gone.
        self.write_shell(_LAYERS_TEST, f"exec 9>{fifo}; echo begun >&9; sleep 1000 & wait")
        script = (
            "import sys; from tools.gpu import check, machine;"
            "machine.require_gpu = lambda: None; machine.library_folders = lambda: [];"
            "sys.exit(check.main(sys.argv[1:]))"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, self.pack(), f"--out={self.out}"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.DEVNULL,
        ) as process:
            with open(fifo, encoding="utf-8") as pipe:
                self.assertEqual(pipe.readline(), "begun\n")
                process.terminate()
                self.assertEqual(pipe.read(), "")
            self.assertEqual(process.wait(), 128 + signal.SIGTERM)

    def test_nothing_is_run_where_there_is_no_gpu(self):
        self.patch("require_gpu", mock.Mock(side_effect=machine.MachineError("no GPU here")))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(check.main([f"--out={self.out}"]), 3)
        self.assertEqual(said.getvalue(), "gpu_check: no GPU here; nothing was run\n")
        self.assertFalse(os.path.exists(self.out))

    def test_wrong_command_lines_are_refused(self):
        for flags in ([], ["--out=a", "--pack=b"], ["--out=a", "--minutes=0"], ["--what"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as ended:
                check.main(flags)
            self.assertEqual(ended.exception.code, 2, flags)


class FiguresTest(unittest.TestCase):
    def test_warm_up_and_the_last_iteration_do_not_count(self):
        summary = {"iteration_seconds": [9, 9, 9, 1, 3, 9]}
        self.assertEqual(exchange_rate(summary, workers=4, batch=8), 16)
        with self.assertRaisesRegex(ProgramError, "too few iterations"):
            exchange_rate({"iteration_seconds": [1, 1, 1, 1]}, 1, 1)

    def test_the_longest_waits_of_a_trace(self):
        events = [{"ph": "M", "name": "process_name"}]
        for name, milliseconds in (("wait a", 1), ("wait b", 2), ("wait a", 5), ("wait c", 0)):
            events.append({"ph": "X", "name": name, "dur": milliseconds * 1000})
        self.assertEqual(longest_waits(events), "wait a 3.0 ms, wait b 2.0 ms")
        self.assertEqual(longest_waits([]), "")


if __name__ == "__main__":
    unittest.main()
