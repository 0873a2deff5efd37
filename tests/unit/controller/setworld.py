"""The world of the controller with ScheduleSets in it."""

from __future__ import annotations

from typing import Any

from duepoint.delayqueue.members import values
from duepoint.kube import schedules
from duepoint.model import targets
from duepoint.schedules import rule as rules
from duepoint.schedules.definition import Definition
from duepoint.schedules.sets.setrecord import SetRecord
from tests.support.virtualqueue import at_once
from tests.unit.controller.world import NAMESPACE, World

NAME = "customers"
DAILY = rules.Rule(timing=rules.Timing(schedules=("@daily",)))


class SetWorld(World):
    """One API server, one queue, at most one leader, and the HTTP API played by ``put``."""

    # -- what tests do ---------------------------------------------------------------------------

    async def apply_set(
        self, name: str = NAME, *, namespace: str = NAMESPACE, **fields: Any
    ) -> dict[str, Any]:
        """Create or edit a set; a webhook unless told otherwise."""
        spec = dict(fields)
        if not spec.keys() & targets.KINDS:
            spec["webhook"] = {"url": "https://hooks.example.com/x"}
        manifest = {"metadata": {"namespace": namespace, "name": name}, "spec": spec}
        applied = await self.api.apply(schedules.SET_PLURAL, manifest)
        await self.clock.settle()
        return applied

    async def delete_set(self, name: str = NAME) -> None:
        """Ask for the deletion, as kubectl does."""
        await self.api.request("DELETE", self.set_path(name))

    async def put(self, count: int, name: str = NAME) -> None:
        """Members as the HTTP API writes them."""
        record = self.record(name)
        assert record is not None
        rows = [values.MemberWrite(id=f"m{number}", rule=DAILY) for number in range(count)]
        answers = await self.queue.members.put(record, rows)
        assert {answer.outcome for answer in answers} <= {values.Outcome.CREATED}

    # -- what tests see --------------------------------------------------------------------------

    def set_path(self, name: str = NAME) -> str:
        return schedules.path(NAMESPACE, name, plural=schedules.SET_PLURAL)

    def set_object(self, name: str = NAME) -> dict[str, Any] | None:
        return self.api.stored(schedules.SET_PLURAL, NAMESPACE, name)

    def set_status(self, name: str = NAME) -> dict[str, Any]:
        found = self.set_object(name)
        assert found is not None
        return found["status"]

    def set_condition(self, type_: str, name: str = NAME) -> dict[str, Any] | None:
        listed = self.set_status(name).get("conditions", [])
        return next((one for one in listed if one["type"] == type_), None)

    def set_ready(self, name: str = NAME) -> tuple[str, str]:
        found = self.set_condition("Ready", name)
        return ("", "") if found is None else (found["status"], found["reason"])

    def finalizers(self, name: str = NAME) -> list[str]:
        found = self.set_object(name)
        assert found is not None
        return found["metadata"].get("finalizers") or []

    def record(self, name: str = NAME) -> SetRecord | None:
        return at_once(self.queue.inspector.sets.read(NAMESPACE, name))

    def members(self, uid: str) -> dict[str, Definition]:
        """By id."""
        owned = (one for one in self.definitions() if one.owner is not None)
        return {one.name: one for one in owned if one.owner.uid == uid}


FINALIZER = schedules.FINALIZER
