"""Watching through our own ``kube.port.Api``, for an API server in memory.

kopf speaks HTTP to a server; in ``duepoint run`` there is none to speak to, and a socket that
serves Secrets to every process of the machine would be worse than none. What the services of a term
see is the same: the metadata of each changed object, and word of every list.
"""

from __future__ import annotations

import asyncio

import msgspec

from duepoint.controller import observed
from duepoint.controller.term import TermContext
from duepoint.kube import errors, port, schedules

#: Between two lists, where one watch after another ends.
_AGAIN_SECONDS = 0.2


class MetadataOnly(msgspec.Struct, frozen=True):
    """An object without its texts."""

    metadata: port.Metadata


class DirectWatch:
    """The service; in the place of ``KopfThread``."""

    def __init__(self, term: TermContext) -> None:
        self._term = term

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for plural in (schedules.PLURAL, schedules.RUN_PLURAL, schedules.SET_PLURAL):
                for namespace in self._term.namespaces or (None,):
                    group.create_task(self._follow(plural, namespace))

    async def _follow(self, plural: str, namespace: str | None) -> None:
        path = schedules.collection(namespace, plural=plural)
        while True:
            version = await self._list(plural, path)
            try:
                async for change in self._term.api.watch(path, MetadataOnly, version):
                    is_deleted = change.type == port.ChangeType.DELETED
                    self._take(plural, change.item.metadata, is_deleted=is_deleted)
            except errors.Gone:
                await self._term.clock.sleep(_AGAIN_SECONDS)

    async def _list(self, plural: str, path: str) -> str:
        version = ""
        async for page in self._term.api.list_pages(path, MetadataOnly):
            version = page.metadata.resource_version
            for item in page.items:
                self._take(plural, item.metadata, is_deleted=False)
        self._term.health.well("watch")
        self._term.services.resync.request()
        return version

    def _take(self, plural: str, metadata: port.Metadata, *, is_deleted: bool) -> None:
        self._term.services.observe(plural, observed.of_metadata(metadata, is_deleted=is_deleted))
