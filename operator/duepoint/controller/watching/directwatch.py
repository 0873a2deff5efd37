"""The watch through our own ``kube.port.Api``, for an in-memory API server.

kopf needs an HTTP server. ``duepoint run`` has none, and a socket that serves Secrets to every
process of the machine would be worse than none. The services of a term see the same as with kopf:
the metadata of each changed object, and a request to compare after each list.
"""

from __future__ import annotations

import asyncio

from duepoint.controller import observed
from duepoint.controller.term import TermContext
from duepoint.kube import errors, port, schedules

#: The wait before the next list when a watch has ended.
_AGAIN_SECONDS = 0.2


async def watch(term: TermContext) -> None:
    """Watch until cancelled; replaces ``kopfthread.watch``."""
    async with asyncio.TaskGroup() as group:
        for plural in (schedules.PLURAL, schedules.RUN_PLURAL, schedules.SET_PLURAL):
            for namespace in term.namespaces or (None,):
                group.create_task(_follow(term, plural, namespace))


async def _follow(term: TermContext, plural: str, namespace: str | None) -> None:
    path, version = schedules.collection(namespace, plural=plural), ""
    observe = term.services.observers[plural]
    while True:
        async for page in term.api.list_pages(path, schedules.Schedule):
            version = page.metadata.resource_version
            for item in page.items:
                observe(observed.of_metadata(item.metadata))
        term.health.well("watch")
        term.services.resync.request()
        try:
            async for change in term.api.watch(path, schedules.Schedule, version):
                is_deleted = change.type == port.ChangeType.DELETED
                observe(observed.of_metadata(change.item.metadata, is_deleted=is_deleted))
        except errors.Gone:
            await term.clock.sleep(_AGAIN_SECONDS)
