"""The provenance of a release: an in-toto statement with SLSA's provenance predicate, version 1.

It has no times, so two builds of a commit by one builder give the same statement. By itself it
proves nothing: the signature of SHA256SUMS, which lists it, does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

BUILD_TYPE = "https://duepoint.dev/build-types/make-release/v1"


def statement(
    *,
    files: Mapping[str, str],
    commit: str,
    repository: str,
    locks: Mapping[str, str],
    parameters: Mapping[str, str],
    builder: str,
) -> str:
    """Return JSON text. `files` and `locks` map names to SHA-256 in hex; the rest are URIs."""
    source = {"uri": f"git+{repository}@{commit}"} if repository else {"name": "duepoint"}
    content = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": _listed(files),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": dict(parameters),
                "resolvedDependencies": [
                    {**source, "digest": {"gitCommit": commit}}, *_listed(locks)
                ],
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }  # fmt: skip
    return json.dumps(content, indent=2) + "\n"


def _listed(sums: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(sums.items())]
