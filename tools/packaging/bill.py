"""The wheel's bill of materials, in CycloneDX 1.5 (https://cyclonedx.org/docs/1.5/json).

PEP 770 allows any format. This one, which auditwheel writes too, has a place for Debian's names of
licences and for a file within its package. SPDX 2.3 wants licences from its own list, and a time
and a name in the web of each document, so that two builds of the same files would differ.
"""

import dataclasses
import hashlib
import json
from typing import Dict, Set

import packages


@dataclasses.dataclass
class Contents:
    """What a wheel carries. Files are their bytes by their paths in the wheel."""

    version: str
    built: Dict[str, bytes]
    copied: Dict[packages.Package, Dict[str, bytes]]  # of shared libraries
    compiled: Set[packages.Package]  # whose headers have become parts of what is built
    # The copied packages that those of a package, or with None what is built, need directly.
    needs: Dict[packages.Package, Set[packages.Package]]


def text(contents, time):
    """Returns the document. `time` is that of the build in ISO 8601, or None."""
    own = f"pkg:pypi/evenshard@{contents.version}"
    carried = sorted({*contents.copied, *contents.compiled})
    own_needs = contents.needs[None] | contents.compiled
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            **({"timestamp": time} if time else {}),
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "evenshard",
                "version": contents.version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "components": _files(contents.built),
            },
        },
        "components": [
            _component(package, contents.copied.get(package, {})) for package in carried
        ],
        "dependencies": [
            {"ref": own, "dependsOn": sorted(package.purl() for package in own_needs)},
            *(
                {
                    "ref": package.purl(),
                    "dependsOn": sorted(
                        need.purl() for need in contents.needs.get(package, set()) - {package}
                    ),
                }
                for package in carried
            ),
        ],
    }
    return (json.dumps(document, indent=2) + "\n").encode()


def _files(files):
    return [
        {
            "type": "file",
            "bom-ref": f"file:{path}",
            "name": path,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(files[path]).hexdigest()}],
        }
        for path in sorted(files)
    ]


def _component(package, files):
    source = {
        "type": "library",
        "name": package.source,
        "version": package.source_version,
        "purl": package.source_purl(),
    }
    changes = {"notes": "patchelf has given the files names and places of the wheel's own."}
    return {
        "type": "library",
        "bom-ref": package.purl(),
        "name": package.name,
        "version": package.version,
        "purl": package.purl(),
        "licenses": [{"license": {"name": name}} for name in package.licenses()],
        "externalReferences": [{"type": "license", "url": f"../licenses/{package.name}.txt"}],
        "pedigree": {"ancestors": [source], **(changes if files else {})},
        "components": _files(files),
    }
