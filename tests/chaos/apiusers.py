"""Programs that write members through the HTTP API, and go on until each change is acknowledged.

Of one set that nothing but the API writes: one-offs by POST, each with an ``Idempotency-Key`` that
its payload repeats, and recurring members by PUT, edited once and deleted. A request that is
refused, cut or not answered is sent again, the same, until there is an answer; so what is written
down is exactly what the API has acknowledged. No client of the product: a plain HTTP library.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
import random
from typing import Any

import httpx2

from tests.chaos.history import Wish
from tests.chaos.recorder import Recorder, now_us
from tests.support.stack import Stack

SET = "letters"
_TIMEOUT_SECONDS = 2.0
_RETRY_SECONDS = 0.3
#: A one-off is due so long after it is first asked for: later than any API is away.
_AHEAD_SECONDS = (10, 16)
_LIVES_SECONDS = (4.0, 10.0)
_LATE = {"catchUpPolicy": "All", "startingDeadlineSeconds": 600}


class ApiUsers:
    """Attributes:
    under_way: requests that have no answer yet.
    """

    def __init__(self, stack: Stack, recorder: Recorder, token: str) -> None:
        self._recorder = recorder
        self._path = f"/v1/namespaces/{stack.namespace}/schedulesets/{SET}/schedules"
        self._http = httpx2.AsyncClient(
            base_url=stack.api_url,
            timeout=_TIMEOUT_SECONDS,
            headers={"Authorization": f"Bearer {token}"},
        )
        self._numbers = 0
        self.under_way = 0

    async def write(self, chance: random.Random, users: int, seconds: float) -> None:
        """So many users who write one-offs, and as many who write recurring members."""
        until = asyncio.get_running_loop().time() + seconds
        async with self._http, asyncio.TaskGroup() as group:
            for _ in range(users):
                group.create_task(self._once(random.Random(chance.random()), until))
                group.create_task(self._recurring(random.Random(chance.random()), until))

    async def _once(self, chance: random.Random, until: float) -> None:
        while asyncio.get_running_loop().time() < until:
            key = self._named("once")
            at = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(
                seconds=chance.randrange(*_AHEAD_SECONDS)
            )
            text = at.isoformat().replace("+00:00", "Z")
            wish = self._wish(key, {"schedule": f"@at {text}", **_LATE})
            body = {"at": text, **_LATE, "payload": {"edit": 1, "key": key}}
            await self._until_acknowledged("POST", "", body, headers={"Idempotency-Key": key})
            self._acknowledged(wish)
            await asyncio.sleep(chance.uniform(0.1, 0.5))

    async def _recurring(self, chance: random.Random, until: float) -> None:
        while asyncio.get_running_loop().time() < until:
            id_ = self._named("every")
            fields = {"schedule": "* * * * * *", "catchUpPolicy": "All", "catchUpLimit": 1000}
            first: Wish | None = None
            for edit in (1, 2):
                wish = self._wish(id_, fields, edit)
                body = {**fields, "payload": {"edit": edit}}
                await self._until_acknowledged("PUT", f"/{id_}", body)
                if first is not None:
                    wish = dataclasses.replace(wish, created_us=first.created_us)
                self._acknowledged(wish)
                first = wish
                await asyncio.sleep(chance.uniform(*_LIVES_SECONDS))
            assert first is not None
            gone = dataclasses.replace(first, spec=None, edit=3, at_us=now_us())
            await self._until_acknowledged("DELETE", f"/{id_}", None)
            self._acknowledged(gone)

    async def _until_acknowledged(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        headers: dict[str, str] | None = None,
    ) -> None:
        while True:
            self.under_way += 1
            try:
                answer = await self._http.request(
                    method, self._path + path, json=body, headers=headers
                )
            except httpx2.HTTPError:
                answer = None
            finally:
                self.under_way -= 1
            if answer is not None and _is_acknowledged(method, answer):
                return
            await asyncio.sleep(_RETRY_SECONDS)

    def _named(self, prefix: str) -> str:
        self._numbers += 1
        return f"{prefix}-{self._numbers}"

    def _wish(self, id_: str, spec: dict[str, Any], edit: int = 1) -> Wish:
        at_us = now_us()
        return Wish(
            name=f"{SET}/{id_}", uid=f"{SET}/{id_}", target="webhook", spec=spec, edit=edit,
            created_us=at_us, at_us=at_us, returned_us=0, is_restored=False,
        )  # fmt: skip

    def _acknowledged(self, wish: Wish) -> None:
        """It is so from now on: the API's answer is what ``Ready`` is elsewhere."""
        returned_us = now_us()
        self._recorder.add(dataclasses.replace(wish, returned_us=returned_us, ready_us=returned_us))


def _is_acknowledged(method: str, answer: httpx2.Response) -> bool:
    if answer.status_code == 404 and method == "DELETE":  # an answer was lost
        return bool(json.loads(answer.content).get("code") == "NoSuchMember")
    return answer.is_success
