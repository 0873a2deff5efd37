"""The software bill of materials, CycloneDX 1.6, made from what the lock file pins.

Licences come from the metadata of the same versions in the environment; a package for another
system has none. The text depends on the lock, the version and the time of the release only.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)(?:\s*;\s*([^\\]+?))?\s*\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(r"^\s+# +(?:via +)?(?!via$)([A-Za-z0-9._-]+)")
#: The root of the ids; any constant does.
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "sbom.duepoint.dev")


@dataclass(slots=True)
class Package:
    """A pinned package. `needed_by` has names of packages; "duepoint" is the product itself."""

    name: str
    version: str
    marker: str
    hashes: list[str]
    needed_by: list[str]

    @property
    def purl(self) -> str:
        """Its address in the form of the Package URL specification."""
        return f"pkg:pypi/{self.name}@{self.version}"


def packages(lock: str) -> Iterator[Package]:
    """What `locks.exported` says, in its order."""
    current = None
    for line in lock.splitlines():
        if pinned := _PINNED.match(line):
            if current:
                yield current
            name, version, marker = pinned.groups()
            current = Package(name, version, marker or "", [], [])
        elif current:
            current.hashes += _HASH.findall(line)
            if via := _VIA.match(line):
                current.needed_by.append(via.group(1))
    if current:
        yield current


def document(lock: str, *, version: str, epoch: int) -> str:
    """The bill as JSON text; `epoch` is the time of the release in seconds."""
    found = list(packages(lock))
    known = {each.name: each.purl for each in found}
    root = f"pkg:pypi/duepoint@{version}"
    needs: dict[str, list[str]] = {each: [] for each in (root, *known.values())}
    for each in found:
        for name in each.needed_by:
            needs[root if name == "duepoint" else known[name]].append(each.purl)
    content: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, version + lock)}",
        "version": 1,
        "metadata": {
            "timestamp": dt.datetime.fromtimestamp(epoch, dt.UTC).isoformat(),
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "duepoint",
                "version": version,
                "purl": root,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": [_component(each) for each in found],
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(others)} for ref, others in needs.items()
        ],
    }
    return json.dumps(content, indent=2) + "\n"


def _component(package: Package) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
    }
    if licence := licence_of(package):
        component["licenses"] = [licence]
    # One hash for each file that may be installed: they are of files, not of the package.
    component["externalReferences"] = [
        {
            "type": "distribution",
            "url": f"https://pypi.org/project/{package.name}/{package.version}/",
            "hashes": [{"alg": "SHA-256", "content": each} for each in sorted(package.hashes)],
        }
    ]
    if package.marker:
        component["properties"] = [{"name": "duepoint:marker", "value": package.marker}]
    return component


def licence_of(package: Package) -> dict[str, Any] | None:
    """What the package's own metadata says, as CycloneDX puts it. None = it is not known here."""
    try:
        about = importlib.metadata.metadata(package.name)
    except importlib.metadata.PackageNotFoundError:
        return None
    if about["Version"] != package.version:
        return None
    if "License-Expression" in about:
        return {"expression": about["License-Expression"]}
    classifiers = about.get_all("Classifier") or []
    named = [each.split(" :: ")[-1] for each in classifiers if each.startswith("License ::")]
    # Some packages put the whole text into the field License; its first line is the name.
    named += [line for text in about.get_all("License") or [] for line in text.splitlines()[:1]]
    return {"license": {"name": named[0]}} if named else None
