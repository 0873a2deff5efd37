"""How kopf reads its watch: JSON of any depth.

kopf decodes each line of a watch with the standard library, which raises RecursionError at about a
thousand levels; the API server stores ten thousand. That error ends kopf's whole operator, again
and again, so one object would hide every other one. kopf has no setting for this: the module that
reads lines is given a decoder that leaves the depths out, and the reconciler refuses the object.
"""

from __future__ import annotations

import json
from typing import Any

import kopf._cogs.clients.api as kopf_api

from duepoint.schedules import nesting


class _Json:
    """What kopf's module uses of ``json``."""

    @staticmethod
    def loads(text: str) -> Any:  # noqa: ANN401 - as json.loads
        # kopf itself walks through an object by recursion, some frames for each level.
        if text.count("{") + text.count("[") > nesting.LEFT:
            return json.loads(nesting.clipped(text.encode()))
        return json.loads(text)


def use() -> None:
    """From now on kopf reads so; again and again if you like."""
    kopf_api.json = _Json  # type: ignore[assignment,attr-defined]
