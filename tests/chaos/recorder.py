"""The recorder: writes the history as it happens, from sources other than Duepoint.

The receiver records each request before it answers, a watch of the API server each Job and Lease,
and an administrator's connection reads the streams.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from tests.chaos import history
from tests.chaos.history import Effect, JobEnd, LeaseSeen, Line, ReadySeen, Run
from tests.chaos.watching import Change
from tests.support import receiver

SLOT = "duepoint.dev/scheduled-time"
PAYLOAD = "duepoint.dev/payload"
TRIGGER = "duepoint.dev/trigger"
EPOCH = "duepoint.dev/epoch"
_POLL_SECONDS = 0.2
#: A server's clock that differs by no more than this counts as right.
_NEAR_US = 50_000
#: Later than any id: the id's time is not reliable.
_NEVER_US = 2**62


def now_us() -> int:
    return time.time_ns() // 1000


class Recorder:
    """The history of a run, in memory and in a file.

    Attributes:
        gaps: watches that missed something; a history with gaps is not usable.
    """

    def __init__(self, run: Run, path: Path) -> None:
        self.history = history.History(run)
        self.path = path
        self.gaps: list[str] = []
        self._file = path.open("w")
        self._file.write(history.text_of(run) + "\n")
        self._lock = threading.Lock()
        self._jobs: set[str] = set()
        self._ended: set[str] = set()
        self._is_following_over = False

    def add(self, line: Line) -> None:
        """Add a line; callable from any thread."""
        with self._lock:
            self.history.add(line)
            self._file.write(history.text_of(line) + "\n")

    def close(self) -> None:
        self._file.close()

    # -- the API server --------------------------------------------------------------------------

    def see_job(self, change: Change) -> None:
        metadata = change.item["metadata"]
        owner = next(
            (one for one in metadata.get("ownerReferences", ()) if one.get("controller")), None
        )
        annotations = metadata.get("annotations", {})
        if owner is None or SLOT not in annotations:
            return
        unique = metadata["uid"]
        at_us = now_us()
        if unique not in self._jobs:
            self._jobs.add(unique)
            payload = json.loads(annotations.get(PAYLOAD, "{}"))
            trigger = annotations.get(TRIGGER, "")
            self.add(
                Effect(
                    target="job",
                    uid=_object(owner["uid"], trigger, metadata["name"]),
                    slot_us=history.instant_us(annotations[SLOT]),
                    at_us=at_us,
                    since_us=history.instant_us(metadata["creationTimestamp"]),
                    key=metadata["name"],
                    unique=unique,
                    edit=payload.get("edit", 0),
                    begun_rev=int(metadata["resourceVersion"]),
                )
            )
        is_over = change.kind == "DELETED" or "deletionTimestamp" in metadata
        if (is_over or _is_over(change.item)) and unique not in self._ended:
            self._ended.add(unique)
            rev = int(metadata["resourceVersion"])
            self.add(JobEnd(unique=unique, rev=rev, at_us=at_us))

    def see_schedule(self, change: Change) -> None:
        metadata, status = change.item["metadata"], change.item.get("status", {})
        generation = metadata.get("generation", 0)
        ready = any(
            one["type"] == "Ready"
            and one["status"] == "True"
            and one.get("observedGeneration") == generation
            for one in status.get("conditions", ())
        )
        if ready and (metadata["uid"], generation) not in self.history.ready:
            self.add(ReadySeen(uid=metadata["uid"], generation=generation, at_us=now_us()))

    def see_lease(self, change: Change) -> None:
        annotations = change.item["metadata"].get("annotations", {})
        holder = change.item["spec"].get("holderIdentity") or ""
        if change.kind != "DELETED" and EPOCH in annotations:
            seen = LeaseSeen(at_us=now_us(), holder=holder, epoch=int(annotations[EPOCH]))
            last = self.history.leases[-1] if self.history.leases else None
            if last is None or (last.holder, last.epoch) != (seen.holder, seen.epoch):
                self.add(seen)

    # -- receivers and streams -------------------------------------------------------------------

    def see_request(self, request: receiver.Request, *, accepted: bool) -> None:
        data = json.loads(request.body)["data"]
        of = data["schedule"]
        at_us = now_us()
        payload = data["payload"] or {}
        uid = f"{of['set']}/{of['name']}" if "set" in of else of["uid"]
        self.add(
            Effect(
                target="webhook",
                uid=_object(uid, data["trigger"], data["id"]),
                slot_us=history.instant_us(data["scheduled_time"]),
                at_us=at_us,
                since_us=at_us,
                key=request.header("webhook-id") or "",
                edit=payload.get("edit", 0),
                accepted=accepted,
            )
        )

    def stop_following(self) -> None:
        """Stop reading streams: what Redis does from now on does not belong to the run."""
        self._is_following_over = True

    async def follow_stream(self, key: str, client: Callable[[], redis.Redis | None]) -> None:
        """Read new entries until stopped; retry while the server is unreachable."""
        reading = _Reading()
        while not self._is_following_over:
            await asyncio.to_thread(self._read_stream, key, client, reading)
            await asyncio.sleep(_POLL_SECONDS)

    def _read_stream(
        self, key: str, client: Callable[[], redis.Redis | None], reading: _Reading
    ) -> None:
        began_us = now_us()
        try:
            connected = client()
            if connected is None:
                return
            with connected:
                seconds, micros = connected.time()
                # A clock that was set back: ids repeat the last millisecond until it has passed it.
                is_off = abs(int(seconds) * 1_000_000 + int(micros) - now_us()) > _NEAR_US
                entries = connected.xrange(key, min=reading.begin(connected, key))
        except redis.RedisError:
            return
        for raw, fields in entries:
            entry = {name.decode(): value.decode() for name, value in fields.items()}
            id_ = reading.last = raw.decode()
            if (id_, entry["id"]) not in reading.seen:
                reading.seen.add((id_, entry["id"]))
                self._see_entry(id_, entry, _NEVER_US if is_off else reading.since_us)
        reading.since_us = began_us

    def _see_entry(self, id_: str, fields: dict[str, str], since_us: int) -> None:
        # a server with a wrong clock writes wrong times, and future ones for a while afterwards
        at_us, seen_us = int(id_.partition("-")[0]) * 1000, now_us()
        if not since_us - _NEAR_US <= at_us <= seen_us:
            at_us = seen_us
        payload = json.loads(fields.get("payload") or "{}")
        self.add(
            Effect(
                target="stream",
                uid=fields["schedule_id"],
                slot_us=history.instant_us(fields["scheduled_time"]),
                at_us=at_us,
                since_us=at_us,
                key=fields["id"],
                unique=id_,
                edit=payload.get("edit", 0),
            )
        )


@dataclasses.dataclass(slots=True)
class _Reading:
    """The position in a stream.

    Attributes:
        server: the server process that it was read from.
        first, last: ids of its first entry, and of the newest one read.
        seen: ids with their keys; a server that fell back may reuse an id for another entry.
        since_us: when it was last read; a new entry was appended after that.
    """

    server: str = ""
    first: str = ""
    last: str = ""
    seen: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    since_us: int = 0

    def begin(self, connected: redis.Redis, key: str) -> str:
        """Where XRANGE continues: anew on another server, and where it lost the stream."""
        server = str(connected.info("server")["run_id"])
        try:
            info = connected.xinfo_stream(key)
        except redis.ResponseError:  # there is none
            return "-"
        first = info["first-entry"][0].decode() if info["first-entry"] else ""
        if (server, first) != (self.server, self.first):
            self.server, self.first, self.last = server, first, ""
        return f"({self.last}" if self.last else "-"


def _object(uid: str, trigger: str, id_: str) -> str:
    """Return what ran: the Schedule or member, or a run by hand, which ends ``id_``."""
    return f"run/{id_.rpartition('-')[2]}" if trigger == "Manual" else uid


def _is_over(job: dict[str, Any]) -> bool:
    return any(
        one["type"] in {"Complete", "Failed"} and one["status"] == "True"
        for one in job.get("status", {}).get("conditions", ())
    )
