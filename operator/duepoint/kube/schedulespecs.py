"""The spec of a Schedule, read from its object: one reader for all that show, count or run it.

``of_item`` reads a typed object of the API server; ``item_of`` makes such an object of decoded JSON
or YAML, which may lack what the API server adds. The reconcile queue reads specs
from its own ``Observed`` values, with a fingerprint that only it knows.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from duepoint import errors
from duepoint.kube import port, schedules, times
from duepoint.schedules import spec as specs
from duepoint.schedules.conditions import Reason
from duepoint.schedules.spec import ScheduleSpec


def of_item(item: schedules.Schedule, *, absent_us: int = 0) -> ScheduleSpec:
    """The spec of a Schedule.

    Args:
        absent_us: the creation of an object that has not been created.

    Raises:
        errors.InvalidSpec: with every error found, in field order.
    """
    metadata = item.metadata
    created = metadata.creation_timestamp
    return specs.parse(
        bytes(item.spec),  # a copy: what was parsed is kept, and a Raw would keep its whole page
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        created_us=_created_us(created) if created else absent_us,
    )


def item_of(document: Mapping[str, Any], *, namespace: str = "") -> schedules.Schedule:
    """The object behind decoded JSON or YAML, without its status.

    Metadata that is missing or has another type counts as absent.

    Args:
        namespace: of an object that names none.
    """
    found = document.get("metadata")
    metadata: Mapping[str, Any] = found if isinstance(found, dict) else {}
    generation, created = metadata.get("generation"), metadata.get("creationTimestamp")
    spec = document.get("spec")
    return schedules.Schedule(
        metadata=port.Metadata(
            name=str(metadata.get("name") or ""),
            namespace=str(metadata.get("namespace") or namespace),
            uid=str(metadata.get("uid") or ""),
            generation=generation if isinstance(generation, int) else 0,
            creation_timestamp=created if isinstance(created, str) else None,
        ),
        spec=msgspec.Raw(msgspec.json.encode({} if spec is None else spec)),
    )


def is_suspended(suspend: object, until: str | None, now_us: int) -> bool:
    """Whether a suspension with such fields is in force; one whose end cannot be read is."""
    if suspend and until:
        with contextlib.suppress(ValueError):
            return times.parse_us(until) > now_us
    return bool(suspend)


@functools.lru_cache(maxsize=4_096)  # thousands of Schedules were created in the same second
def _created_us(text: str) -> int:
    try:
        return times.parse_us(text)
    except ValueError as error:
        message = f"{errors.quoted(text)} is no RFC 3339 time"
        field = errors.FieldError(
            reason=Reason.INVALID_SPEC, path="metadata.creationTimestamp", message=message
        )
        raise errors.InvalidSpec((field,)) from error
