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


async def watch(term: TermContext) -> None:
    """Watch until cancelled; in the place of ``kopfthread.watch``."""
    async with asyncio.TaskGroup() as group:
        for plural in (schedules.PLURAL, schedules.RUN_PLURAL, schedules.SET_PLURAL):
            for namespace in term.namespaces or (None,):
                group.create_task(_follow(term, plural, namespace))


async def _follow(term: TermContext, plural: str, namespace: str | None) -> None:
    path, version = schedules.collection(namespace, plural=plural), ""

    def show(metadata: port.Metadata, *, is_deleted: bool = False) -> None:
        term.services.observe(plural, observed.of_metadata(metadata, is_deleted=is_deleted))

    while True:
        async for page in term.api.list_pages(path, MetadataOnly):
            version = page.metadata.resource_version
            for item in page.items:
                show(item.metadata)
        term.health.well("watch")
        term.services.resync.request()
        try:
            async for change in term.api.watch(path, MetadataOnly, version):
                show(change.item.metadata, is_deleted=change.type == port.ChangeType.DELETED)
        except errors.Gone:
            await term.clock.sleep(_AGAIN_SECONDS)
