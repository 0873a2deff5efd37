"""What a release was made of, as an in-toto statement with SLSA's provenance predicate, version 1.

The statement says which files there are, from which commit and which lock files, by which builder.
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
    """As JSON text. `files` and `locks` map names to SHA-256 in hex, `builder` is a URI.

    `repository` is one as well, or "" where it is not said.
    """
    sources: list[dict[str, Any]] = [
        {
            **({"uri": f"git+{repository}@{commit}"} if repository else {"name": "duepoint"}),
            "digest": {"gitCommit": commit},
        }
    ]
    sources += [
        {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(locks.items())
    ]
    content = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(files.items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": dict(parameters),
                "resolvedDependencies": sources,
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }
    return json.dumps(content, indent=2) + "\n"
