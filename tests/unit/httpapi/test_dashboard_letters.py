"""Ids of dead letters can be guessed: who may not see letters learns nothing of them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from duepoint.httpapi.dashboard import queueviews


class Rights:
    """May run every Schedule, and lists none."""

    async def may(self, _caller: object, wanted: dict[str, Any]) -> bool:
        return "list" not in repr(wanted)


async def test_no_letter_is_looked_up_for_those_who_may_not_list():
    no_queue: Any = object()  # every use of it fails
    rights: Any = Rights()
    call: Any = SimpleNamespace(
        caller="a",
        namespace="shop",
        body=b'{"ids": ["1.0.1-1", "x"]}',
        shared=SimpleNamespace(rights=rights, queue=no_queue),
    )
    answer = await queueviews.replay(call)
    assert json.loads(answer.body) == {
        "replayed": 0,
        "missing": ["1.0.1-1", "x"],
        "results": {"1.0.1-1": "gone", "x": "gone"},
    }
