"""The users of a history, who apply, edit and delete objects and change members of sets.

They record every wish with the instant at which it was made and the instant at which its status
was first ``Ready`` or the HTTP API answered. The judge relies on these alone.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import msgspec

from duepoint.kube import errors, port, schedules, times
from tests.simulation.apiclient import Answer, ApiClient
from tests.simulation.cluster import NAMESPACE, Cluster
from tests.simulation.faults import Kind
from tests.simulation.plans import BEGIN_US, ManualRun, Planned, Story, Wish, target_of

_SET_SECONDS = 5.0
_RESCHEDULED = "@every 9s"
_MEMBER_RESCHEDULED = "*/9 * * * * *"


class _Shown(msgspec.Struct, frozen=True):
    metadata: port.Metadata
    status: dict[str, Any] = {}


class Users:
    """All users of a history.

    Attributes:
        wishes: by the name of the Schedule, set or member, in order.
        runs: ScheduleRuns that were created.
    """

    def __init__(self, story: Story, cluster: Cluster, client: ApiClient) -> None:
        self._story = story
        self._cluster = cluster
        self._loop = cluster.network.loop
        self._client = client
        self.wishes: dict[str, list[Wish]] = {each.name: [] for each in story.schedules}
        self.wishes |= {name: [] for name in story.sets}
        self.runs: list[ManualRun] = []
        self._numbers = itertools.count(1)

    def begin(self) -> None:
        """Schedule everything that is planned for its time."""
        for plural in (schedules.PLURAL, schedules.SET_PLURAL)[: 1 + bool(self._story.sets)]:
            self._loop.spawn(self._watch_readiness(plural))
        for name, target in self._story.sets.items():
            self._at(_SET_SECONDS, self._apply_set, name, target)
        for planned in self._story.schedules:
            apply = self._put_member if planned.set_name else self._apply
            self._at(planned.apply_seconds, apply, planned)

    def _at(self, seconds: float, do: Any, *args: Any) -> None:
        at_us = BEGIN_US + round(seconds * 1e6)
        self._loop.in_world_at(at_us, lambda: self._loop.spawn(do(*args)))

    # -- objects -------------------------------------------------------------------------------

    async def _apply(self, planned: Planned) -> None:
        spec = {**target_of(planned.name, planned.target), **planned.timing}
        await self._create(planned.name, spec)

    async def _apply_set(self, name: str, target: str) -> None:
        spec = msgspec.json.decode(msgspec.json.encode(target_of(name, target)))
        if target == "job":
            spec["jobTemplate"]["spec"]["ttlSecondsAfterFinished"] = 600
        await self._create(name, {**spec, "limits": {"members": 1_000}})

    async def _create(self, name: str, spec: Mapping[str, Any]) -> None:
        plural = self._plural(name)
        kind = schedules.SET_KIND if plural == schedules.SET_PLURAL else schedules.KIND
        answer = await self._cluster.create(plural, kind, name, spec)
        self._note_wish(name, answer, spec)

    def _plural(self, name: str) -> str:
        return schedules.SET_PLURAL if name in self._story.sets else schedules.PLURAL

    def _path(self, name: str) -> str:
        return schedules.path(NAMESPACE, name, plural=self._plural(name))

    async def _patch(self, name: str, change: Mapping[str, Any]) -> None:
        found = await self._cluster.document(self._path(name))
        if found is None or found["metadata"].get("deletionTimestamp"):
            return
        try:
            answer = await self._cluster.patch(self._path(name), {"spec": change})
        except errors.NotFound:  # another user has just deleted it
            return
        self._note_wish(name, answer, answer["spec"])

    async def _delete(self, name: str) -> None:
        found = await self._cluster.document(self._path(name))
        if found is not None and not found["metadata"].get("deletionTimestamp"):
            await self._cluster.delete(self._path(name), found["metadata"]["uid"])
            self._note_wish(name, found, None)

    async def _recreate(self, name: str) -> None:
        """Delete an object and create it again at once, as a new object."""
        wishes = self.wishes[name]
        if wishes and (spec := wishes[-1].spec) is not None:
            await self._delete(name)
            await self._create(name, spec)

    async def _run(self, name: str, *, is_backfill: bool) -> None:
        wishes = self.wishes[name]
        if not wishes or (spec := wishes[-1].spec) is None:
            return
        body: dict[str, Any] = {"scheduleName": name}
        slots = None
        if is_backfill:
            if spec.get("concurrencyPolicy", "Allow") != "Allow":
                return
            # the anchor of a period is a slot too, but a new Schedule does not run it
            last_us = self._cluster.now_us() // 1_000_000 * 1_000_000
            slots = (min(wishes[0].at_us + 1_000_000, last_us), last_us)
            body["backfill"] = {"from": times.time_text(slots[0]), "to": times.time_text(slots[1])}
        else:
            body["trigger"] = {}
        run = f"{name}-by-hand-{next(self._numbers)}"
        await self._cluster.create(schedules.RUN_PLURAL, schedules.RUN_KIND, run, body)
        self.runs.append(ManualRun(run, name, wishes[-1].uid, self._cluster.now_us(), slots))
        self._cluster.network.note("user", f"{run}: {body}")

    def _note_wish(
        self, name: str, document: Mapping[str, Any], spec: Mapping[str, Any] | None
    ) -> None:
        metadata = document["metadata"]
        wish = Wish(self._cluster.now_us(), metadata["uid"], metadata["generation"], spec)
        self.wishes[name].append(wish)
        self._cluster.network.note("user", f"{name}: {'delete' if spec is None else dict(spec)}")

    async def _watch_readiness(self, plural: str) -> None:
        path = schedules.collection(NAMESPACE, plural=plural)
        async for change in self._cluster.server.watch(path, _Shown, "0"):
            metadata, status = change.item.metadata, change.item.status
            ready = next(
                (one for one in status.get("conditions", ()) if one["type"] == "Ready"), None
            )
            if ready is None or ready["status"] != "True":
                continue
            seen = ready.get("observedGeneration", status.get("observedGeneration", 0))
            wishes = self.wishes.get(metadata.name, [])
            for place, wish in enumerate(wishes):
                is_seen = wish.uid == metadata.uid and wish.generation <= seen
                if is_seen and wish.ready_us is None:
                    wishes[place] = dataclasses.replace(wish, ready_us=self._cluster.now_us())

    # -- members -------------------------------------------------------------------------------

    async def _put_member(self, planned: Planned) -> None:
        timing = dict(planned.timing)
        if timing.get("schedule", "").startswith("@at "):
            timing["at"] = timing.pop("schedule")[4:]
        target = target_of(planned.set_name, planned.target)
        await self._change_member(planned.name, "PUT", timing, {**target, **planned.timing})

    async def _patch_member(self, name: str, change: Mapping[str, Any]) -> None:
        await self._change_member(name, "PATCH", change, change)

    async def _change_member(
        self, name: str, method: str, body: Any, change: Mapping[str, Any] | None
    ) -> None:
        """Change a member; send the next change of it only when this one is answered.

        Args:
            change: fields of its spec; None = delete it.
        """
        async with self._client.turn_of(name):
            wishes = self.wishes[name]
            former = wishes[-1].spec if wishes else {}
            if former is None:
                return
            spec = None if change is None else {**former, **change}
            wishes.append(Wish(self._cluster.now_us(), name, len(wishes) + 1, spec))
            self._cluster.network.note("user", f"{name}: {method} {body}")
            answer = await self._client.change(name, method, body)
            if answer is Answer.DONE:
                wishes[-1] = dataclasses.replace(wishes[-1], ready_us=self._cluster.now_us())
            elif answer is Answer.NOTHING_THERE:
                wishes.pop()

    # -- events --------------------------------------------------------------------------------

    def carry_out(self, kind: Kind, name: str, number: int) -> None:
        """Do what an event at the message of this number makes a user do."""
        name = name or self._story.schedules[0].name
        work = self._of_member if "/" in name else self._of_object
        if self.wishes.get(name):
            self._loop.spawn(work(kind, name, number))

    async def _of_object(self, kind: Kind, name: str, number: int) -> None:
        match kind:
            case Kind.EDIT:
                await self._patch(name, {"payload": f"edited at {number}"})
            case Kind.RETIME if name not in self._story.sets:
                await self._patch(name, {"jitter": "1ms"})
            case Kind.RESCHEDULE if name not in self._story.sets:
                await self._patch(name, {"schedule": _RESCHEDULED})
            case Kind.POLICY if name not in self._story.sets:
                await self._patch(name, {"catchUpPolicy": "All"})
            case Kind.SUSPEND:
                await self._patch(name, {"suspend": True})
            case Kind.RESUME:
                await self._patch(name, {"suspend": False})
            case Kind.DELETE:
                await self._delete(name)
            case Kind.RECREATE if name not in self._story.sets:
                await self._recreate(name)
            case Kind.RUN | Kind.BACKFILL if name not in self._story.sets:
                await self._run(name, is_backfill=kind is Kind.BACKFILL)

    async def _of_member(self, kind: Kind, name: str, number: int) -> None:
        match kind:
            case Kind.EDIT:
                await self._patch_member(name, {"payload": f"edited at {number}"})
            case Kind.RETIME | Kind.RESCHEDULE if "*" in self.wishes[name][0].spec["schedule"]:
                await self._patch_member(name, {"schedule": _MEMBER_RESCHEDULED})
            case Kind.POLICY:
                await self._patch_member(name, {"catchUpPolicy": "All"})
            case Kind.SUSPEND:
                await self._patch_member(name, {"suspend": True})
            case Kind.RESUME:
                await self._patch_member(name, {"suspend": False})
            case Kind.DELETE:
                await self._change_member(name, "DELETE", None, None)
