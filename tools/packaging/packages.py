"""The Debian packages that files come from."""

import dataclasses
import os
import pathlib
import platform
import re
import urllib.parse

import libraries

# As dpkg-query shows them; the first one names the package as its list of files does.
_FIELDS = (
    "binary:Package", "Package", "Version", "Architecture", "source:Package", "source:Version"
)


@dataclasses.dataclass(frozen=True, order=True)
class Package:
    """A package that is installed here."""

    name: str
    version: str
    architecture: str
    source: str
    source_version: str

    def purl(self):
        """The package URL (https://github.com/package-url/purl-spec)."""
        return _purl(self.name, self.version, self.architecture)

    def source_purl(self):
        return _purl(self.source, self.source_version, "source")

    def copyright(self):
        """The bytes of the file that says who may do what with it."""
        path = pathlib.Path("/usr/share/doc") / self.name / "copyright"
        try:
            return path.read_bytes()
        except OSError as error:
            raise libraries.LibrariesError(f"the licence of {self.name}: {error}") from None

    def licenses(self):
        """The names of the licences of its source, but for Debian's own files. Nothing if Debian
        has not written them for programs to read (https://dep.debian.net/deps/dep5)."""
        text = self.copyright().decode(errors="replace")
        names = set()
        for paragraph in re.split(r"\n\s*\n", text):
            files = re.search(r"^Files:\s*(\S.*)", paragraph, re.M)
            license = re.search(r"^License:[ \t]*(\S.*)", paragraph, re.M)
            if files and license and not files[1].startswith("debian/"):
                names.add(license[1].strip())
        return sorted(names)


def _purl(name, version, architecture):
    system = platform.freedesktop_os_release()
    distribution = f"{system['ID']}-{system.get('VERSION_ID', 'unknown')}"
    name, version = urllib.parse.quote(name, safe=""), urllib.parse.quote(version, safe="")
    return f"pkg:deb/{system['ID']}/{name}@{version}?arch={architecture}&distro={distribution}"


def owners(paths):
    """Returns the package of each file. Raises LibrariesError if one belongs to none."""
    places = {path: os.path.realpath(path) for path in paths}
    spellings = {}
    for place in places.values():
        # Some packages list what is in /usr/lib in /lib, which is a link.
        spellings[place] = spellings[place.removeprefix("/usr")] = place
    # It fails if one spelling is unknown, as most are.
    found = libraries.output_of(["dpkg-query", "--search", *spellings], may_fail=True)
    names = {}
    for line in found.splitlines():
        name, _, spelling = line.rpartition(": ")
        if spelling in spellings and not name.startswith("diversion "):
            names[spellings[spelling]] = name.split(", ")[0]
    if strangers := sorted(set(places.values()) - set(names)):
        raise libraries.LibrariesError(f"{', '.join(strangers)}: of no package")
    form = "\t".join(f"${{{field}}}" for field in _FIELDS) + "\n"
    shown = libraries.output_of(
        ["dpkg-query", "--show", "--showformat", form, *sorted(set(names.values()))]
    )
    packages = {}
    for line in shown.splitlines():
        name, *fields = line.split("\t")
        packages[name] = Package(*fields)
    return {path: packages[names[place]] for path, place in places.items()}
