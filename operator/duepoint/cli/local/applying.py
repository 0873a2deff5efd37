"""Manifests to objects of the API server in memory: created, replaced, deleted.

Only what the manifests say anew is written: an object that the operator has deleted meanwhile, such
as a ScheduleRun at the end of its time to live, does not come back. Secrets are written before the
Schedules that name them. Expected refusals are a ``Wrong`` with the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from duepoint.cli.local.manifestfiles import LocalObject, ObjectName, Wrong
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules
from duepoint.kube.local.api import LocalApi

_OURS = f"/apis/{schedules.API_VERSION}"
#: Group and plural of each kind, in the order of writing.
_KINDS = {
    "Secret": ("/api/v1", "secrets"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Schedule": (_OURS, schedules.PLURAL),
    "ScheduleRun": (_OURS, schedules.RUN_PLURAL),
}
_ORDER = {kind: place for place, kind in enumerate(_KINDS)}


class AppliedChange(NamedTuple):
    """One object that was written."""

    what: Literal["created", "changed", "deleted"]
    key: ObjectName
    file: str


class Applier:
    """Remembers what was written last."""

    def __init__(self, api: LocalApi) -> None:
        self._api = api
        self._applied: dict[ObjectName, LocalObject] = {}

    async def apply(
        self, wanted: Mapping[ObjectName, LocalObject], stop: asyncio.Event
    ) -> tuple[list[AppliedChange], list[Wrong]]:
        """Write what has changed since the last call; thousands take a while, so until ``stop``."""
        changes: list[AppliedChange] = []
        wrong: list[Wrong] = []
        for key in sorted(self._applied.keys() - wanted.keys(), key=_order, reverse=True):
            gone = self._applied.pop(key)
            if await self._delete(key):
                changes.append(AppliedChange("deleted", key, gone.file))
        for key in sorted(wanted, key=_order):
            if stop.is_set():
                break
            before, new = self._applied.get(key), wanted[key]
            if before is not None and before.document == new.document:
                continue
            if before is not None and key[0] == "ScheduleRun" and _spec(before) != _spec(new):
                message = "a ScheduleRun does not change; write another metadata.name for a new run"
                wrong.append(Wrong(where=new.where, file=new.file, field="spec", message=message))
                continue
            try:
                change = await self._write(key, new, is_new=before is None)
            except kube_errors.ApiError as refused:
                message = refused.server_message or str(refused)
                former = () if before is None else (key,)
                refusal = Wrong(
                    where=new.where, file=new.file, field="", message=message, former=former
                )
                wrong.append(refusal)
            else:
                self._applied[key] = new
                changes.append(change)
        return changes, wrong

    async def _write(self, key: ObjectName, new: LocalObject, *, is_new: bool) -> AppliedChange:
        self._api.add_namespace(key[1])
        if not is_new:
            try:
                await self._api.request("PUT", _path(key, key[2]), new.document)
            except kube_errors.NotFound:
                pass
            else:
                return AppliedChange("changed", key, new.file)
        await self._api.request("POST", _path(key), new.document)
        return AppliedChange("created", key, new.file)

    async def _delete(self, key: ObjectName) -> bool:
        try:
            await self._api.request("DELETE", _path(key, key[2]))
        except kube_errors.NotFound:
            return False
        return True


def _order(key: ObjectName) -> tuple[int, str, str]:
    return _ORDER[key[0]], key[1], key[2]


def _path(key: ObjectName, name: str = "") -> str:
    group, plural = _KINDS[key[0]]
    return port.path(group, key[1], plural, name)


def _spec(of: LocalObject) -> Any:  # noqa: ANN401 - any JSON
    return of.document.get("spec")
