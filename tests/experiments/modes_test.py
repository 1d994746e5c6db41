"""//experiments:modes with real processes, on the digits."""

import csv
import gzip
import os
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

_MODES = os.path.abspath("experiments/modes")
_TEST_IMAGES = 297

_CONFIG = """\
cluster {
  model {
    input { channels: 1 height: 8 width: 8 }
    layer { name: "conv1" conv { out_channels: 8 kernel: 3 padding: 1 } }
    layer { relu {} }
    layer { max_pool { kernel: 2 } }
    layer { name: "fc1" linear { out_features: 32 } }
    layer { relu {} }
    layer { name: "fc2" linear { out_features: 10 } }
  }
  partition { scheme: MEMORY_BASED }
  shard {}
  shard {}
  workers: 3
  update { policy: SYNC }
  optimizer { kind: ADAM learning_rate: 0.01 }
  training { batch_size: 10 epochs: 4 }
  data { idx {
    images: "images" labels: "labels" test_images: "test_images" test_labels: "test_labels" } }
  compute { threads: 1 pace { device: "rtx_2080_ti" time_dilation: 300 } }
}
mode { name: "SYNC" }
mode { name: "local steps" set: "optimizer={kind: SGD learning_rate: 1}"
       set: "local={steps: 8 optimizer {kind: ADAM learning_rate: 0.01}}" }
mode { name: "one master" topology: ONE_MASTER }
mode { name: "ring" topology: RING }
situation { name: "stopping" stop_seconds: 0.05 run_seconds_between: 0.05 }
link_gbps: 1
seeds: 1
accuracy: 50
look_seconds: 0.05
"""


class ModesTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.out = os.path.join(self.folder, "out")
        for name, head in (("images.idx3", 16), ("labels.idx1", 8)):
            self.split(name, head)

    def split(self, name, head):
        """Writes the digits as files of training and of test images."""
        with gzip.open(f"data/digits/{name}-ubyte.gz") as file:
            content = file.read()
        count = int.from_bytes(content[4:8], "big")
        each = (len(content) - head) // count
        kept = count - _TEST_IMAGES
        middle = head + kept * each
        name = name.partition(".")[0]
        for path, images, data in (
            (name, kept, content[head:middle]),
            (f"test_{name}", _TEST_IMAGES, content[middle:]),
        ):
            with open(os.path.join(self.folder, path), "wb") as file:
                file.write(content[:4] + images.to_bytes(4, "big") + content[8:head] + data)

    def modes(self, *arguments, config=_CONFIG):
        path = os.path.join(self.folder, "m.textproto")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)
        done = subprocess.run(
            [_MODES, f"--config={path}", f"--out={self.out}", "--network=host", *arguments],
            capture_output=True, text=True, check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def rows(self):
        with open(os.path.join(self.out, "results.csv"), encoding="utf-8") as file:
            return {row["mode"]: row for row in csv.DictReader(file)}

    def test_modes_are_trained_looked_at_and_reported_and_what_is_done_is_kept(self):
        code, output, complaints = self.modes("--only=sync|ring")
        self.assertEqual(code, 0, complaints)
        self.assertEqual(list(self.rows()), ["SYNC", "ring"])
        code, output, complaints = self.modes()
        self.assertEqual(code, 0, complaints)
        self.assertIn("2 of 4 runs are done already", output)
        rows = self.rows()
        self.assertEqual(list(rows), ["SYNC", "local steps", "one master", "ring"])
        iterations = 4 * 1500 // 3 // 10
        for mode, row in rows.items():
            with self.subTest(mode):
                self.assertEqual(row["iterations"], " ".join(3 * [str(iterations)]))
                self.assertGreater(float(row["final_accuracy"]), 70)
                self.assertGreaterEqual(float(row["seconds_to_accuracy"]), 0)
                self.assertGreater(int(row["stops"]), 0)
        # The time of a ring leaves out that one worker evaluates, for all workers.
        ring = rows["ring"]
        # The table has it in whole milliseconds, and the rate in tenths.
        rate = float(ring["images_per_second"])
        seconds = float(ring["train_seconds"])
        self.assertAlmostEqual(
            seconds, 3 * iterations * 10 / rate, delta=6e-4 + seconds * 0.06 / rate
        )
        moved = {mode: int(row["busiest_link_bytes_each_way"]) for mode, row in rows.items()}
        # Each of two shards serves three workers, and one master two that are on other hosts.
        self.assertAlmostEqual(moved["one master"] / moved["SYNC"], 2 / (3 / 2), delta=0.02)
        self.assertAlmostEqual(moved["ring"] / moved["SYNC"], (2 * 2 / 3) / (3 / 2), delta=0.02)
        self.assertAlmostEqual(moved["local steps"] / moved["SYNC"], 1 / 8, delta=0.02)
        for name in ("time_to_accuracy", "accuracy_over_time_stopping",
                     "accuracy_over_bytes_stopping", "where_time_goes_stopping"):
            xml.etree.ElementTree.parse(os.path.join(self.out, name + ".svg"))
            self.assertIn(os.path.join(self.out, name + ".svg"), output)
        with open(os.path.join(self.out, "report.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("4 of 4 trainings are done", text)
        self.assertIn("## Take this when", text)
        self.assertEqual(
            [name for run in os.listdir(os.path.join(self.out, "runs"))
             for name in os.listdir(os.path.join(self.out, "runs", run))
             if name.endswith(".safetensors")],
            [],
        )

    def test_dilated_time_is_not_in_the_results(self):
        code, _, complaints = self.modes("--only=sync", config=_CONFIG + "time_dilation: 4")
        self.assertEqual(code, 0, complaints)
        row = self.rows()["SYNC"]
        self.assertEqual(row["time_dilation"], "4")
        self.assertGreater(float(row["run_seconds"]), 4 * float(row["train_seconds"]))
        self.assertGreater(float(row["train_seconds"]), float(row["compute_seconds"]))
        run = os.path.join(self.out, "runs", row["run"])
        texts = []
        for name in os.listdir(run):
            with open(os.path.join(run, name), encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
        self.assertTrue(any("time_dilation: 1200" in text for text in texts))

    def test_what_is_wrong_is_refused_before_anything_runs(self):
        for arguments, config, problem in (
            ([], _CONFIG.replace("steps: 8", "steps: 0"), r"m\.textproto:23: mode\[1\]: local"
             r" steps: its config, line \d+: local\.steps: is 0"),
            (["--only=nothing"], _CONFIG, '--only: is "nothing", which is in no training\'s name,'
             " allowed: part of one, such as sync-stopping-1gbps-seed1"),
            (["--only=("], _CONFIG, r'--only: is "\(", which is no regular expression'),
            ([], _CONFIG.replace("max_pool { kernel: 2 }", "dropout { p: 0.5 }"),
             "cluster.model: has a layer of kind dropout, allowed: conv, linear, relu, max_pool"),
            ([], _CONFIG.replace('"test_labels"', '"nowhere"'), "No such file .*nowhere"),
        ):
            with self.subTest(problem):
                code, _, complaints = self.modes(*arguments, config=config)
                self.assertEqual(code, 2, complaints)
                self.assertRegex(complaints, problem)
                self.assertFalse(os.path.exists(os.path.join(self.out, "runs")))

    def test_a_training_that_fails_is_told_and_the_same_command_goes_on(self):
        code, _, complaints = self.modes("--only=^sync", config=_CONFIG.replace(
            "learning_rate: 0.01 }\n  training", "learning_rate: 1e38 }\n  training"))
        self.assertEqual(code, 1)
        self.assertIn("the same command goes on", complaints)
        shutil.rmtree(self.out)
        self.assertEqual(self.modes("--only=^sync")[0], 0)


if __name__ == "__main__":
    unittest.main()
