"""What a Lease says of the installation behind it, as its leader wrote it.

``controller.maintenance.installationstate`` writes it; commands of people who see no more of the
operator's namespace read it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

ANNOTATION = "duepoint.dev/installation"


class InstallationState(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """What is known of an installation.

    Attributes:
        at: when this was true, RFC 3339.
        redis: name and version of the server; empty while it has not been read.
        redis_down_since: since when Redis does not answer, RFC 3339; empty where it does.
        troubles: of the leader: parts that are not well; with a text where that is our own.
        worker_troubles: the same of each living worker.
        workers: living workers; None while Redis has not answered yet.
        due, lag_seconds: points that are due, and how long the oldest has been.
        memory_limit_bytes: 0 = none.
    """

    at: str = ""
    version: str = ""
    redis: str = ""
    redis_down_since: str = ""
    troubles: dict[str, str] = msgspec.field(default_factory=dict)
    worker_troubles: dict[str, str] = msgspec.field(default_factory=dict)
    workers: int | None = None
    due: int = 0
    lag_seconds: float = 0.0
    clock_skew_seconds: float | None = None
    memory_used_bytes: int = 0
    memory_limit_bytes: int = 0


def read(annotations: Mapping[str, str]) -> InstallationState | None:
    """The state that a Lease carries; None where it carries none, or one of another version."""
    try:
        return msgspec.json.decode(annotations.get(ANNOTATION, ""), type=InstallationState)
    except msgspec.DecodeError:
        return None
